// Host memory registered with the device: populated and registered by several threads, a stripe each, and looked up by
// address.
//
// A page that is touched for the first time is zeroed and mapped, and registering pins it. Both are done page by page,
// so each thread does both for its own stripes. The driver decides whether it takes several registrations at a time or
// one after the other. It refuses a copy that runs from one registered range into the next. So borders lie between
// units (a slot of the host tier) and no record is cut in two; code that joins neighbours to one copy compares their
// ranges (Place::range).
//
// Thread: any. Blocks: registering does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "device/context/device.h"

namespace kvbm::device {

class PinnedHost {
 public:
  struct Place {
    CuPointer address = 0;  // the device's; 0: not inside, or in two ranges
    uintptr_t range = 0;    // start of the range that was registered as one; no other memory has it
  };

  // Limit of one registration in stripes. The driver may hold its lock while it registers, for 0.1 to 0.3 s per GiB by
  // estimate. Work of a device in use waits that long and no longer, and is not taken for work without an end
  // (device.lost_after).
  static constexpr uint64_t kMostStripe = 1ULL << 30;

  // Registers [memory], which begins and ends at pages. `unit`, a multiple of pages: stripes of whole units are
  // registered, each of at most `most_bytes` or one unit; 0: all of it is registered as one. Memory that the engine has
  // registered is accepted as it is.
  // not_permitted, no_memory, in_use (other code of the process has registered a part of it), tier_disabled: the memory
  // goes through staging then. Releases everything it did when it fails.
  static Result<std::unique_ptr<PinnedHost>> pin(std::shared_ptr<Device> device, MutableBytes memory, uint32_t threads,
                                                 uint64_t unit = 0, uint64_t most_bytes = kMostStripe);
  // Unregisters; no copy and no kernel may use the memory any more.
  ~PinnedHost();
  PinnedHost(const PinnedHost&) = delete;
  PinnedHost& operator=(const PinnedHost&) = delete;
  // Returns the device's address of [host, host + bytes).
  [[nodiscard]] Place place(const void* host, uint64_t bytes) const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept { return memory_.size(); }
  [[nodiscard]] size_t stripes() const noexcept { return stripes_.size(); }
  // Returns false if other code registered the memory, and will unregister it too.
  [[nodiscard]] bool owns_registration() const noexcept;

 private:
  struct Stripe {
    CuPointer address = 0;
    bool owned = false;
  };
  struct Share;  // work of one thread at a time

  PinnedHost(std::shared_ptr<Device> device, MutableBytes memory) : device_(std::move(device)), memory_(memory) {}
  std::vector<Share> cut(uint32_t threads, uint64_t unit, uint64_t most_bytes);
  Status take(const Share& share);
  [[nodiscard]] Status check_existing(MutableBytes stripe) const;
  [[nodiscard]] MutableBytes stripe(size_t i) const noexcept {
    return memory_.subspan(i * step_, std::min<uint64_t>(step_, memory_.size() - i * step_));
  }

  const std::shared_ptr<Device> device_;
  const MutableBytes memory_;
  uint64_t step_ = 0;  // bytes of every stripe except the last, which may be shorter
  std::vector<Stripe> stripes_;
};

}  // namespace kvbm::device

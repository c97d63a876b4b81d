// Host memory made known to the device: its pages brought in by several threads, then registered, and looked up by
// address.
//
// What takes long is the bringing in (a page that is touched for the first time is zeroed and mapped); pinning pages that
// are there is fast, and the driver does one registration at a time. So the threads do the former and one call the
// latter. One registration, not one a thread: the driver refuses a copy that runs from one registered range into the
// next, and neighbouring records are copied together.
//
// Thread: any. Blocks: registering does.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "device/device.h"

namespace kvbm::device {

class PinnedHost {
 public:
  // Registers [memory], which begins and ends at pages; read_only for memory that this process may not write (a mapping
  // of another process's pool). What the engine has registered as a whole is taken as it is. not_permitted, no_memory,
  // unsupported (read-only, where the device cannot), in_use (a part of it is registered by somebody else),
  // tier_disabled: what is left goes through staging. Releases everything it did when it fails.
  static Result<std::unique_ptr<PinnedHost>> pin(std::shared_ptr<Device> device, MutableBytes memory, bool read_only,
                                                 uint32_t threads);
  // No copy and no kernel may use the memory any more.
  ~PinnedHost();
  PinnedHost(const PinnedHost&) = delete;
  PinnedHost& operator=(const PinnedHost&) = delete;
  // The device's address of host memory, or 0 where [host, host + bytes) is not inside.
  [[nodiscard]] CuPointer device_pointer(const void* host, uint64_t bytes) const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept { return memory_.size(); }
  // False: somebody else registered it, and ends that too.
  [[nodiscard]] bool owns_registration() const noexcept { return owned_; }

 private:
  PinnedHost(std::shared_ptr<Device> device, MutableBytes memory) : device_(std::move(device)), memory_(memory) {}
  Status register_all(bool read_only);
  Status take_existing();

  const std::shared_ptr<Device> device_;
  const MutableBytes memory_;
  CuPointer address_ = 0;
  bool owned_ = false;
};

}  // namespace kvbm::device

// The devices that attached caches of one manager lie on.
//
// A device is opened with the first cache on it: its context is retained, its transfers are made, and the payloads of the
// host tier are registered with it. It is closed with the manager, when no cache and no operation is left. What cannot be
// registered is bounced through pinned staging, slower and right all the same.
//
// Thread: any. Blocks: place() and require() do, for loading libcuda and for registering memory. Lock: opening_, held over
// calls of the driver while a device is opened and never on a path of blocks; mutex_, a leaf.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "manager/environment.h"
#include "manager/options.h"

namespace kvbm::device {
class BlockCoder;
class Device;
struct Driver;
class PinnedHost;
class StorageReads;
class Transfers;
}  // namespace kvbm::device

namespace kvbm::manager {

// One device as the operations of a manager use it. Thread: any; blocks never, but where it is said.
class AttachedDevice {
 public:
  // `pinned` may be null: `why_not` says why then.
  AttachedDevice(std::unique_ptr<device::Transfers> transfers, std::unique_ptr<device::BlockCoder> coder,
                 std::shared_ptr<const device::PinnedHost> pinned, std::string why_not);
  ~AttachedDevice();
  AttachedDevice(const AttachedDevice&) = delete;
  AttachedDevice& operator=(const AttachedDevice&) = delete;
  [[nodiscard]] device::Transfers& transfers() noexcept { return *transfers_; }
  [[nodiscard]] device::Device& device() const noexcept;
  // Blocks, in its calls: for callers that asked for it (kvbm_cache_encode).
  [[nodiscard]] device::BlockCoder& coder() noexcept { return *coder_; }
  [[nodiscard]] uint64_t pinned_bytes() const noexcept;
  // "ready", or what is wrong in words: of a lost device what lost it.
  [[nodiscard]] std::string state();
  // Reads of files straight into the device's memory; null: there are none. Set before anybody else knows this.
  [[nodiscard]] device::StorageReads* storage() const noexcept { return storage_.get(); }
  // Whether all loads from disks take that way, or those alone that do not keep what they read.
  [[nodiscard]] bool storage_for_all() const noexcept { return storage_for_all_; }
  void set_storage(std::shared_ptr<device::StorageReads> storage, bool for_all) noexcept {
    storage_ = std::move(storage);
    storage_for_all_ = for_all;
  }

 private:
  // In this order: transfers end before the memory that they use is let go.
  const std::shared_ptr<const device::PinnedHost> pinned_;
  const std::string why_not_;
  std::shared_ptr<device::StorageReads> storage_;
  bool storage_for_all_ = false;
  std::unique_ptr<device::Transfers> transfers_;
  std::unique_ptr<device::BlockCoder> coder_;
};

// Where the tensors of a cache are said to lie.
enum class MemoryKind : uint32_t { automatic = 0, host = 1, cuda = 2 };

struct TensorPlace {
  const void* data = nullptr;
  uint64_t bytes = 0;
  size_t part = 0, tensor = 0;  // for messages
};

class DeviceCaches {
 public:
  // `payloads`: the host tier's, in slots of `slot_bytes`; they lie in `memory`.
  DeviceCaches(const Environment& environment, const DeviceOptions& options, MutableBytes payloads, uint64_t slot_bytes,
               std::shared_ptr<void> memory);
  // Blocks until what is under way on the devices has ended, device.lost_after at most for each call of the driver.
  ~DeviceCaches();
  DeviceCaches(const DeviceCaches&) = delete;
  DeviceCaches& operator=(const DeviceCaches&) = delete;

  // Where device.cuda is on: unsupported, with the reason, where no device can be used.
  Status require();
  // The device that all of these tensors lie on, opened if need be; null: they are host memory. invalid_argument names
  // the tensor that does not fit; unsupported says why there is no such device.
  Result<std::shared_ptr<AttachedDevice>> place(MemoryKind kind, uint32_t ordinal, std::span<const TensorPlace> tensors);
  // Those that are open, by ordinal.
  [[nodiscard]] std::vector<std::shared_ptr<AttachedDevice>> opened() const;

 private:
  Result<const device::Driver*> driver();
  void add_storage(AttachedDevice& attached, const std::shared_ptr<device::Device>& device) const;
  Result<std::shared_ptr<AttachedDevice>> open(uint32_t ordinal);
  Result<std::shared_ptr<AttachedDevice>> open_new(const device::Driver& driver, uint32_t ordinal);
  [[nodiscard]] std::shared_ptr<AttachedDevice> find(uint32_t ordinal) const;

  const Environment env_;
  const DeviceOptions options_;
  const MutableBytes payloads_;
  const uint64_t slot_bytes_;
  const std::shared_ptr<void> memory_;
  Mutex opening_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<AttachedDevice>> devices_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager

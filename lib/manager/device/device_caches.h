// Devices of the attached caches of one manager.
//
// A device is opened with the first cache on it: its context is retained, its transfers are made, and the payloads of
// the host tier are registered with it. It is closed with the manager, when no cache and no operation is left. Memory
// that cannot be registered is bounced through pinned staging, which is slower.
//
// Thread: any. Blocks: place() and require() do, for loading libcuda and for registering memory. Lock: opening_, held
// over calls of the driver while a device is opened and never on a path of blocks; mutex_, a leaf.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "base/thread/versioned.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"

namespace kvbm::device {
class BlockCoder;
class Device;
struct Driver;
class PinnedHost;
class StorageReads;
class Transfers;
}  // namespace kvbm::device

namespace kvbm::manager {

// One device as the operations of a manager use it. Thread: any; never blocks except as stated.
class AttachedDevice {
 public:
  // `pinned` may be null; then `why_not` gives the reason.
  AttachedDevice(std::unique_ptr<device::Transfers> transfers, std::unique_ptr<device::BlockCoder> coder,
                 std::shared_ptr<const device::PinnedHost> pinned, std::string why_not);
  ~AttachedDevice();
  AttachedDevice(const AttachedDevice&) = delete;
  AttachedDevice& operator=(const AttachedDevice&) = delete;
  [[nodiscard]] device::Transfers& transfers() noexcept { return *transfers_; }
  [[nodiscard]] device::Device& device() const noexcept;
  // Blocks in its calls, which only serve callers that asked for it (kvbm_cache_encode).
  [[nodiscard]] device::BlockCoder& coder() noexcept { return *coder_; }
  [[nodiscard]] uint64_t pinned_bytes() const noexcept;
  // Returns "ready", or the problem in words; of a lost device the cause of its loss.
  [[nodiscard]] std::string state();
  // Reads of files straight into the device's memory; null: there are none. Set before other threads see this object.
  [[nodiscard]] device::StorageReads* storage() const noexcept { return storage_.get(); }
  // Returns true if a load from disks uses storage(): all do, or only those that do not keep their blocks in the host.
  [[nodiscard]] bool reads_files(bool keeps) const noexcept {
    return storage_ != nullptr && (storage_for_all_ || !keeps);
  }
  void set_storage(std::shared_ptr<device::StorageReads> storage, bool for_all) noexcept {
    storage_ = std::move(storage);
    storage_for_all_ = for_all;
  }

 private:
  // In this order, so that transfers end before the memory that they use is released.
  const std::shared_ptr<const device::PinnedHost> pinned_;
  const std::string why_not_;
  std::shared_ptr<device::StorageReads> storage_;
  bool storage_for_all_ = false;
  std::unique_ptr<device::Transfers> transfers_;
  std::unique_ptr<device::BlockCoder> coder_;
};

// Location of a cache's tensors, as the caller states it.
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
  // Blocks until work on the devices has ended, at most device.lost_after for each call of the driver.
  ~DeviceCaches();
  DeviceCaches(const DeviceCaches&) = delete;
  DeviceCaches& operator=(const DeviceCaches&) = delete;

  // Returns unsupported, with the reason, if device.cuda is on and no device can be used.
  Status require();
  // Returns the device that all of these tensors lie on, opened if needed; null: they are host memory. invalid_argument
  // names the tensor that does not fit; unsupported tells why there is no such device.
  Result<std::shared_ptr<AttachedDevice>> place(MemoryKind kind, uint32_t ordinal,
                                                std::span<const TensorPlace> tensors);
  // Returns the open devices, by ordinal. The list stays as it is as long as this object.
  [[nodiscard]] const std::vector<std::shared_ptr<AttachedDevice>>& opened() const noexcept { return devices_.get(); }

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
  Versioned<std::vector<std::shared_ptr<AttachedDevice>>> devices_;  // by ordinal
};

}  // namespace kvbm::manager

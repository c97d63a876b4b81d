#include "manager/device/device_caches.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "device/coder/block_coder.h"
#include "device/context/device.h"
#include "device/context/device_link.h"
#include "device/driver/driver_library.h"
#include "device/driver/driver_watch.h"
#include "device/memory/device_memory.h"
#include "device/memory/pinned_host.h"
#include "device/storage/storage_reads.h"
#include "device/transfer/transfers.h"

namespace kvbm::manager {

namespace {

// Divisor of device.staging: a coder's window of plain bytes, and its coded output, each get this share of it.
constexpr uint64_t kCoderShare = 8;

std::string name_of(const TensorPlace& place) {
  return "tensor " + std::to_string(place.tensor) + " of part " + std::to_string(place.part);
}

}  // namespace

// ---- AttachedDevice ----

AttachedDevice::AttachedDevice(std::unique_ptr<device::Transfers> transfers, std::unique_ptr<device::BlockCoder> coder,
                               std::shared_ptr<const device::PinnedHost> pinned, std::string why_not)
    : pinned_(std::move(pinned)),
      why_not_(std::move(why_not)),
      transfers_(std::move(transfers)),
      coder_(std::move(coder)) {}

AttachedDevice::~AttachedDevice() = default;

device::Device& AttachedDevice::device() const noexcept { return transfers_->device(); }

uint64_t AttachedDevice::pinned_bytes() const noexcept { return pinned_ == nullptr ? 0 : pinned_->bytes(); }

std::string AttachedDevice::state() {
  if (device().is_lost()) return "lost: " + device().lost_why();
  if (pinned_ == nullptr) return "ready; host memory is not registered with it: " + why_not_;
  return "ready";
}

// ---- DeviceCaches ----

DeviceCaches::DeviceCaches(const Environment& environment, const DeviceOptions& options, MutableBytes payloads,
                           uint64_t slot_bytes, std::shared_ptr<void> memory)
    : env_(environment), options_(options), payloads_(payloads), slot_bytes_(slot_bytes), memory_(std::move(memory)) {}

// Ends each device on a thread of its own, which is left behind if a call of the driver does not return. Memory
// registered there then stays mapped.
DeviceCaches::~DeviceCaches() {
  const MemoryWait patient;
  std::vector<std::shared_ptr<AttachedDevice>> devices = devices_.end();
  for (std::shared_ptr<AttachedDevice>& one : devices) {
    const std::shared_ptr<device::DeviceLog> log = one->device().log();
    (void)device::call_beside("kvbm-closing", options_.lost_after_ns,
                              [one = std::move(one), memory = memory_]() mutable { one.reset(); });
    log->close();  // a session may still hold the device
  }
}

Result<const device::Driver*> DeviceCaches::driver() {
  if (options_.driver != nullptr) return options_.driver;
  const auto library = device::driver_library(options_.library);
  if (!library.ok()) return library.status();
  return &library.value()->driver;
}

Status DeviceCaches::require() {
  if (options_.use != DeviceOptions::Use::on) return {};
  const auto loaded = driver();
  if (!loaded.ok()) return loaded.status();
  const auto devices = device::list_devices(*loaded.value());
  if (!devices.ok()) return devices.status();
  return devices.value().empty() ? Status(Code::unsupported, "device.cuda is on and the driver shows no device")
                                 : Status();
}

Result<std::shared_ptr<AttachedDevice>> DeviceCaches::place(MemoryKind kind, uint32_t ordinal,
                                                            std::span<const TensorPlace> tensors) {
  std::shared_ptr<AttachedDevice> host;
  const bool cuda = kind == MemoryKind::cuda;
  if (options_.use == DeviceOptions::Use::off) {
    if (cuda) return Status(Code::unsupported, "the cache is said to be on a device, and device.cuda is off");
    return host;
  }
  // Without a driver in the process no address can be a device's.
  if (!cuda && options_.driver == nullptr && !device::driver_is_loaded()) return host;
  const auto loaded = driver();
  if (!loaded.ok()) return cuda ? Result<std::shared_ptr<AttachedDevice>>(loaded.status()) : host;
  const device::Driver& table = *loaded.value();
  if (!cuda) {
    // The CPU can access managed memory as well, so it counts as the host's.
    const auto is_device = [&](const TensorPlace& place) {
      return device::pointer_facts(table, place.data).kind == device::PointerKind::device;
    };
    const auto first = std::find_if(tensors.begin(), tensors.end(), is_device);
    if (first == tensors.end()) return host;
    if (kind == MemoryKind::host) {
      return Status(Code::invalid_argument, "a tensor is said to be host memory and is a device's", name_of(*first));
    }
    ordinal = static_cast<uint32_t>(device::pointer_facts(table, first->data).ordinal);
  }
  auto opened = open(ordinal);
  if (!opened.ok()) return opened.status();
  const device::Device& on = opened.value()->device();
  if (on.is_lost()) return Status(Code::tier_disabled, "the device was lost", on.lost_why());
  for (const TensorPlace& place : tensors) {
    const Status fits = device::check_device_extent(on, place.data, place.bytes, name_of(place));
    if (!fits.ok()) return fits;
  }
  return opened;
}

std::shared_ptr<AttachedDevice> DeviceCaches::find(uint32_t ordinal) const {
  for (const auto& device : devices_.get()) {
    if (device->device().facts().ordinal == static_cast<int>(ordinal)) return device;
  }
  return nullptr;
}

Result<std::shared_ptr<AttachedDevice>> DeviceCaches::open(uint32_t ordinal) {
  if (auto there = find(ordinal)) return there;
  MutexLock opening(opening_);
  if (auto there = find(ordinal)) return there;
  const auto table = driver();
  if (!table.ok()) return table.status();
  auto made = open_new(*table.value(), ordinal);
  if (!made.ok()) return made;
  devices_.replace([&](std::vector<std::shared_ptr<AttachedDevice>>& devices) {
    const auto after = std::find_if(devices.begin(), devices.end(), [ordinal](const auto& device) {
      return device->device().facts().ordinal > static_cast<int>(ordinal);
    });
    devices.insert(after, made.value());
  });
  return made;
}

Result<std::shared_ptr<AttachedDevice>> DeviceCaches::open_new(const device::Driver& driver, uint32_t ordinal) {
  if (ordinal > INT16_MAX) return Status(Code::unsupported, "there is no such device", std::to_string(ordinal));
  auto device = device::Device::open(driver, static_cast<int>(ordinal), env_.log, options_.lost_after_ns);
  if (!device.ok()) return device.status();
  if (device::has_one_connection()) {
    env_.log->write(LogLevel::warning, "device",
                    "CUDA_DEVICE_MAX_CONNECTIONS is 1: a stream that waits for a layer (wait_layers) may hold up the "
                    "load that it waits for, until the device counts as lost; set it to 2 or more");
  }
  if (device::has_blocking_launches()) {
    env_.log->write(
        LogLevel::warning, "device",
        "CUDA_LAUNCH_BLOCKING is set: a launch behind a stream's wait for a layer would not return, so loads with "
        "wait_layers = KVBM_WAIT_LAYERS_ON_DEVICE are refused; unset it, or use KVBM_WAIT_LAYERS_ISSUED");
  }
  device::TransferOptions options;
  options.multiprocessors = options_.multiprocessors;
  options.staging_bytes = options_.staging_bytes;
  options.stall_ns = options_.lost_after_ns;
  options.plan.staged_run_bytes = options_.staged_run_bytes != 0
                                      ? options_.staged_run_bytes
                                      : device::staged_run_of_link(device.value()->facts().pci);
  options.plan.copies_behind_waits = options_.staged_run_bytes != 0;
  auto transfers = device::Transfers::create(device.value(), options, *env_.executor);
  if (!transfers.ok()) return transfers.status();
  std::shared_ptr<const device::PinnedHost> pinned;
  std::string why_not;
  auto registered = device::PinnedHost::pin(device.value(), payloads_, options_.pin_threads, slot_bytes_);
  if (registered.ok()) {
    pinned = std::move(registered).value();
    transfers.value()->know(pinned);
  } else if (registered.status().code() == Code::tier_disabled) {
    return registered.status();
  } else {
    why_not = registered.status().message();
    env_.log->write(LogLevel::warning, "device",
                    "host memory is not registered with the device, every leaf goes through staging: " + why_not);
  }
  device::CoderOptions coding;
  coding.multiprocessors = options_.multiprocessors;
  coding.window_bytes = options_.staging_bytes / kCoderShare;
  coding.stall_ns = options_.lost_after_ns;
  auto coder = std::make_unique<device::BlockCoder>(device.value(), coding);
  auto attached = std::make_shared<AttachedDevice>(std::move(transfers).value(), std::move(coder), std::move(pinned),
                                                   std::move(why_not));
  add_storage(*attached, device.value());
  return attached;
}

// Adds GPUDirect Storage. Without it disks are read through host memory; that is no error, and a warning only if the
// option asks for it.
void DeviceCaches::add_storage(AttachedDevice& attached, const std::shared_ptr<device::Device>& device) const {
  using Use = DeviceOptions::Use;
  if (options_.storage == Use::off || !options_.has_disk) return;
  const bool asked = options_.storage == Use::on;
  const auto refused = [&](const std::string& why) {
    const auto level = asked ? LogLevel::warning : LogLevel::info;
    env_.log->write(level, "device", "disks are read through host memory, not by GPUDirect Storage: " + why);
  };
  if (!asked && options_.storage_library.empty() && !device::has_nvidia_fs()) {
    return refused("the kernel has no nvidia-fs module");
  }
  const auto library = device::cufile_library(options_.storage_library);
  if (!library.ok()) return refused(library.status().message());
  if (!asked && library.value()->compatible_only()) {
    return refused(library.value()->path + " is in compatibility mode: it copies through host memory itself");
  }
  auto reads = device::StorageReads::create(device, *library.value(), options_.staging_bytes);
  if (!reads.ok()) return refused(reads.status().message());
  attached.set_storage(std::move(reads).value(), asked);
}

}  // namespace kvbm::manager

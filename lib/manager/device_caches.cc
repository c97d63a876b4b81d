#include "manager/device_caches.h"

#include <algorithm>
#include <utility>

namespace kvbm::manager {

namespace {

// What the driver says of an address: the device it lies on, and where its allocation ends.
struct Lies {
  bool on_device = false;
  bool known = false;  // to the driver at all
  uint32_t ordinal = 0;
  uint64_t end = 0;
};

Lies ask(const device::Driver& driver, uint64_t address) {
  Lies out;
  unsigned type = 0;
  if (driver.cuPointerGetAttribute(&type, device::kCuPointerMemoryType, address) != device::kCuSuccess) return out;
  out.known = true;
  int managed = 0;
  if (driver.cuPointerGetAttribute(&managed, device::kCuPointerIsManaged, address) != device::kCuSuccess) managed = 0;
  int ordinal = -1;
  if (type != device::kCuMemoryDevice || managed != 0 ||
      driver.cuPointerGetAttribute(&ordinal, device::kCuPointerDeviceOrdinal, address) != device::kCuSuccess ||
      ordinal < 0) {
    return out;
  }
  out.on_device = true;
  out.ordinal = static_cast<uint32_t>(ordinal);
  device::CuPointer start = 0;
  size_t size = 0;
  const bool ranged =
      driver.cuPointerGetAttribute(&start, device::kCuPointerRangeStart, address) == device::kCuSuccess &&
      driver.cuPointerGetAttribute(&size, device::kCuPointerRangeSize, address) == device::kCuSuccess;
  out.end = ranged ? start + size : address;
  return out;
}

std::string name_of(const TensorPlace& place) {
  return "part " + std::to_string(place.part) + ", tensor " + std::to_string(place.tensor);
}

uint64_t address_of(const TensorPlace& place) noexcept { return reinterpret_cast<uintptr_t>(place.data); }

// All of a tensor lies on the device. It may be made of several allocations that follow each other, as those of
// frameworks that grow their memory are.
Status check_tensor(const device::Driver& driver, uint32_t ordinal, const TensorPlace& place) {
  const uint64_t first = address_of(place);
  const uint64_t end = first + place.bytes;
  if (end < first) return {Code::invalid_argument, "a tensor goes beyond the end of memory", name_of(place)};
  uint64_t at = first;
  do {
    const Lies lies = ask(driver, at);
    if (at != first && (!lies.on_device || lies.ordinal != ordinal || lies.end <= at)) {
      return {Code::invalid_argument, "a tensor goes beyond its memory on the device",
              name_of(place) + ": " + std::to_string(place.bytes) + " bytes are said, " + std::to_string(at - first) +
                  " are there"};
    }
    if (!lies.known) {
      return {Code::invalid_argument, "a tensor is not in memory of the device: the driver does not know its address",
              name_of(place) + "; say KVBM_MEMORY_HOST if it is host memory"};
    }
    if (!lies.on_device) {
      return {Code::invalid_argument, "a tensor is not in memory of the device, but in host memory",
              name_of(place) + "; say KVBM_MEMORY_HOST"};
    }
    if (lies.ordinal != ordinal) {
      return {Code::invalid_argument, "a tensor is in memory of another device",
              name_of(place) + ": device " + std::to_string(lies.ordinal) + " instead of " + std::to_string(ordinal)};
    }
    at = std::max(lies.end, at);
    if (lies.end <= first) {
      return {Code::invalid_argument, "the driver does not say how far a tensor's memory reaches", name_of(place)};
    }
  } while (at < end);
  return {};
}

}  // namespace

// ---- AttachedDevice ----

AttachedDevice::AttachedDevice(std::unique_ptr<device::Transfers> transfers,
                               std::shared_ptr<const device::PinnedHost> pinned, std::string why_not)
    : pinned_(std::move(pinned)), why_not_(std::move(why_not)), transfers_(std::move(transfers)) {}

uint64_t AttachedDevice::pinned_bytes() const noexcept { return pinned_ == nullptr ? 0 : pinned_->bytes(); }

std::string AttachedDevice::state() {
  if (device().is_lost()) return "lost: it failed, or did not end what it had begun; the log says which";
  if (pinned_ == nullptr) return "ready; host memory is not registered with it: " + why_not_;
  return "ready";
}

// ---- DeviceCaches ----

DeviceCaches::DeviceCaches(const Environment& environment, const DeviceOptions& options, MutableBytes payloads)
    : env_(environment), options_(options), payloads_(payloads) {}

DeviceCaches::~DeviceCaches() = default;

Result<const device::Driver*> DeviceCaches::driver() {
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
  return devices.value().empty() ? Status(Code::unsupported, "device.cuda is on and the driver shows no device") : Status();
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
  if (!cuda && !device::driver_is_loaded()) return host;
  const auto loaded = driver();
  if (!loaded.ok()) return cuda ? Result<std::shared_ptr<AttachedDevice>>(loaded.status()) : host;
  const device::Driver& table = *loaded.value();
  if (!cuda) {
    const auto is_device = [&](const TensorPlace& place) { return ask(table, address_of(place)).on_device; };
    const auto first = std::find_if(tensors.begin(), tensors.end(), is_device);
    if (first == tensors.end()) return host;
    if (kind == MemoryKind::host) {
      return Status(Code::invalid_argument, "a tensor is said to be host memory and is a device's", name_of(*first));
    }
    ordinal = ask(table, address_of(*first)).ordinal;
  }
  auto opened = open(ordinal);
  if (!opened.ok()) return opened.status();
  if (opened.value()->device().is_lost()) return Status(Code::tier_disabled, "the device was lost");
  for (const TensorPlace& place : tensors) {
    if (Status fits = check_tensor(table, ordinal, place); !fits.ok()) return fits;
  }
  return opened;
}

std::shared_ptr<AttachedDevice> DeviceCaches::find(uint32_t ordinal) const {
  MutexLock lock(mutex_);
  for (const auto& device : devices_) {
    if (device->device().facts().ordinal == static_cast<int>(ordinal)) return device;
  }
  return nullptr;
}

std::vector<std::shared_ptr<AttachedDevice>> DeviceCaches::opened() const {
  MutexLock lock(mutex_);
  return devices_;
}

Result<std::shared_ptr<AttachedDevice>> DeviceCaches::open(uint32_t ordinal) {
  if (auto there = find(ordinal)) return there;
  MutexLock opening(opening_);
  if (auto there = find(ordinal)) return there;
  const auto table = driver();
  if (!table.ok()) return table.status();
  auto made = open_new(*table.value(), ordinal);
  if (!made.ok()) return made;
  MutexLock lock(mutex_);
  const auto after = std::find_if(devices_.begin(), devices_.end(), [ordinal](const auto& device) {
    return device->device().facts().ordinal > static_cast<int>(ordinal);
  });
  devices_.insert(after, made.value());
  return made;
}

Result<std::shared_ptr<AttachedDevice>> DeviceCaches::open_new(const device::Driver& driver, uint32_t ordinal) {
  if (ordinal > INT16_MAX) return Status(Code::unsupported, "there is no such device", std::to_string(ordinal));
  auto device = device::Device::open(driver, static_cast<int>(ordinal), env_.log);
  if (!device.ok()) return device.status();
  device::TransferOptions options;
  options.multiprocessors = options_.multiprocessors;
  options.staging_bytes = options_.staging_bytes;
  options.stall_ns = options_.lost_after_ns;
  auto transfers = device::Transfers::create(device.value(), options, *env_.executor);
  if (!transfers.ok()) return transfers.status();
  std::shared_ptr<const device::PinnedHost> pinned;
  std::string why_not;
  auto registered = device::PinnedHost::pin(device.value(), payloads_, false, options_.pin_threads);
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
  return std::make_shared<AttachedDevice>(std::move(transfers).value(), std::move(pinned), std::move(why_not));
}

}  // namespace kvbm::manager

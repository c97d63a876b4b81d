#include "manager/session/device_share.h"

#include <cstring>
#include <string>
#include <utility>

#include "device/memory/own_memory.h"
#include "manager/session/deferred_free.h"
#include "manager/session/device_asks.h"

namespace kvbm::manager {

using cluster::session::SharedMemory;

namespace {

constexpr size_t kBootBytes = 16;
constexpr size_t kSaidBytes = kBootBytes + device::kIpcMemoryBytes;

std::byte* address(device::CuPointer pointer) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
}

Status elsewhere() { return {Code::unsupported, "device memory is not shared", "the other side is another machine"}; }

}  // namespace

struct DeviceShare::Core {
  Core(std::shared_ptr<device::Device> the_device, const BootId& the_boot, std::shared_ptr<WeakExecutor> links)
      : device(std::move(the_device)),
        boot(the_boot),
        asks(DeviceAsks::create(device, std::move(links))),
        mappings(device) {}

  [[nodiscard]] bool is_here(const std::byte* said) const noexcept {
    return boot != BootId{} && std::memcmp(said, boot.data(), kBootBytes) == 0;
  }
  Result<SharedMemory> make(uint64_t bytes) {
    auto memory = device::OwnMemory::allocate(device, bytes);
    if (!memory.ok()) return memory.status();
    const auto exported = device::export_memory(*device, memory.value()->address(), bytes);
    if (!exported.ok()) return exported.status();
    memory.value()->name(exported.value());
    SharedMemory out;
    out.said.resize(kSaidBytes);
    std::memcpy(out.said.data(), boot.data(), kBootBytes);
    device::encode(exported.value(), out.said.data() + kBootBytes);
    out.data = address(memory.value()->address());
    out.bytes = bytes;
    out.keep = deferred_free(std::move(memory).value(), device->thread());
    return out;
  }
  // `said` has been checked for its size and machine.
  Result<SharedMemory> open(ConstBytes said, uint64_t bytes) {
    const device::IpcMemory memory = device::decode_ipc_memory(said.data() + kBootBytes);
    if (memory.bytes < bytes) {
      return Status(Code::invalid_argument, "another process's device memory cannot be mapped",
                    std::to_string(memory.bytes) + " bytes are said to hold " + std::to_string(bytes));
    }
    SharedMemory out;
    auto mapped = mappings.open(memory);
    if (!mapped.ok()) {
      // CUDA refuses to open a memory handle in the process that exported it. If another manager of this process did,
      // its address is found here and used directly.
      auto own = mapped.status().code() == Code::unsupported ? device::OwnMemory::find(device, memory) : nullptr;
      if (own == nullptr) return mapped.status();
      out.data = address(own->address());
      out.bytes = bytes;
      out.keep = deferred_free(std::move(own), device->thread());
      return out;
    }
    out.data = address(mapped.value()->pointer());
    out.bytes = bytes;
    out.keep = deferred_free(std::move(mapped).value(), device->thread());
    return out;
  }
  const std::shared_ptr<device::Device> device;
  const BootId boot;
  const std::shared_ptr<DeviceAsks> asks;
  device::IpcMappings mappings;
};

DeviceShare::DeviceShare(std::shared_ptr<device::Device> device, const BootId& boot,
                         std::shared_ptr<WeakExecutor> links)
    : core_(std::make_shared<Core>(std::move(device), boot, std::move(links))) {}

std::vector<std::byte> DeviceShare::place() const {
  if (core_->boot == BootId{} || core_->device->is_lost()) return {};
  std::vector<std::byte> out(kBootBytes);
  std::memcpy(out.data(), core_->boot.data(), kBootBytes);
  return out;
}

Status DeviceShare::near(ConstBytes place) const {
  if (place.size() != kBootBytes) return {Code::invalid_argument, "device memory is not shared", "no such place"};
  return core_->is_here(place.data()) ? Status() : elsewhere();
}

void DeviceShare::share(uint64_t bytes, Done done) {
  core_->asks->ask([core = core_, bytes] { return core->make(bytes); }, std::move(done));
}

void DeviceShare::map(ConstBytes said, uint64_t bytes, Done done) {
  Status refused;
  if (said.size() != kSaidBytes) {
    refused = Status(Code::invalid_argument, "another process's device memory cannot be mapped", "no name of memory");
  } else if (!core_->is_here(said.data())) {
    refused = elsewhere();
  }
  core_->asks->ask(
      [core = core_, said = std::vector<std::byte>(said.begin(), said.end()), bytes, refused = std::move(refused)] {
        return refused.ok() ? core->open(said, bytes) : Result<SharedMemory>(refused);
      },
      std::move(done));
}

}  // namespace kvbm::manager

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

bool is_here(const DeviceShare::BootId& boot, const std::byte* said) noexcept {
  return boot != DeviceShare::BootId{} && std::memcmp(said, boot.data(), kBootBytes) == 0;
}

Result<SharedMemory> make(const std::shared_ptr<device::Device>& device, const DeviceShare::BootId& boot,
                          uint64_t bytes) {
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
Result<SharedMemory> open(const std::shared_ptr<device::Device>& device, device::IpcMappings& mappings, ConstBytes said,
                          uint64_t bytes) {
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

}  // namespace

DeviceShare::DeviceShare(std::shared_ptr<device::Device> device, const BootId& boot,
                         std::shared_ptr<WeakExecutor> links)
    : device_(std::move(device)),
      boot_(boot),
      asks_(DeviceAsks::create(device_, std::move(links))),
      mappings_(std::make_shared<device::IpcMappings>(device_)) {}

std::vector<std::byte> DeviceShare::place() const {
  if (boot_ == BootId{} || device_->is_lost()) return {};
  std::vector<std::byte> out(kBootBytes);
  std::memcpy(out.data(), boot_.data(), kBootBytes);
  return out;
}

Status DeviceShare::near(ConstBytes place) const {
  if (place.size() != kBootBytes) return {Code::invalid_argument, "device memory is not shared", "no such place"};
  return is_here(boot_, place.data()) ? Status() : elsewhere();
}

void DeviceShare::share(uint64_t bytes, Done done) {
  asks_->ask([device = device_, boot = boot_, bytes] { return make(device, boot, bytes); }, std::move(done));
}

void DeviceShare::map(ConstBytes said, uint64_t bytes, Done done) {
  Status refused;
  if (said.size() != kSaidBytes) {
    refused = Status(Code::invalid_argument, "another process's device memory cannot be mapped", "no name of memory");
  } else if (!is_here(boot_, said.data())) {
    refused = elsewhere();
  }
  asks_->ask(
      [device = device_, mappings = mappings_, said = std::vector<std::byte>(said.begin(), said.end()), bytes,
       refused = std::move(refused)] {
        return refused.ok() ? open(device, *mappings, said, bytes) : Result<SharedMemory>(refused);
      },
      std::move(done));
}

}  // namespace kvbm::manager

#include "device/memory/own_memory.h"

#include <array>
#include <atomic>
#include <cstring>
#include <map>

#include "base/thread/mutex.h"

namespace kvbm::device {

namespace {

using Name = std::array<std::byte, kIpcMemoryBytes>;

Name name_of(const IpcMemory& said) noexcept {
  Name name;
  encode(said, name.data());
  return name;
}

}  // namespace

struct OwnMemory::Allocation {
  CuPointer address = 0;
  uint64_t bytes = 0;
  // The holder that takes the count from 1 to 0 frees the memory; none joins after that. Acquire and release: other
  // holders' use of the memory happens before.
  std::atomic<uint32_t> holders{1};

  bool join() noexcept {
    uint32_t n = holders.load(std::memory_order_relaxed);
    while (n != 0 && !holders.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel)) {
    }
    return n != 0;
  }
  bool leave() noexcept { return holders.fetch_sub(1, std::memory_order_acq_rel) == 1; }
};

struct OwnMemory::Table {
  Mutex mutex;
  std::multimap<Name, std::weak_ptr<Allocation>> rows KVBM_GUARDED_BY(mutex);
};

// Never destroyed, because managers may end later than static objects.
OwnMemory::Table& OwnMemory::table() {
  static auto* const one = new Table;
  return *one;
}

Result<std::shared_ptr<OwnMemory>> OwnMemory::allocate(std::shared_ptr<Device> device, uint64_t bytes) {
  auto allocation = std::make_shared<Allocation>();
  std::shared_ptr<OwnMemory> own(new OwnMemory(device));
  const Device::Scope scope(*device);
  if (!scope.entered()) return device->lost();
  const CuResult result = device->driver().cuMemAlloc(&allocation->address, bytes);
  if (Status s = device->check(result, "cuMemAlloc"); !s.ok()) return s;
  allocation->bytes = bytes;
  own->allocation_ = std::move(allocation);
  return own;
}

void OwnMemory::name(const IpcMemory& said) const {
  Table& all = table();
  MutexLock lock(all.mutex);
  std::erase_if(all.rows, [](const auto& row) { return row.second.expired(); });
  all.rows.emplace(name_of(said), allocation_);
}

std::shared_ptr<OwnMemory> OwnMemory::find(std::shared_ptr<Device> device, const IpcMemory& said) {
  if (device->is_lost() || std::memcmp(&said.device, &device->facts().uuid, sizeof said.device) != 0) return nullptr;
  std::shared_ptr<OwnMemory> own(new OwnMemory(std::move(device)));
  std::shared_ptr<Allocation> found;
  {
    Table& all = table();
    MutexLock lock(all.mutex);
    const auto [first, last] = all.rows.equal_range(name_of(said));
    for (auto row = first; row != last; ++row) {
      auto memory = row->second.lock();
      if (memory == nullptr) continue;
      if (found != nullptr) return nullptr;  // the driver gave two allocations one name: it is not clear which is meant
      found = std::move(memory);
    }
  }
  if (found == nullptr || !found->join()) return nullptr;
  own->allocation_ = std::move(found);
  return own;
}

// Frees nothing if the device is lost, because its memory is lost too.
OwnMemory::~OwnMemory() {
  if (allocation_ == nullptr || !allocation_->leave()) return;
  const Device::Scope scope(*device_);
  if (scope.entered()) device_->note(device_->driver().cuMemFree(allocation_->address), "cuMemFree");
}

CuPointer OwnMemory::address() const noexcept { return allocation_->address; }
uint64_t OwnMemory::bytes() const noexcept { return allocation_->bytes; }

}  // namespace kvbm::device

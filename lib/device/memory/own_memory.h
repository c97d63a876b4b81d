// Device memory that this process exports, findable by other managers of this process, for instance when one hands its
// blocks to another. The driver opens no handle in the process that made it, so descriptions of such memory
// (device/memory/ipc.h) are looked up here.
//
// The memory is freed with its last holder, by that holder's own device: the device that allocated it may be gone then,
// with its log. The table's reference does not count as a holder. Only the device that owns the memory finds it:
// another device would need peer access from the driver, which opening a handle enables and this lookup does not.
// Thread: any. Blocks: allocating and freeing may. Lock: that of the table, a leaf; the driver is not called under it.
#pragma once

#include <memory>
#include <utility>

#include "device/memory/ipc.h"

namespace kvbm::device {

class OwnMemory {
 public:
  // Allocates memory that is not initialised. no_memory, tier_disabled.
  static Result<std::shared_ptr<OwnMemory>> allocate(std::shared_ptr<Device> device, uint64_t bytes);
  // Finds memory from allocate() that a holder in this process named by `said`, at `device`'s own address. Null: no
  // memory is known by that name, or it is another device's.
  static std::shared_ptr<OwnMemory> find(std::shared_ptr<Device> device, const IpcMemory& said);

  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  [[nodiscard]] CuPointer address() const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept;
  // Makes this memory findable by find() under that name.
  void name(const IpcMemory& said) const;

 private:
  struct Allocation;
  struct Table;
  static Table& table();
  explicit OwnMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  const std::shared_ptr<Device> device_;    // this holder's
  std::shared_ptr<Allocation> allocation_;  // null: it holds nothing yet
};

}  // namespace kvbm::device

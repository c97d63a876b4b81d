// Device memory that this process exports, for whoever else is in this process: two managers, say, of which one hands its
// blocks to the other. The driver opens no handle where it was made, so what is said of such memory (device/ipc.h) is
// looked up here.
//
// It is freed with the last who holds it, by that one's own device: who made it may be gone then, with its log. A holder
// in the table is no holder. Only the device that it is memory of finds it: another one would need the driver to let it
// reach over, which opening a handle does and this does not. Thread: any. Blocks: making and freeing may. Lock: that of
// the table, a leaf; the driver is not called under it.
#pragma once

#include <memory>
#include <utility>

#include "device/ipc.h"

namespace kvbm::device {

class OwnMemory {
 public:
  // Its bytes are whatever was there before. no_memory, tier_disabled.
  static Result<std::shared_ptr<OwnMemory>> allocate(std::shared_ptr<Device> device, uint64_t bytes);
  // What export_memory said of memory from allocate() that somebody in this process holds, at `device`'s own address; null:
  // none is known by that name, or it is another device's.
  static std::shared_ptr<OwnMemory> find(std::shared_ptr<Device> device, const IpcMemory& said);

  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  [[nodiscard]] CuPointer address() const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept;
  // From now on it is found under that name.
  void name(const IpcMemory& said) const;

 private:
  struct Allocation;
  struct Table;
  static Table& table();
  explicit OwnMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  const std::shared_ptr<Device> device_;  // this holder's
  std::shared_ptr<Allocation> allocation_;  // null: it holds nothing yet
};

}  // namespace kvbm::device

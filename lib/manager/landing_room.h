// Where records from a tier below land: in host slots, or, for a load that only passes them on to the engine, in memory
// beside the host while no slot is free (LandingStaging).
//
// Why no load waits for room, and so none can wait for ever. A load that has nothing on its way always gets a place for
// one block: a slot, or staging, which for that one block may be beyond its limit. It asks for more only while it has
// some, and is not given more than there is. So what a load waits for is always its own: a tier that answers it, or a
// batch of its device. Nobody else has to release, offload, store or load first, however full the host is and whatever
// holds it; and staging is held by loads alone. The price is one block of memory beyond the limit for each load that is
// under way. What must have a slot (a prefetch: its aim is that the block stays) stands in line for it, see room_line.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/status.h"
#include "block/quotas.h"

namespace kvbm::manager {

class Manager;

// The memory of staged blocks: one mapping, made when the first block is taken and kept, in huge pages if the host asks for
// them. Blocks in small pages make a disk slow: each page is a piece of its own to the device (on virtio a fifth of the speed).
// Thread: any. Lock: mutex_, a leaf.
class StagedMemory {
 public:
  StagedMemory(uint64_t limit_bytes, uint64_t block_bytes, bool huge_pages)
      : stride_(round_up(block_bytes, kIoAlign)), most_(limit_bytes / stride_), huge_pages_(huge_pages) {}
  // Null: all are given out, or the system has no memory.
  [[nodiscard]] std::byte* take();
  void give_back(std::byte* block) noexcept;
  [[nodiscard]] uint64_t used_bytes() const;

 private:
  [[nodiscard]] bool map() KVBM_REQUIRES(mutex_);

  const uint64_t stride_;
  const uint64_t most_;
  const bool huge_pages_;
  mutable Mutex mutex_;
  std::unique_ptr<Arena> arena_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ KVBM_GUARDED_BY(mutex_);  // used last, taken first: it is faulted in; room for most_
  uint64_t used_ KVBM_GUARDED_BY(mutex_) = 0;             // blocks
};

// Memory for one block; kIoAlign-aligned, with room for what a slot has room for. Nobody finds it.
struct StagedBlock {
  MutableBytes bytes;
  std::shared_ptr<StagedMemory> memory;  // null: it was beyond the limit, and the system's
  ~StagedBlock();
};

class LandingStaging {
 public:
  // `block_bytes`: of one slot.
  LandingStaging(uint64_t limit_bytes, uint64_t block_bytes, bool huge_pages)
      : block_bytes_(block_bytes), memory_(std::make_shared<StagedMemory>(limit_bytes, block_bytes, huge_pages)) {}
  // Null: the limit does not allow it now; `beyond` it: the system has none. Thread: any.
  [[nodiscard]] std::shared_ptr<StagedBlock> take(bool beyond);
  // Of what is given out within the limit.
  [[nodiscard]] uint64_t used_bytes() const { return memory_->used_bytes(); }
  // Half of the host, and little of a large one: what lands here stays for milliseconds. 16 MiB are what a disk needs to be
  // busy (base/uring_io.cc) and as much again, which is verified and copied meanwhile.
  [[nodiscard]] static uint64_t limit_for(uint64_t host_bytes) noexcept;

 private:
  const uint64_t block_bytes_;
  const std::shared_ptr<StagedMemory> memory_;  // what is given out may outlive the manager
};

// Places for the leading items of a batch, one each: slots[i], or where that is kNoSlot staged[i].
struct LandingRoom {
  std::vector<SlotId> slots;
  std::vector<std::shared_ptr<StagedBlock>> staged;  // as long as slots, or empty: all are slots
  [[nodiscard]] size_t count() const noexcept { return slots.size(); }
};

// Slots for as many of `n` leading items as there is room for. ok, or why there are none. `evicting`: as Manager::allocate.
Code take_slots(Manager& manager, block::AccountId account, size_t n, LandingRoom& out, bool evicting = true);
// The same, and staging for as many as follow. `alone`: whoever asks has nothing else on its way, and gets one at
// least, unless the system has no memory.
void take_places(Manager& manager, block::AccountId account, size_t n, bool alone, LandingRoom& out);

}  // namespace kvbm::manager

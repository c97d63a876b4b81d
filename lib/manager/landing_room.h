// Destination buffers for records read from a tier below: host slots, or memory beside the host. The latter is for
// loads, which only pass the bytes to the engine, while no slot is free (LandingStaging).
//
// Why no load waits for a slot, and so none can wait forever. A load with nothing in flight always gets a place for
// one block: a slot, or staging, which may exceed its limit for that one block. A load asks for more only while it
// has some, and gets no more than there is. So a load only ever waits for its own work: a tier that answers it, or a
// batch of its device. No other caller has to release, offload, store or load first, however full the host is and
// whatever holds it. Only loads hold staging. The price is one block of memory beyond the limit for each load in
// progress. An operation that needs a slot waits in the space queue (room_line.h), such as a prefetch: its purpose is
// that the block stays.
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

// Memory of staged blocks: one mapping, made when the first block is taken and then kept, in huge pages if the host
// asks for them. Small pages make a disk slow: each page is a separate piece to the device (on virtio a fifth of the
// speed). Thread: any. Lock: mutex_, a leaf.
class StagedMemory {
 public:
  StagedMemory(uint64_t limit_bytes, uint64_t block_bytes, bool huge_pages)
      : stride_(round_up(block_bytes, kIoAlign)), most_(limit_bytes / stride_), huge_pages_(huge_pages) {}
  // Returns null if all blocks are in use, or the system has no memory.
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
  std::vector<std::byte*> free_ KVBM_GUARDED_BY(mutex_);  // last in, first out: a used block is faulted in; reserved
                                                          // for most_
  uint64_t used_ KVBM_GUARDED_BY(mutex_) = 0;             // blocks
};

// Memory for one block, aligned to kIoAlign and as large as a slot. No lookup finds it.
struct StagedBlock {
  MutableBytes bytes;
  std::shared_ptr<StagedMemory> memory;  // null: allocated beyond the limit, from the system
  ~StagedBlock();
};

class LandingStaging {
 public:
  // `block_bytes`: of one slot.
  LandingStaging(uint64_t limit_bytes, uint64_t block_bytes, bool huge_pages)
      : block_bytes_(block_bytes), memory_(std::make_shared<StagedMemory>(limit_bytes, block_bytes, huge_pages)) {}
  // Returns null if the limit does not allow it now, or, with `beyond`, if the system has no memory. Thread: any.
  [[nodiscard]] std::shared_ptr<StagedBlock> take(bool beyond);
  // Returns the bytes in use within the limit.
  [[nodiscard]] uint64_t used_bytes() const { return memory_->used_bytes(); }
  // Half of the host, and little of a large one: blocks stay here for milliseconds. A disk needs 16 MiB to be busy
  // (base/uring_io.cc), and as much again is verified and copied meanwhile.
  [[nodiscard]] static uint64_t limit_for(uint64_t host_bytes) noexcept;

 private:
  const uint64_t block_bytes_;
  const std::shared_ptr<StagedMemory> memory_;  // shared: staged blocks may outlive the manager
};

// Places for the leading items of a batch, one each: slots[i], or staged[i] where slots[i] is kNoSlot.
struct LandingRoom {
  std::vector<SlotId> slots;
  std::vector<std::shared_ptr<StagedBlock>> staged;  // as long as slots, or empty: all are slots
  [[nodiscard]] size_t count() const noexcept { return slots.size(); }
};

// Takes slots for as many of `n` leading items as possible. ok, or why there are none. `evicting`: as
// Manager::allocate.
Code take_slots(Manager& manager, block::AccountId account, size_t n, LandingRoom& out, bool evicting = true);
// Takes slots, then staging for as many as follow. `alone`: the caller has nothing else in flight, and gets at least
// one place unless the system has no memory.
void take_places(Manager& manager, block::AccountId account, size_t n, bool alone, LandingRoom& out);

}  // namespace kvbm::manager

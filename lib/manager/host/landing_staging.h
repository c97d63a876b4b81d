// Memory beside the host for blocks that are read while no slot is free (landing_room.h). Thread: any.
#pragma once

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"
#include "base/memory/memory.h"
#include "base/thread/mutex.h"

namespace kvbm::manager {

class LandingStaging;

// Memory for one block, aligned to kIoAlign and as large as a slot. No lookup finds it.
struct StagedBlock {
  MutableBytes bytes;
  std::shared_ptr<LandingStaging> staging;  // null: the bytes are in `own`, beyond the limit
  AlignedBytes own;
  ~StagedBlock();
};

// Memory of staged blocks: one mapping, made when the first block is taken and then kept, in huge pages if the host
// asks for them. Small pages make a disk slow: each page is a separate piece to the device (on virtio a fifth of the
// speed). Thread: any. Lock: mutex_, a leaf. Shared, because staged blocks may outlive the manager.
class LandingStaging : public std::enable_shared_from_this<LandingStaging> {
 public:
  // `block_bytes`: of one slot.
  LandingStaging(uint64_t limit_bytes, uint64_t block_bytes, bool huge_pages)
      : block_bytes_(block_bytes),
        stride_(round_up(block_bytes, kIoAlign)),
        most_(limit_bytes / stride_),
        huge_pages_(huge_pages) {}
  // Returns null if the limit does not allow it now, or, with `beyond`, if the system has no memory.
  [[nodiscard]] std::shared_ptr<StagedBlock> take(bool beyond);
  // Returns the bytes in use within the limit.
  [[nodiscard]] uint64_t used_bytes() const;
  // Half of the host, and little of a large one: blocks stay here for milliseconds. A disk needs 16 MiB to be busy
  // (base/io/uring_io.cc), and as much again is verified and copied meanwhile.
  [[nodiscard]] static uint64_t limit_for(uint64_t host_bytes) noexcept;

 private:
  friend struct StagedBlock;
  // Returns null if all blocks are in use, or the system has no memory.
  [[nodiscard]] std::byte* take_place();
  void give_back(std::byte* block) noexcept;
  [[nodiscard]] bool map() KVBM_REQUIRES(mutex_);

  const uint64_t block_bytes_;
  const uint64_t stride_;
  const uint64_t most_;
  const bool huge_pages_;
  mutable Mutex mutex_;
  std::unique_ptr<Arena> arena_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ KVBM_GUARDED_BY(mutex_);  // last in, first out: used ones are faulted in
  uint64_t used_ KVBM_GUARDED_BY(mutex_) = 0;             // blocks
};

}  // namespace kvbm::manager

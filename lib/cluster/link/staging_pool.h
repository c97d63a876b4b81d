// Memory for records from peers before they are verified, within one limit.
//
// Buffers are kept for the next record of their size, since most records of a pool have one size; used memory is
// faulted in already. Idle buffers are freed when another size is needed. Thread: any. Lock: mutex_, a leaf.
// Invariant: given out + idle <= limit.
#pragma once

#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"
#include "base/thread/mutex.h"

namespace kvbm::cluster {

class StagingPool {
 public:
  explicit StagingPool(uint64_t limit_bytes) : limit_(limit_bytes) {}
  ~StagingPool() = default;
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Returns memory aligned to kIoAlign; empty if the limit does not allow it now, or the system has none. `none`: the
  // latter, while nothing is given out, so waiting for a release is useless.
  MutableBytes take(size_t bytes, bool& none) {
    none = false;
    const size_t size = round_up(bytes, kIoAlign);
    MutexLock lock(mutex_);
    const auto known = idle_.find(size);
    if (known != idle_.end() && !known->second.empty()) {
      std::byte* const buffer = known->second.back().release();
      known->second.pop_back();
      idle_bytes_ -= size;
      used_ += size;
      return {buffer, bytes};
    }
    if (size > limit_ || used_ > limit_ - size) return {};
    while (used_ + idle_bytes_ + size > limit_) shrink();
    AlignedBytes buffer = aligned_bytes(kIoAlign, size);
    if (buffer == nullptr && idle_bytes_ != 0) {
      while (idle_bytes_ != 0) shrink();
      buffer = aligned_bytes(kIoAlign, size);
    }
    if (buffer == nullptr) {
      none = used_ == 0;
      return {};
    }
    used_ += size;
    return {buffer.release(), bytes};
  }

  MutableBytes take(size_t bytes) {
    bool none = false;
    return take(bytes, none);
  }

  // Frees the buffer if there is no memory to remember it: destructors call this.
  void give_back(MutableBytes buffer) noexcept {
    const size_t size = round_up(buffer.size(), kIoAlign);
    AlignedBytes memory(buffer.data());
    MutexLock lock(mutex_);
    used_ -= size;
    try {
      idle_[size].push_back(std::move(memory));
      idle_bytes_ += size;
    } catch (const std::bad_alloc&) {
    }
  }

  // Returns true if a record of `bytes` bytes can ever be taken.
  [[nodiscard]] bool fits(size_t bytes) const noexcept { return round_up(bytes, kIoAlign) <= limit_; }
  [[nodiscard]] uint64_t limit() const noexcept { return limit_; }
  [[nodiscard]] uint64_t used() const {
    MutexLock lock(mutex_);
    return used_;
  }

 private:
  void shrink() KVBM_REQUIRES(mutex_) {
    for (auto& [size, buffers] : idle_) {
      if (buffers.empty()) continue;
      buffers.pop_back();
      idle_bytes_ -= size;
      return;
    }
  }

  const uint64_t limit_;
  mutable Mutex mutex_;
  std::map<size_t, std::vector<AlignedBytes>> idle_ KVBM_GUARDED_BY(mutex_);
  uint64_t idle_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t used_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::cluster

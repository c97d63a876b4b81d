// Interns Family -> FamilyId: dense, in the order of first sight, never reused.
//
// Reading by id takes no lock: rows live in chunks that never move, and a row is published by the
// release store of the count. Lock: mutex_, a leaf, for interning. At most 65,536 families.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"

namespace kvbm {

class FamilyTable {
 public:
  static constexpr uint32_t kMaxFamilies = 65536;

  // The id of `family`, new or known; Code::no_room when the table is full. Thread: any.
  Result<FamilyId> intern(const Family& family);
  // The id if it is known. Thread: any.
  [[nodiscard]] std::optional<FamilyId> find(const Family& family) const;
  // Null for an id that was never given out; else valid as long as the table. Thread: any.
  [[nodiscard]] const Family* get(FamilyId id) const noexcept;
  [[nodiscard]] uint32_t size() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kChunk = 256;

  mutable Mutex mutex_;
  std::map<Family, FamilyId> ids_ KVBM_GUARDED_BY(mutex_);
  // Written under mutex_ before count_ covers them, read by those who saw count_.
  std::array<std::unique_ptr<std::array<Family, kChunk>>, kMaxFamilies / kChunk> chunks_;
  std::atomic<uint32_t> count_{0};  // release in intern, acquire in size and get
};

}  // namespace kvbm

// Interns families: the namespace, geometry, component and shard that millions of blocks share
// become a dense 32-bit id, never reused while the table lives.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"

namespace kvbm {

class FamilyTable {
 public:
  static constexpr uint32_t kMaxFamilies = 65536;

  FamilyTable();
  // The id of `family`, new or known. no_room after kMaxFamilies. Thread: any.
  Result<FamilyId> intern(const Family& family);
  // The id if known.
  [[nodiscard]] bool find(const Family& family, FamilyId& out) const;
  // Valid ids only. Lock-free. Thread: any.
  [[nodiscard]] const Family& get(FamilyId id) const noexcept;
  [[nodiscard]] uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kPage = 256;
  mutable Mutex mutex_;
  std::map<Family, FamilyId> ids_ KVBM_GUARDED_BY(mutex_);
  // Pages never move, so a reader needs no lock. Partner of size_'s acquire: the release in intern().
  std::array<std::unique_ptr<Family[]>, kMaxFamilies / kPage> pages_;
  std::atomic<uint32_t> size_{0};
};

}  // namespace kvbm

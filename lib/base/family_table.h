// Interns families: the namespace, geometry, component and shard that millions of blocks share
// become a dense 32-bit id, never reused while the table lives.
//
// Families that only a peer has named have a quarter of the table, together: what peers say never takes the room of
// what this process stores and finds. One that this process uses itself counts as its own from then on.
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
  static constexpr uint32_t kForeignFamilies = kMaxFamilies / 4;

  FamilyTable();
  // The id of `family`, new or known. no_room after kMaxFamilies. Thread: any.
  Result<FamilyId> intern(const Family& family);
  // The same for a handle of the namespace whose epoch 0 is called `base`.
  Result<FamilyId> intern(const Family& family, const NamespaceId& base);
  // The same because a peer named it. no_room after kForeignFamilies that only peers have named.
  Result<FamilyId> intern_foreign(const Family& family);
  // The id if known.
  [[nodiscard]] bool find(const Family& family, FamilyId& out) const;
  // Which namespace a family is of, by the id of its epoch 0; false: no handle of this process had it.
  [[nodiscard]] bool base_of(FamilyId id, NamespaceId& out) const;
  // Valid ids only. Lock-free. Thread: any.
  [[nodiscard]] const Family& get(FamilyId id) const noexcept;
  [[nodiscard]] uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  // Of these, those that peers alone have named; and how many more they named that had no room.
  [[nodiscard]] uint32_t foreign() const noexcept { return foreign_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kPage = 256;
  Result<FamilyId> add(const Family& family, bool foreign) KVBM_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<Family, FamilyId> ids_ KVBM_GUARDED_BY(mutex_);
  std::map<FamilyId, NamespaceId> bases_ KVBM_GUARDED_BY(mutex_);
  std::array<bool, kMaxFamilies> is_foreign_ KVBM_GUARDED_BY(mutex_) = {};
  // Pages never move, so a reader needs no lock. Partner of size_'s acquire: the release in add().
  std::array<std::unique_ptr<Family[]>, kMaxFamilies / kPage> pages_;
  std::atomic<uint32_t> size_{0};
  std::atomic<uint32_t> foreign_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace kvbm

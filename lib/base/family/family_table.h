// Interns families: the namespace, geometry, component and shard that millions of blocks share become a 32-bit id.
//
// Room for 65,536 at a time. Families that nothing uses are released. From time to time (make_room(), when the table
// has grown) its user asks every holder of ids which ones it uses. Families that were unused then and the time before
// are released (begin_give_back(), give_back()).
//
// No wrong block can result. An id is a cell (16 bits) and the number of earlier uses of the cell (16 bits), and is
// never reused: a cell that was used 65,535 times is retired (4 billion families in the life of a process). A holder
// that keeps an id longer than its family compares it with ids of other families, all of which differ, so its lookups
// miss. get() of it returns no_family(), which no record has. So a family that is released too early, because a holder
// was not asked, costs hits only, never wrong bytes. A lock-free get() returns the whole family of its id or none
// (family_cell.h).
//
// Families that only peers have named may use a quarter of the table: peers never take the room of families that this
// process stores and finds. A foreign family that this process uses itself counts as its own from then on.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/family/family_cell.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"

namespace kvbm {

class FamilyTable {
 public:
  static constexpr uint32_t kMaxFamilies = 65536;
  static constexpr uint32_t kForeignFamilies = kMaxFamilies / 4;
  // Least growth of the table, in all families and in those of peers, before holders are asked which ones they use.
  static constexpr uint32_t kStep = 1024;
  static constexpr uint32_t kForeignStep = 256;
  // Number of present families of one peer.
  using PeerCount = std::shared_ptr<std::atomic<uint32_t>>;

  FamilyTable();
  ~FamilyTable();
  FamilyTable(const FamilyTable&) = delete;
  FamilyTable& operator=(const FamilyTable&) = delete;

  // Sets the functions that release unused families: at once, for a caller that holds no lock; and soon, for one that
  // may hold locks. Call before several threads intern families.
  void on_growth(std::function<void()> now, std::function<void()> soon);

  // Returns the id of `family`, new or known. at_limit after kMaxFamilies. May request a release of unused ones soon.
  // Thread: any.
  Result<FamilyId> intern(const Family& family);
  // Interns a family for a handle of the namespace with `base` as the id of its epoch 0. Requests no release.
  Result<FamilyId> intern(const Family& family, const NamespaceId& base);
  // Interns a family that a peer named. at_limit after kForeignFamilies that only peers have named, or `most` of this
  // peer's. `of`: the peer's count, raised while the family is here and only peers have named it; may be null.
  Result<FamilyId> intern_foreign(const Family& family, const PeerCount& of = nullptr,
                                  uint32_t most = kForeignFamilies);
  // The id if known.
  [[nodiscard]] bool find(const Family& family, FamilyId& out) const;
  // Finds the namespace of a family, by the id of its epoch 0; false: no handle of this process had it.
  [[nodiscard]] bool base_of(FamilyId id, NamespaceId& out) const;
  // Returns the family of an id; no_family() if it was released. Lock-free. Thread: any.
  [[nodiscard]] Family get(FamilyId id) const noexcept;
  [[nodiscard]] bool has(FamilyId id) const noexcept;
  [[nodiscard]] static Family no_family() noexcept;
  // Returns all ids, ascending.
  [[nodiscard]] std::vector<FamilyId> all() const;
  // Returns the ids of one namespace at one epoch, ascending.
  [[nodiscard]] std::vector<FamilyId> of(const NamespaceId& ns) const;
  // Increases whenever a family is added or released: facts derived from several families hold while it is unchanged.
  [[nodiscard]] uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  [[nodiscard]] uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  // Number of families that only peers have named; and number of those that were refused for want of room.
  [[nodiscard]] uint32_t foreign() const noexcept { return foreign_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

  // ---- Releasing ----
  // Releases unused families if the table has grown enough for that to be worth it. The caller holds no lock. Thread:
  // any.
  void make_room();
  // Collects which of the families present at begin_give_back() are used.
  class Named {
   public:
    void add(FamilyId id) noexcept {
      const size_t cell = cell_of(id);
      if (cell < ids_.size() && ids_[cell] == id) named_[cell] = true;
    }
    [[nodiscard]] std::vector<FamilyId> all() const;

   private:
    friend class FamilyTable;
    std::vector<FamilyId> ids_;  // by cell
    std::vector<bool> named_;
  };
  [[nodiscard]] Named begin_give_back() const;
  // Releases families that were unused this time and the time before, and neither found nor interned since. So an
  // operation that took an id before any holder had it keeps the id for that long. Returns the released ids, ascending.
  std::vector<FamilyId> give_back(const Named& named);
  // Prevents releases while it exists: families are being read in, and no table has their ids yet.
  class Keep {
   public:
    explicit Keep(FamilyTable& table) : table_(table) { table_.kept_.fetch_add(1); }
    ~Keep() { table_.kept_.fetch_sub(1); }
    Keep(const Keep&) = delete;
    Keep& operator=(const Keep&) = delete;

   private:
    FamilyTable& table_;
  };

 private:
  static constexpr uint32_t kPage = 256;
  static constexpr uint16_t kLastUse = UINT16_MAX - 1;  // use number of a cell; so no id is kNoFamily
  using Page = std::array<FamilyCell, kPage>;
  // Fields that readers of the cell do not need.
  struct Row {
    FamilyId id = kNoFamily;
    uint16_t next_use = 0;
    bool foreign = false;
    bool has_base = false;
    bool unnamed = false;  // unused the last time, and not requested since
    NamespaceId base;
    PeerCount of;
  };
  static constexpr size_t cell_of(FamilyId id) noexcept { return id & 0xFFFFU; }
  [[nodiscard]] const FamilyCell* cell(FamilyId id) const noexcept;
  Result<FamilyId> add(const Family& family, bool foreign, const PeerCount& of) KVBM_REQUIRES(mutex_);
  Status refuse(const char* why) KVBM_REQUIRES(mutex_);
  bool new_cell(size_t& at) KVBM_REQUIRES(mutex_);
  void make_own(Row& row) KVBM_REQUIRES(mutex_);
  void drop(size_t at) KVBM_REQUIRES(mutex_);
  // named, foreign_named: numbers of families that stay because they are used.
  void plan_next(size_t gone, uint32_t named, uint32_t foreign_named) KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool ask_soon() KVBM_REQUIRES(mutex_);

  std::function<void()> now_;
  std::function<void()> soon_;
  mutable Mutex mutex_;
  std::map<Family, FamilyId> ids_ KVBM_GUARDED_BY(mutex_);
  mutable std::vector<Row> rows_ KVBM_GUARDED_BY(mutex_);  // by cell
  std::deque<uint16_t> free_ KVBM_GUARDED_BY(mutex_);      // cells; first in, first out
  bool asked_soon_ KVBM_GUARDED_BY(mutex_) = false;
  uint32_t foreign_due_ KVBM_GUARDED_BY(mutex_) = kForeignStep;
  // Refusals until it is worth asking holders again: doubled when asking released nothing.
  uint32_t refusals_ KVBM_GUARDED_BY(mutex_) = 0;
  uint32_t refusals_due_ KVBM_GUARDED_BY(mutex_) = kForeignStep;
  // Pages never move, so a reader needs no lock.
  std::array<std::atomic<Page*>, kMaxFamilies / kPage> pages_ = {};
  std::atomic<uint32_t> size_{0};
  std::atomic<uint64_t> changes_{0};
  std::atomic<uint32_t> due_{kStep};  // of size_
  std::atomic<uint32_t> foreign_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint32_t> kept_{0};
};

}  // namespace kvbm

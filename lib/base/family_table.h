// Interns families: the namespace, geometry, component and shard that millions of blocks share become a 32-bit id.
//
// Room for 65,536 at a time. What nothing names any more is given back: from time to time (make_room(), when the table has grown) its
// user asks everything that keeps ids, and what was named neither then nor the time before goes (begin_give_back(),
// give_back()).
//
// Why no wrong block can come of it. An id is a cell (16 bits) and how often the cell was used before (16 bits), and is never used
// again: a cell that was used 65,535 times is left alone for good (4 billion families in the life of a process). Whoever
// keeps an id longer than its family compares it with ids of other families, all of which differ: what he looks up is not
// found. get() of it gives no_family(), which no record is of. So what is given back too early, because something that named it was
// not asked, is a miss; that everything is asked is a matter of hits, not of right bytes. A lock-free get() gives the whole
// family of its id or none (family_cell.h).
//
// Families that only peers have named have a quarter of the table: what peers say never takes the room of
// what this process stores and finds. One that this process uses itself counts as its own from then on.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/family_cell.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"

namespace kvbm {

class FamilyTable {
 public:
  static constexpr uint32_t kMaxFamilies = 65536;
  static constexpr uint32_t kForeignFamilies = kMaxFamilies / 4;
  // So much the table grows at least before it is asked what is still named; and of peers' families.
  static constexpr uint32_t kStep = 1024;
  static constexpr uint32_t kForeignStep = 256;
  // How many families of one peer there are now.
  using PeerCount = std::shared_ptr<std::atomic<uint32_t>>;

  FamilyTable();
  ~FamilyTable();
  FamilyTable(const FamilyTable&) = delete;
  FamilyTable& operator=(const FamilyTable&) = delete;

  // What gives back: at once, for a caller that holds no lock; and soon, for one that may. Before anything is interned by
  // several threads.
  void on_growth(std::function<void()> now, std::function<void()> soon);

  // The id of `family`, new or known. at_limit after kMaxFamilies. May ask that unused ones are given back soon. Thread: any.
  Result<FamilyId> intern(const Family& family);
  // The same for a handle of the namespace whose epoch 0 is called `base`.
  Result<FamilyId> intern(const Family& family, const NamespaceId& base);
  // The same because a peer named it. at_limit after kForeignFamilies that only peers have named, or `most` of this peer's.
  // `of`: the peer's count, raised while the family is here and only peers have named it; may be null.
  Result<FamilyId> intern_foreign(const Family& family, const PeerCount& of = nullptr, uint32_t most = kForeignFamilies);
  // The id if known.
  [[nodiscard]] bool find(const Family& family, FamilyId& out) const;
  // Which namespace a family is of, by the id of its epoch 0; false: no handle of this process had it.
  [[nodiscard]] bool base_of(FamilyId id, NamespaceId& out) const;
  // What it means; no_family() if it means nothing any more. Lock-free. Thread: any.
  [[nodiscard]] Family get(FamilyId id) const noexcept;
  [[nodiscard]] bool has(FamilyId id) const noexcept;
  [[nodiscard]] static Family no_family() noexcept;
  // Rising ids.
  [[nodiscard]] std::vector<FamilyId> all() const;
  // Those of one namespace at one epoch.
  [[nodiscard]] std::vector<FamilyId> of(const NamespaceId& ns) const;
  // Rises whenever a family comes or goes: what was found out about several of them holds as long as it has not.
  [[nodiscard]] uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  [[nodiscard]] uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  // Of these, those that peers alone have named; and how many more they named that had no room.
  [[nodiscard]] uint32_t foreign() const noexcept { return foreign_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

  // ---- Giving back ----
  // Gives back if the table has grown by so much that it may be worth it. The caller holds no lock. Thread: any.
  void make_room();
  // Which of the families that there were at begin_give_back() something names.
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
  // Gives back what was named neither this time nor the time before, nor found or interned since: an operation that took an
  // id before anything named it keeps it as long as one that takes its time. What has gone, rising.
  std::vector<FamilyId> give_back(const Named& named);
  // While one of these lives nothing is given back: families are being read in, and no table names them yet.
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
  static constexpr uint16_t kLastUse = UINT16_MAX - 1;  // of a cell: so no id is kNoFamily
  struct Page {
    std::array<FamilyCell, kPage> cells;
  };
  // What readers of the cell need not see.
  struct Row {
    FamilyId id = kNoFamily;
    uint16_t next_use = 0;
    bool foreign = false;
    bool has_base = false;
    bool unnamed = false;  // was, the last time, and was not asked for since
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
  // named, foreign_named: how many stay because something names them.
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
  // Refusals until it is worth asking again: doubled when asking was in vain.
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

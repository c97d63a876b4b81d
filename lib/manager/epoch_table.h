// The epochs that namespaces have come to, as this process knows them: one row for each namespace that was ever invalidated,
// whose word it was, and which rows can go.
//
// A row is foreign as long as no process on this machine's tiers has had a handle of the namespace: a peer said so, and it
// is kept to be told to others. Foreign rows have a quarter of the table, and a new one takes the place of the one that was
// raised longest ago; so what peers say never takes the other three quarters, which are for namespaces that are used here.
// A row of a namespace that is not open can always make room for another one, also where peers may have to be told of it:
// what goes then raises a floor (tier::kEpochFloors), an epoch that namespaces without a row are at. So an epoch that has ended
// stays ended. Those that nothing needs go without that; foreign ones raise none, so that no peer can end what others have.
// Bookkeeping alone: whoever raises an epoch writes it down in the tiers between plan and commit.
// Thread: one at a time (Manager::namespaces_mutex_).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "tier/tier.h"

namespace kvbm::manager {

class EpochTable {
 public:
  static constexpr size_t kRows = 4096;             // of a disk's superblock, too
  static constexpr size_t kForeignRows = kRows / 4;
  // What a peer may say: an epoch so far above the one known here at most, and none above the highest.
  static constexpr uint64_t kMaxStep = uint64_t{1} << 32;
  static constexpr uint64_t kMaxFromPeer = uint64_t{1} << 63;

  // Whether a peer's word is one that a pool can have come to.
  [[nodiscard]] static bool plausible(uint64_t known, uint64_t said) noexcept {
    return said <= kMaxFromPeer && (said <= known || said - known <= kMaxStep);
  }

  // 0: it has no row.
  [[nodiscard]] uint64_t epoch(const NamespaceId& base) const;
  // The epoch that it is at least at, if it has no row and no handle.
  [[nodiscard]] uint64_t floor(const NamespaceId& base) const;
  [[nodiscard]] bool has_row(const NamespaceId& base) const { return rows_.count(base) != 0; }
  [[nodiscard]] bool is_foreign(const NamespaceId& base) const;
  [[nodiscard]] size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] size_t foreign() const noexcept { return by_age_.size(); }
  // Whether this process has seen to it that its tiers have no record of an older epoch, but for those whose namespace it knows:
  // of a row that was raised again since, not until it has said so again.
  [[nodiscard]] bool is_clean(const NamespaceId& base) const;
  void note_clean(const NamespaceId& base, uint64_t epoch);
  // Those that were raised last come first, and foreign ones last.
  [[nodiscard]] std::vector<tier::EpochRow> rows() const;
  // What is written down somewhere; of two words the higher one. Rows beyond the limits are left out, foreign ones first.
  void load(std::span<const tier::EpochRow> rows);
  // The higher ones of those that are written down somewhere and those here; none, or tier::kEpochFloors.
  void load_floors(std::span<const uint64_t> floors);
  // A handle of this namespace was opened: its row stays, also one that a plan was about to let go.
  void own(const NamespaceId& base);

  // Several raises, planned one after the other, written down together, then committed. Nothing changes before commit().
  // One plan at a time, which begins with begin().
  struct Plan {
    std::vector<tier::EpochRow> rows;
    std::vector<NamespaceId> forgotten;
    std::vector<tier::EpochRow> floored;
  };
  void begin() { opened_.clear(); }
  // What is still needed of a row: asked of those that may have to go.
  enum class Need : uint8_t {
    nothing,
    epoch,  // the namespace must not begin at an earlier one
    row,    // it is open
  };
  using Needed = UniqueFunction<Need(const NamespaceId&)>;
  // at_limit: the table, or the share of foreign rows, is full of rows that are needed. `added`: the row is new.
  Code raise(Plan& plan, const NamespaceId& base, uint64_t epoch, bool foreign, Needed& needed, bool& added);
  // Rows whose owner has changed since they were written.
  void add_unwritten(Plan& plan) const;
  void commit(const Plan& plan);

 private:
  struct Row {
    uint64_t epoch = 0;
    uint64_t raised = 0;
    bool foreign = false;
    bool clean = false;
  };
  // A row that goes for a new one; false: none can.
  bool choose(Plan& plan, bool foreign, Needed& needed) const;
  bool choose_to_floor(Plan& plan, Needed& needed) const;
  // Rows that go to their floors at once: to look which they are is work.
  static constexpr size_t kToFloor = kRows / 16;
  void raise_floor(const NamespaceId& base, uint64_t epoch);
  void put(const NamespaceId& base, const Row& row);
  void erase(const NamespaceId& base);

  std::map<NamespaceId, Row> rows_;
  std::vector<uint64_t> floors_;  // none, or tier::kEpochFloors
  std::map<uint64_t, NamespaceId> by_age_;  // of foreign rows: by when they were raised
  std::set<NamespaceId> unwritten_;
  std::set<NamespaceId> opened_;  // that have a row, since begin()
  uint64_t last_raised_ = 0;
};

}  // namespace kvbm::manager

// Epochs of namespaces as this process knows them: one row for each namespace that was ever invalidated, with its
// origin (here or a peer), and the rules for dropping rows.
//
// A row is foreign as long as no process on this machine's tiers has had a handle of the namespace: a peer reported
// it, and it is kept to be passed on to others. Foreign rows have a quarter of the table. A new foreign row replaces
// the one that was raised longest ago, so peers never take the other three quarters, which are for namespaces used
// here. A row of a namespace that is not open can always make room for another, even if peers may have to be notified
// of it. Dropping such a row raises a floor (tier::kEpochFloors): an epoch that namespaces without a row are at. So
// an epoch that has ended stays ended. Rows that nothing needs are dropped without a floor. Foreign rows raise none,
// so that no peer can end what others have. Bookkeeping only: the caller that raises an epoch writes it into the
// tiers between plan and commit. Thread: one at a time (Namespaces::mutex_).
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
  static constexpr size_t kRows = tier::kEpochRows;
  static constexpr size_t kForeignRows = kRows / 4;
  // Limits on a peer's report: at most so far above the epoch known here, and never above the highest.
  static constexpr uint64_t kMaxStep = uint64_t{1} << 32;
  static constexpr uint64_t kMaxFromPeer = tier::kMaxSharedEpoch;

  // Returns true if a pool can have reached the epoch that a peer reports.
  [[nodiscard]] static bool plausible(uint64_t known, uint64_t said) noexcept {
    return said <= kMaxFromPeer && (said <= known || said - known <= kMaxStep);
  }

  // Returns 0 if there is no row.
  [[nodiscard]] uint64_t epoch(const NamespaceId& base) const;
  // Returns the least epoch that the namespace has if it has no row and no handle.
  [[nodiscard]] uint64_t floor(const NamespaceId& base) const;
  [[nodiscard]] bool has_row(const NamespaceId& base) const { return rows_.count(base) != 0; }
  [[nodiscard]] bool is_foreign(const NamespaceId& base) const;
  [[nodiscard]] size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] size_t foreign() const noexcept { return by_age_.size(); }
  // Returns true if this process has ensured that its tiers have no record of an older epoch, except of families that
  // it knows. A row that was raised again is not clean until note_clean() is called for the new epoch.
  [[nodiscard]] bool is_clean(const NamespaceId& base) const;
  void note_clean(const NamespaceId& base, uint64_t epoch);
  // Returns the rows, most recently raised first and foreign ones last.
  [[nodiscard]] std::vector<tier::EpochRow> rows() const;
  // Merges rows that a tier has written; the higher epoch wins. Rows beyond the limits are left out, foreign ones
  // first.
  void load(std::span<const tier::EpochRow> rows);
  // Merges floors that a tier has written; the higher one wins. `floors` has no element, or tier::kEpochFloors.
  void load_floors(std::span<const uint64_t> floors);
  // Records that a handle of this namespace was opened: its row stays, even if a plan was about to drop it.
  void own(const NamespaceId& base);

  // Several raises, planned one after the other, written together, then committed. Nothing changes before commit().
  // One plan at a time, which begins with begin().
  struct Plan {
    std::vector<tier::EpochRow> rows;
    std::vector<NamespaceId> forgotten;
    std::vector<tier::EpochRow> floored;
  };
  void begin() { opened_.clear(); }
  // Part of a row that is still needed; queried for rows that may have to be dropped.
  enum class Need : uint8_t {
    nothing,
    epoch,  // the namespace must not begin at an earlier one
    row,    // the namespace is open
  };
  using Needed = UniqueFunction<Need(const NamespaceId&)>;
  // Plans to raise `base` to `epoch`. at_limit: the table, or the share of foreign rows, is full of rows that are
  // needed. `added`: the row is new.
  Code raise(Plan& plan, const NamespaceId& base, uint64_t epoch, bool foreign, Needed& needed, bool& added);
  // Adds rows that have changed owner since they were written.
  void add_unwritten(Plan& plan) const;
  void commit(const Plan& plan);

 private:
  // Chooses a row to drop for a new one. False: none can be dropped.
  bool choose(Plan& plan, bool foreign, Needed& needed) const;
  bool choose_to_floor(Plan& plan, Needed& needed) const;
  // Rows dropped to their floors in one pass, because finding them is work.
  static constexpr size_t kToFloor = kRows / 16;
  void raise_floor(const NamespaceId& base, uint64_t epoch);
  void put(const tier::EpochRow& row);
  void erase(const NamespaceId& base);

  std::map<NamespaceId, tier::EpochRow> rows_;
  std::set<NamespaceId> clean_;             // is_clean()
  std::vector<uint64_t> floors_;            // empty, or tier::kEpochFloors elements
  std::map<uint64_t, NamespaceId> by_age_;  // foreign rows by the time they were raised
  std::set<NamespaceId> unwritten_;
  std::set<NamespaceId> opened_;  // with a row, since begin()
  uint64_t last_raised_ = 0;
};

}  // namespace kvbm::manager

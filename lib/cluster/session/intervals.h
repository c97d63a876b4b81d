// A set of positions as few disjoint ranges: the published part of a layer. Bounded, because a peer fills it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "cluster/session/facts.h"

namespace kvbm::cluster::session {

class IntervalSet {
 public:
  // Chunked prefill publishes from the front, so one or two ranges are usual.
  static constexpr size_t kMaxRanges = 256;

  // Adds a range. False, and nothing changed, if the set would have more than kMaxRanges.
  bool add(const Range& range) {
    if (range.empty()) return true;
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                        [](const Range& r, uint64_t at) { return r.end < at; });
    if (first == ranges_.end() || first->begin > range.end) {
      if (ranges_.size() == kMaxRanges) return false;
      ranges_.insert(first, range);
      return true;
    }
    auto last = first;
    Range all = range;
    while (last != ranges_.end() && last->begin <= range.end) {
      all.begin = std::min(all.begin, last->begin);
      all.end = std::max(all.end, last->end);
      ++last;
    }
    *first = all;
    ranges_.erase(first + 1, last);
    return true;
  }
  [[nodiscard]] bool covers(const Range& range) const noexcept {
    const auto at = std::upper_bound(ranges_.begin(), ranges_.end(), range.begin,
                                     [](uint64_t begin, const Range& r) { return begin < r.begin; });
    return at != ranges_.begin() && (at - 1)->holds(range);
  }
  [[nodiscard]] std::span<const Range> ranges() const noexcept { return ranges_; }

 private:
  std::vector<Range> ranges_;  // ascending, with gaps between them
};

}  // namespace kvbm::cluster::session

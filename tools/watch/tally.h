// Counts events for each stream and medium: stored, removed and present blocks.
//
// Memory: at most kMaxRows rows and kMaxBlocks blocks in all. Blocks beyond that are counted, but not tracked
// (`blocks_known` of a row is then a lower bound, and the frame reports it).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "watch/reader.h"

namespace kvbm::watch {

inline constexpr size_t kMaxRows = 4096;
inline constexpr size_t kMaxBlocks = size_t{4} << 20;

struct Row {
  std::string stream;
  std::string medium;
  uint64_t stored = 0;   // blocks
  uint64_t removed = 0;  // blocks
  uint64_t tokens = 0;   // of stored blocks, if the events have them
  uint64_t blocks_known = 0;
  double stored_per_s = 0;  // in the interval before the frame
  double removed_per_s = 0;
};

struct Frame {
  bool last = false;
  double seconds = 0;  // since the beginning
  std::vector<Row> rows;
  std::vector<std::string> recent;  // the last events, the newest first
  uint64_t cleared = 0;
  bool too_many = false;  // not all blocks or rows could be followed
  ReaderCounts counts;
};

class Tally {
 public:
  explicit Tally(size_t recent) : keep_(recent) {}

  // `seconds` since the beginning.
  void take(const Message& message, double seconds);
  Frame frame(const ReaderCounts& counts, double seconds, bool last);

 private:
  struct Known {
    Row row;
    std::unordered_set<uint64_t> blocks;
    uint64_t stored_before = 0;  // at the frame before
    uint64_t removed_before = 0;
  };

  void apply(const std::string& stream, const Event& event);
  void clear(const std::string& stream);
  Known* known(const std::string& stream, const std::string& medium);
  void remember(double seconds, const std::string& stream, const std::string& text);

  const size_t keep_;
  std::map<std::pair<std::string, std::string>, Known> rows_;
  std::deque<std::string> recent_;
  size_t blocks_ = 0;
  uint64_t cleared_ = 0;
  bool too_many_ = false;
  double frame_at_ = 0;
};

}  // namespace kvbm::watch

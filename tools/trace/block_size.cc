#include "trace/block_size.h"

#include <algorithm>

namespace kvbm::trace {

namespace {

// No block of an engine has more.
constexpr uint64_t kMost = uint64_t{1} << 20;

}  // namespace

bool fits(uint64_t length, uint64_t ids, uint64_t tokens) {
  return ids == length / tokens || ids == length / tokens + (length % tokens != 0 ? 1 : 0);
}

void BlockSize::Range::narrow(uint64_t low, uint64_t high, uint64_t line) {
  if (empty()) return;  // the contradicting lines are already known
  if (low > least) {
    least = low;
    least_line = line;
  }
  if (high < most) {
    most = high;
    most_line = line;
  }
}

bool BlockSize::add(uint64_t line, uint64_t length, uint64_t ids) {
  if (length == 0 && ids == 0) return true;
  if (ids > length) return false;
  if (ids == 0) {
    named_.narrow(kMost + 1, 0, line);
  } else {
    const uint64_t high = ids == 1 ? UINT64_MAX : (length - 1) / (ids - 1);
    named_.narrow((length + ids - 1) / ids, high, line);
  }
  left_out_.narrow(length / (ids + 1) + 1, ids == 0 ? UINT64_MAX : length / ids, line);
  return true;
}

Result<uint32_t> BlockSize::find(uint32_t usual, const char* unit) const {
  if (named_.empty() && left_out_.empty()) {
    return Status(Code::invalid_argument, "no block size fits the trace",
                  std::string(unit) + "s " + std::to_string(std::min(named_.least_line, named_.most_line)) + " and " +
                      std::to_string(std::max(named_.least_line, named_.most_line)) +
                      " have lengths and numbers of hash_ids that no one size gives; --block-tokens says it, and takes "
                      "those that do not fit it as bad");
  }
  const Range& range = named_.empty() ? left_out_ : named_;
  if (range.least <= usual && usual <= range.most) return usual;
  uint64_t only = 0;
  int found = 0;
  for (uint64_t size = 1; size <= kMost; size *= 2) {
    if (size < range.least || size > range.most) continue;
    only = size;
    ++found;
  }
  if (found == 1) return static_cast<uint32_t>(only);
  if (found == 0 && range.least == range.most && range.least <= kMost) return static_cast<uint32_t>(range.least);
  return Status(Code::invalid_argument, "the trace does not say its block size",
                (range.most == UINT64_MAX ? "any of " + std::to_string(range.least) + " tokens or more fits"
                                          : "any from " + std::to_string(range.least) + " to " +
                                                std::to_string(range.most) + " tokens fits") +
                    "; say it with --block-tokens");
}

}  // namespace kvbm::trace

#include "cluster/placement/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace kvbm::cluster {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kFraction = 52;
constexpr uint64_t kOne = uint64_t{1} << kFraction;

// Computes log2(1 + i / 256) bit by bit: squaring a number doubles its logarithm.
constexpr uint64_t table_log(uint32_t i) {
  uint64_t y = (uint64_t{256} + i) << 54;  // 2^62 is 1.0
  uint64_t log = 0;
  for (int bit = kFraction - 1; bit >= 0; --bit) {
    const Wide square = (static_cast<Wide>(y) * y) >> 62;
    if (square >= (Wide{1} << 63)) {
      log |= uint64_t{1} << bit;
      y = static_cast<uint64_t>(square >> 1);
    } else {
      y = static_cast<uint64_t>(square);
    }
  }
  return log;
}

struct Row {
  uint64_t log;      // log2(1 + i/256), 52 bits after the point
  uint64_t inverse;  // 1 / (1 + i/256), 63 bits after the point
};

constexpr std::array<Row, 256> make_rows() {
  std::array<Row, 256> rows{};
  for (uint32_t i = 0; i < 256; ++i) {
    rows[i].log = table_log(i);
    rows[i].inverse = static_cast<uint64_t>((Wide{1} << 71) / (256 + i));
  }
  return rows;
}
constexpr std::array<Row, 256> kRows = make_rows();

constexpr uint64_t kThird = kOne / 3;
constexpr uint64_t kLog2E = 6497320848556798ULL;  // log2(e) * 2^52

uint64_t scaled(uint64_t a, uint64_t b) noexcept {
  return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> kFraction);
}

// Mixes two words. Keys and ids are outputs of SHA-256; one wide product mixes them (the step of wyhash, Wang Yi
// 2019).
uint64_t mix(uint64_t a, uint64_t b) noexcept {
  const Wide p = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}

// The best node so far, compared by cost / weight.
struct Best {
  uint64_t cost = 0;
  uint64_t weight = 0;  // 0: none yet, so any node is better
  uint32_t index = UINT32_MAX;
  [[nodiscard]] bool beaten_by(uint64_t other_cost, uint64_t other_weight) const noexcept {
    return weight == 0 || static_cast<Wide>(other_cost) * weight < static_cast<Wide>(cost) * other_weight;
  }
};

// 1 - h is at most -ln h: a node with 1 - h above `limit` times its weight cannot win, and no logarithm is taken.
// Floating point is safe because it decides nothing: the margins exceed the logarithm's error (2^-33) and any
// rounding.
double limit_of(const Best& last) noexcept {
  constexpr double kLn2AndMargin = 0.69314718056 * (1 + 1e-6);
  constexpr double kLogMargin = 1 << (kFraction - 32);
  return (static_cast<double>(last.cost) + kLogMargin) / static_cast<double>(last.weight) * kLn2AndMargin;
}

}  // namespace

// x = 2^e (1 + i/256)(1 + r): the logarithm is e + table + log2(1 + r), the last by three terms of its series, r <
// 2^-8.
uint64_t minus_log2(uint64_t x) noexcept {
  if (x == 0) return uint64_t{64} << kFraction;
  const int zeros = std::countl_zero(x);
  const uint64_t m = (x << zeros) << 1;  // the bits behind the leading one
  const Row& row = kRows[m >> 56];
  const uint64_t rest = (m & ((uint64_t{1} << 56) - 1)) >> (64 - kFraction);
  const auto r = static_cast<uint64_t>((static_cast<Wide>(rest) * row.inverse) >> 63);
  const uint64_t square = scaled(r, r);
  const uint64_t natural = r - square / 2 + scaled(scaled(square, r), kThird);
  const uint64_t log = (static_cast<uint64_t>(63 - zeros) << kFraction) + row.log + scaled(natural, kLog2E);
  const uint64_t top = uint64_t{64} << kFraction;
  return log < top ? top - log : 1;
}

Placement::Placement(std::span<const PlacementNode> nodes) {
  nodes_.reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].weight == 0) continue;
    const uint64_t weight = std::max<uint64_t>(1, nodes[i].weight >> 20);
    nodes_.push_back(
        {nodes[i].id.low(), nodes[i].id.high(), weight, static_cast<double>(weight), static_cast<uint32_t>(i)});
  }
  std::sort(nodes_.begin(), nodes_.end(),
            [](const Node& a, const Node& b) { return a.high != b.high ? a.high < b.high : a.low < b.low; });
}

template <size_t kRoom>
size_t Placement::rank(const Key& key, size_t wanted, uint32_t* out) const noexcept {
  std::array<Best, kRoom> best;
  double limit = std::numeric_limits<double>::infinity();
  const uint64_t low = key.low();
  const uint64_t high = key.high();
  for (const Node& node : nodes_) {
    const uint64_t x = mix(low ^ node.low, high ^ node.high);
    if (static_cast<double>(static_cast<int64_t>(~x >> (64 - kFraction))) > limit * node.weight_as_double) continue;
    const uint64_t cost = minus_log2(x);
    if (!best[wanted - 1].beaten_by(cost, node.weight)) continue;
    size_t at = wanted - 1;
    for (; at > 0 && best[at - 1].beaten_by(cost, node.weight); --at) best[at] = best[at - 1];
    best[at] = {cost, node.weight, node.index};
    if (best[wanted - 1].weight != 0) limit = limit_of(best[wanted - 1]);
  }
  for (size_t i = 0; i < wanted; ++i) out[i] = best[i].index;
  return wanted;
}

uint32_t Placement::home(const Key& key) const noexcept {
  uint32_t out = UINT32_MAX;
  if (!nodes_.empty()) rank<1>(key, 1, &out);
  return out;
}

size_t Placement::homes(const Key& key, std::span<uint32_t> out) const noexcept {
  const size_t wanted = std::min({out.size(), kMaxReplicas, nodes_.size()});
  if (wanted == 0) return 0;
  if (wanted == 1) return rank<1>(key, 1, out.data());
  return rank<kMaxReplicas>(key, wanted, out.data());
}

}  // namespace kvbm::cluster

#include "top/heat.h"

#include <algorithm>
#include <cstring>

namespace kvbm::top {

namespace {

// Returns sixty-four bits that distinguish blocks. Keys and namespace ids are hashes already, so two blocks of a
// billion share these bits with a chance of 3 %, and then one line on a screen is wrong.
uint64_t name_of(const kvbm_scan_row_t& row) {
  uint64_t key[2];
  uint64_t space[2];
  std::memcpy(key, row.key.bytes, sizeof key);
  std::memcpy(space, row.namespace_id, sizeof space);
  uint64_t z = key[0] ^ (key[1] * 0x9E3779B97F4A7C15ULL) ^ (space[0] * 0xBF58476D1CE4E5B9ULL) ^ row.component;
  z = (z ^ (z >> 30)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns the age. An unknown age counts as the longest, because the block is not in the host tier.
uint64_t age_of(const Block& block) { return block.age.has_value() ? *block.age : uint64_t{1} << 32; }

// Returns a measure that is larger for hotter blocks.
uint64_t measure(Order order, const Block& block) {
  switch (order) {
    case Order::uses:
      return block.uses;
    case Order::age:
      return (uint64_t{1} << 32) - age_of(block);
    case Order::holds:
      return block.holds;
    case Order::pins:
      return block.pins;
  }
  return 0;
}

}  // namespace

bool hotter(Order order, const Block& a, const Block& b) noexcept {
  const uint64_t measure_a = measure(order, a);
  const uint64_t measure_b = measure(order, b);
  if (measure_a != measure_b) return measure_a > measure_b;
  if (a.uses != b.uses) return a.uses > b.uses;
  if (age_of(a) != age_of(b)) return age_of(a) < age_of(b);
  const int keys = std::memcmp(a.key.bytes, b.key.bytes, sizeof a.key.bytes);
  return keys != 0 ? keys < 0 : a.component < b.component;
}

void Heat::add(const kvbm_scan_row_t& row) {
  const uint64_t name = name_of(row);
  uint32_t& tiers = tiers_[name];
  const bool known = tiers != 0;
  tiers |= uint32_t{1} << (row.tier % 32);
  if (known) return;
  Kept one{name, {}};
  one.block.key = row.key;
  one.block.component = row.component;
  one.block.bytes = row.bytes;
  one.block.uses = row.uses;
  if (row.tier == 0) one.block.age = row.age;
  one.block.holds = row.holds;
  one.block.pins = row.pins;
  offer(hot_, one, true);
  offer(cold_, one, false);
}

void Heat::offer(std::vector<Kept>& heap, const Kept& one, bool hot) const {
  const auto better = [this, hot](const Kept& a, const Kept& b) {
    return hot ? hotter(order_, a.block, b.block) : hotter(order_, b.block, a.block);
  };
  if (heap.size() == keep_) {
    if (keep_ == 0 || !better(one, heap.front())) return;
    std::pop_heap(heap.begin(), heap.end(), better);
    heap.pop_back();
  }
  heap.push_back(one);
  std::push_heap(heap.begin(), heap.end(), better);
}

std::vector<Block> Heat::sorted(std::vector<Kept> heap, bool hot) const {
  std::sort(heap.begin(), heap.end(), [this, hot](const Kept& a, const Kept& b) {
    return hot ? hotter(order_, a.block, b.block) : hotter(order_, b.block, a.block);
  });
  std::vector<Block> out;
  for (const Kept& kept : heap) {
    out.push_back(kept.block);
    out.back().tiers = tiers_.at(kept.name);
  }
  return out;
}

std::vector<Block> Heat::hottest() const { return sorted(hot_, true); }
std::vector<Block> Heat::coldest() const { return sorted(cold_, false); }

}  // namespace kvbm::top

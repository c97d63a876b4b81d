// Finds the hottest and the coldest blocks in a scan's rows, one row at a time.
//
// A block has a row in every tier that holds it, faster tiers first, as kvbm_manager_scan walks. Its counts are those
// of the first row, from the fastest tier that holds it; later rows only add their tier. Memory: 2 K blocks, and
// about 40 bytes for each block seen, to recognise its later rows.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kvbm.h"

namespace kvbm::top {

// Definition of hot: more uses, a more recent last use, more holds, more pins. Ties are ordered by uses, then by last
// use, then by key.
enum class Order { uses, age, holds, pins };

struct Block {
  kvbm_key_t key{};
  uint32_t component = 0;
  uint32_t tiers = 0;  // bit t: tier t holds it
  uint64_t bytes = 0;
  uint32_t uses = 0;
  std::optional<uint32_t> age;  // requests since its last use; only the host tier counts in requests
  uint32_t holds = 0;
  uint32_t pins = 0;
};

class Heat {
 public:
  Heat(Order order, size_t keep) : order_(order), keep_(keep) {}

  void add(const kvbm_scan_row_t& row);
  // Returns at most `keep` blocks, the hottest first.
  [[nodiscard]] std::vector<Block> hottest() const;
  // Returns at most `keep` blocks, the coldest first.
  [[nodiscard]] std::vector<Block> coldest() const;
  [[nodiscard]] uint64_t blocks() const noexcept { return tiers_.size(); }

 private:
  struct Kept {
    uint64_t name;
    Block block;
  };
  void offer(std::vector<Kept>& heap, const Kept& one, bool hot) const;
  [[nodiscard]] std::vector<Block> sorted(std::vector<Kept> heap, bool hot) const;

  const Order order_;
  const size_t keep_;
  // Heaps. The front is the block that a better one replaces.
  std::vector<Kept> hot_;
  std::vector<Kept> cold_;
  std::unordered_map<uint64_t, uint32_t> tiers_;  // by name
};

// Returns whether `a` is hotter than `b`: a strict order.
bool hotter(Order order, const Block& a, const Block& b) noexcept;

}  // namespace kvbm::top

// Home nodes of a key: weighted rendezvous hashing. Every node with the same members in its list gets the same homes,
// whatever machine, compiler and order of the list. A change of members moves only keys of, or to, the members that
// changed.
//
// Source: rendezvous hashing, Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1), 1998; weights by the
// logarithmic method of Schindelhauer and Schomaker, SPAA 2005 (score -w / ln h, h uniform in (0,1)). Node i wins
// with probability w_i / sum of w, and of the rest likewise, so the r best are r replicas. Here the smallest -log2(h)
// / w wins, in integers only: h has 64 bits, the logarithm 52 bits after the point from tables that the compiler
// computes, ratios are compared by products of 128 bits; equal ones by node id. No libm; floating point only skips
// nodes that cannot win.
//
// Only the key decides, not its family: all shards of a block have one home, and one query finds them. Memory: 40
// bytes a node. Budget: no allocation. Cost per key grows with the nodes: cluster/README.md (Placement) has figures.
// Immutable after construction. Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cluster/node.h"

namespace kvbm::cluster {

struct PlacementNode {
  NodeId id;
  uint64_t weight = 0;  // bytes offered; counted in MiB, more than 0 counts as at least one; 0 is no home
};

class Placement {
 public:
  static constexpr size_t kMaxReplicas = 8;

  Placement() = default;
  // Returned indexes are places in `nodes`.
  explicit Placement(std::span<const PlacementNode> nodes);

  // Writes the homes of a key, best first, to `out` (at most kMaxReplicas). Returns their number: fewer if there are
  // fewer nodes with weight.
  size_t homes(const Key& key, std::span<uint32_t> out) const noexcept;
  // Returns the first home only; UINT32_MAX if there is none.
  [[nodiscard]] uint32_t home(const Key& key) const noexcept;

  [[nodiscard]] size_t size() const noexcept { return nodes_.size(); }

 private:
  struct Node {
    uint64_t low;
    uint64_t high;
    uint64_t weight;  // MiB
    double weight_as_double;
    uint32_t index;
  };
  template <size_t kRoom>
  size_t rank(const Key& key, size_t wanted, uint32_t* out) const noexcept;

  std::vector<Node> nodes_;  // by id, so that the first of equals is the same everywhere
};

// Returns -log2(x / 2^64) with 52 bits after the point, at least 1; error below 2^-33. For tests.
uint64_t minus_log2(uint64_t x) noexcept;

}  // namespace kvbm::cluster

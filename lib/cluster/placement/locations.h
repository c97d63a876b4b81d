// Last known holders of records: a bounded cache of answers, so that a reader needs one round trip. Its answers are
// hints: the record proves itself, and a peer that no longer has it reports so (then forget()). A node that died, left
// or restarted loses all its entries at once, because their generation no longer matches.
//
// Invariant: bytes() never exceeds the constructor's memory_bytes (at least one bucket). Entries take 48 bytes, eight
// to a bucket, in either of two buckets by the identity's hash (with one, a table filled to a third had lost 22 of
// 100,000). If both are full, void entries are replaced first, then the oldest. An identity may have several holders,
// with an entry each. Thread: one owner, no lock. Budget: two buckets a call (six cache lines each), no allocation
// except in set_node(). The system provides pages of the table as it fills.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/memory/zeroed_array.h"
#include "base/status.h"
#include "cluster/node.h"

namespace kvbm::cluster {

// Index of a node in this table.
using NodeIndex = uint16_t;
inline constexpr NodeIndex kNoNode = UINT16_MAX;

struct Location {
  NodeIndex node = kNoNode;
  uint8_t tier = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;  // below 2^56
  uint64_t hint = 0;           // meaning known to the owner only
  uint64_t age_ns = 0;         // out
  bool operator==(const Location&) const = default;
};

class Locations {
 public:
  static constexpr size_t kEntryBytes = 48;
  static constexpr size_t kWays = 8;
  static constexpr size_t kHolders = 2 * kWays;  // limit of known holders of one record: two buckets

  static constexpr uint64_t kKeepNs = 600'000'000'000;  // an answer is believed so long

  explicit Locations(uint64_t memory_bytes);

  // Returns the index of a node; a new incarnation voids what was known of it. at_limit above 65,534 nodes.
  Result<NodeIndex> set_node(const NodeId& id, uint64_t incarnation);
  // Removes a node that died or left; its index may be reused later.
  void drop_node(const NodeId& id);
  [[nodiscard]] NodeIndex node(const NodeId& id) const;
  // Returns the id of a valid index.
  [[nodiscard]] const NodeId& node_id(NodeIndex index) const { return nodes_[index].id; }

  // Notes that `where.node` has the record. Replaces this node's entry.
  void put(const Identity& id, const Location& where, uint64_t now_ns);
  // Removes a node that no longer has the record.
  void forget(const Identity& id, NodeIndex node);
  // Writes holders to `out`, the youngest answer first; returns their number.
  size_t find(const Identity& id, uint64_t now_ns, std::span<Location> out) const;

  [[nodiscard]] uint64_t bytes() const noexcept { return entries_.bytes(); }

 private:
  struct Entry {
    Key key;
    uint64_t hint = 0;
    uint64_t tier_and_payload = 0;  // tier in the top 8 bits
    FamilyId family = 0;
    uint32_t head_bytes = 0;
    uint32_t stamp = 0;  // milliseconds; wraps after 49 days, which at worst gives a wrong age
    NodeIndex node = 0;
    uint16_t generation = 0;  // of the node; 0 = empty
  };
  static_assert(sizeof(Entry) == kEntryBytes);
  struct Node {
    NodeId id;
    uint64_t incarnation = 0;
    uint16_t generation = 1;
    bool used = false;
  };
  [[nodiscard]] std::array<std::span<Entry>, 2> buckets(const Identity& id) noexcept;
  [[nodiscard]] uint64_t age_ns(const Entry& entry, uint64_t now_ns) const noexcept;
  [[nodiscard]] bool valid(const Entry& entry, uint64_t now_ns) const noexcept;
  Entry& place(const Identity& id, NodeIndex node, uint64_t now_ns) noexcept;
  void raise(Node& node) noexcept;
  static void insert(const Location& found, std::span<Location> out, size_t& n) noexcept;

  size_t buckets_;
  ZeroedArray<Entry> entries_;
  std::vector<Node> nodes_;
  std::map<NodeId, NodeIndex> by_id_;
  std::vector<NodeIndex> free_;
};

}  // namespace kvbm::cluster

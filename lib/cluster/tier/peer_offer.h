// Writes to other nodes: records are offered to the home nodes of each key; part of the tier of other nodes. A record
// that no home takes (full, gone, silent) is offered to the next nodes in the order of homes, one after the other.
// That goes on for at most kMostElsewhere nodes and until the deadline. Readers ask nodes in the same order.
//
// A node fetches wanted records while they are held here. A record counts as stored when its node reports it: until
// then it may still be in flight. If a node has released the lease and does not have a record, it could not take it
// (it arrived damaged, say, or no slot was free after all): the record ends with io_error at once. Thread: put() any;
// the rest the links'.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cluster/tier/peer_tier_context.h"

namespace kvbm::cluster {

class PeerOffer : public std::enable_shared_from_this<PeerOffer> {
 public:
  explicit PeerOffer(std::shared_ptr<PeerTierContext> context) : context_(std::move(context)) {}

  void put(std::unique_ptr<tier::PutBatch> batch);

 private:
  // Number of nodes that a record is offered to beyond its homes.
  static constexpr uint8_t kMostElsewhere = 3;

  struct Record {
    std::vector<NodeId> asked;
    uint8_t open = 0;  // number of these that have not decided
    uint8_t elsewhere = 0;
  };

  struct PutOp {
    std::unique_ptr<tier::PutBatch> batch;
    std::vector<Record> records;  // parallel to the items
    size_t offers = 0;            // offers and confirmations without an answer yet
    uint64_t deadline_ns = kNever;
  };

  // Records of one offer that its node will fetch.
  struct Taking {
    NodeId node;
    std::weak_ptr<PeerLink> link;  // the link that the lease belongs to
    uint64_t lease = 0;
  };

  using ByNode = std::map<NodeId, std::vector<size_t>>;  // items, in the order of nodes

  void offer(const std::shared_ptr<PutOp>& op);
  void offer_to(const std::shared_ptr<PutOp>& op, const ByNode& by_node);
  // Note that a node has the record, or refuses the records. One node of several is enough.
  void took(PutOp& op, size_t item);
  void refused(const std::shared_ptr<PutOp>& op, std::span<const size_t> items, Code code);
  // Finds the next node in the order of homes that was not asked; false: there is none, or enough were.
  bool next_home(Record& record, const Key& key, NodeId& out) const;
  void offer_some(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void offer_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void wanted(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes,
              const OfferBatch& answer);
  void confirm_later(const std::shared_ptr<PutOp>& op, const Taking& by, std::vector<size_t> indexes, uint64_t wait);
  void confirm(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes, uint64_t wait);
  // Returns the records that the node does not have yet.
  std::vector<size_t> confirmed(const std::shared_ptr<PutOp>& op, const NodeFacts& node,
                                const std::vector<size_t>& indexes, const FindBatch& answer);
  void offered(const std::shared_ptr<PutOp>& op);

  const std::shared_ptr<PeerTierContext> context_;
};

}  // namespace kvbm::cluster

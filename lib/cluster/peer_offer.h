// Writing to other nodes: what is put is offered to the home nodes of each key; part of the tier of other nodes. What
// none of them takes (no room, gone, silent) is offered to the next nodes in the order of homes, one after the other,
// to kMostElsewhere at most and until the deadline; readers ask nodes in the same order.
//
// A node fetches what it wants while it is held here. A record counts as stored when its node says that it has it:
// until then it may still be on its way. A node that has given the lease back and does not have a record could not take
// it (it came damaged, say, or there was no room after all): that one ends with io_error, and is not waited for.
// Thread: put() any; the rest the links'.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cluster/peer_commons.h"

namespace kvbm::cluster {

class PeerOffer : public std::enable_shared_from_this<PeerOffer> {
 public:
  explicit PeerOffer(std::shared_ptr<PeerCommons> commons) : commons_(std::move(commons)) {}

  void put(std::unique_ptr<tier::PutBatch> batch);

 private:
  // Nodes that a record is offered to beyond its homes.
  static constexpr uint8_t kMostElsewhere = 3;

  struct Record {
    std::vector<NodeId> asked;
    uint8_t open = 0;  // of them those that have not decided
    uint8_t elsewhere = 0;
  };

  struct PutOp {
    std::unique_ptr<tier::PutBatch> batch;
    std::vector<Record> records;  // beside the items
    size_t offers = 0;  // and confirmations, that are not answered
    uint64_t deadline_ns = kNever;
  };

  // Records of one offer that its node is about to fetch.
  struct Taking {
    NodeId node;
    std::weak_ptr<PeerLink> link;  // that the lease is one of
    uint64_t lease = 0;
  };

  using ByNode = std::map<NodeId, std::vector<size_t>>;  // items, in the order of nodes

  void offer(const std::shared_ptr<PutOp>& op);
  void offer_to(const std::shared_ptr<PutOp>& op, const ByNode& by_node);
  // A node has these, or will not have them. Of several nodes one that has it is enough.
  void took(PutOp& op, size_t item);
  void refused(const std::shared_ptr<PutOp>& op, std::span<const size_t> items, Code code);
  // The next node in the order of homes that was not asked; false: there is none, or enough were.
  bool next_home(Record& record, const Key& key, NodeId& out) const;
  void offer_some(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void offer_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void wanted(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes,
              const OfferBatch& answer);
  void confirm_later(const std::shared_ptr<PutOp>& op, const Taking& by, std::vector<size_t> indexes, uint64_t wait);
  void confirm(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes, uint64_t wait);
  // Those that are not there yet.
  std::vector<size_t> confirmed(const std::shared_ptr<PutOp>& op, const NodeFacts& node,
                                const std::vector<size_t>& indexes, const FindBatch& answer);
  void offered(const std::shared_ptr<PutOp>& op);

  const std::shared_ptr<PeerCommons> commons_;
};

}  // namespace kvbm::cluster

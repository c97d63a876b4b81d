// Writing to other nodes: what is put is offered to the home nodes of each key; part of the tier of other nodes.
//
// A home fetches what it wants while it is held here. A record counts as stored when its node says that it has it:
// until then it may still be on its way. A node that has given the lease back and does not have a record could not take
// it (it came damaged, say, or there was no room after all): that one ends with io_error, and is not waited for.
// Thread: put() any; the rest the links'.
#pragma once

#include <memory>
#include <vector>

#include "cluster/peer_commons.h"

namespace kvbm::cluster {

class PeerOffer : public std::enable_shared_from_this<PeerOffer> {
 public:
  explicit PeerOffer(std::shared_ptr<PeerCommons> commons) : commons_(std::move(commons)) {}

  void put(std::unique_ptr<tier::PutBatch> batch);

 private:
  struct PutOp {
    std::unique_ptr<tier::PutBatch> batch;
    size_t offers = 0;  // and confirmations, that are not answered
    uint64_t deadline_ns = kNever;
  };

  // Records of one offer that its node is about to fetch.
  struct Taking {
    NodeId node;
    std::weak_ptr<PeerLink> link;  // that the lease is one of
    uint64_t lease = 0;
  };

  // Of several homes one that has it is enough.
  static void note(PutOp& op, size_t item, Code code) {
    if (op.batch->status[item] != Code::ok) op.batch->status[item] = code;
  }
  void offer(const std::shared_ptr<PutOp>& op);
  void offer_some(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void offer_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes, uint64_t wait);
  void wanted(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes,
              const OfferBatch& answer);
  void confirm_later(const std::shared_ptr<PutOp>& op, const Taking& by, std::vector<size_t> indexes, uint64_t wait);
  void confirm(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes, uint64_t wait);
  // Those that are not there yet.
  std::vector<size_t> confirmed(PutOp& op, const NodeFacts& node, const std::vector<size_t>& indexes,
                                const FindBatch& answer);
  void offered(const std::shared_ptr<PutOp>& op);

  const std::shared_ptr<PeerCommons> commons_;
};

}  // namespace kvbm::cluster

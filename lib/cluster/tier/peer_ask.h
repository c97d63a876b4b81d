// Queries to other nodes for records; part of the tier of other nodes. Thread: ask() any; the rest the links'.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cluster/tier/peer_tier_context.h"

namespace kvbm::cluster {

class PeerAsk : public std::enable_shared_from_this<PeerAsk> {
 public:
  explicit PeerAsk(std::shared_ptr<PeerTierContext> context) : context_(std::move(context)) {}

  // Asks the nodes for these records and stores their answers. A node that let a query expire and has sent nothing
  // since is skipped: a stopped node delays one query, not every one until its link ends. `done` runs once, on the
  // links' thread, when all have answered or the deadline has passed; on the core's executor after shutdown.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);

 private:
  struct Question {
    std::vector<Identity> ids;
    uint64_t deadline_ns = kNever;
    UniqueFunction<void()> done;
    size_t waiting = 0;
    size_t from = 0;  // the first rank not asked yet
  };

  void put_question(const std::shared_ptr<Question>& question);
  // Returns true if nothing has arrived from the node since a query to it expired.
  [[nodiscard]] bool is_silent(const PeerLink& link);
  void note_silence(const NodeFacts& facts, const FindBatch& answer);
  // Leaves in the query the records that no node is known to have.
  void keep_unknown(Question& question) const;
  void answered(const std::shared_ptr<Question>& question);

  const std::shared_ptr<PeerTierContext> context_;
  std::map<NodeId, uint64_t> silent_;  // nodes that let a query expire, and their message count at that time
};

}  // namespace kvbm::cluster

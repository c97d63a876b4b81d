// Asking other nodes what they have; part of the tier of other nodes.
// Thread: ask() any; the rest the links'.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cluster/peer_commons.h"

namespace kvbm::cluster {

class PeerAsk : public std::enable_shared_from_this<PeerAsk> {
 public:
  explicit PeerAsk(std::shared_ptr<PeerCommons> commons) : commons_(std::move(commons)) {}

  // Asks the nodes for these and learns what they say, but no node that let a question expire and has said nothing since:
  // one that is stopped costs one question, not each of them until it is given up. `done` runs once, on the links' thread, when all have answered
  // or the deadline has passed; on the core's executor after shutdown.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);

 private:
  struct Question {
    std::vector<Identity> ids;
    uint64_t deadline_ns = kNever;
    UniqueFunction<void()> done;
    size_t waiting = 0;
    size_t from = 0;  // the first rank that has not been asked
  };

  void put_question(const std::shared_ptr<Question>& question);
  // Nothing came from there since a question to it expired.
  [[nodiscard]] bool is_silent(const PeerLink& link);
  void note_silence(const NodeFacts& facts, const FindBatch& answer);
  // What nobody has been found to have yet.
  void keep_unknown(Question& question) const;
  void answered(const std::shared_ptr<Question>& question);

  const std::shared_ptr<PeerCommons> commons_;
  std::map<NodeId, uint64_t> silent_;  // nodes that let a question expire, and what had come from them by then
};

}  // namespace kvbm::cluster

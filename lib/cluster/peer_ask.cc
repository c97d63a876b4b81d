#include "cluster/peer_ask.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kvbm::cluster {

namespace {

// Pools of so few nodes are asked whole; in larger ones a key's home is.
constexpr size_t kAskAll = 16;

}  // namespace

void PeerAsk::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  auto question = std::make_shared<Question>();
  question->ids = std::move(ids);
  question->deadline_ns = deadline_ns;
  question->done = std::move(done);
  if (!commons_->enter()) {
    commons_->executor.post([question] { question->done(); });
    return;
  }
  commons_->mesh.executor().post([self = shared_from_this(), question] { self->put_question(question); });
}

void PeerAsk::put_question(const std::shared_ptr<Question>& question) {
  Mesh& mesh = commons_->mesh;
  std::map<PeerLink*, std::vector<Identity>> by_link;
  const std::vector<PeerLink*> ready = mesh.ready();
  if (ready.size() <= kAskAll) {
    for (PeerLink* link : ready) by_link[link] = question->ids;
  } else {
    for (const Identity& id : question->ids) {
      if (PeerLink* link = mesh.home(id.key)) by_link[link].push_back(id);
    }
  }
  question->waiting = 1;
  for (PeerLink* const link : ready) {  // in the order of nodes, not of pointers
    const auto mine = by_link.find(link);
    if (mine == by_link.end()) continue;
    auto batch = std::make_unique<FindBatch>();
    batch->ids = std::move(mine->second);
    batch->deadline_ns = std::min(question->deadline_ns, commons_->latest_ns());
    batch->done = [self = shared_from_this(), question, node = link->peer()](FindBatch& answer) {
      self->commons_->places.learn(node, answer);
      self->answered(question);
    };
    ++question->waiting;
    link->find(std::move(batch));
  }
  answered(question);
}

void PeerAsk::answered(const std::shared_ptr<Question>& question) {
  if (--question->waiting != 0) return;
  question->done();
  commons_->leave();
}

}  // namespace kvbm::cluster

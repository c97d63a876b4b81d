#include "cluster/tier/peer_ask.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cluster/placement/placement.h"

namespace kvbm::cluster {

namespace {

// In pools of up to so many nodes all are asked; in larger ones a key's homes.
constexpr size_t kAskAll = 16;

}  // namespace

void PeerAsk::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  auto question = std::make_shared<Question>();
  question->ids = std::move(ids);
  question->deadline_ns = deadline_ns;
  question->done = std::move(done);
  if (!context_->enter()) {
    context_->executor.post([question] { question->done(); });
    return;
  }
  context_->mesh.executor().post([self = shared_from_this(), question] { self->put_question(question); });
}

void PeerAsk::put_question(const std::shared_ptr<Question>& question) {
  Peers& mesh = context_->mesh;
  std::map<NodeId, std::vector<Identity>> by_node;  // in the order of nodes, not of pointers
  std::vector<PeerLink*> ready = mesh.ready();
  if (ready.size() <= kAskAll) {
    std::erase_if(ready, [this](const PeerLink* link) { return is_silent(*link); });
    for (PeerLink* link : ready) by_node[link->peer().node] = question->ids;
    question->from = Placement::kMaxReplicas;
  } else {
    const size_t to = question->from == 0 ? context_->options.replicas + 1 : Placement::kMaxReplicas;
    std::array<PeerLink*, Placement::kMaxReplicas> homes{};
    for (const Identity& id : question->ids) {
      const size_t n = mesh.homes(id.key, std::span(homes).first(std::min(to, homes.size())));
      for (size_t h = question->from; h < n; ++h) {
        if (!is_silent(*homes[h])) by_node[homes[h]->peer().node].push_back(id);
      }
    }
    question->from = to;
  }
  question->waiting = 1;
  for (auto& [node, ids] : by_node) {
    PeerLink* const link = mesh.link_to(node);
    if (link == nullptr) continue;
    auto batch = std::make_unique<FindBatch>();
    batch->ids = std::move(ids);
    batch->deadline_ns = std::min(question->deadline_ns, context_->latest_ns());
    batch->done = [self = shared_from_this(), question, facts = link->peer()](FindBatch& answer) {
      self->context_->places.learn(facts, answer);
      self->note_silence(facts, answer);
      self->answered(question);
    };
    ++question->waiting;
    link->find(std::move(batch));
  }
  answered(question);
}

bool PeerAsk::is_silent(const PeerLink& link) {
  const auto known = silent_.find(link.peer().node);
  if (known == silent_.end()) return false;
  if (known->second == link.stats().messages_in) return true;
  silent_.erase(known);
  return false;
}

void PeerAsk::note_silence(const NodeFacts& facts, const FindBatch& answer) {
  const bool expired = !answer.status.empty() && answer.status.front() == Code::deadline;
  const PeerLink* const link = context_->mesh.link_to(facts.node);
  if (link == nullptr) {
    silent_.erase(facts.node);
  } else if (expired) {
    silent_[facts.node] = link->stats().messages_in;
  }
}

void PeerAsk::keep_unknown(Question& question) const {
  PeerPlaces::Place known;
  const auto placed = [&](const Identity& id) { return context_->places.locate(id, known); };
  question.ids.erase(std::remove_if(question.ids.begin(), question.ids.end(), placed), question.ids.end());
}

void PeerAsk::answered(const std::shared_ptr<Question>& question) {
  if (--question->waiting != 0) return;
  if (question->from < Placement::kMaxReplicas && context_->executor.clock().now_ns() < question->deadline_ns) {
    keep_unknown(*question);
    if (!question->ids.empty()) return put_question(question);
  }
  question->done();
  context_->leave();
}

}  // namespace kvbm::cluster

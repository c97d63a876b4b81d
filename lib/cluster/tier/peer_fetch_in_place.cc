// Reads of records of nodes of this machine: from their memory, on the core's executor, and over the link if they are
// not there.
#include <algorithm>
#include <utility>

#include "cluster/tier/peer_fetch.h"

namespace kvbm::cluster {

namespace {
// Limits of one task's copies, so that a batch is shared among the executor's threads.
constexpr uint64_t kTaskBytes = 4ULL << 20;
constexpr size_t kTaskItems = 256;
}  // namespace

void PeerFetch::read_here(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items) {
  for (size_t first = 0; first < items.size();) {
    std::vector<size_t> some;
    uint64_t bytes = 0;
    for (; first < items.size() && some.size() < kTaskItems && bytes < kTaskBytes; ++first) {
      some.push_back(items[first]);
      bytes += op->where[items[first]].payload_bytes;
    }
    context_->executor.post([self = shared_from_this(), op, some = std::move(some)] { self->read_some(op, some); });
  }
}

void PeerFetch::read_some(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items) {
  std::vector<size_t> elsewhere;
  for (const size_t i : items) {
    if (context_->executor.clock().now_ns() >= op->deadline_ns) {
      end_item({op, i}, Code::deadline);
    } else if (read_one(op->batch->items[i], op->where[i]) == Code::ok) {
      end_item({op, i}, Code::ok);
    } else {
      elsewhere.push_back(i);
    }
  }
  if (elsewhere.empty()) return;
  context_->mesh.executor().post([self = shared_from_this(), op, elsewhere = std::move(elsewhere)] {
    for (const size_t i : elsewhere) {
      // The known places may have changed meanwhile.
      Place now;
      if (self->context_->places.locate(op->batch->items[i].id, now)) op->where[i] = now;
    }
    self->begin(op, elsewhere);
  });
}

Code PeerFetch::read_one(tier::GetItem& item, const Place& where) const {
  tier::InPlace what;
  what.id = item.id;
  if (!in_place_.find(where, what)) return Code::miss;
  what.code = in_place_.read(item, what);
  what.bytes = item.payload_bytes;
  in_place_.ended({&what, 1});
  return what.code;
}

// Asks where a record that arrived over the link lies in its node's memory: the next reader then needs no message.
void PeerFetch::ask_again(const NodeId& node, std::vector<Identity> ids) {
  PeerLink* const link = context_->mesh.link_to(node);
  if (link == nullptr) return;
  auto batch = std::make_unique<FindBatch>();
  batch->ids = std::move(ids);
  batch->deadline_ns = context_->latest_ns();
  batch->done = [context = context_, facts = link->peer()](FindBatch& answer) { context->places.learn(facts, answer); };
  link->find(std::move(batch));
}

}  // namespace kvbm::cluster

#include "manager/node/node_source.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/tier/peer_tier.h"
#include "codec/record/record.h"
#include "manager/host/host_record.h"
#include "manager/stack/stats.h"

namespace kvbm::manager {

NodeSource::NodeSource(std::shared_ptr<TierStack> stack, Namespaces& namespaces, Executor& links)
    : stack_(std::move(stack)),
      host_(stack_->host()),
      namespaces_(namespaces),
      links_(std::make_shared<WeakExecutor>(links)) {}

NodeSource::~NodeSource() {
  detach();
  *self_ = nullptr;
  for (const auto& [id, pin] : pins_) drop(id, pin);
  for (const auto& [name, lent] : opened_) give_back(host_, lent);
}

void NodeSource::find(std::span<const Identity> ids, std::span<cluster::wire::FoundItem> out) {
  std::vector<tier::Found> found(ids.size());
  std::vector<TierIndex> tiers(ids.size());
  find_to_lend(stack_->lower(), ids, found, tiers);
  for (size_t i = 0; i < ids.size(); ++i) {
    out[i] = {};
    if (tiers[i] == kNoTier) continue;
    out[i].present = 1;
    out[i].tier = tiers[i];
    out[i].head_bytes = found[i].head_bytes;
    out[i].payload_bytes = found[i].payload_bytes;
    out[i].location = found[i].location;
  }
  prepare(ids, tiers);
}

namespace {

// Number of heads that one task makes, because it hashes their records.
constexpr size_t kPrepared = 16;

// Makes heads of resident records from `next` on, kPrepared a task.
void make_heads(const std::shared_ptr<HostTier>& host, std::vector<Identity> ids, size_t next,
                const std::shared_ptr<std::atomic<uint32_t>>& preparing) {
  for (const size_t end = std::min(ids.size(), next + kPrepared); next < end && !host->closing(); ++next) {
    const SlotId slot = host->acquire_one(ids[next].family, ids[next].key);
    if (slot == kNoSlot) continue;
    (void)ensure_head(*host, slot);
    host->release({&slot, 1});
  }
  if (next == ids.size() || host->closing()) {
    preparing->fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  host->env().executor->post(
      [host, ids = std::move(ids), next, preparing]() mutable { make_heads(host, std::move(ids), next, preparing); });
}

}  // namespace

void NodeSource::prepare(std::span<const Identity> ids, std::span<const TierIndex> tiers) {
  // A reader that finds no head asks over the link.
  if (host_.arena().fd() < 0 || preparing_->load(std::memory_order_relaxed) >= kPreparing) return;
  std::vector<Identity> wanted;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tiers[i] != 0) continue;
    const SlotId slot = host_.acquire_one(ids[i].family, ids[i].key);
    if (slot == kNoSlot) continue;
    if ((host_.table().flags(slot) & kHasHead) == 0) wanted.push_back(ids[i]);
    host_.release({&slot, 1});
  }
  if (wanted.empty()) return;
  preparing_->fetch_add(1, std::memory_order_relaxed);
  host_.env().executor->post([host = host_.lifetime().keep(host_), wanted = std::move(wanted),
                              preparing = preparing_]() mutable { make_heads(host, std::move(wanted), 0, preparing); });
}

bool NodeSource::pin(const Identity& id) {
  const auto known = pins_.find(id);
  if (known != pins_.end()) {
    ++known->second.count;
    return true;
  }
  Pin pin;
  pin.count = 1;
  pin.slot = host_.acquire_one(id.family, id.key);
  bool held = pin.slot != kNoSlot;
  for (size_t t = 1; t <= stack_->lower().count() && !held; ++t) {
    pin.tier = static_cast<TierIndex>(t);
    tier::Found found;
    if (stack_->lower().out_of_use(pin.tier)) continue;
    stack_->lower().tier(pin.tier).find({&id, 1}, {&found, 1}, false);
    held = found.present && stack_->lower().tier(pin.tier).pin(id);
  }
  if (held) pins_.emplace(id, pin);
  return held;
}

void NodeSource::unpin(const Identity& id) {
  const auto known = pins_.find(id);
  if (known == pins_.end() || --known->second.count != 0) return;
  drop(id, known->second);
  pins_.erase(known);
}

void NodeSource::drop(const Identity& id, const Pin& pin) {
  if (pin.tier == 0) {
    host_.release({&pin.slot, 1});
  } else {
    stack_->lower().tier(pin.tier).unpin(id);
  }
}

// One open(), from the call to the answer.
struct NodeSource::Opening {
  std::shared_ptr<NodeSource*> receiver;
  std::shared_ptr<TierStack> stack;
  uint32_t first_leaf = 0;
  uint32_t leaves = 0;
  UniqueFunction<void(const cluster::OpenedRecord&)> done;
  Lent lent;
  const std::thread::id opener = std::this_thread::get_id();
  bool opening = true;  // only the opener's thread uses it
  bool lent_at_once = false;

  ~Opening() { give_back(stack->host(), lent); }

  [[nodiscard]] cluster::OpenedRecord record() const {
    cluster::OpenedRecord out;
    out.code = lent.code;
    if (out.code != Code::ok) return out;
    const auto head = codec::HeadView::parse(lent.head);
    if (head.ok()) {
      const auto range = cluster::leaves_range(head.value(), first_leaf, leaves);
      out.code = range.ok() ? Code::ok : range.status().code();
      if (range.ok()) out.payload = lent.payload.subspan(range.value().offset, range.value().bytes);
    } else {
      out.code = head.status().code();
    }
    out.head = lent.head;
    return out;
  }

  // Runs on the links' thread.
  void answer() {
    NodeSource* const source = *receiver;
    if (source == nullptr) return;
    cluster::OpenedRecord out = record();
    if (out.code == Code::ok) {
      out.pin = ++source->last_opened_;
      source->opened_.emplace(out.pin, std::exchange(lent, {}));
    }
    done(out);
  }
};

void NodeSource::open(const Identity& id, uint64_t /*location*/, uint32_t first_leaf, uint32_t leaves,
                      uint64_t deadline_ns, UniqueFunction<void(const cluster::OpenedRecord&)> done) {
  auto opening = std::make_shared<Opening>();
  opening->receiver = self_;
  opening->stack = stack_;
  opening->first_leaf = first_leaf;
  opening->leaves = leaves;
  opening->done = std::move(done);
  lend(stack_, {id}, deadline_ns, [opening, links = links_](std::vector<Lent> lent) {
    opening->lent = std::move(lent[0]);
    if (std::this_thread::get_id() == opening->opener && opening->opening) {
      opening->lent_at_once = true;
    } else {
      links->post([opening] { opening->answer(); });
    }
  });
  opening->opening = false;
  if (opening->lent_at_once) opening->answer();
}

void NodeSource::close(uint64_t pin) {
  const auto known = opened_.find(pin);
  if (known == opened_.end()) return;
  give_back(host_, known->second);
  opened_.erase(known);
}

// Uses the executor: epochs are written to disk before they count, and the links' thread must not wait for that.
void NodeSource::invalidate(std::vector<cluster::EpochWord> words, uint32_t may_add,
                            UniqueFunction<void(std::vector<cluster::EpochWord>)> done) {
  auto answer = std::make_shared<UniqueFunction<void(std::vector<cluster::EpochWord>)>>(std::move(done));
  namespaces_.hear_epochs(std::move(words), may_add, trusts_epochs_,
                          [answer, links = links_](std::vector<cluster::EpochWord> taken) {
                            links->post([answer, taken = std::move(taken)]() mutable { (*answer)(std::move(taken)); });
                          });
}

void NodeSource::epochs(UniqueFunction<void(std::vector<NamespaceEpoch>)> done) {
  auto answer = std::make_shared<UniqueFunction<void(std::vector<NamespaceEpoch>)>>(std::move(done));
  host_.env().executor->post([&namespaces = namespaces_, alive = stack_, answer, links = links_] {
    links->post([answer, epochs = namespaces.epochs()]() mutable { (*answer)(std::move(epochs)); });
  });
}

cluster::wire::NodeStatus NodeSource::status() {
  const Snapshot now = snapshot(*stack_);
  cluster::wire::NodeStatus out;
  for (uint32_t t = 0; t < now.n_tiers; ++t) {
    out.capacity_bytes += now.tiers[t].capacity_bytes;
    out.used_bytes += now.tiers[t].used_bytes;
    out.records += now.tiers[t].blocks;
  }
  const uint64_t block = host_.arena().block_bytes();
  out.block_bytes = block <= UINT32_MAX ? static_cast<uint32_t>(block) : 0;
  out.weight = offers_room_ ? out.capacity_bytes : 0;
  return out;
}

}  // namespace kvbm::manager

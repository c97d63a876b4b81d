#include "manager/share/shared_tier.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/thread/awaited.h"

namespace kvbm::manager {

namespace {

// The answer to one query, and its value. Shared, because either the caller or the links' thread may give up first.
// The links' thread answers by SharedTier::kWaitNs, or somewhat later.
using Answer = Awaited<std::pair<Code, uint64_t>>;

}  // namespace

SharedTier::SharedTier(const cluster::PeerTierOptions& options, Executor& core, FamilyTable& families,
                       ShareLinks& links)
    : core_(core), families_(families), links_(links), peers_(options, core, families, links) {}

ShareRole SharedTier::role() const noexcept {
  const ShareState* const state = state_.load(std::memory_order_acquire);
  return state != nullptr ? state->role.load(std::memory_order_acquire) : ShareRole::off;
}

bool SharedTier::connected() const noexcept {
  const ShareState* const state = state_.load(std::memory_order_acquire);
  return state != nullptr && state->connected.load(std::memory_order_acquire);
}

void SharedTier::forget_all() {
  for (const FamilyId family : families_.all()) (void)peers_.erase_family(family);
}

void SharedTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept {
  if (connected()) return peers_.find(ids, out, touch);
  std::fill(out.begin(), out.end(), tier::Found{});
}

void SharedTier::put(std::unique_ptr<tier::PutBatch> batch) {
  if (!connected()) {
    // A process that became the owner meanwhile has the blocks.
    batch->status.assign(batch->items.size(), role() == ShareRole::owner ? Code::ok : Code::owner_gone);
    core_.post([kept = std::shared_ptr<tier::PutBatch>(std::move(batch))] { kept->done(*kept); });
    return;
  }
  auto done = std::make_shared<UniqueFunction<void(tier::PutBatch&)>>(std::move(batch->done));
  batch->done = [done, refused = refused_, state = state_.load(std::memory_order_acquire)](tier::PutBatch& ended) {
    const bool there = state->connected.load(std::memory_order_acquire);
    uint64_t failed = 0;
    for (Code& code : ended.status) {
      if (code == Code::no_room && !there) code = Code::owner_gone;
      if (code != Code::ok && code != Code::owner_gone) ++failed;
    }
    refused->fetch_add(failed, std::memory_order_relaxed);
    (*done)(ended);
  };
  peers_.put(std::move(batch));
}

Code SharedTier::ask_and_wait(ShareMessage message, uint64_t& value) {
  const auto answer = std::make_shared<Answer>();
  links_.executor().post([this, answer, message = std::move(message)]() mutable {
    const uint64_t deadline_ns = links_.executor().clock().now_ns() + kWaitNs;
    links_.ask(std::move(message), deadline_ns, [answer](Code code, uint64_t v, const std::vector<Key>&) {
      answer->give({code, v});
    });
  });
  Code code = Code::ok;
  std::tie(code, value) = answer->wait();
  return code;
}

void SharedTier::erase(std::span<const Identity> ids) {
  peers_.erase(ids);
  if (!connected()) return;
  std::map<FamilyId, ShareMessage> by_family;
  const auto send = [this](ShareMessage& message) {
    uint64_t ignored = 0;
    if (!message.keys.empty()) (void)ask_and_wait(std::exchange(message, {}), ignored);
  };
  for (const Identity& id : ids) {
    ShareMessage& message = by_family[id.family];
    message.kind = ShareKind::erase;
    message.family = families_.get(id.family);
    message.keys.push_back(id.key);
    if (message.keys.size() == kMaxShareKeys) send(message);
  }
  for (auto& [family, message] : by_family) send(message);
}

Status SharedTier::erase_family(FamilyId family) {
  (void)peers_.erase_family(family);
  if (!connected()) return {};
  ShareMessage message;
  message.kind = ShareKind::erase_family;
  message.family = families_.get(family);
  uint64_t ignored = 0;
  const Code code = ask_and_wait(std::move(message), ignored);
  if (code == Code::ok) return {};
  return {code, "share: the owner of the tier set did not forget the blocks; try again"};
}

Result<uint64_t> SharedTier::epoch(const NamespaceId& base_id) {
  if (!connected()) return uint64_t{0};
  ShareMessage message;
  message.kind = ShareKind::epoch;
  message.base = base_id;
  uint64_t epoch = 0;
  const Code code = ask_and_wait(std::move(message), epoch);
  // An owner that disappears now has a successor, which is asked once it is there.
  if (code == Code::ok || code == Code::owner_gone) return epoch;
  return Status(code, "share: the owner of the tier set did not say which epoch the namespace has; try again");
}

Status SharedTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  if (role() == ShareRole::off) return {};
  const auto answer = std::make_shared<Answer>();
  links_.executor().post([this, answer, base_id, epoch] {
    const uint64_t deadline_ns = links_.executor().clock().now_ns() + kWaitNs;
    links_.announce(base_id, epoch, deadline_ns, [answer](Code code) { answer->give({code, 0}); });
  });
  const Code code = answer->wait().first;
  if (code == Code::ok || role() == ShareRole::owner) return {};
  return {code, "share: the owner of the tier set did not take the new epoch; try again"};
}

}  // namespace kvbm::manager

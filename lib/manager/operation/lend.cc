#include "manager/operation/lend.h"

#include <algorithm>
#include <utility>

#include "cluster/same_host/mapped_pools.h"
#include "cluster/tier/peer_tier.h"
#include "codec/record/record.h"
#include "manager/host/host_record.h"
#include "manager/stack/onboard.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// Retry interval while another thread makes a record's head, which takes as long as hashing one block.
constexpr uint64_t kHeadRetryNs = 50'000;

// Returns the head size of a held slot. A head that is not made yet will be one of opaque bytes.
uint32_t head_bytes_of(HostTier& host, SlotId slot) noexcept {
  if ((host.table().flags(slot) & kHasHead) != 0) {
    const auto header = codec::peek_header(ConstBytes(host.arena().head(slot)).first(codec::kHeaderBytes));
    return header.ok() ? static_cast<uint32_t>(codec::head_bytes(header.value())) : 0;
  }
  const uint64_t leaves = (host.table().payload_bytes(slot) + codec::kMaxLeafBytes - 1) / codec::kMaxLeafBytes;
  return static_cast<uint32_t>(codec::head_bytes(static_cast<uint32_t>(leaves), 0));
}

// Counts the tiers that this node owns. Peer tiers are left out: this node cannot promise their records, least of all
// to the node that has just offered them.
size_t own_tiers(LowerTiers& lower) noexcept {
  size_t n = lower.count();
  while (n != 0 && lower.tier(static_cast<TierIndex>(n)).kind() == cluster::PeerTier::kKind) --n;
  return n;
}

// One call of lend(). Shared by the tiers' answers; each index is written by one of them.
class Loan : public std::enable_shared_from_this<Loan> {
 public:
  Loan(std::shared_ptr<TierStack> stack, std::vector<Identity> ids, uint64_t deadline_ns,
       UniqueFunction<void(std::vector<Lent>)> done)
      : stack_(std::move(stack)),
        host_(stack_->host()),
        ids_(std::move(ids)),
        deadline_ns_(deadline_ns),
        done_(std::move(done)) {
    lent_.resize(ids_.size());
  }

  void run() {
    for (size_t i = 0; i < ids_.size(); ++i) lent_[i].slot = host_.acquire_one(ids_[i].family, ids_[i].key);
    waiting_.store(1, std::memory_order_relaxed);  // until everything is asked for
    std::vector<bool> asked(ids_.size());
    for (size_t i = 0; i < ids_.size(); ++i) asked[i] = lent_[i].slot != kNoSlot;
    for (size_t t = 1; t <= own_tiers(stack_->lower()); ++t) bring_up(static_cast<TierIndex>(t), asked);
    one_done();
  }

 private:
  void bring_up(TierIndex tier, std::vector<bool>& asked) {
    if (stack_->lower().out_of_use(tier)) return;
    const bool late = host_.env().clock().now_ns() >= deadline_ns_;
    tier::Tier& below = stack_->lower().tier(tier);
    auto batch = std::make_unique<tier::GetBatch>();
    batch->deadline_ns = deadline_ns_;
    std::vector<tier::GetItem>& items = batch->items;
    std::vector<size_t> where;
    for (size_t i = 0; i < ids_.size(); ++i) {
      tier::Found found;
      if (asked[i]) continue;
      below.find({&ids_[i], 1}, {&found, 1}, false);
      if (found.present && late) lent_[i].code = Code::deadline;
      if (!found.present || late || !below.pin(ids_[i])) continue;
      asked[i] = true;
      items.push_back(request_of(ids_[i], found));
      where.push_back(i);
    }
    if (items.empty()) return;
    LandingRoom room;
    take_places(*stack_, block::kSharedAccount, items.size(), false, room);
    // Records without a place are asked for again (PeerFetch).
    for (size_t k = room.count(); k < items.size(); ++k) {
      lent_[where[k]].code = Code::no_room;
      below.unpin(ids_[where[k]]);
    }
    items.resize(room.count());
    where.resize(room.count());
    if (items.empty()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    onboard(stack_, tier, std::move(batch), std::move(room),
            [self = shared_from_this(), tier, where = std::move(where)](std::vector<Delivery> landed) {
              for (size_t k = 0; k < where.size(); ++k) {
                self->lent_[where[k]] = lent_from(std::move(landed[k]));
                self->stack_->lower().tier(tier).unpin(self->ids_[where[k]]);
              }
              self->one_done();
            });
  }

  // describe() adds head and payload of a record in a slot.
  static Lent lent_from(Delivery landed) {
    if (landed.code != Code::ok || landed.slot != kNoSlot) return {landed.code, landed.slot, nullptr, {}, {}};
    const auto head = codec::HeadView::parse(landed.head);
    if (!head.ok()) return {head.status().code(), kNoSlot, nullptr, {}, {}};
    return {Code::ok,
            kNoSlot,
            std::move(landed.keep),
            landed.head,
            {landed.payload, static_cast<size_t>(head.value().header().stored_bytes)}};
  }

  void one_done() {
    if (waiting_.fetch_sub(1, std::memory_order_acq_rel) == 1) describe();
  }

  // Describes heads and payloads of held slots. Retries while another thread is making a head.
  void describe() {
    bool again = false;
    for (Lent& one : lent_) {
      if (one.slot == kNoSlot || !one.head.empty()) continue;
      tier::PutItem item;
      one.code = describe_for_put(host_, one.slot, item);
      if (one.code == Code::ok) {
        one.head = item.head;
        one.payload = item.payload;
      }
      again = again || one.code == Code::again;
    }
    const uint64_t now = host_.env().clock().now_ns();
    if (again && now < deadline_ns_) {
      host_.env().executor->post_at(now + kHeadRetryNs, [self = shared_from_this()] { self->describe(); });
      return;
    }
    for (Lent& one : lent_) {
      if (one.code == Code::again) one.code = Code::deadline;
      if (one.code == Code::damaged && one.slot != kNoSlot) host_.quarantine(one.slot);
      if (one.code != Code::ok) host_.release(one.slot);
      if (one.code != Code::ok) one = {one.code, kNoSlot, nullptr, {}, {}};
    }
    done_(std::move(lent_));
  }

  const std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  const std::vector<Identity> ids_;
  const uint64_t deadline_ns_;
  std::vector<Lent> lent_;
  std::atomic<size_t> waiting_{0};
  UniqueFunction<void(std::vector<Lent>)> done_;
};

}  // namespace

void find_to_lend(LowerTiers& lower, std::span<const Identity> ids, std::span<tier::Found> found,
                  std::span<TierIndex> tiers) noexcept {
  HostTier& host = lower.host();
  for (size_t i = 0; i < ids.size(); ++i) {
    found[i] = {};
    tiers[i] = kNoTier;
    const SlotId slot = host.acquire_one(ids[i].family, ids[i].key);
    if (slot != kNoSlot) {
      found[i].present = true;
      found[i].payload_bytes = host.table().payload_bytes(slot);
      found[i].head_bytes = head_bytes_of(host, slot);
      found[i].location = cluster::location_of_slot(slot);
      tiers[i] = 0;
      host.release({&slot, 1});
      continue;
    }
    for (size_t t = 1; t <= own_tiers(lower) && tiers[i] == kNoTier; ++t) {
      if (lower.out_of_use(static_cast<TierIndex>(t))) continue;
      lower.tier(static_cast<TierIndex>(t)).find({&ids[i], 1}, {&found[i], 1}, false);
      found[i].payload_bytes = found[i].room();  // the record is served decoded
      if (found[i].present) tiers[i] = static_cast<TierIndex>(t);
    }
  }
}

void keep_unknown(LowerTiers& lower, std::vector<Identity>& ids) {
  std::vector<tier::Found> found(ids.size());
  std::vector<TierIndex> tiers(ids.size());
  find_to_lend(lower, ids, found, tiers);
  size_t left = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    bool known = tiers[i] != kNoTier;
    for (size_t t = own_tiers(lower) + 1; t <= lower.count() && !known; ++t) {
      if (lower.out_of_use(static_cast<TierIndex>(t))) continue;
      lower.tier(static_cast<TierIndex>(t)).find({&ids[i], 1}, {&found[i], 1}, false);
      known = found[i].present;
    }
    if (!known) ids[left++] = ids[i];
  }
  ids.resize(left);
}

void lend(const std::shared_ptr<TierStack>& stack, std::vector<Identity> ids, uint64_t deadline_ns,
          UniqueFunction<void(std::vector<Lent>)> done) {
  std::make_shared<Loan>(stack, std::move(ids), deadline_ns, std::move(done))->run();
}

}  // namespace kvbm::manager

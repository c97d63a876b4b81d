#include "manager/node/accept_offered.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/host/host_record.h"
#include "manager/host/space_queue.h"
#include "manager/stack/onboard.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {
// Time limit for fetching records that were offered.
constexpr uint64_t kFetchNs = 10'000'000'000;

// One offer that is read into the host, in parts of a quarter of the host, in the order of the offer. Without a slot
// it waits in the space queue like a store, until kFetchNs are over: records not read by then are not taken. Steps run
// on the executor, one at a time.
class OfferFetch final : public SpaceWaiter, public std::enable_shared_from_this<OfferFetch> {
 public:
  OfferFetch(std::shared_ptr<TierStack> stack, TierIndex tier, std::vector<tier::GetItem> items,
             UniqueFunction<void(std::vector<Delivery>)> landed, UniqueFunction<void()> done)
      : stack_(std::move(stack)),
        host_(stack_->host()),
        tier_(tier),
        items_(std::move(items)),
        deadline_ns_(host_.env().clock().now_ns() + kFetchNs),
        place_(host_.space_queue().place_of_store()),
        landed_(std::move(landed)),
        done_(std::move(done)) {}

  void begin() {
    add(host_.counters().operations, 1);
    host_.env().executor->post_at(deadline_ns_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->wake();
    });
    wake();
  }
  void space_may_be_free() override { wake(); }

 private:
  void wake() {
    const MemoryWait no_error_path;
    if (wakes_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
    host_.env().executor->post([self = shared_from_this()] { self->run(); });
  }

  void run() {
    const MemoryWait no_error_path;
    for (uint32_t seen = wakes_.load(std::memory_order_acquire); seen != 0;) {
      step();
      const uint32_t before = wakes_.fetch_sub(seen, std::memory_order_acq_rel);
      seen = before - seen;
    }
  }

  void step() {
    if (over_) return;
    while (next_ < items_.size() && bring_some()) {
    }
    if (next_ < items_.size() || landing_.load(std::memory_order_acquire) != 0) return;
    over_ = true;
    host_.space_queue().leave(place_, false);
    host_.counters().operations.fetch_sub(1, std::memory_order_relaxed);
    done_();
  }

  // Reads the next part. False: SpaceQueue or a read that ends will wake this.
  bool bring_some() {
    if (host_.closing() || stack_->lower().disabled(tier_) || host_.env().clock().now_ns() >= deadline_ns_) {
      next_ = items_.size();
      return true;
    }
    const size_t on_its_way = landing_.load(std::memory_order_acquire);
    const size_t most = std::max<size_t>(host_.arena().slots() / 4, 1);
    if (on_its_way >= most) return false;
    const size_t n = std::min(items_.size() - next_, most - on_its_way);
    SpaceQueue& queue = host_.space_queue();
    // Reads in flight complete whatever others do, so while there are some this does not queue.
    if (on_its_way != 0) return take(n, code_);
    SpaceQueue::Verdict verdict = queue.ask(shared_from_this(), place_, block::kSharedAccount, false);
    while (verdict == SpaceQueue::Verdict::try_it) {
      if (take(n, code_)) return true;
      verdict = queue.refused(shared_from_this(), place_, block::kSharedAccount, false, Code::no_room,
                              stack_->lower().offloading_blocks() != 0);
    }
    if (verdict == SpaceQueue::Verdict::wait) return false;
    if (take(n, code_)) return true;
    if (stack_->lower().offloading_blocks() != 0 && !host_.closing()) return false;
    // No slot will become free: blocks that could not be written back are evicted now.
    stack_->lower().yield_offloads(n);
    LandingRoom room;
    (void)take_slots(*stack_, block::kSharedAccount, n, room);
    if (room.count() != 0) return bring(std::move(room));
    queue.log_refused("a block of another node", code_, 0, stack_->lower().offloading_blocks());
    next_ = items_.size();
    return true;
  }

  bool take(size_t n, Code& code) {
    LandingRoom room;
    code = take_slots_without_loss(*stack_, block::kSharedAccount, n, room);
    return room.count() != 0 && bring(std::move(room));
  }

  bool bring(LandingRoom room) {
    host_.space_queue().leave(place_, true);
    const size_t n = room.count();
    const auto first = items_.begin() + static_cast<std::ptrdiff_t>(next_);
    auto batch = std::make_unique<tier::GetBatch>();
    batch->items.assign(first, first + static_cast<std::ptrdiff_t>(n));
    batch->deadline_ns = deadline_ns_;
    next_ += n;
    landing_.fetch_add(n, std::memory_order_relaxed);
    onboard(
        stack_, tier_, std::move(batch), std::move(room),
        [self = shared_from_this(), n](std::vector<Delivery> landed) {
          self->landed_(std::move(landed));
          self->landing_.fetch_sub(n, std::memory_order_release);
          self->wake();
        },
        true);
    return true;
  }

  const std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  const TierIndex tier_;
  const std::vector<tier::GetItem> items_;
  const uint64_t deadline_ns_;
  const uint64_t place_;
  UniqueFunction<void(std::vector<Delivery>)> landed_;
  UniqueFunction<void()> done_;
  size_t next_ = 0;
  Code code_ = Code::no_room;
  bool over_ = false;
  std::atomic<size_t> landing_{0};
  std::atomic<uint32_t> wakes_{0};
};

// Returns true if records that are read from tier `from` go on to another tier below.
bool goes_on(TierStack& stack, TierIndex from) {
  bool any = false;
  for (TierIndex t = 1; t <= stack.lower().count(); ++t) {
    const AdmissionKind admission = stack.host().options().tiers[t - 1U].admission;
    const bool all = admission == AdmissionKind::all || admission == AdmissionKind::on_eviction;
    any = any || (all && t != from && !stack.lower().out_of_use(t));
  }
  return any;
}

// Returns true if the host has a copy of an offered block that makes reading it needless.
bool has_good_copy(HostTier& host, const Identity& id, TierIndex index, bool of_nodes) {
  const SlotId here = host.acquire_one(id.family, id.key);
  if (here == kNoSlot) return false;
  // A lossy block here gives way to an uncoded one, if that is offered. A block of an earlier process that fails
  // verification counts as missing: otherwise the other node would evict the only good copy.
  const bool good = host.trust(here);
  const bool lossy = good && host.has_lossy() && lies_lossy(host, here);
  // The offering node evicts its copy now. A copy that a node gave before is not offered on either.
  const bool given = of_nodes && good && (host.table().flags(here) & on_tier_flag(index)) != 0;
  if (given) host.received().given({&here, 1});
  host.release({&here, 1});
  return good && !lossy;
}

// Keeps the offered blocks that were read.
void keep_landed(TierStack& stack, std::span<const Delivery> landed, TierIndex index, bool of_nodes) {
  const MemoryWait no_error_path;
  std::vector<SlotId> came;
  for (const Delivery& one : landed) {
    if (one.code != Code::ok) continue;
    came.push_back(one.slot);
    // A block that was stored here meanwhile does not count as given, so it is offered on.
    const bool given = of_nodes && (stack.host().table().flags(one.slot) & on_tier_flag(index)) != 0;
    if (given) stack.host().received().given({&one.slot, 1});
  }
  stack.keep_received(came);
}

}  // namespace

void accept_offered(const std::shared_ptr<TierStack>& stack, TierIndex index, cluster::PeerTier& tier,
                    cluster::PeerLink& link, std::span<const cluster::Offered> offered, uint64_t lease,
                    const std::shared_ptr<WeakExecutor>& links, std::vector<uint32_t>& want,
                    UniqueFunction<void()> done) {
  HostTier& host = stack->host();
  if (host.closing()) {
    if (done) links->post(std::move(done));
    return;
  }
  const bool of_nodes = stack->lower().tier(index).kind() == cluster::PeerTier::kKind;
  (void)host.next_tick();  // lets policies tell these records from older ones
  std::vector<tier::GetItem> items;
  std::vector<cluster::Offered> taken;
  // Blocks that go on to a tier below pass through the host in parts.
  const size_t most = goes_on(*stack, index) ? SIZE_MAX : host.arena().slots();
  for (uint32_t i = 0; i < offered.size(); ++i) {
    const cluster::Offered& one = offered[i];
    if (one.id.family == kNoFamily) continue;  // the table of families was full
    const bool fits = one.payload_bytes <= host.arena().block_bytes() && one.head_bytes <= host.arena().head(0).size();
    if (!fits || taken.size() >= most) continue;
    want.push_back(i);
    if (has_good_copy(host, one.id, index, of_nodes)) continue;
    tier::Found found;
    found.present = true;
    found.head_bytes = one.head_bytes;
    found.payload_bytes = one.payload_bytes;
    items.push_back(request_of(one.id, found));
    taken.push_back(one);
  }
  const auto ended = std::make_shared<UniqueFunction<void()>>(std::move(done));
  const auto release = [weak = link.weak_from_this(), lease, ended] {
    if (const auto alive = weak.lock()) alive->release({&lease, 1});
    if (*ended) (*ended)();
  };
  if (items.empty()) {
    if (!want.empty() || *ended) links->post(release);
    return;
  }
  tier.learn(link.peer(), taken);
  const auto fetch = std::make_shared<OfferFetch>(
      stack, index, std::move(items),
      [stack, of_nodes, index](const std::vector<Delivery>& landed) { keep_landed(*stack, landed, index, of_nodes); },
      [release, links] { links->post(release); });
  fetch->begin();
}

}  // namespace kvbm::manager

// Loads that are never slower than computing: decides how far to load and when to stop, and counts the outcome.
#include "manager/operation/load_cost.h"
#include "manager/operation/load.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/operation/prefix.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

Arrivals::Arrivals(LowerTiers& lower, uint64_t now_ns, bool flowing) noexcept {
  for (size_t t = 0; t <= lower.count(); ++t) {
    expect_[t] = lower.cost(static_cast<TierIndex>(t)).expect(now_ns);
    if (flowing) expect_[t].start_ns = 0;
  }
}

void Arrivals::add(TierIndex source, uint64_t bytes) noexcept {
  bytes_[0] += bytes;
  ns_ = std::max(ns_, expect_[0].arrival_ns(bytes_[0]));
  if (source == 0) return;
  bytes_[source] += bytes;
  ns_ = std::max(ns_, expect_[source].arrival_ns(bytes_[source]));
}

uint64_t payload_bytes(const Match& match, size_t part, size_t key) noexcept {
  const MatchPart& from = match.parts()[part];
  // A slot that the match holds keeps the bytes that were completed in it.
  return from.slots[key] != kNoSlot ? match.stack().host().table().payload_bytes(from.slots[key])
                                    : from.found[key].payload_bytes;
}

void predict_load(const Match& match, size_t first, std::span<uint64_t> out) noexcept {
  Arrivals arrivals(match.stack().lower(), match.stack().host().env().clock().now_ns(), false);
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t p = 0; p < match.parts().size(); ++p) {
      const TierIndex tier = match.source_of(p, first + i);
      if (tier != kNoTier) arrivals.add(tier, payload_bytes(match, p, first + i));
    }
    out[i] = arrivals.ns();
  }
}

// A load is weighed if the engine has said how long it computes a block. Times are relative to the submission, except
// those on the clock.
class LoadOperation::Weighing final : public Pace {
 public:
  void begin(LoadOperation& load) override;
  uint64_t batch_bytes(const LoadOperation& load, const Item& first, uint64_t left) override;
  // The first batches are small, so that a source slower than measured shows early.
  size_t batch_items(const LoadOperation& load) override {
    return std::min(kLandingItems, size_t{1} << std::min(load.asked_, 8U));
  }
  bool may_ask(const LoadOperation& load) override KVBM_REQUIRES(load.mutex_) { return load.landing_ != kLandings; }
  uint64_t give_up_ns() override { return give_up_ns_; }
  bool out_of_time(LoadOperation& load, bool idle) override;
  void wait_at_most(LoadOperation& load) override;
  bool leaves_rest() override { return true; }
  void account(LoadOperation& load) override;

 private:
  // Batches are smaller than those of other loads, with as many bytes in flight.
  static constexpr uint32_t kLandings = 32;
  struct Want {
    size_t k;  // key from first_key on
    TierIndex source;
    uint64_t bytes;
  };
  void weigh_again(LoadOperation& load);
  void leave_from(LoadOperation& load, size_t k);
  [[nodiscard]] uint64_t latest(uint64_t last_ns) const noexcept;
  [[nodiscard]] static uint64_t worth_of(const LoadOperation& load, size_t k) noexcept;
  static void probe(LoadOperation& load, size_t from, uint64_t now);

  std::vector<Want> wants_;           // by key
  std::vector<uint64_t> arrival_ns_;  // per key: predicted
  std::vector<uint64_t> worth_ns_;    // per key: time to compute it
  bool whole_ = false;                // all or nothing
  size_t limit_ = 0;                  // keys from here on are left to the engine
  size_t settled_ = 0;                // leading keys that need no more waiting
  uint64_t in_place_worth_ns_ = 0;    // of the settled keys
  uint64_t last_ns_ = 0;              // when the last settled key was settled
  uint64_t slack_ns_ = 0;
  uint64_t predicted_ns_ = 0;     // of the chosen keys; 0: none were chosen
  uint64_t give_up_ns_ = kNever;  // on the clock: the load waits for nothing after this
  uint64_t armed_ns_ = 0;         // on the clock: the timer that is set
  uint64_t landed_ = 0;           // LoadOperation::landed_ when last weighed
};

void LoadOperation::begin_weighing() {
  weighing_ = std::make_shared<Weighing>();
  pace_ = weighing_.get();
  reads_files_ = false;  // a read past the host cannot be aborted
}

// Returns the engine's time to compute a key that is not loaded; 0 for a key that it computes or skips anyway.
uint64_t LoadOperation::Weighing::worth_of(const LoadOperation& load, size_t k) noexcept {
  if (load.pending_[k] == 0) return 0;
  const LoadRequest& request = load.request_;
  uint64_t blocks = 0;
  for (size_t u = 0; u < request.cache->units() && k * request.cache->units() + u < request.n_ids; ++u) {
    for (size_t p = 0; p < request.cache->parts().size(); ++p) {
      if (load.ids_of(p, request.first_key + k)[u] == kNoBlock) continue;
      ++blocks;
      break;
    }
  }
  return blocks * request.compute_block_ns;
}

// Chooses how many keys to load.
void LoadOperation::Weighing::begin(LoadOperation& load) {
  const uint64_t now = load.host_.env().clock().now_ns();
  const uint64_t waited = now - load.submitted_ns();
  const auto want = [&](const Item& item, TierIndex source) {
    wants_.push_back({item.key - load.request_.first_key, source, load.bytes_of(item)});
  };
  {
    MutexLock lock(load.mutex_);
    for (const Item& item : load.ready_) want(item, 0);
  }
  for (const Item& item : load.in_place_) want(item, 0);
  for (const Item& item : load.below_) want(item, load.request_.match->source_of(item.part, item.key));
  std::stable_sort(wants_.begin(), wants_.end(), [](const Want& a, const Want& b) { return a.k < b.k; });
  for (const MatchPart& part : load.request_.match->parts()) whole_ = whole_ || tail_blocks(part.plan) != 0;

  const size_t n = load.n_keys_;
  worth_ns_.resize(n);
  arrival_ns_.resize(n);
  Arrivals arrivals(load.stack_.lower(), now, false);
  for (size_t k = 0, i = 0; k < n; ++k) {
    worth_ns_[k] = worth_of(load, k);
    for (; i < wants_.size() && wants_[i].k == k; ++i) arrivals.add(wants_[i].source, wants_[i].bytes);
    arrival_ns_[k] = waited + arrivals.ns();
  }
  const copy::LoadChoice choice = copy::choose_load(arrival_ns_, worth_ns_, whole_);
  slack_ns_ = copy::load_slack_ns(choice.compute_ns);
  predicted_ns_ = choice.load_ns;
  limit_ = n;
  if (choice.keys < n) {
    probe(load, choice.keys, now);
    leave_from(load, choice.keys);
  }
  const uint64_t last = choice.keys == 0 ? 0 : arrival_ns_[choice.keys - 1];
  const uint64_t worth = choice.compute_ns - (choice.total_ns - choice.load_ns);
  give_up_ns_ = load.submitted_ns() + std::max(last, worth) + slack_ns_;
}

// At most an eighth of the slack, so that a source several times slower than expected is noticed before it is spent.
uint64_t LoadOperation::Weighing::batch_bytes(const LoadOperation& load, const Item& first, uint64_t /*left*/) {
  const TierIndex source = load.request_.match->source_of(first.part, first.key);
  const double ns_per_byte = load.stack_.lower().cost(source).expect(0).ns_per_byte;
  return static_cast<uint64_t>(
      std::min(static_cast<double>(kLandingBytes), static_cast<double>(slack_ns_) / 8 / ns_per_byte));
}

// Chooses again with the costs measured since: keys that now lose are not waited for. The gain must be at least half
// of the slack, so that one slow batch does not decide.
void LoadOperation::Weighing::weigh_again(LoadOperation& load) {
  const size_t n = limit_ - settled_;
  Arrivals arrivals(load.stack_.lower(), load.host_.env().clock().now_ns(), true);
  std::vector<uint64_t> rest(n);
  auto want =
      std::lower_bound(wants_.begin(), wants_.end(), settled_, [](const Want& one, size_t k) { return one.k < k; });
  for (size_t i = 0; i < n; ++i) {
    for (; want != wants_.end() && want->k == settled_ + i; ++want) arrivals.add(want->source, want->bytes);
    rest[i] = arrivals.ns();
  }
  const auto worth = std::span(worth_ns_).subspan(settled_, n);
  const copy::LoadChoice choice = copy::choose_load(rest, worth, whole_);
  if (choice.total_ns + slack_ns_ / 2 < rest.back()) leave_from(load, settled_ + choice.keys);
}

bool LoadOperation::Weighing::out_of_time(LoadOperation& load, bool idle) {
  const uint64_t now = load.host_.env().clock().now_ns() - load.submitted_ns();
  const size_t before = settled_;
  for (; settled_ < load.n_keys_ && load.pending_[settled_] == 0; ++settled_) {
    if (!whole_ && load.status_[settled_] == Code::ok) in_place_worth_ns_ += worth_ns_[settled_];
  }
  if (settled_ != before) last_ns_ = now;
  if (settled_ >= limit_) return true;
  // Copying what is already in memory is faster than computing it, as far as can be known.
  if (!idle) return now >= latest(now);
  uint64_t landed = 0;
  {
    MutexLock lock(load.mutex_);
    landed = load.landed_;
  }
  if (landed != std::exchange(landed_, landed)) weigh_again(load);
  return settled_ >= limit_ || now >= latest(last_ns_);
}

uint64_t LoadOperation::Weighing::latest(uint64_t last_ns) const noexcept {
  return copy::latest_ns(std::span(arrival_ns_).first(limit_), settled_, last_ns, in_place_worth_ns_, slack_ns_);
}

// One timer at a time: one that fires early sets the next.
void LoadOperation::Weighing::wait_at_most(LoadOperation& load) {
  const uint64_t at = load.submitted_ns() + latest(last_ns_);
  const uint64_t now = load.host_.env().clock().now_ns();
  if (armed_ns_ > now && armed_ns_ <= at) return;
  armed_ns_ = at;
  load.host_.env().executor->post_at(at, [weak = load.weak_from_this()] {
    if (const auto self = weak.lock()) std::static_pointer_cast<LoadOperation>(self)->wake();
  });
}

// Leaves keys from k on to the engine. Reads of such keys in flight are dropped when they complete.
void LoadOperation::Weighing::leave_from(LoadOperation& load, size_t k) {
  limit_ = k;
  const auto beyond = [&load, k](const Item& item) { return item.key - load.request_.first_key >= k; };
  std::erase_if(load.below_, beyond);
  for (size_t last = load.in_place_.size(); last > load.next_in_place_ && beyond(load.in_place_[last - 1]); --last) {
    load.in_place_.pop_back();
  }
  std::vector<SlotId> slots;
  {
    MutexLock lock(load.mutex_);
    for (const Item& item : load.ready_) {
      if (beyond(item)) item.origin->leave(load, item, slots);
    }
    std::erase_if(load.ready_, beyond);
  }
  load.host_.release(slots);
}

// Reads one block from each source that is not read from here and was not measured for a while. Nothing waits for it;
// it only keeps the cost for the next load current. Its deadline is the time when the next probe is due.
void LoadOperation::Weighing::probe(LoadOperation& load, size_t from, uint64_t now) {
  const LoadRequest& request = load.request_;
  uint32_t seen = 0;
  for (const Item& item : load.below_) {
    if (item.got.from == kOtherSize || (seen >> item.got.from & 1U) != 0) continue;
    seen |= 1U << item.got.from;
    if (item.key - request.first_key < from || !load.stack_.lower().cost(item.got.from).probe_due(now)) continue;
    const MatchPart& part = request.match->parts()[item.part];
    const MemoryWait until_asked;  // a slot that is taken must reach onboard()
    LandingRoom room;
    take_places(load.stack_, request.cache->ns()->account(), 1, false, room);
    if (room.count() == 0) continue;
    auto stack = load.stack_.keep();
    auto batch = std::make_unique<tier::GetBatch>();
    batch->items.push_back(request_of(load.identity(item), part.found[item.key]));
    batch->deadline_ns = now + copy::SourceCost::kStaleNs;
    batch->accepts.verifies = request.keep_below;  // registers no block then
    onboard(stack, item.got.from, std::move(batch), std::move(room),
            [stack, match = request.match](std::vector<Delivery> landed) {
              for (const Delivery& one : landed) {
                stack->host().release(one.slot);
              }
            });
  }
}

void LoadOperation::Weighing::account(LoadOperation& load) {
  Counters& counters = load.host_.counters();
  const uint64_t took = load.host_.env().clock().now_ns() - load.submitted_ns();
  uint64_t left = 0;
  uint64_t worth = 0;
  for (size_t k = 0; k < load.n_keys_; ++k) {
    if (load.pending_[k] != 0) ++left;
    if (load.status_[k] == Code::ok && load.pending_[k] == 0) worth += worth_ns_[k];
  }
  add(counters.blocks_left, left);
  if (predicted_ns_ == 0) {
    if (left != 0) add(counters.loads_not_started, 1);
    return;
  }
  counters.load_predicted.record(predicted_ns_);
  counters.load_actual.record(took);
  add(worth >= took ? counters.compute_saved_ns : counters.compute_lost_ns,
      worth >= took ? worth - took : took - worth);
}

uint64_t LoadOperation::bytes_of(const Item& item) const noexcept {
  return payload_bytes(*request_.match, item.part, item.key);
}

}  // namespace kvbm::manager

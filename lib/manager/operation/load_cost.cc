// Loads that are never slower than computing: decides how far to load and when to stop, and counts the outcome.
#include "manager/operation/load_cost.h"

#include <algorithm>
#include <utility>

#include "manager/operation/load_origin.h"
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

// Returns the engine's time to compute a key that is not loaded; 0 for a key that it computes or skips anyway.
uint64_t LoadOperation::worth_of(size_t k) const noexcept {
  if (pending_[k] == 0) return 0;
  uint64_t blocks = 0;
  for (size_t u = 0; u < request_.cache->units() && k * request_.cache->units() + u < request_.n_ids; ++u) {
    for (size_t p = 0; p < request_.cache->parts().size(); ++p) {
      if (ids_of(p, request_.first_key + k)[u] == kNoBlock) continue;
      ++blocks;
      break;
    }
  }
  return blocks * request_.compute_block_ns;
}

// Chooses how many keys to load. Thread: the step's, after plan() and find_in_place().
void LoadOperation::weigh() {
  Weighed& w = weighed_;
  const uint64_t now = host_.env().clock().now_ns();
  const uint64_t waited = now - submitted_ns();
  {
    MutexLock lock(mutex_);
    for (const Item& item : ready_) w.wants.push_back({item.key - request_.first_key, 0, bytes_of(item)});
  }
  for (const Item& item : in_place_) w.wants.push_back({item.key - request_.first_key, 0, bytes_of(item)});
  for (const Item& item : below_) w.wants.push_back({item.key - request_.first_key, request_.match->source_of(item.part, item.key), bytes_of(item)});
  std::stable_sort(w.wants.begin(), w.wants.end(), [](const Want& a, const Want& b) { return a.k < b.k; });
  for (const MatchPart& part : request_.match->parts()) w.whole = w.whole || tail_blocks(part.plan) != 0;

  w.worth_ns.resize(n_keys_);
  w.arrival_ns.resize(n_keys_);
  Arrivals arrivals(stack_.lower(), now, false);
  for (size_t k = 0, i = 0; k < n_keys_; ++k) {
    w.worth_ns[k] = worth_of(k);
    for (; i < w.wants.size() && w.wants[i].k == k; ++i) arrivals.add(w.wants[i].source, w.wants[i].bytes);
    w.arrival_ns[k] = waited + arrivals.ns();
  }
  const copy::LoadChoice choice = copy::choose_load(w.arrival_ns, w.worth_ns, w.whole);
  w.slack_ns = copy::load_slack_ns(choice.compute_ns);
  w.predicted_ns = choice.load_ns;
  w.limit = n_keys_;
  if (choice.keys < n_keys_) {
    probe(choice.keys, now);
    leave_from(choice.keys);
  }
  const uint64_t last = choice.keys == 0 ? 0 : w.arrival_ns[choice.keys - 1];
  const uint64_t worth = choice.compute_ns - (choice.total_ns - choice.load_ns);
  w.give_up_ns = submitted_ns() + std::max(last, worth) + w.slack_ns;
}

// Chooses again with the costs measured since: keys that now lose are not waited for. The gain must be at least half
// of the slack, so that one slow batch does not decide.
void LoadOperation::weigh_again() {
  Weighed& w = weighed_;
  const size_t n = w.limit - w.settled;
  Arrivals arrivals(stack_.lower(), host_.env().clock().now_ns(), true);
  std::vector<uint64_t> rest(n);
  auto want = std::lower_bound(w.wants.begin(), w.wants.end(), w.settled,
                               [](const Want& one, size_t k) { return one.k < k; });
  for (size_t i = 0; i < n; ++i) {
    for (; want != w.wants.end() && want->k == w.settled + i; ++want) arrivals.add(want->source, want->bytes);
    rest[i] = arrivals.ns();
  }
  const auto worth = std::span(w.worth_ns).subspan(w.settled, n);
  const copy::LoadChoice choice = copy::choose_load(rest, worth, w.whole);
  if (choice.total_ns + w.slack_ns / 2 < rest.back()) leave_from(w.settled + choice.keys);
}

// Returns true if nothing still missing is worth waiting for: never of a load that is not weighed. `idle`: everything
// that was read has been copied.
bool LoadOperation::out_of_time(bool idle) {
  if (!weighs()) return false;
  Weighed& w = weighed_;
  const uint64_t now = host_.env().clock().now_ns() - submitted_ns();
  const size_t before = w.settled;
  for (; w.settled < n_keys_ && pending_[w.settled] == 0; ++w.settled) {
    if (!w.whole && status_[w.settled] == Code::ok) w.in_place_worth_ns += w.worth_ns[w.settled];
  }
  if (w.settled != before) w.last_ns = now;
  if (w.settled >= w.limit) return true;
  // Copying what is already in memory is faster than computing it, as far as can be known.
  if (!idle) return now >= latest(now);
  uint64_t landed = 0;
  {
    MutexLock lock(mutex_);
    landed = landed_;
  }
  if (landed != std::exchange(w.landed, landed)) weigh_again();
  return w.settled >= w.limit || now >= latest(w.last_ns);
}

uint64_t LoadOperation::latest(uint64_t last_ns) const noexcept {
  const Weighed& w = weighed_;
  return copy::latest_ns(std::span(w.arrival_ns).first(w.limit), w.settled, last_ns, w.in_place_worth_ns,
                         w.slack_ns);
}

// Wakes this operation when it is too late to wait longer. One timer at a time: one that fires early sets the next.
void LoadOperation::wait_at_most() {
  if (!weighs()) return;
  Weighed& w = weighed_;
  const uint64_t at = submitted_ns() + latest(w.last_ns);
  const uint64_t now = host_.env().clock().now_ns();
  if (w.armed_ns > now && w.armed_ns <= at) return;
  w.armed_ns = at;
  host_.env().executor->post_at(at, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) std::static_pointer_cast<LoadOperation>(self)->wake();
  });
}

// Leaves keys from k on to the engine. Reads of such keys in flight are dropped when they complete.
void LoadOperation::leave_from(size_t k) {
  weighed_.limit = k;
  const auto beyond = [this, k](const Item& item) { return item.key - request_.first_key >= k; };
  std::erase_if(below_, beyond);
  for (size_t last = in_place_.size(); last > next_in_place_ && beyond(in_place_[last - 1]); --last) {
    in_place_.pop_back();
  }
  std::vector<SlotId> slots;
  {
    MutexLock lock(mutex_);
    for (const Item& item : ready_) {
      if (beyond(item)) item.origin->leave(*this, item, slots);
    }
    std::erase_if(ready_, beyond);
  }
  host_.release(slots);
}

// Reads one block from each source that is not read from here and was not measured for a while. Nothing waits for it;
// it only keeps the cost for the next load current. Its deadline is the time when the next probe is due.
void LoadOperation::probe(size_t from, uint64_t now) {
  uint32_t seen = 0;
  for (const Item& item : below_) {
    if (item.got.from == kOtherSize || (seen >> item.got.from & 1U) != 0) continue;
    seen |= 1U << item.got.from;
    if (item.key - request_.first_key < from || !stack_.lower().cost(item.got.from).probe_due(now)) continue;
    const MatchPart& part = request_.match->parts()[item.part];
    auto stack = stack_.keep();
    tier::Accepts can;
    can.verifies = request_.keep_below;  // registers no block then
    onboard(stack, item.got.from, request_.cache->ns()->account(), {{identity(item), part.found[item.key]}},
            now + copy::SourceCost::kStaleNs, std::move(can),
            [stack, match = request_.match](std::vector<Delivery> landed) {
              for (const Delivery& one : landed) {
                if (one.code == Code::ok) stack->host().release({&one.slot, 1});
              }
            });
  }
}

uint64_t LoadOperation::bytes_of(const Item& item) const noexcept {
  return payload_bytes(*request_.match, item.part, item.key);
}

void LoadOperation::account(Code why) {
  const uint64_t now = host_.env().clock().now_ns();
  // A load that waited for the engine's stream says nothing about the time of copying.
  if (bytes_ != 0 && request_.after == nullptr) stack_.lower().cost(0).took(now, bytes_, copy_ns_);
  if (!weighs() || why != Code::ok) return;
  const Weighed& w = weighed_;
  Counters& counters = host_.counters();
  const uint64_t took = now - submitted_ns();
  uint64_t left = 0;
  uint64_t worth = 0;
  for (size_t k = 0; k < n_keys_; ++k) {
    if (pending_[k] != 0) ++left;
    if (status_[k] == Code::ok && pending_[k] == 0) worth += w.worth_ns[k];
  }
  add(counters.blocks_left, left);
  if (w.predicted_ns == 0) {
    if (left != 0) add(counters.loads_not_started, 1);
    return;
  }
  counters.load_predicted.record(w.predicted_ns);
  counters.load_actual.record(took);
  add(worth >= took ? counters.compute_saved_ns : counters.compute_lost_ns, worth >= took ? worth - took : took - worth);
}

}  // namespace kvbm::manager

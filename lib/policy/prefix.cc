// The default policy: keeps the blocks that return soonest for the space they take, learnt while it runs (README.md).
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "base/thread/batch_lock.h"
#include "policy/bucket_queue.h"
#include "policy/ghosts.h"
#include "policy/hints.h"
#include "policy/past.h"
#include "policy/policies.h"
#include "policy/return_curve.h"

namespace kvbm::policy {
namespace {

// Facts::aux: the reuse class, the low byte of the uses and the low half of the last use at the latest check. Never 0
// for a block that the policy knows.
constexpr uint32_t kKnown = 128;
uint32_t packed(uint8_t past, uint32_t uses, uint32_t last_use) noexcept {
  return past | kKnown | (uses & 255) << 8 | (last_use & 65535) << 16;
}
uint8_t past_of(const Facts& facts) noexcept { return static_cast<uint8_t>(facts.aux % kKnown); }
uint8_t kind_of(const Facts& facts) noexcept { return kKindOfPast[past_of(facts)]; }

// A use by another thread may be ahead of the present tick.
uint32_t age_of(uint32_t last_use, uint32_t tick) noexcept {
  return static_cast<uint32_t>(std::max(static_cast<int32_t>(tick - last_use), 0));
}

// Blocks evicted from one part of a policy. The lock is a leaf, taken once per batch. Other parts take it to look up a
// block that was evicted here and returns there.
struct History {
  explicit History(size_t capacity) : ghosts(capacity) {}
  Ghosts ghosts;  // under the lock, except for functions that read no entry: prefetch, size and bytes
  Mutex mutex;
};
using Histories = std::vector<std::unique_ptr<History>>;

class Prefix final : public EvictionPolicy {
 public:
  Prefix(std::span<Facts> facts, const Residents& residents, std::shared_ptr<Histories> histories, size_t part)
      : facts_(facts),
        residents_(residents),
        histories_(std::move(histories)),
        part_(part),
        history_(*(*histories_)[part]),
        ghosts_(history_.ghosts),
        queue_(facts),
        owned_((facts.size() + 63) / 64) {
    const size_t every = facts.size() > kLarge ? facts.size() : facts.size() / 4;
    learn_steps_ = static_cast<uint32_t>(std::max<size_t>(kLearnEvery, every) / kSlice);
    walk_steps_ = std::max(kLeastWalk, learn_steps_ / 16);
    residents_looked_at_ = facts.size() > kLarge ? 2 : 1;
    walk_slice_ = (ghosts_.size() / kSampled + facts.size() / residents_looked_at_ + walk_steps_) / walk_steps_;
    sort_order();
  }

  std::string_view name() const noexcept override { return "prefix"; }
  bool hears_hints() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    if (slots.empty()) return;
    bool known = depth_of(slots.front()) >= 2;  // the first two blocks are a system prompt's
    for (size_t begin = 0; begin < slots.size(); begin += kSlice) {
      const size_t n = std::min<size_t>(kSlice, slots.size() - begin);
      judge_new(slots.subspan(begin, n), slots.back(), growth_of(slots.size()), tick, known);
    }
    // Parents first, so that their children are before them in a list and are evicted before them.
    for (size_t begin = 0; begin < slots.size();) {
      const uint8_t kind = kind_of(facts_[slots[begin]]);
      size_t end = begin + 1;
      while (end < slots.size() && kind_of(facts_[slots[end]]) == kind) ++end;
      lower_cursor(kind, queue_.push(slots.subspan(begin, end - begin), kind, tick, tick));
      begin = end;
    }
    inserted_ += slots.size();
    fit_epochs(tick);
  }

  void available(SlotId slot, uint32_t tick) override {
    if ((facts_[slot].aux & kKnown) != 0) {
      look(slot);
    } else {
      come_back(slot);
    }
    push(slot, tick);
  }

  void hinted(SlotId slot, uint32_t tick) override {
    if (facts_[slot].queue == 0) return;  // available() will check
    queue_.remove(slot);
    (void)look(slot);
    push(slot, tick);
  }

  SlotId evict(uint32_t tick) override {
    if (++evictions_ % kSlice == 0) learn(tick);
    for (;;) {
      if (run_ == 0 || queue_.front(list_) == kNoSlot) {
        if (!choose(tick)) return kNoSlot;
      }
      run_ -= 1;
      const SlotId slot = queue_.front(list_);
      queue_.remove(slot);
      const bool changed = look(slot);
      if (!residents_.evictable(slot)) continue;
      if (!changed) {
        remember(slot, tick);
        return slot;
      }
      push(slot, tick);
    }
  }

  // Chains are evicted from their ends, each block after its child: the run continues with it if it would be at the
  // front.
  bool evicts_next(SlotId slot, uint32_t tick) override {
    if (run_ == 0 || (evictions_ + 1) % kSlice == 0) return false;
    const Facts& facts = facts_[slot];
    if (facts.queue != 0) {
      if (queue_.front(list_) != slot || !as_it_was(facts)) return false;
      queue_.remove(slot);
    } else {
      queue_.advance(tick);
      const uint32_t last_use = facts.last_use.load(std::memory_order_relaxed);
      if (!as_it_was(facts) || queue_.list_at(kind_of(facts), last_use, tick) != list_) return false;
    }
    run_ -= 1;
    evictions_ += 1;
    remember(slot, tick);
    return true;
  }

  void erased(SlotId slot) override {
    if (facts_[slot].queue != 0) queue_.remove(slot);
    forget(slot);
  }

  std::vector<std::unique_ptr<EvictionPolicy>> divide(std::span<const Part> parts) override {
    auto histories = std::make_shared<Histories>();
    for (const Part& part : parts) histories->push_back(std::make_unique<History>(part.facts.size()));
    std::vector<std::unique_ptr<EvictionPolicy>> made;
    for (size_t i = 0; i < parts.size(); ++i) {
      made.push_back(std::make_unique<Prefix>(parts[i].facts, *parts[i].residents, histories, i));
    }
    return made;
  }

  size_t bytes() const noexcept override {
    return sizeof *this + ghosts_.bytes() + queue_.bytes() + owned_.size() * sizeof(uint64_t);
  }

 private:
  // Least number of evictions between two evaluations. Meanwhile all facts and a sample of the history are walked once,
  // some entries every kSlice evictions.
  static constexpr uint32_t kLearnEvery = 4096;
  // A larger part learns once in as many evictions as it has slots, and then checks every other block only: that is
  // enough.
  static constexpr size_t kLarge = 32768;
  static constexpr uint32_t kSlice = 64;
  static constexpr uint32_t kLeastWalk = 16;
  static constexpr uint32_t kSampled = 4;
  static_assert(kLearnEvery / kSlice >= kLeastWalk + kKinds + 2);
  // Evictions from one list before the lists are compared again; 1 to 64 gave hit rates within 0.3 points.
  static constexpr uint32_t kRun = 64;
  static constexpr uint32_t kMostReturns = 16;     // limit of returns counted between two checks
  static constexpr uint8_t kUnknown = kFresh + 3;  // the class of most blocks
  static constexpr uint32_t kHintedGap = 64;       // ticks

  [[nodiscard]] uint8_t hinted_past(SlotId slot, uint8_t past) const noexcept {
    switch (facts_[slot].priority) {
      case kHintOneShot:
        return kOneShot;
      case kHintContinue:
        return returned_past(3, half_octaves(kHintedGap));
      case kHintKeep:
        return kKeep;
      default:
        return past == kOneShot || past == kKeep ? kUnknown : past;
    }
  }

  void judge_new(std::span<const SlotId> slots, SlotId last, uint8_t growth, uint32_t tick, bool& known) noexcept {
    std::array<uint64_t, kSlice> names;
    std::array<Ghost, kSlice> ghosts;
    if (!recall(slots, names, ghosts)) {
      know_new(slots, last, static_cast<uint8_t>((known ? kContinued : kFresh) + growth), tick);
      return;
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const Ghost& ghost = ghosts[i];
      auto past = static_cast<uint8_t>(slots[i] == last ? kTail : (known ? kContinued : kFresh) + growth);
      if (ghost.known) {
        const uint32_t age = age_of(ghost.last_use, tick);
        curve_.returned(kKindOfPast[ghost.kind], age);
        past = after_return(ghost.kind, age, tick + static_cast<uint32_t>(names[i]));
        known = true;
      }
      know(slots[i], packed(hinted_past(slots[i], past), 0, tick));
    }
  }

  // No block of these has been here before.
  void know_new(std::span<const SlotId> slots, SlotId last, uint8_t past, uint32_t tick) noexcept {
    for (size_t i = 0; i < slots.size();) {
      const size_t word = slots[i] / 64;
      uint64_t bits = owned_[word];
      for (; i < slots.size() && slots[i] / 64 == word; ++i) {
        bits |= uint64_t{1} << (slots[i] % 64);
        facts_[slots[i]].aux = packed(hinted_past(slots[i], slots[i] == last ? uint8_t{kTail} : past), 0, tick);
      }
      owned_[word] = bits;
    }
  }

  // Looks up blocks that come in together in the history. Fills their names and entries; false: none is known. Of a
  // chain, only the first is looked up if it is unknown: a descendant was resident only while the first block was, and
  // was evicted before it.
  bool recall(std::span<const SlotId> slots, std::span<uint64_t> names, std::span<Ghost> out) noexcept {
    names[0] = residents_.name(slots[0]);
    size_t asked = 0;
    bool any = false;
    if (is_chain(slots)) {
      ghosts_.prefetch(names[0]);
      if (!take_ghosts(names.first(1), out)) return false;
      asked = 1;
      any = true;
    }
    if (asked == slots.size()) return any;
    for (size_t i = asked; i < slots.size(); ++i) {
      names[i] = residents_.name(slots[i]);
      ghosts_.prefetch(names[i]);
    }
    return take_ghosts(names.subspan(asked, slots.size() - asked), out.subspan(asked)) || any;
  }

  // True if the block waits to be written to the history.
  [[nodiscard]] bool has_just_gone(uint64_t name) const noexcept {
    return std::any_of(gone_.begin(), gone_.begin() + static_cast<std::ptrdiff_t>(n_gone_),
                       [name](const Gone& gone) { return gone.name == name; });
  }

  [[nodiscard]] bool is_chain(std::span<const SlotId> slots) const noexcept {
    for (size_t i = 1; i < slots.size(); ++i) {
      if (depth_of(slots[i]) != depth_of(slots[i - 1]) + 1) return false;
    }
    return true;
  }
  [[nodiscard]] uint32_t depth_of(SlotId slot) const noexcept {
    return facts_[slot].depth.load(std::memory_order_relaxed);
  }

  // `names` has at least one, in the order of their prefix. False: none is known.
  bool take_ghosts(std::span<const uint64_t> names, std::span<Ghost> out) noexcept {
    size_t unknown = names.size();
    {
      BatchLock lock(history_.mutex);
      if (names.size() > 1 || has_just_gone(names[0])) write_history();
      for (size_t i = names.size(); i-- > 0;) {
        out[i] = ghosts_.take(names[i]);
        if (!out[i].known) unknown = i;
      }
    }
    bool any = std::any_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(names.size()),
                           [](const Ghost& ghost) { return ghost.known; });
    if (unknown == names.size()) return any;
    // The blocks were evicted together: if the first is unknown in another part, the rest is not looked up there.
    for (size_t part = 0; part < histories_->size(); ++part) {
      if (part == part_) continue;
      History& other = *(*histories_)[part];
      BatchLock lock(other.mutex);
      for (size_t i = unknown; i < names.size(); ++i) {
        if (out[i].known) continue;
        out[i] = other.ghosts.take(names[i]);
        if (!out[i].known) break;
        any = true;
      }
    }
    return any;
  }

  // Restores a block that was chosen for eviction and stayed.
  void come_back(SlotId slot) noexcept {
    const uint64_t name = residents_.name(slot);
    Ghost ghost;
    (void)take_ghosts({&name, 1}, {&ghost, 1});
    const Facts& facts = facts_[slot];
    know(slot, packed(hinted_past(slot, ghost.known ? ghost.kind : kUnknown),
                      facts.uses.load(std::memory_order_relaxed), facts.last_use.load(std::memory_order_relaxed)));
  }

  void know(SlotId slot, uint32_t aux) noexcept {
    facts_[slot].aux = aux;
    owned_[slot / 64] |= uint64_t{1} << (slot % 64);
  }
  void forget(SlotId slot) noexcept {
    facts_[slot].aux = 0;
    owned_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  }

  void push(SlotId slot, uint32_t tick) noexcept {
    const uint8_t kind = kind_of(facts_[slot]);
    lower_cursor(kind, queue_.push(slot, kind, facts_[slot].last_use.load(std::memory_order_relaxed), tick));
  }

  // Notes that a list of this kind and age has members. Ends the run if these must be evicted before those it takes
  // from.
  void lower_cursor(uint8_t kind, size_t age) noexcept {
    cursor_ = std::min<uint32_t>(cursor_, rank_[kind][age]);
    if (level(kind) < run_level_) run_ = 0;
  }
  static uint32_t level(size_t kind) noexcept { return kind == kOneShot ? 0 : kind == kKeep ? 2 : 1; }

  // Counts the hits since the latest check; hits in between are treated as evenly spaced.
  bool look(SlotId slot) noexcept {
    Facts& facts = facts_[slot];
    const uint32_t uses = facts.uses.load(std::memory_order_relaxed);
    const uint32_t last = facts.last_use.load(std::memory_order_relaxed);
    const uint8_t before = past_of(facts);
    const uint32_t returns = (uses - (facts.aux >> 8)) & 255;
    uint8_t past = before;
    if (returns > 0) {
      const uint32_t age = ((last - (facts.aux >> 16)) & 65535) / returns;
      for (uint32_t i = 0; i < std::min(returns, kMostReturns); ++i) {
        curve_.returned(kKindOfPast[past], age);
        past = after_return(past, age, last + i + slot);
      }
    }
    past = facts.priority == kHintNormal && past != kOneShot && past != kKeep ? past : hinted_past(slot, past);
    facts.aux = packed(past, uses, last);
    return returns > 0 || past != before;
  }

  // Returns true if look() would change nothing.
  [[nodiscard]] static bool as_it_was(const Facts& facts) noexcept {
    const uint8_t past = past_of(facts);
    return facts.priority == kHintNormal && past != kOneShot && past != kKeep &&
           facts.aux ==
               packed(past, facts.uses.load(std::memory_order_relaxed), facts.last_use.load(std::memory_order_relaxed));
  }

  void remember(SlotId slot, uint32_t tick) noexcept {
    const Facts& facts = facts_[slot];
    if (n_gone_ == gone_.size()) {
      BatchLock lock(history_.mutex);
      write_history();
    }
    Gone& gone = gone_[n_gone_++];
    gone = {residents_.name(slot), facts.last_use.load(std::memory_order_relaxed), tick, past_of(facts)};
    ghosts_.prefetch(gone.name);
    forget(slot);
  }

  // Writes evicted blocks to the history. They waited until their places in it were prefetched. Lock: the history's.
  void write_history() noexcept {
    for (size_t i = 0; i < n_gone_; ++i) {
      const Gone& gone = gone_[i];
      const Ghost lost = ghosts_.put(gone.name, gone.last_use, gone.past, gone.tick);
      if (lost.known) curve_.lost(kKindOfPast[lost.kind], age_of(lost.last_use, gone.tick));
    }
    n_gone_ = 0;
  }

  // No list before the cursor has members, as long as neither the order nor the epoch has changed.
  bool choose(uint32_t tick) noexcept {
    queue_.advance(tick);
    if (epoch_ != queue_.epoch()) cursor_ = 0;
    epoch_ = queue_.epoch();
    for (; cursor_ < order_.size(); ++cursor_) {
      list_ = queue_.find(order_[cursor_] / kAges, order_[cursor_] % kAges);
      if (list_ == BucketQueue::kNone) continue;
      run_ = kRun;
      run_level_ = level(order_[cursor_] / kAges);
      return true;
    }
    run_ = 0;
    return false;
  }

  // Does one step of learning: counts some entries; after all of them updates the indices, one kind a step, then the
  // order.
  void learn(uint32_t tick) noexcept {
    const size_t idle = learn_steps_ - (walk_steps_ + kKinds + 2);  // counts taken late are fresher
    learn_step_ = (learn_step_ + 1) % learn_steps_;
    if (learn_step_ < idle) return;
    const size_t step = learn_step_ - idle;
    if (step < walk_steps_) {
      count_waiting(step * walk_slice_, (step + 1) * walk_slice_, tick);
    } else if (step == walk_steps_) {
      curve_.pool(waiting_);
    } else if (step <= walk_steps_ + kKinds) {
      curve_.compute(waiting_, step - walk_steps_ - 1);
    } else {
      waiting_ = {};
      ++walks_;
      sort_order();
    }
  }

  // Counts entries [begin, until) of a sample of the history, followed by the facts. The sample is every kSampled-th
  // set: names are uniform, so it represents the others.
  void count_waiting(size_t begin, size_t until, uint32_t tick) noexcept {
    const size_t remembered = ghosts_.size() / kSampled;
    for (size_t i = begin; i < std::min(until, remembered);) {
      BatchLock lock(history_.mutex);  // held only briefly: other parts look blocks up
      for (const size_t end = std::min({i + kSlice, until, remembered}); i < end; ++i) {
        const Ghost ghost = ghosts_.at(i / Ghosts::kWays * Ghosts::kWays * kSampled + i % Ghosts::kWays);
        if (ghost.known) waiting_[kKindOfPast[ghost.kind]][age_bucket(age_of(ghost.last_use, tick))] += kSampled;
      }
    }
    const size_t residents = facts_.size() / residents_looked_at_;
    for (size_t i = std::max(begin, remembered); i < std::min(until, remembered + residents); ++i) {
      const auto slot = static_cast<SlotId>((i - remembered) * residents_looked_at_ + walks_ % residents_looked_at_);
      if ((owned_[slot / 64] >> (slot % 64) & 1) != 0) count_resident(slot, tick);
    }
  }

  // Counts hits of blocks that never become candidates; otherwise the best blocks would teach nothing.
  void count_resident(SlotId slot, uint32_t tick) noexcept {
    Facts& facts = facts_[slot];
    if (((facts.uses.load(std::memory_order_relaxed) ^ (facts.aux >> 8)) & 255) != 0) {
      const bool queued = facts.queue != 0;
      if (queued) queue_.remove(slot);
      (void)look(slot);
      if (queued) push(slot, tick);
    }
    const uint32_t age = age_of(facts.last_use.load(std::memory_order_relaxed), tick);
    waiting_[kind_of(facts)][age_bucket(age)] += residents_looked_at_;
  }

  // Sorts kinds and ages in the order of eviction; equal ones by age, oldest first, so that the order is equal
  // everywhere. Each is one integer (an index is never negative, so its bits sort like it): sorting those takes a third
  // of the time.
  void sort_order() noexcept {
    std::array<uint64_t, kKinds * kAges> keys;
    for (uint64_t i = 0; i < keys.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(curve_.index(i / kAges, i % kAges));
      keys[i] = uint64_t{level(i / kAges)} << 56 | uint64_t{bits} << 24 | (kAges - 1 - i % kAges) << 16 | i;
    }
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint16_t>(keys[i]);
    for (size_t i = 0; i < order_.size(); ++i) rank_[order_[i] / kAges][order_[i] % kAges] = static_cast<uint16_t>(i);
    cursor_ = 0;
  }

  // Makes the ring of epochs span what the history spans, in ticks.
  void fit_epochs(uint32_t tick) noexcept {
    if (inserted_ < next_fit_) return;
    next_fit_ = inserted_ + kLearnEvery / 2;
    const uint64_t span = uint64_t{tick} * ghosts_.size() / inserted_;
    while (queue_.epoch_ticks() < (1U << 20) && uint64_t{queue_.epoch_ticks()} * BucketQueue::kEpochs <= span) {
      queue_.coarsen(tick);
      run_ = 0;
      cursor_ = 0;
    }
  }

  std::span<Facts> facts_;
  const Residents& residents_;
  const std::shared_ptr<Histories> histories_;  // of all parts
  const size_t part_;
  History& history_;
  Ghosts& ghosts_;
  BucketQueue queue_;
  std::vector<uint64_t> owned_;  // a bit a slot of this policy: accounts share the facts, not policies
  ReturnCurve curve_{kReturned};
  struct Gone {
    uint64_t name;
    uint32_t last_use;
    uint32_t tick;
    uint8_t past;
  };
  std::array<Gone, 64> gone_{};
  size_t n_gone_ = 0;
  std::array<uint16_t, kKinds * kAges> order_{};
  std::array<std::array<uint16_t, kAges>, kKinds> rank_{};  // the inverse of order_
  ReturnCurve::Waiting waiting_{};
  uint64_t inserted_ = 0;
  uint64_t next_fit_ = kLearnEvery / 2;
  uint32_t evictions_ = 0;
  uint32_t learn_steps_ = 0;
  uint32_t learn_step_ = 0;
  uint32_t walk_steps_ = 0;
  size_t walk_slice_ = 0;
  uint32_t residents_looked_at_ = 1;  // every n-th slot is checked, others in the next walk
  uint32_t walks_ = 0;
  uint32_t epoch_ = 0;
  uint32_t cursor_ = 0;
  uint32_t list_ = 0;
  uint32_t run_ = 0;
  uint32_t run_level_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_prefix(std::span<Facts> facts, const Residents& residents) {
  auto histories = std::make_shared<Histories>();
  histories->push_back(std::make_unique<History>(facts.size()));
  return std::make_unique<Prefix>(facts, residents, std::move(histories), 0);
}

}  // namespace kvbm::policy

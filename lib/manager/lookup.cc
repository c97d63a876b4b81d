#include "manager/lookup.h"

#include <algorithm>
#include <utility>

#include "manager/host_record.h"
#include "manager/manager.h"
#include "manager/prefix.h"

namespace kvbm::manager {

class Lookup {
 public:
  Lookup(Manager& manager, Match& match, const LookupRequest& request)
      : manager_(manager),
        match_(match),
        request_(request),
        tick_(request.no_use ? block::kNoUse : manager.next_tick()) {}

  size_t run(std::span<const PartPlan> parts) {
    match_.mode_ = request_.mode;
    match_.parts_.resize(parts.size());
    for (size_t p = 0; p < parts.size(); ++p) find_part(match_.parts_[p], parts[p]);
    switch (request_.mode) {
      case LookupMode::prefix:
        match_.hits_ = longest_prefix();
        break;
      case LookupMode::each:
        match_.hits_ = count_each();
        break;
      case LookupMode::any:
        match_.hits_ = first_present() < match_.keys_.size() ? 1 : 0;
        break;
    }
    trim();
    if (!request_.uncounted) count();
    tell_used();
    if (!request_.unit_keys.empty() && request_.mode == LookupMode::prefix) find_partial();
    return match_.hits_;
  }

 private:
  [[nodiscard]] std::span<const Key> keys() const noexcept { return match_.keys_; }
  [[nodiscard]] bool look_below() const noexcept { return !request_.host_only && manager_.tiers_below() != 0; }

  void find_part(MatchPart& part, const PartPlan& plan) {
    look_for(part, plan);
    if (manager_.has_lossy() && !match_.ns_->options().allow_lossy) leave_lossy(part);
  }

  // What lies lossy in the host, for another reader, is not there for this one.
  void leave_lossy(MatchPart& part) {
    for (SlotId& slot : part.slots) {
      if (slot == kNoSlot || !lies_lossy(manager_, slot)) continue;
      manager_.release({&slot, 1});
      slot = kNoSlot;
      add(manager_.counters().lossy_refused, 1);
    }
  }

  void look_for(MatchPart& part, const PartPlan& plan) {
    part.plan = plan;
    part.slots.assign(keys().size(), kNoSlot);
    // A part that needs every block of a prefix can stop at the first gap; the others cannot know yet.
    const bool stops = request_.mode == LookupMode::prefix && plan.kind != layout::ComponentKind::state &&
                       plan.kind != layout::ComponentKind::sliding_window;
    size_t n = 0;
    if (stops) {
      n = manager_.table().acquire_prefix(plan.family, keys(), part.slots, tick_);
      if (n == keys().size() || !look_below()) return;
    }
    find_rest(part, n, stops);
  }

  // From key `from` on: each key in the host, else in the tiers below, in pages.
  void find_rest(MatchPart& part, size_t from, bool stops) {
    constexpr size_t kPage = 64;
    if (look_below()) {
      part.below.assign(keys().size(), kNoTier);
      part.found.assign(keys().size(), tier::Found{});
    }
    for (size_t first = from; first < keys().size(); first += kPage) {
      const size_t n = std::min(kPage, keys().size() - first);
      manager_.table().acquire_each(part.plan.family, keys().subspan(first, n),
                                    std::span(part.slots).subspan(first, n), tick_);
      if (look_below()) find_below(part, first, n);
      if (!stops) continue;
      for (size_t i = first; i < first + n; ++i) {
        if (match_.tier_of_part(part, i) == kNoTier) return;
      }
    }
  }

  void find_below(MatchPart& part, size_t first, size_t n) {
    Identity ids[64];
    size_t where[64];
    size_t wanted = 0;
    for (size_t i = first; i < first + n; ++i) {
      if (part.slots[i] != kNoSlot) continue;
      ids[wanted] = {keys()[i], part.plan.family};
      where[wanted++] = i;
    }
    for (TierIndex t = 1; t <= manager_.tiers_below() && wanted != 0; ++t) {
      if (manager_.out_of_use(t)) continue;
      tier::Tier& tier = manager_.tier_below(t);
      tier::Found found[64];
      tier.find({ids, wanted}, {found, wanted}, !request_.no_use);
      size_t left = 0;
      for (size_t k = 0; k < wanted; ++k) {
        if (found[k].present && tier.pin(ids[k])) {
          part.below[where[k]] = t;
          part.found[where[k]] = found[k];
        } else {
          ids[left] = ids[k];
          where[left++] = where[k];
        }
      }
      wanted = left;
    }
  }

  // Where the whole blocks end: a block that begins with the engine blocks that follow. Every part must have it.
  void find_partial() {
    const size_t at = match_.hits_;
    const size_t first = at * request_.units;
    if (request_.units < 2 || first >= request_.unit_keys.size()) return;
    for (const MatchPart& part : match_.parts_) {
      if (tail_blocks(part.plan) != 0) return;  // a window or a state at the middle of a block is in no record
    }
    const UnitIndex::Found found = manager_.unit_index().find(match_.parts_[0].plan.family,
                                                              request_.unit_keys.subspan(first), request_.units - 1);
    if (found.units == 0) return;
    match_.keys_.resize(std::max(match_.keys_.size(), at + 1));
    const Key asked = std::exchange(match_.keys_[at], found.stored);
    bool everywhere = true;
    for (MatchPart& part : match_.parts_) everywhere = find_again(part, at) && everywhere;
    if (everywhere) {
      match_.partial_units_ = found.units;
      add(manager_.counters().partial_hits, 1);
      return;
    }
    for (MatchPart& part : match_.parts_) let_go(part, at);
    match_.keys_[at] = asked;
  }

  bool find_again(MatchPart& part, size_t at) {
    part.slots.resize(keys().size(), kNoSlot);
    manager_.table().acquire_each(part.plan.family, keys().subspan(at, 1), std::span(part.slots).subspan(at, 1), tick_);
    if (manager_.has_lossy() && !match_.ns_->options().allow_lossy) leave_lossy(part);
    if (look_below()) {
      part.below.resize(keys().size(), kNoTier);
      part.found.resize(keys().size(), tier::Found{});
      find_below(part, at, 1);
    }
    return present(part, at);
  }

  void let_go(MatchPart& part, size_t at) {
    if (part.slots[at] != kNoSlot) {
      manager_.release({&part.slots[at], 1});
      part.slots[at] = kNoSlot;
    } else if (present(part, at)) {
      manager_.tier_below(part.below[at]).unpin({keys()[at], part.plan.family});
      part.below[at] = kNoTier;
    }
  }

  [[nodiscard]] bool present(const MatchPart& part, size_t i) const noexcept {
    return match_.tier_of_part(part, i) != kNoTier;
  }

  [[nodiscard]] size_t longest_prefix() const noexcept {
    const std::vector<MatchPart>& parts = match_.parts_;
    return manager::longest_prefix(
        parts.size(), keys().size(), [&](size_t p) -> const PartPlan& { return parts[p].plan; },
        [&](size_t p, size_t i) { return present(parts[p], i); });
  }

  [[nodiscard]] bool all_parts(size_t i) const noexcept {
    return std::all_of(match_.parts_.begin(), match_.parts_.end(), [&](const MatchPart& p) { return present(p, i); });
  }

  [[nodiscard]] size_t count_each() const noexcept {
    size_t n = 0;
    for (size_t i = 0; i < keys().size(); ++i) n += all_parts(i) ? 1 : 0;
    return n;
  }

  [[nodiscard]] size_t first_present() const noexcept {
    size_t i = 0;
    while (i < keys().size() && !all_parts(i)) ++i;
    return i;
  }

  // Lets go of what the hit does not need. (In mode each a key that lacks one part is dropped from
  // the parts that have it, and stays incomplete while they are trimmed one after the other.)
  void trim() {
    std::vector<SlotId> spare;
    const size_t any = request_.mode == LookupMode::any ? first_present() : 0;
    for (MatchPart& part : match_.parts_) {
      const size_t reach = tail_blocks(part.plan);
      for (size_t i = 0; i < keys().size(); ++i) {
        const bool keep = request_.mode == LookupMode::each ? all_parts(i)
                          : request_.mode == LookupMode::any
                              ? i == any
                              : i < match_.hits_ && (reach == 0 || i + reach >= match_.hits_);
        if (keep || !present(part, i)) continue;
        if (part.slots[i] != kNoSlot) {
          spare.push_back(part.slots[i]);
          part.slots[i] = kNoSlot;
        } else {
          manager_.tier_below(part.below[i]).unpin({keys()[i], part.plan.family});
          part.below[i] = kNoTier;
        }
      }
    }
    if (!spare.empty()) manager_.release(spare);
  }

  void count() {
    Counters& c = manager_.counters();
    add(c.lookups, 1);
    add(c.keys_looked_up, keys().size());
    const size_t hits = match_.hits_;
    add(c.keys_hit, hits);
    if (hits < keys().size()) add(c.tiers[manager_.tiers_below()].misses, keys().size() - hits);
    if (hits == 0) return;
    size_t by_tier[8] = {};
    uint64_t bytes[8] = {};
    bool all_in_host = true;
    for (const MatchPart& part : match_.parts_) {
      bytes[0] += manager_.table().payload_bytes(part.slots);
      all_in_host = all_in_host && part.below.empty();
      for (size_t i = 0; i < part.below.size(); ++i) {
        if (part.below[i] != kNoTier) bytes[part.below[i]] += part.found[i].payload_bytes;
      }
    }
    if (all_in_host) {
      by_tier[0] = hits;
    } else {
      for (size_t i = 0; i < keys().size(); ++i) {
        if (is_hit(i)) ++by_tier[slowest(i)];
      }
    }
    for (size_t t = 0; t < 8; ++t) {
      if (by_tier[t] != 0) add(c.tiers[t].hits, by_tier[t]);
      if (bytes[t] != 0) add(c.tiers[t].hit_bytes, bytes[t]);
    }
  }

  // When what the hit does not need has been let go of.
  [[nodiscard]] bool is_hit(size_t i) const noexcept {
    return request_.mode == LookupMode::prefix ? i < match_.hits_ : all_parts(i);
  }

  // The tier that the last part of a hit comes from. One that needs none, of a window that has passed, is in the host.
  [[nodiscard]] TierIndex slowest(size_t i) const noexcept {
    TierIndex last = 0;
    for (const MatchPart& part : match_.parts_) {
      const TierIndex tier = match_.tier_of_part(part, i);
      if (tier != kNoTier) last = std::max(last, tier);
    }
    return last;
  }

  void tell_used() {
    if (!manager_.hears_uses() || match_.hits_ == 0 || request_.no_use) return;
    for (const MatchPart& part : match_.parts_) manager_.used(part.slots);
  }

  Manager& manager_;
  Match& match_;
  const LookupRequest request_;
  const uint32_t tick_;

 public:
  static void set_keys(Match& match, std::span<const Key> keys) { match.keys_.assign(keys.begin(), keys.end()); }
};

std::shared_ptr<Match> look_up(const std::shared_ptr<Manager>& manager, const std::shared_ptr<Namespace>& ns,
                               std::span<const PartPlan> parts, std::span<const Key> keys,
                               const LookupRequest& request) {
  auto match = std::make_shared<Match>(manager, ns);
  Lookup::set_keys(*match, keys);
  if (Lookup(*manager, *match, request).run(parts) == 0 && match->partial_units() == 0) return nullptr;
  return match;
}

Match::Match(std::shared_ptr<Manager> manager, std::shared_ptr<Namespace> ns)
    : manager_(std::move(manager)), ns_(std::move(ns)) {
  add(manager_->counters().matches_made, 1);
}

Match::~Match() {
  for (MatchPart& part : parts_) {
    const auto held = std::remove(part.slots.begin(), part.slots.end(), kNoSlot);
    manager_->release({part.slots.begin(), held});
    for (size_t i = 0; i < part.below.size(); ++i) {
      if (part.below[i] != kNoTier) manager_->tier_below(part.below[i]).unpin({keys_[i], part.plan.family});
    }
  }
  add(manager_->counters().matches_ended, 1);
}

TierIndex Match::tier_of_part(const MatchPart& part, size_t i) noexcept {
  if (part.slots[i] != kNoSlot) return 0;
  return part.below.empty() ? kNoTier : part.below[i];
}

TierIndex Match::tier_of(size_t part, size_t i) const noexcept { return tier_of_part(parts_[part], i); }

bool Match::needed(size_t part, size_t i) const noexcept { return tier_of(part, i) != kNoTier; }

}  // namespace kvbm::manager

#include "manager/operation/lookup.h"

#include <algorithm>
#include <utility>

#include "manager/host/host_record.h"
#include "manager/operation/prefix.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

class Lookup {
 public:
  Lookup(TierStack& stack, Match& match, const LookupRequest& request)
      : host_(stack.host()),
        lower_(stack.lower()),
        match_(match),
        request_(request),
        tick_(request.no_use ? block::kNoUse : host_.next_tick()) {}

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
  [[nodiscard]] bool look_below() const noexcept { return !request_.host_only && lower_.count() != 0; }

  void find_part(MatchPart& part, const PartPlan& plan) {
    // A part that needs every block of a prefix can stop at the first gap; the others cannot know yet.
    const bool stops = request_.mode == LookupMode::prefix && tail_blocks(plan) == 0;
    const size_t looked = look_for(part, plan, stops);
    leave_lossy(part);
    find_other_size(part, looked, stops);
  }

  // Looks for the keys that this part lacks in records of other tensor-parallel sizes, one size after the other.
  void find_other_size(MatchPart& part, size_t looked, bool stops) {
    size_t first = next_lacking(part, 0);
    if (first == keys().size()) return;
    const auto sizes = match_.ns_->other_sizes(part.plan);
    if (sizes == nullptr) return;
    bool some_shards = false;
    for (const auto& size : *sizes) {
      if (size->refused.load(std::memory_order_relaxed)) continue;
      try_size(part, size, first, looked, stops, some_shards);
      first = next_lacking(part, first);
      if (first == keys().size()) return;
    }
    if (some_shards) add(host_.counters().shards_missing, 1);
  }

  // Looks for one page of keys at a time, all shards of each; the first page is one key if a gap ends the search.
  // `some_shards`: set if a key has some of its shards but not all.
  void try_size(MatchPart& part, const std::shared_ptr<const OtherSize>& size, size_t first, size_t& looked, bool stops,
                bool& some_shards) {
    FromOtherSize& from = part.others.emplace_back();
    from.size = size;
    from.shards.resize(size->shards.size());
    for (size_t s = 0; s < from.shards.size(); ++s) {
      MatchPart& shard = from.shards[s];
      shard.plan.family = size->families[s];
      shard.plan.kind = part.plan.kind;
      shard.slots.assign(keys().size(), kNoSlot);
      if (!look_below()) continue;
      shard.below.assign(keys().size(), kNoTier);
      shard.found.assign(keys().size(), tier::Found{});
    }
    bool any = false;
    for (size_t at = first; at < keys().size();) {
      const size_t page = stops && at == first ? 1 : std::min(kPage, keys().size() - at);
      // Behind the gap the part's own records have not been looked for yet.
      if (at + page > looked) {
        find_page(part, looked, at + page - looked, nullptr);
        leave_lossy(part, looked);
        looked = at + page;
      }
      for (MatchPart& shard : from.shards) {
        if (shard.plan.family == kNoFamily) continue;
        find_page(shard, at, page, &part);
        leave_lossy(shard, at);
      }
      bool gap = false;
      for (size_t i = at; i < at + page; ++i) {
        if (present(part, i)) continue;
        const bool whole = take_shards(part, i, some_shards);
        any = any || whole;
        gap = gap || !whole;
      }
      if (stops && gap) break;
      at += page;
    }
    if (!any) part.others.pop_back();
  }

  // Makes the key from the shards of the last size if all are present; else releases them.
  bool take_shards(MatchPart& part, size_t i, bool& some_shards) {
    std::vector<MatchPart>& shards = part.others.back().shards;
    const auto n = static_cast<size_t>(
        std::count_if(shards.begin(), shards.end(), [&](const MatchPart& shard) { return present(shard, i); }));
    if (n == shards.size()) {
      part.below.resize(keys().size(), kNoTier);
      part.found.resize(keys().size());
      part.below[i] = kOtherSize;
      part.found[i] = {true, 0, part.plan.shape->payload_bytes(), part.others.size() - 1, 0};
      return true;
    }
    some_shards = some_shards || n != 0;
    for (MatchPart& shard : shards) release_block(shard, i);
    return false;
  }

  [[nodiscard]] size_t next_lacking(const MatchPart& part, size_t from) const noexcept {
    while (from < keys().size() && present(part, from)) ++from;
    return from;
  }

  // Treats lossy blocks in the host, stored for another reader, as missing if this namespace does not allow lossy
  // ones.
  void leave_lossy(MatchPart& part, size_t from = 0) {
    if (!host_.has_lossy() || match_.ns_->options().allow_lossy) return;
    for (SlotId& slot : std::span(part.slots).subspan(from)) {
      if (slot == kNoSlot || !lies_lossy(host_, slot)) continue;
      host_.release({&slot, 1});
      slot = kNoSlot;
      add(host_.counters().lossy_refused, 1);
    }
  }

  // Looks for the keys of a part. Returns how many leading keys were looked for.
  size_t look_for(MatchPart& part, const PartPlan& plan, bool stops) {
    part.plan = plan;
    part.slots.assign(keys().size(), kNoSlot);
    size_t n = 0;
    if (stops) {
      n = host_.table().acquire_prefix(plan.family, keys(), part.slots, tick_);
      if (n == keys().size() || !look_below()) return n;
    }
    return find_rest(part, n, stops);
  }

  // Looks for keys from `from` on, each in the host, else in the tiers below, in pages. Returns how many leading keys
  // were looked for.
  size_t find_rest(MatchPart& part, size_t from, bool stops) {
    if (look_below()) {
      part.below.assign(keys().size(), kNoTier);
      part.found.assign(keys().size(), tier::Found{});
    }
    for (size_t first = from; first < keys().size(); first += kPage) {
      const size_t n = std::min(kPage, keys().size() - first);
      find_page(part, first, n, nullptr);
      if (!stops) continue;
      for (size_t i = first; i < first + n; ++i) {
        if (match_.tier_of_part(part, i) == kNoTier) return first + n;
      }
    }
    return keys().size();
  }

  // Looks for keys [first, first + n), at most a page. If `lacking` (a part of the same keys) is given, only for
  // those that it lacks.
  void find_page(MatchPart& part, size_t first, size_t n, const MatchPart* lacking) {
    if (lacking == nullptr) {
      host_.table().acquire_each(part.plan.family, keys().subspan(first, n), std::span(part.slots).subspan(first, n),
                                 tick_);
    } else {
      Key wanted[kPage];
      SlotId slots[kPage];
      size_t where[kPage];
      size_t count = 0;
      for (size_t i = first; i < first + n; ++i) {
        if (present(*lacking, i)) continue;
        wanted[count] = keys()[i];
        slots[count] = kNoSlot;
        where[count++] = i;
      }
      host_.table().acquire_each(part.plan.family, {wanted, count}, {slots, count}, tick_);
      for (size_t k = 0; k < count; ++k) part.slots[where[k]] = slots[k];
    }
    if (look_below()) find_below(part, first, n, lacking);
  }

  void find_below(MatchPart& part, size_t first, size_t n, const MatchPart* lacking = nullptr) {
    Identity ids[kPage];
    size_t where[kPage];
    size_t wanted = 0;
    for (size_t i = first; i < first + n; ++i) {
      if (part.slots[i] != kNoSlot || (lacking != nullptr && present(*lacking, i))) continue;
      ids[wanted] = {keys()[i], part.plan.family};
      where[wanted++] = i;
    }
    for (TierIndex t = 1; t <= lower_.count() && wanted != 0; ++t) {
      if (lower_.out_of_use(t)) continue;
      tier::Tier& tier = lower_.tier(t);
      tier::Found found[kPage];
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

  // Finds a partial hit behind the whole blocks: a stored block that begins with the engine blocks that follow. Every
  // part must have it.
  void find_partial() {
    const size_t at = match_.hits_;
    const size_t first = at * request_.units;
    if (request_.units < 2 || first >= request_.unit_keys.size()) return;
    for (const MatchPart& part : match_.parts_) {
      if (tail_blocks(part.plan) != 0) return;  // no record has a window or a state at the middle of a block
    }
    const UnitIndex::Found found =
        host_.unit_index().find(match_.parts_[0].plan.family, request_.unit_keys.subspan(first), request_.units - 1);
    if (found.units == 0) return;
    match_.keys_.resize(std::max(match_.keys_.size(), at + 1));
    const Key asked = std::exchange(match_.keys_[at], found.stored);
    bool everywhere = true;
    for (MatchPart& part : match_.parts_) everywhere = find_again(part, at) && everywhere;
    if (everywhere) {
      match_.partial_units_ = found.units;
      add(host_.counters().partial_hits, 1);
      return;
    }
    for (MatchPart& part : match_.parts_) release_block(part, at);
    match_.keys_[at] = asked;
  }

  bool find_again(MatchPart& part, size_t at) {
    part.slots.resize(keys().size(), kNoSlot);
    for (FromOtherSize& other : part.others) {
      for (MatchPart& shard : other.shards) {
        shard.slots.resize(keys().size(), kNoSlot);
        if (!shard.below.empty()) shard.below.resize(keys().size(), kNoTier);
      }
    }
    host_.table().acquire_each(part.plan.family, keys().subspan(at, 1), std::span(part.slots).subspan(at, 1), tick_);
    leave_lossy(part);
    if (look_below()) {
      part.below.resize(keys().size(), kNoTier);
      part.found.resize(keys().size(), tier::Found{});
      find_below(part, at, 1);
    }
    return present(part, at);
  }

  void release_block(MatchPart& part, size_t at) {
    if (part.slots[at] != kNoSlot) {
      host_.release({&part.slots[at], 1});
      part.slots[at] = kNoSlot;
    } else if (present(part, at)) {
      if (part.below[at] != kOtherSize) lower_.tier(part.below[at]).unpin({keys()[at], part.plan.family});
      if (part.below[at] == kOtherSize) {
        for (MatchPart& shard : part.others[part.found[at].location].shards) release_block(shard, at);
      }
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

  // Releases found blocks that are no part of the hit, for example blocks behind the gap that ends a prefix. In mode
  // `each` a key is a hit only if every part has it, so the other parts release theirs. Releasing them part by part is
  // safe: a key that lacked one part still lacks it afterwards.
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
          release_block(part, i);
        }
      }
    }
    if (!spare.empty()) host_.release(spare);
  }

  void count() {
    Counters& c = host_.counters();
    add(c.lookups, 1);
    add(c.keys_looked_up, keys().size());
    const size_t hits = match_.hits_;
    add(c.keys_hit, hits);
    if (hits < keys().size()) add(c.tiers[lower_.count()].misses, keys().size() - hits);
    if (hits == 0) return;
    size_t by_tier[8] = {};
    uint64_t bytes[8] = {};
    bool all_in_host = true;
    for (const MatchPart& part : match_.parts_) {
      bytes[0] += host_.table().payload_bytes(part.slots);
      all_in_host = all_in_host && part.below.empty();
      add_bytes_below(part, bytes);
      for (const FromOtherSize& other : part.others) {
        for (const MatchPart& shard : other.shards) {
          bytes[0] += host_.table().payload_bytes(shard.slots);
          add_bytes_below(shard, bytes);
        }
      }
    }
    if (any_of_other_size()) {
      size_t made = 0;
      for (size_t i = 0; i < keys().size(); ++i) made += is_hit(i) && is_of_other_size(i) ? 1 : 0;
      add(c.keys_resliced, made);
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

  static void add_bytes_below(const MatchPart& part, uint64_t* bytes) noexcept {
    for (size_t i = 0; i < part.below.size(); ++i) {
      if (part.below[i] != kNoTier && part.below[i] != kOtherSize) bytes[part.below[i]] += part.found[i].payload_bytes;
    }
  }

  [[nodiscard]] bool any_of_other_size() const noexcept {
    return std::any_of(match_.parts_.begin(), match_.parts_.end(),
                       [](const MatchPart& p) { return !p.others.empty(); });
  }
  [[nodiscard]] bool is_of_other_size(size_t i) const noexcept {
    return std::any_of(match_.parts_.begin(), match_.parts_.end(),
                       [&](const MatchPart& p) { return match_.tier_of_part(p, i) == kOtherSize; });
  }

  // Valid after trim().
  [[nodiscard]] bool is_hit(size_t i) const noexcept {
    return request_.mode == LookupMode::prefix ? i < match_.hits_ : all_parts(i);
  }

  // Returns the slowest tier that a part of a hit is read from. A part that needs no block, of a window that has
  // passed, counts as in the host.
  [[nodiscard]] TierIndex slowest(size_t i) const noexcept {
    TierIndex last = 0;
    for (const MatchPart& part : match_.parts_) {
      const TierIndex tier = match_.source_of_part(part, i);
      if (tier != kNoTier) last = std::max(last, tier);
    }
    return last;
  }

  void tell_used() {
    if (!lower_.hears_uses() || match_.hits_ == 0 || request_.no_use) return;
    for (const MatchPart& part : match_.parts_) {
      lower_.used(part.slots);
      for (const FromOtherSize& other : part.others) {
        for (const MatchPart& shard : other.shards) lower_.used(shard.slots);
      }
    }
  }

  static constexpr size_t kPage = 64;

  HostTier& host_;
  LowerTiers& lower_;
  Match& match_;
  const LookupRequest request_;
  const uint32_t tick_;

 public:
  static void set_keys(Match& match, std::span<const Key> keys) { match.keys_.assign(keys.begin(), keys.end()); }
};

std::shared_ptr<Match> look_up(const std::shared_ptr<TierStack>& stack, const std::shared_ptr<Namespace>& ns,
                               std::span<const PartPlan> parts, std::span<const Key> keys,
                               const LookupRequest& request) {
  auto match = std::make_shared<Match>(stack, ns);
  Lookup::set_keys(*match, keys);
  if (Lookup(*stack, *match, request).run(parts) == 0 && match->partial_units() == 0) return nullptr;
  return match;
}

Match::Match(std::shared_ptr<TierStack> stack, std::shared_ptr<Namespace> ns)
    : stack_(std::move(stack)), ns_(std::move(ns)) {
  add(stack_->host().counters().matches_made, 1);
}

Match::~Match() {
  for (MatchPart& part : parts_) release_part(part);
  add(stack_->host().counters().matches_ended, 1);
}

void Match::release_part(MatchPart& part) {
  const auto held = std::remove(part.slots.begin(), part.slots.end(), kNoSlot);
  stack_->host().release({part.slots.begin(), held});
  for (size_t i = 0; i < part.below.size(); ++i) {
    if (part.below[i] == kNoTier || part.below[i] == kOtherSize) continue;
    stack_->lower().tier(part.below[i]).unpin({keys_[i], part.plan.family});
  }
  for (FromOtherSize& other : part.others) {
    for (MatchPart& shard : other.shards) release_part(shard);
  }
}

TierIndex Match::tier_of_part(const MatchPart& part, size_t i) noexcept {
  if (part.slots[i] != kNoSlot) return 0;
  return part.below.empty() ? kNoTier : part.below[i];
}

TierIndex Match::source_of_part(const MatchPart& part, size_t i) noexcept {
  const TierIndex tier = tier_of_part(part, i);
  if (tier != kOtherSize) return tier;
  TierIndex last = 0;
  for (const MatchPart& shard : part.other(i).shards) last = std::max(last, tier_of_part(shard, i));
  return last;
}

TierIndex Match::tier_of(size_t part, size_t i) const noexcept { return tier_of_part(parts_[part], i); }

bool Match::needed(size_t part, size_t i) const noexcept { return tier_of(part, i) != kNoTier; }

}  // namespace kvbm::manager

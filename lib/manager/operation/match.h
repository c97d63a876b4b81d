// Result of a lookup; holds the found blocks until it is released.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manager/common/slot_flags.h"
#include "manager/namespaces/namespace.h"
#include "tier/tier.h"

namespace kvbm::manager {

class TierStack;

enum class LookupMode : uint32_t { prefix = 0, each = 1, any = 2 };

struct FromOtherSize;

// Places where the keys of one part were found.
struct MatchPart {
  PartPlan plan;
  std::vector<SlotId> slots;          // kNoSlot: not in the host tier; each holds a reference
  std::vector<TierIndex> below;       // tier of keys that are not in the host; kNoTier: nowhere. Empty: all in host
  std::vector<tier::Found> found;     // parallel to `below`; pinned there
  std::vector<FromOtherSize> others;  // indexed by found[i].location of a kOtherSize key
  [[nodiscard]] const FromOtherSize& other(size_t i) const noexcept;
};

// A size, and the place of each of its shards, parallel to OtherSize::shards.
struct FromOtherSize {
  std::shared_ptr<const OtherSize> size;
  std::vector<MatchPart> shards;
};

inline const FromOtherSize& MatchPart::other(size_t i) const noexcept { return others[found[i].location]; }

// Thread: reading any; release by the last owner.
class Match {
 public:
  Match(std::shared_ptr<TierStack> stack, std::shared_ptr<Namespace> ns);
  ~Match();
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  // Leading keys that hit in mode prefix; keys that hit in the other modes.
  [[nodiscard]] size_t hits() const noexcept { return hits_; }
  // With partial_units() != 0, keys()[hits()] is the block that matches in part, appended or in place of the asked
  // one.
  [[nodiscard]] const std::vector<Key>& keys() const noexcept { return keys_; }
  // Leading engine blocks of keys()[hits()] that are the prompt's; only these may be loaded.
  [[nodiscard]] uint32_t partial_units() const noexcept { return partial_units_; }
  [[nodiscard]] const std::vector<MatchPart>& parts() const noexcept { return parts_; }
  [[nodiscard]] const std::shared_ptr<Namespace>& ns() const noexcept { return ns_; }
  [[nodiscard]] TierStack& stack() const noexcept { return *stack_; }
  [[nodiscard]] LookupMode mode() const noexcept { return mode_; }
  // Returns true if part `part` of key `i` is needed for the hit (a window or state may not be).
  [[nodiscard]] bool needed(size_t part, size_t i) const noexcept;
  // Returns the tier that part `part` of key `i` is read from: 0 host, kNoTier nowhere, kOtherSize.
  [[nodiscard]] TierIndex tier_of(size_t part, size_t i) const noexcept;
  [[nodiscard]] static TierIndex tier_of_part(const MatchPart& part, size_t i) noexcept;
  // Returns that tier, or for a kOtherSize block the slowest tier of its records.
  [[nodiscard]] TierIndex source_of(size_t part, size_t i) const noexcept { return source_of_part(parts_[part], i); }
  [[nodiscard]] static TierIndex source_of_part(const MatchPart& part, size_t i) noexcept;

 private:
  friend class Lookup;
  void release_part(MatchPart& part);
  std::shared_ptr<TierStack> stack_;
  std::shared_ptr<Namespace> ns_;
  LookupMode mode_ = LookupMode::prefix;
  size_t hits_ = 0;
  uint32_t partial_units_ = 0;
  std::vector<Key> keys_;
  std::vector<MatchPart> parts_;
};

}  // namespace kvbm::manager

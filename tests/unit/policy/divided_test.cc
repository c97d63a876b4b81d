// The default policy in parts, as a large table has it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/crypto/random.h"
#include "policy/eviction.h"

namespace kvbm::policy::divided_test {
namespace {

// Slots without parents, named by their blocks.
class Flat final : public Residents {
 public:
  explicit Flat(size_t capacity) : facts(capacity), blocks(capacity), resident(capacity) {}
  bool evictable(SlotId slot) const noexcept override { return resident[slot]; }
  uint64_t name(SlotId slot) const noexcept override { return SeededRandom(blocks[slot]).next(); }
  void insert(EvictionPolicy& policy, SlotId slot, uint64_t block, uint32_t tick) {
    facts[slot].last_use.store(tick, std::memory_order_relaxed);
    facts[slot].uses.store(0, std::memory_order_relaxed);
    blocks[slot] = block;
    resident[slot] = true;
    policy.inserted({&slot, 1}, tick);
  }
  SlotId evict(EvictionPolicy& policy, uint32_t tick) {
    const SlotId slot = policy.evict(tick);
    if (slot != kNoSlot) resident[slot] = false;
    return slot;
  }

  std::vector<Facts> facts;
  std::vector<uint64_t> blocks;
  std::vector<bool> resident;
};

struct Divided {
  explicit Divided(size_t parts, size_t capacity) {
    std::vector<EvictionPolicy::Part> over;
    for (size_t i = 0; i < parts; ++i) slots.push_back(std::make_unique<Flat>(capacity));
    for (auto& each : slots) over.push_back({each->facts, each.get()});
    whole = make_eviction_policy("prefix", slots[0]->facts, *slots[0]);
    policies = whole->divide(over);
  }
  std::vector<std::unique_ptr<Flat>> slots;
  std::unique_ptr<EvictionPolicy> whole;
  std::vector<std::unique_ptr<EvictionPolicy>> policies;
};

constexpr size_t kCapacity = 256;
// Returns the policy's class of a block: the low bits of Facts::aux.
uint32_t kind(const Flat& slots, SlotId slot) { return slots.facts[slot].aux % 128; }

TEST(DividedPolicy, what_left_one_part_is_known_when_it_comes_back_in_another) {
  Divided all(3, kCapacity);
  ASSERT_EQ(all.policies.size(), 3U);
  for (uint64_t block = 0; block < kCapacity; ++block) {
    all.slots[0]->insert(*all.policies[0], static_cast<SlotId>(block), block, static_cast<uint32_t>(block));
  }
  for (uint64_t n = 0; n < 128; ++n) ASSERT_NE(all.slots[0]->evict(*all.policies[0], 1000), kNoSlot);
  std::vector<uint64_t> gone;
  for (SlotId slot = 0; slot < kCapacity; ++slot) {
    if (!all.slots[0]->resident[slot]) gone.push_back(slot);  // slot i had block i
  }
  ASSERT_EQ(gone.size(), 128U);
  all.slots[0]->insert(*all.policies[0], static_cast<SlotId>(gone[0]), gone[0], 1001);
  const uint32_t returned = kind(*all.slots[0], static_cast<SlotId>(gone[0]));
  all.slots[1]->insert(*all.policies[1], 0, gone[1], 1001);
  all.slots[2]->insert(*all.policies[2], 0, gone[2], 1001);
  all.slots[1]->insert(*all.policies[1], 1, 999999, 1001);
  EXPECT_EQ(kind(*all.slots[1], 0), returned);
  EXPECT_EQ(kind(*all.slots[2], 0), returned);
  EXPECT_NE(kind(*all.slots[1], 1), returned) << "a block that is new";
  // A block's return is recognised once.
  all.slots[2]->insert(*all.policies[2], 1, gone[1], 1002);
  EXPECT_NE(kind(*all.slots[2], 1), returned);
}

TEST(DividedPolicy, parts_take_no_more_room_than_one) {
  constexpr size_t kLarge = 131072;
  std::vector<Facts> facts(kLarge);
  Flat residents(1);
  const auto whole = make_eviction_policy("prefix", facts, residents);
  const std::vector<EvictionPolicy::Part> parts{{std::span(facts).first(kLarge / 2), &residents},
                                                {std::span(facts).last(kLarge / 2), &residents}};
  const auto made = whole->divide(parts);
  ASSERT_EQ(made.size(), 2U);
  // The history is divided; each part has at most 144 KiB of its own.
  EXPECT_LE(made[0]->bytes() + made[1]->bytes(), whole->bytes() + 147456);
}

}  // namespace
}  // namespace kvbm::policy::divided_test

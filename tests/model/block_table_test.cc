// The block table against a naive reference, and under threads.
#include "block/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "../unit/block/block_fixture.h"
#include "base/crypto/random.h"

namespace kvbm::block::block_table_test {
namespace {

constexpr uint64_t kKeys = 120;
constexpr uint32_t kFamilies = 2;

// Models the expected state the simple, slow way: one entry per slot that is not free.
class Reference {
 public:
  struct Block {
    SlotState state = SlotState::partial;
    uint64_t key = 0;
    FamilyId family = 0;
    SlotId parent = kNoSlot;
    uint32_t references = 1;
    bool withdrawn = false;
  };
  std::map<SlotId, Block> blocks;

  [[nodiscard]] SlotId find(FamilyId family, uint64_t key) const {
    for (const auto& [slot, block] : blocks) {
      if (block.state == SlotState::registered && !block.withdrawn && block.key == key && block.family == family) {
        return slot;
      }
    }
    return kNoSlot;
  }
  [[nodiscard]] uint32_t children(SlotId slot) const {
    uint32_t n = 0;
    for (const auto& [other, block] : blocks) n += block.parent == slot ? 1 : 0;
    return n;
  }
  void drop(SlotId slot) {
    --blocks.at(slot).references;
    reap(slot);
  }
  void reap(SlotId slot) {
    const Block block = blocks.at(slot);
    if (block.references != 0 || children(slot) != 0) return;
    if (block.state == SlotState::registered && !block.withdrawn) return;
    remove(slot);
  }
  void remove(SlotId slot) {
    const SlotId parent = blocks.at(slot).parent;
    blocks.erase(slot);
    if (parent != kNoSlot) reap(parent);
  }
};

class Play {
 public:
  Play(uint32_t slots, const char* policy, uint32_t pools, uint64_t seed)
      : table_(make_table(slots, policy, pools)), random_(seed) {}

  void step() {
    ++tick_;
    switch (random_.below(10)) {
      case 0:
      case 1:
      case 2:
        return publish();
      case 3:
      case 4:
        return lookup();
      case 5:
      case 6:
      case 7:
        return release();
      case 8:
        return random_.below(4) == 0 ? erase() : retain();
      default:
        return demote();
    }
  }

  void check() {
    uint32_t in_use = 0;
    for (SlotId slot = 0; slot < table_->slots(); ++slot) {
      const SlotInfo info = table_->info(slot);
      const auto at = reference_.blocks.find(slot);
      if (at == reference_.blocks.end()) {
        ASSERT_EQ(info.state, SlotState::reset) << slot;
        continue;
      }
      ++in_use;
      ASSERT_EQ(info.state, at->second.state) << slot;
      ASSERT_EQ(info.references, at->second.references) << slot;
      ASSERT_EQ(info.children, reference_.children(slot)) << slot;
      ASSERT_EQ(info.withdrawn, at->second.withdrawn) << slot;
      if (info.state == SlotState::registered) {
        ASSERT_EQ(info.identity.key, key_of(at->second.key));
      }
    }
    ASSERT_EQ(table_->counters().free, table_->slots() - in_use);
    ASSERT_EQ(table_->account_use(0).used, in_use);
    for (FamilyId family = 0; family < kFamilies; ++family) {
      const auto keys = keys_of(0, kKeys);
      std::vector<uint8_t> found(kKeys);
      table_->probe(family, keys, found);
      for (uint64_t key = 0; key < kKeys; ++key) {
        ASSERT_EQ(found[key] != 0, reference_.find(family, key) != kNoSlot) << key;
      }
    }
  }

  void finish() {
    for (const SlotId slot : held_) {
      table_->release({&slot, 1});
      reference_.drop(slot);
    }
    held_.clear();
    check();
    table_->erase_all();
    ASSERT_EQ(table_->counters().free, table_->slots());
    ASSERT_EQ(table_->counters().registered, 0U);
  }

 private:
  // Checks that evictions were legal: nothing held the blocks, and children were evicted first.
  void note(const std::vector<Evicted>& evicted) {
    for (const Evicted& block : evicted) {
      const auto at = reference_.blocks.find(block.slot);
      ASSERT_NE(at, reference_.blocks.end());
      ASSERT_EQ(at->second.state, SlotState::registered);
      ASSERT_FALSE(at->second.withdrawn);
      ASSERT_EQ(at->second.references, 0U);
      ASSERT_EQ(reference_.children(block.slot), 0U);
      ASSERT_EQ(block.identity.key, key_of(at->second.key));
      reference_.remove(block.slot);
    }
  }

  void publish() {
    const size_t n = 1 + random_.below(6);
    std::vector<SlotId> slots(n);
    std::vector<Evicted> evicted;
    const Code code = table_->allocate(0, slots, &evicted, tick_);
    note(evicted);
    if (code != Code::ok) {
      ASSERT_EQ(code, Code::no_room);
      return;
    }
    for (const SlotId slot : slots) {
      ASSERT_EQ(reference_.blocks.count(slot), 0U);
      reference_.blocks[slot] = {};
    }
    if (random_.below(8) == 0) {
      table_->abandon(slots);
      for (const SlotId slot : slots) reference_.drop(slot);
      return;
    }
    ASSERT_EQ(table_->complete(slots), Code::ok);
    for (const SlotId slot : slots) reference_.blocks[slot].state = SlotState::complete;
    name(slots);
  }

  void name(std::vector<SlotId>& slots) {
    Publication what;
    const uint64_t first = random_.below(kKeys - slots.size());
    const auto keys = keys_of(first, slots.size());
    what.keys = keys;
    what.family = static_cast<FamilyId>(random_.below(kFamilies));
    what.lineage = random_.below(3) == 0 ? Lineage::none : Lineage::chain;
    what.duplicates = random_.below(2) == 0 ? DuplicateMode::keep : DuplicateMode::reject;
    what.tick = tick_;
    if (what.lineage == Lineage::chain && !held_.empty() && random_.below(2) == 0) {
      const SlotId parent = held_[random_.below(held_.size())];
      if (reference_.blocks.at(parent).state == SlotState::registered) what.first_parent = parent;
    }
    const auto mine = slots;
    std::vector<Code> codes(slots.size());
    ASSERT_EQ(table_->publish(slots, what, codes), Code::ok);
    SlotId previous = what.first_parent;
    for (size_t i = 0; i < slots.size(); ++i) {
      Reference::Block& block = reference_.blocks.at(mine[i]);
      const SlotId existing = reference_.find(what.family, first + i);
      ASSERT_EQ(codes[i], existing == kNoSlot ? Code::ok : Code::exists);
      block.key = first + i;
      block.family = what.family;
      if (existing == kNoSlot) {
        block.state = SlotState::registered;
        if (what.lineage == Lineage::chain) block.parent = previous;
        previous = mine[i];
        ASSERT_EQ(slots[i], mine[i]);
      } else if (what.duplicates == DuplicateMode::keep) {
        block.state = SlotState::registered;
        block.withdrawn = true;
        previous = existing;
        ASSERT_EQ(slots[i], mine[i]);
      } else {
        ASSERT_EQ(slots[i], existing);
        ++reference_.blocks.at(existing).references;
        reference_.drop(mine[i]);
        previous = existing;
      }
      held_.push_back(slots[i]);
    }
  }

  void lookup() {
    const uint64_t first = random_.below(kKeys - 8);
    const auto family = static_cast<FamilyId>(random_.below(kFamilies));
    const auto keys = keys_of(first, 8);
    std::vector<SlotId> out(8, kNoSlot);
    const bool prefix = random_.below(2) == 0;
    const size_t hits =
        prefix ? table_->acquire_prefix(family, keys, out, tick_) : table_->acquire_each(family, keys, out, tick_);
    size_t expected = 0;
    for (uint64_t i = 0; i < 8; ++i) {
      const SlotId slot = reference_.find(family, first + i);
      if (prefix && slot == kNoSlot) break;
      ASSERT_EQ(out[i], slot);
      if (slot == kNoSlot) continue;
      ++expected;
      ++reference_.blocks.at(slot).references;
      held_.push_back(slot);
    }
    ASSERT_EQ(hits, expected);
  }

  void release() {
    std::vector<SlotId> slots;
    for (size_t n = std::min<size_t>(random_.below(12), held_.size()); n > 0; --n) {
      const size_t at = random_.below(held_.size());
      slots.push_back(held_[at]);
      held_[at] = held_.back();
      held_.pop_back();
    }
    table_->release(slots, tick_);
    for (const SlotId slot : slots) reference_.drop(slot);
  }

  void retain() {
    if (held_.empty()) return;
    const SlotId slot = held_[random_.below(held_.size())];
    table_->retain({&slot, 1});
    ++reference_.blocks.at(slot).references;
    held_.push_back(slot);
  }

  void erase() {
    const uint64_t first = random_.below(kKeys - 4);
    const auto family = static_cast<FamilyId>(random_.below(kFamilies));
    size_t expected = 0;
    for (uint64_t key = first; key < first + 4; ++key) {
      const SlotId slot = reference_.find(family, key);
      if (slot == kNoSlot) continue;
      ++expected;
      reference_.blocks.at(slot).withdrawn = true;
      ++reference_.blocks.at(slot).references;
      reference_.drop(slot);
    }
    ASSERT_EQ(table_->erase(family, keys_of(first, 4)), expected);
  }

  void demote() {
    std::vector<SlotId> cold(4);
    cold.resize(table_->select_cold(cold, tick_));
    for (const SlotId slot : cold) {
      ASSERT_EQ(reference_.blocks.at(slot).references, 0U);
      ++reference_.blocks.at(slot).references;
    }
    if (random_.below(2) == 0) {
      table_->release(cold, tick_);
      for (const SlotId slot : cold) reference_.drop(slot);
      return;
    }
    std::vector<Evicted> evicted;
    ASSERT_EQ(table_->evict_held(cold, &evicted, tick_), cold.size());
    for (const SlotId slot : cold) --reference_.blocks.at(slot).references;
    note(evicted);
  }

  std::unique_ptr<BlockTable> table_;
  SeededRandom random_;
  Reference reference_;
  std::vector<SlotId> held_;
  uint32_t tick_ = 0;
};

void play(const char* policy, uint32_t pools) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "policy " << policy << " pools " << pools << " seed " << seed);
    Play play(static_cast<uint32_t>(8 + seed * 5), policy, pools, seed);
    for (int i = 0; i < 400 && !testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "step " << i);
      play.step();
      if (testing::Test::HasFatalFailure()) return;
      play.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    play.finish();
  }
}

TEST(BlockTableModel, random_operations_agree_with_the_reference) {
  for (const char* policy : {"lru", "fifo"}) play(policy, 1);
}

TEST(BlockTableModel, random_operations_on_several_pools_agree_with_the_reference) {
  for (const char* policy : {"lru", "fifo"}) {
    for (const uint32_t pools : {2U, 5U}) play(policy, pools);
  }
}

// ---- threads ----

// A stand-in for bytes: what the owner of a slot wrote there. Read only under a reference.
struct Arena {
  explicit Arena(size_t slots) : value(slots) {}
  std::vector<uint64_t> value;
};

void use_table(BlockTable& table, Arena& arena, uint64_t seed, std::atomic<uint64_t>& wrong) {
  SeededRandom random(seed);
  std::vector<SlotId> slots(8);
  for (uint32_t tick = 1; tick < 1500; ++tick) {
    // Chains that overlap: every chain c is the keys c*16 .. c*16+15 in order.
    const uint64_t chain = random.below(40) * 16;
    const auto keys = keys_of(chain, 8);
    const size_t hits = table.acquire_prefix(0, keys, slots, tick);
    for (size_t i = 0; i < hits; ++i) {
      if (table.identity(slots[i]).key != keys[i] || arena.value[slots[i]] != chain + i) ++wrong;
    }
    std::vector<SlotId> fresh(8 - hits);
    if (!fresh.empty() && table.allocate(0, fresh, nullptr, tick) == Code::ok) {
      for (size_t i = 0; i < fresh.size(); ++i) arena.value[fresh[i]] = chain + hits + i;
      if (table.complete(fresh) != Code::ok) ++wrong;
      Publication what;
      what.keys = std::span(keys).subspan(hits);
      what.lineage = Lineage::chain;
      what.first_parent = hits > 0 ? slots[hits - 1] : kNoSlot;
      what.duplicates = random.below(4) == 0 ? DuplicateMode::keep : DuplicateMode::reject;
      what.tick = tick;
      if (table.publish(fresh, what, {}) != Code::ok) ++wrong;
      for (size_t i = 0; i < fresh.size(); ++i) {
        if (arena.value[fresh[i]] != chain + hits + i) ++wrong;
      }
      table.release(fresh, tick);
    }
    const uint64_t other = random.below(16);
    if (other == 0) table.erase(0, std::span(keys).subspan(random.below(8), 1));
    if (other == 1) {
      std::vector<SlotId> cold(6);
      cold.resize(table.select_cold(cold, tick));
      (void)table.evict_held(cold, nullptr, tick);
    }
    table.release(std::span(slots).first(hits), tick);
  }
}

TEST(BlockTableModel, threads_find_only_what_was_stored_and_lose_no_slot) {
  for (const auto& [capacity, pools] : {std::pair{48U, 1U}, {200U, 1U}, {200U, 3U}}) {
    SCOPED_TRACE(testing::Message() << "slots " << capacity << " pools " << pools);
    auto table = make_table(capacity, "fifo", pools);
    Arena arena(capacity);
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] { use_table(*table, arena, 100 + t, wrong); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0U);
    uint32_t registered = 0;
    uint32_t withdrawn = 0;
    for (SlotId slot = 0; slot < capacity; ++slot) {
      const SlotInfo info = table->info(slot);
      EXPECT_EQ(info.references, 0U);
      if (info.state == SlotState::registered) ++registered;
      if (info.withdrawn) ++withdrawn;
    }
    // A block erased before its policy heard of it is not counted, and keeps its slot until its children go.
    EXPECT_LE(table->counters().registered, registered);
    EXPECT_GE(table->counters().registered + withdrawn, registered);
    EXPECT_EQ(table->counters().free + registered, capacity);
    // All remaining blocks can be evicted, so the policy has forgotten no slot.
    std::vector<SlotId> all(capacity);
    EXPECT_EQ(table->allocate(0, all, nullptr, 9999), Code::ok);
    table->abandon(all);
    EXPECT_EQ(table->counters().free, capacity);
  }
}

// One thread publishes a parent and a child and releases the parent first, while the other allocates all it can. A
// child must never be resident without its parent.
void evict_beside_children(uint32_t pools) {
  auto table = make_table(16, "fifo", pools);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> orphans{0};
  std::thread evictor([&] {
    std::vector<SlotId> slots(10);
    for (uint32_t tick = 0; !stop.load(); ++tick) {
      if (table->allocate(0, slots, nullptr, tick) == Code::ok) table->abandon(slots);
    }
  });
  for (uint32_t i = 0; i < 3000; ++i) {
    std::vector<SlotId> pair(2);
    if (table->allocate(0, pair, nullptr, i) != Code::ok) continue;
    ASSERT_EQ(table->complete(pair), Code::ok);
    const auto keys = keys_of(i * 2, 2);
    Publication what;
    what.keys = keys;
    what.lineage = Lineage::chain;
    what.tick = i;
    ASSERT_EQ(table->publish(pair, what, {}), Code::ok);
    table->release(std::span(pair).first(1), i);  // only the child is held now
    if (present(*table, keys) != 2) ++orphans;
    table->release(std::span(pair).last(1), i);
  }
  stop = true;
  evictor.join();
  EXPECT_EQ(orphans.load(), 0U);
}

TEST(BlockTableModel, a_parent_is_never_evicted_under_its_child) {
  evict_beside_children(1);
  evict_beside_children(4);
}

}  // namespace
}  // namespace kvbm::block::block_table_test

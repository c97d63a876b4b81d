#include "block/blocks.h"

#include <type_traits>

#include "block_fixture.h"

namespace kvbm::block::blocks_test {
namespace {

static_assert(!std::is_copy_constructible_v<PartialBlock> && !std::is_copy_constructible_v<RegisteredBlock>);

RegisteredBlock registered(BlockTable& table, uint64_t key, const RegisteredBlock* parent = nullptr) {
  auto partial = allocate(table, 1);
  EXPECT_TRUE(partial.ok());
  auto complete = std::move(partial.value()[0]).complete();
  EXPECT_TRUE(complete.ok());
  auto done = std::move(complete).take().publish({key_of(key), 0}, parent, DuplicateMode::reject);
  EXPECT_TRUE(done.ok());
  return std::move(done).take();
}

TEST(Blocks, dropping_a_block_in_any_state_returns_its_slot) {
  auto table = make_table(4);
  {
    auto blocks = allocate(*table, 3);
    ASSERT_TRUE(blocks.ok());
    auto complete = std::move(blocks.value()[0]).complete();
    EXPECT_EQ(table->counters().free, 1U);
  }
  EXPECT_EQ(table->counters().free, 4U);
  EXPECT_EQ(allocate(*table, 5).status().code(), Code::no_room);
}

TEST(Blocks, a_block_goes_through_its_life) {
  auto table = make_table(4);
  RegisteredBlock parent = registered(*table, 1);
  RegisteredBlock child = registered(*table, 2, &parent);
  EXPECT_EQ(table->info(parent.slot()).children, 1U);
  const WeakBlock weak = child.weaken();
  {
    const RegisteredBlock again = child.clone();
    EXPECT_EQ(table->info(child.slot()).references, 2U);
  }
  child = RegisteredBlock();
  EXPECT_TRUE(weak.upgrade());
  EXPECT_EQ(weak.upgrade().identity().key, key_of(2));
  table->erase_all();
  EXPECT_FALSE(weak.upgrade());
}

TEST(Blocks, a_duplicate_becomes_the_existing_block) {
  auto table = make_table(4);
  const RegisteredBlock first = registered(*table, 1);
  const RegisteredBlock second = registered(*table, 1);
  EXPECT_EQ(first.slot(), second.slot());
  EXPECT_EQ(table->counters().free, 3U);
}

TEST(Blocks, a_refused_transition_gives_the_block_back) {
  auto table = make_table(4);
  auto partial = allocate(*table, 1);
  ASSERT_TRUE(partial.ok());
  const SlotId slot = partial.value()[0].slot();
  ASSERT_EQ(table->complete({&slot, 1}), Code::ok);  // behind the type's back
  auto refused = std::move(partial.value()[0]).complete();
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), Code::wrong_state);
  EXPECT_EQ(std::move(refused).refused().slot(), slot);
  EXPECT_EQ(table->counters().free, 4U);
}

TEST(Blocks, matches_hold_their_prefix_until_they_end) {
  auto table = make_table(4);
  table->release(store(*table, keys_of(0, 3), 1, Lineage::chain));
  {
    const auto match = RegisteredBlocks::match(*table, 0, keys_of(0, 4), 2);
    EXPECT_EQ(match.size(), 3U);
    EXPECT_EQ(table->info(match.slots()[2]).references, 1U);
  }
  EXPECT_EQ(allocate(*table, 4).ok(), true);
}

}  // namespace
}  // namespace kvbm::block::blocks_test

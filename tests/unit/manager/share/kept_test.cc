#include "manager/share/durability_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "manager/stack/tier_stack.h"
#include "support/small_manager.h"

namespace kvbm::manager::kept_test {
namespace {

class Kept : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }

  // In the host, and not on the disk, which belongs there.
  void put_refused(uint64_t n) {
    disk_.faults.write_error = 1;
    put(n);
    flush();
    disk_.faults.write_error = 0;
    ASSERT_FALSE(manager_->lower().disabled(1));
  }

  std::vector<Identity> missing(std::vector<Identity> ids, Rewrite rewrite) {
    std::optional<std::vector<Identity>> out;
    check_durability(manager_->stack().keep(), 1, std::move(ids), rewrite, [&out](std::vector<Identity> found) {
      EXPECT_FALSE(out.has_value());
      out = std::move(found);
    });
    EXPECT_TRUE(sim_.run_until([&] { return out.has_value(); }));
    return out.value_or(std::vector<Identity>());
  }

  [[nodiscard]] uint64_t records() { return manager_->lower().tier(1).stats().records; }
};

TEST_F(Kept, a_block_in_memory_is_written_once_more) {
  put_refused(1);
  EXPECT_EQ(records(), 0U);
  EXPECT_TRUE(missing({{key(1), family_}}, Rewrite::once).empty());
  EXPECT_EQ(records(), 1U);
}

TEST_F(Kept, a_look_alone_writes_nothing) {
  put_refused(1);
  EXPECT_EQ(missing({{key(1), family_}}, Rewrite::nothing).size(), 1U);
  EXPECT_EQ(records(), 0U);
}

// The sync of a durable flush comes before its look, so it does not cover what the look writes.
TEST_F(Kept, what_is_written_for_a_durable_flush_is_synced_before_it_counts) {
  put(1);
  flush();
  put_refused(2);
  const std::vector<Identity> both{{key(1), family_}, {key(2), family_}};
  disk_.faults.sync_error = 1;
  const std::vector<Identity> lost = missing(both, Rewrite::durably);
  EXPECT_TRUE(std::find(lost.begin(), lost.end(), both[1]) != lost.end());
  disk_.faults.sync_error = 0;
  ASSERT_FALSE(manager_->lower().disabled(1));
  EXPECT_TRUE(missing(both, Rewrite::durably).empty());
  EXPECT_EQ(records(), 2U);
}

}  // namespace
}  // namespace kvbm::manager::kept_test

// Evictions of a full disk: a block is offered to the tier below before it is erased, and never against the disk's own
// guarantees.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "support/disk_world.h"

namespace kvbm::test::demote_test {
namespace {

constexpr uint64_t kBytes = 12000;

// The tier below: stores each record at once or on request.
class Below final : public tier::TierListener {
 public:
  void removed(TierIndex, std::span<const Identity> ids, bool damaged) override {
    for (const Identity& id : ids) (damaged ? damages : evicted).insert(id);
  }
  void disabled(TierIndex, const Status&) override {}
  void wanted(TierIndex, std::vector<Identity>& ids) override {
    if (!wants) ids.clear();
  }
  void take_over(TierIndex, std::unique_ptr<tier::PutBatch> batch) override {
    if (dead) return held.push_back(std::move(batch));
    ++parts;
    EXPECT_TRUE(batch->as_stored);
    for (const tier::PutItem& item : batch->items) {
      tier::Found found;
      world->tier->find({&item.id, 1}, {&found, 1}, false);
      EXPECT_TRUE(found.present) << "it was forgotten before it was taken over";
      EXPECT_FALSE(evicted.contains(item.id));
      held_bytes += item.payload.size();
      kept[item.id] = {std::vector<std::byte>(item.head.begin(), item.head.end()),
                       std::vector<std::byte>(item.payload.begin(), item.payload.end())};
    }
    if (on_part) on_part();
    held.push_back(std::move(batch));
    if (answers) answer();
  }
  void answer(Code code = Code::ok) {
    held_bytes = 0;
    for (auto& batch : std::exchange(held, {})) {
      batch->status.assign(batch->items.size(), code);
      batch->done(*batch);
    }
  }

  DiskWorld* world = nullptr;
  bool dead = false;  // of a process that was killed
  bool wants = true;
  bool answers = true;
  uint64_t parts = 0;
  uint64_t held_bytes = 0;
  std::function<void()> on_part;
  std::set<Identity> evicted, damages;
  std::map<Identity, std::pair<std::vector<std::byte>, std::vector<std::byte>>> kept;
  std::vector<std::unique_ptr<tier::PutBatch>> held;
};

class Demote : public ::testing::Test {
 protected:
  Demote() { below_.world = &w_; }
  void open(uint64_t capacity, uint64_t segment) {
    w_.options.capacity_bytes = capacity;
    w_.options.segment_bytes = segment;
    reopen();
  }
  void reopen() {
    auto opened = tier::disk::DiskTier::open(w_.options, w_.disk, w_.sim, w_.families, w_.sim.random(), &below_, 1);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    w_.tier = std::move(opened).value();
  }
  // Returns whether the tier returns the record of that number, byte for byte.
  bool right(uint64_t n, uint64_t bytes) {
    const TestRecord want(n, bytes, family_of(1));
    const auto at = below_.kept.find(w_.id(n));
    return at != below_.kept.end() && at->second.first == want.head &&
           std::equal(at->second.second.begin(), at->second.second.end(), want.payload().begin(), want.payload().end());
  }

  Below below_;
  DiskWorld w_{11};  // ends with what is in flight, which may speak to the other
};

TEST_F(Demote, whoever_is_below_has_what_the_disk_has_not) {
  open(uint64_t{3} << 20, 256 << 10);
  for (uint64_t n = 1; n <= 600; ++n) {
    ASSERT_EQ(w_.put_now(n, kBytes), Code::ok);
    for (const Identity& id : below_.evicted) ASSERT_TRUE(below_.kept.contains(id)) << n;
  }
  w_.sim.run();
  uint64_t here = 0;
  for (uint64_t n = 1; n <= 600; ++n) {
    here += w_.present(n) ? 1 : 0;
    EXPECT_TRUE(w_.present(n) || right(n, kBytes)) << n;
  }
  const tier::TierStats stats = w_.tier->stats();
  EXPECT_EQ(below_.evicted.size(), 600 - here);
  EXPECT_EQ(stats.moved_down, 600 - here);
  EXPECT_EQ(stats.evicted, stats.moved_down);
  EXPECT_EQ(stats.moves_lost, 0U);
  EXPECT_GT(here, 100U);
  EXPECT_GT(stats.moved_down, 300U);
}

TEST_F(Demote, nothing_is_read_for_whom_wants_nothing) {
  below_.wants = false;
  open(uint64_t{3} << 20, 256 << 10);
  for (uint64_t n = 1; n <= 400; ++n) ASSERT_EQ(w_.put_now(n, kBytes), Code::ok);
  w_.sim.run();
  EXPECT_EQ(below_.parts, 0U);
  EXPECT_GT(below_.evicted.size(), 100U);
  EXPECT_EQ(w_.tier->stats().moves_lost, 0U);
}

// The tier below hangs. Writing goes on, the memory that is with it is bounded, and what is lost is counted.
TEST_F(Demote, a_tier_below_that_hangs_holds_nothing_up_for_long) {
  constexpr uint64_t kRecords = 2000;
  uint64_t alone_ns = 0;
  {
    DiskWorld alone(11, uint64_t{3} << 20, 256 << 10);
    ASSERT_TRUE(alone.open().ok());
    for (uint64_t n = 1; n <= kRecords; ++n) ASSERT_EQ(alone.put_now(n, kBytes), Code::ok) << n;
    alone_ns = alone.sim.clock().now_ns();
  }
  below_.answers = false;
  open(uint64_t{3} << 20, 256 << 10);
  const uint64_t began = w_.sim.clock().now_ns();
  for (uint64_t n = 1; n <= kRecords; ++n) {
    ASSERT_EQ(w_.put_now(n, kBytes), Code::ok) << n;
    ASSERT_LE(below_.held_bytes, uint64_t{10} << 20);
    ASSERT_LE(w_.disk.used(), w_.options.capacity_bytes);
  }
  // The limit is the time of the disk alone, and 8 ns for each written byte.
  EXPECT_LT(w_.sim.clock().now_ns() - began, alone_ns + alone_ns / 2 + kRecords * 16384 * 8);
  EXPECT_GT(w_.tier->stats().moves_lost, kRecords / 4);
  EXPECT_EQ(w_.tier->stats().moved_down, 0U);
  below_.answer();
  w_.sim.run();
  EXPECT_GT(w_.tier->stats().moved_down, 0U);
  EXPECT_TRUE(w_.close());
}

TEST_F(Demote, what_is_refused_below_is_counted) {
  open(uint64_t{3} << 20, 256 << 10);
  below_.answers = false;
  below_.on_part = [this] { w_.sim.post([this] { below_.answer(Code::no_room); }); };
  for (uint64_t n = 1; n <= 400; ++n) ASSERT_EQ(w_.put_now(n, kBytes), Code::ok);
  w_.sim.run();
  const tier::TierStats stats = w_.tier->stats();
  EXPECT_EQ(stats.moved_down, 0U);
  EXPECT_EQ(stats.moves_lost, below_.evicted.size());
  EXPECT_GT(stats.moves_lost, 100U);
}

// No further part is read between the beginning of a load and its end.
TEST_F(Demote, loads_go_first) {
  constexpr uint64_t kLarge = 200'000;
  open(uint64_t{40} << 20, uint64_t{8} << 20);
  uint64_t loads = 0;
  uint64_t ended = 0;
  uint64_t parts_at_start = 0;
  const tier::disk::AlignedBuffer head(8192);
  const tier::disk::AlignedBuffer payload(kLarge);
  below_.on_part = [&] {
    if (loads != ended) {
      EXPECT_EQ(below_.parts, parts_at_start) << "it was read while somebody waited for a load";
      return;
    }
    ++loads;
    parts_at_start = below_.parts;
    auto batch = std::make_unique<tier::GetBatch>();
    tier::GetItem item;
    item.id = w_.id(1);
    tier::Found found;
    for (uint64_t n = 1; !found.present; ++n) {
      item.id = w_.id(n);
      w_.tier->find({&item.id, 1}, {&found, 1}, false);
    }
    item.head = head.span();
    item.payload = payload.span();
    batch->items.push_back(item);
    batch->done = [&](tier::GetBatch& got) {
      EXPECT_EQ(got.status[0], Code::ok);
      ++ended;
    };
    w_.tier->get(std::move(batch));
  };
  for (uint64_t n = 1; n <= 300; ++n) ASSERT_EQ(w_.put_now(n, kLarge), Code::ok);
  w_.sim.run();
  EXPECT_EQ(loads, ended);
  EXPECT_GT(loads, 5U);
  EXPECT_EQ(w_.tier->stats().moves_lost, 0U);
}

TEST_F(Demote, closing_in_the_middle_loses_nothing_of_it) {
  below_.answers = false;
  open(uint64_t{3} << 20, 256 << 10);
  uint64_t n = 0;
  while (below_.held.empty()) ASSERT_EQ(w_.put_now(++n, kBytes), Code::ok);
  const std::set<Identity> gone = below_.evicted;
  ASSERT_TRUE(w_.close());
  EXPECT_EQ(below_.evicted, gone);
  reopen();
  for (uint64_t i = 1; i <= n; ++i) EXPECT_TRUE(gone.contains(w_.id(i)) || w_.get_now(i, kBytes).right) << i;
  below_.answer();
  w_.sim.run();
}

TEST_F(Demote, what_is_damaged_is_not_given_away) {
  w_.disk.faults.flip_at_rest = 0.05;
  open(uint64_t{3} << 20, 256 << 10);
  for (uint64_t n = 1; n <= 600; ++n) (void)w_.put_now(n, kBytes);
  w_.sim.run();
  EXPECT_GT(below_.damages.size(), 5U);
  EXPECT_GT(below_.kept.size(), 100U);
  for (uint64_t n = 1; n <= 600; ++n) EXPECT_TRUE(!below_.kept.contains(w_.id(n)) || right(n, kBytes)) << n;
}

// The process ends while a record is being moved. Afterwards the record is here, or in the tier below, or was evicted
// as it always could be.
TEST_F(Demote, a_crash_loses_nothing_that_was_not_taken_over) {
  for (uint64_t cut = 1; cut <= 40; ++cut) {
    Below below;
    DiskWorld w(cut);
    below.world = &w;
    below.answers = cut % 2 == 0;
    auto opened = tier::disk::DiskTier::open(w.options, w.disk, w.sim, w.families, w.sim.random(), &below, 1);
    ASSERT_TRUE(opened.ok());
    w.tier = std::move(opened).value();
    for (uint64_t n = 1; n <= 180 + cut; ++n) ASSERT_EQ(w.put_now(n, kBytes), Code::ok);
    for (uint64_t i = 0; i < cut; ++i) w.sim.step();
    const std::set<Identity> evicted = below.evicted;
    w.crash();
    below.dead = true;
    Below nobody;
    nobody.wants = false;
    auto again = tier::disk::DiskTier::open(w.options, w.disk, w.sim, w.families, w.sim.random(), &nobody, 1);
    ASSERT_TRUE(again.ok());
    w.tier = std::move(again).value();
    for (uint64_t n = 1; n <= 180 + cut; ++n) {
      const bool here = w.get_now(n, kBytes).right;
      // The new process evicts records, too.
      const bool was_evicted = evicted.contains(w.id(n)) || nobody.evicted.contains(w.id(n));
      EXPECT_TRUE(here || was_evicted || below.kept.contains(w.id(n))) << cut << " " << n;
    }
    w.tier.reset();
    w.sim.run();
    below.held.clear();
  }
}

}  // namespace
}  // namespace kvbm::test::demote_test

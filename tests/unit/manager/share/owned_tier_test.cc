#include "manager/share/owned_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/crypto/random.h"
#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "support/temp_dir.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::manager::owned_tier_test {
namespace {

class OwnedTierTest : public testing::Test {
 protected:
  OwnedTierTest() {
    executor_ = std::move(ThreadExecutor::create("test", 2)).value();
    files_ = std::move(make_os_file_system(*executor_, {})).value();
    tier_ = std::make_unique<OwnedTier>(*executor_, dir_.path());
  }
  ~OwnedTierTest() override {
    std::promise<void> closed;
    tier_->shutdown([&] { closed.set_value(); });
    closed.get_future().wait();
    tier_.reset();
    executor_.reset();
  }

  std::unique_ptr<tier::Tier> open_disk() {
    tier::disk::DiskTierOptions options;
    options.path = dir_.path();
    options.capacity_bytes = 64 << 20;
    auto disk = tier::disk::DiskTier::open(options, *files_, *executor_, families_, random_, nullptr, 1);
    EXPECT_TRUE(disk.ok()) << disk.status().message();
    return disk.ok() ? std::move(disk).value() : nullptr;
  }

  Code get_one(const Identity& id) {
    auto batch = std::make_unique<tier::GetBatch>();
    batch->items.resize(1);
    batch->items[0].id = id;
    std::promise<Code> code;
    batch->done = [&](tier::GetBatch& ended) { code.set_value(ended.status[0]); };
    tier_->get(std::move(batch));
    return code.get_future().get();
  }

  const test::TempDir dir_;
  FamilyTable families_;
  SystemRandom random_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<OwnedTier> tier_;
};

TEST_F(OwnedTierTest, has_nothing_before_it_has_the_disk) {
  const Identity id{};
  tier::Found found;
  found.present = true;
  tier_->find({&id, 1}, {&found, 1}, false);
  EXPECT_FALSE(found.present);
  EXPECT_FALSE(tier_->pin(id));
  EXPECT_EQ(get_one(id), Code::miss);
  EXPECT_EQ(tier_->stats().capacity_bytes, 0U);
  auto batch = std::make_unique<tier::PutBatch>();
  batch->items.resize(2);
  std::promise<std::vector<Code>> codes;
  batch->done = [&](tier::PutBatch& ended) { codes.set_value(ended.status); };
  tier_->put(std::move(batch));
  EXPECT_EQ(codes.get_future().get(), std::vector<Code>(2, Code::owner_gone));
}

TEST_F(OwnedTierTest, is_the_disk_once_it_has_it) {
  auto disk = open_disk();
  ASSERT_NE(disk, nullptr);
  tier_->own(std::move(disk));
  EXPECT_EQ(tier_->stats().capacity_bytes, uint64_t{64} << 20);
  const NamespaceId base{};
  ASSERT_TRUE(tier_->set_epoch(base, 5).ok());
  EXPECT_EQ(tier_->epoch(base).value(), 5U);
}

// For the thread sanitizer: calls of other threads are under way when the disk comes.
TEST_F(OwnedTierTest, the_switch_is_seen_whole) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Identity id{};
      while (!stop) {
        tier::Found found;
        tier_->find({&id, 1}, {&found, 1}, true);
        EXPECT_FALSE(tier_->pin(id));
        tier_->unpin(id);
        EXPECT_EQ(get_one(id), Code::miss);
        tier_->erase({&id, 1});
        (void)tier_->stats();
      }
    });
  }
  auto disk = open_disk();
  ASSERT_NE(disk, nullptr);
  tier_->own(std::move(disk));
  while (tier_->stats().misses < 100) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvbm::manager::owned_tier_test

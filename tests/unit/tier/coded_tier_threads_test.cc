// A coded tier on real threads and a real directory: batches down and up at once, some forgotten, some late.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "codec/hash/leaf_hash.h"
#include "support/opaque_leaves.h"
#include "support/temp_dir.h"
#include "tier/coded/coded_tier.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::test::coded_tier_threads_test {
namespace {

using tier::disk::AlignedBuffer;

constexpr uint64_t kBytes = 128 << 10;

Key key_of(uint64_t n) {
  SeededRandom random(n + 1);
  Key key;
  random.fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

void fill(uint64_t n, MutableBytes out) {
  SeededRandom random(n);
  random.fill(out);
  for (size_t i = 1; i < out.size(); i += 2) out[i] = std::byte{0x3F};
}

class CodedTierThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    executor_ = std::move(ThreadExecutor::create("coded", 4)).value();
    auto files = make_os_file_system(*executor_);
    ASSERT_TRUE(files.ok()) << files.status().message();
    files_ = std::move(files).value();
    family_.ns.bytes.fill(3);
    family_.geometry = 5;
    id_ = families_.intern(family_).value();
    tier::disk::DiskTierOptions disk;
    disk.path = directory_.path() + "/tier";
    disk.capacity_bytes = 64 << 20;
    auto opened = tier::disk::DiskTier::open(disk, *files_, *executor_, families_, random_, nullptr, 1);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    tier::coded::CodedTierOptions options;
    options.mode = codec::Mode::standard;
    options.keys = codec::KeyRing::parse("7 " + std::string(64, 'c')).value();
    options.read_budget_bytes = options.write_budget_bytes = 2 << 20;
    options.terms = [](FamilyId) {
      auto terms = std::make_shared<tier::coded::FamilyTerms>();
      terms->form.element = codec::Element::bf16;
      terms->form.row = 64;
      terms->plain_bytes = kBytes;
      return terms;
    };
    tier_ =
        std::make_unique<tier::coded::CodedTier>(std::move(options), std::move(opened).value(), *executor_, random_);
  }

  void begin() {
    std::lock_guard lock(mutex_);
    ++open_;
  }
  void ended() {
    std::lock_guard lock(mutex_);
    if (--open_ == 0) all_ended_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    all_ended_.wait(lock, [this] { return open_ == 0; });
  }

  void put(uint64_t first, uint64_t n) {
    struct Records {
      std::vector<AlignedBuffer> heads, payloads;
    };
    auto records = std::make_shared<Records>();
    auto batch = std::make_unique<tier::PutBatch>();
    for (uint64_t i = first; i < first + n; ++i) {
      records->heads.emplace_back(4096);
      records->payloads.emplace_back(kBytes);
      fill(i, records->payloads.back().span());
      codec::Header h;
      h.flags = codec::kOpaque;
      h.ns = family_.ns;
      h.key = key_of(i);
      h.geometry = family_.geometry;
      auto leaves = test::opaque_leaves(kBytes);
      for (auto& leaf : leaves)
        leaf.hash = codec::leaf_hash(ConstBytes(records->payloads.back().span()).subspan(leaf.offset, leaf.raw_bytes));
      h.leaf_count = static_cast<uint32_t>(leaves.size());
      h.raw_bytes = h.stored_bytes = kBytes;
      const auto head = codec::encode_head(h, leaves, {}, records->heads.back().span());
      ASSERT_TRUE(head.ok());
      tier::PutItem item;
      item.id = {key_of(i), id_};
      item.head = ConstBytes(records->heads.back().span()).first(head.value());
      item.payload = records->payloads.back().span();
      batch->items.push_back(item);
    }
    begin();
    batch->done = [this, records](tier::PutBatch&) { ended(); };
    tier_->put(std::move(batch));
  }

  void get(uint64_t first, uint64_t n, uint64_t deadline_ns, bool checks) {
    struct Targets {
      std::vector<AlignedBuffer> heads, payloads;
    };
    auto targets = std::make_shared<Targets>();
    auto batch = std::make_unique<tier::GetBatch>();
    for (uint64_t i = first; i < first + n; ++i) {
      targets->heads.emplace_back(4096);
      targets->payloads.emplace_back(kBytes);
      tier::GetItem item;
      item.id = {key_of(i), id_};
      item.head = targets->heads.back().span();
      item.payload = targets->payloads.back().span();
      batch->items.push_back(item);
    }
    batch->deadline_ns = deadline_ns;
    batch->accepts.verifies = checks;
    begin();
    batch->done = [this, targets, first](tier::GetBatch& b) {
      std::vector<std::byte> want(kBytes);
      for (size_t i = 0; i < b.items.size(); ++i) {
        if (b.status[i] != Code::ok) continue;
        fill(first + i, want);
        const bool right = std::memcmp(targets->payloads[i].data(), want.data(), kBytes) == 0;
        (right ? right_ : wrong_).fetch_add(1);
      }
      ended();
    };
    tier_->get(std::move(batch));
  }

  const TempDir directory_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<FileSystem> files_;
  SystemRandom random_;
  FamilyTable families_;
  Family family_;
  FamilyId id_ = 0;
  std::unique_ptr<tier::coded::CodedTier> tier_;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  int open_ = 0;
  std::atomic<uint64_t> right_{0}, wrong_{0};
};

TEST_F(CodedTierThreads, batches_down_and_up_at_once_are_never_wrong) {
  for (uint64_t first = 0; first < 96; first += 8) put(first, 8);
  wait();
  for (uint64_t round = 0; round < 6; ++round) {
    const uint64_t now = executor_->clock().now_ns();
    for (uint64_t first = 0; first < 96; first += 16) {
      get(first, 16, first % 32 == 0 ? kNever : now + round * 1'000'000, round % 2 == 0);
    }
    put(200 + round * 16, 16);
    const Identity gone[] = {{key_of(200 + round * 16), id_}, {key_of(round), id_}};
    tier_->erase(gone);
  }
  wait();
  EXPECT_EQ(wrong_.load(), 0U);
  EXPECT_GT(right_.load(), 100U);
  begin();
  tier_->shutdown([this] { ended(); });
  wait();
  tier_.reset();
  executor_.reset();
}

}  // namespace
}  // namespace kvbm::test::coded_tier_threads_test

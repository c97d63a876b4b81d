// The disk tier on the real file system: threads, io_uring or pread, and a process killed for real.
#include "tier/disk/disk_tier.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "support/disk_world.h"
#include "support/temp_dir.h"

namespace kvbm::test::disk_tier_test {
namespace {

constexpr uint64_t kBytes = 70000;

struct RealTier {
  explicit RealTier(const std::string& path, IoEngineChoice engine = IoEngineChoice::automatic) {
    executor = std::move(ThreadExecutor::create("kvbm-test", 2)).value();
    OsFileOptions file_options;
    file_options.engine = engine;
    fs = std::move(make_os_file_system(*executor, file_options)).value();
    options.path = path;
    options.capacity_bytes = uint64_t{24} << 20;
    options.segment_bytes = uint64_t{2} << 20;
  }
  ~RealTier() { close(); }
  Status open() {
    auto result = tier::disk::DiskTier::open(options, *fs, *executor, families, random, nullptr, 1);
    if (!result.ok()) return result.status();
    tier = std::move(result).value();
    return {};
  }
  void close() {
    if (tier == nullptr) return;
    std::promise<void> closed;
    tier->shutdown([&] { closed.set_value(); });
    closed.get_future().wait();
    tier.reset();
  }
  Identity id(uint64_t n) { return Identity{key_of(n), families.intern(family_of(1)).value()}; }
  std::vector<Code> put(uint64_t first, uint64_t count, bool durable) {
    std::vector<TestRecord> records;
    auto batch = std::make_unique<tier::PutBatch>();
    for (uint64_t n = first; n < first + count; ++n) {
      records.emplace_back(n, kBytes, family_of(1));
      tier::PutItem item;
      item.id = id(n);
      item.head = records.back().head;
      item.payload = records.back().payload();
      batch->items.push_back(item);
    }
    batch->durable = durable;
    std::promise<std::vector<Code>> done;
    batch->done = [&](tier::PutBatch& b) { done.set_value(b.status); };
    tier->put(std::move(batch));
    return done.get_future().get();
  }
  // Gets a record. Returns its status, or internal if it was ok with wrong bytes.
  Code get(uint64_t n) {
    const TestRecord want(n, kBytes, family_of(1));
    const tier::disk::AlignedBuffer head(8192);
    const tier::disk::AlignedBuffer payload(kBytes);
    auto batch = std::make_unique<tier::GetBatch>();
    tier::GetItem item;
    item.id = id(n);
    item.head = head.span();
    item.payload = payload.span();
    batch->items.push_back(item);
    std::promise<Code> done;
    batch->done = [&](tier::GetBatch& b) { done.set_value(b.status[0]); };
    tier->get(std::move(batch));
    const Code code = done.get_future().get();
    if (code == Code::ok && std::memcmp(payload.data(), want.memory.data(), kBytes) != 0) return Code::internal;
    return code;
  }

  std::unique_ptr<ThreadExecutor> executor;
  std::unique_ptr<FileSystem> fs;
  FamilyTable families;
  SystemRandom random;
  tier::disk::DiskTierOptions options;
  std::unique_ptr<tier::disk::DiskTier> tier;
};

TEST(DiskTierReal, stores_reclaims_and_reopens_with_each_engine) {
  for (const IoEngineChoice engine : {IoEngineChoice::automatic, IoEngineChoice::pread}) {
    const TempDir dir;
    RealTier t(dir.path() + "/tier", engine);
    const Status opened = t.open();
    ASSERT_TRUE(opened.ok()) << opened.message();
    for (uint64_t n = 1; n <= 600; n += 20) {
      for (const Code code : t.put(n, 20, n % 40 == 1)) ASSERT_EQ(code, Code::ok) << n;
    }
    t.close();
    ASSERT_TRUE(t.open().ok());
    uint64_t held = 0;
    for (uint64_t n = 1; n <= 600; ++n) {
      const Code code = t.get(n);
      ASSERT_TRUE(code == Code::ok || code == Code::miss) << n;
      held += code == Code::ok ? 1 : 0;
    }
    EXPECT_GT(held, 150U);
    EXPECT_EQ(held, t.tier->stats().records);
  }
}

// A head, and where the payload lies.
struct InFile {
  uint64_t n;
  tier::disk::AlignedBuffer head{8192};
  tier::FilePlace place;
  [[nodiscard]] bool is_right() const {
    const TestRecord want(n, kBytes, family_of(1));
    const tier::disk::AlignedBuffer got(kBytes);
    const auto bytes = static_cast<ssize_t>(got.size());
    return ::pread(place.fd, got.data(), got.size(), static_cast<off_t>(place.offset)) == bytes &&
           std::memcmp(got.data(), want.memory.data(), kBytes) == 0;
  }
};

std::vector<InFile> heads_of(RealTier& t, uint64_t first, uint64_t count) {
  std::vector<InFile> out(count);
  auto batch = std::make_unique<tier::GetBatch>();
  for (uint64_t i = 0; i < count; ++i) {
    out[i].n = first + i;
    tier::GetItem item;
    item.id = t.id(first + i);
    item.head = out[i].head.span();
    batch->items.push_back(std::move(item));
  }
  batch->accepts.verifies = batch->accepts.files = true;
  std::promise<void> done;
  batch->done = [&](tier::GetBatch& b) {
    for (uint64_t i = 0; i < count; ++i) {
      if (b.status[i] == Code::ok) out[i].place = std::move(b.items[i].file);
    }
    done.set_value();
  };
  t.tier->get(std::move(batch));
  done.get_future().wait();
  return out;
}

TEST(DiskTierReal, what_is_read_past_the_tier_stays_until_it_is_let_go_of) {
  const TempDir dir;
  RealTier t(dir.path() + "/tier");
  ASSERT_TRUE(t.open().ok());
  if (!t.tier->reads_from_files()) GTEST_SKIP() << "no direct I/O in " << dir.path();
  // Holds a read lease on some blocks in every segment.
  for (uint64_t n = 1; n <= 200; n += 20) (void)t.put(n, 20, true);
  std::vector<InFile> held = heads_of(t, 1, 200);
  for (const InFile& one : held) ASSERT_TRUE(one.place.fd >= 0 && one.is_right()) << one.n;
  auto putting = std::async(std::launch::async, [&t] {
    std::vector<Code> all;
    for (uint64_t n = 1001; n <= 1600; n += 20) {
      for (const Code code : t.put(n, 20, false)) all.push_back(code);
    }
    return all;
  });
  while (t.tier->stats().evicted == 0) std::this_thread::yield();  // a segment is to be used again
  for (const InFile& one : held) ASSERT_TRUE(one.is_right()) << one.n;
  held.clear();
  for (const Code code : putting.get()) EXPECT_EQ(code, Code::ok);
  // The tier is not closed before the lease ends, either.
  held = heads_of(t, 1600, 1);
  ASSERT_GE(held[0].place.fd, 0);
  std::atomic<bool> released{false};
  std::promise<bool> closed;
  t.tier->shutdown([&] { closed.set_value(released.load()); });
  EXPECT_TRUE(held[0].is_right());
  released.store(true);
  held.clear();
  EXPECT_TRUE(closed.get_future().get());
  t.tier.reset();
}

TEST(DiskTierReal, a_killed_owner_leaves_everything_it_acknowledged) {
  for (int round = 0; round < 10; ++round) {
    const TempDir dir;
    int acknowledged[2];
    ASSERT_EQ(pipe(acknowledged), 0);
    const pid_t child = fork();
    if (child == 0) {
      RealTier t(dir.path() + "/tier");
      if (!t.open().ok()) _exit(2);
      for (uint64_t n = 1;; n += 4) {
        for (const Code code : t.put(n, 4, false)) {
          if (code != Code::ok) _exit(3);
        }
        if (write(acknowledged[1], &n, sizeof n) != sizeof n) _exit(4);
        if (n > 200) pause();
      }
    }
    close(acknowledged[1]);
    uint64_t last = 0;
    for (int i = 0; i <= round * 4; ++i) ASSERT_EQ(read(acknowledged[0], &last, sizeof last), 8) << round;
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    while (read(acknowledged[0], &last, sizeof last) == 8) {
    }
    close(acknowledged[0]);
    RealTier t(dir.path() + "/tier");
    const Status opened = t.open();
    ASSERT_TRUE(opened.ok()) << opened.message();
    for (uint64_t n = 1; n < last + 4; ++n) ASSERT_EQ(t.get(n), Code::ok) << "round " << round << " record " << n;
  }
}

}  // namespace
}  // namespace kvbm::test::disk_tier_test

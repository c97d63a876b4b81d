// Fails every I/O of a disk tier once. A fixed life on the simulated disk (open, put, get, reclaim, close, open again)
// is run once for each operation of each kind, with that one failing. In every case each batch completes with a code,
// no get returns wrong bytes, and afterwards the directory opens again and works.
//
// KVBMTEST_LONG=1 tries every site; without it a slice of them is tried, in a few seconds.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/counts.h"
#include "support/disk_world.h"

namespace kvbm::test::io_test {
namespace {

constexpr uint64_t kRecordBytes = 40'000;
constexpr uint64_t kRecords = 60;
constexpr uint64_t kSeed = 11;

struct Kind {
  SimDisk::Op op;
  Code code;
  const char* name;
};
constexpr Kind kKinds[] = {
    {SimDisk::Op::read, Code::io_error, "read error"},
    {SimDisk::Op::write, Code::io_error, "write error"},
    {SimDisk::Op::write, Code::disk_full, "write, no space"},
    {SimDisk::Op::sync, Code::io_error, "sync error"},
    {SimDisk::Op::allocate, Code::io_error, "allocate error"},
    {SimDisk::Op::allocate, Code::disk_full, "allocate, no space"},
    {SimDisk::Op::open, Code::io_error, "open error"},
    {SimDisk::Op::remove, Code::io_error, "remove error"},
    {SimDisk::Op::rename, Code::io_error, "rename error"},
    {SimDisk::Op::list, Code::io_error, "list error"},
    {SimDisk::Op::directory_sync, Code::io_error, "directory sync error"},
};

// Reads all records and checks those that are found. Returns their number.
uint64_t look(DiskWorld& world) {
  uint64_t came = 0;
  for (uint64_t n = 1; n <= kRecords; ++n) {
    const DiskWorld::Got got = world.get_now(n, kRecordBytes);
    if (got.code != Code::ok) continue;
    EXPECT_TRUE(got.right) << "record " << n << " came back wrong";
    ++came;
  }
  return came;
}

// Runs the life that meets the fault. It writes more than fits, so that segments are reclaimed.
void live(DiskWorld& world) {
  if (!world.open().ok()) return;
  for (uint64_t n = 1; n <= kRecords; ++n) {
    const Code code = world.put_now(n, kRecordBytes, n % 8 == 0);
    EXPECT_NE(code, Code::internal) << "record " << n;
  }
  look(world);
  EXPECT_TRUE(world.close());
  if (!world.open().ok()) return;
  look(world);
  EXPECT_TRUE(world.close());
}

// Checks that without faults the directory opens and stores and returns records, whatever happened to it before. The
// only permitted failure is a refusal, with a message, of a superblock that was never written whole.
void works_again(DiskWorld& world, bool may_be_refused) {
  world.tier.reset();
  const Status opened = world.open();
  if (!opened.ok() && may_be_refused) return;
  ASSERT_TRUE(opened.ok()) << opened.message();
  look(world);
  EXPECT_EQ(world.put_now(1000, kRecordBytes), Code::ok);
  const DiskWorld::Got got = world.get_now(1000, kRecordBytes);
  EXPECT_EQ(got.code, Code::ok);
  EXPECT_TRUE(got.right);
  EXPECT_TRUE(world.close());
}

bool all_sites() { return std::getenv("KVBMTEST_LONG") != nullptr; }

TEST(IoFaults, no_operation_that_fails_once_loses_a_batch_gives_wrong_bytes_or_spoils_the_directory) {
  DiskWorld plain(kSeed);
  live(plain);
  uint64_t tried = 0;
  uint64_t sites = 0;
  for (const Kind& kind : kKinds) {
    const uint64_t n = plain.disk.count(kind.op);
    const uint64_t step = all_sites() ? 1 : std::max<uint64_t>(1, n / 12);
    sites += n;
    for (uint64_t site = 1; site <= n && !::testing::Test::HasFailure(); site += step) {
      SCOPED_TRACE(std::string(kind.name) + " number " + std::to_string(site));
      DiskWorld world(kSeed);
      world.disk.fail_nth(kind.op, site, kind.code);
      live(world);
      world.disk.fail_nth(kind.op, 0);
      works_again(world, false);
      ++tried;
    }
  }
  counted(tried, "faults at sites of I/O");
  std::printf("%llu of %llu failures\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(sites));
  EXPECT_GT(tried, 50U);
}

// Silent faults of a disk have no number to fail at. The chance is set so that about one operation meets the fault, and
// the seeds spread it over the life.
TEST(IoFaults, no_silent_fault_gives_wrong_bytes_or_spoils_the_directory) {
  const uint64_t seeds = all_sites() ? 300 : 12;
  double SimDisk::Faults::*const kSilent[] = {&SimDisk::Faults::flip_on_read, &SimDisk::Faults::short_read,
                                              &SimDisk::Faults::flip_at_rest, &SimDisk::Faults::lost_write,
                                              &SimDisk::Faults::misdirected_write};
  uint64_t came = 0;
  for (size_t kind = 0; kind < std::size(kSilent); ++kind) {
    for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE("kind " + std::to_string(kind) + " seed " + std::to_string(seed));
      DiskWorld world(seed);
      ASSERT_TRUE(world.open().ok());
      world.disk.faults.*kSilent[kind] = 0.02;
      for (uint64_t n = 1; n <= kRecords; ++n) (void)world.put_now(n, kRecordBytes, n % 8 == 0);
      came += look(world);
      EXPECT_TRUE(world.close());
      world.disk.faults = {};
      works_again(world, true);
    }
  }
  counted(seeds * std::size(kSilent), "seeds");
  std::printf("%llu seeds of each kind, %llu records came back right\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(came));
  EXPECT_GT(came, seeds * 100);
}

}  // namespace
}  // namespace kvbm::test::io_test

#include "support/sim_disk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace kvbm::test::sim_disk_test {
namespace {

std::vector<std::byte> filled(size_t bytes, int value) { return std::vector<std::byte>(bytes, std::byte(value)); }

std::unique_ptr<Directory> open_tier(SimDisk& disk) { return std::move(disk.open_directory("/tier", true)).value(); }
std::unique_ptr<File> open_file(Directory& dir, OpenMode mode = OpenMode::create, bool direct = false) {
  auto opened = dir.open("f", mode, direct);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return std::move(opened).value();
}
Status write(SimExecutor& sim, File& file, uint64_t offset, std::vector<std::byte>& data) {
  Status out(Code::internal, "not run");
  bool ended = false;
  const IoRun run{data.data(), data.size()};
  file.write(offset, {&run, 1}, [&](Result<size_t> r) {
    out = r.status();
    ended = true;
  });
  EXPECT_TRUE(sim.run_until([&] { return ended; }));
  return out;
}

TEST(SimExecutor, one_seed_gives_one_log_and_another_seed_another) {
  auto run = [](uint64_t seed) {
    SimExecutor sim(seed);
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) sim.post([&order, i] { order.push_back(i); });
    sim.run();
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 20u);
    return std::pair(sim.log_hash(), order);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1).first, run(2).first);
  EXPECT_NE(run(1).second, run(2).second);
}

TEST(SimExecutor, the_clock_jumps_to_the_next_timer_and_stands_still_otherwise) {
  SimExecutor sim(1);
  const uint64_t start = sim.clock().now_ns();
  std::vector<uint64_t> at;
  sim.post_at(start + 500, [&] { at.push_back(sim.clock().now_ns() - start); });
  sim.post_at(start + 100, [&] {
    at.push_back(sim.clock().now_ns() - start);
    sim.post([&] { at.push_back(sim.clock().now_ns() - start); });
  });
  EXPECT_EQ(sim.run(), 3u);
  EXPECT_EQ(at, (std::vector<uint64_t>{100, 100, 500}));
  EXPECT_FALSE(sim.step());
}

TEST(SimDisk, gives_back_what_was_written_and_zeros_between) {
  SimExecutor sim(1);
  SimDisk disk(sim);
  auto dir = open_tier(disk);
  auto file = open_file(*dir);
  auto data = filled(5000, 7);
  ASSERT_TRUE(write(sim, *file, 100'000, data).ok());
  std::vector<std::byte> back(6000);
  EXPECT_EQ(file->read_now(99'500, back).value(), 5500u);
  EXPECT_EQ(back[499], std::byte{0});
  EXPECT_EQ(back[500], std::byte{7});
  EXPECT_EQ(back[5499], std::byte{7});
  EXPECT_EQ(dir->list().value(), std::vector<std::string>{"f"});
}

TEST(SimDisk, crash_keeps_completed_writes_and_closes_what_was_open) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimExecutor sim(seed);
    SimDisk disk(sim);
    auto dir = open_tier(disk);
    auto lock = dir->lock();
    auto file = open_file(*dir);
    auto data = filled(8192, 1);
    ASSERT_TRUE(write(sim, *file, 0, data).ok());
    auto later = filled(8192, 2);
    const IoRun run{later.data(), later.size()};
    bool told = false;
    file->write(8192, {&run, 1}, [&](Result<size_t>) { told = true; });
    disk.crash();
    sim.run();
    EXPECT_FALSE(told);
    std::vector<std::byte> one(1);
    EXPECT_EQ(file->read_now(0, one).status().code(), Code::closed);
    auto again = open_tier(disk);
    EXPECT_TRUE(again->lock().ok());
    const auto bytes = disk.content("/tier", "f").value();
    EXPECT_TRUE(std::equal(data.begin(), data.end(), bytes.begin()));
  }
}

TEST(SimDisk, power_cut_keeps_what_was_synced_and_mixes_the_rest) {
  bool kept = false;
  bool dropped = false;
  bool torn = false;
  bool undone = false;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimExecutor sim(seed);
    SimDisk disk(sim);
    auto dir = open_tier(disk);
    auto file = open_file(*dir);
    auto first = filled(8192, 1);
    ASSERT_TRUE(write(sim, *file, 0, first).ok());
    ASSERT_TRUE(file->sync_now().ok());
    ASSERT_TRUE(dir->sync().ok());
    auto second = filled(4096, 2);
    ASSERT_TRUE(write(sim, *file, 4096, second).ok());
    ASSERT_TRUE(dir->open("later", OpenMode::create, false).ok());
    disk.power_cut();
    const auto bytes = disk.content("/tier", "f").value();
    ASSERT_EQ(bytes.size(), 8192u);
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(bytes[i], std::byte{1});
    const bool has_old = std::count(bytes.begin() + 4096, bytes.end(), std::byte{1}) > 0;
    const bool has_new = std::count(bytes.begin() + 4096, bytes.end(), std::byte{2}) > 0;
    kept |= has_new && !has_old;
    dropped |= has_old && !has_new;
    torn |= has_old && has_new;
    undone |= !disk.content("/tier", "later").has_value();
  }
  EXPECT_TRUE(kept && dropped && torn && undone);
}

TEST(SimDisk, a_sync_covers_only_the_writes_completed_before_it_began) {
  bool lost = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimExecutor sim(seed);
    SimDisk disk(sim);
    auto dir = open_tier(disk);
    ASSERT_TRUE(dir->sync().ok());
    auto file = open_file(*dir);
    ASSERT_TRUE(dir->sync().ok());
    auto before = filled(4096, 1);
    ASSERT_TRUE(write(sim, *file, 0, before).ok());
    bool synced = false;
    file->sync([&](Status s) { synced = s.ok(); });
    auto after = filled(4096, 2);
    ASSERT_TRUE(file->write_now(0, after).ok());
    ASSERT_TRUE(sim.run_until([&] { return synced; }));
    disk.power_cut();
    const auto bytes = disk.content("/tier", "f").value();
    ASSERT_EQ(bytes.size(), 4096u);
    for (std::byte b : bytes) ASSERT_NE(b, std::byte{0});
    lost |= bytes[0] == std::byte{1};
  }
  EXPECT_TRUE(lost);
}

TEST(SimDisk, every_fault_does_what_it_says) {
  SimExecutor sim(5);
  SimDisk disk(sim);
  auto dir = open_tier(disk);
  auto file = open_file(*dir);
  auto data = filled(65536, 9);
  ASSERT_TRUE(write(sim, *file, 0, data).ok());
  std::vector<std::byte> back(65536);
  auto wrong = [&] { return std::count_if(back.begin(), back.end(), [](std::byte b) { return b != std::byte{9}; }); };

  disk.faults.read_error = 1;
  EXPECT_EQ(file->read_now(0, back).status().code(), Code::io_error);
  disk.faults = {};
  disk.faults.short_read = 1;
  EXPECT_LT(file->read_now(0, back).value(), 65536u);
  disk.faults = {};
  disk.faults.flip_on_read = 1;
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 1);
  disk.faults = {};
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 0);

  auto page = filled(4096, 8);
  disk.faults.lost_write = 1;
  ASSERT_TRUE(write(sim, *file, 0, page).ok());
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 0);
  disk.faults = {};
  disk.faults.misdirected_write = 1;
  ASSERT_TRUE(write(sim, *file, 4096, page).ok());
  disk.faults = {};
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 4096);
  EXPECT_EQ(back[4096], std::byte{9});
  ASSERT_TRUE(write(sim, *file, 0, data).ok());
  disk.faults.flip_at_rest = 1;
  auto same = filled(4096, 9);
  ASSERT_TRUE(write(sim, *file, 0, same).ok());
  disk.faults = {};
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 1);
  ASSERT_TRUE(disk.flip_bit("/tier", "f", 8 * 40000));
  ASSERT_TRUE(file->read_now(0, back).ok());
  EXPECT_EQ(wrong(), 2);
  disk.faults.write_error = 1;
  EXPECT_EQ(file->write_now(0, page).code(), Code::io_error);
  disk.faults = {};
  disk.faults.write_full = 1;
  EXPECT_EQ(file->write_now(0, page).code(), Code::disk_full);
  disk.faults = {};
  disk.faults.sync_error = 1;
  EXPECT_EQ(file->sync_now().code(), Code::io_error);
}

TEST(SimDisk, fails_exactly_the_nth_operation_and_counts_them) {
  SimExecutor sim(1);
  SimDisk disk(sim);
  auto dir = open_tier(disk);
  auto file = open_file(*dir);
  auto page = filled(4096, 1);
  disk.fail_nth(SimDisk::Op::write, 2, Code::disk_full);
  EXPECT_TRUE(write(sim, *file, 0, page).ok());
  EXPECT_EQ(write(sim, *file, 0, page).code(), Code::disk_full);
  EXPECT_TRUE(write(sim, *file, 0, page).ok());
  EXPECT_EQ(disk.count(SimDisk::Op::write), 3u);
}

TEST(SimDisk, is_full_at_its_capacity_and_removal_gives_room) {
  SimExecutor sim(1);
  SimDisk disk(sim, 64 << 10);
  auto dir = open_tier(disk);
  auto file = open_file(*dir);
  ASSERT_TRUE(file->allocate(60 << 10).ok());
  EXPECT_EQ(dir->free_bytes().value(), 4096u);
  auto big = filled(8192, 1);
  EXPECT_TRUE(write(sim, *file, 0, big).ok());
  EXPECT_EQ(write(sim, *file, 60 << 10, big).code(), Code::disk_full);
  EXPECT_EQ(file->allocate(128 << 10).code(), Code::disk_full);
  ASSERT_TRUE(dir->remove("f").ok());
  EXPECT_EQ(disk.used(), 0u);
}

TEST(SimDisk, refuses_unaligned_direct_io_read_only_writes_and_missing_files) {
  SimExecutor sim(1);
  SimDisk disk(sim);
  auto dir = open_tier(disk);
  EXPECT_EQ(dir->open("f", OpenMode::read_write, false).status().code(), Code::miss);
  EXPECT_EQ(disk.open_directory("/none", false).status().code(), Code::miss);
  auto file = open_file(*dir, OpenMode::create, true);
  auto odd = filled(100, 1);
  EXPECT_EQ(write(sim, *file, 0, odd).code(), Code::io_error);
  auto reader = open_file(*dir, OpenMode::read_only);
  EXPECT_EQ(write(sim, *reader, 0, odd).code(), Code::io_error);
}

TEST(SimDisk, one_seed_gives_one_disk) {
  auto run = [](uint64_t seed) {
    SimExecutor sim(seed);
    SimDisk disk(sim);
    disk.faults.misdirected_write = 0.1;
    disk.faults.flip_at_rest = 0.1;
    auto dir = open_tier(disk);
    auto file = open_file(*dir);
    auto data = filled(4096, 3);
    const IoRun run_{data.data(), data.size()};
    for (uint64_t i = 0; i < 32; ++i) file->write(i * 4096, {&run_, 1}, [](Result<size_t>) {});
    for (int i = 0; i < 16; ++i) sim.step();
    if (!dir->sync().ok()) return std::pair(uint64_t{0}, std::vector<std::byte>{});
    disk.power_cut();
    return std::pair(sim.log_hash(), disk.content("/tier", "f").value());
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace kvbm::test::sim_disk_test

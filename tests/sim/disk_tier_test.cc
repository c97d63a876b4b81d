// The disk tier under a seed: random load, faults, kills and power cuts. Never a wrong byte.
#include <gtest/gtest.h>

#include "support/disk_world.h"

namespace kvbm::test::disk_tier_test {
namespace {

constexpr uint64_t kBytes = 12000;

struct Memory {
  std::set<uint64_t> acknowledged, durable;
};

// Puts random batches and gets some back. Returns the acknowledged records.
void load(DiskWorld& w, uint64_t first, uint64_t batches, bool wait, Memory& memory,
          std::vector<std::unique_ptr<std::vector<Code>>>& results, std::vector<std::vector<uint64_t>>& asked,
          std::vector<bool>& durable) {
  for (uint64_t b = 0; b < batches; ++b) {
    std::vector<uint64_t> numbers;
    const uint64_t n = 1 + w.sim.random().below(6);
    for (uint64_t i = 0; i < n; ++i) numbers.push_back(first + b * 8 + i);
    results.push_back(std::make_unique<std::vector<Code>>());
    asked.push_back(numbers);
    durable.push_back(w.sim.random().below(2) == 0);
    w.put(numbers, kBytes, durable.back(), results.back().get());
    for (uint64_t s = w.sim.random().below(30); s > 0; --s) w.sim.step();
  }
  if (wait) w.sim.run();
  for (size_t b = 0; b < asked.size(); ++b) {
    for (size_t i = 0; i < results[b]->size(); ++i) {
      if ((*results[b])[i] != Code::ok) continue;
      memory.acknowledged.insert(asked[b][i]);
      if (durable[b]) memory.durable.insert(asked[b][i]);
    }
  }
}

struct Outcome {
  uint64_t wrong = 0, lost = 0, lost_durable = 0, found = 0, log = 0;
};

Outcome cut_once(uint64_t seed, bool power) {
  // Segments are small, so that many are made together and their headers are written at the same time.
  DiskWorld w(seed, uint64_t{8} << 20, seed % 2 == 0 ? 64 << 10 : 256 << 10);
  EXPECT_TRUE(w.open().ok());
  Outcome out;
  uint64_t first = 1;
  for (int round = 0; round < 2; ++round, first += 1000) {
    Memory memory;
    std::vector<std::unique_ptr<std::vector<Code>>> results;
    std::vector<std::vector<uint64_t>> asked;
    std::vector<bool> durable;
    load(w, first, 20, false, memory, results, asked, durable);
    if (power)
      w.power_cut();
    else
      w.crash();
    EXPECT_TRUE(w.open().ok()) << "seed " << seed;
    for (const auto& numbers : asked) {
      for (const uint64_t n : numbers) {
        const auto got = w.get_now(n, kBytes);
        if (got.code == Code::ok && !got.right) ++out.wrong;
        if (got.code == Code::ok) ++out.found;
        if (got.code == Code::ok || !memory.acknowledged.contains(n)) continue;
        ++out.lost;
        if (memory.durable.contains(n)) ++out.lost_durable;
      }
    }
  }
  out.log = w.sim.log_hash();
  return out;
}

TEST(DiskTierCrash, a_killed_process_loses_nothing_that_was_acknowledged) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Outcome o = cut_once(seed, false);
    ASSERT_EQ(o.wrong, 0U) << "seed " << seed;
    ASSERT_EQ(o.lost, 0U) << "seed " << seed;
    found += o.found;
  }
  EXPECT_GT(found, 1000U);
}

TEST(DiskTierCrash, a_power_cut_loses_nothing_that_was_acknowledged_durable) {
  uint64_t found = 0;
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Outcome o = cut_once(seed, true);
    ASSERT_EQ(o.wrong, 0U) << "seed " << seed;
    ASSERT_EQ(o.lost_durable, 0U) << "seed " << seed;
    found += o.found;
    lost += o.lost;
  }
  EXPECT_GT(found, 1000U);
  EXPECT_GT(lost, 0U) << "the simulation cuts nothing";
}

TEST(DiskTierCrash, a_seed_run_twice_gives_the_same_log) {
  for (uint64_t seed = 1; seed <= 5; ++seed) EXPECT_EQ(cut_once(seed, true).log, cut_once(seed, true).log);
}

// A disk with syncs that fail now and then: such a sync loses the data it should have written, and later syncs
// succeed.
struct SyncedOutcome {
  uint64_t promised = 0, lost = 0, wrong = 0, failed = 0;
};

SyncedOutcome sync_and_cut(uint64_t seed) {
  DiskWorld w(seed, uint64_t{8} << 20, seed % 2 == 0 ? 64 << 10 : 256 << 10);
  EXPECT_TRUE(w.open().ok());
  w.disk.faults.sync_error = seed % 3 == 0 ? 0 : 0.15;
  SyncedOutcome out;
  std::set<uint64_t> put, promised;
  for (uint64_t n = 1; n <= 120; ++n) {
    if (w.put_now(n, kBytes, w.sim.random().below(8) == 0) == Code::ok) put.insert(n);
    if (w.sim.random().below(6) != 0) continue;
    std::set<uint64_t> here;
    for (const uint64_t m : put) {
      if (w.present(m)) here.insert(m);
    }
    Code code = Code::again;
    w.tier->sync([&code](const Status& status) { code = status.code(); });
    // Two more records are stored while the sync runs.
    std::vector<Code> beside;
    w.put({1000 + n, 2000 + n}, kBytes, false, &beside);
    w.sim.run_until([&] { return code != Code::again && !beside.empty(); });
    if (code == Code::ok)
      promised = here;
    else
      ++out.failed;
    // A failed sync may have lost these records. If so, they are not found, now and later.
    std::erase_if(promised, [&](uint64_t m) { return !w.present(m); });
  }
  w.disk.faults.sync_error = 0;
  std::erase_if(promised, [&](uint64_t m) { return !w.present(m); });
  w.power_cut();
  EXPECT_TRUE(w.open().ok()) << "seed " << seed;
  out.promised = promised.size();
  for (uint64_t n = 1; n <= 2120; ++n) {
    const auto got = w.get_now(n, kBytes);
    if (got.code == Code::ok && !got.right) ++out.wrong;
    if (got.code != Code::ok && promised.contains(n)) ++out.lost;
  }
  return out;
}

TEST(DiskTierSync, what_was_synced_survives_a_power_cut_on_a_disk_that_forgets_after_a_failed_sync) {
  SyncedOutcome all;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const SyncedOutcome o = sync_and_cut(seed);
    ASSERT_EQ(o.lost, 0U) << "seed " << seed;
    ASSERT_EQ(o.wrong, 0U) << "seed " << seed;
    all.promised += o.promised;
    all.failed += o.failed;
  }
  EXPECT_GT(all.promised, 1000U);
  EXPECT_GT(all.failed, 20U);
}

TEST(DiskTierSync, a_failed_sync_takes_along_what_was_written_since_the_last_good_one) {
  DiskWorld w(5, uint64_t{4} << 20, 1 << 20);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 3; ++n) ASSERT_EQ(w.put_now(n, kBytes, n == 3), Code::ok);
  for (uint64_t n = 4; n <= 6; ++n) ASSERT_EQ(w.put_now(n, kBytes), Code::ok);
  w.disk.fail_nth(SimDisk::Op::sync, 1);
  EXPECT_EQ(w.put_now(7, kBytes, true), Code::io_error);
  for (uint64_t n = 1; n <= 7; ++n) EXPECT_EQ(w.present(n), n <= 3) << n;
  EXPECT_EQ(w.removals.evictions, 4U) << "those that are told of it";
  // A record that is stored again goes to another segment and reads back with its own bytes.
  for (uint64_t n = 4; n <= 7; ++n) ASSERT_EQ(w.put_now(n, kBytes, true), Code::ok);
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 7; ++n) EXPECT_TRUE(w.get_now(n, kBytes).right) << n;
}

TEST(DiskTierSync, a_durable_put_of_what_is_there_already_syncs_it) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    DiskWorld w(seed);
    ASSERT_TRUE(w.open().ok());
    ASSERT_EQ(w.put_now(1, kBytes), Code::ok);
    ASSERT_EQ(w.put_now(1, kBytes, true), Code::ok);
    w.power_cut();
    ASSERT_TRUE(w.open().ok());
    EXPECT_TRUE(w.get_now(1, kBytes).right) << seed;
  }
}

TEST(DiskTierSync, what_reclaim_carries_survives_a_power_cut_as_it_did_before) {
  uint64_t held = 0;
  uint64_t carried = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    DiskWorld w(seed, uint64_t{1} << 20, 64 << 10);
    ASSERT_TRUE(w.open().ok());
    // Each segment has one record in use beside others that are not.
    constexpr uint64_t kUsed = 3;
    const auto used = [](uint64_t i) { return 1 + 3 * i; };
    for (uint64_t n = 1; n <= 3 * kUsed; ++n) ASSERT_EQ(w.put_now(n, kBytes, true), Code::ok);
    const uint64_t fill = 60 + w.sim.random().below(120);
    for (uint64_t n = 0; n < fill; ++n) {
      for (uint64_t i = 0; n % 12 == 0 && i < kUsed; ++i) {
        tier::Found found;
        const Identity id = w.id(used(i));
        for (int k = 0; k < 4; ++k) w.tier->find({&id, 1}, {&found, 1}, true);
      }
      std::vector<Code> codes;
      w.put({100 + n}, kBytes, false, &codes);
      w.sim.run_until([&] { return !codes.empty(); });
    }
    carried += w.tier->stats().rewritten_bytes;
    std::set<uint64_t> here;
    for (uint64_t i = 0; i < kUsed; ++i) {
      if (w.present(used(i))) here.insert(used(i));
    }
    held += here.size();
    w.power_cut();
    ASSERT_TRUE(w.open().ok());
    for (const uint64_t n : here) ASSERT_TRUE(w.present(n)) << "seed " << seed << ", record " << n;
    // Reclaim runs meanwhile and may evict one.
    for (const uint64_t n : here) {
      const auto got = w.get_now(n, kBytes);
      ASSERT_TRUE(got.right || got.code == Code::miss) << "seed " << seed << ", record " << n;
    }
  }
  EXPECT_GT(held, 60U);
  EXPECT_GT(carried, uint64_t{60} * kBytes) << "nothing was carried";
}

TEST(DiskTierFaults, random_load_with_faults_never_gives_wrong_bytes) {
  uint64_t right = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    DiskWorld w(seed);
    ASSERT_TRUE(w.open().ok());
    w.disk.faults.read_error = 0.01;
    w.disk.faults.write_error = 0.02;
    w.disk.faults.write_full = 0.01;
    w.disk.faults.flip_on_read = 0.02;
    w.disk.faults.flip_at_rest = 0.02;
    w.disk.faults.misdirected_write = 0.01;
    w.disk.faults.lost_write = 0.01;
    w.disk.faults.short_read = 0.01;
    for (uint64_t step = 0; step < 300; ++step) {
      const uint64_t n = 1 + w.sim.random().below(200);
      if (w.sim.random().below(2) == 0) {
        (void)w.put_now(n, kBytes, w.sim.random().below(4) == 0);
        continue;
      }
      const auto got = w.get_now(n, kBytes);
      if (got.code == Code::ok) {
        ASSERT_TRUE(got.right) << "seed " << seed << " step " << step;
        ++right;
      }
      ASSERT_LE(w.disk.used(), w.options.capacity_bytes);
    }
  }
  EXPECT_GT(right, 500U);
}

TEST(DiskTierFaults, every_write_failing_once_loses_nothing) {
  for (const Code code : {Code::io_error, Code::disk_full}) {
    for (uint64_t nth = 1; nth <= 40; ++nth) {
      DiskWorld w(nth);
      ASSERT_TRUE(w.open().ok());
      w.disk.fail_nth(SimDisk::Op::write, nth, code);
      for (uint64_t n = 1; n <= 40; ++n) ASSERT_EQ(w.put_now(n, kBytes), Code::ok) << nth;
      uint64_t held = 0;
      for (uint64_t n = 1; n <= 40; ++n) held += w.get_now(n, kBytes).right ? 1 : 0;
      // A segment that could not be made is an eviction, not a loss.
      ASSERT_EQ(held + w.removals.evictions, 40U) << nth;
    }
  }
}

TEST(DiskTierFaults, every_operation_failing_once_is_survived) {
  using Op = SimDisk::Op;
  for (const Op op : {Op::read, Op::write, Op::sync, Op::allocate, Op::open, Op::list, Op::directory_sync}) {
    for (uint64_t nth = 1; nth <= 25; ++nth) {
      DiskWorld w(nth);
      w.disk.fail_nth(op, nth);
      ASSERT_TRUE(w.open().ok() || w.open().ok()) << static_cast<int>(op) << " " << nth;
      for (uint64_t n = 1; n <= 300; ++n) {
        (void)w.put_now(n, kBytes, true);
        const auto got = w.get_now(n, kBytes);
        ASSERT_TRUE(got.code != Code::ok || got.right);
      }
      w.crash();
      w.disk.fail_nth(op, 1 + nth % 7);
      ASSERT_TRUE(w.open().ok() || w.open().ok()) << static_cast<int>(op) << " " << nth;
      for (uint64_t n = 200; n <= 300; ++n) {
        const auto got = w.get_now(n, kBytes);
        ASSERT_TRUE(got.code != Code::ok || got.right);
      }
    }
  }
}

TEST(DiskTierFaults, every_bit_flip_is_a_miss_or_harmless) {
  DiskWorld w(77, uint64_t{2} << 20);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 30; ++n) ASSERT_EQ(w.put_now(n, kBytes, true), Code::ok);
  SeededRandom random(77);
  uint64_t damaged = 0;
  for (int flip = 0; flip < 10'000; ++flip) {
    const std::string name = "segment-00000" + std::to_string(1 + random.below(3)) + ".kv";
    const uint64_t bit = random.below(uint64_t{256} * 1024 * 8);
    ASSERT_TRUE(w.disk.flip_bit("/tier", name, bit));
    const bool reopen = flip % 200 == 0;
    if (reopen) {
      w.crash();
      ASSERT_TRUE(w.open().ok());
    }
    for (uint64_t k = 0; k < (reopen ? 30 : 1); ++k) {
      const uint64_t n = 1 + (reopen ? k : random.below(30));
      const auto got = w.get_now(n, kBytes);
      ASSERT_TRUE(got.code != Code::ok || got.right) << flip;
      if (got.code == Code::damaged) ++damaged;
      if (got.code != Code::ok) (void)w.put_now(n, kBytes, true);
    }
  }
  EXPECT_GT(damaged, 100U);
}

TEST(DiskTierSim, every_put_ends_when_the_disk_fails_for_good) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    DiskWorld w(seed, uint64_t{32} << 20, uint64_t{4} << 20);
    ASSERT_TRUE(w.open().ok());
    ASSERT_EQ(w.put_now(1, kBytes), Code::ok);
    w.disk.faults.write_error = 1;
    std::vector<std::vector<Code>> results(60);
    for (uint64_t i = 0; i < results.size(); ++i) w.put({1000 + 8 * i, 1001 + 8 * i}, 200'000, false, &results[i]);
    w.sim.run();
    EXPECT_EQ(w.removals.disables, 1U);
    for (const auto& codes : results) EXPECT_EQ(codes.size(), 2U) << "a put never ended, seed " << seed;
    EXPECT_TRUE(w.close()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvbm::test::disk_tier_test

#include "tier/disk/disk_tier.h"

#include <optional>

#include "policy/hints.h"
#include "support/disk_world.h"
#include "tier/disk/segment_format.h"
#include "tier/disk/superblock.h"

namespace kvbm::test::disk_tier_test {
namespace {

TEST(DiskTier, gives_back_what_was_put) {
  DiskWorld w(1);
  ASSERT_TRUE(w.open().ok());
  for (const uint64_t bytes : std::vector<uint64_t>{0, 1, 4096, 5000, 65536, 100000, 200000}) {
    ASSERT_EQ(w.put_now(bytes + 1, bytes), Code::ok) << bytes;
    const auto got = w.get_now(bytes + 1, bytes);
    EXPECT_EQ(got.code, Code::ok) << bytes;
    EXPECT_TRUE(got.right) << bytes;
  }
  EXPECT_EQ(w.get_now(99, 4096).code, Code::miss);
  EXPECT_EQ(w.tier->stats().records, 7U);
}

TEST(DiskTier, puts_a_known_identity_without_writing_it) {
  DiskWorld w(2);
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 4096), Code::ok);
  const uint64_t writes = w.disk.count(SimDisk::Op::write);
  EXPECT_EQ(w.put_now(1, 4096), Code::ok);
  EXPECT_EQ(w.disk.count(SimDisk::Op::write), writes);
}

// One large read brings many records: what of it fails costs the record that lies there, and none beside it.
TEST(DiskTier, a_read_of_many_records_that_fails_costs_none_that_can_be_read) {
  DiskWorld w(1);
  ASSERT_TRUE(w.open().ok());
  const std::vector<uint64_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<Code> codes;
  w.put(numbers, 8192, false, &codes);
  ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
  ASSERT_EQ(codes, std::vector<Code>(8, Code::ok));
  const uint64_t before = w.disk.count(SimDisk::Op::read);
  for (const DiskWorld::Got& got : w.get_together(numbers, 8192)) EXPECT_TRUE(got.code == Code::ok && got.right);
  ASSERT_LT(w.disk.count(SimDisk::Op::read) - before, 8U);  // read together
  w.disk.fail_nth(SimDisk::Op::read, 1);
  for (const DiskWorld::Got& got : w.get_together(numbers, 8192)) EXPECT_TRUE(got.code == Code::ok && got.right);
  EXPECT_EQ(w.tier->stats().damaged, 0U);
  EXPECT_EQ(w.removals.damages, 0U);
}

TEST(DiskTier, a_place_that_stays_unreadable_costs_the_record_there_alone) {
  DiskWorld w(1);
  ASSERT_TRUE(w.open().ok());
  const std::vector<uint64_t> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<Code> codes;
  w.put(numbers, 8192, false, &codes);
  ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
  const uint64_t before = w.disk.count(SimDisk::Op::read);
  w.disk.fail_nth(SimDisk::Op::read, 1);
  const auto got = w.get_together(numbers, 8192, [&] {
    ASSERT_TRUE(w.sim.run_until([&] { return w.disk.count(SimDisk::Op::read) > before; }));
    w.disk.fail_nth(SimDisk::Op::read, 3);  // of the records that are read singly
  });
  size_t failed = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(w.present(numbers[i]), got[i].code == Code::ok);
    const bool ok = got[i].code == Code::ok;
    EXPECT_TRUE(ok ? got[i].right : got[i].code == Code::io_error);
    failed += ok ? 0 : 1;
  }
  EXPECT_EQ(failed, 1U);
  EXPECT_EQ(w.removals.damages, 1U);
}

TEST(DiskTier, stores_a_payload_that_is_not_aligned) {
  DiskWorld w(4);
  ASSERT_TRUE(w.open().ok());
  const TestRecord record(1, 9000, family_of(1));
  std::vector<std::byte> memory(9001);
  std::byte* const odd = memory.data() + (reinterpret_cast<uintptr_t>(memory.data()) % 2 == 0 ? 1 : 0);
  std::memcpy(odd, record.memory.data(), 9000);
  auto batch = std::make_unique<tier::PutBatch>();
  tier::PutItem item;
  item.id = w.id(1);
  item.head = record.head;
  item.payload = ConstBytes(odd, 9000);
  batch->items.push_back(item);
  Code code = Code::internal;
  batch->done = [&](tier::PutBatch& b) { code = b.status[0]; };
  w.tier->put(std::move(batch));
  w.sim.run_until([&] { return code != Code::internal; });
  EXPECT_EQ(code, Code::ok);
  EXPECT_TRUE(w.get_now(1, 9000).right);
}

TEST(DiskTier, finds_everything_after_a_clean_shutdown) {
  DiskWorld w(5);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 60; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  ASSERT_TRUE(w.close());
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 60; ++n) EXPECT_TRUE(w.get_now(n, 8192).right) << n;
}

TEST(DiskTier, keeps_the_files_within_its_capacity_and_evicts) {
  DiskWorld w(6);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 1000; ++n) {
    ASSERT_EQ(w.put_now(n, 8192), Code::ok) << n;
    ASSERT_LE(w.disk.used(), w.options.capacity_bytes);
  }
  const auto stats = w.tier->stats();
  EXPECT_GT(stats.evicted, 600U);
  EXPECT_EQ(stats.evicted, w.removals.evictions);
  EXPECT_LE(stats.used_bytes, w.options.capacity_bytes);
  uint64_t held = 0;
  for (uint64_t n = 1; n <= 1000; ++n) {
    if (!w.present(n)) continue;
    ++held;
    EXPECT_TRUE(w.get_now(n, 8192).right);
  }
  EXPECT_EQ(held, stats.records);
  EXPECT_GT(held, 100U);
}

TEST(DiskTier, says_once_that_its_file_system_is_full_counts_it_and_warns_of_it_when_it_is_opened) {
  DiskWorld w(6);  // 3 MiB
  w.disk.set_capacity(2 << 20);
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.removals.warnings.size(), 1U);
  EXPECT_NE(w.removals.warnings[0].find("less room than its capacity"), std::string::npos) << w.removals.warnings[0];
  for (uint64_t n = 1; n <= 400; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  w.sim.run_for(2'000'000'000);
  for (uint64_t n = 401; n <= 800; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  ASSERT_EQ(w.removals.warnings.size(), 2U);
  const std::string& said = w.removals.warnings[1];
  for (const char* part : {"/tier", "is full", "free space there, or lower the tier's capacity"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << ": " << said;
  }
  const uint64_t times = w.tier->stats().full;
  EXPECT_GE(times, 2U);
  w.disk.set_capacity(UINT64_MAX);
  w.sim.run_for(2'000'000'000);
  for (uint64_t n = 801; n <= 1200; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  EXPECT_EQ(w.tier->stats().full, times);
  EXPECT_EQ(w.removals.warnings.size(), 2U);
}

TEST(DiskTier, makes_segments_ahead_of_their_use_with_one_sync_of_the_directory) {
  DiskWorld w(61, uint64_t{16} << 20, 64 << 10);
  ASSERT_TRUE(w.open().ok());
  const uint64_t files = w.tier->stats().used_bytes;
  const uint64_t synced = w.disk.count(SimDisk::Op::directory_sync);
  ASSERT_EQ(w.put_now(1, 4096), Code::ok);
  w.sim.run();
  const uint64_t ahead = (w.tier->stats().used_bytes - files) / w.options.segment_bytes;
  EXPECT_GE(ahead, 16U);  // an eighth of the capacity, and the three of the beginning
  EXPECT_EQ(w.disk.count(SimDisk::Op::directory_sync), synced + 1);
  // The segments are used in order, and their records are found after a restart.
  for (uint64_t n = 2; n <= 200; ++n) ASSERT_EQ(w.put_now(n, 12000, n % 7 == 0), Code::ok) << n;
  // New segments are made in groups when half of the spare ones are used up; 67 segments were used.
  EXPECT_LE(w.disk.count(SimDisk::Op::directory_sync), synced + 1 + 67 / 16);
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 7; n <= 200; n += 7) EXPECT_TRUE(w.get_now(n, 12000).right) << n;
}

// A kill leaves a segment that was hardly begun: the one that costs least to empty, with what was written last.
TEST(DiskTier, keeps_what_was_written_last_before_a_kill_when_it_makes_room_after_it) {
  for (const uint64_t segments : {3U, 4U, 8U, 16U}) {
    DiskWorld w(63);
    w.options.capacity_bytes = (uint64_t{1} << 20) + segments * w.options.segment_bytes;
    ASSERT_TRUE(w.open().ok());
    uint64_t n = 0;
    while (w.tier->stats().evicted == 0) ASSERT_EQ(w.put_now(++n, 8192), Code::ok);
    for (uint64_t kill = 0; kill < 40; ++kill) {
      const uint64_t last = n + 3 + kill;
      while (n < last) ASSERT_EQ(w.put_now(++n, 8192), Code::ok);
      w.crash();
      ASSERT_TRUE(w.open().ok());
      ASSERT_TRUE(w.present(last));
      for (int i = 0; i < 2; ++i) ASSERT_EQ(w.put_now(++n, 8192), Code::ok);
      for (uint64_t k = last - 2; k <= n; ++k)
        EXPECT_TRUE(w.present(k)) << segments << " segments, kill " << kill << ", block " << k;
    }
  }
}

TEST(DiskTier, carries_used_records_forward) {
  DiskWorld w(7);
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 8192), Code::ok);
  const Identity hot = w.id(1);
  for (uint64_t n = 2; n <= 1000; ++n) {
    ASSERT_EQ(w.put_now(n, 8192), Code::ok);
    tier::Found found;
    w.tier->find({&hot, 1}, {&found, 1}, true);
    ASSERT_TRUE(found.present) << n;
  }
  EXPECT_TRUE(w.get_now(1, 8192).right);
  EXPECT_GT(w.tier->stats().rewritten_bytes, 0U);
}

// The disk gets a block's hint as the host did, and keeps it after a kill.
TEST(DiskTier, carries_what_is_to_be_kept_and_not_what_was_for_once) {
  DiskWorld w(62);
  ASSERT_TRUE(w.open().ok());
  w.priority = policy::kHintKeep;
  ASSERT_EQ(w.put_now(1, 8192), Code::ok);
  w.priority = policy::kHintOneShot;
  ASSERT_EQ(w.put_now(2, 8192), Code::ok);
  w.priority = policy::kHintNormal;
  ASSERT_EQ(w.put_now(3, 8192), Code::ok);
  const Identity once = w.id(2);
  for (uint64_t n = 4; n <= 1000; ++n) {
    if (n == 500) {
      w.crash();
      ASSERT_TRUE(w.open().ok());
    }
    ASSERT_EQ(w.put_now(n, 8192), Code::ok);
    tier::Found found;
    w.tier->find({&once, 1}, {&found, 1}, true);  // in use, as the one that is carried for it
    ASSERT_TRUE(w.present(1)) << n;
  }
  EXPECT_TRUE(w.get_now(1, 8192).right);
  EXPECT_FALSE(w.present(2));
  EXPECT_FALSE(w.present(3));
}

// A later hint counts for stored blocks, and for those that are being written.
TEST(DiskTier, a_hint_counts_for_what_is_there_and_for_what_is_on_its_way) {
  DiskWorld w(63);
  ASSERT_TRUE(w.open().ok());
  w.priority = policy::kHintKeep;
  ASSERT_EQ(w.put_now(1, 8192), Code::ok);
  w.priority = policy::kHintNormal;
  ASSERT_EQ(w.put_now(2, 8192), Code::ok);
  std::vector<Code> codes;
  w.put({3}, 8192, false, &codes);
  const auto say = [&](uint64_t n, uint8_t priority) {
    const Identity id = w.id(n);
    w.tier->hint({&id, 1}, priority);
  };
  say(1, policy::kHintOneShot);
  say(2, policy::kHintKeep);
  say(3, policy::kHintKeep);
  say(77, policy::kHintKeep);
  ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
  for (uint64_t n = 4; n <= 1000; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  EXPECT_FALSE(w.present(1));
  EXPECT_TRUE(w.present(2));
  EXPECT_TRUE(w.present(3));
  EXPECT_FALSE(w.present(77));
}

TEST(DiskTier, refuses_with_no_room_when_everything_is_pinned) {
  DiskWorld w(8);
  ASSERT_TRUE(w.open().ok());
  Code code = Code::ok;
  std::vector<uint64_t> pinned;
  for (uint64_t n = 1; n <= 1000 && code == Code::ok; ++n) {
    code = w.put_now(n, 8192);
    if (code == Code::ok && w.tier->pin(w.id(n))) pinned.push_back(n);
  }
  EXPECT_EQ(code, Code::no_room);
  for (const uint64_t n : pinned) EXPECT_TRUE(w.get_now(n, 8192).right) << n;
  for (const uint64_t n : pinned) w.tier->unpin(w.id(n));
  EXPECT_EQ(w.put_now(5000, 8192), Code::ok);
}

TEST(DiskTier, keeps_pinned_records_under_load_that_reclaims_all_else) {
  DiskWorld w(19);
  ASSERT_TRUE(w.open().ok());
  std::vector<Code> codes;
  for (uint64_t n = 1; n <= 1500; ++n) {
    w.put({n}, 8192, false, &codes);
    if (n % 3 == 0) w.sim.run();
    const Identity id = w.id(n % 100 == 9 ? n - 5 : 4);
    tier::Found found;
    w.tier->find({&id, 1}, {&found, 1}, true);
    if (n == 300 || n == 320) {
      ASSERT_TRUE(w.tier->pin(w.id(4)));
    }
  }
  w.sim.run();
  EXPECT_TRUE(w.get_now(4, 8192).right);
  w.tier->unpin(w.id(4));
  w.tier->unpin(w.id(4));
  EXPECT_GT(w.tier->stats().evicted, 1000U);
}

TEST(DiskTier, forgets_erased_records_and_families_across_a_crash) {
  DiskWorld w(9);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 20; ++n) {
    ASSERT_EQ(w.put_now(n, 4096, true, 1), Code::ok);
    ASSERT_EQ(w.put_now(n, 4096, true, 2), Code::ok);
  }
  const Identity one = w.id(1, 2);
  w.tier->erase({&one, 1});
  EXPECT_FALSE(w.present(1, 2));
  ASSERT_TRUE(w.tier->erase_family(w.id(1, 1).family).ok());
  EXPECT_FALSE(w.present(2, 1));
  ASSERT_EQ(w.put_now(7, 4096, true, 1), Code::ok);  // stored again afterwards: alive
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 20; ++n) EXPECT_EQ(w.present(n, 1), n == 7) << n;
  for (uint64_t n = 2; n <= 20; ++n) EXPECT_TRUE(w.get_now(n, 4096, 2).right) << n;
}

// Heads of small records share pages: four of 4 KiB take five pages, not eight.
TEST(DiskTier, small_records_share_pages_of_heads_and_come_back_one_by_one_and_together) {
  DiskWorld w(34);
  ASSERT_TRUE(w.open().ok());
  std::vector<uint64_t> all;
  for (uint64_t n = 1; n <= 64; ++n) all.push_back(n);
  std::vector<Code> codes;
  w.put(all, 4096, true, &codes);
  ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
  for (const Code code : codes) ASSERT_EQ(code, Code::ok);
  EXPECT_LE(w.tier->stats().put_bytes, 64 * 5 * 1024U);
  const auto check = [&](const char* when) {
    SCOPED_TRACE(when);
    for (const DiskWorld::Got& got : w.get_together(all, 4096)) EXPECT_TRUE(got.code == Code::ok && got.right);
    const std::vector<uint64_t> backwards(all.rbegin(), all.rend());
    for (const DiskWorld::Got& got : w.get_together(backwards, 4096)) EXPECT_TRUE(got.code == Code::ok && got.right);
    for (const uint64_t n : all) {
      const DiskWorld::Got got = w.get_now(n, 4096);
      EXPECT_TRUE(got.code == Code::ok && got.right) << n;
    }
  };
  check("as they were written");
  w.power_cut();  // no footer: each is looked for
  ASSERT_TRUE(w.open().ok());
  check("after a scan");
  ASSERT_TRUE(w.close());
  ASSERT_TRUE(w.open().ok());
  check("by the footer");
}

// A damaged record leaves the records with heads beside its own readable.
TEST(DiskTier, damage_in_a_page_of_heads_costs_the_record_that_it_hits) {
  for (const bool scanned : {false, true}) {
    DiskWorld w(35);
    ASSERT_TRUE(w.open().ok());
    std::vector<Code> codes;
    w.put({1, 2, 3, 4, 5, 6}, 4096, true, &codes);
    ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
    if (scanned)
      w.power_cut();
    else
      ASSERT_TRUE(w.close());
    {
      auto dir = w.disk.open_directory("/tier", false);
      auto file = dir.value()->open("segment-000001.kv", OpenMode::read_write, false);
      tier::disk::AlignedBuffer page(tier::disk::kPage);
      ASSERT_TRUE(file.value()->read_now(tier::disk::kPage, page.span()).ok());
      page.data()[2 * tier::disk::kHeadUnit + 100] ^= std::byte{4};  // the third head
      ASSERT_TRUE(file.value()->write_now(tier::disk::kPage, page.span()).ok());
    }
    ASSERT_TRUE(w.open().ok());
    const auto got = w.get_together({1, 2, 3, 4, 5, 6}, 4096);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(i == 2 ? got[i].code != Code::ok : got[i].code == Code::ok && got[i].right) << i << scanned;
    }
  }
}

// A record that is erased while it waits for its write must not be written with a later life than its tombstone's.
TEST(DiskTier, what_was_forgotten_while_it_waited_stays_forgotten_after_a_crash) {
  DiskWorld w(32);
  w.options.write_bytes_per_s = 100'000;
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 200'000), Code::ok);  // leaves the cap in debt for two seconds
  std::vector<Code> codes;
  w.put({2, 3, 4, 5}, 65536, false, &codes);
  ASSERT_TRUE(w.tier->erase_family(w.id(1, 1).family).ok());
  ASSERT_TRUE(w.sim.run_until([&] { return !codes.empty(); }));
  w.crash();  // no footer: the records are looked for
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 5; ++n) EXPECT_FALSE(w.present(n, 1)) << n;
}

// A later sync that succeeds says nothing of what an earlier one has lost.
TEST(DiskTier, records_under_a_failed_sync_of_the_opening_are_not_said_to_be_durable) {
  uint64_t tried = 0;
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    SCOPED_TRACE(nth);
    DiskWorld w(71);
    ASSERT_TRUE(w.open().ok());
    ASSERT_EQ(w.put_now(1, 8192), Code::ok);
    w.crash();
    const uint64_t before = w.disk.count(SimDisk::Op::sync);
    w.disk.fail_nth(SimDisk::Op::sync, nth);
    if (!w.open().ok()) continue;
    if (w.disk.count(SimDisk::Op::sync) - before < nth) break;  // no opening makes more syncs
    ++tried;
    std::optional<bool> durable;
    w.tier->sync([&](const Status& status) { durable = status.ok(); });
    ASSERT_TRUE(w.sim.run_until([&] { return durable.has_value(); }));
    const bool there = w.present(1);
    w.power_cut();
    ASSERT_TRUE(w.open().ok());
    if (*durable && there) {
      EXPECT_TRUE(w.present(1));
    }
  }
  EXPECT_GT(tried, 0U);
}

TEST(DiskTier, keeps_namespace_epochs_across_a_power_cut_and_refuses_older_ones) {
  DiskWorld w(10);
  ASSERT_TRUE(w.open().ok());
  EXPECT_EQ(w.tier->epoch(namespace_of(3)).value(), 0U);
  ASSERT_TRUE(w.tier->set_epoch(namespace_of(3), 5).ok());
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  EXPECT_EQ(w.tier->epoch(namespace_of(3)).value(), 5U);
  EXPECT_EQ(w.tier->set_epoch(namespace_of(3), 4).code(), Code::invalid_argument);
}

TEST(DiskTier, completes_as_deadline_what_is_still_queued_then) {
  DiskWorld w(11);
  w.options.write_bytes_per_s = 100'000;
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 200000), Code::ok);  // leaves the cap in debt for two seconds
  const TestRecord record(2, 8192, family_of(1));
  auto batch = std::make_unique<tier::PutBatch>();
  tier::PutItem item;
  item.id = w.id(2);
  item.head = record.head;
  item.payload = record.payload();
  batch->items.push_back(item);
  batch->deadline_ns = w.sim.clock().now_ns() + 1'000'000;
  Code code = Code::internal;
  batch->done = [&](tier::PutBatch& b) { code = b.status[0]; };
  w.tier->put(std::move(batch));
  w.sim.run_until([&] { return code != Code::internal; });
  EXPECT_EQ(code, Code::deadline);
  EXPECT_FALSE(w.present(2));
}

// A record waits for a segment after its write failed; the deadline of a later record has passed meanwhile.
TEST(DiskTier, a_record_whose_write_failed_ends_at_its_deadline) {
  DiskWorld w(20, (512 << 10) + 4096 + 3 * (256 << 10));
  ASSERT_TRUE(w.open().ok());
  constexpr uint64_t kLarge = 200 << 10;  // one in a segment
  for (uint64_t n = 1; n <= 6; ++n) ASSERT_EQ(w.put_now(n, kLarge), Code::ok);
  w.sim.run();
  constexpr uint64_t kTakes = 100'000'000;
  w.disk.min_latency_ns = w.disk.max_latency_ns = kTakes;
  const uint64_t now = w.sim.clock().now_ns();
  w.disk.fail_nth(SimDisk::Op::write, 1);
  std::vector<Code> first, failed, last;
  w.put({7}, kLarge, false, &first);
  w.put({8}, 8192, false, &failed, 1, now + kTakes * 3 / 2);
  w.put({9}, 8192, false, &last, 1, now + kTakes / 2);
  ASSERT_TRUE(w.sim.run_until([&] { return !failed.empty(); }));
  EXPECT_EQ(failed, std::vector<Code>{Code::deadline});
  EXPECT_EQ(w.sim.clock().now_ns(), now + kTakes * 3 / 2);
  ASSERT_TRUE(w.sim.run_until([&] { return !first.empty() && !last.empty(); }));
  EXPECT_EQ(first, std::vector<Code>{Code::ok});
  EXPECT_FALSE(w.present(8));
}

TEST(DiskTier, writes_yield_to_a_load_between_pieces_and_go_on_slowly_beside_a_long_one) {
  constexpr uint64_t kLarge = uint64_t{2} << 20;
  DiskWorld w(62, uint64_t{64} << 20, 4 << 20);
  ASSERT_TRUE(w.open().ok());
  w.disk.min_latency_ns = w.disk.max_latency_ns = 100'000;
  ASSERT_EQ(w.put_now(1, 4096), Code::ok);
  ASSERT_EQ(w.get_now(1, 4096).code, Code::ok);
  w.sim.run();
  const tier::disk::AlignedBuffer head(8192);
  const tier::disk::AlignedBuffer payload(4096);
  auto load = std::make_unique<tier::GetBatch>();
  tier::GetItem item;
  item.id = w.id(1);
  item.head = head.span();
  item.payload = payload.span();
  load->items.push_back(item);
  bool loaded = false;
  load->done = [&](tier::GetBatch&) { loaded = true; };
  w.disk.min_latency_ns = w.disk.max_latency_ns = 5'000'000;
  w.tier->get(std::move(load));
  w.disk.min_latency_ns = w.disk.max_latency_ns = 100'000;
  const uint64_t writes = w.disk.count(SimDisk::Op::write);
  std::vector<Code> codes;
  w.put({2}, kLarge, false, &codes);
  ASSERT_TRUE(w.sim.run_until([&] { return loaded; }));
  EXPECT_TRUE(codes.empty());
  EXPECT_GE(w.disk.count(SimDisk::Op::write) - writes, 2U);
  EXPECT_LE(w.disk.count(SimDisk::Op::write) - writes, 4U);  // of nine
  w.sim.run();
  ASSERT_EQ(codes.size(), 1U);
  EXPECT_EQ(codes[0], Code::ok);
  EXPECT_TRUE(w.get_now(2, kLarge).right);
}

TEST(DiskTier, refuses_a_capacity_below_three_segments) {
  DiskWorld w(12, 1 << 20, 512 << 10);
  const Status s = w.open();
  EXPECT_EQ(s.code(), Code::bad_config);
  EXPECT_NE(s.message().find("too small"), std::string::npos);
}

TEST(DiskTier, refuses_a_capacity_that_it_cannot_address) {
  for (const uint64_t capacity :
       {tier::disk::most_disk_bytes() + 1, uint64_t{1} << 50, uint64_t{1} << 63, UINT64_MAX}) {
    DiskWorld w(12, 1 << 20, 0);
    w.options.capacity_bytes = capacity;
    const Status s = w.open();
    EXPECT_EQ(s.code(), Code::bad_config);
    EXPECT_NE(s.message().find("16TiB at most"), std::string::npos) << s.message();
  }
}

// The file system had no room for the first segment of a large capacity.
TEST(DiskTier, a_directory_without_segments_takes_any_capacity) {
  DiskWorld w(12, 64 << 20, 0);
  w.disk.set_capacity(64 << 20);
  w.options.capacity_bytes = tier::disk::most_disk_bytes();
  EXPECT_EQ(w.open().code(), Code::disk_full);
  w.options.capacity_bytes = 50 << 20;
  const Status s = w.open();
  EXPECT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(w.put_now(1, 8192), Code::ok);
  EXPECT_TRUE(w.close());
}

TEST(DiskTier, refuses_a_record_larger_than_a_segment) {
  DiskWorld w(13);
  ASSERT_TRUE(w.open().ok());
  EXPECT_EQ(w.put_now(1, 300 << 10), Code::no_room);
}

TEST(DiskTier, refuses_a_directory_with_foreign_files_and_leaves_it_alone) {
  DiskWorld w(14);
  {
    auto dir = w.disk.open_directory("/tier", true);
    ASSERT_TRUE(dir.value()->open("thesis.txt", OpenMode::create, false).ok());
  }
  const Status s = w.open();
  EXPECT_EQ(s.code(), Code::exists);
  EXPECT_NE(s.message().find("thesis.txt"), std::string::npos);
  EXPECT_EQ(w.disk.open_directory("/tier", false).value()->list().value(), std::vector<std::string>{"thesis.txt"});
}

TEST(DiskTier, refuses_a_second_opener) {
  DiskWorld w(15);
  ASSERT_TRUE(w.open().ok());
  auto second = tier::disk::DiskTier::open(w.options, w.disk, w.sim, w.families, w.sim.random(), nullptr, 2);
  EXPECT_EQ(second.status().code(), Code::in_use);
}

TEST(DiskTier, refuses_a_newer_format) {
  DiskWorld w(16);
  ASSERT_TRUE(w.open().ok());
  w.crash();
  {
    auto dir = w.disk.open_directory("/tier", false);
    auto file = dir.value()->open("superblock", OpenMode::read_write, false);
    auto newest = tier::disk::read_superblock(*file.value());
    ASSERT_TRUE(newest.ok());
    std::vector<std::byte> slot(tier::disk::kSuperblockSlotBytes);
    ASSERT_TRUE(tier::disk::encode_superblock(newest.value(), slot).ok());
    store_le<uint32_t>(slot.data() + 4, 99);
    const size_t fields = slot.size() - 8;
    store_le<uint64_t>(slot.data() + fields,
                       tier::disk::checksum(ConstBytes(slot).first(fields), tier::disk::kSuperblockMagic));
    ASSERT_TRUE(file.value()->write_now(0, slot).ok());
  }
  EXPECT_EQ(w.open().code(), Code::newer_version);
}

TEST(DiskTier, disables_itself_when_the_disk_keeps_failing_and_answers_on) {
  DiskWorld w(17);
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 4096), Code::ok);
  w.disk.faults.write_error = 1;
  Code code = Code::ok;
  for (uint64_t n = 2; n < 60 && code != Code::tier_disabled; ++n) code = w.put_now(n, 4096);
  EXPECT_EQ(code, Code::tier_disabled);
  EXPECT_EQ(w.removals.disables, 1U);
  EXPECT_EQ(w.get_now(1, 4096).code, Code::tier_disabled);
  EXPECT_TRUE(w.close());
}

TEST(DiskTier, removes_extra_segments_when_the_capacity_was_lowered) {
  DiskWorld w(18);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 200; ++n) ASSERT_EQ(w.put_now(n, 8192), Code::ok);
  ASSERT_TRUE(w.close());
  w.options.capacity_bytes = 3 << 19;
  ASSERT_TRUE(w.open().ok());
  EXPECT_LE(w.disk.used(), w.options.capacity_bytes);
  EXPECT_EQ(w.put_now(1000, 8192), Code::ok);
}

// The directory has a segment as left by a tier of 16 TiB.
TEST(DiskTier, takes_a_segment_whose_number_has_seven_digits_for_its_own) {
  DiskWorld w(19);
  ASSERT_TRUE(w.open().ok());
  ASSERT_EQ(w.put_now(1, 8192), Code::ok);
  ASSERT_TRUE(w.close());
  {
    auto directory = w.disk.open_directory("/tier", false);
    ASSERT_TRUE(directory.value()->open("segment-1000000.kv", OpenMode::create, false).ok());
  }
  const Status s = w.open();
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_TRUE(w.get_now(1, 8192).right);
  const auto names = w.disk.open_directory("/tier", false).value()->list().value();
  EXPECT_EQ(std::count(names.begin(), names.end(), "segment-1000000.kv"), 0) << "the capacity was lowered";
  EXPECT_TRUE(w.close());
}

}  // namespace
}  // namespace kvbm::test::disk_tier_test

// Tiers of hosts on one store in which others have written names and index objects that no host of this library writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/store_host.h"
#include "tier/store/store_format.h"
#include "tier/store/store_tier.h"

namespace kvbm::test::store_tier_trust_test {
namespace {

using store_host::Asked;
using store_host::Host;
using store_host::kSecond;
using store_host::numbers_of;
using store_host::unix_ms_of;
using tier::store::IndexObject;
using tier::store::PackRow;
using tier::store::Stamp;
using tier::store::StoreTierOptions;

constexpr uint64_t kStranger = 99;  // writes what no host of this library writes

// Puts an index object of a stranger into the bucket.
void write_index(SimBucket& bucket, const Stamp& stamp, const IndexObject& index) {
  bucket.objects[stamped_name(tier::store::kIndexPrefix, stamp)].bytes = encode_index(stamp, index);
}

// Returns a pack with one record, of this size by what its index object says.
PackRow pack_of(const Stamp& stamp, uint64_t bytes) {
  PackRow row;
  row.stamp = stamp;
  row.bytes = bytes;
  row.records.push_back({{}, 1, 1000, 0, 184});
  return row;
}

// A store of which the test sees and holds reads.
class Watched final : public tier::store::ObjectStore {
 public:
  Watched(SimExecutor& sim, const std::shared_ptr<SimBucket>& bucket) : inner_(sim, bucket) {
    inner_.facts_for_test().concurrency = 16;
  }
  [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return inner_.facts(); }
  void start(std::unique_ptr<tier::store::ObjectRequest> r) override {
    if (!holds.empty() && r->name == holds) {
      held = std::move(r);
      return;
    }
    const size_t bytes = r->data.size;
    now_ += bytes;
    most = std::max(most, now_);
    r->finished = [this, bytes,
                   finished = std::move(r->finished)](std::unique_ptr<tier::store::ObjectRequest> back) mutable {
      now_ -= bytes;
      finished(std::move(back));
    };
    inner_.start(std::move(r));
  }
  // Sends what was held.
  void release() {
    holds.clear();
    start(std::move(held));
  }
  void cancel(uint64_t id) noexcept override { inner_.cancel(id); }
  std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> r,
                                                  UniqueFunction<void()> late) override {
    return inner_.run(std::move(r), std::move(late));
  }
  void close() noexcept override { inner_.close(); }
  void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override { inner_.control()->dead = true; }

  std::string holds;  // an object that is not read before release()
  std::unique_ptr<tier::store::ObjectRequest> held;
  size_t most = 0;  // memory of requests in progress

 private:
  SimStore inner_;
  size_t now_ = 0;
};

// A tier over a watched store.
struct Reader {
  explicit Reader(uint64_t seed) : sim(seed) {}
  ~Reader() {
    bool down = false;
    tier->shutdown([&] { down = true; });
    EXPECT_TRUE(sim.run_until_within([&] { return down; }, 60 * kSecond));
  }
  void open() {
    auto made = std::make_unique<Watched>(sim, bucket);
    store = made.get();
    StoreTierOptions options;
    options.staging_bytes = 256 << 10;
    options.unix_ms = [this] { return unix_ms_of(sim); };
    auto opened =
        tier::store::StoreTier::open(std::move(made), options, sim, families, sim.random(), nullptr, 1, nullptr);
    ASSERT_TRUE(opened.ok());
    tier = std::move(opened).value();
  }
  [[nodiscard]] uint64_t packs() const { return tier->stats().store.packs; }

  SimExecutor sim;
  std::shared_ptr<SimBucket> bucket = std::make_shared<SimBucket>();
  FamilyTable families;
  Watched* store = nullptr;
  std::unique_ptr<tier::store::StoreTier> tier;
};

// Returns an index object that names one pack, and has as many erased records.
IndexObject index_of(const Stamp& stamp, size_t erased = 0) {
  IndexObject index;
  index.packs.push_back(pack_of(stamp, 2000));
  index.packs.back().records[0].name.bytes[0] = static_cast<uint8_t>(stamp.seq);
  index.erased.resize(erased);
  return index;
}

TEST(StoreTierTrust, large_index_objects_are_read_in_bounded_memory) {
  Reader r(4);
  for (uint32_t seq = 1; seq <= 40; ++seq) {
    const Stamp stamp{unix_ms_of(r.sim), kStranger, seq};
    write_index(*r.bucket, stamp, index_of(stamp, 40'000));
  }
  r.open();
  r.sim.run_for(10 * kSecond);
  EXPECT_EQ(r.packs(), 40U);
  EXPECT_LE(r.store->most, tier::store::kMaxIndexBytes + (10 << 18)) << "one large one, and some of 256 KiB";
  EXPECT_LT(r.tier->stats().index_bytes, 1U << 20) << "nothing waits";
}

// Index objects that have arrived wait for the oldest. It must be read, however many they are.
TEST(StoreTierTrust, an_old_index_object_that_is_listed_late_is_read) {
  Reader r(5);
  std::vector<Stamp> stamps;
  for (uint32_t seq = 1; seq <= 60; ++seq) {
    stamps.push_back({unix_ms_of(r.sim) - 5000 + seq, kStranger, seq});
    write_index(*r.bucket, stamps.back(), index_of(stamps.back()));
  }
  r.open();
  r.store->holds = stamped_name(tier::store::kIndexPrefix, stamps.front());
  r.sim.run_for(2 * kSecond);
  EXPECT_EQ(r.packs(), 0U);
  const Stamp late{stamps.front().ms - 1, kStranger, 99};
  write_index(*r.bucket, late, index_of(late));
  r.sim.run_for(kSecond);
  ASSERT_NE(r.store->held, nullptr);
  r.store->release();
  r.sim.run_for(3 * kSecond);
  EXPECT_EQ(r.packs(), 61U);
}

TEST(StoreTierTrust, the_name_of_an_index_object_from_the_future_is_forgotten_when_it_is_gone) {
  Reader r(6);
  const Stamp future{unix_ms_of(r.sim) + 86'400'000, kStranger, 1}, other{unix_ms_of(r.sim), kStranger, 2};
  write_index(*r.bucket, future, index_of(future));
  write_index(*r.bucket, other, index_of(other));
  r.open();
  r.sim.run_for(2 * kSecond);
  EXPECT_EQ(r.packs(), 2U);
  r.bucket->objects.erase(stamped_name(tier::store::kIndexPrefix, future));
  r.sim.run_for(1300 * kSecond);  // two full listings
  IndexObject again = index_of(future);
  again.packs[0].stamp.seq = 3;
  write_index(*r.bucket, future, again);
  r.sim.run_for(700 * kSecond);
  EXPECT_EQ(r.packs(), 3U) << "it is read again";
}

TEST(StoreTierTrust, a_pack_that_is_named_with_an_impossible_size_costs_no_other_pack) {
  SimExecutor sim(1);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  Host a(sim, bucket, asked, 0, options);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(3 * kSecond);
  const Stamp stamp{unix_ms_of(sim), kStranger, 0};
  IndexObject index;
  index.packs.push_back(pack_of(stamp, uint64_t{1} << 63));
  write_index(*bucket, stamp, index);
  sim.run_for(40 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 20U);
  EXPECT_EQ(a.tier->stats().evicted, 0U);
}

// Packs of that size are possible. So their names are believed, but they count for a part of the capacity only.
TEST(StoreTierTrust, an_index_object_that_claims_all_of_the_capacity_costs_no_other_pack) {
  SimExecutor sim(10);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  Host a(sim, bucket, asked, 0, options);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(3 * kSecond);
  IndexObject index;
  for (uint32_t seq = 0; seq < 100; ++seq) {
    index.packs.push_back(pack_of({unix_ms_of(sim), kStranger, seq}, tier::store::kMaxPackBytes));
    index.packs.back().records[0].name.bytes[0] = static_cast<uint8_t>(seq);
  }
  write_index(*bucket, {unix_ms_of(sim), kStranger, 100}, index);
  sim.run_for(40 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 20U);
  EXPECT_EQ(a.tier->stats().evicted, 0U);
  const uint64_t own = bucket->bytes("v1/p/");
  EXPECT_EQ(a.tier->stats().used_bytes, own + options.capacity_bytes / 4);
}

// Otherwise the namespace would be at its last epoch, everywhere, and could never be invalidated again.
TEST(StoreTierTrust, an_epoch_that_leaves_no_room_is_ignored_and_said_once) {
  SimExecutor sim(2);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  sim.run_for(kSecond);
  a.listener.raised.clear();
  // One such epoch is in the name of an object, another in a row of an index object.
  bucket->objects[tier::store::epoch_name(namespace_of(1), UINT64_MAX)];
  IndexObject index;
  index.epochs.push_back({namespace_of(2), (uint64_t{1} << 63) + 1});
  write_index(*bucket, {unix_ms_of(sim), kStranger, 0}, index);
  sim.run_for(30 * kSecond);
  EXPECT_EQ(a.tier->epoch(namespace_of(1)).value(), 3U);
  EXPECT_EQ(a.tier->epoch(namespace_of(2)).value(), 0U);
  for (const NamespaceEpoch& row : a.listener.raised) EXPECT_EQ(row.epoch, 3U);
  EXPECT_EQ(a.count_said("beyond 2^63"), 1U);
  // A host that opens later learns the same.
  Host b(sim, bucket, asked, 0);
  EXPECT_EQ(b.tier->epoch(namespace_of(1)).value(), 3U);
  EXPECT_EQ(b.count_said("beyond 2^63"), 1U);
  EXPECT_EQ(b.count_said(tier::store::epoch_name(namespace_of(1), UINT64_MAX)), 1U) << "it names the object";
  // An epoch that others would ignore is not written.
  EXPECT_FALSE(a.tier->set_epoch(namespace_of(1), UINT64_MAX).ok());
  EXPECT_EQ(a.tier->epoch(namespace_of(1)).value(), 3U);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 4).ok());
  sim.run_for(2 * kSecond);
  EXPECT_EQ(b.tier->epoch(namespace_of(1)).value(), 4U);
}

// A manager drops its store so when it cannot open a later tier.
TEST(StoreTierTrust, a_tier_that_is_dropped_without_a_shutdown_calls_its_listener_no_more) {
  SimExecutor sim(9);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  sim.run_for(kSecond);
  store_host::Epochs listener;
  FamilyTable families;
  Log log;
  StoreTierOptions options;
  options.staging_bytes = 256 << 10;
  options.unix_ms = [&sim] { return unix_ms_of(sim); };
  auto opened = tier::store::StoreTier::open(std::make_unique<SimStore>(sim, bucket), options, sim, families,
                                             sim.random(), &log, 1, &listener);
  ASSERT_TRUE(opened.ok());
  sim.run_for(12 * kSecond);
  EXPECT_FALSE(listener.raised.empty());
  opened.value().reset();
  listener.raised.clear();
  sim.run_for(60 * kSecond);
  EXPECT_TRUE(listener.raised.empty());
}

// The live host with the smallest number removes old packs for all.
TEST(StoreTierTrust, a_sign_from_the_future_keeps_no_host_from_removing_old_packs) {
  SimExecutor sim(3);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 200 << 10;
  Host a(sim, bucket, asked, 0, options);
  const std::string sign = tier::store::writer_name(0, unix_ms_of(sim) + 365 * uint64_t{86'400'000});
  bucket->objects[sign];
  for (uint64_t i = 0; i < 20; ++i) {
    a.put(numbers_of(1 + i * 10, 10), 10 * kSecond);
    sim.run_for(4 * kSecond);
  }
  sim.run_for(60 * kSecond);
  EXPECT_LE(bucket->bytes("v1/p/"), options.capacity_bytes);
  EXPECT_EQ(a.found(numbers_of(191, 10)).size(), 10U);
  EXPECT_FALSE(bucket->objects.contains(sign));
}

}  // namespace
}  // namespace kvbm::test::store_tier_trust_test

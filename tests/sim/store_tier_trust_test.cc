// Tiers of hosts on one store in which others have written names and index objects that no host of this library writes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
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

// Otherwise the namespace would be at its last epoch, everywhere, and could never be invalidated again.
TEST(StoreTierTrust, an_epoch_that_leaves_no_room_is_ignored_and_said_once) {
  SimExecutor sim(2);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  sim.run_for(kSecond);
  a.listener.raised.clear();
  // By the name of an object, and by a row of an index object.
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

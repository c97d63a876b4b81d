// Tiers of several hosts on one store that loses, delays, reorders, lies, hangs and goes down: never a wrong byte,
// every call ended, and what one host wrote another one finds.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "support/store_host.h"
#include "tier/store/store_format.h"
#include "tier/store/store_tier.h"

namespace kvbm::test::store_tier_test {
namespace {

using store_host::Asked;
using store_host::Epochs;
using store_host::Host;
using store_host::kBytes;
using store_host::kSecond;
using store_host::numbers_of;
using tier::store::StoreTier;
using tier::store::StoreTierOptions;

// Runs a host that stores 20 blocks for good and ends.
void store_and_end(SimExecutor& sim, const std::shared_ptr<SimBucket>& bucket, Asked& asked,
                   const StoreTierOptions& options) {
  Host host(sim, bucket, asked, 0, options);
  host.put(numbers_of(1, 20), 10 * kSecond, true);
  sim.run_for(2 * kSecond);
}

TEST(StoreTier, another_host_finds_within_a_second_what_one_wrote) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimExecutor sim(seed);
    Asked asked;
    const auto bucket = std::make_shared<SimBucket>();
    Host a(sim, bucket, asked, 0), b(sim, bucket, asked, seed % 3 == 0 ? 3000 : 0);
    sim.run_for(kSecond);
    std::set<uint64_t> stored, right;
    const auto numbers = numbers_of(1, 40);
    a.put(numbers, 10 * kSecond, false, &stored);
    ASSERT_TRUE(sim.run_until_within([&] { return stored.size() == 40; }, kSecond));
    sim.run_for(kSecond);
    ASSERT_EQ(b.found(numbers).size(), 40U) << "seed " << seed;
    b.get(numbers, 10 * kSecond, seed % 2 == 0, &right);
    ASSERT_TRUE(sim.run_until_within([&] { return asked.open == 0; }, kSecond));
    ASSERT_EQ(right.size(), 40U);
    ASSERT_EQ(asked.wrong, 0U);
    // 40 records of 5 KB in packs of 32 KiB.
    const uint64_t packs = static_cast<uint64_t>(std::count_if(
        bucket->objects.begin(), bucket->objects.end(), [](const auto& o) { return o.first.starts_with("v1/p/"); }));
    EXPECT_LE(packs, 8U);
  }
}

// Heads come on top of a pack's size. So as much as a pack holds of payloads of round sizes is one pack, which does not
// wait for more, and one request.
TEST(StoreTier, payloads_of_round_sizes_fill_a_pack_and_are_read_by_one_request) {
  SimExecutor sim(13);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.linger_ns = 60 * kSecond;
  options.poll_ns = 60 * kSecond;
  Host a(sim, bucket, asked, 0, options, 4096);
  std::set<uint64_t> stored, right;
  a.put(numbers_of(1, 32), 10 * kSecond, false, &stored);  // 4 times 32 KiB
  ASSERT_TRUE(sim.run_until_within([&] { return stored.size() == 32; }, kSecond));
  const auto packs = std::count_if(bucket->objects.begin(), bucket->objects.end(),
                                   [](const auto& o) { return o.first.starts_with("v1/p/"); });
  EXPECT_EQ(packs, 4);
  sim.run_for(kSecond);
  for (uint64_t first = 1; first <= 25; first += 8) {
    const uint64_t before = a.control->requests;
    a.get(numbers_of(first, 8), kSecond, true, &right);
    ASSERT_TRUE(sim.run_until_within([&] { return asked.open == 0; }, kSecond));
    EXPECT_EQ(a.control->requests - before, 1U) << first;
  }
  EXPECT_EQ(right.size(), 32U);
  EXPECT_EQ(asked.wrong, 0U);
}

TEST(StoreTier, loads_that_come_one_after_the_other_share_one_read) {
  SimExecutor sim(15);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.timeout_ns = 9 * kSecond;  // longer than a slow answer takes
  Host a(sim, bucket, asked, 0, options);
  std::set<uint64_t> stored, first, second;
  a.put(numbers_of(1, 4), 10 * kSecond, false, &stored);
  ASSERT_TRUE(sim.run_until_within([&] { return stored.size() == 4; }, kSecond));
  sim.run_for(kSecond);
  a.control->faults.slow = 1000;
  a.get(numbers_of(1, 4), 20 * kSecond, true, &first);
  const uint64_t gets = a.control->gets;
  sim.run_for(50'000);
  a.get(numbers_of(1, 4), 20 * kSecond, false, &second);
  EXPECT_EQ(a.control->gets, gets);
  ASSERT_TRUE(sim.run_until_within([&] { return asked.open == 0; }, 60 * kSecond));
  EXPECT_EQ(first.size(), 4U);
  EXPECT_EQ(second.size(), 4U);
}

// Memory for requests in flight stays within its limit, whatever sizes are asked for.
TEST(StoreTier, memory_for_what_is_on_its_way_is_bounded) {
  SimExecutor sim(14);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  std::set<uint64_t> stored, right;
  const auto within = [&] { return a.tier->stats().staging_bytes <= 256U << 10; };
  for (uint64_t i = 0; i < 10; ++i) a.put(numbers_of(1 + i * 20, 20), 60 * kSecond, false, &stored);
  ASSERT_TRUE(sim.run_until_within([&] { return stored.size() == 200 || !within(); }, 60 * kSecond));
  ASSERT_TRUE(within());
  for (uint64_t i = 0; i < 40; ++i) a.get(numbers_of(1 + i * 5, 1 + i % 5), 60 * kSecond, i % 2 == 0, &right);
  ASSERT_TRUE(sim.run_until_within([&] { return asked.open == 0 || !within(); }, 60 * kSecond));
  EXPECT_TRUE(within());
  EXPECT_EQ(right.size(), 120U);
  sim.run_for(kSecond);
  EXPECT_EQ(a.tier->stats().staging_bytes, 0U);
}

TEST(StoreTier, a_host_that_starts_later_finds_what_is_there) {
  SimExecutor sim(7);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  std::set<uint64_t> stored;
  {
    Host a(sim, bucket, asked, 0);
    for (uint64_t i = 0; i < 30; ++i) {
      a.put(numbers_of(1 + i * 10, 10), 10 * kSecond, false, &stored);
      sim.run_for(kSecond / 4);
    }
    a.put(numbers_of(301, 10), 10 * kSecond, true, &stored);
  }
  ASSERT_EQ(stored.size(), 310U);
  Host b(sim, bucket, asked, 0);
  sim.run_for(3 * kSecond);
  EXPECT_EQ(b.found(numbers_of(1, 310)).size(), 310U);
}

TEST(StoreTier, what_is_erased_or_of_a_family_that_was_is_not_found_anywhere) {
  SimExecutor sim(8);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0), b(sim, bucket, asked, 0);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  ASSERT_EQ(b.found(numbers_of(1, 20)).size(), 20U);
  const std::vector<Identity> gone = {a.id(3), a.id(5)};
  a.tier->erase(gone);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 18U);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(b.found(numbers_of(1, 20)).size(), 18U);
  ASSERT_TRUE(b.tier->erase_family(b.family()).ok());
  sim.run_for(2 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 0U);
  // Records stored after the erasure are found, also by a host that reads the index from the start.
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(b.found(numbers_of(1, 20)).size(), 20U);
  Host c(sim, bucket, asked, 0);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(c.found(numbers_of(1, 20)).size(), 20U);
}

TEST(StoreTier, an_epoch_is_known_to_the_others_and_to_those_that_come_later) {
  SimExecutor sim(9);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0), b(sim, bucket, asked, 0);
  sim.run_for(kSecond);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 4).ok());
  sim.run_for(2 * kSecond);
  EXPECT_EQ(b.tier->epoch(namespace_of(1)).value(), 4U);
  ASSERT_FALSE(b.listener.raised.empty());
  EXPECT_EQ(b.listener.raised.back().epoch, 4U);
  Host c(sim, bucket, asked, 0);
  EXPECT_EQ(c.tier->epoch(namespace_of(1)).value(), 4U);
  // Only the last epoch object is kept.
  EXPECT_EQ(std::count_if(bucket->objects.begin(), bucket->objects.end(),
                          [](const auto& o) { return o.first.starts_with("v1/e/"); }),
            1);
  a.control->down = true;
  EXPECT_FALSE(a.tier->set_epoch(namespace_of(1), 5).ok());
  EXPECT_EQ(a.tier->epoch(namespace_of(1)).value(), 4U);
}

// The index object that would tell of it is never written, or is gone before another host reads it.
TEST(StoreTier, an_epoch_is_known_to_the_others_though_its_writer_ended_at_once) {
  SimExecutor sim(15);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0), b(sim, bucket, asked, 0);
  sim.run_for(kSecond);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  a.control->dead = true;
  sim.run_for(12 * kSecond);
  EXPECT_EQ(b.tier->epoch(namespace_of(1)).value(), 3U);
  ASSERT_FALSE(b.listener.raised.empty());
  EXPECT_EQ(b.listener.raised.back().epoch, 3U);
  // A listener that could not take it gets it again.
  b.listener.raised.clear();
  sim.run_for(12 * kSecond);
  ASSERT_FALSE(b.listener.raised.empty());
  EXPECT_EQ(b.listener.raised.back().epoch, 3U);
}

// Nothing else asks this store meanwhile.
TEST(StoreTier, writes_of_epochs_that_fail_begin_a_back_off) {
  SimExecutor sim(19);
  Asked asked;
  StoreTierOptions options;
  options.poll_ns = 3600 * kSecond;
  Host a(sim, std::make_shared<SimBucket>(), asked, 0, options);
  sim.run_for(kSecond);
  a.control->down = true;
  for (uint64_t epoch = 1; epoch <= 6; ++epoch) EXPECT_FALSE(a.tier->set_epoch(namespace_of(1), epoch).ok());
  EXPECT_EQ(a.tier->stats().store.failures, 5U) << "the last one was not sent";
  EXPECT_EQ(a.tier->stats().store.backs_off, 1U);
  EXPECT_EQ(a.count_said("not asked for a while"), 1U);
}

// The first listing of a store that lists wrongly is as little believed as any other.
TEST(StoreTier, a_first_listing_that_makes_no_sense_is_asked_for_again_at_once) {
  SimExecutor sim(20);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  {
    Host a(sim, bucket, asked, 0);
    ASSERT_TRUE(a.tier->set_epoch(namespace_of(1), 3).ok());
  }
  std::erase_if(bucket->objects, [](const auto& o) { return o.first.starts_with("v1/i/"); });
  struct ListsFirst final : tier::store::ObjectStore {
    explicit ListsFirst(SimExecutor& sim, const std::shared_ptr<SimBucket>& shared) : inner(sim, shared) {}
    [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return inner.facts(); }
    void start(std::unique_ptr<tier::store::ObjectRequest> r) override { inner.start(std::move(r)); }
    void cancel(uint64_t id) noexcept override { inner.cancel(id); }
    std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> r,
                                                    UniqueFunction<void()> /*late*/) override {
      std::memcpy(r->data.bytes.get(), "v9/x", r->done = 5);  // of another prefix
      r->code = Code::ok;
      return r;
    }
    void close() noexcept override { inner.close(); }
    void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override { inner.control()->dead = true; }
    SimStore inner;
  };
  FamilyTable families;
  StoreTierOptions options;
  options.staging_bytes = 256 << 10;
  auto b = StoreTier::open(std::make_unique<ListsFirst>(sim, bucket), options, sim, families, sim.random(), nullptr, 1,
                           nullptr);
  ASSERT_TRUE(b.ok());
  sim.run_for(kSecond);
  EXPECT_EQ(b.value()->epoch(namespace_of(1)).value(), 3U);
  bool over = false;
  b.value()->shutdown([&] { over = true; });
  EXPECT_TRUE(sim.run_until_within([&] { return over; }, 30 * kSecond));
}

TEST(StoreTier, a_store_that_lists_ever_more_epochs_is_not_believed_and_takes_bounded_memory) {
  SimExecutor sim(16);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  ASSERT_EQ(a.found(numbers_of(1, 20)).size(), 20U);
  for (uint64_t n = 0; n < 140'000; ++n) {
    NamespaceId base;
    std::memcpy(base.bytes.data(), &n, sizeof n);
    bucket->objects[tier::store::epoch_name(base, 1)];
  }
  bucket->page_bytes = 256 << 10;
  sim.run_for(12 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 0U) << "it cannot tell which records are of an ended epoch";
  std::erase_if(bucket->objects, [](const auto& o) { return o.first.starts_with("v1/e/"); });
  sim.run_for(12 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 20U);
}

// Nothing is found before the epochs of namespaces are known, because a record could be of an ended epoch.
TEST(StoreTier, a_store_that_is_down_at_the_start_is_used_when_it_is_back) {
  SimExecutor sim(10);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  a.put(numbers_of(1, 20), 10 * kSecond);
  ASSERT_TRUE(a.tier->set_epoch(namespace_of(2), 9).ok());
  sim.run_for(2 * kSecond);
  auto down = std::make_shared<SimStore>(sim, bucket);
  StoreTierOptions options;
  options.staging_bytes = 256 << 10;
  // A store that fails from its first request on.
  struct DownAtFirst final : tier::store::ObjectStore {
    explicit DownAtFirst(std::shared_ptr<SimStore> s) : inner(std::move(s)) { inner->control()->down = true; }
    [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return inner->facts(); }
    void start(std::unique_ptr<tier::store::ObjectRequest> r) override { inner->start(std::move(r)); }
    void cancel(uint64_t id) noexcept override { inner->cancel(id); }
    std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> r,
                                                    UniqueFunction<void()> late) override {
      return inner->run(std::move(r), std::move(late));
    }
    void close() noexcept override { inner->close(); }
    void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override { inner->control()->dead = true; }
    std::shared_ptr<SimStore> inner;
  };
  FamilyTable families;
  const FamilyId family = families.intern(family_of(1)).value();
  Epochs listener;
  auto b =
      StoreTier::open(std::make_unique<DownAtFirst>(down), options, sim, families, sim.random(), nullptr, 1, &listener);
  ASSERT_TRUE(b.ok());
  sim.run_for(30 * kSecond);
  const Identity id{key_of(1), family};
  tier::Found found;
  b.value()->find({&id, 1}, {&found, 1}, true);
  EXPECT_FALSE(found.present);
  const uint64_t asked_while_down = down->control()->requests;
  EXPECT_LT(asked_while_down, 100U) << "a store that is down is asked seldom";
  down->control()->down = false;
  sim.run_for(65 * kSecond);
  b.value()->find({&id, 1}, {&found, 1}, true);
  EXPECT_TRUE(found.present);
  ASSERT_FALSE(listener.raised.empty());
  EXPECT_EQ(listener.raised.back().epoch, 9U);
  bool over = false;
  b.value()->shutdown([&] { over = true; });
  EXPECT_TRUE(sim.run_until_within([&] { return over; }, 30 * kSecond));
  EXPECT_TRUE(down->closed());
}

// The read ends while the task that planned it still runs, as on another thread.
TEST(StoreTier, an_index_object_that_could_not_be_read_at_once_is_read_soon) {
  SimExecutor sim(18);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  a.put(numbers_of(1, 4), 10 * kSecond, true);  // one pack, one index object
  sim.run_for(30 * kSecond);                    // only a full listing shows it
  struct RefusesFirst final : tier::store::ObjectStore {
    RefusesFirst(SimExecutor& executor, const std::shared_ptr<SimBucket>& shared)
        : sim(executor), inner(executor, shared) {}
    [[nodiscard]] const tier::store::StoreFacts& facts() const noexcept override { return inner.facts(); }
    void start(std::unique_ptr<tier::store::ObjectRequest> r) override {
      if (refused || r->verb != tier::store::Verb::get) return inner.start(std::move(r));
      refused = true;
      r->code = Code::not_permitted;
      auto finished = std::move(r->finished);
      finished(std::move(r));
      sim.run_for(kSecond / 1000);
    }
    void cancel(uint64_t id) noexcept override { inner.cancel(id); }
    std::unique_ptr<tier::store::ObjectRequest> run(std::unique_ptr<tier::store::ObjectRequest> r,
                                                    UniqueFunction<void()> late) override {
      return inner.run(std::move(r), std::move(late));
    }
    void close() noexcept override { inner.close(); }
    void leave(std::unique_ptr<ObjectStore> /*self*/) noexcept override { inner.control()->dead = true; }
    SimExecutor& sim;
    SimStore inner;
    bool refused = false;
  };
  FamilyTable families;
  StoreTierOptions options;
  options.staging_bytes = 256 << 10;
  options.unix_ms = [&sim] { return store_host::unix_ms_of(sim); };
  auto b = StoreTier::open(std::make_unique<RefusesFirst>(sim, bucket), options, sim, families, sim.random(), nullptr,
                           1, nullptr);
  ASSERT_TRUE(b.ok());
  sim.run_for(30 * kSecond);
  EXPECT_EQ(b.value()->stats().records, 4U);
  bool over = false;
  b.value()->shutdown([&] { over = true; });
  EXPECT_TRUE(sim.run_until_within([&] { return over; }, 30 * kSecond));
}

TEST(StoreTier, a_capacity_and_an_age_are_kept_by_one_of_the_hosts) {
  SimExecutor sim(11);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 400 << 10;
  Host a(sim, bucket, asked, 0, options), b(sim, bucket, asked, 0, options);
  sim.run_for(3 * kSecond);
  std::set<uint64_t> stored;
  for (uint64_t i = 0; i < 40; ++i) {
    (i % 2 == 0 ? a : b).put(numbers_of(1 + i * 10, 10), 10 * kSecond, false, &stored);
    sim.run_for(2 * kSecond);
    ASSERT_LE(bucket->bytes("v1/p/"), options.capacity_bytes + 200'000) << i;
  }
  ASSERT_EQ(stored.size(), 400U);
  sim.run_for(40 * kSecond);
  EXPECT_LE(bucket->bytes("v1/p/"), options.capacity_bytes);
  // The newest records are still there, for both hosts.
  EXPECT_EQ(a.found(numbers_of(371, 30)).size(), 30U);
  EXPECT_EQ(b.found(numbers_of(371, 30)).size(), 30U);
  // A removed record is a miss once for a host that has not learned of its removal.
  b.get(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(b.found(numbers_of(1, 20)).size(), 0U);
  const auto indexes = std::count_if(bucket->objects.begin(), bucket->objects.end(),
                                     [](const auto& o) { return o.first.starts_with("v1/i/"); });
  EXPECT_LE(indexes, 20) << "index objects go with the packs that they name";
}

TEST(StoreTier, packs_of_a_host_that_was_killed_before_it_could_name_them_go_after_an_hour) {
  SimExecutor sim(13);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  const auto packs = [&] {
    return std::count_if(bucket->objects.begin(), bucket->objects.end(),
                         [](const auto& o) { return o.first.starts_with("v1/p/"); });
  };
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  Host a(sim, bucket, asked, 0, options);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  const auto named = packs();
  // Leaves the objects that a killed host leaves.
  auto killed = bucket->objects;
  std::erase_if(killed, [](const auto& o) { return !o.first.starts_with("v1/p/"); });
  for (const auto& [name, object] : killed) {
    std::string other = name;
    other[other.size() - 8] = 'f';  // a number that a is far from
    bucket->objects.emplace(other, object);
  }
  ASSERT_EQ(packs(), 2 * named);
  sim.run_for(1800 * kSecond);
  EXPECT_EQ(packs(), 2 * named) << "their index object may still come";
  sim.run_for(5400 * kSecond);
  EXPECT_EQ(packs(), named);
  std::set<uint64_t> right;
  a.get(numbers_of(1, 20), 10 * kSecond, false, &right);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(right.size(), 20U);
}

TEST(StoreTier, a_host_that_could_not_read_all_that_is_named_removes_no_pack_for_it) {
  SimExecutor sim(14);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  store_and_end(sim, bucket, asked, options);
  const uint64_t before = bucket->bytes("v1/p/");
  ASSERT_NE(before, 0U);
  for (auto& [name, object] : bucket->objects) {
    if (name.starts_with("v1/i/")) object.bytes.back() ^= std::byte{1};
  }
  Host b(sim, bucket, asked, 0, options);
  sim.run_for(7200 * kSecond);
  EXPECT_EQ(bucket->bytes("v1/p/"), before);
}

TEST(StoreTier, a_host_removes_no_index_object_that_it_does_not_understand) {
  SimExecutor sim(17);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  store_and_end(sim, bucket, asked, options);
  sim.run_for(120 * kSecond);  // the first host's sign of life is old
  const auto before = bucket->objects;
  for (auto& [name, object] : bucket->objects) {
    if (name.starts_with("v1/i/")) object.bytes[4] = std::byte{2};  // another version
  }
  Host b(sim, bucket, asked, 0, options);
  sim.run_for(120 * kSecond);
  for (const auto& [name, object] : before) EXPECT_EQ(bucket->objects.count(name), 1U) << name;
}

// Another host may have room for the packs that such an index object names.
TEST(StoreTier, a_host_removes_no_index_object_that_its_index_has_no_room_for) {
  SimExecutor sim(21);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  StoreTierOptions options;
  options.capacity_bytes = 10 << 20;
  store_and_end(sim, bucket, asked, options);
  sim.run_for(120 * kSecond);  // the first host's sign of life is old
  const auto before = bucket->objects;
  {
    options.index_bytes = 1;
    Host b(sim, bucket, asked, 0, options);
    sim.run_for(120 * kSecond);
    EXPECT_EQ(b.tier->stats().dropped_full, 20U);
    for (const auto& [name, object] : before) EXPECT_EQ(bucket->objects.count(name), 1U) << name;
  }
  // Age removes them.
  options.ttl_s = 300;
  Host c(sim, bucket, asked, 0, options);
  sim.run_for(400 * kSecond);
  for (const auto& [name, object] : before)
    EXPECT_TRUE(!name.starts_with("v1/i/") || !bucket->objects.contains(name)) << name;
}

TEST(StoreTier, a_store_that_was_emptied_is_found_empty) {
  SimExecutor sim(12);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  Host a(sim, bucket, asked, 0);
  a.put(numbers_of(1, 20), 10 * kSecond);
  sim.run_for(2 * kSecond);
  bucket->objects.clear();
  a.get(numbers_of(1, 20), kSecond);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 0U);
  std::set<uint64_t> stored;
  a.put(numbers_of(1, 20), 10 * kSecond, false, &stored);
  sim.run_for(2 * kSecond);
  EXPECT_EQ(stored.size(), 20U);
  EXPECT_EQ(a.found(numbers_of(1, 20)).size(), 20U);
}

// ---- Reading ahead: of 256 KiB of memory it has 64, for 12 records ----

// A host that has learned which records another one stored.
struct Reader {
  explicit Reader(uint64_t seed, StoreTierOptions options = {}) : sim(seed) {
    writer = std::make_unique<Host>(sim, bucket, asked, 0);
    writer->put(numbers_of(1, 60), 60 * kSecond, true);
    sim.run_for(2 * kSecond);
    host = std::make_unique<Host>(sim, bucket, asked, 0, options);
    sim.run_for(2 * kSecond);
    asked = {};
  }
  [[nodiscard]] tier::StoreStats stats() const { return host->tier->stats().store; }
  void answer_all() {
    ASSERT_TRUE(sim.run_until_within([&] { return asked.open == 0; }, 60 * kSecond));
  }

  SimExecutor sim;
  Asked asked;
  std::shared_ptr<SimBucket> bucket = std::make_shared<SimBucket>();
  std::unique_ptr<Host> writer, host;
  std::set<uint64_t> right;
};

TEST(StoreTierAhead, the_rest_that_a_lookup_found_is_in_memory_when_it_is_asked_for) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Reader r(seed);
    ASSERT_EQ(r.host->found(numbers_of(1, 30)).size(), 30U);
    r.host->get(numbers_of(1, 4), 10 * kSecond, true, &r.right);
    r.answer_all();
    r.sim.run_for(kSecond / 4);
    for (uint64_t first = 5; first <= 26; first += 3) {
      const uint64_t gets = r.host->control->gets, now = r.sim.clock().now_ns();
      const bool borrows = seed % 2 == 0;
      r.host->get(numbers_of(first, 3), 10 * kSecond, borrows, &r.right);
      ASSERT_TRUE(r.sim.run_until([&] { return r.asked.open == 0; }));
      ASSERT_EQ(r.sim.clock().now_ns(), now) << "it waited for the store, seed " << seed << ", " << first;
      ASSERT_LE(r.host->tier->stats().staging_bytes, 256U << 10);
      r.sim.run_for(kSecond / 4);
      const bool all_read = first >= 20;
      ASSERT_TRUE(!all_read || r.host->control->gets == gets) << "it was read twice, seed " << seed << ", " << first;
    }
    EXPECT_EQ(r.right.size(), 28U);
    EXPECT_EQ(r.asked.wrong, 0U);
    EXPECT_GE(r.stats().ahead_used_bytes, 24 * kBytes);
    r.sim.run_for(11 * kSecond);
    EXPECT_EQ(r.stats().ahead_bytes, r.stats().ahead_used_bytes + r.stats().ahead_unused_bytes);
    EXPECT_EQ(r.host->tier->stats().staging_bytes, 0U);
  }
}

TEST(StoreTierAhead, only_a_load_begins_it_and_it_reads_what_lookups_found_lately) {
  Reader r(2);
  const uint64_t gets = r.host->control->gets;
  ASSERT_EQ(r.host->found(numbers_of(1, 12)).size(), 12U);
  r.sim.run_for(kSecond);
  EXPECT_EQ(r.host->control->gets, gets) << "a process that looks up and never loads reads nothing";
  r.sim.run_for(10 * kSecond);
  ASSERT_EQ(r.host->found(numbers_of(21, 4)).size(), 4U);
  r.host->get(numbers_of(41, 1), 10 * kSecond, true, &r.right);
  r.answer_all();
  r.sim.run_for(kSecond);
  EXPECT_GT(r.stats().ahead_bytes, 4 * kBytes);
  EXPECT_LT(r.stats().ahead_bytes, 5 * kBytes) << "the first lookup is too old";
}

TEST(StoreTierAhead, what_a_released_match_had_and_what_is_behind_a_gap_is_not_read) {
  Reader r(3);
  std::vector<uint64_t> asked = numbers_of(1, 8);
  asked.push_back(1000);  // nowhere
  for (const uint64_t n : numbers_of(9, 8)) asked.push_back(n);
  ASSERT_EQ(r.host->found(asked).size(), 16U);
  r.host->get(numbers_of(1, 4), 10 * kSecond, true, &r.right);
  // The load takes four of eight records, because computing the others is faster.
  for (const uint64_t n : numbers_of(1, 8)) r.host->tier->unpin(r.host->id(n));
  r.answer_all();
  r.sim.run_for(kSecond);
  EXPECT_EQ(r.right.size(), 4U);
  EXPECT_EQ(r.stats().ahead_bytes, 0U);
}

TEST(StoreTierAhead, loads_go_first_and_get_its_memory) {
  StoreTierOptions options;
  options.timeout_ns = 30 * kSecond;
  Reader r(4, options);
  ASSERT_EQ(r.host->found(numbers_of(1, 60)).size(), 60U);
  r.host->control->faults.slow = 1000;
  r.host->get(numbers_of(1, 3), 60 * kSecond, true, &r.right);
  const uint64_t of_the_load = r.host->control->gets;
  r.host->control->faults.slow = 0;
  uint64_t meanwhile = 0, gets = 0, at_ns = 0;  // `meanwhile`: sent before the moment at which the answer came
  ASSERT_TRUE(r.sim.run_until_within(
      [&] {
        if (std::exchange(at_ns, r.sim.clock().now_ns()) != at_ns) meanwhile = gets;
        gets = r.host->control->gets;
        return r.asked.open == 0;
      },
      60 * kSecond));
  EXPECT_GT(gets, of_the_load) << "something is read ahead behind it";
  EXPECT_EQ(meanwhile, of_the_load);
  r.sim.run_for(kSecond);
  EXPECT_GT(r.host->tier->stats().staging_bytes, 0U) << "something was read ahead";
  EXPECT_LE(r.host->tier->stats().staging_bytes, 64U << 10);
  for (uint64_t first = 20; first <= 56; first += 4) r.host->get(numbers_of(first, 4), 60 * kSecond, true, &r.right);
  ASSERT_TRUE(r.sim.run_until_within(
      [&] { return r.asked.open == 0 || r.host->tier->stats().staging_bytes > 256U << 10; }, 60 * kSecond));
  EXPECT_EQ(r.right.size(), 43U);
}

TEST(StoreTierAhead, a_read_ahead_that_hangs_costs_a_load_no_more_than_its_own) {
  Reader r(5);
  ASSERT_EQ(r.host->found(numbers_of(1, 12)).size(), 12U);
  r.host->get(numbers_of(1, 3), 10 * kSecond, true, &r.right);
  r.host->control->faults.hangs = 1000;  // sent from here on
  r.answer_all();
  r.sim.run_for(kSecond);
  r.host->control->faults.hangs = 0;
  r.host->get(numbers_of(4, 3), kSecond, true, &r.right);
  r.answer_all();
  EXPECT_EQ(r.asked.late, 0U) << "its deadline is kept";
  EXPECT_EQ(r.right.size(), 3U);
  r.host->get(numbers_of(7, 3), 20 * kSecond, true, &r.right);
  r.answer_all();
  EXPECT_EQ(r.right.size(), 6U) << "it is asked for again";
  EXPECT_EQ(r.stats().ahead_used_bytes, 0U);
}

TEST(StoreTierAhead, a_record_that_is_larger_than_its_memory_is_passed_over) {
  StoreTierOptions options;
  options.ahead_bytes = 5400;  // more than a record, and less than the buffer for one
  Reader r(8, options);
  const auto small = std::make_unique<Host>(r.sim, r.bucket, r.asked, 0, StoreTierOptions{}, 3000);
  small->put({201}, 10 * kSecond, true);
  r.sim.run_for(3 * kSecond);
  ASSERT_EQ(r.host->found({1, 2, 201}).size(), 3U);
  r.host->get({1}, 10 * kSecond, true, &r.right);
  r.answer_all();
  r.sim.run_for(kSecond);
  EXPECT_GT(r.stats().ahead_bytes, 3000U);
  EXPECT_LT(r.stats().ahead_bytes, kBytes);
}

TEST(StoreTierAhead, it_can_be_switched_off_and_has_half_of_the_memory_at_most) {
  StoreTierOptions options;
  options.ahead_bytes = 0;
  Reader r(6, options);
  ASSERT_EQ(r.host->found(numbers_of(1, 12)).size(), 12U);
  r.host->get(numbers_of(1, 3), 10 * kSecond, true, &r.right);
  r.answer_all();
  r.sim.run_for(kSecond);
  EXPECT_EQ(r.stats().ahead_bytes, 0U);
  SimExecutor sim(7);
  FamilyTable families;
  options.staging_bytes = 256 << 10;
  options.ahead_bytes = (128 << 10) + 1;
  const auto opened = StoreTier::open(std::make_unique<SimStore>(sim, std::make_shared<SimBucket>()), options, sim,
                                      families, sim.random(), nullptr, 1, nullptr);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("prefetch_ahead"), std::string::npos) << opened.status().message();
}

// Everything at once, by seeds.
struct Outcome {
  Asked asked;
  uint64_t log = 0;
};

Outcome everything(uint64_t seed) {
  SimExecutor sim(seed);
  Outcome out;
  const auto bucket = std::make_shared<SimBucket>();
  if (seed % 3 == 0) bucket->list_delay_ns = kSecond;
  StoreTierOptions options;
  if (seed % 4 == 0) options.capacity_bytes = 300 << 10;
  SimStoreFaults faults;
  const uint32_t level = 5 + static_cast<uint32_t>(seed % 7) * 15;
  faults.refused = faults.lost_answer = level;
  faults.hangs = level / 4;
  faults.slow = level;
  faults.wrong_bytes = faults.short_get = level;
  faults.lying_list = level;
  {
    std::vector<std::unique_ptr<Host>> hosts;
    for (uint64_t h = 0; h < 3; ++h) {
      hosts.push_back(std::make_unique<Host>(sim, bucket, out.asked, sim.random().below(4000), options));
      hosts.back()->control->faults = faults;
    }
    for (int step = 0; step < 120; ++step) {
      auto& host = hosts[sim.random().below(hosts.size())];
      const uint64_t first = 1 + sim.random().below(200), n = 1 + sim.random().below(12);
      const uint64_t within = 1 + sim.random().below(8 * kSecond);
      switch (sim.random().below(12)) {
        default:
          host->put(numbers_of(first, n), within, sim.random().below(4) == 0);
          break;
        case 4:
        case 5:
        case 6:
        case 7:
          if (first % 2 == 0) (void)host->found(numbers_of(first, n + 12));
          host->get(numbers_of(first, n), within, sim.random().below(2) == 0);
          break;
        case 8: {
          const std::vector<Identity> gone = {host->id(first)};
          host->tier->erase(gone);
          break;
        }
        case 9:
          if (sim.random().below(4) == 0) (void)host->tier->erase_family(host->family());
          if (sim.random().below(4) == 0) (void)host->tier->set_epoch(namespace_of(1), sim.random().below(100));
          break;
        case 10:
          if (sim.random().below(6) == 0 && !bucket->objects.empty()) {
            auto at = bucket->objects.begin();
            std::advance(at, static_cast<std::ptrdiff_t>(sim.random().below(bucket->objects.size())));
            bucket->objects.erase(at);
          }
          if (sim.random().below(30) == 0) bucket->objects.clear();
          host->control->down = sim.random().below(12) == 0;
          break;
        case 11:
          // Kills a process and starts another on its host.
          if (sim.random().below(4) != 0) break;
          host->control->dead = true;
          host = std::make_unique<Host>(sim, bucket, out.asked, sim.random().below(4000), options);
          host->control->faults = faults;
          break;
      }
      sim.run_for(sim.random().below(kSecond));
    }
    sim.run_for(20 * kSecond);
  }
  out.log = sim.log_hash();
  return out;
}

TEST(StoreTierSim, nothing_wrong_and_every_call_ended_whatever_the_store_does) {
  const char* many = std::getenv("KVBMTEST_LONG");
  const uint64_t seeds = many != nullptr ? 5000 : 200;
  uint64_t right = 0, stored = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome o = everything(seed);
    ASSERT_EQ(o.asked.wrong, 0U) << "seed " << seed;
    ASSERT_EQ(o.asked.open, 0U) << "seed " << seed;
    ASSERT_EQ(o.asked.late, 0U) << "seed " << seed;
    right += o.asked.right;
    stored += o.asked.stored;
  }
  EXPECT_GT(right, seeds * 25);
  EXPECT_GT(stored, seeds * 100);
}

// A regression: requests abandoned at shutdown were completed after it, and their callers then notified a freed
// listener.
TEST(StoreTierSim, nobody_is_told_anything_after_the_end) { EXPECT_EQ(everything(923).asked.open, 0U); }

TEST(StoreTierSim, a_seed_replays) { EXPECT_EQ(everything(5).log, everything(5).log); }

}  // namespace
}  // namespace kvbm::test::store_tier_test

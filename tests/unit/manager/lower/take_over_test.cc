// Two tiers below the host: blocks that the upper disk evicts go into the tier below, and no block that must not.
#include "manager/lower/offload.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "codec/coded/coded_record.h"
#include "manager/host/host_record.h"
#include "manager/manager.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"
#include "support/temp_dir.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/disk_tier.h"
#include "tier/disk/superblock.h"

namespace kvbm::manager::take_over_test {
namespace {

using test::SimDisk;
using test::SimExecutor;

// Records in memory: a plug-in, as the manager sees it.
class MemoryTier final : public tier::Tier {
 public:
  struct Record {
    std::vector<std::byte> head, payload;
  };
  struct Store {
    std::map<Identity, Record> records;
    std::function<void(const tier::PutBatch&)> before_put;
    bool late = false;  // puts are stored some time after they were asked for
    bool full = false;
  };
  MemoryTier(std::shared_ptr<Store> store, Executor& executor) : store_(std::move(store)), executor_(executor) {}

  [[nodiscard]] std::string_view kind() const noexcept override { return "plugin"; }
  [[nodiscard]] std::string describe() const override { return "memory"; }
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool) noexcept override {
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto at = store_->records.find(ids[i]);
      out[i] = tier::Found{};
      if (at == store_->records.end()) continue;
      out[i].present = true;
      out[i].head_bytes = static_cast<uint32_t>(at->second.head.size());
      out[i].payload_bytes = at->second.payload.size();
      out[i].location = 1;
    }
  }
  bool pin(const Identity&) noexcept override { return false; }
  void unpin(const Identity&) noexcept override {}
  void put(std::unique_ptr<tier::PutBatch> batch) override {
    if (store_->before_put) store_->before_put(*batch);
    auto kept = std::shared_ptr<tier::PutBatch>(std::move(batch));
    if (!store_->late) return keep(kept);
    executor_.post([this, kept] { keep(kept); });
  }
  void keep(const std::shared_ptr<tier::PutBatch>& batch) {
    batch->status.assign(batch->items.size(), store_->full ? Code::no_room : Code::ok);
    for (const tier::PutItem& item : batch->items) {
      if (store_->full) continue;
      store_->records[item.id] = {std::vector<std::byte>(item.head.begin(), item.head.end()),
                                  std::vector<std::byte>(item.payload.begin(), item.payload.end())};
    }
    executor_.post([batch] { batch->done(*batch); });
  }
  void get(std::unique_ptr<tier::GetBatch> batch) override {
    batch->status.assign(batch->items.size(), Code::miss);
    for (size_t i = 0; i < batch->items.size(); ++i) {
      tier::GetItem& item = batch->items[i];
      const auto at = store_->records.find(item.id);
      if (at == store_->records.end()) continue;
      std::copy(at->second.head.begin(), at->second.head.end(), item.head.begin());
      std::copy(at->second.payload.begin(), at->second.payload.end(), item.payload.begin());
      item.head_bytes = static_cast<uint32_t>(at->second.head.size());
      item.payload_bytes = at->second.payload.size();
      item.location = 1;
      batch->status[i] = Code::ok;
    }
    executor_.post([kept = std::shared_ptr<tier::GetBatch>(std::move(batch))] { kept->done(*kept); });
  }
  void erase(std::span<const Identity> ids) override {
    for (const Identity& id : ids) store_->records.erase(id);
  }
  void reject(const Identity& id, uint64_t) override { store_->records.erase(id); }
  Status erase_family(FamilyId family) override {
    std::erase_if(store_->records, [family](const auto& one) { return one.first.family == family; });
    return {};
  }
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow>) override { return cursor = 0; }
  [[nodiscard]] tier::TierStats stats() const override {
    tier::TierStats stats;
    stats.records = store_->records.size();
    return stats;
  }
  Result<uint64_t> epoch(const NamespaceId&) override { return uint64_t{0}; }
  Status set_epoch(const NamespaceId&, uint64_t) override { return {}; }
  void shutdown(UniqueFunction<void()> done) override { executor_.post(std::move(done)); }

 private:
  const std::shared_ptr<Store> store_;
  Executor& executor_;
};

class TakeOver : public ::testing::Test {
 protected:
  static constexpr uint64_t kBlock = 8192;
  static constexpr uint32_t kSlots = 8;
  static constexpr uint32_t kSegments = 5;
  static constexpr uint64_t kBlocks = 200;  // many times what the first disk holds

  static Key key(uint64_t n) {
    Key k;
    std::memcpy(k.bytes.data(), &n, sizeof n);
    k.bytes[15] = 1;
    return k;
  }
  [[nodiscard]] Identity id(uint64_t n) const { return {key(n), family_}; }

  // A disk of so many segments of 64 KiB.
  TierOptions disk(const std::string& path, uint32_t segments, AdmissionKind admission) {
    TierOptions tier;
    tier.path = path;
    tier.admission = admission;
    tier::disk::DiskTierOptions options;
    options.path = path;
    options.segment_bytes = 64 << 10;
    options.capacity_bytes = tier::disk::kSuperblockBytes + 4096 + segments * options.segment_bytes;
    tier.capacity_bytes = options.capacity_bytes;
    tier.make = [this, options](TierIndex index, FamilyTable& families,
                                tier::TierListener* listener) -> Result<std::unique_ptr<tier::Tier>> {
      auto made = tier::disk::DiskTier::open(options, disk_, sim_, families, sim_.random(), listener, index);
      if (!made.ok()) return made.status();
      return std::unique_ptr<tier::Tier>(std::move(made).value());
    };
    return tier;
  }
  TierOptions plugin(AdmissionKind admission) {
    TierOptions tier;
    tier.admission = admission;
    tier.capacity_bytes = 64 << 20;
    tier.make = [this](TierIndex, FamilyTable&, tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<MemoryTier>(memory_, sim_));
    };
    return tier;
  }

  void open(TierOptions first, TierOptions second, const std::string& keys = "") {
    Options options;
    options.host.block_bytes = kBlock;
    options.host.capacity_bytes = 4096 + kSlots * (kBlock + tier::HostArena::head_stride(kBlock));
    options.host.huge_pages = false;
    options.policy = "lru";
    options.seal_key_file = keys;
    options.tiers.push_back(std::move(first));
    options.tiers.push_back(std::move(second));
    Environment environment;
    environment.executor = &sim_;
    environment.files = &disk_;
    environment.random = &sim_.random();
    environment.log = &log_;
    auto made = Manager::create(environment, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().message();
    manager_ = std::move(made).value();
    NamespaceOptions who;
    who.model = "m";
    auto opened = manager_->namespaces().open(std::move(who));
    ASSERT_TRUE(opened.ok());
    ns_ = std::move(opened).value();
    family_ = ns_->plan({}).value().family;
  }
  void close() {
    if (manager_ == nullptr) return;
    bool closed = false;
    manager_->shutdown([&] { closed = true; });
    EXPECT_TRUE(sim_.run_until([&] { return closed; }));
    sim_.run();
    ns_ = nullptr;
    manager_ = nullptr;
  }
  void TearDown() override { close(); }

  // Stores a block with all bytes n and sends it down.
  void put(uint64_t n) {
    ASSERT_NO_FATAL_FAILURE(store(n));
    flush();
  }
  void store(uint64_t n) {
    manager_->host().next_tick();
    SlotId slot = kNoSlot;
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
    std::memset(manager_->host().arena().payload(slot).data(), static_cast<int>(n), kBlock);
    ASSERT_EQ(manager_->host().table().complete({&slot, 1}), Code::ok);
    manager_->host().arena().clear_head(slot);
    note_payload_bytes(manager_->host(), slot, kBlock);
    const Key k = key(n);
    block::Publication what;
    what.family = family_;
    what.keys = {&k, 1};
    Code code = Code::internal;
    ASSERT_EQ(manager_->stack().publish({&slot, 1}, what, {}, {&code, 1}), Code::ok);
    ASSERT_EQ(code, Code::ok);
    manager_->host().release({&slot, 1});
  }
  void put_all(uint64_t first = 0, uint64_t n = kBlocks) {
    for (uint64_t i = first; i < first + n; ++i) ASSERT_NO_FATAL_FAILURE(put(i));
    sim_.run();
  }
  void flush() {
    bool done = false;
    manager_->lower().flush([&] { done = true; });
    ASSERT_TRUE(sim_.run_until([&] { return done; }));
  }

  bool in(TierIndex tier, uint64_t n) {
    tier::Found found;
    const Identity i = id(n);
    manager_->lower().tier(tier).find({&i, 1}, {&found, 1}, false);
    return found.present;
  }
  bool in_host(uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot != kNoSlot) manager_->host().release({&slot, 1});
    return slot != kNoSlot;
  }
  // Returns whether the tier returns block n with all of its bytes equal to n.
  bool right(TierIndex tier, uint64_t n) {
    const tier::disk::AlignedBuffer head(16384);
    const tier::disk::AlignedBuffer payload(2 * kBlock);
    auto batch = std::make_unique<tier::GetBatch>();
    tier::GetItem item;
    item.id = id(n);
    item.head = head.span();
    item.payload = payload.span();
    batch->items.push_back(item);
    bool done = false;
    bool good = false;
    batch->done = [&](tier::GetBatch& got) {
      done = true;
      good = got.status[0] == Code::ok && got.items[0].payload_bytes == kBlock &&
             std::all_of(payload.data(), payload.data() + kBlock,
                         [n](std::byte b) { return b == static_cast<std::byte>(n); });
    };
    manager_->lower().tier(tier).get(std::move(batch));
    EXPECT_TRUE(sim_.run_until([&] { return done; }));
    return good;
  }
  const TierCounters& counts(TierIndex tier) { return manager_->counters().tiers[tier]; }
  tier::TierStats stats(TierIndex tier) { return manager_->lower().tier(tier).stats(); }
  std::string key_file() {
    const std::string path = keys_.path() + "/keys";
    std::ofstream(path) << "1 " << std::string(64, 'a') << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }

  SimExecutor sim_{7};
  SimDisk disk_{sim_};
  Log log_;
  test::TempDir keys_;
  std::shared_ptr<MemoryTier::Store> memory_ = std::make_shared<MemoryTier::Store>();
  std::shared_ptr<Manager> manager_;
  std::shared_ptr<Namespace> ns_;
  FamilyId family_ = 0;
};

TEST_F(TakeOver, the_second_disk_has_what_the_first_let_go) {
  open(disk("/a", kSegments, AdmissionKind::all), disk("/b", 60, AdmissionKind::on_eviction));
  for (uint64_t n = 0; n < kBlocks; ++n) {
    put(n);
    // Every block is findable at all times.
    for (uint64_t i = 0; i <= n; ++i) ASSERT_TRUE(in(1, i) || in(2, i)) << i << " after " << n;
  }
  sim_.run();
  uint64_t second = 0;
  for (uint64_t n = 0; n < kBlocks; ++n) {
    EXPECT_NE(in(1, n), in(2, n)) << n;
    EXPECT_TRUE(right(in(1, n) ? 1 : 2, n)) << n;
    second += in(2, n) ? 1 : 0;
  }
  EXPECT_GT(second, kBlocks / 2);
  // The blocks that one tier evicts are those that the other one stores.
  EXPECT_EQ(get(counts(1).stores), kBlocks);
  EXPECT_EQ(get(counts(1).evictions), second);
  EXPECT_EQ(stats(1).moved_down, second);
  EXPECT_EQ(stats(1).moves_lost, 0U);
  EXPECT_EQ(get(counts(2).stores), second);
  EXPECT_EQ(get(counts(2).store_bytes), second * kBlock);
  EXPECT_EQ(get(counts(2).errors), 0U);
  EXPECT_EQ(stats(1).records + stats(2).records, kBlocks);
}

TEST_F(TakeOver, write_back_twice_is_one_chain) {
  open(disk("/a", kSegments, AdmissionKind::on_eviction), disk("/b", 60, AdmissionKind::on_eviction));
  put_all();
  for (uint64_t n = 0; n < kBlocks; ++n) EXPECT_EQ(in_host(n) + in(1, n) + in(2, n), 1) << n;
  EXPECT_EQ(get(counts(2).stores), stats(1).moved_down);
  EXPECT_GT(stats(1).moved_down, kBlocks / 2);
}

// The host keeps a block longer than the first disk does. When the host evicts it, it must not be written to the first
// disk again, because the second one has it.
TEST_F(TakeOver, what_went_on_is_not_written_above_again) {
  open(disk("/a", kSegments, AdmissionKind::all), disk("/b", 60, AdmissionKind::on_eviction));
  put(0);
  const Key k = key(0);
  block::PinId pin = 0;
  size_t pinned = 0;
  ASSERT_EQ(manager_->pins().pin(family_, {&k, 1}, 7, kNever, pin, pinned), Code::ok);
  put_all(1, 60);
  ASSERT_TRUE(in_host(0) && !in(1, 0) && in(2, 0));
  ASSERT_EQ(manager_->pins().unpin(pin), Code::ok);
  put_all(61, 60);
  ASSERT_FALSE(in_host(0));
  EXPECT_FALSE(in(1, 0));
  EXPECT_TRUE(right(2, 0));
  EXPECT_EQ(get(counts(1).stores), 121U);
}

TEST_F(TakeOver, events_say_that_it_came_before_they_say_that_it_went) {
  open(disk("/a", kSegments, AdmissionKind::all), disk("/b", 60, AdmissionKind::on_eviction));
  auto queue = copy::Queue::create(16).value();
  manager_->events().subscribe(queue);
  put_all();
  std::vector<copy::Event> events(4096);
  events.resize(queue->poll_events(events));
  ASSERT_LT(events.size(), 4096U);
  std::map<Key, std::vector<std::pair<copy::EventKind, uint32_t>>> of;
  for (const copy::Event& event : events) {
    if (event.tier != 0) of[event.key].emplace_back(event.kind, event.tier);
  }
  using copy::EventKind;
  const std::vector<std::pair<EventKind, uint32_t>> moved = {
      {EventKind::stored, 1}, {EventKind::stored, 2}, {EventKind::removed, 1}};
  for (uint64_t n = 0; n < kBlocks; ++n) {
    if (!in(2, n)) continue;
    EXPECT_EQ(of[key(n)], moved) << n;
  }
}

TEST_F(TakeOver, a_plug_in_is_the_tier_below_as_well) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  put_all();
  EXPECT_GT(memory_->records.size(), kBlocks / 2);
  for (uint64_t n = 0; n < kBlocks; ++n) EXPECT_TRUE(right(in(1, n) ? 1 : 2, n)) << n;
  EXPECT_EQ(memory_->records.size(), stats(1).moved_down);
}

TEST_F(TakeOver, a_tier_that_has_it_all_or_wants_nothing_gets_nothing_from_above) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::all));
  put_all();
  EXPECT_EQ(memory_->records.size(), kBlocks);
  EXPECT_EQ(stats(1).moved_down, 0U);
  close();
  memory_->records.clear();
  open(disk("/c", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_request));
  put_all();
  EXPECT_GT(get(counts(1).evictions), kBlocks / 2);
  EXPECT_TRUE(memory_->records.empty());
  EXPECT_EQ(stats(1).moves_lost, 0U);
}

// A block that got no space at its write-through is written at its eviction.
TEST_F(TakeOver, write_through_takes_what_it_has_not) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::all));
  put_all(0, 16);
  memory_->records.clear();
  put_all(16, kBlocks - 16);
  for (uint64_t n = 0; n < 8; ++n) EXPECT_TRUE(in(1, n) || right(2, n)) << n;
  EXPECT_GT(stats(1).moved_down, 0U);
}

TEST_F(TakeOver, a_tier_out_of_service_is_passed_by) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  manager_->lower().disabled(TierIndex{2}, Status(Code::tier_disabled, "the test says so"));
  put_all();
  EXPECT_TRUE(memory_->records.empty());
  EXPECT_GT(get(counts(1).evictions), kBlocks / 2);
  EXPECT_EQ(stats(1).moves_lost, 0U);
}

// The first disk is switched off, and the host's evicted blocks are written to the second tier directly.
TEST_F(TakeOver, without_the_tier_above_the_host_feeds_it) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  manager_->lower().disabled(TierIndex{1}, Status(Code::tier_disabled, "the test says so"));
  put_all(0, 32);
  EXPECT_GE(memory_->records.size(), 32U - kSlots);
}

// A block is erased in transit: after it left the disk, before the tier below has it.
TEST_F(TakeOver, what_is_forgotten_on_its_way_does_not_come_back) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  for (const bool late : {false, true}) {
    memory_->late = late;
    std::vector<Key> forgotten;
    memory_->before_put = [&](const tier::PutBatch& batch) {
      forgotten.push_back(batch.items[0].id.key);
      manager_->stack().drop(family_, {&forgotten.back(), 1});
    };
    put_all(late ? kBlocks : 0);
    ASSERT_GT(forgotten.size(), 3U);
    EXPECT_GT(memory_->records.size(), 50U);
    for (const Key& k : forgotten) EXPECT_FALSE(memory_->records.contains({k, family_}));
  }
  memory_->before_put = [&](const tier::PutBatch&) { EXPECT_TRUE(manager_->namespaces().reset(*ns_).ok()); };
  memory_->records.clear();
  put_all(1000);
  EXPECT_TRUE(memory_->records.empty());
}

// Erases blocks at random moments of the transfer; all others arrive.
TEST_F(TakeOver, what_is_forgotten_while_it_moves_does_not_come_back) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  memory_->late = true;
  put_all(0, 40);
  std::set<uint64_t> forgotten;
  uint64_t oldest = 0;
  for (uint64_t n = 40; n < 2 * kBlocks; ++n) {
    put(n);
    for (uint64_t i = 0; i < n % 23; ++i) sim_.step();
    while (!in(1, oldest)) ++oldest;
    if (n % 3 != 0 || in(2, oldest)) continue;
    const Key k = key(oldest);
    manager_->stack().drop(family_, {&k, 1});
    forgotten.insert(oldest);
  }
  sim_.run();
  EXPECT_GT(forgotten.size(), 20U);
  EXPECT_GT(memory_->records.size(), kBlocks);
  for (const uint64_t n : forgotten) EXPECT_FALSE(in(1, n) || in(2, n)) << n;
  for (uint64_t n = 0; n < 2 * kBlocks; ++n) EXPECT_TRUE(forgotten.contains(n) || in(1, n) || in(2, n)) << n;
}

// Does the same with blocks that the host sends: a plug-in may store a block after the call to forget it.
TEST_F(TakeOver, what_is_forgotten_on_its_way_from_the_host_does_not_come_back) {
  open(plugin(AdmissionKind::all), disk("/b", 60, AdmissionKind::on_request));
  memory_->late = true;
  store(1);
  const Key first = key(1);
  EXPECT_EQ(manager_->stack().drop(family_, {&first, 1}), 1U);
  sim_.run();
  EXPECT_FALSE(in(1, 1));
  // A block stored again meanwhile stays.
  store(2);
  const Key second = key(2);
  EXPECT_EQ(manager_->stack().drop(family_, {&second, 1}), 1U);
  store(2);
  sim_.run();
  EXPECT_TRUE(in_host(2) && in(1, 2));
}

TEST_F(TakeOver, what_a_full_tier_does_not_take_is_no_error_of_its_own) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  memory_->full = true;
  put_all();
  EXPECT_EQ(get(counts(2).errors), 0U);
  EXPECT_EQ(get(manager_->counters().offload_skipped), stats(1).moves_lost);
  EXPECT_GT(stats(1).moves_lost, 50U);
}

TEST_F(TakeOver, coded_records_move_as_they_are) {
  TierOptions first = disk("/a", kSegments, AdmissionKind::all);
  first.codec = "fast";
  open(std::move(first), plugin(AdmissionKind::on_eviction));
  put_all(0, 5 * kBlocks);  // coded records are small
  ASSERT_GT(stats(1).codec.coded, 0U);
  ASSERT_GT(memory_->records.size(), 50U);
  for (const auto& [identity, record] : memory_->records) {
    const auto head = codec::HeadView::parse(record.head);
    ASSERT_TRUE(head.ok());
    EXPECT_TRUE(codec::is_coded(head.value()));
    EXPECT_LT(record.payload.size(), kBlock);
  }
  for (uint64_t n = 0; n < 5 * kBlocks; ++n) EXPECT_TRUE(right(in(1, n) ? 1 : 2, n)) << n;
  EXPECT_EQ(get(counts(2).store_bytes), memory_->records.size() * kBlock);
}

TEST_F(TakeOver, a_plain_record_is_coded_as_the_tier_below_codes) {
  TierOptions second = plugin(AdmissionKind::on_eviction);
  second.codec = "fast";
  open(disk("/a", kSegments, AdmissionKind::all), std::move(second));
  put_all();
  ASSERT_GT(memory_->records.size(), kBlocks / 2);
  for (const auto& [identity, record] : memory_->records) EXPECT_LT(record.payload.size(), kBlock);
  for (uint64_t n = 0; n < kBlocks; ++n) EXPECT_TRUE(right(in(1, n) ? 1 : 2, n)) << n;
}

TEST_F(TakeOver, sealed_records_move_sealed_and_nothing_unsealed_gets_a_seal_on_the_way) {
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction));
  put_all(0, 16);
  ASSERT_TRUE(memory_->records.empty());
  close();
  // The first sixteen have no seal, as if an attacker had put them on the medium.
  open(disk("/a", kSegments, AdmissionKind::all), plugin(AdmissionKind::on_eviction), key_file());
  put_all(16, kBlocks);
  ASSERT_GT(memory_->records.size(), kBlocks / 2);
  for (const auto& [identity, record] : memory_->records) {
    const auto head = codec::HeadView::parse(record.head);
    ASSERT_TRUE(head.ok());
    EXPECT_NE(head.value().header().flags & codec::kSealed, 0);
  }
  for (uint64_t n = 0; n < 16; ++n) EXPECT_FALSE(in(2, n)) << n;
  for (uint64_t n = 16; n < 16 + kBlocks; ++n) EXPECT_TRUE(right(in(1, n) ? 1 : 2, n)) << n;
  EXPECT_GT(stats(1).moves_lost, 0U);
  EXPECT_LE(stats(1).moves_lost, 16U);
}

TEST_F(TakeOver, closing_closes_the_one_above_first) {
  for (uint64_t round = 0; round < 20; ++round) {
    open(disk("/a", kSegments, AdmissionKind::all), disk("/b", 60, AdmissionKind::on_eviction));
    for (uint64_t n = 0; n < 10; ++n) put(round * 10 + n);
    for (uint64_t i = 0; i < round; ++i) sim_.step();
    close();
  }
  open(disk("/a", kSegments, AdmissionKind::all), disk("/b", 60, AdmissionKind::on_eviction));
  for (uint64_t n = 0; n < 200; ++n) EXPECT_TRUE(right(1, n) || right(2, n)) << n;
}

}  // namespace
}  // namespace kvbm::manager::take_over_test

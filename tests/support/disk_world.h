// A disk tier on the simulated disk, records made from a number, and a list of the stored records.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/family/family_table.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "support/opaque_leaves.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"
#include "tier/disk/aligned_buffer.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::test {

inline NamespaceId namespace_of(uint8_t n) {
  NamespaceId ns;
  ns.bytes.fill(n);
  return ns;
}

inline Family family_of(uint8_t n) { return Family{namespace_of(n), 7, 0, Shard{0, 4, 0, 8, 0}}; }

// Keys spread like hashes do.
inline Key key_of(uint64_t n) {
  SeededRandom random(n * 2654435761U + 1);
  Key key;
  random.fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

// A whole record in aligned memory; its bytes follow from its number.
struct TestRecord {
  tier::disk::AlignedBuffer head_memory{8192};
  tier::disk::AlignedBuffer memory;
  std::vector<std::byte> head;
  uint64_t payload_bytes;
  Key key;

  TestRecord(uint64_t n, uint64_t bytes, const Family& family, uint64_t parent = 0)
      : memory(bytes == 0 ? 4096 : bytes), payload_bytes(bytes), key(key_of(n)) {
    SeededRandom random(n ^ 0xABCDEF);
    random.fill(memory.span());
    codec::Header h;
    h.flags = codec::kOpaque;
    h.ns = family.ns;
    h.key = key;
    if (parent != 0) h.parent = key_of(parent);
    h.component = family.component;
    h.shard = family.shard;
    h.geometry = family.geometry;
    auto leaves = test::opaque_leaves(bytes);
    h.leaf_count = static_cast<uint32_t>(leaves.size());
    h.raw_bytes = h.stored_bytes = bytes;
    for (auto& leaf : leaves) leaf.hash = codec::leaf_hash(payload().subspan(leaf.offset, leaf.stored_bytes));
    head.resize(codec::head_bytes(h.leaf_count, 0));
    EXPECT_TRUE(codec::encode_head(h, leaves, {}, head).ok());
  }
  [[nodiscard]] ConstBytes payload() const { return ConstBytes(memory.span()).first(payload_bytes); }
};

struct Removals final : tier::TierListener {
  void removed(TierIndex, std::span<const Identity> ids, bool damaged) override {
    (damaged ? damages : evictions) += ids.size();
  }
  void disabled(TierIndex, const Status&) override { ++disables; }
  void warns(TierIndex, const Status& why) override { warnings.push_back(why.message()); }
  std::vector<std::string> warnings;
  uint64_t evictions = 0, damages = 0, disables = 0;
};

class DiskWorld {
 public:
  explicit DiskWorld(uint64_t seed, uint64_t capacity = uint64_t{3} << 20, uint64_t segment = 256 << 10)
      : sim(seed), disk(sim) {
    options.path = "/tier";
    options.capacity_bytes = capacity;
    options.segment_bytes = segment;
  }
  ~DiskWorld() {
    tier.reset();
    sim.run();
  }

  Status open() {
    auto result = tier::disk::DiskTier::open(options, disk, sim, families, sim.random(), &removals, 1);
    if (!result.ok()) return result.status();
    tier = std::move(result).value();
    return {};
  }
  void crash() {
    disk.crash();
    tier.reset();
  }
  void power_cut() {
    disk.power_cut();
    tier.reset();
  }
  bool close() {
    bool done = false;
    tier->shutdown([&] { done = true; });
    sim.run_until([&] { return done; });
    tier.reset();
    return done;
  }

  Identity id(uint64_t n, uint8_t family = 1) {
    return Identity{key_of(n), families.intern(family_of(family)).value()};
  }

  // Starts a put. `out` gets the statuses when the batch is done; the records live until then.
  void put(const std::vector<uint64_t>& numbers, uint64_t bytes, bool durable, std::vector<Code>* out,
           uint8_t family = 1, uint64_t deadline_ns = kNever) {
    auto records = std::make_shared<std::vector<TestRecord>>();
    auto batch = std::make_unique<tier::PutBatch>();
    for (const uint64_t n : numbers) {
      records->emplace_back(n, bytes, family_of(family));
      tier::PutItem item;
      item.id = id(n, family);
      item.head = records->back().head;
      item.payload = records->back().payload();
      item.priority = priority;
      batch->items.push_back(item);
    }
    batch->durable = durable;
    batch->deadline_ns = deadline_ns;
    batch->done = [records, out](tier::PutBatch& b) { *out = b.status; };
    tier->put(std::move(batch));
  }
  Code put_now(uint64_t n, uint64_t bytes, bool durable = false, uint8_t family = 1) {
    std::vector<Code> codes;
    put({n}, bytes, durable, &codes, family);
    sim.run_until([&] { return !codes.empty(); });
    return codes.empty() ? Code::internal : codes[0];
  }

  struct Got {
    Code code = Code::internal;
    bool right = false;  // head and payload are byte for byte those of the number
  };
  Got get_now(uint64_t n, uint64_t bytes, uint8_t family = 1) {
    const TestRecord want(n, bytes, family_of(family));
    const tier::disk::AlignedBuffer head(8192);
    const tier::disk::AlignedBuffer payload(bytes == 0 ? 4096 : bytes);
    auto batch = std::make_unique<tier::GetBatch>();
    tier::GetItem item;
    item.id = id(n, family);
    item.head = head.span();
    item.payload = payload.span();
    batch->items.push_back(item);
    Got got;
    bool done = false;
    batch->done = [&](tier::GetBatch& b) {
      got.code = b.status[0];
      got.right = b.items[0].head_bytes == want.head.size() && b.items[0].payload_bytes == bytes &&
                  std::memcmp(head.data(), want.head.data(), want.head.size()) == 0 &&
                  std::memcmp(payload.data(), want.memory.data(), bytes) == 0;
      done = true;
    };
    tier->get(std::move(batch));
    EXPECT_TRUE(sim.run_until([&] { return done; }));
    return got;
  }
  // Gets all records in one batch, so that neighbours are read together. `meanwhile` runs once the tier has the batch.
  std::vector<Got> get_together(const std::vector<uint64_t>& numbers, uint64_t bytes,
                                const std::function<void()>& meanwhile = {}) {
    std::vector<tier::disk::AlignedBuffer> memory;
    auto batch = std::make_unique<tier::GetBatch>();
    for (const uint64_t n : numbers) {
      tier::GetItem item;
      item.id = id(n);
      item.head = memory.emplace_back(8192).span();
      item.payload = memory.emplace_back(bytes).span();
      batch->items.push_back(item);
    }
    std::vector<Got> got(numbers.size());
    bool done = false;
    batch->done = [&](tier::GetBatch& b) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const TestRecord want(numbers[i], bytes, family_of(1));
        got[i] = {b.status[i], b.items[i].payload_bytes == bytes && b.items[i].head_bytes == want.head.size() &&
                                   std::memcmp(b.items[i].head.data(), want.head.data(), want.head.size()) == 0 &&
                                   std::memcmp(b.items[i].payload.data(), want.memory.data(), bytes) == 0};
      }
      done = true;
    };
    tier->get(std::move(batch));
    if (meanwhile) meanwhile();
    EXPECT_TRUE(sim.run_until([&] { return done; }));
    return got;
  }
  bool present(uint64_t n, uint8_t family = 1) {
    tier::Found found;
    const Identity i = id(n, family);
    tier->find({&i, 1}, {&found, 1}, false);
    return found.present;
  }

  uint8_t priority = 0;  // priority of later puts
  SimExecutor sim;
  SimDisk disk;
  FamilyTable families;
  Removals removals;
  tier::disk::DiskTierOptions options;
  std::unique_ptr<tier::disk::DiskTier> tier;
};

}  // namespace kvbm::test

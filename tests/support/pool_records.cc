#include "support/pool_records.h"
#include "support/opaque_leaves.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"

namespace kvbm::test {

Family pool_family() {
  Family family;
  family.ns.bytes[0] = 7;
  family.geometry = 11;
  family.component = 2;
  family.shard.layers = 4;
  return family;
}

Key pool_key(uint64_t number) {
  Key key;
  const uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15ULL;
  std::memcpy(key.bytes.data(), &mixed, sizeof mixed);
  std::memcpy(key.bytes.data() + 8, &number, sizeof number);
  return key;
}

std::vector<std::byte> pool_payload(uint64_t number, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  for (uint64_t at = 0; at < bytes; at += 8) {
    const uint64_t word = (number + 1) * 0xD1342543DE82EF95ULL ^ (at * 0xBF58476D1CE4E5B9ULL);
    std::memcpy(out.data() + at, &word, std::min<uint64_t>(8, bytes - at));
  }
  return out;
}

void put_pool_record(const tier::HostArena& arena, SlotId slot, uint64_t number, uint64_t bytes) {
  arena.clear_head(slot);
  const auto payload = pool_payload(number, bytes);
  std::vector<codec::Leaf> leaves = test::opaque_leaves(bytes);
  for (codec::Leaf& leaf : leaves) {
    leaf.hash = codec::copy_hashed(arena.payload(slot).data() + leaf.offset, payload.data() + leaf.offset,
                                   leaf.stored_bytes, codec::CopyHint::automatic);
  }
  const Family family = pool_family();
  codec::Header header;
  header.flags = codec::kOpaque;
  header.ns = family.ns;
  header.key = pool_key(number);
  header.component = family.component;
  header.shard = family.shard;
  header.geometry = family.geometry;
  std::memcpy(header.record_id.data(), &number, sizeof number);
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  header.raw_bytes = bytes;
  header.stored_bytes = bytes;
  const auto written = codec::encode_head(header, leaves, {}, arena.head(slot));
  EXPECT_TRUE(written.ok()) << written.status().message();
}

std::unique_ptr<tier::HostArena> make_pool(uint32_t slots, uint64_t block_bytes) {
  tier::HostOptions options;
  options.block_bytes = block_bytes;
  const uint64_t slot_bytes = round_up(block_bytes, 4096) + tier::HostArena::head_stride(block_bytes);
  options.capacity_bytes = 4096 + slots * slot_bytes;
  options.shared = true;
  auto made = tier::HostArena::create(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

}  // namespace kvbm::test

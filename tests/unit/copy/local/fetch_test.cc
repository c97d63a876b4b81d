#include "copy/local/fetch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/memory/shared_memory.h"
#include "support/pool_records.h"

namespace kvbm::copy::local::fetch_test {
namespace {

using test::kPoolBlockBytes;
using test::make_pool;
using test::pool_family;
using test::pool_key;
using test::pool_payload;
using test::put_pool_record;

// An owner and a reader in one process: two mappings of the same memory.
struct World {
  explicit World(uint32_t slots) : arena(make_pool(slots)) {
    offer.id = 1;
    offer.shape = arena->shape();
    auto mapped = RemotePool::map(arena->fd(), offer, self(), getpid());
    EXPECT_TRUE(mapped.ok()) << mapped.status().message();
    pool = std::move(mapped).value();
    room.resize(static_cast<size_t>(offer.shape.head_stride));
  }
  static Fd self() { return Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }
  Code head_of(SlotId slot, uint64_t number) {
    return read_head(place_of(*pool, slot), pool_family(), pool_key(number), room, head);
  }

  std::unique_ptr<tier::HostArena> arena;
  PoolOffer offer;
  std::shared_ptr<RemotePool> pool;
  std::vector<std::byte> room;
  std::optional<codec::HeadView> head;
};

TEST(Fetch, gives_the_bytes_that_the_owner_published) {
  World world(4);
  for (SlotId slot = 0; slot < 4; ++slot) put_pool_record(*world.arena, slot, slot);
  std::vector<std::byte> to(kPoolBlockBytes);
  for (SlotId slot = 0; slot < 4; ++slot) {
    ASSERT_EQ(world.head_of(slot, slot), Code::ok);
    ASSERT_EQ(fetch_record(place_of(*world.pool, slot), *world.head, to, codec::CopyHint::automatic), Code::ok);
    EXPECT_EQ(to, pool_payload(slot));
  }
  EXPECT_TRUE(world.pool->alive());
}

TEST(Fetch, a_location_that_names_another_record_is_a_miss) {
  World world(2);
  put_pool_record(*world.arena, 0, 1);
  EXPECT_EQ(world.head_of(0, 2), Code::miss);
  EXPECT_EQ(world.head_of(1, 1), Code::miss);  // nothing there
  EXPECT_EQ(world.head_of(2, 1), Code::miss);  // no such slot
  EXPECT_EQ(world.head_of(UINT32_MAX, 1), Code::miss);
  for (const int field : {0, 1, 2, 3}) {
    Family other = pool_family();
    if (field == 0) other.ns.bytes[1] ^= 1;
    if (field == 1) ++other.geometry;
    if (field == 2) ++other.component;
    if (field == 3) ++other.shard.layers;
    EXPECT_EQ(read_head(place_of(*world.pool, 0), other, pool_key(1), world.room, world.head), Code::miss) << field;
    EXPECT_FALSE(world.head.has_value());
  }
  EXPECT_EQ(world.head_of(0, 1), Code::ok);
  world.arena->clear_head(0);
  EXPECT_EQ(world.head_of(0, 1), Code::miss);
}

TEST(Fetch, a_slot_reused_after_its_head_was_read_is_a_miss) {
  World world(1);
  put_pool_record(*world.arena, 0, 1);
  ASSERT_EQ(world.head_of(0, 1), Code::ok);
  put_pool_record(*world.arena, 0, 2);
  std::vector<std::byte> to(kPoolBlockBytes);
  EXPECT_EQ(fetch_record(place_of(*world.pool, 0), *world.head, to, codec::CopyHint::automatic), Code::miss);
}

TEST(Fetch, a_flipped_bit_is_damage) {
  World world(1);
  put_pool_record(*world.arena, 0, 1);
  ASSERT_EQ(world.head_of(0, 1), Code::ok);
  world.arena->payload(0)[65536 + 77] ^= std::byte{4};
  std::vector<std::byte> to(kPoolBlockBytes);
  EXPECT_EQ(fetch_record(place_of(*world.pool, 0), *world.head, to, codec::CopyHint::automatic), Code::damaged);
}

TEST(Fetch, any_flipped_bit_of_a_head_is_a_miss) {
  World world(1);
  put_pool_record(*world.arena, 0, 1);
  ASSERT_EQ(world.head_of(0, 1), Code::ok);
  const size_t bytes = world.head->head_bytes();
  for (size_t at = 0; at < bytes; ++at) {
    world.arena->head(0)[at] ^= std::byte{1};
    EXPECT_EQ(world.head_of(0, 1), Code::miss) << at;
    world.arena->head(0)[at] ^= std::byte{1};
  }
  EXPECT_EQ(world.head_of(0, 1), Code::ok);
}

TEST(Fetch, what_does_not_fit_is_refused_before_anything_is_written) {
  World world(1);
  put_pool_record(*world.arena, 0, 1);
  std::vector<std::byte> small(codec::kHeaderBytes + 8);
  EXPECT_EQ(read_head(place_of(*world.pool, 0), pool_family(), pool_key(1), small, world.head), Code::no_room);
  ASSERT_EQ(world.head_of(0, 1), Code::ok);
  std::vector<std::byte> to(65536, std::byte{9});
  EXPECT_EQ(fetch_record(place_of(*world.pool, 0), *world.head, to, codec::CopyHint::cached), Code::invalid_argument);
  EXPECT_EQ(to, std::vector<std::byte>(65536, std::byte{9}));
}

// The reader and the owner race on purpose, through two mappings: what is called good is good.
TEST(Fetch, bytes_are_right_or_refused_while_the_owner_reuses_slots) {
  constexpr uint32_t kSlots = 2;
  World world(kSlots);
  for (SlotId slot = 0; slot < kSlots; ++slot) put_pool_record(*world.arena, slot, slot);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> newest{kSlots - 1};
  std::thread owner([&] {
    for (uint64_t n = kSlots; !stop.load(); ++n) {
      put_pool_record(*world.arena, n % kSlots, n);
      newest.store(n);
    }
  });
  std::vector<std::byte> to(kPoolBlockBytes);
  uint64_t good = 0;
  uint64_t refused = 0;
  uint64_t wrong = 0;
  for (uint64_t tries = 0; (good < 1500 || refused < 1500) && tries < 2'000'000; ++tries) {
    // Reads the newest record and the one that the owner is about to replace, in turn.
    const uint64_t n = newest.load() - tries % 2;
    const auto slot = static_cast<SlotId>(n % kSlots);
    Code code = world.head_of(slot, n);
    if (code == Code::ok) code = fetch_record(place_of(*world.pool, slot), *world.head, to, codec::CopyHint::automatic);
    if (code != Code::ok) {
      EXPECT_TRUE(code == Code::miss || code == Code::damaged) << code_name(code);
      ++refused;
      continue;
    }
    ++good;
    if (to != pool_payload(n)) ++wrong;
  }
  stop.store(true);
  owner.join();
  EXPECT_GE(good, 1U);
  EXPECT_EQ(wrong, 0U) << "of " << good;
}

TEST(RemotePool, an_offer_survives_its_encoding) {
  World world(3);
  std::byte bytes[kOfferBytes];
  encode(world.offer, bytes);
  const auto again = decode_offer(bytes);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().id, world.offer.id);
  EXPECT_EQ(again.value().shape, world.offer.shape);
  EXPECT_EQ(decode_offer({bytes, kOfferBytes - 1}).status().code(), Code::damaged);
}

TEST(RemotePool, an_offer_whose_slots_lie_outside_is_refused) {
  World world(3);
  for (size_t field = 1; field < 8; ++field) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX - 63, uint64_t{1} << 63, uint64_t{1} << 40}) {
      std::byte bytes[kOfferBytes];
      encode(world.offer, bytes);
      store_le(bytes + field * 8, value);
      const auto decoded = decode_offer(bytes);
      if (!decoded.ok()) continue;
      // An accepted shape lies inside its announced size, and mapping checks that size against the memory's.
      const tier::HostShape& s = decoded.value().shape;
      EXPECT_LE(s.payload_at + s.slots * s.payload_stride, s.bytes) << field;
      EXPECT_LE(s.head_at + s.slots * s.head_stride, s.bytes) << field;
      if (s.bytes != world.offer.shape.bytes) {
        EXPECT_FALSE(RemotePool::map(world.arena->fd(), decoded.value(), World::self(), 1).ok()) << field;
      }
    }
  }
}

TEST(RemotePool, memory_that_its_owner_could_shrink_is_refused) {
  World world(1);
  const auto bytes = static_cast<size_t>(world.offer.shape.bytes);
  auto loose = make_shared_memory(bytes, false);
  ASSERT_TRUE(loose.ok());
  ASSERT_EQ(fallocate(loose.value().get(), 0, 0, static_cast<off_t>(bytes)), 0);
  const auto mapped = RemotePool::map(loose.value().get(), world.offer, World::self(), 1);
  EXPECT_EQ(mapped.status().code(), Code::not_permitted);
}

}  // namespace
}  // namespace kvbm::copy::local::fetch_test

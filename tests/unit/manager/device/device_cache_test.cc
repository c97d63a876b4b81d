// Attached caches in device memory: what is stored comes back as it was, in the order of the engine's streams, and what
// cannot be done is refused or ends.
#include "manager/device/device_caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "device/context/device.h"
#include "device/transfer/transfers.h"
#include "manager/host/host_record.h"
#include "manager/stack/managed.h"
#include "support/device_engine.h"
#include "support/temp_dir.h"

namespace kvbm::test::device_cache_test {
namespace {

using layout::Form;
using manager::MemoryKind;

constexpr Form kForms[] = {Form::nhd,       Form::hnd,          Form::packed_hnd,       Form::split_nhd,
                           Form::cross_nhd, Form::heads_packed, Form::sglang_page_first};

class DeviceCache : public DeviceEngine {
 protected:
  // Streams and copies of the tests act as the engine's.
  device::CuStream engine_stream() { return fake_.make_stream(kOrdinal); }
  void enqueue_copy(device::CuStream stream, void* to, const void* from, size_t bytes) {
    const device::Driver& driver = fake_.driver();
    device::CuContext context = manager_->devices().opened()[0]->device().context();
    ASSERT_EQ(driver.cuCtxPushCurrent(context), device::kCuSuccess);
    EXPECT_EQ(driver.cuMemcpyAsync(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, stream),
              device::kCuSuccess);
    ASSERT_EQ(driver.cuCtxPopCurrent(&context), device::kCuSuccess);
  }
  std::shared_ptr<device::StreamPoint> point(const Paged& cache, device::CuStream stream) {
    auto taken = cache.cache->device()->transfers().point(stream);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return taken.ok() ? std::move(taken).value() : nullptr;
  }
  std::string refusal(std::byte* memory, uint64_t bytes, MemoryKind kind = MemoryKind::cuda, int ordinal = kOrdinal) {
    const auto placed = place(memory, bytes, kind, ordinal);
    return placed.ok() ? "" : std::string(code_name(placed.status().code())) + ": " + placed.status().message();
  }
  void flush() {
    Call flushed;
    manager_->lower().flush([&flushed] {
      MutexLock lock(flushed.mutex);
      flushed.over = true;
      flushed.ended.notify_all();
    });
    (void)flushed.wait();
  }
  // Changes one byte of a stored record.
  void damage(uint64_t key, size_t at) {
    const auto plan = ns_->plan({});
    const SlotId slot = manager_->host().acquire_one(plan.value().family, keys(key, 1)[0]);
    ASSERT_NE(slot, kNoSlot);
    manager_->host().arena().payload(slot)[at] ^= std::byte{1};
    manager_->host().release({&slot, 1});
  }
};

TEST_F(DeviceCache, what_is_stored_from_a_device_is_the_record_that_a_host_cache_makes) {
  for (const Form form : kForms) {
    SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)));
    make(32);
    const Paged device = attach_device(form);
    const Paged host = attach_host(Form::hnd);
    fill(device, 1);
    EXPECT_EQ(store_all(device, 1, 3, 9).status, Code::ok);
    const copy::Completion loaded = load_all(host, 1, 10, 9);
    EXPECT_EQ(loaded.status, Code::ok);
    EXPECT_EQ(loaded.items_done, 9U);
    for (uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(block(host, 10 + i) == block(device, 3 + i)) << i;
    TearDown();
    SetUp();
  }
}

TEST_F(DeviceCache, what_a_host_cache_stored_is_loaded_into_a_device_in_any_form) {
  for (const Form form : kForms) {
    SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)));
    make(32);
    const Paged device = attach_device(form);
    const Paged host = attach_host(Form::hnd);
    fill(host, 2);
    fill(device, 3);
    const std::vector<std::byte> before = block(device, 20);
    EXPECT_EQ(store_all(host, 1, 0, 9).status, Code::ok);
    const copy::Completion loaded = load_all(device, 1, 11, 9);
    EXPECT_EQ(loaded.status, Code::ok);
    EXPECT_EQ(loaded.bytes, 9 * kBlockBytes);
    for (uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(block(device, 11 + i) == block(host, i)) << i;
    EXPECT_TRUE(block(device, 20) == before);  // nothing else was written
    TearDown();
    SetUp();
  }
}

TEST_F(DeviceCache, what_is_there_already_moves_nothing) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  EXPECT_EQ(store_all(device, 1, 0, 8).bytes, 8 * kBlockBytes);
  const copy::Completion again = store_all(device, 1, 0, 8);
  EXPECT_EQ(again.status, Code::ok);
  EXPECT_EQ(again.bytes, 0U);
}

TEST_F(DeviceCache, more_keys_than_a_chunk_and_more_than_there_is_room_for) {
  make(12);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  // One engine block under many keys.
  manager::StoreRequest request = store_request(device, 1, 0, 1);
  request.keys = keys(1, 1500);
  request.block_ids.assign(1500, 5);
  request.unchained = true;
  const auto call = start<manager::StoreOperation>(std::move(request), 1500);
  EXPECT_NE(call->wait().items_done, 0U);
  EXPECT_EQ(call->status.size(), 1500U);
  EXPECT_EQ(std::count(call->status.begin(), call->status.end(), 1), 0);  // each was decided
}

TEST_F(DeviceCache, a_damaged_record_is_a_miss_and_is_overwritten_with_nan) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 4).status, Code::ok);
  damage(3, kBlockBytes - 1);  // the last leaf of the third
  auto match = find(device, 1, 4);
  ASSERT_NE(match, nullptr);
  const auto call = load(load_request(device, match, 10));
  match.reset();
  const copy::Completion loaded = call->wait();
  EXPECT_EQ(loaded.status, Code::partial);
  EXPECT_EQ(loaded.items_done, 3U);
  EXPECT_EQ(call->status, (std::vector<int32_t>{0, 0, static_cast<int32_t>(Code::damaged), 0}));
  for (const uint32_t i : {0U, 1U, 3U}) EXPECT_TRUE(block(device, 10 + i) == block(device, i)) << i;
  const std::vector<std::byte> bad = block(device, 12);
  const uint32_t leaf = device.cache->parts()[0].leaf_count() - 1;
  uint32_t unit = 0;
  uint32_t layer = 0;
  const codec::Leaf last = device.cache->parts()[0].leaf(leaf, unit, layer);
  EXPECT_TRUE(std::all_of(bad.end() - last.raw_bytes, bad.end(), [](std::byte b) { return b == std::byte{0xFF}; }));
  EXPECT_EQ(find(device, 1, 4)->hits(), 2U);  // the damaged block is a miss
  EXPECT_EQ(device.cache->device()->transfers().scatters().bad_leaves, 1U);
}

TEST_F(DeviceCache, a_managed_block_without_a_head_is_loaded) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  const auto plan = ns_->plan({});
  SlotId slot = kNoSlot;
  ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
  for (uint64_t i = 0; i < kBlockBytes; ++i) manager_->host().arena().payload(slot)[i] = static_cast<std::byte>(i * 7);
  ASSERT_EQ(manager_->host().table().complete({&slot, 1}), Code::ok);
  manager_->host().arena().clear_head(slot);
  manager::note_payload_bytes(manager_->host(), slot, kBlockBytes);
  const Key key = keys(1, 1)[0];
  block::Publication what;
  what.family = plan.value().family;
  what.keys = {&key, 1};
  Code code = Code::internal;
  ASSERT_EQ(manager_->stack().publish({&slot, 1}, what, {}, {&code, 1}), Code::ok);
  manager_->host().release({&slot, 1});
  EXPECT_EQ(load_all(device, 1, 7, 1).items_done, 1U);
  const std::vector<std::byte> got = block(device, 7);
  for (uint64_t i = 0; i < kBlockBytes; ++i) ASSERT_EQ(got[i], static_cast<std::byte>(i * 7)) << i;
}

// The head of a managed block knows no layers, so the block is hashed as a whole before any of it is sent.
TEST_F(DeviceCache, a_managed_block_that_was_registered_is_checked_before_it_goes_to_a_device) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  const std::vector<Key> names = keys(1, 2);
  std::array<SlotId, 2> slots{};
  std::array<Code, 2> codes{};
  ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, slots, nullptr), Code::ok);
  ASSERT_EQ(manager_->host().table().complete(slots), Code::ok);
  for (const SlotId slot : slots) {
    for (uint64_t i = 0; i < kBlockBytes; ++i)
      manager_->host().arena().payload(slot)[i] = static_cast<std::byte>(i * 7);
    manager_->host().arena().clear_head(slot);
    manager::note_payload_bytes(manager_->host(), slot, kBlockBytes);
  }
  manager::ManagedBlocks what;
  what.family = ns_->plan({}).value().family;
  what.keys = names;
  ASSERT_EQ(manager::publish_managed(manager_->stack(), what, slots, codes), Code::ok);
  manager_->host().release(slots);
  EXPECT_EQ(load_all(device, 1, 7, 2).items_done, 2U);
  const std::vector<std::byte> got = block(device, 8);
  for (uint64_t i = 0; i < kBlockBytes; ++i) ASSERT_EQ(got[i], static_cast<std::byte>(i * 7)) << i;
  manager_->host().arena().payload(slots[1])[kBlockBytes / 2] ^= std::byte{1};
  const auto call = load(load_request(device, find(device, 1, 2), 9));
  EXPECT_EQ(call->wait().items_done, 1U);
  EXPECT_EQ(call->status, (std::vector<int32_t>{0, static_cast<int32_t>(Code::damaged)}));
  EXPECT_EQ(find(device, 1, 2)->hits(), 1U);
}

TEST_F(DeviceCache, some_layers_and_some_blocks_alone) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 4).status, Code::ok);
  const std::vector<std::byte> before = block(device, 10);
  const std::vector<std::byte> skipped = block(device, 11);
  manager::LoadRequest request = load_request(device, find(device, 1, 4), 10);
  request.block_ids[1] = manager::kNoBlock;
  request.first_layer = 1;
  request.n_layers = 1;
  EXPECT_EQ(load(std::move(request))->wait().status, Code::ok);
  const uint64_t layer = kBlockBytes / kLayers;
  const std::vector<std::byte> after = block(device, 10);
  const std::vector<std::byte> source = block(device, 0);
  EXPECT_TRUE(std::equal(after.begin(), after.begin() + layer, before.begin()));
  EXPECT_TRUE(std::equal(after.begin() + layer, after.begin() + 2 * layer, source.begin() + layer));
  EXPECT_TRUE(std::equal(after.begin() + 2 * layer, after.end(), before.begin() + 2 * layer));
  EXPECT_TRUE(block(device, 11) == skipped);
}

TEST_F(DeviceCache, blocks_go_to_disk_and_come_back_into_a_device) {
  for (const bool keep_below : {false, true}) {
    TempDir directory;
    make(8, directory.path() + "/tier");
    const Paged device = attach_device(Form::nhd);
    fill(device, 1);
    ASSERT_EQ(store_all(device, 1, 0, 6).status, Code::ok);
    flush();
    ASSERT_EQ(store_all(device, 100, 6, 6).status, Code::ok);  // the first ones leave the host
    flush();
    auto match = find(device, 1, 6);
    ASSERT_NE(match, nullptr);
    ASSERT_EQ(match->hits(), 6U);
    uint32_t below = 0;
    for (size_t i = 0; i < 6; ++i) below += match->tier_of(0, i) == 1 ? 1 : 0;
    EXPECT_NE(below, 0U);
    manager::LoadRequest request = load_request(device, std::move(match), 12);
    request.keep_below = keep_below;
    const auto call = load(std::move(request));
    EXPECT_EQ(call->wait().items_done, 6U) << code_name(static_cast<Code>(call->status[0]));
    for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(block(device, 12 + i) == block(device, i)) << i;
    TearDown();
    SetUp();
  }
}

// ---- Order ----

TEST_F(DeviceCache, a_store_reads_what_the_stream_held_when_it_was_submitted) {
  make(32);
  const Paged device = attach_device(Form::cross_nhd);  // a block is one piece
  fill(device, 1);
  const device::CuStream stream = engine_stream();
  std::vector<std::byte> computed(kBlockBytes, std::byte{0x5A});
  fake_.hold(stream);
  enqueue_copy(stream, device.memory + 2 * kBlockBytes, computed.data(), kBlockBytes);
  manager::StoreRequest request = store_request(device, 1, 2, 1);
  request.after = point(device, stream);
  const auto call = store(std::move(request));
  EXPECT_FALSE(call->is_over());
  fake_.release(stream);
  EXPECT_EQ(call->wait().status, Code::ok);
  const Paged host = attach_host(Form::cross_nhd);
  ASSERT_EQ(load_all(host, 1, 0, 1).items_done, 1U);
  EXPECT_TRUE(std::all_of(host.memory, host.memory + kBlockBytes, [](std::byte b) { return b == std::byte{0x5A}; }));
}

TEST_F(DeviceCache, a_load_writes_after_what_the_stream_held) {
  make(32);
  const Paged device = attach_device(Form::cross_nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 1).status, Code::ok);
  const device::CuStream stream = engine_stream();
  std::vector<std::byte> reader(kBlockBytes);
  const std::vector<std::byte> before = block(device, 9);
  const std::vector<std::byte> laid(device.memory + 9 * kBlockBytes, device.memory + 10 * kBlockBytes);
  fake_.hold(stream);
  enqueue_copy(stream, reader.data(), device.memory + 9 * kBlockBytes, kBlockBytes);  // the engine still reads it
  manager::LoadRequest request = load_request(device, find(device, 1, 1), 9);
  request.after = point(device, stream);
  const auto call = load(std::move(request));
  EXPECT_FALSE(call->is_over());
  EXPECT_TRUE(block(device, 9) == before);
  fake_.release(stream);
  EXPECT_EQ(call->wait().status, Code::ok);
  EXPECT_TRUE(block(device, 9) == block(device, 0));
  fake_.synchronize(stream);
  EXPECT_EQ(std::memcmp(reader.data(), laid.data(), kBlockBytes), 0);  // the engine read what was there before
}

TEST_F(DeviceCache, a_stream_that_waits_for_a_layer_reads_what_was_loaded) {
  make(32);
  const Paged device = attach_device(Form::layers_nhd);  // [layer][K,V][block]
  const Paged host = attach_host(Form::layers_nhd);
  fill(host, 7);
  ASSERT_EQ(store_all(host, 1, 0, kBlocks).status, Code::ok);
  fill(device, 8);
  const device::CuStream stream = engine_stream();
  auto marks = device.cache->mark_layers(0, 0, false);
  ASSERT_TRUE(marks.ok());
  EXPECT_EQ(marks.value()->last(), kLayers);
  device.cache->layer_waits().add(77, manager::LayerWaits::place(marks.value()));
  // Enqueues the engine's wait first, on the stream that the load begins behind. The load must not wait for that wait,
  // which waits for the load.
  std::vector<std::byte> seen(kCacheBytes);
  const auto after = point(device, stream);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(device.cache->wait_layer(77, layer, stream).ok());
    const uint64_t bytes = kCacheBytes / kLayers;
    enqueue_copy(stream, seen.data() + layer * bytes, device.memory + layer * bytes, bytes);
  }
  manager::LoadRequest request = load_request(device, find(device, 1, kBlocks), 0);
  request.layers = marks.value();
  request.after = after;
  EXPECT_EQ(load(std::move(request))->wait().status, Code::ok);
  fake_.synchronize(stream);
  EXPECT_TRUE(seen == host.host);
  EXPECT_TRUE(device.cache->wait_layer(77, 0, stream).ok());  // over: nothing to wait for
  EXPECT_EQ(device.cache->wait_layer(77, kLayers, stream).code(), Code::invalid_argument);
  EXPECT_EQ(device.cache->wait_layer(78, 0, stream).code(), Code::stale_handle);
}

// Six batches, and the driver refuses the first. That one has no layer's mark, and its blocks' part of the last layer
// was not yet sent at the refusal. The other blocks' layers arrive, which lets the stream past.
TEST_F(DeviceCache, a_stream_is_never_let_past_pages_that_did_not_land_wherever_batches_are_cut) {
  constexpr uint32_t kKeys = 4000, kRefused = 4096 / 2;  // of a batch's leaves, two a layer
  constexpr uint32_t kSentBefore =
      (4 * 4096 - 4 * kKeys) / 2;  // of the last layer, in the four batches that go at once
  constexpr std::byte kStored{0x11}, kStale{0x77}, kGone{0xFF};
  make(2 * kKeys);  // records lie at multiples of 4 KiB
  const Paged host = attach_host(Form::layers_nhd);
  const Paged device = attach_device(Form::layers_nhd);
  ASSERT_EQ(device.cache->parts()[0].leaf_count(), 2 * kLayers);
  std::memset(host.memory, static_cast<int>(kStored), kCacheBytes);
  std::memset(device.memory, static_cast<int>(kStale), kCacheBytes);
  manager::StoreRequest stored = store_request(host, 1, 0, 1);
  stored.keys = keys(1, kKeys);
  stored.block_ids.assign(kKeys, 5);
  ASSERT_EQ(store(std::move(stored))->wait().status, Code::ok);
  const device::CuStream stream = engine_stream();
  auto marks = device.cache->mark_layers(0, 0, false);
  ASSERT_TRUE(marks.ok());
  device.cache->layer_waits().add(7, manager::LayerWaits::place(marks.value()));
  std::vector<std::byte> seen(kCacheBytes);
  const uint64_t layer_bytes = kCacheBytes / kLayers;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(device.cache->wait_layer(7, layer, stream).ok());
    enqueue_copy(stream, seen.data() + layer * layer_bytes, device.memory + layer * layer_bytes, layer_bytes);
  }
  auto match = find(device, 1, kKeys);
  ASSERT_EQ(match->hits(), kKeys);
  manager::LoadRequest request = load_request(device, std::move(match), 0);
  for (uint32_t k = 0; k < kKeys; ++k) request.block_ids[k] = k % 6 + (k < kSentBefore ? 0 : k < kRefused ? 6 : 12);
  request.layers = marks.value();
  fake_.fail("cuLaunchKernel", 1, device::kCuInvalidValue);
  const auto call = load(std::move(request));
  EXPECT_EQ(call->wait().items_done, kKeys - kRefused);
  fake_.synchronize(stream);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const uint64_t half = layer_bytes / 2, page = half / kBlocks;  // K, then V
    for (uint64_t at = 0; at < layer_bytes; ++at) {
      const std::byte was = seen[layer * layer_bytes + at];
      const uint64_t id = at % half / page;
      if (id >= 18) continue;                   // of no block
      const bool gone = layer == 0 && id < 12;  // of later layers some were sent before the refusal came back
      ASSERT_NE(was, kStale) << "layer " << layer << " of block " << id;
      if (gone || id >= 12) {
        ASSERT_EQ(was, gone ? kGone : kStored) << "layer " << layer << " of block " << id;
      }
    }
  }
}

// One record has a damaged head, so nothing of it is sent; another was never stored.
TEST_F(DeviceCache, all_layers_of_blocks_that_never_came_are_overwritten_before_a_stream_sees_them) {
  make(32);
  const Paged host = attach_host(Form::layers_nhd);
  const Paged device = attach_device(Form::layers_nhd);
  fill(host, 3);
  ASSERT_EQ(store_all(host, 1, 0, 4).status, Code::ok);
  const device::CuStream stream = engine_stream();
  auto marks = device.cache->mark_layers(0, 0, false);
  ASSERT_TRUE(marks.ok());
  device.cache->layer_waits().add(7, manager::LayerWaits::place(marks.value()));
  std::vector<std::vector<std::byte>> seen(kLayers, std::vector<std::byte>(kCacheBytes));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(device.cache->wait_layer(7, layer, stream).ok());
    enqueue_copy(stream, seen[layer].data(), device.memory, kCacheBytes);
  }
  auto match = find(device, 1, 6);  // the last two are not there
  ASSERT_EQ(match->hits(), 4U);
  const auto plan = ns_->plan({});
  const SlotId slot = manager_->host().acquire_one(plan.value().family, keys(2, 1)[0]);
  ASSERT_NE(slot, kNoSlot);
  manager_->host().arena().head(slot)[40] ^= std::byte{1};
  manager_->host().release({&slot, 1});
  manager::LoadRequest request = load_request(device, std::move(match), 0);
  request.n_ids = 6;
  request.block_ids = ids(0, 6);
  request.layers = marks.value();
  const auto call = load(std::move(request));
  EXPECT_EQ(call->wait().items_done, 3U);
  fake_.synchronize(stream);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint64_t id = 0; id < 6; ++id) {
      const bool lacks = id == 1 || id > 3;
      const uint64_t layer_bytes = kCacheBytes / kLayers, page = layer_bytes / 2 / kBlocks;
      for (const uint64_t half : {uint64_t{0}, layer_bytes / 2}) {
        const uint64_t at = layer * layer_bytes + half + id * page;
        for (uint64_t i = at; i < at + page; ++i) {
          ASSERT_EQ(seen[layer][i], lacks ? std::byte{0xFF} : host.memory[i])
              << "layer " << layer << " of block " << id;
        }
      }
    }
  }
}

TEST_F(DeviceCache, who_waits_for_layers_is_released_whatever_becomes_of_the_load) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 4).status, Code::ok);
  damage(2, 0);
  enum class End { damaged, cancelled, deadline };
  for (const End end : {End::damaged, End::cancelled, End::deadline}) {
    const device::CuStream stream = engine_stream();
    auto marks = device.cache->mark_layers(0, 0, false);
    ASSERT_TRUE(marks.ok());
    const uint64_t number = 10 + static_cast<uint64_t>(end);
    device.cache->layer_waits().add(number, manager::LayerWaits::place(marks.value()));
    ASSERT_TRUE(device.cache->wait_layer(number, kLayers - 1, stream).ok());
    auto match = find(device, 1, 4);
    ASSERT_NE(match, nullptr);
    manager::LoadRequest request = load_request(device, std::move(match), 10);
    request.layers = marks.value();
    if (end == End::deadline) request.deadline_ns = executor_->clock().now_ns();
    const auto call = start<manager::LoadOperation>(request, request.n_ids);
    if (end == End::cancelled) {
      if (const auto operation = call->operation) operation->cancel();
    }
    (void)call->wait();
    fake_.synchronize(stream);  // this returns
    EXPECT_TRUE(marks.value()->ended.load());
  }
}

TEST_F(DeviceCache, work_beside_a_capture_neither_fails_nor_ends_it) {
  make(8);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  const device::CuStream captured = engine_stream();
  fake_.capture(captured, true);  // as long as all below takes: stores, loads, another device's opening
  EXPECT_EQ(store_all(device, 1, 0, 6).status, Code::ok);
  EXPECT_EQ(load_all(device, 1, 12, 6).status, Code::ok);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(block(device, 12 + i) == block(device, i)) << i;
  EXPECT_FALSE(device.cache->device()->transfers().point(captured).ok());
  EXPECT_TRUE(fake_.capture_is_whole(captured));
  // A driver call that is not marked as safe in captures ends the capture.
  device::CuPointer address = 0;
  device::CuContext context = device.cache->device()->device().context();
  ASSERT_EQ(fake_.driver().cuCtxPushCurrent(context), device::kCuSuccess);
  EXPECT_EQ(fake_.driver().cuMemAlloc(&address, 4096), device::kCuCaptureUnsupported);
  ASSERT_EQ(fake_.driver().cuCtxPopCurrent(&context), device::kCuSuccess);
  EXPECT_FALSE(fake_.capture_is_whole(captured));
}

// ---- Ends ----

TEST_F(DeviceCache, an_operation_ends_when_what_is_in_flight_has) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 4).status, Code::ok);
  for (const bool cancelled : {false, true}) {
    const device::CuStream stream = engine_stream();
    fake_.hold(stream);
    enqueue_copy(stream, device.memory, device.memory, 64);  // something that it holds
    manager::LoadRequest request = load_request(device, find(device, 1, 4), 10);
    request.after = point(device, stream);
    const uint64_t deadline = executor_->clock().now_ns() + 1'000'000;
    if (!cancelled) request.deadline_ns = deadline;
    const auto call = load(std::move(request));
    while (executor_->clock().now_ns() <= deadline) std::this_thread::yield();
    if (cancelled) {
      if (const auto operation = call->operation) operation->cancel();
    }
    fake_.release(stream);
    const copy::Completion ended = call->wait();
    // Either the load had not begun at its deadline, or it waited for the batch. In both cases nothing is written
    // afterwards.
    EXPECT_TRUE(ended.status == Code::deadline || ended.status == Code::cancelled || ended.status == Code::ok);
    const std::vector<std::byte> then = block(device, 10);
    fake_.wait_idle();
    EXPECT_TRUE(block(device, 10) == then);
  }
}

TEST_F(DeviceCache, a_device_lost_in_a_store_ends_it_and_the_manager_goes_on) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  const Paged host = attach_host(Form::nhd);
  fill(device, 1);
  fill(host, 2);
  fake_.hold_all(true);
  const auto call = store(store_request(device, 1, 0, 6));
  fake_.lose(kOrdinal);
  fake_.hold_all(false);
  EXPECT_EQ(call->wait().status, Code::tier_disabled);
  for (const int32_t status : call->status) EXPECT_EQ(status, static_cast<int32_t>(Code::tier_disabled));
  EXPECT_EQ(find(host, 1, 6), nullptr);  // nothing of it was published
  EXPECT_EQ(store_all(device, 40, 0, 2).status, Code::tier_disabled);
  EXPECT_EQ(store_all(host, 100, 0, 8).status, Code::ok);
  EXPECT_EQ(load_all(host, 100, 10, 8).items_done, 8U);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(block(host, 10 + i) == block(host, i));
  // The error has the driver's own name; a new attach gets it too.
  const std::string why = "CUDA_ERROR_LAUNCH_FAILED (719)";
  const std::string state = device.cache->device()->state();
  EXPECT_TRUE(state.starts_with("lost: ") && state.find(why) != std::string::npos) << state;
  EXPECT_LT(state.size(), 128U);
  EXPECT_NE(refusal(device.memory, kCacheBytes).find(why), std::string::npos) << refusal(device.memory, kCacheBytes);
  std::byte* const more = allocate(0);
  EXPECT_TRUE(place(more, kCacheBytes, MemoryKind::cuda, 0).ok());  // another device is another device
}

TEST_F(DeviceCache, a_device_lost_in_a_load_ends_it_and_the_blocks_stay) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  const Paged host = attach_host(Form::nhd);
  fill(host, 2);
  ASSERT_EQ(store_all(host, 1, 0, 6).status, Code::ok);
  fake_.hold_all(true);
  const auto call = load(load_request(device, find(device, 1, 6), 10));
  fake_.lose(kOrdinal);
  fake_.hold_all(false);
  EXPECT_EQ(call->wait().status, Code::tier_disabled);
  EXPECT_EQ(call->wait().items_done, 0U);
  EXPECT_EQ(load_all(device, 1, 10, 6).status, Code::tier_disabled);
  EXPECT_EQ(load_all(host, 1, 10, 6).items_done, 6U);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(block(host, 10 + i) == block(host, i));
}

TEST_F(DeviceCache, the_engine_ends_the_context_under_us) {
  make(32);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 2).status, Code::ok);
  fake_.destroy_context(kOrdinal);
  auto match = find(device, 1, 2);
  ASSERT_NE(match, nullptr);
  EXPECT_EQ(load(load_request(device, std::move(match), 10))->wait().status, Code::tier_disabled);
  const Paged host = attach_host(Form::nhd);
  EXPECT_EQ(load_all(host, 1, 10, 2).items_done, 2U);
}

// ---- Where tensors lie ----

TEST_F(DeviceCache, memory_is_found_out) {
  make(16);
  std::byte* const memory = allocate();
  const auto found = place(memory, kCacheBytes, MemoryKind::automatic, 0);
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_NE(found.value(), nullptr);
  EXPECT_EQ(found.value()->device().facts().ordinal, kOrdinal);
  std::vector<std::byte> host(kCacheBytes);
  const auto none = place(host.data(), host.size(), MemoryKind::automatic, 0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none.value(), nullptr);
  EXPECT_EQ(manager_->devices().opened().size(), 1U);
  EXPECT_EQ(manager_->devices().opened()[0]->state(), "ready");
  EXPECT_NE(manager_->devices().opened()[0]->pinned_bytes(), 0U);
  // A cache must not have tensors in host and in device memory.
  const manager::TensorPlace mixed[] = {{host.data(), host.size(), 0, 0}, {memory, kCacheBytes, 0, 1}};
  const auto refused = manager_->devices().place(MemoryKind::automatic, 0, mixed);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("tensor 0 of part 0"), std::string::npos) << refused.status().message();
}

TEST_F(DeviceCache, memory_that_does_not_fit_is_refused_by_name) {
  make(16);
  std::byte* const memory = allocate();
  std::byte* const other = allocate(0);
  std::vector<std::byte> host(kCacheBytes);
  EXPECT_EQ(refusal(memory, kCacheBytes), "");
  EXPECT_NE(refusal(other, kCacheBytes).find("is on device 0; the cache is on device 1"), std::string::npos)
      << refusal(other, kCacheBytes);
  EXPECT_NE(refusal(host.data(), host.size()).find("the driver does not know it"), std::string::npos)
      << refusal(host.data(), host.size());
  EXPECT_NE(refusal(manager_->host().arena().payload(0).data(), 64).find("is pinned host memory"), std::string::npos);
  EXPECT_NE(refusal(memory, kCacheBytes + 1).find("1 bytes before it"), std::string::npos);
  EXPECT_NE(refusal(memory, UINT64_MAX).find("KVBM_ERR_INVALID"), std::string::npos);
  EXPECT_NE(refusal(memory, kCacheBytes, MemoryKind::host).find("is said to be host memory"), std::string::npos);
  EXPECT_NE(refusal(memory, kCacheBytes, MemoryKind::cuda, 9).find("KVBM_ERR_UNSUPPORTED"), std::string::npos);
  fake_.free(reinterpret_cast<uintptr_t>(memory));
  EXPECT_NE(refusal(memory, kCacheBytes).find("KVBM_ERR_INVALID"), std::string::npos);
  // Several allocations in a row are one tensor, and a hole behind them is none.
  const device::CuPointer pieces = fake_.allocate_in_pieces(kOrdinal, 8192, 3);
  EXPECT_EQ(refusal(reinterpret_cast<std::byte*>(pieces), 3 * 8192), "");
  EXPECT_NE(refusal(reinterpret_cast<std::byte*>(pieces), 3 * 8192 + 1).find("KVBM_ERR_INVALID"), std::string::npos);
}

TEST_F(DeviceCache, streams_that_do_not_fit_are_refused) {
  make(16);
  const Paged device = attach_device(Form::nhd);
  device::Transfers& transfers = device.cache->device()->transfers();
  const device::CuStream other = fake_.make_stream(0);
  EXPECT_EQ(transfers.point(other).status().code(), Code::invalid_argument);
  EXPECT_TRUE(transfers.point(nullptr).ok());
  fake_.destroy_context(0);
  EXPECT_EQ(transfers.point(other).status().code(), Code::invalid_argument);
  EXPECT_EQ(transfers.point(other).status().message(), "the stream's context was destroyed");
  const auto none = reinterpret_cast<device::CuStream>(uintptr_t{0x12340});
  EXPECT_EQ(transfers.point(none).status().code(), Code::invalid_argument);
  EXPECT_NE(transfers.point(none).status().message().find("knows no such stream"), std::string::npos);
}

TEST_F(DeviceCache, host_memory_that_cannot_be_registered_is_bounced) {
  make(16);
  // The host tier's memory is the last that opening a device registers.
  const uint64_t before = fake_.calls("cuMemHostRegister");
  ASSERT_TRUE(place(allocate(0), kCacheBytes, MemoryKind::cuda, 0).ok());
  fake_.fail("cuMemHostRegister", fake_.calls("cuMemHostRegister") - before, device::kCuNotPermitted);
  const Paged device = attach_device(Form::nhd);
  ASSERT_NE(device.cache, nullptr);
  EXPECT_NE(device.cache->device()->state().find("not registered"), std::string::npos);
  fill(device, 1);
  ASSERT_EQ(store_all(device, 1, 0, 8).status, Code::ok);
  ASSERT_EQ(load_all(device, 1, 10, 8).items_done, 8U);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(block(device, 10 + i) == block(device, i)) << i;
  EXPECT_NE(device.cache->device()->transfers().gathers().bounced_leaves, 0U);
}

TEST_F(DeviceCache, a_block_that_was_not_read_as_the_device_says_is_not_stored) {
  make(16);
  const uint64_t before = fake_.calls("cuMemHostRegister");
  ASSERT_TRUE(place(allocate(0), kCacheBytes, MemoryKind::cuda, 0).ok());
  fake_.fail("cuMemHostRegister", fake_.calls("cuMemHostRegister") - before, device::kCuNotPermitted);
  const Paged device = attach_device(Form::nhd);
  fill(device, 1);
  std::atomic<int> gathers{0};
  add_emulated_kernels(fake_, [&gathers](const std::string& name, const FakeLaunch& launch) {
    if (name == "kvbm_gather_leaves" && gathers.fetch_add(1) == 0) spoil_first_record(launch);
  });
  const auto call = store(store_request(device, 1, 0, 8));
  const copy::Completion stored = call->wait();
  EXPECT_EQ(stored.status, Code::partial);
  EXPECT_EQ(std::count(call->status.begin(), call->status.end(), static_cast<int32_t>(Code::damaged)), 1);
  EXPECT_EQ(call->status[0], static_cast<int32_t>(Code::damaged));
  EXPECT_EQ(find(device, 1, 1), nullptr) << "the record was published";
  EXPECT_EQ(device.cache->device()->transfers().gathers().bad_leaves, 1U);
  // After a store the block is whole again.
  EXPECT_EQ(store_all(device, 1, 0, 8).status, Code::ok);
  ASSERT_EQ(load_all(device, 1, 10, 8).items_done, 8U);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(block(device, 10 + i) == block(device, i)) << i;
}

// Where host and device share one memory, no transfer is staged, whatever its size.
TEST_F(DeviceCache, an_integrated_device_takes_everything_where_it_lies) {
  ASSERT_TRUE(fake_.apply("integrated=1"));
  make(32);
  const Paged device = attach_device(Form::cross_nhd);
  fill(device, 1);
  const uint64_t copied = fake_.copied_bytes();
  ASSERT_EQ(store_all(device, 1, 0, kBlocks).status, Code::ok);
  const std::vector<std::byte> before(device.memory, device.memory + kCacheBytes);
  std::memset(device.memory, 0, kCacheBytes);
  ASSERT_EQ(load_all(device, 1, 0, kBlocks).items_done, kBlocks);
  EXPECT_EQ(std::memcmp(before.data(), device.memory, kCacheBytes), 0);
  for (const device::TransferStats& moved :
       {device.cache->device()->transfers().gathers(), device.cache->device()->transfers().scatters()}) {
    EXPECT_EQ(moved.mapped_leaves, moved.leaves);
    EXPECT_EQ(moved.leaves, uint64_t{kBlocks} * device.cache->parts()[0].leaf_count());
  }
  EXPECT_EQ(fake_.copied_bytes(), copied);
}

// The fake's link is unknown, so the limit is 256 KiB; the blocks here are smaller.
TEST_F(DeviceCache, records_as_long_as_device_staged_run_says_are_staged) {
  for (const uint64_t staged_run : {uint64_t{0}, uint64_t{1}}) {
    manager::DeviceOptions options;
    options.staged_run_bytes = staged_run;
    make(32, {}, options);
    const Paged device = attach_device(Form::nhd);
    fill(device, 1);
    ASSERT_EQ(store_all(device, 1, 0, kBlocks).status, Code::ok);
    const device::TransferStats moved = device.cache->device()->transfers().gathers();
    EXPECT_EQ(moved.staged_leaves, staged_run == 0 ? 0 : moved.leaves);
    EXPECT_EQ(moved.mapped_leaves, staged_run == 0 ? moved.leaves : 0);
    TearDown();
    SetUp();
  }
}

TEST_F(DeviceCache, device_cuda_off_is_off) {
  manager::DeviceOptions off;
  off.use = manager::DeviceOptions::Use::off;
  make(16, {}, off);
  std::byte* const memory = allocate();
  EXPECT_NE(refusal(memory, kCacheBytes).find("device.cuda is off"), std::string::npos);
}

// ---- Loads by number ----

TEST(LayerWaits, ended_loads_are_remembered_until_many_came_after) {
  manager::LayerWaits waits;
  const auto marks = [](bool ended) {
    auto one = std::make_shared<manager::LayerMarks>();
    one->ended = ended;
    return one;
  };
  waits.add(1, manager::LayerWaits::place(marks(false)));
  waits.add(2, manager::LayerWaits::place(marks(true)));
  for (uint64_t i = 0; i < manager::LayerWaits::kKept - 2; ++i) {
    waits.add(100 + i, manager::LayerWaits::place(marks(true)));
  }
  EXPECT_NE(waits.find(2), nullptr);
  waits.add(3, manager::LayerWaits::place(marks(true)));
  EXPECT_EQ(waits.find(2), nullptr);
  EXPECT_NE(waits.find(1), nullptr);  // not ended
  EXPECT_NE(waits.find(3), nullptr);
}

}  // namespace
}  // namespace kvbm::test::device_cache_test

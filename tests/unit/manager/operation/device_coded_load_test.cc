// Blocks that lie coded on a disk and are loaded into device memory: what becomes of the host's copy, of damage, and of
// loads that do not end well. That bits are right in every mode: tests/api/device_coding_test.c.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "support/device_engine.h"
#include "support/temp_dir.h"

namespace kvbm::test::device_coded_load_test {
namespace {

using layout::Form;

constexpr size_t kStored = 8;

class DeviceCodedLoad : public DeviceEngine {
 protected:
  // Writes numbers that every codec makes smaller: they have few exponents.
  static void fill_kv(const Paged& cache, uint32_t seed) {
    fill(cache, seed);
    for (uint64_t i = 1; i < kCacheBytes; i += 2) {
      cache.memory[i] = (cache.memory[i] & std::byte{0x80}) | std::byte{0x3F};
    }
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
  void end() {
    TearDown();
    SetUp();
  }
  // Stores `kStored` coded blocks on the disk in `directory` alone. Returns their bytes.
  std::vector<std::vector<std::byte>> store_coded(const std::string& directory) {
    make(32, directory);
    const Paged host = attach_host(Form::hnd);
    fill_kv(host, 5);
    EXPECT_EQ(store_all(host, 1, 0, kStored).status, Code::ok);
    flush();
    std::vector<std::vector<std::byte>> blocks;
    for (uint32_t i = 0; i < kStored; ++i) blocks.push_back(block(host, i));
    EXPECT_EQ(manager_->lower().tier(1).stats().codec.coded, kStored);
    end();
    return blocks;
  }
  uint64_t decoded() { return manager_->devices().opened()[0]->transfers().scatters().decoded_leaves; }
  // Waits until the host has decoded the blocks that loads have brought.
  void wait_for_late(uint64_t n) {
    const manager::Counters& counters = manager_->counters();
    while (manager::get(counters.decoded_late) + manager::get(counters.left_below) < n) std::this_thread::yield();
  }
  uint32_t in_host(const Paged& cache) {
    const auto match = find(cache, 1, kStored);
    uint32_t n = 0;
    for (size_t i = 0; match != nullptr && i < match->hits(); ++i) n += match->tier_of(0, i) == 0 ? 1 : 0;
    return n;
  }
};

TEST_F(DeviceCodedLoad, the_host_has_the_block_behind_the_load) {
  codec_ = "default";
  TempDir directory;
  const auto blocks = store_coded(directory.path() + "/tier");
  make(120, directory.path() + "/tier");
  const Paged device = attach_device(Form::nhd);
  EXPECT_EQ(load_all(device, 1, 0, kStored).items_done, kStored);
  for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(device, i) == blocks[i]) << i;
  EXPECT_EQ(decoded(), kStored * device.cache->parts()[0].leaf_count());
  wait_for_late(kStored);
  EXPECT_EQ(manager::get(manager_->counters().decoded_late), kStored);
  ASSERT_EQ(in_host(device), kStored);
  const uint64_t before = manager_->lower().tier(1).stats().gets;
  const Paged host = attach_host(Form::nhd);
  EXPECT_EQ(load_all(host, 1, 0, kStored).items_done, kStored);
  for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(host, i) == blocks[i]) << i;
  EXPECT_EQ(manager_->lower().tier(1).stats().gets, before);
}

TEST_F(DeviceCodedLoad, a_host_without_time_leaves_the_block_where_it_is) {
  codec_ = "default";
  TempDir directory;
  const auto blocks = store_coded(directory.path() + "/tier");
  make(14, directory.path() + "/tier");  // room for one waiting block
  const Paged device = attach_device(Form::nhd);
  EXPECT_EQ(load_all(device, 1, 0, kStored).items_done, kStored);
  wait_for_late(kStored);
  EXPECT_EQ(in_host(device), manager::get(manager_->counters().decoded_late));
  EXPECT_EQ(find(device, 1, kStored)->hits(), kStored);
  EXPECT_EQ(load_all(device, 1, 10, kStored).items_done, kStored);
  for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(device, 10 + i) == blocks[i]) << i;
}

TEST_F(DeviceCodedLoad, what_is_not_to_be_kept_is_not_decoded_by_the_processor) {
  codec_ = "default";
  TempDir directory;
  const auto blocks = store_coded(directory.path() + "/tier");
  make(32, directory.path() + "/tier");
  const Paged device = attach_device(Form::nhd);
  manager::LoadRequest request = load_request(device, find(device, 1, kStored), 3);
  request.keep_below = true;
  EXPECT_EQ(load(std::move(request))->wait().items_done, kStored);
  for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(device, 3 + i) == blocks[i]) << i;
  EXPECT_EQ(in_host(device), 0U);
  EXPECT_EQ(manager_->lower().tier(1).stats().codec.decoded, 0U);
  EXPECT_EQ(manager::get(manager_->counters().decoded_late), 0U);
}

TEST_F(DeviceCodedLoad, without_the_option_the_processor_decodes) {
  codec_ = "default";
  TempDir directory;
  const auto blocks = store_coded(directory.path() + "/tier");
  manager::DeviceOptions options;
  options.decode = false;
  make(32, directory.path() + "/tier", options);
  const Paged device = attach_device(Form::nhd);
  EXPECT_EQ(load_all(device, 1, 0, kStored).items_done, kStored);
  for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(device, i) == blocks[i]) << i;
  EXPECT_EQ(decoded(), 0U);
  EXPECT_EQ(in_host(device), kStored);
}

TEST_F(DeviceCodedLoad, little_staging_and_host_memory_that_cannot_be_registered) {
  for (const bool pinned : {true, false}) {
    codec_ = "max";
    TempDir directory;
    const auto blocks = store_coded(directory.path() + "/tier");
    manager::DeviceOptions options;
    options.staging_bytes = 1 << 20;
    make(32, directory.path() + "/tier", options);
    if (!pinned) {
      // The host tier's memory is the last that opening a device registers.
      const uint64_t before = fake_.calls("cuMemHostRegister");
      ASSERT_TRUE(place(allocate(0), kCacheBytes, manager::MemoryKind::cuda, 0).ok());
      fake_.fail("cuMemHostRegister", fake_.calls("cuMemHostRegister") - before, device::kCuNotPermitted);
    }
    const Paged device = attach_device(Form::nhd);
    EXPECT_EQ(manager_->devices().opened().back()->pinned_bytes() != 0, pinned);
    EXPECT_EQ(load_all(device, 1, 0, kStored).items_done, kStored);
    for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(device, i) == blocks[i]) << i;
    EXPECT_NE(device.cache->device()->transfers().scatters().decoded_leaves, 0U);
    end();
  }
}

// No record is rejected because the device had no memory, refused a launch or was lost.
TEST_F(DeviceCodedLoad, a_device_that_fails_says_nothing_against_the_record) {
  enum class Fault { memory, launch, lost };
  for (const Fault fault : {Fault::memory, Fault::launch, Fault::lost}) {
    SCOPED_TRACE(static_cast<int>(fault));
    codec_ = "default";
    TempDir directory;
    const auto blocks = store_coded(directory.path() + "/tier");
    make(32, directory.path() + "/tier");
    const Paged device = attach_device(Form::nhd);
    if (fault == Fault::memory) fake_.fail("cuMemAlloc", 1, device::kCuOutOfMemory);
    if (fault == Fault::launch) fake_.fail("cuLaunchKernel", 1, device::kCuInvalidValue);
    if (fault == Fault::lost) fake_.hold_all(true);
    const auto call = load(load_request(device, find(device, 1, kStored), 0));
    if (fault == Fault::lost) {
      fake_.lose(kOrdinal);
      fake_.hold_all(false);
    }
    const copy::Completion done = call->wait();
    EXPECT_EQ(done.items_done, 0U);
    EXPECT_NE(done.status, Code::ok);
    EXPECT_EQ(manager::get(manager_->counters().tiers[1].damaged), 0U);
    EXPECT_EQ(find(device, 1, kStored)->hits(), kStored);
    const Paged host = attach_host(Form::nhd);
    EXPECT_EQ(load_all(host, 1, 0, kStored).items_done, kStored);
    for (uint32_t i = 0; i < kStored; ++i) EXPECT_TRUE(block(host, i) == blocks[i]) << i;
    if (fault != Fault::lost) {
      EXPECT_EQ(load_all(device, 1, 12, kStored).items_done, kStored);
    }
    end();
  }
}

TEST_F(DeviceCodedLoad, who_waits_for_layers_is_released_when_the_load_is_cancelled_or_late) {
  for (const bool late : {false, true}) {
    codec_ = "default";
    TempDir directory;
    (void)store_coded(directory.path() + "/tier");
    make(32, directory.path() + "/tier");
    const Paged device = attach_device(Form::nhd);
    const device::CuStream stream = fake_.make_stream(kOrdinal);
    auto marks = device.cache->mark_layers(0, 0, false);
    ASSERT_TRUE(marks.ok());
    device.cache->layer_waits().add(5, manager::LayerWaits::place(marks.value()));
    ASSERT_TRUE(device.cache->wait_layer(5, kLayers - 1, stream).ok());
    manager::LoadRequest request = load_request(device, find(device, 1, kStored), 0);
    request.layers = marks.value();
    if (late) request.deadline_ns = executor_->clock().now_ns();
    const auto call = start<manager::LoadOperation>(std::move(request), kStored);
    if (!late) {
      if (const auto operation = call->operation) operation->cancel();
    }
    (void)call->wait();
    fake_.synchronize(stream);  // this returns
    EXPECT_TRUE(marks.value()->ended.load());
    end();
  }
}

TEST_F(DeviceCodedLoad, a_part_of_a_block_is_loaded_and_all_of_it_is_checked_for_the_host) {
  codec_ = "default";
  recipe_ = codec::Recipe::parse("k:0=int8_coded,default").value();
  TempDir directory;
  (void)store_coded(directory.path() + "/tier");
  make(64, directory.path() + "/tier");
  const Paged device = attach_device(Form::nhd);
  const Paged host = attach_host(Form::nhd);
  fill(device, 9);
  const std::vector<std::byte> before = block(device, 0);
  manager::LoadRequest request = load_request(device, find(device, 1, kStored), 0);
  request.n_layers = 1;
  EXPECT_EQ(load(std::move(request))->wait().items_done, kStored);
  EXPECT_EQ(decoded(), kStored * device.cache->parts()[0].leaf_count() / kLayers / 2);  // V of that layer
  wait_for_late(kStored);
  EXPECT_EQ(load_all(host, 1, 0, kStored).items_done, kStored);
  const std::vector<std::byte> got = block(device, 0);
  const std::vector<std::byte> want = block(host, 0);
  const uint64_t layer = kBlockBytes / kLayers;
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + layer, want.begin()));
  EXPECT_TRUE(std::equal(got.begin() + layer, got.end(), before.begin() + layer));
}

}  // namespace
}  // namespace kvbm::test::device_coded_load_test

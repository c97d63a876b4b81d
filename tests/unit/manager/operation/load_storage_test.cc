// Loads of blocks that lie on a disk alone (with a fake of cuFile). If a load does not keep them in the host, they go
// to a device without passing host memory, and are checked as all others. If that path fails, they go through host
// memory.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "device/storage/cufile_library.h"
#include "device/storage/storage_reads.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/stack/stats.h"
#include "support/device_engine.h"
#include "support/temp_dir.h"

namespace kvbm::test::load_storage_test {
namespace {

using layout::Form;
using manager::DeviceOptions;
using Use = DeviceOptions::Use;

enum Reads { kFails = 1, kShort = 2, kWrong = 3, kInPieces = 4, kWait = 5 };

class LoadStorage : public DeviceEngine {
 protected:
  static constexpr size_t kOnDisk = 6;

  void SetUp() override {
    DeviceEngine::SetUp();
    copy_ = directory_.path() + "/libcufile.so";
    std::filesystem::copy_file(std::string(KVBM_TEST_MODULES) + "/libtest_cufile.so", copy_);
  }
  void TearDown() override {
    if (library_ != nullptr) play(0, 0);
    paged_ = {};
    DeviceEngine::TearDown();
    if (library_ != nullptr) {
      EXPECT_EQ(counted("files"), 0);
      EXPECT_EQ(counted("buffers"), 0);
    }
    ::unsetenv("KVBM_FAKE_CUFILE");
  }

  // Makes a manager with room for eight blocks. Six blocks are on the disk only, and six others are in the host.
  void open(Use storage, const char* fake = "") {
    ::setenv("KVBM_FAKE_CUFILE", fake, 1);
    DeviceOptions device;
    device.storage = storage;
    device.storage_library = copy_;
    device.staging_bytes = 8 << 20;
    make(8, directory_.path() + "/tier", device);
    if (HasFatalFailure()) return;
    paged_ = attach_device(Form::nhd);
    fill(paged_, 1);
    ASSERT_EQ(store_all(paged_, 1, 0, kOnDisk).status, Code::ok);
    flush();
    ASSERT_EQ(store_all(paged_, 100, 6, kOnDisk).status, Code::ok);
    flush();
    library_ = ::dlopen(copy_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!manager_->lower().tier(1).reads_from_files()) GTEST_SKIP() << "no direct I/O in " << directory_.path();
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
  // Loads the blocks that are on disk into ids 12 and following, and compares them with the stored ones.
  copy::Completion bring(bool keep_below, std::vector<int32_t>* status = nullptr) {
    auto match = find(paged_, 1, kOnDisk);
    if (match == nullptr || match->hits() != kOnDisk) return {};
    below_ = 0;
    for (size_t i = 0; i < kOnDisk; ++i) below_ += match->tier_of(0, i) == 1 ? 1 : 0;
    manager::LoadRequest request = load_request(paged_, std::move(match), 12);
    request.keep_below = keep_below;
    const auto call = load(std::move(request));
    const copy::Completion done = call->wait();
    for (uint32_t i = 0; i < kOnDisk; ++i) {
      if (call->status[i] != 0) continue;
      EXPECT_TRUE(block(paged_, 12 + i) == block(paged_, i)) << i;
    }
    if (status != nullptr) *status = call->status;
    return done;
  }
  device::StorageReads* storage() { return paged_.cache->device()->storage(); }
  uint64_t reads() { return storage() == nullptr ? 0 : storage()->stats().reads; }

  template <class F>
  F entry(const char* name) {
    return reinterpret_cast<F>(::dlsym(library_, name));
  }
  void play(int how, long n) { entry<void (*)(int, long)>("kvbm_fake_cufile")(how, n); }
  long counted(const char* what) { return entry<long (*)(const char*)>("kvbm_fake_cufile_count")(what); }

  TempDir directory_;
  std::string copy_;
  void* library_ = nullptr;
  Paged paged_;
  uint32_t below_ = 0;
};

TEST_F(LoadStorage, what_is_not_kept_comes_past_the_host) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint64_t in_host = manager::snapshot(manager_->observed()).tiers[0].blocks;
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_GT(below_, 0U);
  EXPECT_EQ(reads(), below_);
  EXPECT_EQ(storage()->stats().bytes, below_ * round_up(kBlockBytes, kIoAlign));
  EXPECT_EQ(manager::snapshot(manager_->observed()).tiers[0].blocks, in_host);  // nothing came into the host
  EXPECT_EQ(paged_.cache->device()->transfers().scatters().bad_leaves, 0U);
  EXPECT_EQ(manager::get(manager_->counters().tiers[1].loads), below_);
  // A kept block is loaded into the host, and from there to the device the next time.
  const uint64_t before = reads();
  EXPECT_EQ(bring(false).items_done, kOnDisk);
  EXPECT_EQ(reads(), before);
}

TEST_F(LoadStorage, on_takes_it_for_all_loads_and_in_compatibility_mode) {
  open(Use::on, "compatible=1");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(bring(false).items_done, kOnDisk);
  EXPECT_EQ(reads(), below_);
  EXPECT_EQ(bring(false).items_done, kOnDisk);  // the host did not keep them
  EXPECT_EQ(reads(), 2 * uint64_t{below_});
}

TEST_F(LoadStorage, auto_leaves_it_where_it_would_only_copy_and_off_always) {
  open(Use::automatic, "compatible=1");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(storage(), nullptr);
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_GT(below_, 0U);
}

TEST_F(LoadStorage, off_does_not_load_the_library) {
  open(Use::off);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(library_, nullptr);
  EXPECT_EQ(bring(true).items_done, kOnDisk);
}

TEST_F(LoadStorage, a_library_that_does_not_begin_changes_nothing) {
  open(Use::on, "open=5007");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(storage(), nullptr);
  EXPECT_EQ(bring(true).items_done, kOnDisk);
}

TEST_F(LoadStorage, what_cannot_be_read_so_comes_through_the_host) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  for (const int how : {kFails, kShort}) {
    play(how, 1);
    EXPECT_EQ(bring(true).items_done, kOnDisk) << how;
  }
  EXPECT_EQ(storage()->stats().failed, 2U);
  play(kInPieces, 3);  // that is all right
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_EQ(storage()->stats().failed, 2U);
  EXPECT_TRUE(storage()->usable());
  play(kFails, 1000);
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_FALSE(storage()->usable());  // disabled
  const long begun = counted("begun");
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_EQ(counted("begun"), begun);
}

TEST_F(LoadStorage, files_that_it_does_not_take_are_read_through_the_host) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  entry<void (*)(int, int)>("kvbm_fake_cufile_refuse")(1, 0);
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  EXPECT_EQ(reads(), 0U);
  entry<void (*)(int, int)>("kvbm_fake_cufile_refuse")(0, 0);
}

TEST_F(LoadStorage, a_record_that_comes_wrong_is_nan_and_quarantined) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  play(kWrong, 1);
  std::vector<int32_t> status;
  const copy::Completion done = bring(true, &status);
  EXPECT_EQ(done.status, Code::partial);
  EXPECT_EQ(done.items_done, kOnDisk - 1);
  EXPECT_EQ(std::count(status.begin(), status.end(), static_cast<int32_t>(Code::damaged)), 1);
  EXPECT_EQ(paged_.cache->device()->transfers().scatters().bad_leaves, 1U);
  const auto bad = std::find(status.begin(), status.end(), static_cast<int32_t>(Code::damaged)) - status.begin();
  const std::vector<std::byte> got = block(paged_, static_cast<uint32_t>(12 + bad));
  EXPECT_GT(std::count(got.begin(), got.end(), std::byte{0xFF}), 255);  // the leaf that was wrong
  const auto again = find(paged_, 1, kOnDisk);
  EXPECT_EQ(again == nullptr ? 0 : again->hits(), static_cast<size_t>(bad));  // the damaged block is a miss
  EXPECT_EQ(manager_->lower().tier(1).stats().damaged, 1U);
}

TEST_F(LoadStorage, layers_are_waited_for_as_ever_and_some_can_be_left_out) {
  open(Use::on);
  if (IsSkipped() || HasFatalFailure()) return;
  const device::CuStream stream = fake_.make_stream(kOrdinal);
  auto marks = paged_.cache->mark_layers(1, 2, false);
  ASSERT_TRUE(marks.ok());
  paged_.cache->layer_waits().add(7, manager::LayerWaits::place(marks.value()));
  for (uint32_t layer = 1; layer < kLayers; ++layer) ASSERT_TRUE(paged_.cache->wait_layer(7, layer, stream).ok());
  const std::vector<std::byte> before = block(paged_, 12);
  manager::LoadRequest request = load_request(paged_, find(paged_, 1, kOnDisk), 12);
  request.first_layer = 1;
  request.n_layers = 2;
  request.layers = marks.value();
  EXPECT_EQ(load(std::move(request))->wait().items_done, kOnDisk);
  fake_.synchronize(stream);
  EXPECT_GT(reads(), 0U);
  const std::vector<std::byte> after = block(paged_, 12);
  const std::vector<std::byte> source = block(paged_, 0);
  const auto layer = static_cast<std::ptrdiff_t>(kBlockBytes / kLayers);
  EXPECT_TRUE(std::equal(after.begin(), after.begin() + layer, before.begin()));
  EXPECT_TRUE(std::equal(after.begin() + layer, after.end(), source.begin() + layer));
}

TEST_F(LoadStorage, a_load_is_cancelled_while_a_read_goes_on) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  play(kWait, 1000);
  manager::LoadRequest request = load_request(paged_, find(paged_, 1, kOnDisk), 12);
  request.keep_below = true;
  const auto call = load(std::move(request));
  while (counted("begun") == 0) std::this_thread::yield();
  if (const auto operation = call->operation) operation->cancel();
  const copy::Completion done = call->wait();
  EXPECT_LT(done.items_done, kOnDisk);
  play(0, 0);
}

TEST_F(LoadStorage, a_device_that_is_lost_ends_loads_and_is_read_into_no_more) {
  open(Use::automatic);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(bring(true).items_done, kOnDisk);
  fake_.lose(kOrdinal);
  std::vector<int32_t> status;
  EXPECT_EQ(bring(true, &status).items_done, 0U);
  EXPECT_EQ(std::count(status.begin(), status.end(), static_cast<int32_t>(Code::tier_disabled)),
            static_cast<long>(kOnDisk));
  const long begun = counted("begun");  // the load that finds the loss may have read before
  EXPECT_EQ(bring(true, &status).items_done, 0U);
  EXPECT_EQ(counted("begun"), begun);
  library_ = nullptr;  // a lost device's allocations are not freed
}

}  // namespace
}  // namespace kvbm::test::load_storage_test

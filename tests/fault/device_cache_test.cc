// Refuses host memory at each point of a call on a cache that lies on a device: attaching, coding its blocks, decoding
// them. The call is refused, nothing stays on the device, and the next one works.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "codec/coded/strided_stream.h"
#include "manager/device/device_caches.h"
#include "manager/operation/cache_coding.h"
#include "support/counts.h"
#include "support/device_engine.h"
#include "support/refusing_allocator.h"
#include "support/temp_dir.h"

namespace kvbm::test::device_cache_test {
namespace {

using layout::Form;
using manager::BlockCoding;

constexpr uint64_t kSeveral = 4000;  // allocations: more than any of these makes

class DeviceCacheFaults : public DeviceEngine {
 protected:
  DeviceCacheFaults() { fault.where = Place::caller; }

  // Makes a call in which allocation number n is refused; returns false if it makes fewer. Only the call's own
  // allocations count, not those of other threads.
  template <class Fn>
  static bool refuse(uint64_t n, Fn&& call) {
    fault.seen = 0;
    fault.at = n;
    fault.fired = false;
    try {
      const InPlace here(Place::caller);
      fault.counting = true;
      call();
    } catch (const std::bad_alloc&) {
      // capi/guard.h turns the exception into KVBM_ERR_NO_MEMORY.
    }
    fault.counting = false;
    return fault.fired;
  }

  void expect_works(const Paged& cache) {
    fill(cache, 1);
    EXPECT_EQ(store_all(cache, 1, 0, 4).items_done, 4U);
    EXPECT_EQ(load_all(cache, 1, 8, 4).items_done, 4U);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(block(cache, 8 + i) == block(cache, i)) << i;
  }

  static BlockCoding blocks_of(const Paged& cache, std::span<const uint32_t> blocks) {
    BlockCoding what;
    what.cache = cache.cache.get();
    what.part = 0;
    what.ids = blocks;
    what.form = manager::form_of_blocks(*cache.cache, 0, {}).value();
    return what;
  }
};

TEST_F(DeviceCacheFaults, a_cache_that_could_not_be_attached_leaves_nothing_and_the_next_one_works) {
  uint64_t n = 1;
  for (bool fired = true; fired; ++n) {
    ASSERT_LT(n, kSeveral);
    SCOPED_TRACE("allocation " + std::to_string(n));
    make(32);
    std::byte* const memory = allocate();
    fired = refuse(n, [&] { (void)place(memory, kCacheBytes).ok(); });
    expect_works(attach_device(Form::nhd));
    TearDown();
    const FakeCuda::Left left = fake_.left(kOrdinal);
    EXPECT_EQ(left.contexts + left.modules + left.device_allocations + left.registrations, 0U);
    EXPECT_EQ(left.streams + left.events, 0U);
    if (HasFailure()) return;
    SetUp();
  }
  EXPECT_GT(n, 20U);
  counted(n - 2, "allocations refused");
}

// Records of a disk are read into slots of the load.
TEST_F(DeviceCacheFaults, a_load_that_is_refused_memory_keeps_no_slot) {
  const TempDir folder;
  make(8, folder.path() + "/tier");
  const Paged cache = attach_device(Form::nhd);
  fill(cache, 1);
  ASSERT_EQ(store_all(cache, 1, 0, 4).items_done, 4U);
  Call flushed;
  manager_->lower().flush([&flushed] {
    MutexLock lock(flushed.mutex);
    flushed.over = true;
    flushed.ended.notify_all();
  });
  (void)flushed.wait();
  std::vector<SlotId> all(manager_->host().arena().slots());
  uint64_t n = 1;
  for (bool fired = true; fired; ++n) {
    ASSERT_LT(n, kSeveral);
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok) << "allocation " << n - 1;
    manager_->host().release(all);
    manager::LoadRequest request = load_request(cache, find(cache, 1, 4), 8);
    request.keep_below = true;
    std::weak_ptr<manager::LoadOperation> alive;
    fired = refuse(n, [&] {
      const auto load = std::make_shared<manager::LoadOperation>(std::move(request));
      alive = load;
      bool over = false;
      load->start_waited([&over](const copy::Completion&) { over = true; }, [] {});
      while (!over) {
        if (!load->run_woken()) std::this_thread::yield();
      }
    });
    while (!alive.expired()) std::this_thread::yield();  // a read that came too late for it releases its slot
  }
  EXPECT_GT(n, 20U);
  counted(n - 2, "allocations refused");
}

TEST_F(DeviceCacheFaults, coding_blocks_that_is_refused_memory_works_the_next_time) {
  make(32);
  const Paged cache = attach_device(Form::hnd);
  const std::vector<uint32_t> from = ids(0, 6), to = ids(12, 6);
  for (const codec::Mode mode : {codec::Mode::int8, codec::Mode::zstd, codec::Mode::standard}) {
    SCOPED_TRACE(codec::mode_name(mode));
    fill(cache, 7);
    std::vector<std::byte> want(codec::stream_room(blocks_of(cache, from).form, 6 * kBlockBytes));
    std::vector<std::byte> out(want.size());
    uint64_t size = 0;
    {
      codec::Workspace workspace;
      size = manager::encode_blocks(blocks_of(cache, from), mode, want, workspace).value();
    }
    uint64_t n = 1;
    for (bool fired = true; fired; ++n) {
      ASSERT_LT(n, kSeveral);
      SCOPED_TRACE("allocation " + std::to_string(n));
      codec::Workspace workspace;
      Code code = Code::no_memory;
      fired = refuse(
          n, [&] { code = manager::encode_blocks(blocks_of(cache, from), mode, out, workspace).status().code(); });
      EXPECT_TRUE(code == Code::no_memory || code == Code::ok);
      const auto again = manager::encode_blocks(blocks_of(cache, from), mode, out, workspace);
      ASSERT_TRUE(again.ok()) << again.status().message();
      ASSERT_EQ(again.value(), size);
      EXPECT_EQ(std::memcmp(out.data(), want.data(), size), 0);
    }
    const auto view = codec::StreamView::parse({want.data(), size});
    ASSERT_TRUE(view.ok());
    counted(n - 2, "allocations refused");
    n = 1;
    for (bool fired = true; fired; ++n) {
      ASSERT_LT(n, kSeveral);
      SCOPED_TRACE("decoding, allocation " + std::to_string(n));
      codec::Workspace workspace;
      Code code = Code::no_memory;
      fired =
          refuse(n, [&] { code = manager::decode_blocks(blocks_of(cache, to), view.value(), true, workspace).code(); });
      EXPECT_TRUE(code == Code::no_memory || code == Code::ok);
      const Status again = manager::decode_blocks(blocks_of(cache, to), view.value(), true, workspace);
      ASSERT_TRUE(again.ok()) << again.message();
    }
    counted(n - 2, "allocations refused");
  }
  expect_works(cache);
}

// The first call allocates the coders' room.
TEST_F(DeviceCacheFaults, the_first_coding_that_is_refused_memory_leaves_nothing_on_the_device) {
  const std::vector<uint32_t> from = ids(0, 6);
  uint64_t n = 1;
  for (bool fired = true; fired; ++n) {
    ASSERT_LT(n, kSeveral);
    SCOPED_TRACE("allocation " + std::to_string(n));
    make(32);
    const Paged cache = attach_device(Form::hnd);
    fill(cache, 7);
    std::vector<std::byte> out(codec::stream_room(blocks_of(cache, from).form, 6 * kBlockBytes));
    codec::Workspace workspace;
    const FakeCuda::Left before = fake_.left(kOrdinal);
    Code code = Code::no_memory;
    fired = refuse(n, [&] {
      code = manager::encode_blocks(blocks_of(cache, from), codec::Mode::int8, out, workspace).status().code();
    });
    const FakeCuda::Left after = fake_.left(kOrdinal);
    // A room that was allocated stays, for the next call.
    if (after.streams == before.streams) {
      EXPECT_EQ(after.device_allocations, before.device_allocations);
      EXPECT_EQ(after.registrations, before.registrations);
      EXPECT_EQ(after.events, before.events);
    }
    EXPECT_TRUE(fired ? code == Code::no_memory || code == Code::ok : code == Code::ok);
    EXPECT_TRUE(manager::encode_blocks(blocks_of(cache, from), codec::Mode::int8, out, workspace).ok());
    if (HasFailure()) return;
    TearDown();
    SetUp();
  }
  counted(n - 2, "allocations refused");
}

// The driver refuses a call behind a kernel that still runs, and the host refuses the memory for the report, so the
// call is left by an exception. In every case no work of it is under way afterwards.
TEST_F(DeviceCacheFaults, coding_that_is_refused_by_the_driver_and_by_the_host_is_over_when_the_call_is) {
  add_emulated_kernels(
      fake_, [](const std::string&, const FakeLaunch&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  make(32);
  const Paged cache = attach_device(Form::hnd);
  fill(cache, 7);
  const std::vector<uint32_t> from = ids(0, 6), to = ids(12, 6);
  codec::Workspace workspace;
  std::vector<std::byte> want(codec::stream_room(blocks_of(cache, from).form, 6 * kBlockBytes)), out(want.size());
  const auto made = manager::encode_blocks(blocks_of(cache, from), codec::Mode::int8, want, workspace);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto view = codec::StreamView::parse({want.data(), made.value()});
  ASSERT_TRUE(view.ok());
  const auto encode = [&] {
    return manager::encode_blocks(blocks_of(cache, from), codec::Mode::int8, out, workspace).status();
  };
  const auto decode = [&] { return manager::decode_blocks(blocks_of(cache, to), view.value(), true, workspace); };
  // The gathering kernel runs when the quantising one is refused. The entry that a call waits with is refused once, and
  // again when the call finds out whether it may return.
  const struct {
    const char* entry;
    uint64_t nth, count;
  } refusals[] = {{"cuLaunchKernel", 2, 1}, {"cuEventRecord", 1, 1}, {"cuEventRecord", 2, 1}, {"cuEventRecord", 1, 3},
                  {"cuEventRecord", 2, 3},  {"cuEventQuery", 1, 1},  {"cuEventQuery", 1, 5}};
  const std::function<Status()> calls[] = {encode, decode};
  uint64_t refused = 0;
  for (const auto& r : refusals) {
    for (const auto& call : calls) {
      uint64_t n = 1;
      for (bool fired = true; fired; ++n) {
        ASSERT_LT(n, kSeveral);
        SCOPED_TRACE(std::string(&call == calls ? "encoding, " : "decoding, ") + r.entry + " " + std::to_string(r.nth) +
                     ", allocation " + std::to_string(n));
        fake_.fail(r.entry, r.nth, device::kCuOutOfMemory, r.count);
        fired = refuse(n, [&] { (void)call(); });
        for (const device::CuStream stream : fake_.streams(kOrdinal)) ASSERT_TRUE(fake_.idle(stream));
        // Refusals of the driver that were not met yet are met here.
        Status again = call();
        for (int i = 0; i < 9 && again.code() == Code::no_memory; ++i) again = call();
        ASSERT_TRUE(again.ok()) << again.message();
      }
      refused += n - 2;
    }
  }
  counted(refused, "allocations refused");
  EXPECT_EQ(std::memcmp(out.data(), want.data(), made.value()), 0);
  expect_works(cache);
}

}  // namespace
}  // namespace kvbm::test::device_cache_test

// Transfers on a device: every path, pinned records and others, pieces of any size; wrong leaves; order on streams.
#include "device/transfer/transfers.h"

#include <algorithm>
#include <future>

#include "base/memory/memory.h"
#include "base/thread/thread_executor.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"
#include "codec/record/record.h"
#include "device/memory/pinned_host.h"
#include "device/on_device.h"
#include "support/lossy_leaves.h"
#include "support/test_data.h"

namespace kvbm::test::transfers_test {
namespace {

using device::LeafMove;
using device::PlanLimits;
using device::TransferBatch;
using device::Transfers;

constexpr uint64_t kCacheBytes = 8ULL << 20;
constexpr uint64_t kRecordBytes = 4ULL << 20;

struct Way {
  const char* name;
  PlanLimits limits;
};

std::vector<Way> ways() {
  PlanLimits mapped;
  mapped.always_mapped = true;
  PlanLimits staged;
  staged.mapped_bytes = 0;
  staged.staged_run_bytes = 0;
  staged.straight_bytes = UINT64_MAX;
  PlanLimits straight;
  straight.mapped_bytes = 0;
  straight.straight_bytes = 0;
  return {{"chosen", {}}, {"mapped", mapped}, {"staged", staged}, {"straight", straight}};
}

// Sizes of pieces: those of engines (rows of heads, pages) and unusual ones.
struct Shape {
  uint64_t piece;
  uint32_t count0, count1;
  int64_t stride0, stride1;
};
constexpr Shape kShapes[] = {
    {65536, 1, 1, 0, 0},     {4096, 1, 1, 0, 0},       {1, 1, 1, 0, 0},           {37, 1, 1, 0, 0},
    {256, 8, 16, 256, 2048}, {128, 16, 32, 4096, 128}, {512, 1, 128, 0, 1024},    {2, 64, 16, 4, 512},
    {6, 11, 7, 100, 10},     {1152, 1, 16, 0, 1152},   {4096, 2, 8, 65536, 4096}, {16, 16, 256, 4096, 16},
};

class DeviceTransfers : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto executor = ThreadExecutor::create("test", 1);
    ASSERT_TRUE(executor.ok());
    executor_ = std::move(executor).value();
    ArenaOptions arena;
    arena.bytes = kRecordBytes;
    auto memory = Arena::map(arena);
    ASSERT_TRUE(memory.ok());
    memory_ = std::move(memory).value();
    auto pinned = device::PinnedHost::pin(shared(), {memory_->data(), kRecordBytes}, 2);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    pinned_ = std::move(pinned).value();
    cache_ = std::make_unique<DeviceBytes>(device(), kCacheBytes);
    SeededRandom random(7);
    content_ = random_bytes(random, kCacheBytes);
    cache_->upload(content_);
  }
  void TearDown() override { cache_.reset(); }

  std::unique_ptr<Transfers> transfers(const PlanLimits& limits) {
    device::TransferOptions options;
    options.plan = limits;
    options.part_bytes = 256ULL << 10;  // several parts a batch
    options.staging_bytes = 8ULL << 20;
    auto made = Transfers::create(shared(), options, *executor_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    made.value()->know(pinned_);
    return std::move(made).value();
  }

  // Makes leaves of all shapes, in the cache without overlap and at odd offsets, one behind the other in `record`.
  std::vector<LeafMove> leaves(std::byte* record) const {
    std::vector<LeafMove> out;
    uint64_t at = 0;
    for (int turn = 0; turn < 6; ++turn) {
      for (const Shape& shape : kShapes) {
        LeafMove move;
        StridedRun& run = move.device;
        run.bytes = shape.piece;
        run.count0 = shape.count0;
        run.count1 = shape.count1;
        run.stride0 = shape.stride0;
        run.stride1 = shape.stride1;
        run.data = cache_->pointer(at);
        const int64_t last = (shape.count0 - 1) * shape.stride0 + (shape.count1 - 1) * shape.stride1;
        const auto reach = static_cast<uint64_t>(last) + shape.piece;
        at += reach + static_cast<uint64_t>(turn % 3 == 0 ? 16 - reach % 16 : turn);
        move.record = record;
        record += run.total();
        out.push_back(move);
      }
    }
    EXPECT_LE(at, kCacheBytes);
    return out;
  }
  static uint64_t total(const std::vector<LeafMove>& leaves) {
    uint64_t all = 0;
    for (const LeafMove& leaf : leaves) all += leaf.device.total();
    return all;
  }
  // Returns the pieces of a leaf's run in `image`, a copy of the cache.
  StridedRun in(const StridedRun& run, std::byte* image) const {
    StridedRun out = run;
    out.data = image + (reinterpret_cast<device::CuPointer>(run.data) - cache_->at());
    return out;
  }

  struct End {
    Code code = Code::internal;
    std::vector<uint64_t> hashes;
    std::vector<uint8_t> good;
  };
  std::future<End> begin(Transfers& transfers, bool gather, TransferBatch batch) {
    auto ended = std::make_shared<std::promise<End>>();
    batch.done = [ended](TransferBatch& done, Code code) {
      ended->set_value({code, std::move(done.hashes), std::move(done.good)});
    };
    if (gather) {
      transfers.gather(std::move(batch));
    } else {
      transfers.scatter(std::move(batch));
    }
    return ended->get_future();
  }
  End run(Transfers& transfers, bool gather, const std::vector<LeafMove>& leaves) {
    TransferBatch batch;
    batch.leaves = leaves;
    return begin(transfers, gather, std::move(batch)).get();
  }

  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<Arena> memory_;
  std::shared_ptr<device::PinnedHost> pinned_;
  std::unique_ptr<DeviceBytes> cache_;
  std::vector<std::byte> content_;
};

TEST_F(DeviceTransfers, gathers_what_the_processor_gathers_by_every_way) {
  std::vector<std::byte> elsewhere(kRecordBytes);
  for (const Way& way : ways()) {
    const auto moving = transfers(way.limits);
    for (std::byte* record : {memory_->data(), memory_->data() + 4, elsewhere.data()}) {
      SCOPED_TRACE(std::string(way.name) + (record == elsewhere.data() ? ", not pinned" : ", pinned"));
      const auto all = leaves(record);
      ASSERT_LE(total(all) + 4, kRecordBytes);
      std::fill_n(record, total(all), std::byte{0x77});
      const End end = run(*moving, true, all);
      ASSERT_EQ(end.code, Code::ok);
      for (size_t i = 0; i < all.size(); ++i) {
        std::vector<std::byte> wanted(all[i].device.total());
        const StridedRun source = in(all[i].device, content_.data());
        const uint64_t hash = codec::gather_hashed(wanted.data(), {&source, 1}, codec::CopyHint::cached);
        ASSERT_EQ(std::memcmp(wanted.data(), all[i].record, wanted.size()), 0) << "leaf " << i;
        ASSERT_EQ(end.hashes[i], hash) << "leaf " << i;
      }
    }
    EXPECT_EQ(cache_->download(), content_) << way.name;
  }
}

TEST_F(DeviceTransfers, scatters_what_was_gathered_and_nothing_beside_it) {
  std::vector<std::byte> elsewhere(kRecordBytes);
  SeededRandom random(11);
  for (const Way& way : ways()) {
    const auto moving = transfers(way.limits);
    for (std::byte* record : {memory_->data(), elsewhere.data()}) {
      SCOPED_TRACE(std::string(way.name) + (record == elsewhere.data() ? ", not pinned" : ", pinned"));
      auto all = leaves(record);
      random.fill({record, total(all)});
      std::vector<std::byte> wanted = content_;
      cache_->upload(wanted);
      for (LeafMove& leaf : all) {
        const StridedRun target = in(leaf.device, wanted.data());
        leaf.expected = codec::scatter_hashed({&target, 1}, leaf.record, codec::CopyHint::cached);
      }
      const End end = run(*moving, false, all);
      ASSERT_EQ(end.code, Code::ok);
      EXPECT_EQ(std::count(end.good.begin(), end.good.end(), 0), 0);
      EXPECT_TRUE(cache_->download() == wanted);
    }
  }
}

TEST_F(DeviceTransfers, a_wrong_leaf_is_said_and_becomes_0xff_and_its_neighbours_do_not) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const auto moving = transfers(way.limits);
    auto all = leaves(memory_->data());
    std::vector<std::byte> wanted = content_;
    cache_->upload(wanted);
    for (size_t i = 0; i < all.size(); ++i) {
      const StridedRun target = in(all[i].device, wanted.data());
      std::vector<std::byte> wrong(target.total(), std::byte{0xFF});
      const bool bad = i % 5 == 2;
      all[i].expected = codec::leaf_hash({all[i].record, target.total()}) ^ (bad ? 1ULL << (i % 64) : 0);
      (void)codec::scatter_hashed({&target, 1}, bad ? wrong.data() : all[i].record, codec::CopyHint::cached);
    }
    const End end = run(*moving, false, all);
    ASSERT_EQ(end.code, Code::ok);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(end.good[i], i % 5 == 2 ? 0 : 1) << "leaf " << i;
    EXPECT_TRUE(cache_->download() == wanted);
  }
}

// Each page is an allocation of its own, as large as the leaf, so that a checker stops a write of one byte beyond.
TEST_F(DeviceTransfers, decodes_coded_leaves_into_pages_of_their_own_and_refuses_damaged_ones) {
  using codec::Mode;
  const std::vector<std::byte> cache = real_cache(data_folder(KVBM_TEST_DATA));
  ASSERT_GT(cache.size(), 32U * 8192 + 65536);
  struct Coded {
    std::vector<std::byte> stored, plain;
    codec::LeafCodec codec = codec::LeafCodec::raw;
  };
  codec::Workspace workspace;
  std::vector<Coded> all;
  for (const size_t bytes : {4096, 6144, 30000, 65536}) {
    for (const Mode mode :
         {Mode::fast, Mode::standard, Mode::max, Mode::int8, Mode::int6, Mode::int4, Mode::fp8_e4m3, Mode::fp8_e5m2}) {
      const ConstBytes raw = ConstBytes(cache).subspan(all.size() * 8192, bytes);
      Coded one;
      one.stored.resize(codec::encode_room(bytes));
      const auto coded =
          codec::encode_leaf({codec::Element::bf16, 64, 16}, mode, raw, codec::leaf_hash(raw), one.stored, workspace);
      ASSERT_TRUE(coded.ok());
      if (coded.value().codec == codec::LeafCodec::raw) continue;
      one.codec = coded.value().codec;
      one.stored.resize(coded.value().bytes);
      one.plain.resize(bytes);
      ASSERT_TRUE(codec::decode_leaf(one.codec, one.stored, one.plain, workspace).ok());
      all.push_back(std::move(one));
    }
  }
  ASSERT_GT(all.size(), 20U);
  std::vector<std::byte> elsewhere(kRecordBytes);
  for (const Way& way : ways()) {
    const auto moving = transfers(way.limits);
    for (std::byte* const records : {memory_->data(), elsewhere.data()}) {
      SCOPED_TRACE(std::string(way.name) + (records == elsewhere.data() ? ", not pinned" : ", pinned"));
      std::vector<std::unique_ptr<DeviceBytes>> pages;
      std::vector<LeafMove> leaves;
      std::byte* record = records;
      for (size_t i = 0; i < all.size(); ++i) {
        const Coded& one = all[i];
        pages.push_back(std::make_unique<DeviceBytes>(device(), one.plain.size()));
        LeafMove leaf;
        leaf.device.data = pages.back()->pointer();
        leaf.device.bytes = one.plain.size();
        leaf.record = record;
        leaf.codec = one.codec;
        leaf.coded_bytes = static_cast<uint32_t>(one.stored.size());
        leaf.expected = codec::leaf_hash(one.plain);
        leaf.check_coded = true;
        leaf.coded_hash = codec::leaf_hash(one.stored);
        std::memcpy(record, one.stored.data(), one.stored.size());
        if (i % 5 == 4) record[one.stored.size() / 2] ^= std::byte{1};
        ASSERT_TRUE(moving->decodes(one.codec, one.stored)) << i;
        record += (one.stored.size() + 63) / 64 * 64;
        leaves.push_back(leaf);
      }
      ASSERT_LE(record - records, static_cast<ptrdiff_t>(kRecordBytes));
      const End end = run(*moving, false, leaves);
      ASSERT_EQ(end.code, Code::ok);
      for (size_t i = 0; i < all.size(); ++i) {
        const bool bad = i % 5 == 4;
        EXPECT_EQ(end.good[i], bad ? 0 : 1) << "leaf " << i;
        const auto wanted = bad ? std::vector<std::byte>(all[i].plain.size(), std::byte{0xFF}) : all[i].plain;
        EXPECT_TRUE(pages[i]->download() == wanted) << "leaf " << i;
      }
    }
  }
}

TEST_F(DeviceTransfers, begins_behind_what_the_stream_held_and_lets_a_stream_wait_for_a_part) {
  const auto moving = transfers({});
  const device::Device::Scope scope(device());
  device::CuStream stream = nullptr;
  ASSERT_EQ(driver().cuStreamCreateWithPriority(&stream, device::kCuStreamNonBlocking, 0), device::kCuSuccess);
  // The engine writes its block on the stream; the store only gets the stream.
  ASSERT_EQ(driver().cuMemsetD8Async(cache_->at(), 0x3C, kCacheBytes, stream), device::kCuSuccess);
  auto point = moving->point(stream);
  ASSERT_TRUE(point.ok()) << point.status().message();
  TransferBatch store;
  store.leaves = leaves(memory_->data());
  store.after = std::move(point).value();
  const uint64_t bytes = total(store.leaves);
  const auto all = store.leaves;
  ASSERT_EQ(begin(*moving, true, std::move(store)).get().code, Code::ok);
  EXPECT_EQ(std::count(memory_->data(), memory_->data() + bytes, std::byte{0x3C}), static_cast<ptrdiff_t>(bytes));

  // A load: work enqueued behind the wait sees the leaves before the mark, whenever it was enqueued.
  SeededRandom random(13);
  random.fill({memory_->data(), bytes});
  const auto landmark = moving->landmark();
  ASSERT_NE(landmark, nullptr);
  const Status waits = moving->wait_on(landmark, 2, stream);
  if (waits.code() == Code::unsupported) GTEST_SKIP() << waits.message();
  ASSERT_TRUE(waits.ok()) << waits.message();
  DeviceBytes seen(device(), all[0].device.total());  // on the device: a copy to the host would wait immediately
  ASSERT_EQ(driver().cuMemcpyAsync(seen.at(), cache_->at(), seen.bytes(), stream), device::kCuSuccess);
  TransferBatch load;
  load.leaves = all;
  for (LeafMove& leaf : load.leaves) leaf.expected = codec::leaf_hash({leaf.record, leaf.device.total()});
  load.marks = {{1, 1}, {all.size(), 2}};
  load.landmark = landmark;
  auto ended = begin(*moving, false, std::move(load));
  ASSERT_EQ(driver().cuStreamSynchronize(stream), device::kCuSuccess);
  EXPECT_EQ(std::memcmp(seen.download().data(), all[0].record, seen.bytes()), 0);
  EXPECT_EQ(ended.get().code, Code::ok);
  EXPECT_EQ(driver().cuStreamDestroy(stream), device::kCuSuccess);
}

}  // namespace
}  // namespace kvbm::test::transfers_test

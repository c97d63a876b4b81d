// Codes blocks on the device (BlockCoder), on the fake of the CUDA driver with the kernels' own source. The streams are
// those of the CPU's coder, for every mode, element and layout of runs. Damaged data reaches no page. No fault of the
// driver leaves wrong bytes, memory or a call that does not end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/crypto/random.h"
#include "codec/coded/strided_stream.h"
#include "codec/lossless/zstd_leaf.h"
#include "device/coder/block_coder.h"
#include "device/driver/retained.h"
#include "device/transfer/landmark.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::device::block_coder_test {
namespace {

using codec::Element;
using codec::LeafForm;
using codec::Mode;
using Bytes = std::vector<std::byte>;

constexpr size_t kPages = 6U << 20;
// Part of a stream's head: the sums that may differ in their last digits, and the place of the checksum over them.
constexpr size_t kSumsAt = 40;
constexpr size_t kSumsEnd = 56;

class BlockCoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::add_emulated_kernels(fake_);
    ASSERT_EQ(fake_.driver().cuInit(0), kCuSuccess);
    auto opened = Device::open(fake_.driver(), 0, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = std::move(opened).value();
    pages_ = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(fake_.allocate(0, kPages)));
    other_ = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(fake_.allocate(0, kPages)));
    before_ = fake_.left(0);
  }

  static CoderOptions options() {
    CoderOptions options;
    options.window_bytes = 256U << 10;  // the smallest: a few hundred KiB take several turns
    options.stall_ns = 60'000'000'000ULL;
    return options;
  }

  // Makes runs of any shape, one behind the other in memory with gaps, `bytes` in all.
  std::vector<StridedRun> make_runs(std::byte* memory, uint64_t bytes, uint32_t least_piece) {
    std::vector<StridedRun> runs;
    uint64_t at = 0;
    while (bytes != 0) {
      StridedRun run;
      run.bytes = least_piece << random_.below(5);
      run.count0 = 1 + static_cast<uint32_t>(random_.below(6));
      run.count1 = 1 + static_cast<uint32_t>(random_.below(8));
      if (run.total() > bytes || run.total() > codec::kMaxRunBytes) {
        run = {};
        run.bytes = std::min<uint64_t>(bytes, least_piece);
      }
      const uint64_t gap = 16 * random_.below(3);
      run.stride1 = static_cast<int64_t>(run.bytes + gap);
      run.stride0 = run.stride1 * run.count1;
      run.data = memory + at;
      at += static_cast<uint64_t>(run.stride0) * run.count0 + 16 * random_.below(2);
      bytes -= run.total();
      runs.push_back(run);
    }
    EXPECT_LE(at, kPages);
    return runs;
  }

  // Returns the bytes of runs, one after the other.
  static Bytes bytes_of(const std::vector<StridedRun>& runs) {
    Bytes out;
    for (const StridedRun& run : runs) {
      for (uint32_t a = 0; a < run.count0; ++a) {
        for (uint32_t b = 0; b < run.count1; ++b) {
          const std::byte* const from = run.data + a * run.stride0 + b * run.stride1;
          out.insert(out.end(), from, from + run.bytes);
        }
      }
    }
    return out;
  }

  // Fills memory with values of few exponents, as caches have them.
  void fill(std::byte* memory, size_t bytes, Element element) {
    // Eight bytes at a time: random ones, with the upper bits of each value's exponent set.
    uint64_t kept = 0, set = 0;
    switch (element) {
      case Element::fp32:
        kept = 0x81FF'FFFF'81FF'FFFF, set = 0x3C00'0000'3C00'0000;
        break;
      case Element::fp16:
        kept = 0x8FFF'8FFF'8FFF'8FFF, set = 0x3000'3000'3000'3000;
        break;
      case Element::bf16:
        kept = 0x81FF'81FF'81FF'81FF, set = 0x3C00'3C00'3C00'3C00;
        break;
      default:
        kept = 0x8F8F'8F8F'8F8F'8F8F, set = 0x3030'3030'3030'3030;
    }
    for (size_t at = 0; at < bytes; at += 8) store_le(memory + at, (random_.next() & kept) | set);
  }

  Bytes by_cpu(const LeafForm& form, Mode mode, const Bytes& raw) {
    Bytes out(codec::stream_room(form, raw.size()));
    const auto made = codec::encode_stream(form, mode, raw, out, workspace_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    out.resize(made.ok() ? made.value() : 0);
    return out;
  }

  Result<Bytes> by_device(BlockCoder& coder, const LeafForm& form, Mode mode, const codec::StridedBytes& from,
                          const StreamPoint* after = nullptr) {
    Bytes out(codec::stream_room(form, from.bytes()));
    const auto made = coder.encode(form, mode, from, after, out, workspace_);
    if (!made.ok()) return made.status();
    out.resize(made.value());
    return out;
  }

  Status back(BlockCoder& coder, const Bytes& coded, const codec::StridedBytes& to, bool lossy = true) {
    const auto view = codec::StreamView::parse(coded);
    if (!view.ok()) return view.status();
    return coder.decode(view.value(), lossy, to, nullptr, workspace_);
  }

  // Expects equal streams, except the last digits of the loss sums and the checksum over them.
  static void expect_same(const Bytes& cpu, const Bytes& device) {
    ASSERT_EQ(cpu.size(), device.size());
    const auto a = codec::StreamView::parse(cpu);
    const auto b = codec::StreamView::parse(device);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_NEAR(a.value().info().difference, b.value().info().difference, 1e-4 * a.value().info().difference);
    EXPECT_NEAR(a.value().info().value, b.value().info().value, 1e-4 * a.value().info().value);
    const size_t checksum = codec::kStreamHeaderBytes + a.value().info().leaves * codec::kStreamLeafBytes;
    const bool lossy = a.value().info().lossy;
    for (size_t i = 0; i < cpu.size(); ++i) {
      const bool sum = (i >= kSumsAt && i < kSumsEnd) || (i >= checksum && i < checksum + 8);
      if (lossy && sum) continue;
      ASSERT_EQ(cpu[i], device[i]) << "byte " << i << " of " << cpu.size();
    }
  }

  // Makes calls while the driver refuses every call of `entry`.
  void expect_given_up(const char* entry) {
    const LeafForm form{Element::bf16, 64, 16};
    fill(pages_, kPages, form.element);
    const codec::StridedBytes from(make_runs(pages_, 100U << 10, 64));
    CoderOptions short_patience = options();
    short_patience.stall_ns = 20'000'000;
    BlockCoder coder(device_, short_patience);
    const size_t retained = retained_count();
    fake_.fail(entry, 1, kCuOutOfMemory, 1ULL << 40);
    EXPECT_EQ(Code::no_memory, by_device(coder, form, Mode::int8, from).status().code());
    EXPECT_NE(std::string::npos, device_->lost_why().find("did not end")) << device_->lost_why();
    EXPECT_EQ(retained + 1, retained_count());
    fake_.wait_idle();
  }

  test::FakeCuda fake_;
  SeededRandom random_{20261123};
  std::shared_ptr<Device> device_;
  std::byte* pages_ = nullptr;
  std::byte* other_ = nullptr;
  test::FakeCuda::Left before_;
  codec::Workspace workspace_;
};

struct Case {
  LeafForm form;
  Mode mode;
  const char* kernel;  // does the work on the device; null: the CPU
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const LeafForm forms[] = {
      {Element::bf16, 64, 16}, {Element::fp16, 128, 300}, {Element::fp32, 32, 0}, {Element::bf16, 0, 0}};
  for (const LeafForm& form : forms) {
    for (Mode mode : {Mode::fp8_e4m3, Mode::fp8_e5m2, Mode::int8, Mode::int6, Mode::int4}) {
      all.push_back({form, mode, "kvbm_quantize"});
    }
    all.push_back({form, Mode::zstd, codec::has_zstd() ? "kvbm_split_planes" : nullptr});
    for (Mode mode : {Mode::off, Mode::fast, Mode::standard, Mode::max, Mode::int8_coded, Mode::delta}) {
      all.push_back({form, mode, nullptr});
    }
  }
  all.push_back({{Element::fp8_e4m3, 64, 16}, Mode::standard, nullptr});
  all.push_back({{Element::bytes, 0, 0}, Mode::zstd, nullptr});
  return all;
}

TEST_F(BlockCoderTest, streams_are_those_of_the_cpu_and_come_back_the_same) {
  BlockCoder coder(device_, options());
  for (const Case& c : cases()) {
    SCOPED_TRACE("mode " + std::string(codec::mode_name(c.mode)) + ", element " +
                 std::to_string(static_cast<int>(c.form.element)) + ", rows of " + std::to_string(c.form.row));
    fill(pages_, kPages, c.form.element);
    const uint64_t bytes = 4 * (random_.below(1U << 17) + 100);
    const codec::StridedBytes from(make_runs(pages_, bytes, 4U << random_.below(6)));
    const Bytes raw = bytes_of(from.runs());
    const uint64_t launches = c.kernel == nullptr ? 0 : fake_.launches(c.kernel);
    const auto made = by_device(coder, c.form, c.mode, from);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const Bytes want = by_cpu(c.form, c.mode, raw);
    expect_same(want, made.value());
    EXPECT_TRUE(c.kernel == nullptr || fake_.launches(c.kernel) > launches);
    // Back into other memory, where only the runs' own bytes may change.
    std::memset(other_, 0x5A, kPages);
    const codec::StridedBytes to(make_runs(other_, bytes, 4U << random_.below(6)));
    ASSERT_TRUE(back(coder, made.value(), to).ok());
    Bytes decoded(raw.size());
    const auto view = codec::StreamView::parse(want);
    ASSERT_TRUE(view.ok() && view.value().decode(true, decoded, workspace_).ok());
    EXPECT_EQ(decoded, bytes_of(to.runs()));
    EXPECT_TRUE(codec::is_lossy(c.mode) || raw == decoded);
  }
  EXPECT_GT(fake_.launches("kvbm_dequantize"), 0U);
  EXPECT_GT(fake_.launches("kvbm_decode_planar"), 0U);
  EXPECT_EQ(codec::has_zstd(), fake_.launches("kvbm_merge_planes") > 0);
}

// A leaf that cannot be quantised is coded by the CPU; a leaf that zstd does not make smaller stays plain.
TEST_F(BlockCoderTest, leaves_that_a_mode_does_not_fit_are_coded_as_the_cpu_codes_them) {
  BlockCoder coder(device_, options());
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  std::vector<StridedRun> runs(24);
  for (size_t i = 0; i < runs.size(); ++i) runs[i] = {pages_ + (i << 16), 1U << 16, 1, 1, 0, 0};
  const uint16_t infinity = 0x7F80;
  for (size_t leaf : {3U, 4U, 17U}) std::memcpy(pages_ + (leaf << 16) + 500, &infinity, 2);
  for (size_t leaf : {5U, 20U}) {
    for (size_t i = 0; i < 1U << 16; i += 8) store_le(pages_ + (leaf << 16) + i, random_.next());
  }
  const codec::StridedBytes from(runs);
  for (Mode mode : {Mode::int8, Mode::fp8_e4m3, Mode::zstd}) {
    const auto made = by_device(coder, form, mode, from);
    ASSERT_TRUE(made.ok());
    expect_same(by_cpu(form, mode, bytes_of(runs)), made.value());
  }
}

// Runs of few bytes: a leaf has more of them than a launch takes.
TEST_F(BlockCoderTest, many_small_runs_take_as_many_launches_as_they_need) {
  BlockCoder coder(device_, options());
  fill(pages_, kPages, Element::bf16);
  std::vector<StridedRun> runs(40000);
  for (size_t i = 0; i < runs.size(); ++i) runs[i] = {pages_ + 16 * i, 4, 1, 1, 0, 0};
  const codec::StridedBytes from(runs);
  const LeafForm form{Element::bf16, 0, 0};
  const auto made = by_device(coder, form, Mode::int8, from);
  ASSERT_TRUE(made.ok());
  expect_same(by_cpu(form, Mode::int8, bytes_of(runs)), made.value());
  for (StridedRun& run : runs) run.data = other_ + (run.data - pages_);
  ASSERT_TRUE(back(coder, made.value(), codec::StridedBytes(runs)).ok());
}

TEST_F(BlockCoderTest, a_leaf_that_is_damaged_reaches_no_page) {
  BlockCoder coder(device_, options());
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  const codec::StridedBytes from(make_runs(pages_, 700U << 10, 64));
  for (Mode mode : {Mode::int8, Mode::standard, Mode::zstd, Mode::off, Mode::int4_coded}) {
    const auto made = by_device(coder, form, mode, from);
    ASSERT_TRUE(made.ok());
    Bytes plain(from.bytes());
    const auto view = codec::StreamView::parse(made.value());
    ASSERT_TRUE(view.ok() && view.value().decode(true, plain, workspace_).ok());
    for (int turn = 0; turn < 12; ++turn) {
      Bytes damaged = made.value();
      const uint64_t head = 64 + 24 * view.value().info().leaves + 64;
      damaged[head + random_.below(damaged.size() - head)] ^= static_cast<std::byte>(1U << random_.below(8));
      std::memset(other_, 0x5A, kPages);
      const codec::StridedBytes to(make_runs(other_, from.bytes(), 64));
      EXPECT_EQ(Code::damaged, back(coder, damaged, to).code());
      const Bytes found = bytes_of(to.runs());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_TRUE(found[i] == plain[i] || found[i] == std::byte{0x5A}) << "byte " << i;
      }
    }
  }
}

TEST_F(BlockCoderTest, lossy_streams_are_refused_before_anything_is_done) {
  BlockCoder coder(device_, options());
  fill(pages_, kPages, Element::bf16);
  const codec::StridedBytes from(make_runs(pages_, 100U << 10, 64));
  const auto made = by_device(coder, {Element::bf16, 64, 16}, Mode::int8, from);
  ASSERT_TRUE(made.ok());
  const uint64_t copied = fake_.copied_bytes();
  EXPECT_EQ(Code::not_permitted, back(coder, made.value(), from, false).code());
  EXPECT_EQ(copied, fake_.copied_bytes());
}

// Blocks are read after the work on the caller's stream: the result of the engine's copy is coded.
TEST_F(BlockCoderTest, blocks_are_read_behind_the_callers_stream) {
  BlockCoder coder(device_, options());
  fill(pages_, kPages, Element::bf16);
  fill(other_, kPages, Element::bf16);
  const codec::StridedBytes from(make_runs(pages_, 300U << 10, 64));
  const Bytes old = bytes_of(from.runs());
  const CuStream stream = fake_.make_stream(0);
  auto landmarks = std::make_shared<LandmarkPool>(device_);
  fake_.hold(stream);
  ASSERT_TRUE(fake_.copy(reinterpret_cast<uintptr_t>(pages_), reinterpret_cast<uintptr_t>(other_), kPages, stream));
  auto point = StreamPoint::take(device_, *landmarks, stream);
  ASSERT_TRUE(point.ok());
  const LeafForm form{Element::bf16, 64, 16};
  Result<Bytes> made = Status(Code::internal, "not run");
  std::thread caller([&] { made = by_device(coder, form, Mode::int8, from, point.value().get()); });
  EXPECT_EQ(old, bytes_of(from.runs()));
  fake_.release(stream);
  caller.join();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_NE(old, bytes_of(from.runs()));
  expect_same(by_cpu(form, Mode::int8, bytes_of(from.runs())), made.value());
}

// Every call of the driver, refused once: the call reports it, and the next one works.
TEST_F(BlockCoderTest, what_the_driver_refuses_ends_one_call_and_leaves_nothing) {
  const char* const entries[] = {"cuMemAlloc",
                                 "cuMemHostRegister",
                                 "cuMemHostGetDevicePointer",
                                 "cuStreamCreateWithPriority",
                                 "cuEventCreate",
                                 "cuEventRecord",
                                 "cuMemcpyAsync",
                                 "cuLaunchKernel",
                                 "cuCtxGetStreamPriorityRange"};
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  const codec::StridedBytes from(make_runs(pages_, 400U << 10, 64));
  const Bytes want = by_cpu(form, Mode::int8, bytes_of(from.runs()));
  for (const char* entry : entries) {
    for (uint64_t nth = 1; nth <= 7; ++nth) {
      SCOPED_TRACE(std::string(entry) + ", call " + std::to_string(nth));
      auto coder = std::make_unique<BlockCoder>(device_, options());
      fake_.fail(entry, nth, kCuOutOfMemory);
      const auto made = by_device(*coder, form, Mode::int8, from);
      EXPECT_TRUE(made.ok() || made.status().code() == Code::no_memory) << made.status().message();
      // A refusal that the encoding did not meet is met here, or later.
      Status there = back(*coder, want, from);
      for (int again = 0; again < 7 && there.code() == Code::no_memory; ++again) there = back(*coder, want, from);
      EXPECT_TRUE(there.ok()) << there.message();
      coder.reset();
      const test::FakeCuda::Left left = fake_.left(0);
      EXPECT_EQ(before_.device_allocations, left.device_allocations);
      EXPECT_EQ(before_.registrations, left.registrations);
      EXPECT_EQ(before_.streams, left.streams);
      EXPECT_EQ(before_.events, left.events);
    }
  }
}

TEST_F(BlockCoderTest, a_device_that_is_lost_on_the_way_ends_the_call_and_the_process_lives) {
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  const codec::StridedBytes from(make_runs(pages_, 400U << 10, 64));
  BlockCoder coder(device_, options());
  ASSERT_TRUE(by_device(coder, form, Mode::int8, from).ok());
  fake_.fail_kernel("kvbm_quantize", 1, kCuIllegalAddress);
  const auto made = by_device(coder, form, Mode::int8, from);
  EXPECT_EQ(Code::tier_disabled, made.status().code());
  EXPECT_NE(std::string::npos, device_->lost_why().find("ILLEGAL_ADDRESS")) << device_->lost_why();
  EXPECT_EQ(Code::tier_disabled, by_device(coder, form, Mode::int8, from).status().code());
}

// The coder's stream, of the lowest priority, may be kept from the device for long: the call fails alone, and later
// calls fail until its work has ended. It writes no memory of the caller's.
TEST_F(BlockCoderTest, an_encode_that_other_work_keeps_from_the_device_fails_alone) {
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  const codec::StridedBytes from(make_runs(pages_, 8U << 10, 64));
  const Bytes want = by_cpu(form, Mode::int8, bytes_of(from.runs()));
  CoderOptions short_patience = options();
  short_patience.stall_ns = 100'000'000;
  const size_t retained = retained_count();
  {
    BlockCoder coder(device_, short_patience);
    fake_.hold_all(true);
    const auto late = by_device(coder, form, Mode::int8, from);
    EXPECT_EQ(Code::deadline, late.status().code()) << late.status().message();
    EXPECT_EQ(Code::deadline, by_device(coder, form, Mode::zstd, from).status().code());
    EXPECT_EQ(Code::deadline, back(coder, want, from).code()) << "nothing of it began";
    EXPECT_FALSE(device_->is_lost());
    EXPECT_EQ(1U, fake_.streams(0).size()) << "the one that is late is used again";
    fake_.hold_all(false);
    fake_.wait_idle();
    auto made = by_device(coder, form, Mode::int8, from);
    while (made.status().code() == Code::deadline) {  // other work of this machine may delay it
      fake_.wait_idle();
      made = by_device(coder, form, Mode::int8, from);
    }
    ASSERT_TRUE(made.ok()) << made.status().message();
    expect_same(want, made.value());
    fake_.hold_all(true);
    EXPECT_EQ(Code::deadline, by_device(coder, form, Mode::int8, from).status().code());
  }
  EXPECT_EQ(retained + 1, retained_count()) << "the device may still write to the room of a coder that is gone";
  fake_.hold_all(false);
  fake_.wait_idle();
  EXPECT_FALSE(device_->is_lost());
}

// A device that never ends its work is given up, if the work writes to the caller's memory; memory that it may still
// write is retained.
TEST_F(BlockCoderTest, a_device_that_does_not_get_on_is_given_up) {
  const LeafForm form{Element::bf16, 64, 16};
  fill(pages_, kPages, form.element);
  const codec::StridedBytes from(make_runs(pages_, 100U << 10, 64));
  const Bytes coded = by_cpu(form, Mode::int8, bytes_of(from.runs()));
  CoderOptions short_patience = options();
  short_patience.stall_ns = 1'000'000;
  BlockCoder coder(device_, short_patience);
  const size_t retained = retained_count();
  fake_.hold_all(true);
  EXPECT_EQ(Code::tier_disabled, back(coder, coded, from).code());
  EXPECT_TRUE(device_->is_lost());
  EXPECT_EQ(retained + 1, retained_count());
  fake_.hold_all(false);
}

// A driver that does not even tell whether a launch has ended: the call does not return before that is settled.
TEST_F(BlockCoderTest, a_driver_that_records_nothing_any_more_loses_the_device) { expect_given_up("cuEventRecord"); }
TEST_F(BlockCoderTest, a_driver_that_says_of_nothing_that_it_ended_loses_the_device) {
  expect_given_up("cuEventQuery");
}

TEST_F(BlockCoderTest, the_context_may_be_destroyed_while_the_caller_waits_for_its_stream) {
  BlockCoder coder(device_, options());
  const codec::StridedBytes from(make_runs(pages_, 100U << 10, 64));
  const CuStream stream = fake_.make_stream(0);
  auto landmarks = std::make_shared<LandmarkPool>(device_);
  fake_.hold(stream);
  ASSERT_TRUE(fake_.copy(reinterpret_cast<uintptr_t>(pages_), reinterpret_cast<uintptr_t>(other_), 64, stream));
  auto point = StreamPoint::take(device_, *landmarks, stream);
  ASSERT_TRUE(point.ok());
  Status ended;
  std::thread caller([&] {
    ended = by_device(coder, {Element::bf16, 64, 16}, Mode::int8, from, point.value().get()).status();
  });
  fake_.destroy_context(0);
  caller.join();
  EXPECT_EQ(Code::tier_disabled, ended.code()) << ended.message();
}

}  // namespace
}  // namespace kvbm::device::block_coder_test

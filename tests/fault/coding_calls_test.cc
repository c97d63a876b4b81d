// Tests kvbm_cache_code_room, kvbm_cache_encode and kvbm_cache_decode through kvbm.h, for a cache in host memory and
// for one on a device, with each of their allocations refused once. A call reports it or returns the right bytes, the
// next one works, and nothing stays on the device.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "base/crypto/random.h"
#include "kvbm.h"
#include "support/counts.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/fake_cuda/fake_cuda.h"
#include "support/refusing_allocator.h"

namespace kvbm::test::coding_calls_test {
namespace {

constexpr size_t kBytes = 24576;  // of a block: leaves of it end within blocks
constexpr size_t kBlocks = 12;
constexpr std::array<uint32_t, 4> kFrom{3, 0, 7, 4}, kTo{1, 9, 2, 11};
constexpr size_t kCoded = kFrom.size() * kBytes;
constexpr uint64_t kSeveral = 4000;  // allocations: more than any of these makes
constexpr auto kUntouched = static_cast<unsigned char>(0x11);

class CodingCallFaults : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    fault.where = Place::caller;
    add_emulated_kernels(fake_);
    void* const library = ::dlopen(KVBM_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    using Lend = void (*)(const device::Driver*);
    const auto lend = reinterpret_cast<Lend>(::dlsym(library, "kvbm_fake_lend"));
    ASSERT_NE(lend, nullptr);
    lend(&fake_.driver());
    ASSERT_EQ(fake_.driver().cuInit(0), device::kCuSuccess);  // a driver is loaded once in a process
    open();
  }

  void open() {
    const kvbm_setting_t settings[] = {{"device.library", KVBM_FAKE_DRIVER},
                                       {"device.lost_after", "600s"},
                                       {"device.staging", "1MiB"},
                                       {"host.huge_pages", "off"}};
    kvbm_context_options_t options;
    kvbm_context_options_init(&options, sizeof options);
    options.settings = settings, options.n_settings = 4, options.threads = 1;
    ASSERT_EQ(kvbm_context_create(&options, &context_, &error_), KVBM_OK) << error_.message;
    kvbm_manager_options_t how;
    kvbm_manager_options_init(&how, sizeof how);
    how.block_bytes = kBytes, how.host_capacity_bytes = 1 << 20;
    ASSERT_EQ(kvbm_manager_create(context_, &how, &manager_, &error_), KVBM_OK) << error_.message;
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "m";
    ASSERT_EQ(kvbm_namespace_open(manager_, &who, &ns_, &error_), KVBM_OK) << error_.message;
    host_.resize(kBlocks * kBytes);
    memory_ = host_.data();
    if (on_device())
      memory_ = reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(fake_.allocate(0, host_.size())));
    kvbm_tensor_t tensor{memory_, host_.size(), 0, kBytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE, part.tensors = &tensor, part.n_tensors = 1;
    kvbm_cache_options_t layout;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = kBlocks, layout.parts = &part, layout.n_parts = 1, layout.memory = GetParam();
    ASSERT_EQ(kvbm_cache_attach(manager_, ns_, &layout, &cache_, &error_), KVBM_OK) << error_.message;
    kvbm_cache_code_options_init(&form_, sizeof form_);
    form_.element = KVBM_ELEMENT_BF16, form_.row_elements = 64, form_.rows = 16;
    ASSERT_EQ(kvbm_cache_code_room(cache_, kFrom.size(), &form_, &room_, &error_), KVBM_OK) << error_.message;
    // Numbers of few exponents, as caches have them.
    SeededRandom random(7);
    for (size_t i = 0; i < host_.size(); i += 2) {
      const uint64_t word = random.next();
      const auto v = static_cast<uint16_t>((word >> 32 & 0x807F) | (120 + (word & 3)) << 7);
      std::memcpy(memory_ + i, &v, sizeof v);
    }
  }

  void TearDown() override {
    kvbm_cache_release(cache_);
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
    const FakeCuda::Left left = fake_.left(0);
    EXPECT_EQ(left.contexts + left.modules + left.device_allocations + left.registrations, 0U);
    EXPECT_EQ(left.streams + left.events, 0U);
  }

  [[nodiscard]] bool on_device() const { return GetParam() == KVBM_MEMORY_CUDA; }
  unsigned char* block(uint32_t id) { return memory_ + id * kBytes; }

  // Makes a call on a thread of its own, which has its working memory yet to allocate, with allocation n refused (0:
  // none). Returns false if the call makes fewer. `wanted`: its status if memory is not refused.
  template <class Call>
  bool refuse(uint64_t n, Call&& call, kvbm_status_t wanted = KVBM_OK) {
    fault.seen = 0;
    fault.at = n;
    fault.fired = false;
    error_ = {};
    std::thread([&] {
      const InPlace here(Place::caller);
      fault.counting = true;
      status_ = call();
      fault.counting = false;
    }).join();
    EXPECT_TRUE(status_ == wanted || (fault.fired && status_ == KVBM_ERR_NO_MEMORY)) << kvbm_status_name(status_);
    EXPECT_EQ(error_.status, status_);
    EXPECT_TRUE(status_ == KVBM_OK || error_.message[0] != '\0');
    return fault.fired;
  }

  kvbm_status_t encode(uint32_t mode, std::vector<unsigned char>& out, size_t& bytes) {
    form_.flags = 0;
    return kvbm_cache_encode(cache_, kFrom.data(), kFrom.size(), mode, &form_, out.data(), out.size(), &bytes, &error_);
  }

  // Codes without a cache, and returns the decoded bytes.
  std::vector<unsigned char> decoded(uint32_t mode) {
    std::vector<unsigned char> raw, coded(room_), plain(kCoded);
    for (const uint32_t id : kFrom) raw.insert(raw.end(), block(id), block(id) + kBytes);
    kvbm_codec_options_t form;
    kvbm_codec_options_init(&form, sizeof form);
    form.element = form_.element, form.row_elements = form_.row_elements, form.rows = form_.rows;
    size_t bytes = 0;
    EXPECT_EQ(kvbm_codec_encode(raw.data(), raw.size(), mode, &form, coded.data(), coded.size(), &bytes, &error_),
              KVBM_OK)
        << error_.message;
    EXPECT_EQ(
        kvbm_codec_decode(coded.data(), bytes, KVBM_CODEC_ALLOW_LOSSY, plain.data(), plain.size(), &bytes, &error_),
        KVBM_OK)
        << error_.message;
    EXPECT_EQ(plain == raw, mode < KVBM_CODEC_FP8_E4M3);
    return plain;
  }

  FakeCuda fake_;
  kvbm_error_t error_{};
  kvbm_status_t status_ = KVBM_OK;
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  kvbm_cache_t* cache_ = nullptr;
  kvbm_cache_code_options_t form_{};
  uint64_t room_ = 0;
  std::vector<unsigned char> host_;
  unsigned char* memory_ = nullptr;
};

std::vector<uint32_t> modes() {
  uint32_t zstd = 0;
  std::vector<uint32_t> all{KVBM_CODEC_OFF, KVBM_CODEC_DEFAULT, KVBM_CODEC_INT8, KVBM_CODEC_INT4_CODED};
  if (kvbm_codec_mode_by_name("zstd", &zstd, nullptr) == KVBM_OK) all.push_back(zstd);
  return all;
}

// A refused call reports its own error, or that there was no memory to report it.
TEST_P(CodingCallFaults, refusals_are_what_they_are_or_say_that_memory_was_refused) {
  std::vector<unsigned char> coded(room_), damaged, out(room_);
  size_t bytes = 0;
  ASSERT_EQ(encode(KVBM_CODEC_INT8, coded, bytes), KVBM_OK) << error_.message;
  damaged = coded;
  damaged[bytes - 200] ^= 1;
  constexpr std::array<uint32_t, 4> kBeyond{0, 1, 2, kBlocks}, kTwice{0, 1, 2, 1};
  kvbm_cache_code_options_t lossy = form_, elsewhere = form_;
  lossy.flags = KVBM_CODEC_ALLOW_LOSSY;
  elsewhere.part = 7;
  uint64_t room = 0;
  size_t n_out = 0;
  const auto encode_of = [&](const uint32_t* ids, size_t capacity) {
    return kvbm_cache_encode(cache_, ids, 4, KVBM_CODEC_INT8, &form_, out.data(), capacity, &n_out, &error_);
  };
  const auto decode_of = [&](const std::vector<unsigned char>& from, const uint32_t* ids, size_t n,
                             const kvbm_cache_code_options_t& how) {
    return kvbm_cache_decode(cache_, from.data(), bytes, ids, n, &how, &error_);
  };
  const struct {
    kvbm_status_t wanted;
    std::function<kvbm_status_t()> call;
  } cases[] = {
      {KVBM_OK, [&] { return kvbm_cache_code_room(cache_, kFrom.size(), &form_, &room, &error_); }},
      {KVBM_ERR_INVALID, [&] { return kvbm_cache_code_room(cache_, kFrom.size(), &elsewhere, &room, &error_); }},
      {KVBM_ERR_INVALID, [&] { return encode_of(kBeyond.data(), out.size()); }},
      {KVBM_ERR_NO_ROOM, [&] { return encode_of(kFrom.data(), 1000); }},
      {KVBM_ERR_INVALID, [&] { return decode_of(coded, kTwice.data(), 4, lossy); }},
      {KVBM_ERR_INVALID, [&] { return decode_of(coded, kTo.data(), 3, lossy); }},
      {KVBM_ERR_PERMISSION, [&] { return decode_of(coded, kTo.data(), 4, form_); }},
      {KVBM_ERR_DAMAGED, [&] { return decode_of(damaged, kTo.data(), 4, lossy); }},
  };
  uint64_t refused = 0;
  for (size_t i = 0; i < std::size(cases); ++i) {
    uint64_t n = 1;
    for (bool fired = true; fired; ++n) {
      ASSERT_LT(n, kSeveral);
      SCOPED_TRACE("case " + std::to_string(i) + ", allocation " + std::to_string(n));
      fired = refuse(n, cases[i].call, cases[i].wanted);
    }
    refused += n - 2;
  }
  EXPECT_EQ(room, room_);
  EXPECT_GT(refused, 20U);
  counted(refused, "allocations refused");
}

TEST_P(CodingCallFaults, encoding_is_refused_or_right_and_works_the_next_time) {
  for (const uint32_t mode : modes()) {
    SCOPED_TRACE(kvbm_codec_mode_name(mode));
    const std::vector<unsigned char> want = decoded(mode);
    std::vector<unsigned char> first, out(room_), plain(kCoded);
    uint64_t n = 1;
    for (bool fired = true; fired; ++n) {
      ASSERT_LT(n, kSeveral);
      SCOPED_TRACE("allocation " + std::to_string(n));
      for (const uint64_t refused : {n, uint64_t{0}}) {
        size_t bytes = 0;
        fired = refuse(refused, [&] { return encode(mode, out, bytes); }) || (refused == 0 && fired);
        if (status_ != KVBM_OK && refused != 0) continue;
        ASSERT_EQ(status_, KVBM_OK) << error_.message;
        if (first.empty()) first.assign(out.begin(), out.begin() + static_cast<ptrdiff_t>(bytes));
        ASSERT_EQ(bytes, first.size());
        ASSERT_EQ(std::memcmp(out.data(), first.data(), bytes), 0);
      }
    }
    EXPECT_GT(n, 3U);
    counted(n - 2, "allocations refused");
    size_t bytes = 0;
    ASSERT_EQ(kvbm_codec_decode(first.data(), first.size(), KVBM_CODEC_ALLOW_LOSSY, plain.data(), plain.size(), &bytes,
                                &error_),
              KVBM_OK)
        << error_.message;
    EXPECT_TRUE(plain == want);
  }
}

TEST_P(CodingCallFaults, decoding_is_refused_or_right_and_works_the_next_time) {
  for (const uint32_t mode : modes()) {
    SCOPED_TRACE(kvbm_codec_mode_name(mode));
    const std::vector<unsigned char> want = decoded(mode);
    std::vector<unsigned char> coded(room_);
    size_t bytes = 0;
    ASSERT_EQ(encode(mode, coded, bytes), KVBM_OK) << error_.message;
    form_.flags = KVBM_CODEC_ALLOW_LOSSY;
    uint64_t n = 1;
    for (bool fired = true; fired; ++n) {
      ASSERT_LT(n, kSeveral);
      SCOPED_TRACE("allocation " + std::to_string(n));
      for (const uint64_t refused : {n, uint64_t{0}}) {
        for (const uint32_t id : kTo) std::memset(block(id), kUntouched, kBytes);
        fired = refuse(refused,
                       [&] {
                         return kvbm_cache_decode(cache_, coded.data(), bytes, kTo.data(), kTo.size(), &form_, &error_);
                       }) ||
                (refused == 0 && fired);
        ASSERT_TRUE(refused != 0 || status_ == KVBM_OK) << error_.message;
        size_t untouched = 0;
        for (size_t i = 0; i < kCoded; ++i) {
          const unsigned char is = block(kTo[i / kBytes])[i % kBytes];
          if (is == want[i]) continue;
          ASSERT_EQ(is, kUntouched) << i;
          ++untouched;
        }
        EXPECT_TRUE(status_ != KVBM_OK || untouched == 0);
      }
    }
    EXPECT_GT(n, 3U);
    counted(n - 2, "allocations refused");
  }
}

INSTANTIATE_TEST_SUITE_P(, CodingCallFaults, ::testing::Values(uint32_t{KVBM_MEMORY_HOST}, uint32_t{KVBM_MEMORY_CUDA}),
                         [](const auto& of) { return of.param == KVBM_MEMORY_CUDA ? "device" : "host"; });

}  // namespace
}  // namespace kvbm::test::coding_calls_test

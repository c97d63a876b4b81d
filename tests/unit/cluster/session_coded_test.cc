// Coded and sealed slices as bytes: decoding gives the encoded bytes, over shapes and modes. A changed, cut or invented
// slice, or one of another pull, is refused, and no byte outside of the slot and the scratch is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cluster/session/coded_slice.h"
#include "cluster/session/staging.h"
#include "support/coded_records.h"
#include "support/session_shapes.h"

namespace kvbm::cluster::session::session_coded_test {
namespace {

constexpr std::byte kGuard{0xA7};
constexpr size_t kGuardBytes = 256;

// Aligned memory with guards around it.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : memory_(bytes + 2 * kGuardBytes + 64, kGuard), bytes_(bytes) {
    begin_ = memory_.data() + kGuardBytes;
    begin_ += (64 - reinterpret_cast<uintptr_t>(begin_) % 64) % 64;
  }
  [[nodiscard]] MutableBytes bytes() const { return {begin_, bytes_}; }
  [[nodiscard]] bool intact() const {
    const std::byte* end = begin_ + bytes_;
    return std::all_of(memory_.data(), const_cast<const std::byte*>(begin_), [](std::byte b) { return b == kGuard; }) &&
           std::all_of(end, memory_.data() + memory_.size(), [](std::byte b) { return b == kGuard; });
  }

 private:
  std::vector<std::byte> memory_;
  std::byte* begin_ = nullptr;
  size_t bytes_;
};

struct How {
  codec::Mode mode = codec::Mode::standard;
  const codec::KeyRing* keys = nullptr;
};

class CodedSlice {
 public:
  CodedSlice(uint64_t seed, bool numbers) : random_(seed) {
    const Facts facts = test::random_facts(random_, true);
    SliceInSlot s;
    s.component = facts.components[random_.below(facts.components.size())];
    random_.fill(std::as_writable_bytes(std::span(s.model)));
    random_.fill(std::as_writable_bytes(std::span(s.head.request.bytes)));
    const bool state = s.component.kind == layout::ComponentKind::state;
    Extent& e = s.head.extent;
    e.component = static_cast<Component>(random_.below(4));
    e.layer = static_cast<uint16_t>(random_.below(s.component.layers));
    e.heads = static_cast<uint16_t>(state ? 1 : 1 + random_.below(s.component.heads));
    const uint64_t row = uint64_t{s.component.planes} * row_bytes(s.component) * e.heads;
    const uint64_t most = std::max<uint64_t>(kMinSliceBytes / row, 1);
    e.range.begin = state ? 0 : random_.below(1000);
    e.range.end = e.range.begin + 1 + random_.below(most);
    for (const uint32_t grain : {32U, 16U, 8U}) {
      e.grain = random_.below(2) == 0 ? grain : 0;
      if (SliceShape::fits_grain(s.component, e)) break;
      e.grain = 0;
    }
    const SliceShape shape(s.component, e);
    s.head.session = random_.next();
    s.head.tag = random_.next();
    s.head.slice = static_cast<uint32_t>(random_.below(1000));
    s.head.payload_bytes = static_cast<uint32_t>(shape.payload_bytes());
    s.head.leaves = shape.leaf_count();
    s.head.row_bytes = row_bytes(s.component);
    slice = s;
    plain_.resize(slice_front_bytes(s.head.leaves) + s.head.payload_bytes);
    const MutableBytes payload = MutableBytes(plain_).subspan(slice_front_bytes(s.head.leaves));
    numbers ? codec::coded_records::fill_bf16(payload, random_) : random_.fill(payload);
    for (uint32_t i = 0; i < s.head.leaves; ++i) {
      const SliceLeaf leaf = shape.leaf(i);
      store_le(slice_hashes(plain_.data()) + size_t{8} * i, codec::leaf_hash(payload.subspan(leaf.offset, leaf.bytes)));
    }
    encode_slice_front(s.head, plain_.data());
    std::memcpy(slot.bytes().data(), plain_.data(), plain_.size());
    slice.slot = slot.bytes().data();
  }

  Result<uint64_t> encode(const How& how) {
    codec::Recipe recipe;
    if (how.mode != codec::Mode::off) recipe.rules.push_back({0, UINT32_MAX, 3, how.mode});
    return encode_slice(slice, scratch.bytes(),
                        [&](const codec::HeadView& head, ConstBytes payload, const codec::RecordForm& form,
                            MutableBytes out_head, MutableBytes out_payload) {
                          return codec::encode_record(head, payload, form, recipe, how.keys, random_, out_head,
                                                      out_payload, workspace_);
                        });
  }
  Status decode(const SliceInSlot& want, uint64_t bytes, const codec::KeyRing* keys) {
    const codec::DecodeRules rules{keys, false};
    return decode_slice(want, bytes, scratch.bytes(),
                        [&](const codec::HeadView& coded, ConstBytes stored, MutableBytes head, MutableBytes payload) {
                          return codec::decode_record(coded, stored, rules, 0, 0, head, payload, workspace_);
                        });
  }
  [[nodiscard]] bool is_plain() const { return std::memcmp(slot.bytes().data(), plain_.data(), plain_.size()) == 0; }
  [[nodiscard]] bool intact() const { return slot.intact() && scratch.intact(); }
  [[nodiscard]] size_t plain_bytes() const { return plain_.size(); }
  Random& random() { return random_; }

  SliceInSlot slice;
  Guarded slot{Staging::slot_bytes_for(kMinSliceBytes)};
  Guarded scratch{slice_scratch_bytes(max_leaves(kMinSliceBytes), kMinSliceBytes)};

 private:
  SeededRandom random_;
  std::vector<std::byte> plain_;
  codec::Workspace workspace_;
};

TEST(SessionCoded, every_shape_comes_back_in_every_mode_coded_and_sealed) {
  const auto ring = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
  uint64_t smaller = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const codec::Mode mode : {codec::Mode::off, codec::Mode::fast, codec::Mode::standard, codec::Mode::zstd}) {
      for (const codec::KeyRing* keys : {static_cast<const codec::KeyRing*>(nullptr), ring.get()}) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        CodedSlice s(seed, seed % 4 != 0);
        const auto coded = s.encode({mode, keys});
        if (!coded.ok()) {
          ASSERT_EQ(coded.status().code(), Code::again) << coded.status().message();
          ASSERT_EQ(keys, nullptr) << "what is sealed always is a slice of its own";
          ASSERT_TRUE(s.is_plain()) << "it is to be sent as it is";
          continue;
        }
        ASSERT_TRUE(is_coded_slice(s.slice.slot, coded.value()));
        ASSERT_LE(coded.value(), coded_slice_room(s.slice.head.leaves, s.slice.head.payload_bytes));
        if (keys == nullptr) {
          ASSERT_LT(coded.value(), s.plain_bytes());
          ++smaller;
        }
        const Status back = s.decode(s.slice, coded.value(), keys);
        ASSERT_TRUE(back.ok()) << back.message();
        ASSERT_TRUE(s.is_plain());
        ASSERT_TRUE(s.intact());
      }
    }
  }
  EXPECT_GT(smaller, 40U);
}

TEST(SessionCoded, what_was_changed_or_cut_on_the_way_is_refused) {
  const auto ring = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const codec::KeyRing* keys = seed % 2 == 0 ? ring.get() : nullptr;
    CodedSlice s(seed * 4 + 1, true);
    const auto coded = s.encode({codec::Mode::standard, keys});
    if (!coded.ok()) continue;
    const uint64_t bytes = coded.value();
    const std::vector<std::byte> kept(s.slice.slot, s.slice.slot + bytes);
    for (int round = 0; round < 120; ++round) {
      std::memcpy(s.slice.slot, kept.data(), bytes);
      uint64_t came = bytes;
      // In half of the rounds only the front and the record's head change, because they hold all lengths.
      const size_t reach = round < 60 ? std::min<size_t>(bytes, 512) : bytes;
      if (round % 5 == 4) {
        came = s.random().below(bytes);
      } else {
        s.slice.slot[s.random().below(reach)] ^= static_cast<std::byte>(1U << s.random().below(8));
      }
      const Status status = s.decode(s.slice, came, keys);
      // Zeros between the parts are not checked, because they mean nothing.
      ASSERT_TRUE(!status.ok() || s.is_plain()) << "seed " << seed << " round " << round;
      ASSERT_TRUE(s.intact());
    }
    std::memcpy(s.slice.slot, kept.data(), bytes);
    ASSERT_TRUE(s.decode(s.slice, bytes, keys).ok()) << "the slice itself is right";
  }
}

// Each slice is undamaged and sealed with the right key, but it answers another pull.
TEST(SessionCoded, what_belongs_to_another_pull_is_refused) {
  const auto ring = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
  for (const codec::KeyRing* keys : {static_cast<const codec::KeyRing*>(nullptr), ring.get()}) {
    for (int what = 0; what < 9; ++what) {
      CodedSlice s(5, true);
      ASSERT_GT(s.slice.head.extent.range.size(), 0U);
      const auto coded = s.encode({codec::Mode::standard, keys});
      ASSERT_TRUE(coded.ok()) << coded.status().message();
      SliceInSlot want = s.slice;
      switch (what) {
        case 0:
          ++want.head.session;
          break;
        case 1:
          ++want.head.tag;
          break;
        case 2:
          want.head.request.bytes[3] ^= 1;
          break;
        case 3:
          ++want.head.slice;
          break;
        case 4:
          ++want.head.extent.layer;
          break;
        case 5:
          ++want.head.extent.first_head;
          break;
        case 6:
          ++want.head.extent.component;
          break;
        case 7:
          ++want.head.extent.range.begin, ++want.head.extent.range.end;
          break;
        default:
          want.model[0] ^= 1;
          break;
      }
      const auto front = [](const SliceInSlot& slice) {
        SliceHead head = slice.head;
        head.leaves = 0;
        std::vector<std::byte> out(kCodedFrontBytes);
        encode_slice_front(head, out.data());
        return out;
      };
      // As an attacker on the path would: the front is that of the wanted slice, the record that of the other one.
      const auto wanted = front(want);
      std::memcpy(s.slice.slot + 8, wanted.data() + 8, 80);
      std::memset(s.slice.slot + 88, 0, 8);
      store_le(s.slice.slot + 88, codec::leaf_hash({s.slice.slot, kCodedFrontBytes}));
      const Status status = s.decode(want, coded.value(), keys);
      EXPECT_FALSE(status.ok()) << what;
      EXPECT_TRUE(status.code() == Code::damaged) << what << ": " << status.message();
      EXPECT_TRUE(s.intact());
    }
  }
}

TEST(SessionCoded, lengths_that_nothing_has_are_refused_whatever_hash_is_on_them) {
  for (const uint64_t payload : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, UINT64_MAX, UINT64_MAX - 63}) {
    for (const uint32_t head : {0U, 1U, 160U, 1U << 20, UINT32_MAX}) {
      CodedSlice s(7, true);
      const auto coded = s.encode({codec::Mode::standard, nullptr});
      ASSERT_TRUE(coded.ok());
      store_le(s.slice.slot + 96, head);
      store_le(s.slice.slot + 104, payload);
      std::memset(s.slice.slot + 88, 0, 8);
      store_le(s.slice.slot + 88, codec::leaf_hash({s.slice.slot, kCodedFrontBytes}));
      for (const uint64_t came : {coded.value(), uint64_t{kCodedFrontBytes}, uint64_t{0}, UINT64_MAX}) {
        EXPECT_EQ(s.decode(s.slice, came, nullptr).code(), Code::damaged);
      }
      EXPECT_TRUE(s.intact());
    }
  }
}

TEST(SessionCoded, without_the_key_and_without_a_seal_nothing_opens) {
  const auto ring = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
  const auto other = codec::coded_records::ring_of("9 " + std::string(64, 'e') + "\n");
  CodedSlice sealed(5, true);
  const auto coded = sealed.encode({codec::Mode::off, ring.get()});
  ASSERT_TRUE(coded.ok());
  EXPECT_EQ(sealed.decode(sealed.slice, coded.value(), nullptr).code(), Code::mismatch);
  EXPECT_EQ(sealed.decode(sealed.slice, coded.value(), other.get()).code(), Code::mismatch);
  CodedSlice open(5, true);
  const auto unsealed = open.encode({codec::Mode::standard, nullptr});
  ASSERT_TRUE(unsealed.ok());
  EXPECT_EQ(open.decode(open.slice, unsealed.value(), ring.get()).code(), Code::not_permitted);
}

TEST(SessionCoded, a_slot_has_room_for_every_slice_that_is_sealed) {
  for (const uint32_t bytes : {kMinSliceBytes, 1U << 20, kMaxSliceBytes}) {
    EXPECT_LE(coded_slice_room(max_leaves(bytes), bytes), Staging::slot_bytes_for(bytes));
  }
}

}  // namespace
}  // namespace kvbm::cluster::session::session_coded_test

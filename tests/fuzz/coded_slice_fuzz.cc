// A coded or sealed slice as a peer may push it: as it is, and with its front made what the pull asks for, so that the
// record behind it is reached. Nothing may be written beside slot and scratch, and what is taken has the leaves that
// its hashes say. And the other way: what was coded comes back, and what was then changed does not.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/crypto/random.h"
#include "cluster/session/coded_slice.h"
#include "codec/hash/leaf_hash.h"
#include "target.h"

namespace coded_slice_fuzz {

namespace {

using namespace kvbm;
using namespace kvbm::cluster::session;

constexpr size_t kGuard = 64;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

const codec::KeyRing& ring() {
  static const auto keys =
      codec::KeyRing::parse("7 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff").value();
  return *keys;
}

// Aligned memory with guards.
class Memory {
 public:
  explicit Memory(size_t bytes) : all_(bytes + 2 * kGuard + 64, std::byte{0xA5}), bytes_(bytes) {
    const auto at = reinterpret_cast<uintptr_t>(all_.data()) + kGuard;
    begin_ = all_.data() + kGuard + (round_up(at, 64) - at);
  }
  ~Memory() {
    const auto untouched = [](std::byte b) { return b == std::byte{0xA5}; };
    check(std::all_of(all_.data(), begin_, untouched));
    check(std::all_of(begin_ + bytes_, all_.data() + all_.size(), untouched));
  }
  [[nodiscard]] MutableBytes bytes() const { return {begin_, bytes_}; }

 private:
  std::vector<std::byte> all_;
  std::byte* begin_;
  size_t bytes_;
};

// A pulled slice: some leaves of two planes.
SliceInSlot wanted(uint64_t positions, std::byte* slot) {
  SliceInSlot out;
  out.component = layout::attention(2, 2, 8, layout::Element::bf16);
  out.head.session = 5;
  out.head.tag = 9;
  out.head.extent = {0, 1, 0, 2, {16, 16 + positions}, 0};
  const SliceShape shape(out.component, out.head.extent);
  out.head.payload_bytes = static_cast<uint32_t>(shape.payload_bytes());
  out.head.leaves = shape.leaf_count();
  out.head.row_bytes = row_bytes(out.component);
  out.slot = slot;
  return out;
}

Status decode(const SliceInSlot& slice, uint64_t bytes, const codec::KeyRing* keys) {
  static codec::Workspace workspace;
  const Memory scratch(slice_scratch_bytes(slice.head.leaves, slice.head.payload_bytes));
  Status status =
      decode_slice(slice, bytes, scratch.bytes(),
                   [&](const codec::HeadView& coded, ConstBytes stored, MutableBytes head, MutableBytes payload) {
                     return codec::decode_record(coded, stored, {keys, false, false}, 0, 0, head, payload, workspace);
                   });
  if (!status.ok()) return status;
  const SliceShape shape(slice.component, slice.head.extent);
  const std::byte* payload = slice.slot + slice_front_bytes(slice.head.leaves);
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    check(codec::leaf_hash({payload + leaf.offset, leaf.bytes}) ==
          load_le<uint64_t>(slice_hashes(slice.slot) + size_t{8} * i));
  }
  check(check_slice_front(slice.head, slice.slot));
  return status;
}

void decode_all(ConstBytes bytes, uint64_t positions) {
  for (const bool made_right : {false, true}) {
    for (const codec::KeyRing* keys : {static_cast<const codec::KeyRing*>(nullptr), &ring()}) {
      SliceInSlot slice = wanted(positions, nullptr);
      const Memory slot(coded_slice_room(slice.head.leaves, slice.head.payload_bytes));
      slice.slot = slot.bytes().data();
      std::memset(slice.slot, 0, slot.bytes().size());
      const size_t came = std::min(bytes.size(), slot.bytes().size());
      std::memcpy(slice.slot, bytes.data(), came);
      if (made_right && came >= kCodedFrontBytes) {
        std::byte lengths[16];
        std::memcpy(lengths, slice.slot + 96, sizeof lengths);
        SliceHead head = slice.head;
        head.leaves = 0;
        encode_slice_front(head, slice.slot);
        store_le(slice.slot + 4, uint32_t{2});
        std::memset(slice.slot + 88, 0, 40);
        store_le(slice.slot + 96, load_le<uint32_t>(lengths));
        store_le(slice.slot + 104, load_le<uint64_t>(lengths + 8));
        store_le(slice.slot + 88, codec::leaf_hash({slice.slot, kCodedFrontBytes}));
      }
      (void)decode(slice, bytes.size(), keys);
    }
  }
}

void there_and_back(ConstBytes bytes, uint64_t positions) {
  if (bytes.size() < 16) return;
  SeededRandom random(load_le<uint64_t>(bytes.data()));
  SliceInSlot slice = wanted(positions, nullptr);
  const size_t front = slice_front_bytes(slice.head.leaves);
  const Memory slot(std::max<size_t>(coded_slice_room(slice.head.leaves, slice.head.payload_bytes),
                                     front + slice.head.payload_bytes));
  slice.slot = slot.bytes().data();
  const MutableBytes payload(slice.slot + front, slice.head.payload_bytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = bytes[8 + i % (bytes.size() - 8)];
  const SliceShape shape(slice.component, slice.head.extent);
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    store_le(slice_hashes(slice.slot) + size_t{8} * i, codec::leaf_hash(payload.subspan(leaf.offset, leaf.bytes)));
  }
  const std::vector<std::byte> kept(payload.begin(), payload.end());
  const codec::KeyRing* const keys = random.below(2) == 0 ? &ring() : nullptr;
  codec::Recipe recipe;
  recipe.rules.push_back({0, UINT32_MAX, 3, static_cast<codec::Mode>(random.below(5))});
  codec::Workspace workspace;
  const Memory scratch(slice_scratch_bytes(slice.head.leaves, slice.head.payload_bytes));
  const auto coded = encode_slice(slice, scratch.bytes(),
                                  [&](const codec::HeadView& head, ConstBytes raw, const codec::RecordForm& form,
                                      MutableBytes out_head, MutableBytes out_payload) {
                                    return codec::encode_record(head, raw, form, recipe, keys, random, out_head,
                                                                out_payload, workspace);
                                  });
  if (!coded.ok()) return check(coded.status().code() == Code::again && keys == nullptr);
  const std::vector<std::byte> whole(slice.slot, slice.slot + coded.value());
  check(decode(slice, coded.value(), keys).ok());
  check(std::equal(kept.begin(), kept.end(), payload.begin()));
  std::memcpy(slice.slot, whole.data(), whole.size());
  slice.slot[random.below(whole.size())] ^= static_cast<std::byte>(1 + random.below(255));
  // Padding up to a multiple of 64 is not compared.
  check(!decode(slice, coded.value(), keys).ok() || std::equal(kept.begin(), kept.end(), payload.begin()));
}

}  // namespace

KVBM_FUZZ_TARGET(coded_slice) {
  if (size == 0) return 0;
  const uint64_t positions = 1 + data[0] % 64 * uint64_t{16};
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  decode_all(bytes, positions);
  there_and_back(bytes, positions);
  return 0;
}

}  // namespace coded_slice_fuzz

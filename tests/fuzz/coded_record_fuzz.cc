// A coded or sealed record as a disk or a peer may give it: head, then the payload. As it is, and with root hash and
// checksum made right; with a key and without; whole and leaf by leaf. And the other way: whatever was coded and sealed
// comes back, and what was then changed under a seal does not.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "../support/opaque_leaves.h"
#include "base/crypto/random.h"
#include "codec/coded/coded_record.h"
#include "codec/hash/leaf_hash.h"
#include "target.h"

namespace coded_record_fuzz {

namespace {

using namespace kvbm;

constexpr uint64_t kMostBytes = 1 << 20;  // a reader has room for blocks of its own size, and refuses larger ones
constexpr size_t kGuard = 64;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

const codec::KeyRing& ring() {
  static const auto keys =
      codec::KeyRing::parse("7 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff").value();
  return *keys;
}

// A record that decodes is plain, with leaves that match its table. No byte is written outside the target.
void decode(const codec::HeadView& view, ConstBytes stored, const codec::DecodeRules& rules, uint32_t first,
            uint32_t n) {
  static codec::Workspace workspace;
  const uint64_t raw = view.header().raw_bytes;
  std::vector<std::byte> head(codec::plain_head_bytes(view)), payload(raw + 2 * kGuard, std::byte{0xA5});
  const Status status =
      codec::decode_record(view, stored, rules, first, n, head, MutableBytes(payload).subspan(kGuard, raw), workspace);
  const auto untouched = [](std::byte b) { return b == std::byte{0xA5}; };
  check(std::all_of(payload.begin(), payload.begin() + kGuard, untouched));
  check(std::all_of(payload.end() - kGuard, payload.end(), untouched));
  if (!status.ok()) return;
  const auto plain = codec::HeadView::parse(head);
  check(plain.ok() && !codec::is_coded(plain.value()) && plain.value().header().stored_bytes == raw);
  const uint32_t end = n == 0 ? view.header().leaf_count : first + n;
  for (uint32_t i = first; i < end; ++i) {
    const codec::Leaf leaf = plain.value().leaf(i);
    check(codec::leaf_hash({payload.data() + kGuard + leaf.offset, leaf.raw_bytes}) == leaf.hash);
  }
}

// Opens and decodes a record in place, in a room as large as the plain payload. The result must equal that of decoding
// at once.
void open_and_decode(const codec::HeadView& view, ConstBytes stored, const codec::DecodeRules& rules) {
  static codec::Workspace workspace;
  const uint64_t raw = view.header().raw_bytes;
  std::vector<std::byte> whole_head(codec::plain_head_bytes(view)), whole(raw);
  const bool decodes = codec::decode_record(view, stored, rules, 0, 0, whole_head, whole, workspace).ok();
  const bool sealed = (view.header().flags & codec::kSealed) != 0;
  const uint64_t bytes = codec::opened_bytes(view);
  std::vector<std::byte> head(whole_head.size()), guarded(raw + 2 * kGuard, std::byte{0xA5});
  const MutableBytes room = MutableBytes(guarded).subspan(kGuard, raw);
  if (bytes > raw) return check(!decodes);
  const MutableBytes landing = room.subspan(raw - bytes);
  std::vector<codec::OpenedLeaf> leaves(view.header().leaf_count);
  const MutableBytes opened = sealed ? landing : MutableBytes();
  bool same = codec::open_record(view, stored, rules, head, opened, leaves, workspace).ok();
  if (same) {
    if (!sealed) std::copy(stored.begin(), stored.end(), landing.begin());
    for (codec::OpenedLeaf& leaf : leaves) leaf.offset += raw - bytes;
    const auto plain = codec::HeadView::parse(head);
    check(plain.ok());
    same = codec::decode_opened(plain.value(), leaves, room, workspace).ok();
  }
  check(same == decodes);
  const auto untouched = [](std::byte b) { return b == std::byte{0xA5}; };
  check(std::all_of(guarded.begin(), guarded.begin() + kGuard, untouched));
  check(std::all_of(guarded.end() - kGuard, guarded.end(), untouched));
  if (same) check(head == whole_head && std::equal(whole.begin(), whole.end(), room.begin()));
}

void decode_all(ConstBytes bytes) {
  const auto view = codec::HeadView::parse(bytes);
  if (!view.ok() || view.value().header().raw_bytes > kMostBytes) return;
  const ConstBytes payload = bytes.subspan(view.value().head_bytes());
  const ConstBytes stored = payload.first(std::min<uint64_t>(payload.size(), view.value().header().stored_bytes));
  decode(view.value(), stored, {nullptr, true, true}, 0, 0);
  decode(view.value(), stored, {nullptr, false, false}, 0, 0);
  decode(view.value(), stored, {&ring(), true, false}, 0, 0);
  open_and_decode(view.value(), stored, {nullptr, true, true});
  open_and_decode(view.value(), stored, {nullptr, false, false});
  open_and_decode(view.value(), stored, {&ring(), true, false});
  for (uint32_t i = 0; i < std::min(view.value().header().leaf_count, 8U); ++i) {
    const codec::Leaf leaf = view.value().leaf(i);
    if (uint64_t{leaf.offset} + leaf.stored_bytes > stored.size()) break;
    const bool sealed = (view.value().header().flags & codec::kSealed) != 0;
    const codec::DecodeRules rules{sealed ? &ring() : nullptr, true, false};
    decode(view.value(), stored.subspan(leaf.offset, leaf.stored_bytes), rules, i, 1);
  }
}

// Offsets: lib/codec/README.md.
void make_right(std::vector<std::byte>& head) {
  const uint64_t total =
      codec::head_bytes(load_le<uint32_t>(head.data() + 24), load_le<uint32_t>(head.data() + 28) & 0xFFFF);
  if (total <= head.size()) {
    std::fill_n(head.begin() + 136, 24, std::byte{0});
    const XXH128_hash_t root = XXH3_128bits(head.data(), total);
    store_le<uint64_t>(head.data() + 136, root.low64);
    store_le<uint64_t>(head.data() + 144, root.high64);
  }
  store_le<uint64_t>(head.data() + 152, XXH3_64bits(head.data(), 152));
}

constexpr codec::Mode kModes[] = {codec::Mode::off,  codec::Mode::fast, codec::Mode::standard, codec::Mode::max,
                                  codec::Mode::zstd, codec::Mode::int8, codec::Mode::fp8_e4m3, codec::Mode::delta};

// Codes and decodes a payload. The first bytes of the input choose how, and the rest is the payload.
void there_and_back(ConstBytes bytes) {
  if (bytes.size() < 16 || bytes.size() > kMostBytes) return;
  SeededRandom random(load_le<uint64_t>(bytes.data()));
  const codec::KeyRing* const keys = random.below(2) == 0 ? &ring() : nullptr;
  codec::Recipe recipe;
  const codec::Mode mode = kModes[random.below(std::size(kModes))];
  // A rule for some layers must not make an opaque record lossy.
  const bool opaque = random.below(2) == 0;
  const bool of_some = random.below(2) == 0;
  recipe.rules.push_back({0, of_some ? 1 : UINT32_MAX, static_cast<uint8_t>(of_some ? 1 : 3), mode});
  if (of_some) recipe.rules.push_back({0, UINT32_MAX, 3, codec::Mode::fast});
  const codec::RecordForm form{static_cast<codec::Element>(random.below(7)), 64, 16, 2, 1, 0};
  const ConstBytes raw = bytes.subspan(8);
  codec::Header header;
  header.flags = opaque ? codec::kOpaque : 0;
  header.raw_bytes = header.stored_bytes = raw.size();
  std::vector<codec::Leaf> leaves = test::opaque_leaves(raw.size());
  for (codec::Leaf& leaf : leaves) leaf.hash = codec::leaf_hash(raw.subspan(leaf.offset, leaf.raw_bytes));
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  std::vector<std::byte> head(codec::head_bytes(header.leaf_count, 0)), out_head(codec::coded_head_room(head.size()));
  check(codec::encode_head(header, leaves, {}, head).ok());
  std::vector<std::byte> room(codec::coded_room(raw.size(), header.leaf_count) + 64);
  const auto at = reinterpret_cast<uintptr_t>(room.data());
  const MutableBytes out(room.data() + (round_up(at, 64) - at), room.size() - 64);
  codec::Workspace workspace;
  const auto plain = codec::HeadView::parse(head);
  const auto sizes = codec::encode_record(plain.value(), raw, form, recipe, keys, random, out_head, out, workspace);
  if (!sizes.ok()) {
    check(sizes.status().code() == Code::again && keys == nullptr);
    return;
  }
  const auto view = codec::HeadView::parse(ConstBytes(out_head).first(sizes.value().head_bytes));
  check(view.ok());
  const ConstBytes stored = out.first(sizes.value().payload_bytes);
  std::vector<std::byte> back_head(codec::plain_head_bytes(view.value())), back(raw.size());
  check(!sizes.value().lossy || !opaque || !of_some);
  const auto decoded = [&] {
    std::optional<codec::Mode> mode_told;
    const Status status =
        codec::decode_record(view.value(), stored, {keys, true, false}, 0, 0, back_head, back, workspace, &mode_told);
    check(!mode_told.has_value() || codec::mode_name(*mode_told) != "unknown");
    return status.ok();
  };
  check(decoded());
  check(sizes.value().lossy || std::equal(raw.begin(), raw.end(), back.begin()));
  open_and_decode(view.value(), stored, {keys, true, false});
  out[random.below(stored.size())] ^= static_cast<std::byte>(1 + random.below(255));
  check(!decoded());
  open_and_decode(view.value(), stored, {keys, true, false});
}

}  // namespace

KVBM_FUZZ_TARGET(coded_record) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  decode_all(bytes);
  there_and_back(bytes);
  if (size < codec::kHeaderBytes) return 0;
  std::vector<std::byte> forged(bytes.begin(), bytes.end());
  make_right(forged);
  decode_all(forged);
  return 0;
}

}  // namespace coded_record_fuzz

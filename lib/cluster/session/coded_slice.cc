#include "cluster/session/coded_slice.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/hash/leaf_hash.h"

namespace kvbm::cluster::session {
namespace {

constexpr size_t kAlign = 64;
constexpr uint32_t kCodedVersion = 2;
// Offsets in the front, behind the head of every slice.
constexpr size_t kVersionAt = 4;
constexpr size_t kFrontHashAt = 88;
constexpr size_t kRecordHeadAt = 96;
constexpr size_t kRecordPayloadAt = 104;

Status damaged(const char* what) { return {Code::damaged, "a coded slice is not what was asked for", what}; }

SliceShape shape_of(const SliceInSlot& s) { return {s.component, s.head.extent}; }

// Returns a header with the pull as the record's identity.
codec::Header header_of(const SliceInSlot& s) {
  const SliceHead& h = s.head;
  codec::Header out;
  out.ns.bytes = s.model;
  out.key.bytes = h.request.bytes;
  store_le(reinterpret_cast<std::byte*>(out.parent.bytes.data()), h.session);
  store_le(reinterpret_cast<std::byte*>(out.parent.bytes.data()) + 8, h.tag);
  out.component = h.extent.component;
  out.shard = {h.extent.layer, 1, h.extent.first_head, h.extent.heads, 0};
  out.geometry = uint64_t{h.row_bytes} << 32 | h.slice;
  out.leaf_count = h.leaves;
  out.raw_bytes = out.stored_bytes = h.payload_bytes;
  return out;
}

// Writes the plain record's head; `hash_of` gives the hash of each leaf.
template <class HashOf>
Result<size_t> put_head(const SliceInSlot& s, const codec::Header& header, HashOf hash_of, MutableBytes out) {
  const SliceShape shape = shape_of(s);
  for (uint32_t i = 0; i < s.head.leaves; ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    codec::put_leaf(out, i,
                    {static_cast<uint32_t>(leaf.offset), leaf.bytes, leaf.bytes, codec::LeafCodec::raw, 0, hash_of(i)});
  }
  std::byte* at = out.data() + codec::head_bytes(s.head.leaves, 0);
  const Range& range = s.head.extent.range;
  store_le(at, static_cast<uint16_t>(codec::Attribute::position));
  store_le(at + 2, uint16_t{24});
  store_le(at + 4, range.begin);
  store_le(at + 12, range.end);
  store_le(at + 20, uint64_t{s.head.extent.grain});
  codec::Header whole = header;
  whole.attribute_bytes = 4 + 24;
  return codec::finish_head(whole, out);
}

codec::RecordForm form_of(const SliceInSlot& s) {
  codec::RecordForm form;
  form.element = static_cast<codec::Element>(s.component.element);
  if (s.component.kind == layout::ComponentKind::state) return form;
  form.row = s.component.head_dim;
  const uint64_t in_leaf = kLeafBytes / std::max<uint32_t>(s.head.row_bytes, 1);
  const Extent& e = s.head.extent;
  form.rows = static_cast<uint32_t>(e.grain != 0 ? e.grain : std::min<uint64_t>(e.range.size(), in_leaf));
  return form;
}

// Writes head and lengths, and the hash of both.
void put_front(const SliceInSlot& s, uint32_t head_bytes, uint64_t payload_bytes, std::byte* out) {
  // Only the head that every slice has, without leaves, since these are in the record.
  SliceHead head = s.head;
  head.leaves = 0;
  encode_slice_front(head, out);
  store_le(out + kVersionAt, kCodedVersion);
  std::memset(out + kFrontHashAt, 0, kCodedFrontBytes - kFrontHashAt);
  store_le(out + kRecordHeadAt, head_bytes);
  store_le(out + kRecordPayloadAt, payload_bytes);
  store_le(out + kFrontHashAt, codec::leaf_hash({out, kCodedFrontBytes}));
}

// Work memory of one call.
struct Scratch {
  MutableBytes plain_head, other_head, payload;
  Scratch(const SliceInSlot& s, MutableBytes all) {
    const size_t head = round_up(codec::coded_head_room(slice_record_head_bytes(s.head.leaves)), kAlign);
    plain_head = all.first(head);
    other_head = all.subspan(head, head);
    payload = all.subspan(2 * head);
  }
};

bool usable(const SliceInSlot& s, MutableBytes scratch) noexcept {
  return scratch.size() >= slice_scratch_bytes(s.head.leaves, s.head.payload_bytes) &&
         reinterpret_cast<uintptr_t>(scratch.data()) % kAlign == 0;
}

}  // namespace

bool is_coded_slice(const std::byte* slot, uint64_t bytes) noexcept {
  return bytes >= kCodedFrontBytes && load_le<uint32_t>(slot + kVersionAt) == kCodedVersion;
}

uint64_t slice_scratch_bytes(uint32_t leaves, uint64_t payload_bytes) noexcept {
  return 2 * round_up(codec::coded_head_room(slice_record_head_bytes(leaves)), kAlign) +
         codec::coded_room(payload_bytes, leaves);
}

Result<uint64_t> encode_slice(const SliceInSlot& slice, MutableBytes scratch, const RecordEncoder& encode) {
  if (!usable(slice, scratch)) return Status(Code::invalid_argument, "too little memory to code a slice in");
  const Scratch in(slice, scratch);
  const std::byte* hashes = slice.slot + kSliceHeadBytes;
  const auto plain = put_head(
      slice, header_of(slice), [&](uint32_t i) { return load_le<uint64_t>(hashes + size_t{8} * i); }, in.plain_head);
  if (!plain.ok()) return plain.status();
  const auto head = codec::HeadView::parse(in.plain_head.first(plain.value()));
  if (!head.ok()) return head.status();
  const size_t front = slice_front_bytes(slice.head.leaves);
  const ConstBytes payload(slice.slot + front, slice.head.payload_bytes);
  const auto sizes = encode(head.value(), payload, form_of(slice), in.other_head, in.payload);
  if (!sizes.ok()) return sizes.status();
  const auto coded = codec::peek_header(in.other_head.first(codec::kHeaderBytes));
  if (!coded.ok()) return coded.status();
  const size_t at = round_up(kCodedFrontBytes + sizes.value().head_bytes, kAlign);
  const uint64_t bytes = at + sizes.value().payload_bytes;
  const bool sealed = (coded.value().flags & codec::kSealed) != 0;
  if (!sealed && bytes >= front + slice.head.payload_bytes) {
    return Status(Code::again, "coding does not make this slice smaller");
  }
  if (bytes > coded_slice_room(slice.head.leaves, slice.head.payload_bytes)) {
    return Status(Code::internal, "a coded slice takes more than its room");
  }
  put_front(slice, static_cast<uint32_t>(sizes.value().head_bytes), sizes.value().payload_bytes, slice.slot);
  std::memset(slice.slot + kCodedFrontBytes, 0, at - kCodedFrontBytes);
  std::memcpy(slice.slot + kCodedFrontBytes, in.other_head.data(), sizes.value().head_bytes);
  std::memcpy(slice.slot + at, in.payload.data(), sizes.value().payload_bytes);
  return bytes;
}

Status decode_slice(const SliceInSlot& slice, uint64_t bytes, MutableBytes scratch, const RecordDecoder& decode) {
  if (!usable(slice, scratch)) return {Code::invalid_argument, "too little memory to decode a slice in"};
  if (bytes < kCodedFrontBytes || bytes > coded_slice_room(slice.head.leaves, slice.head.payload_bytes)) {
    return damaged("its length");
  }
  const auto head_bytes = load_le<uint32_t>(slice.slot + kRecordHeadAt);
  const auto payload_bytes = load_le<uint64_t>(slice.slot + kRecordPayloadAt);
  std::array<std::byte, kCodedFrontBytes> want;
  put_front(slice, head_bytes, payload_bytes, want.data());
  if (std::memcmp(want.data(), slice.slot, want.size()) != 0) return damaged("its front");
  const size_t plain_bytes = slice_record_head_bytes(slice.head.leaves);
  if (head_bytes > codec::coded_head_room(plain_bytes)) return damaged("the length of its record's head");
  const size_t at = round_up(kCodedFrontBytes + head_bytes, kAlign);
  if (at > bytes || payload_bytes != bytes - at) return damaged("its length");
  const auto coded = codec::HeadView::parse({slice.slot + kCodedFrontBytes, head_bytes});
  if (!coded.ok()) return damaged(coded.status().what());
  const codec::Header& said = coded.value().header();
  if (said.leaf_count != slice.head.leaves || said.raw_bytes != slice.head.payload_bytes ||
      codec::plain_head_bytes(coded.value()) != plain_bytes) {
    return damaged("the sizes of its record");
  }
  const Scratch in(slice, scratch);
  const MutableBytes head = in.other_head.first(plain_bytes);
  const MutableBytes payload = in.payload.first(slice.head.payload_bytes);
  std::memset(head.data(), 0, head.size());
  const Status decoded = decode(coded.value(), {slice.slot + at, payload_bytes}, head, payload);
  if (!decoded.ok()) return decoded;
  // Compares the head with the expected one, except for facts that only the other side knows: the record's id, and
  // the hashes, which were compared already.
  const std::byte* table = head.data() + codec::kHeaderBytes;
  const auto hash_of = [&](uint32_t i) { return load_le<uint64_t>(table + codec::kLeafEntryBytes * i + 16); };
  codec::Header header = header_of(slice);
  header.record_id = said.record_id;
  const auto made = put_head(slice, header, hash_of, in.plain_head);
  if (!made.ok() || made.value() != plain_bytes || std::memcmp(in.plain_head.data(), head.data(), plain_bytes) != 0) {
    return damaged("its record belongs elsewhere");
  }
  for (uint32_t i = 0; i < slice.head.leaves; ++i) {
    store_le(slice.slot + kSliceHeadBytes + size_t{8} * i, hash_of(i));
  }
  encode_slice_front(slice.head, slice.slot);
  std::memcpy(slice.slot + slice_front_bytes(slice.head.leaves), payload.data(), payload.size());
  return {};
}

}  // namespace kvbm::cluster::session

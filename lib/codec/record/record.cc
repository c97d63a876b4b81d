#include "codec/record/record.h"

// The only file that includes xxHash: header-only, so libkvbm needs no libxxhash at load time.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace kvbm::codec {
namespace {

// Byte offsets of the header; lib/codec/README.md has the table.
enum RecordOffset : size_t {
  kRecordMagicAt = 0,
  kRecordVersionAt = 4,
  kRecordReserved5At = 5,
  kRecordHeaderBytesAt = 6,
  kRecordFlagsAt = 8,
  kRecordComponentAt = 10,
  kRecordShardAt = 12,  // five u16
  kRecordReserved22At = 22,
  kRecordLeafCountAt = 24,
  kRecordAttributeBytesAt = 28,
  kRecordNamespaceAt = 32,
  kRecordKeyAt = 48,
  kRecordParentAt = 64,
  kRecordRecordIdAt = 80,
  kRecordGeometryAt = 96,
  kRecordRawBytesAt = 104,
  kRecordStoredBytesAt = 112,
  kRecordTokensAt = 120,
  kRecordKeyIdAt = 124,
  kRecordReserved128At = 128,
  kRecordRootHashAt = 136,
  kRecordChecksumAt = 152,
};
static_assert(kRecordChecksumAt + 8 == kHeaderBytes);

constexpr size_t kPositionBytes = 24;
constexpr uint16_t kKnownFlags = kOpaque | kLossy | kSealed | kContentKey;

template <size_t N>
void put_array(std::byte* at, const std::array<uint8_t, N>& value) noexcept {
  std::memcpy(at, value.data(), N);
}

template <size_t N>
void get_array(const std::byte* at, std::array<uint8_t, N>& value) noexcept {
  std::memcpy(value.data(), at, N);
}

uint64_t checksum_of(const std::byte* header) noexcept { return XXH3_64bits(header, kRecordChecksumAt); }

void write_header(const Header& h, std::byte* out) noexcept {
  std::memset(out, 0, kHeaderBytes);
  store_le(out + kRecordMagicAt, kRecordMagic);
  store_le(out + kRecordVersionAt, kRecordVersion);
  store_le(out + kRecordHeaderBytesAt, static_cast<uint16_t>(kHeaderBytes));
  store_le(out + kRecordFlagsAt, h.flags);
  store_le(out + kRecordComponentAt, h.component);
  const uint16_t shard[] = {h.shard.first_layer, h.shard.layers, h.shard.first_head, h.shard.heads, h.shard.replicated};
  std::memcpy(out + kRecordShardAt, shard, sizeof shard);
  store_le(out + kRecordLeafCountAt, h.leaf_count);
  store_le(out + kRecordAttributeBytesAt, h.attribute_bytes);
  put_array(out + kRecordNamespaceAt, h.ns.bytes);
  put_array(out + kRecordKeyAt, h.key.bytes);
  put_array(out + kRecordParentAt, h.parent.bytes);
  put_array(out + kRecordRecordIdAt, h.record_id);
  store_le(out + kRecordGeometryAt, h.geometry);
  store_le(out + kRecordRawBytesAt, h.raw_bytes);
  store_le(out + kRecordStoredBytesAt, h.stored_bytes);
  store_le(out + kRecordTokensAt, h.tokens);
  store_le(out + kRecordKeyIdAt, h.key_id);
}

Header read_header(const std::byte* in) noexcept {
  Header h;
  h.flags = load_le<uint16_t>(in + kRecordFlagsAt);
  h.component = load_le<uint16_t>(in + kRecordComponentAt);
  uint16_t shard[5];
  std::memcpy(shard, in + kRecordShardAt, sizeof shard);
  h.shard = {shard[0], shard[1], shard[2], shard[3], shard[4]};
  h.leaf_count = load_le<uint32_t>(in + kRecordLeafCountAt);
  h.attribute_bytes = load_le<uint32_t>(in + kRecordAttributeBytesAt);
  get_array(in + kRecordNamespaceAt, h.ns.bytes);
  get_array(in + kRecordKeyAt, h.key.bytes);
  get_array(in + kRecordParentAt, h.parent.bytes);
  get_array(in + kRecordRecordIdAt, h.record_id);
  h.geometry = load_le<uint64_t>(in + kRecordGeometryAt);
  h.raw_bytes = load_le<uint64_t>(in + kRecordRawBytesAt);
  h.stored_bytes = load_le<uint64_t>(in + kRecordStoredBytesAt);
  h.tokens = load_le<uint32_t>(in + kRecordTokensAt);
  h.key_id = load_le<uint32_t>(in + kRecordKeyIdAt);
  return h;
}

// Checks a header by itself; null if it is valid. Shared by both directions, so that nothing is written that would not
// be read.
const char* header_fault(const Header& h) noexcept {
  if ((h.flags & ~kKnownFlags) != 0) return "record header: unknown flags";
  if (h.leaf_count > kMaxLeaves) return "record header: too many leaves";
  if (h.attribute_bytes > kMaxAttributeBytes) return "record header: attributes above 4 KiB";
  const uint64_t limit = h.leaf_count * kMaxLeafBytes;
  const bool sealed = (h.flags & kSealed) != 0;
  const uint64_t tags = sealed ? h.leaf_count * uint64_t{kSealTagBytes + kSealedHashBytes} : 0;
  if (h.raw_bytes > limit || h.stored_bytes > limit + tags) return "record header: more bytes than its leaves can hold";
  if (sealed && h.key_id == 0) return "record header: sealed, and no key said";
  if (h.leaf_count > h.raw_bytes) return "record header: empty leaves";
  return nullptr;
}

void write_leaf(std::byte* at, const Leaf& leaf) noexcept {
  store_le(at, leaf.offset);
  store_le(at + 4, leaf.stored_bytes);
  store_le(at + 8, leaf.raw_bytes);
  store_le(at + 12, static_cast<uint16_t>(leaf.codec));
  store_le(at + 14, leaf.reserved);
  store_le(at + 16, leaf.hash);
}

Leaf read_leaf(const std::byte* at) noexcept {
  Leaf leaf;
  leaf.offset = load_le<uint32_t>(at);
  leaf.stored_bytes = load_le<uint32_t>(at + 4);
  leaf.raw_bytes = load_le<uint32_t>(at + 8);
  leaf.codec = static_cast<LeafCodec>(load_le<uint16_t>(at + 12));
  leaf.reserved = load_le<uint16_t>(at + 14);
  leaf.hash = load_le<uint64_t>(at + 16);
  return leaf;
}

// Leaves lie one after the other without gaps, so order, overlap and sums are one running total.
// Null if the table agrees with itself and with the header.
const char* table_fault(const Header& h, const std::byte* table) noexcept {
  const bool sealed = (h.flags & kSealed) != 0;
  const uint64_t tag = sealed ? kSealTagBytes : 0;
  uint64_t stored = 0;
  uint64_t raw = 0;
  for (uint32_t i = 0; i < h.leaf_count; ++i) {
    const Leaf leaf = read_leaf(table + kLeafEntryBytes * i);
    if (leaf.offset != stored) return "leaf table: a leaf does not start where the one before it ends";
    if (leaf.reserved != 0) return "leaf table: reserved field in use";
    if (leaf.codec > LeafCodec::delta) return "leaf table: unknown leaf codec";
    if (leaf.raw_bytes == 0 || leaf.raw_bytes > kMaxLeafBytes) return "leaf table: leaf empty or above 64 KiB";
    if (leaf.codec == LeafCodec::raw) {
      const uint64_t more = sealed ? kSealTagBytes + kSealedHashBytes : 0;
      if (leaf.stored_bytes != leaf.raw_bytes + more) return "leaf table: a raw leaf must be stored as it is";
    } else {
      if (leaf.stored_bytes <= tag || leaf.stored_bytes >= leaf.raw_bytes + tag ||
          (leaf.stored_bytes - tag) % kCodedLeafUnit != 0) {
        return "leaf table: a coded leaf of impossible length";
      }
      if (leaf.codec >= LeafCodec::quantized && (h.flags & kLossy) == 0) {
        return "leaf table: a lossy leaf in a record that is not said to be lossy";
      }
    }
    stored += leaf.stored_bytes;
    raw += leaf.raw_bytes;
  }
  return stored == h.stored_bytes && raw == h.raw_bytes ? nullptr : "leaf table: sums differ from the header";
}

// The root hash is computed with its own field and the checksum as zero.
bool root_matches(ConstBytes head) noexcept {
  constexpr size_t kSmall = 1024;  // a copy on the stack and one call beat the streaming state up to about here
  std::byte copy[kSmall];
  const size_t copied = head.size() <= kSmall ? head.size() : kHeaderBytes;
  std::memcpy(copy, head.data(), copied);
  std::memset(copy + kRecordRootHashAt, 0, kHeaderBytes - kRecordRootHashAt);
  const XXH128_hash_t said{load_le<uint64_t>(head.data() + kRecordRootHashAt),
                           load_le<uint64_t>(head.data() + kRecordRootHashAt + 8)};
  if (copied == head.size()) return XXH128_isEqual(said, XXH3_128bits(copy, copied)) != 0;
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, copy, copied);
  XXH3_128bits_update(&state, head.data() + copied, head.size() - copied);
  return XXH128_isEqual(said, XXH3_128bits_digest(&state)) != 0;
}

// Refuses malformed attributes when they are written and when they are read.
const char* attribute_fault(ConstBytes attributes) noexcept {
  while (!attributes.empty()) {
    if (attributes.size() < 4) return "attributes: cut short";
    const size_t bytes = load_le<uint16_t>(attributes.data() + 2);
    if (bytes > attributes.size() - 4) return "attributes: a value reaches past the end";
    attributes = attributes.subspan(4 + bytes);
  }
  return nullptr;
}

}  // namespace

std::array<std::byte, kHeaderFieldBytes> header_fields(const Header& header) noexcept {
  static_assert(kHeaderFieldBytes == kRecordRootHashAt);
  std::byte whole[kHeaderBytes];
  write_header(header, whole);
  std::array<std::byte, kHeaderFieldBytes> fields;
  std::copy_n(whole, fields.size(), fields.begin());
  return fields;
}

void put_leaf(MutableBytes out, uint32_t index, const Leaf& leaf) noexcept {
  write_leaf(out.data() + kHeaderBytes + kLeafEntryBytes * index, leaf);
}

Result<size_t> finish_head(const Header& header, MutableBytes out) {
  const auto refuse = [](const char* what) { return Status{Code::invalid_argument, what}; };
  if (const char* fault = header_fault(header)) return refuse(fault);
  const size_t total = codec::head_bytes(header);
  if (out.size() < total) return refuse("record head: target too small");
  if (const char* fault = table_fault(header, out.data() + kHeaderBytes)) return refuse(fault);
  const ConstBytes attributes = ConstBytes(out).subspan(total - header.attribute_bytes, header.attribute_bytes);
  if (const char* fault = attribute_fault(attributes)) return refuse(fault);
  write_header(header, out.data());
  const XXH128_hash_t root = XXH3_128bits(out.data(), total);  // both its own field and the checksum are still zero
  store_le(out.data() + kRecordRootHashAt, root.low64);
  store_le(out.data() + kRecordRootHashAt + 8, root.high64);
  store_le(out.data() + kRecordChecksumAt, checksum_of(out.data()));
  return total;
}

Result<size_t> encode_head(const Header& header, std::span<const Leaf> leaves, ConstBytes attributes,
                           MutableBytes out) {
  const auto refuse = [](const char* what) { return Status{Code::invalid_argument, what}; };
  if (header.leaf_count != leaves.size()) return refuse("record header: leaf count differs from the leaves given");
  if (header.attribute_bytes != attributes.size()) return refuse("record header: attribute length differs");
  if (const char* fault = header_fault(header)) return refuse(fault);
  const size_t total = codec::head_bytes(header.leaf_count, attributes.size());
  if (out.size() < total) return refuse("record head: target too small");
  for (uint32_t i = 0; i < header.leaf_count; ++i) put_leaf(out, i, leaves[i]);
  if (!attributes.empty()) std::memcpy(out.data() + total - attributes.size(), attributes.data(), attributes.size());
  return finish_head(header, out);
}

uint64_t header_checksum(ConstBytes first_160_bytes) noexcept {
  return load_le<uint64_t>(first_160_bytes.data() + kRecordChecksumAt);
}

Result<Header> peek_header(ConstBytes bytes) {
  if (bytes.size() < kHeaderBytes) return damaged("record header: cut short");
  const std::byte* in = bytes.data();
  if (load_le<uint32_t>(in + kRecordMagicAt) != kRecordMagic) return damaged("record header: no record here");
  // Magic and version are at the same place in all versions; other fields need not be.
  const auto version = load_le<uint8_t>(in + kRecordVersionAt);
  if (version > kRecordVersion) return Status{Code::newer_version, "record header: written by a newer version"};
  if (version != kRecordVersion) return damaged("record header: unknown version");
  if (load_le<uint64_t>(in + kRecordChecksumAt) != checksum_of(in)) return damaged("record header: checksum differs");
  if (load_le<uint16_t>(in + kRecordHeaderBytesAt) != kHeaderBytes)
    return damaged("record header: wrong header length");
  if (load_le<uint8_t>(in + kRecordReserved5At) != 0 || load_le<uint16_t>(in + kRecordReserved22At) != 0 ||
      load_le<uint64_t>(in + kRecordReserved128At) != 0) {
    return damaged("record header: reserved field in use");
  }
  const Header header = read_header(in);
  if (const char* fault = header_fault(header)) return damaged(fault);
  return header;
}

Result<HeadView> HeadView::parse(ConstBytes bytes) {
  const Result<Header> header = peek_header(bytes);
  if (!header.ok()) return header.status();
  HeadView view;
  view.header_ = header.value();
  view.head_bytes_ = codec::head_bytes(view.header_);
  if (bytes.size() < view.head_bytes_) return damaged("record head: cut short");
  view.table_ = bytes.subspan(kHeaderBytes, kLeafEntryBytes * view.header_.leaf_count);
  view.attributes_ = bytes.subspan(kHeaderBytes + view.table_.size(), view.header_.attribute_bytes);
  if (const char* fault = table_fault(view.header_, view.table_.data())) return damaged(fault);
  if (const char* fault = attribute_fault(view.attributes_)) return damaged(fault);
  if (!root_matches(bytes.first(view.head_bytes_))) return damaged("record head: root hash differs");
  return view;
}

Leaf HeadView::leaf(uint32_t index) const noexcept { return read_leaf(table_.data() + kLeafEntryBytes * index); }

Status append_attribute(std::vector<std::byte>& attributes, Attribute tag, ConstBytes value) {
  if (value.size() + 4 > kMaxAttributeBytes || attributes.size() > kMaxAttributeBytes - 4 - value.size()) {
    return {Code::invalid_argument, "attributes above 4 KiB"};
  }
  const size_t at = attributes.size();
  attributes.resize(at + 4 + value.size());
  store_le(attributes.data() + at, static_cast<uint16_t>(tag));
  store_le(attributes.data() + at + 2, static_cast<uint16_t>(value.size()));
  std::copy(value.begin(), value.end(), attributes.begin() + static_cast<ptrdiff_t>(at + 4));
  return {};
}

Result<std::vector<AttributeView>> parse_attributes(ConstBytes attributes) {
  if (attributes.size() > kMaxAttributeBytes) return damaged("attributes above 4 KiB");
  if (const char* fault = attribute_fault(attributes)) return damaged(fault);
  std::vector<AttributeView> views;
  while (!attributes.empty()) {
    const auto tag = static_cast<Attribute>(load_le<uint16_t>(attributes.data()));
    const size_t bytes = load_le<uint16_t>(attributes.data() + 2);
    views.push_back({tag, attributes.subspan(4, bytes)});
    attributes = attributes.subspan(4 + bytes);
  }
  return views;
}

Position parse_position(ConstBytes value) {
  Position position;
  if (value.size() != kPositionBytes) return position;
  position.first_token = load_le<uint64_t>(value.data());
  position.rotation = load_le<uint64_t>(value.data() + 8);
  position.left_context = load_le<uint64_t>(value.data() + 16);
  return position;
}

std::optional<Position> find_position(ConstBytes attributes) noexcept {
  if (attribute_fault(attributes) != nullptr) return std::nullopt;
  while (!attributes.empty()) {
    const size_t bytes = load_le<uint16_t>(attributes.data() + 2);
    if (load_le<uint16_t>(attributes.data()) == static_cast<uint16_t>(Attribute::position)) {
      return parse_position(attributes.subspan(4, bytes));
    }
    attributes = attributes.subspan(4 + bytes);
  }
  return std::nullopt;
}

std::vector<std::byte> encode_position(const Position& position) {
  std::vector<std::byte> value(kPositionBytes);
  store_le(value.data(), position.first_token);
  store_le(value.data() + 8, position.rotation);
  store_le(value.data() + 16, position.left_context);
  return value;
}

std::vector<Key> parse_unit_keys(ConstBytes value) {
  std::vector<Key> keys(value.size() % sizeof(Key) == 0 ? value.size() / sizeof(Key) : 0);
  if (!keys.empty()) std::memcpy(keys.data(), value.data(), value.size());
  return keys;
}

Leaf opaque_leaf(uint64_t raw_bytes, uint32_t index) noexcept {
  const uint64_t at = kMaxLeafBytes * index;
  Leaf leaf;
  leaf.offset = static_cast<uint32_t>(at);
  leaf.raw_bytes = static_cast<uint32_t>(std::min(kMaxLeafBytes, raw_bytes - at));
  leaf.stored_bytes = leaf.raw_bytes;
  return leaf;
}

bool is_coded(const HeadView& head) noexcept {
  if ((head.header().flags & kSealed) != 0) return true;
  for (uint32_t i = 0; i < head.header().leaf_count; ++i) {
    if (head.leaf(i).codec != LeafCodec::raw) return true;
  }
  return false;
}

}  // namespace kvbm::codec

// The record: one block's bytes of one component and shard, immutable, identical on every tier, on the wire and in
// object stores. Format and reasons: lib/codec/README.md, docs/formats.md.
//
//   head    = header (160 bytes) | leaf table (24 bytes a leaf) | attributes (TLV, <= 4 KiB)
//   payload = the leaves, one after the other; on disk at a 4 KiB boundary
//
// A leaf is one (layer, K or V, head group) cut at 64 KiB; opaque records are only cut at 64 KiB. Any set of leaves is
// verified against the table without the others; the table against the root hash.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace kvbm::codec {

inline constexpr uint32_t kRecordMagic = 0x5242564BU;  // "KVBR"
inline constexpr uint8_t kRecordVersion = 1;
inline constexpr size_t kHeaderBytes = 160;
inline constexpr size_t kLeafEntryBytes = 24;
inline constexpr uint64_t kMaxLeafBytes = 64 * 1024;
inline constexpr size_t kMaxAttributeBytes = 4096;
inline constexpr uint32_t kMaxLeaves = 1U << 16;
inline constexpr size_t kCodedLeafUnit = 64;  // coded leaves are multiples of it, and shorter than their plain leaf
inline constexpr size_t kSealTagBytes = 16;   // behind the bytes of each leaf of a sealed record, raw or coded
inline constexpr uint64_t kMaxRecordBytes = kMaxLeaves * kMaxLeafBytes;  // 4 GiB of payload

// A raw leaf of a sealed record carries its hash inside, like a coded leaf in its frame: the table has only the hash of
// the stored bytes.
inline constexpr size_t kSealedHashBytes = 8;

// planar, zstd: lossless; quantized, delta: lossy. Described in codec/README.md, leaf_codec.h.
enum class LeafCodec : uint16_t { raw = 0, planar = 1, zstd = 2, quantized = 3, delta = 4 };
enum RecordFlag : uint16_t { kOpaque = 1, kLossy = 2, kSealed = 4, kContentKey = 8 };

struct Leaf {
  uint32_t offset = 0;        // in the payload
  uint32_t stored_bytes = 0;  // with the tag if the record is sealed
  uint32_t raw_bytes = 0;
  LeafCodec codec = LeafCodec::raw;
  uint16_t reserved = 0;
  uint64_t hash = 0;  // leaf_hash of the stored bytes
  bool operator==(const Leaf&) const = default;
};

struct Header {
  uint16_t flags = 0;
  NamespaceId ns;
  Key key;
  Key parent;  // previous key of the chain; zero for none
  Component component = 0;
  Shard shard;
  uint64_t geometry = 0;
  std::array<uint8_t, 16> record_id{};  // random, unique for each record ever made
  uint32_t tokens = 0;                  // tokens that the block covers; 0 = unknown
  uint32_t leaf_count = 0;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;  // payload
  uint32_t attribute_bytes = 0;
  uint32_t key_id = 0;  // sealing
  bool operator==(const Header&) const = default;
};

// Sizes of a head with that many leaves and attribute bytes.
constexpr size_t head_bytes(uint32_t leaves, size_t attribute_bytes) noexcept {
  return kHeaderBytes + kLeafEntryBytes * leaves + attribute_bytes;
}
constexpr size_t head_bytes(const Header& header) noexcept {
  return head_bytes(header.leaf_count, header.attribute_bytes);
}

// Attributes. Unknown tags are preserved and ignored. sealed: all others, enciphered; the only one in the head of a
// sealed record.
enum class Attribute : uint16_t {
  engine_hash = 1,
  position = 2,
  extra_keys = 3,
  tokens = 4,
  unit_keys = 5,
  sealed = 6
};
struct AttributeView {
  Attribute tag;
  ConstBytes value;
};
// Under a content key, the position at which a block was computed decides whether it may be used.
struct Position {
  uint64_t first_token = 0;
  uint64_t rotation = 0;      // fingerprint of the rotary parameters
  uint64_t left_context = 0;  // fingerprint of the preceding tokens
  bool operator==(const Position&) const = default;
};

// Writes the head into `out` (at least head_bytes) and returns the bytes written, root hash and checksum included.
// invalid_argument if counts or sizes do not agree (leaf order, overlap, sums).
Result<size_t> encode_head(const Header& header, std::span<const Leaf> leaves, ConstBytes attributes, MutableBytes out);

// Finishes a head in place: its leaf table (put_leaf()) and attributes are in `out` already, at kHeaderBytes. Nothing
// is copied or allocated.
void put_leaf(MutableBytes out, uint32_t index, const Leaf& leaf) noexcept;
Result<size_t> finish_head(const Header& header, MutableBytes out);

// The header's bytes up to the root hash, which are all of its content: covered by a seal.
inline constexpr size_t kHeaderFieldBytes = 136;
[[nodiscard]] std::array<std::byte, kHeaderFieldBytes> header_fields(const Header& header) noexcept;

// A checked view of a head in memory that outlives it; nothing is copied.
class HeadView {
 public:
  // Checks magic, version, lengths, header checksum, leaf table (in order, inside the payload, sums)
  // and root hash. damaged | newer_version | mismatch with a static text; never reads past `bytes`.
  static Result<HeadView> parse(ConstBytes bytes);
  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] Leaf leaf(uint32_t index) const noexcept;  // index < leaf_count
  [[nodiscard]] ConstBytes table() const noexcept { return table_; }
  [[nodiscard]] ConstBytes attributes() const noexcept { return attributes_; }
  [[nodiscard]] size_t head_bytes() const noexcept { return head_bytes_; }

 private:
  Header header_;
  ConstBytes table_;
  ConstBytes attributes_;
  size_t head_bytes_ = 0;
};

// The fixed 160 bytes only (recovery scans headers before it reads tables). Root hash not checked.
Result<Header> peek_header(ConstBytes first_160_bytes);
// The checksum in a header, unique to its record (it covers the record id). Not checked.
[[nodiscard]] uint64_t header_checksum(ConstBytes first_160_bytes) noexcept;

Status append_attribute(std::vector<std::byte>& attributes, Attribute tag, ConstBytes value);
// Lists the attributes; damaged if the TLV is malformed.
Result<std::vector<AttributeView>> parse_attributes(ConstBytes attributes);
Position parse_position(ConstBytes value);
// Finds the position among checked attributes (HeadView's), without allocating.
std::optional<Position> find_position(ConstBytes attributes) noexcept;
std::vector<std::byte> encode_position(const Position& position);
// Returns the engine's keys of the blocks within a stored block, in order; empty if malformed.
std::vector<Key> parse_unit_keys(ConstBytes value);

// Divides a payload of `raw_bytes` if its producer gives no geometry: number of leaves (0: it is too large for a
// record), and leaf `index` below that.
[[nodiscard]] constexpr uint32_t opaque_leaf_count(uint64_t raw_bytes) noexcept {
  return raw_bytes > kMaxRecordBytes ? 0 : static_cast<uint32_t>((raw_bytes + kMaxLeafBytes - 1) / kMaxLeafBytes);
}
[[nodiscard]] Leaf opaque_leaf(uint64_t raw_bytes, uint32_t index) noexcept;
// True for a coded or sealed record: it must be decoded before it is used.
[[nodiscard]] bool is_coded(const HeadView& head) noexcept;

inline Status damaged(const char* what) { return {Code::damaged, what}; }

}  // namespace kvbm::codec

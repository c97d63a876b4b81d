// The bytes of a segment file: header page, records with their envelopes, footer. Every byte is
// specified in README.md beside this file. Pure functions over spans; nothing here does I/O.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/record/record.h"

namespace kvbm::tier::disk {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint8_t kFormatVersion = 2;             // version written; 1 is read as well
inline constexpr uint32_t kSegmentMagic = 0x5342564BU;   // "KVBS"
inline constexpr uint32_t kEnvelopeMagic = 0x4542564BU;  // "KVBE"
inline constexpr uint32_t kFooterMagic = 0x4642564BU;    // "KVBF"
inline constexpr size_t kEnvelopeBytes = 64;
inline constexpr size_t kFooterTailBytes = 64;
inline constexpr size_t kFamilyBytes = 40;
inline constexpr size_t kRowBytes = 40;
inline constexpr size_t kParentBytes = 16;
// Row.parent: none, a row of the same footer, or (with the top bit) an entry of the parent table.
inline constexpr uint32_t kNoParent = UINT32_MAX;
inline constexpr uint32_t kParentElsewhere = 0x80000000U;

// Size of a head with pages of its own: head, then the envelope in the last 64 bytes.
constexpr uint64_t head_area(uint64_t head_bytes) noexcept { return round_up(head_bytes + kEnvelopeBytes, kPage); }
// Largest size of a record in a segment.
constexpr uint64_t record_bytes(uint64_t head_bytes, uint64_t payload_bytes) noexcept {
  return head_area(head_bytes) + round_up(payload_bytes, kPage);
}

// Small heads of records with small payloads share a page: one unit each, with the envelope in the unit's last 64
// bytes. Their payloads follow that page. Larger payloads would gain less than 3 %, and a record in one piece is read
// at once.
inline constexpr uint64_t kHeadUnit = 1024;
inline constexpr uint32_t kHeadUnits = kPage / kHeadUnit;
inline constexpr uint64_t kSharedPayload = uint64_t{128} << 10;
constexpr bool may_share(uint64_t head_bytes, uint64_t payload_bytes) noexcept {
  return head_bytes + kEnvelopeBytes <= kHeadUnit && payload_bytes != 0 && payload_bytes <= kSharedPayload;
}

// Place of a record in its segment. `page` is the page of its head, which its payload follows. If the head shares a
// page, `page` is that of its payload, and the head begins `back` units before it.
struct RecordPlace {
  static constexpr uint32_t kHeadBits = 22;        // of head_bytes
  static constexpr uint32_t kSharedHeadBits = 10;  // of a shared head's bytes; `back` has the rest
  static constexpr uint32_t kShares = 1U << 31;

  uint32_t page = 0;
  uint32_t back = 0;  // 0: the head has pages of its own
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;

  [[nodiscard]] constexpr bool shares() const { return back != 0; }
  [[nodiscard]] constexpr uint64_t head_at() const { return page * kPage - back * kHeadUnit; }
  // First page of the head, and the bytes to read from there.
  [[nodiscard]] constexpr uint64_t head_page_at() const { return head_at() & ~(kPage - 1); }
  [[nodiscard]] constexpr uint64_t head_read_bytes() const { return shares() ? kPage : round_up(head_bytes, kPage); }
  [[nodiscard]] constexpr uint64_t area_bytes() const { return shares() ? kHeadUnit : head_area(head_bytes); }
  [[nodiscard]] constexpr uint64_t payload_at() const { return page * kPage + (shares() ? 0 : area_bytes()); }
  [[nodiscard]] constexpr uint64_t end() const { return payload_at() + round_up(payload_bytes, kPage); }
  // Bytes used in the segment; a shared page counts by units.
  [[nodiscard]] constexpr uint64_t bytes() const { return area_bytes() + round_up(payload_bytes, kPage); }
  // head_bytes and `back`, in the form written to the medium.
  [[nodiscard]] constexpr uint32_t packed() const {
    return shares() ? kShares | back << kSharedHeadBits | head_bytes : head_bytes;
  }
  constexpr void unpack(uint32_t packed) {
    const bool shared = (packed & kShares) != 0;
    back = shared ? (packed & ~kShares) >> kSharedHeadBits : 0;
    head_bytes = shared ? packed & ((1U << kSharedHeadBits) - 1) : packed;
  }
  // Returns true if a record at this place fits into a segment of `segment_bytes` bytes. Returns false for a place that
  // unpack() made from a corrupted value.
  [[nodiscard]] bool fits(uint64_t segment_bytes) const;
};
constexpr uint32_t pages(uint64_t bytes) noexcept { return static_cast<uint32_t>(bytes / kPage); }

// Identifies the life of a segment in a directory that some bytes belong to.
struct SegmentLife {
  uint64_t directory_id = 0;
  uint32_t segment = 0;
  uint32_t generation = 0;  // raised each time the segment is reused
  uint32_t epoch = 0;       // of the owner that began this life
  uint64_t sequence = 0;    // lives are used in this order, over the whole directory
  uint64_t segment_bytes = 0;
  bool operator==(const SegmentLife&) const = default;
};

void encode_segment_header(const SegmentLife& life, MutableBytes page);  // page: kPage bytes
Result<SegmentLife> decode_segment_header(ConstBytes page);

struct Envelope {
  uint64_t directory_id = 0;
  uint64_t sequence = 0;
  uint32_t segment = 0;
  uint32_t generation = 0;
  uint32_t epoch = 0;
  uint32_t page = 0;  // as in RecordPlace; reveals misdirected writes
  uint32_t back = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  uint16_t uses = 0;
  uint8_t priority = 0;
  [[nodiscard]] RecordPlace place() const { return {page, back, head_bytes, payload_bytes}; }
  bool operator==(const Envelope&) const = default;
};

// Lays head, zero padding and envelope into `area` (RecordPlace::area_bytes()). The envelope's checksum covers the head
// too, so neither is accepted without the other.
void encode_head_area(const Envelope& envelope, ConstBytes head, MutableBytes area);
// `area` is laid out as above and complete. damaged if its parts do not fit together.
Result<Envelope> decode_head_area(ConstBytes area, uint32_t head_bytes);

// One record of a closed segment.
struct Row {
  Key key;
  uint32_t page = 0;  // as in RecordPlace
  uint32_t back = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  Family family;
  Key parent;
  bool has_parent = false;
  uint8_t uses = 0;
  uint8_t priority = 0;
  [[nodiscard]] RecordPlace place() const { return {page, back, head_bytes, payload_bytes}; }
};

// Computes the size of a footer for the rows added so far, so that room for it is reserved.
class FooterSize {
 public:
  // Returns true if the row is the first of its family.
  bool add(const Family& family);
  // Notes that there are rows of a family, without counting them.
  bool list(const Family& family) { return families_.try_emplace(family, 0).second; }
  [[nodiscard]] bool lists(const Family& family) const { return families_.contains(family); }
  [[nodiscard]] const std::map<Family, uint32_t>& families() const noexcept { return families_; }
  // Bytes with one more row of `family`, rounded up to pages.
  [[nodiscard]] uint64_t with(const Family& family) const;
  [[nodiscard]] uint64_t bytes() const;

 private:
  std::map<Family, uint32_t> families_;
  uint64_t rows_ = 0;
};

// The footer's bytes, to be written so that they end at the end of the segment.
std::vector<std::byte> encode_footer(const SegmentLife& life, const std::vector<Row>& rows);

struct FooterTail {
  uint32_t start_page = 0;
  uint32_t families = 0, rows = 0, parents = 0;
  uint64_t checksum = 0;
  [[nodiscard]] uint64_t table_bytes() const noexcept {
    return kFamilyBytes * uint64_t{families} + kRowBytes * uint64_t{rows} + kParentBytes * uint64_t{parents};
  }
};
// `tail`: the last kFooterTailBytes of the segment. miss if it is not a footer of this life.
Result<FooterTail> decode_footer_tail(const SegmentLife& life, ConstBytes tail);
// `footer`: from start_page to the end of the segment.
Result<std::vector<Row>> decode_footer(const SegmentLife& life, ConstBytes footer);

uint64_t checksum(ConstBytes bytes, uint64_t seed) noexcept;

}  // namespace kvbm::tier::disk

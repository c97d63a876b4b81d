#include "tier/disk/segment_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace kvbm::tier::disk {
namespace {

constexpr size_t kHeaderFields = 48;  // followed by the checksum

void put_family(std::byte* p, const Family& f) {
  std::memcpy(p, f.ns.bytes.data(), 16);
  p += 16;
  put_le<uint64_t>(p, f.geometry);
  put_le<uint16_t>(p, f.component);
  put_le<uint16_t>(p, f.shard.first_layer);
  put_le<uint16_t>(p, f.shard.layers);
  put_le<uint16_t>(p, f.shard.first_head);
  put_le<uint16_t>(p, f.shard.heads);
  put_le<uint16_t>(p, f.shard.replicated);
  put_le<uint32_t>(p, 0);
}

Family take_family(const std::byte* p) {
  Family f;
  std::memcpy(f.ns.bytes.data(), p, 16);
  p += 16;
  f.geometry = take_le<uint64_t>(p);
  f.component = take_le<uint16_t>(p);
  f.shard.first_layer = take_le<uint16_t>(p);
  f.shard.layers = take_le<uint16_t>(p);
  f.shard.first_head = take_le<uint16_t>(p);
  f.shard.heads = take_le<uint16_t>(p);
  f.shard.replicated = take_le<uint16_t>(p);
  return f;
}

uint64_t footer_checksum(ConstBytes table, ConstBytes tail_fields) {
  return checksum(tail_fields, checksum(table, kFooterMagic));
}

// Keys sorted, so that a parent in the same footer is found without a hash table.
std::vector<std::pair<Key, uint32_t>> sorted_keys(const std::vector<Row>& rows) {
  std::vector<std::pair<Key, uint32_t>> keys;
  keys.reserve(rows.size());
  for (uint32_t i = 0; i < rows.size(); ++i) keys.emplace_back(rows[i].key, i);
  std::sort(keys.begin(), keys.end());
  return keys;
}

uint32_t parent_link(const std::vector<Row>& rows, const std::vector<std::pair<Key, uint32_t>>& keys, const Row& row,
                     std::vector<Key>& elsewhere) {
  if (!row.has_parent) return kNoParent;
  for (auto it = std::lower_bound(keys.begin(), keys.end(), std::pair<Key, uint32_t>{row.parent, 0});
       it != keys.end() && it->first == row.parent; ++it) {
    if (rows[it->second].family == row.family) return it->second;
  }
  elsewhere.push_back(row.parent);
  return kParentElsewhere | static_cast<uint32_t>(elsewhere.size() - 1);
}

}  // namespace

uint64_t checksum(ConstBytes bytes, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

bool RecordPlace::fits(uint64_t segment_bytes) const {
  if (page == 0 || head_bytes < codec::kHeaderBytes || head_bytes >= 1U << kHeadBits || payload_bytes > segment_bytes)
    return false;
  if (shares() && (!may_share(head_bytes, payload_bytes) || uint64_t{back} * kHeadUnit > (page - 1) * kPage))
    return false;
  return end() <= segment_bytes;
}

void encode_segment_header(const SegmentLife& life, MutableBytes page) {
  std::memset(page.data(), 0, kPage);
  std::byte* p = page.data();
  put_le<uint32_t>(p, kSegmentMagic);
  put_le<uint32_t>(p, kFormatVersion);
  put_le<uint64_t>(p, life.directory_id);
  put_le<uint32_t>(p, life.segment);
  put_le<uint32_t>(p, life.generation);
  put_le<uint32_t>(p, life.epoch);
  put_le<uint32_t>(p, 0);
  put_le<uint64_t>(p, life.sequence);
  put_le<uint64_t>(p, life.segment_bytes);
  put_le<uint64_t>(p, checksum(page.first(kHeaderFields), kSegmentMagic));
}

Result<SegmentLife> decode_segment_header(ConstBytes page) {
  if (page.size() < kPage) return Status(Code::damaged, "segment header is cut short");
  const std::byte* p = page.data();
  if (take_le<uint32_t>(p) != kSegmentMagic) return Status(Code::damaged, "not a segment header");
  const uint32_t version = take_le<uint32_t>(p);
  if (load_le<uint64_t>(page.data() + kHeaderFields) != checksum(page.first(kHeaderFields), kSegmentMagic))
    return Status(Code::damaged, "segment header fails its checksum");
  if (version > kFormatVersion) return Status(Code::newer_version, "segment was written by a newer kvbm");
  SegmentLife life;
  life.directory_id = take_le<uint64_t>(p);
  life.segment = take_le<uint32_t>(p);
  life.generation = take_le<uint32_t>(p);
  life.epoch = take_le<uint32_t>(p);
  p += 4;
  life.sequence = take_le<uint64_t>(p);
  life.segment_bytes = take_le<uint64_t>(p);
  return life;
}

void encode_head_area(const Envelope& e, ConstBytes head, MutableBytes area) {
  std::memcpy(area.data(), head.data(), head.size());
  std::memset(area.data() + head.size(), 0, area.size() - head.size());
  std::byte* const start = area.data() + area.size() - kEnvelopeBytes;
  std::byte* p = start;
  put_le<uint32_t>(p, kEnvelopeMagic);
  put_le<uint8_t>(p, kFormatVersion);
  put_le<uint8_t>(p, e.priority);
  put_le<uint16_t>(p, e.uses);
  put_le<uint64_t>(p, e.directory_id);
  put_le<uint64_t>(p, e.sequence);
  put_le<uint32_t>(p, e.segment);
  put_le<uint32_t>(p, e.generation);
  put_le<uint32_t>(p, e.epoch);
  put_le<uint32_t>(p, e.page);
  put_le<uint32_t>(p, e.place().packed());
  put_le<uint32_t>(p, 0);
  put_le<uint64_t>(p, e.payload_bytes);
  put_le<uint64_t>(p, checksum(area.first(area.size() - 8), kEnvelopeMagic));
}

Result<Envelope> decode_head_area(ConstBytes area, uint32_t head_bytes) {
  const bool whole = area.size() == head_area(head_bytes) || (area.size() == kHeadUnit && may_share(head_bytes, 1));
  if (head_bytes < codec::kHeaderBytes || !whole) return Status(Code::damaged, "record area has the wrong size");
  const std::byte* p = area.data() + area.size() - kEnvelopeBytes;
  if (take_le<uint32_t>(p) != kEnvelopeMagic) return Status(Code::damaged, "no envelope");
  if (load_le<uint64_t>(area.data() + area.size() - 8) != checksum(area.first(area.size() - 8), kEnvelopeMagic))
    return Status(Code::damaged, "envelope fails its checksum");
  if (take_le<uint8_t>(p) > kFormatVersion) return Status(Code::newer_version, "record of a later format");
  Envelope e;
  e.priority = take_le<uint8_t>(p);
  e.uses = take_le<uint16_t>(p);
  e.directory_id = take_le<uint64_t>(p);
  e.sequence = take_le<uint64_t>(p);
  e.segment = take_le<uint32_t>(p);
  e.generation = take_le<uint32_t>(p);
  e.epoch = take_le<uint32_t>(p);
  e.page = take_le<uint32_t>(p);
  RecordPlace place;
  place.unpack(take_le<uint32_t>(p));
  e.head_bytes = place.head_bytes;
  e.back = place.back;
  p += 4;
  e.payload_bytes = take_le<uint64_t>(p);
  if (e.head_bytes != head_bytes || area.size() != e.place().area_bytes())
    return Status(Code::damaged, "envelope and head disagree");
  return e;
}

bool FooterSize::add(const Family& family) {
  ++rows_;
  return ++families_[family] == 1;
}

// Every row is counted with a parent elsewhere: the size is a bound, known before the rows are.
uint64_t FooterSize::bytes() const {
  return round_up(kFamilyBytes * families_.size() + (kRowBytes + kParentBytes) * rows_ + kFooterTailBytes, kPage);
}

uint64_t FooterSize::with(const Family& family) const {
  const uint64_t families = families_.size() + (families_.contains(family) ? 0 : 1);
  return round_up(kFamilyBytes * families + (kRowBytes + kParentBytes) * (rows_ + 1) + kFooterTailBytes, kPage);
}

std::vector<std::byte> encode_footer(const SegmentLife& life, const std::vector<Row>& rows) {
  std::map<Family, uint16_t> ids;
  std::vector<Family> families;
  for (const Row& row : rows) {
    if (ids.emplace(row.family, static_cast<uint16_t>(families.size())).second) families.push_back(row.family);
  }
  const auto keys = sorted_keys(rows);
  std::vector<Key> elsewhere;
  std::vector<std::byte> table(kFamilyBytes * families.size() + kRowBytes * rows.size());
  std::byte* p = table.data();
  for (const Family& family : families) {
    put_family(p, family);
    p += kFamilyBytes;
  }
  for (const Row& row : rows) {
    std::memcpy(p, row.key.bytes.data(), 16);
    p += 16;
    put_le<uint32_t>(p, row.page);
    put_le<uint32_t>(p, row.place().packed());
    put_le<uint64_t>(p, row.payload_bytes);
    put_le<uint32_t>(p, parent_link(rows, keys, row, elsewhere));
    put_le<uint16_t>(p, ids[row.family]);
    put_le<uint8_t>(p, row.uses);
    put_le<uint8_t>(p, row.priority);
  }
  for (const Key& key : elsewhere) {
    const auto* bytes = reinterpret_cast<const std::byte*>(key.bytes.data());
    table.insert(table.end(), bytes, bytes + kParentBytes);
  }
  const size_t table_bytes = table.size();
  table.resize(round_up(table_bytes + kFooterTailBytes, kPage));
  std::byte* const tail = table.data() + table.size() - kFooterTailBytes;
  p = tail;
  put_le<uint32_t>(p, kFooterMagic);
  put_le<uint32_t>(p, kFormatVersion);
  put_le<uint64_t>(p, life.directory_id);
  put_le<uint64_t>(p, life.sequence);
  put_le<uint32_t>(p, life.segment);
  put_le<uint32_t>(p, life.generation);
  put_le<uint32_t>(p, pages(life.segment_bytes - table.size()));
  put_le<uint32_t>(p, static_cast<uint32_t>(families.size()));
  put_le<uint32_t>(p, static_cast<uint32_t>(rows.size()));
  put_le<uint32_t>(p, static_cast<uint32_t>(elsewhere.size()));
  put_le<uint64_t>(p, 0);
  put_le<uint64_t>(p, footer_checksum(ConstBytes(table).first(table_bytes), ConstBytes(tail, kFooterTailBytes - 8)));
  return table;
}

Result<FooterTail> decode_footer_tail(const SegmentLife& life, ConstBytes bytes) {
  if (bytes.size() != kFooterTailBytes) return Status(Code::miss, "footer is cut short");
  const std::byte* p = bytes.data();
  if (take_le<uint32_t>(p) != kFooterMagic) return Status(Code::miss, "segment has no footer");
  if (take_le<uint32_t>(p) > kFormatVersion) return Status(Code::miss, "footer of a later format");
  const uint64_t directory_id = take_le<uint64_t>(p);
  const uint64_t sequence = take_le<uint64_t>(p);
  const uint32_t segment = take_le<uint32_t>(p);
  const uint32_t generation = take_le<uint32_t>(p);
  if (directory_id != life.directory_id || sequence != life.sequence || segment != life.segment ||
      generation != life.generation)
    return Status(Code::miss, "footer of an earlier life");
  FooterTail tail;
  tail.start_page = take_le<uint32_t>(p);
  tail.families = take_le<uint32_t>(p);
  tail.rows = take_le<uint32_t>(p);
  tail.parents = take_le<uint32_t>(p);
  p += 8;
  tail.checksum = take_le<uint64_t>(p);
  const uint64_t segment_pages = life.segment_bytes / kPage;
  if (tail.start_page == 0 || tail.start_page >= segment_pages ||
      round_up(tail.table_bytes() + kFooterTailBytes, kPage) != life.segment_bytes - tail.start_page * kPage)
    return Status(Code::miss, "footer's sizes do not fit the segment");
  return tail;
}

Result<std::vector<Row>> decode_footer(const SegmentLife& life, ConstBytes footer) {
  if (footer.size() < kFooterTailBytes) return Status(Code::miss, "footer is cut short");
  const ConstBytes tail_bytes = footer.last(kFooterTailBytes);
  auto tail = decode_footer_tail(life, tail_bytes);
  if (!tail.ok()) return tail.status();
  const FooterTail& t = tail.value();
  if (footer.size() != life.segment_bytes - t.start_page * kPage)
    return Status(Code::miss, "footer has the wrong length");
  if (footer_checksum(footer.first(t.table_bytes()), tail_bytes.first(kFooterTailBytes - 8)) != t.checksum)
    return Status(Code::miss, "footer fails its checksum");
  std::vector<Family> families(t.families);
  const std::byte* p = footer.data();
  for (Family& family : families) {
    family = take_family(p);
    p += kFamilyBytes;
  }
  const std::byte* const keys = p;
  const std::byte* const parents = p + kRowBytes * uint64_t{t.rows};
  std::vector<Row> rows(t.rows);
  for (Row& row : rows) {
    std::memcpy(row.key.bytes.data(), p, 16);
    p += 16;
    row.page = take_le<uint32_t>(p);
    RecordPlace place;
    place.unpack(take_le<uint32_t>(p));
    row.back = place.back;
    row.head_bytes = place.head_bytes;
    row.payload_bytes = take_le<uint64_t>(p);
    const uint32_t parent = take_le<uint32_t>(p);
    const uint16_t family = take_le<uint16_t>(p);
    row.uses = take_le<uint8_t>(p);
    row.priority = take_le<uint8_t>(p);
    if (family >= t.families || !row.place().fits(t.start_page * kPage))
      return Status(Code::miss, "footer row does not fit the segment");
    row.family = families[family];
    row.has_parent = parent != kNoParent;
    if (!row.has_parent) continue;
    const bool elsewhere = (parent & kParentElsewhere) != 0;
    const uint32_t at = parent & ~kParentElsewhere;
    if (at >= (elsewhere ? t.parents : t.rows)) return Status(Code::miss, "footer row names no parent");
    std::memcpy(row.parent.bytes.data(), elsewhere ? parents + kParentBytes * at : keys + kRowBytes * at, 16);
  }
  return rows;
}

}  // namespace kvbm::tier::disk

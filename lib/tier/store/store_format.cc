#include "tier/store/store_format.h"

#include <algorithm>
#include <cstring>

#include "codec/hash/leaf_hash.h"
#include "codec/record/key.h"
#include "codec/record/record.h"

namespace kvbm::tier::store {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

void put_hex(std::string& out, uint64_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) out += kDigits[(value >> (4 * i)) & 15];
}

void put_hex(std::string& out, const std::array<uint8_t, 16>& bytes) {
  for (const uint8_t byte : bytes) put_hex(out, byte, 2);
}

// Takes lower-case digits from the front of `text`.
bool take_hex(std::string_view& text, size_t digits, uint64_t& value) {
  if (text.size() < digits) return false;
  value = 0;
  for (size_t i = 0; i < digits; ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  text.remove_prefix(digits);
  return true;
}

bool take_char(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

void describe(std::byte* text, const Family& family) {
  std::memcpy(text, family.ns.bytes.data(), 16);
  store_le(text + 32, family.geometry);
  store_le(text + 40, family.component);
  store_le(text + 42, family.shard.first_layer);
  store_le(text + 44, family.shard.layers);
  store_le(text + 46, family.shard.first_head);
  store_le(text + 48, family.shard.heads);
  store_le(text + 50, family.shard.replicated);
}

void put_bytes(std::byte*& p, const std::array<uint8_t, 16>& bytes) {
  std::memcpy(p, bytes.data(), bytes.size());
  p += bytes.size();
}

void take_bytes(const std::byte*& p, std::array<uint8_t, 16>& bytes) {
  std::memcpy(bytes.data(), p, bytes.size());
  p += bytes.size();
}

constexpr const char* kDamaged = "an index object of a store is damaged";

}  // namespace

std::string stamped_name(std::string_view prefix, const Stamp& stamp) {
  std::string out(prefix);
  put_hex(out, stamp.ms >> 16, 8);
  out += '/';
  put_hex(out, stamp.ms & 0xFFFF, 4);
  out += '-';
  put_hex(out, stamp.writer, 16);
  out += '-';
  put_hex(out, stamp.seq, 8);
  return out;
}

std::optional<Stamp> parse_stamp(std::string_view prefix, std::string_view name) {
  uint64_t high = 0, low = 0, seq = 0;
  Stamp out;
  if (!take_prefix(name, prefix) || !take_hex(name, 8, high) || !take_char(name, '/') || !take_hex(name, 4, low) ||
      !take_char(name, '-') || !take_hex(name, 16, out.writer) || !take_char(name, '-') || !take_hex(name, 8, seq) ||
      !name.empty()) {
    return std::nullopt;
  }
  out.ms = high << 16 | low;
  out.seq = static_cast<uint32_t>(seq);
  return out;
}

std::string name_before(std::string_view prefix, uint64_t ms) {
  std::string out(prefix);
  put_hex(out, ms >> 16, 8);
  out += '/';
  put_hex(out, ms & 0xFFFF, 4);
  return out;
}

std::string epoch_name(const NamespaceId& base, uint64_t epoch) {
  std::string out(kEpochPrefix);
  put_hex(out, base.bytes);
  out += '-';
  put_hex(out, epoch, 16);
  return out;
}

std::optional<NamespaceEpoch> parse_epoch_name(std::string_view name) {
  NamespaceEpoch out;
  if (!take_prefix(name, kEpochPrefix)) return std::nullopt;
  for (uint8_t& byte : out.base.bytes) {
    uint64_t value = 0;
    if (!take_hex(name, 2, value)) return std::nullopt;
    byte = static_cast<uint8_t>(value);
  }
  if (!take_char(name, '-') || !take_hex(name, 16, out.epoch) || !name.empty()) return std::nullopt;
  return out;
}

std::string writer_name(uint64_t writer, uint64_t ms) {
  std::string out(kWriterPrefix);
  put_hex(out, writer, 16);
  out += '-';
  put_hex(out, ms, 12);
  return out;
}

std::optional<Stamp> parse_writer_name(std::string_view name) {
  Stamp out;
  if (!take_prefix(name, kWriterPrefix) || !take_hex(name, 16, out.writer) || !take_char(name, '-') ||
      !take_hex(name, 12, out.ms) || !name.empty()) {
    return std::nullopt;
  }
  return out;
}

uint64_t RecordName::low() const noexcept {
  uint64_t value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

RecordName record_name(const Family& family, const Key& key) noexcept {
  std::byte text[64] = {};
  describe(text, family);
  std::memcpy(text + 16, key.bytes.data(), 16);
  const auto hash = codec::sha256(text);
  RecordName out;
  std::memcpy(out.bytes.data(), hash.data(), 16);
  return out;
}

uint64_t family_tag(const Family& family) noexcept {
  std::byte text[64] = {};
  describe(text, family);
  text[63] = std::byte{1};
  const auto hash = codec::sha256(text);
  uint64_t tag;
  std::memcpy(&tag, hash.data(), sizeof tag);
  return tag;
}

std::vector<std::byte> encode_index(const Stamp& stamp, const IndexObject& index) {
  size_t records = 0;
  for (const PackRow& pack : index.packs) records += pack.records.size();
  std::vector<std::byte> out(kIndexHeaderBytes + index.packs.size() * kPackRowBytes + records * kRecordRowBytes +
                             index.erased.size() * kNameRowBytes + index.families.size() * kFamilyRowBytes +
                             index.epochs.size() * kEpochRowBytes);
  std::byte* p = out.data() + 16;
  put_le(p, stamp.ms);
  put_le(p, stamp.writer);
  put_le(p, stamp.seq);
  put_le(p, static_cast<uint32_t>(index.packs.size()));
  put_le(p, static_cast<uint32_t>(records));
  put_le(p, static_cast<uint32_t>(index.erased.size()));
  put_le(p, static_cast<uint32_t>(index.families.size()));
  put_le(p, static_cast<uint32_t>(index.epochs.size()));
  for (const PackRow& pack : index.packs) {
    put_le(p, pack.stamp.ms);
    put_le(p, pack.stamp.writer);
    put_le(p, pack.stamp.seq);
    put_le(p, static_cast<uint32_t>(pack.records.size()));
    put_le(p, pack.bytes);
    put_le(p, uint64_t{0});
  }
  for (const PackRow& pack : index.packs) {
    for (const PackedRecord& record : pack.records) {
      put_bytes(p, record.name.bytes);
      put_le(p, record.family);
      put_le(p, record.payload_bytes);
      put_le(p, record.offset);
      put_le(p, record.head_bytes);
    }
  }
  for (const RecordName& name : index.erased) put_bytes(p, name.bytes);
  for (const ErasedFamily& row : index.families) {
    put_le(p, row.family);
    put_le(p, row.until_ms);
  }
  for (const NamespaceEpoch& row : index.epochs) {
    put_bytes(p, row.base.bytes);
    put_le(p, row.epoch);
  }
  p = out.data();
  put_le(p, kIndexMagic);
  put_le(p, kIndexVersion);
  put_le(p, uint16_t{0});
  put_le(p, codec::leaf_hash(ConstBytes(out).subspan(16)));
  return out;
}

Result<IndexObject> decode_index(ConstBytes bytes) {
  if (bytes.size() < kIndexHeaderBytes || load_le<uint32_t>(bytes.data()) != kIndexMagic)
    return Status(Code::damaged, kDamaged);
  if (load_le<uint16_t>(bytes.data() + 4) != kIndexVersion)
    return Status(Code::newer_version, "an index object of a store is of another version");
  if (load_le<uint64_t>(bytes.data() + 8) != codec::leaf_hash(bytes.subspan(16)))
    return Status(Code::damaged, kDamaged);
  const std::byte* p = bytes.data() + 36;
  const uint64_t packs = take_le<uint32_t>(p), records = take_le<uint32_t>(p), erased = take_le<uint32_t>(p),
                 families = take_le<uint32_t>(p), epochs = take_le<uint32_t>(p);
  if (bytes.size() != kIndexHeaderBytes + packs * kPackRowBytes + records * kRecordRowBytes + erased * kNameRowBytes +
                          families * kFamilyRowBytes + epochs * kEpochRowBytes) {
    return Status(Code::damaged, kDamaged);
  }
  IndexObject out;
  out.packs.resize(packs);
  uint64_t counted = 0;
  for (PackRow& pack : out.packs) {
    pack.stamp.ms = take_le<uint64_t>(p);
    pack.stamp.writer = take_le<uint64_t>(p);
    pack.stamp.seq = take_le<uint32_t>(p);
    const uint32_t n = take_le<uint32_t>(p);
    pack.bytes = take_le<uint64_t>(p);
    counted += n;
    if (take_le<uint64_t>(p) != 0 || n > kMaxPackRecords || counted > records || pack.stamp.ms >> 48 != 0 ||
        pack.bytes > kMaxPackBytes) {
      return Status(Code::damaged, kDamaged);
    }
    pack.records.resize(n);
  }
  if (counted != records) return Status(Code::damaged, kDamaged);
  for (PackRow& pack : out.packs) {
    for (PackedRecord& record : pack.records) {
      take_bytes(p, record.name.bytes);
      record.family = take_le<uint64_t>(p);
      record.payload_bytes = take_le<uint64_t>(p);
      record.offset = take_le<uint32_t>(p);
      record.head_bytes = take_le<uint32_t>(p);
      if (record.head_bytes < codec::kHeaderBytes || record.payload_bytes > UINT32_MAX ||
          record.head_bytes > codec::head_bytes(codec::kMaxLeaves, codec::kMaxAttributeBytes) ||
          record.offset + record.bytes() > pack.bytes) {
        return Status(Code::damaged, kDamaged);
      }
    }
  }
  out.erased.resize(erased);
  for (RecordName& name : out.erased) take_bytes(p, name.bytes);
  out.families.resize(families);
  for (ErasedFamily& row : out.families) {
    row.family = take_le<uint64_t>(p);
    row.until_ms = take_le<uint64_t>(p);
  }
  out.epochs.resize(epochs);
  for (NamespaceEpoch& row : out.epochs) {
    take_bytes(p, row.base.bytes);
    row.epoch = take_le<uint64_t>(p);
  }
  return out;
}

}  // namespace kvbm::tier::store

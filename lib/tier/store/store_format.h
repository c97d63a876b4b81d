// Contents of a store: the names of objects and the index object. Specification: README.md of this folder.
//
// A pack holds records, head then payload, one after the other. An index object lists the records in packs, and what
// was erased. An epoch object has its meaning in its name. All names but those of packs are listed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace kvbm::tier::store {

inline constexpr uint32_t kIndexMagic = 0x4953564BU;  // "KVSI"
inline constexpr uint16_t kIndexVersion = 1;
inline constexpr size_t kIndexHeaderBytes = 56;
inline constexpr size_t kPackRowBytes = 40;
inline constexpr size_t kRecordRowBytes = 40;
inline constexpr size_t kFamilyRowBytes = 16;
inline constexpr size_t kNameRowBytes = 16;
inline constexpr size_t kEpochRowBytes = 24;
inline constexpr uint32_t kMaxPackRecords = 1U << 16;
// Largest size of a pack of any writer: a record's place in it has 32 bits.
inline constexpr uint64_t kMaxPackBytes = UINT32_MAX;
// Largest size of an index object of any writer.
inline constexpr size_t kMaxIndexBytes = size_t{32} << 20;

inline constexpr std::string_view kIndexPrefix = "v1/i/";
inline constexpr std::string_view kPackPrefix = "v1/p/";
inline constexpr std::string_view kEpochPrefix = "v1/e/";
inline constexpr std::string_view kWriterPrefix = "v1/w/";

// Time and process that made an object: the part of a name that orders and distinguishes.
struct Stamp {
  uint64_t ms = 0;  // Unix time, 48 bits
  uint64_t writer = 0;
  uint32_t seq = 0;
  auto operator<=>(const Stamp&) const = default;
};
[[nodiscard]] std::string stamped_name(std::string_view prefix, const Stamp& stamp);
// Returns the stamp of a name that begins with `prefix`; nullopt for any other name.
[[nodiscard]] std::optional<Stamp> parse_stamp(std::string_view prefix, std::string_view name);
// Returns the name that sorts before every stamped name made at `ms` or later.
[[nodiscard]] std::string name_before(std::string_view prefix, uint64_t ms);

[[nodiscard]] std::string epoch_name(const NamespaceId& base, uint64_t epoch);
[[nodiscard]] std::optional<NamespaceEpoch> parse_epoch_name(std::string_view name);

// Marks a live writer, for the election of the one that collects.
[[nodiscard]] std::string writer_name(uint64_t writer, uint64_t ms);
[[nodiscard]] std::optional<Stamp> parse_writer_name(std::string_view name);

// Name of a record in a store. It is equal for the same identity in every process, and cannot be guessed without the
// namespace.
struct RecordName {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const RecordName&) const = default;
  [[nodiscard]] uint64_t low() const noexcept;
};
[[nodiscard]] RecordName record_name(const Family& family, const Key& key) noexcept;
// Names a family where all of its records are meant.
[[nodiscard]] uint64_t family_tag(const Family& family) noexcept;

struct PackedRecord {
  RecordName name;
  uint64_t family = 0;  // family_tag()
  uint64_t payload_bytes = 0;
  uint32_t offset = 0;  // of the head, in the pack
  uint32_t head_bytes = 0;
  [[nodiscard]] uint64_t bytes() const noexcept { return head_bytes + payload_bytes; }
  bool operator==(const PackedRecord&) const = default;
};
struct PackRow {
  Stamp stamp;
  uint64_t bytes = 0;
  std::vector<PackedRecord> records;
  bool operator==(const PackRow&) const = default;
};
// A note that all records of a family are erased in packs made at `until_ms` or earlier.
struct ErasedFamily {
  uint64_t family = 0;
  uint64_t until_ms = 0;
  bool operator==(const ErasedFamily&) const = default;
};
struct IndexObject {
  std::vector<PackRow> packs;
  std::vector<RecordName> erased;  // of packs made before this object
  std::vector<ErasedFamily> families;
  std::vector<NamespaceEpoch> epochs;
  [[nodiscard]] bool empty() const noexcept {
    return packs.empty() && erased.empty() && families.empty() && epochs.empty();
  }
};
[[nodiscard]] std::vector<std::byte> encode_index(const Stamp& stamp, const IndexObject& index);
// Checks counts, sizes of packs, and that every record lies within its pack. Errors: damaged, newer_version.
Result<IndexObject> decode_index(ConstBytes bytes);

}  // namespace kvbm::tier::store

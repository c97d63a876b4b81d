// State of a tier directory beside its segments: its id, the number of opens, namespace epochs and erased families. Two
// slots in one file, written alternately and synced, so that a power cut during a write leaves the other one. Format:
// README.md. Thread: one at a time (the tier's control-plane mutex).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/io/file.h"
#include "base/status.h"
#include "tier/tier.h"

namespace kvbm::tier::disk {

inline constexpr uint32_t kSuperblockMagic = 0x5042564BU;  // "KVBP"
inline constexpr uint64_t kSuperblockSlotBytes = 256 * 1024;
inline constexpr uint64_t kSuperblockBytes = 2 * kSuperblockSlotBytes;
inline constexpr uint32_t kMaxEpochs = kEpochRows;
inline constexpr uint32_t kMaxTombstones = 2048;
// Version of a superblock with floors: a library that does not know them would lose ended epochs.
inline constexpr uint32_t kFloorsVersion = 3;

// Stands for all families in a tombstone: no family has a namespace of zeros.
inline constexpr Family kEveryFamily{};

// Records of `family` in segment lives up to `sequence` are dead.
struct Tombstone {
  Family family;
  uint64_t sequence = 0;
  bool operator==(const Tombstone&) const = default;
};

struct EpochEntry {
  uint64_t epoch = 0;
  uint64_t raised = 0;  // below 2^63; tier::EpochRow
  bool foreign = false;
  bool operator==(const EpochEntry&) const = default;
};

struct Superblock {
  uint64_t directory_id = 0;
  uint64_t writes = 0;  // the slot with the larger number counts
  uint32_t epoch = 0;   // of the owner; raised at each open
  uint64_t segment_bytes = 0;
  uint64_t capacity_bytes = 0;  // as given to the owner; 0: written by a version without this field
  std::map<NamespaceId, EpochEntry> epochs;
  std::vector<uint64_t> floors;  // tier::kEpochFloors, or none
  std::vector<Tombstone> tombstones;
  bool operator==(const Superblock&) const = default;
};

// at_limit if there are too many epochs or tombstones. `slot`: kSuperblockSlotBytes.
Status encode_superblock(const Superblock& superblock, MutableBytes slot);
// Errors: damaged, newer_version.
Result<Superblock> decode_superblock(ConstBytes slot);

// Returns the newest slot that verifies. damaged if neither does, newer_version if one has a newer version.
Result<Superblock> read_superblock(File& file);
// Raises `writes`, writes the slot that is not the current one and syncs.
Status write_superblock(File& file, Superblock& superblock);

}  // namespace kvbm::tier::disk

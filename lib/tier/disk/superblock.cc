#include "tier/disk/superblock.h"

#include "tier/disk/aligned_buffer.h"
#include "tier/disk/segment_format.h"
#include "tier/tier.h"

namespace kvbm::tier::disk {
namespace {

constexpr size_t kFixed = 64;
constexpr size_t kEpochBytes = 24;
constexpr size_t kTombstoneBytes = 48;
constexpr size_t kMarkBytes = 8;
// Behind the longest possible lists: a writer without marks left zeros here, which mean "not foreign".
constexpr size_t kMarksAt = kFixed + kEpochBytes * kMaxEpochs + kTombstoneBytes * kMaxTombstones;
// Offset of the floors, behind the marks. Zeros mean that no floor was raised; writers that did not know floors left
// zeros here too.
constexpr size_t kFloorsAt = kMarksAt + kMarkBytes * kMaxEpochs;
static_assert(kFloorsAt + 8 * kEpochFloors + 8 <= kSuperblockSlotBytes);
static_assert(kFloorsVersion > kFormatVersion);

void store_family(std::byte* p, const Family& f) {
  std::memcpy(p, f.ns.bytes.data(), 16);
  store_le<uint64_t>(p + 16, f.geometry);
  const uint16_t small[] = {f.component,        f.shard.first_layer, f.shard.layers,
                            f.shard.first_head, f.shard.heads,       f.shard.replicated};
  for (size_t i = 0; i < 6; ++i) store_le<uint16_t>(p + 24 + 2 * i, small[i]);
}

Family load_family(const std::byte* p) {
  Family f;
  std::memcpy(f.ns.bytes.data(), p, 16);
  f.geometry = load_le<uint64_t>(p + 16);
  f.component = load_le<uint16_t>(p + 24);
  f.shard = Shard{load_le<uint16_t>(p + 26), load_le<uint16_t>(p + 28), load_le<uint16_t>(p + 30),
                  load_le<uint16_t>(p + 32), load_le<uint16_t>(p + 34)};
  return f;
}

}  // namespace

Status encode_superblock(const Superblock& s, MutableBytes slot) {
  if (s.epochs.size() > kMaxEpochs) return Status(Code::at_limit, "the disk tier keeps epochs of 4,096 namespaces");
  if (s.tombstones.size() > kMaxTombstones)
    return Status(Code::at_limit, "too many families were erased since the disk tier last reclaimed its segments");
  std::memset(slot.data(), 0, slot.size());
  std::byte* p = slot.data();
  store_le<uint32_t>(p, kSuperblockMagic);
  store_le<uint32_t>(p + 4, s.floors.empty() ? kFormatVersion : kFloorsVersion);
  store_le<uint64_t>(p + 8, s.directory_id);
  store_le<uint64_t>(p + 16, s.writes);
  store_le<uint64_t>(p + 24, s.segment_bytes);
  store_le<uint32_t>(p + 32, s.epoch);
  store_le<uint32_t>(p + 36, static_cast<uint32_t>(s.epochs.size()));
  store_le<uint32_t>(p + 40, static_cast<uint32_t>(s.tombstones.size()));
  store_le<uint64_t>(p + 48, s.capacity_bytes);
  p += kFixed;
  std::byte* mark = slot.data() + kMarksAt;
  for (const auto& [ns, entry] : s.epochs) {
    std::memcpy(p, ns.bytes.data(), 16);
    store_le<uint64_t>(p + 16, entry.epoch);
    store_le<uint64_t>(mark, entry.raised << 1 | (entry.foreign ? 1 : 0));
    p += kEpochBytes;
    mark += kMarkBytes;
  }
  for (const Tombstone& t : s.tombstones) {
    store_family(p, t.family);
    store_le<uint64_t>(p + 40, t.sequence);
    p += kTombstoneBytes;
  }
  for (size_t i = 0; i < s.floors.size(); ++i) store_le<uint64_t>(slot.data() + kFloorsAt + 8 * i, s.floors[i]);
  const size_t fields = slot.size() - 8;
  store_le<uint64_t>(slot.data() + fields, checksum(slot.first(fields), kSuperblockMagic));
  return {};
}

Result<Superblock> decode_superblock(ConstBytes slot) {
  if (slot.size() != kSuperblockSlotBytes) return Status(Code::damaged, "superblock is cut short");
  const std::byte* p = slot.data();
  if (load_le<uint32_t>(p) != kSuperblockMagic) return Status(Code::damaged, "not a superblock");
  const size_t fields = slot.size() - 8;
  if (load_le<uint64_t>(p + fields) != checksum(slot.first(fields), kSuperblockMagic))
    return Status(Code::damaged, "superblock fails its checksum");
  const uint32_t version = load_le<uint32_t>(p + 4);
  if (version > kFloorsVersion) return Status(Code::newer_version, "the tier directory was written by a newer kvbm");
  if (version == 0) return Status(Code::damaged, "superblock has no version");
  Superblock s;
  s.directory_id = load_le<uint64_t>(p + 8);
  s.writes = load_le<uint64_t>(p + 16);
  s.segment_bytes = load_le<uint64_t>(p + 24);
  s.epoch = load_le<uint32_t>(p + 32);
  s.capacity_bytes = load_le<uint64_t>(p + 48);
  const uint32_t epochs = load_le<uint32_t>(p + 36);
  const uint32_t tombstones = load_le<uint32_t>(p + 40);
  if (epochs > kMaxEpochs || tombstones > kMaxTombstones || s.segment_bytes == 0 || s.segment_bytes % kPage != 0)
    return Status(Code::damaged, "superblock's counts are impossible");
  p += kFixed;
  for (uint32_t i = 0; i < epochs; ++i, p += kEpochBytes) {
    NamespaceId ns;
    std::memcpy(ns.bytes.data(), p, 16);
    const uint64_t mark = load_le<uint64_t>(slot.data() + kMarksAt + i * kMarkBytes);
    s.epochs[ns] = {load_le<uint64_t>(p + 16), mark >> 1, (mark & 1) != 0};
  }
  for (uint32_t i = 0; i < tombstones; ++i, p += kTombstoneBytes)
    s.tombstones.push_back(Tombstone{load_family(p), load_le<uint64_t>(p + 40)});
  for (size_t i = 0; version >= kFloorsVersion && i < kEpochFloors; ++i) {
    s.floors.push_back(load_le<uint64_t>(slot.data() + kFloorsAt + 8 * i));
  }
  return s;
}

Result<Superblock> read_superblock(File& file) {
  const AlignedBuffer buffer(kSuperblockSlotBytes);
  if (buffer.data() == nullptr) return Status(Code::no_memory, "no memory for the superblock");
  Result<Superblock> best = Status(Code::damaged, "neither copy of the superblock verifies");
  for (uint64_t slot = 0; slot < 2; ++slot) {
    auto got = file.read_now(slot * kSuperblockSlotBytes, buffer.span());
    if (!got.ok()) return got.status();
    if (got.value() != kSuperblockSlotBytes) continue;
    auto one = decode_superblock(buffer.span());
    if (one.status().code() == Code::newer_version) return one;
    if (one.ok() && (!best.ok() || one.value().writes > best.value().writes)) best = std::move(one);
  }
  return best;
}

Status write_superblock(File& file, Superblock& superblock) {
  const AlignedBuffer buffer(kSuperblockSlotBytes);
  if (buffer.data() == nullptr) return {Code::no_memory, "no memory for the superblock"};
  ++superblock.writes;
  if (Status s = encode_superblock(superblock, buffer.span()); !s.ok()) return s;
  const uint64_t slot = superblock.writes % 2;
  if (Status s = file.write_now(slot * kSuperblockSlotBytes, buffer.span()); !s.ok()) return s;
  return file.sync_now();
}

}  // namespace kvbm::tier::disk

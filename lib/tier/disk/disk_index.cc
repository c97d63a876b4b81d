#include "tier/disk/disk_index.h"

#include <algorithm>

namespace kvbm::tier::disk {
namespace {

constexpr uint64_t kBytesPerEntry = 48;
// Load of a part in hundredths of its slots: above the first it grows; the second is left by reserve().
constexpr uint64_t kMostLoad = 86;
constexpr uint64_t kReservedLoad = 84;

// Maps the low 32 bits of a hash onto [0, n) without a division (Lemire, 2016).
uint32_t reduce(uint64_t hash, size_t n) noexcept {
  return static_cast<uint32_t>(((hash & 0xFFFFFFFFU) * static_cast<uint64_t>(n)) >> 32);
}

uint8_t tag_of(uint64_t hash) noexcept { return static_cast<uint8_t>(((hash >> 40) & 0xFF) | 1); }

uint32_t next_chunk(uint32_t chunk, size_t n) noexcept { return chunk + 1 == n ? 0 : chunk + 1; }

}  // namespace

DiskIndex::DiskIndex(uint64_t max_bytes)
    : max_entries_(std::min<uint64_t>(std::max<uint64_t>(max_bytes / kBytesPerEntry, 64), kNone - 1)) {}

// Part, chunk and tag take different bits, so all of them must be mixed (SplitMix64's finaliser).
uint64_t DiskIndex::mix(const Identity& id) noexcept {
  uint64_t z = id.hash() ^ (id.key.high() >> 7);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint32_t DiskIndex::find(const Identity& id) const noexcept {
  const uint64_t hash = mix(id);
  return find(parts_[hash >> 58], hash, id);
}

void DiskIndex::prefetch(const Identity& id) const noexcept {
  const uint64_t hash = mix(id);
  const Part& part = parts_[hash >> 58];
  if (!part.chunks.empty()) __builtin_prefetch(&part.chunks[reduce(hash, part.chunks.size())], 1);
}

uint32_t DiskIndex::find(const Part& part, uint64_t hash, const Identity& id) const noexcept {
  const size_t n = part.chunks.size();
  if (n == 0) return kNone;
  const uint8_t tag = tag_of(hash);
  uint32_t c = reduce(hash, n);
  for (size_t probes = 0; probes < n; ++probes, c = next_chunk(c, n)) {
    const Chunk& chunk = part.chunks[c];
    for (uint32_t s = 0; s < kSlots; ++s) {
      if (chunk.tags[s] != tag) continue;
      const IndexEntry& e = at(chunk.entries[s]);
      if (e.key == id.key && families_.at(e.family) == id.family) return chunk.entries[s];
    }
    if (chunk.overflow == 0) return kNone;
  }
  return kNone;
}

void DiskIndex::place(Part& part, uint64_t hash, uint32_t entry) noexcept {
  const size_t n = part.chunks.size();
  for (uint32_t c = reduce(hash, n);; c = next_chunk(c, n)) {
    Chunk& chunk = part.chunks[c];
    for (uint32_t s = 0; s < kSlots; ++s) {
      if (chunk.tags[s] != 0) continue;
      chunk.tags[s] = tag_of(hash);
      chunk.entries[s] = entry;
      return;
    }
    if (chunk.overflow != UINT8_MAX) ++chunk.overflow;
  }
}

void DiskIndex::reserve(uint64_t entries) {
  const uint64_t n = std::min(entries, max_entries_);
  // Parts differ by a few hundredths: most of them stay below the load at which they grow.
  const size_t chunks = n / kParts * 100 / (kReservedLoad * kSlots) + 1;
  for (Part& part : parts_) {
    if (chunks > part.chunks.size()) resize(part, chunks);
  }
  pages_.reserve(n / kPageEntries + 1);
}

void DiskIndex::resize(Part& part, size_t chunks) {
  std::vector<Chunk> old(chunks);
  old.swap(part.chunks);
  for (const Chunk& chunk : old) {
    for (uint32_t s = 0; s < kSlots; ++s) {
      if (chunk.tags[s] != 0) place(part, mix(identity(at(chunk.entries[s]))), chunk.entries[s]);
    }
  }
}

uint32_t DiskIndex::insert(const Identity& id, bool& fresh) {
  const uint64_t hash = mix(id);
  Part& part = part_of(hash);
  fresh = false;
  if (const uint32_t known = find(part, hash, id); known != kNone) return known;
  if (full()) return kNone;
  if (100 * uint64_t{part.live + 1} > kMostLoad * kSlots * part.chunks.size())
    resize(part, std::max<size_t>(part.chunks.size() + 1, part.chunks.size() * 6 / 5));
  if (free_ == kNone && used_ == pages_.size() * kPageEntries)
    pages_.push_back(std::make_unique<IndexEntry[]>(kPageEntries));
  // The last step that can fail.
  const uint32_t family = families_.take(id.family);
  if (family == DiskFamilies::kNone) return kNone;
  fresh = true;
  uint32_t entry = free_;
  if (entry != kNone) {
    free_ = at(entry).parent;
  } else {
    entry = used_++;
  }
  IndexEntry& e = at(entry);
  e = IndexEntry{};
  e.key = id.key;
  e.family = static_cast<uint16_t>(family);
  e.parent = kNone;
  place(part, hash, entry);
  ++part.live;
  ++live_;
  return entry;
}

void DiskIndex::erase(uint32_t entry) noexcept {
  IndexEntry& e = at(entry);
  const uint64_t hash = mix(identity(e));
  Part& part = part_of(hash);
  const size_t n = part.chunks.size();
  uint32_t c = reduce(hash, n);
  for (size_t probes = 0; probes < n; ++probes, c = next_chunk(c, n)) {
    Chunk& chunk = part.chunks[c];
    uint32_t s = 0;
    while (s < kSlots && (chunk.tags[s] == 0 || chunk.entries[s] != entry)) ++s;
    if (s == kSlots) continue;
    chunk.tags[s] = 0;
    for (uint32_t back = reduce(hash, n); back != c; back = next_chunk(back, n)) {
      if (part.chunks[back].overflow != UINT8_MAX) --part.chunks[back].overflow;
    }
    break;
  }
  --part.live;
  --live_;
  families_.drop(e.family);
  const bool linked = e.parent < used_ && tag_of_key(at(e.parent).key) == e.parent_tag;
  if (linked && at(e.parent).children > 0) --at(e.parent).children;
  e = IndexEntry{};
  e.parent = free_;
  free_ = entry;
}

bool DiskIndex::link(uint32_t entry, const Identity& parent) noexcept {
  const uint32_t p = find(parent);
  if (p == kNone || p == entry) return false;
  at(entry).parent = p;
  at(entry).parent_tag = tag_of_key(parent.key) & 0x3FU;
  if (at(p).children != UINT8_MAX) ++at(p).children;
  return true;
}

uint64_t DiskIndex::bytes() const noexcept {
  uint64_t total = sizeof *this + families_.bytes() + pages_.capacity() * sizeof(pages_[0]) +
                   pages_.size() * kPageEntries * sizeof(IndexEntry);
  for (const Part& part : parts_) total += part.chunks.capacity() * sizeof(Chunk);
  return total;
}

}  // namespace kvbm::tier::disk

#include "tier/store/store_index.h"

#include <bit>

#include "base/crypto/random.h"

namespace kvbm::tier::store {

namespace {
__extension__ using Wide = unsigned __int128;
// Slots of a part when it is made, and the largest share of its slots in use.
constexpr size_t kFirstSlots = 16;
constexpr size_t kLoadNumerator = 4, kLoadDenominator = 5;
// A node of std::map with its stamp, and the overhead of malloc for it and for a pack's entries.
constexpr uint64_t kPackOverhead = 112;
// A node of std::unordered_map with a family's count, its place in the table, and the overhead of malloc.
constexpr uint64_t kFamilyOverhead = 56;
}  // namespace

StoreIndex::StoreIndex(uint64_t max_bytes, uint64_t seed) : max_bytes_(max_bytes) {
  SeededRandom random(seed);
  key_ = {random.next(), random.next()};
}

// Folds a product of both halves of the key, as wyhash does (https://github.com/wangyi-fudan/wyhash, 2019). One
// multiplication, because find() makes it.
uint64_t StoreIndex::hash_of(uint64_t name) const noexcept {
  const Wide product = static_cast<Wide>(name ^ key_[0]) * (std::rotl(name, 32) ^ key_[1]);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

size_t StoreIndex::home(const Part& part, uint64_t hash) noexcept {
  const uint64_t middle = hash >> 16 & 0xFFFFFFFFULL;
  return static_cast<size_t>(middle * part.slots.size() >> 32);
}

size_t StoreIndex::seek(const Part& part, uint64_t hash, uint64_t name) const noexcept {
  if (part.slots.empty()) return SIZE_MAX;
  for (size_t at = home(part, hash);; at = at + 1 == part.slots.size() ? 0 : at + 1) {
    const uint64_t slot = part.slots[at];
    if (slot == kEmpty) return SIZE_MAX;
    if ((slot & 0xFFFF) == (hash & 0xFFFF) && entry_of(slot).name == name) return at;
  }
}

StorePlace StoreIndex::find(const RecordName& name) const noexcept {
  const uint64_t low = name.low(), hash = hash_of(low);
  const Part& part = parts_[hash >> 58];
  const size_t at = seek(part, hash, low);
  if (at == SIZE_MAX) return {};
  const uint64_t slot = part.slots[at];
  const Entry& e = entry_of(slot);
  return {static_cast<uint32_t>(slot >> 32), static_cast<uint32_t>(slot >> 16 & 0xFFFF), e.offset, e.head_bytes,
          e.payload_bytes};
}

void StoreIndex::prefetch(const RecordName& name) const noexcept {
  const uint64_t hash = hash_of(name.low());
  const Part& part = parts_[hash >> 58];
  if (!part.slots.empty()) __builtin_prefetch(&part.slots[home(part, hash)]);
}

size_t StoreIndex::longest_probe() const noexcept {
  size_t longest = 0;
  for (const Part& part : parts_) {
    for (size_t at = 0; at < part.slots.size(); ++at) {
      if (part.slots[at] == kEmpty) continue;
      const size_t wants = home(part, hash_of(entry_of(part.slots[at]).name));
      longest = std::max(longest, at >= wants ? at - wants : at + part.slots.size() - wants);
    }
  }
  return longest;
}

void StoreIndex::insert(uint64_t hash, uint64_t slot) {
  Part& part = part_of(hash);
  if ((part.live + 1) * kLoadDenominator > part.slots.size() * kLoadNumerator) grow(part);
  size_t at = home(part, hash);
  while (part.slots[at] != kEmpty) at = at + 1 == part.slots.size() ? 0 : at + 1;
  part.slots[at] = slot;
  ++part.live;
}

// Moves back slots that were pushed behind the place that is free now (Knuth 6.4, algorithm R).
void StoreIndex::remove(Part& part, size_t at) noexcept {
  const size_t n = part.slots.size();
  size_t hole = at;
  for (size_t next = hole + 1 == n ? 0 : hole + 1; part.slots[next] != kEmpty; next = next + 1 == n ? 0 : next + 1) {
    const size_t wants = home(part, hash_of(entry_of(part.slots[next]).name));
    const size_t from_wants = next >= wants ? next - wants : next + n - wants;
    const size_t from_hole = next >= hole ? next - hole : next + n - hole;
    if (from_wants < from_hole) continue;
    part.slots[hole] = part.slots[next];
    hole = next;
  }
  part.slots[hole] = kEmpty;
  --part.live;
}

void StoreIndex::grow(Part& part) {
  const size_t n = part.slots.empty() ? kFirstSlots : part.slots.size() + part.slots.size() / 2;
  std::vector<uint64_t> old(n, kEmpty);
  old.swap(part.slots);
  slots_ += n - old.size();
  for (const uint64_t slot : old) {
    if (slot == kEmpty) continue;
    size_t at = home(part, hash_of(entry_of(slot).name));
    while (part.slots[at] != kEmpty) at = at + 1 == n ? 0 : at + 1;
    part.slots[at] = slot;
  }
}

bool StoreIndex::add(const PackRow& pack, uint64_t counted) {
  const size_t n = pack.records.size();
  if (n == 0 || n > kMaxPackRecords || knows(pack.stamp)) return false;
  if (memory_bytes() + n * (sizeof(Entry) + 10) + sizeof(Pack) + kPackOverhead > max_bytes_) return false;
  uint32_t number = static_cast<uint32_t>(packs_.size());
  if (!free_.empty()) {
    number = free_.back();
    free_.pop_back();
  } else {
    packs_.emplace_back();
  }
  Pack& to = packs_[number];
  to.stamp = pack.stamp;
  to.bytes = std::min(pack.bytes, counted);
  to.n = static_cast<uint32_t>(n);
  to.live = 0;
  to.entries = std::make_unique<Entry[]>(n);
  by_stamp_.emplace(pack.stamp, number);
  stored_bytes_ += to.bytes;
  entries_ += n;
  for (uint32_t i = 0; i < n; ++i) {
    const PackedRecord& record = pack.records[i];
    const uint64_t name = record.name.low(), hash = hash_of(name);
    Part& part = part_of(hash);
    if (const size_t at = seek(part, hash, name); at != SIZE_MAX) {
      const auto known = static_cast<uint32_t>(part.slots[at] >> 32);
      if (known == number || packs_[known].stamp > pack.stamp) continue;
      forget(known, packs_[known].entries[part.slots[at] >> 16 & 0xFFFF]);
    }
    to.entries[i] = {name, record.offset, static_cast<uint32_t>(record.payload_bytes), record.head_bytes,
                     static_cast<uint32_t>(record.family)};
    insert(hash, slot_of(number, i, hash));
    ++to.live;
    ++live_;
    payload_bytes_ += record.payload_bytes;
    ++families_[static_cast<uint32_t>(record.family)];
  }
  return true;
}

// The slot is removed before the entry is cleared: it is found by the entry's name.
void StoreIndex::forget(uint32_t pack, Entry& entry) noexcept {
  const uint64_t hash = hash_of(entry.name);
  Part& part = part_of(hash);
  if (const size_t at = seek(part, hash, entry.name); at != SIZE_MAX) remove(part, at);
  payload_bytes_ -= entry.payload_bytes;
  const auto family = families_.find(entry.family);
  if (family != families_.end() && --family->second == 0) families_.erase(family);
  entry.head_bytes = 0;
  --packs_[pack].live;
  --live_;
}

size_t StoreIndex::drop(const Stamp& stamp) {
  const auto at = by_stamp_.find(stamp);
  if (at == by_stamp_.end()) return 0;
  const uint32_t number = at->second;
  Pack& pack = packs_[number];
  const size_t dropped = pack.live;
  for (uint32_t i = 0; i < pack.n; ++i) {
    if (pack.entries[i].head_bytes != 0) forget(number, pack.entries[i]);
  }
  stored_bytes_ -= pack.bytes;
  entries_ -= pack.n;
  pack = {};
  free_.push_back(number);
  by_stamp_.erase(at);
  return dropped;
}

bool StoreIndex::erase(const RecordName& name, uint64_t until_ms) noexcept {
  const StorePlace place = find(name);
  if (!place.found() || packs_[place.pack].stamp.ms > until_ms) return false;
  forget(place.pack, packs_[place.pack].entries[place.entry]);
  return true;
}

bool StoreIndex::erase_families(FamilyErasure& erasure, size_t entries) {
  size_t compared = 0;
  for (; erasure.next_pack < packs_.size(); ++erasure.next_pack) {
    if (compared >= entries) return true;
    Pack& pack = packs_[erasure.next_pack];
    compared += std::max(pack.n, 1U);
    for (uint32_t i = 0; i < pack.n && pack.live != 0; ++i) {
      Entry& entry = pack.entries[i];
      if (entry.head_bytes == 0) continue;
      const auto row = erasure.until_ms.find(entry.family);
      if (row == erasure.until_ms.end() || pack.stamp.ms > row->second) continue;
      forget(erasure.next_pack, entry);
      ++erasure.erased;
    }
  }
  return false;
}

void StoreIndex::for_each_pack(const std::function<void(const Stamp&, uint64_t)>& visit) const {
  for (const auto& [stamp, number] : by_stamp_) visit(stamp, packs_[number].bytes);
}

uint64_t StoreIndex::memory_bytes() const noexcept {
  return entries_ * sizeof(Entry) + slots_ * sizeof(uint64_t) + packs_.capacity() * sizeof(Pack) +
         by_stamp_.size() * kPackOverhead + free_.capacity() * sizeof(uint32_t) + families_.size() * kFamilyOverhead;
}

void StoreIndex::clear() {
  parts_ = {};
  packs_.clear();
  free_.clear();
  by_stamp_.clear();
  families_.clear();
  live_ = slots_ = entries_ = stored_bytes_ = payload_bytes_ = 0;
}

}  // namespace kvbm::tier::store

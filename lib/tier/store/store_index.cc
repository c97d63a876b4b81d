#include "tier/store/store_index.h"

namespace kvbm::tier::store {

namespace {
// Slots of a part when it is made, and the largest share of its slots in use.
constexpr size_t kFirstSlots = 16;
constexpr size_t kLoadNumerator = 4, kLoadDenominator = 5;
// A node of std::map with its stamp, and the overhead of malloc for it and for a pack's entries.
constexpr uint64_t kPackOverhead = 112;
}  // namespace

// The high bits choose the part, the low ones are in the slot: the place is made from those between.
size_t StoreIndex::home(const Part& part, uint64_t name) noexcept {
  const uint64_t middle = name >> 16 & 0xFFFFFFFFULL;
  return static_cast<size_t>(middle * part.slots.size() >> 32);
}

size_t StoreIndex::seek(const Part& part, uint64_t name) const noexcept {
  if (part.slots.empty()) return SIZE_MAX;
  for (size_t at = home(part, name);; at = at + 1 == part.slots.size() ? 0 : at + 1) {
    const uint64_t slot = part.slots[at];
    if (slot == kEmpty) return SIZE_MAX;
    if ((slot & 0xFFFF) == (name & 0xFFFF) && entry_of(slot).name == name) return at;
  }
}

StorePlace StoreIndex::find(const RecordName& name) const noexcept {
  const uint64_t low = name.low();
  const Part& part = parts_[low >> 58];
  const size_t at = seek(part, low);
  if (at == SIZE_MAX) return {};
  const uint64_t slot = part.slots[at];
  const Entry& e = entry_of(slot);
  return {static_cast<uint32_t>(slot >> 32), static_cast<uint32_t>(slot >> 16 & 0xFFFF), e.offset, e.head_bytes,
          e.payload_bytes};
}

void StoreIndex::prefetch(const RecordName& name) const noexcept {
  const Part& part = parts_[name.low() >> 58];
  if (!part.slots.empty()) __builtin_prefetch(&part.slots[home(part, name.low())]);
}

void StoreIndex::insert(uint64_t name, uint64_t slot) {
  Part& part = part_of(name);
  if ((part.live + 1) * kLoadDenominator > part.slots.size() * kLoadNumerator) grow(part);
  size_t at = home(part, name);
  while (part.slots[at] != kEmpty) at = at + 1 == part.slots.size() ? 0 : at + 1;
  part.slots[at] = slot;
  ++part.live;
}

// Moves back slots that were pushed behind the place that is free now (Knuth 6.4, algorithm R).
void StoreIndex::remove(Part& part, size_t at) noexcept {
  const size_t n = part.slots.size();
  size_t hole = at;
  for (size_t next = hole + 1 == n ? 0 : hole + 1; part.slots[next] != kEmpty; next = next + 1 == n ? 0 : next + 1) {
    const size_t wants = home(part, entry_of(part.slots[next]).name);
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
    size_t at = home(part, entry_of(slot).name);
    while (part.slots[at] != kEmpty) at = at + 1 == n ? 0 : at + 1;
    part.slots[at] = slot;
  }
}

bool StoreIndex::add(const PackRow& pack) {
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
  to.bytes = pack.bytes;
  to.n = static_cast<uint32_t>(n);
  to.live = 0;
  to.entries = std::make_unique<Entry[]>(n);
  by_stamp_.emplace(pack.stamp, number);
  stored_bytes_ += pack.bytes;
  entries_ += n;
  for (uint32_t i = 0; i < n; ++i) {
    const PackedRecord& record = pack.records[i];
    const uint64_t name = record.name.low();
    Part& part = part_of(name);
    if (const size_t at = seek(part, name); at != SIZE_MAX) {
      const auto known = static_cast<uint32_t>(part.slots[at] >> 32);
      if (known == number || packs_[known].stamp > pack.stamp) continue;
      forget(known, packs_[known].entries[part.slots[at] >> 16 & 0xFFFF]);
    }
    to.entries[i] = {name, record.offset, static_cast<uint32_t>(record.payload_bytes), record.head_bytes,
                     static_cast<uint32_t>(record.family)};
    insert(name, slot_of(number, i, name));
    ++to.live;
    ++live_;
    payload_bytes_ += record.payload_bytes;
    ++families_[static_cast<uint32_t>(record.family)];
  }
  return true;
}

// The slot is removed before the entry is cleared: it is found by the entry's name.
void StoreIndex::forget(uint32_t pack, Entry& entry) noexcept {
  Part& part = part_of(entry.name);
  if (const size_t at = seek(part, entry.name); at != SIZE_MAX) remove(part, at);
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

size_t StoreIndex::erase_family(uint64_t family, uint64_t until_ms) {
  const auto tag = static_cast<uint32_t>(family);
  if (!families_.contains(tag)) return 0;
  size_t erased = 0;
  for (uint32_t number = 0; number < packs_.size(); ++number) {
    Pack& pack = packs_[number];
    if (pack.live == 0 || pack.stamp.ms > until_ms) continue;
    for (uint32_t i = 0; i < pack.n; ++i) {
      Entry& entry = pack.entries[i];
      if (entry.head_bytes == 0 || entry.family != tag) continue;
      forget(number, entry);
      ++erased;
    }
  }
  return erased;
}

void StoreIndex::for_each_pack(const std::function<void(const Stamp&, uint64_t)>& visit) const {
  for (const auto& [stamp, number] : by_stamp_) visit(stamp, packs_[number].bytes);
}

uint64_t StoreIndex::memory_bytes() const noexcept {
  return entries_ * sizeof(Entry) + slots_ * sizeof(uint64_t) + packs_.capacity() * sizeof(Pack) +
         by_stamp_.size() * kPackOverhead + free_.capacity() * sizeof(uint32_t);
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

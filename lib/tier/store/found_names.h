// Names of records that lookups found in a store and that no load has asked for yet, in the order of the lookups: what
// is read ahead (ahead.cc). The last kNames names, for kAgeNs. Allocates in its constructor only. Lock: the owner's.
#pragma once

#include <cstdint>
#include <vector>

#include "tier/store/store_format.h"

namespace kvbm::tier::store {

class FoundNames {
 public:
  static constexpr size_t kNames = 4096;
  static constexpr uint64_t kAgeNs = 10'000'000'000;

  FoundNames() : ring_(kNames), places_(kPlaces, UINT64_MAX) {}

  // Adds a name behind all others, unless it is there.
  void add(const RecordName& name, uint64_t now_ns) noexcept {
    uint64_t& place = places_[place_of(name)];
    if (is_at(place, name)) return;
    if (next_ - first_ == kNames) ++first_;
    place = next_++;
    // Another name with this place is forgotten: it is not read ahead.
    ring_[place % kNames] = {name, now_ns, false};
  }
  void remove(const RecordName& name) noexcept {
    const uint64_t place = places_[place_of(name)];
    if (is_at(place, name)) ring_[place % kNames].gone = true;
  }
  // Like remove(), but only for a name that may be taken.
  void remove_open(const RecordName& name) noexcept {
    const uint64_t place = places_[place_of(name)];
    if (place < open_ && is_at(place, name)) ring_[place % kNames].gone = true;
  }
  // A load has begun: the names that are here now may be taken.
  void open() noexcept { open_ = next_; }
  // Returns the first name that may be taken; null: there is none.
  [[nodiscard]] const RecordName* first(uint64_t now_ns) noexcept {
    for (; first_ < open_; ++first_) {
      const Entry& entry = ring_[first_ % kNames];
      if (!entry.gone && is_at(places_[place_of(entry.name)], entry.name) && now_ns < entry.found_ns + kAgeNs) {
        return &entry.name;
      }
    }
    return nullptr;
  }

 private:
  static constexpr size_t kPlaces = 4 * kNames;
  struct Entry {
    RecordName name;
    uint64_t found_ns = 0;
    bool gone = true;
  };
  static size_t place_of(const RecordName& name) noexcept { return name.low() % kPlaces; }
  [[nodiscard]] bool is_at(uint64_t place, const RecordName& name) const noexcept {
    if (place < first_ || place >= next_) return false;
    const Entry& entry = ring_[place % kNames];
    return !entry.gone && entry.name == name;
  }

  std::vector<Entry> ring_;
  std::vector<uint64_t> places_;   // of names in the ring, by hash; another name's or an old one is no place
  uint64_t first_ = 0, next_ = 0;  // names are in [first_, next_)
  uint64_t open_ = 0;              // names before this one may be taken
};

}  // namespace kvbm::tier::store

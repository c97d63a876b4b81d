// Holds one family at a time under an id that is never reused, readable without a lock while it may be replaced.
//
// Memory order. put() makes the old id unreadable, then writes the words, each with release, then the new id with
// release. get() reads the id with acquire, the words with acquire, and the id again. Two cases:
// - The first read gave `id`: it acquired the release of put(id), so every word is that of put(id) or of a later one.
// - A word is of a later put(): reading it acquired that put()'s first store, so the second read of the id gives
//   kNoFamily or a
// later id. No id is stored twice, so it is not `id`, and get() returns nothing.
//
// So get() returns the whole family that `id` was made for, or nothing. tests/model/family_cell_test.cc tries every
// order of the steps, tests/unit/base/family_table_test.cc runs it on threads.
#pragma once

#include <array>
#include <atomic>
#include <cstring>

#include "base/ids.h"

namespace kvbm {

// An id that no family has.
inline constexpr FamilyId kNoFamily = UINT32_MAX;

// Atomic: std::atomic, or a replacement in a model check.
template <template <class> class Atomic>
class FamilyCellOf {
 public:
  // Thread: one at a time. No id is put into a cell twice.
  void put(FamilyId id, const Family& family) noexcept {
    clear();
    const Words words = pack(family);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    id_.store(id, std::memory_order_release);
  }
  void clear() noexcept { id_.store(kNoFamily, std::memory_order_relaxed); }

  // Thread: any.
  [[nodiscard]] bool has(FamilyId id) const noexcept { return id_.load(std::memory_order_acquire) == id; }
  [[nodiscard]] bool get(FamilyId id, Family& out) const noexcept {
    if (!has(id)) return false;
    Words words;
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (id_.load(std::memory_order_relaxed) != id) return false;
    out = unpack(words);
    return true;
  }

 private:
  static constexpr size_t kWords = 5;
  using Words = std::array<uint64_t, kWords>;
  using Parts = std::array<uint16_t, 8>;
  static_assert(sizeof(Words) == sizeof(NamespaceId) + sizeof(uint64_t) + sizeof(Parts));

  static Words pack(const Family& f) noexcept {
    const Parts parts = {
        f.component, f.shard.first_layer, f.shard.layers, f.shard.first_head, f.shard.heads, f.shard.replicated, 0, 0};
    Words words;
    std::memcpy(&words[0], f.ns.bytes.data(), sizeof f.ns);
    words[2] = f.geometry;
    std::memcpy(&words[3], parts.data(), sizeof parts);
    return words;
  }
  static Family unpack(const Words& words) noexcept {
    Parts parts;
    std::memcpy(parts.data(), &words[3], sizeof parts);
    Family f;
    std::memcpy(f.ns.bytes.data(), &words[0], sizeof f.ns);
    f.geometry = words[2];
    f.component = parts[0];
    f.shard = {parts[1], parts[2], parts[3], parts[4], parts[5]};
    return f;
  }

  Atomic<FamilyId> id_{kNoFamily};
  std::array<Atomic<uint64_t>, kWords> words_;
};

using FamilyCell = FamilyCellOf<std::atomic>;

}  // namespace kvbm

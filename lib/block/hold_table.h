// Holds: the 64-bit values that callers own in place of slots (kvbm_block_t).
//
// A value is hold index (bits 0-31) | generation (32-55) | manager tag (56-63); never 0, because generations begin at
// 1. Each entry is one atomic word: slot (0-31) | generation (32-55) | kind (56-57). Ending a hold raises the
// generation, so any later use of the value is stale. Freed entries of a lane are reused first in, first out; an entry
// with no generation left is retired.
//
// A live hold has a reference to its slot (a weak one has none); the reference is released only after the hold has
// ended. So a slot that is used while its hold cannot end has the hold's block. Two ways: use_all() keeps the holds
// from ending. Or the slot is read without a lock, and the hold resolved once more: if it is still live, it was live
// all the time, since no value is live twice.
//
// Locks: entries are in pages, and each page belongs to a lane. Words of live and free entries change only under the
// lock of their lane, taken once per run of holds of one lane. So of two concurrent ends exactly one wins, without an
// atomic read-modify-write per hold; resolve takes no lock. Threads make holds in lanes of their own as far as there
// are enough, so they do not contend.
// Budget: no allocation but for a new page, when every existing hold is in use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"

namespace kvbm::block {

using HoldValue = uint64_t;
inline constexpr HoldValue kNoHold = 0;

enum class HoldKind : uint8_t { writable = 1, reading = 2, weak = 3 };

// Slot and kind of a hold. slot_generation is set for weak holds only.
struct Hold {
  SlotId slot = kNoSlot;
  HoldKind kind = HoldKind::reading;
  uint32_t slot_generation = 0;
};

class HoldTable {
 public:
  static constexpr uint32_t kPageHolds = 2048;
  static constexpr uint32_t kMaxGeneration = (1U << 24) - 1;

  struct Options {
    uint8_t tag = 1;                // tag of the manager; differs between the managers of a process where possible
    uint32_t max_holds = 1 << 20;   // rounded up to whole pages
    uint32_t first_generation = 1;  // of new entries; tests begin near the wrap
  };
  explicit HoldTable(const Options& options);
  ~HoldTable();
  HoldTable(const HoldTable&) = delete;
  HoldTable& operator=(const HoldTable&) = delete;

  // All or nothing; out[i] stands for slots[i]. slot_generations: for weak holds, one per slot; else empty.
  // at_limit: max_holds are in use. no_memory.
  [[nodiscard]] Code create(HoldKind kind, std::span<const SlotId> slots, std::span<const uint32_t> slot_generations,
                            std::span<HoldValue> out);
  // Returns ok, invalid_argument (the value is 0), foreign_handle (the tag is another manager's) or stale_handle
  // (ended, or never issued).
  [[nodiscard]] Code resolve(HoldValue value, Hold* out) const noexcept;
  // Resolves holds to slots. All must be valid and of one kind; wrong_state: of another kind. Returns the first
  // failure.
  [[nodiscard]] Code resolve_all(std::span<const HoldValue> values, HoldKind kind,
                                 std::span<SlotId> out) const noexcept;
  // Returns the number resolved; codes may be empty; out[i].slot is kNoSlot if not ok.
  size_t resolve(std::span<const HoldValue> values, std::span<Hold> out, std::span<Code> codes) const noexcept;
  // Ends each hold; out[i] is its former content, slot kNoSlot if codes[i] is not ok. A value that appears twice ends
  // once. Returns the number ended. The caller must end the references.
  size_t end(std::span<const HoldValue> values, std::span<Hold> out, std::span<Code> codes) noexcept;
  // Resolves as resolve_all() does, and calls use() before any of these holds can end. Returns the result of use(), or
  // why the holds did not resolve. Runs under the locks of their lanes: use() must take no lock and be short, since
  // others wait for it.
  template <class Use>
  [[nodiscard]] Code use_all(std::span<const HoldValue> values, HoldKind kind, std::span<SlotId> out, Use&& use);
  // Like use_all(), but if use() returns ok the holds end in the same step: none may be named twice. Their references
  // pass to the caller. inout[i] becomes the value of a future hold in its place, which is invalid until settle().
  // at_limit: an entry has no generation left; nothing changed.
  template <class Use>
  [[nodiscard]] Code take_all(std::span<HoldValue> inout, HoldKind kind, std::span<SlotId> out, Use&& use);
  // Completes values that take_all() made, once for each. The caller's references become the holds'.
  void settle(std::span<const HoldValue> values, HoldKind kind, std::span<const SlotId> slots) noexcept;

  [[nodiscard]] uint32_t live() const noexcept;
  [[nodiscard]] size_t bytes() const noexcept;

 private:
  static constexpr uint32_t kLanes = 8;
  // Free entries, linked through the slot field of their words.
  struct alignas(64) Lane {
    mutable Mutex mutex;
    uint32_t head KVBM_GUARDED_BY(mutex) = kNoSlot;
    uint32_t tail KVBM_GUARDED_BY(mutex) = kNoSlot;
    uint32_t free KVBM_GUARDED_BY(mutex) = 0;
    uint32_t retired KVBM_GUARDED_BY(mutex) = 0;
  };
  struct Page {
    uint32_t lane;
    std::atomic<uint64_t> words[kPageHolds];
    std::atomic<uint32_t> slot_generations[kPageHolds];
  };
  // Finds entries by number. Those of a batch were made together, so the last page is remembered.
  class Entries {
   public:
    explicit Entries(const HoldTable& table) noexcept : table_(table) {}
    // Returns null if there is no such page.
    Page* page(uint32_t index) noexcept {
      const uint32_t number = index / kPageHolds;
      if (number == number_) [[likely]]
        return page_;
      if (number >= table_.page_count_.load(std::memory_order_acquire)) return nullptr;
      number_ = number;
      return page_ = table_.pages_[number].load(std::memory_order_acquire);
    }
    // The entry must exist.
    std::atomic<uint64_t>& word(uint32_t index) noexcept { return page(index)->words[index % kPageHolds]; }

   private:
    const HoldTable& table_;
    uint32_t number_ = UINT32_MAX;
    Page* page_ = nullptr;
  };
  // Holds one lane's lock at a time, as long as consecutive holds are in that lane.
  class LaneLock;
  // Holds the locks of all lanes that a batch has holds in, taken in the order of the lanes: meanwhile no hold of the
  // batch can end.
  class BatchLanes {
   public:
    BatchLanes(HoldTable& table, std::span<const HoldValue> values) noexcept KVBM_NO_TSA;
    ~BatchLanes() KVBM_NO_TSA;
    BatchLanes(const BatchLanes&) = delete;
    BatchLanes& operator=(const BatchLanes&) = delete;

   private:
    HoldTable& table_;
    uint32_t lanes_ = 0;  // one bit each
  };

  // Word of an entry: slot (0-31) | generation (32-55) | kind (56-58, 0 = free). A free entry's slot
  // field is the next free entry, its generation the one that its next hold gets.
  static constexpr unsigned kGenerationShift = 32;
  static constexpr unsigned kKindShift = 56;
  static constexpr unsigned kTagShift = 56;
  static constexpr uint64_t kOneGeneration = uint64_t{1} << kGenerationShift;
  // Kind of an entry between take_all() and settle(): in use, but no hold.
  static constexpr uint8_t kTaken = 4;
  static constexpr uint64_t make_word(SlotId slot, uint32_t generation, uint8_t kind) {
    return static_cast<uint64_t>(slot) | static_cast<uint64_t>(generation) << kGenerationShift |
           static_cast<uint64_t>(kind) << kKindShift;
  }
  static constexpr SlotId slot_of(uint64_t word) { return static_cast<SlotId>(word); }
  static constexpr uint32_t generation_of(uint64_t word) {
    return static_cast<uint32_t>(word >> kGenerationShift) & kMaxGeneration;
  }
  static constexpr uint8_t kind_of(uint64_t word) { return static_cast<uint8_t>(word >> kKindShift); }
  static constexpr bool is_hold(uint64_t word) { return static_cast<uint8_t>(kind_of(word) - 1) < kTaken - 1; }
  static constexpr HoldValue make_value(uint32_t index, uint32_t generation, uint8_t tag) {
    return static_cast<uint64_t>(index) | static_cast<uint64_t>(generation) << kGenerationShift |
           static_cast<uint64_t>(tag) << kTagShift;
  }
  static constexpr uint32_t index_of(HoldValue value) { return static_cast<uint32_t>(value); }

  [[nodiscard]] Code check(HoldValue value, Entries& entries, uint64_t* word) const noexcept;
  [[nodiscard]] Code resolve_by(Entries& entries, HoldValue value, Hold* out) const noexcept;
  [[nodiscard]] Code grow(uint32_t number) KVBM_EXCLUDES(growing_);
  // Makes as many holds as the lane has entries, at most out.size(); returns their number.
  size_t create_in(Lane& lane, HoldKind kind, std::span<const SlotId> slots, std::span<const uint32_t> slot_generations,
                   std::span<HoldValue> out) noexcept;
  // All three run under the lock of the hold's lane, which the thread-safety analysis cannot know.
  [[nodiscard]] Code take_resolved(std::span<HoldValue> inout, std::span<const SlotId> slots) noexcept;
  void end_one(Lane& lane, HoldValue value, Entries& entries) noexcept KVBM_NO_TSA;
  void put_back(Lane& lane, uint32_t index, Entries& entries) noexcept KVBM_NO_TSA;

  const uint8_t tag_;
  const uint32_t max_pages_;
  const uint32_t first_generation_;
  std::unique_ptr<std::atomic<Page*>[]> pages_;
  std::atomic<uint32_t> page_count_{0};
  Mutex growing_;  // held over a lane's
  std::array<Lane, kLanes> lanes_;
};

// Inlined: several calls resolve each of their blocks.
inline Code HoldTable::check(HoldValue value, Entries& entries, uint64_t* word) const noexcept {
  if (static_cast<uint8_t>(value >> kTagShift) != tag_) [[unlikely]]
    return value == kNoHold ? Code::invalid_argument : Code::foreign_handle;
  const uint32_t index = index_of(value);
  const Page* const page = entries.page(index);
  if (page == nullptr) [[unlikely]]
    return Code::stale_handle;
  *word = page->words[index % kPageHolds].load(std::memory_order_acquire);
  if (is_hold(*word) && generation_of(*word ^ value) == 0) [[likely]]
    return Code::ok;
  return value == kNoHold ? Code::invalid_argument : Code::stale_handle;
}

inline Code HoldTable::resolve_all(std::span<const HoldValue> values, HoldKind kind,
                                   std::span<SlotId> out) const noexcept {
  Entries entries(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t word = 0;
    const Code code = check(values[i], entries, &word);
    if (code != Code::ok) return code;
    if (kind_of(word) != static_cast<uint8_t>(kind)) return Code::wrong_state;
    out[i] = slot_of(word);
  }
  return Code::ok;
}

template <class Use>
Code HoldTable::use_all(std::span<const HoldValue> values, HoldKind kind, std::span<SlotId> out, Use&& use) {
  const BatchLanes none_ends(*this, values);
  const Code code = resolve_all(values, kind, out);
  return code == Code::ok ? use() : code;
}

template <class Use>
Code HoldTable::take_all(std::span<HoldValue> inout, HoldKind kind, std::span<SlotId> out, Use&& use) {
  return use_all(inout, kind, out, [&] {
    const Code code = use();
    return code == Code::ok ? take_resolved(inout, out) : code;
  });
}

}  // namespace kvbm::block

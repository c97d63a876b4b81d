// The state of one slot: a 64-bit word that every transition goes through, and the identity beside it.
//
// Invariant: the word decides. A slot can be evicted when nothing keeps it: registered, no reference, no pin, not
// withdrawn, and no child either unless a tier below has the block too. The eviction is one compare-and-swap from that
// value, so it cannot race with a new reference, a new child or a new pin. The identity changes only while the state is
// not `registered`. Readers take a reference first and compare afterwards, so the identity cannot change under them.
// Memory order: a transition to `registered` releases, taking a reference acquires.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/ids.h"

namespace kvbm::block {

// reset: on the free list. partial: its owner writes. complete: bytes are final, no name yet. registered: findable (or
// withdrawn and still held). evicting: being removed, its bytes are about to change.
enum class SlotState : uint8_t { reset = 0, partial = 1, complete = 2, registered = 3, evicting = 4 };

// A value of the word. bits: 0-2 state, 3 withdrawn, 4 notify, 5-25 references,
// 26-46 resident children, 47-63 pins.
class SlotWord {
 public:
  static constexpr uint64_t kStateMask = 0x7;
  // No longer findable (erased, or a private duplicate); the slot is freed when nothing keeps it.
  static constexpr uint64_t kWithdrawn = 1ULL << 3;
  // The policy may have no candidate for this slot: the thread that makes it evictable notifies the policy.
  static constexpr uint64_t kNotify = 1ULL << 4;
  static constexpr uint64_t kOneReference = 1ULL << 5;
  static constexpr uint64_t kReferenceMask = 0x1FFFFFULL << 5;
  static constexpr uint64_t kOneChild = 1ULL << 26;
  static constexpr uint64_t kChildMask = 0x1FFFFFULL << 26;
  static constexpr uint64_t kOnePin = 1ULL << 47;
  static constexpr uint64_t kPinMask = 0x1FFFFULL << 47;
  // Largest counts. The rest of a field is for calls that add to the count before they look at it.
  static constexpr uint32_t kMaxReferences = 0x1FFFFF - 0xFFFF;
  static constexpr uint32_t kMaxChildren = 0x1FFFFF - 0xFFFF;
  static constexpr uint32_t kMaxPins = 0x1FFFF;
  static constexpr uint64_t kRegistered = static_cast<uint64_t>(SlotState::registered);

  explicit constexpr SlotWord(uint64_t bits) : bits_(bits) {}
  constexpr explicit SlotWord(SlotState state) : bits_(static_cast<uint64_t>(state)) {}
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }
  [[nodiscard]] constexpr SlotState state() const { return static_cast<SlotState>(bits_ & kStateMask); }
  [[nodiscard]] constexpr bool withdrawn() const { return (bits_ & kWithdrawn) != 0; }
  [[nodiscard]] constexpr bool notify() const { return (bits_ & kNotify) != 0; }
  [[nodiscard]] constexpr uint32_t references() const { return static_cast<uint32_t>((bits_ & kReferenceMask) >> 5); }
  [[nodiscard]] constexpr uint32_t children() const { return static_cast<uint32_t>((bits_ & kChildMask) >> 26); }
  [[nodiscard]] constexpr uint32_t pins() const { return static_cast<uint32_t>(bits_ >> 47); }
  // A lookup may take a reference.
  [[nodiscard]] constexpr bool findable() const { return (bits_ & (kStateMask | kWithdrawn)) == kRegistered; }
  [[nodiscard]] constexpr bool evictable() const { return (bits_ & ~kNotify) == kRegistered; }
  // Would be evictable without its children.
  [[nodiscard]] constexpr bool only_followed() const {
    return (bits_ & ~(kNotify | kChildMask)) == kRegistered && (bits_ & kChildMask) != 0;
  }
  // Withdrawn and no longer kept.
  [[nodiscard]] constexpr bool reapable() const { return (bits_ & ~kNotify) == (kRegistered | kWithdrawn); }

 private:
  uint64_t bits_;
};
static_assert((SlotWord::kStateMask ^ SlotWord::kWithdrawn ^ SlotWord::kNotify ^ SlotWord::kReferenceMask ^
               SlotWord::kChildMask ^ SlotWord::kPinMask) == ~0ULL);
static_assert((SlotWord::kStateMask & SlotWord::kWithdrawn) == 0 &&
              (SlotWord::kReferenceMask & SlotWord::kChildMask) == 0);
static_assert(static_cast<uint64_t>(SlotState::evicting) <= SlotWord::kStateMask);

// Half a cache line: all that a lookup reads and writes.
struct alignas(32) Slot {
  std::atomic<uint64_t> word{0};
  std::atomic<uint64_t> key_low{0};
  std::atomic<uint64_t> key_high{0};
  std::atomic<uint32_t> family{0};
  std::atomic<uint32_t> parent{kNoSlot};  // counts this slot as a child (Parents); kNoSlot: none

  [[nodiscard]] bool is(uint64_t low, uint64_t high, FamilyId fam) const noexcept {
    return key_low.load(std::memory_order_relaxed) == low && key_high.load(std::memory_order_relaxed) == high &&
           family.load(std::memory_order_relaxed) == fam;
  }
  [[nodiscard]] Identity identity() const noexcept {
    const uint64_t low = key_low.load(std::memory_order_relaxed);
    const uint64_t high = key_high.load(std::memory_order_relaxed);
    Identity id;
    std::memcpy(id.key.bytes.data(), &low, sizeof low);
    std::memcpy(id.key.bytes.data() + 8, &high, sizeof high);
    id.family = family.load(std::memory_order_relaxed);
    return id;
  }
};
static_assert(sizeof(Slot) == 32);

// Fields that lookups do not touch.
struct SlotMeta {
  std::atomic<uint32_t> generation{1};  // grows each time that the slot is freed; names a block for weak references
  std::atomic<uint16_t> account{0};     // changes only while no other thread has the slot
  std::atomic<uint8_t> flags{0};        // the manager's
  uint8_t in_policy = 0;                // under the pool's lock: the account's policy got `inserted`
  std::atomic<uint32_t> bytes{0};       // payload; the manager's; here for scans without a hold
};
static_assert(sizeof(SlotMeta) == 12);

// A block as its child knows it. The parent may be evicted first; then its slot has another generation, and maybe
// another block.
struct Parent {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // as many of its low bits as fit
};

// Packs a Parent into Slot::parent: the slot, and above it as much of the generation as 32 bits hold. A parent that is
// gone is mistaken for the new block in its slot only after 2^32 blocks of the table, and hardly ever then. That block
// counts a child too few, which is no more than a hint for eviction.
class Parents {
 public:
  explicit Parents(uint32_t slots) : bits_(static_cast<uint32_t>(std::bit_width(slots))) {}

  // Never returns the value kNoSlot, because no slot number has all bits set.
  [[nodiscard]] uint32_t pack(SlotId slot, uint32_t generation) const noexcept {
    return static_cast<uint32_t>(slot | uint64_t{generation} << bits_);
  }
  [[nodiscard]] Parent unpack(uint32_t packed) const noexcept {
    if (packed == kNoSlot) return {};
    const auto mask = static_cast<uint32_t>((uint64_t{1} << bits_) - 1);
    return {packed & mask, static_cast<uint32_t>(uint64_t{packed} >> bits_)};
  }
  [[nodiscard]] bool is_there(const Parent& parent, uint32_t generation) const noexcept {
    return parent.generation ==
           static_cast<uint32_t>(uint64_t{static_cast<uint32_t>(uint64_t{generation} << bits_)} >> bits_);
  }

 private:
  const uint32_t bits_;  // of a slot
};

}  // namespace kvbm::block

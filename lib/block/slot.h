// The state of one slot: a 64-bit word that every transition goes through, and the identity beside it.
//
// Invariant: the word is the truth. A slot can be evicted when nothing keeps it: registered, no reference, no pin, not
// withdrawn, and no child either unless a tier below has the block too. The eviction is one compare-and-swap from that
// value, so it cannot race with a new reference, a new child or a new pin. The identity changes only while the state is not `registered`; readers take
// a reference first and compare afterwards, so what they compared cannot change under them.
// Memory order: a transition to `registered` releases, taking a reference acquires.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/ids.h"

namespace kvbm::block {

// reset: on the free list. partial: its owner writes. complete: bytes are final, no name yet.
// registered: findable (or withdrawn and still held). evicting: being taken out, bytes are going.
enum class SlotState : uint8_t { reset = 0, partial = 1, complete = 2, registered = 3, evicting = 4 };

// A value of the word. bits: 0-2 state, 3 withdrawn, 4 notify, 5-25 references,
// 26-46 resident children, 47-63 pins.
class SlotWord {
 public:
  static constexpr uint64_t kStateMask = 0x7;
  // No longer findable (erased, or a private duplicate); the slot is freed when nothing keeps it.
  static constexpr uint64_t kWithdrawn = 1ULL << 3;
  // The policy may have no candidate for this slot: who makes it evictable tells the policy.
  static constexpr uint64_t kNotify = 1ULL << 4;
  static constexpr uint64_t kOneReference = 1ULL << 5;
  static constexpr uint64_t kReferenceMask = 0x1FFFFFULL << 5;
  static constexpr uint64_t kOneChild = 1ULL << 26;
  static constexpr uint64_t kChildMask = 0x1FFFFFULL << 26;
  static constexpr uint64_t kOnePin = 1ULL << 47;
  static constexpr uint64_t kPinMask = 0x1FFFFULL << 47;
  // Beyond these no more are counted; the rest of a field is for calls that count before they look.
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
  // The same but for the blocks that follow.
  [[nodiscard]] constexpr bool only_followed() const {
    return (bits_ & ~(kNotify | kChildMask)) == kRegistered && (bits_ & kChildMask) != 0;
  }
  // Withdrawn and kept by nothing any more.
  [[nodiscard]] constexpr bool reapable() const { return (bits_ & ~kNotify) == (kRegistered | kWithdrawn); }

 private:
  uint64_t bits_;
};
static_assert((SlotWord::kStateMask ^ SlotWord::kWithdrawn ^ SlotWord::kNotify ^ SlotWord::kReferenceMask ^
               SlotWord::kChildMask ^ SlotWord::kPinMask) == ~0ULL);
static_assert((SlotWord::kStateMask & SlotWord::kWithdrawn) == 0 &&
              (SlotWord::kReferenceMask & SlotWord::kChildMask) == 0);
static_assert(static_cast<uint64_t>(SlotState::evicting) <= SlotWord::kStateMask);

// Half a cache line: what a lookup reads and writes.
struct alignas(32) Slot {
  std::atomic<uint64_t> word{0};
  std::atomic<uint64_t> key_low{0};
  std::atomic<uint64_t> key_high{0};
  std::atomic<uint32_t> family{0};
  std::atomic<uint32_t> parent{kNoSlot};  // whose word counts this one (Parents); kNoSlot: none

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

// What lookups do not touch.
struct SlotMeta {
  std::atomic<uint32_t> generation{1};  // grows each time that the slot is freed; names a block for weak references
  std::atomic<uint16_t> account{0};     // changes while nobody else has the slot
  std::atomic<uint8_t> flags{0};        // the manager's
  uint8_t in_policy = 0;                // under the pool's lock: the account's policy has heard `inserted`
  std::atomic<uint32_t> bytes{0};       // of payload: the manager's; here so that a scan reads it without a hold
};
static_assert(sizeof(SlotMeta) == 12);

// A block as its child knows it: a parent may leave first, and its slot is another block's then, of another generation.
struct Parent {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // as many of its low bits as there is room for
};

// How that lies in Slot::parent: the slot, and above it as much of the generation as 32 bits hold. So a parent that has
// left is taken for what has come in its place only if that came 2^32 blocks of the table later, and hardly ever then; it
// counts a child less than it has, which is no more than a hint of what may go first.
class Parents {
 public:
  explicit Parents(uint32_t slots) : bits_(static_cast<uint32_t>(std::bit_width(slots))) {}

  // Never kNoSlot: no slot has all bits of a slot.
  [[nodiscard]] uint32_t pack(SlotId slot, uint32_t generation) const noexcept {
    return static_cast<uint32_t>(slot | uint64_t{generation} << bits_);
  }
  [[nodiscard]] Parent unpack(uint32_t packed) const noexcept {
    if (packed == kNoSlot) return {};
    const auto mask = static_cast<uint32_t>((uint64_t{1} << bits_) - 1);
    return {packed & mask, static_cast<uint32_t>(uint64_t{packed} >> bits_)};
  }
  [[nodiscard]] bool is_there(const Parent& parent, uint32_t generation) const noexcept {
    return parent.generation == static_cast<uint32_t>(uint64_t{static_cast<uint32_t>(uint64_t{generation} << bits_)} >> bits_);
  }

 private:
  const uint32_t bits_;  // of a slot
};

}  // namespace kvbm::block

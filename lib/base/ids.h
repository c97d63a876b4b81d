// The plain identities that all layers use. They own nothing and mean nothing alone.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvbm {

// The name of a block's content inside its namespace: 16 bytes out of SHA-256 (codec/record/key.h).
struct Key {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Key&) const = default;
  // Compares two words, because compilers turn the comparison of the array into a call of memcmp.
  bool operator==(const Key& other) const noexcept { return low() == other.low() && high() == other.high(); }
  // Keys are uniformly distributed, so any 8 of their bytes are a hash.
  [[nodiscard]] uint64_t low() const noexcept {
    uint64_t v;
    std::memcpy(&v, bytes.data(), sizeof v);
    return v;
  }
  [[nodiscard]] uint64_t high() const noexcept {
    uint64_t v;
    std::memcpy(&v, bytes.data() + 8, sizeof v);
    return v;
  }
};
static_assert(sizeof(Key) == 16);

// First 128 bits of HMAC-SHA256 over a namespace's description (codec/record/key.h).
struct NamespaceId {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const NamespaceId&) const = default;
};
static_assert(sizeof(NamespaceId) == 16);

// Part of the whole model that a record holds (format: docs/formats.md, Identity). `replicated` marks a part that every
// rank of a group holds in full (MLA latents).
struct Shard {
  uint16_t first_layer = 0;
  uint16_t layers = 0;
  uint16_t first_head = 0;
  uint16_t heads = 0;
  uint16_t replicated = 0;
  auto operator<=>(const Shard&) const = default;
};

// A component of a hybrid model's block: full attention, a sliding window, a latent, a state.
using Component = uint16_t;

// Identity of a record = (namespace id, key, component, shard). The first, third and fourth
// repeat over millions of blocks, so they are interned once: a Family is that triple plus the
// geometry that both sides must share. 0 is a valid family.
using FamilyId = uint32_t;

struct Identity {
  Key key;
  FamilyId family = 0;
  auto operator<=>(const Identity&) const = default;
  // Uniform, and different for equal keys of different families.
  [[nodiscard]] uint64_t hash() const noexcept {
    return key.low() ^ (static_cast<uint64_t>(family) * 0x9E3779B97F4A7C15ULL);
  }
};

// For maps of the standard library. Uses both halves of the key: keys made by callers may differ in one half only.
struct IdentityHash {
  size_t operator()(const Identity& id) const noexcept { return id.hash() + id.key.high() * 0x9E3779B97F4A7C15ULL; }
};

struct Family {
  NamespaceId ns;
  uint64_t geometry = 0;  // fingerprint, layout/geometry.h; 0 = opaque bytes
  Component component = 0;
  Shard shard;
  auto operator<=>(const Family&) const = default;
};

// A slot of a block table: the place of a block while it is resident in a memory tier.
using SlotId = uint32_t;
inline constexpr SlotId kNoSlot = UINT32_MAX;

// Position of a tier in the manager's order, fastest first.
using TierIndex = uint8_t;
inline constexpr TierIndex kNoTier = UINT8_MAX;

// A namespace, by the id of its epoch 0, and its present epoch.
struct NamespaceEpoch {
  NamespaceId base;
  uint64_t epoch = 0;
};

}  // namespace kvbm

// HKDF with SHA-256 (RFC 5869): keys out of keys. Pure functions; no allocation.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace kvbm::codec {

inline constexpr size_t kDerivedKeyBytes = 32;  // one output of SHA-256
using DerivedKey = std::array<uint8_t, kDerivedKeyBytes>;

// HKDF-Extract(salt, input), both of any length.
[[nodiscard]] DerivedKey hkdf_extract(ConstBytes salt, ConstBytes input) noexcept;
// HKDF-Expand(key, info) into all of `out`. False: more than 255 x 32 bytes wanted, nothing is written.
[[nodiscard]] bool hkdf_expand(const DerivedKey& key, ConstBytes info, MutableBytes out) noexcept;
// Overwrites the key in a way that the compiler does not remove.
void wipe(DerivedKey& key) noexcept;

}  // namespace kvbm::codec

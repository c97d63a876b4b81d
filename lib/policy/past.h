// Reuse class of a block in the default policy, besides its age, in seven bits: stored in the facts while the block is
// resident, in the history afterwards. It determines the kind: returns are counted and slots listed by kind.
//
// New blocks are classified by whether they begin a prefix or continue one, and by how many came together: a short
// question below a long history is followed by another more often than a pasted document. Returned blocks are
// classified by the number of returns, up to kTimes, and above that by their usual gap. For a shared document or a
// system prompt, the gap shows how popular it is now; a count would show how old it is.
//
// Locks: none.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "policy/return_curve.h"

namespace kvbm::policy {

enum Past : uint8_t {
  kFresh = 0,      // + growth_of(): of a prompt that began a new prefix
  kContinued = 4,  // + growth_of(): new, but below a prefix that was known
  kOneShot = 8,
  kKeep = 9,
  kTail = 10,      // the last block of a request: a partial block, or the end of a prompt
  kReturned = 11,  // + (times - 1) * kGaps + the mean gap in half octaves of ticks
};
inline constexpr uint32_t kGaps = 28;
inline constexpr uint32_t kTimes = 4;  // this many or more
inline constexpr uint32_t kGapKinds = 10;
inline constexpr uint32_t kPasts = kReturned + kTimes * kGaps;
static_assert(kPasts <= 128 && kReturned + kTimes - 1 + kGapKinds <= kKinds);

[[nodiscard]] inline uint8_t growth_of(size_t blocks) noexcept {
  return blocks <= 2 ? 0 : blocks <= 4 ? 1 : blocks <= 8 ? 2 : 3;
}

[[nodiscard]] constexpr uint8_t returned_past(uint32_t times, uint32_t gap) noexcept {
  return static_cast<uint8_t>(kReturned + (std::min(times, kTimes) - 1) * kGaps + gap);
}

// Maps gaps to kinds by octaves; those below 12 ticks share a kind, and those from 3,072.
[[nodiscard]] constexpr uint8_t kind_of_past(uint32_t past) noexcept {
  if (past < kReturned) return static_cast<uint8_t>(past);
  const uint32_t times = (past - kReturned) / kGaps + 1;
  if (times < kTimes) return static_cast<uint8_t>(kReturned + times - 1);
  const uint32_t octave = (past - kReturned) % kGaps / 2;
  return static_cast<uint8_t>(kReturned + kTimes - 1 + std::clamp(octave, 2U, kGapKinds + 1) - 2);
}

inline constexpr auto kKindOfPast = [] {
  std::array<uint8_t, 128> kinds{};
  for (uint32_t past = 0; past < kPasts; ++past) kinds[past] = kind_of_past(past);
  return kinds;
}();

[[nodiscard]] inline uint32_t half_octaves(uint32_t ticks) noexcept {
  if (ticks < 2) return 0;
  const auto top = static_cast<uint32_t>(std::bit_width(ticks)) - 1;
  return std::min(kGaps - 1, 2 * top - 1 + (ticks >> (top - 1) & 1));
}

// Returns the class after a return at this age. The mean of the logarithms covers all gaps at first, later the latest 8
// or so. It moves in whole steps, rounded up or down at random (`dither`); otherwise small differences would never
// count.
[[nodiscard]] inline uint8_t after_return(uint8_t past, uint32_t age, uint32_t dither) noexcept {
  if (past == kOneShot || past == kKeep) return past;
  const auto latest = static_cast<int32_t>(half_octaves(age));
  if (past < kReturned) {
    const bool continued = past >= kContinued && past < kOneShot;  // the prefix has returned already
    return returned_past(continued ? 2 : 1, static_cast<uint32_t>(latest));
  }
  const uint32_t times = static_cast<uint32_t>(past - kReturned) / kGaps + 1;
  const auto mean = static_cast<int32_t>(static_cast<uint32_t>(past - kReturned) % kGaps);
  const int32_t of = times < kTimes ? static_cast<int32_t>(times) + 1 : 8;
  const auto up = static_cast<int32_t>((dither * 2654435761U >> 8) % static_cast<uint32_t>(of));
  const int32_t step = latest >= mean ? (latest - mean + up) / of : -((mean - latest + up) / of);
  return returned_past(times + 1, static_cast<uint32_t>(mean + step));
}

}  // namespace kvbm::policy

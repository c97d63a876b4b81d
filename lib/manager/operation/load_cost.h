// Predicts when the keys of a match would be in place, by the measured costs of their sources.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "copy/cost.h"
#include "manager/operation/match.h"

namespace kvbm::manager {

class LowerTiers;

// Keys are added in their order. Sources work in parallel, and all bytes that they deliver are copied once more.
class Arrivals {
 public:
  // `flowing`: reads are in progress already, so the wait for a first byte is left out.
  Arrivals(LowerTiers& lower, uint64_t now_ns, bool flowing) noexcept;
  // Adds bytes of the next key. Source 0 is the host, or a record read in place.
  void add(TierIndex source, uint64_t bytes) noexcept;
  // Returns when everything added so far is in place, relative to `now_ns`.
  [[nodiscard]] uint64_t ns() const noexcept { return ns_; }

 private:
  static constexpr size_t kSources = 8;
  std::array<copy::Expectation, kSources> expect_;
  std::array<uint64_t, kSources> bytes_{};
  uint64_t ns_ = 0;
};

// Returns the bytes of one part of a key in its tier.
[[nodiscard]] uint64_t payload_bytes(const Match& match, size_t part, size_t key) noexcept;

// Sets out[i] to the predicted time of a load of keys [first, first + i].
void predict_load(const Match& match, size_t first, std::span<uint64_t> out) noexcept;

}  // namespace kvbm::manager

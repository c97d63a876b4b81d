// When the keys of a match would be in place, as the costs of their sources have it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "copy/cost.h"
#include "manager/match.h"

namespace kvbm::manager {

// Keys are added in their order; sources work at the same time, and everything they bring is copied once more.
class Arrivals {
 public:
  // `flowing`: what has begun already, without the wait for a first byte.
  Arrivals(Manager& manager, uint64_t now_ns, bool flowing) noexcept;
  // Bytes of the next key; 0 is the host, or what is read in place.
  void add(TierIndex source, uint64_t bytes) noexcept;
  // When everything added so far is in place, from `now_ns` on.
  [[nodiscard]] uint64_t ns() const noexcept { return ns_; }

 private:
  static constexpr size_t kSources = 8;
  std::array<copy::Expectation, kSources> expect_;
  std::array<uint64_t, kSources> bytes_{};
  uint64_t ns_ = 0;
};

// Bytes of one part of a key, wherever it is.
[[nodiscard]] uint64_t payload_bytes(const Match& match, size_t part, size_t key) noexcept;

// out[i]: predicted time of a load of keys [first, first + i].
void predict_load(const Match& match, size_t first, std::span<uint64_t> out) noexcept;

}  // namespace kvbm::manager

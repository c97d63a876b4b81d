// Estimates when blocks of a kind return. For every kind and age, counts of returns and losses by age give the best
// rate of hits for the space that keeping the block takes:
//   index(kind, age) = max over T of P(returns in [age, T)) / E[time kept in [age, T)]
// This is the Gittins index of a job with that hazard (Gittins 1979; for caches: Beckmann and Sanchez, "Maximizing
// Cache Performance Under Uncertainty", HPCA 2017). Blocks of the least index are evicted first. Hazards are
// Kaplan-Meier estimates, drawn towards those of all kinds by kShrink.
//
// Locks: none. Budget: 19 KiB; compute() of a kind is 2,048 steps, of all 24 once in several thousand evictions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvbm::policy {

inline constexpr size_t kKinds = 24;
inline constexpr size_t kAges = 64;  // four an octave, in ticks

[[nodiscard]] inline size_t age_bucket(uint32_t age) noexcept {
  if (age < 4) return age;
  const auto top = static_cast<uint32_t>(std::bit_width(age)) - 1;
  return std::min<size_t>(size_t{top - 1} * 4 + ((age >> (top - 2)) & 3), kAges - 1);
}
// Returns the least age of a bucket.
[[nodiscard]] inline uint32_t bucket_start(size_t bucket) noexcept {
  if (bucket < 4) return static_cast<uint32_t>(bucket);
  return static_cast<uint32_t>(4 + bucket % 4) << (bucket / 4 - 1);
}

class ReturnCurve {
 public:
  // Initial order: least recently used first, with twice the time for kinds that have returned before.
  explicit ReturnCurve(size_t first_returned) noexcept {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const float weight = kind < first_returned ? 1.0F : 2.0F;
      for (size_t b = 0; b < kAges; ++b) index_[kind][b] = weight / static_cast<float>(1 + bucket_start(b));
    }
  }

  void returned(size_t kind, uint32_t age) noexcept { returned_[kind][age_bucket(age)] += 1; }
  // Counts a block that was forgotten at this age without having returned.
  void lost(size_t kind, uint32_t age) noexcept { lost_[kind][age_bucket(age)] += 1; }
  [[nodiscard]] float index(size_t kind, size_t bucket) const noexcept { return index_[kind][bucket]; }

  // `waiting`: blocks, resident or remembered, that have reached this age and not yet returned. Call pool() first, for
  // all kinds together, then compute() for each kind, which also reduces the weight of its older counts.
  using Waiting = std::array<std::array<uint32_t, kAges>, kKinds>;
  void pool(const Waiting& waiting) noexcept {
    float reached = 0;
    for (size_t b = kAges; b > 0; --b) {
      float returned = 0;
      for (size_t kind = 0; kind < kKinds; ++kind) {
        returned += returned_[kind][b - 1];
        reached += returned_[kind][b - 1] + lost_[kind][b - 1] + static_cast<float>(waiting[kind][b - 1]);
      }
      all_[b - 1] = (returned + 1e-4F) / (reached + 1);
    }
    unseen_known_ = false;
  }

  void compute(const Waiting& waiting, size_t kind) noexcept {
    std::array<float, kAges> hazard{};
    float reached = 0;
    for (size_t b = kAges; b > 0; --b) {
      const size_t i = b - 1;
      reached += returned_[kind][i] + lost_[kind][i] + static_cast<float>(waiting[kind][i]);
      hazard[i] = std::min(0.99F, (returned_[kind][i] + kShrink * all_[i]) / (reached + kShrink));
    }
    const bool unseen = reached == 0;  // all unseen kinds are alike, and most kinds are unseen
    if (unseen && unseen_known_) {
      index_[kind] = unseen_;
      return;
    }
    for (size_t b = 0; b < kAges; ++b) index_[kind][b] = best_rate(hazard, b);
    if (unseen) unseen_ = index_[kind];
    unseen_known_ = unseen_known_ || unseen;
    for (size_t b = 0; b < kAges; ++b) {
      returned_[kind][b] *= kKeep;
      lost_[kind][b] *= kKeep;
    }
  }

 private:
  // Chosen on generated chat, agent, retrieval and mixed traces, learning every 4,096 evictions:
  // hit rates move by at most 0.8 points from 50 to 1000 blocks and from 0.5 to 0.95, either way.
  static constexpr float kShrink = 200;
  static constexpr float kKeep = 0.9F;

  [[nodiscard]] static float best_rate(const std::array<float, kAges>& hazard, size_t from) noexcept {
    float alive = 1;
    float gained = 0;
    float spent = 0;
    float best = 0;
    for (size_t b = from; b < kAges; ++b) {
      const auto width =
          static_cast<float>(b + 1 < kAges ? bucket_start(b + 1) - bucket_start(b) : bucket_start(b) / 4);
      gained += alive * hazard[b];
      spent += alive * width * (1 - hazard[b] / 2);
      alive *= 1 - hazard[b];
      best = std::max(best, gained / spent);
    }
    return best;
  }

  using Table = std::array<std::array<float, kAges>, kKinds>;
  Table returned_{};
  Table lost_{};
  Table index_{};
  std::array<float, kAges> all_{};
  std::array<float, kAges> unseen_{};  // index of a kind without any observation
  bool unseen_known_ = false;
};

}  // namespace kvbm::policy

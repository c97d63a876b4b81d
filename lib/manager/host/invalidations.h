// Invalidations in progress. Blocks that are read from a tier while their family is invalidated must not stay in the
// host: the reader takes a mark before it asks the tier, and compares it after it has published the blocks.
//
// Each counter is shared by several families. Sharing can cause an extra miss, never a stale block. Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace kvbm::manager {

class Invalidations {
  struct Count {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
  };
  static constexpr size_t kCounts = 64;

 public:
  // The mark of a family that is being invalidated.
  static constexpr uint64_t kInProgress = UINT64_MAX;

  // Reads `ended` first: equal counts then prove that no invalidation was in progress in between.
  [[nodiscard]] uint64_t mark(FamilyId family) const noexcept {
    const Count& count = counts_[family % kCounts];
    const uint64_t ended = count.ended.load();
    const uint64_t begun = count.begun.load();
    return begun == ended ? begun : kInProgress;
  }
  [[nodiscard]] bool since(FamilyId family, uint64_t mark) const noexcept {
    return mark == kInProgress || counts_[family % kCounts].begun.load() != mark;
  }

  // An invalidation of one family, or of all: begins before the host drops blocks, ends after the tiers have.
  class Scope {
   public:
    Scope(Invalidations& all, FamilyId family) noexcept : Scope(std::span(all.counts_).subspan(family % kCounts, 1)) {}
    explicit Scope(Invalidations& all) noexcept : Scope(std::span(all.counts_)) {}
    ~Scope() {
      for (Count& count : counts_) count.ended.fetch_add(1);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    explicit Scope(std::span<Count> counts) noexcept : counts_(counts) {
      for (Count& count : counts_) count.begun.fetch_add(1);
    }
    std::span<Count> counts_;
  };

 private:
  std::array<Count, kCounts> counts_;
};

}  // namespace kvbm::manager

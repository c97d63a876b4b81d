// Admission: decides which blocks are worth writing to the tier below. Judges by name only, so that it also works for
// blocks that are no longer resident. Locks: none, the caller serialises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "policy/sketch.h"

namespace kvbm::policy {

struct AdmissionOptions {
  size_t capacity = 65536;  // blocks of the tier below; bounds the memory for uses
  uint32_t uses = 2;        // after_uses, frequency: required uses, from 1 to 15
};

class Admission {
 public:
  // Admits every block, or none.
  explicit Admission(bool every) noexcept : every_(every) {}
  // Admits blocks with enough uses. `fades`: old uses are forgotten as time passes.
  Admission(const AdmissionOptions& options, bool fades)
      : uses_(options.uses), counts_(std::in_place, options.capacity, fades) {}

  // A block was stored or hit.
  void used(uint64_t block) noexcept {
    if (counts_) counts_->add(block);
  }
  [[nodiscard]] bool admits(uint64_t block) const noexcept { return counts_ ? counts_->count(block) >= uses_ : every_; }

 private:
  bool every_ = false;
  uint32_t uses_ = 0;
  std::optional<Sketch> counts_;
};

// Names: "all"; "on_eviction": all, and the caller asks when a block is evicted instead of when it is stored;
// "after_uses": n uses, never forgotten until its 4-bit counters saturate or collide; "frequency": n recent uses,
// counters halve as time passes; "on_request": none, only blocks that a caller sends there explicitly.
// Returns null for an unknown name, or uses outside 1..15.
[[nodiscard]] std::unique_ptr<Admission> make_admission(std::string_view name, const AdmissionOptions& options);

}  // namespace kvbm::policy

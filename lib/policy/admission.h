// Admission: decides which blocks are worth writing to the tier below. Judges by name only, so that it also works for
// blocks that are no longer resident. Locks: none, the caller serialises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace kvbm::policy {

class Admission {
 public:
  virtual ~Admission() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  // A block was stored or hit.
  virtual void used(uint64_t block) noexcept = 0;
  [[nodiscard]] virtual bool admits(uint64_t block) const noexcept = 0;
  // True if the caller must ask when a block is evicted instead of when it is stored.
  [[nodiscard]] virtual bool on_eviction() const noexcept { return false; }
  [[nodiscard]] virtual size_t bytes() const noexcept = 0;
};

struct AdmissionOptions {
  size_t capacity = 65536;  // blocks of the tier below; bounds the memory for uses
  uint32_t uses = 2;        // after_uses, frequency: required uses, from 1 to 15
};

// Names: "all"; "on_eviction": all, asked at eviction; "after_uses": n uses, never forgotten until its 4-bit counters
// saturate or collide; "frequency": n recent uses, counters halve as time passes; "on_request": none, only blocks that
// a caller sends there explicitly.
// Returns null for an unknown name, or uses outside 1..15.
[[nodiscard]] std::unique_ptr<Admission> make_admission(std::string_view name, const AdmissionOptions& options);

}  // namespace kvbm::policy

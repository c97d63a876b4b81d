// The leaf hash: 64 bits over the raw bytes of one leaf, and copies that compute it on the way.
//
// Defined over 32 independent lanes of 64 bits (256 bytes a row), so that an AVX-512 register file, an AVX2 one or a
// GPU warp computes it in one pass. leaf_hash_reference is normative; every other implementation must equal it bit for
// bit. Unkeyed: it detects faults, not forgery (sealing does that). Position matters: swapping, dropping or repeating
// any bytes changes the hash.
//
// A verified copy loads each vector once and feeds that register to both the hash and the store:
// what was checked is what was written, even if the source changes under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace kvbm::codec {

[[nodiscard]] uint64_t leaf_hash_reference(ConstBytes bytes) noexcept;
[[nodiscard]] uint64_t leaf_hash(ConstBytes bytes) noexcept;

struct LeafState {
  alignas(64) uint64_t lanes[32];
  uint64_t row;  // rows taken so far
};

// Hashes bytes piece by piece, while they are in a cache. Every piece but the last is a multiple of 256 bytes.
class LeafHasher {
 public:
  LeafHasher() noexcept;
  void add(ConstBytes piece) noexcept;
  [[nodiscard]] uint64_t hash() const noexcept;
  // For a kernel that processes whole rows itself: the state before them, and after.
  [[nodiscard]] const LeafState& state() const noexcept { return state_; }
  void took(const LeafState& after) noexcept {
    bytes_ += (after.row - state_.row) * 256;
    state_ = after;
  }

 private:
  LeafState state_;
  uint64_t bytes_ = 0;
};

// Use of the target. `streaming` writes past the caches if the copy is large; `cached` leaves the target in the cache
// for a reader that follows at once.
enum class CopyHint { automatic, streaming, cached };

// Streaming stores are weakly ordered. Until the writing thread has fenced, another one may see the old bytes, even if
// it was notified through a lock or an atomic. Its own writes there may then be overwritten. `now`: the call fences
// before it returns. `later`: this thread calls order_copies() before it reports the target to another, even a target
// that it abandons. A fence waits until the last lines have been written, 0.1 to 0.2 us on an EPYC of 2024 (4 % of 64
// KiB). So a caller that copies many pieces fences once after all of them.
enum class CopyOrder { now, later };
void order_copies() noexcept;
// Orders copies at the end of a scope, however it is left.
struct CopiesOrdered {
  CopiesOrdered() = default;
  ~CopiesOrdered() { order_copies(); }
  CopiesOrdered(const CopiesOrdered&) = delete;
  CopiesOrdered& operator=(const CopiesOrdered&) = delete;
};

// memcpy(target, source, bytes) and leaf_hash(source) in one pass. No overlap.
uint64_t copy_hashed(std::byte* target, const std::byte* source, size_t bytes, CopyHint hint,
                     CopyOrder order = CopyOrder::now) noexcept;

// Gathers the pieces of `source`, in order, into `target` (as long as all of them together) and returns the hash of the
// bytes written. Scatter is the reverse; its hash is of the bytes read.
uint64_t gather_hashed(std::byte* target, std::span<const StridedRun> source, CopyHint hint,
                       CopyOrder order = CopyOrder::now) noexcept;
uint64_t scatter_hashed(std::span<const StridedRun> target, const std::byte* source, CopyHint hint,
                        CopyOrder order = CopyOrder::now) noexcept;

// Name of the implementation in use: "portable", or "avx2" or "avx512" with the cache that lines are prefetched into,
// "_l1" or "_l2". force_kernel(nullptr) restores the choice; returns false if a kernel is not available here.
[[nodiscard]] const char* kernel_name() noexcept;
bool force_kernel(const char* name) noexcept;

}  // namespace kvbm::codec

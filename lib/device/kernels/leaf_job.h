// Jobs of kernels, one a leaf: plain data, shared by nvcc and the CPU.
//
// Jobs are made on the CPU by the functions here, which also find how wide accesses may be: a kernel trusts a job.
#pragma once

#include <stdint.h>

namespace kvbm::device {

// The most bytes of one job: kMaxWarpsPerLeaf stripes.
inline constexpr uint32_t kStripeBytes = 4096;  // 16 rows of the leaf hash: the share of one warp
inline constexpr uint32_t kMaxWarpsPerLeaf = 16;
inline constexpr uint32_t kMaxJobBytes = kStripeBytes * kMaxWarpsPerLeaf;
// Threads of a block, of every kernel here. A block occupies a whole multiprocessor, so a bound on blocks is a bound on
// multiprocessors.
inline constexpr uint32_t kBlockThreads = 512;

// Pieces of `piece_bytes` in device memory, piece n at address + (n / count1) * stride0 + (n % count1) * stride1.
struct DeviceRun {
  uint64_t address;
  int64_t stride0;
  int64_t stride1;
  uint32_t piece_bytes;
  uint32_t piece_inverse;  // of division by multiplication: inverse_of
  uint32_t count1;
  uint32_t count1_inverse;
};

// Flags: whether to compare with `expected`; the widest access (1, 4, 8, 16) that every place of the run allows; the
// widest one of the record's side.
inline constexpr uint32_t kJobChecked = 1;
inline constexpr uint32_t kRunWidthShift = 8;
inline constexpr uint32_t kRecordWidthShift = 16;
inline constexpr uint32_t kWidthMask = 31;

// One leaf: the first `bytes` bytes of a run, and these bytes contiguous at `record`. Addresses are the device's.
struct alignas(16) LeafJob {
  DeviceRun run;
  uint64_t record;
  uint64_t expected;  // leaf hash that the bytes must have; used by scatters and checks
  uint32_t bytes;     // at most kMaxJobBytes
  uint32_t flags;
};
static_assert(sizeof(LeafJob) == 64, "uploaded as it is");

// Multiplier for divisions: n / d is __umulhi(n, inverse_of(d)) or one more, for all n, because the error n * (2^32 - d
// * inverse) / (d * 2^32) is below 1.
constexpr uint32_t inverse_of(uint32_t d) { return UINT32_MAX / d; }

// Returns the widest access that an address or a size with these bits allows.
constexpr uint32_t width_of(uint64_t bits) { return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 1; }

// Makes a run of count0 * count1 pieces; together at most 4 GiB, and none of the three numbers zero.
constexpr DeviceRun make_run(uint64_t address, uint64_t piece_bytes, uint32_t count1, int64_t stride0,
                             int64_t stride1) {
  const auto piece = static_cast<uint32_t>(piece_bytes);
  return {address, stride0, stride1, piece, inverse_of(piece), count1, inverse_of(count1)};
}

constexpr uint32_t width_of_run(const DeviceRun& run, uint32_t count0) {
  uint64_t bits = run.address | run.piece_bytes;
  if (count0 > 1) bits |= static_cast<uint64_t>(run.stride0);
  if (run.count1 > 1) bits |= static_cast<uint64_t>(run.stride1);
  return width_of(bits);
}

// Reduces a run to one level if it has one: then count1 is 1 only for a single piece.
constexpr DeviceRun plain_run(const DeviceRun& run, uint32_t count0) {
  if (run.count1 != 1 || count0 == 1) return run;
  return make_run(run.address, run.piece_bytes, count0, 0, run.stride0);
}

constexpr LeafJob make_leaf_job(const DeviceRun& run, uint32_t count0, uint64_t record, bool checked,
                                uint64_t expected) {
  const uint32_t flags =
      (checked ? kJobChecked : 0) | width_of_run(run, count0) << kRunWidthShift | width_of(record) << kRecordWidthShift;
  return {plain_run(run, count0), record, expected, run.piece_bytes * run.count1 * count0, flags};
}

// Returns the number of warps that share a job: one a stripe, a power of two. A launch uses that of its largest job.
constexpr uint32_t warps_for(uint32_t largest_bytes) {
  uint32_t warps = 1;
  while (warps < kMaxWarpsPerLeaf && warps * kStripeBytes < largest_bytes) warps *= 2;
  return warps;
}
// Returns the jobs that a block does at a time; in a grid of more blocks than jobs / this, some blocks do nothing.
constexpr uint32_t jobs_per_block(uint32_t warps_per_job) { return kBlockThreads / 32 / warps_per_job; }

}  // namespace kvbm::device

// Chooses the path of each leaf of a batch, and cuts the batch into parts. Pure: calls no driver and reads no memory of
// others.
//
// mapped: a kernel moves between pages and pinned host memory. One launch and no copy: the shortest way for small
// batches, and for records with leaves that lie apart in host memory, where every copy would be small.
// staged: a kernel moves between pages and device staging, the copy engine between staging and host memory. Each run of
// leaves that are neighbours in host memory is one copy: thousands of small slices become a few large copies, and few
// multiprocessors are used.
// straight: the copy engine moves between pages and host memory, if both sides are contiguous over a long run; a kernel
// hashes on the device side.
//
// Budget: O(leaves), once a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvbm::device {

// Limits where paths change. None of these was measured on a device yet.
struct PlanLimits {
  // Batches up to this size go mapped. At 25 GB/s 128 KiB take 5 us. A staged part costs a second stream operation, an
  // event between streams and a copy's start, together about as much.
  uint64_t mapped_bytes = 128ULL << 10;
  // Parts with shorter runs in host memory, on average, go mapped. A copy costs 1.5 to 2.5 us of the driver and 1 to 2
  // us of the engine to begin, in which PCIe 5 moves 80 to 140 KiB. So copies of 32 KiB reach a third of the link, and
  // mapped accesses, by requests of 128 bytes, nine tenths. The default is 5 us of PCIe 5; device_link.h returns the
  // value for a device's own link.
  uint64_t staged_run_bytes = 256ULL << 10;
  // Runs contiguous on both sides from this length on go straight. Shorter ones are packed, because a kernel that reads
  // the pages at the speed of device memory costs less than many copies.
  uint64_t straight_bytes = 256ULL << 10;
  // A part of at least this size ends at a mark, so that waiters for the mark do not wait for a whole part. Below it,
  // the launches would cost more than the wait.
  uint64_t mark_bytes = 512ULL << 10;
  // Everything goes mapped, and coded leaves are decoded where they lie, because host and device share one memory.
  // Transfers set it for integrated devices.
  bool always_mapped = false;
  // Allows copies in batches that have a landmark; without it they go as with always_mapped. The engine may have
  // enqueued a copy behind its wait for the landmark. In the copy engine's queue that copy may stand before a copy of
  // the batch, and block it for ever. Kernels have multiprocessors and queues of their own.
  bool copies_behind_waits = false;
};

// planar and quantized: coded leaves, which the copy engine brings to staging and a kernel decodes from there. poison:
// nothing is moved, and a kernel overwrites the run.
enum class Path : uint8_t { mapped, staged, straight, planar, quantized, poison };
[[nodiscard]] constexpr bool is_coded(Path path) noexcept { return path == Path::planar || path == Path::quantized; }

// The properties of a leaf that its path depends on.
struct PlanLeaf {
  uint64_t device = 0;       // address of its first byte
  uint64_t record = 0;       // address in host memory
  uint32_t bytes = 0;        // in host memory; at most part_bytes; 0 for poison
  bool flat = false;         // one piece on the device
  bool pinned = false;       // the device reaches the record; else it is bounced through the part's pinned memory
  Path kind = Path::mapped;  // planar or quantized: it is coded; poison
  bool on_device = false;    // `record` is the device's own memory: always mapped, a copy would only be a detour
  uint64_t range = 0;        // of a pinned record: its registered range; a copy from one range into the next is refused
  uint32_t leaves = 1;       // number of leaves that it stands for, at most part_leaves
};

struct PlannedLeaf {
  uint32_t offset = 0;  // in the part's staging, and in its pinned memory if it is bounced
  Path path = Path::mapped;
  bool bounced = false;
  bool run_begins = false;  // not a neighbour, in host memory and staging, of the leaf before it, or on another path
};

struct PlannedPart {
  size_t first = 0;
  size_t count = 0;          // of PlanLeaf
  size_t leaves = 0;         // that they stand for, as in all counts below
  size_t kernel_leaves = 0;  // mapped or staged, or on the device; the others are straight, coded or poison
  size_t planar_leaves = 0;
  size_t quantized_leaves = 0;
  size_t poison_leaves = 0;
  size_t copies = 0;     // runs of staged, straight and coded leaves
  uint32_t bytes = 0;    // of staging
  bool bounced = false;  // at least one leaf is bounced
  bool has_mark = false;
  size_t mark = 0;  // index of the last mark that is reached when the part has landed
  [[nodiscard]] size_t coded_leaves() const noexcept { return planar_leaves + quantized_leaves; }
  [[nodiscard]] size_t plain_leaves() const noexcept { return leaves - coded_leaves() - poison_leaves; }
};

struct TransferPlan {
  std::vector<PlannedLeaf> leaves;
  std::vector<PlannedPart> parts;
  bool straight = false;  // at least one leaf is straight
  bool in_place = false;  // no copy engine is used: coded leaves are decoded where they lie
};

// Offsets of runs in staging are multiples of this.
inline constexpr uint32_t kRunAlignment = 256;
// Alignment of coded leaves, anywhere in a run.
inline constexpr uint32_t kCodedAlignment = 64;

// Plans a batch. `marks`: rising leaf counts, at most leaves.size(). Parts hold at most part_bytes of staging (a
// multiple of kRunAlignment, below 4 GiB) and part_leaves leaves. Without leaves the plan has one empty part if there
// is a mark, else none.
[[nodiscard]] TransferPlan plan_transfer(std::span<const PlanLeaf> leaves, std::span<const size_t> marks,
                                         const PlanLimits& limits, uint32_t part_bytes, size_t part_leaves);

}  // namespace kvbm::device

// A batch under way: what the caller gave, its plan, and how far it is.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "device/kernels/leaf_job.h"
#include "device/pinned_host.h"
#include "device/transfer_plan.h"
#include "device/transfers.h"

namespace kvbm::device {

enum class Direction : uint8_t { gather, scatter };

struct TransferWork {
  TransferBatch batch;
  TransferPlan plan;
  std::vector<CuPointer> reach;  // the device's address of each record; 0: it is bounced
  std::vector<uint32_t> leaf_at;  // of each entry of batch.leaves, its first leaf's place in hashes and good

  // Guarded by the lane's mutex, but `ordered`, which belongs to whoever issues.
  Code code = Code::ok;      // the first failure
  size_t assigned = 0;       // parts that were given a place in the ring
  size_t finished = 0;       // of those, parts that left it
  size_t landed_leaves = 0;  // leading leaves that are in place
  uint32_t tasks = 0;        // of the executor, that read or write its records
  bool perhaps_behind = false;  // `after` may lie behind a landmark of another stream's
  bool point_reached = false;   // the driver says so
  bool closed = false;       // failed, and its landmark reached all the same
  bool ordered = false;      // our streams wait for `after`

  [[nodiscard]] uint64_t last_value() const noexcept {
    return batch.landmark != nullptr && !batch.marks.empty() ? batch.marks.back().value : 0;
  }
  // What it came to, when it ended with ok.
  void count(TransferStats& stats) const noexcept;
};

// Pieces that follow each other are one: what is left of the levels is what the device really has to walk.
[[nodiscard]] StridedRun joined(StridedRun run) noexcept;

// The batch as work; its code is invalid_argument, and there are no parts, where a leaf or a mark is none.
[[nodiscard]] std::shared_ptr<TransferWork> make_work(TransferBatch batch, Direction direction,
                                                      std::span<const std::shared_ptr<const PinnedHost>> known,
                                                      const PlanLimits& limits, uint32_t part_bytes,
                                                      size_t part_leaves);

}  // namespace kvbm::device

// A batch under way: the caller's batch, its plan, and its progress.
#pragma once

#include <memory>
#include <vector>

#include "device/context/device.h"
#include "device/kernels/leaf_job.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/transfer_plan.h"
#include "device/transfer/transfers.h"

namespace kvbm::device {

enum class Direction : uint8_t { gather, scatter };

struct TransferWork {
  TransferBatch batch;
  TransferPlan plan;
  std::vector<CuPointer> reach;   // the device's address of each record; 0: the record is bounced
  std::vector<uint32_t> leaf_at;  // of each entry of batch.leaves, its first leaf's place in hashes and good

  // Guarded by the lane's mutex, except `ordered`, which belongs to the issuing thread.
  Code code = Code::ok;         // the first failure
  size_t assigned = 0;          // parts that were given a place in the ring
  size_t finished = 0;          // parts of `assigned` that left the ring
  size_t landed_leaves = 0;     // leading leaves that are in place
  uint32_t tasks = 0;           // of the executor, reading or writing its records
  bool perhaps_behind = false;  // `after` may lie behind a landmark of another stream
  bool point_reached = false;   // the driver reports that it was reached
  bool closed = false;          // failed, and its landmark was reached all the same
  bool ordered = false;         // our streams wait for `after`

  [[nodiscard]] uint64_t last_value() const noexcept {
    return batch.landmark != nullptr && !batch.marks.empty() ? batch.marks.back().value : 0;
  }
  // Adds the batch to the statistics, after it ended with ok.
  void count(TransferStats& stats) const noexcept;
};

// Joins pieces that follow each other. The levels that remain are those that the device really has to walk.
[[nodiscard]] StridedRun joined(StridedRun run) noexcept;

// Makes the batch's work. Its code is invalid_argument, and it has no parts, if a leaf or a mark is invalid.
[[nodiscard]] std::shared_ptr<TransferWork> make_work(TransferBatch batch, Direction direction,
                                                      std::span<const std::shared_ptr<const PinnedHost>> known,
                                                      const PlanLimits& limits, uint32_t part_bytes,
                                                      size_t part_leaves);

}  // namespace kvbm::device

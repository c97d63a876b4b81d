// Gives one part to the driver: two or three operations of each kind, however many leaves there are.
//
// A gather: kernels read the pages (into records, or into staging), then the copy engine moves staging, and long runs
// of pages, to the records. A scatter: the copy engine first, then kernels that check and store, then the landmark. The
// two streams of a direction let the copies of one part run beside the kernels of the next.
//
// Thread: one at a time. The device's context is current.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "device/context/device.h"
#include "device/kernels/kernel_set.h"
#include "device/transfer/landmark.h"
#include "device/transfer/staging.h"
#include "device/transfer/transfer_work.h"

namespace kvbm::device {

class PartIssue {
 public:
  PartIssue(Device& device, Direction direction, const TransferStreams& streams, uint32_t multiprocessors)
      : device_(device), direction_(direction), streams_(streams), multiprocessors_(multiprocessors) {}

  // Enqueues the part, and `place.end` behind all of it. If the driver refuses something, `place.end` is still enqueued
  // behind the accepted work; if even that is refused the device is lost.
  Code issue(TransferWork& work, const PlannedPart& part, StagingPlace& place);
  // Copies the kernels' results into the batch. The part has ended.
  void collect(TransferWork& work, const PlannedPart& part, const StagingPlace& place) const;
  // Overwrites with 0xFF the leaves that did not land, behind all work enqueued for the direction, and waits. `place`
  // is free. Blocks. If kernels are refused, the copy engine does it piece by piece.
  Status poison(TransferWork& work, StagingPlace& place, size_t part_leaves);

  // Returns the host address of leaf `i` of the batch for a part that uses `place`.
  [[nodiscard]] static std::byte* host(const TransferWork& work, size_t i, const StagingPlace& place) noexcept;

 private:
  Status settle(TransferWork& work);
  Status order(TransferWork& work);
  Status gather(TransferWork& work, const PlannedPart& part, StagingPlace& place);
  Status scatter(TransferWork& work, const PlannedPart& part, StagingPlace& place);
  void write_jobs(const TransferWork& work, const PlannedPart& part, StagingPlace& place);
  Status launch(const PlannedPart& part, const StagingPlace& place);
  Status launch_poison(const PlannedPart& part, const StagingPlace& place);
  Status launch_coded(const PlannedPart& part, const StagingPlace& place);
  Status poison_by_kernel(const TransferWork& work, StagingPlace& place, size_t part_leaves);
  Status poison_by_copies(const TransferWork& work);
  Status copy(const TransferWork& work, const PlannedPart& part, const StagingPlace& place);
  Status copy_run(const TransferWork& work, size_t first, uint64_t bytes, const StagingPlace& place);
  Status pass(CuStream from, CuEvent event, CuStream to);
  Status record(CuEvent event, CuStream stream);
  // Visits the entries of a part in the order of their first jobs: those that kernels move, then those that are only
  // hashed, then poison. Coded entries have jobs of their own: planar ones first.
  template <class Each>
  static void each_job(const TransferWork& work, const PlannedPart& part, Each&& each);

  Device& device_;
  const Direction direction_;
  const TransferStreams streams_;
  const uint32_t multiprocessors_;
  std::string complaint_;  // the last one that was logged
  uint32_t largest_ = 0;   // largest job of the last part given to write_jobs(), without poison
};

}  // namespace kvbm::device

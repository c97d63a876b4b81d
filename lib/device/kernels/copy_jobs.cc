#include "device/kernels/copy_jobs.h"

#include <algorithm>

namespace kvbm::device {

static_assert(kMaxJobBytes == layout::kLeafLimit, "a leaf is one job");

void append_copy_jobs(const StridedRun& from, CuPointer from_address, const StridedRun& to, CuPointer to_address,
                      std::vector<CopyJob>& jobs) {
  const DeviceRun source = make_run(from_address, from.bytes, from.count1, from.stride0, from.stride1);
  const DeviceRun target = make_run(to_address, to.bytes, to.count1, to.stride0, to.stride1);
  const uint64_t total = from.total();
  for (uint64_t first = 0; first < total; first += kMaxJobBytes) {
    const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(kMaxJobBytes, total - first));
    jobs.push_back(make_copy_job(source, from.count0, target, to.count0, static_cast<uint32_t>(first), bytes));
  }
}

void append_copy_jobs(const layout::Move& move, CuPointer source, CuPointer target, std::vector<CopyJob>& jobs) {
  StridedRun from;
  from.bytes = move.bytes;
  from.count0 = move.count;
  from.stride0 = static_cast<int64_t>(move.source_stride);
  StridedRun to = from;
  to.stride0 = static_cast<int64_t>(move.target_stride);
  append_copy_jobs(from, source + move.source_offset, to, target + move.target_offset, jobs);
}

}  // namespace kvbm::device

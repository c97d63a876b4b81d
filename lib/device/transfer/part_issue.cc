#include "device/transfer/part_issue.h"

#include <algorithm>
#include <utility>

#include "device/memory/direct_memory.h"
#include "device/transfer/leaf_table.h"
#include "device/transfer/stream_point.h"

namespace kvbm::device {

namespace {

constexpr unsigned char kPoison = 0xFF;  // a NaN in bf16, fp16, fp32 and both fp8

LeafJob job_of(const LeafMove& move, CuPointer record) noexcept {
  const StridedRun& run = move.device;
  return make_leaf_job(make_run(address_of(run.data), run.bytes, run.count1, run.stride0, run.stride1), run.count0,
                       record, move.check, move.expected);
}

// Writes one job for each leaf of an entry of many, of a record that begins at `record`. Returns the largest leaf's
// bytes.
uint32_t write_many(const LeafMove& move, const std::vector<uint64_t>& expected, CuPointer record,
                    LeafJob* out) noexcept {
  const LeafTable& table = *move.table;
  const uint32_t end = move.first_leaf + move.leaf_count;
  const uint32_t begin = table.offset(move.first_leaf);
  const uint64_t* hash = move.check && !expected.empty() ? expected.data() + move.expected : nullptr;
  uint32_t largest = 0;
  for (uint32_t leaf = move.first_leaf; leaf < end; ++leaf, ++out) {
    LeafJob job = table.job(leaf, move.block);
    if (record != 0) job.record = record + (table.offset(leaf) - begin);
    job.flags |= width_of(job.record) << kRecordWidthShift;
    if (hash != nullptr) {
      job.expected = *hash++;
      job.flags |= kJobChecked;
    }
    largest = std::max(largest, job.bytes);
    *out = job;
  }
  return largest;
}

}  // namespace

template <class Each>
void PartIssue::each_job(const TransferWork& work, const PlannedPart& part, Each&& each) {
  size_t kernel = 0;
  size_t straight = part.kernel_leaves;
  size_t planar = 0;
  size_t quantized = part.planar_leaves;
  size_t poison = part.plain_leaves();
  for (size_t i = part.first; i < part.first + part.count; ++i) {
    const size_t n = work.batch.leaves[i].leaf_count;
    switch (work.plan.leaves[i].path) {
      case Path::mapped:
      case Path::staged:
        each(i, std::exchange(kernel, kernel + n));
        break;
      case Path::straight:
        each(i, std::exchange(straight, straight + n));
        break;
      case Path::planar:
        each(i, planar++);
        break;
      case Path::quantized:
        each(i, quantized++);
        break;
      case Path::poison:
        each(i, poison++);
        break;
    }
  }
}

std::byte* PartIssue::host(const TransferWork& work, size_t i, const StagingPlace& place) noexcept {
  const PlannedLeaf& leaf = work.plan.leaves[i];
  return leaf.bounced ? place.pinned->data() + leaf.offset : work.batch.leaves[i].record;
}

Code PartIssue::issue(TransferWork& work, const PlannedPart& part, StagingPlace& place) {
  Status s = settle(work);
  if (s.ok()) s = order(work);
  if (s.ok()) s = direction_ == Direction::gather ? gather(work, part, place) : scatter(work, part, place);
  if (s.ok()) return Code::ok;
  // Repeated refusals of the driver are logged once.
  if (std::string why = s.message(); why != complaint_) {
    device_.complain("a transfer failed", s);
    complaint_ = std::move(why);
  }
  Status behind = pass(streams_.copies, place.middle, streams_.kernels);
  if (behind.ok()) behind = record(place.end, streams_.kernels);
  if (!behind.ok())
    device_.lose("the end of a transfer that the driver refused in part could not be marked", kCuSuccess);
  return s.code();
}

// Makes writes of network cards visible to the kernels, if the batch asks for that. Does so for the first part only:
// later parts are behind it.
Status PartIssue::settle(TransferWork& work) {
  if (!std::exchange(work.batch.settles, false)) return {};
  Status s = settle_direct_writes(device_);
  return s.ok() || s.code() == Code::tier_disabled ? s : Status(Code::damaged, "what network cards wrote", s.message());
}

// Makes the batch's work wait for the caller's stream, once a batch. Copies of a scatter into staging need not wait,
// because staging holds nothing of the caller's.
Status PartIssue::order(TransferWork& work) {
  if (work.ordered || work.batch.after == nullptr) return {};
  if (Status s = work.batch.after->order(streams_.kernels); !s.ok()) return s;
  if (direction_ == Direction::gather || work.plan.straight) {
    if (Status s = work.batch.after->order(streams_.copies); !s.ok()) return s;
  }
  work.ordered = true;
  return {};
}

Status PartIssue::gather(TransferWork& work, const PlannedPart& part, StagingPlace& place) {
  write_jobs(work, part, place);
  if (Status s = record(place.begin, streams_.kernels); !s.ok()) return s;
  if (Status s = launch(part, place); !s.ok()) return s;
  if (part.copies == 0) return record(place.end, streams_.kernels);
  if (Status s = pass(streams_.kernels, place.middle, streams_.copies); !s.ok()) return s;
  if (Status s = copy(work, part, place); !s.ok()) return s;
  return record(place.end, streams_.copies);
}

Status PartIssue::scatter(TransferWork& work, const PlannedPart& part, StagingPlace& place) {
  write_jobs(work, part, place);
  if (part.copies > 0) {
    if (Status s = record(place.begin, streams_.copies); !s.ok()) return s;
    if (Status s = copy(work, part, place); !s.ok()) return s;
    if (Status s = pass(streams_.copies, place.middle, streams_.kernels); !s.ok()) return s;
  } else if (Status s = record(place.begin, streams_.kernels); !s.ok()) {
    return s;
  }
  if (Status s = launch(part, place); !s.ok()) return s;
  if (part.has_mark && LandmarkPool::kind(*work.batch.landmark) == LandmarkKind::on_device) {
    const Landmark& landmark = *work.batch.landmark;
    const uint64_t number = LandmarkPool::number(landmark, work.batch.marks[part.mark].value);
    const CuResult result =
        device_.driver().cuStreamWriteValue64(streams_.kernels, LandmarkPool::address(landmark), number, 0);
    if (Status s = device_.check(result, "cuStreamWriteValue64"); !s.ok()) return s;
  }
  return record(place.end, streams_.kernels);
}

void PartIssue::write_jobs(const TransferWork& work, const PlannedPart& part, StagingPlace& place) {
  largest_ = 0;
  each_job(work, part, [&](size_t i, size_t job) {
    const LeafMove& move = work.batch.leaves[i];
    const PlannedLeaf& leaf = work.plan.leaves[i];
    const bool coded = is_coded(leaf.path);
    CuPointer record = 0;  // stays 0 for straight: the copy engine moves it
    if (leaf.path == Path::mapped || (coded && work.plan.in_place)) {
      record = leaf.bounced ? place.pinned->device_pointer() + leaf.offset : work.reach[i];
    } else if (leaf.path != Path::straight && leaf.path != Path::poison) {
      record = place.memory + leaf.offset;
    }
    if (coded) {
      place.coded_jobs[job] = {job_of(move, record),       move.coded_bytes, 0, 0, 0, 0,
                               move.check_coded ? 1U : 0U, move.coded_hash};
    } else if (move.table != nullptr) {
      largest_ = std::max(largest_, write_many(move, work.batch.expected, record, place.jobs + job));
    } else {
      const LeafJob made = job_of(move, record);
      if (leaf.path != Path::poison) largest_ = std::max(largest_, made.bytes);
      place.jobs[job] = made;
    }
  });
}

Status PartIssue::launch(const PlannedPart& part, const StagingPlace& place) {
  if (Status s = launch_coded(part, place); !s.ok()) return s;
  if (Status s = launch_poison(part, place); !s.ok()) return s;
  const size_t plain = part.plain_leaves();
  const size_t hashed = plain - part.kernel_leaves;
  const uint32_t warps = warps_for(largest_);
  const KernelSet& kernels = device_.kernels();
  const CuStream stream = streams_.kernels;
  const bool out = direction_ == Direction::gather;
  if (const auto n = static_cast<uint32_t>(part.kernel_leaves); n > 0) {
    const CuResult result =
        kernels.launch_leaves(out ? Kernel::gather_leaves : Kernel::scatter_leaves, stream, multiprocessors_,
                              place.jobs_device, n, warps, place.hashes_device, place.good_device);
    if (Status s = device_.check(result, "launching the kernel of a transfer"); !s.ok()) return s;
  }
  if (hashed == 0) return {};
  // Leaves that copy engines move are hashed where they lie on the device.
  const auto n = static_cast<uint32_t>(hashed);
  const CuPointer jobs = place.jobs_device + part.kernel_leaves * sizeof(LeafJob);
  const CuPointer hashes = place.hashes_device + part.kernel_leaves * sizeof(uint64_t);
  const CuPointer good = place.good_device + part.kernel_leaves;
  const CuResult result = kernels.launch_leaves(out ? Kernel::hash_leaves : Kernel::check_leaves, stream,
                                                multiprocessors_, jobs, n, warps, hashes, good);
  return device_.check(result, "launching the hash of a transfer");
}

Status PartIssue::launch_poison(const PlannedPart& part, const StagingPlace& place) {
  if (part.poison_leaves == 0) return {};
  const size_t first = part.plain_leaves();
  const auto n = static_cast<uint32_t>(part.poison_leaves);
  uint32_t largest = 0;
  for (size_t i = first; i < first + n; ++i) largest = std::max(largest, place.jobs[i].bytes);
  const CuResult result =
      device_.kernels().launch_leaves(Kernel::poison_leaves, streams_.kernels, multiprocessors_,
                                      place.jobs_device + first * sizeof(LeafJob), n, warps_for(largest));
  return device_.check(result, "launching the kernel that overwrites what is not there");
}

Status PartIssue::launch_coded(const PlannedPart& part, const StagingPlace& place) {
  const KernelSet& kernels = device_.kernels();
  if (const auto n = static_cast<uint32_t>(part.planar_leaves); n > 0) {
    const CuResult result = kernels.launch_coded(Kernel::decode_planar, streams_.kernels, multiprocessors_,
                                                 place.coded_jobs_device, n, place.coded_results_device, place.scratch);
    if (Status s = device_.check(result, "launching the decoder of planar leaves"); !s.ok()) return s;
  }
  const auto n = static_cast<uint32_t>(part.quantized_leaves);
  if (n == 0) return {};
  const CuResult result =
      kernels.launch_coded(Kernel::dequantize, streams_.kernels, multiprocessors_,
                           place.coded_jobs_device + part.planar_leaves * sizeof(CodedJob), n,
                           place.coded_results_device + part.planar_leaves * sizeof(CodedResult), place.scratch);
  return device_.check(result, "launching the decoder of quantised leaves");
}

Status PartIssue::copy(const TransferWork& work, const PlannedPart& part, const StagingPlace& place) {
  const size_t end = part.first + part.count;
  for (size_t i = part.first; i < end;) {
    const size_t first = i;
    uint64_t bytes = 0;
    do {
      bytes += work.batch.leaves[i++].record_bytes();
    } while (i < end && !work.plan.leaves[i].run_begins);
    const Path path = work.plan.leaves[first].path;
    if (path == Path::mapped || path == Path::poison || (is_coded(path) && work.plan.in_place)) continue;
    if (Status s = copy_run(work, first, bytes, place); !s.ok()) return s;
  }
  return {};
}

Status PartIssue::copy_run(const TransferWork& work, size_t first, uint64_t bytes, const StagingPlace& place) {
  const PlannedLeaf& leaf = work.plan.leaves[first];
  const CuPointer record = address_of(host(work, first, place));
  const CuPointer device =
      leaf.path == Path::straight ? address_of(work.batch.leaves[first].device.data) : place.memory + leaf.offset;
  const bool out = direction_ == Direction::gather;
  const CuResult result =
      device_.driver().cuMemcpyAsync(out ? record : device, out ? device : record, bytes, streams_.copies);
  return device_.check(result, "cuMemcpyAsync");
}

Status PartIssue::pass(CuStream from, CuEvent event, CuStream to) {
  if (Status s = record(event, from); !s.ok()) return s;
  return device_.check(device_.driver().cuStreamWaitEvent(to, event, 0), "cuStreamWaitEvent");
}

Status PartIssue::record(CuEvent event, CuStream stream) {
  return device_.check(device_.driver().cuEventRecord(event, stream), "cuEventRecord");
}

void PartIssue::collect(TransferWork& work, const PlannedPart& part, const StagingPlace& place) const {
  each_job(work, part, [&](size_t i, size_t job) {
    const size_t at = work.leaf_at[i];
    if (is_coded(work.plan.leaves[i].path)) {
      const CodedResult& result = place.coded_results[job];
      work.batch.hashes[at] = result.hash;
      work.batch.good[at] = result.status == kCodedOk ? 1 : 0;
      return;
    }
    if (work.plan.leaves[i].path == Path::poison) {
      work.batch.good[at] = 1;
      return;
    }
    const bool checked = direction_ == Direction::scatter && work.batch.leaves[i].check;
    const size_t n = work.batch.leaves[i].leaf_count;
    std::copy_n(place.hashes + job, n, work.batch.hashes.begin() + static_cast<std::ptrdiff_t>(at));
    for (size_t k = 0; k < n; ++k) work.batch.good[at + k] = !checked || place.good[job + k] != 0 ? 1 : 0;
  });
}

Status PartIssue::poison(TransferWork& work, StagingPlace& place, size_t part_leaves) {
  if (Status s = order(work); !s.ok()) return s;
  if (poison_by_kernel(work, place, part_leaves).ok() || device_.is_lost()) return {};
  return poison_by_copies(work);
}

Status PartIssue::poison_by_kernel(const TransferWork& work, StagingPlace& place, size_t part_leaves) {
  const std::vector<LeafMove>& leaves = work.batch.leaves;
  for (size_t i = work.landed_leaves; i < leaves.size();) {
    uint32_t jobs = 0;
    uint32_t largest = 0;
    for (; i < leaves.size() && jobs + leaves[i].leaf_count <= part_leaves; ++i) {
      if (leaves[i].table != nullptr) {
        largest = std::max(largest, write_many(leaves[i], {}, 0, place.jobs + jobs));
      } else {
        place.jobs[jobs] = job_of(leaves[i], 0);
        largest = std::max(largest, place.jobs[jobs].bytes);
      }
      jobs += leaves[i].leaf_count;
    }
    CuResult result = device_.kernels().launch_leaves(Kernel::poison_leaves, streams_.kernels, multiprocessors_,
                                                      place.jobs_device, jobs, warps_for(largest));
    if (Status s = device_.check(result, "launching a kernel"); !s.ok()) return s;
    // The jobs are rewritten for the next launch, so wait for this one.
    result = device_.driver().cuStreamSynchronize(streams_.kernels);
    if (Status s = device_.check(result, "cuStreamSynchronize"); !s.ok()) return s;
  }
  return {};
}

Status PartIssue::poison_by_copies(const TransferWork& work) {
  const auto fill = [&](const StridedRun& run) -> Status {
    for (uint32_t a = 0; a < run.count0; ++a) {
      for (uint32_t b = 0; b < run.count1; ++b) {
        const CuPointer at = address_of(run.data) + static_cast<uint64_t>(a * run.stride0 + b * run.stride1);
        const CuResult result = device_.driver().cuMemsetD8Async(at, kPoison, run.bytes, streams_.kernels);
        if (Status s = device_.check(result, "cuMemsetD8Async"); !s.ok()) return s;
      }
    }
    return {};
  };
  for (size_t i = work.landed_leaves; i < work.batch.leaves.size(); ++i) {
    const LeafMove& move = work.batch.leaves[i];
    for (uint32_t k = 0; k < move.leaf_count; ++k) {
      const Status s = fill(move.table != nullptr ? move.table->run(move.first_leaf + k, move.block) : move.device);
      if (!s.ok()) return s;
    }
  }
  return device_.check(device_.driver().cuStreamSynchronize(streams_.kernels), "cuStreamSynchronize");
}

}  // namespace kvbm::device

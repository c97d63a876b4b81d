// What the parts of one direction need while they are on their way: device memory, pinned memory for what kernels are
// told and what they answer, events, and, only for records in memory that is not pinned, pinned memory for their bytes.
//
// Made once and used in a ring, so that a part allocates nothing. Thread: made and destroyed by one thread; a place is
// used by whoever owns the part in it. The destructor may run only when the device is done with all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "device/device.h"
#include "device/device_memory.h"
#include "device/kernels/codec_job.h"
#include "device/kernels/leaf_job.h"

namespace kvbm::device {

// Streams of one direction; of the highest priority, because they are short and others wait for them, and so that they
// do not share a queue of the hardware with the engine's streams, one of which may wait for what runs here.
struct TransferStreams {
  CuStream kernels = nullptr;
  CuStream copies = nullptr;
};

struct StagingPlace {
  CuPointer memory = 0;  // part_bytes on the device; 0 where everything goes mapped
  // part_leaves each, written by the CPU and by the device.
  LeafJob* jobs = nullptr;
  uint64_t* hashes = nullptr;
  uint8_t* good = nullptr;
  CuPointer jobs_device = 0, hashes_device = 0, good_device = 0;
  // part_bytes for records that are not pinned; none until the first.
  std::unique_ptr<PinnedMemory> pinned;
  // part_leaves each, for coded leaves; none until the first.
  std::unique_ptr<PinnedMemory> coded;
  CodedJob* coded_jobs = nullptr;
  CodedResult* coded_results = nullptr;
  CuPointer coded_jobs_device = 0, coded_results_device = 0;
  CuPointer scratch = 0;     // that kernels of coded leaves work in; of all places, for they run one after the other
  CuEvent begin = nullptr;   // of the part, on the stream that begins
  CuEvent middle = nullptr;  // between the streams
  CuEvent end = nullptr;     // the last; waited for by the watcher, in the kernel and not by spinning
};

class Staging {
 public:
  // no_memory; tier_disabled. Releases what it had when it fails.
  static Result<std::unique_ptr<Staging>> create(std::shared_ptr<Device> device, size_t places, uint32_t part_bytes,
                                                 size_t part_leaves, bool device_memory);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] StagingPlace& place(size_t i) noexcept { return places_[i]; }
  [[nodiscard]] size_t places() const noexcept { return places_.size(); }
  [[nodiscard]] size_t part_leaves() const noexcept { return part_leaves_; }
  [[nodiscard]] const TransferStreams& streams() const noexcept { return streams_; }
  // Gives a place its pinned memory. Blocks for as long as the system needs to pin it, once a place.
  Status pin(StagingPlace& place);
  // Gives a place what a part with coded leaves needs, and all of them memory for the warps of `blocks`. Blocks for as
  // long, once a place. Thread: any.
  Status make_coded(StagingPlace& place, uint32_t blocks);

 private:
  explicit Staging(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Status make(size_t places, uint32_t part_bytes, size_t part_leaves, bool device_memory);
  Status make_streams();
  Status make_words(size_t part_leaves);
  Status make_events();

  const std::shared_ptr<Device> device_;
  uint32_t part_bytes_ = 0;
  size_t part_leaves_ = 0;
  TransferStreams streams_;
  std::unique_ptr<DeviceMemory> memory_;  // of all places
  std::unique_ptr<PinnedMemory> words_;   // jobs, hashes and good of all places
  std::vector<StagingPlace> places_;
  Mutex scratch_mutex_;
  std::unique_ptr<DeviceMemory> scratch_ KVBM_GUARDED_BY(scratch_mutex_);
};

}  // namespace kvbm::device

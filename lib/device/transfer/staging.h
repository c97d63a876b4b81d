// Resources of the parts of one direction while they are in flight: device memory, pinned memory for jobs and results
// of kernels, and events. Pinned memory for the bytes of records is allocated only if records are not pinned
// themselves.
//
// Made once and used in a ring, so that a part allocates nothing. Thread: made and destroyed by one thread; a place is
// used by the code that owns the part in it. The destructor may run only when the device is done with all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/context/device.h"
#include "device/kernels/codec_job.h"
#include "device/kernels/leaf_job.h"
#include "device/memory/device_memory.h"

namespace kvbm::device {

// Streams of one direction. They have the highest priority because their work is short and other streams wait for it.
// Also, they should not share a hardware queue with the engine's streams, one of which may wait for their work.
struct TransferStreams {
  CuStream kernels = nullptr;
  CuStream copies = nullptr;
};

struct StagingPlace {
  CuPointer memory = 0;  // part_bytes on the device; 0 if everything goes mapped
  // Arrays of part_leaves elements each, in pinned memory: written by the CPU (jobs) and by the device (results).
  LeafJob* jobs = nullptr;
  uint64_t* hashes = nullptr;
  uint8_t* good = nullptr;
  CuPointer jobs_device = 0, hashes_device = 0, good_device = 0;
  // Host memory of part_bytes for records that are not pinned; allocated at first use.
  std::unique_ptr<PinnedMemory> pinned;
  // Arrays of part_leaves elements each for coded leaves, in pinned memory; allocated at first use.
  std::unique_ptr<PinnedMemory> coded;
  CodedJob* coded_jobs = nullptr;
  CodedResult* coded_results = nullptr;
  CuPointer coded_jobs_device = 0, coded_results_device = 0;
  CuPointer scratch = 0;     // working memory of kernels for coded leaves; shared by all places, as they run in turn
  CuEvent begin = nullptr;   // of the part, on the stream that begins
  CuEvent middle = nullptr;  // between the streams
  CuEvent end = nullptr;     // the last; the watcher waits for it, in the kernel and not by spinning
};

class Staging {
 public:
  // Releases what it allocated when it fails. Errors: no_memory, tier_disabled.
  static Result<std::unique_ptr<Staging>> create(std::shared_ptr<Device> device, size_t places, uint32_t part_bytes,
                                                 size_t part_leaves, bool device_memory);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] StagingPlace& place(size_t i) noexcept { return places_[i]; }
  [[nodiscard]] size_t places() const noexcept { return places_.size(); }
  [[nodiscard]] size_t part_leaves() const noexcept { return part_leaves_; }
  [[nodiscard]] const TransferStreams& streams() const noexcept { return streams_; }
  // Gives a place its pinned memory, once. Blocks while the system pins it.
  Status pin(StagingPlace& place);
  // Gives a place its memory for coded leaves, once, and all of them the scratch memory for the warps of `blocks`.
  // Blocks while the system pins it. Thread: the lane's issuing thread.
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
  std::unique_ptr<DeviceMemory> scratch_;  // used by the issuing thread
};

}  // namespace kvbm::device

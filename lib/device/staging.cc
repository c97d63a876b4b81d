#include "device/staging.h"

#include <cstring>

#include "base/bytes.h"

namespace kvbm::device {

namespace {

constexpr uint64_t kWordsAlignment = 256;

}  // namespace

Result<std::unique_ptr<Staging>> Staging::create(std::shared_ptr<Device> device, size_t places, uint32_t part_bytes,
                                                 size_t part_leaves, bool device_memory) {
  std::unique_ptr<Staging> staging(new Staging(std::move(device)));
  if (Status s = staging->make(places, part_bytes, part_leaves, device_memory); !s.ok()) return s;
  return staging;
}

Status Staging::make(size_t places, uint32_t part_bytes, size_t part_leaves, bool device_memory) {
  const Device::Scope scope(*device_);
  if (!scope.entered()) return Status(Code::tier_disabled, "the device's context is gone");
  part_bytes_ = part_bytes;
  part_leaves_ = part_leaves;
  places_.resize(places);
  if (Status s = make_streams(); !s.ok()) return s;
  if (device_memory) {
    const CuResult result = device_->driver().cuMemAlloc(&memory_, places * part_bytes);
    if (Status s = device_->check(result, "cuMemAlloc of staging"); !s.ok()) return s;
    for (size_t i = 0; i < places; ++i) places_[i].memory = memory_ + i * part_bytes;
  }
  if (Status s = make_words(part_leaves); !s.ok()) return s;
  return make_events();
}

Status Staging::make_streams() {
  const Driver& driver = device_->driver();
  int least = 0;
  int greatest = 0;
  if (Status s = device_->check(driver.cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
      !s.ok()) {
    return s;
  }
  for (CuStream* stream : {&streams_.kernels, &streams_.copies}) {
    const CuResult result = driver.cuStreamCreateWithPriority(stream, kCuStreamNonBlocking, greatest);
    if (Status s = device_->check(result, "cuStreamCreateWithPriority"); !s.ok()) return s;
  }
  return {};
}

Status Staging::make_words(size_t part_leaves) {
  const Driver& driver = device_->driver();
  const uint64_t jobs = round_up(part_leaves * sizeof(LeafJob), kWordsAlignment);
  const uint64_t hashes = round_up(part_leaves * sizeof(uint64_t), kWordsAlignment);
  const uint64_t good = round_up(part_leaves, kWordsAlignment);
  const uint64_t bytes = jobs + hashes + good;
  if (Status s = device_->check(
          driver.cuMemHostAlloc(&words_, bytes * places_.size(), kCuHostPortable | kCuHostDeviceMap), "cuMemHostAlloc");
      !s.ok()) {
    return s;
  }
  CuPointer device = 0;
  if (Status s = device_->check(driver.cuMemHostGetDevicePointer(&device, words_, 0), "cuMemHostGetDevicePointer");
      !s.ok()) {
    return s;
  }
  std::memset(words_, 0, bytes * places_.size());
  std::byte* host = static_cast<std::byte*>(words_);
  for (StagingPlace& place : places_) {
    place.jobs = reinterpret_cast<LeafJob*>(host);
    place.hashes = reinterpret_cast<uint64_t*>(host + jobs);
    place.good = reinterpret_cast<uint8_t*>(host + jobs + hashes);
    place.jobs_device = device;
    place.hashes_device = device + jobs;
    place.good_device = device + jobs + hashes;
    host += bytes;
    device += bytes;
  }
  return {};
}

Status Staging::make_events() {
  for (StagingPlace& place : places_) {
    const struct {
      CuEvent* event;
      unsigned flags;
    } events[] = {{&place.begin, 0}, {&place.middle, kCuEventDisableTiming}, {&place.end, kCuEventBlockingSync}};
    for (const auto& [event, flags] : events) {
      if (Status s = device_->check(device_->driver().cuEventCreate(event, flags), "cuEventCreate"); !s.ok()) return s;
    }
  }
  return {};
}

Status Staging::pin(StagingPlace& place) {
  if (place.pinned != nullptr) return {};
  const Device::Scope scope(*device_);
  if (!scope.entered()) return Status(Code::tier_disabled, "the device's context is gone");
  const Driver& driver = device_->driver();
  void* memory = nullptr;
  const CuResult result = driver.cuMemHostAlloc(&memory, part_bytes_, kCuHostPortable | kCuHostDeviceMap);
  if (Status s = device_->check(result, "cuMemHostAlloc"); !s.ok()) return s;
  Status s = device_->check(driver.cuMemHostGetDevicePointer(&place.pinned_device, memory, 0),
                            "cuMemHostGetDevicePointer");
  if (!s.ok()) {
    (void)device_->check(driver.cuMemFreeHost(memory), "cuMemFreeHost");
    return s;
  }
  place.pinned = static_cast<std::byte*>(memory);
  return {};
}

Staging::~Staging() {
  const Device::Scope scope(*device_);
  // Without a context there is nothing to free: it all went with it.
  if (!scope.entered()) return;
  const Driver& driver = device_->driver();
  for (StagingPlace& place : places_) {
    for (CuEvent event : {place.begin, place.middle, place.end}) {
      if (event != nullptr) (void)device_->check(driver.cuEventDestroy(event), "cuEventDestroy");
    }
    if (place.pinned != nullptr) (void)device_->check(driver.cuMemFreeHost(place.pinned), "cuMemFreeHost");
  }
  if (words_ != nullptr) (void)device_->check(driver.cuMemFreeHost(words_), "cuMemFreeHost");
  if (memory_ != 0) (void)device_->check(driver.cuMemFree(memory_), "cuMemFree");
  for (CuStream stream : {streams_.copies, streams_.kernels}) {
    if (stream != nullptr) (void)device_->check(driver.cuStreamDestroy(stream), "cuStreamDestroy");
  }
}

}  // namespace kvbm::device

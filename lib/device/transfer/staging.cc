#include "device/transfer/staging.h"

#include <utility>

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
  if (!scope.entered()) return device_->lost();
  part_bytes_ = part_bytes;
  part_leaves_ = part_leaves;
  places_.resize(places);
  if (Status s = make_streams(); !s.ok()) return s;
  if (device_memory) {
    auto memory = DeviceMemory::allocate(device_, places * part_bytes);
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory).value();
    for (size_t i = 0; i < places; ++i) places_[i].memory = memory_->address() + i * part_bytes;
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
  const uint64_t jobs = round_up(part_leaves * sizeof(LeafJob), kWordsAlignment);
  const uint64_t hashes = round_up(part_leaves * sizeof(uint64_t), kWordsAlignment);
  const uint64_t good = round_up(part_leaves, kWordsAlignment);
  const uint64_t bytes = jobs + hashes + good;
  auto words = PinnedMemory::allocate(device_, bytes * places_.size());
  if (!words.ok()) return words.status();
  words_ = std::move(words).value();
  CuPointer device = words_->device_pointer();
  std::byte* host = words_->data();
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
  auto memory = PinnedMemory::allocate(device_, part_bytes_);
  if (!memory.ok()) return memory.status();
  place.pinned = std::move(memory).value();
  return {};
}

Status Staging::make_coded(StagingPlace& place, uint32_t blocks) {
  if (place.coded != nullptr) return {};
  if (scratch_ == nullptr) {
    auto scratch = DeviceMemory::allocate(device_, uint64_t{blocks} * kCodedWarps * kCodedScratch);
    if (!scratch.ok()) return scratch.status();
    scratch_ = std::move(scratch).value();
  }
  place.scratch = scratch_->address();
  const uint64_t jobs = round_up(part_leaves_ * sizeof(CodedJob), kWordsAlignment);
  auto words = PinnedMemory::allocate(device_, jobs + part_leaves_ * sizeof(CodedResult));
  if (!words.ok()) return words.status();
  place.coded = std::move(words).value();
  place.coded_jobs = reinterpret_cast<CodedJob*>(place.coded->data());
  place.coded_results = reinterpret_cast<CodedResult*>(place.coded->data() + jobs);
  place.coded_jobs_device = place.coded->device_pointer();
  place.coded_results_device = place.coded->device_pointer() + jobs;
  return {};
}

Staging::~Staging() {
  const Device::Scope scope(*device_);
  // Without a context there is nothing to free.
  if (!scope.entered()) return;
  const Driver& driver = device_->driver();
  for (StagingPlace& place : places_) {
    for (CuEvent event : {place.begin, place.middle, place.end}) {
      if (event != nullptr) device_->note(driver.cuEventDestroy(event), "cuEventDestroy");
    }
  }
  for (CuStream stream : {streams_.copies, streams_.kernels}) {
    if (stream != nullptr) device_->note(driver.cuStreamDestroy(stream), "cuStreamDestroy");
  }
}

}  // namespace kvbm::device

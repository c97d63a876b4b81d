#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace kvbm_mooncake {

SharedMemory::SharedMemory(uint64_t bytes) : bytes_(bytes), file_(::memfd_create("kvbm-mooncake", MFD_CLOEXEC)) {
  if (!file_ || ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<uint8_t*>(mapped);
}

SharedMemory::~SharedMemory() { ::munmap(base_, bytes_); }

std::optional<uint64_t> SharedMemory::take(uint64_t bytes) {
  constexpr uint64_t kUnit = 4096;
  bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  uint64_t place = 0;
  for (const auto& [begin, size] : taken_) {
    if (begin - place >= bytes) break;
    place = begin + size;
  }
  if (bytes_ - place < bytes) return std::nullopt;
  taken_.emplace(place, bytes);
  return place;
}

}  // namespace kvbm_mooncake

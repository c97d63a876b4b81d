#include "base/memory/zeroed_array.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace kvbm {

namespace {
constexpr std::align_val_t kLine{64};
}  // namespace

ZeroedMemory::ZeroedMemory(size_t count, size_t each) {
  if (count == 0) return;
  // A size that no system has, which the heap refuses.
  bytes_ = count <= PTRDIFF_MAX / each ? count * each : PTRDIFF_MAX;
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mapped_ = data_ != MAP_FAILED;
  if (mapped_) return;
  data_ = ::operator new(bytes_, kLine);
  std::memset(data_, 0, bytes_);
}

ZeroedMemory::~ZeroedMemory() {
  if (mapped_) {
    munmap(data_, bytes_);
  } else {
    ::operator delete(data_, kLine);
  }
}

}  // namespace kvbm

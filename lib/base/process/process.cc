#include "base/process/process.h"

#include <sys/mman.h>
#include <unistd.h>

namespace kvbm {

namespace {
constexpr size_t kPage = 4096;
}

ForkGuard::ForkGuard() : owner_(getpid()) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    munmap(page, kPage);
    return;
  }
  *static_cast<unsigned char*>(page) = 1;
  page_ = static_cast<unsigned char*>(page);
}

ForkGuard::~ForkGuard() {
  if (page_ != nullptr) munmap(const_cast<unsigned char*>(page_), kPage);
}

bool ForkGuard::slow_forked() const noexcept { return getpid() != owner_; }

}  // namespace kvbm

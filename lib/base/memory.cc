#include "base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>

#include "base/bytes.h"
#include "base/errno_status.h"
#include "base/os_directory.h"
#include "base/thread_executor.h"

namespace kvbm {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
constexpr int kInterleave = 3;  // MPOL_INTERLEAVE, linux/mempolicy.h

// The nodes of /sys/devices/system/node/has_memory, for example "0-1,3", as a mask.
unsigned long node_mask() {
  std::ifstream in("/sys/devices/system/node/has_memory");
  unsigned long mask = 0;
  unsigned first = 0;
  while (in >> first) {
    unsigned last = first;
    if (in.peek() == '-') in.ignore() >> last;
    for (unsigned n = first; n <= last && n < 63; ++n) mask |= 1UL << n;
    if (in.peek() == ',') in.ignore();
  }
  return mask;
}

}  // namespace

Status Arena::open(const ArenaOptions& options) {
  bytes_ = static_cast<size_t>(round_up(options.bytes, kHugePage));
  int flags = options.file.empty() ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  Fd fd;
  if (!options.file.empty()) {
    fd = Fd(::open(options.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat st {};
    if (!fd || fstat(fd.get(), &st) != 0) return errno_status(errno, "cannot open the arena's file", options.file);
    if (!S_ISREG(st.st_mode)) return Status(Code::not_permitted, "not a regular file", options.file);
    found_ = static_cast<size_t>(st.st_size) == bytes_;
    // Reserved now: a page that cannot be had later would be a SIGBUS.
    if ((!found_ && ftruncate(fd.get(), static_cast<off_t>(bytes_)) != 0) ||
        (fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes_)) != 0 && errno != EOPNOTSUPP)) {
      return errno_status(errno, "cannot reserve the arena's file", options.file);
    }
    description_ = "file " + options.file + ", ";
  }
  void* data = MAP_FAILED;
  const char* pages = "hugetlb pages";
  if (options.huge_pages && options.file.empty()) {
    data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
  }
  if (data == MAP_FAILED) {
    data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
    if (data == MAP_FAILED) return errno_status(errno, "cannot map memory", std::to_string(bytes_) + " bytes");
    const bool advised = options.huge_pages && madvise(data, bytes_, MADV_HUGEPAGE) == 0;
    pages = advised ? "transparent huge pages asked for" : "small pages";
  }
  data_ = static_cast<std::byte*>(data);
  madvise(data, bytes_, MADV_DONTFORK);
  description_.append(std::to_string(bytes_)).append(" bytes, ").append(pages);
  const unsigned long mask = options.interleave ? node_mask() : 0;
  if ((mask & (mask - 1)) != 0) {  // more than one node
    const bool ok = syscall(SYS_mbind, data, bytes_, kInterleave, &mask, 64UL, 0U) == 0;
    description_.append(ok ? ", interleaved over NUMA nodes" : ", not interleaved");
  }
  return {};
}

// Touches without changing: an arena that was found again keeps its bytes.
Status Arena::touch(uint32_t threads) {
  auto pool = ThreadExecutor::create("touch", threads);
  if (!pool.ok()) return pool.status();
  const size_t part = static_cast<size_t>(round_up(bytes_ / threads + 1, kHugePage));
  for (size_t at = 0; at < bytes_; at += part) {
    pool.value()->post([first = data_ + at, bytes = std::min(part, bytes_ - at)] {
      for (size_t i = 0; i < bytes; i += kSmallPage) {
        std::atomic_ref<unsigned char>(reinterpret_cast<unsigned char&>(first[i])).fetch_or(0, std::memory_order_relaxed);
      }
    });
  }
  return {};  // the pool's end waits for its tasks
}

Result<std::unique_ptr<Arena>> Arena::map(const ArenaOptions& options) {
  if (options.bytes == 0 || options.bytes > SIZE_MAX / 2) return Status(Code::invalid_argument, "not a size for an arena");
  std::unique_ptr<Arena> arena(new Arena);
  if (Status s = arena->open(options); !s.ok()) return s;
  if (options.touch_threads > 0) {
    if (Status s = arena->touch(options.touch_threads); !s.ok()) return s;
  }
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace kvbm

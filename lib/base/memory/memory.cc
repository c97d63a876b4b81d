#include "base/memory/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "base/errno_status.h"
#include "base/io/file.h"
#include "base/memory/shared_memory.h"
#include "base/thread/thread_executor.h"

namespace kvbm {

namespace {

constexpr size_t kSmallPage = 4096;
constexpr int kInterleave = 3;        // MPOL_INTERLEAVE, linux/mempolicy.h
constexpr int kPopulateWrite = 23;    // MADV_POPULATE_WRITE, Linux 5.14
constexpr uint64_t kFileBlock = 512;  // st_blocks counts these

// Types of file systems, as statfs(2) reports them.
constexpr uint32_t kTmpfs = 0x01021994;
constexpr uint32_t kHugetlbfs = 0x958458F6;
// File systems where a server may truncate or remove files: NFS, SMB (three), FUSE, 9P, Ceph, AFS, Lustre, GPFS,
// BeeGFS, OCFS2, GFS2.
constexpr uint32_t kServed[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997, 0x00C36400,
                                0x5346414F, 0x0BD00BD0, 0x47504653, 0x19830326, 0x7461636F, 0x01161970};
constexpr const char* kMemoryInstead =
    ": a page of it that cannot be had later would end this process (SIGBUS); name a file of a tmpfs, as in /dev/shm, "
    "or of "
    "a hugetlbfs";

// Returns the nodes of /sys/devices/system/node/has_memory, for example "0-1,3", as a mask.
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

// True if the kernel's setting for shared memory ignores advice to use huge pages.
bool shared_pages_stay_small() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(in, line);
  return line.find("[never]") != std::string::npos || line.find("[deny]") != std::string::npos;
}

}  // namespace

// Runs before the file is changed.
Status Arena::look_at(const ArenaOptions& options, int fd, size_t file_bytes) const {
  if (options.may_take == nullptr || file_bytes == 0) return {};
  std::array<std::byte, kArenaHead> head{};
  const size_t wanted = std::min(head.size(), file_bytes);
  for (size_t at = 0; at < wanted;) {
    const ssize_t got = pread(fd, head.data() + at, wanted - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return errno_status(got < 0 ? errno : EIO, "cannot read the arena's file", options.file);
    at += static_cast<size_t>(got);
  }
  if (options.may_take(head)) return {};
  return Status(Code::exists, "the file holds something that is not kvbm's; nothing was changed",
                options.file + ": name another file");
}

Status Arena::open_file(const ArenaOptions& options) {
  auto owned = OwnedFile::open(options.file);
  if (!owned.ok()) return owned.status();
  file_ = std::move(owned).value();
  const int fd = file_->fd();
  struct stat st {};
  if (fstat(fd, &st) != 0) return errno_status(errno, "cannot open the arena's file", options.file);
  if (Status s = look_at(options, fd, static_cast<size_t>(st.st_size)); !s.ok()) return s;
  found_ = static_cast<size_t>(st.st_size) == bytes_;
  return reserve(fd, options.file);
}

// Allocates all pages now, from a file system that keeps them: a page of the mapping that cannot be had later is a
// SIGBUS, which ends the process. Remaining risks are in docs/operations.md: a disk's read errors, and a program that
// truncates the file.
Status Arena::reserve(int fd, const std::string& path) {
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return errno_status(errno, "cannot ask for the arena's file system", path);
  const auto kind = static_cast<uint32_t>(system.f_type);
  if (std::find(std::begin(kServed), std::end(kServed), kind) != std::end(kServed)) {
    return Status(Code::unsupported, "the arena's file is on a file system that another process or machine serves",
                  path + kMemoryInstead);
  }
  if (!found_ && ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
    return errno_status(errno, "cannot reserve the arena's file", path);
  }
  const bool reserved = fallocate(fd, 0, 0, static_cast<off_t>(bytes_)) == 0;
  if (!reserved && errno != EOPNOTSUPP) return errno_status(errno, "cannot reserve the arena's file", path);
  struct stat st {};
  if (fstat(fd, &st) != 0) return errno_status(errno, "cannot reserve the arena's file", path);
  if (!reserved || static_cast<uint64_t>(st.st_blocks) * kFileBlock < bytes_) {
    return Status(Code::unsupported, "the arena's file is on a file system that reserves no room",
                  path + kMemoryInstead);
  }
  const bool memory = kind == kTmpfs || kind == kHugetlbfs;
  description_ = "file " + path + (memory ? ", " : " (on a disk, whose read errors end this process), ");
  return {};
}

Status Arena::map_anonymous(const ArenaOptions& options) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  void* data = MAP_FAILED;
  if (options.huge_pages) data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, kFlags | MAP_HUGETLB, -1, 0);
  const bool hugetlb = data != MAP_FAILED;
  if (!hugetlb) data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (data == MAP_FAILED) return errno_status(errno, "cannot map memory", std::to_string(bytes_) + " bytes");
  data_ = static_cast<std::byte*>(data);
  const bool advised = !hugetlb && options.huge_pages && madvise(data, bytes_, MADV_HUGEPAGE) == 0;
  description_ = std::to_string(bytes_) + " bytes, ";
  description_ += hugetlb ? "hugetlb pages" : advised ? "transparent huge pages asked for" : "small pages";
  return {};
}

Status Arena::map_file(const ArenaOptions& options, int fd) {
  void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return errno_status(errno, "cannot map memory", std::to_string(bytes_) + " bytes");
  data_ = static_cast<std::byte*>(data);
  const bool advised = options.huge_pages && madvise(data, bytes_, MADV_HUGEPAGE) == 0;
  description_ += std::to_string(bytes_) + " bytes, ";
  description_ += advised ? "transparent huge pages asked for" : "small pages";
  return {};
}

// Huge pages are allocated by faults through an advised mapping, not by fallocate, on nodes that mbind has set before.
// So the memory is mapped, placed, populated, and only then sealed.
Status Arena::map_shared(const ArenaOptions& options, bool hugetlb) {
  auto made = make_shared_memory(bytes_, hugetlb);
  if (!made.ok()) return made.status();
  fd_ = std::move(made).value();
  description_ = "shared, ";
  ArenaOptions pages = options;
  pages.huge_pages = options.huge_pages && !hugetlb;
  if (Status s = map_file(pages, fd_.get()); !s.ok()) return s;
  if (hugetlb) description_ = "shared, " + std::to_string(bytes_) + " bytes, hugetlb pages";
  if (pages.huge_pages && shared_pages_stay_small()) {
    description_ = "shared, " + std::to_string(bytes_) +
                   " bytes, small pages (/sys/kernel/mm/transparent_hugepage/shmem_enabled is never)";
  }
  place(options.interleave);
  if (Status s = populate(std::max(1U, options.touch_threads)); !s.ok()) return s;
  return seal_shared_memory(fd_.get(), bytes_);
}

void Arena::place(bool interleave) {
  madvise(data_, bytes_, MADV_DONTFORK);
  const unsigned long mask = interleave ? node_mask() : 0;
  if ((mask & (mask - 1)) == 0) return;  // at most one node
  const bool ok = syscall(SYS_mbind, data_, bytes_, kInterleave, &mask, 64UL, 0U) == 0;
  description_.append(ok ? ", interleaved over NUMA nodes" : ", not interleaved");
}

Status Arena::open(const ArenaOptions& options) {
  bytes_ = static_cast<size_t>(round_up(options.bytes, kHugePage));
  if (options.shared) {
    if (!options.file.empty()) {
      return Status(Code::invalid_argument, "memory is shared or in a file, not both", options.file);
    }
    if (options.huge_pages && map_shared(options, true).ok()) return {};
    close();
    return map_shared(options, false);
  }
  Status mapped;
  if (options.file.empty()) {
    mapped = map_anonymous(options);
  } else {
    mapped = open_file(options);
    if (mapped.ok()) mapped = map_file(options, file_->fd());
  }
  if (!mapped.ok()) return mapped;
  place(options.interleave);
  return {};
}

// Touches pages without changing them: a recovered arena keeps its bytes.
Status Arena::touch(uint32_t threads) {
  auto pool = ThreadExecutor::create("touch", threads);
  if (!pool.ok()) return pool.status();
  const size_t part = static_cast<size_t>(round_up(bytes_ / threads + 1, kHugePage));
  for (size_t at = 0; at < bytes_; at += part) {
    pool.value()->post([first = data_ + at, bytes = std::min(part, bytes_ - at)] {
      for (size_t i = 0; i < bytes; i += kSmallPage) {
        std::atomic_ref<unsigned char>(reinterpret_cast<unsigned char&>(first[i]))
            .fetch_or(0, std::memory_order_relaxed);
      }
    });
  }
  return {};  // the pool's end waits for its tasks
}

// Like touch(), with an error instead of a SIGBUS if a huge page cannot be allocated after all.
Status Arena::populate(uint32_t threads) {
  std::atomic<int> error{0};
  {
    auto pool = ThreadExecutor::create("touch", threads);
    if (!pool.ok()) return pool.status();
    const size_t part = static_cast<size_t>(round_up(bytes_ / threads + 1, kHugePage));
    for (size_t at = 0; at < bytes_; at += part) {
      pool.value()->post([first = data_ + at, bytes = std::min(part, bytes_ - at), &error] {
        if (madvise(first, bytes, kPopulateWrite) != 0) error.store(errno, std::memory_order_relaxed);
      });
    }
  }
  const int e = error.load(std::memory_order_relaxed);
  // Before Linux 5.14: sealing allocates missing pages, on one thread.
  if (e == 0 || e == EINVAL) return {};
  return errno_status(e, "cannot allocate shared memory", std::to_string(bytes_) + " bytes");
}

Result<std::unique_ptr<Arena>> Arena::map(const ArenaOptions& options) {
  if (options.bytes == 0 || options.bytes > SIZE_MAX / 2)
    return Status(Code::invalid_argument, "not a size for an arena");
  std::unique_ptr<Arena> arena(new Arena);
  if (Status s = arena->open(options); !s.ok()) return s;
  if (options.touch_threads > 0 && !options.shared) {
    if (Status s = arena->touch(options.touch_threads); !s.ok()) return s;
  }
  return arena;
}

void Arena::close() noexcept {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  fd_ = Fd();
  file_ = nullptr;  // after the mapping: while it can be written here, no other process may own the file
}

Status Arena::sync(size_t at, size_t bytes) const noexcept {
  if (file_ == nullptr || bytes == 0) return {};
  const size_t begin = at / kSmallPage * kSmallPage;
  if (msync(data_ + begin, at + bytes - begin, MS_SYNC) == 0 || errno == EINVAL) return {};  // EINVAL: no disk
  return Status(Code::io_error, "the host file could not be written to its disk");
}

Arena::~Arena() { close(); }

}  // namespace kvbm

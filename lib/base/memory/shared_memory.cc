#include "base/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "base/errno_status.h"

namespace kvbm {

namespace {

constexpr unsigned kHuge2MiB = 21U << 26;  // MFD_HUGE_2MB, linux/memfd.h
constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr uint64_t kStatBlock = 512;  // st_blocks counts these

}  // namespace

Result<Fd> make_shared_memory(size_t bytes, bool hugetlb) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugetlb ? MFD_HUGETLB | kHuge2MiB : 0);
  Fd fd(memfd_create("kvbm-pool", flags));
  if (!fd) {
    if (errno != EINVAL && errno != ENODEV && errno != ENOSYS) {
      return errno_status(errno, "cannot make shared memory", "memfd_create");
    }
    return Status(Code::unsupported, hugetlb ? "this kernel has no sealed huge pages to share (Linux 4.16)"
                                             : "this kernel has no sealed memory to share (Linux 3.17)");
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_status(errno, "cannot size shared memory", std::to_string(bytes) + " bytes");
  }
  return fd;
}

Status seal_shared_memory(int fd, size_t bytes) {
  if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    return errno_status(errno, "cannot allocate shared memory", std::to_string(bytes) + " bytes");
  }
  if (fcntl(fd, F_ADD_SEALS, kNeeded | F_SEAL_FUTURE_WRITE) != 0) {
    if (errno != EINVAL) return errno_status(errno, "cannot seal shared memory", "F_ADD_SEALS");
    return Status(Code::unsupported, "sharing a pool needs Linux 5.1: this kernel cannot refuse writes to it");
  }
  void* probe = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (probe != MAP_FAILED) {
    munmap(probe, bytes);
    return Status(Code::unsupported,
                  "this kernel accepts the seal against writing and lets others write (huge pages "
                  "before Linux 5.13)");
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0) return errno_status(errno, "cannot seal shared memory", "F_SEAL_SEAL");
  return {};
}

Status check_shared_memory(int fd, size_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Status(Code::not_permitted, "what a peer gave as a pool is not a sealed memfd");
  if ((seals & kNeeded) != kNeeded || (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0) {
    return Status(Code::not_permitted, "a peer's pool lacks the seals against shrinking, growing and punching",
                  "it has " + std::to_string(seals));
  }
  struct stat st {};
  if (fstat(fd, &st) != 0) return errno_status(errno, "cannot look at a peer's pool", "fstat");
  if (st.st_size < 0 || static_cast<uint64_t>(st.st_size) != bytes) {
    return Status(Code::not_permitted, "a peer's pool is not of the size that it says",
                  std::to_string(st.st_size) + " bytes, not " + std::to_string(bytes));
  }
  if (static_cast<uint64_t>(st.st_blocks) * kStatBlock < bytes) {
    return Status(Code::not_permitted, "a peer's pool is not allocated whole");
  }
  return {};
}

}  // namespace kvbm

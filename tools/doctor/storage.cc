#include <fcntl.h>
#include <liburing.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "doctor/finding.h"
#include "terminal/quantity.h"

namespace kvbm::doctor {

namespace {

constexpr size_t kPage = 4096;

// 0 when a ring was made and completed a no-op, else the errno.
int try_ring() {
  io_uring ring{};
  int error = -io_uring_queue_init(4, &ring, 0);
  if (error != 0) return error;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  io_uring_prep_nop(sqe);
  const int submitted = io_uring_submit(&ring);
  io_uring_cqe* cqe = nullptr;
  error = submitted < 0 ? -submitted : -io_uring_wait_cqe(&ring, &cqe);
  if (error == 0) {
    error = -cqe->res;
    io_uring_cqe_seen(&ring, cqe);
  }
  io_uring_queue_exit(&ring);
  return error;
}

// 0 when an aligned page went out and came back past the page cache, else the errno.
int try_direct(const std::string& dir) {
  std::string path = dir + "/kvbm-doctor-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return errno;
  ::unlink(path.c_str());
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(kPage, kPage), &std::free);
  int error = page == nullptr ? ENOMEM : 0;
  if (error == 0 && ::fcntl(fd, F_SETFL, O_DIRECT) != 0) error = errno;
  if (error == 0) {
    std::memset(page.get(), 0x5A, kPage);
    if (::pwrite(fd, page.get(), kPage, 0) != static_cast<ssize_t>(kPage)) error = errno == 0 ? EIO : errno;
  }
  if (error == 0) {
    std::memset(page.get(), 0, kPage);
    if (::pread(fd, page.get(), kPage, 0) != static_cast<ssize_t>(kPage)) error = errno == 0 ? EIO : errno;
    const auto* bytes = static_cast<const unsigned char*>(page.get());
    if (error == 0 && (bytes[0] != 0x5A || bytes[kPage - 1] != 0x5A)) error = EIO;
  }
  ::close(fd);
  return error;
}

std::string file_system_name(unsigned long magic) {
  switch (magic) {  // linux/magic.h
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x01021994: return "tmpfs";
    case 0x794C7630: return "overlayfs";
    case 0x6969: return "nfs";
    case 0x2FC12FC1: return "zfs";
    default: return "type " + std::to_string(magic);
  }
}

}  // namespace

void probe_storage(const std::string& dir, Findings& out) {
  const int ring = try_ring();
  out.push_back({"storage", "io_uring", ring == 0 ? State::ok : State::absent,
                 ring == 0 ? "a ring completed a no-op" : std::strerror(ring),
                 ring == 0 ? "" : "the disk tier uses pread and pwrite; allow io_uring in the container or kernel.io_uring_disabled"});
  struct statfs fs {};
  if (::statfs(dir.c_str(), &fs) != 0) {
    out.push_back({"storage", dir, State::absent, std::strerror(errno), "give an existing directory with --dir"});
    return;
  }
  const double free_bytes = static_cast<double>(fs.f_bavail) * static_cast<double>(fs.f_bsize);
  out.push_back({"storage", "file system of " + dir, State::ok, file_system_name(static_cast<unsigned long>(fs.f_type)), ""});
  out.push_back({"storage", "free space of " + dir, State::ok, terminal::format_size(free_bytes), ""});
  const int direct = try_direct(dir);
  out.push_back({"storage", "O_DIRECT in " + dir, direct == 0 ? State::ok : State::limited,
                 direct == 0 ? "a page went out and came back" : std::strerror(direct),
                 direct == 0 ? "" : "reads and writes would pass through the page cache; choose another file system or make it writable"});
  struct statfs shm {};
  const bool tmpfs = ::statfs("/dev/shm", &shm) == 0 && shm.f_type == 0x01021994;
  out.push_back({"storage", "tmpfs at /dev/shm", tmpfs ? State::ok : State::absent,
                 tmpfs ? terminal::format_size(static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_bsize)) + " free" : "no",
                 tmpfs ? "" : "a restarted process cannot find its host tier again; mount a tmpfs"});
}

}  // namespace kvbm::doctor

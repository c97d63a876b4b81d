#include <fcntl.h>
#include <liburing.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "doctor/finding.h"
#include "terminal/quantity.h"

namespace kvbm::doctor {

namespace {

constexpr size_t kPage = 4096;

struct Refusal {
  const char* call = "";
  int error = 0;
};

// Makes a ring and completes a no-op. Returns no error if both succeeded.
Refusal try_ring() {
  io_uring ring{};
  const int made = io_uring_queue_init(4, &ring, 0);
  if (made != 0) return {"io_uring_setup", -made};
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  io_uring_prep_nop(sqe);
  const int submitted = io_uring_submit(&ring);
  io_uring_cqe* cqe = nullptr;
  Refusal refused{"io_uring_enter", submitted < 0 ? -submitted : -io_uring_wait_cqe(&ring, &cqe)};
  if (refused.error == 0) {
    refused.error = -cqe->res;
    io_uring_cqe_seen(&ring, cqe);
  }
  io_uring_queue_exit(&ring);
  return refused;
}

// Returns whether a seccomp filter is in force: "Seccomp:\t2" of /proc/self/status.
bool has_seccomp_filter() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Seccomp:")) return line.ends_with("2");
  }
  return false;
}

// Writes and reads an aligned page past the page cache. Returns 0, or the errno.
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
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlayfs";
    case 0x6969:
      return "nfs";
    case 0x2FC12FC1:
      return "zfs";
    default:
      return "type " + std::to_string(magic);
  }
}

}  // namespace

std::string ring_advice(const std::string& call, int error, const std::string& disabled, bool filtered) {
  const std::string meanwhile = "the disk tier uses pread and pwrite; ";
  const bool forbidden = error == EPERM || error == EACCES || error == ENOSYS;
  // The setting refuses only the creation of a ring, with EPERM.
  const bool by_setting = error == EPERM && call == "io_uring_setup" && !disabled.empty() && disabled != "0";
  const std::string setting = "set kernel.io_uring_disabled, which is " + disabled + ", to 0 with sysctl";
  const std::string filter =
      "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile of the container (Docker: "
      "--security-opt seccomp=FILE; Kubernetes: securityContext.seccompProfile)";
  if (by_setting) return meanwhile + setting + (filtered ? "; a seccomp filter is in force too: " + filter : "");
  if (forbidden && filtered) return meanwhile + "a seccomp filter refuses " + call + ": " + filter;
  if (error == ENOSYS)
    return meanwhile + "the kernel has no io_uring: it needs Linux 5.6 or later with CONFIG_IO_URING";
  if (forbidden)
    return meanwhile + "a security module of the kernel (SELinux, AppArmor, a sandbox) refuses " + call +
           ": allow it in its policy";
  if (error == ENOMEM)
    return meanwhile + "a ring does not fit the limit of locked memory: raise `ulimit -l` or LimitMEMLOCK=";
  return meanwhile + call + " fails";
}

void probe_storage(const std::string& dir, Findings& out) {
  const Refusal ring = try_ring();
  const bool usable = ring.error == 0;
  out.push_back({"storage", "io_uring", usable ? State::ok : State::absent,
                 usable ? "a ring completed a no-op" : std::string(ring.call) + ": " + std::strerror(ring.error),
                 usable ? ""
                        : ring_advice(ring.call, ring.error, first_line("/proc/sys/kernel/io_uring_disabled"),
                                      has_seccomp_filter())});
  struct statfs fs {};
  if (::statfs(dir.c_str(), &fs) != 0) {
    out.push_back({"storage", dir, State::absent, std::strerror(errno), "give an existing directory with --dir"});
    return;
  }
  const double free_bytes = static_cast<double>(fs.f_bavail) * static_cast<double>(fs.f_bsize);
  out.push_back(
      {"storage", "file system of " + dir, State::ok, file_system_name(static_cast<unsigned long>(fs.f_type)), ""});
  out.push_back({"storage", "free space of " + dir, State::ok, terminal::format_size(free_bytes), ""});
  const int direct = try_direct(dir);
  out.push_back(
      {"storage", "O_DIRECT in " + dir, direct == 0 ? State::ok : State::limited,
       direct == 0 ? "a page went out and came back" : std::strerror(direct),
       direct == 0
           ? ""
           : "reads and writes would pass through the page cache; choose another file system or make it writable"});
  struct statfs shm {};
  const bool tmpfs = ::statfs("/dev/shm", &shm) == 0 && shm.f_type == 0x01021994;
  out.push_back(
      {"storage", "tmpfs at /dev/shm", tmpfs ? State::ok : State::absent,
       tmpfs ? terminal::format_size(static_cast<double>(shm.f_bavail) * static_cast<double>(shm.f_bsize)) + " free"
             : "no",
       tmpfs ? "" : "a restarted process cannot find its host tier again; mount a tmpfs"});
}

}  // namespace kvbm::doctor

#include "manager/seal_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"

namespace kvbm::manager {

namespace {
constexpr size_t kMostBytes = 1 << 20;

void wipe(std::string& text) noexcept {
  std::memset(text.data(), 0, text.size());
  __asm__ volatile("" : : "r"(text.data()) : "memory");  // the compiler would leave it out
}

Result<std::shared_ptr<const codec::KeyRing>> read_ring(const std::string& path) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused, not waited for
  if (opened < 0) return Status(Code::bad_config, "seal.key_file cannot be read", path + ": " + std::strerror(errno));
  const Fd file(opened);
  struct stat facts {};
  if (::fstat(opened, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Status(Code::bad_config, "seal.key_file is not a file", path);
  }
  if ((facts.st_mode & 077) != 0) {
    return Status(Code::bad_config, "seal.key_file can be read or written by others than its owner",
                  path + ": make it chmod 600");
  }
  std::string text(kMostBytes + 1, '\0');
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && size < text.size();) {
    n = ::read(opened, text.data() + size, text.size() - size);
    if (n < 0) return Status(Code::bad_config, "seal.key_file cannot be read", path + ": " + std::strerror(errno));
    size += static_cast<size_t>(n);
  }
  auto ring = size > kMostBytes ? Result<std::shared_ptr<const codec::KeyRing>>(Status(Code::invalid_argument, "too large"))
                                : codec::KeyRing::parse(std::string_view(text).substr(0, size));
  wipe(text);
  if (!ring.ok()) return Status(Code::bad_config, "seal.key_file holds no keys", path + ": " + ring.status().message());
  return ring;
}

}  // namespace

Status load_seal_keys(Options& options) {
  if (options.seal_keys != nullptr || options.seal_key_file.empty()) return {};
  auto ring = read_ring(options.seal_key_file);
  if (!ring.ok()) return ring.status();
  options.seal_keys = std::move(ring).value();
  return {};
}

}  // namespace kvbm::manager

#include "manager/common/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/io/fd.h"
#include "base/io/ownership.h"

namespace kvbm::manager {

KeyText::KeyText() : bytes_(kMostBytes + 1) {}

KeyText::~KeyText() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Result<KeyText> KeyText::read(const char* refused, const std::string& path) {
  const auto because = [&](const std::string& why) { return Status(Code::bad_config, refused, path + ": " + why); };
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ELOOP) return because("it is a symbolic link; name its target");
  if (!file) return because(std::strerror(errno));
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return because(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) return because("it is not a file");
  if (const Status own = check_own_key(file.get(), path); !own.ok())
    return Status(Code::bad_config, refused, own.detail());
  KeyText out;
  for (ssize_t n = 1; n > 0 && out.size_ < out.bytes_.size(); out.size_ += static_cast<size_t>(n)) {
    n = ::read(file.get(), out.bytes_.data() + out.size_, out.bytes_.size() - out.size_);
    if (n < 0) return because(std::strerror(errno));
  }
  if (out.size_ > kMostBytes) return because("it is larger than 1 MiB");
  return Result<KeyText>(std::move(out));
}

}  // namespace kvbm::manager

#include "command/key.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/crypto/random.h"
#include "base/io/fd.h"
#include "cluster/admission/pool_key.h"
#include "command/registry.h"
#include "terminal/json_text.h"

namespace kvbm::command {

namespace {

// The key's text and an end of line, wiped at the end. No object that holds the key grows, or is copied to a place
// that is not wiped.
struct KeyLine {
  explicit KeyLine(Random& random) {
    const cluster::SharedKey key = cluster::new_pool_key(random);
    cluster::PoolKeyText text = cluster::pool_key_text(key);
    std::memcpy(bytes.data(), text.data(), text.size());
    kvbm::wipe(text.data(), text.size());
    bytes.back() = '\n';
  }
  ~KeyLine() { kvbm::wipe(bytes.data(), bytes.size()); }
  KeyLine(const KeyLine&) = delete;
  KeyLine& operator=(const KeyLine&) = delete;

  std::array<char, cluster::kPoolKeyText + 1> bytes{};
};

bool write_all(int fd, const KeyLine& line) {
  for (size_t done = 0; done < line.bytes.size();) {
    const ssize_t n = ::write(fd, line.bytes.data() + done, line.bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Writes a new file, which no other user may read at any time. It is on the disk when this returns.
int write_key_file(const std::string& path, const KeyLine& line) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) {
    return fail(kBadInput, path + " exists, and a key that is replaced is lost",
                "name another file, or move that one away");
  }
  if (!file) return fail(kFailed, path + " cannot be made: " + std::strerror(errno));
  if (write_all(file.get(), line) && ::fsync(file.get()) == 0) return kDone;
  const int error = errno;
  ::unlink(path.c_str());
  return fail(kFailed, path + " cannot be written: " + std::strerror(error));
}

int make_key(const std::string& path, const Output& output) {
  SystemRandom random;
  if (const Status ready = random.ready(); !ready.ok()) return fail(ready);
  const KeyLine line(random);
  if (!path.empty()) {
    if (const int code = write_key_file(path, line); code != kDone) return code;
    if (output.json) {
      std::printf("%s\n", terminal::json_text(nlohmann::ordered_json{{"file", path}}).c_str());
    } else {
      std::printf(
          "%s has a new pool key: give it to every node as node.key_file (--key-file), readable by its user alone\n",
          path.c_str());
    }
    return kDone;
  }
  // The key bypasses stdio, because its buffer would retain the key.
  std::fflush(stdout);
  if (output.json) {
    std::array<char, cluster::kPoolKeyText + 16> text{};
    const int n = std::snprintf(text.data(), text.size(), "{\"key\": \"%.*s\"}\n",
                                static_cast<int>(cluster::kPoolKeyText), line.bytes.data());
    const bool written = ::write(STDOUT_FILENO, text.data(), static_cast<size_t>(n)) == n;
    kvbm::wipe(text.data(), text.size());
    return written ? kDone : fail(kFailed, std::string("the key cannot be printed: ") + std::strerror(errno));
  }
  return write_all(STDOUT_FILENO, line)
             ? kDone
             : fail(kFailed, std::string("the key cannot be printed: ") + std::strerror(errno));
}

}  // namespace

void add_key(Registry& registry) {
  Command group = registry.add_group("key", "Make the key that the nodes of a pool share");
  auto path = std::make_shared<std::string>();
  Command fresh = registry.add(group, "new", "Make a new key from 32 random bytes",
                               [path](const Output& output) { return make_key(*path, output); });
  fresh.add_option("file", *path, "New file for it, mode 0600; printed if missing").type_name("FILE");
  fresh.footer(
      "Example:\n"
      "  kvbm key new pool.key && kvbm node --listen 10.0.0.7:7000 --key-file pool.key\n"
      "Copy the file to every node of the pool. Anyone with the file can read and write every block of the pool.");
}

}  // namespace kvbm::command

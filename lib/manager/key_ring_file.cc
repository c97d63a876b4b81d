#include "manager/key_ring_file.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace kvbm::manager {

Result<std::shared_ptr<const codec::KeyRing>> read_key_ring(const std::string& path) {
  if (path.empty()) return std::shared_ptr<const codec::KeyRing>();
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Status(Code::bad_config, "seal.key_file cannot be read", path);
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(Code::bad_config, "seal.key_file may be read or written by others", path + ": chmod 600");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status(Code::bad_config, "seal.key_file cannot be read", path);
  auto ring = codec::KeyRing::parse(text.str());
  if (!ring.ok()) {
    return Status(Code::bad_config, "seal.key_file holds no keys", path + ": " + ring.status().message());
  }
  return ring;
}

}  // namespace kvbm::manager

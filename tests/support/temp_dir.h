// A directory of its own for one test, under $TMPDIR or /tmp, removed with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kvbm::test {

class TempDir {
 public:
  explicit TempDir(const char* base = nullptr) {
    const char* env = getenv("TMPDIR");
    std::string name = base != nullptr ? base : env != nullptr ? env : "/tmp";
    name.append("/kvbm-test-XXXXXX");
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  // Empty when the directory could not be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvbm::test

// A temporary directory for one benchmark, removed with all its content.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kvbm::benchmark {

class Scratch {
 public:
  explicit Scratch(const std::string& base) {
    std::string name = base + "/kvbm-bench-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  // Returns "" if the directory could not be made.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvbm::benchmark

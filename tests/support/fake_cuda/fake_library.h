// Copies libtest_cuda_driver.so under a name of its own, so that it is loaded anew. Its configuration is `text`
// (FakeCuda::apply), in the environment while this object lives. For tests that have KVBM_TEST_MODULES.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temp_dir.h"

namespace kvbm::test {

class FakeLibrary {
 public:
  FakeLibrary(const TempDir& dir, const std::string& name, const std::string& text)
      : path_(dir.path() + "/" + name + ".so") {
    std::filesystem::copy_file(std::string(KVBM_TEST_MODULES) + "/libtest_cuda_driver.so", path_);
    ::setenv("KVBM_FAKE_CUDA", text.c_str(), 1);
  }
  ~FakeLibrary() { ::unsetenv("KVBM_FAKE_CUDA"); }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace kvbm::test

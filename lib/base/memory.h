// Mapped arenas: large anonymous memory, or a named file in a tmpfs or hugetlbfs that a restarted
// process maps again. Never inherited by a forked child. Set-up cost only; first touch is what a
// mapping costs, and `touch` does it on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace kvbm {

struct ArenaOptions {
  size_t bytes = 0;
  bool huge_pages = true;    // hugetlb pages, else transparent ones, else small ones: describe says
  std::string file;          // empty: anonymous; else made with mode 0600, or mapped again
  bool interleave = false;   // over all NUMA nodes with memory, by mbind
  uint32_t touch_threads = 0;  // 0: pages are touched when used
};

class Arena {
 public:
  static Result<std::unique_ptr<Arena>> map(const ArenaOptions& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }  // rounded up to whole huge pages
  [[nodiscard]] bool found() const noexcept { return found_; }    // the file held an arena of this size
  [[nodiscard]] const std::string& describe() const noexcept { return description_; }

 private:
  Arena() = default;
  Status open(const ArenaOptions& options);
  Status touch(uint32_t threads);
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool found_ = false;
  std::string description_;
};

}  // namespace kvbm

// Mapped arenas: large anonymous memory, a named file in a tmpfs or hugetlbfs that one process owns and a restarted one
// maps again, or memory that other processes may read (base/memory/shared_memory.h). Never inherited by a forked child.
// Cost at set-up only: the cost of a mapping is its first touch, and `touch` spreads that over several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/io/fd.h"
#include "base/io/owned_file.h"
#include "base/status.h"

namespace kvbm {

constexpr size_t kArenaHead = 4096;

struct ArenaOptions {
  size_t bytes = 0;
  bool huge_pages = true;  // hugetlb pages, else transparent ones, else small ones: describe says
  // Empty: anonymous. Otherwise the file is made with mode 0600, or mapped again. in_use: it has an owner.
  // not_permitted: it is another user's, or others may write it. unsupported: its file system cannot guarantee that its
  // pages stay.
  std::string file;
  // Checks the first kArenaHead bytes of an existing file (zeroes behind a shorter one). False: the file is not
  // touched, and map() returns exists. Null: any file may be used.
  bool (*may_take)(std::span<const std::byte> head) = nullptr;
  bool interleave = false;     // over all NUMA nodes with memory, by mbind
  uint32_t touch_threads = 0;  // 0: pages are touched when used
  // A sealed memfd, allocated as a whole at once: fd() can be passed to readers. Not together with `file`.
  bool shared = false;
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
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }     // -1 unless shared
  [[nodiscard]] const std::string& describe() const noexcept { return description_; }
  // Writes whole pages to the file's disk, if it is on one, before it returns. Does nothing without a file.
  Status sync(size_t at, size_t bytes) const noexcept;

 private:
  Arena() = default;
  Status open(const ArenaOptions& options);
  Status open_file(const ArenaOptions& options);
  Status look_at(const ArenaOptions& options, int fd, size_t file_bytes) const;
  Status reserve(int fd, const std::string& path);
  Status map_anonymous(const ArenaOptions& options);
  Status map_file(const ArenaOptions& options, int fd);
  Status map_shared(const ArenaOptions& options, bool hugetlb);
  void place(bool interleave);
  Status touch(uint32_t threads);
  Status populate(uint32_t threads);
  void close() noexcept;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool found_ = false;
  Fd fd_;
  std::unique_ptr<OwnedFile> file_;
  std::string description_;
};

}  // namespace kvbm

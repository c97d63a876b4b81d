// Measures the disk itself: writes or reads of one size through io_uring with O_DIRECT and registered buffers. A
// fixed number is in flight, each into or out of separate memory like blocks, on a preallocated file. If the system
// allows no ring, uses pread and pwrite on as many threads (at most 16). Blocks.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm::benchmark {

struct RawLoad {
  uint64_t request_bytes = 0;  // multiple of 4 KiB
  uint64_t requests = 0;
  unsigned depth = 1;
  bool write = false;
  bool registered = true;  // false: as under a memlock limit that forbids registered buffers
  // For reads: one other thread copies the bytes after these of each completed request to separate memory, and hashes
  // them during the copy. This is the least work of a reader that verifies its data. 0: no copies.
  uint64_t deliver_after = 0;
  bool durable = false;  // writes: one fdatasync at the end counts, too
};

enum class RawPath { registered_ring, ring, threads };

struct RawTime {
  double seconds = 0;            // from the first submission to the last completion, and the last copy, or the sync
  RawPath path = RawPath::ring;  // the path taken: the system may allow no ring, or no registered buffers
};

// A preallocated file in `directory`, removed with the object.
class RawFile {
 public:
  static Result<RawFile> make(const std::string& directory, uint64_t bytes);
  RawFile(RawFile&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) { other.fd_ = -1; }
  RawFile& operator=(RawFile&&) = delete;
  ~RawFile();

  Result<RawTime> run(const RawLoad& load) const;

 private:
  RawFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

}  // namespace kvbm::benchmark

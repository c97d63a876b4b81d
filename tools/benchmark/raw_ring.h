// What the disk can do: writes or reads of one size through io_uring with O_DIRECT and registered
// buffers, a fixed number in flight, each into or out of memory of its own as blocks are, on a preallocated file; pread
// and pwrite on as many threads (at most 16) where the system allows no ring. Blocks.
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
  // Of reads: what comes after these bytes of each request is copied, and hashed on the way, to memory of its own by
  // one other thread, as it comes. That is the least that a reader does that checks what it hands on. 0: nothing is.
  uint64_t deliver_after = 0;
  bool durable = false;  // writes: one fdatasync at the end counts, too
};

enum class RawPath { registered_ring, ring, threads };

struct RawTime {
  double seconds = 0;  // from the first submission to the last completion, and the last copy, or the sync
  RawPath path = RawPath::ring;  // how it went: the system may allow no ring, or no registered buffers
};

// A file of its own in `directory`, preallocated; gone with the object.
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

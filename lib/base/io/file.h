// Files as the core sees them: control-plane calls that block, and data-plane calls that complete through an Executor.
// Implementations: io_uring, pread/pwrite (base/io/os_file.h), and the simulation's disk with torn, lost and reordered
// writes (tests/support/sim_disk.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function.h"
#include "base/status.h"

namespace kvbm {

// One run of memory of an I/O. For direct files address, length and offset are multiples of kIoAlign.
struct IoRun {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Strictest alignment that O_DIRECT needs on known devices (logical blocks of 512 or 4096 bytes).
inline constexpr size_t kIoAlign = 4096;
inline constexpr size_t kHugePage = size_t{2} << 20;

using IoDone = UniqueFunction<void(Result<size_t> bytes_moved)>;

class File {
 public:
  virtual ~File() = default;  // outstanding I/O must have completed

  // Moves all runs, in order, from or to `offset`. `done` runs exactly once, on the executor given
  // to the FileSystem, with the bytes moved (short only at end of file) or the error. The memory of
  // the runs stays borrowed until then; the array itself is copied. Thread: any.
  virtual void read(uint64_t offset, std::span<const IoRun> runs, IoDone done) = 0;
  virtual void write(uint64_t offset, std::span<const IoRun> runs, IoDone done) = 0;
  // Makes completed writes durable (fdatasync).
  virtual void sync(UniqueFunction<void(Status)> done) = 0;

  // Control plane: these block. Thread: any.
  virtual Result<size_t> read_now(uint64_t offset, std::span<std::byte> out) = 0;
  virtual Status write_now(uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Status sync_now() = 0;
  virtual Result<uint64_t> size() = 0;
  // Reserves real space for [0, bytes) so that later writes cannot fail for lack of it (fallocate).
  virtual Status allocate(uint64_t bytes) = 0;
  virtual Status truncate(uint64_t bytes) = 0;
  // True if I/O passes by the page cache; false where direct was asked for and the system refused.
  [[nodiscard]] virtual bool direct() const noexcept { return false; }
  // Returns the system's descriptor, open as long as this object exists; -1 if there is none.
  [[nodiscard]] virtual int descriptor() const noexcept { return -1; }
};

// create opens an existing file, or makes an empty one. The other modes return Code::miss if there is none.
enum class OpenMode { read_only, read_write, create };

// An exclusive claim on a directory; ends with the last copy or the process.
using DirectoryLock = std::shared_ptr<const void>;

// One directory, named by a file descriptor, entered without following links. Names are single
// path components. Directories are made with mode 0700, files with 0600, whatever the umask.
class Directory {
 public:
  virtual ~Directory() = default;
  virtual Result<std::unique_ptr<File>> open(std::string_view name, OpenMode mode, bool direct) = 0;
  virtual Result<std::vector<std::string>> list() = 0;  // sorted
  virtual Status remove(std::string_view name) = 0;
  virtual Status rename(std::string_view from, std::string_view to) = 0;
  virtual Status sync() = 0;
  // Refused with Code::in_use, and the owner's process id if known, if any process or another part of this one holds
  // it. A forked child does not inherit it.
  virtual Result<DirectoryLock> lock() = 0;
  virtual Result<uint64_t> free_bytes() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Opens a directory of this user, not writable by others, and with such files. Otherwise not_permitted, when the
  // directory or a file is opened (base/io/ownership.h).
  virtual Result<std::unique_ptr<Directory>> open_directory(const std::string& path, bool create) = 0;
  // Opens an existing directory with files of any owner, for inspection: none of them is served. not_permitted if it is
  // another user's and writable by all users.
  virtual Result<std::unique_ptr<Directory>> visit_directory(const std::string& path) = 0;
  // Allocates page-aligned memory for staging; registered with the I/O engine where limits allow, so that I/O inside it
  // is cheaper. Thread: any. Freed with the last copy.
  virtual Result<std::shared_ptr<std::byte[]>> staging(size_t bytes) = 0;
  // One line for logs and `kvbm doctor`: the engine in use, and engines that were requested but refused.
  [[nodiscard]] virtual std::string describe() const { return {}; }
};

}  // namespace kvbm

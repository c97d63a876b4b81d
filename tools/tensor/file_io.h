// Reads a file or a pipe, and writes a file atomically.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace kvbm::tensor {

// A file with random access. "-" is standard input, which is read completely at once if it is no plain file.
class Input {
 public:
  // Opens without waiting. invalid_argument: a folder, pipe or device; a pipe must be given as standard input.
  static Result<Input> open(const std::string& path);
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  // Fills `out` from `offset`; damaged if the file ends before.
  Status read(uint64_t offset, MutableBytes out) const;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Returns whether `path` names the same file.
  [[nodiscard]] bool is(const std::string& path) const;

 private:
  Input() = default;
  std::string path_;
  Fd fd_;
  uint64_t begin_ = 0;           // in the file; standard input may have been read before
  std::vector<std::byte> held_;  // content of a pipe
  uint64_t bytes_ = 0;
};

// A new file. It has no name until commit(), so nothing remains without that, however the process ends. If the file
// system has no such files, it has another name beside its place, and only a kill leaves it behind. "-" is standard
// output, where written bytes cannot be withdrawn.
class NewFile {
 public:
  // Fails with exists if the path exists and `force` is not set.
  static Result<NewFile> create(const std::string& path, bool force);
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile(const NewFile&) = delete;
  NewFile& operator=(NewFile&&) = delete;
  Status write(ConstBytes bytes);
  // Makes the file durable and gives it its name. exists: another file got that name meanwhile.
  Status commit();
  [[nodiscard]] uint64_t written() const noexcept { return written_; }

 private:
  NewFile() = default;
  Status open_new();
  [[nodiscard]] int give_name();
  std::string path_;
  std::string temporary_;  // "": it has no name, or its own
  bool ours_ = false;      // not standard output, and not committed
  bool force_ = false;
  int fd_ = -1;
  uint64_t written_ = 0;
};

}  // namespace kvbm::tensor

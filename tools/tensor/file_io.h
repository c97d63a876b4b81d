// Reading a file or a pipe, and writing one that appears whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace kvbm::tensor {

// A file, by place; "-" is standard input, which is read whole at once where it is no plain file.
class Input {
 public:
  // invalid_argument: a folder, pipe or device. Waits for nobody: a pipe is given as standard input.
  static Result<Input> open(const std::string& path);
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  // Fills `out` from `offset`; damaged where the file ends before.
  Status read(uint64_t offset, MutableBytes out) const;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Whether `path` names the same file.
  [[nodiscard]] bool is(const std::string& path) const;

 private:
  Input() = default;
  std::string path_;
  Fd fd_;
  uint64_t begin_ = 0;           // in the file; standard input may have been read from before
  std::vector<std::byte> held_;  // of a pipe
  uint64_t bytes_ = 0;
};

// A new file. It has no name until commit(), so nothing is left without that, however the process ends; where the file
// system has no such files, it lies under another name beside its place, and only a kill leaves it. "-" is standard
// output, where what was written is out.
class NewFile {
 public:
  // exists: something is there and `force` is not set.
  static Result<NewFile> create(const std::string& path, bool force);
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile(const NewFile&) = delete;
  NewFile& operator=(NewFile&&) = delete;
  Status write(ConstBytes bytes);
  // Makes it durable and gives it its name. exists: something came there meanwhile.
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

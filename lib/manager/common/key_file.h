// Key files: node.key_file and seal.key_file.
//
// The file must belong to this user and be unreadable for others (base/io/ownership.h). A link is not followed, and
// anything but a plain file is refused without blocking on it. The destructor wipes the text from memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::manager {

class KeyText {
 public:
  // Largest key file.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // Reads the file. bad_config, with `refused` and the reason: it cannot be read, is too large, or others may read
  // it.
  static Result<KeyText> read(const char* refused, const std::string& path);
  ~KeyText();
  KeyText(KeyText&& other) noexcept = default;
  KeyText& operator=(KeyText&& other) = delete;
  KeyText(const KeyText&) = delete;

  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  KeyText();
  std::vector<char> bytes_;  // never grows: reallocation would leave a copy behind
  size_t size_ = 0;
};

}  // namespace kvbm::manager

// Files of keys: node.key_file and seal.key_file.
//
// Such a file is this user's, and nobody else may read it (base/ownership.h); a link is not followed, and what is no
// plain file is refused without waiting for it. Its text is wiped from memory when the object goes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::manager {

class KeyText {
 public:
  // Largest file of keys.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // bad_config, with `refused` and why: the file cannot be read, is too large, or others may read it.
  static Result<KeyText> read(const char* refused, const std::string& path);
  ~KeyText();
  KeyText(KeyText&& other) noexcept = default;
  KeyText& operator=(KeyText&& other) = delete;
  KeyText(const KeyText&) = delete;

  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }

 private:
  KeyText();
  std::vector<char> bytes_;  // never grows: what it was moved out of would stay behind
  size_t size_ = 0;
};

}  // namespace kvbm::manager

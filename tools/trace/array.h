// The elements of a JSON array, one after the other. An array of any length is read with the memory of one element.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvbm::trace {

class Elements {
 public:
  // `text` begins behind the opening bracket.
  explicit Elements(std::string_view text) : text_(text) {}

  // Returns in `element` the text of the next element with the spaces around it, which need not be valid JSON.
  // Returns false if there is none. In an array that is cut off, the last element may be incomplete.
  bool next(std::string_view& element);
  // Return, after next() has returned false, whether the closing bracket was there, and the text after it.
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
  bool first_ = true;
  bool done_ = false;
  bool closed_ = false;
};

[[nodiscard]] inline bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace kvbm::trace

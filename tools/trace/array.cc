#include "trace/array.h"

#include <algorithm>

namespace kvbm::trace {

namespace {

// Returns the place of the first comma or closing bracket that belongs to the array itself; text.size() if there is
// none.
size_t end_of_element(std::string_view text) {
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '[':
      case '{':
        ++depth;
        break;
      case ',':
        if (depth == 0) return i;
        break;
      case ']':
        if (depth == 0) return i;
        --depth;
        break;
      case '}':
        if (depth != 0) --depth;
        break;
      default:
        break;
    }
  }
  return text.size();
}

}  // namespace

bool Elements::next(std::string_view& element) {
  if (done_) return false;
  const size_t end = end_of_element(text_);
  element = text_.substr(0, end);
  done_ = end == text_.size() || text_[end] == ']';
  closed_ = end != text_.size() && done_;
  text_.remove_prefix(std::min(end + 1, text_.size()));
  // Blank text between the brackets, or at the end of an array that is cut off, is no element; blank text between
  // commas is one.
  const bool none = blank(element) && done_ && (first_ || !closed_);
  first_ = false;
  return !none;
}

}  // namespace kvbm::trace

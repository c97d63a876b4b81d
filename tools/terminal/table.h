// Aligned text tables. Width is counted in code points, so UTF-8 words line up; a column of wide
// (east Asian) characters would not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvbm::terminal {

enum class Align { left, right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty, surplus ones are dropped.
  void add_row(std::vector<std::string> cells);
  // Title line, rule, rows; no trailing blanks; every line ends with a newline. With a `width` no line is longer, as
  // far as that is possible: cells of the widest columns on the left side go on in further lines, a word longer than
  // its column is cut.
  [[nodiscard]] std::string render(size_t width = 0) const;

 private:
  [[nodiscard]] std::vector<size_t> widths(size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A text as lines of at most `width` code points, cut at blanks where there are some, else
// behind a folder of a path; at least one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);
// Code points of a UTF-8 text.
size_t display_width(std::string_view text);
// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG in that order) names UTF-8.
bool locale_is_utf8();

}  // namespace kvbm::terminal

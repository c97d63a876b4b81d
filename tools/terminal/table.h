// Aligned text tables. Width is counted in code points, so UTF-8 words line up; a column of wide (east Asian)
// characters would not.
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
  // Adds a row. Missing cells are empty, surplus ones are dropped.
  void add_row(std::vector<std::string> cells);
  // Returns the title line, a rule and the rows. There are no trailing blanks, and every line ends with a newline.
  // With a `width` no line is longer, as far as possible: cells of the widest columns on the left side continue in
  // further lines, and a word longer than its column is cut.
  [[nodiscard]] std::string render(size_t width = 0) const;

 private:
  [[nodiscard]] std::vector<size_t> widths(size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Splits a text into lines of at most `width` code points, cut at blanks if there are any, else behind a folder of a
// path. Returns at least one line.
std::vector<std::string> wrapped(std::string_view text, size_t width);
// Returns the number of code points of a UTF-8 text.
size_t display_width(std::string_view text);
// Returns whether the environment's locale (LC_ALL, LC_CTYPE, LANG in that order) names UTF-8.
bool locale_is_utf8();

}  // namespace kvbm::terminal

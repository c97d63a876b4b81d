#include "terminal/table.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace kvbm::terminal {

namespace {

constexpr size_t kGap = 2;

void append_cell(std::string& line, const std::string& cell, size_t width, Align align) {
  const size_t blanks = width - std::min(width, display_width(cell));
  if (align == Align::right) line.append(blanks, ' ');
  line += cell;
  if (align == Align::left) line.append(blanks, ' ');
}

void end_line(std::string& out, std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  out += line;
  out += '\n';
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::render() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string out;
  std::string title;
  std::string rule;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (c > 0) title.append(kGap, ' ');
    if (c > 0) rule.append(kGap, ' ');
    append_cell(title, columns_[c].title, widths[c], columns_[c].align);
    rule.append(widths[c], '-');
  }
  end_line(out, title);
  end_line(out, rule);
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line.append(kGap, ' ');
      append_cell(line, row[c], widths[c], columns_[c].align);
    }
    end_line(out, line);
  }
  return out;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace kvbm::terminal

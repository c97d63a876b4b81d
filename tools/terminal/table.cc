#include "terminal/table.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace kvbm::terminal {

namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 16;  // of a column that is made narrower

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

std::vector<size_t> Table::widths(size_t width) const {
  std::vector<size_t> out;
  size_t total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest = display_width(columns_[c].title);
    for (const auto& row : rows_) widest = std::max(widest, display_width(row[c]));
    out.push_back(widest);
    total += widest + (c > 0 ? kGap : 0);
  }
  for (; width != 0 && total > width; --total) {
    size_t widest = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].align == Align::left && out[c] > kNarrowest &&
          (widest == columns_.size() || out[c] > out[widest]))
        widest = c;
    }
    if (widest == columns_.size()) break;
    --out[widest];
  }
  return out;
}

std::string Table::render(size_t width) const {
  const std::vector<size_t> widths = this->widths(width);
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
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      cells.push_back(display_width(row[c]) <= widths[c] ? std::vector{row[c]} : wrapped(row[c], widths[c]));
      lines = std::max(lines, cells[c].size());
    }
    for (size_t l = 0; l < lines; ++l) {
      std::string line;
      for (size_t c = 0; c < columns_.size(); ++c) {
        if (c > 0) line.append(kGap, ' ');
        append_cell(line, l < cells[c].size() ? cells[c][l] : std::string(), widths[c], columns_[c].align);
      }
      end_line(out, line);
    }
  }
  return out;
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  do {
    // Takes as many bytes as `width` code points have, then goes back to a blank if there is one, or to a folder of a
    // path.
    size_t end = 0;
    for (size_t points = 0; end < text.size() && points < std::max<size_t>(width, 1); ++points) {
      do ++end;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
    }
    const size_t blank = end < text.size() ? text.rfind(' ', end) : std::string_view::npos;
    const size_t folder = end < text.size() && end > 0 ? text.rfind('/', end - 1) : std::string_view::npos;
    if (blank != std::string_view::npos && blank != 0) {
      end = blank;
    } else if (folder != std::string_view::npos && folder != 0) {
      end = folder + 1;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  } while (!text.empty());
  return lines;
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

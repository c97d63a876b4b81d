#include "terminal/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kvbm::terminal {

namespace {

constexpr size_t kDefaultLines = 24;
constexpr size_t kDefaultColumns = 80;

// The alternate screen, without a cursor.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l";

bool redrawable(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

winsize size_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  if (size.ws_row == 0) size.ws_row = kDefaultLines;
  if (size.ws_col == 0) size.ws_col = kDefaultColumns;
  return size;
}

// Returns the first `columns` code points.
std::string_view cut(std::string_view line, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80U) continue;
    if (++seen > columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace

std::string screen_text(std::string_view text, size_t lines, size_t columns) {
  std::string out = "\033[H";
  for (size_t line = 0; line < lines && !text.empty(); ++line) {
    const size_t end = text.find('\n');
    // The last line has no end, because one would scroll the screen.
    if (line != 0) out += "\r\n";
    out += cut(text.substr(0, end), columns);
    out += "\033[K";
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return out + "\033[J";
}

Screen::Screen(int fd) : fd_(fd), usable_(redrawable(fd)) {}

size_t Screen::lines() const { return size_of(fd_).ws_row; }

void Screen::draw(std::string_view text) {
  if (!usable_) return;
  const winsize size = size_of(fd_);
  std::string out(entered_ ? std::string_view{} : kEnter);
  entered_ = true;
  write(out + screen_text(text, size.ws_row, size.ws_col));
}

void Screen::leave() {
  if (entered_) write(leave_text());
  entered_ = false;
}

void Screen::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace kvbm::terminal

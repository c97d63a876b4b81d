// A screen that is redrawn in place: the terminal's alternate screen, so that the earlier content returns at the end.
//
// The screen is entered at the first draw, and left by leave() or the destructor. Used by one thread at a time. A
// process that a signal ends can restore the terminal with leave_text(), which a signal handler may write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvbm::terminal {

// Returns the output that shows `text` on a screen of `lines` lines and `columns` columns. Longer lines and further
// lines are cut, and earlier content is erased. Width is counted in code points.
std::string screen_text(std::string_view text, size_t lines, size_t columns);

class Screen {
 public:
  // If the descriptor is not a terminal that can be redrawn (TERM), the screen is not usable.
  explicit Screen(int fd);
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] bool usable() const noexcept { return usable_; }
  // Returns the lines of the terminal now; 24 when it does not report them.
  [[nodiscard]] size_t lines() const;
  void draw(std::string_view text);
  void leave();

  // Shows the cursor and the earlier screen.
  static constexpr std::string_view leave_text() { return "\033[?25h\033[?1049l"; }

 private:
  void write(std::string_view text) const;

  const int fd_;
  bool usable_;
  bool entered_ = false;
};

}  // namespace kvbm::terminal

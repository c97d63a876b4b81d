// A screen that is redrawn in place: the terminal's alternate screen, so that what was there comes back at the end.
//
// Entered at the first draw, left by leave() or the destructor. Used by one thread at a time. A process that a signal
// ends can give the terminal back with leave_text(), which a signal handler may write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvbm::terminal {

// What puts `text` on a screen of so many lines and columns: longer lines and further lines are cut, what was there
// before is erased. Width is counted in code points.
std::string screen_text(std::string_view text, size_t lines, size_t columns);

class Screen {
 public:
  // On a descriptor that is not a terminal that can be redrawn (TERM), there is nothing to draw on.
  explicit Screen(int fd);
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] bool usable() const noexcept { return usable_; }
  // Of the terminal now; 24 when it does not say.
  [[nodiscard]] size_t lines() const;
  void draw(std::string_view text);
  void leave();

  // Shows the cursor and the screen that was there before.
  static constexpr std::string_view leave_text() { return "\033[?25h\033[?1049l"; }

 private:
  void write(std::string_view text) const;

  const int fd_;
  bool usable_;
  bool entered_ = false;
};

}  // namespace kvbm::terminal

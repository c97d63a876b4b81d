#include "terminal/screen.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "terminal/progress.h"

namespace kvbm::terminal::screen_test {
namespace {

TEST(ScreenText, cuts_what_the_screen_has_no_room_for_and_never_scrolls) {
  EXPECT_EQ(screen_text("one\ntwo\nthree\n", 2, 80), "\033[Hone\033[K\r\ntwo\033[K\033[J");
  EXPECT_EQ(screen_text("abcdef\n", 24, 4), "\033[Habcd\033[K\033[J");
  EXPECT_EQ(screen_text("", 24, 80), "\033[H\033[J");
}

TEST(ScreenText, counts_code_points) { EXPECT_EQ(screen_text("██░░\n", 24, 3), "\033[H██░\033[K\033[J"); }

TEST(Screen, draws_nothing_on_what_is_no_terminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    Screen screen(ends[1]);
    EXPECT_FALSE(screen.usable());
    screen.draw("text\n");
  }
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

TEST(RenderBar, stays_within_its_cells) {
  EXPECT_EQ(render_bar(0.5, 4, false), "##..");
  EXPECT_EQ(render_bar(7, 3, false), "###");
  EXPECT_EQ(render_bar(-1, 3, true), "░░░");
}

}  // namespace
}  // namespace kvbm::terminal::screen_test

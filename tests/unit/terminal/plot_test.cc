#include "terminal/plot.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "terminal/progress.h"

namespace kvbm::terminal::plot_test {
namespace {

TEST(Plot, ascii_draws_a_rising_line_between_its_marked_ends) {
  PlotOptions options;
  options.width = 5;
  options.height = 3;
  options.utf8 = false;
  const std::string plot = render_plot({{"lru", {{1, 0}, {3, 10}}}}, options);
  EXPECT_EQ(plot.substr(0, plot.find('\n')).back(), 'A');
  EXPECT_NE(plot.find("0 |A"), std::string::npos) << plot;
  EXPECT_NE(plot.find("A lru"), std::string::npos);
  EXPECT_TRUE(std::all_of(plot.begin(), plot.end(), [](char c) { return static_cast<unsigned char>(c) < 128; }));
}

TEST(Plot, braille_is_used_where_the_locale_allows) {
  EXPECT_NE(render_plot({{"lru", {{1, 0}, {3, 10}}}}, {}).find("\xE2\xA0"), std::string::npos);
}

TEST(Plot, nothing_to_draw_gives_nothing) {
  PlotOptions logarithmic;
  logarithmic.log_x = true;
  EXPECT_EQ(render_plot({}, {}), "");
  EXPECT_EQ(render_plot({{"zero", {{0, 1}}}}, logarithmic), "");
}

TEST(Plot, one_point_is_drawn) { EXPECT_NE(render_plot({{"one", {{5, 7}}}}, {}).find('A'), std::string::npos); }

TEST(Progress, line_says_share_rate_and_time_left) {
  const std::string line = render_progress({"replay", 50, 100, 5.0, Unit::items}, false);
  EXPECT_EQ(line, "replay [############............] 50%  50  10/s  5.0 s left");
}

TEST(Progress, unknown_total_has_no_bar) {
  EXPECT_EQ(render_progress({"scan", 2048, 0, 2.0, Unit::bytes}, true), "scan 2.00 KiB  1.00 KiB/s");
}

}  // namespace
}  // namespace kvbm::terminal::plot_test

// Draws a plot of lines in the terminal, such as hit rate against capacity: braille dots, or ASCII if the locale is
// not UTF-8. Each series has a letter, put on its points, and the legend lists the letters.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvbm::terminal {

struct Point {
  double x = 0;
  double y = 0;
};

struct Series {
  std::string name;
  std::vector<Point> points;  // by rising x
};

struct PlotOptions {
  size_t width = 64;   // cells of the drawing, without the axis
  size_t height = 16;  // lines of it
  bool log_x = false;  // points with x <= 0 are left out then
  bool utf8 = true;
  std::string x_label;
  std::string y_label;
};

// "" when there is no finite point to draw.
std::string render_plot(const std::vector<Series>& series, const PlotOptions& options);

}  // namespace kvbm::terminal

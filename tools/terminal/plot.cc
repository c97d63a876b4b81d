#include "terminal/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace kvbm::terminal {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double low = kInfinity;
  double high = -kInfinity;
  void take(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  [[nodiscard]] double place(double v) const { return high > low ? (v - low) / (high - low) : 0.5; }
};

// A canvas of two by four dots per cell, numbered as Unicode's braille block numbers them (U+2800).
class Canvas {
 public:
  Canvas(size_t width, size_t height) : width_(width), height_(height), dots_(width * height), marks_(width * height) {}

  void line(double x0, double y0, double x1, double y1) {
    const size_t steps = 2 * std::max(2 * width_, 4 * height_);
    for (size_t i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / static_cast<double>(steps);
      dot(x0 + (x1 - x0) * t, y0 + (y1 - y0) * t);
    }
  }
  void mark(double x, double y, char letter) { marks_[row(y, 1) * width_ + column(x, 1)] = letter; }
  [[nodiscard]] std::string text(size_t line_number, bool utf8) const {
    std::string out;
    for (size_t c = 0; c < width_; ++c) {
      const size_t at = line_number * width_ + c;
      if (marks_[at] != 0) {
        out += marks_[at];
      } else if (dots_[at] == 0) {
        out += ' ';
      } else if (!utf8) {
        out += '.';
      } else {
        out += '\xE2';
        out += static_cast<char>(0xA0 | (dots_[at] >> 6));
        out += static_cast<char>(0x80 | (dots_[at] & 0x3F));
      }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  }

 private:
  [[nodiscard]] size_t column(double x, size_t per_cell) const {
    return static_cast<size_t>(std::lround(x * static_cast<double>(width_ * per_cell - 1)));
  }
  [[nodiscard]] size_t row(double y, size_t per_cell) const {
    return static_cast<size_t>(std::lround((1 - y) * static_cast<double>(height_ * per_cell - 1)));
  }
  void dot(double x, double y) {
    static constexpr std::array<std::array<uint8_t, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    const size_t c = column(x, 2);
    const size_t r = row(y, 4);
    uint8_t& cell = dots_[r / 4 * width_ + c / 2];
    cell = static_cast<uint8_t>(cell | kBits[r % 4][c % 2]);
  }

  size_t width_;
  size_t height_;
  std::vector<uint8_t> dots_;
  std::vector<char> marks_;
};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::vector<Point> drawable(const Series& series, bool log_x) {
  std::vector<Point> points;
  for (const Point& p : series.points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y) || (log_x && p.x <= 0)) continue;
    points.push_back({log_x ? std::log10(p.x) : p.x, p.y});
  }
  return points;
}

char letter_of(size_t index) { return static_cast<char>('A' + static_cast<char>(index % 26)); }

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ').append(text);
}

}  // namespace

std::string render_plot(const std::vector<Series>& series, const PlotOptions& options) {
  Range xs;
  Range ys;
  ys.take(0);
  bool any = false;
  for (const Series& s : series) {
    for (const Point& p : drawable(s, options.log_x)) {
      xs.take(p.x);
      ys.take(p.y);
      any = true;
    }
  }
  if (!any || options.width < 2 || options.height < 2) return "";
  Canvas canvas(options.width, options.height);
  for (size_t i = 0; i < series.size(); ++i) {
    const std::vector<Point> points = drawable(series[i], options.log_x);
    for (size_t p = 0; p < points.size(); ++p) {
      const double x = xs.place(points[p].x);
      const double y = ys.place(points[p].y);
      if (p > 0) canvas.line(xs.place(points[p - 1].x), ys.place(points[p - 1].y), x, y);
      canvas.mark(x, y, letter_of(i));
    }
  }
  const size_t margin = std::max(number(ys.high).size(), number(ys.low).size());
  std::string out = options.y_label.empty() ? "" : options.y_label + "\n";
  for (size_t line = 0; line < options.height; ++line) {
    const std::string label = line == 0 ? number(ys.high) : line + 1 == options.height ? number(ys.low) : "";
    out += padded(label, margin) + (options.utf8 ? " │" : " |") + canvas.text(line, options.utf8) + "\n";
  }
  const std::string left = number(options.log_x ? std::pow(10, xs.low) : xs.low);
  const std::string right = number(options.log_x ? std::pow(10, xs.high) : xs.high);
  out +=
      std::string(margin + 2, ' ') + left + padded(right, options.width - std::min(options.width, left.size())) + "\n";
  if (!options.x_label.empty()) {
    out += std::string(margin + 2, ' ') + options.x_label + (options.log_x ? " (logarithmic)" : "") + "\n";
  }
  for (size_t i = 0; i < series.size(); ++i) out += std::string(1, letter_of(i)) + " " + series[i].name + "\n";
  return out;
}

}  // namespace kvbm::terminal

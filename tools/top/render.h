// Renders a frame as text, and as one line of JSON.
#pragma once

#include <string>
#include <vector>

#include "top/viewer.h"

namespace kvbm::top {

// Facts of the run that a frame does not have.
struct Run {
  std::string trace;
  uint64_t requests = 0;           // number to replay
  std::vector<std::string> tiers;  // names of the tiers, the host first
  Order order = Order::uses;
  bool stopped = false;  // true: ended early on request
};

struct Shape {
  bool utf8 = true;
  size_t lines = 0;  // of the screen; the lists become shorter to fit; 0: any number
};

const char* order_name(Order order) noexcept;
// Returns lines, each with its end.
std::string render_text(const Frame& frame, const Run& run, const Shape& shape);
// Returns one line without its end.
std::string render_json(const Frame& frame, const Run& run);

}  // namespace kvbm::top

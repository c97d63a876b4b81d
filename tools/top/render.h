// A frame as a person reads it, and as one line of JSON.
#pragma once

#include <string>
#include <vector>

#include "top/viewer.h"

namespace kvbm::top {

// What a frame does not know about the run it belongs to.
struct Run {
  std::string trace;
  uint64_t requests = 0;           // that will be replayed
  std::vector<std::string> tiers;  // their names, the host first
  Order order = Order::uses;
  bool stopped = false;  // somebody ended it early
};

struct Shape {
  bool utf8 = true;
  size_t lines = 0;  // of the screen; the lists become shorter to fit; 0: any number
};

const char* order_name(Order order) noexcept;
// Lines, each with its end.
std::string render_text(const Frame& frame, const Run& run, const Shape& shape);
// One line without its end.
std::string render_json(const Frame& frame, const Run& run);

}  // namespace kvbm::top

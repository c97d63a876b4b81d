// A killed process frees nothing: what a simulated one leaves behind is no leak. A file whose tests kill simulated processes
// says so once, at file scope, and the leak sanitizer is not asked where one of them ran:
//   const SimulatedKills kills(__FILE__);
#pragma once

#include <string_view>

namespace kvbm::test {

class SimulatedKills {
 public:
  explicit SimulatedKills(const char* file);
  // Of the tests that ran: main() says so when they are over.
  static void ran(std::string_view file);
};

}  // namespace kvbm::test

// A killed process frees nothing: memory left by a simulated one is not a leak. A file with tests that kill simulated
// processes declares it once, at file scope, and the leak sanitizer is not run for them:
//   const SimulatedKills kills(__FILE__);
#pragma once

#include <string_view>

namespace kvbm::test {

class SimulatedKills {
 public:
  explicit SimulatedKills(const char* file);
  // Notes that a test of this file ran. main() reports them at the end.
  static void ran(std::string_view file);
};

}  // namespace kvbm::test

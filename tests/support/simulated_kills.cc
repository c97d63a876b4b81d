#include "support/simulated_kills.h"

#include <set>

namespace {

std::set<std::string_view>& files_with_kills() {
  static std::set<std::string_view> files;
  return files;
}

bool one_ran = false;

}  // namespace

// The leak sanitizer asks this at the end of the process.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return one_ran ? 1 : 0; }

namespace kvbm::test {

SimulatedKills::SimulatedKills(const char* file) { files_with_kills().insert(file); }

void SimulatedKills::ran(std::string_view file) { one_ran = one_ran || files_with_kills().contains(file); }

}  // namespace kvbm::test

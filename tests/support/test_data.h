// Where a test's data is: beside its source, or where KVBMTEST_DATA says, for programs that run on another machine than
// they were built on.
#pragma once

#include <cstdlib>
#include <string>

namespace kvbm::test {

inline std::string data_folder(const char* beside_source) {
  const char* const elsewhere = std::getenv("KVBMTEST_DATA");
  return elsewhere != nullptr ? elsewhere : beside_source;
}

}  // namespace kvbm::test

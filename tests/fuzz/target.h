// How a fuzz target is defined: KVBM_FUZZ_TARGET(record) { ... return 0; }, with `data` and `size` for the input.
// Alone in a libFuzzer program it is that program's entry; in the program `fuzz` it is one of the named targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace kvbm::test {

using FuzzFunction = int (*)(const uint8_t* data, size_t size);

inline std::map<std::string_view, FuzzFunction>& fuzz_targets() {
  static std::map<std::string_view, FuzzFunction> targets;
  return targets;
}

struct FuzzTarget {
  FuzzTarget(std::string_view name, FuzzFunction function) { fuzz_targets().emplace(name, function); }
};

}  // namespace kvbm::test

#ifdef KVBM_LIBFUZZER
#define KVBM_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define KVBM_FUZZ_TARGET(name)                                                \
  static int name##_one_input(const uint8_t* data, size_t size);              \
  static const kvbm::test::FuzzTarget name##_target(#name, name##_one_input); \
  static int name##_one_input([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)
#endif

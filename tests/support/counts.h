// How often a test does something that is done at random: by default so that a continuous integration run stays short,
// more with KVBMTEST_LONG, less where a sanitizer makes everything slow, and as its own variable says.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kvbm::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline uint64_t number_from(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

inline uint64_t count_from(const char* name, uint64_t usual, uint64_t in_long_runs) {
  const bool is_long = std::getenv("KVBMTEST_LONG") != nullptr;
  return number_from(name, is_long ? in_long_runs : kSanitized ? (usual + 3) / 4 : usual);
}

// The seed of a test's random choices, printed so that a failure can be run again.
inline uint64_t seed_from(const char* name) {
  const uint64_t seed = number_from(name, 1);
  std::printf("%s=%llu\n", name, static_cast<unsigned long long>(seed));
  return seed;
}

// Says how much of something a test did, for tools/test, which adds these lines up: "12 kills", "300 seeds".
inline void counted(uint64_t n, const char* what) {
  std::printf("\ncounted: %llu %s\n", static_cast<unsigned long long>(n), what);
}

}  // namespace kvbm::test

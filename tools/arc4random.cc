// Defines arc4random() of the C library, which glibc has from 2.36 on, by getrandom(2). Static libraries (libevent's,
// that of C++) use it if they were built with it. A binary linked with this file still runs with glibc 2.35 (Ubuntu
// 22.04).
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/crypto/random.h"

extern "C" {

uint32_t arc4random() noexcept;
void arc4random_buf(void* out, size_t bytes) noexcept;

__attribute__((visibility("hidden"))) void arc4random_buf(void* out, size_t bytes) noexcept {
  static kvbm::SystemRandom random;
  if (!random.ready().ok()) std::abort();  // like the C library: the function cannot report an error
  random.fill({static_cast<std::byte*>(out), bytes});
}

__attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t out = 0;
  arc4random_buf(&out, sizeof out);
  return out;
}

}  // extern "C"

#include "base/crypto/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/crypto/hmac.h"

namespace kvbm {

void Random::fill(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const uint64_t v = next();
    const size_t n = out.size() < sizeof v ? out.size() : sizeof v;
    std::memcpy(out.data(), &v, n);
    out = out.subspan(n);
  }
}

uint64_t Random::below(uint64_t bound) noexcept {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
}

namespace {

// All bytes or none, up to 256 at a time (getrandom(2)).
bool from_system(void* out, size_t bytes) noexcept {
  ssize_t n = -1;
  do {
    n = getrandom(out, bytes, 0);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(bytes);
}

}  // namespace

SystemRandom::SystemRandom() noexcept {
  if (!from_system(seed_.data(), sizeof seed_)) error_ = errno != 0 ? errno : EIO;
}

Status SystemRandom::ready() const {
  if (error_ == 0) return {};
  return {Code::io_error, "the system gives no random numbers, which nonces are made of",
          "getrandom: " + std::string(std::strerror(error_))};
}

uint64_t SystemRandom::next() noexcept {
  uint64_t v = 0;
  if (from_system(&v, sizeof v)) return v;
  const uint64_t count = count_.fetch_add(1, std::memory_order_relaxed);
  const Mac derived = KeyedMac(seed_)(std::as_bytes(std::span(&count, 1)));
  std::memcpy(&v, derived.data(), sizeof v);
  return v;
}

// Simulations fill gigabytes: this avoids a virtual call per word.
void SeededRandom::fill(std::span<std::byte> out) noexcept {
  for (; out.size() >= sizeof(uint64_t); out = out.subspan(sizeof(uint64_t))) {
    const uint64_t v = step();
    std::memcpy(out.data(), &v, sizeof v);
  }
  if (out.empty()) return;
  const uint64_t v = step();
  std::memcpy(out.data(), &v, out.size());
}

}  // namespace kvbm

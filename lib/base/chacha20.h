// One block of ChaCha20 (RFC 8439, section 2.3): 64 bytes that cannot be predicted without the key. Pure; for
// randomness only (random.h), not for messages.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace kvbm {

inline std::array<uint32_t, 16> chacha20_block(const std::array<uint32_t, 8>& key, uint32_t counter,
                                               const std::array<uint32_t, 3>& nonce) noexcept {
  std::array<uint32_t, 16> start = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  for (size_t i = 0; i < key.size(); ++i) start[4 + i] = key[i];
  start[12] = counter;
  for (size_t i = 0; i < nonce.size(); ++i) start[13 + i] = nonce[i];
  std::array<uint32_t, 16> x = start;
  const auto quarter = [&x](size_t a, size_t b, size_t c, size_t d) {
    x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 16);
    x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = std::rotl(x[d] ^ x[a], 8);
    x[c] += x[d], x[b] = std::rotl(x[b] ^ x[c], 7);
  };
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < 4; ++i) quarter(i, 4 + i, 8 + i, 12 + i);
    for (size_t i = 0; i < 4; ++i) quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] += start[i];
  return x;
}

}  // namespace kvbm

// The key of a pool as text: made by `kvbm key new`, and stored in a node's node.key_file.
//
//   kvbm-pool-key-1:<64 hexadecimal digits>:<8 hexadecimal digits>
//
// The 64 digits are 32 random bytes, the last 8 the first 4 bytes of SHA-256("kvbm pool key", zero byte, those 32).
// So a valid key was made at random: an invented word, half a key or a key with a wrong digit is no key. The text is
// as secret as the key.
#pragma once

#include <array>
#include <string_view>

#include "base/crypto/hmac.h"
#include "base/crypto/random.h"
#include "base/status.h"

namespace kvbm::cluster {

inline constexpr std::string_view kPoolKeyPrefix = "kvbm-pool-key-1:";
inline constexpr size_t kPoolKeyText = kPoolKeyPrefix.size() + 64 + 1 + 8;

// The key that both sides of a pool know. Its destructor wipes every copy.
struct SharedKey : std::array<uint8_t, 32> {
  ~SharedKey() { wipe(data(), size()); }
};

// Not zero-terminated; the caller wipes it.
using PoolKeyText = std::array<char, kPoolKeyText>;

PoolKeyText pool_key_text(const SharedKey& key) noexcept;
// Makes a key of 32 bytes of `random`: a SystemRandom that has passed ready().
SharedKey new_pool_key(Random& random) noexcept;
// Parses a key; ignores trailing white space. invalid_argument: what is wrong and the remedy; never the text.
Result<SharedKey> parse_pool_key(std::string_view text);

}  // namespace kvbm::cluster

// The key of a pool as text: what `kvbm key new` makes and a node's node.key_file holds.
//
//   kvbm-pool-key-1:<64 hexadecimal digits>:<8 hexadecimal digits>
//
// The 64 digits are 32 random bytes, the last 8 the first 4 bytes of SHA-256("kvbm pool key", zero byte, those 32). So a
// key is always one that was made at random: a word that somebody thought of, half a key or a key with a wrong digit is
// no key. The text is as secret as the key.
#pragma once

#include <array>
#include <string_view>

#include "base/random.h"
#include "base/status.h"
#include "cluster/keyed_mac.h"

namespace kvbm::cluster {

inline constexpr std::string_view kPoolKeyPrefix = "kvbm-pool-key-1:";
inline constexpr size_t kPoolKeyText = kPoolKeyPrefix.size() + 64 + 1 + 8;

// Without an end; the caller wipes it.
using PoolKeyText = std::array<char, kPoolKeyText>;

PoolKeyText pool_key_text(const SharedKey& key) noexcept;
// 32 bytes of the source: of SystemRandom, whose ready() has been looked at.
SharedKey new_pool_key(Random& random) noexcept;
// White space after it is left out. invalid_argument, saying what is wrong with it and what to do; never the text.
Result<SharedKey> parse_pool_key(std::string_view text);

}  // namespace kvbm::cluster

// How a copy writes its target, depending on how much is copied before it is read.
#pragma once

#include <cstdint>

#include "codec/hash/leaf_hash.h"

namespace kvbm::codec {

// Returns `cached` if a reader finds the target in a cache after `bytes` were copied in all, else automatic. Streaming
// is the quicker copy, but a reader then waits for memory: codec/README.md, "Copies". The limit is half of the
// second-level cache. On AMD's processors it is twice the second level, since their third level takes what the second
// one evicts. (On Zen 4 up to 4 MiB paid, 16 MiB did not; other cores need room there too.)
[[nodiscard]] CopyHint hint_for(uint64_t bytes) noexcept;

}  // namespace kvbm::codec

// How a copy is to write its target, by how much is copied before somebody reads it.
#pragma once

#include <cstdint>

#include "codec/leaf_hash.h"

namespace kvbm::codec {

// For somebody who copies so many bytes in all before they are read: `cached` if the reader finds them in a cache then.
// Streaming is the quicker copy, and a reader then waits for memory: README.md, "Copies". On AMD's processors the third level
// takes what the second one gives up (on Zen 4 up to 4 MiB paid, 16 MiB did not), and other cores are to have room there
// too, so it is twice the second level; elsewhere half of it.
[[nodiscard]] CopyHint hint_for(uint64_t bytes) noexcept;

}  // namespace kvbm::codec

// zstd over a leaf: byte planes of elements, each coded where that makes it smaller. The reference for other coders, and
// what is left for bytes of which nothing is known. Format: README.md.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/frame.h"
#include "codec/leaf_codec.h"

namespace kvbm::codec {

// Whether this build has zstd: without it nothing is coded so, and what was is not decoded (unsupported).
[[nodiscard]] bool has_zstd() noexcept;
// Bytes written to `out` (encode_room() of them at least), or 0: not smaller, or built without zstd. no_memory.
Result<uint32_t> zstd_encode(const LeafForm& form, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                             Workspace& workspace) noexcept;
Status zstd_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept;

}  // namespace kvbm::codec

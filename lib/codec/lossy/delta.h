// Lossy coding of one leaf by anchor tokens and differences from them, after CacheGen (Y. Liu et al., "CacheGen: KV
// Cache Compression and Streaming for Fast Large Language Model Serving", SIGCOMM 2024, section 5). There, groups of
// ten tokens have the first one with 8 bits, the others as quantised differences from it. Steps are wider in later
// layers, and codes are entropy coded with statistics of channels. Here, steps follow each channel's own differences, a
// channel with differences larger than its values is not differenced, and codes are a symbol plane's.
// Format: codec/README.md, "Delta leaves". Called by leaf_codec.cc only.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/frame.h"
#include "codec/leaf/leaf_coding.h"

namespace kvbm::codec {

// Encodes like quantize_encode(). Leaves with fewer than 32 tokens of a head, or without known rows, become int4_coded.
[[nodiscard]] Result<Encoded> delta_encode(const LeafForm& form, ConstBytes raw, MutableBytes out,
                                           Workspace& workspace) noexcept;
[[nodiscard]] Status delta_decode(const Frame& frame, ConstBytes stored, MutableBytes raw,
                                  Workspace& workspace) noexcept;

}  // namespace kvbm::codec

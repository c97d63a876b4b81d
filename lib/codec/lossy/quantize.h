// Lossy coding of one leaf by numbers of 8, 6 or 4 bits and scales. Format: codec/README.md, "Lossy leaves". Called by
// leaf_codec.cc only, which has checked sizes.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/frame.h"
#include "codec/leaf/leaf_coding.h"

namespace kvbm::codec {

// Writes a frame to `out` (encode_room() of it), or returns Encoded with codec `raw`: then this leaf cannot be
// quantised (its element, an infinity, a NaN, numbers out of range, no gain), and is to be coded without loss.
[[nodiscard]] Result<Encoded> quantize_encode(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                                              Workspace& workspace) noexcept;
// `frame` is that of `stored`, and was checked by read_frame().
[[nodiscard]] Status quantize_decode(const Frame& frame, ConstBytes stored, MutableBytes raw,
                                     Workspace& workspace) noexcept;

// "avx512", "portable"; any other name selects portable, null the best one here. False: not available here.
bool force_quantize_kernel(const char* name) noexcept;

}  // namespace kvbm::codec

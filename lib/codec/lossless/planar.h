// Bit-plane Huffman: the top byte of each element (exponents) is coded with a tree of fixed shape, one stream of bits a
// level. The other bytes are stored unchanged, since they are noise. `max` may code the sign with the exponent. Format:
// codec/README.md.
//
// Works on 64 elements at a time. Bit l of the codes of all elements that are still undecided is one 64-bit mask:
// written with pext, read with pdep. So decoding walks no tables and has no branches, and its only serial chain is one
// addition a stream and 64 elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/frame.h"
#include "codec/leaf/leaf_coding.h"

namespace kvbm::codec {

[[nodiscard]] bool planar_fits(Element element) noexcept;

// Returns the bytes written to `out` (encode_room() of them at least), or 0: not smaller. no_memory. `mode`: fast,
// standard or max.
Result<uint32_t> planar_encode(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                               Workspace& workspace) noexcept;
Status planar_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept;

}  // namespace kvbm::codec

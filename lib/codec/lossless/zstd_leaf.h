// zstd over a leaf: byte planes of elements, each coded if that makes it smaller. The reference for other coders, and
// the fallback for bytes of unknown form. Format: codec/README.md.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/frame.h"
#include "codec/leaf/leaf_coding.h"

namespace kvbm::codec {

// True if this build has zstd: without it no leaf is coded with it, and such leaves are not decoded (unsupported).
[[nodiscard]] bool has_zstd() noexcept;
// Returns the bytes written to `out` (encode_room() of them at least), or 0: not smaller, or built without zstd.
// no_memory.
Result<uint32_t> zstd_encode(const LeafForm& form, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                             Workspace& workspace) noexcept;
// Bytes at the beginning of a workspace that encoding uses; 0: built without zstd.
[[nodiscard]] size_t zstd_encode_workspace() noexcept;
Status zstd_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept;
// For byte planes that are made or joined elsewhere (device/kernels/planes.cu): as many bytes as the leaf has, one
// plane behind the other, then the rest behind the last whole element.
Result<uint32_t> zstd_encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash, MutableBytes out,
                                    Workspace& workspace) noexcept;
Status zstd_decode_planes(const Frame& frame, ConstBytes stored, MutableBytes planes, Workspace& workspace) noexcept;

}  // namespace kvbm::codec

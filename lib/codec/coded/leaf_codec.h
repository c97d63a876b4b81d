// Codes one leaf: the only interface to all codecs. A coded leaf is self-contained: decoding needs only its bytes and
// the codec number of the leaf table. Formats: codec/README.md.
//
// Lossless modes restore every bit, NaN payloads and negative zeros included. Lossy ones are used only if a namespace
// is configured for them, and report the loss.
// Pure functions: no I/O, no locks, no allocation beyond the workspace. Thread: any, one workspace a thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/leaf_coding.h"
#include "codec/leaf/leaf_form.h"
#include "codec/record/record.h"

namespace kvbm::codec {

// Codes a leaf. `raw`: 1 to kMaxLeafBytes, any alignment. A mode that does not fit the element (int8 of fp8, planar of
// unknown bytes) falls back: lossless modes to zstd or raw, lossy ones to lossless `standard`. `standard` and `max`
// also use zstd for leaves with many zeros.
// `raw_hash`: leaf_hash(raw), which the caller has from the leaf table. It is written into the coded leaf; lossy modes
// write the hash of the decoded bytes instead.
[[nodiscard]] Result<Encoded> encode_leaf(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash,
                                          MutableBytes out, Workspace& workspace) noexcept;

// Returns the leaf_hash of the decoded bytes, as stored in a coded leaf. decode_leaf() does not compare it: its caller
// hashes the bytes where it needs them, and must not use them before. nullopt: too short to be a coded leaf.
[[nodiscard]] std::optional<uint64_t> raw_hash_of(ConstBytes stored) noexcept;

// Fills all of `raw`, which has the size of the leaf. `stored` may have any alignment; 64 is faster. damaged:
// encode_leaf never made these bytes. For any bytes, nothing outside of `raw` is written, nothing outside of `stored`
// is read, and time is bounded by raw.size(). newer_version: an unknown codec or version; unsupported: built without it
// (zstd).
[[nodiscard]] Status decode_leaf(LeafCodec codec, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept;
[[nodiscard]] bool is_lossy(LeafCodec codec) noexcept;

// Codes leaves with byte planes that are made or joined elsewhere (device/kernels/planes.cu). encode: like
// encode_leaf() with Mode::zstd, for the leaf with these planes. decode: for a leaf of codec zstd; `element` is the
// element of the planes. Neither the leaf nor its hash is seen here: the caller that joins the planes must compare.
[[nodiscard]] Result<Encoded> encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash,
                                            MutableBytes out, Workspace& workspace) noexcept;
[[nodiscard]] Status decode_planes(ConstBytes stored, MutableBytes planes, Element& element,
                                   Workspace& workspace) noexcept;

// Returns the mode that a leaf was coded with, if its bytes tell. nullopt: more than one mode makes such a leaf.
[[nodiscard]] std::optional<Mode> mode_of(LeafCodec codec, ConstBytes stored) noexcept;

// Name of the implementation in use: "avx512", "bmi2", "portable". force: for tests and benchmarks; null restores the
// choice, false: not available here. All implementations give equal bytes.
[[nodiscard]] const char* codec_kernel_name() noexcept;
bool force_codec_kernel(const char* name) noexcept;

}  // namespace kvbm::codec

// Codes one leaf: the only interface to all codecs. A coded leaf is self-contained: decoding needs only its bytes and
// the codec number of the leaf table. Formats: README.md.
//
// Lossless modes restore every bit, NaN payloads and negative zeros included. Lossy ones are used only if a namespace
// is configured for them, and report the loss.
// Pure functions: no I/O, no locks, no allocation beyond the workspace. Thread: any, one workspace a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf_form.h"
#include "codec/record.h"

namespace kvbm::codec {

// Requested coding. The numbers are part of the C API (kvbm_codec_mode_t).
enum class Mode : uint8_t {
  off = 0,
  fast = 1,      // lossless, for links near memory speed
  standard = 2,  // lossless; "default" in configuration
  max = 3,       // lossless, for space
  zstd = 4,      // lossless, any bytes; the reference
  fp8_e4m3 = 16,
  fp8_e5m2 = 17,
  int8 = 18,
  int6 = 19,
  int4 = 20,
  int8_coded = 21,  // with an entropy stage
  int6_coded = 22,
  int4_coded = 23,
  delta = 24,  // anchors and coded differences of tokens, as in the CacheGen paper
};
[[nodiscard]] constexpr bool is_lossy(Mode mode) noexcept { return static_cast<uint8_t>(mode) >= 16; }
[[nodiscard]] std::optional<Mode> mode_by_name(std::string_view name) noexcept;
[[nodiscard]] std::string_view mode_name(Mode mode) noexcept;

struct RecordSpace;  // coded_record.cc

// Reusable memory of one thread's coding: at most 640 KiB, allocated at the first use, and 70 KiB more if whole records
// are coded.
class Workspace {
 public:
  // Returns 64-byte aligned memory; it is the same at each call, so each call invalidates its content. Null: no memory.
  // Every coding of a leaf takes it: a caller's content is overwritten by encode_leaf() or decode_leaf().
  std::byte* take(size_t bytes) noexcept;
  // Returns additional memory for coding whole records; take() does not touch it. Null: no memory.
  RecordSpace* record() noexcept;

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
    void operator()(RecordSpace* p) const noexcept;
  };
  std::unique_ptr<RecordSpace, Free> record_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Size of `out` that encode_leaf() needs for a leaf of that many bytes; 64-byte aligned. The result is smaller than
// `raw_bytes`, or nothing is returned.
constexpr size_t encode_room(size_t raw_bytes) noexcept { return raw_bytes + 4096; }

struct Encoded {
  LeafCodec codec = LeafCodec::raw;  // raw: coding would not make it smaller; `out` must not be used
  uint32_t bytes = 0;                // a multiple of 64, < raw bytes
  bool lossy = false;
  // Lossy only: sum of squares of the differences, and of the values; relative error = difference / value.
  double difference = 0;
  double value = 0;
};

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
[[nodiscard]] Result<Encoded> encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash, MutableBytes out,
                                            Workspace& workspace) noexcept;
[[nodiscard]] Status decode_planes(ConstBytes stored, MutableBytes planes, Element& element, Workspace& workspace) noexcept;

// Returns the mode that a leaf was coded with, if its bytes tell. nullopt: more than one mode makes such a leaf.
[[nodiscard]] std::optional<Mode> mode_of(LeafCodec codec, ConstBytes stored) noexcept;

// Name of the implementation in use: "avx512", "bmi2", "portable". force: for tests and benchmarks; null restores the
// choice, false: not available here. All implementations give equal bytes.
[[nodiscard]] const char* codec_kernel_name() noexcept;
bool force_codec_kernel(const char* name) noexcept;

}  // namespace kvbm::codec

// Coding one leaf: the only door to every codec. A coded leaf is self-contained: it decodes with nothing but its bytes
// and the codec number of the leaf table. Formats: README.md.
//
// Lossless modes give back every bit, NaN payloads and negative zeros included. Lossy ones are used only where a
// namespace asked for them, and say what they lost.
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

// What is asked for. The numbers are part of the C API (kvbm_codec_mode_t).
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

// Reusable memory of one thread's coding: at most 640 KiB, taken at the first use, and 70 KiB where whole records are
// coded.
class Workspace {
 public:
  // 64-byte aligned; the same memory at each call, so its content is gone at the next. Null: no memory.
  // Whoever codes a leaf takes it; what a caller holds across encode_leaf() or decode_leaf() is overwritten.
  std::byte* take(size_t bytes) noexcept;
  // What coding whole records needs besides; take() does not touch it. Null: no memory.
  RecordSpace* record() noexcept;

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
    void operator()(RecordSpace* p) const noexcept;
  };
  std::unique_ptr<RecordSpace, Free> record_;
  std::unique_ptr<std::byte, Free> memory_;
};

// Room that encode_leaf() needs at `out` for a leaf of that many bytes; 64-byte aligned. What it returns is smaller
// than `raw_bytes`, or nothing is returned.
constexpr size_t encode_room(size_t raw_bytes) noexcept { return raw_bytes + 4096; }

struct Encoded {
  LeafCodec codec = LeafCodec::raw;  // raw: coding would not have made it smaller; `out` says nothing
  uint32_t bytes = 0;                // a multiple of 64, < raw bytes
  bool lossy = false;
  // Lossy only: sum of squares of the differences, and of the values; relative error = difference / value.
  double difference = 0;
  double value = 0;
};

// `raw`: 1 to kMaxLeafBytes, any alignment. A mode that does not fit the element (int8 of fp8, planar of unknown bytes)
// falls back to what fits: lossless modes to zstd or raw, lossy ones to lossless `standard`. `standard` and `max` take zstd, too,
// where zeros abound.
// `raw_hash`: leaf_hash(raw), which the caller has from the leaf table. It is written into the coded leaf; lossy modes
// write the hash of what decoding will give instead.
[[nodiscard]] Result<Encoded> encode_leaf(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash,
                                          MutableBytes out, Workspace& workspace) noexcept;

// leaf_hash of what decoding gives, as a coded leaf says. decode_leaf() does not compare: its caller hashes the bytes
// where it needs them, and must not use them before. nullopt: too short to be a coded leaf.
[[nodiscard]] std::optional<uint64_t> raw_hash_of(ConstBytes stored) noexcept;

// Fills all of `raw`, whose size is that of the leaf. damaged: these bytes were never made by encode_leaf (whatever they
// are, nothing outside of `raw` is written, nothing outside of `stored` is read, and time is bounded by raw.size());
// newer_version: a codec or version that is not known here; unsupported: built without it (zstd). `stored` may have any alignment; 64 is faster.
[[nodiscard]] Status decode_leaf(LeafCodec codec, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept;
[[nodiscard]] bool is_lossy(LeafCodec codec) noexcept;

// Leaves whose byte planes somebody else makes or puts together (device/kernels/planes.cu). encode: as encode_leaf() with
// Mode::zstd does of the leaf that has these planes. decode: of a leaf of codec zstd; `element` is what the planes are of.
// Neither the leaf nor its hash was seen: whoever puts the planes together compares.
[[nodiscard]] Result<Encoded> encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash, MutableBytes out,
                                            Workspace& workspace) noexcept;
[[nodiscard]] Status decode_planes(ConstBytes stored, MutableBytes planes, Element& element, Workspace& workspace) noexcept;

// The mode that a leaf was coded with, where its bytes tell. nullopt: more than one mode gives such.
[[nodiscard]] std::optional<Mode> mode_of(LeafCodec codec, ConstBytes stored) noexcept;

// Which implementation runs here: "avx512", "bmi2", "portable". force: for tests and benchmarks; null restores the
// choice, false: not available here. Every implementation gives the same bytes.
[[nodiscard]] const char* codec_kernel_name() noexcept;
bool force_codec_kernel(const char* name) noexcept;

}  // namespace kvbm::codec

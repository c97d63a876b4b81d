// Coding of one leaf, as far as all codecs share it: modes, results and work memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "codec/record/record.h"
#include "codec/seal/seal.h"

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

inline constexpr size_t kWorkspaceBytes = 640 * 1024;  // the most that Workspace::take() returns

// Size of `out` that encode_leaf() needs for a leaf of `raw_bytes` bytes; 64-byte aligned. The result is smaller than
// `raw_bytes`, or nothing is returned.
constexpr size_t encode_room(size_t raw_bytes) noexcept { return raw_bytes + 4096; }

// Reusable memory of one thread's coding: at most 640 KiB for take() and 68 KiB for stage(), allocated at the first
// use.
class Workspace {
 public:
  // Returns 64-byte aligned memory; it is the same at each call, so each call invalidates its content. Null: no memory.
  // Every coding of a leaf takes it: a caller's content is overwritten by encode_leaf() or decode_leaf().
  std::byte* take(size_t bytes) noexcept;
  // Returns 64-byte aligned memory for any coded leaf, encode_room(kMaxLeafBytes); take() does not touch it. Null: no
  // memory.
  std::byte* stage() noexcept;
  // Has the key of the record that it sealed or opened last.
  [[nodiscard]] Sealer& sealer() noexcept { return sealer_; }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  static std::byte* allocated(Memory& memory, size_t bytes) noexcept;

  Memory memory_;
  Memory stage_;
  Sealer sealer_;
};

struct Encoded {
  LeafCodec codec = LeafCodec::raw;  // raw: coding would not make it smaller; `out` must not be used
  uint32_t bytes = 0;                // a multiple of 64, < raw bytes
  bool lossy = false;
  // Lossy only: sum of squares of the differences, and of the values; relative error = difference / value.
  double difference = 0;
  double value = 0;
};

}  // namespace kvbm::codec

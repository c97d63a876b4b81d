// Why a lossy mode was not used: blocks (leaves) that it leaves as they are are coded without loss, and whoever asked for it
// is told.
#pragma once

#include <cstdint>
#include <string>

#include "codec/coded_stream.h"

namespace kvbm::tensor {

// Of values that were coded with a lossy mode.
struct KeptLossless {
  uint64_t blocks = 0;      // all of them; lossless:
  uint64_t no_float = 0;    // not of a type that lossy modes take
  uint64_t not_finite = 0;  // with an infinity or a NaN
  uint64_t no_gain = 0;     // too few values, or too large or small ones
  [[nodiscard]] uint64_t lossless() const noexcept { return no_float + not_finite + no_gain; }
  // `raw`: what the stream was made of.
  void add(const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw) noexcept;
  // "int8 was not used for 2 of 5 blocks of values, ..", empty where it was used for all.
  [[nodiscard]] std::string text(codec::Mode mode) const;
};

}  // namespace kvbm::tensor

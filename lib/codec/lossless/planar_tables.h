// Chooses the coding of a leaf's top bytes: classes of channels, ranks of symbols, the shape of the tree. Uses samples
// and integers only, so that every machine makes the same choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "codec/leaf/leaf_coding.h"
#include "codec/lossless/planar_kernel.h"

namespace kvbm::codec {

// Parameters that a decoder needs, as they are written into the leaf.
struct PlanarChoice {
  uint8_t levels = 0;
  uint8_t counts[kMaxLevels] = {};  // codes of 1, 2 .. bits; the very last one is the escape
  uint32_t classes = 1;
  uint32_t codes = 0;                              // sum of counts
  uint8_t symbols[kMaxClasses][kMaxSymbols] = {};  // by rank; codes - 1 of them
  uint64_t bytes = 0;                              // estimated size of the coded bytes, tables included
};

// Sets plan.limit, .full and .rank from the counts; false: no complete tree of at least two codes.
bool planar_shape(const uint8_t* counts, uint32_t levels, PlanarPlan& plan) noexcept;

// Bytes that planar_choose() needs: means of channels, and samples. A last, shorter group has as many samples as the
// others.
inline constexpr size_t kChannelRoom = 8 * 1024;
inline constexpr size_t kSampleRoom = kChannelRoom + 2 * kMaxLeafBytes;

// Determines the number of different blocks of channels; sets period and group_blocks.
void planar_channels(const LeafForm& form, PlanarPlan& plan) noexcept;

// `plan` has element, blocks and channels; its other fields for encoding are set here.
void planar_choose(PlanarPlan& plan, Mode mode, const std::byte* raw, std::byte* room, PlanarChoice& choice) noexcept;

// Returns the mode that makes trees of `levels` levels. nullopt: no mode does, or several do (8 levels in every mode
// with signs).
std::optional<Mode> planar_mode(uint8_t levels) noexcept;

}  // namespace kvbm::codec

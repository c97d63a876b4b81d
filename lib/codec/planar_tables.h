// Choosing how a leaf's top bytes are coded: classes of channels, ranks of symbols, the shape of the tree. From samples,
// in integers alone, so that every machine chooses the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "codec/leaf_codec.h"
#include "codec/planar_kernel.h"

namespace kvbm::codec {

// What a decoder must be told, as it is written into the leaf.
struct PlanarChoice {
  uint8_t levels = 0;
  uint8_t counts[kMaxLevels] = {};  // codes of 1, 2 .. bits; the last of all is the escape
  uint32_t classes = 1;
  uint32_t codes = 0;                                 // sum of counts
  uint8_t symbols[kMaxClasses][kMaxSymbols] = {};     // by rank; codes - 1 of them
  uint64_t bytes = 0;                                 // estimate: of what is coded, tables included
};

// Sets plan.limit, .full and .rank from the counts; false: no complete tree of at least two codes.
bool planar_shape(const uint8_t* counts, uint32_t levels, PlanarPlan& plan) noexcept;

// Bytes that planar_choose() needs: means of channels, and samples, of which a last, shorter group has as many
// as the others.
inline constexpr size_t kChannelRoom = 8 * 1024;
inline constexpr size_t kSampleRoom = kChannelRoom + 2 * kMaxLeafBytes;

// How many different blocks of channels the leaf has; sets period and group_blocks.
void planar_channels(const LeafForm& form, PlanarPlan& plan) noexcept;

// `plan` has element, blocks and channels; the rest of what encoding needs is set here.
void planar_choose(PlanarPlan& plan, Mode mode, const std::byte* raw, std::byte* room, PlanarChoice& choice) noexcept;

// The mode that makes trees of so many levels. nullopt: none, or several (signs: 8 levels in each).
std::optional<Mode> planar_mode(uint8_t levels) noexcept;

}  // namespace kvbm::codec

#include "codec/lossless/planar_tables.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvbm::codec {
namespace {

constexpr uint32_t kMeanScale = 16;
// Distance of a channel's largest values above its mean exponent, measured on KV of a real model: at most 4.
constexpr uint32_t kWindowAbove = 5;
constexpr uint32_t kSignedWindowAbove = 2 * kWindowAbove;  // two symbols an exponent
constexpr uint32_t kMaxRows = 256;
constexpr uint32_t kMaxOpen = 4;  // inner nodes of a level; wider trees gain too little for the search

struct Samples {
  uint8_t* symbols = nullptr;  // [row][channel]
  uint32_t rows = 0;
  uint32_t channels = 0;
};

// Rows of samples for a channel: enough that the tables cost less than 0.3 % of ratio against counting all.
uint32_t sampled_rows(Mode mode) noexcept {
  if (mode == Mode::max) return kMaxRows;
  return mode == Mode::fast ? 16 : 32;
}

// Takes samples, and the sum of each channel. A row of all channels is at most 255 a channel, so there are at most 257
// rows.
Samples take_samples(const PlanarPlan& plan, Mode mode, const std::byte* raw, uint8_t* room, uint16_t* sums) noexcept {
  const uint32_t groups = (plan.blocks + plan.group_blocks - 1) / plan.group_blocks;
  const uint32_t vectors = groups * plan.period;
  const uint32_t rows = std::max(1U, std::min(plan.group_blocks, plan.blocks) / plan.period);
  const uint32_t step = std::max(1U, (rows + sampled_rows(mode) - 1) / sampled_rows(mode));
  Samples samples{room, (rows + step - 1) / step, vectors * kBlock};
  const size_t block_bytes = size_t{kBlock} * plan.element.width;
  const PlanarKernel& kernel = planar_kernel();
  std::memset(sums, 0, samples.channels * sizeof *sums);
  for (uint32_t s = 0; s < samples.rows; ++s) {
    for (uint32_t v = 0; v < vectors; ++v) {
      const uint32_t block =
          std::min(v / plan.period * plan.group_blocks + s * step * plan.period + v % plan.period, plan.blocks - 1);
      kernel.sample(plan.element, raw + block * block_bytes, room + size_t{s} * samples.channels + v * kBlock,
                    sums + v * kBlock);
    }
  }
  return samples;
}

// Computes the mean symbol of each channel, in sixteenths.
void channel_means(const Samples& samples, uint16_t* sums) noexcept {
  const uint32_t factor = (kMeanScale << 16) / samples.rows;
  for (uint32_t c = 0; c < samples.channels; ++c) {
    sums[c] = static_cast<uint16_t>(static_cast<uint64_t>(sums[c]) * factor >> 16);
  }
}

// Number and sum of the channels' mean symbols that are above a border. Means are below 2^12, so products of 16 bits
// hold them, which vector instructions multiply and add in one step.
struct Above {
  int32_t count = 0;
  int32_t sum = 0;
};
Above above(const uint16_t* means, uint32_t channels, int32_t border) noexcept {
  Above of;
  for (uint32_t c = 0; c < channels; ++c) {
    const auto mean = static_cast<int16_t>(means[c]);
    const auto is = static_cast<int16_t>(mean > static_cast<int16_t>(border) ? 1 : 0);
    of.count += int32_t{is} * int32_t{is};
    of.sum += int32_t{mean} * int32_t{is};
  }
  return of;
}

// Classifies channels by similar mean: k-means on a line, from centres at equal distances.
void classify(const uint16_t* means, uint32_t channels, uint8_t* out) noexcept {
  uint16_t low = UINT16_MAX;
  uint16_t high = 0;
  for (uint32_t c = 0; c < channels; ++c) {
    low = std::min(low, means[c]);
    high = std::max(high, means[c]);
  }
  int32_t centre[kMaxClasses];
  for (uint32_t k = 0; k < kMaxClasses; ++k) {
    centre[k] = static_cast<int32_t>(low + (high - low) * (2 * k + 1) / (2 * kMaxClasses));
  }
  const Above all = above(means, channels, -1);
  constexpr int kRounds = 4;
  int32_t border[kMaxClasses - 1];
  for (int round = 0;; ++round) {
    for (uint32_t k = 0; k + 1 < kMaxClasses; ++k) border[k] = (centre[k] + centre[k + 1]) / 2;
    if (round == kRounds) break;
    Above rest = all;
    for (uint32_t k = 0; k < kMaxClasses; ++k) {
      const Above next = k + 1 < kMaxClasses ? above(means, channels, border[k]) : Above{};
      if (rest.count != next.count) centre[k] = (rest.sum - next.sum) / (rest.count - next.count);
      rest = next;
    }
  }
  for (uint32_t c = 0; c < channels; ++c) {
    const auto mean = static_cast<int16_t>(means[c]);
    const int16_t over = static_cast<int16_t>((mean > border[0]) + (mean > border[1]) + (mean > border[2]));
    out[c] = static_cast<uint8_t>(over * static_cast<int16_t>(kMaxSymbols));
  }
}

// Sorts the symbols of each class by falling count (equal ones by rising symbol), and sums the counts of each rank over
// all classes.
void rank_symbols(const uint32_t* counts, uint8_t base, uint32_t classes, PlanarChoice& choice,
                  uint32_t* of_rank) noexcept {
  std::memset(of_rank, 0, kMaxSymbols * sizeof *of_rank);
  for (uint32_t k = 0; k < classes; ++k) {
    int32_t keys[kMaxSymbols] = {};  // all different; zero is below all
    uint32_t n = 0;
    for (uint32_t place = 0; place < kMaxSymbols; ++place) {
      const uint32_t count = counts[k * kMaxSymbols + place];
      keys[n] = static_cast<int32_t>(count << 5 | (kMaxSymbols - 1 - place));
      n += count != 0;
    }
    if (n < kMaxSymbols) keys[n] = 0;
    // A rank is the number of larger counts; sorting would have an unpredictable branch at each step.
    for (uint32_t i = 0; i < n; ++i) {
      int32_t r = 0;
      for (uint32_t j = 0; j < (n + 3) / 4 * 4; ++j) r += keys[j] > keys[i];
      const auto key = static_cast<uint32_t>(keys[i]);
      choice.symbols[k][r] = static_cast<uint8_t>(base + (kMaxSymbols - 1 - (key & 31)));
      of_rank[r] += key >> 5;
    }
    // Ranks without a symbol repeat the first one: never written.
    for (uint32_t r = n; r < kMaxSymbols; ++r) choice.symbols[k][r] = choice.symbols[k][0];
  }
}

struct Cost {
  uint32_t total = 0;
  uint32_t before[kMaxSymbols + 1] = {};  // sum of the counts of lower ranks
  uint64_t table = 0;                     // bits of a rank's symbols, in 256ths of a sample's bit
  uint32_t escape_bits = 8;
};

// Returns the bits that the samples cost with that shape, in 256ths.
uint64_t cost_of(const uint8_t* counts, uint32_t levels, const Cost& cost) noexcept {
  uint64_t bits = 0;
  uint32_t placed = 0;
  for (uint32_t l = 0; l < levels; ++l) {
    bits += cost.total - cost.before[placed];
    placed += counts[l];
  }
  bits += uint64_t{cost.escape_bits} * (cost.total - cost.before[placed - 1]);
  return bits * 256 + (placed - 1) * cost.table;
}

// Finds the cheapest complete code tree with exactly `levels` levels. least_[l][open][placed] is the least cost of l
// levels that leave `open` inner nodes and have placed `placed` codes. Rows have a fixed length and no branches, so
// that the compiler vectorises them. This takes a tenth of the time of coding a leaf, and most of it for small leaves.
class ShapeSearch {
 public:
  ShapeSearch(const Cost& cost, uint32_t levels) noexcept : cost_(cost), levels_(levels) {
    for (uint32_t p = 0; p < kMaxSymbols; ++p) level_[p] = static_cast<int32_t>(cost.total - cost.before[p]);
  }

  uint64_t run(uint8_t* counts) noexcept {
    for (auto& row : least_[0]) std::fill(std::begin(row), std::end(row), kNever);
    least_[0][1][0] = 0;
    for (uint32_t l = 0; l + 1 < levels_; ++l) extend(least_[l], least_[l + 1]);
    return finish(counts);
  }

 private:
  // Samples are at most 2^17, so no sum of bits comes near it; and the sum of a few such values does not overflow.
  static constexpr int32_t kNever = 1 << 28;
  static constexpr uint32_t kMostCodes = 2 * kMaxOpen - 1;  // of one level, but the last
  using Row = int32_t[kMaxSymbols];

  void extend(const Row (&from)[kMaxOpen + 1], Row (&to)[kMaxOpen + 1]) noexcept {
    int32_t paid[kMaxOpen + 1][kMostCodes + 1 + kMaxSymbols];
    for (uint32_t open = 1; open <= kMaxOpen; ++open) {
      int32_t* const row = paid[open] + kMostCodes + 1;
      std::fill(paid[open], row, kNever);
      for (uint32_t p = 0; p < kMaxSymbols; ++p) row[p] = from[open][p] + level_[p];
    }
    for (uint32_t next = 1; next <= kMaxOpen; ++next) {
      int32_t best[kMaxSymbols];
      std::fill(std::begin(best), std::end(best), kNever);
      for (uint32_t open = (next + 1) / 2; open <= kMaxOpen; ++open) {
        const int32_t* const before = paid[open] + kMostCodes + 1 - (2 * open - next);
        for (uint32_t p = 0; p < kMaxSymbols; ++p) best[p] = before[p] < best[p] ? before[p] : best[p];
      }
      std::memcpy(to[next], best, sizeof best);
    }
  }

  uint64_t finish(uint8_t* counts) const noexcept {
    uint64_t least = UINT64_MAX;
    uint32_t placed = 0;
    uint32_t open = 0;
    for (uint32_t p = 0; p < kMaxSymbols; ++p) {
      for (uint32_t o = 1; o <= kMaxOpen && p + 2 * o <= kMaxSymbols; ++o) {
        const int32_t above = least_[levels_ - 1][o][p];
        if (above >= kNever) continue;
        const uint32_t symbols = p + 2 * o - 1;
        const uint64_t bits = (static_cast<uint64_t>(above + level_[p]) +
                               uint64_t{cost_.escape_bits} * (cost_.total - cost_.before[symbols])) *
                                  256 +
                              symbols * cost_.table;
        if (bits >= least) continue;
        least = bits;
        placed = p;
        open = o;
      }
    }
    counts[levels_ - 1] = static_cast<uint8_t>(2 * open);
    for (uint32_t l = levels_ - 1; l > 0; --l) {
      const uint32_t above = above_of(l, placed, open);
      const uint32_t codes = 2 * above - open;
      counts[l - 1] = static_cast<uint8_t>(codes);
      placed -= codes;
      open = above;
    }
    return least;
  }

  // Returns the number of inner nodes of the level before with which the least cost was reached; the largest of
  // several.
  [[nodiscard]] uint32_t above_of(uint32_t l, uint32_t placed, uint32_t open) const noexcept {
    uint32_t above = kMaxOpen;
    for (; above > (open + 1) / 2; --above) {
      const uint32_t codes = 2 * above - open;
      if (codes > placed) continue;
      const uint32_t p = placed - codes;
      if (least_[l - 1][above][p] + level_[p] == least_[l][open][placed]) break;
    }
    return above;
  }

  const Cost& cost_;
  uint32_t levels_;
  Row level_;  // cost of one more level, by the number of codes placed before
  Row least_[kMaxLevels][kMaxOpen + 1];
};

constexpr uint8_t kFastShape[kMaxLevels] = {0, 0, 8};
constexpr uint8_t kFastLevels = 3;
constexpr uint8_t kStandardLevels = 6;
constexpr uint8_t kLongLevels = 8;

uint64_t choose_shape(Mode mode, bool signs, const Cost& cost, PlanarChoice& choice) noexcept {
  if (mode == Mode::fast) {
    choice.levels = kFastLevels;
    std::memcpy(choice.counts, kFastShape, sizeof choice.counts);
    return cost_of(kFastShape, kFastLevels, cost);
  }
  choice.levels = mode == Mode::max || signs ? kLongLevels : kStandardLevels;
  ShapeSearch search(cost, choice.levels);
  return search.run(choice.counts);
}

void fill_codes(const PlanarChoice& choice, PlanarPlan& plan) noexcept {
  const auto escape = static_cast<uint8_t>((1U << plan.levels) - 1);
  std::memset(plan.code, escape, sizeof plan.code);
  uint32_t rank = 0;
  uint32_t code = 0;
  for (uint32_t l = 1; l <= plan.levels; ++l) {
    for (uint32_t i = 0; i < choice.counts[l - 1] && rank + 1 < choice.codes; ++i, ++rank) {
      for (uint32_t k = choice.classes; k-- > 0;) {
        // Ranks are in falling order of use; a rank that repeats the first symbol must not take its code.
        const auto place = static_cast<uint8_t>(choice.symbols[k][rank] - plan.base);
        if (place >= kMaxSymbols) continue;  // a class without symbols
        uint8_t& at = plan.code[k * kMaxSymbols + place];
        if (at == escape) at = static_cast<uint8_t>(code);
      }
      code += 1U << (plan.levels - l);
    }
  }
}

}  // namespace

std::optional<Mode> planar_mode(uint8_t levels) noexcept {
  switch (levels) {
    case kFastLevels:
      return Mode::fast;
    case kStandardLevels:
      return Mode::standard;
    case kLongLevels:
      return Mode::max;
    default:
      return std::nullopt;
  }
}

bool planar_shape(const uint8_t* counts, uint32_t levels, PlanarPlan& plan) noexcept {
  if (levels == 0 || levels > kMaxLevels) return false;
  uint32_t open = 1;
  uint32_t codes = 0;
  uint32_t limit = 0;
  plan.levels = levels;
  plan.full = 0;
  plan.limit[0] = 0;
  std::memset(plan.rank, 0, sizeof plan.rank);
  for (uint32_t l = 1; l <= kMaxLevels; ++l) {
    const uint32_t here = counts[l - 1];
    if (l > levels) {
      if (here != 0) return false;
      continue;
    }
    if (here > 2 * open || codes + here > kMaxSymbols) return false;
    if (codes == 0) plan.full = l;
    const uint32_t step = 1U << (levels - l);
    for (uint32_t i = 0; i < here; ++i, ++codes, limit += step) plan.rank[limit] = static_cast<uint8_t>(codes);
    plan.limit[l] = static_cast<uint16_t>(limit);
    open = 2 * open - here;
    if ((open == 0) != (l == levels)) return false;
  }
  return codes >= 2;
}

void planar_channels(const LeafForm& form, PlanarPlan& plan) noexcept {
  plan.period = 1;
  plan.group_blocks = plan.blocks;
  if (form.row == 0 || form.row > UINT16_MAX) return;
  const uint32_t period = form.row / std::gcd(form.row, kBlock);
  if (period > kMaxVectors || period > plan.blocks) return;
  plan.period = period;
  const uint64_t head = uint64_t{form.row} * form.rows;
  if (head == 0 || head % kBlock != 0 || head / kBlock >= plan.blocks || head / kBlock % period != 0) return;
  const auto group = static_cast<uint32_t>(head / kBlock);
  if ((plan.blocks + group - 1) / group * period <= kMaxVectors) plan.group_blocks = group;
}

void planar_choose(PlanarPlan& plan, Mode mode, const std::byte* raw, std::byte* room, PlanarChoice& choice) noexcept {
  static_assert(kMaxVectors * kBlock * sizeof(uint16_t) <= kChannelRoom);
  auto* const means = reinterpret_cast<uint16_t*>(room);
  const Samples samples = take_samples(plan, mode, raw, reinterpret_cast<uint8_t*>(room + kChannelRoom), means);
  channel_means(samples, means);
  const uint64_t values = uint64_t{plan.blocks} * kBlock;
  // Two bits a channel and a table a class only pay with enough values.
  choice.classes = values >= 16 * uint64_t{samples.channels} ? kMaxClasses : 1;
  if (choice.classes == 1) {
    std::memset(plan.classes, 0, samples.channels);
  } else {
    classify(means, samples.channels, plan.classes);
  }
  const uint32_t top = *std::max_element(means, means + samples.channels) / kMeanScale +
                       (plan.element.signs ? kSignedWindowAbove : kWindowAbove);
  plan.base =
      plan.element.raw_bits >= 3 || top < kMaxSymbols ? uint8_t{0} : static_cast<uint8_t>(std::min(top, 255U) - 31);
  uint32_t counts[kCounts];
  planar_kernel().count(samples.symbols, samples.rows, samples.channels, plan.classes, plan.base, counts);
  uint32_t of_rank[kMaxSymbols];
  rank_symbols(counts, plan.base, choice.classes, choice, of_rank);
  Cost cost;
  for (uint32_t r = 0; r < kMaxSymbols; ++r) cost.before[r + 1] = cost.before[r] + of_rank[r];
  cost.total = cost.before[kMaxSymbols] + counts[kClassEntries];
  cost.table = uint64_t{8} * 256 * choice.classes * cost.total / values;
  const uint64_t bits = choose_shape(mode, plan.element.signs, cost, choice);
  choice.codes = std::accumulate(choice.counts, choice.counts + kMaxLevels, 0U);
  choice.bytes = bits / 256 * values / (uint64_t{8} * cost.total) + (choice.classes > 1 ? samples.channels / 4 : 0);
  (void)planar_shape(choice.counts, choice.levels, plan);
  fill_codes(choice, plan);
}

}  // namespace kvbm::codec

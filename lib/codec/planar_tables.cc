#include "codec/planar_tables.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvbm::codec {
namespace {

constexpr uint32_t kBanks = 4;  // neighbours are often equal, and an addition waits for the one before to the same place
constexpr uint32_t kBankEntries = kClassEntries + 1;
constexpr uint32_t kMeanScale = 16;
// How far above a channel's mean exponent its largest values lie, measured on KV of a real model: at most 4.
constexpr uint32_t kWindowAbove = 5;
constexpr uint32_t kMaxRows = 256;
constexpr uint32_t kMaxOpen = 4;  // inner nodes of a level; wider trees win nothing worth the search

struct Samples {
  uint8_t* symbols = nullptr;  // [row][channel]
  uint32_t rows = 0;
  uint32_t channels = 0;
};

// Rows of samples a channel: enough that the tables cost less than 0.3 % of ratio against counting all.
uint32_t sampled_rows(Mode mode) noexcept {
  if (mode == Mode::max) return kMaxRows;
  return mode == Mode::fast ? 16 : 32;
}

// And the sum of each channel. A row of all channels is at most 255 a channel, so there are at most 257 rows.
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
      const uint32_t block = std::min(v / plan.period * plan.group_blocks + s * step * plan.period + v % plan.period,
                                      plan.blocks - 1);
      kernel.sample(plan.element, raw + block * block_bytes, room + size_t{s} * samples.channels + v * kBlock,
                    sums + v * kBlock);
    }
  }
  return samples;
}

// Mean symbol of each channel, in sixteenths.
void channel_means(const Samples& samples, uint16_t* sums) noexcept {
  const uint32_t factor = (kMeanScale << 16) / samples.rows;
  for (uint32_t c = 0; c < samples.channels; ++c) {
    sums[c] = static_cast<uint16_t>(static_cast<uint64_t>(sums[c]) * factor >> 16);
  }
}

// Classes of channels of similar mean: k-means on a line, from centres at equal distances.
void classify(const uint16_t* means, uint32_t channels, uint32_t classes, uint8_t* out) noexcept {
  const auto [low, high] = std::minmax_element(means, means + channels);
  uint32_t centre[kMaxClasses];
  for (uint32_t k = 0; k < classes; ++k) centre[k] = *low + (*high - *low) * (2 * k + 1) / (2 * classes);
  constexpr int kRounds = 4;
  for (int round = 0; round <= kRounds; ++round) {
    uint16_t border[kMaxClasses - 1];
    for (uint32_t k = 0; k + 1 < kMaxClasses; ++k) {
      border[k] = k + 1 < classes ? static_cast<uint16_t>((centre[k] + centre[k + 1]) / 2) : uint16_t{UINT16_MAX};
    }
    for (uint32_t c = 0; c < channels; ++c) {
      out[c] = static_cast<uint8_t>((means[c] > border[0]) + (means[c] > border[1]) + (means[c] > border[2]));
    }
    if (round == kRounds) break;
    uint32_t sum[kMaxClasses] = {};
    uint32_t count[kMaxClasses] = {};
    for (uint32_t c = 0; c < channels; ++c) {
      sum[out[c]] += means[c];
      ++count[out[c]];
    }
    for (uint32_t k = 0; k < classes; ++k) centre[k] = count[k] == 0 ? centre[k] : sum[k] / count[k];
  }
  for (uint32_t c = 0; c < channels; ++c) out[c] = static_cast<uint8_t>(out[c] * kMaxSymbols);
}

// counts[class * kMaxSymbols + place]; the one behind them: outside of the window.
void count_symbols(const Samples& samples, const uint8_t* classes, uint8_t base, uint32_t* counts) noexcept {
  uint32_t banks[kBanks][kBankEntries] = {};
  const PlanarKernel& kernel = planar_kernel();
  for (uint32_t s = 0; s < samples.rows; ++s) {
    const uint8_t* const row = samples.symbols + size_t{s} * samples.channels;
    for (uint32_t c = 0; c < samples.channels; c += kBlock) {
      alignas(64) uint8_t index[kBlock];
      kernel.place(row + c, classes + c, base, index);
      for (uint32_t i = 0; i < kBlock; i += 8) {
        uint64_t eight;
        std::memcpy(&eight, index + i, sizeof eight);
        for (uint32_t b = 0; b < 8; ++b) ++banks[b % kBanks][eight >> (8 * b) & 0xFF];
      }
    }
  }
  for (uint32_t i = 0; i < kBankEntries; ++i) counts[i] = banks[0][i] + banks[1][i] + banks[2][i] + banks[3][i];
}

// Symbols of each class by falling count (equal ones by rising symbol), and the counts of each rank over all classes.
void rank_symbols(const uint32_t* counts, uint8_t base, uint32_t classes, PlanarChoice& choice,
                  uint32_t* of_rank) noexcept {
  std::memset(of_rank, 0, kMaxSymbols * sizeof *of_rank);
  for (uint32_t k = 0; k < classes; ++k) {
    uint32_t keys[kMaxSymbols];
    uint32_t n = 0;
    for (uint32_t place = 0; place < kMaxSymbols; ++place) {
      const uint32_t count = counts[k * kMaxSymbols + place];
      if (count == 0) continue;
      const uint32_t key = count << 5 | (kMaxSymbols - 1 - place);
      uint32_t at = n++;
      for (; at > 0 && keys[at - 1] < key; --at) keys[at] = keys[at - 1];
      keys[at] = key;
    }
    for (uint32_t r = 0; r < n; ++r) {
      choice.symbols[k][r] = static_cast<uint8_t>(base + (kMaxSymbols - 1 - (keys[r] & 31)));
      of_rank[r] += keys[r] >> 5;
    }
    // Ranks without a symbol repeat the first: never written.
    for (uint32_t r = n; r < kMaxSymbols; ++r) choice.symbols[k][r] = choice.symbols[k][0];
  }
}

struct Cost {
  uint32_t total = 0;
  uint32_t before[kMaxSymbols + 1] = {};  // sum of the counts of lower ranks
  uint64_t table = 0;                     // bits of a rank's symbols, in 256ths of a sample's bit
  uint32_t escape_bits = 8;
};

// Bits that the samples cost with that shape, in 256ths.
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

// The best complete tree of exactly that many levels: over (codes so far, inner nodes) a level.
class ShapeSearch {
 public:
  ShapeSearch(const Cost& cost, uint32_t levels) noexcept : cost_(cost), levels_(levels) {}

  uint64_t run(uint8_t* counts) noexcept {
    for (auto& level : best_) {
      for (auto& row : level) std::fill(std::begin(row), std::end(row), uint64_t{UINT64_MAX});
    }
    best_[0][0][1] = 0;
    for (uint32_t l = 0; l + 1 < levels_; ++l) {
      for (uint32_t placed = 0; placed < kMaxSymbols; ++placed) {
        for (uint32_t open = 1; open <= kMaxOpen; ++open) {
          if (best_[l][placed][open] != UINT64_MAX) extend(l, placed, open);
        }
      }
    }
    return finish(counts);
  }

 private:
  void extend(uint32_t l, uint32_t placed, uint32_t open) noexcept {
    const uint64_t bits = best_[l][placed][open] + cost_.total - cost_.before[placed];
    for (uint32_t next = 1; next <= std::min(2 * open, kMaxOpen); ++next) {
      const uint32_t now = placed + 2 * open - next;
      if (now >= kMaxSymbols) continue;
      uint64_t& known = best_[l + 1][now][next];
      if (bits >= known) continue;
      known = bits;
      from_[l + 1][now][next] = static_cast<uint8_t>(open);
    }
  }

  uint64_t finish(uint8_t* counts) noexcept {
    uint64_t least = UINT64_MAX;
    uint32_t placed = 0;
    uint32_t open = 0;
    for (uint32_t p = 0; p < kMaxSymbols; ++p) {
      for (uint32_t o = 1; o <= kMaxOpen; ++o) {
        if (best_[levels_ - 1][p][o] == UINT64_MAX || p + 2 * o > kMaxSymbols) continue;
        const uint32_t symbols = p + 2 * o - 1;
        const uint64_t bits = (best_[levels_ - 1][p][o] + cost_.total - cost_.before[p] +
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
      const uint32_t above = from_[l][placed][open];
      const uint32_t codes = 2 * above - open;
      counts[l - 1] = static_cast<uint8_t>(codes);
      placed -= codes;
      open = above;
    }
    return least;
  }

  const Cost& cost_;
  uint32_t levels_;
  uint64_t best_[kMaxLevels][kMaxSymbols][kMaxOpen + 1];
  uint8_t from_[kMaxLevels][kMaxSymbols][kMaxOpen + 1];
};

constexpr uint8_t kFastShape[kMaxLevels] = {0, 0, 8};

uint64_t choose_shape(Mode mode, const Cost& cost, PlanarChoice& choice) noexcept {
  if (mode == Mode::fast) {
    choice.levels = 3;
    std::memcpy(choice.counts, kFastShape, sizeof choice.counts);
    return cost_of(kFastShape, 3, cost);
  }
  choice.levels = mode == Mode::max ? 8 : 6;
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
        // Ranks are in falling order of use; one that repeats the first symbol must not take its code.
        const auto place = static_cast<uint8_t>(choice.symbols[k][rank] - plan.base);
        if (place >= kMaxSymbols) continue;  // a class that has no symbol
        uint8_t& at = plan.code[k * kMaxSymbols + place];
        if (at == escape) at = static_cast<uint8_t>(code);
      }
      code += 1U << (plan.levels - l);
    }
  }
}

}  // namespace

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
  // Two bits a channel and a table a class must be earned by enough values.
  choice.classes = values >= 16 * uint64_t{samples.channels} ? kMaxClasses : 1;
  if (choice.classes == 1) {
    std::memset(plan.classes, 0, samples.channels);
  } else {
    classify(means, samples.channels, choice.classes, plan.classes);
  }
  const uint32_t top = *std::max_element(means, means + samples.channels) / kMeanScale + kWindowAbove;
  plan.base = plan.element.raw_bits != 0 || top < kMaxSymbols ? uint8_t{0}
                                                              : static_cast<uint8_t>(std::min(top, 255U) - 31);
  uint32_t counts[kBankEntries];
  count_symbols(samples, plan.classes, plan.base, counts);
  uint32_t of_rank[kMaxSymbols];
  rank_symbols(counts, plan.base, choice.classes, choice, of_rank);
  Cost cost;
  for (uint32_t r = 0; r < kMaxSymbols; ++r) cost.before[r + 1] = cost.before[r] + of_rank[r];
  cost.total = cost.before[kMaxSymbols] + counts[kClassEntries];
  cost.table = uint64_t{8} * 256 * choice.classes * cost.total / values;
  const uint64_t bits = choose_shape(mode, cost, choice);
  choice.codes = std::accumulate(choice.counts, choice.counts + kMaxLevels, 0U);
  choice.bytes = bits / 256 * values / (uint64_t{8} * cost.total) +
                 (choice.classes > 1 ? samples.channels / 4 : 0);
  (void)planar_shape(choice.counts, choice.levels, plan);
  fill_codes(choice, plan);
}

}  // namespace kvbm::codec

#include "codec/lossy/delta.h"

#include <cstring>

#include "codec/hash/leaf_hash.h"
#include "codec/lossy/quantize.h"
#include "codec/lossy/quantize_scales.h"
#include "codec/lossy/symbol_contexts.h"

// Turns off fused multiply-add: the compiler must not merge a product and a sum into one rounding, because every kernel
// must give equal bits.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

namespace kvbm::codec {
namespace {

enum Offset : size_t {
  kDepthAt = kFrameOwnAt,
  kGroupAt = kFrameOwnAt + 1,
  kZeroAt = kFrameOwnAt + 2,
  kEscapesAt = kFrameOwnAt + 4,
  kOwnEnd = kFrameOwnAt + 8,
};

constexpr uint32_t kGroupTokens = 10;  // as in CacheGen
constexpr uint32_t kFewestRows = 32;   // below this, anchors and scales cost more than differences save
constexpr uint8_t kDeepest = 2;
// Step in units of a channel's mean difference, 1.25 of which are about a standard deviation: half, three quarters and
// the whole of one.
constexpr float kSteps[kDeepest + 1] = {0.625F, 0.9375F, 1.25F};
constexpr float kFull = 127.49F;
// A channel is differenced if that makes its values this many times smaller: its anchors cost half a bit a value.
constexpr float kWorthAnchors = 1.4F;
constexpr float kMostHalfOfDelta = power_of_two(13);  // anchor and difference together must stay finite
// Symbols 0 to 14 are -7 to 7; 15: a byte of the escapes.
constexpr int kMiddle = 7;
constexpr uint8_t kEscape = 15;
constexpr std::byte kPadding{kMiddle};

constexpr uint32_t kMaxValues = kMaxLeafBytes / 2;
constexpr uint32_t kMaxUnits = 4096;

// Parts of the workspace.
struct Room {
  float* anchor_scale;
  float* anchor_reciprocal;
  float* step;
  float* step_reciprocal;
  float* base;      // the anchor of the current tokens, or zeros
  float* row;       // current values
  uint32_t* words;  // one per unit
  uint32_t* more_words;
  std::byte* of_units;
  std::byte* direct;  // for each unit: 1 if its values are not differenced, and it has no anchors
  std::byte* numbers;
  std::byte* symbols;
  std::byte* contexts;
  std::byte* anchors;
  std::byte* streams;
  std::byte* decoded;

  static constexpr size_t kUnitFloats = kMaxUnits * sizeof(float);
  static constexpr size_t kCodes = kMaxValues + kSymbolGroup;
  static constexpr size_t kBytes = 8 * kUnitFloats + 2 * kMaxUnits + 4 * kCodes +
                                   round_up(plane_scratch(kMaxValues / kSymbolGroup), 64) + kMaxLeafBytes;

  explicit Room(std::byte* at) noexcept {
    const auto take = [&at](size_t bytes) {
      std::byte* const taken = at;
      at += bytes;
      return taken;
    };
    const auto floats = [&] { return reinterpret_cast<float*>(take(kUnitFloats)); };
    anchor_scale = floats();
    anchor_reciprocal = floats();
    step = floats();
    step_reciprocal = floats();
    base = floats();
    row = floats();
    words = reinterpret_cast<uint32_t*>(take(kUnitFloats));
    more_words = reinterpret_cast<uint32_t*>(take(kUnitFloats));
    of_units = take(kMaxUnits);
    direct = take(kMaxUnits);
    numbers = take(kCodes);
    symbols = take(kCodes);
    contexts = take(kCodes);
    anchors = take(kCodes);
    streams = take(round_up(plane_scratch(kMaxValues / kSymbolGroup), 64));
    decoded = take(kMaxLeafBytes);
  }
};
static_assert(Room::kBytes <= 512 * 1024);
static_assert(kMaxScaleRow <= kMaxUnits);

// Calls row(first value, values, first unit, whether it is an anchor) for each row.
template <class Row>
void each_token(const ScaleMap& map, Row row) noexcept {
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t r) { row(at, n, unit, r % kGroupTokens == 0); });
}

// Counts the values that are anchors; all others are in the plane.
uint32_t count_anchors(const ScaleMap& map, const std::byte* direct) noexcept {
  uint32_t anchors = 0;
  each_token(map, [&](uint32_t, uint32_t n, uint32_t unit, bool anchor) {
    for (uint32_t i = 0; anchor && i < n; ++i) anchors += direct[unit + i] == std::byte{0};
  });
  return anchors;
}

bool fits(const ScaleMap& map) noexcept { return !map.by_row && map.rows >= kFewestRows && map.units() <= kMaxUnits; }

struct Sections {
  size_t anchor_scales = kFrameBytes;
  size_t steps;
  size_t contexts;
  size_t direct;   // a bit a unit
  size_t anchors;  // a byte each; followed by the escapes, a byte each, and the plane
};
Sections sections_of(const ScaleMap& map) noexcept {
  const size_t units = map.units();
  Sections s;
  s.steps = s.anchor_scales + 2 * units;
  s.contexts = s.steps + 2 * units;
  s.direct = s.contexts + (units + 3) / 4;
  s.anchors = s.direct + (units + 7) / 8;
  return s;
}

void unpack_direct(uint32_t units, const std::byte* bits, std::byte* direct) noexcept {
  for (uint32_t u = 0; u < units; ++u) direct[u] = bits[u / 8] >> u % 8 & std::byte{1};
}

float reciprocal_of(float scale) noexcept { return scale == 0 ? 0.0F : 1.0F / scale; }

// Makes anchors of all channels as numbers, and their scales.
template <Element kElement>
void make_anchors(const ScaleMap& map, const std::byte* raw, const Room& room, std::byte* scales) noexcept {
  const uint32_t units = map.units();
  float* const most = room.step;
  std::fill_n(most, units, 0.0F);
  each_token(map, [&](uint32_t at, uint32_t n, uint32_t unit, bool anchor) {
    if (!anchor) return;
    for (uint32_t i = 0; i < n; ++i) {
      const float x = read_value<kElement>(raw, at + i);
      most[unit + i] = std::max(most[unit + i], x < 0 ? -x : x);
    }
  });
  for (uint32_t u = 0; u < units; ++u) {
    const uint16_t bits = most[u] < kLeast ? uint16_t{0} : scale_bits(most[u] / kFull);
    store_le(scales + 2 * size_t{u}, bits);
    room.anchor_scale[u] = scale_of(bits);
    room.anchor_reciprocal[u] = reciprocal_of(scale_of(bits));
  }
  std::byte* anchors = room.anchors;
  each_token(map, [&](uint32_t at, uint32_t n, uint32_t unit, bool anchor) {
    if (!anchor) return;
    for (uint32_t i = 0; i < n; ++i) {
      const float x = read_value<kElement>(raw, at + i);
      anchors[i] = static_cast<std::byte>(nearest(x * room.anchor_reciprocal[unit + i]));
    }
    anchors += n;
  });
}

// Reads rows. Separate and without aliases, so that the compiler can vectorise it.
template <Element kElement>
[[gnu::noinline]] void read_row(const std::byte* __restrict__ raw, uint32_t n, float* __restrict__ x) noexcept {
  for (uint32_t i = 0; i < n; ++i) x[i] = read_value<kElement>(raw, i);
}
template <Element kElement>
[[gnu::noinline]] void write_row(const float* __restrict__ x, uint32_t n, std::byte* __restrict__ raw) noexcept {
  for (uint32_t i = 0; i < n; ++i) write_value<kElement>(raw, i, x[i]);
}
[[gnu::noinline]] void subtract_row(const float* __restrict__ base, uint32_t n, float* __restrict__ x) noexcept {
  for (uint32_t i = 0; i < n; ++i) x[i] -= base[i];
}
[[gnu::noinline]] void raise_row(const float* __restrict__ x, uint32_t n, float* __restrict__ most) noexcept {
  for (uint32_t i = 0; i < n; ++i) most[i] = std::max(most[i], __builtin_fabsf(x[i]));
}
[[gnu::noinline]] void add_row(const float* __restrict__ x, uint32_t n, float* __restrict__ sum,
                               float* __restrict__ most) noexcept {
  for (uint32_t i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    sum[i] += magnitude;
    most[i] = std::max(most[i], magnitude);
  }
}
[[gnu::noinline]] void number_row(const float* __restrict__ x, const float* __restrict__ reciprocal, uint32_t n,
                                  std::byte* __restrict__ numbers) noexcept {
  for (uint32_t i = 0; i < n; ++i) numbers[i] = static_cast<std::byte>(nearest(x[i] * reciprocal[i]));
}
[[gnu::noinline]] void value_row(const std::byte* __restrict__ numbers, const float* __restrict__ base,
                                 const float* __restrict__ step, uint32_t n, float* __restrict__ x) noexcept {
  for (uint32_t i = 0; i < n; ++i) {
    const float difference = static_cast<float>(static_cast<int8_t>(numbers[i])) * step[i];
    x[i] = base[i] + difference;
  }
}

float anchor_value(const Room& room, std::byte q, uint32_t unit) noexcept {
  return static_cast<float>(static_cast<int8_t>(q)) * room.anchor_scale[unit];
}

// Determines the channels that are not differenced, and all steps.
template <Element kElement>
void make_steps(const ScaleMap& map, const std::byte* raw, const Room& room, float bin, std::byte* steps,
                std::byte* direct) noexcept {
  const uint32_t units = map.units();
  float* const off = room.step;
  float* const most_off = room.step_reciprocal;
  auto* const value = reinterpret_cast<float*>(room.words);
  auto* const most_value = reinterpret_cast<float*>(room.more_words);
  for (float* sums : {off, most_off, value, most_value}) std::fill_n(sums, units, 0.0F);
  const std::byte* anchors = room.anchors;
  each_token(map, [&](uint32_t at, uint32_t n, uint32_t unit, bool anchor) {
    read_row<kElement>(raw + at * kElementBytes<kElement>, n, room.row);
    if (anchor) {
      for (uint32_t i = 0; i < n; ++i) room.base[i] = anchor_value(room, anchors[i], unit + i);
      raise_row(room.row, n, most_value + unit);
    } else {
      add_row(room.row, n, value + unit, most_value + unit);
      subtract_row(room.base, n, room.row);
      add_row(room.row, n, off + unit, most_off + unit);
    }
    if (anchor) anchors += n;
  });
  const uint32_t rows = map.rows - (map.rows + kGroupTokens - 1) / kGroupTokens;
  for (uint32_t u = 0; u < units; ++u) {
    const bool plain = value[u] <= off[u] * kWorthAnchors;
    if (plain) direct[u / 8] |= static_cast<std::byte>(1U << u % 8);
    const float mean = (plain ? value[u] : off[u]) / static_cast<float>(rows);
    const float step = std::max(mean * bin, (plain ? most_value[u] : most_off[u]) / kFull);
    const uint16_t bits = step < kLeast / kFull ? uint16_t{0} : scale_bits(step);
    store_le(steps + 2 * size_t{u}, bits);
    room.step[u] = scale_of(bits);
    room.step_reciprocal[u] = reciprocal_of(scale_of(bits));
  }
}

// Copies the anchors that are used to `anchors`, and makes numbers of all other values.
template <Element kElement>
void make_numbers(const ScaleMap& map, const std::byte* raw, const Room& room, std::byte* anchors) noexcept {
  const std::byte* all = room.anchors;
  std::byte* numbers = room.numbers;
  each_token(map, [&](uint32_t at, uint32_t n, uint32_t unit, bool anchor) {
    read_row<kElement>(raw + at * kElementBytes<kElement>, n, room.row);
    if (!anchor) {
      subtract_row(room.base, n, room.row);
      number_row(room.row, room.step_reciprocal + unit, n, numbers);
      numbers += n;
      return;
    }
    for (uint32_t i = 0; i < n; ++i) {
      const bool direct = room.direct[unit + i] != std::byte{0};
      room.base[i] = direct ? 0.0F : anchor_value(room, all[i], unit + i);
      if (direct) {
        *numbers++ = static_cast<std::byte>(nearest(room.row[i] * room.step_reciprocal[unit + i]));
      } else {
        *anchors++ = all[i];
      }
    }
    all += n;
  });
}

// Decodes into `raw` from anchors and numbers. A product is rounded before it is added.
template <Element kElement>
void restore(const ScaleMap& map, const Room& room, const std::byte* anchors, std::byte* raw) noexcept {
  const std::byte* numbers = room.numbers;
  each_token(map, [&](uint32_t at, uint32_t n, uint32_t unit, bool anchor) {
    if (anchor) {
      for (uint32_t i = 0; i < n; ++i) {
        const bool direct = room.direct[unit + i] != std::byte{0};
        room.base[i] = direct ? 0.0F : anchor_value(room, *anchors++, unit + i);
        room.row[i] = direct ? static_cast<float>(static_cast<int8_t>(*numbers++)) * room.step[unit + i] : room.base[i];
      }
    } else {
      value_row(numbers, room.base, room.step + unit, n, room.row);
      numbers += n;
    }
    write_row<kElement>(room.row, n, raw + at * kElementBytes<kElement>);
  });
}

template <Element kElement>
Sums measure(const ScaleMap& map, const std::byte* raw, const std::byte* decoded) noexcept {
  Sums sums;
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t, uint32_t) {
    constexpr uint32_t kLanes = 8;
    float difference[kLanes] = {};
    float value[kLanes] = {};
    for (uint32_t i = 0; i < n; ++i) {
      const float x = read_value<kElement>(raw, at + i);
      const float off = read_value<kElement>(decoded, at + i) - x;
      difference[i % kLanes] += off * off;
      value[i % kLanes] += x * x;
    }
    for (uint32_t l = 0; l < kLanes; ++l) {
      sums.difference += static_cast<double>(difference[l]);
      sums.value += static_cast<double>(value[l]);
    }
  });
  return sums;
}

// Chooses the contexts of the channels, and of each symbol.
void choose_delta_contexts(const ScaleMap& map, const Room& room, std::byte* packed) noexcept {
  const uint32_t units = map.units();
  std::fill_n(room.words, units, 0U);
  const std::byte* numbers = room.numbers;
  each_token(map, [&](uint32_t, uint32_t n, uint32_t unit, bool anchor) {
    for (uint32_t i = 0; i < n; ++i) {
      if (!anchor || room.direct[unit + i] != std::byte{0}) room.words[unit + i] += magnitude_of(*numbers++);
    }
  });
  rank_contexts(units, std::max(map.rows / 16, 1U), room.words, packed);
}

void spread_delta_contexts(const ScaleMap& map, const Room& room, const std::byte* packed) noexcept {
  unpack_contexts(map.units(), packed, room.of_units);
  std::byte* contexts = room.contexts;
  each_token(map, [&](uint32_t, uint32_t n, uint32_t unit, bool anchor) {
    if (!anchor) {
      std::memcpy(contexts, room.of_units + unit, n);
      contexts += n;
      return;
    }
    for (uint32_t i = 0; i < n; ++i) {
      if (room.direct[unit + i] != std::byte{0}) *contexts++ = room.of_units[unit + i];
    }
  });
  const auto others = static_cast<uint32_t>(contexts - room.contexts);
  std::memset(contexts, 0, size_t{groups_of(others)} * kSymbolGroup - others);
}

// Writes symbols of the numbers; escapes to `escapes`, which has `room_left` bytes. UINT32_MAX: not enough.
uint32_t write_symbols(const Room& room, uint32_t others, std::byte* escapes, size_t room_left) noexcept {
  uint32_t n = 0;
  for (uint32_t i = 0; i < others; ++i) {
    const int q = static_cast<int8_t>(room.numbers[i]);
    const bool escape = q < -kMiddle || q > kMiddle;
    room.symbols[i] = static_cast<std::byte>(escape ? kEscape : q + kMiddle);
    if (!escape) continue;
    if (n >= room_left) return UINT32_MAX;
    escapes[n++] = room.numbers[i];
  }
  std::memset(room.symbols + others, static_cast<int>(kPadding), size_t{groups_of(others)} * kSymbolGroup - others);
  return n;
}

bool read_symbols(const Room& room, uint32_t others, const std::byte* escapes, uint32_t n) noexcept {
  uint32_t used = 0;
  for (uint32_t i = 0; i < others; ++i) {
    const auto symbol = static_cast<uint8_t>(room.symbols[i]);
    if (symbol != kEscape) {
      room.numbers[i] = static_cast<std::byte>(symbol - kMiddle);
    } else {
      if (used == n) return false;
      room.numbers[i] = escapes[used++];
    }
  }
  return used == n;
}

template <class F>
void with_element(Element element, F f) noexcept {
  if (element == Element::fp16) return f.template operator()<Element::fp16>();
  if (element == Element::fp32) return f.template operator()<Element::fp32>();
  f.template operator()<Element::bf16>();
}

}  // namespace

Result<Encoded> delta_encode(const LeafForm& form, ConstBytes raw, MutableBytes out, Workspace& workspace) noexcept {
  if (!is_float(form.element) || raw.size() % element_bytes(form.element) != 0) return Encoded{};
  const ScaleMap map = map_of(form, raw.size());
  if (!fits(map)) return quantize_encode(form, Mode::int4_coded, raw, out, workspace);
  std::byte* const memory = workspace.take(Room::kBytes);
  if (memory == nullptr) return Status{Code::no_memory, "delta leaf: no memory to work in"};
  const Room room(memory);
  find_maxima(map, raw.data(), room.words);
  if (!in_range(map, room.words, kMostHalfOfDelta)) return Encoded{};
  const Sections at = sections_of(map);
  if (at.anchors + map.values / kGroupTokens + map.row * (map.values / map.head() + 1) >= raw.size()) return Encoded{};

  std::byte* const o = out.data();
  std::memset(o + at.contexts, 0, at.anchors - at.contexts);
  const uint8_t depth = std::min(form.depth, kDeepest);
  Sums sums;
  with_element(map.element, [&]<Element kElement>() {
    make_anchors<kElement>(map, raw.data(), room, o + at.anchor_scales);
    make_steps<kElement>(map, raw.data(), room, kSteps[depth], o + at.steps, o + at.direct);
    unpack_direct(map.units(), o + at.direct, room.direct);
    make_numbers<kElement>(map, raw.data(), room, o + at.anchors);
    restore<kElement>(map, room, o + at.anchors, room.decoded);
    sums = measure<kElement>(map, raw.data(), room.decoded);
  });
  choose_delta_contexts(map, room, o + at.contexts);
  spread_delta_contexts(map, room, o + at.contexts);
  const uint32_t anchors = count_anchors(map, room.direct);
  const uint32_t others = map.values - anchors;
  const size_t first_escape = at.anchors + anchors;
  const uint32_t escapes = write_symbols(room, others, o + first_escape, raw.size() - first_escape);
  if (escapes == UINT32_MAX) return Encoded{};
  const size_t plane = first_escape + escapes;
  const size_t bytes = encode_plane(symbol_kernel(), room.symbols, room.contexts, groups_of(others), room.streams,
                                    o + plane, raw.size() - plane);
  const size_t end = round_up(plane + bytes, kCodedLeafUnit);
  if (bytes == 0 || end >= raw.size()) return Encoded{};
  std::memset(o + plane + bytes, 0, end - plane - bytes);
  write_frame({LeafCodec::delta,
               static_cast<uint8_t>(Mode::delta),
               {form.element, map.row, map.rows},
               static_cast<uint32_t>(raw.size()),
               static_cast<uint32_t>(end),
               leaf_hash({room.decoded, raw.size()})},
              o);
  store_le(o + kDepthAt, depth);
  store_le(o + kGroupAt, static_cast<uint8_t>(kGroupTokens));
  store_le(o + kEscapesAt, escapes);
  return Encoded{LeafCodec::delta, static_cast<uint32_t>(end), true, sums.difference, sums.value};
}

Status delta_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept {
  if (frame.shape != static_cast<uint8_t>(Mode::delta) || load_le<uint8_t>(stored.data() + kGroupAt) != kGroupTokens) {
    return {Code::newer_version, "delta leaf: a variant that is not known here"};
  }
  const LeafForm& form = frame.form;
  if (!is_float(form.element) || raw.size() % element_bytes(form.element) != 0 || form.row == 0 ||
      form.row > kMaxScaleRow || form.rows == 0) {
    return damaged("delta leaf: impossible form");
  }
  const ScaleMap map = map_of(form, raw.size());
  if (map.rows != form.rows || !fits(map)) return damaged("delta leaf: impossible form");
  if (load_le<uint8_t>(stored.data() + kDepthAt) > kDeepest || load_le<uint16_t>(stored.data() + kZeroAt) != 0) {
    return damaged("delta leaf: reserved field in use");
  }
  for (size_t i = kOwnEnd; i < kFrameBytes; ++i) {
    if (stored[i] != std::byte{0}) return damaged("delta leaf: reserved field in use");
  }
  const Sections at = sections_of(map);
  if (at.anchors > stored.size()) return damaged("delta leaf: not as long as its form");
  std::byte* const memory = workspace.take(Room::kBytes);
  if (memory == nullptr) return {Code::no_memory, "delta leaf: no memory to work in"};
  const Room room(memory);
  const std::byte* const s = stored.data();
  unpack_direct(map.units(), s + at.direct, room.direct);
  const uint32_t anchors = count_anchors(map, room.direct);
  const uint32_t others = map.values - anchors;
  const auto escapes = load_le<uint32_t>(s + kEscapesAt);
  const uint64_t plane = uint64_t{at.anchors} + anchors + escapes;
  if (plane > stored.size()) return damaged("delta leaf: not as long as its form");
  if (!read_scales(map.units(), s + at.anchor_scales, room.anchor_scale) ||
      !read_scales(map.units(), s + at.steps, room.step)) {
    return damaged("delta leaf: impossible scale");
  }
  spread_delta_contexts(map, room, s + at.contexts);
  if (!decode_plane(symbol_kernel(), stored.subspan(plane), room.contexts, groups_of(others), room.symbols) ||
      !read_symbols(room, others, s + at.anchors + anchors, escapes)) {
    return damaged("delta leaf: impossible plane");
  }
  with_element(map.element, [&]<Element kElement>() { restore<kElement>(map, room, s + at.anchors, raw.data()); });
  return {};
}

}  // namespace kvbm::codec

#include "codec/lossy/quantize.h"

#include <cstring>

#include "codec/hash/leaf_hash.h"
#include "codec/lossy/quantize_scales.h"
#include "codec/lossy/symbol_contexts.h"
#include "codec/lossy/symbol_plane.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace kvbm::codec {
namespace {

enum Offset : size_t { kByRowAt = kFrameOwnAt, kOwnZeroAt = kFrameOwnAt + 1 };

// Form in which a mode stores a number. `full`: the number for the largest magnitude, a little less than the first that
// would be rounded to one too many.
struct Kind {
  Number number;
  uint32_t bits;
  float full;
  bool coded = false;  // the top four bits are a symbol plane
};
std::optional<Kind> kind_of(Mode mode) noexcept {
  switch (mode) {
    case Mode::fp8_e4m3:
      return Kind{Number::e4m3, 8, 448.0F};
    case Mode::fp8_e5m2:
      return Kind{Number::e5m2, 8, 57344.0F};
    case Mode::int8:
    case Mode::int8_coded:
      return Kind{Number::integer, 8, 127.49F, mode == Mode::int8_coded};
    case Mode::int6:
    case Mode::int6_coded:
      return Kind{Number::integer, 6, 31.49F, mode == Mode::int6_coded};
    case Mode::int4:
    case Mode::int4_coded:
      return Kind{Number::integer, 4, 7.49F, mode == Mode::int4_coded};
    default:
      return std::nullopt;
  }
}

// A scale must serve this many values, or nothing is gained.
constexpr uint32_t kLeastValuesOfScale = 8;
// With fewer tokens than this, scales of rows are compared with scales of channels.
constexpr uint32_t kFewRows = 32;
// Most rows for a scale of a channel: over more of them the largest value grows, and the others lose precision. Of 512
// tokens V loses 7.1e-5 with one scale and 6.0e-5 with two (SmolLM2-135M, int8), for 0.3 % of room.
constexpr uint32_t kMostRows = 256;
// Sizes in the workspace. A leaf has at most 32768 values, and a scale for at least 8 of them, except in a last head.
constexpr size_t kDecodedBytes = kMaxLeafBytes + 256;
constexpr size_t kCodesBytes = 32768 + 64;
constexpr uint32_t kMaxUnits = 32768 / kLeastValuesOfScale + kMaxScaleRow;
constexpr uint32_t kCodedBits = 4;
constexpr size_t kScalesBytes = kMaxUnits * sizeof(float);
struct Room {
  std::byte* decoded;
  std::byte* codes;
  float* reciprocal;
  float* scale;
  std::byte* scratch;
  // Parts of the scratch memory once the values are numbers.
  std::byte* contexts;
  std::byte* symbols;
  std::byte* low;
  std::byte* of_units;  // context of each scale
  std::byte* streams;

  static constexpr size_t kBytes = kDecodedBytes + kCodesBytes + 2 * kScalesBytes + kQuantizeScratch;

  explicit Room(std::byte* at) noexcept
      : decoded(at),
        codes(decoded + kDecodedBytes),
        reciprocal(reinterpret_cast<float*>(codes + kCodesBytes)),
        scale(reinterpret_cast<float*>(codes + kCodesBytes + kScalesBytes)),
        scratch(codes + kCodesBytes + 2 * kScalesBytes),
        contexts(scratch),
        symbols(contexts + kCodesBytes),
        low(symbols + kCodesBytes),
        of_units(low + kCodesBytes),
        streams(of_units + kMaxUnits * sizeof(uint32_t)) {}
};
static_assert(3 * kCodesBytes + kMaxUnits * sizeof(uint32_t) + plane_scratch(32768 / kSymbolGroup + 1) <=
              kQuantizeScratch);

// Returns a measure that the error of this map is proportional to: the mean of the squares of its maxima.
double weight(const ScaleMap& map, const uint32_t* maxima) noexcept {
  double sum = 0;
  for (uint32_t u = 0; u < map.units(); ++u) {
    const auto m = static_cast<double>(std::bit_cast<float>(maxima[u]));
    sum += m * m;
  }
  return sum / map.units();
}

// Returns by which factor the error with row scales may be larger while they are still the better choice, since they
// take less room: each bit of a value is worth a factor of 4. Between powers of two a straight line is accurate enough.
double worth(const ScaleMap& map) noexcept {
  constexpr double kScaleBits = 16;
  constexpr int kAbove = 8;  // makes the exponent positive
  const double bits = kScaleBits / map.rows - kScaleBits / map.row;
  const double exponent = 2 * bits + kAbove;
  const int whole = static_cast<int>(exponent);
  return (1 + exponent - whole) * static_cast<double>(power_of_two(whole - kAbove));
}

// Cuts heads of many rows into equal parts with their own scales, if that is possible. A leaf with a single head may
// end with a shorter part.
void cut_heads(ScaleMap& map) noexcept {
  if (map.by_row || map.rows <= kMostRows) return;
  if (map.head() == map.values) {
    const uint32_t parts = (map.rows + kMostRows - 1) / kMostRows;
    map.rows = static_cast<uint32_t>(round_up((map.rows + parts - 1) / parts, kQuantizeGroup));
    return;
  }
  for (uint32_t rows = kMostRows; rows > kMostRows / 2; --rows) {
    if (map.rows % rows != 0 || rows * map.row % kQuantizeGroup != 0) continue;
    map.rows = rows;
    return;
  }
}

// Fills `maxima` and returns whether the leaf can be quantised. codec/README.md: "Which scales".
bool choose_map(ScaleMap& map, const std::byte* raw, uint32_t* maxima, uint32_t* spare) noexcept {
  const bool channels = !map.by_row && map.rows >= kLeastValuesOfScale;
  const bool by_rows = map.by_row || (map.row >= kLeastValuesOfScale && map.rows < kFewRows);
  if (!channels && !by_rows) return false;
  if (channels) {
    if (map.units() > kMaxUnits) return false;
    find_maxima(map, raw, maxima);
    if (!in_range(map, maxima, kMostHalf)) return false;
    if (!by_rows) return true;
  }
  ScaleMap rows = map;
  rows.by_row = true;
  if (rows.units() > kMaxUnits) return channels;
  find_maxima(rows, raw, spare);
  if (!in_range(rows, spare, kMostHalf)) return false;
  if (channels && weight(map, maxima) * worth(map) <= weight(rows, spare)) return true;
  map = rows;
  std::memcpy(maxima, spare, map.units() * sizeof *maxima);
  return true;
}

// Makes scales as bf16, rounded up so that no number exceeds `full`.
void make_scales(uint32_t units, const uint32_t* __restrict__ maxima, float full, float* __restrict__ reciprocal,
                 float* __restrict__ scale, std::byte* __restrict__ stored) noexcept {
  for (uint32_t u = 0; u < units; ++u) {
    scale[u] = scale_of(scale_bits(std::bit_cast<float>(maxima[u]) / full));
    const float inverse = 1.0F / scale[u];
    reciprocal[u] = maxima[u] == 0 ? 0.0F : inverse;
  }
  for (uint32_t u = 0; u < units; ++u) {
    store_le(stored + 2 * size_t{u}, static_cast<uint16_t>(std::bit_cast<uint32_t>(scale[u]) >> 16));
  }
}

// Positions of the sections of a leaf; each fills whole units of 64 bytes.
struct Sections {
  size_t scales = kFrameBytes;
  size_t contexts;  // coded: two bits for each scale
  size_t codes;     // all bits of the numbers, or those outside the plane
  size_t end;       // coded: begin of the plane
};
Sections sections_of(const ScaleMap& map, const Kind& kind) noexcept {
  const uint32_t plain_bits = kind.coded ? kind.bits - kCodedBits : kind.bits;
  Sections s;
  s.contexts = s.scales + round_up(2 * size_t{map.units()}, kCodedLeafUnit);
  s.codes = s.contexts + (kind.coded ? round_up((map.units() + 3) / 4, kCodedLeafUnit) : 0);
  s.end = s.codes + round_up(size_t{groups_of(map.values)} * 8 * plain_bits, kCodedLeafUnit);
  return s;
}

// Splits numbers into their top four bits and the bits below, and back. Separate and without aliases, so that the
// compiler can vectorise it.
[[gnu::noinline]] void split(const std::byte* __restrict__ q, size_t n, uint32_t bits,
                             std::byte* __restrict__ symbols) noexcept {
  const auto bias = static_cast<uint8_t>(1U << (bits - 1));
  for (size_t i = 0; i < n; ++i) {
    const auto biased = static_cast<uint8_t>(static_cast<uint8_t>(q[i]) + bias);
    symbols[i] = static_cast<std::byte>(biased >> (bits - kCodedBits));
  }
}
[[gnu::noinline]] void join(const std::byte* __restrict__ symbols, const std::byte* __restrict__ low, size_t n,
                            uint32_t bits, std::byte* __restrict__ q) noexcept {
  const uint32_t low_bits = bits - kCodedBits;
  const auto bias = static_cast<uint8_t>(1U << (bits - 1));
  const auto mask = static_cast<uint8_t>((1U << low_bits) - 1);
  for (size_t i = 0; i < n; ++i) {
    const auto high = static_cast<uint8_t>(static_cast<uint32_t>(symbols[i]) << low_bits);
    q[i] = static_cast<std::byte>((high | (static_cast<uint8_t>(low[i]) & mask)) - bias);
  }
}

// Appends contexts, low bits and plane; returns the end of the leaf, or 0 if it would not be below `limit`.
size_t write_coded(const ScaleMap& map, const Kind& kind, const Sections& at, const Room& room, std::byte* out,
                   size_t limit) noexcept {
  const uint32_t groups = groups_of(map.values);
  const uint32_t low_bits = kind.bits - kCodedBits;
  split(room.codes, size_t{groups} * kQuantizeGroup, kind.bits, room.symbols);
  std::memset(out + at.contexts, 0, at.end - at.contexts);
  choose_contexts(map, room.codes, reinterpret_cast<uint32_t*>(room.of_units), out + at.contexts);
  spread_contexts(map, out + at.contexts, room.of_units, room.contexts);
  if (low_bits != 0) quantize_kernel().pack(room.codes, groups, low_bits, out + at.codes);
  const size_t bytes =
      encode_plane(symbol_kernel(), room.symbols, room.contexts, groups, room.streams, out + at.end, limit - at.end);
  const size_t end = round_up(at.end + bytes, kCodedLeafUnit);
  if (bytes == 0 || end >= limit) return 0;
  std::memset(out + at.end + bytes, 0, end - at.end - bytes);
  return end;
}

bool read_coded(const ScaleMap& map, const Kind& kind, const Sections& at, ConstBytes stored,
                const Room& room) noexcept {
  const uint32_t groups = groups_of(map.values);
  const uint32_t low_bits = kind.bits - kCodedBits;
  spread_contexts(map, stored.data() + at.contexts, room.of_units, room.contexts);
  if (!decode_plane(symbol_kernel(), stored.subspan(at.end), room.contexts, groups, room.symbols)) return false;
  const size_t n = size_t{groups} * kQuantizeGroup;
  if (low_bits != 0) {
    quantize_kernel().unpack(stored.data() + at.codes, groups, low_bits, room.low);
  } else {
    std::memset(room.low, 0, n);
  }
  join(room.symbols, room.low, n, kind.bits, room.codes);
  return true;
}

}  // namespace

Result<Encoded> quantize_encode(const LeafForm& form, Mode mode, ConstBytes raw, MutableBytes out,
                                Workspace& workspace) noexcept {
  const std::optional<Kind> kind = kind_of(mode);
  if (!kind || !is_float(form.element) || raw.size() % element_bytes(form.element) != 0) return Encoded{};
  std::byte* const memory = workspace.take(Room::kBytes);
  if (memory == nullptr) return Status{Code::no_memory, "quantised leaf: no memory to work in"};
  const Room room(memory);
  ScaleMap map = map_of(form, raw.size());
  cut_heads(map);
  auto* const maxima = reinterpret_cast<uint32_t*>(room.scratch);
  if (!choose_map(map, raw.data(), maxima, maxima + kMaxUnits)) return Encoded{};
  const Sections at = sections_of(map, *kind);
  if (at.end >= raw.size()) return Encoded{};

  std::memset(out.data() + at.contexts - kCodedLeafUnit, 0, kCodedLeafUnit);
  make_scales(map.units(), maxima, kind->full, room.reciprocal, room.scale, out.data() + at.scales);
  const bool in_place = kind->bits == 8 && !kind->coded;
  std::byte* const codes = in_place ? out.data() + at.codes : room.codes;
  Sums sums;
  LeafHasher hash;
  if (!quantize_kernel().quantize(map, kind->number, raw.data(), room.reciprocal, room.scale, codes, room.decoded,
                                  room.scratch, hash, sums)) {
    portable_quantize_kernel().quantize(map, kind->number, raw.data(), room.reciprocal, room.scale, codes, room.decoded,
                                        room.scratch, hash, sums);
  }
  size_t end = at.end;
  if (kind->coded) {
    end = write_coded(map, *kind, at, room, out.data(), raw.size());
    if (end == 0) return Encoded{};
  } else if (!in_place) {
    std::memset(out.data() + at.end - kCodedLeafUnit, 0, kCodedLeafUnit);
    quantize_kernel().pack(codes, groups_of(map.values), kind->bits, out.data() + at.codes);
  }
  const Frame frame{LeafCodec::quantized,
                    static_cast<uint8_t>(mode),
                    {form.element, map.row, map.rows},
                    static_cast<uint32_t>(raw.size()),
                    static_cast<uint32_t>(end),
                    hash.hash()};
  write_frame(frame, out.data());
  store_le(out.data() + kByRowAt, static_cast<uint8_t>(map.by_row));
  return Encoded{LeafCodec::quantized, frame.stored_bytes, true, sums.difference, sums.value};
}

Status quantize_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept {
  const std::optional<Kind> kind = kind_of(static_cast<Mode>(frame.shape));
  if (!kind) return {Code::newer_version, "quantised leaf: a mode that is not known here"};
  const LeafForm& form = frame.form;
  if (!is_float(form.element) || raw.size() % element_bytes(form.element) != 0 || form.row == 0 ||
      form.row > kMaxScaleRow || form.rows == 0) {
    return damaged("quantised leaf: impossible form");
  }
  ScaleMap map = map_of(form, raw.size());
  const auto by_row = load_le<uint8_t>(stored.data() + kByRowAt);
  if (by_row > 1 || map.rows != form.rows) return damaged("quantised leaf: impossible form");
  map.by_row = by_row == 1;
  for (size_t i = kOwnZeroAt; i < kFrameBytes; ++i) {
    if (stored[i] != std::byte{0}) return damaged("quantised leaf: reserved field in use");
  }
  if (map.units() > kMaxUnits) return damaged("quantised leaf: too many scales");
  const Sections at = sections_of(map, *kind);
  if (kind->coded ? at.end > stored.size() : at.end != stored.size()) {
    return damaged("quantised leaf: not as long as its form");
  }
  std::byte* const memory = workspace.take(Room::kBytes);
  if (memory == nullptr) return {Code::no_memory, "quantised leaf: no memory to work in"};
  const Room room(memory);
  if (!read_scales(map.units(), stored.data() + at.scales, room.scale)) {
    return damaged("quantised leaf: impossible scale");
  }
  const std::byte* codes = stored.data() + at.codes;
  if (kind->coded) {
    if (!read_coded(map, *kind, at, stored, room)) {
      return damaged("quantised leaf: impossible plane");
    }
    codes = room.codes;
  } else if (kind->bits != 8) {
    quantize_kernel().unpack(codes, groups_of(map.values), kind->bits, room.codes);
    codes = room.codes;
  }
  if (!quantize_kernel().dequantize(map, kind->number, codes, room.scale, raw.data(), room.scratch)) {
    portable_quantize_kernel().dequantize(map, kind->number, codes, room.scale, raw.data(), room.scratch);
  }
  return {};
}

}  // namespace kvbm::codec

#include "codec/lossless/planar.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "codec/lossless/planar_kernel.h"
#include "codec/lossless/planar_rows.h"
#include "codec/lossless/planar_tables.h"

namespace kvbm::codec {
namespace {

// The codec's own fields of the frame; codec/README.md has the table.
enum Own : size_t {
  kCountsAt = kFrameOwnAt,
  kClassesAt = kFrameOwnAt + 8,
  kPeriodAt = kFrameOwnAt + 10,
  kGroupAt = kFrameOwnAt + 12,
  kEscapesAt = kFrameOwnAt + 14,
  kWordsAt = kFrameOwnAt + 16,
};

constexpr size_t kEscapeSlack = 64;  // bytes behind the escapes that a reader of 64 at a time may read
constexpr uint8_t kRepeatShape = 0;  // the whole leaf repeats its first 8 bytes
constexpr uint8_t kRowsShape = 16;   // an index a row, then a planar leaf of the different rows
constexpr uint8_t kSignsShape = 17;  // 8 levels, the sign in the symbol
constexpr uint32_t kSignsLevels = 8;
constexpr size_t kRowBytesAt = kFrameOwnAt;
constexpr size_t kDifferentAt = kFrameOwnAt + 4;
constexpr size_t kInnerAt = kFrameOwnAt + 8;  // codec of the different rows: planar, or raw

PlanarElement element_of(Element element) noexcept {
  switch (element) {
    case Element::bf16:
      return {2, 0};
    case Element::fp16:
      return {2, 3};
    case Element::fp32:
      return {4, 0};
    case Element::fp8_e4m3:
      return {1, 4};
    case Element::fp8_e5m2:
      return {1, 3};
    default:
      return {};
  }
}

// Form with the sign behind the exponent. fp32 has none.
PlanarElement signed_element_of(Element element) noexcept {
  switch (element) {
    case Element::bf16:
      return {2, 0, true, true};
    case Element::fp16:
      return {2, 2, true, false};
    case Element::fp8_e4m3:
      return {1, 3, true, false};
    case Element::fp8_e5m2:
      return {1, 2, true, false};
    default:
      return {};
  }
}

// Bytes of a block that are stored unchanged.
size_t plane_bytes(const PlanarElement& element) noexcept {
  return element.packed ? kPackedBlock : size_t{kBlock} * (element.width - 1);
}
size_t lower_bytes(const PlanarElement& element) noexcept {
  return size_t{8} * element.raw_bits + plane_bytes(element);
}

// True if sign prediction may compare values one row apart: a row must fit in the blocks.
bool row_fits(const LeafForm& form, uint32_t blocks) noexcept { return form.row != 0 && form.row <= blocks * kBlock; }

// Positions of the parts of a coded leaf; each begins where the one before ends, except for the alignments given here.
struct Sections {
  size_t tables = 0;
  size_t streams = 0;
  size_t escapes = 0;
  size_t bits = 0;
  size_t planes = 0;
  size_t tail = 0;
  size_t end = 0;
};

struct Sizes {
  uint32_t vectors = 0;  // 0: one class, no map
  uint32_t classes = 1;
  uint32_t codes = 0;
  uint32_t words = 0;  // of all streams
  uint32_t escapes = 0;
};

Sections sections_of(const PlanarPlan& plan, const Sizes& sizes, size_t raw_bytes) noexcept {
  const size_t values = size_t{plan.blocks} * kBlock;
  Sections at;
  at.tables = kFrameBytes + size_t{sizes.vectors} * (kBlock / 4);
  at.streams = round_up(at.tables + size_t{sizes.classes} * (sizes.codes - 1), 8);
  at.escapes = at.streams + size_t{8} * sizes.words;
  at.bits = round_up(at.escapes + sizes.escapes, 64);
  at.planes = at.bits + size_t{8} * plan.element.raw_bits * plan.blocks;
  if (plan.element.width > 1) at.planes = round_up(at.planes, 64);
  at.tail = at.planes + plane_bytes(plan.element) * plan.blocks;
  const size_t data = at.tail + (raw_bytes - values * plan.element.width);
  at.end = round_up(std::max(data, at.escapes + sizes.escapes + kEscapeSlack), kCodedLeafUnit);
  return at;
}

void set_planes(const PlanarPlan& plan, std::byte* base, const Sections& at, PlanarPlaces& places) noexcept {
  const size_t values = size_t{plan.blocks} * kBlock;
  places.bits = base + at.bits;
  for (uint32_t p = 0; p + 1 < plan.element.width; ++p) places.planes[p] = base + at.planes + values * p;
}

bool repeats(ConstBytes raw) noexcept {
  return raw.size() > 2 * kFrameBytes && std::memcmp(raw.data(), raw.data() + 8, raw.size() - 8) == 0;
}

uint32_t write_repeat(const LeafForm& form, ConstBytes raw, uint64_t raw_hash, std::byte* out) noexcept {
  write_frame({LeafCodec::planar, kRepeatShape, form, static_cast<uint32_t>(raw.size()), kFrameBytes, raw_hash}, out);
  std::memcpy(out + kFrameOwnAt, raw.data(), 8);
  return kFrameBytes;
}

Status read_repeat(ConstBytes stored, MutableBytes raw) noexcept {
  for (size_t at = 0; at < raw.size(); at += 8) {
    std::memcpy(raw.data() + at, stored.data() + kFrameOwnAt, std::min<size_t>(8, raw.size() - at));
  }
  return {};
}

// One way of coding a leaf.
struct Way {
  uint8_t shape = 0;
  const std::byte* from = nullptr;  // the leaf, or its folded form
  PlanarPlan plan;
  PlanarChoice choice;
};

// Part of the workspace that one encoding needs.
struct Room {
  Way plain;
  Way with_signs;
  alignas(64) std::byte samples[kSampleRoom];
  alignas(64) std::byte full[kMaxLeafBytes];  // streams of the levels that every code has, one behind the other
  alignas(64) std::byte open[kMaxLevels][kMaxLeafBytes / 8 + 64];
  alignas(64) std::byte escapes[kMaxLeafBytes + 64];
  alignas(64) std::byte bits[kMaxLeafBytes / 2 + 64];
  alignas(64) std::byte planes[kMaxLeafBytes];
  LeafRows equal;
  alignas(64) std::byte different[kMaxLeafBytes];
  alignas(64) std::byte folded[kMaxLeafBytes];
};
static_assert(sizeof(Room) <= 576 * 1024);

void pack_classes(const PlanarPlan& plan, uint32_t vectors, std::byte* out) noexcept {
  for (size_t i = 0; i < size_t{vectors} * kBlock; i += 4) {
    uint32_t four = 0;
    for (uint32_t j = 0; j < 4; ++j) four |= plan.classes[i + j] / kMaxSymbols << (2 * j);
    out[i / 4] = static_cast<std::byte>(four);
  }
}

uint32_t vectors_of(const PlanarPlan& plan) noexcept {
  return (plan.blocks + plan.group_blocks - 1) / plan.group_blocks * plan.period;
}

PlanarPlaces places_in(const PlanarPlan& plan, Room& room) noexcept {
  PlanarPlaces places;
  for (uint32_t l = 0; l < plan.levels; ++l) {
    places.streams[l] = l < plan.full ? room.full + size_t{8} * l * plan.blocks : room.open[l];
  }
  places.escapes = room.escapes;
  places.bits = room.bits;
  const size_t values = size_t{plan.blocks} * kBlock;
  for (uint32_t p = 0; p + 1 < plan.element.width; ++p) places.planes[p] = room.planes + values * p;
  return places;
}

// Assembles the coded parts; 0: not smaller than the leaf.
uint32_t assemble(const Frame& frame, const Way& way, Room& room, const PlanarEnds& ends, ConstBytes raw,
                  MutableBytes out) noexcept {
  const PlanarPlan& plan = way.plan;
  const PlanarChoice& choice = way.choice;
  uint32_t words[kMaxLevels] = {};
  Sizes sizes{choice.classes > 1 ? vectors_of(plan) : 0, choice.classes, choice.codes, 0, ends.escapes};
  for (uint32_t l = 0; l < plan.levels; ++l) sizes.words += words[l] = (ends.bits[l] + 63) / 64;
  const Sections at = sections_of(plan, sizes, raw.size());
  if (at.end >= raw.size() || ends.escapes > UINT16_MAX) return 0;
  std::byte* const base = out.data();
  Frame whole = frame;
  whole.shape = way.shape;
  whole.stored_bytes = static_cast<uint32_t>(at.end);
  write_frame(whole, base);
  std::memcpy(base + kCountsAt, choice.counts, sizeof choice.counts);
  store_le(base + kClassesAt, static_cast<uint8_t>(choice.classes));
  store_le(base + kPeriodAt, static_cast<uint16_t>(choice.classes > 1 ? plan.period : 1));
  store_le(base + kGroupAt, static_cast<uint16_t>(choice.classes > 1 ? plan.group_blocks : plan.blocks));
  store_le(base + kEscapesAt, static_cast<uint16_t>(ends.escapes));
  for (uint32_t l = 0; l < kMaxLevels; ++l) store_le(base + kWordsAt + 2 * l, static_cast<uint16_t>(words[l]));
  if (choice.classes > 1) pack_classes(plan, sizes.vectors, base + kFrameBytes);
  std::byte* to = base + at.tables;
  for (uint32_t k = 0; k < choice.classes; ++k, to += choice.codes - 1) {
    std::memcpy(to, choice.symbols[k], choice.codes - 1);
  }
  std::memset(to, 0, static_cast<size_t>(base + at.streams - to));
  to = base + at.streams;
  const size_t full = size_t{8} * plan.full * plan.blocks;
  std::memcpy(to, room.full, full);
  to += full;
  for (uint32_t l = plan.full; l < plan.levels; to += size_t{8} * words[l], ++l) {
    std::memcpy(to, room.open[l], size_t{8} * words[l]);
  }
  std::memcpy(to, room.escapes, ends.escapes);
  to += ends.escapes;
  std::memset(to, 0, static_cast<size_t>(base + at.bits - to));
  const size_t bits_bytes = size_t{8} * plan.element.raw_bits * plan.blocks;
  std::memcpy(base + at.bits, room.bits, bits_bytes);
  std::memset(base + at.bits + bits_bytes, 0, at.planes - at.bits - bits_bytes);
  if (plan.element.packed) {
    planar_kernel().pack_low(room.planes, plan.blocks, base + at.planes);
  } else {
    std::memcpy(base + at.planes, room.planes, at.tail - at.planes);
  }
  const size_t tail = raw.size() - size_t{plan.blocks} * kBlock * plan.element.width;
  std::memcpy(base + at.tail, raw.data() + raw.size() - tail, tail);
  std::memset(base + at.tail + tail, 0, at.end - at.tail - tail);
  return static_cast<uint32_t>(at.end);
}

// Reads and checks a frame's own fields; returns a text that names the fault.
const char* read_plan(const Frame& frame, ConstBytes stored, PlanarPlan& plan, Sizes& sizes) noexcept {
  const std::byte* const in = stored.data();
  const bool signs = frame.shape == kSignsShape;
  plan.element = signs ? signed_element_of(frame.form.element) : element_of(frame.form.element);
  if (plan.element.width == 0) return "planar leaf: of an element that it does not fit";
  plan.blocks = frame.raw_bytes / (kBlock * plan.element.width);
  if (plan.blocks == 0) return "planar leaf: too short";
  uint8_t counts[kMaxLevels];
  std::memcpy(counts, in + kCountsAt, sizeof counts);
  if (signs && !row_fits(frame.form, plan.blocks)) return "planar leaf: signs of impossible rows";
  if (!planar_shape(counts, signs ? kSignsLevels : frame.shape, plan)) return "planar leaf: no complete tree";
  for (const uint8_t count : counts) sizes.codes += count;
  sizes.classes = load_le<uint8_t>(in + kClassesAt);
  if (sizes.classes == 0 || sizes.classes > kMaxClasses || load_le<uint8_t>(in + kClassesAt + 1) != 0) {
    return "planar leaf: impossible number of classes";
  }
  plan.period = load_le<uint16_t>(in + kPeriodAt);
  plan.group_blocks = load_le<uint16_t>(in + kGroupAt);
  if (plan.period == 0 || plan.group_blocks == 0 || plan.group_blocks > plan.blocks) {
    return "planar leaf: impossible channels";
  }
  if (plan.period > kMaxVectors || vectors_of(plan) > kMaxVectors) return "planar leaf: too many channels";
  if (sizes.classes > 1) sizes.vectors = vectors_of(plan);
  sizes.escapes = load_le<uint16_t>(in + kEscapesAt);
  for (uint32_t l = 0; l < kMaxLevels; ++l) {
    const uint32_t words = load_le<uint16_t>(in + kWordsAt + 2 * l);
    const bool wrong = l < plan.full ? words != plan.blocks : words > (l < plan.levels ? plan.blocks : 0);
    if (wrong) return "planar leaf: a stream of impossible length";
    sizes.words += words;
  }
  return nullptr;
}

bool read_tables(const PlanarPlan& from, const Sizes& sizes, const Sections& at, const std::byte* in,
                 PlanarPlan& plan) noexcept {
  std::memset(plan.classes, 0, size_t{vectors_of(from)} * kBlock);
  for (size_t i = 0; i < size_t{sizes.vectors} * kBlock; ++i) {
    const uint32_t k = std::to_integer<uint32_t>(in[kFrameBytes + i / 4]) >> (i % 4 * 2) & 3;
    if (k >= sizes.classes) return false;
    plan.classes[i] = static_cast<uint8_t>(k * kMaxSymbols);
  }
  std::memset(plan.symbol, 0, sizeof plan.symbol);
  for (uint32_t k = 0; k < sizes.classes; ++k) {
    std::memcpy(plan.symbol + size_t{k} * kMaxSymbols, in + at.tables + size_t{k} * (sizes.codes - 1), sizes.codes - 1);
  }
  return true;
}

// Estimates the size of coding that way, without the frame.
uint64_t estimate(const LeafForm& form, Mode mode, uint32_t blocks, Way& way, Room& room) noexcept {
  way.plan.blocks = blocks;
  planar_channels(form, way.plan);
  planar_choose(way.plan, mode, way.from, room.samples, way.choice);
  return way.choice.bytes + lower_bytes(way.plan.element) * blocks;
}

// True if signs repeat from row to row so often that coding them is worth the time in mode `standard`: a gain of at
// least 0.15 bits a value, as for K and not for V. Only for fp16, which gains little otherwise. Some rows are sampled.
bool signs_stay(const LeafForm& form, ConstBytes values) noexcept {
  constexpr size_t kLooks = 8;
  constexpr size_t kFewest = 256;
  const size_t row = form.row;
  const size_t rows = values.size() / (2 * row);
  if (rows < 2) return false;
  size_t looked = 0;
  size_t flips = 0;
  for (size_t k = 0; k < std::min(kLooks, rows - 1); ++k) {
    const std::byte* const at = values.data() + 2 * row * (1 + k * (rows - 1) / kLooks) + 1;
    for (size_t i = 0; i < row; ++i) flips += static_cast<size_t>((at[2 * i] ^ (at - 2 * row)[2 * i]) >> 7);
    looked += row;
  }
  return looked >= kFewest && flips * 1000 < looked * 277;  // 0.85 bits
}

// Folds the leaf and estimates its coded size; false: it cannot be folded.
bool fold_signs(const LeafForm& form, Mode mode, uint32_t blocks, ConstBytes values, Room& room,
                uint64_t& bytes) noexcept {
  Way& signs = room.with_signs;
  signs.plan.element = signed_element_of(form.element);
  const size_t row_bytes = size_t{form.row} * signs.plan.element.width;
  if (!signs.plan.element.signs || !row_fits(form, blocks) ||
      !planar_kernel().fold_signs(form.element, values.data(), values.size(), row_bytes, room.folded)) {
    return false;
  }
  signs.shape = kSignsShape;
  signs.from = room.folded;
  bytes = estimate(form, mode, blocks, signs, room);
  return true;
}

uint32_t encode_values(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                       Room& room) noexcept {
  const PlanarElement element = element_of(form.element);
  const auto blocks = static_cast<uint32_t>(raw.size() / (kBlock * element.width));
  if (blocks == 0) return 0;
  const size_t in_blocks = size_t{blocks} * kBlock * element.width;
  const ConstBytes values = raw.first(in_blocks);
  Way* best = &room.with_signs;
  uint64_t least = UINT64_MAX;
  // If signs clearly gain, the other way is not estimated.
  const bool clear =
      mode == Mode::standard && form.element == Element::fp16 && row_fits(form, blocks) && signs_stay(form, values);
  if ((!clear && mode != Mode::max) || !fold_signs(form, mode, blocks, values, room, least)) least = UINT64_MAX;
  if (least == UINT64_MAX || mode == Mode::max) {
    room.plain.from = raw.data();
    room.plain.plan.element = element;
    const uint64_t bytes = estimate(form, mode, blocks, room.plain, room);
    room.plain.shape = room.plain.choice.levels;
    if (bytes <= least) {
      best = &room.plain;
      least = bytes;
    }
  }
  if (least + (raw.size() - in_blocks) + kFrameBytes >= raw.size()) return 0;
  PlanarEnds ends;
  planar_kernel().encode(best->plan, best->from, places_in(best->plan, room), ends);
  const Frame frame{LeafCodec::planar, 0, form, static_cast<uint32_t>(raw.size()), 0, raw_hash};
  return assemble(frame, *best, room, ends, raw, out);
}

// header | u16 a row | zeros up to 64 | planar leaf of the different rows, or these unchanged and zeros up to 64
uint32_t encode_rows(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                     Room& room) noexcept {
  const LeafRows& equal = room.equal;
  const size_t inner_at = round_up(kFrameBytes + 2 * size_t{equal.rows}, 64);
  const size_t different_bytes = size_t{equal.different} * equal.row_bytes;
  if (inner_at + different_bytes + 4096 > out.size()) return 0;
  const LeafForm inner_form{form.element, form.row, 0};
  size_t inner = encode_values(inner_form, mode, {room.different, different_bytes}, 0, out.subspan(inner_at), room);
  const LeafCodec inner_codec = inner == 0 ? LeafCodec::raw : LeafCodec::planar;
  if (inner == 0) {
    inner = round_up(different_bytes, kCodedLeafUnit);
    std::memcpy(out.data() + inner_at, room.different, different_bytes);
    std::memset(out.data() + inner_at + different_bytes, 0, inner - different_bytes);
  }
  if (inner_at + inner >= raw.size()) return 0;
  const auto total = static_cast<uint32_t>(inner_at + inner);
  write_frame({LeafCodec::planar, kRowsShape, form, static_cast<uint32_t>(raw.size()), total, raw_hash}, out.data());
  store_le(out.data() + kRowBytesAt, equal.row_bytes);
  store_le(out.data() + kDifferentAt, equal.different);
  store_le(out.data() + kInnerAt, static_cast<uint32_t>(inner_codec));
  std::memcpy(out.data() + kFrameBytes, equal.index, 2 * size_t{equal.rows});
  std::memset(out.data() + kFrameBytes + 2 * size_t{equal.rows}, 0, inner_at - kFrameBytes - 2 * size_t{equal.rows});
  return total;
}

// Part of the workspace that one decoding needs.
struct DecodeRoom {
  PlanarPlan plan;
  alignas(64) std::byte escapes[kMaxLeafBytes + kEscapeSlack];  // one for each value, for any leaf
  alignas(64) std::byte low[kMaxLeafBytes / 2];                 // lower bytes that are stored packed
  alignas(64) std::byte different[kMaxLeafBytes];
};

Status decode_values(const Frame& frame, ConstBytes stored, MutableBytes raw, DecodeRoom& room) noexcept {
  PlanarPlan& plan = room.plan;
  if (frame.shape > kMaxLevels && frame.shape != kSignsShape)
    return {Code::newer_version, "planar leaf: a shape that is not known here"};
  Sizes sizes;
  if (const char* fault = read_plan(frame, stored, plan, sizes)) return {Code::damaged, fault};
  const Sections at = sections_of(plan, sizes, raw.size());
  if (at.end != stored.size()) return {Code::damaged, "planar leaf: its parts do not make up its length"};
  if (!read_tables(plan, sizes, at, stored.data(), plan)) return {Code::damaged, "planar leaf: unknown class"};
  // Kernels only read through these. A stream is read for at most 8 bytes a block and 8 beyond: bits and planes, which
  // follow all streams, are longer. Escapes are read from memory that has room for one per value.
  auto* const base = const_cast<std::byte*>(stored.data());
  PlanarPlaces places;
  std::byte* stream = base + at.streams;
  for (uint32_t l = 0; l < plan.levels; ++l) {
    places.streams[l] = stream;
    stream += size_t{8} * load_le<uint16_t>(stored.data() + kWordsAt + 2 * l);
  }
  std::memcpy(room.escapes, base + at.escapes, sizes.escapes);
  places.escapes = room.escapes;
  set_planes(plan, base, at, places);
  if (plan.element.packed && !planar_kernel().takes_packed) {
    planar_kernel().unpack_low(base + at.planes, plan.blocks, room.low);
    places.planes[0] = room.low;
  }
  PlanarEnds ends;
  planar_kernel().decode(plan, places, raw.data(), ends);
  for (uint32_t l = 0; l < plan.levels; ++l) {
    if ((ends.bits[l] + 63) / 64 != load_le<uint16_t>(stored.data() + kWordsAt + 2 * l)) {
      return {Code::damaged, "planar leaf: a stream is longer or shorter than it should be"};
    }
  }
  if (ends.escapes != sizes.escapes) return {Code::damaged, "planar leaf: more or fewer escapes than it says"};
  const size_t coded = size_t{plan.blocks} * kBlock * plan.element.width;
  if (plan.element.signs) {
    planar_kernel().unfold_signs(frame.form.element, raw.data(), coded, size_t{frame.form.row} * plan.element.width);
  }
  std::memcpy(raw.data() + coded, stored.data() + at.tail, raw.size() - coded);
  return {};
}

Status decode_inner(ConstBytes stored, MutableBytes raw, DecodeRoom& room) noexcept {
  const Result<Frame> frame = read_frame(LeafCodec::planar, stored, raw.size());
  if (!frame.ok()) return frame.status();
  const uint8_t shape = frame.value().shape;
  if (shape == kRepeatShape || (shape > kMaxLevels && shape != kSignsShape))
    return {Code::damaged, "planar leaf: rows within rows"};
  return decode_values(frame.value(), stored, raw, room);
}

Status decode_rows(ConstBytes stored, MutableBytes raw, DecodeRoom& room) noexcept {
  const size_t row_bytes = load_le<uint32_t>(stored.data() + kRowBytesAt);
  const size_t different = load_le<uint32_t>(stored.data() + kDifferentAt);
  if (row_bytes < kMinRowBytes || row_bytes > raw.size() || raw.size() % row_bytes != 0 || different == 0 ||
      different > raw.size() / row_bytes) {
    return {Code::damaged, "planar leaf: impossible rows"};
  }
  const size_t rows = raw.size() / row_bytes;
  const size_t inner_at = round_up(kFrameBytes + 2 * rows, 64);
  if (inner_at >= stored.size()) return {Code::damaged, "planar leaf: cut short"};
  const ConstBytes inner = stored.subspan(inner_at);
  const size_t different_bytes = different * row_bytes;
  const std::byte* held = inner.data();
  const auto inner_codec = load_le<uint32_t>(stored.data() + kInnerAt);
  if (inner_codec == static_cast<uint32_t>(LeafCodec::planar)) {
    const Status status = decode_inner(inner, {room.different, different_bytes}, room);
    if (!status.ok()) return status;
    held = room.different;
  } else if (inner_codec != 0 || inner.size() < different_bytes) {
    return {Code::damaged, "planar leaf: rows of an impossible kind"};
  }
  for (size_t r = 0; r < rows; ++r) {
    const size_t index = load_le<uint16_t>(stored.data() + kFrameBytes + 2 * r);
    if (index >= different) return {Code::damaged, "planar leaf: a row that it does not have"};
    std::memcpy(raw.data() + r * row_bytes, held + index * row_bytes, row_bytes);
  }
  return {};
}

}  // namespace

bool planar_fits(Element element) noexcept { return element_of(element).width != 0; }

Result<uint32_t> planar_encode(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                               Workspace& workspace) noexcept {
  if (repeats(raw)) return write_repeat(form, raw, raw_hash, out.data());
  if (!planar_fits(form.element)) return uint32_t{0};
  std::byte* const memory = workspace.take(sizeof(Room));
  if (memory == nullptr) return Status{Code::no_memory, "no memory to code a leaf"};
  // All members are plain numbers, set before they are read.
  Room& room = *new (memory) Room;
  if (find_equal_rows(form, raw, room.equal, room.different)) {
    const uint32_t bytes = encode_rows(form, mode, raw, raw_hash, out, room);
    if (bytes != 0) return bytes;
  }
  return encode_values(form, mode, raw, raw_hash, out, room);
}

Status planar_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept {
  if (frame.shape == kRepeatShape) return read_repeat(stored, raw);
  std::byte* const memory = workspace.take(sizeof(DecodeRoom));
  if (memory == nullptr) return {Code::no_memory, "no memory to decode a leaf"};
  DecodeRoom& room = *new (memory) DecodeRoom;
  return frame.shape == kRowsShape ? decode_rows(stored, raw, room) : decode_values(frame, stored, raw, room);
}

}  // namespace kvbm::codec

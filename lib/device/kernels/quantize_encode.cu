// kvbm_quantize: codes leaves of bf16, fp16 or fp32 in device memory as leaves of codec 3 without an entropy stage
// (fp8, int8, int6, int4). Header, scales and numbers are the bytes that quantize_encode() of codec/lossy/quantize.cc
// writes.
//
// A warp codes a leaf and reads it twice: for the largest magnitude of each unit, and for the numbers. If the leaf
// changes between, the only promise is that the coded leaf decodes to the bytes of its hash.
#include "device/kernels/quantize_map.cuh"

namespace kvbm::device::kernels {

// Limits of quantising: leaves with larger or smaller maxima, or with NaNs, are not quantised
// (codec/lossy/quantize_scales.h).
constexpr uint32_t kLeastMaximum = 77U << 23;       // 2^-50
constexpr uint32_t kMostMaximum = 177U << 23;       // 2^50
constexpr uint32_t kMostHalfMaximum = 142U << 23;   // 2^15, of fp16

// Number of the largest magnitude: a little less than the first that would be rounded to one too many.
__device__ __forceinline__ float full_of(uint32_t mode) {
  if (mode == kModeE4m3) return 448.0F;
  if (mode == kModeE5m2) return 57344.0F;
  return mode == kModeInt8 ? 127.49F : mode == kModeInt6 ? 31.49F : 7.49F;
}

struct QuantizeSource {
  PlainSide from;
  uint32_t element;
  uint32_t width;
};

// Returns the element's bits; `value` is an index into the leaf.
__device__ inline uint32_t bits_at(const QuantizeSource& source, uint32_t value) {
  const uint32_t offset = value * source.width;
  const uint64_t at = address_in(source.from.run, offset);
  if (source.from.width >= 4) return source.width == 4 ? get32(at) : get16(at);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < source.width; ++i) bits |= get8(address_in(source.from.run, offset + i)) << (8 * i);
  return bits;
}

__device__ __forceinline__ uint32_t magnitude_of(uint32_t element, uint32_t bits) {
  return __float_as_uint(float_of_element(element, bits)) & 0x7FFFFFFFU;
}

// Writes to maxima[unit] the bits of the unit's largest magnitude; infinities and NaNs stay above all others.
__device__ inline void channel_maxima(const QuantizeSource& source, const UnitMap& map, uint64_t maxima, uint32_t lane) {
  for (uint32_t head = 0; head < map.values; head += map.head) {
    const uint32_t end = map.values - head < map.head ? map.values : head + map.head;
    for (uint32_t place = lane; place < map.row && head + place < end; place += 32) {
      uint32_t most = 0;
      for (uint32_t value = head + place; value < end; value += map.row) {
        most = max(most, magnitude_of(source.element, bits_at(source, value)));
      }
      store4(maxima + 4 * (head / map.head * map.row + place), most);
    }
  }
}

__device__ inline void row_maxima(const QuantizeSource& source, const UnitMap& map, uint64_t maxima, uint32_t lane) {
  uint32_t unit = 0;
  for (uint32_t begin = 0; begin < map.values; begin += map.row, ++unit) {
    uint32_t most = 0;
    for (uint32_t place = lane; place < map.row && begin + place < map.values; place += 32) {
      most = max(most, magnitude_of(source.element, bits_at(source, begin + place)));
    }
    most = __reduce_max_sync(kAllLanes, most);
    if (lane == 0) store4(maxima + 4 * unit, most);
  }
}

// Finds the maxima; when it returns, lanes may read what others wrote.
__device__ __forceinline__ void find_maxima(const QuantizeSource& source, const UnitMap& map, uint64_t maxima,
                                            uint32_t lane) {
  if (map.by_row) {
    row_maxima(source, map, maxima, lane);
  } else {
    channel_maxima(source, map, maxima, lane);
  }
  __syncwarp();
}

__device__ inline bool maxima_in_range(const QuantizeSource& source, uint64_t maxima, uint32_t units, uint32_t lane) {
  const uint32_t most = source.element == kElementFp16 ? kMostHalfMaximum : kMostMaximum;
  bool good = true;
  for (uint32_t u = lane; u < units; u += 32) {
    const uint32_t maximum = get32(maxima + 4 * u);
    good = good && maximum <= most && (maximum == 0 || maximum >= kLeastMaximum);
  }
  return __all_sync(kAllLanes, good) != 0;
}

// Returns the mean of the squares of the maxima. Sums of floats depend on their order, and the choice must not, so all
// lanes add all of them in one order.
__device__ inline double weight_of(uint64_t maxima, uint32_t units, uint32_t lane) {
  double sum = 0;
  for (uint32_t begin = 0; begin < units; begin += 32) {
    const uint32_t mine = begin + lane < units ? get32(maxima + 4 * (begin + lane)) : 0;
    const auto m = static_cast<double>(__uint_as_float(mine));
    const double square = __dmul_rn(m, m);
    // Lanes without a unit add zero, which does not change the sum.
    for (int i = 0; i < 32; ++i) sum = __dadd_rn(sum, __shfl_sync(kAllLanes, square, i));
  }
  return sum / units;
}

// Returns worth() of codec/lossy/quantize.cc: a line between powers of two, in doubles.
__device__ inline double worth_of(const UnitMap& map) {
  const double bits = 16.0 / map.rows - 16.0 / map.row;
  const double exponent = __dadd_rn(__dmul_rn(2, bits), 8);
  const int whole = static_cast<int>(exponent);
  const auto power = static_cast<double>(__uint_as_float(static_cast<uint32_t>(whole - 8 + 127) << 23));
  return __dmul_rn((1 + exponent) - whole, power);
}

// Limit of cut_heads(), as in codec/lossy/quantize.cc: a scale of a channel serves at most kMostRows rows.
constexpr uint32_t kMostRows = 256;

__device__ inline void cut_heads(UnitMap& map) {
  if (map.by_row || map.rows <= kMostRows) return;
  uint32_t rows = 0;
  if (map.head == map.values) {
    const uint32_t parts = (map.rows + kMostRows - 1) / kMostRows;
    rows = round_up_to((map.rows + parts - 1) / parts, kValueGroup);
  } else {
    rows = kMostRows;
    while (rows > kMostRows / 2 && (map.rows % rows != 0 || rows * map.row % kValueGroup != 0)) --rows;
    if (rows == kMostRows / 2) return;
  }
  map.rows = rows;
  map.head = min(map.row * rows, map.values);
}

// Chooses scales of channels or of rows, with maxima in `scratch`; false: the leaf is not to be quantised.
__device__ inline bool choose_units(const QuantizeSource& source, UnitMap& map, uint64_t scratch, uint32_t lane,
                                    uint64_t& maxima) {
  const bool channels = !map.by_row && map.rows >= kScaleValues;
  const bool by_rows = map.by_row || (map.row >= kScaleValues && map.rows < kScaleFewRows);
  if (!channels && !by_rows) return false;
  maxima = scratch;
  if (channels) {
    if (units_of(map) > kScaleUnits) return false;
    find_maxima(source, map, maxima, lane);
    if (!maxima_in_range(source, maxima, units_of(map), lane)) return false;
    if (!by_rows) return true;
  }
  UnitMap rows = map;
  rows.by_row = true;
  if (units_of(rows) > kScaleUnits) return channels;
  const uint64_t of_rows = scratch + 4 * kScaleUnits;
  find_maxima(source, rows, of_rows, lane);
  if (!maxima_in_range(source, of_rows, units_of(rows), lane)) return false;
  if (channels) {
    const double weight = __dmul_rn(weight_of(maxima, units_of(map), lane), worth_of(map));
    if (weight <= weight_of(of_rows, units_of(rows), lane)) return true;
  }
  map = rows;
  maxima = of_rows;
  return true;
}

// Writes scales as bf16, rounded up, into the leaf, with zeros up to the numbers; their reciprocals replace the maxima.
__device__ inline void write_scales(const UnitMap& map, uint32_t mode, uint64_t maxima, uint64_t record, uint32_t numbers,
                                    uint32_t lane) {
  const uint32_t units = units_of(map);
  for (uint32_t u = lane; u < (numbers - kScalesAt) / 2; u += 32) {
    uint32_t scale = 0;
    if (u < units) {
      const uint32_t maximum = get32(maxima + 4 * u);
      const float exact = __fdiv_rn(__uint_as_float(maximum), full_of(mode));
      scale = (__float_as_uint(exact) + 0xFFFFU) >> 16;
      const float reciprocal = maximum == 0 ? 0.0F : __fdiv_rn(1.0F, __uint_as_float(scale << 16));
      store4(maxima + 4 * u, __float_as_uint(reciprocal));
    }
    put16(record + kScalesAt + 2 * u, scale);
  }
  __syncwarp();
}

// Returns the numbers of 4 values from `value` on, a byte each, and in `bits` what they decode to; zeros behind the
// last. Adds the loss to `sums`: sums of floats, which may differ from the CPU's in their last digits.
__device__ inline uint32_t quantize_four(const UnitMap& map, const CodedJob& job, uint64_t reciprocals, uint32_t value,
                                         const uint32_t (&from)[4], uint32_t (&bits)[4], CodedResult& sums) {
  uint32_t numbers = 0;
  UnitPlace place = place_of(map, value);
  float difference = 0;
  float squares = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    bits[i] = 0;
    if (value + i >= map.values) continue;
    const uint32_t unit = unit_of(map, place);
    const float scale = __uint_as_float(get16(job.leaf.record + kScalesAt + 2 * unit) << 16);
    const float x = float_of_element(job.element, from[i]);
    const uint32_t number = number_of(job.mode, __fmul_rn(x, __uint_as_float(get32(reciprocals + 4 * unit))));
    numbers |= number << (8 * i);
    bits[i] = element_of_float(job.element, __fmul_rn(value_of(job.mode, number), scale));
    const float off = float_of_element(job.element, bits[i]) - x;
    difference += off * off;
    squares += x * x;
    step(map, place);
  }
  sums.difference += static_cast<double>(difference);
  sums.value += static_cast<double>(squares);
  return numbers;
}

// Writes four numbers of `bits` bits each, lowest first.
__device__ inline void put_numbers(uint64_t numbers, uint32_t at, uint32_t bits, uint32_t four) {
  if (bits == 8) return store4(numbers + at, four);
  uint32_t packed = 0;
  for (uint32_t i = 0; i < 4; ++i) packed |= (four >> (8 * i) & ((1U << bits) - 1)) << (bits * i);
  const uint64_t first = numbers + at / 4 * bits / 2;
  for (uint32_t i = 0; i < bits / 2; ++i) store1(first + i, packed >> (8 * i) & 0xFF);
}

// Writes the numbers, and zeros up to the leaf's end, and hashes the bytes that decoding will give. Adds the loss of
// the lane's values to `sums`.
__device__ inline void write_numbers(const QuantizeSource& source, const UnitMap& map, const CodedJob& job,
                                     uint64_t reciprocals, uint32_t begin, uint32_t end, uint32_t lane,
                                     StripeSlot& slot, WarpHash& hash, CodedResult& sums) {
  const uint32_t bits = number_bits(job.mode);
  const uint64_t numbers = job.leaf.record + begin;
  uint32_t out[4];
  for (uint32_t offset = 16 * lane; offset - 16 * lane < source.from.bytes; offset += kWarpBytes) {
    const uint4 v = get_vector(source.from, offset);
    uint4 decoded = make_uint4(0, 0, 0, 0);
    const uint32_t value = offset / source.width;
    if (source.width == 4 && value < map.values) {
      const uint32_t from[4] = {v.x, v.y, v.z, v.w};
      put_numbers(numbers, value, bits, quantize_four(map, job, reciprocals, value, from, out, sums));
      decoded = make_uint4(out[0], out[1], out[2], out[3]);
    }
    if (source.width == 2 && value < map.values) {
      const uint32_t from[4] = {v.x & 0xFFFF, v.x >> 16, v.y & 0xFFFF, v.y >> 16};
      put_numbers(numbers, value, bits, quantize_four(map, job, reciprocals, value, from, out, sums));
      decoded.x = out[0] | out[1] << 16;
      decoded.y = out[2] | out[3] << 16;
    }
    if (source.width == 2 && value + 4 < map.values) {
      const uint32_t from[4] = {v.z & 0xFFFF, v.z >> 16, v.w & 0xFFFF, v.w >> 16};
      put_numbers(numbers, value + 4, bits, quantize_four(map, job, reciprocals, value + 4, from, out, sums));
      decoded.z = out[0] | out[1] << 16;
      decoded.w = out[2] | out[3] << 16;
    }
    hash.take(decoded, slot, lane);
  }
  const uint32_t written = begin + round_up_to(map.values, 4) / 4 * bits / 2;
  for (uint32_t at = written + lane; at < end; at += 32) store1(job.leaf.record + at, 0);
}

__device__ inline void write_header(const CodedJob& job, const UnitMap& map, uint32_t end, uint64_t raw_hash,
                                    uint32_t lane) {
  if (lane >= kHeaderBytes / 8) return;
  uint64_t word = 0;
  if (lane == 0) word = word_of(1 | kCodecQuantized << 8 | job.element << 16 | job.mode << 24, job.leaf.bytes);
  if (lane == 1) word = word_of(end, map.row);
  if (lane == 2) word = map.rows;
  if (lane == 3) word = raw_hash;
  if (lane == 4) word = map.by_row ? 1 : 0;
  put64(job.leaf.record + 8 * lane, word);
}

__device__ inline double sum_of_lanes(double v) {
#pragma unroll
  for (int flip = 1; flip < 32; flip *= 2) v += __shfl_xor_sync(kAllLanes, v, flip);
  return v;
}

__device__ inline CodedResult quantize_leaf(const CodedJob& job, uint64_t scratch, uint32_t lane, StripeSlot& slot) {
  CodedResult result = {0, kCodedNoGain, 0, 0, 0};
  const uint32_t bits = number_bits(job.mode);
  const QuantizeSource source = {plain_side(job.leaf), job.element, element_width(job.element)};
  if (bits == 0 || job.leaf.record % 8 != 0 || scratch == 0) {
    result.status = kCodedElsewhere;
    return result;
  }
  if (!is_float_element(job.element) || job.leaf.bytes % source.width != 0) return result;
  UnitMap map = map_of(job.element, job.leaf.bytes, job.row, job.rows);
  cut_heads(map);
  uint64_t maxima = 0;
  if (!choose_units(source, map, scratch, lane, maxima)) return result;
  const uint32_t begin = numbers_at(map);
  const uint32_t end = coded_end(map, bits);
  if (end >= job.leaf.bytes) return result;
  if (end > job.stored_bytes) {
    result.status = kCodedElsewhere;
    return result;
  }
  write_scales(map, job.mode, maxima, job.leaf.record, begin, lane);
  WarpHash hash;
  hash.start(job.leaf.bytes, lane);
  write_numbers(source, map, job, maxima, begin, end, lane, slot, hash, result);
  result.hash = hash.finish(job.leaf.bytes, slot, lane);
  result.status = kCodedOk;
  result.stored_bytes = end;
  result.difference = sum_of_lanes(result.difference);
  result.value = sum_of_lanes(result.value);
  write_header(job, map, end, result.hash, lane);
  return result;
}

}  // namespace kvbm::device::kernels

// `scratch`: kCodedScratch bytes for each warp of the launch.
extern "C" __global__ void __launch_bounds__(32 * kvbm::device::kCodedWarps)
    kvbm_quantize(const kvbm::device::CodedJob* jobs, uint32_t count, kvbm::device::CodedResult* results,
                  uint64_t scratch) {
  using namespace kvbm::device;
  using namespace kvbm::device::kernels;
  __shared__ StripeSlot slots[kCodedWarps];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * kCodedWarps + threadIdx.x / 32;
  const uint64_t own = scratch == 0 ? 0 : scratch + uint64_t{warp} * kCodedScratch;
  for (uint32_t i = warp; i < count; i += gridDim.x * kCodedWarps) {
    const CodedJob job = jobs[i];
    const CodedResult result = quantize_leaf(job, own, lane, slots[threadIdx.x / 32]);
    if (lane == 0) results[i] = result;
    __syncwarp();  // the next leaf reuses the scratch memory
  }
}

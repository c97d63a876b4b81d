// kvbm_dequantize: decodes leaves of codec 3 without an entropy stage (fp8, int8, int6, int4) into device memory, and
// hashes the plain bytes on the way. A warp a leaf. The reference is quantize_decode() of codec/lossy/quantize.cc.
#include "device/kernels/quantize_map.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kModeInt4Coded = 23;  // the last mode with an entropy stage, which the CPU decodes

// Returns numbers [at, at + 4) of a leaf, a byte each, the first lowest; `at` is a multiple of 4.
__device__ inline uint32_t four_numbers(uint64_t numbers, uint32_t at, uint32_t bits) {
  if (bits == 8) return get32(numbers + at);
  uint32_t packed = 0;
  const uint64_t first = numbers + at / 4 * bits / 2;  // four numbers are bits / 2 bytes
  for (uint32_t i = 0; i < bits / 2; ++i) packed |= get8(first + i) << (8 * i);
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t v = packed >> (bits * i) & ((1U << bits) - 1);
    if ((v >> (bits - 1)) != 0) v |= 0xFFU & ~((1U << bits) - 1);  // its sign, to all bits above
    out |= v << (8 * i);
  }
  return out;
}

// Returns whether a coder may have written every scale; all lanes get one answer.
__device__ inline bool scales_known(uint64_t scales, uint32_t units, uint32_t lane) {
  bool good = true;
  for (uint32_t u = lane; u < units; u += 32) {
    const uint32_t bits = get16(scales + 2 * u);
    good = good && (bits == 0 || (bits >= kLeastScaleBits && bits <= kMostScaleBits));
  }
  return __all_sync(kAllLanes, good) != 0;
}

__device__ inline uint32_t read_quantized(const CodedJob& job, CodedHeader& h, StripeSlot& slot, uint32_t lane,
                                          CodedFrame& frame, UnitMap& map) {
  const uint64_t at = job.leaf.record;
  if (at % 8 != 0) return kCodedElsewhere;
  if (!has_header(job.stored_bytes) || !is_as_stored(job, slot, lane)) return kCodedDamaged;
  copy_header(at, h, lane);
  const uint32_t status = check_frame(h, kCodecQuantized, job.stored_bytes, job.leaf.bytes, frame);
  if (status != kCodedOk) return status;
  const uint32_t bits = number_bits(frame.shape);
  if (bits == 0) return frame.shape > kModeInt4 && frame.shape <= kModeInt4Coded ? kCodedElsewhere : kCodedNewer;
  if (!is_float_element(frame.element) || job.leaf.bytes % element_width(frame.element) != 0 || frame.row == 0 ||
      frame.row > kScaleRow || frame.rows == 0) {
    return kCodedDamaged;
  }
  map = map_of(frame.element, job.leaf.bytes, frame.row, frame.rows);
  const uint32_t by_row = field8(h, kOwnAt);
  if (by_row > 1 || map.rows != frame.rows) return kCodedDamaged;
  map.by_row = by_row == 1;
  uint64_t rest = h.words[kOwnAt / 8] >> 8;
  for (uint32_t i = kOwnAt / 8 + 1; i < kHeaderBytes / 8; ++i) rest |= h.words[i];
  if (rest != 0) return kCodedDamaged;
  if (units_of(map) > kScaleUnits || coded_end(map, bits) != job.stored_bytes) return kCodedDamaged;
  return scales_known(at + kScalesAt, units_of(map), lane) ? kCodedOk : kCodedDamaged;
}

// Decodes the 4 values from `value` on: of 16 bits each, as two words; or of 32 bits, as four. Zeros behind the last.
__device__ inline void four_values(const UnitMap& map, const CodedFrame& frame, uint64_t scales, uint64_t numbers,
                                   uint32_t value, uint32_t (&bits)[4]) {
  const uint32_t four = four_numbers(numbers, value, number_bits(frame.shape));
  UnitPlace place = place_of(map, value);
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    bits[i] = 0;
    if (value + i >= map.values) continue;
    const float scale = __uint_as_float(get16(scales + 2 * unit_of(map, place)) << 16);
    const float plain = __fmul_rn(value_of(frame.shape, four >> (8 * i) & 0xFF), scale);
    bits[i] = element_of_float(frame.element, plain);
    step(map, place);
  }
}

// Returns plain bytes [offset, offset + 16).
__device__ inline uint4 plain_vector(const UnitMap& map, const CodedFrame& frame, uint64_t scales, uint64_t numbers,
                                     uint32_t offset) {
  const uint32_t width = element_width(frame.element);
  const uint32_t value = offset / width;
  uint4 vector = make_uint4(0, 0, 0, 0);
  if (value >= map.values) return vector;
  uint32_t bits[4];
  four_values(map, frame, scales, numbers, value, bits);
  if (width == 4) return make_uint4(bits[0], bits[1], bits[2], bits[3]);
  vector.x = bits[0] | bits[1] << 16;
  vector.y = bits[2] | bits[3] << 16;
  if (value + 4 >= map.values) return vector;
  four_values(map, frame, scales, numbers, value + 4, bits);
  vector.z = bits[0] | bits[1] << 16;
  vector.w = bits[2] | bits[3] << 16;
  return vector;
}

}  // namespace kvbm::device::kernels

extern "C" __global__ void __launch_bounds__(32 * kvbm::device::kCodedWarps)
    kvbm_dequantize(const kvbm::device::CodedJob* jobs, uint32_t count, kvbm::device::CodedResult* results) {
  using namespace kvbm::device;
  using namespace kvbm::device::kernels;
  __shared__ CodedHeader headers[kCodedWarps];
  __shared__ StripeSlot slots[kCodedWarps];
  const uint32_t lane = threadIdx.x % 32;
  StripeSlot& slot = slots[threadIdx.x / 32];
  for (uint32_t i = blockIdx.x * kCodedWarps + threadIdx.x / 32; i < count; i += gridDim.x * kCodedWarps) {
    const CodedJob job = jobs[i];
    const PlainSide to = plain_side(job.leaf);
    CodedFrame frame;
    UnitMap map;
    WarpHash hash;
    hash.start(to.bytes, lane);
    const uint32_t status = read_quantized(job, headers[threadIdx.x / 32], slot, lane, frame, map);
    if (status == kCodedOk) {
      const uint64_t numbers = job.leaf.record + numbers_at(map);
      for (uint32_t offset = 16 * lane; offset - 16 * lane < to.bytes; offset += kWarpBytes) {
        const uint4 vector = plain_vector(map, frame, job.leaf.record + kScalesAt, numbers, offset);
        put_vector(to, offset, vector);
        hash.take(vector, slot, lane);
      }
    }
    const uint64_t found = hash.finish(to.bytes, slot, lane);
    end_leaf(job, to, status, found, frame.raw_hash, lane, results + i);
  }
}

// Planar leaves with coded signs (shape 17): turns the decoded blocks in working memory into elements again. Reference:
// codec/lossless/planar_signs.inc. Format: codec/README.md.
//
// A sign equals that of the row before, or not: a chain over the rows, and none over the channels. So a lane takes a
// column of words down the rows, and the words of neighbouring lanes are contiguous.
#pragma once

#include "device/kernels/coded_plain.cuh"

namespace kvbm::device::kernels {

// Masks and shifts of codec/lossless/planar_signs.inc; `ones` has a one in each element of a word.
struct SignForm {
  uint32_t ones, sign, exponent, low, down, up;
};

__device__ inline SignForm sign_form(uint32_t element) {
  constexpr uint32_t kHalves = 0x00010001;
  constexpr uint32_t kBytes = 0x01010101;
  if (element == 2) return {kHalves, kHalves * 0x8000, kHalves * 0x7C00, kHalves * 0x03FE, 6, 15};
  if (element == 4) return {kBytes, kBytes * 0x80, kBytes * 0x78, kBytes * 0x06, 5, 7};
  return {kBytes, kBytes * 0x80, kBytes * 0x7C, kBytes * 0x02, 6, 7};
}

__device__ __forceinline__ uint32_t unfold_masked(const SignForm& form, uint32_t w) {
  return (w & form.sign >> form.down) << form.down | (w & form.exponent) | (w & form.low >> 1) << 1 |
         (w >> form.up & form.ones);
}

__device__ __forceinline__ uint32_t unfold_bf16(uint32_t w) {
  const uint32_t exponent = w >> 1 & 0x3F803F80U;
  const uint32_t some = (exponent + 0x3F803F80U) & 0x40004000U;  // set if the exponent is not zero
  return (w & 0x00800080U) << 8 | (exponent + (some >> 1)) | (w & 0x007F007FU);
}

template <uint32_t kBytes>
__device__ __forceinline__ uint32_t get_part(uint64_t address) {
  return kBytes == 4 ? get32(address) : kBytes == 2 ? get16(address) : get8(address);
}
template <uint32_t kBytes>
__device__ __forceinline__ void put_part(uint64_t address, uint32_t v) {
  if (kBytes == 4) put32(address, v);
  if (kBytes == 2) put16(address, v);
  if (kBytes == 1) put8(address, v);
}

// Unfolds columns of kBytes, which are whole elements and divide a row.
template <uint32_t kBytes>
__device__ inline void unfold_columns(uint64_t at, uint32_t bytes, uint32_t row_bytes, uint32_t element, uint32_t lane) {
  const SignForm form = sign_form(element);
  const uint32_t sign = element == 1 ? 0x80008000U : form.sign;
  for (uint32_t column = kBytes * lane; column < row_bytes; column += kBytes * 32) {
    uint32_t before = 0;
    for (uint32_t offset = column; offset < bytes; offset += row_bytes) {
      const uint32_t w = get_part<kBytes>(at + offset);
      const uint32_t v = element == 1 ? unfold_bf16(w) : unfold_masked(form, w);
      before = v ^ (before & sign);
      put_part<kBytes>(at + offset, before);
    }
  }
}

// Unfolds `bytes` of whole blocks; a row is not longer. All lanes call it, and all may read when it returns.
__device__ inline void unfold_signs(uint64_t at, uint32_t bytes, uint32_t row_bytes, uint32_t element, uint32_t lane) {
  __syncwarp();
  if (row_bytes % 4 == 0) {
    unfold_columns<4>(at, bytes, row_bytes, element, lane);
  } else if (row_bytes % 2 == 0) {
    unfold_columns<2>(at, bytes, row_bytes, element, lane);
  } else {
    unfold_columns<1>(at, bytes, row_bytes, element, lane);
  }
  __syncwarp();
}

}  // namespace kvbm::device::kernels

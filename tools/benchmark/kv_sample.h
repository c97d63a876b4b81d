// KV values for `kvbm bench codec`: from an .npy file, or made up with similar properties.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/memory/memory.h"
#include "base/status.h"
#include "layout/element.h"

namespace kvbm::benchmark {

// Layers of K and V, canonical: [layer][K, V][head][token][element of a head].
struct KvSample {
  layout::Element element = layout::Element::bf16;
  uint32_t layers = 0, heads = 0, tokens = 0, head_dim = 0;
  std::unique_ptr<Arena> values;
  [[nodiscard]] uint64_t plane_bytes() const {  // K or V of a layer
    return uint64_t{heads} * tokens * head_dim * layout::element_bytes(element);
  }
  [[nodiscard]] uint64_t bytes() const { return 2 * layers * plane_bytes(); }
  [[nodiscard]] ConstBytes all() const { return {values->data(), bytes()}; }
};

// Loads an .npy of shape (layers, 2, tokens, heads * head_dim) or (layers, 2, heads, tokens, head_dim), bf16 (or
// uint16) or fp16.
Result<KvSample> load_kv(const std::string& path, uint32_t head_dim, bool huge_pages);

// Makes bf16 values, 30 layers of 3 heads of 64, 512 tokens. Values are normal with a scale of each channel (2^n, n
// normal with deviation 0.7), and an offset of each channel of K, three times its scale. Mantissas are noise, like
// real ones. Similar neighbouring tokens and repeated rows are not imitated, so that `max` and `delta` gain less than
// on real caches. The bytes are the same on every machine.
Result<KvSample> make_kv(bool huge_pages);

// Returns the sample in blocks of `tokens` tokens: [layer][K, V][block][head][token of the block][element].
Result<KvSample> in_blocks(const KvSample& sample, uint32_t tokens, bool huge_pages);

// Converts the values to another type. fp16 is bf16 with random bits below its mantissa, which bf16 rounded away;
// without them these bits would be zeros that no real fp16 has. fp8 e4m3 is rounded to nearest, without a scale.
Result<KvSample> cast_kv(const KvSample& sample, layout::Element element, bool huge_pages);

// Returns a value of bf16 or fp16.
[[nodiscard]] float value_of(layout::Element element, const std::byte* at) noexcept;

}  // namespace kvbm::benchmark

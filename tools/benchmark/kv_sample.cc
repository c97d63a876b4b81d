#include "benchmark/kv_sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/crypto/random.h"
#include "tensor/compress.h"

namespace kvbm::benchmark {

namespace {

using layout::Element;

Result<KvSample> empty(Element element, uint32_t layers, uint32_t heads, uint32_t tokens, uint32_t head_dim,
                       bool huge_pages) {
  KvSample sample;
  sample.element = element;
  sample.layers = layers;
  sample.heads = heads;
  sample.tokens = tokens;
  sample.head_dim = head_dim;
  ArenaOptions options;
  options.bytes = sample.bytes();
  options.huge_pages = huge_pages;
  options.touch_threads = 1;
  auto arena = Arena::map(options);
  if (!arena.ok()) return arena.status();
  sample.values = std::move(arena).value();
  return sample;
}

// Rounds to nearest, ties to even, to a float of so many exponent and mantissa bits. Too large values become the
// largest.
uint32_t round_to(float value, int exponent_bits, int mantissa_bits, uint32_t largest) {
  const uint32_t sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const float size = std::fabs(value);
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), 1 - bias);
  const float steps = std::rint(std::ldexp(size, mantissa_bits - exponent));
  // A mantissa that rounds up to the next power carries into the exponent by itself. Below the normal numbers, the
  // exponent's field is zero.
  const auto code = static_cast<uint32_t>(static_cast<int>(steps) + ((exponent + bias - 1) << mantissa_bits));
  return sign | std::min(code, largest);
}

float half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                   : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

double normal(Random& random) {
  // Irwin-Hall: the sum of twelve uniform numbers. It has no tails beyond 6, which caches do not need.
  double sum = -6;
  for (int i = 0; i < 6; ++i) {
    const uint64_t word = random.next();
    sum += static_cast<double>(word >> 32) / 4294967296.0 + static_cast<double>(word & 0xFFFFFFFF) / 4294967296.0;
  }
  return sum;
}

void fill_head(Random& random, bool is_k, uint32_t tokens, uint32_t head_dim, std::byte* out) {
  std::vector<double> scale(head_dim), offset(head_dim);
  for (uint32_t c = 0; c < head_dim; ++c) {
    // 2^(0.7 n) as a product of halves would not be smooth. ldexp of a mantissa has the same result on every machine.
    const double n = 0.7 * normal(random);
    const double whole = std::floor(n);
    scale[c] = std::ldexp(1.0 + (n - whole), static_cast<int>(whole));
    offset[c] = is_k ? 3 * scale[c] * normal(random) : 0;
  }
  for (uint64_t i = 0; i < uint64_t{tokens} * head_dim; ++i) {
    const uint64_t c = i % head_dim;
    const auto value = static_cast<float>(offset[c] + scale[c] * normal(random));
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
    store_le(out + 2 * i, static_cast<uint16_t>(rounded >> 16));
  }
}

// Returns an error that tells the caller to correct the input.
Status not_kv(const std::string& path, const Status& why) {
  return Status(Code::invalid_argument, "--input cannot be read", path + ": " + why.message());
}

}  // namespace

float value_of(Element element, const std::byte* at) noexcept {
  const auto bits = load_le<uint16_t>(at);
  return element == Element::bf16 ? std::bit_cast<float>(uint32_t{bits} << 16) : half_value(bits);
}

Result<KvSample> load_kv(const std::string& path, uint32_t head_dim, bool huge_pages) {
  const auto input = tensor::Input::open(path);
  if (!input.ok()) return not_kv(path, input.status());
  const auto file = tensor::describe(input.value(), {tensor::Kind::npy, std::nullopt, {}});
  if (!file.ok()) return not_kv(path, file.status());
  if (file.value().tensors.empty()) return not_kv(path, Status(Code::invalid_argument, "the .npy has no values"));
  const tensor::Tensor& tensor = file.value().tensors.front();
  const auto& shape = tensor.shape;
  const bool canonical = shape.size() == 5;
  if ((tensor.element != Element::bf16 && tensor.element != Element::fp16) || (shape.size() != 4 && !canonical) ||
      shape[1] != 2 || (canonical ? shape[4] != head_dim : shape[3] % head_dim != 0) ||
      *std::max_element(shape.begin(), shape.end()) > UINT32_MAX) {
    return Status(Code::invalid_argument, "not KV as this benchmark reads it",
                  path + " is " + layout::element_name(tensor.element) + " " + tensor::shape_text(shape) +
                      "; wanted is bf16 or fp16 of (layers, 2, tokens, heads * " + std::to_string(head_dim) +
                      ") or (layers, 2, heads, tokens, " + std::to_string(head_dim) + "); --head-dim says another");
  }
  const auto layers = static_cast<uint32_t>(shape[0]);
  const auto heads = static_cast<uint32_t>(canonical ? shape[2] : shape[3] / head_dim);
  const auto tokens = static_cast<uint32_t>(canonical ? shape[3] : shape[2]);
  auto sample = empty(tensor.element, layers, heads, tokens, head_dim, huge_pages);
  if (!sample.ok()) return sample;
  std::vector<std::byte> plane(sample.value().plane_bytes());
  const uint64_t row = uint64_t{head_dim} * 2;
  for (uint64_t p = 0; p < 2ULL * layers; ++p) {
    Status read = input.value().read(tensor.offset + p * plane.size(), plane);
    if (!read.ok()) return read;
    std::byte* out = sample.value().values->data() + p * plane.size();
    if (canonical) std::memcpy(out, plane.data(), plane.size());
    for (uint64_t i = 0; !canonical && i < uint64_t{heads} * tokens; ++i) {
      std::memcpy(out + i * row, plane.data() + (i % tokens * heads + i / tokens) * row, row);
    }
  }
  return sample;
}

Result<KvSample> make_kv(bool huge_pages) {
  auto sample = empty(Element::bf16, 30, 3, 512, 64, huge_pages);
  if (!sample.ok()) return sample;
  SeededRandom random(1);
  std::byte* out = sample.value().values->data();
  for (uint32_t head = 0; head < 30 * 2 * 3; ++head, out += 512 * 64 * 2)
    fill_head(random, head / 3 % 2 == 0, 512, 64, out);
  return sample;
}

Result<KvSample> in_blocks(const KvSample& sample, uint32_t tokens, bool huge_pages) {
  auto made =
      empty(sample.element, sample.layers, sample.heads, sample.tokens / tokens * tokens, sample.head_dim, huge_pages);
  if (!made.ok()) return made;
  const uint64_t head = uint64_t{sample.tokens} * sample.head_dim * layout::element_bytes(sample.element);
  const uint64_t part = head / sample.tokens * tokens;
  std::byte* out = made.value().values->data();
  for (uint64_t p = 0; p < 2ULL * sample.layers; ++p) {
    for (uint64_t block = 0; block < sample.tokens / tokens; ++block) {
      for (uint64_t h = 0; h < sample.heads; ++h, out += part) {
        std::memcpy(out, sample.values->data() + p * sample.plane_bytes() + h * head + block * part, part);
      }
    }
  }
  return made;
}

Result<KvSample> cast_kv(const KvSample& sample, Element element, bool huge_pages) {
  auto made = empty(element, sample.layers, sample.heads, sample.tokens, sample.head_dim, huge_pages);
  if (!made.ok()) return made;
  SeededRandom random(2);
  const uint64_t n = sample.bytes() / 2;
  std::byte* out = made.value().values->data();
  for (uint64_t i = 0; i < n; ++i) {
    float value = value_of(sample.element, sample.values->data() + 2 * i);
    if (element == Element::fp8_e4m3) {
      store_le(out + i, static_cast<uint8_t>(round_to(value, 4, 3, 0x7E)));
      continue;
    }
    const auto below = static_cast<uint32_t>(random.next() & 0xFFFF);
    if (sample.element == Element::bf16) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) | below);
    store_le(out + 2 * i, static_cast<uint16_t>(round_to(value, 5, 10, 0x7BFF)));
  }
  return made;
}

}  // namespace kvbm::benchmark

#include "codec/lossy/quantize_scales.h"

#include <atomic>
#include <string_view>

#include "codec/lossy/quantize.h"

namespace kvbm::codec {
namespace {

std::atomic<const QuantizeKernel*> g_kernel{nullptr};

}  // namespace

const QuantizeKernel& quantize_kernel() noexcept {
  const QuantizeKernel* k = g_kernel.load(std::memory_order_relaxed);
  if (k == nullptr) {
    k = avx512_quantize_kernel();
    if (k == nullptr) k = &portable_quantize_kernel();
    g_kernel.store(k, std::memory_order_relaxed);
  }
  return *k;
}

const SymbolKernel& symbol_kernel() noexcept {
  const SymbolKernel* fast = &quantize_kernel() == &portable_quantize_kernel() ? nullptr : avx512_symbol_kernel();
  return fast != nullptr ? *fast : portable_symbol_kernel();
}

ScaleMap map_of(const LeafForm& form, size_t raw_bytes) noexcept {
  ScaleMap map;
  map.element = form.element;
  map.values = static_cast<uint32_t>(raw_bytes / element_bytes(form.element));
  const bool known = form.row != 0 && form.row <= kMaxScaleRow;
  map.row = known ? form.row : kQuantizeGroup;
  map.by_row = !known;
  map.rows = std::max(form.rows != 0 ? std::min(form.rows, map.values / map.row) : map.values / map.row, 1U);
  return map;
}

void find_maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  if (!quantize_kernel().maxima(map, raw, maxima)) portable_quantize_kernel().maxima(map, raw, maxima);
}

bool in_range(const ScaleMap& map, const uint32_t* maxima, float most_half) noexcept {
  // Maxima have no sign, so they can be compared as vectors of signed numbers.
  const auto most = std::bit_cast<int32_t>(map.element == Element::fp16 ? most_half : kMost);
  const auto least = std::bit_cast<int32_t>(kLeast);
  const uint32_t units = map.units();
  int32_t bad = 0;
  for (uint32_t u = 0; u < units; ++u) {
    const auto m = static_cast<int32_t>(maxima[u]);
    bad |= (m > most ? -1 : 0) | ((m < least ? -1 : 0) & (m != 0 ? -1 : 0));
  }
  return bad == 0;
}

bool read_scales(uint32_t units, const std::byte* stored, float* scale) noexcept {
  bool good = true;
  for (uint32_t u = 0; u < units; ++u) {
    const uint32_t bits = load_le<uint16_t>(stored + 2 * size_t{u});
    good &= bits == 0 || (bits >= kLeastScale && bits <= kMostScale);
    scale[u] = std::bit_cast<float>(bits << 16);
  }
  return good;
}

bool force_quantize_kernel(const char* name) noexcept {
  const QuantizeKernel* fast = avx512_quantize_kernel();
  if (name != nullptr && std::string_view(name) == "avx512" && fast == nullptr) return false;
  const bool portable = name != nullptr && std::string_view(name) != "avx512";
  g_kernel.store(portable ? &portable_quantize_kernel() : fast, std::memory_order_relaxed);
  return true;
}

}  // namespace kvbm::codec

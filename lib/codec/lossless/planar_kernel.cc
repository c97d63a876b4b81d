#include "codec/lossless/planar_kernel.h"

#include <atomic>
#include <chrono>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvbm::codec {
namespace {

std::atomic<const PlanarKernel*> g_kernel{nullptr};

#if defined(__x86_64__)
constexpr int kSteps = 2048;
// AMD before Zen 3 has pdep in microcode: 18 cycles and more, for each set bit; others take 3, as for a product.
constexpr int kSlowerBy = 4;

__attribute__((target("bmi2"), noinline)) uint64_t chain_of_deposits(uint64_t v) noexcept {
  for (int i = 0; i < kSteps; ++i) v = _pdep_u64(v, 0xFFFFFFFFFFFFFFF7ULL) | 1;
  return v;
}

__attribute__((noinline)) uint64_t chain_of_products(uint64_t v) noexcept {
  for (int i = 0; i < kSteps; ++i) v = v * 0xD1342543DE82EF95ULL | 1;
  return v;
}

template <class F>
auto least_time(F f, uint64_t& seed) noexcept {
  auto least = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    seed = f(seed);
    least = std::min(least, std::chrono::steady_clock::now() - begin);
  }
  return least;
}

bool deposits_are_fast() noexcept {
  uint64_t seed = 0x9E3779B97F4A7C15ULL;
  const auto products = least_time(chain_of_products, seed);
  const auto deposits = least_time(chain_of_deposits, seed);
  return seed != 0 && deposits <= products * kSlowerBy;
}
#else
bool deposits_are_fast() noexcept { return false; }
#endif

// Every processor with VBMI2 has fast pdep; for others the instruction set does not tell.
const PlanarKernel* best_kernel() noexcept {
  if (const PlanarKernel* kernel = planar_avx512()) return kernel;
  const PlanarKernel* kernel = planar_bmi2();
  return kernel != nullptr && deposits_are_fast() ? kernel : planar_portable();
}

}  // namespace

const PlanarKernel& planar_kernel() noexcept {
  const PlanarKernel* chosen = g_kernel.load(std::memory_order_relaxed);
  if (chosen == nullptr) {
    chosen = best_kernel();
    g_kernel.store(chosen, std::memory_order_relaxed);
  }
  return *chosen;
}

bool force_planar_kernel(const char* name) noexcept {
  if (name == nullptr) {
    g_kernel.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  for (const PlanarKernel* kernel : {planar_portable(), planar_bmi2(), planar_avx512()}) {
    if (kernel == nullptr || std::string_view(kernel->name) != name) continue;
    g_kernel.store(kernel, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace kvbm::codec

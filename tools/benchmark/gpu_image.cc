#include "benchmark/gpu_image.h"

#ifdef KVBM_BENCH_FATBIN
#include KVBM_BENCH_FATBIN_KEY
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    "kvbm_bench_image:\n"
    ".incbin \"" KVBM_BENCH_FATBIN
    "\"\n"
    "kvbm_bench_image_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const std::byte kvbm_bench_image[];
extern "C" __attribute__((visibility("hidden"))) const std::byte kvbm_bench_image_end[];
#endif

namespace kvbm::benchmark {

ConstBytes gpu_image() noexcept {
#ifdef KVBM_BENCH_FATBIN
  return {kvbm_bench_image, static_cast<size_t>(kvbm_bench_image_end - kvbm_bench_image)};
#else
  return {};
#endif
}

}  // namespace kvbm::benchmark

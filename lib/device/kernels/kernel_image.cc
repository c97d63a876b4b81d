#include "device/kernels/kernel_image.h"

// Bytes of the library as the compiler of kernels wrote them. Aligned to 64, because fatbins are read as words, and by
// vectors.
#ifdef KVBM_CUDA_FATBIN
#include KVBM_CUDA_FATBIN_KEY
__asm__(
    ".pushsection .rodata.kvbm_kernels,\"a\",@progbits\n"
    ".balign 64\n"
    ".hidden kvbm_kernels_begin\n"
    ".globl kvbm_kernels_begin\n"
    "kvbm_kernels_begin:\n"
    ".incbin \"" KVBM_CUDA_FATBIN
    "\"\n"
    ".hidden kvbm_kernels_end\n"
    ".globl kvbm_kernels_end\n"
    "kvbm_kernels_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const std::byte kvbm_kernels_begin[];
extern "C" const std::byte kvbm_kernels_end[];
#endif

namespace kvbm::device {

namespace {

// A fatbin, as far as messages need it. NVIDIA does not document the form; it has not changed since CUDA 7.
constexpr uint32_t kMagic = 0xBA55ED50;
constexpr size_t kHeaderBytes = 16;  // magic, version, its own size (2), the size of all entries (8)
constexpr size_t kEntryBytes = 32;   // kind (2), 2, its own size (4), the size of its code (8), 12, architecture (4)
constexpr uint16_t kPtx = 1, kElf = 2;

}  // namespace

ConstBytes embedded_kernels() noexcept {
#ifdef KVBM_CUDA_FATBIN
  return {kvbm_kernels_begin, static_cast<size_t>(kvbm_kernels_end - kvbm_kernels_begin)};
#else
  return {};
#endif
}

const char* embedded_toolkit() noexcept {
#ifdef KVBM_CUDA_FATBIN
  return KVBM_CUDA_TOOLKIT;
#else
  return "";
#endif
}

std::string architectures_of(ConstBytes fatbin) {
  if (fatbin.size() < kHeaderBytes || load_le<uint32_t>(fatbin.data()) != kMagic) return {};
  const size_t header = load_le<uint16_t>(fatbin.data() + 6);
  const uint64_t body = load_le<uint64_t>(fatbin.data() + 8);
  if (header > fatbin.size() || body > fatbin.size() - header) return {};
  std::string machine;
  std::string ptx;
  for (ConstBytes rest = fatbin.subspan(header, body); rest.size() >= kEntryBytes;) {
    const auto kind = load_le<uint16_t>(rest.data());
    const uint64_t own = load_le<uint32_t>(rest.data() + 4);
    const uint64_t code = load_le<uint64_t>(rest.data() + 8);
    const std::string architecture = std::to_string(load_le<uint32_t>(rest.data() + 28));
    if (own < kEntryBytes || own > rest.size() || code > rest.size() - own) return {};
    if (kind == kElf) machine += (machine.empty() ? "sm_" : ", sm_") + architecture;
    if (kind == kPtx) ptx += (ptx.empty() ? "compute_" : ", compute_") + architecture;
    rest = rest.subspan(own + code);
  }
  if (ptx.empty()) return machine;
  return machine + (machine.empty() ? "" : " and ") + "PTX for " + ptx;
}

const void* kernel_image(const Driver& driver) noexcept {
  if (driver.own_kernels != nullptr) return driver.own_kernels;
  const ConstBytes embedded = embedded_kernels();
  return embedded.empty() ? nullptr : embedded.data();
}

}  // namespace kvbm::device

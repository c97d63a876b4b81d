// Reads the contents of a fatbin without CUDA tools, for tests of the embedded one.
//
// NVIDIA publishes no specification; this is what nvcc 13.0 writes, plain or compressed by zstd, and anything else is
// refused: a test that cannot read an image fails.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace kvbm::test {

struct FatbinEntry {
  enum class Kind { ptx, machine_code } kind = Kind::ptx;
  uint32_t architecture = 0;         // 80, 120
  std::vector<std::string> kernels;  // entry points, sorted
  // For machine code: by kernel, the number of instructions with a 32-bit constant equal to the argument `immediate` of
  // read_fatbin().
  std::map<std::string, size_t> immediates;
};

struct Fatbin {
  std::vector<FatbinEntry> entries;
  std::string refused;  // why it was not read to its end; empty: it was
};

Fatbin read_fatbin(ConstBytes image, uint32_t immediate = 0);

}  // namespace kvbm::test

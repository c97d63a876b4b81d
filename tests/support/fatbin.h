// What is in a fatbin, read without any tool of CUDA's: for tests of what the library embeds.
//
// NVIDIA publishes no specification; this is what nvcc 13.0 writes, plain or compressed by zstd, and anything else is
// refused: a test that cannot read an image fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace kvbm::test {

struct FatbinEntry {
  enum class Kind { ptx, machine_code } kind = Kind::ptx;
  uint32_t architecture = 0;         // 80, 120
  std::vector<std::string> kernels;  // entry points, sorted
};

struct Fatbin {
  std::vector<FatbinEntry> entries;
  std::string refused;  // why it was not read to its end; empty: it was
};

Fatbin read_fatbin(ConstBytes image);

}  // namespace kvbm::test

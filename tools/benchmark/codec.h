// `kvbm bench codec`: every codec on leaves of KV as records have them, next to memcpy of the same leaves; sealing next
// to OpenSSL's own AES-256-GCM.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct CodecOptions {
  std::vector<std::string> inputs;  // .npy; empty: made up values
  uint32_t head_dim = 64;
  int rounds = 15;
  bool quiet = false;
  bool huge_pages = false;  // buffers as the host tier has them; memcpy gains more by it than codecs do
};

// Leaves in canonical order, one after the other over the whole input, one thread; medians. A GB/s is of plain values.
// Every lossless row is compared with its input: internal if it does not come back.
Result<std::vector<Row>> bench_codec(const CodecOptions& options);

// Sealing and opening 64 KiB leaves of those bytes.
Result<std::vector<Row>> bench_seal(const std::byte* bytes, uint64_t n, int rounds);

}  // namespace kvbm::benchmark

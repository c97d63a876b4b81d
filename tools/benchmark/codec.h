// `kvbm bench codec`: measures every codec on leaves of KV as records have them, next to memcpy of the same leaves,
// and sealing next to OpenSSL's own AES-256-GCM.
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
  bool huge_pages = false;  // buffers in huge pages as in the host tier; memcpy gains more by them than codecs do
};

// Codes leaves in canonical order, one after the other over the whole input, on one thread; medians. A GB/s is of
// plain values. Every lossless row is compared with its input: internal if they differ.
Result<std::vector<Row>> bench_codec(const CodecOptions& options);

// Measures sealing and opening 64 KiB leaves of these bytes.
Result<std::vector<Row>> bench_seal(const std::byte* bytes, uint64_t n, int rounds);

}  // namespace kvbm::benchmark

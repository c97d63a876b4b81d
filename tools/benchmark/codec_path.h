// `kvbm bench codec_path`: stores blocks on a disk tier and loads them with coding off, auto and default, in turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct CodecPathOptions {
  std::string dir = ".";
  std::string input;  // KV as `kvbm bench codec` reads it; empty: made up
  uint32_t head_dim = 64;
  int rounds = 5;
  bool quiet = false;
};

// Needs 2 GiB in `dir` while it runs.
Result<std::vector<Row>> bench_codec_path(const CodecPathOptions& options);

}  // namespace kvbm::benchmark

// Measures blocks loaded from another node and sessions with one, coded where that pays, against the plain blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeCodecOptions {
  int rounds = 9;
  std::string input;  // KV as `kvbm bench codec` reads it, bf16; empty: made up
  uint32_t head_dim = 64;
  bool quiet = false;
};

// Uses two pairs of nodes, node.codec off and auto. Their readers load the same 32 MiB of bf16 numbers in turns over
// TCP.
//
// node.tcp.codec.auto is as fast as loopback. .auto_4gbit and .auto_1gbit go through a link of that speed in the
// bench's own network namespace, made with tc. They are left out, with a line on stderr, if that is not allowed.
//
// node.tcp.session_codec.*: measures sessions, which bring a request of 32 MiB from prefill to decode, in the same
// way. `.off`: two pairs without coding. Received bytes are compared with sent ones each time. The limit is the pair
// without coding.
Result<std::vector<Row>> bench_node_codec(const NodeCodecOptions& options);

}  // namespace kvbm::benchmark

// Blocks loaded from another node and sessions with one, coded where that pays, against the same plain.
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

// Two pairs of nodes, node.codec off and auto, whose readers load the same 32 MiB of bf16 numbers in turns over TCP:
// node.tcp.codec.auto as fast as loopback is, .auto_4gbit and .auto_1gbit through a link of that speed, in a network
// namespace of the bench's own (tc; left out, with a line on stderr, where that is not allowed).
// node.tcp.session_codec.*: the same of sessions, which bring a request of 32 MiB from prefill to decode. `.off`: two
// pairs without coding. What came is compared with what was sent, each time. The limit is the pair without coding.
Result<std::vector<Row>> bench_node_codec(const NodeCodecOptions& options);

}  // namespace kvbm::benchmark

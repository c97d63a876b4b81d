// Blocks loaded from another node over loopback TCP, through the public interface: what an engine sees.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeTcpOptions {
  int rounds = 9;
  bool quiet = false;
};

// A child process is a node with 64 MiB of blocks of each size; this process, a node too, loads them into an attached
// cache again and again without keeping them, each leaf verified on the way. node.tcp.<size>,
// node.tcp_contended.1MiB (other processes keep every processor busy) and node.tcp_4KiB.p50, .p99 are set against
// blocking sockets between two processes that move the same sizes in the same run, unverified.
// node.idle_cpu_percent is what this process uses while it is connected and nothing happens.
Result<std::vector<Row>> bench_node_tcp(const NodeTcpOptions& options);

}  // namespace kvbm::benchmark

// Measures blocks loaded from another node over loopback TCP, through the public interface, as an engine sees them.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeTcpOptions {
  int rounds = 9;
  bool quiet = false;
};

// A child process is a node with 64 MiB of blocks of each size. This process, a node too, loads them into an attached
// cache again and again without caching them, each leaf verified in transit. node.tcp.<size>, node.tcp_contended.1MiB
// (other processes keep every processor busy) and node.tcp_4KiB.p50, .p99 are set against blocking sockets between
// two processes that move the same sizes in the same run, unverified. node.idle_cpu_percent is the processor time of
// this process while it is connected and nothing happens.
Result<std::vector<Row>> bench_node_tcp(const NodeTcpOptions& options);

}  // namespace kvbm::benchmark

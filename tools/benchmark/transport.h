// `kvbm bench transport`: measures the built-in TCP transport on loopback against plain blocking sockets.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct TransportOptions {
  int rounds = 15;
  bool quiet = false;
};

// Two processes each: this one asks and receives, its child sends. Throughput: 64 MiB per sample in pieces of the
// named size, all of them requested with one message, out of and into memory that is rotated through. Plain sockets
// use write() and read() of the same pieces. Latency: 64 bytes ask for 4 KiB, which land in memory named beforehand.
// Samples alternate, and rows have medians. Neither side spins: each sleeps in poll(2), or in read(2), until there is
// data.
Result<std::vector<Row>> bench_transport(const TransportOptions& options);

}  // namespace kvbm::benchmark

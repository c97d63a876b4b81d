// `kvbm bench transport`: the built-in TCP transport on loopback against plain blocking sockets.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct TransportOptions {
  int rounds = 15;
  bool quiet = false;
};

// Two processes each: this one asks and receives, a child of it sends. Throughput: 64 MiB a sample in pieces of the
// size told, all of them asked for with one message, out of and into memory that is rotated through; plain: write() and
// read() of the same pieces. Latency: 64 bytes ask for 4 KiB, which land in memory named beforehand. Samples alternate,
// medians are told. Neither side spins: each sleeps in poll(2), or in read(2), until there is something.
Result<std::vector<Row>> bench_transport(const TransportOptions& options);

}  // namespace kvbm::benchmark

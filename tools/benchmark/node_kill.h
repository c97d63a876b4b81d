// Measures how soon a killed node is noticed, and how soon it serves again after a restart. Also measures how soon a
// client of a shared tier set takes over from its owner.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeKillOptions {
  int rounds = 9;
  bool quiet = false;
};

// A child process is a node that this one has loaded from. It is killed, and another one takes its address, `rounds`
// times.
//
// node.killed_noticed.same_host: from the kill until its memory is not read in place any more, .tcp (node.local=off):
// from the kill until its connection is closed. node.restarted_serves, of both ways: from its listening again until
// all its blocks have arrived and were compared. node.share_taken_over: a child process owns a shared tier set, and
// this process is its only client. The child is killed, and this process becomes the owner. Each row has the slowest
// of its kills, and the promised time as its limit.
Result<std::vector<Row>> bench_node_kill(const NodeKillOptions& options);

}  // namespace kvbm::benchmark

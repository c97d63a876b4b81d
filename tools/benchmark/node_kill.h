// How soon a node that was killed is noticed, how soon it serves again once it was started again, and how soon a client
// of a shared tier set takes over from its owner.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct NodeKillOptions {
  int rounds = 9;
  bool quiet = false;
};

// A child process is a node that this one has loaded from; it is killed, and another one takes its address, `rounds`
// times. node.killed_noticed.same_host: until its memory is not read in place any more, .tcp (node.local=off): until
// its connection counts as gone, both since the kill. node.restarted_serves, of both ways: since it listens again,
// until all its blocks have come and were compared. node.share_taken_over: a child process owns a shared tier set of
// which this one is the only client; it is killed, and this one is the owner. Each row has the slowest of its kills,
// and what is promised as its limit.
Result<std::vector<Row>> bench_node_kill(const NodeKillOptions& options);

}  // namespace kvbm::benchmark

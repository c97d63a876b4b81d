// Stores into host slots and loads out of them through the C calls, against copies that hash the same bytes.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct HostCallsOptions {
  int rounds = 15;
  bool quiet = false;
};

// store.host.SIZE and load.host.SIZE: an engine stores 256 MiB of blocks of that size and loads them back, 32 blocks or
// 32 MiB a call, whichever is fewer. The host is emptied before the stores, and blocks are looked up before the loads;
// neither is timed. The limit copies as many bytes between the engine's memory and a buffer, leaf by leaf, and hashes
// them on the way. Medians of rounds in which the four take turns, in the time of all threads of the process: a call
// that moves its work to another thread is no faster here. SIZE 4KiB_hot: the same 512 KiB again and again, so that
// memory is not waited for, and what a call does for each block shows.
Result<std::vector<Row>> bench_host_calls(const HostCallsOptions& options);

}  // namespace kvbm::benchmark

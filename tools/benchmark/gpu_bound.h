// What a row of `kvbm bench gpu` can reach at most, by arithmetic: its limit is the copy engine with nothing to do but one copy,
// and whatever the library does besides takes time that no device saves. Of what was measured in the run (the limit, the host's own
// work) and of figures of hardware that the functions name. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "benchmark/row.h"

namespace kvbm::benchmark {

struct Bound {
  double ratio = 1;
  std::string why;
};

// Of leaves moved to or from host memory, a batch behind the other.
struct MovedShape {
  double limit_seconds = 0;  // of one copy of as many bytes
  double host_seconds = 0;   // that the caller's thread works for all batches
  double first_seconds = 0;  // of that, until the first launch
  uint64_t bytes = 0;
  uint64_t run_bytes = 0;    // of neighbours in host memory, on the average
  bool mapped = false;       // kernels read and write host memory; else copy engines do
  bool out = false;
};
[[nodiscard]] Bound moved_bound(const MovedShape& shape);
// Of few blocks, from the call to its completion.
[[nodiscard]] Bound latency_bound(const MovedShape& shape);
// Of leaves hashed on `multiprocessors` of that clock; `limit_rate`: bytes a second that the limit moves.
[[nodiscard]] Bound hash_bound(int multiprocessors, double clock_hz, double limit_rate);
// Of a kernel on all multiprocessors beside stores that have `used` of them and move `rate` bytes a second.
[[nodiscard]] Bound beside_bound(int multiprocessors, uint32_t used, double rate, bool mapped);
// Of coded leaves decoded on so many multiprocessors.
[[nodiscard]] Bound decoded_bound(uint32_t multiprocessors, double limit_rate);

[[nodiscard]] Row bounded(Row row, Bound bound);

}  // namespace kvbm::benchmark

// Computes the highest possible ratio of a row of `kvbm bench gpu`. Its limit is a copy engine with a single copy,
// and the library's other work takes time that no device saves. Inputs are measurements of the run (the limit, the
// host's own work) and figures of hardware that the functions name. The functions are pure.
#pragma once

#include <cstdint>
#include <string>

#include "benchmark/row.h"

namespace kvbm::benchmark {

struct Bound {
  double ratio = 1;
  std::string why;
};

// Leaves moved to or from host memory, one batch after the other.
struct MovedShape {
  double limit_seconds = 0;  // of one copy of as many bytes
  double host_seconds = 0;   // work of the caller's thread for all batches
  double first_seconds = 0;  // part of it until the first launch
  uint64_t bytes = 0;
  uint64_t run_bytes = 0;  // average length of neighbours in host memory
  bool mapped = false;     // true: kernels read and write host memory; false: copy engines do
  bool out = false;
};
[[nodiscard]] Bound moved_bound(const MovedShape& shape);
// Bounds a transfer of few blocks, from the call to its completion.
[[nodiscard]] Bound latency_bound(const MovedShape& shape);
// Bounds hashing leaves on `multiprocessors` that run at `clock_hz`. `limit_rate`: bytes per second of the limit.
[[nodiscard]] Bound hash_bound(int multiprocessors, double clock_hz, double limit_rate);
// Bounds a kernel on all multiprocessors beside stores that have `used` of them and move `rate` bytes per second.
[[nodiscard]] Bound beside_bound(int multiprocessors, uint32_t used, double rate, bool mapped);
// Bounds decoding coded leaves on the given number of multiprocessors.
[[nodiscard]] Bound decoded_bound(uint32_t multiprocessors, double limit_rate);

[[nodiscard]] Row bounded(Row row, Bound bound);

}  // namespace kvbm::benchmark

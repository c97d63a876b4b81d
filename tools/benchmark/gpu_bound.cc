#include "benchmark/gpu_bound.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace kvbm::benchmark {

namespace {

// A request of a kernel is of 128 bytes behind a header of 24 (with its framing), one of a copy engine of 256.
constexpr double kMappedShare = (128.0 / (128 + 24)) / (256.0 / (256 + 24));
// Seconds until a copy engine begins a copy.
constexpr double kCopyBegins = 1.25e-6;
// Seconds to launch a kernel behind another stream's event, and to wake a thread that waits in the kernel for an
// event. A single copy that is waited for by spinning does neither.
constexpr double kLaunchAndWake = 25e-6;
// lib/device/kernels/README.md: instructions of a warp for 4 KiB of a page in one piece, and how many a
// multiprocessor begins in a cycle.
constexpr double kBytesAnInstruction = 4096.0 / 450;
constexpr double kInstructionsACycle = 4;
// 64 KiB in flight on a multiprocessor for 1.2 us of device memory.
constexpr double kGatherRate = 65536 / 1.2e-6;
// 0.7 instructions per byte, two warps per scheduler.
constexpr double kDecodeRate = 3e9;

std::string text(const char* format, double value) {
  char out[96];
  std::snprintf(out, sizeof out, format, value);
  return out;
}

void at_most(Bound& bound, double ratio, std::string why) {
  if (ratio >= bound.ratio) return;
  bound = {ratio, std::move(why)};
}

}  // namespace

Bound moved_bound(const MovedShape& shape) {
  Bound out{1, "the link"};
  if (!(shape.limit_seconds > 0)) return out;
  const double wire = shape.limit_seconds;
  at_most(out, wire / (shape.first_seconds + std::max(wire, shape.host_seconds)),
          shape.host_seconds > wire
              ? text("the host works for %.0f us", shape.host_seconds * 1e6)
              : text("the host plans for %.0f us before the first launch", shape.first_seconds * 1e6));
  if (shape.mapped && shape.out) at_most(out, kMappedShare, "requests of 128 bytes");
  if (!shape.mapped && shape.run_bytes != 0 && shape.bytes != 0) {
    const double run = wire * static_cast<double>(shape.run_bytes) / static_cast<double>(shape.bytes);
    at_most(out, run / std::max(run, kCopyBegins),
            text("copies of %.0f KiB", static_cast<double>(shape.run_bytes) / 1024));
  }
  return out;
}

Bound latency_bound(const MovedShape& shape) {
  Bound out{1, "the link"};
  const double more = shape.host_seconds + kLaunchAndWake;
  at_most(out, shape.limit_seconds / (shape.limit_seconds + more),
          text("%.0f us of host, launch and waking", more * 1e6));
  return out;
}

Bound hash_bound(int multiprocessors, double clock_hz, double limit_rate) {
  Bound out{1, "memory"};
  if (!(clock_hz > 0) || !(limit_rate > 0)) return out;
  const double rate = multiprocessors * clock_hz * kInstructionsACycle * kBytesAnInstruction;
  at_most(out, rate / limit_rate, text("instructions, %.0f GB/s", rate / 1e9));
  return out;
}

Bound beside_bound(int multiprocessors, uint32_t used, double rate, bool mapped) {
  Bound out{1, "nothing"};
  if (multiprocessors <= 0) return out;
  const double held = std::min(1.0, static_cast<double>(used) / multiprocessors);
  const double share = mapped ? 1 : std::min(1.0, rate / (kGatherRate * used));
  at_most(out, 1 - held * share, text("multiprocessors held, %.1f %%", held * share * 100));
  return out;
}

Bound decoded_bound(uint32_t multiprocessors, double limit_rate) {
  Bound out{1, "the link"};
  if (!(limit_rate > 0)) return out;
  const double rate = kDecodeRate * multiprocessors;
  at_most(out, rate / limit_rate, text("the decoder, %.0f GB/s", rate / 1e9));
  return out;
}

Row bounded(Row row, Bound bound) {
  row.bound = bound.ratio;
  row.bound_name = std::move(bound.why);
  return row;
}

}  // namespace kvbm::benchmark

#include "benchmark/copy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/memory/memory.h"
#include "benchmark/statistics.h"
#include "codec/hash/copy_hint.h"
#include "codec/record/record.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kBufferBytes = 512ULL << 20;
// Bytes copied in one sample: enough that the clock's resolution does not matter.
constexpr uint64_t kCopySampleBytes = 128ULL << 20;

struct CopySize {
  const char* name;
  uint64_t bytes;
};
constexpr CopySize kCopySizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};

// Keeps the compiler from removing work with an unused result.
volatile uint64_t sink;

// Copies a record like the library: one fence after its last leaf.
uint64_t copy_record(std::byte* target, const std::byte* source, uint64_t bytes, codec::CopyHint hint) {
  const codec::CopiesOrdered ordered;
  uint64_t all = 0;
  for (uint64_t at = 0; at < bytes; at += codec::kMaxLeafBytes) {
    const uint64_t n = std::min(codec::kMaxLeafBytes, bytes - at);
    all ^= codec::copy_hashed(target + at, source + at, n, hint, codec::CopyOrder::later);
  }
  return all;
}

uint64_t read_all(const std::byte* bytes, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i += 8) {
    uint64_t v;
    std::memcpy(&v, bytes + i, 8);
    sum += v;
  }
  return sum;
}

// Returns the seconds of this thread for one sample. It continues in the buffers where the last sample ended.
template <class Copy>
double sample(std::byte* target, const std::byte* source, uint64_t bytes, uint64_t& at, Copy&& copy) {
  const ThreadStopwatch watch;
  uint64_t all = 0;
  for (uint64_t done = 0; done < kCopySampleBytes; done += bytes) {
    if (at + bytes > kBufferBytes) at = 0;
    all ^= copy(target + at, source + at, bytes);
    at += bytes;
  }
  sink = all;
  return watch.seconds();
}

Row compare(const std::string& name, std::byte* target, const std::byte* source, uint64_t bytes, bool then_read,
            int rounds, terminal::Progress& progress) {
  // With a reader: copies like a load of that size. Without: like one of many loads.
  const codec::CopyHint hint = then_read ? codec::hint_for(bytes) : codec::CopyHint::automatic;
  std::vector<double> ours;
  std::vector<double> theirs;
  uint64_t at[2] = {0, kBufferBytes / 2};
  for (int round = 0; round < rounds; ++round) {
    const auto verified = [&] {
      return sample(target, source, bytes, at[0], [&](std::byte* to, const std::byte* from, uint64_t n) {
        const uint64_t hash = copy_record(to, from, n, hint);
        return then_read ? hash ^ read_all(to, n) : hash;
      });
    };
    const auto plain = [&] {
      return sample(target, source, bytes, at[1], [&](std::byte* to, const std::byte* from, uint64_t n) {
        std::memcpy(to, from, n);
        return then_read ? read_all(to, n) : uint64_t{0};
      });
    };
    // The first one alternates, so that neither always finds the other's data in the caches.
    if (round % 2 == 0) {
      ours.push_back(verified());
      theirs.push_back(plain());
    } else {
      theirs.push_back(plain());
      ours.push_back(verified());
    }
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kCopySampleBytes) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(theirs),
                        then_read ? "memcpy, then read" : "memcpy");
}

}  // namespace

Result<std::vector<Row>> bench_copy(const CopyOptions& options) {
  ArenaOptions arena;
  arena.bytes = kBufferBytes;
  arena.touch_threads = 2;
  const auto engine = Arena::map(arena);
  const auto host = Arena::map(arena);
  if (!engine.ok()) return engine.status();
  if (!host.ok()) return host.status();
  std::byte* engine_bytes = engine.value()->data();
  std::byte* host_bytes = host.value()->data();
  for (uint64_t i = 0; i < kBufferBytes; i += 8) store_le<uint64_t>(engine_bytes + i, i * 0x9E3779B97F4A7C15ULL);
  std::memcpy(host_bytes, engine_bytes, kBufferBytes);
  terminal::Progress progress("copying", std::size(kCopySizes) * 3 * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const CopySize& size : kCopySizes) {
    rows.push_back(compare(std::string("copy.verified_in.") + size.name, host_bytes, engine_bytes, size.bytes, false,
                           options.rounds, progress));
    rows.push_back(compare(std::string("copy.verified_out.") + size.name, engine_bytes, host_bytes, size.bytes, false,
                           options.rounds, progress));
    rows.push_back(compare(std::string("copy.verified_out_then_read.") + size.name, engine_bytes, host_bytes,
                           size.bytes, true, options.rounds, progress));
  }
  return rows;
}

}  // namespace kvbm::benchmark

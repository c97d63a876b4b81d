#include "benchmark/transport.h"

#include <string>

#include "base/memory/memory.h"
#include "benchmark/socket_child.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kMemoryBytes = 128ULL << 20;
constexpr uint64_t kTransportSampleBytes = 64ULL << 20;
constexpr uint64_t kAnswerBytes = 4096;
constexpr int kRequestsARound = 400;

struct TransportSize {
  const char* name;
  uint64_t bytes;
};
constexpr TransportSize kTransportSizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};

struct Pair {
  Asker* ours;
  Asker* plain;
};

// The first one alternates, so that neither always finds the other's data in the caches.
template <class Ours, class Plain>
Status alternate(int round, Ours&& ours, Plain&& plain) {
  Status first = round % 2 == 0 ? ours() : plain();
  if (!first.ok()) return first;
  return round % 2 == 0 ? plain() : ours();
}

Result<Row> throughput(const TransportSize& size, const Pair& pair, MutableBytes memory, int rounds,
                       terminal::Progress& progress) {
  std::vector<double> ours;
  std::vector<double> theirs;
  const uint64_t count = kTransportSampleBytes / size.bytes;
  for (int round = 0; round < rounds; ++round) {
    const Status s = alternate(
        round, [&] { return time_answer(*pair.ours, count, size.bytes, memory, ours); },
        [&] { return time_answer(*pair.plain, count, size.bytes, memory, theirs); });
    if (!s.ok()) return s;
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kTransportSampleBytes) / 1e9;
  return more_is_better(std::string("transport.tcp.") + size.name, gigabytes / median(ours), "GB/s",
                        gigabytes / median(theirs), "plain socket");
}

Result<std::vector<Row>> latency(const Pair& pair, MutableBytes memory, int rounds, terminal::Progress& progress) {
  std::vector<double> ours;
  std::vector<double> theirs;
  const auto requests = [&](Asker& asker, std::vector<double>& out) {
    Status s;
    for (int i = 0; i < kRequestsARound && s.ok(); ++i) s = time_answer(asker, 1, kAnswerBytes, memory, out);
    return s;
  };
  for (int round = 0; round < rounds; ++round) {
    const Status s = alternate(
        round, [&] { return requests(*pair.ours, ours); }, [&] { return requests(*pair.plain, theirs); });
    if (!s.ok()) return s;
    progress.advance(1);
  }
  std::vector<Row> rows;
  rows.push_back(less_is_better("transport.tcp_4KiB.p50", quantile(ours, 0.5) * 1e6, "us", quantile(theirs, 0.5) * 1e6,
                                "plain socket"));
  rows.push_back(less_is_better("transport.tcp_4KiB.p99", quantile(ours, 0.99) * 1e6, "us",
                                quantile(theirs, 0.99) * 1e6, "plain socket"));
  return rows;
}

}  // namespace

Result<std::vector<Row>> bench_transport(const TransportOptions& options) {
  ArenaOptions arena;
  arena.bytes = kMemoryBytes;
  const auto target = Arena::map(arena);
  if (!target.ok()) return target.status();
  const MutableBytes to(target.value()->data(), kMemoryBytes);
  auto ours = transport_asker(kMemoryBytes);
  if (!ours.ok()) return ours.status();
  auto plain = plain_asker(kMemoryBytes);
  if (!plain.ok()) return plain.status();
  const Pair pair{ours.value().get(), plain.value().get()};
  terminal::Progress progress("sending", (std::size(kTransportSizes) + 1) * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const TransportSize& size : kTransportSizes) {
    auto row = throughput(size, pair, to, options.rounds, progress);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  auto times = latency(pair, to, options.rounds, progress);
  if (!times.ok()) return times.status();
  rows.insert(rows.end(), times.value().begin(), times.value().end());
  return rows;
}

}  // namespace kvbm::benchmark

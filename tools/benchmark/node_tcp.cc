#include "benchmark/node_tcp.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/memory/memory.h"
#include "benchmark/node_pair.h"
#include "benchmark/socket_child.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kNodeSampleBytes = 64ULL << 20;
constexpr uint64_t kSmallBytes = 4096;
constexpr uint32_t kSmallBlocks = 4096;
constexpr int kNodeRequestsARound = 400;
constexpr double kIdlePercent = 0.5;
// A short run watches an idle node for a moment only.
constexpr int kIdleSeconds = 30;
constexpr int kShortIdleSeconds = 2;
constexpr int kShortRounds = 5;

struct NodeSize {
  const char* name;
  uint64_t bytes;
  uint32_t blocks;
};
constexpr NodeSize kNodeSizes[] = {{"64KiB", 64ULL << 10, 1024}, {"1MiB", 1ULL << 20, 64}, {"16MiB", 16ULL << 20, 4}};
constexpr NodeSize kContended = {"1MiB", 1ULL << 20, 64};
constexpr NodeSize kSmall = {"4KiB", kSmallBytes, kSmallBlocks};

NodePairOptions pair_of(const NodeSize& size) {
  NodePairOptions out;
  out.block_bytes = size.bytes;
  out.blocks = size.blocks;
  return out;
}

// Returns the seconds for lookup and load.
Result<double> load(NodeReader& reader, size_t first, size_t n) {
  const Stopwatch watch;
  Status s = reader.load(first, n);
  const double seconds = watch.seconds();
  if (s.ok()) s = reader.check(first, n);
  if (!s.ok()) return s;
  return seconds;
}

// Runs one turn of each; the first one alternates.
template <class Ours, class Plain>
Status turn(int round, Ours&& ours, Plain&& plain) {
  Status first = round % 2 == 0 ? ours() : plain();
  if (!first.ok()) return first;
  return round % 2 == 0 ? plain() : ours();
}

// Starts processes that keep every processor busy.
Result<std::vector<std::unique_ptr<Child>>> keep_busy() {
  std::vector<std::unique_ptr<Child>> out;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    auto child = Child::start([] {
      for (volatile uint64_t n = 0;;) n = n + 1;
    });
    if (!child.ok()) return child.status();
    out.push_back(std::move(child).value());
  }
  return out;
}

Result<Row> throughput(const std::string& name, const NodeSize& size, Asker& plain, MutableBytes memory, int rounds,
                       terminal::Progress& progress) {
  auto owner = NodeOwner::start(pair_of(size));
  if (!owner.ok()) return owner.status();
  auto reader = NodeReader::open(pair_of(size), owner.value()->address());
  if (!reader.ok()) return reader.status();
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = -1; round < rounds; ++round) {
    const auto all = [&]() -> Status {
      const auto seconds = load(*reader.value(), 0, size.blocks);
      if (seconds.ok()) ours.push_back(seconds.value());
      return seconds.ok() ? Status{} : seconds.status();
    };
    const Status s = turn(round, all, [&] { return time_answer(plain, size.blocks, size.bytes, memory, theirs); });
    if (!s.ok()) return s;
    if (round < 0) ours.clear(), theirs.clear();  // the first round looks up locations and touches memory
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kNodeSampleBytes) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(theirs), "plain socket, unverified");
}

Result<std::vector<Row>> latency(Asker& plain, MutableBytes memory, int rounds, terminal::Progress& progress) {
  auto owner = NodeOwner::start(pair_of(kSmall));
  if (!owner.ok()) return owner.status();
  auto reader = NodeReader::open(pair_of(kSmall), owner.value()->address());
  if (!reader.ok()) return reader.status();
  if (const auto all = load(*reader.value(), 0, kSmallBlocks); !all.ok()) return all.status();
  std::vector<double> ours;
  std::vector<double> theirs;
  size_t next = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto loads = [&]() -> Status {
      for (int i = 0; i < kNodeRequestsARound; ++i) {
        const auto seconds = load(*reader.value(), next++ % kSmallBlocks, 1);
        if (!seconds.ok()) return seconds.status();
        ours.push_back(seconds.value());
      }
      return {};
    };
    const auto requests = [&]() -> Status {
      Status s;
      for (int i = 0; i < kNodeRequestsARound && s.ok(); ++i) s = time_answer(plain, 1, kSmallBytes, memory, theirs);
      return s;
    };
    const Status s = turn(round, loads, requests);
    if (!s.ok()) return s;
    progress.advance(1);
  }
  std::vector<Row> rows;
  for (const auto& [name, q] : {std::pair("node.tcp_4KiB.p50", 0.5), std::pair("node.tcp_4KiB.p99", 0.99)}) {
    rows.push_back(less_is_better(name, quantile(ours, q) * 1e6, "us", quantile(theirs, q) * 1e6,
                                  "blocking socket request and response"));
  }
  return rows;
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Measures the processor time of this process, a node connected to another one, while there are no requests to
// either.
Result<Row> idle(int seconds) {
  auto owner = NodeOwner::start(pair_of(kSmall));
  if (!owner.ok()) return owner.status();
  auto reader = NodeReader::open(pair_of(kSmall), owner.value()->address());
  if (!reader.ok()) return reader.status();
  if (Status one = reader.value()->load(0, 1); !one.ok()) return one;
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double percent = 100 * (processor_seconds() - before) / seconds;
  return less_is_better("node.idle_cpu_percent", percent, "%", kIdlePercent, "what is allowed");
}

}  // namespace

Result<std::vector<Row>> bench_node_tcp(const NodeTcpOptions& options) {
  auto plain = plain_asker(kNodeSampleBytes);
  if (!plain.ok()) return plain.status();
  ArenaOptions arena;
  arena.bytes = kNodeSampleBytes;
  const auto target = Arena::map(arena);
  if (!target.ok()) return target.status();
  const MutableBytes memory(target.value()->data(), kNodeSampleBytes);
  terminal::Progress progress(
      "loading from a node",
      (std::size(kNodeSizes) + 1) * (static_cast<uint64_t>(options.rounds) + 1) + static_cast<uint64_t>(options.rounds),
      terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const NodeSize& size : kNodeSizes) {
    auto row = throughput(std::string("node.tcp.") + size.name, size, *plain.value(), memory, options.rounds, progress);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  {
    const auto busy = keep_busy();
    if (!busy.ok()) return busy.status();
    auto row = throughput(std::string("node.tcp_contended.") + kContended.name, kContended, *plain.value(), memory,
                          options.rounds, progress);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  auto times = latency(*plain.value(), memory, options.rounds, progress);
  if (!times.ok()) return times.status();
  rows.insert(rows.end(), times.value().begin(), times.value().end());
  auto quiet = idle(options.rounds < kShortRounds ? kShortIdleSeconds : kIdleSeconds);
  if (!quiet.ok()) return quiet.status();
  rows.push_back(std::move(quiet).value());
  return rows;
}

}  // namespace kvbm::benchmark

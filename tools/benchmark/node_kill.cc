#include "benchmark/node_kill.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "benchmark/node_pair.h"
#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr double kSameHostMs = 100;
constexpr double kTcpMs = 2000;
constexpr double kServesMs = 1000;
constexpr double kTakenOverMs = 1000;
constexpr uint64_t kKillBlockBytes = 256ULL << 10;
constexpr uint32_t kKillBlocks = 16;
constexpr double kPatienceSeconds = 20;

kvbm_node_row_t row_of(const NodeReader& reader) {
  const auto rows = reader.member().nodes();
  return rows.empty() ? kvbm_node_row_t{} : rows.front();
}
bool in_place(const NodeReader& reader) { return std::strcmp(row_of(reader).path, "local") == 0; }
bool connected(const NodeReader& reader) { return std::strcmp(row_of(reader).state, "ready") == 0; }

// Returns the milliseconds from the watch's start until `done`.
template <class Done>
Result<double> until(const Stopwatch& watch, const char* else_said, Done&& done) {
  while (!done()) {
    if (watch.seconds() > kPatienceSeconds) return Status(Code::deadline, else_said);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return watch.seconds() * 1000;
}

Status kills(const char* local, int rounds, terminal::Progress& progress, std::vector<double>& noticed,
             std::vector<double>& served) {
  NodePairOptions pair;
  pair.block_bytes = kKillBlockBytes;
  pair.blocks = kKillBlocks;
  pair.host_bytes = pair.reader_host_bytes = 16ULL << 20;
  pair.local = local;
  const bool is_local = std::strcmp(local, "off") != 0;
  // All child processes are made before this process has threads.
  std::vector<std::unique_ptr<NodeOwner>> owners;
  for (int i = 0; i <= rounds; ++i) {
    auto owner = NodeOwner::prepare(pair);
    if (!owner.ok()) return owner.status();
    owners.push_back(std::move(owner).value());
  }
  if (Status s = owners.back()->begin("127.0.0.1:0"); !s.ok()) return s;
  const std::string address = owners.back()->address();
  auto opened = NodeReader::open(pair, address);
  if (!opened.ok()) return opened.status();
  NodeReader& reader = *opened.value();
  for (int round = 0; round < rounds; ++round) {
    const Stopwatch since_start;
    const auto ready = until(since_start, "the nodes did not find each other", [&] {
      return (is_local ? in_place(reader) : connected(reader)) && reader.load(0, kKillBlocks).ok();
    });
    if (!ready.ok()) return ready.status();
    const Stopwatch since_kill;
    ::kill(owners.back()->pid(), SIGKILL);
    const auto gone = until(since_kill, "the killed node was not noticed",
                            [&] { return !(is_local ? in_place(reader) : connected(reader)); });
    if (!gone.ok()) return gone.status();
    noticed.push_back(gone.value());
    owners.pop_back();
    if (Status s = owners.back()->begin(address); !s.ok()) return s;
    const Stopwatch since_listening;
    const auto back = until(since_listening, "the restarted node did not serve again",
                            [&] { return reader.load(0, kKillBlocks).ok(); });
    if (!back.ok()) return back.status();
    if (Status s = reader.check(0, kKillBlocks); !s.ok()) return s;
    served.push_back(back.value());
    progress.advance(1);
  }
  return {};
}

Status take_overs(int rounds, terminal::Progress& progress, std::vector<double>& took) {
  const Scratch directory("/tmp");
  if (directory.path().empty()) return {Code::io_error, "no directory for a shared tier set", "/tmp"};
  NodePairOptions pair;
  pair.block_bytes = kKillBlockBytes;
  pair.blocks = kKillBlocks;
  pair.host_bytes = pair.reader_host_bytes = 16ULL << 20;
  pair.share = directory.path();
  std::vector<std::unique_ptr<NodeOwner>> owners;
  for (int i = 0; i < rounds; ++i) {
    auto owner = NodeOwner::prepare(pair);
    if (!owner.ok()) return owner.status();
    owners.push_back(std::move(owner).value());
  }
  for (; !owners.empty(); owners.pop_back()) {
    if (Status s = owners.back()->begin("share"); !s.ok()) return s;
    const auto client = NodeReader::open(pair, "");
    if (!client.ok()) return client.status();
    if (Status s = client.value()->load(0, kKillBlocks); !s.ok()) return s;
    const Stopwatch since_kill;
    ::kill(owners.back()->pid(), SIGKILL);
    const auto owns = until(since_kill, "no process took over from the killed owner",
                            [&] { return client.value()->member().share_role() == "the owner"; });
    if (!owns.ok()) return owns.status();
    took.push_back(owns.value());
    progress.advance(1);
  }
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_node_kill(const NodeKillOptions& options) {
  terminal::Progress progress("killing nodes", 3 * static_cast<uint64_t>(options.rounds), terminal::Unit::items,
                              options.quiet);
  std::vector<Row> rows;
  std::vector<double> served;
  struct Way {
    const char* name;
    const char* local;
    double limit_ms;
  };
  for (const Way& way : {Way{"same_host", "auto", kSameHostMs}, Way{"tcp", "off", kTcpMs}}) {
    std::vector<double> noticed;
    if (Status s = kills(way.local, options.rounds, progress, noticed, served); !s.ok()) return s;
    rows.push_back(less_is_better(std::string("node.killed_noticed.") + way.name,
                                  *std::max_element(noticed.begin(), noticed.end()), "ms", way.limit_ms,
                                  "what is allowed"));
  }
  rows.push_back(less_is_better("node.restarted_serves", *std::max_element(served.begin(), served.end()), "ms",
                                kServesMs, "what is allowed"));
  std::vector<double> taken_over;
  if (Status s = take_overs(options.rounds, progress, taken_over); !s.ok()) return s;
  rows.push_back(less_is_better("node.share_taken_over", *std::max_element(taken_over.begin(), taken_over.end()), "ms",
                                kTakenOverMs, "what is allowed"));
  return rows;
}

}  // namespace kvbm::benchmark

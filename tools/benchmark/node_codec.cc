#include "benchmark/node_codec.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "benchmark/node_pair.h"
#include "benchmark/slow_loopback.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kBlock = 1ULL << 20;
constexpr uint32_t kBlocks = 32;
// Loads of each before anything is measured: locations are asked for, memory is touched, and auto finds out.
constexpr int kBefore = 4;

struct Pair {
  std::unique_ptr<NodeOwner> owner;
  std::unique_ptr<NodeReader> reader;
};

Result<Pair> open(const std::string& codec) {
  NodePairOptions options;
  options.block_bytes = kBlock;
  options.blocks = kBlocks;
  options.host_bytes = options.reader_host_bytes = 96ULL << 20;
  options.codec = codec;
  options.numbers = true;
  Pair out;
  auto owner = NodeOwner::start(options);
  if (!owner.ok()) return owner.status();
  out.owner = std::move(owner).value();
  auto reader = NodeReader::open(options, out.owner->address());
  if (!reader.ok()) return reader.status();
  out.reader = std::move(reader).value();
  return out;
}

Status load(NodeReader& reader, std::vector<double>& out) {
  const Stopwatch watch;
  Status s = reader.load(0, kBlocks);
  out.push_back(watch.seconds());
  return s.ok() ? reader.check(0, kBlocks) : s;
}

Result<Row> compare(const std::string& name, int rounds, terminal::Progress& progress) {
  auto off = open("off");
  if (!off.ok()) return off.status();
  auto automatic = open("auto");
  if (!automatic.ok()) return automatic.status();
  std::vector<double> plain;
  std::vector<double> ours;
  for (int round = -kBefore; round < rounds; ++round) {
    Status first =
        load(round % 2 == 0 ? *automatic.value().reader : *off.value().reader, round % 2 == 0 ? ours : plain);
    if (!first.ok()) return first;
    Status second =
        load(round % 2 == 0 ? *off.value().reader : *automatic.value().reader, round % 2 == 0 ? plain : ours);
    if (!second.ok()) return second;
    if (round < 0) ours.clear(), plain.clear();
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kBlock * kBlocks) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(plain), "node.codec=off");
}

}  // namespace

Result<std::vector<Row>> bench_node_codec(const NodeCodecOptions& options) {
  constexpr std::pair<const char*, uint32_t> kLinks[] = {{"node.tcp.codec.auto_4gbit", 4000},
                                                         {"node.tcp.codec.auto_1gbit", 1000}};
  terminal::Progress progress("loading coded from a node", 3 * static_cast<uint64_t>(options.rounds + kBefore),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  auto fast = compare("node.tcp.codec.auto", options.rounds, progress);
  if (!fast.ok()) return fast.status();
  rows.push_back(std::move(fast).value());
  auto slow = SlowLoopback::make();
  if (!slow.ok()) {
    std::fprintf(stderr, "node.tcp.codec over slow links is left out: %s\n", slow.status().message().c_str());
    return rows;
  }
  for (const auto& [name, megabits] : kLinks) {
    if (Status s = slow.value()->limit(megabits); !s.ok()) return s;
    auto row = compare(name, options.rounds, progress);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  return rows;
}

}  // namespace kvbm::benchmark

#include "benchmark/node_codec.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "benchmark/kv_sample.h"
#include "benchmark/node_pair.h"
#include "benchmark/session_pair.h"
#include "benchmark/slow_loopback.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kBlock = 1ULL << 20;
constexpr uint32_t kCodecBlocks = 32;
static_assert(kBlock * kCodecBlocks == SessionPair::kBytes);
// Factor of rounds over a link as fast as memory. Rounds cost little there, and differences are a hundredth or two.
constexpr int kMoreRounds = 4;
// Loads of each before any measurement: they look up locations, touch memory, and let auto decide.
constexpr int kBefore = 4;

using Numbers = std::vector<std::byte>;

// Returns as many bytes as a layer of a session has, which is more than a block.
Result<Numbers> numbers_of(const NodeCodecOptions& options) {
  constexpr uint64_t kMost = SessionPair::kLayerBytes;
  static_assert(kMost >= kBlock);
  if (options.input.empty()) return made_up_numbers(kMost);
  const auto sample = load_kv(options.input, options.head_dim, false);
  if (!sample.ok()) return sample.status();
  if (sample.value().element != layout::Element::bf16) {
    return Status(Code::invalid_argument, "nodes are measured with bf16", options.input);
  }
  const ConstBytes all = sample.value().all();
  Numbers out(kMost);
  for (size_t at = 0; at < out.size();) {
    const size_t n = std::min(all.size(), out.size() - at);
    std::memcpy(out.data() + at, all.data(), n);
    at += n;
  }
  return out;
}

// A pair of nodes. One of them reads from the other.
class CodecPair {
 public:
  virtual ~CodecPair() = default;
  // Reads kCodecBlocks * kBlock bytes and compares them. Returns the seconds of the read.
  virtual Result<double> load() = 0;
};

class Fetches final : public CodecPair {
 public:
  static Result<std::unique_ptr<CodecPair>> open(const std::string& codec, int, const Numbers& numbers) {
    NodePairOptions options;
    options.block_bytes = kBlock;
    options.blocks = kCodecBlocks;
    options.host_bytes = options.reader_host_bytes = 96ULL << 20;
    options.codec = codec;
    options.numbers.assign(numbers.begin(), numbers.begin() + kBlock);
    auto out = std::make_unique<Fetches>();
    auto owner = NodeOwner::start(options);
    if (!owner.ok()) return owner.status();
    out->owner_ = std::move(owner).value();
    auto reader = NodeReader::open(options, out->owner_->address());
    if (!reader.ok()) return reader.status();
    out->reader_ = std::move(reader).value();
    return std::unique_ptr<CodecPair>(std::move(out));
  }
  Result<double> load() override {
    std::memset(reader_->engine().data(), 0xFF, reader_->engine().size());  // earlier bytes must not pass for new ones
    const Stopwatch watch;
    Status s = reader_->load(0, kCodecBlocks);
    const double seconds = watch.seconds();
    if (s.ok()) s = reader_->check(0, kCodecBlocks);
    return s.ok() ? Result<double>(seconds) : s;
  }

 private:
  std::unique_ptr<NodeOwner> owner_;
  std::unique_ptr<NodeReader> reader_;
};

class Sessions final : public CodecPair {
 public:
  static Result<std::unique_ptr<CodecPair>> open(const std::string& codec, int loads, const Numbers& numbers) {
    auto pair = SessionPair::open(codec, static_cast<uint32_t>(loads), numbers);
    if (!pair.ok()) return pair.status();
    auto out = std::make_unique<Sessions>();
    out->pair_ = std::move(pair).value();
    return std::unique_ptr<CodecPair>(std::move(out));
  }
  Result<double> load() override {
    pair_->forget();
    const Stopwatch watch;
    Status s = pair_->receive();
    const double seconds = watch.seconds();
    if (s.ok()) s = pair_->check();
    return s.ok() ? Result<double>(seconds) : s;
  }

 private:
  std::unique_ptr<SessionPair> pair_;
};

using Open = Result<std::unique_ptr<CodecPair>> (*)(const std::string& codec, int loads, const Numbers& numbers);

// Fetches and sessions by the beginning of their rows' names.
struct Kind {
  std::string rows;
  Open open;
};
const Kind kKinds[] = {{"node.tcp.codec.", &Fetches::open}, {"node.tcp.session_codec.", &Sessions::open}};

Result<Row> compare(const std::string& name, Open open, const std::string& codec, const Numbers& numbers, int rounds,
                    terminal::Progress& progress) {
  auto off = open("off", rounds + kBefore, numbers);
  if (!off.ok()) return off.status();
  auto other = open(codec, rounds + kBefore, numbers);
  if (!other.ok()) return other.status();
  std::vector<double> plain;
  std::vector<double> ours;
  for (int round = -kBefore; round < rounds; ++round) {
    for (const bool coded : {round % 2 == 0, round % 2 != 0}) {
      const auto seconds = coded ? other.value()->load() : off.value()->load();
      if (!seconds.ok()) return seconds.status();
      if (round >= 0) (coded ? ours : plain).push_back(seconds.value());
    }
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kBlock * kCodecBlocks) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(plain), "node.codec=off");
}

// Measures both kinds, over the link in its current state.
Status measure(const std::string& codec, const std::string& link, const Numbers& numbers, int rounds,
               terminal::Progress& progress, std::vector<Row>& rows) {
  for (const Kind& kind : kKinds) {
    auto row = compare(kind.rows + codec + link, kind.open, codec, numbers, rounds, progress);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(row).value());
  }
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_node_codec(const NodeCodecOptions& options) {
  constexpr std::pair<const char*, uint32_t> kLinks[] = {{"_4gbit", 4000}, {"_1gbit", 1000}};
  const int fast_rounds = kMoreRounds * options.rounds;
  const int each = 2 * (fast_rounds + kBefore) + 2 * (options.rounds + kBefore);
  terminal::Progress progress("reading coded from a node", std::size(kKinds) * static_cast<uint64_t>(each),
                              terminal::Unit::items, options.quiet);
  const auto numbers = numbers_of(options);
  if (!numbers.ok()) return numbers.status();
  std::vector<Row> rows;
  // Off against off shows how much two pairs of the same kind differ on this machine.
  for (const char* const codec : {"off", "auto"}) {
    if (Status s = measure(codec, "", numbers.value(), fast_rounds, progress, rows); !s.ok()) return s;
  }
  auto slow = SlowLoopback::make();
  if (!slow.ok()) {
    std::fprintf(stderr, "node.tcp.codec and node.tcp.session_codec over slow links are left out: %s\n",
                 slow.status().message().c_str());
    return rows;
  }
  for (const auto& [name, megabits] : kLinks) {
    if (Status s = slow.value()->limit(megabits); !s.ok()) return s;
    if (Status s = measure("auto", name, numbers.value(), options.rounds, progress, rows); !s.ok()) return s;
  }
  return rows;
}

}  // namespace kvbm::benchmark

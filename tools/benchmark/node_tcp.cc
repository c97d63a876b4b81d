#include "benchmark/node_tcp.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "base/memory.h"
#include "benchmark/socket_child.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "node/member.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kSampleBytes = 64ULL << 20;
constexpr uint64_t kHostBytes = 192ULL << 20;
constexpr uint64_t kSmallBytes = 4096;
constexpr uint32_t kSmallBlocks = 4096;
constexpr int kRequestsARound = 400;
constexpr uint64_t kWaitNs = 10'000'000'000;
constexpr double kIdlePercent = 0.5;
// A short run looks at an idle node for a moment only.
constexpr int kIdleSeconds = 30;
constexpr int kShortIdleSeconds = 2;
constexpr int kShortRounds = 5;

struct Size {
  const char* name;
  uint64_t bytes;
  uint32_t blocks;
};
constexpr Size kSizes[] = {{"64KiB", 64ULL << 10, 1024}, {"1MiB", 1ULL << 20, 64}, {"16MiB", 16ULL << 20, 4}};
constexpr Size kContended = {"1MiB", 1ULL << 20, 64};
constexpr Size kSmall = {"4KiB", kSmallBytes, kSmallBlocks};

Result<std::vector<kvbm_key_t>> keys_of(const kvbm_namespace_t* ns, uint32_t n) {
  std::vector<uint32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0U);
  std::vector<kvbm_key_t> keys(n);
  size_t made = 0;
  const kvbm_status_t status = kvbm_key_chain(ns, nullptr, tokens.data(), n, 1, nullptr, keys.data(), n, &made);
  if (status != KVBM_OK) return failed("keys could not be made", status);
  return keys;
}

// In the child: blocks in host memory, the address told, and then nothing.
Status serve(const Size& size, int out) {
  node::MemberOptions options;
  options.listen = "127.0.0.1:0";
  options.host_bytes = kHostBytes;
  options.block_bytes = size.bytes;
  auto member = node::Member::open(options);
  if (!member.ok()) return member.status();
  kvbm_manager_t* manager = member.value()->manager();
  kvbm_namespace_t* ns = member.value()->ns();
  auto keys = keys_of(ns, size.blocks);
  if (!keys.ok()) return keys.status();
  std::vector<kvbm_block_t> blocks(size.blocks);
  std::vector<kvbm_view_t> views(size.blocks);
  kvbm_status_t status = kvbm_manager_allocate(manager, ns, size.blocks, blocks.data(), nullptr, 0, nullptr);
  if (status == KVBM_OK) status = kvbm_block_view(manager, blocks.data(), size.blocks, views.data());
  for (size_t i = 0; i < views.size() && status == KVBM_OK; ++i)
    std::memset(views[i].data, static_cast<int>(i), size.bytes);
  if (status == KVBM_OK) status = kvbm_manager_complete(manager, blocks.data(), size.blocks, nullptr);
  if (status == KVBM_OK)
    status = kvbm_manager_register(manager, ns, blocks.data(), keys.value().data(), size.blocks, nullptr);
  if (status != KVBM_OK) return failed("blocks could not be made", status);
  const std::string line = member.value()->address() + "\n";
  if (::write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return {Code::io_error, "the pipe is gone"};
  for (;;) ::pause();
}

// A node in a child process.
class Owner {
 public:
  static Result<std::unique_ptr<Owner>> start(const Size& size) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Status(Code::io_error, "no pipe could be made");
    auto child = Child::start([&] { (void)serve(size, ends[1]).ok(); });
    ::close(ends[1]);
    auto made = std::unique_ptr<Owner>(new Owner());
    char text[128] = {};
    const ssize_t n = child.ok() ? ::read(ends[0], text, sizeof text - 1) : 0;
    ::close(ends[0]);
    if (!child.ok()) return child.status();
    made->child_ = std::move(child).value();
    if (n <= 1) return Status(Code::io_error, "the other node did not start");
    made->address_.assign(text, static_cast<size_t>(n) - 1);
    return made;
  }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  Owner() = default;
  std::unique_ptr<Child> child_;
  std::string address_;
};

// This process as a node that reads from the owner into an engine's blocks.
class Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const Size& size, const std::string& address) {
    auto made = std::unique_ptr<Reader>(new Reader());
    made->block_bytes_ = size.bytes;
    node::MemberOptions options;
    options.peers = address;
    options.host_bytes = kHostBytes;
    options.block_bytes = size.bytes;
    auto member = node::Member::open(options);
    if (!member.ok()) return member.status();
    made->member_ = std::move(member).value();
    if (Status s = made->member_->wait_for_peers(kWaitNs); !s.ok()) return s;
    auto keys = keys_of(made->member_->ns(), size.blocks);
    if (!keys.ok()) return keys.status();
    made->keys_ = std::move(keys).value();
    made->ids_.resize(size.blocks);
    std::iota(made->ids_.begin(), made->ids_.end(), 0U);
    ArenaOptions arena;
    arena.bytes = size.blocks * size.bytes;
    auto engine = Arena::map(arena);
    if (!engine.ok()) return engine.status();
    made->engine_ = std::move(engine).value();
    kvbm_tensor_t tensor{made->engine_->data(), arena.bytes, 0, size.bytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t cache;
    kvbm_cache_options_init(&cache, sizeof cache);
    cache.n_blocks = size.blocks;
    cache.parts = &part;
    cache.n_parts = 1;
    kvbm_error_t error{};
    const kvbm_status_t status =
        kvbm_cache_attach(made->member_->manager(), made->member_->ns(), &cache, &made->cache_, &error);
    if (status != KVBM_OK) return failed("the engine's cache could not be attached", status, &error);
    return made;
  }
  ~Reader() { kvbm_cache_release(cache_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Seconds for lookup and load of n blocks; who has them is asked for only where it is not known.
  Result<double> load(size_t first, size_t n) {
    kvbm_lookup_options_t lookup;
    kvbm_lookup_options_init(&lookup, sizeof lookup);
    lookup.ask_nodes_ns = kWaitNs;
    kvbm_load_options_t options;
    kvbm_load_options_init(&options, sizeof options);
    options.keep_below = 1;
    kvbm_match_t* match = nullptr;
    size_t hits = 0;
    const Stopwatch watch;
    kvbm_status_t status = kvbm_cache_lookup(cache_, keys_.data() + first, n, &lookup, &match, &hits);
    if (status == KVBM_OK && hits == n) {
      status = kvbm_cache_load(cache_, match, ids_.data() + first, n, &options, nullptr, 0);
    }
    const double seconds = watch.seconds();
    kvbm_match_release(match);
    if (hits != n || status != KVBM_OK) {
      return failed("blocks of the other node did not come", hits != n ? KVBM_ERR_MISS : status);
    }
    for (size_t i = first; i < first + n; ++i) {
      const auto byte = static_cast<std::byte>(i);
      const std::byte* block = engine_->data() + i * block_bytes_;
      if (block[0] != byte || block[block_bytes_ - 1] != byte) {
        return Status(Code::damaged, "a block has other bytes than were stored");
      }
    }
    return seconds;
  }

 private:
  Reader() = default;
  std::unique_ptr<node::Member> member_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  std::unique_ptr<Arena> engine_;
  uint64_t block_bytes_ = 0;
  kvbm_cache_t* cache_ = nullptr;
};

Status sample(Asker& plain, uint64_t count, uint64_t bytes, MutableBytes memory, std::vector<double>& out) {
  const Stopwatch watch;
  Status s = plain.get(count, bytes, memory);
  out.push_back(watch.seconds());
  return s;
}

// One turn of each; which goes first alternates.
template <class Ours, class Plain>
Status turn(int round, Ours&& ours, Plain&& plain) {
  Status first = round % 2 == 0 ? ours() : plain();
  if (!first.ok()) return first;
  return round % 2 == 0 ? plain() : ours();
}

// Processes that keep every processor busy.
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

Result<Row> throughput(const std::string& name, const Size& size, Asker& plain, MutableBytes memory, int rounds,
                       terminal::Progress& progress) {
  auto owner = Owner::start(size);
  if (!owner.ok()) return owner.status();
  auto reader = Reader::open(size, owner.value()->address());
  if (!reader.ok()) return reader.status();
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = -1; round < rounds; ++round) {
    const auto load = [&]() -> Status {
      const auto seconds = reader.value()->load(0, size.blocks);
      if (seconds.ok()) ours.push_back(seconds.value());
      return seconds.ok() ? Status{} : seconds.status();
    };
    const Status s = turn(round, load, [&] { return sample(plain, size.blocks, size.bytes, memory, theirs); });
    if (!s.ok()) return s;
    if (round < 0) ours.clear(), theirs.clear();  // the first asks for locations and touches memory
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kSampleBytes) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(theirs), "plain socket, unverified");
}

Result<std::vector<Row>> latency(Asker& plain, MutableBytes memory, int rounds, terminal::Progress& progress) {
  auto owner = Owner::start(kSmall);
  if (!owner.ok()) return owner.status();
  auto reader = Reader::open(kSmall, owner.value()->address());
  if (!reader.ok()) return reader.status();
  if (const auto all = reader.value()->load(0, kSmallBlocks); !all.ok()) return all.status();
  std::vector<double> ours;
  std::vector<double> theirs;
  size_t next = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto loads = [&]() -> Status {
      for (int i = 0; i < kRequestsARound; ++i) {
        const auto seconds = reader.value()->load(next++ % kSmallBlocks, 1);
        if (!seconds.ok()) return seconds.status();
        ours.push_back(seconds.value());
      }
      return {};
    };
    const auto requests = [&]() -> Status {
      Status s;
      for (int i = 0; i < kRequestsARound && s.ok(); ++i) s = sample(plain, 1, kSmallBytes, memory, theirs);
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

// Of this process, a node that is connected to another one, while nothing is asked of either.
Result<Row> idle(int seconds) {
  auto owner = Owner::start(kSmall);
  if (!owner.ok()) return owner.status();
  auto reader = Reader::open(kSmall, owner.value()->address());
  if (!reader.ok()) return reader.status();
  if (const auto one = reader.value()->load(0, 1); !one.ok()) return one.status();
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double percent = 100 * (processor_seconds() - before) / seconds;
  return less_is_better("node.idle_cpu_percent", percent, "%", kIdlePercent, "what is allowed");
}

}  // namespace

Result<std::vector<Row>> bench_node_tcp(const NodeTcpOptions& options) {
  auto plain = plain_asker(kSampleBytes);
  if (!plain.ok()) return plain.status();
  ArenaOptions arena;
  arena.bytes = kSampleBytes;
  const auto target = Arena::map(arena);
  if (!target.ok()) return target.status();
  const MutableBytes memory(target.value()->data(), kSampleBytes);
  terminal::Progress progress(
      "loading from a node",
      (std::size(kSizes) + 1) * (static_cast<uint64_t>(options.rounds) + 1) + static_cast<uint64_t>(options.rounds),
      terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const Size& size : kSizes) {
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

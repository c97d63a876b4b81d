#include "benchmark/same_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/crypto/random.h"
#include "base/io/fd.h"
#include "base/io/file.h"
#include "benchmark/node_pair.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kPoolBytes = 256ULL << 20;
constexpr uint64_t kHostSampleBytes = 128ULL << 20;
constexpr size_t kSmallFetches = 20'000;
constexpr int kPatienceMs = 20'000;

struct HostSize {
  const char* name;
  uint64_t bytes;
};
constexpr HostSize kHostSizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};
constexpr uint64_t kHostSmallBytes = 4096;

// Keeps the compiler from removing work with an unused result.
volatile uint64_t host_sink;

// The owner's host memory as the operating system shows it, for the limit: the largest memfd of that process.
class OwnersMemory {
 public:
  static Result<std::unique_ptr<OwnersMemory>> map(pid_t pid) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    auto made = std::make_unique<OwnersMemory>();
    DIR* const entries = opendir(folder.c_str());
    for (const dirent* entry = entries != nullptr ? readdir(entries) : nullptr; entry != nullptr;
         entry = readdir(entries)) {
      made->consider(folder + "/" + entry->d_name);
    }
    if (entries != nullptr) closedir(entries);
    if (made->bytes_ == 0) return Status(Code::unsupported, "the owner's host memory is not shared");
    void* const data = mmap(nullptr, made->bytes_, PROT_READ, MAP_SHARED | MAP_POPULATE, made->fd_.get(), 0);
    if (data == MAP_FAILED) return Status(Code::no_memory, "the owner's host memory cannot be mapped");
    made->data_ = static_cast<const std::byte*>(data);
    return made;
  }
  OwnersMemory() = default;
  ~OwnersMemory() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), bytes_);
  }
  OwnersMemory(const OwnersMemory&) = delete;
  OwnersMemory& operator=(const OwnersMemory&) = delete;
  // Blocks are page-aligned and come first, behind one page.
  [[nodiscard]] const std::byte* block(size_t i, uint64_t bytes) const { return data_ + kIoAlign + i * bytes; }

 private:
  void consider(const std::string& path) {
    char target[64] = {};
    struct stat st {};
    const bool memfd =
        readlink(path.c_str(), target, sizeof target - 1) > 0 && std::strstr(target, "memfd:") != nullptr;
    if (!memfd || stat(path.c_str(), &st) != 0 || static_cast<size_t>(st.st_size) <= bytes_) return;
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return;
    fd_ = std::move(fd);
    bytes_ = static_cast<size_t>(st.st_size);
  }
  Fd fd_;
  size_t bytes_ = 0;
  const std::byte* data_ = nullptr;
};

// Two nodes of this machine, or the owner of a shared tier set and a client.
enum class HostPair : uint8_t { nodes, share };

// Returns a metric of the node; 0 if it has none called `name`.
uint64_t metric(const node::Member& member, const std::string& name) {
  const std::string text = member.metrics();
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + name.size() + 2, nullptr, 10);
}

class Measurement {
 public:
  static Result<std::unique_ptr<Measurement>> open(uint64_t bytes, HostPair kind) {
    auto made = std::make_unique<Measurement>();
    made->kind_ = kind;
    made->bytes_ = bytes;
    made->blocks_ = static_cast<size_t>(kPoolBytes / bytes);
    NodePairOptions pair;
    pair.block_bytes = bytes;
    pair.blocks = static_cast<uint32_t>(made->blocks_);
    pair.host_bytes = kPoolBytes + kPoolBytes / 4;
    pair.local = "auto";
    if (kind == HostPair::share) {
      char directory[] = "/tmp/kvbm-bench-share-XXXXXX";
      if (mkdtemp(directory) == nullptr) return Status(Code::io_error, "no directory for a shared tier set", directory);
      made->directory_ = pair.share = directory;
    }
    auto owner = NodeOwner::start(pair);
    if (!owner.ok()) return owner.status();
    made->owner_ = std::move(owner).value();
    auto reader = NodeReader::open(pair, made->owner_->address());
    if (!reader.ok()) return reader.status();
    made->reader_ = std::move(reader).value();
    if (Status s = made->wait_for_local(); !s.ok()) return s;
    auto memory = OwnersMemory::map(made->owner_->pid());
    if (!memory.ok()) return memory.status();
    made->memory_ = std::move(memory).value();
    return made;
  }

  Measurement() = default;
  ~Measurement() {
    reader_.reset();
    owner_.reset();
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  [[nodiscard]] size_t blocks() const { return blocks_; }
  // Loads every block until none comes over the link. All places are then known and all pages mapped.
  Status warm() {
    for (int tries = 0; tries < 10; ++tries) {
      const uint64_t before = local_bytes();
      for (size_t at = 0; at < blocks_; at += batch()) {
        if (Status s = reader_->load(at, batch()); !s.ok()) return s;
      }
      if (local_bytes() - before == kPoolBytes) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return {Code::wrong_state, "blocks of the other node come over the link", "they are on the same machine"};
  }
  [[nodiscard]] size_t batch() const { return blocks_ / 2; }
  Status find(size_t first, size_t n) { return reader_->find(first, n); }
  Status fetch() { return reader_->fetch(); }
  Status check() const { return reader_->check(0, blocks_); }
  void plain(size_t first, size_t n) {
    for (size_t i = first; i < first + n; ++i) {
      std::byte* const to = reader_->engine().data() + i * bytes_;
      std::memcpy(to, memory_->block(i, bytes_), bytes_);
      host_sink = static_cast<uint64_t>(*to);
    }
  }
  // Returns the bytes of the records read in place so far.
  [[nodiscard]] uint64_t local_bytes() const {
    if (kind_ == HostPair::share) return metric(reader_->member(), "kvbm_share_in_place_bytes_total");
    uint64_t bytes = 0;
    for (const kvbm_node_row_t& row : reader_->member().nodes()) bytes += row.local_bytes;
    return bytes;
  }

 private:
  Status wait_for_local() const {
    if (kind_ == HostPair::share) {
      if (metric(reader_->member(), "kvbm_share_in_place") != 0) return {};
      return {Code::unsupported, "the owner of a shared tier set does not share its memory"};
    }
    std::string why;
    for (int waited = 0; waited < kPatienceMs; ++waited) {
      for (const kvbm_node_row_t& row : reader_->member().nodes()) {
        if (std::strcmp(row.path, "local") == 0) return {};
        why = row.path_reason;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {Code::unsupported, "two nodes of this machine do not share memory", why};
  }

  HostPair kind_ = HostPair::nodes;
  uint64_t bytes_ = 0;
  size_t blocks_ = 0;
  std::string directory_;
  std::unique_ptr<NodeOwner> owner_;
  std::unique_ptr<NodeReader> reader_;
  std::unique_ptr<OwnersMemory> memory_;
};

Result<Row> throughput(const HostSize& size, HostPair kind, int rounds, terminal::Progress& progress) {
  auto opened = Measurement::open(size.bytes, kind);
  if (!opened.ok()) return opened.status();
  Measurement& m = *opened.value();
  if (Status s = m.warm(); !s.ok()) return s;
  const uint64_t before = m.local_bytes();
  std::vector<double> ours;
  std::vector<double> theirs;
  Status failed;
  // Loads half of the memory per sample; the other half was last touched by the other kind.
  const auto load = [&](size_t half) {
    Status s = m.find(half * m.batch(), m.batch());
    const ThreadStopwatch watch;
    if (s.ok()) s = m.fetch();
    ours.push_back(watch.seconds());
    if (!s.ok()) failed = std::move(s);
  };
  const auto plain = [&](size_t half) {
    const ThreadStopwatch watch;
    m.plain(half * m.batch(), m.batch());
    theirs.push_back(watch.seconds());
  };
  for (int round = 0; round < rounds && failed.ok(); ++round) {
    const size_t half = static_cast<size_t>(round) / 2 % 2;
    // The first one alternates, so that neither always finds the other's data in the caches.
    if (round % 2 == 0) load(half);
    plain(1 - half);
    if (round % 2 != 0) load(half);
    progress.advance(1);
  }
  if (failed.ok()) failed = m.check();
  if (!failed.ok()) return failed;
  if (m.local_bytes() - before != static_cast<uint64_t>(rounds) * kHostSampleBytes) {
    return Status(Code::wrong_state, "not all of the blocks were read in place");
  }
  const double gigabytes = static_cast<double>(kHostSampleBytes) / 1e9;
  return more_is_better(std::string(kind == HostPair::nodes ? "node.same_host." : "node.share.") + size.name,
                        gigabytes / median(ours), "GB/s", gigabytes / median(theirs), "memcpy of the same memory");
}

struct Latency {
  std::vector<double> p50, p99;
  void add(const std::vector<double>& samples) {
    p50.push_back(quantile(samples, 0.5));
    p99.push_back(quantile(samples, 0.99));
  }
};

template <class Before, class Copy>
std::vector<double> latencies(Measurement& m, Random& random, Before&& before, Copy&& copy) {
  std::vector<double> samples;
  samples.reserve(kSmallFetches);
  for (size_t i = 0; i < kSmallFetches; ++i) {
    const auto block = static_cast<size_t>(random.below(m.blocks()));
    before(block);
    const Stopwatch watch;
    copy(block);
    samples.push_back(watch.ns());
  }
  return samples;
}

Status small(int rounds, terminal::Progress& progress, std::vector<Row>& rows) {
  auto opened = Measurement::open(kHostSmallBytes, HostPair::nodes);
  if (!opened.ok()) return opened.status();
  Measurement& m = *opened.value();
  if (Status s = m.warm(); !s.ok()) return s;
  SeededRandom random(1);
  Latency ours;
  Latency theirs;
  Status failed;
  for (int round = 0; round < rounds && failed.ok(); ++round) {
    const auto keep = [&failed](Status s) {
      if (!s.ok()) failed = std::move(s);
    };
    ours.add(latencies(
        m, random, [&](size_t block) { keep(m.find(block, 1)); }, [&](size_t) { keep(m.fetch()); }));
    theirs.add(latencies(
        m, random, [](size_t) {}, [&m](size_t block) { m.plain(block, 1); }));
    progress.advance(1);
  }
  if (failed.ok()) failed = m.check();
  rows.push_back(less_is_better("node.same_host_4KiB.p50", median(ours.p50) / 1000, "us", median(theirs.p50) / 1000,
                                "memcpy of the same memory"));
  rows.push_back(less_is_better("node.same_host_4KiB.p99", median(ours.p99) / 1000, "us", median(theirs.p99) / 1000,
                                "memcpy of the same memory"));
  return failed;
}

}  // namespace

Result<std::vector<Row>> bench_same_host(const SameHostOptions& options) {
  terminal::Progress progress("reading in place",
                              (2 * std::size(kHostSizes) + 1) * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const HostPair kind : {HostPair::nodes, HostPair::share}) {
    for (const HostSize& size : kHostSizes) {
      auto row = throughput(size, kind, options.rounds, progress);
      if (!row.ok()) return row.status();
      rows.push_back(std::move(row).value());
    }
  }
  if (Status s = small(options.rounds, progress, rows); !s.ok()) return s;
  return rows;
}

}  // namespace kvbm::benchmark

#include "benchmark/disk.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "benchmark/disk_chain.h"
#include "benchmark/disk_share.h"
#include "benchmark/disk_store.h"
#include "benchmark/raw_ring.h"
#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kHeadBytes = 4096;  // of a record of these sizes: one page (lib/tier/disk/README.md)
constexpr uint64_t kRoundBytes = 128 * kMiB;
// Bytes that the library keeps in flight, of reads and of writes (base/io/uring_io.cc).
constexpr uint64_t kFlight = 8 * kMiB;
constexpr uint32_t kReopenBatch = 4096;
constexpr uint64_t kReopenBlockBytes = 4096;
constexpr double kReopenLimit = 1e6;
constexpr double kIndexLimit = 48;
constexpr size_t kLatencyLoads = 1500;  // fifteen beyond the 99th percentile
constexpr size_t kLatencyTurns = 5;
// Loads after a turn of the other kind that are not counted. A disk may still be busy after its writer has stopped.
constexpr size_t kUncountedLoads = 50;
constexpr size_t kLookups = 5000;
constexpr uint32_t kDiskLatencyBlocks = 64;
constexpr double kLatencyFactor = 1.5;

struct DiskSize {
  uint64_t bytes;
  const char* name;
};
constexpr DiskSize kDiskSizes[] = {{256 * 1024, "256KiB"}, {kMiB, "1MiB"}, {4 * kMiB, "4MiB"}};
constexpr size_t kStepsPerVariant = std::size(kDiskSizes);

double speed(uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

// Measures writes and reads of one size, kvbm and raw I/O in turn.
class SizeBench {
 public:
  SizeBench(const std::string& dir, DiskSize size, bool registered)
      : dir_(dir), size_(size), registered_(registered), blocks_(static_cast<uint32_t>(kRoundBytes / size.bytes)) {}

  Status run(int rounds) {
    const uint64_t disk =
        (static_cast<uint64_t>(rounds) + 2) * (kRoundBytes + blocks_ * kHeadBytes) * 5 / 4 + 64 * kMiB;
    auto store = DiskStore::open(dir_ + "/tier", disk, size_.bytes, blocks_);
    if (!store.ok()) return store.status();
    store_ = std::move(store).value();
    for (int round = 0; round < rounds; ++round) {
      if (Status s = measure(round % 2 == 0); !s.ok()) return s;
    }
    store_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(dir_ + "/tier", ignored);
    return {};
  }

  void rows(const std::string& suffix, std::vector<Row>& out) const {
    out.push_back(more_is_better("disk.write." + std::string(size_.name) + suffix, median(write_), "GB/s",
                                 median(raw_write_), raw_name(raw_write_path_, "writes")));
    out.push_back(more_is_better("disk.read." + std::string(size_.name) + suffix, median(read_), "GB/s",
                                 median(raw_read_), raw_name(raw_read_path_, "reads")));
    out.push_back(more_is_better(
        "disk.read_delivered." + std::string(size_.name) + suffix, median(read_), "GB/s", median(raw_delivered_),
        raw_name(raw_read_path_, "reads") + ", and each payload is hashed and copied as it comes"));
  }

 private:
  enum class Reader { ours, raw, delivered };

  // Returns the path that the limit took. Without memlock, or where rings are forbidden, it is another one than
  // requested.
  static std::string raw_name(RawPath path, const char* what) {
    const char* how = path == RawPath::threads ? "raw O_DIRECT pread and pwrite on threads, no io_uring here: "
                      : path == RawPath::registered_ring ? "raw io_uring O_DIRECT, registered buffers: "
                                                         : "raw io_uring O_DIRECT: ";
    return std::string(how) + what + ", head pages included";
  }

  Status measure(bool ours_first) {
    if (Status s = store_->fill(); !s.ok()) return s;
    // The file is preallocated and not written before, like the tier's segments.
    auto file = RawFile::make(dir_, blocks_ * (size_.bytes + kHeadBytes));
    if (!file.ok()) return file.status();
    raw_ = std::make_unique<RawFile>(std::move(file).value());
    for (const bool ours : {ours_first, !ours_first}) {
      if (Status s = ours ? measure_ours(true) : measure_raw(true, false); !s.ok()) return s;
    }
    // This read waits until the disk's work for the writes is over, before a read is timed.
    if (const auto read = raw_->run(raw_load(false, false)); !read.ok()) return read.status();
    std::array<Reader, 3> readers{Reader::ours, Reader::raw, Reader::delivered};
    if (!ours_first) std::reverse(readers.begin(), readers.end());
    for (const Reader reader : readers) {
      const bool ours = reader == Reader::ours;
      if (Status s = ours ? measure_ours(false) : measure_raw(false, reader == Reader::delivered); !s.ok()) return s;
    }
    raw_.reset();
    return {};
  }

  Status measure_ours(bool write) {
    if (!write) {
      if (Status s = store_->empty_host(); !s.ok()) return s;
    }
    const auto seconds = write ? store_->offload() : store_->load(0, blocks_);
    if (!seconds.ok()) return seconds.status();
    (write ? write_ : read_).push_back(speed(blocks_ * size_.bytes, seconds.value()));
    return {};
  }

  [[nodiscard]] RawLoad raw_load(bool write, bool delivered) const {
    RawLoad load;
    load.request_bytes = size_.bytes + kHeadBytes;
    load.requests = blocks_;
    load.depth = static_cast<unsigned>(kFlight / size_.bytes);
    load.write = write;
    load.registered = registered_;
    load.deliver_after = delivered ? kHeadBytes : 0;
    return load;
  }

  Status measure_raw(bool write, bool delivered) {
    const RawLoad load = raw_load(write, delivered);
    const auto took = raw_->run(load);
    if (!took.ok()) return took.status();
    (write ? raw_write_path_ : raw_read_path_) = took.value().path;
    // Of delivered reads only the payloads count, as for kvbm.
    const uint64_t bytes = load.request_bytes - load.deliver_after;
    (delivered ? raw_delivered_
     : write   ? raw_write_
               : raw_read_)
        .push_back(speed(blocks_ * bytes, took.value().seconds));
    return {};
  }

  const std::string dir_;
  const DiskSize size_;
  const bool registered_;
  const uint32_t blocks_;
  std::unique_ptr<DiskStore> store_;
  std::unique_ptr<RawFile> raw_;
  RawPath raw_write_path_ = RawPath::ring;
  RawPath raw_read_path_ = RawPath::ring;
  std::vector<double> write_, read_, raw_write_, raw_read_, raw_delivered_;
};

Result<std::vector<Row>> measure_sizes(const std::string& dir, int rounds, bool registered, const std::string& suffix,
                                       terminal::Progress& progress) {
  std::vector<Row> rows;
  for (const DiskSize& size : kDiskSizes) {
    SizeBench bench(dir, size, registered);
    if (Status s = bench.run(rounds); !s.ok()) return s;
    bench.rows(suffix, rows);
    progress.advance(1);
  }
  return rows;
}

// Forbids this process to lock memory, even if it runs as root.
bool forbid_memlock() {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data) == 0;
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    for (int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  void close_write() { ::close(std::exchange(ends[1], -1)); }
  [[nodiscard]] bool write(const std::string& text) const {
    return ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  [[nodiscard]] std::string read_all() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
};

// Measures the sizes without memlock, in a child, because the limit cannot be raised again.
Result<std::vector<Row>> measure_without_memlock(const std::string& dir, int rounds, terminal::Progress& progress) {
  Pipe pipe;
  const pid_t child = ::fork();
  if (child < 0) return Status(Code::no_memory, "a child process could not be made");
  if (child == 0) {
    if (!forbid_memlock()) _exit(3);
    const auto rows = measure_sizes(dir, rounds, false, ".no_memlock", progress);
    std::ostringstream text;
    text.precision(17);
    if (!rows.ok()) text << "failed " << rows.status().message() << "\n";
    for (size_t i = 0; rows.ok() && i < rows.value().size(); ++i) {
      const Row& row = rows.value()[i];
      text << row.name << " " << row.value << " " << row.limit.value_or(0) << " " << row.limit_name << "\n";
    }
    _exit(pipe.write(text.str()) ? 0 : 4);
  }
  pipe.close_write();
  std::istringstream lines(pipe.read_all());
  int status = 0;
  ::waitpid(child, &status, 0);
  std::vector<Row> rows;
  std::string name;
  while (lines >> name) {
    double value = 0;
    double limit = 0;
    std::string rest;
    if (name != "failed") lines >> value >> limit;
    std::getline(lines >> std::ws, rest);
    if (name == "failed") return Status(Code::io_error, "without memlock", rest);
    rows.push_back(more_is_better(name, value, "GB/s", limit, rest));
  }
  if (rows.empty()) return Status(Code::io_error, "the child without memlock did not finish", std::to_string(status));
  progress.advance(kStepsPerVariant);
  return rows;
}

// Adds the microseconds of `n` loads of one block, after some that are not counted.
Status add_latencies(DiskStore& store, size_t n, std::vector<double>& out) {
  for (size_t i = 0; i < kUncountedLoads + n; ++i) {
    const auto seconds = store.load(i * 7 % store.blocks(), 1);
    if (!seconds.ok()) return seconds.status();
    if (i >= kUncountedLoads) out.push_back(seconds.value() * 1e6);
  }
  return {};
}

// Adds latencies of loads while another thread fills and offloads without a pause.
Status add_busy_latencies(DiskStore& store, size_t n, std::vector<double>& out) {
  std::atomic<bool> stop{false};
  Status wrote;
  std::thread thread([&] {
    while (!stop.load() && wrote.ok()) wrote = store.write_others();
  });
  const Status read = add_latencies(store, n, out);
  stop.store(true);
  thread.join();
  return read.ok() ? wrote : read;
}

// Measures single blocks: lookups, and loads of 1 MiB, idle and beside offload in turns, so that other load on the
// machine affects both.
Status measure_latency(const std::string& dir, std::vector<Row>& rows) {
  auto readable = DiskStore::open(dir + "/tier", 3072 * kMiB, kMiB, kDiskLatencyBlocks);
  if (!readable.ok()) return readable.status();
  DiskStore& store = *readable.value();
  Status status = store.fill();
  if (!status.ok()) return status;
  if (const auto written = store.offload(); !written.ok()) return written.status();
  status = store.empty_host();
  if (!status.ok()) return status;
  const auto looked_up = store.look_up(kDiskLatencyBlocks, kLookups);
  if (!looked_up.ok()) return looked_up.status();
  Row lookup;
  lookup.name = "disk.lookup_batch64";
  lookup.value = looked_up.value();
  lookup.unit = "ns";
  rows.push_back(std::move(lookup));
  std::vector<double> idle;
  std::vector<double> busy;
  for (size_t turn = 0; turn < kLatencyTurns; ++turn) {
    status = add_latencies(store, kLatencyLoads / kLatencyTurns, idle);
    if (status.ok()) status = add_busy_latencies(store, kLatencyLoads / kLatencyTurns, busy);
    if (!status.ok()) return status;
  }
  rows.push_back(less_is_better("disk.read_under_offload_p99", quantile(busy, 0.99), "us",
                                kLatencyFactor * quantile(idle, 0.99), "1.5 x the p99 of idle loads of 1 MiB"));
  return {};
}

uint64_t reopen_disk_bytes(uint64_t records) { return records * 2 * kReopenBlockBytes * 9 / 8 + 512 * kMiB; }

// Stores at least `records`, reports it, and waits to be killed.
[[noreturn]] void write_and_wait(const std::string& dir, uint64_t records, const Pipe& pipe) {
  auto store = DiskStore::open(dir, reopen_disk_bytes(records), kReopenBlockBytes, kReopenBatch);
  Status status = store.ok() ? Status{} : store.status();
  for (uint64_t done = 0; status.ok() && done < records; done += kReopenBatch) {
    status = store.value()->fill();
    if (status.ok()) status = store.value()->offload().status();
  }
  (void)pipe.write(status.ok() ? "ready" : status.message());
  for (;;) ::pause();
}

// Removes the files of the directory from the page cache.
void drop_page_cache(const std::string& dir) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

Status measure_reopen(const std::string& dir, uint64_t records, std::vector<Row>& rows) {
  const std::string tier = dir + "/tier";
  Pipe pipe;
  const pid_t child = ::fork();
  if (child < 0) return {Code::no_memory, "a child process could not be made"};
  if (child == 0) write_and_wait(tier, records, pipe);
  pipe.close_write();
  char said[256] = {};
  const ssize_t n = ::read(pipe.ends[0], said, sizeof said - 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (n <= 0 || std::string(said) != "ready") return {Code::io_error, "the writer failed", said};
  drop_page_cache(tier);
  const Stopwatch watch;
  auto store = DiskStore::open(tier, reopen_disk_bytes(records), kReopenBlockBytes, 1);
  const double seconds = watch.seconds();
  if (!store.ok()) return store.status();
  const kvbm_tier_stats_t stats = store.value()->stats().tiers[1];
  const auto found = static_cast<double>(stats.blocks);
  if (stats.blocks < records) return {Code::damaged, "records were lost", std::to_string(stats.blocks)};
  rows.push_back(more_is_better("disk.reopen", found / seconds, "records/s", kReopenLimit, "what is wanted"));
  rows.push_back(less_is_better("disk.index_bytes", static_cast<double>(stats.metadata_bytes) / found, "bytes",
                                kIndexLimit, "the most that is wanted for an entry only on disk"));
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_disk(const DiskOptions& options) {
  const Scratch scratch(options.dir);
  if (scratch.path().empty()) return Status(Code::invalid_argument, "cannot make a directory in --dir", options.dir);
  terminal::Progress progress("disk", 2 * kStepsPerVariant + 4, terminal::Unit::items, options.quiet);
  auto rows = measure_sizes(scratch.path(), options.rounds, true, "", progress);
  if (!rows.ok()) return rows;
  const auto without = measure_without_memlock(scratch.path(), options.rounds, progress);
  if (!without.ok()) return without.status();
  rows.value().insert(rows.value().end(), without.value().begin(), without.value().end());
  for (const DiskSize& size : kDiskSizes) {
    if (Status s = measure_chain(scratch.path(), size.bytes, size.name, options.rounds, rows.value()); !s.ok())
      return s;
  }
  progress.advance(1);
  if (Status s = measure_payload_share(scratch.path(), rows.value()); !s.ok()) return s;
  progress.advance(1);
  {
    const Scratch own(options.dir);
    if (Status s = measure_latency(own.path(), rows.value()); !s.ok()) return s;
    progress.advance(1);
  }
  const Status reopened = measure_reopen(scratch.path(), options.reopen_records, rows.value());
  if (!reopened.ok()) return reopened;
  progress.finish();
  return rows;
}

}  // namespace kvbm::benchmark

#include "benchmark/same_host.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "benchmark/statistics.h"
#include "codec/leaf_hash.h"
#include "copy/local/fetch.h"
#include "copy/local/unix_transport.h"
#include "terminal/progress.h"
#include "tier/host/host_arena.h"

namespace kvbm::benchmark {

namespace {

using copy::local::RemotePool;
using copy::local::UnixTransport;

constexpr uint64_t kPoolBytes = 256ULL << 20;
constexpr uint64_t kSampleBytes = 128ULL << 20;
constexpr int kSmallFetches = 20'000;
constexpr double kPatienceNs = 60e9;

struct Size {
  const char* name;
  uint64_t bytes;
};
constexpr Size kSizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};
constexpr uint64_t kSmallBytes = 4096;

// What keeps the compiler from dropping work whose result nobody needs.
volatile uint64_t sink;

Key key_of(SlotId slot) {
  Key key;
  const uint64_t number = slot + uint64_t{1};
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

// --- the owner's process

std::unique_ptr<tier::HostArena> make_pool(uint64_t block_bytes) {
  tier::HostOptions options;
  options.block_bytes = block_bytes;
  const uint64_t slot_bytes = block_bytes + tier::HostArena::head_stride(block_bytes);
  options.capacity_bytes = kIoAlign + kPoolBytes / block_bytes * slot_bytes;
  options.touch_threads = 2;
  options.shared = true;
  auto made = tier::HostArena::create(options);
  return made.ok() ? std::move(made).value() : nullptr;
}

bool fill_slot(const tier::HostArena& arena, SlotId slot) {
  const uint64_t bytes = arena.block_bytes();
  std::byte* payload = arena.payload(slot).data();
  for (uint64_t i = 0; i < bytes; i += 8) store_le<uint64_t>(payload + i, (i + slot) * 0x9E3779B97F4A7C15ULL);
  std::vector<codec::Leaf> leaves = codec::opaque_leaves(bytes);
  for (codec::Leaf& leaf : leaves) leaf.hash = codec::leaf_hash({payload + leaf.offset, leaf.stored_bytes});
  codec::Header header;
  header.flags = codec::kOpaque;
  header.key = key_of(slot);
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  header.raw_bytes = header.stored_bytes = bytes;
  return codec::encode_head(header, leaves, {}, arena.head(slot)).ok();
}

struct Owner {
  UnixTransport* link = nullptr;
};

kvbm_transport_host_t silent_host(void* context) {
  kvbm_transport_host_t host{};
  host.struct_size = sizeof host;
  host.context = context;
  host.log = [](void*, int32_t, const char*) {};
  host.accepted = [](void*, uint64_t, const char*) {};
  host.connected = [](void*, uint64_t) {};
  host.message = [](void*, uint64_t, const void*, size_t) {};
  host.writable = [](void*, uint64_t) {};
  host.pushed = [](void*, uint64_t, uint64_t, int32_t) {};
  host.received = [](void*, uint64_t, uint64_t, int32_t, uint64_t) {};
  host.closed = [](void*, uint64_t, int32_t, const char*) {};
  return host;
}

[[noreturn]] void own_pools(const std::string& path, int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::unique_ptr<tier::HostArena>> arenas;
  for (const uint64_t bytes : {kSizes[0].bytes, kSizes[1].bytes, kSizes[2].bytes, kSmallBytes}) {
    auto arena = make_pool(bytes);
    if (arena == nullptr) _exit(1);
    for (SlotId slot = 0; slot < arena->slots(); ++slot) {
      if (!fill_slot(*arena, slot)) _exit(1);
    }
    arenas.push_back(std::move(arena));
  }
  Owner owner;
  kvbm_transport_host_t host = silent_host(&owner);
  host.accepted = [](void* self, uint64_t peer, const char*) {
    UnixTransport& link = *static_cast<Owner*>(self)->link;
    (void)link.admit(peer);
    (void)link.send(peer, {});  // behind the pools: they are all there
  };
  auto link = UnixTransport::open({}, host);
  if (!link.ok()) _exit(1);
  owner.link = link.value().get();
  for (const auto& arena : arenas) {
    if (!owner.link->offer_pool(arena->fd(), arena->shape()).ok()) _exit(1);
  }
  if (!owner.link->listen(path).ok() || write(ready, "x", 1) != 1) _exit(1);
  for (;;) {
    while (owner.link->progress() != 0) {
    }
    pollfd readable{owner.link->fd(), POLLIN, 0};
    poll(&readable, 1, -1);
  }
}

// A child with pools, ended and its directory removed with the object.
class OwnerProcess {
 public:
  ~OwnerProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  Status start() {
    std::string name = std::filesystem::temp_directory_path().string() + "/kvbm-bench-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) return Status(Code::io_error, "cannot make a directory for the socket", name);
    directory_ = name;
    int ends[2];
    if (pipe(ends) != 0) return Status(Code::no_memory, "no descriptors left");
    pid_ = fork();
    if (pid_ == 0) own_pools(path(), ends[1]);
    close(ends[1]);
    char word = 0;
    const bool ready = pid_ > 0 && read(ends[0], &word, 1) == 1;
    close(ends[0]);
    return ready ? Status()
                 : Status(Code::no_memory, "the process that is to own the pools could not make them",
                          "it needs 1.1 GiB of shared memory");
  }
  [[nodiscard]] std::string path() const { return directory_ + "/sock"; }

 private:
  std::string directory_;
  pid_t pid_ = -1;
};

// --- the reader

struct Reader {
  std::unique_ptr<UnixTransport> link;
  bool ready = false;
  std::string failed;
  std::vector<std::shared_ptr<RemotePool>> pools;

  Status open(const std::string& path) {
    kvbm_transport_host_t host = silent_host(this);
    host.message = [](void* self, uint64_t, const void*, size_t) { static_cast<Reader*>(self)->ready = true; };
    host.closed = [](void* self, uint64_t, int32_t, const char* why) { static_cast<Reader*>(self)->failed = why; };
    auto made = UnixTransport::open({}, host);
    if (!made.ok()) return made.status();
    link = std::move(made).value();
    const auto peer = link->connect(path);
    if (!peer.ok()) return peer.status();
    (void)link->admit(peer.value());
    const Stopwatch waiting;
    while (!ready && failed.empty() && waiting.ns() < kPatienceNs) {
      pollfd readable{link->fd(), POLLIN, 0};
      poll(&readable, 1, 100);
      link->progress();
    }
    pools = link->pools(peer.value());
    return ready ? Status() : Status(Code::owner_gone, "the owner of the pools did not answer", failed);
  }
  [[nodiscard]] const RemotePool* of(uint64_t block_bytes) const {
    for (const auto& pool : pools) {
      if (pool->shape().block_bytes == block_bytes) return pool.get();
    }
    return nullptr;
  }
};

// One whole fetch: head, identity, leaves.
bool fetch_slot(const RemotePool& pool, SlotId slot, std::byte* to, MutableBytes room) {
  std::optional<codec::HeadView> head;
  if (copy::local::read_head(pool, slot, Family{}, key_of(slot), room, head) != Code::ok) return false;
  const MutableBytes target{to, static_cast<size_t>(head->header().stored_bytes)};
  return copy::local::fetch_record(pool, slot, *head, target, codec::CopyHint::automatic) == Code::ok;
}

class Measurement {
 public:
  Measurement(const RemotePool& pool, std::byte* target)
      : pool_(pool),
        target_(target),
        bytes_(pool.shape().block_bytes),
        room_(static_cast<size_t>(pool.shape().head_stride)) {
    for (SlotId slot = 0; slot < slots(); ++slot) fetch(slot, slot);  // every page is mapped before a clock runs
  }
  [[nodiscard]] SlotId slots() const { return static_cast<SlotId>(pool_.shape().slots); }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  void fetch(SlotId slot, SlotId place) { ok_ &= fetch_slot(pool_, slot, target_ + place * bytes_, room_); }
  void plain(SlotId slot, SlotId place) {
    std::memcpy(target_ + place * bytes_, pool_.payload(slot).data(), bytes_);
    sink = static_cast<uint64_t>(target_[place * bytes_]);
  }
  // Seconds for one sample, going on where the last one ended.
  template <class Copy>
  double sample(SlotId& at, Copy&& copy) {
    const ThreadStopwatch watch;
    for (uint64_t done = 0; done < kSampleBytes; done += bytes_) {
      copy(at, at);
      at = at + 1 == slots() ? 0 : at + 1;
    }
    return watch.seconds();
  }

 private:
  const RemotePool& pool_;
  std::byte* const target_;
  const uint64_t bytes_;
  std::vector<std::byte> room_;
  bool ok_ = true;
};

Row compare(const std::string& name, Measurement& m, int rounds, terminal::Progress& progress) {
  std::vector<double> ours;
  std::vector<double> theirs;
  SlotId at[2] = {0, m.slots() / 2};
  const auto fetch = [&m](SlotId slot, SlotId place) { m.fetch(slot, place); };
  const auto plain = [&m](SlotId slot, SlotId place) { m.plain(slot, place); };
  for (int round = 0; round < rounds; ++round) {
    // Which goes first alternates, so that neither always finds what the other left in the caches.
    if (round % 2 == 0) ours.push_back(m.sample(at[0], fetch));
    theirs.push_back(m.sample(at[1], plain));
    if (round % 2 != 0) ours.push_back(m.sample(at[0], fetch));
    progress.advance(1);
  }
  const double gigabytes = static_cast<double>(kSampleBytes) / 1e9;
  return more_is_better(name, gigabytes / median(ours), "GB/s", gigabytes / median(theirs),
                        "memcpy of the same memory");
}

struct Latency {
  std::vector<double> p50, p99;
  void add(std::vector<double>& samples) {
    p50.push_back(quantile(samples, 0.5));
    p99.push_back(quantile(samples, 0.99));
  }
};

template <class Copy>
std::vector<double> latencies(Measurement& m, Random& random, Copy&& copy) {
  std::vector<double> samples;
  samples.reserve(kSmallFetches);
  for (int i = 0; i < kSmallFetches; ++i) {
    const auto slot = static_cast<SlotId>(random.below(m.slots()));
    const auto place = static_cast<SlotId>(i) % m.slots();
    const Stopwatch watch;
    copy(slot, place);
    samples.push_back(watch.ns());
  }
  return samples;
}

void small(Measurement& m, int rounds, terminal::Progress& progress, std::vector<Row>& rows) {
  SeededRandom random(1);
  Latency ours;
  Latency theirs;
  for (int round = 0; round < rounds; ++round) {
    auto fetched = latencies(m, random, [&m](SlotId slot, SlotId place) { m.fetch(slot, place); });
    auto copied = latencies(m, random, [&m](SlotId slot, SlotId place) { m.plain(slot, place); });
    ours.add(fetched);
    theirs.add(copied);
    progress.advance(1);
  }
  rows.push_back(less_is_better("node.same_host_4KiB.p50", median(ours.p50) / 1000, "us", median(theirs.p50) / 1000,
                                "memcpy of the same memory"));
  rows.push_back(less_is_better("node.same_host_4KiB.p99", median(ours.p99) / 1000, "us", median(theirs.p99) / 1000,
                                "memcpy of the same memory"));
}

}  // namespace

Result<std::vector<Row>> bench_same_host(const SameHostOptions& options) {
  OwnerProcess owner;
  if (Status s = owner.start(); !s.ok()) return s;
  Reader reader;
  if (Status s = reader.open(owner.path()); !s.ok()) return s;
  ArenaOptions arena;
  arena.bytes = kPoolBytes;
  arena.touch_threads = 2;
  const auto engine = Arena::map(arena);
  if (!engine.ok()) return engine.status();
  terminal::Progress progress("fetching", (std::size(kSizes) + 1) * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  const Status wrong(Code::damaged, "a fetch from another process's pool failed");
  std::vector<Row> rows;
  for (const Size& size : kSizes) {
    const RemotePool* pool = reader.of(size.bytes);
    if (pool == nullptr) return wrong;
    Measurement measurement(*pool, engine.value()->data());
    rows.push_back(compare(std::string("node.same_host.") + size.name, measurement, options.rounds, progress));
    if (!measurement.ok()) return wrong;
  }
  const RemotePool* pool = reader.of(kSmallBytes);
  if (pool == nullptr) return wrong;
  Measurement measurement(*pool, engine.value()->data());
  small(measurement, options.rounds, progress, rows);
  if (!measurement.ok()) return wrong;
  return rows;
}

}  // namespace kvbm::benchmark

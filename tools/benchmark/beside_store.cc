#include "benchmark/beside_store.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>

#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "kvbm.h"
#include "kvbm_plugin.h"
#include "terminal/temp_directory.h"

namespace kvbm::benchmark {

namespace beside {
namespace {

constexpr uint64_t kBlock = 64 << 10;
constexpr uint64_t kHostBytes = 24 << 20;
constexpr uint64_t kDiskBytes = 256 << 20;
constexpr size_t kBatch = 32;     // blocks of a store call
constexpr size_t kStored = 1024;  // blocks before the measurement: more than the host has
constexpr size_t kRecent = 64;    // newest blocks: the host has them for certain
constexpr size_t kLoad = 4;
constexpr int kLoads = 1500;
constexpr int kStoreEvery = 8;

enum class Kind { works, fails, hangs };
constexpr const char* kNames[] = {"working", "failing", "hanging"};

// A store without objects: puts succeed, fail, or are never answered, and so are gets.
struct Server {
  const kvbm_store_config_t* config = nullptr;
  std::mutex mutex;
  std::set<kvbm_store_op_t*> hanging;
};

kvbm_status_t open_beside(const kvbm_store_config_t* config, uint64_t /*timeout_ns*/, kvbm_store_facts_t* facts,
                          void** out, char* /*message*/) {
  auto beside = std::make_unique<Server>();
  beside->config = config;
  std::snprintf(facts->description, sizeof facts->description, "a store of kvbm bench");
  *out = beside.release();
  return KVBM_OK;
}

template <Kind kind>
void start_beside(void* of, kvbm_store_op_t* const* ops, size_t n) {
  auto& beside = *static_cast<Server*>(of);
  for (size_t i = 0; i < n; ++i) {
    kvbm_store_op_t* const op = ops[i];
    const bool listed = op->kind == KVBM_STORE_LIST;
    if (kind == Kind::hangs && !listed) {
      const std::lock_guard lock(beside.mutex);
      beside.hanging.insert(op);
      continue;
    }
    kvbm_status_t status = op->kind == KVBM_STORE_GET ? KVBM_ERR_MISS : KVBM_OK;
    if (kind == Kind::fails && !listed) status = KVBM_ERR_IO;
    beside.config->finished(beside.config->context, op, status);
  }
}

void cancel_beside(void* of, kvbm_store_op_t* op) {
  auto& beside = *static_cast<Server*>(of);
  {
    const std::lock_guard lock(beside.mutex);
    if (beside.hanging.erase(op) == 0) return;
  }
  beside.config->finished(beside.config->context, op, KVBM_ERR_DEADLINE);
}

void close_beside(void* of) { std::unique_ptr<Server>(static_cast<Server*>(of)).reset(); }

template <Kind kind>
constexpr kvbm_store_table_t kTable = {sizeof(kvbm_store_table_t), KVBM_STORE_ABI, "bench",     nullptr, 0, open_beside,
                                       start_beside<kind>,         cancel_beside,  close_beside};
constexpr const kvbm_store_table_t* kTables[] = {&kTable<Kind::works>, &kTable<Kind::fails>, &kTable<Kind::hangs>};

template <class T, void (*kRelease)(T*)>
struct Release {
  void operator()(T* p) const { kRelease(p); }
};

// A manager with a host, a disk and a store, and an engine of a few blocks.
class World {
 public:
  Status open(const std::string& dir, Kind kind) {
    kvbm_error_t error{};
    kvbm_context_t* context = nullptr;
    kvbm_status_t status = kvbm_context_create(nullptr, &context, &error);
    if (status != KVBM_OK) return failed("no context", status, &error);
    context_.reset(context);
    kvbm_tier_t tiers[2] = {};
    tiers[0].path = dir.c_str();
    tiers[0].capacity_bytes = kDiskBytes;
    tiers[1].store = kTables[static_cast<size_t>(kind)];
    tiers[1].url = "bench://?timeout=200ms&linger=5ms&poll=10ms";
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = kBlock;
    options.host_capacity_bytes = kHostBytes;
    options.tiers = tiers;
    options.n_tiers = 2;
    kvbm_manager_t* manager = nullptr;
    status = kvbm_manager_create(context, &options, &manager, &error);
    if (status != KVBM_OK) return failed("the tiers could not be opened", status, &error);
    manager_.reset(manager);
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "beside";
    kvbm_namespace_t* ns = nullptr;
    status = kvbm_namespace_open(manager, &who, &ns, &error);
    if (status != KVBM_OK) return failed("no namespace", status, &error);
    ns_.reset(ns);
    return attach();
  }

  // Stores `n` new blocks.
  Status store(size_t n) {
    std::array<kvbm_key_t, kBatch> keys;
    for (size_t i = 0; i < n; ++i) keys[i] = key(stored_ + i);
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.unchained = 1;
    const kvbm_status_t status = kvbm_cache_store(cache_.get(), keys.data(), ids_.data(), n, &options, nullptr, 0);
    if (status != KVBM_OK) return failed("blocks could not be stored", status);
    stored_ += n;
    return {};
  }

  // Waits until the disk has what was stored, as far as the store beside it allows.
  Status fill() {
    while (stored_ < kStored) {
      if (Status s = store(kBatch); !s.ok()) return s;
      const kvbm_key_t last = key(stored_ - 1);
      (void)kvbm_manager_offload(manager_.get(), ns_.get(), nullptr, &last, 1, 1, nullptr, 0);
    }
    return {};
  }

  // Returns the nanoseconds of a load of kLoad blocks from `first` on. `from`: the tier that has them.
  Result<double> load(uint64_t first, uint32_t from) {
    std::array<kvbm_key_t, kLoad> keys;
    for (size_t i = 0; i < kLoad; ++i) keys[i] = key(first + i);
    kvbm_lookup_options_t look;
    kvbm_lookup_options_init(&look, sizeof look);
    look.host_only = from == 0 ? 1 : 0;
    kvbm_match_t* found = nullptr;
    size_t n = 0;
    const Stopwatch watch;
    kvbm_status_t status = kvbm_cache_lookup(cache_.get(), keys.data(), kLoad, &look, &found, &n);
    const Match match(found);
    if (status != KVBM_OK || n != kLoad)
      return failed("stored blocks were not found", status == KVBM_OK ? KVBM_ERR_MISS : status);
    kvbm_load_options_t options;
    kvbm_load_options_init(&options, sizeof options);
    options.keep_below = from;
    status = kvbm_cache_load(cache_.get(), match.get(), ids_.data(), kLoad, &options, nullptr, 0);
    if (status != KVBM_OK) return failed("blocks could not be loaded", status);
    return watch.ns();
  }
  [[nodiscard]] uint64_t stored() const { return stored_; }

 private:
  using Context = std::unique_ptr<kvbm_context_t, Release<kvbm_context_t, kvbm_context_release>>;
  using Manager = std::unique_ptr<kvbm_manager_t, Release<kvbm_manager_t, kvbm_manager_release>>;
  using Namespace = std::unique_ptr<kvbm_namespace_t, Release<kvbm_namespace_t, kvbm_namespace_release>>;
  using Cache = std::unique_ptr<kvbm_cache_t, Release<kvbm_cache_t, kvbm_cache_release>>;
  using Match = std::unique_ptr<kvbm_match_t, Release<kvbm_match_t, kvbm_match_release>>;

  static kvbm_key_t key(uint64_t n) {
    kvbm_key_t out{};
    const uint64_t words[2] = {(n + 1) * 0x9E3779B97F4A7C15ULL, n};
    std::memcpy(out.bytes, words, sizeof words);
    return out;
  }
  Status attach() {
    kvbm_tensor_t tensor{engine_.data(), engine_.size(), 0, kBlock};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = kBatch;
    options.parts = &part;
    options.n_parts = 1;
    kvbm_error_t error{};
    kvbm_cache_t* cache = nullptr;
    const kvbm_status_t status = kvbm_cache_attach(manager_.get(), ns_.get(), &options, &cache, &error);
    if (status != KVBM_OK) return failed("the engine's cache could not be attached", status, &error);
    cache_.reset(cache);
    std::iota(ids_.begin(), ids_.end(), 0U);
    return {};
  }

  std::vector<unsigned char> engine_ = std::vector<unsigned char>(kBatch * kBlock, 1);
  std::array<uint32_t, kBatch> ids_;
  Context context_;
  Manager manager_;
  Namespace ns_;
  Cache cache_;
  uint64_t stored_ = 0;
};

struct Tails {
  std::vector<double> host, disk;  // of rounds
};

Status measure(const std::string& dir, Kind kind, Tails& out) {
  World world;
  if (Status s = world.open(dir, kind); !s.ok()) return s;
  if (Status s = world.fill(); !s.ok()) return s;
  std::vector<double> host, disk;
  for (int i = 0; i < kLoads; ++i) {
    if (i % kStoreEvery == 0) {
      if (Status s = world.store(1); !s.ok()) return s;
    }
    const auto at = static_cast<uint64_t>(i) * kLoad;
    const auto near = world.load(world.stored() - kRecent + at % (kRecent - kLoad), 0);
    if (!near.ok()) return near.status();
    host.push_back(near.value());
    const auto far = world.load(at % (kStored / 2), 1);
    if (!far.ok()) return far.status();
    disk.push_back(far.value());
  }
  out.host.push_back(quantile(host, 0.99) / 1e3);
  out.disk.push_back(quantile(disk, 0.99) / 1e3);
  return {};
}

Status measure_all(int rounds, std::vector<Row>& rows) {
  const Scratch scratch(terminal::temp_directory());
  if (scratch.path().empty())
    return {Code::io_error, "no temporary directory could be made", terminal::temp_directory()};
  Tails tails[std::size(kTables)];
  Status status;
  for (int round = 0; round < rounds && status.ok(); ++round) {
    for (size_t kind = 0; kind < std::size(kTables) && status.ok(); ++kind) {
      const std::string own = scratch.path() + "/" + kNames[kind] + std::to_string(round);
      status = measure(own, static_cast<Kind>(kind), tails[kind]);
      std::error_code ignored;
      std::filesystem::remove_all(own, ignored);
    }
  }
  if (!status.ok()) return status;
  for (size_t kind = 1; kind < std::size(kTables); ++kind) {
    const std::string name = std::string("store.beside_") + kNames[kind];
    rows.push_back(less_is_better(name + ".host_p99", median(tails[kind].host), "us", 1.2 * median(tails[0].host),
                                  "1.2 times beside a store that works"));
    rows.push_back(less_is_better(name + ".disk_p99", median(tails[kind].disk), "us", 1.2 * median(tails[0].disk),
                                  "1.2 times beside a store that works"));
  }
  return {};
}

}  // namespace
}  // namespace beside

Status measure_beside_store(int rounds, std::vector<Row>& rows) { return beside::measure_all(rounds, rows); }

}  // namespace kvbm::benchmark

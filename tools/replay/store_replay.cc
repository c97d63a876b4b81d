#include "replay/store_replay.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

namespace kvbm::replay {

namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

// Returns SplitMix64's finaliser over (node, word): every 8 bytes differ, and loops over it vectorise.
inline uint64_t word_of(uint64_t node, uint64_t i) {
  uint64_t z = node * 0x9E3779B97F4A7C15ULL + i * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 31)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 29);
}

template <class T, void (*kRelease)(T*)>
struct Release {
  void operator()(T* p) const { kRelease(p); }
};
// Limit on a lookup's wait for answers of nodes. A node that is down costs this time once.
constexpr uint64_t kAskNodesNs = 200'000'000;

using Context = std::unique_ptr<kvbm_context_t, Release<kvbm_context_t, kvbm_context_release>>;
using Manager = std::unique_ptr<kvbm_manager_t, Release<kvbm_manager_t, kvbm_manager_release>>;
using Namespace = std::unique_ptr<kvbm_namespace_t, Release<kvbm_namespace_t, kvbm_namespace_release>>;
using Cache = std::unique_ptr<kvbm_cache_t, Release<kvbm_cache_t, kvbm_cache_release>>;
using Match = std::unique_ptr<kvbm_match_t, Release<kvbm_match_t, kvbm_match_release>>;

Status failed(const char* what, kvbm_status_t status, const kvbm_error_t& error) {
  return {static_cast<Code>(status), what, error.message[0] != '\0' ? error.message : kvbm_status_text(status)};
}

// The library's warnings, such as those of a full file system. Called on any of its threads.
class Warnings {
 public:
  static constexpr size_t kMost = 8;

  static void take(void* self, int32_t /*level*/, const char* component, const char* text) noexcept try {
    auto& all = *static_cast<Warnings*>(self);
    std::string line = std::string(component) + ": " + text;
    std::lock_guard lock(all.mutex_);
    if (all.lines_.size() == kMost || std::find(all.lines_.begin(), all.lines_.end(), line) != all.lines_.end()) return;
    all.lines_.push_back(std::move(line));
  } catch (const std::bad_alloc&) {
    return;  // drops the warning
  }
  [[nodiscard]] std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// State shared by all engine threads.
struct Shared {
  const trace::Trace& trace;
  const PathTrace& paths;
  const StoreOptions& options;
  kvbm_manager_t* manager;
  kvbm_namespace_t* ns;
  std::vector<kvbm_key_t> keys;           // by node
  std::vector<std::atomic<bool>> stored;  // by node: stored by this run
  std::atomic<uint64_t> next{0};
  std::mutex mutex;  // guards the members below
  StoreProgress so_far;
  StoreResult total;
  Status failure;
};

// Waits until stored blocks have reached the tiers below. A block that a tier did not take is a miss later, and is
// counted as the tier's error.
Status settle(kvbm_manager_t* manager) {
  const kvbm_status_t status = kvbm_manager_flush(manager, 60'000'000'000ULL);
  return status >= 0 ? Status{} : failed("the offload queue did not drain in a minute", status, {});
}

// An engine: its paged cache and its share of the requests.
class Engine {
 public:
  explicit Engine(Shared& shared) : shared_(shared) {}

  Status open() {
    uint32_t most = 1;
    for (const PathTrace::Path& path : shared_.paths.paths) most = std::max(most, path.count);
    memory_.resize(most * shared_.options.block_bytes);
    ids_.resize(most);
    status_.resize(most);
    // Ids are out of order, as in an engine after a while: the odd ones backwards, then the even ones.
    for (uint32_t i = 0; i < most; ++i) ids_[i] = i < most / 2 ? 2 * (most / 2 - i) - 1 : 2 * (i - most / 2);
    kvbm_tensor_t tensor{memory_.data(), memory_.size(), 0, shared_.options.block_bytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = most;
    options.parts = &part;
    options.n_parts = 1;
    kvbm_error_t error{};
    kvbm_cache_t* cache = nullptr;
    const kvbm_status_t status = kvbm_cache_attach(shared_.manager, shared_.ns, &options, &cache, &error);
    if (status != KVBM_OK) return failed("the engine's cache could not be attached", status, error);
    cache_.reset(cache);
    return {};
  }

  Status run() {
    const uint64_t end = std::min<uint64_t>(shared_.paths.paths.size(),
                                            shared_.options.first + std::min(shared_.options.limit, uint64_t{1} << 60));
    while (!stopped()) {
      const uint64_t at = shared_.options.first + shared_.next.fetch_add(1, std::memory_order_relaxed);
      if (at >= end) break;
      const Status served = serve(at);
      if (!served.ok()) return served;
      report();
    }
    std::lock_guard lock(shared_.mutex);
    add_to(shared_.total);
    return {};
  }

 private:
  [[nodiscard]] bool stopped() const {
    const std::atomic<bool>* stop = shared_.options.stop;
    return stop != nullptr && stop->load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::byte* block(size_t i) { return memory_.data() + ids_[i] * shared_.options.block_bytes; }

  Status serve(uint64_t at) {
    const PathTrace::Path path = shared_.paths.paths[at];
    const uint32_t* nodes = shared_.paths.nodes.data() + path.first;
    std::vector<kvbm_key_t> keys(path.count);
    for (uint32_t i = 0; i < path.count; ++i) keys[i] = shared_.keys[nodes[i]];
    size_t good = 0;
    const Status loaded = load(nodes, keys, good);
    if (!loaded.ok()) return loaded;
    mine_.requests += 1;
    mine_.block_refs += path.count;
    mine_.hits += good;
    const uint64_t tokens = shared_.trace.requests[at].input_length;
    mine_.tokens += tokens;
    mine_.tokens_saved += std::min<uint64_t>(tokens, good * uint64_t{shared_.trace.tokens_per_block});
    const Status stored = store(nodes, keys, good);
    return stored.ok() && shared_.options.settle ? settle(shared_.manager) : stored;
  }

  // Adds this engine's counts since its last report.
  void report() {
    if (!shared_.options.progress) return;
    std::lock_guard lock(shared_.mutex);
    StoreProgress& p = shared_.so_far;
    p.requests += mine_.requests - reported_.requests;
    p.block_refs += mine_.block_refs - reported_.block_refs;
    p.hits += mine_.hits - reported_.hits;
    p.tokens += mine_.tokens - reported_.tokens;
    p.tokens_saved += mine_.tokens_saved - reported_.tokens_saved;
    p.verified_blocks += mine_.verified_blocks - reported_.verified_blocks;
    p.wrong_blocks += mine_.wrong_blocks - reported_.wrong_blocks;
    reported_ = mine_;
    shared_.options.progress(p);
  }

  Status load(const uint32_t* nodes, const std::vector<kvbm_key_t>& keys, size_t& good) {
    kvbm_match_t* found = nullptr;
    size_t matched = 0;
    kvbm_lookup_options_t look;
    kvbm_lookup_options_init(&look, sizeof look);
    if (!shared_.options.peers.empty()) look.ask_nodes_ns = kAskNodesNs;
    const kvbm_status_t status = kvbm_cache_lookup(cache_.get(), keys.data(), keys.size(), &look, &found, &matched);
    if (status != KVBM_OK) return failed("a lookup failed", status, {});
    const Match match(found);
    if (matched == 0) return {};
    const size_t part = shared_.options.load_blocks == 0 ? matched : shared_.options.load_blocks;
    for (size_t first = 0; first < matched && good == first; first += part) {
      const size_t n = std::min(part, matched - first);
      const Status loaded = load_part(match.get(), first, n);
      if (!loaded.ok()) return loaded;
      while (good < first + n && status_[good] == KVBM_OK) ++good;
    }
    mine_.failed_blocks += matched - good;
    // Blocks after the first failed one cannot be used: parts behind it are not asked for.
    if (good < matched) mine_.failed_as[status_[good]] += matched - good;
    for (size_t i = 0; i < good; ++i) {
      if (!shared_.stored[nodes[i]].load(std::memory_order_relaxed)) ++mine_.found_again;
      if (!shared_.options.verify) continue;
      ++mine_.verified_blocks;
      if (!check_block(nodes[i], block(i), shared_.options.block_bytes)) ++mine_.wrong_blocks;
    }
    return {};
  }

  // Loads `n` blocks of a match from `first` on. A failing tier costs only its blocks, which are computed.
  Status load_part(kvbm_match_t* match, size_t first, size_t n) {
    kvbm_load_options_t options;
    kvbm_load_options_init(&options, sizeof options);
    options.first_key = static_cast<uint32_t>(first);
    options.item_status = status_.data() + first;
    const auto began = SteadyClock::now();
    const kvbm_status_t loaded = kvbm_cache_load(cache_.get(), match, ids_.data() + first, n, &options, nullptr, 0);
    mine_.load_seconds += Seconds(SteadyClock::now() - began).count();
    const bool tier_failed = loaded == KVBM_ERR_IO || loaded == KVBM_ERR_TIER_DISABLED;
    if (!tier_failed && (loaded <= -500 || (loaded < 0 && loaded > -300))) return failed("a load failed", loaded, {});
    return {};
  }

  Status store(const uint32_t* nodes, const std::vector<kvbm_key_t>& keys, size_t from) {
    if (from == keys.size()) return {};
    for (size_t i = from; i < keys.size(); ++i) fill_block(nodes[i], block(i), shared_.options.block_bytes);
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.item_status = status_.data();
    if (from != 0) options.parent = &keys[from - 1];
    const auto began = SteadyClock::now();
    const kvbm_status_t status = kvbm_cache_store(cache_.get(), keys.data() + from, ids_.data() + from,
                                                  keys.size() - from, &options, nullptr, 0);
    mine_.store_seconds += Seconds(SteadyClock::now() - began).count();
    if (status <= -500 || (status < 0 && status > -200)) return failed("a store failed", status, {});
    for (size_t i = from; i < keys.size(); ++i) {
      if (status_[i - from] != KVBM_OK) continue;
      ++mine_.stored_blocks;
      shared_.stored[nodes[i]].store(true, std::memory_order_relaxed);
    }
    return {};
  }

  void add_to(StoreResult& total) const {
    total.requests += mine_.requests;
    total.block_refs += mine_.block_refs;
    total.hits += mine_.hits;
    total.verified_blocks += mine_.verified_blocks;
    total.wrong_blocks += mine_.wrong_blocks;
    total.failed_blocks += mine_.failed_blocks;
    for (const auto& [status, blocks] : mine_.failed_as) total.failed_as[status] += blocks;
    total.found_again += mine_.found_again;
    total.stored_blocks += mine_.stored_blocks;
    total.tokens += mine_.tokens;
    total.tokens_saved += mine_.tokens_saved;
    total.load_seconds += mine_.load_seconds;
    total.store_seconds += mine_.store_seconds;
  }

  Shared& shared_;
  std::vector<std::byte> memory_;
  std::vector<uint32_t> ids_;
  std::vector<kvbm_status_t> status_;
  Cache cache_;
  StoreResult mine_;
  StoreResult reported_;
};

// Shows the manager to the observer, and withdraws it before it is released, however the replay ends.
class Opened {
 public:
  Opened(const StoreOptions& options, kvbm_manager_t* manager) : tell_(options.opened) {
    if (tell_) tell_(manager);
  }
  ~Opened() {
    if (tell_) tell_(nullptr);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  const std::function<void(kvbm_manager_t*)>& tell_;
};

// Returns the table of a plug-in library. The library stays loaded, because its code may run until the process ends.
Result<const kvbm_tier_table_t*> load_plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::invalid_argument, "the plug-in cannot be loaded", dlerror());
  const auto* table = static_cast<const kvbm_tier_table_t*>(dlsym(library, "kvbm_plugin_table"));
  if (table == nullptr) return Status(Code::invalid_argument, "the plug-in has no symbol kvbm_plugin_table", path);
  return table;
}

Status make_keys(Shared& shared) {
  // The engine's hash of a block: its node, under a name that no other program uses.
  std::vector<uint8_t> hashes(shared.paths.parent.size() * 16);
  for (size_t node = 0; node < shared.paths.parent.size(); ++node) {
    const uint64_t words[2] = {node, 0x79616C7065724B56ULL};
    std::memcpy(hashes.data() + node * 16, words, sizeof words);
  }
  shared.keys.resize(shared.paths.parent.size());
  const kvbm_status_t made = kvbm_key_from_hashes(shared.ns, hashes.data(), 16, shared.keys.size(), shared.keys.data());
  return made == KVBM_OK ? Status{} : failed("keys could not be made", made, {});
}

// Waits until every address is connected and has reported its tiers, because a block's home is one of the connected
// nodes.
Status wait_for_nodes(kvbm_manager_t* manager) {
  const auto until = SteadyClock::now() + std::chrono::seconds(5);
  for (;;) {
    std::vector<kvbm_node_row_t> rows(64);
    size_t n = 0;
    if (kvbm_manager_nodes(manager, rows.data(), rows.size(), &n) != KVBM_OK) n = 0;
    rows.resize(std::min(n, rows.size()));
    const auto missing =
        std::find_if(rows.begin(), rows.end(), [](const kvbm_node_row_t& row) { return row.capacity_bytes == 0; });
    if (!rows.empty() && missing == rows.end()) return {};
    if (SteadyClock::now() >= until) {
      const std::string what = missing != rows.end() ? std::string(missing->address) + ": " + missing->state : "";
      return {Code::owner_gone, "a node is not connected", what};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Status run_engines(Shared& shared) {
  std::vector<std::thread> threads;
  const auto one = [&shared] {
    Engine engine(shared);
    Status status = engine.open();
    if (status.ok()) status = engine.run();
    if (status.ok()) return;
    std::lock_guard lock(shared.mutex);
    if (shared.failure.ok()) shared.failure = status;
  };
  for (uint32_t i = 1; i < shared.options.threads; ++i) threads.emplace_back(one);
  one();
  for (std::thread& thread : threads) thread.join();
  return shared.failure;
}

}  // namespace

void fill_block(uint64_t node, std::byte* out, size_t bytes) {
  const size_t words = bytes / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t v = word_of(node, i);
    std::memcpy(out + i * 8, &v, 8);
  }
  const uint64_t last = word_of(node, words);
  std::memcpy(out + words * 8, &last, bytes % 8);
}

bool check_block(uint64_t node, const std::byte* bytes, size_t n) {
  const size_t words = n / 8;
  uint64_t different = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t v;
    std::memcpy(&v, bytes + i * 8, 8);
    different |= v ^ word_of(node, i);
  }
  const uint64_t last = word_of(node, words);
  return different == 0 && std::memcmp(bytes + words * 8, &last, n % 8) == 0;
}

namespace {

// Makes the tiers below the host, in order. They point into `options` and `paths_of_disks`.
Status make_tiers(const StoreOptions& options, std::vector<std::string>& paths_of_disks,
                  std::vector<kvbm_tier_t>& tiers) {
  tiers.resize(options.disks.size());
  for (size_t i = 0; i < options.disks.size(); ++i) {
    paths_of_disks.push_back(options.disk_path + (i == 0 ? "" : "-" + std::to_string(i + 1)));
  }
  for (size_t i = 0; i < options.disks.size(); ++i) {
    tiers[i].path = paths_of_disks[i].c_str();
    tiers[i].codec = options.codec.c_str();
    tiers[i].capacity_bytes = options.disks[i];
  }
  for (const std::string& url : options.stores) {
    tiers.emplace_back();
    tiers.back().url = url.c_str();
  }
  if (!options.plugin.empty()) {
    const auto table = load_plugin(options.plugin);
    if (!table.ok()) return table.status();
    tiers.emplace_back();
    tiers.back().table = table.value();
  }
  for (size_t i = 0; i < tiers.size() && i < options.admissions.size(); ++i) tiers[i].admission = options.admissions[i];
  return {};
}

}  // namespace

Result<StoreResult> replay_store(const trace::Trace& trace, const PathTrace& paths, const StoreOptions& options) {
  kvbm_error_t error{};
  kvbm_context_t* raw_context = nullptr;
  kvbm_context_options_t context_options;
  kvbm_context_options_init(&context_options, sizeof context_options);
  Warnings warnings;  // outlives the context
  context_options.log = &Warnings::take;
  context_options.log_user = &warnings;
  context_options.log_level = KVBM_LOG_WARNING;
  const kvbm_setting_t nodes[] = {{"node.peers", options.peers.c_str()}, {"node.admission", "all"}};
  if (!options.peers.empty()) {
    context_options.settings = nodes;
    context_options.n_settings = std::size(nodes);
  }
  kvbm_status_t status = kvbm_context_create(&context_options, &raw_context, &error);
  if (status != KVBM_OK) return failed("no context", status, error);
  const Context context(raw_context);

  std::vector<std::string> paths_of_disks;
  std::vector<kvbm_tier_t> tiers;
  if (const Status s = make_tiers(options, paths_of_disks, tiers); !s.ok()) return s;
  kvbm_manager_options_t manager_options;
  kvbm_manager_options_init(&manager_options, sizeof manager_options);
  manager_options.block_bytes = options.block_bytes;
  manager_options.host_capacity_bytes = options.host_bytes;
  manager_options.policy = options.policy.empty() ? nullptr : options.policy.c_str();
  manager_options.tiers = tiers.data();
  manager_options.n_tiers = tiers.size();
  kvbm_manager_t* raw_manager = nullptr;
  status = kvbm_manager_create(context.get(), &manager_options, &raw_manager, &error);
  if (status != KVBM_OK) return failed("the tiers could not be opened", status, error);
  const Manager manager(raw_manager);
  if (!options.peers.empty()) {
    const Status joined = wait_for_nodes(manager.get());
    if (!joined.ok()) return joined;
  }

  kvbm_namespace_options_t ns_options;
  kvbm_namespace_options_init(&ns_options, sizeof ns_options);
  const std::string model = "replay of " + std::to_string(options.block_bytes) + "-byte blocks";
  ns_options.model = model.c_str();
  kvbm_namespace_t* raw_ns = nullptr;
  status = kvbm_namespace_open(manager.get(), &ns_options, &raw_ns, &error);
  if (status != KVBM_OK) return failed("no namespace", status, error);
  const Namespace ns(raw_ns);

  Shared shared{
      trace, paths, options, manager.get(), ns.get(), {}, std::vector<std::atomic<bool>>(paths.parent.size()), {}, {},
      {},    {},    {}};
  const Status keyed = make_keys(shared);
  if (!keyed.ok()) return keyed;
  const Opened seen(options, manager.get());
  const auto began = SteadyClock::now();
  const Status ran = run_engines(shared);
  if (!ran.ok()) return ran;
  const Status settled = settle(manager.get());
  if (!settled.ok()) return settled;
  shared.total.seconds = Seconds(SteadyClock::now() - began).count();
  shared.total.block_bytes = options.block_bytes;
  shared.total.stats.struct_size = sizeof shared.total.stats;
  kvbm_manager_stats(manager.get(), &shared.total.stats);
  shared.total.warnings = warnings.lines();
  return shared.total;
}

}  // namespace kvbm::replay

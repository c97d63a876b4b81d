#include "support/pool_member.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

namespace kvbm::test {

namespace {

using SteadyClock = std::chrono::steady_clock;

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

constexpr uint64_t kStep = 0x9E3779B97F4A7C15ULL;

uint64_t seed_of(uint64_t salt, uint64_t index) { return mixed(mixed(salt * kStep + 1) + index); }

}  // namespace

// ---- What blocks are ----

kvbm_key_t PoolMember::key_of(uint64_t salt, uint64_t index) {
  const uint64_t seed = seed_of(salt, index);
  const std::array<uint64_t, 2> words = {mixed(seed + 2), mixed(seed + 3)};
  kvbm_key_t key{};
  std::memcpy(key.bytes, words.data(), sizeof key.bytes);
  return key;
}

std::vector<kvbm_key_t> PoolMember::keys_of(uint64_t salt, uint64_t first, size_t n) {
  std::vector<kvbm_key_t> keys;
  for (uint64_t i = first; i < first + n; ++i) keys.push_back(key_of(salt, i));
  return keys;
}

void PoolMember::fill(void* block, uint64_t bytes, uint64_t salt, uint64_t index) {
  auto* words = static_cast<uint64_t*>(block);
  uint64_t word = seed_of(salt, index);
  for (uint64_t i = 2; i < bytes / sizeof word; ++i) words[i] = word += kStep;
  words[0] = salt;
  words[1] = index;
}

bool PoolMember::is_right(const void* block, uint64_t bytes, const kvbm_key_t& key) {
  const auto* words = static_cast<const uint64_t*>(block);
  const kvbm_key_t said = key_of(words[0], words[1]);
  if (std::memcmp(said.bytes, key.bytes, sizeof key.bytes) != 0) return false;
  uint64_t word = seed_of(words[0], words[1]);
  uint64_t differs = 0;
  for (uint64_t i = 2; i < bytes / sizeof word; ++i) differs |= words[i] ^ (word += kStep);
  return differs == 0;
}

// ---- Life ----

void PoolMember::keep_line(void* self, int32_t /*level*/, const char* component, const char* text) {
  auto* member = static_cast<PoolMember*>(self);
  const std::lock_guard<std::mutex> lock(member->log_mutex_);
  if (member->log_.size() < 10'000) member->log_.push_back(std::string(component) + ": " + text);
}

std::unique_ptr<PoolMember> PoolMember::open(const MemberSetup& setup, std::string* error) {
  std::unique_ptr<PoolMember> out(new PoolMember);
  out->setup_ = setup;
  kvbm_error_t why{};
  const kvbm_status_t made = out->make(why);
  if (made == KVBM_OK) return out;
  const std::string text = why.message[0] != '\0' ? why.message : kvbm_status_text(made);
  if (error != nullptr) {
    *error = text;
  } else {
    std::printf("a member could not be made: %s\n", text.c_str());
  }
  return nullptr;
}

kvbm_status_t PoolMember::make(kvbm_error_t& error) {
  std::vector<std::pair<std::string, std::string>> all = {{"node.listen", setup_.listen},
                                                          {"node.peers", setup_.peers},
                                                          {"node.name", setup_.name},
                                                          {"node.pool", setup_.pool},
                                                          {"node.local", setup_.local},
                                                          {"node.key_file", setup_.key_file},
                                                          {"node.staging", std::to_string(setup_.staging_bytes)}};
  all.insert(all.end(), setup_.settings.begin(), setup_.settings.end());
  std::vector<kvbm_setting_t> settings;
  for (const auto& [key, value] : all) settings.push_back({key.c_str(), value.c_str()});
  kvbm_context_options_t context;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings.data();
  context.n_settings = settings.size();
  context.log = keep_line;
  context.log_user = this;
  context.log_level = KVBM_LOG_INFO;
  kvbm_status_t status = kvbm_context_create(&context, &context_, &error);
  if (status != KVBM_OK) return status;
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = setup_.block_bytes;
  options.host_capacity_bytes = 4096 + setup_.host_blocks * (setup_.block_bytes + 4096);
  status = kvbm_manager_create(context_, &options, &manager_, &error);
  if (status != KVBM_OK) return status;
  kvbm_namespace_options_t ns;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = setup_.model.c_str();
  status = kvbm_namespace_open(manager_, &ns, &ns_, &error);
  if (status != KVBM_OK) return status;
  // Counts the slots by allocating until no slot is free.
  std::vector<kvbm_block_t> taken;
  for (kvbm_block_t one = 0;
       setup_.counts_slots && kvbm_manager_allocate(manager_, ns_, 1, &one, nullptr, 0, nullptr) == KVBM_OK;) {
    taken.push_back(one);
  }
  slots_ = taken.size();
  kvbm_block_release(manager_, taken.data(), taken.size());
  if (setup_.engine_blocks == 0) return status;
  engine_.resize(setup_.engine_blocks * setup_.block_bytes / sizeof(uint64_t));
  kvbm_tensor_t tensor{engine_.data(), engine_.size() * sizeof(uint64_t), 0, setup_.block_bytes};
  kvbm_cache_part_t part{};
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_t cache;
  kvbm_cache_options_init(&cache, sizeof cache);
  cache.n_blocks = setup_.engine_blocks;
  cache.parts = &part;
  cache.n_parts = 1;
  return kvbm_cache_attach(manager_, ns_, &cache, &cache_, &error);
}

PoolMember::~PoolMember() {
  kvbm_cache_release(cache_);
  kvbm_namespace_release(ns_);
  kvbm_manager_release(manager_);
  kvbm_context_release(context_);
}

// ---- Blocks in, out and across ----

kvbm_status_t PoolMember::put(uint64_t salt, uint64_t first, size_t n) {
  std::vector<kvbm_block_t> blocks(n);
  std::vector<kvbm_view_t> views(n);
  const std::vector<kvbm_key_t> keys = keys_of(salt, first, n);
  kvbm_status_t status = kvbm_manager_allocate(manager_, ns_, n, blocks.data(), nullptr, 0, nullptr);
  if (status != KVBM_OK) return status;
  status = kvbm_block_view(manager_, blocks.data(), n, views.data());
  for (size_t i = 0; i < n && status == KVBM_OK; ++i) fill(views[i].data, setup_.block_bytes, salt, first + i);
  kvbm_register_options_t options;
  kvbm_register_options_init(&options, sizeof options);
  options.unchained = 1;
  if (status == KVBM_OK) status = kvbm_manager_complete(manager_, blocks.data(), n, nullptr);
  if (status == KVBM_OK) status = kvbm_manager_register(manager_, ns_, blocks.data(), keys.data(), n, &options);
  kvbm_block_release(manager_, blocks.data(), n);
  return status;
}

kvbm_status_t PoolMember::offer(uint64_t salt, uint64_t first, size_t n) {
  const std::vector<kvbm_key_t> keys = keys_of(salt, first, n);
  return kvbm_manager_offload(manager_, ns_, nullptr, keys.data(), n, 1, nullptr, 0);
}

Loaded PoolMember::load(const std::vector<kvbm_key_t>& keys, std::chrono::nanoseconds ask,
                        std::chrono::nanoseconds timeout, bool keep) {
  Loaded out;
  out.asked = keys.size();
  const auto begun = SteadyClock::now();
  kvbm_lookup_options_t lookup;
  kvbm_lookup_options_init(&lookup, sizeof lookup);
  lookup.mode = KVBM_LOOKUP_EACH;
  lookup.ask_nodes_ns = static_cast<uint64_t>(ask.count());
  kvbm_match_t* match = nullptr;
  out.status = kvbm_cache_lookup(cache_, keys.data(), keys.size(), &lookup, &match, &out.hits);
  std::vector<kvbm_match_item_t> items(keys.size());
  if (out.status == KVBM_OK && out.hits != 0) {
    out.status = kvbm_match_items(match, 0, keys.size(), items.data());
    std::vector<uint32_t> ids(keys.size(), KVBM_NO_BLOCK);
    uint32_t used = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (items[i].tier != KVBM_NO_TIER && used < setup_.engine_blocks) ids[i] = used++;
    }
    std::vector<kvbm_status_t> each(keys.size(), KVBM_ERR_INTERNAL);
    kvbm_load_options_t options;
    kvbm_load_options_init(&options, sizeof options);
    options.keep_below = keep ? 0 : 1;
    options.timeout_ns = static_cast<uint64_t>(timeout.count());
    options.item_status = each.data();
    out.status = kvbm_cache_load(cache_, match, ids.data(), ids.size(), &options, nullptr, 0);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (ids[i] == KVBM_NO_BLOCK) continue;
      const uint64_t* block = engine_.data() + ids[i] * (setup_.block_bytes / sizeof(uint64_t));
      if (each[i] != KVBM_OK) {
        ++out.failed;
      } else if (is_right(block, setup_.block_bytes, keys[i])) {
        ++out.right;
      } else {
        ++out.wrong;
      }
    }
  }
  kvbm_match_release(match);
  out.took = SteadyClock::now() - begun;
  return out;
}

size_t PoolMember::wrong_in_host(size_t* checked) {
  size_t wrong = 0;
  size_t seen = 0;
  uint64_t cursor = 0;
  std::vector<kvbm_scan_row_t> rows(256);
  do {
    size_t n = 0;
    if (kvbm_manager_scan(manager_, &cursor, rows.data(), rows.size(), &n) != KVBM_OK) return SIZE_MAX;
    for (size_t i = 0; i < n; ++i) {
      if (rows[i].tier != 0) continue;
      kvbm_lookup_options_t lookup;
      kvbm_lookup_options_init(&lookup, sizeof lookup);
      lookup.host_only = 1;
      kvbm_match_t* match = nullptr;
      size_t hits = 0;
      kvbm_block_t block = 0;
      kvbm_view_t view{};
      if (kvbm_manager_lookup(manager_, ns_, &rows[i].key, 1, &lookup, &match, &hits) == KVBM_OK && hits == 1 &&
          kvbm_match_blocks(match, 0, 0, 1, &block) == KVBM_OK && block != 0 &&
          kvbm_block_view(manager_, &block, 1, &view) == KVBM_OK) {
        ++seen;
        wrong += view.bytes != setup_.block_bytes || !is_right(view.data, view.bytes, rows[i].key);
      }
      if (block != 0) kvbm_block_release(manager_, &block, 1);
      kvbm_match_release(match);
    }
  } while (cursor != 0);
  if (checked != nullptr) *checked = seen;
  return wrong;
}

// ---- Seeing it ----

std::string PoolMember::address() const {
  std::array<char, 256> text{};
  size_t needed = 0;
  (void)kvbm_manager_node_address(manager_, text.data(), text.size(), &needed);
  return text.data();
}

std::vector<kvbm_node_row_t> PoolMember::nodes() const {
  std::vector<kvbm_node_row_t> rows(64);
  size_t n = 0;
  if (kvbm_manager_nodes(manager_, rows.data(), rows.size(), &n) != KVBM_OK) n = 0;
  rows.resize(std::min(n, rows.size()));
  return rows;
}

size_t PoolMember::ready() const {
  size_t n = 0;
  for (const kvbm_node_row_t& row : nodes()) {
    n += std::strcmp(row.state, "ready") == 0 && row.capacity_bytes != 0 ? 1 : 0;
  }
  return n;
}

std::string PoolMember::states() const {
  std::string out;
  for (const kvbm_node_row_t& row : nodes()) out += std::string(row.address) + ": " + row.state + "\n";
  return out;
}

kvbm_manager_stats_t PoolMember::stats() const {
  kvbm_manager_stats_t out{};
  out.struct_size = sizeof out;
  (void)kvbm_manager_stats(manager_, &out);
  return out;
}

std::string PoolMember::metrics() const {
  size_t needed = 0;
  (void)kvbm_manager_metrics(manager_, nullptr, 0, &needed);
  std::string text(needed + 4096, '\0');
  (void)kvbm_manager_metrics(manager_, text.data(), text.size(), &needed);
  text.resize(std::min(needed, text.size() - 1));
  return text;
}

uint64_t PoolMember::staging_in_use() const {
  const std::string text = metrics();
  const std::string name = "\nkvbm_tier_staging_bytes{tier=\"1\"} ";
  const size_t at = text.find(name);
  return at == std::string::npos ? UINT64_MAX : std::strtoull(text.c_str() + at + name.size(), nullptr, 10);
}

std::string PoolMember::still_busy() const {
  const kvbm_manager_stats_t now = stats();
  const std::pair<const char*, uint64_t> figures[] = {{"holds", now.holds},
                                                      {"pins", now.pins},
                                                      {"matches", now.matches},
                                                      {"operations in flight", now.operations_in_flight},
                                                      {"bytes of staging", staging_in_use()}};
  std::string out;
  for (const auto& [what, value] : figures) {
    if (value != 0) out += std::to_string(value) + " " + what + "; ";
  }
  if (!out.empty()) return out;
  std::vector<kvbm_block_t> all(slots_);
  const kvbm_status_t taken = kvbm_manager_allocate(manager_, ns_, all.size(), all.data(), nullptr, 0, nullptr);
  if (taken != KVBM_OK) return std::string("not all slots are free: ") + kvbm_status_name(taken);
  kvbm_block_release(manager_, all.data(), all.size());
  return "";
}

std::string PoolMember::leftovers(std::chrono::milliseconds within) {
  std::string out;
  wait_until([&] { return (out = still_busy()).empty(); }, within);
  return out;
}

size_t PoolMember::logged(const std::string& text) const {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  return static_cast<size_t>(
      std::count_if(log_.begin(), log_.end(), [&](const std::string& l) { return l.find(text) != std::string::npos; }));
}

std::string PoolMember::log() const {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  std::string out;
  for (const std::string& line : log_) out += line + "\n";
  return out;
}

bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds within) {
  const auto until = SteadyClock::now() + within;
  while (!done()) {
    if (SteadyClock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::chrono::nanoseconds Distribution::most() const {
  return all_.empty() ? std::chrono::nanoseconds(0) : *std::max_element(all_.begin(), all_.end());
}

std::string Distribution::text() const {
  if (all_.empty()) return "none";
  std::vector<std::chrono::nanoseconds> sorted = all_;
  std::sort(sorted.begin(), sorted.end());
  const auto ms = [&](size_t at) { return static_cast<double>(sorted[std::min(at, sorted.size() - 1)].count()) / 1e6; };
  std::array<char, 128> out{};
  std::snprintf(out.data(), out.size(), "n %zu, median %.1f ms, p90 %.1f ms, most %.1f ms", sorted.size(),
                ms(sorted.size() / 2), ms(sorted.size() * 9 / 10), ms(sorted.size() - 1));
  return out.data();
}

}  // namespace kvbm::test

#include "benchmark/store.h"

#include <algorithm>

#include "base/io/file.h"
#include "tier/host/host_arena.h"

namespace kvbm::benchmark {

namespace {

// Returns the capacity for exactly `slots` blocks with their heads, and the page that names a mapping (host_arena.h).
uint64_t capacity_for(uint32_t slots, uint64_t block_bytes) {
  const uint64_t payload = (block_bytes + kIoAlign - 1) / kIoAlign * kIoAlign;
  return kIoAlign + slots * (payload + tier::HostArena::head_stride(block_bytes));
}

}  // namespace

Status failed(const char* what, kvbm_status_t status, const kvbm_error_t* error) {
  const bool told = error != nullptr && error->message[0] != '\0';
  return {static_cast<Code>(status), what, told ? error->message : kvbm_status_text(status)};
}

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options) {
  auto store = std::unique_ptr<Store>(new Store());
  kvbm_error_t error{};
  const kvbm_setting_t setting{"host.managed_hashes", options.managed_hashes};
  kvbm_context_options_t context;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = &setting;
  context.n_settings = options.managed_hashes != nullptr ? 1 : 0;
  kvbm_status_t status = kvbm_context_create(&context, &store->context_, &error);
  if (status != KVBM_OK) return failed("the context could not be made", status, &error);
  kvbm_manager_options_t manager;
  kvbm_manager_options_init(&manager, sizeof manager);
  store->capacity_bytes_ = capacity_for(options.slots, options.block_bytes);
  manager.block_bytes = options.block_bytes;
  manager.host_capacity_bytes = store->capacity_bytes_;
  kvbm_tier_t tier{};
  (options.disk.find("://") != std::string::npos ? tier.url : tier.path) = options.disk.c_str();
  tier.capacity_bytes = options.disk_bytes;
  tier.read_bytes_per_s = options.disk_read_bytes_per_s;
  tier.admission = options.admission;
  tier.codec = options.codec;
  manager.tiers = &tier;
  manager.n_tiers = options.disk.empty() ? 0 : 1;
  status = kvbm_manager_create(store->context_, &manager, &store->manager_, &error);
  if (status != KVBM_OK) return failed("the manager could not be made", status, &error);
  kvbm_namespace_options_t ns;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = "kvbm bench";
  ns.geometry = options.geometry;
  status = kvbm_namespace_open(store->manager_, &ns, &store->ns_, &error);
  if (status != KVBM_OK) return failed("the namespace could not be opened", status, &error);
  return store;
}

Store::~Store() {
  kvbm_namespace_release(ns_);
  kvbm_manager_release(manager_);
  kvbm_context_release(context_);
}

kvbm_manager_stats_t Store::stats() const {
  kvbm_manager_stats_t stats{};
  stats.struct_size = sizeof stats;
  kvbm_manager_stats(manager_, &stats);
  return stats;
}

}  // namespace kvbm::benchmark

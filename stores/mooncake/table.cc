// The table of kvbm_plugin.h that the module exports.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "store.h"

namespace kvbm_mooncake {
namespace {

kvbm_status_t open_checked(const kvbm_store_config_t& config, uint64_t timeout_ns, kvbm_store_facts_t& facts,
                           void** out_store, std::string& message) {
  Settings settings;
  message = read_settings(config, settings);
  if (!message.empty()) return KVBM_ERR_CONFIG;
  auto store = std::make_unique<Store>(std::move(settings), config);
  message = store->open(timeout_ns);
  if (!message.empty()) return KVBM_ERR_UNSUPPORTED;
  facts.features = KVBM_STORE_EVICTS;
  facts.concurrency = store->settings().threads;
  facts.max_object_bytes = store->max_object_bytes();
  std::snprintf(facts.description, sizeof facts.description, "%.150s", store->settings().description().c_str());
  *out_store = store.release();
  return KVBM_OK;
}

kvbm_status_t open_store(const kvbm_store_config_t* config, uint64_t timeout_ns, kvbm_store_facts_t* out_facts,
                         void** out_store, char message[256]) {
  *out_store = nullptr;
  message[0] = '\0';
  if (config->struct_size < sizeof *config || out_facts->struct_size < sizeof *out_facts) {
    std::snprintf(message, 256, "this store needs a newer libkvbm; install both from one release");
    return KVBM_ERR_UNSUPPORTED;
  }
  try {
    std::string text;
    const kvbm_status_t status = open_checked(*config, timeout_ns, *out_facts, out_store, text);
    std::snprintf(message, 256, "%s", text.c_str());
    return status;
  } catch (const std::exception& error) {
    std::snprintf(message, 256, "the store of Mooncake could not be made: %s", error.what());
    return KVBM_ERR_NO_MEMORY;
  }
}

void start_operations(void* store, kvbm_store_op_t* const* ops, size_t n) { static_cast<Store*>(store)->start(ops, n); }
void cancel_operation(void* store, kvbm_store_op_t* op) { static_cast<Store*>(store)->cancel(op); }
void close_store(void* store) { delete static_cast<Store*>(store); }

}  // namespace
}  // namespace kvbm_mooncake

extern "C" __attribute__((visibility("default"))) const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t),
    KVBM_STORE_ABI,
    "mooncake",
    kvbm_mooncake::kOptions,
    kvbm_mooncake::kOptionCount,
    kvbm_mooncake::open_store,
    kvbm_mooncake::start_operations,
    kvbm_mooncake::cancel_operation,
    kvbm_mooncake::close_store,
};

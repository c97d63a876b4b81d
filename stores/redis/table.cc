// The table of kvbm_plugin.h that the module exports.
#include <cstring>
#include <memory>
#include <new>

#include "store.h"

namespace kvbm_redis {
namespace {

void copy_text(const std::string& text, char* out, size_t room) {
  const std::string plain = for_people(text, room - 1);
  std::memcpy(out, plain.c_str(), plain.size() + 1);
}

kvbm_status_t open_store(const kvbm_store_config_t* config, uint64_t timeout_ns, kvbm_store_facts_t* out_facts,
                         void** out_store, char message[256]) {
  *out_store = nullptr;
  message[0] = '\0';
  if (config->struct_size < sizeof *config || out_facts->struct_size < sizeof *out_facts) {
    copy_text("this store needs a newer libkvbm; install both from one release", message, 256);
    return KVBM_ERR_UNSUPPORTED;
  }
  try {
    std::string refused;
    auto settings = read_settings(*config, &refused);
    std::unique_ptr<Tls> tls;
    if (settings && settings->is_tls) tls = Tls::make(*settings, &refused);
    if (!settings || (settings->is_tls && tls == nullptr)) {
      copy_text(refused, message, 256);
      return KVBM_ERR_CONFIG;
    }
    auto store = std::make_unique<Store>(std::move(*settings), std::move(tls), config);
    const Verdict verdict = store->probe(timeout_ns);
    const Settings& used = store->settings();
    if (verdict.status != KVBM_OK) {
      copy_text(verdict.clause, message, 256);
      return verdict.status;
    }
    out_facts->features = KVBM_STORE_EXPIRES | KVBM_STORE_EVICTS;
    out_facts->concurrency = used.connections * 4;
    out_facts->object_bytes = 1 << 20;
    out_facts->max_object_bytes = used.part_bytes * kMaxParts;
    copy_text(used.description(), out_facts->description, sizeof out_facts->description);
    *out_store = store.release();
    return KVBM_OK;
  } catch (const std::exception& error) {
    copy_text(std::string("the Redis store could not be made: ") + error.what(), message, 256);
    return KVBM_ERR_NO_MEMORY;
  }
}

void start_operations(void* store, kvbm_store_op_t* const* ops, size_t n) { static_cast<Store*>(store)->start(ops, n); }
void cancel_operation(void* store, kvbm_store_op_t* op) { static_cast<Store*>(store)->cancel(op); }
void close_store(void* store) { delete static_cast<Store*>(store); }

}  // namespace
}  // namespace kvbm_redis

extern "C" __attribute__((visibility("default"))) const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t),
    KVBM_STORE_ABI,
    "redis",
    kvbm_redis::kOptions,
    kvbm_redis::kOptionCount,
    kvbm_redis::open_store,
    kvbm_redis::start_operations,
    kvbm_redis::cancel_operation,
    kvbm_redis::close_store,
};

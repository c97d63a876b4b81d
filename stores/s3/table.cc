// The table of kvbm_plugin.h that the module exports.
#include <cstring>
#include <memory>
#include <new>

#include "http.h"
#include "store.h"

namespace kvbm_s3 {
namespace {

void copy_text(const std::string& text, char* out, size_t room) {
  const std::string plain = for_people(text, room - 1);
  std::memcpy(out, plain.c_str(), plain.size() + 1);
}

kvbm_status_t open_store(const kvbm_store_config_t* config, uint64_t timeout_ns, kvbm_store_facts_t* out_facts,
                         void** out_store, char message[256]) {
  *out_store = nullptr;
  try {
    init_curl();
    Environment environment = read_environment();
    std::string refused;
    auto settings = read_settings(*config, environment, &refused);
    if (!settings) {
      copy_text(refused, message, 256);
      return KVBM_ERR_CONFIG;
    }
#ifdef KVBM_S3_CLOCK_OFFSET_S  // set in a test's build
    settings->clock_offset_s = KVBM_S3_CLOCK_OFFSET_S;
#endif
    auto store = std::make_unique<Store>(std::move(*settings), std::move(environment), config);
    const Verdict verdict = store->probe(timeout_ns);
    const std::string place = store->settings().description();
    if (verdict.status != KVBM_OK) {
      copy_text(place.substr(0, 120) + ": " + verdict.clause, message, 256);
      return verdict.status;
    }
    out_facts->features = 0;
    out_facts->concurrency = store->settings().connections;
    out_facts->object_bytes = 4 << 20;
    out_facts->max_object_bytes = kMaxObject;
    copy_text(place, out_facts->description, sizeof out_facts->description);
    *out_store = store.release();
    return KVBM_OK;
  } catch (const std::exception& error) {
    copy_text(std::string("the S3 store could not be made: ") + error.what(), message, 256);
    return KVBM_ERR_NO_MEMORY;
  }
}

void start_operations(void* store, kvbm_store_op_t* const* ops, size_t n) { static_cast<Store*>(store)->start(ops, n); }
void cancel_operation(void* store, kvbm_store_op_t* op) { static_cast<Store*>(store)->cancel(op); }
void close_store(void* store) { delete static_cast<Store*>(store); }

}  // namespace
}  // namespace kvbm_s3

extern "C" __attribute__((visibility("default"))) const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t),
    KVBM_STORE_ABI,
    "s3",
    kvbm_s3::kOptions,
    kvbm_s3::kOptionCount,
    kvbm_s3::open_store,
    kvbm_s3::start_operations,
    kvbm_s3::cancel_operation,
    kvbm_s3::close_store,
};

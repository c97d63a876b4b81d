/* A tier as a shared library: records in memory, and nothing else. */
#include "memory_tier.h"

static memory_tier_t tier = {PTHREAD_MUTEX_INITIALIZER, {NULL}, 0, 0};

static void find(void *user, const uint8_t (*names)[32], size_t n, uint8_t *present, uint32_t *heads, uint64_t *payloads) {
  (void)user;
  memory_tier_find(&tier, names, n, present, heads, payloads);
}

static void put(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  size_t i;
  (void)user, (void)timeout_ns;
  for (i = 0; i < n; ++i) status[i] = memory_tier_put_one(&tier, &items[i]);
}

static void get(void *user, kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
  size_t i;
  (void)user, (void)timeout_ns;
  for (i = 0; i < n; ++i) status[i] = memory_tier_get_one(&tier, &items[i]);
}

static void erase(void *user, const uint8_t (*names)[32], size_t n) {
  (void)user;
  memory_tier_erase(&tier, names, n);
}

static void stats(void *user, uint64_t *capacity, uint64_t *used, uint64_t *records) {
  (void)user;
  memory_tier_stats(&tier, capacity, used, records);
}

KVBM_API extern const kvbm_tier_table_t kvbm_plugin_table;
const kvbm_tier_table_t kvbm_plugin_table = {sizeof(kvbm_tier_table_t), 2, "memory", find, put, get, erase, stats};

/* Each limit in kvbm.h at its edge: the last allowed one is accepted, one more is KVBM_ERR_LIMIT without a change, and
 * a released one frees a place. */
#include "engine.h"

enum { kPins = 131071, kFamilies = 65536, kQuotas = 4095, kEpochs = 4096 };

static kvbm_namespace_t *open_tenant(engine_t *e, int64_t number, uint64_t quota) {
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  char tenant[32];
  snprintf(tenant, sizeof tenant, "tenant %ld", (long)number);
  OK(kvbm_namespace_options_init(&who, sizeof who));
  who.model = "test";
  who.tenant = tenant;
  who.quota_bytes = quota;
  OK(kvbm_namespace_open(e->manager, &who, &ns, &check_error));
  return ns;
}

/* Creates one of the objects of the namespace that are limited. */
static kvbm_status_t use(engine_t *e, kvbm_namespace_t *ns) {
  kvbm_key_t key;
  memset(&key, 1, sizeof key);
  return kvbm_manager_hint(e->manager, ns, NULL, &key, 1, KVBM_PRIORITY_KEEP);
}

static uint64_t pins_of(kvbm_manager_t *manager) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(manager, &stats));
  return stats.pins;
}

static void one_block_is_pinned_by_all_who_use_it(void) {
  engine_t e;
  kvbm_key_t keys[2];
  kvbm_pin_t pin = 0, last = 0;
  size_t n = 0, i;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 2));
  engine_keys(&e, 1, 2, keys);
  for (i = 0; i < kPins; ++i) {
    OK(kvbm_manager_pin(e.manager, e.ns, NULL, keys, 1, 1 + i % 64, KVBM_FOREVER, &last, &n));
    CHECK(n == 1 && last != 0);
  }
  CHECK_STATUS(kvbm_manager_pin(e.manager, e.ns, NULL, keys, 2, 1, KVBM_FOREVER, &pin, &n), KVBM_ERR_LIMIT);
  CHECK(n == 0 && pin == 0);
  CHECK_U64(pins_of(e.manager), kPins);
  OK(kvbm_manager_pin(e.manager, e.ns, NULL, keys + 1, 1, 1, KVBM_FOREVER, &pin, &n)); /* another block has its own */
  OK(kvbm_manager_unpin(e.manager, last));
  OK(kvbm_manager_pin(e.manager, e.ns, NULL, keys, 2, 1, KVBM_FOREVER, &pin, &n));
  CHECK_U64(n, 2);
  for (i = 1; i <= 64; ++i) OK(kvbm_manager_unpin_owner(e.manager, i, NULL));
  CHECK_U64(pins_of(e.manager), 0);
  engine_close(&e);
}

static void pins_whose_time_is_over_are_not_in_the_way(void) {
  engine_t e;
  kvbm_key_t key;
  kvbm_pin_t pin = 0;
  size_t n = 0, i;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 1));
  engine_keys(&e, 1, 1, &key);
  for (i = 0; i < 2 * (size_t)kPins; ++i) {
    OK(kvbm_manager_pin(e.manager, e.ns, NULL, &key, 1, i, 1, &pin, &n));
    CHECK_U64(n, 1);
  }
  engine_close(&e);
}

static void namespaces_in_use_have_a_limit_and_closed_ones_make_room(void) {
  static kvbm_namespace_t *tenants[kFamilies];
  engine_t e;
  kvbm_namespace_t *more;
  size_t n = 0, i;
  kvbm_status_t status = KVBM_OK;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 1)); /* one */
  for (; n < kFamilies - 1; ++n) {
    tenants[n] = open_tenant(&e, (int64_t)n, 0);
    status = use(&e, tenants[n]);
    if (status != KVBM_OK) break;
  }
  CHECK_STATUS(status, KVBM_OK);
  CHECK_U64(n, kFamilies - 1);
  more = open_tenant(&e, kFamilies, 0); /* any number can be open */
  CHECK_STATUS(use(&e, more), KVBM_ERR_LIMIT);
  OK(use(&e, tenants[7])); /* namespaces in use stay usable */
  OK(engine_store(&e, 2, 1));
  kvbm_namespace_release(tenants[7]);
  tenants[7] = NULL;
  OK(use(&e, more));
  kvbm_namespace_release(more);
  for (i = 0; i < n; ++i) {
    if (tenants[i] != NULL) kvbm_namespace_release(tenants[i]);
  }
  engine_close(&e);
}

static void quotas_have_a_limit_and_closed_ones_make_room(void) {
  static kvbm_namespace_t *tenants[kQuotas];
  engine_t e;
  kvbm_namespace_t *more;
  size_t i;
  OK(engine_open(&e, 16, NULL, 0));
  for (i = 0; i < kQuotas; ++i) tenants[i] = open_tenant(&e, (int64_t)i, 8 * BLOCK_BYTES);
  more = open_tenant(&e, kQuotas, 0);
  CHECK_STATUS(kvbm_namespace_set_quota(more, 8 * BLOCK_BYTES, KVBM_QUOTA_EVICT), KVBM_ERR_LIMIT);
  kvbm_namespace_release(tenants[7]);
  OK(kvbm_namespace_set_quota(more, 8 * BLOCK_BYTES, KVBM_QUOTA_EVICT));
  kvbm_namespace_release(more);
  for (i = 0; i < kQuotas; ++i) {
    if (i != 7) kvbm_namespace_release(tenants[i]);
  }
  engine_close(&e);
}

static void epochs_have_a_limit_and_closed_namespaces_make_room(void) {
  static kvbm_namespace_t *tenants[kEpochs];
  engine_t e;
  kvbm_namespace_t *more;
  size_t i;
  OK(engine_open(&e, 16, NULL, 0));
  for (i = 0; i < kEpochs; ++i) {
    tenants[i] = open_tenant(&e, (int64_t)i, 0);
    OK(kvbm_namespace_invalidate(tenants[i], &check_error));
  }
  more = open_tenant(&e, kEpochs, 0);
  CHECK_STATUS(kvbm_namespace_invalidate(more, &check_error), KVBM_ERR_LIMIT);
  CHECK(strstr(check_error.message, "4,096") != NULL);
  OK(kvbm_namespace_invalidate(tenants[9], &check_error)); /* has a row already */
  kvbm_namespace_release(tenants[7]);
  OK(kvbm_namespace_invalidate(more, &check_error));
  kvbm_namespace_release(more);
  for (i = 0; i < kEpochs; ++i) {
    if (i != 7) kvbm_namespace_release(tenants[i]);
  }
  engine_close(&e);
}

static void holds_have_a_limit_and_released_ones_make_room(void) {
  static kvbm_block_t held[400000];
  engine_t e;
  kvbm_block_t one = 0;
  kvbm_status_t status = KVBM_OK;
  size_t n = 0;
  OK(engine_open(&e, 16, NULL, 0));
  OK(kvbm_manager_allocate(e.manager, e.ns, 1, &one, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, &one, 1, NULL));
  {
    kvbm_key_t key;
    engine_keys(&e, 1, 1, &key);
    OK(kvbm_manager_register(e.manager, e.ns, &one, &key, 1, NULL));
  }
  while (n < 400000 && (status = kvbm_block_clone(e.manager, &one, 1, &held[n])) == KVBM_OK) ++n;
  CHECK_STATUS(status, KVBM_ERR_LIMIT);
  CHECK(n + 1 >= 65536 + 4 * 16);
  OK(kvbm_block_release(e.manager, &held[--n], 1));
  OK(kvbm_block_clone(e.manager, &one, 1, &held[n++]));
  OK(kvbm_block_release(e.manager, held, n));
  OK(kvbm_block_release(e.manager, &one, 1));
  engine_close(&e);
}

int main(void) {
  RUN(one_block_is_pinned_by_all_who_use_it);
  RUN(pins_whose_time_is_over_are_not_in_the_way);
  RUN(namespaces_in_use_have_a_limit_and_closed_ones_make_room);
  RUN(quotas_have_a_limit_and_closed_ones_make_room);
  RUN(epochs_have_a_limit_and_closed_namespaces_make_room);
  RUN(holds_have_a_limit_and_released_ones_make_room);
  FINISH();
}

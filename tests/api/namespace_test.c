/* Namespaces: identity, separation, epochs, quotas, and forgetting by key, namespace and all. */
#include "engine.h"

static char scratch[256];

static const char *directory(const char *name) {
  static char path[320];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

/* One more namespace of the manager, with a cache over the engine's own memory. */
typedef struct tenant {
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
} tenant_t;

static kvbm_cache_t *attach(engine_t *e, kvbm_namespace_t *ns) {
  kvbm_tensor_t tensor;
  kvbm_cache_part_t part;
  kvbm_cache_options_t layout;
  kvbm_cache_t *cache = NULL;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = e->memory;
  tensor.bytes = (uint64_t)ENGINE_BLOCKS * BLOCK_BYTES;
  tensor.page_bytes = BLOCK_BYTES;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = ENGINE_BLOCKS;
  layout.parts = &part;
  layout.n_parts = 1;
  OK(kvbm_cache_attach(e->manager, ns, &layout, &cache, &check_error));
  return cache;
}

static tenant_t tenant_open(engine_t *e, const char *name, uint64_t quota_blocks, uint32_t mode) {
  kvbm_namespace_options_t who;
  tenant_t t = {NULL, NULL};
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  who.tenant = name;
  who.quota_bytes = quota_blocks * (BLOCK_BYTES + 384);
  who.quota_mode = mode;
  OK(kvbm_namespace_open(e->manager, &who, &t.ns, &check_error));
  if (t.ns != NULL) t.cache = attach(e, t.ns);
  return t;
}

static void tenant_close(tenant_t *t) {
  kvbm_cache_release(t->cache);
  kvbm_namespace_release(t->ns);
  memset(t, 0, sizeof *t);
}

static void keys_of(kvbm_namespace_t *ns, uint32_t first, size_t n, kvbm_key_t *out) {
  uint32_t tokens[256];
  size_t i, made = 0;
  for (i = 0; i < n * 4; ++i) tokens[i] = first + (uint32_t)i;
  OK(kvbm_key_chain(ns, NULL, tokens, n * 4, 4, NULL, out, n, &made));
}

static kvbm_status_t store(tenant_t *t, const kvbm_key_t *keys, size_t n, kvbm_status_t *status) {
  uint32_t ids[64];
  kvbm_store_options_t options;
  size_t i;
  for (i = 0; i < n; ++i) ids[i] = (uint32_t)i;
  kvbm_store_options_init(&options, sizeof options);
  options.item_status = status;
  return kvbm_cache_store(t->cache, keys, ids, n, &options, NULL, 0);
}

static size_t found(kvbm_cache_t *cache, const kvbm_key_t *keys, size_t n) {
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  OK(kvbm_cache_lookup(cache, keys, n, NULL, &match, &hits));
  kvbm_match_release(match);
  return hits;
}

/* Counts the keys that are in the host tier, each by itself. */
static size_t in_host(engine_t *e, kvbm_namespace_t *ns, const kvbm_key_t *keys, size_t n) {
  kvbm_lookup_options_t options;
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = KVBM_LOOKUP_EACH;
  options.host_only = 1;
  OK(kvbm_manager_lookup(e->manager, ns, keys, n, &options, &match, &hits));
  kvbm_match_release(match);
  return hits;
}

static kvbm_manager_stats_t stats_of(engine_t *e) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e->manager, &stats));
  return stats;
}

static void the_id_is_made_of_who_it_is_and_of_nothing_else(void) {
  engine_t a, b;
  kvbm_namespace_options_t who[9];
  uint8_t id[9][16], again[16];
  const uint8_t secret[32] = {1, 2, 3};
  kvbm_component_t component;
  kvbm_geometry_t *geometry = NULL;
  kvbm_namespace_t *ns = NULL;
  size_t i, j;
  OK(engine_open(&a, 8, NULL, 0));
  OK(engine_open(&b, 8, NULL, 0));
  memset(&component, 0, sizeof component);
  component.element = KVBM_ELEMENT_BF16;
  component.layers = component.heads = component.head_dim = 2;
  OK(kvbm_geometry_create(16, 1, &component, 1, &geometry, NULL));
  for (i = 0; i < 9; ++i) {
    kvbm_namespace_options_init(&who[i], sizeof who[i]);
    who[i].model = "m";
  }
  who[1].tenant = "t";
  who[2].model = "n";
  who[3].adapter = "t"; /* an equal text in another field */
  who[4].geometry = geometry;
  who[5].secret = secret;
  who[6].epoch = 1;
  who[7].tenant = "m", who[7].model = "t";
  who[8].model = "mt";
  for (i = 0; i < 9; ++i) {
    OK(kvbm_namespace_open(a.manager, &who[i], &ns, &check_error));
    kvbm_namespace_id(ns, id[i]);
    kvbm_namespace_release(ns);
    who[i].quota_bytes = 64 * BLOCK_BYTES;
    OK(kvbm_namespace_open(b.manager, &who[i], &ns, &check_error));
    kvbm_namespace_id(ns, again);
    kvbm_namespace_release(ns);
    CHECK(memcmp(id[i], again, 16) == 0); /* another manager, a quota: the same namespace */
    for (j = 0; j < i; ++j) CHECK(memcmp(id[i], id[j], 16) != 0);
  }
  who[0].model = NULL;
  CHECK_STATUS(kvbm_namespace_open(a.manager, &who[0], &ns, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "model") != NULL);
  who[0].model = "m", who[0].quota_mode = 2;
  CHECK_STATUS(kvbm_namespace_open(a.manager, &who[0], &ns, &check_error), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_namespace_open(NULL, &who[1], &ns, &check_error), KVBM_ERR_INVALID);
  kvbm_geometry_release(geometry);
  engine_close(&b);
  engine_close(&a);
}

static void namespaces_never_match(void) {
  engine_t e;
  tenant_t a, b;
  kvbm_key_t of_a[6], of_b[6];
  OK(engine_open(&e, 32, NULL, 0));
  a = tenant_open(&e, "a", 0, 0);
  b = tenant_open(&e, "b", 0, 0);
  keys_of(a.ns, 1, 6, of_a);
  keys_of(b.ns, 1, 6, of_b);
  CHECK(memcmp(of_a, of_b, sizeof of_a) != 0);
  OK(store(&a, of_a, 6, NULL));
  CHECK(found(a.cache, of_a, 6) == 6);
  CHECK(found(b.cache, of_b, 6) == 0);
  CHECK(found(b.cache, of_a, 6) == 0); /* the very keys of the other */
  CHECK(found(a.cache, of_b, 6) == 0);
  CHECK_STATUS(kvbm_manager_drop(e.manager, b.ns, NULL, of_a, 6, NULL), KVBM_OK);
  CHECK(found(a.cache, of_a, 6) == 6);
  tenant_close(&b);
  tenant_close(&a);
  engine_close(&e);
}

static void an_ended_epoch_is_never_found_again(void) {
  engine_t e;
  tenant_t a, twin, later;
  kvbm_key_t old[6], fresh[6];
  uint8_t before[16], after[16], twins[16];
  const char *path = directory("epoch");
  OK(engine_open(&e, 32, path, 64 << 20));
  a = tenant_open(&e, "a", 0, 0);
  twin = tenant_open(&e, "a", 0, 0);
  kvbm_namespace_id(a.ns, before);
  keys_of(a.ns, 1, 6, old);
  OK(store(&a, old, 6, NULL));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  CHECK(found(twin.cache, old, 6) == 6);
  OK(kvbm_namespace_invalidate(a.ns, &check_error));
  kvbm_namespace_id(a.ns, after);
  kvbm_namespace_id(twin.ns, twins);
  CHECK(memcmp(before, after, 16) != 0);
  CHECK(memcmp(after, twins, 16) == 0); /* another handle of the namespace moved on with it */
  keys_of(a.ns, 1, 6, fresh);
  CHECK(memcmp(old, fresh, sizeof old) != 0);
  CHECK(found(a.cache, old, 6) == 0);
  CHECK(found(a.cache, fresh, 6) == 0);
  CHECK(found(twin.cache, old, 6) == 0);
  later = tenant_open(&e, "a", 0, 0);
  kvbm_namespace_id(later.ns, twins);
  CHECK(memcmp(after, twins, 16) == 0);
  CHECK(found(later.cache, old, 6) == 0);
  tenant_close(&later);
  OK(store(&a, fresh, 6, NULL));
  CHECK(found(a.cache, fresh, 6) == 6);
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  tenant_close(&twin);
  tenant_close(&a);
  engine_close(&e);
  OK(engine_open(&e, 32, path, 64 << 20)); /* the epoch was persisted */
  a = tenant_open(&e, "a", 0, 0);
  kvbm_namespace_id(a.ns, twins);
  CHECK(memcmp(after, twins, 16) == 0);
  CHECK(found(a.cache, old, 6) == 0);
  CHECK(found(a.cache, fresh, 6) == 6);
  tenant_close(&a);
  engine_close(&e);
}

static void an_ended_epoch_stays_ended_without_a_disk(void) {
  engine_t e;
  tenant_t a;
  kvbm_key_t old[4];
  uint8_t after[16], again[16];
  OK(engine_open(&e, 16, NULL, 0));
  a = tenant_open(&e, "a", 0, 0);
  keys_of(a.ns, 1, 4, old);
  OK(store(&a, old, 4, NULL));
  OK(kvbm_namespace_invalidate(a.ns, NULL));
  kvbm_namespace_id(a.ns, after);
  tenant_close(&a);
  a = tenant_open(&e, "a", 0, 0); /* asks for epoch 0; the manager knows better */
  kvbm_namespace_id(a.ns, again);
  CHECK(memcmp(after, again, 16) == 0);
  CHECK(found(a.cache, old, 4) == 0);
  tenant_close(&a);
  engine_close(&e);
}

static void the_last_epoch_has_none_after_it(void) {
  engine_t e;
  tenant_t a;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *last = NULL;
  kvbm_key_t old[4];
  uint8_t first[16], before[16], after[16];
  OK(engine_open(&e, 16, NULL, 0));
  a = tenant_open(&e, "a", 0, 0);
  kvbm_namespace_id(a.ns, first);
  keys_of(a.ns, 1, 4, old);
  OK(store(&a, old, 4, NULL));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  who.tenant = "a";
  who.epoch = UINT64_MAX;
  OK(kvbm_namespace_open(e.manager, &who, &last, &check_error));
  kvbm_namespace_id(last, before);
  CHECK_STATUS(kvbm_namespace_invalidate(last, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "last epoch") != NULL);
  kvbm_namespace_id(last, after);
  CHECK(memcmp(before, after, 16) == 0 && memcmp(first, after, 16) != 0); /* above all not the first one again */
  kvbm_namespace_release(last);
  tenant_close(&a);
  engine_close(&e);
}

static void invalidating_reaches_what_another_handle_stored(void) {
  engine_t e;
  tenant_t a, fresh;
  kvbm_key_t keys[4];
  OK(engine_open(&e, 16, NULL, 0));
  a = tenant_open(&e, "a", 0, 0);
  keys_of(a.ns, 1, 4, keys);
  OK(store(&a, keys, 4, NULL));
  memset(&fresh, 0, sizeof fresh);
  {
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "test";
    who.tenant = "a";
    OK(kvbm_namespace_open(e.manager, &who, &fresh.ns, &check_error)); /* has looked for nothing yet */
  }
  OK(kvbm_namespace_invalidate(fresh.ns, NULL));
  CHECK(found(a.cache, keys, 4) == 0);
  tenant_close(&fresh);
  tenant_close(&a);
  engine_close(&e);
}

static void resetting_a_namespace_forgets_it_alone(void) {
  engine_t e;
  tenant_t a, b;
  kvbm_key_t of_a[6], of_b[6];
  const char *path = directory("reset");
  OK(engine_open(&e, 32, path, 64 << 20));
  a = tenant_open(&e, "a", 0, 0);
  b = tenant_open(&e, "b", 0, 0);
  keys_of(a.ns, 1, 6, of_a);
  keys_of(b.ns, 1, 6, of_b);
  OK(store(&a, of_a, 6, NULL));
  OK(store(&b, of_b, 6, NULL));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  OK(kvbm_namespace_reset(a.ns, &check_error));
  CHECK(found(a.cache, of_a, 6) == 0);
  CHECK(found(b.cache, of_b, 6) == 6);
  OK(store(&a, of_a, 3, NULL)); /* the keys stay valid */
  CHECK(found(a.cache, of_a, 6) == 3);
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  tenant_close(&b);
  tenant_close(&a);
  engine_close(&e);
  OK(engine_open(&e, 32, path, 64 << 20));
  a = tenant_open(&e, "a", 0, 0);
  b = tenant_open(&e, "b", 0, 0);
  CHECK(found(a.cache, of_a, 6) == 3);
  CHECK(found(b.cache, of_b, 6) == 6);
  tenant_close(&b);
  tenant_close(&a);
  engine_close(&e);
}

static void a_reset_needs_no_lookup_before_it(void) {
  engine_t e;
  tenant_t a;
  kvbm_key_t keys[6];
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  const char *path = directory("early");
  OK(engine_open(&e, 32, path, 64 << 20));
  a = tenant_open(&e, "a", 0, 0);
  keys_of(a.ns, 1, 6, keys);
  OK(store(&a, keys, 6, NULL));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  tenant_close(&a);
  engine_close(&e);
  OK(engine_open(&e, 32, path, 64 << 20));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  who.tenant = "a";
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  OK(kvbm_namespace_reset(ns, &check_error));
  kvbm_namespace_release(ns);
  a = tenant_open(&e, "a", 0, 0);
  CHECK(found(a.cache, keys, 6) == 0);
  OK(store(&a, keys, 6, NULL));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  tenant_close(&a);
  engine_close(&e);
  OK(engine_open(&e, 32, path, 64 << 20));
  OK(kvbm_manager_reset(e.manager, &check_error)); /* of all: no namespace has been opened but the engine's */
  a = tenant_open(&e, "a", 0, 0);
  CHECK(found(a.cache, keys, 6) == 0);
  tenant_close(&a);
  engine_close(&e);
}

static void resetting_all_forgets_every_namespace_but_what_is_held_stays_readable(void) {
  engine_t e;
  tenant_t a, b;
  kvbm_key_t of_a[6], of_b[6];
  kvbm_match_t *match = NULL;
  uint32_t ids[6] = {40, 41, 42, 43, 44, 45};
  size_t hits = 0, i;
  OK(engine_open(&e, 32, NULL, 0));
  a = tenant_open(&e, "a", 0, 0);
  b = tenant_open(&e, "b", 0, 0);
  keys_of(a.ns, 1, 6, of_a);
  keys_of(b.ns, 1, 6, of_b);
  for (i = 0; i < 6; ++i) memset(engine_block(&e, (uint32_t)i), 7 + (int)i, BLOCK_BYTES);
  OK(store(&a, of_a, 6, NULL));
  OK(store(&b, of_b, 6, NULL));
  OK(kvbm_cache_lookup(a.cache, of_a, 6, NULL, &match, &hits));
  CHECK(hits == 6);
  OK(kvbm_manager_reset(e.manager, &check_error));
  CHECK(found(a.cache, of_a, 6) == 0);
  CHECK(found(b.cache, of_b, 6) == 0);
  OK(kvbm_cache_load(a.cache, match, ids, 6, NULL, NULL, 0));
  for (i = 0; i < 6; ++i) CHECK(engine_block_is(&e, ids[i], (unsigned char)(7 + i)));
  kvbm_match_release(match);
  CHECK(found(a.cache, of_a, 6) == 0);
  CHECK(stats_of(&e).tiers[0].blocks == 0);
  tenant_close(&b);
  tenant_close(&a);
  engine_close(&e);
}

static void dropping_keys_forgets_those_in_every_tier(void) {
  engine_t e;
  tenant_t a;
  kvbm_key_t keys[6];
  size_t n = 9;
  const char *path = directory("drop");
  OK(engine_open(&e, 32, path, 64 << 20));
  a = tenant_open(&e, "a", 0, 0);
  keys_of(a.ns, 1, 6, keys);
  OK(store(&a, keys, 6, NULL));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  OK(kvbm_manager_drop(e.manager, a.ns, NULL, keys + 2, 1, &n));
  CHECK(n == 1);
  CHECK(found(a.cache, keys, 6) == 2);
  CHECK(found(a.cache, keys + 3, 3) == 3);
  OK(kvbm_manager_drop(e.manager, a.ns, NULL, keys + 2, 1, &n)); /* gone already */
  CHECK(n == 0);
  OK(kvbm_manager_drop(e.manager, a.ns, NULL, keys, 0, &n));
  tenant_close(&a);
  engine_close(&e);
}

static void a_rejecting_quota_refuses_visibly(void) {
  engine_t e;
  tenant_t a, other;
  kvbm_key_t keys[8], others[8];
  kvbm_status_t status[8];
  kvbm_block_t blocks[4];
  size_t i, good = 0;
  OK(engine_open(&e, 32, NULL, 0));
  a = tenant_open(&e, "a", 4, KVBM_QUOTA_REJECT);
  other = tenant_open(&e, "b", 0, 0);
  keys_of(a.ns, 1, 8, keys);
  keys_of(other.ns, 1, 8, others);
  CHECK_STATUS(store(&a, keys, 8, status), KVBM_PARTIAL);
  for (i = 0; i < 8; ++i) {
    good += status[i] == KVBM_OK;
    CHECK(status[i] == KVBM_OK || status[i] == KVBM_ERR_QUOTA);
    if (i != 0) CHECK(status[i] == KVBM_ERR_QUOTA || status[i - 1] == KVBM_OK); /* a prefix of it */
  }
  CHECK_U64(good, 4);
  CHECK_U64(found(a.cache, keys, 8), good);
  CHECK(stats_of(&e).stores_refused_quota == 8 - good);
  CHECK(stats_of(&e).stores_refused_room == 0);
  CHECK_STATUS(store(&a, keys + 6, 2, status), KVBM_ERR_QUOTA);
  CHECK_U64(found(a.cache, keys, 8), good); /* nothing had to go for what was refused */
  CHECK_STATUS(kvbm_manager_allocate(e.manager, a.ns, 1, blocks, NULL, 0, NULL), KVBM_ERR_QUOTA);
  OK(store(&other, others, 8, NULL));
  CHECK(found(other.cache, others, 8) == 8);
  OK(kvbm_manager_drop(e.manager, a.ns, NULL, keys, 8, NULL));
  OK(store(&a, keys + 4, 4, NULL)); /* room again */
  tenant_close(&other);
  tenant_close(&a);
  engine_close(&e);
}

static void an_evicting_quota_takes_from_its_own(void) {
  engine_t e;
  tenant_t a, other;
  kvbm_key_t keys[12], others[8];
  uint64_t before;
  OK(engine_open(&e, 32, NULL, 0));
  a = tenant_open(&e, "a", 4, KVBM_QUOTA_EVICT);
  other = tenant_open(&e, "b", 0, 0);
  keys_of(a.ns, 1, 12, keys);
  keys_of(other.ns, 1, 8, others);
  OK(store(&other, others, 8, NULL));
  OK(store(&a, keys, 4, NULL));
  before = stats_of(&e).tiers[0].evictions;
  OK(store(&a, keys + 4, 4, NULL));
  CHECK(in_host(&e, a.ns, keys, 12) <= 4);
  CHECK(in_host(&e, a.ns, keys + 4, 4) == 4);
  CHECK(stats_of(&e).tiers[0].evictions == before + 4);
  CHECK(found(other.cache, others, 8) == 8);
  OK(kvbm_namespace_set_quota(a.ns, 2 * (BLOCK_BYTES + 384), KVBM_QUOTA_REJECT));
  CHECK(in_host(&e, a.ns, keys, 12) == 2); /* lowering it evicts what nothing holds */
  CHECK_STATUS(store(&a, keys + 8, 2, NULL), KVBM_ERR_QUOTA);
  OK(kvbm_namespace_set_quota(a.ns, 0, KVBM_QUOTA_EVICT)); /* none */
  OK(store(&a, keys, 12, NULL));
  CHECK(in_host(&e, a.ns, keys, 12) == 12);
  CHECK_STATUS(kvbm_namespace_set_quota(a.ns, 1 << 20, 7), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_namespace_set_quota(a.ns, 1, KVBM_QUOTA_EVICT), KVBM_ERR_INVALID); /* less than one block */
  tenant_close(&other);
  tenant_close(&a);
  engine_close(&e);
}

static void a_quota_is_the_namespaces_and_not_the_handles(void) {
  engine_t e;
  tenant_t a, twin;
  kvbm_key_t keys[12];
  OK(engine_open(&e, 32, NULL, 0));
  a = tenant_open(&e, "a", 4, KVBM_QUOTA_REJECT);
  twin = tenant_open(&e, "a", 4, KVBM_QUOTA_REJECT);
  keys_of(a.ns, 1, 12, keys);
  OK(store(&a, keys, 4, NULL));
  CHECK_STATUS(store(&twin, keys + 4, 4, NULL), KVBM_ERR_QUOTA);
  tenant_close(&a);
  tenant_close(&twin);
  a = tenant_open(&e, "a", 4, KVBM_QUOTA_REJECT); /* blocks stored before still count */
  CHECK(found(a.cache, keys, 12) == 4);
  CHECK_STATUS(store(&a, keys + 4, 4, NULL), KVBM_ERR_QUOTA);
  tenant_close(&a);
  engine_close(&e);
}

static void a_quota_may_be_opened_again_and_again(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  int i, refused = 0;
  OK(engine_open(&e, 8, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  who.tenant = "a";
  who.quota_bytes = 4 * BLOCK_BYTES;
  for (i = 0; i < 5000; ++i) {
    refused += kvbm_namespace_open(e.manager, &who, &ns, &check_error) != KVBM_OK;
    kvbm_namespace_release(ns);
    ns = NULL;
  }
  CHECK(refused == 0);
  engine_close(&e);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 77;
  RUN(the_id_is_made_of_who_it_is_and_of_nothing_else);
  RUN(namespaces_never_match);
  RUN(an_ended_epoch_is_never_found_again);
  RUN(an_ended_epoch_stays_ended_without_a_disk);
  RUN(the_last_epoch_has_none_after_it);
  RUN(invalidating_reaches_what_another_handle_stored);
  RUN(resetting_a_namespace_forgets_it_alone);
  RUN(a_reset_needs_no_lookup_before_it);
  RUN(resetting_all_forgets_every_namespace_but_what_is_held_stays_readable);
  RUN(dropping_keys_forgets_those_in_every_tier);
  RUN(a_rejecting_quota_refuses_visibly);
  RUN(an_evicting_quota_takes_from_its_own);
  RUN(a_quota_is_the_namespaces_and_not_the_handles);
  RUN(a_quota_may_be_opened_again_and_again);
  check_remove(scratch);
  FINISH();
}

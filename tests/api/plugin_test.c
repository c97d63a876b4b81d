/* Tiers as shared libraries: one that keeps the rules, and hostile ones, which can do no more harm than to be
 * useless. */
#include <dlfcn.h>
#include <sched.h>

#include "engine.h"

static char scratch[256];

/* Returns the library's table. Each library is loaded once, and keeps its records. */
static const kvbm_tier_table_t *table_of(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) printf("  %s\n", dlerror());
  return handle == NULL ? NULL : (const kvbm_tier_table_t *)dlsym(handle, "kvbm_plugin_table");
}

static kvbm_manager_stats_t stats_of(engine_t *e) {
  kvbm_manager_stats_t stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e->manager, &stats));
  return stats;
}

/* A counter of tier 1. */
static unsigned long long metric(engine_t *e, const char *name) {
  static char text[1 << 18];
  char line[128];
  size_t needed = 0;
  const char *at;
  OK(kvbm_manager_metrics(e->manager, text, sizeof text, &needed));
  snprintf(line, sizeof line, "\n%s{tier=\"1\"} ", name);
  at = strstr(text, line);
  CHECK(at != NULL);
  return at == NULL ? 0 : strtoull(at + strlen(line), NULL, 10);
}

/* Evicts all blocks from the host. */
static void empty_host(engine_t *e, size_t blocks) {
  kvbm_block_t all[64];
  size_t n = 0;
  OK(kvbm_manager_allocate(e->manager, e->ns, blocks, all, NULL, 0, &n));
  OK(kvbm_block_release(e->manager, all, blocks));
}

/* Loads 8 blocks within 20 ms. Returns the load's status; KVBM_ERR_MISS if there was no hit. */
static kvbm_status_t quick_load(engine_t *e, uint32_t first, unsigned char mark) {
  kvbm_key_t keys[8];
  uint32_t ids[8] = {40, 41, 42, 43, 44, 45, 46, 47};
  kvbm_load_options_t options;
  kvbm_match_t *match = NULL;
  kvbm_status_t status = KVBM_ERR_MISS;
  size_t hits = 0;
  engine_keys(e, first, 8, keys);
  OK(kvbm_cache_lookup(e->cache, keys, 8, NULL, &match, &hits));
  kvbm_load_options_init(&options, sizeof options);
  options.timeout_ns = 20000000;
  if (hits != 0) status = kvbm_cache_load(e->cache, match, ids, hits, &options, NULL, 0);
  memset(engine_block(e, 40), mark, 8 * BLOCK_BYTES);
  kvbm_match_release(match);
  return status;
}

/* An engine with a host of 16 blocks, and the hostile library of the given kind as its only lower tier. */
static void open_hostile(engine_t *e, const char *kind, uint32_t admission) {
  kvbm_tier_t tier;
  memset(&tier, 0, sizeof tier);
  tier.table = table_of(KVBM_HOSTILE_TIER);
  tier.table_user = (void *)(uintptr_t)kind;
  tier.admission = admission;
  OK(engine_open_tiers(e, 16, &tier, 1));
}

static void an_honest_one_is_the_third_tier(void) {
  engine_t e;
  kvbm_tier_t tiers[2];
  kvbm_manager_stats_t stats;
  char path[300];
  snprintf(path, sizeof path, "%s/third", scratch);
  memset(tiers, 0, sizeof tiers);
  tiers[0].path = path;
  tiers[0].capacity_bytes = 64 << 20;
  tiers[0].admission = KVBM_ADMIT_ON_REQUEST; /* only the third then has the blocks */
  tiers[1].table = table_of(KVBM_MEMORY_TIER);
  OK(engine_open_tiers(&e, 16, tiers, 2));
  OK(engine_store(&e, 1, 12));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  empty_host(&e, 16);
  CHECK_U64(engine_load(&e, 1, 12), 12);
  stats = stats_of(&e);
  CHECK_U64(stats.n_tiers, 3);
  CHECK_U64(stats.tiers[2].stores, 12);
  CHECK_U64(stats.tiers[2].hits, 12);
  CHECK_U64(stats.tiers[2].loads, 12);
  CHECK_U64(stats.tiers[2].damaged, 0);
  CHECK_U64(stats.tiers[0].stores, 24); /* stored, and brought up again */
  CHECK_U64(stats.tiers[0].store_bytes, 24 * BLOCK_BYTES);
  /* The disk could promise durability, but the plug-in cannot. */
  CHECK_STATUS(kvbm_manager_flush_durable(e.manager, 60000000000ULL), KVBM_ERR_UNSUPPORTED);
  engine_close(&e);
}

static void wrong_bytes_are_damage_and_are_not_found_again(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  uint32_t round;
  open_hostile(&e, "wrong", KVBM_ADMIT_ALL);
  OK(engine_store(&e, 1, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  empty_host(&e, 16);
  CHECK_U64(engine_load(&e, 1, 8), 0);
  stats = stats_of(&e);
  CHECK_U64(stats.tiers[1].damaged, 8);
  CHECK_U64(stats.tiers[1].errors, 8);
  CHECK(metric(&e, "kvbm_tier_faults_total") >= 1);
  /* The plug-in still reports the records as present. */
  CHECK_STATUS(quick_load(&e, 1, 0), KVBM_ERR_MISS);
  CHECK_U64(stats_of(&e).tiers[1].hits, 8);
  /* Blocks that are stored again are found again, with wrong bytes. In the end the tier is disabled. */
  for (round = 0; round < 64 && stats_of(&e).tiers[1].disabled == 0; ++round) {
    OK(engine_store(&e, 1, 8));
    OK(kvbm_manager_flush(e.manager, 60000000000ULL));
    empty_host(&e, 16);
    CHECK_U64(engine_load(&e, 1, 8), 0);
  }
  stats = stats_of(&e);
  CHECK_U64(stats.tiers[1].disabled, 1);
  CHECK_U64(stats.tiers[1].loads, 0);
  CHECK(stats.tiers[1].damaged > 8);
  engine_close(&e);
}

static void sizes_beyond_the_room_are_damage(void) {
  engine_t e;
  open_hostile(&e, "resize", KVBM_ADMIT_ALL);
  OK(engine_store(&e, 101, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  empty_host(&e, 16);
  CHECK_U64(engine_load(&e, 101, 8), 0);
  CHECK_U64(stats_of(&e).tiers[1].damaged, 8);
  engine_close(&e);
}

static void one_that_never_returns_costs_a_deadline_and_is_disabled(void) {
  engine_t e;
  uint32_t round;
  kvbm_status_t status;
  open_hostile(&e, "hangs", KVBM_ADMIT_ON_REQUEST);
  CHECK_STATUS(quick_load(&e, 201, 0x11), KVBM_ERR_DEADLINE);
  CHECK_U64(stats_of(&e).tiers[1].disabled, 0);
  for (round = 0; round < 1000 && stats_of(&e).tiers[1].disabled == 0; ++round) {
    status = quick_load(&e, 201, 0x11);
    CHECK(status == KVBM_ERR_DEADLINE || status == KVBM_ERR_MISS || status == KVBM_ERR_TIER_DISABLED);
  }
  CHECK_U64(stats_of(&e).tiers[1].disabled, 1);
  CHECK_STATUS(quick_load(&e, 201, 0x11), KVBM_ERR_MISS);
  /* The host tier still works. */
  OK(engine_store(&e, 201, 8));
  CHECK_U64(engine_load(&e, 201, 8), 8);
  engine_close(&e); /* and does not wait for it */
}

static void a_late_answer_is_counted_and_touches_nothing(void) {
  engine_t e;
  void *library = dlopen(KVBM_HOSTILE_TIER, RTLD_NOW | RTLD_LOCAL);
  void (*let_go)(void);
  *(void **)&let_go = dlsym(library, "kvbm_plugin_let_go");
  open_hostile(&e, "late", KVBM_ADMIT_ALL);
  OK(engine_store(&e, 301, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  empty_host(&e, 16);
  CHECK_STATUS(quick_load(&e, 301, 0x11), KVBM_ERR_DEADLINE);
  CHECK_U64(metric(&e, "kvbm_tier_second_answers_total"), 0);
  let_go();
  while (metric(&e, "kvbm_tier_second_answers_total") == 0) sched_yield();
  CHECK(engine_block_is(&e, 40, 0x11) && engine_block_is(&e, 47, 0x11));
  CHECK_U64(stats_of(&e).tiers[1].disabled, 0);
  CHECK_U64(engine_load(&e, 301, 8), 8); /* one fault is no reason to leave it */
  engine_close(&e);
}

static void answering_twice_is_counted_and_changes_nothing(void) {
  engine_t e;
  uint32_t round;
  size_t good = 8;
  open_hostile(&e, "twice", KVBM_ADMIT_ALL);
  OK(engine_store(&e, 401, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  for (round = 0; round < 1000 && stats_of(&e).tiers[1].disabled == 0; ++round) {
    (void)kvbm_manager_flush(e.manager, 60000000000ULL); /* blocks of the last load are held while they are checked */
    empty_host(&e, 16);
    good = engine_load(&e, 401, 8); /* every byte of them is compared */
    CHECK(good == 8 || good == 0); /* none once it is being disabled */
  }
  CHECK(round > 1);
  CHECK_U64(stats_of(&e).tiers[1].disabled, 1);
  CHECK(metric(&e, "kvbm_tier_second_answers_total") >= 16);
  CHECK_U64(stats_of(&e).tiers[1].damaged, 0);
  engine_close(&e);
}

static void one_that_refuses_everything_is_misses(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  open_hostile(&e, "fails", KVBM_ADMIT_ALL);
  OK(engine_store(&e, 501, 8));
  CHECK_STATUS(kvbm_manager_flush(e.manager, 60000000000ULL), KVBM_PARTIAL);
  CHECK_U64(engine_load(&e, 501, 8), 8);
  empty_host(&e, 16);
  CHECK_U64(engine_load(&e, 501, 8), 0);
  stats = stats_of(&e);
  CHECK_U64(stats.tiers[1].stores, 0);
  CHECK_U64(stats.tiers[1].loads, 0);
  CHECK(stats.tiers[1].errors >= 16);
  CHECK_U64(stats.tiers[1].damaged, 0);
  engine_close(&e);
}

/* A plug-in keeps records and no epochs: without another tier an invalidation ends with the manager, which says so. */
static void an_invalidation_that_nothing_keeps_is_told(void) {
  engine_t e;
  kvbm_tier_t tiers[2];
  char path[300];
  memset(tiers, 0, sizeof tiers);
  tiers[0].table = table_of(KVBM_MEMORY_TIER);
  OK(engine_open_tiers(&e, 16, tiers, 1));
  OK(engine_store(&e, 801, 8));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  CHECK_STATUS(kvbm_namespace_invalidate(e.ns, &check_error), KVBM_ERR_UNSUPPORTED);
  CHECK(strstr(check_error.message, "open the namespace with epoch 1") != NULL);
  CHECK_U64(engine_load(&e, 801, 8), 0);
  engine_close(&e);
  OK(engine_open_tiers(&e, 16, tiers, 1));
  CHECK_U64(engine_load(&e, 801, 8), 8); /* as the text says */
  engine_close(&e);
  snprintf(path, sizeof path, "%s/epochs", scratch);
  tiers[1].path = path;
  tiers[1].capacity_bytes = 64 << 20;
  OK(engine_open_tiers(&e, 16, tiers, 2));
  CHECK_U64(engine_load(&e, 801, 8), 8);
  OK(kvbm_namespace_invalidate(e.ns, &check_error));
  engine_close(&e);
  OK(engine_open_tiers(&e, 16, tiers, 2));
  CHECK_U64(engine_load(&e, 801, 8), 0);
  engine_close(&e);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 77;
  RUN(an_honest_one_is_the_third_tier);
  RUN(wrong_bytes_are_damage_and_are_not_found_again);
  RUN(sizes_beyond_the_room_are_damage);
  RUN(one_that_never_returns_costs_a_deadline_and_is_disabled);
  RUN(a_late_answer_is_counted_and_touches_nothing);
  RUN(answering_twice_is_counted_and_changes_nothing);
  RUN(one_that_refuses_everything_is_misses);
  RUN(an_invalidation_that_nothing_keeps_is_told);
  check_remove(scratch);
  FINISH();
}

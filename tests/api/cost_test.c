/* Loads with compute_block_ns. */
#include "engine.h"

static char scratch[256];

static kvbm_match_t *match_of(engine_t *e, size_t n) {
  kvbm_key_t keys[64];
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  engine_keys(e, 1, n, keys);
  OK(kvbm_cache_lookup(e->cache, keys, n, NULL, &match, &hits));
  CHECK(hits == n);
  return match;
}

static kvbm_status_t load(engine_t *e, kvbm_match_t *match, size_t n, uint64_t compute_block_ns, kvbm_status_t *status) {
  kvbm_load_options_t options;
  uint32_t ids[64];
  size_t i;
  for (i = 0; i < n; ++i) {
    ids[i] = 32 + (uint32_t)i;
    status[i] = 1;
    memset(engine_block(e, ids[i]), 0xEE, BLOCK_BYTES);
  }
  kvbm_load_options_init(&options, sizeof options);
  options.compute_block_ns = compute_block_ns;
  options.item_status = status;
  return kvbm_cache_load(e->cache, match, ids, n, &options, NULL, 0);
}

static void a_load_that_loses_is_not_made_and_one_that_wins_is(void) {
  engine_t e;
  kvbm_status_t status[16];
  kvbm_manager_stats_t stats;
  kvbm_match_t *match;
  size_t i;
  OK(engine_open(&e, 40, NULL, 0));
  OK(engine_store(&e, 1, 16));
  match = match_of(&e, 16);
  CHECK_STATUS(load(&e, match, 16, 1, status), KVBM_PARTIAL); /* no memory copies a block in a nanosecond */
  for (i = 0; i < 16; ++i) CHECK(status[i] == KVBM_ERR_DEADLINE && engine_block_is(&e, 32 + (uint32_t)i, 0xEE));
  OK(load(&e, match, 16, 10000000000ULL, status));
  for (i = 0; i < 16; ++i) CHECK(status[i] == KVBM_OK && engine_block_is(&e, 32 + (uint32_t)i, (unsigned char)(1 + i)));
  OK(load(&e, match, 16, 0, status));
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.loads_not_started == 1 && stats.loads_weighed == 1 && stats.blocks_left == 16);
  CHECK(stats.load_predicted_ns != 0 && stats.load_actual_ns != 0 && stats.deadline_missed == 0);
  CHECK(stats.compute_saved_ns > 100000000000ULL && stats.compute_lost_ns == 0);
  kvbm_match_release(match);
  engine_close(&e);
}

static void a_match_says_what_loading_would_take(void) {
  engine_t e;
  uint64_t ns[16];
  kvbm_match_t *match;
  size_t i;
  OK(engine_open(&e, 40, NULL, 0));
  OK(engine_store(&e, 1, 16));
  match = match_of(&e, 16);
  OK(kvbm_match_cost(match, 0, 16, ns));
  CHECK(ns[0] != 0);
  for (i = 1; i < 16; ++i) CHECK(ns[i] >= ns[i - 1]);
  OK(kvbm_match_cost(match, 15, 1, ns + 1));
  CHECK(ns[1] == ns[0]); /* blocks of one size in one tier */
  OK(kvbm_match_cost(match, 16, 0, NULL));
  CHECK_STATUS(kvbm_match_cost(match, 10, 7, ns), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_match_cost(match, 0, 1, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_match_cost(NULL, 0, 0, ns), KVBM_ERR_INVALID);
  kvbm_match_release(match);
  engine_close(&e);
}

/* The disk takes two minutes for a block. */
static void from_a_slow_disk_nothing_is_loaded_and_closing_waits_for_no_read(void) {
  engine_t e;
  kvbm_status_t status[32];
  kvbm_queue_t *queue = NULL;
  kvbm_load_options_t options;
  kvbm_completion_t done;
  kvbm_match_t *match;
  uint32_t ids[32];
  uint64_t ns[32], operation = 0;
  size_t i;
  char path[300];
  snprintf(path, sizeof path, "%s/slow", scratch);
  engine_read_bytes_per_s = 64;
  OK(engine_open(&e, 40, path, 64 << 20));
  engine_read_bytes_per_s = 0;
  OK(engine_store(&e, 1, 32));
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  {
    kvbm_block_t all[36];
    OK(kvbm_manager_allocate(e.manager, e.ns, 36, all, NULL, 0, NULL)); /* nothing is left in the host */
    OK(kvbm_block_release(e.manager, all, 36));
  }
  match = match_of(&e, 32);
  OK(kvbm_match_cost(match, 0, 32, ns));
  CHECK(ns[31] > 32ULL * BLOCK_BYTES / 64 * 1000000000ULL / 2);
  CHECK_STATUS(load(&e, match, 32, 1000000, status), KVBM_PARTIAL);
  CHECK(status[31] == KVBM_ERR_DEADLINE);
  OK(kvbm_queue_create(e.context, 4, &queue, &check_error));
  for (i = 0; i < 32; ++i) ids[i] = (uint32_t)i;
  kvbm_load_options_init(&options, sizeof options);
  options.out_operation = &operation;
  OK(kvbm_cache_load(e.cache, match, ids, 32, &options, queue, 1));
  OK(kvbm_queue_cancel(queue, operation));
  CHECK(kvbm_queue_wait(queue, &done, 1, 60000000000ULL) == 1);
  kvbm_match_release(match);
  kvbm_queue_release(queue);
  engine_close(&e); /* the test's time limit is much shorter than these reads */
}

int main(void) {
  if (check_directory(scratch) == NULL) return 77;
  RUN(a_load_that_loses_is_not_made_and_one_that_wins_is);
  RUN(a_match_says_what_loading_would_take);
  RUN(from_a_slow_disk_nothing_is_loaded_and_closing_waits_for_no_read);
  check_remove(scratch);
  FINISH();
}

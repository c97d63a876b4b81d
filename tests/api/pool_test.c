/* Managed pools: the life cycle of blocks and what holds forbid. */
#include "engine.h"

static void a_block_lives_from_allocate_to_lookup(void) {
  engine_t e;
  kvbm_block_t blocks[4], found[4];
  kvbm_view_t views[4];
  kvbm_key_t keys[4];
  kvbm_match_t *match = NULL;
  size_t hits = 0, i;
  uint64_t bytes[4] = {100, 200, 300, BLOCK_BYTES};
  OK(engine_open(&e, 16, NULL, 0));
  OK(kvbm_manager_allocate(e.manager, e.ns, 4, blocks, NULL, 0, NULL));
  OK(kvbm_block_view(e.manager, blocks, 4, views));
  for (i = 0; i < 4; ++i) {
    CHECK(views[i].bytes == BLOCK_BYTES);
    memset(views[i].data, 'a' + (int)i, BLOCK_BYTES);
  }
  engine_keys(&e, 1, 4, keys);
  CHECK_STATUS(KVBM_ERR_STATE, kvbm_manager_register(e.manager, e.ns, blocks, keys, 4, NULL));
  OK(kvbm_manager_complete(e.manager, blocks, 4, bytes));
  CHECK_STATUS(KVBM_ERR_STATE, kvbm_manager_complete(e.manager, blocks, 4, bytes));
  found[0] = blocks[0];
  OK(kvbm_manager_register(e.manager, e.ns, blocks, keys, 4, NULL));
  CHECK_STATUS(KVBM_ERR_STALE, kvbm_block_release(e.manager, found, 1)); /* the old hold has ended */
  OK(kvbm_block_release(e.manager, blocks, 4));
  OK(kvbm_manager_lookup(e.manager, e.ns, keys, 4, NULL, &match, &hits));
  CHECK(hits == 4);
  OK(kvbm_match_blocks(match, 0, 0, 4, found));
  kvbm_match_release(match);
  OK(kvbm_block_view(e.manager, found, 4, views));
  for (i = 0; i < 4; ++i) {
    CHECK(views[i].bytes == bytes[i]);
    CHECK(((unsigned char *)views[i].data)[0] == 'a' + i);
  }
  OK(kvbm_block_release(e.manager, found, 4));
  engine_close(&e);
}

static void stale_foreign_and_doubled_holds_are_errors(void) {
  engine_t a, b;
  kvbm_block_t block, copy, forged = 0x1234567812345678ULL, none = 0;
  OK(engine_open(&a, 4, NULL, 0));
  OK(engine_open(&b, 4, NULL, 0));
  OK(kvbm_manager_allocate(a.manager, a.ns, 1, &block, NULL, 0, NULL));
  CHECK_STATUS(KVBM_ERR_FOREIGN, kvbm_block_release(b.manager, &block, 1));
  CHECK(kvbm_block_release(a.manager, &forged, 1) < 0);
  CHECK(kvbm_block_release(a.manager, &none, 1) < 0);
  copy = block;
  OK(kvbm_block_release(a.manager, &block, 1));
  CHECK_STATUS(KVBM_ERR_STALE, kvbm_block_release(a.manager, &copy, 1));
  CHECK_STATUS(KVBM_ERR_FOREIGN, kvbm_manager_allocate(a.manager, b.ns, 1, &block, NULL, 0, NULL));
  engine_close(&a);
  engine_close(&b);
}

static void allocation_is_all_or_nothing_and_tells_what_it_evicted(void) {
  engine_t e;
  kvbm_block_t blocks[64];
  kvbm_key_t keys[8], evicted[16];
  size_t n_evicted = 99, i, found = 0, j;
  kvbm_manager_stats_t stats;
  OK(engine_open(&e, 8, NULL, 0));
  stats.struct_size = sizeof stats;
  OK(engine_store(&e, 1, 8));
  engine_keys(&e, 1, 8, keys);
  CHECK_STATUS(KVBM_ERR_NO_ROOM, kvbm_manager_allocate(e.manager, e.ns, 64, blocks, evicted, 16, &n_evicted));
  OK(kvbm_manager_allocate(e.manager, e.ns, 3, blocks, evicted, 16, &n_evicted));
  CHECK(n_evicted >= 1 && n_evicted <= 8);
  for (i = 0; i < n_evicted && i < 16; ++i) {
    for (j = 0; j < 8; ++j) found += memcmp(&evicted[i], &keys[j], sizeof evicted[i]) == 0;
  }
  CHECK(found == n_evicted); /* leaves first, each once */
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.holds == 3);
  OK(kvbm_block_release(e.manager, blocks, 3));
  engine_close(&e);
}

static void duplicates_are_reused_or_kept_private(void) {
  engine_t e;
  kvbm_block_t first, second, third;
  kvbm_view_t a, b;
  kvbm_key_t key;
  kvbm_register_options_t options;
  kvbm_status_t status = 0;
  OK(engine_open(&e, 8, NULL, 0));
  engine_keys(&e, 9, 1, &key);
  OK(kvbm_manager_allocate(e.manager, e.ns, 1, &first, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, &first, 1, NULL));
  OK(kvbm_manager_register(e.manager, e.ns, &first, &key, 1, NULL));
  OK(kvbm_manager_allocate(e.manager, e.ns, 1, &second, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, &second, 1, NULL));
  kvbm_register_options_init(&options, sizeof options);
  options.item_status = &status;
  OK(kvbm_manager_register(e.manager, e.ns, &second, &key, 1, &options));
  CHECK(status == KVBM_ERR_EXISTS);
  OK(kvbm_block_view(e.manager, &first, 1, &a));
  OK(kvbm_block_view(e.manager, &second, 1, &b));
  CHECK(a.slot == b.slot);
  OK(kvbm_manager_allocate(e.manager, e.ns, 1, &third, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, &third, 1, NULL));
  options.duplicates = KVBM_DUPLICATE_KEEP;
  OK(kvbm_manager_register(e.manager, e.ns, &third, &key, 1, &options));
  CHECK(status == KVBM_ERR_EXISTS);
  OK(kvbm_block_view(e.manager, &third, 1, &b));
  CHECK(a.slot != b.slot);
  OK(kvbm_block_release(e.manager, &first, 1));
  OK(kvbm_block_release(e.manager, &second, 1));
  OK(kvbm_block_release(e.manager, &third, 1));
  engine_close(&e);
}

static void weak_references_do_not_keep_a_block(void) {
  engine_t e;
  kvbm_block_t block, weak, strong = 0, more[8];
  kvbm_key_t key;
  OK(engine_open(&e, 4, NULL, 0));
  engine_keys(&e, 5, 1, &key);
  OK(kvbm_manager_allocate(e.manager, e.ns, 1, &block, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, &block, 1, NULL));
  OK(kvbm_manager_register(e.manager, e.ns, &block, &key, 1, NULL));
  OK(kvbm_block_downgrade(e.manager, &block, 1, &weak));
  OK(kvbm_block_release(e.manager, &block, 1));
  OK(kvbm_block_upgrade(e.manager, &weak, 1, &strong));
  CHECK(strong != 0);
  OK(kvbm_block_release(e.manager, &strong, 1));
  OK(kvbm_manager_allocate(e.manager, e.ns, 4, more, NULL, 0, NULL)); /* takes every slot */
  OK(kvbm_block_upgrade(e.manager, &weak, 1, &strong));
  CHECK(strong == 0);
  OK(kvbm_block_release(e.manager, more, 4));
  OK(kvbm_block_release(e.manager, &weak, 1));
  engine_close(&e);
}

static void nulls_and_empty_batches_are_answered(void) {
  engine_t e;
  kvbm_block_t block = 0;
  size_t n = 5;
  OK(engine_open(&e, 4, NULL, 0));
  OK(kvbm_manager_allocate(e.manager, e.ns, 0, NULL, NULL, 0, &n));
  CHECK(n == 0);
  CHECK_STATUS(KVBM_ERR_INVALID, kvbm_manager_allocate(NULL, e.ns, 1, &block, NULL, 0, NULL));
  CHECK_STATUS(KVBM_ERR_INVALID, kvbm_manager_allocate(e.manager, NULL, 1, &block, NULL, 0, NULL));
  CHECK_STATUS(KVBM_ERR_INVALID, kvbm_manager_allocate(e.manager, e.ns, 1, NULL, NULL, 0, NULL));
  OK(kvbm_block_release(e.manager, NULL, 0));
  CHECK_STATUS(KVBM_ERR_INVALID, kvbm_block_release(e.manager, NULL, 1));
  OK(kvbm_manager_complete(e.manager, NULL, 0, NULL));
  kvbm_manager_release(NULL);
  kvbm_context_release(NULL);
  kvbm_match_release(NULL);
  kvbm_cache_release(NULL);
  kvbm_namespace_release(NULL);
  kvbm_queue_release(NULL);
  kvbm_geometry_release(NULL);
  engine_close(&e);
}

int main(void) {
  RUN(a_block_lives_from_allocate_to_lookup);
  RUN(stale_foreign_and_doubled_holds_are_errors);
  RUN(allocation_is_all_or_nothing_and_tells_what_it_evicted);
  RUN(duplicates_are_reused_or_kept_private);
  RUN(weak_references_do_not_keep_a_block);
  RUN(nulls_and_empty_batches_are_answered);
  return check_end();
}

/* The life of a managed block: allocate, complete, register, hold, weak, evict; and every way to misuse it. */
#include "check.h"

enum { kHost = 16 * 8192 + 16 * 4096 };

static kvbm_status_t put(world_t *w, const kvbm_key_t *keys, size_t n, uint64_t seed, kvbm_block_t *blocks) {
  kvbm_view_t view;
  size_t i;
  kvbm_status_t status = kvbm_manager_allocate(w->manager, w->ns, n, blocks, NULL, 0, NULL);
  if (status < 0) return status;
  for (i = 0; i < n; ++i) {
    kvbm_block_view(w->manager, &blocks[i], 1, &view);
    check_fill(view.data, WORLD_BLOCK, seed + i);
  }
  status = kvbm_manager_complete(w->manager, blocks, n, NULL);
  return status < 0 ? status : kvbm_manager_register(w->manager, w->ns, blocks, keys, n, NULL);
}
static size_t hits_of(world_t *w, const kvbm_key_t *keys, size_t n) {
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  CHECK_STATUS(kvbm_manager_lookup(w->manager, w->ns, keys, n, NULL, &match, &hits), KVBM_OK);
  CHECK((match == NULL) == (hits == 0));
  kvbm_match_release(match);
  return hits;
}

static void a_block_lives_from_reset_to_registered(void) {
  world_t w;
  kvbm_key_t key;
  kvbm_block_t block = 0, old;
  kvbm_view_t view;
  const uint64_t bytes = 100;
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &block, NULL, 0, NULL), KVBM_OK);
  CHECK(block != 0);
  CHECK_STATUS(kvbm_block_view(w.manager, &block, 1, &view), KVBM_OK);
  CHECK_U64(view.bytes, WORLD_BLOCK);
  memset(view.data, 'x', 100);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, &block, &key, 1, NULL), KVBM_ERR_STATE);
  CHECK_U64(hits_of(&w, &key, 1), 0);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_OK);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_ERR_STATE);
  CHECK_U64(hits_of(&w, &key, 1), 0);
  old = block;
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, &block, &key, 1, NULL), KVBM_OK);
  CHECK(block != old);
  CHECK_STATUS(kvbm_block_release(w.manager, &old, 1), KVBM_ERR_STALE);
  CHECK_U64(hits_of(&w, &key, 1), 1);
  CHECK_STATUS(kvbm_block_view(w.manager, &block, 1, &view), KVBM_OK);
  CHECK_U64(view.bytes, 100);
  CHECK(((char *)view.data)[99] == 'x');
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, &block, &key, 1, NULL), KVBM_ERR_STATE);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, NULL), KVBM_ERR_STATE);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_ERR_STALE);
  CHECK_U64(hits_of(&w, &key, 1), 1);
  world_close(&w);
}

static void ended_and_invented_holds_are_stale(void) {
  world_t w;
  kvbm_block_t block, made[2];
  kvbm_view_t view;
  uint64_t random = 7;
  int i, wrong = 0;
  CHECK(world_open(&w, kHost, NULL, 0));
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &block, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(w.manager, &block, 1, &view), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_block_clone(w.manager, &block, 1, made), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_block_downgrade(w.manager, &block, 1, made), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_block_upgrade(w.manager, &block, 1, made), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, NULL), KVBM_ERR_STALE);
  block = 0;
  CHECK(kvbm_block_release(w.manager, &block, 1) < 0);
  for (i = 0; i < 10000; ++i) {
    block = check_random(&random);
    wrong += kvbm_block_view(w.manager, &block, 1, &view) >= 0;
  }
  CHECK_U64(wrong, 0);
  world_close(&w);
}

static void another_managers_holds_are_foreign(void) {
  world_t a, b;
  kvbm_block_t block;
  kvbm_view_t view;
  kvbm_key_t key;
  CHECK(world_open(&a, kHost, NULL, 0));
  CHECK(world_open(&b, kHost, NULL, 0));
  CHECK_STATUS(kvbm_manager_allocate(a.manager, a.ns, 1, &block, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(b.manager, &block, 1, &view), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_block_release(b.manager, &block, 1), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_manager_complete(b.manager, &block, 1, NULL), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_manager_allocate(a.manager, b.ns, 1, &block, NULL, 0, NULL), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_manager_complete(a.manager, &block, 1, NULL), KVBM_OK);
  world_keys(a.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_manager_register(a.manager, b.ns, &block, &key, 1, NULL), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_manager_register(a.manager, a.ns, &block, &key, 1, NULL), KVBM_OK);
  world_close(&a);
  world_close(&b);
}

static void release_ends_every_valid_hold_of_a_batch(void) {
  world_t w;
  kvbm_block_t blocks[3], batch[4];
  kvbm_manager_stats_t stats;
  CHECK(world_open(&w, kHost, NULL, 0));
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 3, blocks, NULL, 0, NULL), KVBM_OK);
  batch[0] = blocks[0];
  batch[1] = blocks[0];
  batch[2] = blocks[1];
  batch[3] = blocks[2];
  CHECK_STATUS(kvbm_block_release(w.manager, batch, 4), KVBM_ERR_STALE);
  stats.struct_size = sizeof stats;
  CHECK_STATUS(kvbm_manager_stats(w.manager, &stats), KVBM_OK);
  CHECK_U64(stats.holds, 0);
  world_close(&w);
}

static void allocate_is_all_or_none(void) {
  world_t w;
  kvbm_block_t blocks[1024], one;
  size_t n = 0, evicted = 99;
  CHECK(world_open(&w, kHost, NULL, 0));
  while (n < 1024 && kvbm_manager_allocate(w.manager, w.ns, 1, &blocks[n], NULL, 0, NULL) == KVBM_OK) ++n;
  CHECK(n >= 8 && n < 1024);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &one, NULL, 0, &evicted), KVBM_ERR_NO_ROOM);
  CHECK_U64(evicted, 0);
  CHECK_STATUS(kvbm_block_release(w.manager, blocks, 3), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 4, blocks, NULL, 0, NULL), KVBM_ERR_NO_ROOM);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 3, blocks, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, (size_t)1 << 60, blocks, NULL, 0, NULL), KVBM_ERR_NO_ROOM);
  world_close(&w);
}

static void eviction_reports_keys_and_spares_what_is_held(void) {
  world_t w;
  kvbm_key_t keys[1024], held, evicted[2];
  kvbm_block_t blocks[1024], keep;
  size_t n, slots = 0, count = 0;
  CHECK(world_open(&w, kHost, NULL, 0));
  while (kvbm_manager_allocate(w.manager, w.ns, 1, &blocks[slots], NULL, 0, NULL) == KVBM_OK) ++slots;
  CHECK_STATUS(kvbm_block_release(w.manager, blocks, slots), KVBM_OK);
  world_keys(w.ns, 9, &held, 1);
  CHECK_STATUS(put(&w, &held, 1, 77, &keep), KVBM_OK);
  for (n = 0; n < slots - 1; ++n) {
    world_keys(w.ns, 100 + (uint32_t)n, &keys[n], 1);
    CHECK_STATUS(put(&w, &keys[n], 1, n, &blocks[n]), KVBM_OK);
  }
  CHECK_STATUS(kvbm_block_release(w.manager, blocks, slots - 1), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, slots - 1, blocks, evicted, 2, &count), KVBM_OK);
  CHECK_U64(count, slots - 1);
  CHECK(memcmp(&evicted[0], &evicted[1], sizeof evicted[0]) != 0);
  CHECK_U64(hits_of(&w, &held, 1), 1);
  for (n = 0; n < slots - 1; ++n) CHECK_U64(hits_of(&w, &keys[n], 1), 0);
  world_close(&w);
}

static void batches_with_a_bad_member_change_nothing(void) {
  world_t w;
  kvbm_key_t keys[3];
  kvbm_block_t blocks[3], twice[2];
  kvbm_view_t views[2];
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, keys, 3);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 3, blocks, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, &blocks[2], 1), KVBM_OK);
  CHECK_STATUS(kvbm_manager_complete(w.manager, blocks, 3, NULL), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_block_view(w.manager, blocks, 2, views), KVBM_OK);
  twice[0] = twice[1] = blocks[0];
  CHECK(kvbm_manager_complete(w.manager, twice, 2, NULL) < 0);
  CHECK_STATUS(kvbm_manager_complete(w.manager, blocks, 2, NULL), KVBM_OK);
  twice[0] = twice[1] = blocks[0];
  CHECK(kvbm_manager_register(w.manager, w.ns, twice, keys, 2, NULL) < 0);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, blocks, keys, 3, NULL), KVBM_ERR_STALE);
  CHECK_U64(hits_of(&w, keys, 3), 0);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, blocks, keys, 2, NULL), KVBM_OK);
  CHECK_U64(hits_of(&w, keys, 3), 2);
  world_close(&w);
}

static void bad_lengths_are_refused(void) {
  world_t w;
  kvbm_block_t block;
  uint64_t bytes;
  CHECK(world_open(&w, kHost, NULL, 0));
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &block, NULL, 0, NULL), KVBM_OK);
  bytes = 0;
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_ERR_INVALID);
  bytes = WORLD_BLOCK + 1;
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_ERR_INVALID);
  bytes = UINT64_MAX;
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_ERR_INVALID);
  bytes = WORLD_BLOCK;
  CHECK_STATUS(kvbm_manager_complete(w.manager, &block, 1, &bytes), KVBM_OK);
  world_close(&w);
}

static void duplicates_are_reused_or_kept_private(void) {
  world_t w;
  kvbm_key_t key;
  kvbm_block_t first, second, third;
  kvbm_view_t a, b;
  kvbm_status_t item = 99;
  kvbm_register_options_t options;
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(put(&w, &key, 1, 5, &first), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &second, NULL, 0, NULL), KVBM_OK);
  kvbm_block_view(w.manager, &second, 1, &a);
  check_fill(a.data, WORLD_BLOCK, 6);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &second, 1, NULL), KVBM_OK);
  kvbm_register_options_init(&options, sizeof options);
  options.item_status = &item;
  CHECK(kvbm_manager_register(w.manager, w.ns, &second, &key, 1, &options) >= 0);
  CHECK_STATUS(item, KVBM_ERR_EXISTS);
  kvbm_block_view(w.manager, &first, 1, &a);
  kvbm_block_view(w.manager, &second, 1, &b);
  CHECK(a.data == b.data && check_filled(b.data, WORLD_BLOCK, 5));

  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &third, NULL, 0, NULL), KVBM_OK);
  kvbm_block_view(w.manager, &third, 1, &a);
  check_fill(a.data, WORLD_BLOCK, 7);
  CHECK_STATUS(kvbm_manager_complete(w.manager, &third, 1, NULL), KVBM_OK);
  options.duplicates = KVBM_DUPLICATE_KEEP;
  CHECK(kvbm_manager_register(w.manager, w.ns, &third, &key, 1, &options) >= 0);
  CHECK_STATUS(item, KVBM_ERR_EXISTS);
  CHECK_STATUS(kvbm_block_view(w.manager, &third, 1, &b), KVBM_OK);
  CHECK(a.data == b.data && check_filled(b.data, WORLD_BLOCK, 7));
  CHECK_STATUS(kvbm_block_release(w.manager, &third, 1), KVBM_OK);
  CHECK_U64(hits_of(&w, &key, 1), 1);
  world_close(&w);
}

static void weak_holds_do_not_keep_a_block(void) {
  world_t w;
  kvbm_key_t key;
  kvbm_block_t block, weak, strong, partial;
  kvbm_view_t view;
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, &partial, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_downgrade(w.manager, &partial, 1, &weak), KVBM_ERR_STATE);
  CHECK_STATUS(kvbm_block_clone(w.manager, &partial, 1, &strong), KVBM_ERR_STATE);
  CHECK_STATUS(put(&w, &key, 1, 5, &block), KVBM_OK);
  CHECK_STATUS(kvbm_block_downgrade(w.manager, &block, 1, &weak), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(w.manager, &weak, 1, &view), KVBM_ERR_STATE);
  CHECK_STATUS(kvbm_block_upgrade(w.manager, &block, 1, &strong), KVBM_ERR_STATE);
  CHECK_STATUS(kvbm_block_upgrade(w.manager, &weak, 1, &strong), KVBM_OK);
  CHECK(strong != 0);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, &strong, 1), KVBM_OK);
  CHECK_STATUS(kvbm_manager_reset(w.manager, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_upgrade(w.manager, &weak, 1, &strong), KVBM_OK);
  CHECK_U64(strong, 0);
  CHECK_STATUS(kvbm_block_release(w.manager, &weak, 1), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, &weak, 1), KVBM_ERR_STALE);
  world_close(&w);
}

static void clones_are_holds_of_their_own(void) {
  world_t w;
  kvbm_key_t key;
  kvbm_block_t block, clone;
  kvbm_view_t view;
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(put(&w, &key, 1, 5, &block), KVBM_OK);
  CHECK_STATUS(kvbm_block_clone(w.manager, &block, 1, &clone), KVBM_OK);
  CHECK(clone != block);
  CHECK_STATUS(kvbm_block_release(w.manager, &block, 1), KVBM_OK);
  CHECK_STATUS(kvbm_manager_reset(w.manager, NULL), KVBM_OK);
  CHECK_U64(hits_of(&w, &key, 1), 0);
  CHECK_STATUS(kvbm_block_view(w.manager, &clone, 1, &view), KVBM_OK);
  CHECK(check_filled(view.data, WORLD_BLOCK, 5));
  CHECK_STATUS(kvbm_block_release(w.manager, &clone, 1), KVBM_OK);
  world_close(&w);
}

static void empty_batches_and_nulls(void) {
  world_t w;
  kvbm_block_t block;
  kvbm_key_t key;
  CHECK(world_open(&w, kHost, NULL, 0));
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 0, NULL, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_complete(w.manager, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, NULL, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_release(w.manager, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_block_clone(w.manager, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_downgrade(w.manager, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_upgrade(w.manager, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(w.manager, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, w.ns, 1, NULL, NULL, 0, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_allocate(NULL, w.ns, 1, &block, NULL, 0, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_allocate(w.manager, NULL, 1, &block, NULL, 0, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_complete(w.manager, NULL, 1, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_register(w.manager, w.ns, NULL, &key, 1, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_block_release(w.manager, NULL, 1), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_block_release(NULL, &block, 1), KVBM_ERR_INVALID);
  world_close(&w);
}

int main(void) {
  RUN(a_block_lives_from_reset_to_registered);
  RUN(ended_and_invented_holds_are_stale);
  RUN(another_managers_holds_are_foreign);
  RUN(release_ends_every_valid_hold_of_a_batch);
  RUN(allocate_is_all_or_none);
  RUN(eviction_reports_keys_and_spares_what_is_held);
  RUN(batches_with_a_bad_member_change_nothing);
  RUN(bad_lengths_are_refused);
  RUN(duplicates_are_reused_or_kept_private);
  RUN(weak_holds_do_not_keep_a_block);
  RUN(clones_are_holds_of_their_own);
  RUN(empty_batches_and_nulls);
  FINISH();
}

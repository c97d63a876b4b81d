/* Which block goes when the host is full: policies of the caller's in C, and hints under every policy. */
#include <pthread.h>

#include "engine.h"

#define HOST_BLOCKS 24u
#define MOST_SLOTS 64u

/* An LRU policy, strictly by kvbm_plugin.h; counts unexpected calls. */
typedef struct caller_lru {
  uint32_t slots[MOST_SLOTS];
  size_t n;
  uint32_t last_tick;
  int complaints;
} caller_lru_t;

static caller_lru_t caller;

static size_t caller_find(uint32_t slot) {
  size_t i = 0;
  while (i < caller.n && caller.slots[i] != slot) ++i;
  return i;
}
static void caller_remove(size_t i) {
  if (i >= caller.n) {
    ++caller.complaints;
    return;
  }
  memmove(&caller.slots[i], &caller.slots[i + 1], (caller.n - i - 1) * sizeof caller.slots[0]);
  --caller.n;
}
static void caller_tick(uint32_t tick) {
  if (tick < caller.last_tick) ++caller.complaints;
  caller.last_tick = tick;
}
static void *caller_create(void *user, uint32_t n_slots) {
  (void)user;
  CHECK(n_slots <= MOST_SLOTS);
  memset(&caller, 0, sizeof caller);
  return &caller;
}
static void caller_destroy(void *policy) { (void)policy; }
static void caller_inserted(void *policy, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick) {
  size_t i;
  (void)policy;
  (void)names;
  caller_tick(tick);
  for (i = 0; i < n; ++i) {
    if (caller.n == MOST_SLOTS || caller_find(slots[i]) != caller.n) {
      ++caller.complaints;
      continue;
    }
    caller.slots[caller.n++] = slots[i];
  }
}
static void caller_used(void *policy, const uint32_t *slots, size_t n, uint32_t tick) {
  size_t i;
  (void)policy;
  caller_tick(tick);
  for (i = 0; i < n; ++i) {
    caller_remove(caller_find(slots[i]));
    if (caller.n < MOST_SLOTS) caller.slots[caller.n++] = slots[i];
  }
}
static uint32_t caller_evict(void *policy, int (*may_evict)(const void *, uint32_t), const void *asker, uint32_t tick) {
  size_t i;
  (void)policy;
  caller_tick(tick);
  for (i = 0; i < caller.n; ++i) {
    const uint32_t slot = caller.slots[i];
    if (!may_evict(asker, slot)) continue;
    caller_remove(i);
    return slot;
  }
  return UINT32_MAX;
}
static void caller_erased(void *policy, uint32_t slot) {
  (void)policy;
  caller_remove(caller_find(slot));
}
static const kvbm_policy_table_t caller_table = {sizeof(kvbm_policy_table_t), 0, "caller", caller_create, caller_destroy,
                                                 caller_inserted, caller_used, caller_evict, caller_erased};

/* Makes keys without parents, of blocks `first` and following. */
static void lone_keys(uint32_t first, size_t n, kvbm_key_t *out) {
  size_t i, b;
  for (i = 0; i < n; ++i) {
    for (b = 0; b < sizeof out[i]; ++b) ((unsigned char *)&out[i])[b] = (unsigned char)((first + i) * 131u + b * 7u);
    memcpy(&out[i], &(uint32_t){first + (uint32_t)i}, 4);
  }
}

static kvbm_status_t store_lone(engine_t *e, uint32_t first, size_t n, uint32_t priority) {
  kvbm_key_t keys[MOST_SLOTS];
  uint32_t ids[MOST_SLOTS];
  kvbm_store_options_t options;
  size_t i;
  lone_keys(first, n, keys);
  for (i = 0; i < n; ++i) ids[i] = (uint32_t)i;
  kvbm_store_options_init(&options, sizeof options);
  options.unchained = 1;
  options.priority = priority;
  return kvbm_cache_store(e->cache, keys, ids, n, &options, NULL, 0);
}

/* Returns a match that holds those of the n blocks that are present. */
static kvbm_match_t *hold(engine_t *e, uint32_t first, size_t n, size_t *out_hits) {
  kvbm_key_t keys[MOST_SLOTS];
  kvbm_lookup_options_t options;
  kvbm_match_t *match = NULL;
  lone_keys(first, n, keys);
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = KVBM_LOOKUP_EACH;
  OK(kvbm_cache_lookup(e->cache, keys, n, &options, &match, out_hits));
  return match;
}

/* Returns how many blocks can be allocated when nothing is held. Lower tiers get time to store blocks before. */
static size_t allocatable(engine_t *e) {
  kvbm_block_t blocks[MOST_SLOTS];
  size_t n = 0, rounds;
  for (rounds = 0; rounds < 2; ++rounds) {
    while (n < MOST_SLOTS && kvbm_manager_allocate(e->manager, e->ns, 1, &blocks[n], NULL, 0, NULL) == KVBM_OK) ++n;
    OK(kvbm_manager_flush(e->manager, 60000000000ULL));
  }
  OK(kvbm_block_release(e->manager, blocks, n));
  return n;
}

static void nothing_is_lost_where_a_match_holds_what_is_written_below(void) {
  const char *const names[] = {NULL, "lru"};
  size_t which;
  for (which = 0; which < 2; ++which) {
    char path[256];
    engine_t e;
    uint32_t next = 0;
    size_t slots, round;
    CHECK(check_directory(path) != NULL);
    engine_policy = names[which];
    engine_policy_table = names[which] == NULL ? &caller_table : NULL;
    engine_admission = KVBM_ADMIT_ON_EVICTION;
    OK(engine_open(&e, HOST_BLOCKS, path, 64u << 20));
    slots = allocatable(&e);
    for (round = 0; round < 6; ++round) {
      kvbm_match_t *match;
      uint32_t i;
      size_t hits = 0;
      for (i = 0; i < slots + 4; ++i) OK(store_lone(&e, next + i, 1, KVBM_PRIORITY_NORMAL));
      next += (uint32_t)slots + 4;
      match = hold(&e, next - (uint32_t)slots, slots, &hits);
      CHECK(hits != 0);
      OK(kvbm_manager_flush(e.manager, 60000000000ULL));
      kvbm_match_release(match);
    }
    OK(kvbm_manager_flush(e.manager, 60000000000ULL));
    CHECK(allocatable(&e) == slots);
    CHECK(names[which] != NULL || caller.complaints == 0);
    engine_close(&e);
    check_remove(path);
  }
  engine_policy = NULL;
  engine_policy_table = NULL;
  engine_admission = KVBM_ADMIT_ALL;
}

typedef struct readers {
  engine_t *e;
  unsigned rounds;
} readers_t;

static void *read_on(void *argument) {
  readers_t *r = (readers_t *)argument;
  unsigned i;
  for (i = 0; i < r->rounds; ++i) {
    size_t hits = 0;
    kvbm_match_release(hold(r->e, i % 40, 8, &hits));
  }
  return NULL;
}

static void nothing_is_lost_where_lookups_race_with_eviction(void) {
  engine_t e;
  readers_t readers;
  pthread_t thread;
  size_t slots;
  unsigned i;
  engine_policy_table = &caller_table;
  OK(engine_open(&e, HOST_BLOCKS, NULL, 0));
  slots = allocatable(&e);
  readers.e = &e;
  readers.rounds = 4000;
  CHECK(pthread_create(&thread, NULL, read_on, &readers) == 0);
  for (i = 0; i < 4000; ++i) OK(store_lone(&e, i % 48, 1, KVBM_PRIORITY_NORMAL));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(allocatable(&e) == slots);
  CHECK(caller.complaints == 0);
  engine_close(&e);
  engine_policy_table = NULL;
}

/* Returns how many of the n blocks are in the host. */
static size_t there(engine_t *e, uint32_t first, size_t n) {
  size_t hits = 0;
  kvbm_match_release(hold(e, first, n, &hits));
  return hits;
}

static void hints_are_honoured_whatever_the_policy_is(void) {
  const char *const names[] = {NULL, "prefix", "lru", "fifo", "lfu", "tinylfu"};
  size_t which;
  for (which = 0; which < sizeof names / sizeof names[0]; ++which) {
    engine_t e;
    kvbm_key_t keys[2];
    kvbm_key_t evicted[MOST_SLOTS];
    kvbm_block_t block;
    size_t slots, gone = 0;
    uint32_t i;
    engine_policy = names[which];
    engine_policy_table = names[which] == NULL ? &caller_table : NULL;
    OK(engine_open(&e, HOST_BLOCKS, NULL, 0));
    slots = allocatable(&e);
    OK(store_lone(&e, 0, 2, KVBM_PRIORITY_KEEP));
    OK(store_lone(&e, 100, slots - 4, KVBM_PRIORITY_NORMAL));
    OK(store_lone(&e, 200, 1, KVBM_PRIORITY_ONE_SHOT));
    OK(store_lone(&e, 300, 1, KVBM_PRIORITY_NORMAL));
    lone_keys(300, 1, keys);
    OK(kvbm_manager_hint(e.manager, e.ns, NULL, keys, 1, KVBM_PRIORITY_ONE_SHOT));
    /* Both one-shot blocks are evicted before all others. */
    for (i = 0; i < 2; ++i) {
      OK(kvbm_manager_allocate(e.manager, e.ns, 1, &block, evicted, MOST_SLOTS, &gone));
      CHECK(gone == 1);
      OK(kvbm_block_release(e.manager, &block, 1));
      OK(store_lone(&e, 400 + i, 1, KVBM_PRIORITY_NORMAL));
    }
    CHECK(there(&e, 100, slots - 4) == slots - 4);
    CHECK(there(&e, 200, 1) == 0 && there(&e, 300, 1) == 0);
    /* Blocks with the hint keep are there after the host was filled many times over. */
    for (i = 0; i < 4 * slots; ++i) OK(store_lone(&e, 1000 + i, 1, KVBM_PRIORITY_NORMAL));
    CHECK(there(&e, 0, 2) == 2);
    lone_keys(0, 2, keys);
    OK(kvbm_manager_hint(e.manager, e.ns, NULL, keys, 2, KVBM_PRIORITY_NORMAL));
    OK(kvbm_manager_hint(e.manager, e.ns, NULL, keys, 2, KVBM_PRIORITY_ONE_SHOT));
    OK(store_lone(&e, 2000, 2, KVBM_PRIORITY_NORMAL));
    CHECK(there(&e, 0, 2) == 0);
    CHECK(names[which] != NULL || caller.complaints == 0);
    engine_close(&e);
  }
  engine_policy = NULL;
  engine_policy_table = NULL;
}

int main(void) {
  RUN(nothing_is_lost_where_a_match_holds_what_is_written_below);
  RUN(nothing_is_lost_where_lookups_race_with_eviction);
  RUN(hints_are_honoured_whatever_the_policy_is);
  FINISH();
}

/* Stores that outrun the disk: they wait for slots that offloads are about to release, and are refused if only
 * callers hold the slots. */
#include <unistd.h>

#include "engine.h"

#define HOST_BLOCKS 128u
#define LENGTH 64u /* blocks of a store: half of the host */
#define STORES 200u

static char scratch[64];

static void stats_of(engine_t *e, kvbm_manager_stats_t *stats) {
  stats->struct_size = sizeof *stats;
  OK(kvbm_manager_stats(e->manager, stats));
}

static void open_over(engine_t *e, const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  OK(engine_open(e, HOST_BLOCKS, path, 128 << 20));
}

/* Returns how many blocks of the chains some tier still has; compares every byte. */
static size_t all_that_came_back(engine_t *e, uint32_t stores) {
  size_t good = 0;
  uint32_t s;
  for (s = 0; s < stores; ++s) good += engine_load(e, 1 + 1000 * s, 32);
  return good;
}

static void burst(uint32_t admission, const char *name) {
  engine_t e;
  kvbm_manager_stats_t stats;
  uint32_t s, refused = 0;
  engine_admission = admission;
  engine_write_bytes_per_s = 16 << 20;
  open_over(&e, name);
  for (s = 0; s < STORES; ++s) refused += engine_store(&e, 1 + 1000 * s, LENGTH) != KVBM_OK;
  CHECK_U64(refused, 0);
  stats_of(&e, &stats);
  CHECK_U64(stats.stores_refused_room, 0);
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  CHECK(all_that_came_back(&e, STORES) > 0);
  engine_close(&e);
}

static void a_burst_of_stores_is_not_refused(void) { burst(KVBM_ADMIT_ALL, "all"); }
static void nor_where_blocks_go_down_when_they_are_evicted(void) { burst(KVBM_ADMIT_ON_EVICTION, "on_eviction"); }

/* Every block of the host is being offloaded to a slow disk on request, so later stores must wait. */
static void many_stores_at_once_wait_for_what_is_offloaded(void) {
  enum { kMany = 40, kEach = 16 };
  engine_t e;
  kvbm_queue_t *queue;
  kvbm_key_t keys[64];
  kvbm_manager_stats_t stats;
  uint32_t ids[kEach], s, i, ended = 0;
  engine_admission = KVBM_ADMIT_ON_REQUEST;
  engine_write_bytes_per_s = 4 << 20;
  open_over(&e, "by_name");
  OK(engine_store(&e, 1, 64));
  OK(engine_store(&e, 1001, 60));
  OK(kvbm_queue_create(e.context, 64, &queue, &check_error));
  for (s = 0; s < 2; ++s) {
    engine_keys(&e, 1 + 1000 * s, s == 0 ? 64 : 60, keys);
    OK(kvbm_manager_offload(e.manager, e.ns, NULL, keys, s == 0 ? 64 : 60, 1, queue, 1000));
  }
  for (i = 0; i < kEach; ++i) ids[i] = i;
  memset(e.memory, 'k', (size_t)kEach * BLOCK_BYTES);
  for (s = 0; s < kMany; ++s) {
    engine_keys(&e, 100001 + 1000 * s, kEach, keys);
    OK(kvbm_cache_store(e.cache, keys, ids, kEach, NULL, queue, s));
  }
  while (ended < kMany + 2) {
    kvbm_completion_t done;
    CHECK(kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER) == 1);
    CHECK_STATUS(done.status, KVBM_OK);
    ++ended;
  }
  stats_of(&e, &stats);
  CHECK_U64(stats.stores_refused_room, 0);
  CHECK_U64(stats.tiers[1].stores, 124);
  CHECK_U64(engine_load(&e, 1, 32), 32);
  kvbm_queue_release(queue);
  engine_close(&e);
}

static void what_the_caller_holds_is_refused_at_once(void) {
  engine_t e;
  kvbm_block_t held[HOST_BLOCKS];
  kvbm_manager_stats_t stats;
  uint32_t n = HOST_BLOCKS;
  open_over(&e, "held");
  while (kvbm_manager_allocate(e.manager, e.ns, n, held, NULL, 0, NULL) == KVBM_ERR_NO_ROOM) --n;
  CHECK_STATUS(engine_store(&e, 1, 4), KVBM_ERR_NO_ROOM);
  stats_of(&e, &stats);
  CHECK_U64(stats.stores_refused_room, 4);
  OK(kvbm_block_release(e.manager, held, n));
  OK(engine_store(&e, 1, 4));
  engine_close(&e);
}

int main(void) {
  char command[128];
  snprintf(scratch, sizeof scratch, "/tmp/kvbm-burst-XXXXXX");
  if (mkdtemp(scratch) == NULL) return 77;
  /* Room comes as the disk writes, and a busy disk may write nothing for a second, the default. */
  setenv("KVBM_HOST_ROOM_WAIT", "60s", 1);
  RUN(a_burst_of_stores_is_not_refused);
  RUN(nor_where_blocks_go_down_when_they_are_evicted);
  RUN(many_stores_at_once_wait_for_what_is_offloaded);
  RUN(what_the_caller_holds_is_refused_at_once);
  snprintf(command, sizeof command, "rm -rf %s", scratch);
  if (system(command) != 0) return 1;
  FINISH();
}

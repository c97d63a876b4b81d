/* Stores that outrun the disk: a cache leaves offloads out rather than refuse a store. */
#include <unistd.h>

#include "engine.h"

#define HOST_BLOCKS 128u
#define STORES 94u
#define LENGTH 64u /* blocks of a store: half of the host */

static char scratch[64];

static void stats_of(engine_t *e, kvbm_manager_stats_t *stats) {
  stats->struct_size = sizeof *stats;
  OK(kvbm_manager_stats(e->manager, stats));
}

/* What is still there of each chain, from its first block on, every byte compared; how many blocks that is. */
static size_t all_that_came_back(engine_t *e) {
  size_t good = 0;
  uint32_t s;
  for (s = 0; s < STORES; ++s) good += engine_load(e, 1 + 1000 * s, 32);
  return good;
}

static void burst(uint32_t admission, const char *name) {
  engine_t e;
  kvbm_manager_stats_t stats;
  char path[128];
  uint64_t first_third = 0, second_third = 0, in_host, left, refused;
  uint32_t s;
  size_t good;
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  engine_admission = admission;
  engine_write_bytes_per_s = 16 << 20; /* the burst alone is 47 MiB */
  OK(engine_open(&e, HOST_BLOCKS, path, 128 << 20));
  for (s = 0, refused = 0; s < STORES; ++s) {
    if (engine_store(&e, 1 + 1000 * s, LENGTH) != KVBM_OK) ++refused;
    stats_of(&e, &stats);
    if (s == STORES / 3) first_third = stats.tiers[1].stores;
    if (s == STORES * 2 / 3) second_third = stats.tiers[1].stores;
  }
  CHECK_U64(refused, 0);
  CHECK_U64(stats.stores_refused_room, 0);
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  stats_of(&e, &stats);
  printf("%s: %llu of %u blocks written (%llu and %llu after the first thirds), %llu skipped, %llu refused\n", name,
         (unsigned long long)stats.tiers[1].stores, STORES * LENGTH, (unsigned long long)first_third,
         (unsigned long long)second_third, (unsigned long long)stats.offloads_skipped,
         (unsigned long long)stats.stores_refused_room);
  /* The disk was kept at work all the time, */
  CHECK(first_third > 0 && second_third > first_third && stats.tiers[1].stores > second_third);
  /* and every block was written, was given up and counted, or is in the host alone. */
  in_host = stats.tiers[0].blocks;
  left = STORES * LENGTH - stats.offloads_skipped;
  CHECK(stats.offloads_skipped > 0);
  CHECK(stats.tiers[1].stores <= left && left <= stats.tiers[1].stores + in_host);
  if (admission == KVBM_ADMIT_ALL) CHECK_U64(left, stats.tiers[1].stores);
  good = all_that_came_back(&e);
  CHECK(good > 0);
  engine_close(&e);
  OK(engine_open(&e, HOST_BLOCKS, path, 128 << 20));
  CHECK(all_that_came_back(&e) > 0);
  engine_close(&e);
}

static void a_burst_of_stores_is_not_refused(void) { burst(KVBM_ADMIT_ALL, "all"); }
static void nor_where_blocks_go_down_when_they_are_evicted(void) { burst(KVBM_ADMIT_ON_EVICTION, "on_eviction"); }

static void what_the_caller_holds_is_still_refused(void) {
  engine_t e;
  kvbm_block_t held[HOST_BLOCKS];
  kvbm_manager_stats_t stats;
  char path[128];
  uint32_t n = HOST_BLOCKS;
  snprintf(path, sizeof path, "%s/held", scratch);
  OK(engine_open(&e, HOST_BLOCKS, path, 128 << 20));
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
  RUN(a_burst_of_stores_is_not_refused);
  RUN(nor_where_blocks_go_down_when_they_are_evicted);
  RUN(what_the_caller_holds_is_still_refused);
  snprintf(command, sizeof command, "rm -rf %s", scratch);
  if (system(command) != 0) return 1;
  FINISH();
}

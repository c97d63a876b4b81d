/* Stores that outrun the disk: a cache leaves offloads out rather than refuse a store. */
#include <unistd.h>

#include "engine.h"

#define HOST_BLOCKS 128u
#define LENGTH 64u /* blocks of a store: half of the host */
#define STORES 94u /* at least, */
#define GROWTH 8u  /* and until the disk was seen to have grown so often, */
#define TOO_MANY 20000u

static char scratch[64];

static void stats_of(engine_t *e, kvbm_manager_stats_t *stats) {
  stats->struct_size = sizeof *stats;
  OK(kvbm_manager_stats(e->manager, stats));
}

/* What is still there of each chain, from its first block on, every byte compared; how many blocks that is. */
static size_t all_that_came_back(engine_t *e, uint32_t stores) {
  size_t good = 0;
  uint32_t s;
  for (s = 0; s < stores; ++s) good += engine_load(e, 1 + 1000 * s, 32);
  return good;
}

static void burst(uint32_t admission, const char *name) {
  engine_t e;
  kvbm_manager_stats_t stats;
  char path[128];
  uint64_t before = 0, refused = 0, left;
  uint32_t s, grew = 0;
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  engine_admission = admission;
  engine_write_bytes_per_s = 16 << 20;
  OK(engine_open(&e, HOST_BLOCKS, path, 128 << 20));
  for (s = 0; s < TOO_MANY && (s < STORES || grew < GROWTH); ++s) {
    if (engine_store(&e, 1 + 1000 * s, LENGTH) != KVBM_OK) ++refused;
    stats_of(&e, &stats);
    if (stats.tiers[1].stores > before) ++grew;
    before = stats.tiers[1].stores;
  }
  CHECK_U64(refused, 0);
  CHECK_U64(stats.stores_refused_room, 0);
  CHECK(s < TOO_MANY); /* the disk was kept at work meanwhile */
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  stats_of(&e, &stats);
  printf("%s: %u stores, %llu of %u blocks written, %llu skipped\n", name, s,
         (unsigned long long)stats.tiers[1].stores, s * LENGTH, (unsigned long long)stats.offloads_skipped);
  /* Every block was written, or left the host and was counted, or (on_eviction) is in the host alone. */
  CHECK(stats.offloads_skipped > 0);
  left = (uint64_t)s * LENGTH - stats.offloads_skipped;
  CHECK(stats.tiers[1].stores <= left && left <= stats.tiers[1].stores + stats.tiers[0].blocks);
  if (admission == KVBM_ADMIT_ALL) CHECK_U64(left, stats.tiers[1].stores);
  CHECK(all_that_came_back(&e, s) > 0);
  engine_close(&e);
  OK(engine_open(&e, HOST_BLOCKS, path, 128 << 20));
  if (admission == KVBM_ADMIT_ALL) CHECK(all_that_came_back(&e, s) > 0);
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

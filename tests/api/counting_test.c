/* Sums of the counters of lookups and tiers. */
#include "engine.h"

static char scratch[256];

/* Returns the statistics, after checking the sums that hold whenever no operation is in progress. */
static kvbm_manager_stats_t counted(kvbm_manager_t *manager) {
  kvbm_manager_stats_t stats;
  uint64_t hits = 0, misses = 0;
  uint32_t t;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(manager, &stats));
  for (t = 0; t < stats.n_tiers; ++t) {
    hits += stats.tiers[t].hits;
    misses += stats.tiers[t].misses;
  }
  CHECK_U64(hits, stats.keys_hit);
  CHECK_U64(hits + misses, stats.keys_looked_up);
  return stats;
}

/* Waits for offloads, then evicts every block without a hold. */
static void empty_host(kvbm_manager_t *manager, kvbm_namespace_t *ns) {
  kvbm_block_t all[64];
  size_t n = 0;
  OK(kvbm_manager_flush(manager, 60000000000u));
  while (n < 64 && kvbm_manager_allocate(manager, ns, 1, &all[n], NULL, 0, NULL) == KVBM_OK) ++n;
  OK(kvbm_block_release(manager, all, n));
}

static size_t look_up(kvbm_cache_t *cache, const kvbm_key_t *keys, size_t n, uint32_t mode, uint64_t *bytes) {
  kvbm_lookup_options_t options;
  kvbm_match_t *match = NULL;
  kvbm_match_item_t item;
  size_t found = 0, i;
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = mode;
  OK(kvbm_cache_lookup(cache, keys, n, &options, &match, &found));
  for (i = 0; i < kvbm_match_count(match); ++i) {
    OK(kvbm_match_items(match, i, 1, &item));
    *bytes += item.bytes;
  }
  kvbm_match_release(match);
  return found;
}

static void the_host_counts_the_bytes_that_blocks_have(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  kvbm_block_t blocks[3];
  kvbm_key_t keys[3];
  const uint64_t sizes[3] = {1000, 4096, BLOCK_BYTES};
  uint64_t bytes = 0;
  OK(engine_open(&e, 24, NULL, 0));
  OK(kvbm_manager_allocate(e.manager, e.ns, 3, blocks, NULL, 0, NULL));
  OK(kvbm_manager_complete(e.manager, blocks, 3, sizes));
  stats = counted(e.manager);
  CHECK_U64(stats.tiers[0].payload_bytes, 0); /* not registered yet */
  engine_keys(&e, 500, 3, keys);
  OK(kvbm_manager_register(e.manager, e.ns, blocks, keys, 3, NULL));
  OK(kvbm_block_release(e.manager, blocks, 3));
  OK(engine_store(&e, 1, 2));
  stats = counted(e.manager);
  CHECK_U64(stats.tiers[0].blocks, 5);
  CHECK_U64(stats.tiers[0].payload_bytes, 1000 + 4096 + 3 * BLOCK_BYTES);
  CHECK_U64(stats.tiers[0].store_bytes, 1000 + 4096 + 3 * BLOCK_BYTES);
  CHECK_U64(look_up(e.cache, keys, 3, KVBM_LOOKUP_PREFIX, &bytes), 3);
  CHECK_U64(bytes, 1000 + 4096 + BLOCK_BYTES);
  stats = counted(e.manager);
  CHECK_U64(stats.tiers[0].hits, 3);
  CHECK_U64(stats.tiers[0].hit_bytes, bytes);
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys + 1, 2, NULL));
  stats = counted(e.manager);
  CHECK_U64(stats.tiers[0].payload_bytes, 1000 + 2 * BLOCK_BYTES);
  empty_host(e.manager, e.ns);
  stats = counted(e.manager);
  CHECK(stats.tiers[0].blocks == 0 && stats.tiers[0].payload_bytes == 0);
  engine_close(&e);
}

static void prefetches_are_no_lookups(void) {
  engine_t e;
  kvbm_manager_stats_t stats;
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done;
  kvbm_key_t keys[6];
  uint64_t bytes = 0;
  char path[320];
  snprintf(path, sizeof path, "%s/prefetch", scratch);
  OK(engine_open(&e, 16, path, 64 << 20));
  OK(kvbm_queue_create(e.context, 8, &queue, &check_error));
  OK(engine_store(&e, 1, 4));
  engine_keys(&e, 1, 6, keys);
  OK(kvbm_manager_offload(e.manager, e.ns, NULL, keys, 4, 1, queue, 1));
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER), 1);
  CHECK(done.items_done == 4 && done.bytes == 4 * BLOCK_BYTES);
  empty_host(e.manager, e.ns);
  OK(kvbm_manager_prefetch(e.manager, e.ns, NULL, keys, 6, queue, 2));
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER), 1);
  CHECK(done.items == 6 && done.items_done == 4 && done.bytes == 4 * BLOCK_BYTES);
  stats = counted(e.manager);
  CHECK(stats.lookups == 0 && stats.keys_looked_up == 0 && stats.keys_hit == 0);
  CHECK(stats.tiers[1].loads == 4 && stats.tiers[1].load_bytes == 4 * BLOCK_BYTES);
  CHECK(stats.tiers[0].misses == 0 && stats.tiers[1].misses == 0 && stats.tiers[1].hits == 0);
  CHECK_U64(look_up(e.cache, keys, 6, KVBM_LOOKUP_EACH, &bytes), 4);
  stats = counted(e.manager);
  CHECK(stats.lookups == 1 && stats.tiers[0].hits == 4 && stats.tiers[1].misses == 2);
  CHECK_U64(stats.tiers[0].hit_bytes, 4 * BLOCK_BYTES);
  kvbm_queue_release(queue);
  engine_close(&e);
}

/* A window of 32 tokens beside attention, the window first; blocks of 16 tokens. */
enum { kTokens = 16, kPlane = kTokens * 64 * 2, kHybridBlocks = 16, kWindowBlocks = 2 };
typedef struct hybrid {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_geometry_t *geometry;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  unsigned char *memory;
} hybrid_t;

static void hybrid_open(hybrid_t *h) {
  kvbm_manager_options_t options;
  kvbm_namespace_options_t who;
  kvbm_cache_options_t layout;
  kvbm_component_t components[2];
  kvbm_cache_part_t parts[2];
  kvbm_tensor_t tensors[2];
  kvbm_tier_t tier;
  char path[320];
  size_t i;
  snprintf(path, sizeof path, "%s/hybrid", scratch);
  memset(h, 0, sizeof *h);
  memset(components, 0, sizeof components);
  memset(parts, 0, sizeof parts);
  memset(tensors, 0, sizeof tensors);
  memset(&tier, 0, sizeof tier);
  tier.path = path;
  tier.capacity_bytes = 64 << 20;
  OK(kvbm_context_create(NULL, &h->context, &check_error));
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 4096 + 48 * (BLOCK_BYTES + 384);
  options.tiers = &tier;
  options.n_tiers = 1;
  OK(kvbm_manager_create(h->context, &options, &h->manager, &check_error));
  h->memory = (unsigned char *)calloc(2 * kHybridBlocks, 2 * kPlane);
  for (i = 0; i < 2; ++i) {
    components[i].element = KVBM_ELEMENT_BF16;
    components[i].layers = 1;
    components[i].heads = 1;
    components[i].head_dim = 64;
    tensors[i].data = h->memory + i * kHybridBlocks * 2 * kPlane;
    tensors[i].bytes = kHybridBlocks * 2 * kPlane;
    parts[i].part.component = (uint32_t)i;
    parts[i].form = KVBM_FORM_BLOCKS_NHD;
    parts[i].tensors = &tensors[i];
    parts[i].n_tensors = 1;
  }
  components[0].kind = KVBM_COMPONENT_WINDOW;
  components[0].window_tokens = kWindowBlocks * kTokens;
  OK(kvbm_geometry_create(kTokens, 1, components, 2, &h->geometry, &check_error));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "hybrid";
  who.geometry = h->geometry;
  OK(kvbm_namespace_open(h->manager, &who, &h->ns, &check_error));
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = kHybridBlocks;
  layout.parts = parts;
  layout.n_parts = 2;
  OK(kvbm_cache_attach(h->manager, h->ns, &layout, &h->cache, &check_error));
}

static void hybrid_close(hybrid_t *h) {
  kvbm_cache_release(h->cache);
  kvbm_namespace_release(h->ns);
  kvbm_geometry_release(h->geometry);
  kvbm_manager_release(h->manager);
  kvbm_context_release(h->context);
  free(h->memory);
}

static void hits_of_a_window_sum_to_the_total(void) {
  hybrid_t h;
  kvbm_manager_stats_t stats;
  kvbm_part_t attention;
  kvbm_key_t keys[12];
  uint32_t ids[20], tokens[12 * kTokens];
  uint64_t in_host = 0, mixed = 0;
  const uint64_t record = 2 * kPlane;
  size_t i, n;
  hybrid_open(&h);
  for (i = 0; i < 12 * kTokens; ++i) tokens[i] = (uint32_t)i;
  OK(kvbm_key_chain(h.ns, NULL, tokens, 12 * kTokens, kTokens, NULL, keys, 12, &n));
  for (i = 0; i < 20; ++i) ids[i] = (uint32_t)(i % 10);
  OK(kvbm_cache_store(h.cache, keys, ids, 10, NULL, NULL, 0));
  CHECK_U64(look_up(h.cache, keys, 12, KVBM_LOOKUP_PREFIX, &in_host), 10);
  CHECK_U64(in_host, (10 + kWindowBlocks) * record);
  stats = counted(h.manager);
  CHECK(stats.tiers[0].hits == 10 && stats.tiers[1].hits == 0 && stats.tiers[1].misses == 2);
  CHECK_U64(stats.tiers[0].hit_bytes, in_host);
  CHECK_U64(stats.tiers[0].payload_bytes, 20 * record);
  /* The attention of the last three blocks is in the host, and all else on the disk. */
  empty_host(h.manager, h.ns);
  memset(&attention, 0, sizeof attention);
  attention.component = 1;
  OK(kvbm_manager_prefetch(h.manager, h.ns, &attention, keys + 7, 3, NULL, 0));
  CHECK_U64(look_up(h.cache, keys, 10, KVBM_LOOKUP_PREFIX, &mixed), 10);
  CHECK_U64(mixed, in_host);
  stats = counted(h.manager);
  CHECK(stats.tiers[0].hits == 10 + 1 && stats.tiers[1].hits == 9); /* the windows of the last two are on the disk */
  CHECK_U64(stats.tiers[0].hit_bytes, in_host + 3 * record);
  CHECK_U64(stats.tiers[1].hit_bytes, mixed - 3 * record);
  /* In modes each and any a hit needs both parts. */
  CHECK_U64(look_up(h.cache, keys + 6, 6, KVBM_LOOKUP_EACH, &mixed), 4);
  CHECK_U64(look_up(h.cache, keys + 9, 3, KVBM_LOOKUP_ANY, &mixed), 1);
  stats = counted(h.manager);
  CHECK(stats.lookups == 4 && stats.tiers[1].hits == 9 + 4 + 1);
  hybrid_close(&h);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 1;
  RUN(the_host_counts_the_bytes_that_blocks_have);
  RUN(prefetches_are_no_lookups);
  RUN(hits_of_a_window_sum_to_the_total);
  check_remove(scratch);
  FINISH();
}

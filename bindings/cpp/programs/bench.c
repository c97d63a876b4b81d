/* The plain C program that every language is compared with: medians of a lookup of 256 keys, of views of 256 blocks,
 * and of the store and load of a block of 1 MiB. One line of JSON. */
#include <kvbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  LOOKUPS = 256,
  REGISTERED = 1024,
  BATCH = 16,
  CACHE_BLOCKS = 32,
  PAGE = 4096, /* the cache begins at a page in every language: copies to other addresses take another time */
  WARM = 20,
  CALLS = 200,
  QUICK_WARM = 500,
  QUICK = 2000
};
static const uint64_t kMiB = 1 << 20;

static void must(kvbm_status_t status) {
  if (status == KVBM_OK) return;
  fprintf(stderr, "%s\n", kvbm_status_name(status));
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

static uint64_t median(uint64_t* samples, size_t n) {
  qsort(samples, n, sizeof *samples, by_value);
  return samples[n / 2];
}

static kvbm_manager_t* manager_of(kvbm_context_t* context, uint64_t block_bytes) {
  kvbm_manager_options_t options;
  kvbm_manager_t* manager = NULL;
  kvbm_tier_t none;
  must(kvbm_manager_options_init(&options, sizeof options));
  memset(&none, 0, sizeof none);
  options.block_bytes = block_bytes;
  options.host_capacity_bytes = 64 * kMiB;
  options.tiers = &none;
  options.n_tiers = 0;
  must(kvbm_manager_create(context, &options, &manager, NULL));
  return manager;
}

static kvbm_namespace_t* namespace_of(kvbm_manager_t* manager) {
  kvbm_namespace_options_t options;
  kvbm_namespace_t* ns = NULL;
  must(kvbm_namespace_options_init(&options, sizeof options));
  options.model = "bench";
  must(kvbm_namespace_open(manager, &options, &ns, NULL));
  return ns;
}

static void chain(const kvbm_namespace_t* ns, kvbm_key_t* keys, size_t n) {
  static uint32_t tokens[REGISTERED * 16];
  size_t made = 0;
  for (uint32_t i = 0; i < n * 16; ++i) tokens[i] = i;
  must(kvbm_key_chain(ns, NULL, tokens, n * 16, 16, NULL, keys, n, &made));
}

static void measure_blocks(kvbm_context_t* context, uint64_t* lookup_ns, uint64_t* view_ns) {
  static kvbm_block_t blocks[REGISTERED], held[LOOKUPS];
  static kvbm_key_t keys[REGISTERED];
  static kvbm_view_t views[LOOKUPS];
  static uint64_t samples[QUICK];
  kvbm_manager_t* manager = manager_of(context, 4096);
  kvbm_namespace_t* ns = namespace_of(manager);
  chain(ns, keys, REGISTERED);
  must(kvbm_manager_allocate(manager, ns, REGISTERED, blocks, NULL, 0, NULL));
  must(kvbm_manager_complete(manager, blocks, REGISTERED, NULL));
  must(kvbm_manager_register(manager, ns, blocks, keys, REGISTERED, NULL));
  for (int i = -QUICK_WARM; i < QUICK; ++i) {
    kvbm_match_t* found = NULL;
    size_t n = 0;
    const uint64_t begin = now_ns();
    must(kvbm_manager_lookup(manager, ns, keys, LOOKUPS, NULL, &found, &n));
    kvbm_match_release(found);
    if (i >= 0) samples[i] = now_ns() - begin;
    if (n != LOOKUPS) exit(1);
  }
  *lookup_ns = median(samples, QUICK);
  kvbm_match_t* match = NULL;
  size_t hits = 0;
  must(kvbm_manager_lookup(manager, ns, keys, LOOKUPS, NULL, &match, &hits));
  must(kvbm_match_blocks(match, 0, 0, LOOKUPS, held));
  kvbm_match_release(match);
  for (int i = -QUICK_WARM; i < QUICK; ++i) {
    const uint64_t begin = now_ns();
    must(kvbm_block_view(manager, held, LOOKUPS, views));
    if (i >= 0) samples[i] = now_ns() - begin;
  }
  *view_ns = median(samples, QUICK);
  must(kvbm_block_release(manager, held, LOOKUPS));
  must(kvbm_block_release(manager, blocks, REGISTERED));
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
}

static kvbm_cache_t* attach(kvbm_manager_t* manager, kvbm_namespace_t* ns, void* memory) {
  kvbm_tensor_t tensor = {memory, CACHE_BLOCKS * kMiB, 0, kMiB};
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  kvbm_cache_t* cache = NULL;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  must(kvbm_cache_options_init(&options, sizeof options));
  options.n_blocks = CACHE_BLOCKS;
  options.parts = &part;
  options.n_parts = 1;
  must(kvbm_cache_attach(manager, ns, &options, &cache, NULL));
  return cache;
}

static void measure_bytes(kvbm_context_t* context, uint64_t* store_ns, uint64_t* load_ns) {
  static uint64_t stores[CALLS], loads[CALLS];
  kvbm_key_t keys[BATCH];
  uint32_t ids[BATCH];
  kvbm_match_t* match = NULL;
  size_t hits = 0;
  kvbm_manager_t* manager = manager_of(context, kMiB);
  kvbm_namespace_t* ns = namespace_of(manager);
  void* pages = NULL;
  if (posix_memalign(&pages, PAGE, CACHE_BLOCKS * kMiB) != 0) exit(1);
  unsigned char* memory = (unsigned char*)pages;
  for (size_t i = 0; i < CACHE_BLOCKS * kMiB; ++i) memory[i] = (unsigned char)(i * 7 + (i >> 8));
  kvbm_cache_t* cache = attach(manager, ns, memory);
  chain(ns, keys, BATCH);
  for (uint32_t i = 0; i < BATCH; ++i) ids[i] = i;
  for (int i = -WARM; i < CALLS; ++i) {
    must(kvbm_manager_drop(manager, ns, NULL, keys, BATCH, NULL));
    const uint64_t begin = now_ns();
    must(kvbm_cache_store(cache, keys, ids, BATCH, NULL, NULL, 0));
    if (i >= 0) stores[i] = now_ns() - begin;
  }
  must(kvbm_cache_lookup(cache, keys, BATCH, NULL, &match, &hits));
  if (hits != BATCH) exit(1);
  for (int i = -WARM; i < CALLS; ++i) {
    const uint64_t begin = now_ns();
    must(kvbm_cache_load(cache, match, ids, BATCH, NULL, NULL, 0));
    if (i >= 0) loads[i] = now_ns() - begin;
  }
  kvbm_match_release(match);
  *store_ns = median(stores, CALLS) / BATCH;
  *load_ns = median(loads, CALLS) / BATCH;
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  free(memory);
}

int main(void) {
  kvbm_context_t* context = NULL;
  uint64_t lookup_ns, view_ns, store_ns, load_ns;
  must(kvbm_context_create(NULL, &context, NULL));
  measure_blocks(context, &lookup_ns, &view_ns);
  measure_bytes(context, &store_ns, &load_ns);
  printf(
      "{\"language\":\"c\",\"lookup_256_ns\":%llu,\"view_256_ns\":%llu,\"store_1MiB_ns\":%llu,\"load_1MiB_ns\":%llu}\n",
      (unsigned long long)lookup_ns, (unsigned long long)view_ns, (unsigned long long)store_ns,
      (unsigned long long)load_ns);
  kvbm_context_release(context);
  return 0;
}

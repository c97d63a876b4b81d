/* A small engine for tests: a context, a manager, a namespace and an opaque paged cache. */
#ifndef KVBM_TESTS_API_ENGINE_H
#define KVBM_TESTS_API_ENGINE_H

#include "check.h"

/* Details of the last refusal. */
static kvbm_error_t check_error;

#define OK(call) CHECK_STATUS(call, KVBM_OK)

#define BLOCK_BYTES 8192u
#define ENGINE_BLOCKS 64u

typedef struct engine {
  kvbm_context_t* context;
  kvbm_manager_t* manager;
  kvbm_namespace_t* ns;
  kvbm_cache_t* cache;
  unsigned char* memory;
} engine_t;

/* Cap of the disk of engines that are opened from now on; 0: none. */
static uint64_t engine_read_bytes_per_s = 0;
static const char* engine_codec = NULL;
static uint64_t engine_write_bytes_per_s = 0;
static uint32_t engine_admission = KVBM_ADMIT_ALL;
/* File of the host tier of engines that are opened from now on; NULL: memory. */
static const char* engine_host_file = NULL;

/* Eviction policy of engines that are opened from now on; NULL: the default. */
static const char* engine_policy = NULL;
static const kvbm_policy_table_t* engine_policy_table = NULL;

/* Opens an engine with a host for about `host_blocks` blocks, and these tiers below. */
static kvbm_status_t engine_open_tiers(engine_t* e, uint64_t host_blocks, const kvbm_tier_t* tiers, size_t n_tiers) {
  kvbm_manager_options_t options;
  kvbm_namespace_options_t who;
  kvbm_cache_options_t layout;
  kvbm_tensor_t tensor;
  kvbm_cache_part_t part;
  kvbm_status_t status;
  memset(e, 0, sizeof *e);
  status = kvbm_context_create(NULL, &e->context, &check_error);
  if (status != KVBM_OK) return status;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 4096 + host_blocks * (BLOCK_BYTES + 384);
  options.host_file = engine_host_file;
  options.policy = engine_policy;
  options.policy_table = engine_policy_table;
  options.tiers = tiers;
  options.n_tiers = n_tiers;
  status = kvbm_manager_create(e->context, &options, &e->manager, &check_error);
  if (status != KVBM_OK) return status;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  status = kvbm_namespace_open(e->manager, &who, &e->ns, &check_error);
  if (status != KVBM_OK) return status;
  e->memory = (unsigned char*)calloc(ENGINE_BLOCKS, BLOCK_BYTES);
  tensor.data = e->memory;
  tensor.bytes = (uint64_t)ENGINE_BLOCKS * BLOCK_BYTES;
  tensor.block_stride = 0;
  tensor.page_bytes = BLOCK_BYTES;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = ENGINE_BLOCKS;
  layout.parts = &part;
  layout.n_parts = 1;
  return kvbm_cache_attach(e->manager, e->ns, &layout, &e->cache, &check_error);
}

/* Opens an engine like engine_open, with a disk tier if path is given. */
__attribute__((unused)) static kvbm_status_t engine_open(engine_t* e, uint64_t host_blocks, const char* path,
                                                         uint64_t disk_bytes) {
  kvbm_tier_t tier;
  memset(&tier, 0, sizeof tier);
  tier.path = path;
  tier.capacity_bytes = disk_bytes;
  tier.read_bytes_per_s = engine_read_bytes_per_s;
  tier.codec = engine_codec;
  tier.write_bytes_per_s = engine_write_bytes_per_s;
  tier.admission = engine_admission;
  return engine_open_tiers(e, host_blocks, &tier, path != NULL ? 1 : 0);
}

static void engine_close(engine_t* e) {
  kvbm_cache_release(e->cache);
  kvbm_namespace_release(e->ns);
  kvbm_manager_release(e->manager);
  kvbm_context_release(e->context);
  free(e->memory);
  memset(e, 0, sizeof *e);
}

/* Keys of a chain that begins with token `first`. */
static void engine_keys(engine_t* e, uint32_t first, size_t n, kvbm_key_t* out) {
  uint32_t tokens[1024];
  size_t i, made = 0;
  for (i = 0; i < n * 4; ++i) tokens[i] = first + (uint32_t)i;
  OK(kvbm_key_chain(e->ns, NULL, tokens, n * 4, 4, NULL, out, n, &made));
  CHECK(made == n);
}

static unsigned char* engine_block(engine_t* e, uint32_t id) { return e->memory + (size_t)id * BLOCK_BYTES; }

static int engine_block_is(engine_t* e, uint32_t id, unsigned char value) {
  size_t i;
  for (i = 0; i < BLOCK_BYTES; ++i) {
    if (engine_block(e, id)[i] != value) return 0;
  }
  return 1;
}

/* Stores n blocks of a chain, block i filled with first + i; ids 0 .. n-1. */
__attribute__((unused)) static kvbm_status_t engine_store(engine_t* e, uint32_t first, size_t n) {
  kvbm_key_t keys[64];
  uint32_t ids[64];
  size_t i;
  engine_keys(e, first, n, keys);
  for (i = 0; i < n; ++i) {
    ids[i] = (uint32_t)i;
    memset(engine_block(e, (uint32_t)i), (int)((first + i) & 0xFF), BLOCK_BYTES);
  }
  return kvbm_cache_store(e->cache, keys, ids, n, NULL, NULL, 0);
}

/* Looks a chain up and loads hits into ids 32 and following. Compares every byte. Returns the number of right
 * blocks. */
__attribute__((unused)) static size_t engine_load(engine_t* e, uint32_t first, size_t n) {
  kvbm_key_t keys[64];
  kvbm_status_t status[64];
  uint32_t ids[64];
  kvbm_match_t* match = NULL;
  kvbm_load_options_t options;
  size_t hits = 0, i, good = 0;
  engine_keys(e, first, n, keys);
  OK(kvbm_cache_lookup(e->cache, keys, n, NULL, &match, &hits));
  if (hits > 32) hits = 32;
  for (i = 0; i < hits; ++i) {
    ids[i] = 32 + (uint32_t)i;
    memset(engine_block(e, ids[i]), 0xEE, BLOCK_BYTES);
  }
  kvbm_load_options_init(&options, sizeof options);
  options.item_status = status;
  if (hits != 0) kvbm_cache_load(e->cache, match, ids, hits, &options, NULL, 0);
  for (i = 0; i < hits; ++i) {
    if (status[i] != KVBM_OK) continue;
    CHECK(engine_block_is(e, ids[i], (unsigned char)((first + i) & 0xFF)));
    ++good;
  }
  kvbm_match_release(match);
  return good;
}

#endif

/* A managed block is verified from its registration on. A bit that flips in host memory after that is damage for every
 * load of the block, and then a miss, in every way in which it leaves that memory. */
#include <time.h>

#include "check.h"

enum { BLOCK = 8192, BLOCKS = 4, FLIPPED = 2, TENSORS = 2 };

typedef struct store {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  char address[128];
  kvbm_error_t err;
  unsigned char engine[BLOCKS][BLOCK];
} engine_store_t;

static char directory[256];

/* Codec of the disks of stores that are opened from now on. */
static const char *disk_codec = NULL;
static const char *hashes = "at_register";
static size_t tensors = 1; /* that a block lies in */

static kvbm_status_t attach(engine_store_t *s) {
  kvbm_tensor_t parts[TENSORS];
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  size_t i;
  memset(&part, 0, sizeof part);
  for (i = 0; i < tensors; ++i) {
    parts[i].data = (unsigned char *)s->engine + i * (sizeof s->engine / tensors);
    parts[i].bytes = sizeof s->engine / tensors;
    parts[i].block_stride = 0;
    parts[i].page_bytes = BLOCK / tensors;
  }
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = parts;
  part.n_tensors = tensors;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = BLOCKS;
  options.parts = &part;
  options.n_parts = 1;
  return kvbm_cache_attach(s->manager, s->ns, &options, &s->cache, &s->err);
}

/* Opens a store; disk, listen and peers may be NULL. */
static kvbm_status_t open_store(engine_store_t *s, const char *disk, const char *listen, const char *peers,
                                const char *local) {
  kvbm_setting_t settings[5];
  kvbm_context_options_t context;
  kvbm_manager_options_t manager;
  kvbm_namespace_options_t ns;
  kvbm_tier_t tier;
  kvbm_status_t status;
  size_t needed = 0;
  memset(s, 0, sizeof *s);
  settings[0].key = "host.managed_hashes", settings[0].value = hashes;
  settings[1].key = "node.listen", settings[1].value = listen != NULL ? listen : "";
  settings[2].key = "node.peers", settings[2].value = peers != NULL ? peers : "";
  settings[3].key = "node.local", settings[3].value = local != NULL ? local : "off";
  settings[4].key = "node.pool", settings[4].value = "test";
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings;
  context.n_settings = 5;
  status = kvbm_context_create(&context, &s->context, &s->err);
  if (status < 0) return status;
  memset(&tier, 0, sizeof tier);
  tier.path = disk;
  tier.capacity_bytes = 64u << 20;
  tier.admission = KVBM_ADMIT_ON_REQUEST;
  tier.codec = disk_codec;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = BLOCK;
  manager.host_capacity_bytes = 4096 + 3 * BLOCKS * (BLOCK + 4096);
  manager.tiers = &tier;
  manager.n_tiers = disk != NULL ? 1 : 0;
  status = kvbm_manager_create(s->context, &manager, &s->manager, &s->err);
  if (status < 0) return status;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = "test model";
  status = kvbm_namespace_open(s->manager, &ns, &s->ns, &s->err);
  if (status < 0) return status;
  if (listen != NULL) kvbm_manager_node_address(s->manager, s->address, sizeof s->address, &needed);
  return attach(s);
}

static void close_store(engine_store_t *s) {
  kvbm_cache_release(s->cache);
  kvbm_namespace_release(s->ns);
  kvbm_manager_release(s->manager);
  kvbm_context_release(s->context);
  memset(s, 0, sizeof *s);
}

static unsigned char value_of(uint32_t salt, size_t block, size_t at) {
  return (unsigned char)(salt + block * 16 + at / (BLOCK / TENSORS));
}

/* Registers blocks as an engine with a managed pool does. */
static void put(engine_store_t *s, uint32_t salt, kvbm_key_t *keys, kvbm_block_t *blocks) {
  kvbm_view_t views[BLOCKS];
  size_t i, at;
  world_keys(s->ns, salt, keys, BLOCKS);
  CHECK_STATUS(kvbm_manager_allocate(s->manager, s->ns, BLOCKS, blocks, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(s->manager, blocks, BLOCKS, views), KVBM_OK);
  for (i = 0; i < BLOCKS; ++i) {
    for (at = 0; at < BLOCK; ++at) ((unsigned char *)views[i].data)[at] = value_of(salt, i, at);
  }
  CHECK_STATUS(kvbm_manager_complete(s->manager, blocks, BLOCKS, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_register(s->manager, s->ns, blocks, keys, BLOCKS, NULL), KVBM_OK);
}

/* Flips a bit like a cosmic ray, and ends the holds. */
static void flip_a_bit(engine_store_t *s, kvbm_block_t *blocks) {
  kvbm_view_t view;
  CHECK_STATUS(kvbm_block_view(s->manager, &blocks[FLIPPED], 1, &view), KVBM_OK);
  ((unsigned char *)view.data)[BLOCK - 100] ^= 1;
  CHECK_STATUS(kvbm_block_release(s->manager, blocks, BLOCKS), KVBM_OK);
}

static int is_right(const engine_store_t *s, uint32_t salt, size_t block) {
  const size_t page = BLOCK / tensors;
  size_t at;
  for (at = 0; at < BLOCK; ++at) {
    const unsigned char *tensor = (const unsigned char *)s->engine + at / page * (sizeof s->engine / tensors);
    if (tensor[block * page + at % page] != value_of(salt, block, at)) return 0;
  }
  return 1;
}

/* Looks each block up by itself and loads the hits. Returns a status for each: KVBM_ERR_MISS if it was no hit. */
static void load(engine_store_t *s, uint32_t salt, const kvbm_key_t *keys, uint64_t ask_ns, int keep_below,
                 kvbm_status_t *out) {
  size_t i;
  for (i = 0; i < BLOCKS; ++i) {
    kvbm_lookup_options_t lookup;
    kvbm_load_options_t options;
    kvbm_match_t *match = NULL;
    const uint32_t id = (uint32_t)i;
    size_t hits = 0;
    kvbm_lookup_options_init(&lookup, sizeof lookup);
    lookup.mode = KVBM_LOOKUP_EACH;
    lookup.ask_nodes_ns = ask_ns;
    out[i] = KVBM_ERR_MISS;
    CHECK_STATUS(kvbm_cache_lookup(s->cache, &keys[i], 1, &lookup, &match, &hits), KVBM_OK);
    if (hits == 0) continue;
    kvbm_load_options_init(&options, sizeof options);
    options.item_status = &out[i];
    options.keep_below = keep_below != 0;
    memset(s->engine, 0xEE, sizeof s->engine);
    (void)kvbm_cache_load(s->cache, match, &id, 1, &options, NULL, 0);
    if (out[i] == KVBM_OK) CHECK(is_right(s, salt, i));
    kvbm_match_release(match);
  }
}

/* Expects that all blocks but the flipped one are loaded. The flipped one must be damage or a miss, and must not be
 * found afterwards. */
static void only_the_flipped_one_is_refused(engine_store_t *s, uint32_t salt, const kvbm_key_t *keys, uint64_t ask_ns,
                                            int keep_below) {
  kvbm_status_t status[BLOCKS];
  size_t i;
  load(s, salt, keys, ask_ns, keep_below, status);
  for (i = 0; i < BLOCKS; ++i) {
    if (i != FLIPPED) CHECK_STATUS(status[i], KVBM_OK);
  }
  CHECK(status[FLIPPED] == KVBM_ERR_DAMAGED || status[FLIPPED] == KVBM_ERR_MISS);
}

static void evict_all(engine_store_t *s) {
  kvbm_block_t taken[8 * BLOCKS];
  size_t n = 0;
  while (n < 8 * BLOCKS && kvbm_manager_allocate(s->manager, s->ns, 1, &taken[n], NULL, 0, NULL) == KVBM_OK) ++n;
  CHECK(n >= BLOCKS && n < 8 * BLOCKS);
  CHECK_STATUS(kvbm_block_release(s->manager, taken, n), KVBM_OK);
}

/* ---- the ways out ---- */

static void to_an_attached_cache(void) {
  engine_store_t s;
  kvbm_key_t keys[BLOCKS];
  kvbm_block_t blocks[BLOCKS];
  kvbm_status_t status[BLOCKS];
  CHECK_STATUS(open_store(&s, NULL, NULL, NULL, NULL), KVBM_OK);
  put(&s, 7, keys, blocks);
  load(&s, 7, keys, 0, 0, status);
  CHECK_STATUS(status[FLIPPED], KVBM_OK);
  flip_a_bit(&s, blocks);
  load(&s, 7, keys, 0, 0, status);
  CHECK_STATUS(status[FLIPPED], KVBM_ERR_DAMAGED);
  CHECK_STATUS(status[0], KVBM_OK);
  load(&s, 7, keys, 0, 0, status);
  CHECK_STATUS(status[FLIPPED], KVBM_ERR_MISS);
  CHECK_STATUS(status[0], KVBM_OK);
  close_store(&s);
}

/* A record of a managed block knows nothing of the tensors that an engine's cache has. */
static void to_a_cache_that_cuts_blocks_otherwise(void) {
  tensors = TENSORS;
  to_an_attached_cache();
  tensors = 1;
}

static void to_a_disk(void) {
  static const char *const codecs[] = {"off", "fast", "zstd"};
  size_t i;
  for (i = 0; i < sizeof codecs / sizeof *codecs; ++i) {
    engine_store_t s;
    kvbm_key_t keys[BLOCKS];
    kvbm_block_t blocks[BLOCKS];
    char disk[300];
    snprintf(disk, sizeof disk, "%s/%s", directory, codecs[i]);
    disk_codec = codecs[i];
    CHECK_STATUS(open_store(&s, disk, NULL, NULL, NULL), KVBM_OK);
    put(&s, 7, keys, blocks);
    flip_a_bit(&s, blocks);
    (void)kvbm_manager_offload(s.manager, s.ns, NULL, keys, BLOCKS, 1, NULL, 0);
    evict_all(&s);
    only_the_flipped_one_is_refused(&s, 7, keys, 0, 1);
    close_store(&s);
    /* Another process does not find the block either. */
    CHECK_STATUS(open_store(&s, disk, NULL, NULL, NULL), KVBM_OK);
    only_the_flipped_one_is_refused(&s, 7, keys, 0, 0);
    close_store(&s);
  }
  disk_codec = NULL;
}

static void wait_for_the_node(const engine_store_t *s) {
  const struct timespec a_little = {0, 2000000};
  int tries;
  for (tries = 0; tries < 30000; ++tries) {
    kvbm_node_row_t row;
    size_t found = 0;
    if (kvbm_manager_nodes(s->manager, &row, 1, &found) == KVBM_OK && found == 1 && strcmp(row.state, "ready") == 0 &&
        row.capacity_bytes != 0)
      return;
    nanosleep(&a_little, NULL);
  }
  CHECK(!"the node did not come");
}

static void to_another_node_by(const char *local, int keep_below) {
  engine_store_t a, b;
  kvbm_key_t keys[BLOCKS];
  kvbm_block_t blocks[BLOCKS];
  CHECK_STATUS(open_store(&a, NULL, "127.0.0.1:0", NULL, local), KVBM_OK);
  CHECK_STATUS(open_store(&b, NULL, "127.0.0.1:0", a.address, local), KVBM_OK);
  put(&a, 7, keys, blocks);
  flip_a_bit(&a, blocks);
  wait_for_the_node(&b);
  only_the_flipped_one_is_refused(&b, 7, keys, 10u * 1000 * 1000 * 1000, keep_below);
  close_store(&b);
  close_store(&a);
}

static void to_another_node_over_the_link(void) {
  to_another_node_by("off", 1);
  to_another_node_by("off", 0);
}
static void to_another_node_of_this_machine(void) {
  to_another_node_by("auto", 1);
  to_another_node_by("auto", 0);
}

/* ---- put off ---- */

/* The only loss of this option: a block is verified from the first time on that it leaves host memory. */
static void hashes_may_be_put_off_until_a_block_leaves(void) {
  engine_store_t s;
  kvbm_key_t keys[BLOCKS];
  kvbm_block_t blocks[BLOCKS];
  kvbm_status_t status[BLOCKS];
  kvbm_view_t view;
  char disk[300];
  snprintf(disk, sizeof disk, "%s/late", directory);
  hashes = "when_needed";
  CHECK_STATUS(open_store(&s, disk, NULL, NULL, NULL), KVBM_OK);
  hashes = "at_register";
  put(&s, 7, keys, blocks);
  load(&s, 7, keys, 0, 0, status);
  CHECK_STATUS(status[FLIPPED], KVBM_OK);
  CHECK_STATUS(kvbm_manager_offload(s.manager, s.ns, NULL, keys, BLOCKS, 1, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_block_view(s.manager, &blocks[FLIPPED], 1, &view), KVBM_OK);
  ((unsigned char *)view.data)[0] ^= 1;
  CHECK_STATUS(kvbm_block_release(s.manager, blocks, BLOCKS), KVBM_OK);
  load(&s, 7, keys, 0, 0, status);
  CHECK_STATUS(status[FLIPPED], KVBM_ERR_DAMAGED);
  close_store(&s);
}

int main(void) {
  int status;
  if (check_directory(directory) == NULL) return 1;
  RUN(to_an_attached_cache);
  RUN(to_a_cache_that_cuts_blocks_otherwise);
  RUN(to_a_disk);
  RUN(to_another_node_over_the_link);
  RUN(to_another_node_of_this_machine);
  RUN(hashes_may_be_put_off_until_a_block_leaves);
  check_remove(directory);
  printf("%d passed, %d failed\n", check_passed, check_failed);
  status = check_failed != 0;
  return status;
}

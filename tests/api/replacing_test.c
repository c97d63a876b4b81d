/* Two blocks of one key that may not stand for each other: coded with loss and not, computed here and there. */
#include "engine.h"

/* A bf16 model of two layers with one engine block per record: lossy and exact handles of one namespace, a cache of
 * each, a disk that codes. */
enum { kTokens = 16, kWidth = 64, kLayerBytes = 2 * kTokens * kWidth * 2, kBlocks = 8 };
typedef struct model {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_geometry_t *geometry;
  kvbm_namespace_t *lossy, *exact;
  kvbm_cache_t *lossy_cache, *exact_cache;
  unsigned char *layers[2];
} model_t;

static char scratch[256];

static kvbm_cache_t *attach(model_t *m, kvbm_namespace_t *ns) {
  kvbm_cache_options_t options;
  kvbm_cache_part_t part;
  kvbm_tensor_t tensors[2];
  kvbm_cache_t *cache = NULL;
  size_t i;
  memset(&part, 0, sizeof part);
  memset(tensors, 0, sizeof tensors);
  for (i = 0; i < 2; ++i) {
    tensors[i].data = m->layers[i];
    tensors[i].bytes = kBlocks * kLayerBytes;
  }
  part.form = KVBM_FORM_BLOCKS_NHD;
  part.tensors = tensors;
  part.n_tensors = 2;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = kBlocks;
  options.parts = &part;
  options.n_parts = 1;
  OK(kvbm_cache_attach(m->manager, ns, &options, &cache, &check_error));
  return cache;
}

static kvbm_namespace_t *open_ns(model_t *m, const char *codec, uint32_t allow_lossy) {
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "replacing";
  who.geometry = m->geometry;
  who.codec = codec;
  who.allow_lossy = allow_lossy;
  OK(kvbm_namespace_open(m->manager, &who, &ns, &check_error));
  return ns;
}

static void model_open(model_t *m) {
  kvbm_manager_options_t options;
  kvbm_component_t component;
  kvbm_tier_t tier;
  static int opened = 0;
  char path[320];
  snprintf(path, sizeof path, "%s/disk%d", scratch, ++opened);
  memset(m, 0, sizeof *m);
  memset(&tier, 0, sizeof tier);
  memset(&component, 0, sizeof component);
  tier.path = path;
  tier.capacity_bytes = 64 << 20;
  tier.codec = "default";
  OK(kvbm_context_create(NULL, &m->context, &check_error));
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = BLOCK_BYTES;
  options.host_capacity_bytes = 4096 + 16 * (BLOCK_BYTES + 384);
  options.tiers = &tier;
  options.n_tiers = 1;
  OK(kvbm_manager_create(m->context, &options, &m->manager, &check_error));
  component.element = KVBM_ELEMENT_BF16;
  component.layers = 2;
  component.heads = 1;
  component.head_dim = kWidth;
  OK(kvbm_geometry_create(kTokens, 1, &component, 1, &m->geometry, &check_error));
  m->layers[0] = (unsigned char *)calloc(kBlocks, kLayerBytes);
  m->layers[1] = (unsigned char *)calloc(kBlocks, kLayerBytes);
  m->lossy = open_ns(m, "int8", 1);
  m->lossy_cache = attach(m, m->lossy);
}

static void model_close(model_t *m) {
  kvbm_cache_release(m->lossy_cache);
  kvbm_cache_release(m->exact_cache);
  kvbm_namespace_release(m->lossy);
  kvbm_namespace_release(m->exact);
  kvbm_geometry_release(m->geometry);
  kvbm_manager_release(m->manager);
  kvbm_context_release(m->context);
  free(m->layers[0]);
  free(m->layers[1]);
}

/* Contents of engine block `id`: numbers near 1 with low bits that int8 loses. */
static unsigned char value_at(uint32_t id, size_t at) {
  if (at % 2 == 1) return at % 4 == 1 ? 0x3F : 0xBF;
  return (unsigned char)((at / 2 * 37 + id * 11) & 0x7F);
}
static void fill(model_t *m, uint32_t id) {
  size_t i;
  for (i = 0; i < BLOCK_BYTES; ++i) m->layers[i / kLayerBytes][id * kLayerBytes + i % kLayerBytes] = value_at(id, i);
}
static int is_exact(const void *data, uint32_t id) {
  size_t i;
  for (i = 0; i < BLOCK_BYTES; ++i) {
    if (((const unsigned char *)data)[i] != value_at(id, i)) return 0;
  }
  return 1;
}
static int block_is_exact(model_t *m, uint32_t id, uint32_t as) {
  size_t i;
  for (i = 0; i < BLOCK_BYTES; ++i) {
    if (m->layers[i / kLayerBytes][id * kLayerBytes + i % kLayerBytes] != value_at(as, i)) return 0;
  }
  return 1;
}

static void key_of(model_t *m, uint32_t id, kvbm_key_t *key) {
  uint32_t tokens[kTokens];
  size_t n, i;
  for (i = 0; i < kTokens; ++i) tokens[i] = id * 1000 + (uint32_t)i;
  OK(kvbm_key_chain(m->lossy, NULL, tokens, kTokens, kTokens, NULL, key, 1, &n));
}

static void evict_all(kvbm_manager_t *manager, kvbm_namespace_t *ns) {
  kvbm_block_t all[64];
  size_t n = 0;
  OK(kvbm_manager_flush(manager, 60000000000u));
  while (n < 64 && kvbm_manager_allocate(manager, ns, 1, &all[n], NULL, 0, NULL) == KVBM_OK) ++n;
  OK(kvbm_block_release(manager, all, n));
}

/* Returns a hold on the block with key `id` that `ns` finds in the host; 0: none. */
static kvbm_block_t found(model_t *m, kvbm_namespace_t *ns, uint32_t id) {
  kvbm_lookup_options_t options;
  kvbm_match_t *match = NULL;
  kvbm_block_t block = 0;
  kvbm_key_t key;
  size_t n = 0;
  key_of(m, id, &key);
  kvbm_lookup_options_init(&options, sizeof options);
  options.host_only = 1;
  OK(kvbm_manager_lookup(m->manager, ns, &key, 1, &options, &match, &n));
  if (n == 1) OK(kvbm_match_blocks(match, 0, 0, 1, &block));
  kvbm_match_release(match);
  return block;
}

static const void *bytes_of(model_t *m, kvbm_block_t block) {
  kvbm_view_t view;
  memset(&view, 0, sizeof view);
  OK(kvbm_block_view(m->manager, &block, 1, &view));
  CHECK_U64(view.bytes, BLOCK_BYTES);
  return view.data;
}

/* Puts the block with key `id` into the host as int8 decodes it. Returns the hold of the lossy handle. */
static kvbm_block_t lossy_in_host(model_t *m, uint32_t id) {
  kvbm_block_t block;
  kvbm_key_t key;
  key_of(m, id, &key);
  fill(m, id);
  OK(kvbm_cache_store(m->lossy_cache, &key, &id, 1, NULL, NULL, 0));
  evict_all(m->manager, m->lossy);
  OK(kvbm_manager_prefetch(m->manager, m->lossy, NULL, &key, 1, NULL, 0));
  block = found(m, m->lossy, id);
  CHECK(block != 0);
  if (block != 0) CHECK(!is_exact(bytes_of(m, block), id));
  return block;
}

/* Registers a managed block with the exact bytes. */
static kvbm_block_t register_exact(model_t *m, uint32_t id, uint32_t duplicates, kvbm_status_t *item) {
  kvbm_register_options_t options;
  kvbm_block_t block = 0;
  kvbm_view_t view;
  kvbm_key_t key;
  size_t i;
  key_of(m, id, &key);
  OK(kvbm_manager_allocate(m->manager, m->exact, 1, &block, NULL, 0, NULL));
  OK(kvbm_block_view(m->manager, &block, 1, &view));
  for (i = 0; i < BLOCK_BYTES; ++i) ((unsigned char *)view.data)[i] = value_at(id, i);
  OK(kvbm_manager_complete(m->manager, &block, 1, NULL));
  kvbm_register_options_init(&options, sizeof options);
  options.duplicates = duplicates;
  options.item_status = item;
  OK(kvbm_manager_register(m->manager, m->exact, &block, &key, 1, &options));
  return block;
}

static uint64_t refused(kvbm_manager_t *manager) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(manager, &stats));
  return stats.lossy_refused;
}

static void an_exact_block_takes_the_place_of_a_lossy_one(void) {
  model_t m;
  uint32_t mode;
  model_open(&m);
  for (mode = KVBM_DUPLICATE_REUSE; mode <= KVBM_DUPLICATE_KEEP; ++mode) {
    const kvbm_block_t lossy = lossy_in_host(&m, mode);
    kvbm_status_t item = KVBM_ERR_INTERNAL;
    kvbm_block_t mine, other;
    uint64_t before;
    m.exact = open_ns(&m, NULL, 0);
    CHECK(found(&m, m.exact, mode) == 0); /* a miss for this handle */
    before = refused(m.manager);
    mine = register_exact(&m, mode, mode, &item);
    CHECK_STATUS(item, KVBM_OK);
    CHECK(is_exact(bytes_of(&m, mine), mode));
    CHECK_U64(refused(m.manager), before + 1);
    CHECK(!is_exact(bytes_of(&m, lossy), mode)); /* a hold stays what it was */
    OK(kvbm_block_release(m.manager, &lossy, 1));
    other = found(&m, m.exact, mode);
    CHECK(other != 0 && bytes_of(&m, other) == bytes_of(&m, mine));
    OK(kvbm_block_release(m.manager, &other, 1));
    other = found(&m, m.lossy, mode);
    CHECK(other != 0 && bytes_of(&m, other) == bytes_of(&m, mine));
    OK(kvbm_block_release(m.manager, &other, 1));
    OK(kvbm_block_release(m.manager, &mine, 1));
    kvbm_namespace_release(m.exact);
    m.exact = NULL;
  }
  model_close(&m);
}

static void a_lossy_handle_reuses_what_is_there(void) {
  model_t m;
  kvbm_status_t item = KVBM_OK;
  kvbm_block_t lossy, mine;
  model_open(&m);
  lossy = lossy_in_host(&m, 1);
  m.exact = open_ns(&m, NULL, 1); /* no recipe, but it takes what is lossy */
  mine = register_exact(&m, 1, KVBM_DUPLICATE_REUSE, &item);
  CHECK_STATUS(item, KVBM_ERR_EXISTS);
  CHECK(bytes_of(&m, mine) == bytes_of(&m, lossy));
  CHECK_U64(refused(m.manager), 0);
  OK(kvbm_block_release(m.manager, &mine, 1));
  OK(kvbm_block_release(m.manager, &lossy, 1));
  model_close(&m);
}

static void a_store_of_exact_blocks_replaces_lossy_ones_in_every_tier(void) {
  model_t m;
  kvbm_block_t lossy;
  kvbm_match_t *match = NULL;
  kvbm_key_t key;
  const uint32_t id = 3, to = 5;
  size_t n = 0;
  int round;
  model_open(&m);
  lossy = lossy_in_host(&m, id);
  OK(kvbm_block_release(m.manager, &lossy, 1));
  m.exact = open_ns(&m, NULL, 0);
  m.exact_cache = attach(&m, m.exact);
  key_of(&m, id, &key);
  OK(kvbm_cache_store(m.exact_cache, &key, &id, 1, NULL, NULL, 0));
  CHECK_U64(refused(m.manager), 1);
  for (round = 0; round < 2; ++round) { /* from the host, and from the disk, which has forgotten the lossy record */
    OK(kvbm_cache_lookup(m.exact_cache, &key, 1, NULL, &match, &n));
    CHECK_U64(n, 1);
    memset(m.layers[0] + to * kLayerBytes, 0, kLayerBytes);
    memset(m.layers[1] + to * kLayerBytes, 0, kLayerBytes);
    if (n == 1) OK(kvbm_cache_load(m.exact_cache, match, &to, 1, NULL, NULL, 0));
    CHECK(block_is_exact(&m, to, id));
    kvbm_match_release(match);
    match = NULL;
    evict_all(m.manager, m.exact);
  }
  model_close(&m);
}

static void a_lossy_record_on_disk_alone_is_replaced_too(void) {
  model_t m;
  kvbm_block_t lossy;
  kvbm_match_t *match = NULL;
  kvbm_key_t key;
  const uint32_t id = 4, to = 6;
  size_t n = 0;
  model_open(&m);
  lossy = lossy_in_host(&m, id);
  OK(kvbm_block_release(m.manager, &lossy, 1));
  evict_all(m.manager, m.lossy);
  m.exact = open_ns(&m, NULL, 0);
  m.exact_cache = attach(&m, m.exact);
  CHECK(found(&m, m.lossy, id) == 0);
  key_of(&m, id, &key);
  OK(kvbm_cache_store(m.exact_cache, &key, &id, 1, NULL, NULL, 0));
  evict_all(m.manager, m.exact);
  OK(kvbm_cache_lookup(m.exact_cache, &key, 1, NULL, &match, &n));
  CHECK_U64(n, 1);
  if (n == 1) OK(kvbm_cache_load(m.exact_cache, match, &to, 1, NULL, NULL, 0));
  CHECK(block_is_exact(&m, to, id));
  kvbm_match_release(match);
  model_close(&m);
}

static void a_pin_keeps_only_what_its_handle_may_have(void) {
  model_t m;
  kvbm_block_t lossy;
  kvbm_pin_t pin = 1;
  kvbm_key_t key;
  size_t n = 9;
  model_open(&m);
  lossy = lossy_in_host(&m, 2);
  m.exact = open_ns(&m, NULL, 0);
  key_of(&m, 2, &key);
  OK(kvbm_manager_pin(m.manager, m.exact, NULL, &key, 1, 7, KVBM_FOREVER, &pin, &n));
  CHECK(n == 0 && pin == 0);
  OK(kvbm_manager_pin(m.manager, m.lossy, NULL, &key, 1, 7, KVBM_FOREVER, &pin, &n));
  CHECK(n == 1 && pin != 0);
  OK(kvbm_manager_unpin(m.manager, pin));
  OK(kvbm_block_release(m.manager, &lossy, 1));
  model_close(&m);
}

/* ---- Positions ---- */

static const kvbm_position_t kHere = {128, 9, 77}, kThere = {512, 9, 77};

static void content_key(engine_t *e, kvbm_key_t *key) {
  const uint32_t tokens[4] = {1, 2, 3, 4};
  size_t n;
  OK(kvbm_key_content(e->ns, tokens, 4, 4, NULL, key, 1, &n));
}

/* Loads the key for `position` (NULL: none). Returns the status; expects `value` in the block if it is KVBM_OK. */
static kvbm_status_t load_at(engine_t *e, const kvbm_position_t *position, uint32_t any, unsigned char value) {
  kvbm_load_options_t options;
  kvbm_match_t *match = NULL;
  kvbm_status_t status;
  kvbm_key_t key;
  const uint32_t id = 9;
  size_t n = 0;
  content_key(e, &key);
  OK(kvbm_cache_lookup(e->cache, &key, 1, NULL, &match, &n));
  CHECK_U64(n, 1);
  if (n == 0) return KVBM_ERR_MISS;
  kvbm_load_options_init(&options, sizeof options);
  options.positions = position;
  options.any_position = any;
  memset(engine_block(e, id), 0, BLOCK_BYTES);
  status = kvbm_cache_load(e->cache, match, &id, 1, &options, NULL, 0);
  if (status == KVBM_OK) CHECK(engine_block_is(e, id, value));
  kvbm_match_release(match);
  return status;
}

static void store_at(engine_t *e, const kvbm_position_t *position, unsigned char value) {
  kvbm_store_options_t options;
  kvbm_key_t key;
  const uint32_t id = 1;
  content_key(e, &key);
  memset(engine_block(e, id), value, BLOCK_BYTES);
  kvbm_store_options_init(&options, sizeof options);
  options.unchained = 1;
  options.positions = position;
  OK(kvbm_cache_store(e->cache, &key, &id, 1, &options, NULL, 0));
}

static kvbm_status_t register_at(engine_t *e, const kvbm_position_t *position, unsigned char value, kvbm_block_t *block) {
  kvbm_register_options_t options;
  kvbm_status_t item = KVBM_ERR_INTERNAL;
  kvbm_view_t view;
  kvbm_key_t key;
  content_key(e, &key);
  OK(kvbm_manager_allocate(e->manager, e->ns, 1, block, NULL, 0, NULL));
  OK(kvbm_block_view(e->manager, block, 1, &view));
  memset(view.data, value, BLOCK_BYTES);
  OK(kvbm_manager_complete(e->manager, block, 1, NULL));
  kvbm_register_options_init(&options, sizeof options);
  options.unchained = 1;
  options.positions = position;
  options.item_status = &item;
  OK(kvbm_manager_register(e->manager, e->ns, block, &key, 1, &options));
  return item;
}

static unsigned char first_byte(engine_t *e, kvbm_block_t block) {
  kvbm_view_t view;
  OK(kvbm_block_view(e->manager, &block, 1, &view));
  return *(const unsigned char *)view.data;
}

static uint64_t mismatches(engine_t *e) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e->manager, &stats));
  return stats.position_mismatches;
}

static void a_managed_block_is_bound_to_its_position(void) {
  engine_t e;
  kvbm_block_t block;
  char path[320];
  int round;
  snprintf(path, sizeof path, "%s/positions", scratch);
  OK(engine_open(&e, 8, path, 64 << 20));
  CHECK_STATUS(register_at(&e, &kHere, 5, &block), KVBM_OK);
  OK(kvbm_block_release(e.manager, &block, 1));
  for (round = 0; round < 2; ++round) { /* in the host, and on disk */
    OK(load_at(&e, &kHere, 0, 5));
    CHECK_STATUS(load_at(&e, &kThere, 0, 5), KVBM_ERR_MISMATCH);
    CHECK_STATUS(load_at(&e, NULL, 0, 5), KVBM_ERR_MISMATCH);
    OK(load_at(&e, &kThere, 1, 5));
    CHECK_U64(mismatches(&e), 2 * (round + 1));
    evict_all(e.manager, e.ns);
  }
  engine_close(&e);
}

static void a_block_without_a_position_is_at_none(void) {
  engine_t e;
  kvbm_block_t block;
  OK(engine_open(&e, 8, NULL, 0));
  CHECK_STATUS(register_at(&e, NULL, 5, &block), KVBM_OK);
  OK(load_at(&e, NULL, 0, 5));
  CHECK_STATUS(load_at(&e, &kHere, 0, 5), KVBM_ERR_MISMATCH);
  OK(load_at(&e, &kHere, 1, 5));
  CHECK_U64(mismatches(&e), 1);
  OK(kvbm_block_release(e.manager, &block, 1));
  engine_close(&e);
}

static void what_is_stored_at_a_position_can_be_loaded_there(void) {
  engine_t e;
  char path[320];
  int round;
  snprintf(path, sizeof path, "%s/stored", scratch);
  OK(engine_open(&e, 8, path, 64 << 20));
  store_at(&e, &kHere, 5);
  OK(kvbm_manager_flush(e.manager, 60000000000u));
  store_at(&e, &kHere, 6); /* there already: nothing moves */
  OK(load_at(&e, &kHere, 0, 5));
  store_at(&e, &kThere, 7);
  for (round = 0; round < 2; ++round) {
    OK(load_at(&e, &kThere, 0, 7));
    CHECK_STATUS(load_at(&e, &kHere, 0, 7), KVBM_ERR_MISMATCH);
    evict_all(e.manager, e.ns);
  }
  store_at(&e, &kHere, 8); /* the host has none, the disk one of another position */
  evict_all(e.manager, e.ns);
  OK(load_at(&e, &kHere, 0, 8));
  store_at(&e, NULL, 9);
  OK(load_at(&e, NULL, 0, 9));
  engine_close(&e);
}

static void a_managed_block_of_another_position_is_no_duplicate(void) {
  engine_t e;
  kvbm_block_t first, again, other;
  OK(engine_open(&e, 8, NULL, 0));
  CHECK_STATUS(register_at(&e, &kHere, 5, &first), KVBM_OK);
  CHECK_STATUS(register_at(&e, &kHere, 6, &again), KVBM_ERR_EXISTS);
  CHECK_U64(first_byte(&e, again), 5);
  CHECK_STATUS(register_at(&e, &kThere, 7, &other), KVBM_OK);
  CHECK_U64(first_byte(&e, other), 7);
  CHECK_U64(first_byte(&e, first), 5); /* a hold stays what it was */
  OK(load_at(&e, &kThere, 0, 7));
  CHECK_STATUS(load_at(&e, &kHere, 0, 7), KVBM_ERR_MISMATCH);
  OK(kvbm_block_release(e.manager, &first, 1));
  OK(kvbm_block_release(e.manager, &again, 1));
  OK(kvbm_block_release(e.manager, &other, 1));
  engine_close(&e);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 1;
  RUN(an_exact_block_takes_the_place_of_a_lossy_one);
  RUN(a_lossy_handle_reuses_what_is_there);
  RUN(a_store_of_exact_blocks_replaces_lossy_ones_in_every_tier);
  RUN(a_lossy_record_on_disk_alone_is_replaced_too);
  RUN(a_pin_keeps_only_what_its_handle_may_have);
  RUN(a_managed_block_is_bound_to_its_position);
  RUN(a_block_without_a_position_is_at_none);
  RUN(what_is_stored_at_a_position_can_be_loaded_there);
  RUN(a_managed_block_of_another_position_is_no_duplicate);
  check_remove(scratch);
  FINISH();
}

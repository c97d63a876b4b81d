/* kvbm_cache_*: attaching, storing, looking up and loading an engine's cache, and never the wrong bytes. */
#include "check.h"

enum { kLayers = 3, kHeads = 4, kDim = 8, kTokens = 4, kBlocks = 6, kElement = 2 };
enum { kRecord = kLayers * 2 * kHeads * kDim * kTokens * kElement, kTotal = kBlocks * kRecord };

static unsigned char memory[4 * kTotal], again[4 * kTotal];

static kvbm_geometry_t *geometry_of(uint32_t kind, uint32_t units, uint32_t layers, uint32_t heads) {
  kvbm_component_t c;
  kvbm_geometry_t *g = NULL;
  kvbm_error_t err;
  memset(&c, 0, sizeof c);
  c.kind = kind;
  c.element = KVBM_ELEMENT_BF16;
  c.layers = layers;
  c.heads = heads;
  c.head_dim = kDim;
  if (kvbm_geometry_create(kTokens, units, &c, 1, &g, &err) < 0) printf("  geometry: %s\n", err.message);
  return g;
}
/* Returns the number of tensors of a form, and cuts `base` evenly into them. */
static size_t tensors_of(uint32_t form, unsigned char *base, uint64_t total, uint32_t layers, kvbm_tensor_t *out) {
  size_t n = 1, i;
  if (form <= KVBM_FORM_PACKED_HND) n = layers;
  if (form == KVBM_FORM_SPLIT_NHD || form == KVBM_FORM_SPLIT_HND) n = 2 * layers;
  for (i = 0; i < n; ++i) {
    memset(&out[i], 0, sizeof out[i]);
    out[i].data = base + i * (total / n);
    out[i].bytes = total / n;
  }
  return n;
}
static kvbm_status_t attach(world_t *w, kvbm_namespace_t *ns, uint32_t form, const kvbm_shard_t *shard,
                            const kvbm_tensor_t *tensors, size_t n_tensors, uint32_t n_blocks, kvbm_cache_t **out) {
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  memset(&part, 0, sizeof part);
  if (shard) part.part.shard = *shard;
  part.form = form;
  part.tensors = tensors;
  part.n_tensors = n_tensors;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = n_blocks;
  options.parts = &part;
  options.n_parts = 1;
  *out = NULL;
  return kvbm_cache_attach(w->manager, ns, &options, out, &w->err);
}
static kvbm_cache_t *attach_opaque(world_t *w, unsigned char *base, uint32_t n_blocks, uint64_t page) {
  kvbm_tensor_t tensor = {base, n_blocks * page, 0, page};
  kvbm_cache_t *cache;
  CHECK_STATUS(attach(w, w->ns, KVBM_FORM_OPAQUE, NULL, &tensor, 1, n_blocks, &cache), KVBM_OK);
  return cache;
}

static void every_form_gives_back_what_was_stored(void) {
  uint32_t form;
  for (form = 0; form <= KVBM_FORM_SGLANG_PAGE_HEAD; ++form) {
    world_t w;
    kvbm_tensor_t tensors[2 * kLayers];
    kvbm_cache_t *cache;
    kvbm_key_t keys[kBlocks];
    kvbm_match_t *match = NULL;
    uint32_t ids[kBlocks], i;
    size_t n, hits = 0;
    kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 1, kLayers, kHeads);
    CHECK(world_open(&w, 1 << 20, NULL, 0));
    kvbm_namespace_t *ns = world_namespace(w.manager, "forms", g);
    n = tensors_of(form, memory, kTotal, kLayers, tensors);
    CHECK_STATUS(attach(&w, ns, form, NULL, tensors, n, kBlocks, &cache), KVBM_OK);
    if (cache == NULL) printf("  form %u: %s\n", form, w.err.message);
    if (cache != NULL) {
      for (i = 0; i < kBlocks; ++i) ids[i] = (i * 5) % kBlocks;
      check_fill(memory, kTotal, form);
      world_keys(ns, form, keys, kBlocks);
      CHECK_STATUS(kvbm_cache_store(cache, keys, ids, kBlocks, NULL, NULL, 0), KVBM_OK);
      memset(memory, 0xAA, kTotal);
      CHECK_STATUS(kvbm_cache_lookup(cache, keys, kBlocks, NULL, &match, &hits), KVBM_OK);
      CHECK_U64(hits, kBlocks);
      CHECK_STATUS(kvbm_cache_load(cache, match, ids, kBlocks, NULL, NULL, 0), KVBM_OK);
      CHECK(check_filled(memory, kTotal, form));
      if (check_case_failed) printf("  form %u\n", form);
    }
    kvbm_match_release(match);
    kvbm_cache_release(cache);
    kvbm_namespace_release(ns);
    kvbm_geometry_release(g);
    world_close(&w);
  }
}

static void one_form_can_be_stored_and_another_loaded(void) {
  world_t w;
  kvbm_tensor_t a[2 * kLayers], b[2 * kLayers];
  kvbm_cache_t *nhd, *hnd;
  kvbm_key_t key;
  kvbm_match_t *match = NULL;
  uint32_t id = 2;
  size_t hits = 0, token, head, wrong = 0, d;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 1, kLayers, kHeads);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "forms", g);
  size_t na = tensors_of(KVBM_FORM_BLOCKS_NHD, memory, kTotal, kLayers, a);
  size_t nb = tensors_of(KVBM_FORM_BLOCKS_HND, again, kTotal, kLayers, b);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_BLOCKS_NHD, NULL, a, na, kBlocks, &nhd), KVBM_OK);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_BLOCKS_HND, NULL, b, nb, kBlocks, &hnd), KVBM_OK);
  check_fill(memory, kTotal, 1);
  memset(again, 0, sizeof again);
  world_keys(ns, 1, &key, 1);
  CHECK_STATUS(kvbm_cache_store(nhd, &key, &id, 1, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_lookup(hnd, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 1);
  CHECK_STATUS(kvbm_cache_load(hnd, match, &id, 1, NULL, NULL, 0), KVBM_OK);
  /* Layer 1, V, block 2: [token][head] against [head][token]. */
  const size_t row = kDim * kElement, plane = kTokens * kHeads * row;
  const unsigned char *from = memory + kTotal / kLayers + (2 * 2 + 1) * plane;
  const unsigned char *to = again + kTotal / kLayers + (2 * 2 + 1) * plane;
  for (token = 0; token < kTokens; ++token) {
    for (head = 0; head < kHeads; ++head) {
      for (d = 0; d < row; ++d) {
        wrong += from[(token * kHeads + head) * row + d] != to[(head * kTokens + token) * row + d];
      }
    }
  }
  CHECK_U64(wrong, 0);
  kvbm_match_release(match);
  kvbm_cache_release(nhd);
  kvbm_cache_release(hnd);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

static void units_make_one_record_and_the_last_may_be_partial(void) {
  enum { kPage = kRecord / kLayers };
  world_t w;
  kvbm_tensor_t tensor;
  kvbm_cache_t *cache;
  kvbm_key_t keys[3];
  kvbm_match_t *match = NULL;
  const uint32_t ids[6] = {0, 1, 2, 3, 4, 5};
  const uint32_t back[5] = {5, 4, 3, 2, 1};
  size_t hits = 0;
  uint32_t i;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 3, 1, kHeads);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "units", g);
  tensors_of(KVBM_FORM_CROSS_NHD, memory, kBlocks * kPage, 1, &tensor);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_CROSS_NHD, NULL, &tensor, 1, kBlocks, &cache), KVBM_OK);
  if (cache == NULL) printf("  %s\n", w.err.message);
  for (i = 0; i < 6; ++i) check_fill(memory + i * kPage, kPage, 50 + i);
  world_keys(ns, 1, keys, 2);
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 2, NULL, NULL, 0), KVBM_OK);
  memset(memory, 0, kTotal);
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 2, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 2);
  CHECK_STATUS(kvbm_cache_load(cache, match, back, 5, NULL, NULL, 0), KVBM_OK);
  for (i = 0; i < 5; ++i) CHECK(check_filled(memory + back[i] * kPage, kPage, 50 + i));
  for (i = 0; i < kPage; ++i) CHECK(memory[i] == 0);
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

/* Two stored blocks of three engine blocks each; a prompt that leaves the second after its first engine block. */
static void a_stored_block_is_found_by_the_engine_blocks_it_begins_with(void) {
  enum { kPage = kRecord / kLayers };
  world_t w;
  kvbm_tensor_t tensor;
  kvbm_cache_t *cache;
  kvbm_key_t units[6], prompt[6], keys[2];
  kvbm_match_t *match = NULL;
  kvbm_store_options_t store;
  kvbm_lookup_options_t look;
  kvbm_load_options_t load;
  kvbm_status_t status[2];
  const uint32_t ids[6] = {0, 1, 2, 3, 4, 5};
  size_t hits = 0;
  uint32_t i;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 3, 1, kHeads);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "units", g);
  tensors_of(KVBM_FORM_CROSS_NHD, memory, kBlocks * kPage, 1, &tensor);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_CROSS_NHD, NULL, &tensor, 1, kBlocks, &cache), KVBM_OK);
  for (i = 0; i < 6; ++i) check_fill(memory + i * kPage, kPage, 70 + i);
  world_keys(ns, 1, units, 6);
  keys[0] = units[2];
  keys[1] = units[5];
  kvbm_store_options_init(&store, sizeof store);
  store.unit_keys = units;
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 2, &store, NULL, 0), KVBM_OK);

  world_keys(ns, 1000, prompt, 6);
  memcpy(prompt, units, 4 * sizeof *units);
  keys[1] = prompt[5];
  kvbm_lookup_options_init(&look, sizeof look);
  look.unit_keys = prompt;
  look.n_unit_keys = 6;
  memset(memory, 0, kTotal);
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 2, &look, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 1);
  CHECK_U64(kvbm_match_units(match), 4);
  CHECK_U64(kvbm_match_count(match), 2);
  CHECK_STATUS(kvbm_cache_load(cache, match, ids, 4, NULL, NULL, 0), KVBM_OK);
  for (i = 0; i < 4; ++i) CHECK(check_filled(memory + i * kPage, kPage, 70 + i));
  /* The units after it belong to another prompt, and are not loaded. */
  memset(memory, 0, kTotal);
  kvbm_load_options_init(&load, sizeof load);
  load.item_status = status;
  CHECK_STATUS(kvbm_cache_load(cache, match, ids, 5, &load, NULL, 0), KVBM_PARTIAL);
  CHECK_STATUS(status[0], KVBM_OK);
  CHECK_STATUS(status[1], KVBM_ERR_MISS);
  for (i = 3 * kPage; i < 6 * kPage; ++i) CHECK(memory[i] == 0);
  kvbm_match_release(match);

  /* A partial block may be the only match, with or without keys of whole blocks. */
  memcpy(prompt, units, 2 * sizeof *units);
  memset(&prompt[2], 0x77, 4 * sizeof *prompt);
  for (i = 0; i < 2; ++i) {
    match = NULL;
    CHECK_STATUS(kvbm_cache_lookup(cache, i ? NULL : &prompt[2], i ? 0 : 1, &look, &match, &hits), KVBM_OK);
    CHECK_U64(hits, 0);
    CHECK(match != NULL);
    CHECK_U64(kvbm_match_units(match), 2);
    memset(memory, 0, kTotal);
    CHECK_STATUS(kvbm_cache_load(cache, match, ids, 2, NULL, NULL, 0), KVBM_OK);
    CHECK(check_filled(memory, kPage, 70));
    CHECK(check_filled(memory + kPage, kPage, 71));
    kvbm_match_release(match);
  }
  /* No stored block begins with these units. A dropped block must not be found by its units either. */
  memset(prompt, 0x55, sizeof *prompt);
  CHECK_STATUS(kvbm_cache_lookup(cache, NULL, 0, &look, &match, &hits), KVBM_OK);
  CHECK(match == NULL);
  CHECK_U64(kvbm_match_units(NULL), 0);
  CHECK_STATUS(kvbm_namespace_reset(ns, NULL), KVBM_OK);
  look.unit_keys = units;
  CHECK_STATUS(kvbm_cache_lookup(cache, NULL, 0, &look, &match, &hits), KVBM_OK);
  CHECK(match == NULL);
  look.mode = KVBM_LOOKUP_EACH;
  CHECK_STATUS(kvbm_cache_lookup(cache, NULL, 0, &look, &match, &hits), KVBM_ERR_INVALID);
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

static void layer_ranges_touch_only_their_layers(void) {
  world_t w;
  kvbm_tensor_t tensors[kLayers];
  kvbm_cache_t *cache;
  kvbm_key_t key;
  kvbm_match_t *match = NULL;
  kvbm_load_options_t options;
  uint32_t id = 0;
  size_t hits = 0, i, touched = 0;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 1, kLayers, kHeads);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "layers", g);
  const size_t n = tensors_of(KVBM_FORM_BLOCKS_NHD, memory, kTotal, kLayers, tensors);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_BLOCKS_NHD, NULL, tensors, n, kBlocks, &cache), KVBM_OK);
  check_fill(memory, kTotal, 3);
  memcpy(again, memory, kTotal);
  world_keys(ns, 1, &key, 1);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &id, 1, NULL, NULL, 0), KVBM_OK);
  memset(memory, 0, kTotal);
  CHECK_STATUS(kvbm_cache_lookup(cache, &key, 1, NULL, &match, &hits), KVBM_OK);
  kvbm_load_options_init(&options, sizeof options);
  CHECK_U64(options.timeout_ns, KVBM_FOREVER);
  options.first_layer = 1;
  options.n_layers = 1;
  CHECK_STATUS(kvbm_cache_load(cache, match, &id, 1, &options, NULL, 0), KVBM_OK);
  const size_t layer = kTotal / kLayers;
  CHECK(memcmp(memory + layer, again + layer, kRecord / kLayers) == 0);
  for (i = 0; i < kTotal; ++i) touched += (i < layer || i >= layer + kRecord / kLayers) && memory[i] != 0;
  CHECK_U64(touched, 0);
  options.first_layer = kLayers;
  CHECK_REFUSED(kvbm_cache_load(cache, match, &id, 1, &options, NULL, 0), KVBM_ERR_INVALID,
                "the layers are out of range: [3, 4), the cache has 3");
  options.first_layer = UINT32_MAX;
  options.n_layers = 2;
  CHECK_REFUSED(kvbm_cache_load(cache, match, &id, 1, &options, NULL, 0), KVBM_ERR_INVALID,
                "the layers are out of range: [4294967295, 4294967297), the cache has 3");
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

static void no_block_skips_and_first_key_begins_later(void) {
  world_t w;
  kvbm_key_t keys[4];
  kvbm_match_t *match = NULL;
  const uint32_t ids[4] = {0, 1, 2, 3};
  const uint32_t some[3] = {3, KVBM_NO_BLOCK, 0};
  kvbm_load_options_t options;
  kvbm_status_t status[3];
  size_t hits = 0, i;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  for (i = 0; i < 4; ++i) check_fill(memory + i * 256, 256, i);
  world_keys(w.ns, 1, keys, 4);
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 4, NULL, NULL, 0), KVBM_OK);
  memset(memory, 0, sizeof memory);
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 4, NULL, &match, &hits), KVBM_OK);
  kvbm_load_options_init(&options, sizeof options);
  options.first_key = 1;
  options.item_status = status;
  CHECK_STATUS(kvbm_cache_load(cache, match, some, 3, &options, NULL, 0), KVBM_OK);
  CHECK(check_filled(memory + 3 * 256, 256, 1));
  CHECK(check_filled(memory, 256, 3));
  for (i = 256; i < 3 * 256; ++i) CHECK(memory[i] == 0);
  options.first_key = 2;
  CHECK_REFUSED(kvbm_cache_load(cache, match, some, 3, &options, NULL, 0), KVBM_ERR_INVALID,
                "the match does not have as many keys: 3 from 2 on of 4");
  options.first_key = UINT32_MAX;
  CHECK_STATUS(kvbm_cache_load(cache, match, some, 1, &options, NULL, 0), KVBM_ERR_INVALID);
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  world_close(&w);
}

static void bad_block_ids_and_empty_batches(void) {
  world_t w;
  kvbm_key_t keys[2];
  kvbm_match_t *match = NULL;
  uint32_t ids[2] = {0, 4};
  size_t hits = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  world_keys(w.ns, 1, keys, 2);
  CHECK_REFUSED(kvbm_cache_store(cache, keys, ids, 2, NULL, NULL, 0), KVBM_ERR_INVALID,
                "a block id is out of range: block_ids[1] is 4, the cache has 4 blocks");
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 2, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 0);
  CHECK(match == NULL);
  ids[1] = UINT32_MAX - 1;
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 2, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_store(cache, NULL, NULL, 0, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_store(cache, NULL, ids, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_store(NULL, keys, ids, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_lookup(cache, NULL, 0, NULL, &match, &hits), KVBM_OK);
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 1, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 1, NULL, &match, &hits), KVBM_OK);
  ids[0] = 4;
  CHECK_REFUSED(kvbm_cache_load(cache, match, ids, 1, NULL, NULL, 0), KVBM_ERR_INVALID, "block_ids[0] is 4");
  CHECK_STATUS(kvbm_cache_load(cache, match, NULL, 0, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_load(cache, NULL, ids, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  kvbm_cache_release(NULL);
  world_close(&w);
}

static void repeated_keys_store_once_and_the_first_wins(void) {
  world_t w;
  kvbm_key_t key, batch[3];
  kvbm_match_t *match = NULL;
  const uint32_t ids[3] = {0, 1, 2};
  const uint32_t there = 3;
  kvbm_store_options_t options;
  kvbm_status_t status[3] = {9, 9, 9};
  size_t hits = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  check_fill(memory, 256, 1);
  check_fill(memory + 256, 256, 2);
  check_fill(memory + 512, 256, 3);
  world_keys(w.ns, 1, &key, 1);
  batch[0] = batch[1] = batch[2] = key;
  kvbm_store_options_init(&options, sizeof options);
  options.unchained = 1;
  options.item_status = status;
  CHECK(kvbm_cache_store(cache, batch, ids, 3, &options, NULL, 0) >= 0);
  CHECK(status[0] == KVBM_OK && status[1] == KVBM_OK && status[2] == KVBM_OK);
  CHECK_STATUS(kvbm_cache_lookup(cache, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 1);
  CHECK_STATUS(kvbm_cache_load(cache, match, &there, 1, NULL, NULL, 0), KVBM_OK);
  CHECK(check_filled(memory + 768, 256, 1));
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  world_close(&w);
}

static void content_keys_carry_their_position(void) {
  world_t w;
  kvbm_key_t key;
  const uint32_t tokens[4] = {1, 2, 3, 4};
  kvbm_position_t here = {128, 7, 0}, elsewhere = {256, 7, 0};
  kvbm_store_options_t store;
  kvbm_load_options_t load;
  kvbm_match_t *match = NULL;
  kvbm_status_t status = 9;
  size_t n = 0, hits = 0;
  uint32_t id = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  check_fill(memory, 256, 1);
  CHECK_STATUS(kvbm_key_content(w.ns, tokens, 4, 4, NULL, &key, 1, &n), KVBM_OK);
  kvbm_store_options_init(&store, sizeof store);
  store.positions = &here;
  CHECK_STATUS(kvbm_cache_store(cache, &key, &id, 1, &store, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_lookup(cache, &key, 1, NULL, &match, &hits), KVBM_OK);
  kvbm_load_options_init(&load, sizeof load);
  load.item_status = &status;
  load.positions = &elsewhere;
  CHECK(kvbm_cache_load(cache, match, &id, 1, &load, NULL, 0) != KVBM_OK);
  CHECK_STATUS(status, KVBM_ERR_MISMATCH);
  load.any_position = 1;
  CHECK_STATUS(kvbm_cache_load(cache, match, &id, 1, &load, NULL, 0), KVBM_OK);
  load.any_position = 0;
  load.positions = &here;
  memset(memory, 0, 256);
  CHECK_STATUS(kvbm_cache_load(cache, match, &id, 1, &load, NULL, 0), KVBM_OK);
  CHECK(check_filled(memory, 256, 1));
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  world_close(&w);
}

static void a_deadline_that_has_passed_is_said(void) {
  world_t w;
  kvbm_key_t keys[4];
  const uint32_t ids[4] = {0, 1, 2, 3};
  kvbm_store_options_t store;
  kvbm_status_t status[4] = {0, 0, 0, 0};
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  world_keys(w.ns, 1, keys, 4);
  kvbm_store_options_init(&store, sizeof store);
  store.timeout_ns = 0;
  store.item_status = status;
  CHECK_STATUS(kvbm_cache_store(cache, keys, ids, 4, &store, NULL, 0), KVBM_ERR_DEADLINE);
  CHECK(status[0] == KVBM_ERR_DEADLINE && status[3] == KVBM_ERR_DEADLINE);
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 4, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 0);
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  world_close(&w);
}

static void layouts_that_do_not_fit_are_named(void) {
  world_t w;
  kvbm_tensor_t tensors[2 * kLayers];
  kvbm_cache_t *cache;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 1, kLayers, kHeads);
  kvbm_shard_t shard;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "fit", g);
  const size_t n = tensors_of(KVBM_FORM_NHD, memory, kTotal, kLayers, tensors);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n - 1, kBlocks, &cache), KVBM_ERR_INVALID);
  CHECK(strstr(w.err.message, "part 0") != NULL);
  tensors[1].bytes -= 1;
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  CHECK(strstr(w.err.message, "tensor") != NULL);
  tensors[1].bytes += 1;
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, kBlocks + 1, &cache), KVBM_ERR_INVALID);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, UINT32_MAX, &cache), KVBM_ERR_INVALID);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, 0, &cache), KVBM_ERR_INVALID);
  CHECK_STATUS(attach(&w, ns, 20, NULL, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, NULL, 0, kBlocks, &cache), KVBM_ERR_INVALID);
  tensors[2].data = NULL;
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  tensors_of(KVBM_FORM_NHD, memory, kTotal, kLayers, tensors);
  memset(&shard, 0, sizeof shard);
  shard.layers = kLayers + 1;
  shard.heads = kHeads;
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, &shard, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  CHECK_STATUS(attach(&w, w.ns, KVBM_FORM_NHD, NULL, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  tensors[0].block_stride = 1;
  CHECK_STATUS(attach(&w, ns, KVBM_FORM_NHD, NULL, tensors, n, kBlocks, &cache), KVBM_ERR_INVALID);
  CHECK(cache == NULL);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

/* Ranks hold random slices of one model under the same keys; whatever a rank loads is its own slice's. */
static void shards_never_get_each_others_bytes(void) {
  enum { kRounds = 200 };
  uint64_t random = 20240601;
  world_t w;
  size_t round, found = 0;
  kvbm_geometry_t *g = geometry_of(KVBM_COMPONENT_ATTENTION, 1, 4, 4);
  printf("  seed %llu\n", (unsigned long long)random);
  CHECK(world_open(&w, 8 << 20, NULL, 0));
  kvbm_namespace_t *ns = world_namespace(w.manager, "ranks", g);
  for (round = 0; round < kRounds && !check_case_failed; ++round) {
    kvbm_shard_t shard[2];
    kvbm_cache_t *cache[2];
    kvbm_key_t key;
    kvbm_match_t *own = NULL, *other = NULL;
    uint64_t bytes[2];
    uint32_t id = 0;
    size_t hits = 0;
    int r;
    world_keys(ns, (uint32_t)round, &key, 1);
    for (r = 0; r < 2; ++r) {
      kvbm_tensor_t tensor;
      memset(&shard[r], 0, sizeof shard[r]);
      shard[r].first_layer = (uint16_t)(check_random(&random) % 4);
      shard[r].layers = (uint16_t)(1 + check_random(&random) % (4u - shard[r].first_layer));
      shard[r].first_head = (uint16_t)(check_random(&random) % 4);
      shard[r].heads = (uint16_t)(1 + check_random(&random) % (4u - shard[r].first_head));
      CHECK_STATUS(kvbm_geometry_record_bytes(g, 0, &shard[r], &bytes[r]), KVBM_OK);
      memset(&tensor, 0, sizeof tensor);
      tensor.data = r ? again : memory;
      tensor.bytes = bytes[r];
      CHECK_STATUS(attach(&w, ns, KVBM_FORM_CROSS_NHD, &shard[r], &tensor, 1, 1, &cache[r]), KVBM_OK);
      if (cache[r] == NULL) printf("  %s\n", w.err.message);
    }
    if (check_case_failed || memcmp(&shard[0], &shard[1], sizeof shard[0]) == 0) {
      kvbm_cache_release(cache[0]);
      kvbm_cache_release(cache[1]);
      continue;
    }
    check_fill(memory, bytes[0], 2 * round);
    CHECK_STATUS(kvbm_cache_store(cache[0], &key, &id, 1, NULL, NULL, 0), KVBM_OK);
    CHECK_STATUS(kvbm_cache_lookup(cache[1], &key, 1, NULL, &other, &hits), KVBM_OK);
    if (hits != 0) {
      /* Shards with all of its heads and the same layers can be re-sliced (other_sizes_test.c compares the bytes). */
      const int holds_it = shard[0].first_layer == shard[1].first_layer && shard[0].layers == shard[1].layers &&
                           shard[0].first_head <= shard[1].first_head &&
                           shard[0].first_head + shard[0].heads >= shard[1].first_head + shard[1].heads;
      found += !holds_it;
    }
    kvbm_match_release(other);
    /* Handing one rank's match to the other's cache is the caller's mistake, and is noticed. */
    CHECK_STATUS(kvbm_cache_lookup(cache[0], &key, 1, NULL, &own, &hits), KVBM_OK);
    CHECK_U64(hits, 1);
    CHECK_REFUSED(kvbm_cache_load(cache[1], own, &id, 1, NULL, NULL, 0), KVBM_ERR_INVALID,
                  "the match is not of this cache's parts: part 0 is another component or shard");
    kvbm_match_release(own);
    other = own = NULL;
    check_fill(again, bytes[1], 2 * round + 1);
    CHECK_STATUS(kvbm_cache_store(cache[1], &key, &id, 1, NULL, NULL, 0), KVBM_OK);
    memset(memory, 0, sizeof memory);
    memset(again, 0, sizeof again);
    CHECK_STATUS(kvbm_cache_lookup(cache[0], &key, 1, NULL, &own, &hits), KVBM_OK);
    CHECK_STATUS(kvbm_cache_load(cache[0], own, &id, 1, NULL, NULL, 0), KVBM_OK);
    CHECK_STATUS(kvbm_cache_lookup(cache[1], &key, 1, NULL, &other, &hits), KVBM_OK);
    CHECK_STATUS(kvbm_cache_load(cache[1], other, &id, 1, NULL, NULL, 0), KVBM_OK);
    CHECK(check_filled(memory, bytes[0], 2 * round));
    CHECK(check_filled(again, bytes[1], 2 * round + 1));
    kvbm_match_release(own);
    kvbm_match_release(other);
    kvbm_cache_release(cache[0]);
    kvbm_cache_release(cache[1]);
  }
  CHECK_U64(found, 0);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(g);
  world_close(&w);
}

static void another_namespaces_match_is_refused(void) {
  world_t w;
  kvbm_key_t key;
  kvbm_match_t *match = NULL;
  kvbm_cache_t *theirs;
  kvbm_tensor_t tensor = {again, 1024, 0, 256};
  size_t hits = 0;
  uint32_t id = 0;
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  kvbm_namespace_t *other = world_namespace(w.manager, "other tenant", NULL);
  kvbm_cache_t *cache = attach_opaque(&w, memory, 4, 256);
  CHECK_STATUS(attach(&w, other, KVBM_FORM_OPAQUE, NULL, &tensor, 1, 4, &theirs), KVBM_OK);
  world_keys(w.ns, 1, &key, 1);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &id, 1, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_cache_lookup(theirs, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK_U64(hits, 0);
  CHECK_STATUS(kvbm_cache_lookup(cache, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK_REFUSED(kvbm_cache_load(theirs, match, &id, 1, NULL, NULL, 0), KVBM_ERR_INVALID,
                "the match is of another namespace");
  kvbm_match_release(match);
  kvbm_cache_release(theirs);
  kvbm_cache_release(cache);
  kvbm_namespace_release(other);
  world_close(&w);
}

int main(void) {
  RUN(every_form_gives_back_what_was_stored);
  RUN(one_form_can_be_stored_and_another_loaded);
  RUN(units_make_one_record_and_the_last_may_be_partial);
  RUN(a_stored_block_is_found_by_the_engine_blocks_it_begins_with);
  RUN(layer_ranges_touch_only_their_layers);
  RUN(no_block_skips_and_first_key_begins_later);
  RUN(bad_block_ids_and_empty_batches);
  RUN(repeated_keys_store_once_and_the_first_wins);
  RUN(content_keys_carry_their_position);
  RUN(a_deadline_that_has_passed_is_said);
  RUN(layouts_that_do_not_fit_are_named);
  RUN(shards_never_get_each_others_bytes);
  RUN(another_namespaces_match_is_refused);
  FINISH();
}

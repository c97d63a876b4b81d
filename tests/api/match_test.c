/* Results of lookups and holds of matches: modes, hybrid models, repeated keys, empty batches. */
#include "engine.h"

static size_t look(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys, size_t n, uint32_t mode,
                   kvbm_match_t **match) {
  kvbm_lookup_options_t options;
  kvbm_match_t *own = NULL;
  size_t hits = 99;
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = mode;
  OK(kvbm_manager_lookup(manager, ns, keys, n, &options, match != NULL ? match : &own, &hits));
  kvbm_match_release(own);
  return hits;
}

static void each_mode_gives_what_it_says(void) {
  engine_t e;
  kvbm_key_t keys[8];
  kvbm_match_t *match = NULL;
  kvbm_match_item_t items[8];
  kvbm_block_t blocks[8];
  kvbm_status_t status[8];
  uint32_t ids[8] = {40, 41, 42, 43, 44, 45, 46, 47};
  kvbm_load_options_t load;
  size_t i;
  OK(engine_open(&e, 32, NULL, 0));
  OK(engine_store(&e, 1, 8));
  engine_keys(&e, 1, 8, keys);
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys + 3, 1, NULL));
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys + 6, 1, NULL));
  CHECK(look(e.manager, e.ns, keys, 8, KVBM_LOOKUP_PREFIX, &match) == 3);
  CHECK(kvbm_match_count(match) == 8); /* made from all, hits or not */
  OK(kvbm_match_items(match, 0, 8, items));
  for (i = 0; i < 8; ++i) CHECK(items[i].tier == (i < 3 ? 0 : KVBM_NO_TIER) && items[i].parts_needed == (i < 3));
  kvbm_match_release(match);
  match = NULL;
  CHECK(look(e.manager, e.ns, keys, 8, KVBM_LOOKUP_EACH, &match) == 6);
  OK(kvbm_match_items(match, 0, 8, items));
  OK(kvbm_match_blocks(match, 0, 0, 8, blocks));
  for (i = 0; i < 8; ++i) {
    const int gap = i == 3 || i == 6;
    CHECK(items[i].tier == (gap ? KVBM_NO_TIER : 0));
    CHECK((blocks[i] == 0) == gap);
    if (!gap) CHECK(items[i].bytes == BLOCK_BYTES && items[i].below_bytes == 0);
    if (!gap) OK(kvbm_block_release(e.manager, &blocks[i], 1));
  }
  CHECK_STATUS(kvbm_match_items(match, 7, 2, items), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_match_blocks(match, 1, 0, 1, blocks), KVBM_ERR_INVALID);
  kvbm_load_options_init(&load, sizeof load);
  load.item_status = status;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, 8, &load, NULL, 0), KVBM_PARTIAL);
  for (i = 0; i < 8; ++i) {
    CHECK(status[i] == (i == 3 || i == 6 ? KVBM_ERR_MISS : KVBM_OK));
    if (status[i] == KVBM_OK) CHECK(engine_block_is(&e, ids[i], (unsigned char)(1 + i)));
  }
  kvbm_match_release(match);
  match = NULL;
  CHECK(look(e.manager, e.ns, keys + 3, 3, KVBM_LOOKUP_ANY, &match) == 1); /* the first that is there is the second */
  OK(kvbm_match_items(match, 0, 3, items));
  CHECK(items[0].tier == KVBM_NO_TIER && items[1].tier == 0 && items[2].tier == KVBM_NO_TIER);
  kvbm_match_release(match);
  match = NULL;
  CHECK(look(e.manager, e.ns, keys + 3, 1, KVBM_LOOKUP_ANY, &match) == 0);
  CHECK(match == NULL);
  CHECK(look(e.manager, e.ns, keys + 3, 1, KVBM_LOOKUP_PREFIX, &match) == 0);
  CHECK(match == NULL);
  CHECK(look(e.manager, e.ns, keys + 3, 1, KVBM_LOOKUP_EACH, &match) == 0);
  CHECK(match == NULL);
  {
    kvbm_lookup_options_t options;
    size_t hits = 9;
    kvbm_lookup_options_init(&options, sizeof options);
    options.mode = 3;
    CHECK_STATUS(kvbm_manager_lookup(e.manager, e.ns, keys, 8, &options, &match, &hits), KVBM_ERR_INVALID);
    CHECK(hits == 0 && match == NULL);
  }
  engine_close(&e);
}

static void what_a_match_holds_is_not_evicted(void) {
  engine_t e;
  kvbm_key_t keys[8];
  kvbm_match_t *match = NULL;
  kvbm_block_t all[16];
  size_t hits = 0, room = 0, i;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 8));
  engine_keys(&e, 1, 8, keys);
  OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
  CHECK(hits == 8);
  while (room < 16 && kvbm_manager_allocate(e.manager, e.ns, 1, &all[room], NULL, 0, NULL) == KVBM_OK) ++room;
  CHECK_U64(room, 16 - 8);
  CHECK(look(e.manager, e.ns, keys, 8, KVBM_LOOKUP_PREFIX, NULL) == 8);
  kvbm_match_release(match);
  for (i = room; i < 16; ++i) OK(kvbm_manager_allocate(e.manager, e.ns, 1, &all[i], NULL, 0, NULL));
  CHECK(look(e.manager, e.ns, keys, 8, KVBM_LOOKUP_PREFIX, NULL) == 0);
  OK(kvbm_block_release(e.manager, all, 16));
  engine_close(&e);
}

static void keys_may_repeat_in_a_batch(void) {
  engine_t e;
  kvbm_key_t chain[4], keys[6];
  kvbm_status_t status[6];
  kvbm_store_options_t store;
  kvbm_load_options_t load;
  kvbm_match_t *match = NULL;
  kvbm_manager_stats_t stats;
  kvbm_pin_t pin = 0;
  const size_t which[6] = {2, 0, 2, 1, 0, 2};
  uint32_t ids[6], to[6];
  size_t i, n = 0;
  OK(engine_open(&e, 16, NULL, 0));
  engine_keys(&e, 1, 4, chain);
  for (i = 0; i < 6; ++i) {
    keys[i] = chain[which[i]];
    ids[i] = (uint32_t)i;
    to[i] = (uint32_t)(40 + i);
    memset(engine_block(&e, ids[i]), 50 + (int)which[i], BLOCK_BYTES);
  }
  kvbm_store_options_init(&store, sizeof store);
  store.unchained = 1;
  store.item_status = status;
  OK(kvbm_cache_store(e.cache, keys, ids, 6, &store, NULL, 0));
  for (i = 0; i < 6; ++i) CHECK(status[i] == KVBM_OK);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK_U64(stats.tiers[0].blocks, 3);
  CHECK(look(e.manager, e.ns, keys, 6, KVBM_LOOKUP_EACH, &match) == 6);
  memset(engine_block(&e, 40), 0xEE, 6 * BLOCK_BYTES);
  kvbm_load_options_init(&load, sizeof load);
  load.item_status = status;
  OK(kvbm_cache_load(e.cache, match, to, 6, &load, NULL, 0));
  for (i = 0; i < 6; ++i) CHECK(engine_block_is(&e, to[i], (unsigned char)(50 + which[i])));
  kvbm_match_release(match);
  OK(kvbm_manager_pin(e.manager, e.ns, NULL, keys, 6, 1, KVBM_FOREVER, &pin, &n));
  CHECK(n == 6);
  OK(kvbm_manager_unpin(e.manager, pin));
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys, 6, &n));
  CHECK_U64(n, 3);
  CHECK(look(e.manager, e.ns, keys, 6, KVBM_LOOKUP_EACH, NULL) == 0);
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.tiers[0].blocks == 0 && stats.holds == 0 && stats.pins == 0 && stats.matches == 0);
  engine_close(&e);
}

static void empty_batches_are_done_at_once(void) {
  engine_t e;
  kvbm_key_t key;
  kvbm_match_t *match = (kvbm_match_t *)&key;
  kvbm_queue_t *queue = NULL;
  kvbm_completion_t done[8];
  kvbm_pin_t pin = 7;
  size_t n = 9, got = 0;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 1));
  engine_keys(&e, 1, 1, &key);
  OK(kvbm_cache_store(e.cache, NULL, NULL, 0, NULL, NULL, 0));
  OK(kvbm_cache_lookup(e.cache, NULL, 0, NULL, &match, &n));
  CHECK(n == 0 && match == NULL);
  OK(kvbm_cache_lookup(e.cache, &key, 1, NULL, &match, &n));
  CHECK(n == 1);
  OK(kvbm_cache_load(e.cache, match, NULL, 0, NULL, NULL, 0));
  OK(kvbm_match_items(match, 1, 0, NULL));
  OK(kvbm_match_blocks(match, 0, 0, 0, NULL));
  OK(kvbm_manager_prefetch(e.manager, e.ns, NULL, NULL, 0, NULL, 0));
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, NULL, 0, &n));
  CHECK(n == 0);
  OK(kvbm_manager_hint(e.manager, e.ns, NULL, NULL, 0, KVBM_PRIORITY_KEEP));
  n = 9;
  OK(kvbm_manager_pin(e.manager, e.ns, NULL, NULL, 0, 1, KVBM_FOREVER, &pin, &n));
  CHECK(n == 0 && pin == 0);
  /* An accepted submission has a completion, even if it is empty. */
  OK(kvbm_queue_create(e.context, 8, &queue, &check_error));
  OK(kvbm_cache_store(e.cache, NULL, NULL, 0, NULL, queue, 1));
  OK(kvbm_cache_load(e.cache, match, NULL, 0, NULL, queue, 2));
  OK(kvbm_manager_prefetch(e.manager, e.ns, NULL, NULL, 0, queue, 3));
  while (got < 3 && (n = kvbm_queue_wait(queue, done + got, 8 - got, 60000000000ULL)) != 0) got += n;
  CHECK_U64(got, 3);
  for (n = 0; n < got; ++n) CHECK(done[n].status == KVBM_OK && done[n].items == 0 && done[n].bytes == 0);
  kvbm_queue_release(queue);
  kvbm_match_release(match);
  engine_close(&e);
}

/* A hybrid model: full attention, a sliding window of two blocks, a recurrent state. */
enum { HYBRID_BLOCKS = 32, HYBRID_PARTS = 3 };
static const uint64_t hybrid_bytes[HYBRID_PARTS] = {2u * 2 * 4 * 2 * 8 * 2, 1u * 2 * 4 * 2 * 8 * 2, 2u * 512};

typedef struct hybrid {
  engine_t e;
  kvbm_geometry_t *geometry;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  unsigned char *memory[HYBRID_PARTS];
  kvbm_part_t parts[HYBRID_PARTS];
} hybrid_t;

static void hybrid_open(hybrid_t *h) {
  kvbm_component_t c[HYBRID_PARTS];
  kvbm_namespace_options_t who;
  kvbm_cache_part_t parts[HYBRID_PARTS];
  kvbm_tensor_t tensors[HYBRID_PARTS];
  kvbm_cache_options_t layout;
  uint64_t bytes = 0;
  size_t p;
  memset(h, 0, sizeof *h);
  OK(engine_open(&h->e, 64, NULL, 0));
  memset(c, 0, sizeof c);
  for (p = 0; p < 2; ++p) {
    c[p].kind = p == 0 ? KVBM_COMPONENT_ATTENTION : KVBM_COMPONENT_WINDOW;
    c[p].element = KVBM_ELEMENT_BF16;
    c[p].layers = p == 0 ? 2 : 1;
    c[p].heads = 2;
    c[p].head_dim = 8;
  }
  c[1].window_tokens = 8; /* two blocks of four tokens */
  c[2].kind = KVBM_COMPONENT_STATE;
  c[2].layers = 2;
  c[2].heads = 1;
  c[2].state_bytes = 512;
  OK(kvbm_geometry_create(4, 1, c, HYBRID_PARTS, &h->geometry, &check_error));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "hybrid";
  who.geometry = h->geometry;
  OK(kvbm_namespace_open(h->e.manager, &who, &h->ns, &check_error));
  memset(parts, 0, sizeof parts);
  memset(tensors, 0, sizeof tensors);
  for (p = 0; p < HYBRID_PARTS; ++p) {
    OK(kvbm_geometry_record_bytes(h->geometry, (uint32_t)p, NULL, &bytes));
    CHECK_U64(bytes, hybrid_bytes[p]);
    h->memory[p] = (unsigned char *)calloc(HYBRID_BLOCKS, hybrid_bytes[p]);
    h->parts[p].component = (uint32_t)p;
    tensors[p].data = h->memory[p];
    tensors[p].bytes = HYBRID_BLOCKS * hybrid_bytes[p];
    parts[p].part = h->parts[p];
    parts[p].form = KVBM_FORM_CROSS_NHD;
    parts[p].tensors = &tensors[p];
    parts[p].n_tensors = 1;
  }
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = HYBRID_BLOCKS;
  layout.parts = parts;
  layout.n_parts = HYBRID_PARTS;
  OK(kvbm_cache_attach(h->e.manager, h->ns, &layout, &h->cache, &check_error));
}

static void hybrid_close(hybrid_t *h) {
  size_t p;
  kvbm_cache_release(h->cache);
  kvbm_namespace_release(h->ns);
  kvbm_geometry_release(h->geometry);
  engine_close(&h->e);
  for (p = 0; p < HYBRID_PARTS; ++p) free(h->memory[p]);
}

static void hybrid_keys(hybrid_t *h, uint32_t first, kvbm_key_t *out, size_t n) {
  uint32_t tokens[64];
  size_t i, made = 0;
  for (i = 0; i < n * 4; ++i) tokens[i] = first + (uint32_t)i;
  OK(kvbm_key_chain(h->ns, NULL, tokens, n * 4, 4, NULL, out, n, &made));
}

/* Stores n blocks; of part p those with their bit set in has[p]. A block's bytes identify part and place. */
static unsigned char hybrid_value(size_t part, size_t i) { return (unsigned char)(16 * part + i + 1); }
static void hybrid_store(hybrid_t *h, const kvbm_key_t *keys, size_t n, const unsigned *has) {
  uint32_t ids[HYBRID_PARTS * 16];
  size_t p, i;
  for (p = 0; p < HYBRID_PARTS; ++p) {
    for (i = 0; i < n; ++i) {
      ids[p * n + i] = has[p] >> i & 1 ? (uint32_t)i : KVBM_NO_BLOCK;
      memset(h->memory[p] + i * hybrid_bytes[p], hybrid_value(p, i), hybrid_bytes[p]);
    }
  }
  OK(kvbm_cache_store(h->cache, keys, ids, n, NULL, NULL, 0));
}

static size_t hybrid_found(hybrid_t *h, const kvbm_key_t *keys, size_t n) {
  kvbm_match_t *match = NULL;
  size_t hits = 0;
  OK(kvbm_cache_lookup(h->cache, keys, n, NULL, &match, &hits));
  kvbm_match_release(match);
  return hits;
}

static void a_hybrid_hit_is_all_that_is_needed_or_none(void) {
  hybrid_t h;
  kvbm_key_t keys[6], other[6];
  const unsigned all[3] = {0x3F, 0x30, 0x20}; /* as an engine has them at the end of its prompt */
  const unsigned middle[3] = {0x3F, 0x36, 0x24};
  kvbm_match_t *match = NULL;
  kvbm_match_item_t items[6];
  size_t hits, i;
  hybrid_open(&h);
  hybrid_keys(&h, 1, keys, 6);
  hybrid_store(&h, keys, 6, all);
  OK(kvbm_cache_lookup(h.cache, keys, 6, NULL, &match, &hits));
  CHECK(hits == 6);
  OK(kvbm_match_items(match, 0, 6, items));
  for (i = 0; i < 6; ++i) {
    const uint32_t needed = 1u | (i >= 4 ? 2u : 0) | (i == 5 ? 4u : 0);
    CHECK_U64(items[i].parts_needed, needed);
    CHECK_U64(items[i].bytes, hybrid_bytes[0] + (i >= 4 ? hybrid_bytes[1] : 0) + (i == 5 ? hybrid_bytes[2] : 0));
  }
  kvbm_match_release(match);
  CHECK(hybrid_found(&h, keys, 5) == 0); /* no state at the fifth, nor at any before it */
  hybrid_keys(&h, 500, other, 6);
  hybrid_store(&h, other, 6, middle); /* states after the third and the sixth, windows for both */
  CHECK(hybrid_found(&h, other, 6) == 6);
  CHECK(hybrid_found(&h, other, 5) == 3);
  CHECK(hybrid_found(&h, other, 3) == 3);
  CHECK(hybrid_found(&h, other, 2) == 0);
  OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[2], other + 5, 1, NULL));
  CHECK(hybrid_found(&h, other, 6) == 3);
  OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[1], other + 1, 1, NULL));
  CHECK(hybrid_found(&h, other, 6) == 0); /* the window of the third is cut */
  hybrid_close(&h);
}

static void what_a_prefix_no_longer_needs_does_not_block_a_hit(void) {
  hybrid_t h;
  kvbm_key_t keys[6];
  const unsigned everything[3] = {0x3F, 0x3F, 0x3F};
  size_t i;
  hybrid_open(&h);
  hybrid_keys(&h, 1, keys, 6);
  hybrid_store(&h, keys, 6, everything);
  for (i = 1; i <= 6; ++i) CHECK(hybrid_found(&h, keys, i) == i);
  OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[1], keys, 4, NULL)); /* left behind by the window */
  OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[2], keys, 5, NULL));
  CHECK(hybrid_found(&h, keys, 6) == 6);
  OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[0], keys, 1, NULL)); /* attention needs all of it */
  CHECK(hybrid_found(&h, keys, 6) == 0);
  hybrid_close(&h);
}

static void a_hybrid_load_brings_every_needed_part(void) {
  hybrid_t h;
  kvbm_key_t keys[6];
  const unsigned all[3] = {0x3F, 0x30, 0x20};
  uint32_t ids[HYBRID_PARTS * 6];
  kvbm_match_t *match = NULL;
  size_t hits = 0, p, i, j;
  hybrid_open(&h);
  hybrid_keys(&h, 1, keys, 6);
  hybrid_store(&h, keys, 6, all);
  OK(kvbm_cache_lookup(h.cache, keys, 6, NULL, &match, &hits));
  for (p = 0; p < HYBRID_PARTS; ++p) {
    memset(h.memory[p], 0xEE, HYBRID_BLOCKS * hybrid_bytes[p]);
    for (i = 0; i < 6; ++i) ids[p * 6 + i] = all[p] >> i & 1 ? (uint32_t)(10 + i) : KVBM_NO_BLOCK;
  }
  OK(kvbm_cache_load(h.cache, match, ids, 6, NULL, NULL, 0));
  for (p = 0; p < HYBRID_PARTS; ++p) {
    for (i = 0; i < HYBRID_BLOCKS; ++i) {
      const int loaded = i >= 10 && i < 16 && (all[p] >> (i - 10) & 1);
      const unsigned char want = loaded ? hybrid_value(p, i - 10) : 0xEE;
      for (j = 0; j < hybrid_bytes[p] && h.memory[p][i * hybrid_bytes[p] + j] == want; ++j) {
      }
      CHECK(j == hybrid_bytes[p]);
    }
  }
  kvbm_match_release(match);
  hybrid_close(&h);
}

/* An absent key is never reported as loaded, whatever its component is and however many others hit. */
static void a_missing_window_or_state_is_never_reported_as_loaded(void) {
  size_t p;
  for (p = 1; p < HYBRID_PARTS; ++p) {
    hybrid_t h;
    kvbm_key_t keys[4];
    kvbm_status_t status[4];
    kvbm_cache_part_t part;
    kvbm_tensor_t tensor;
    kvbm_cache_options_t layout;
    kvbm_cache_t *cache = NULL;
    kvbm_lookup_options_t how;
    kvbm_load_options_t load;
    kvbm_match_t *match = NULL;
    uint32_t ids[4] = {1, 2, 3, 4}, to[4] = {11, 12, 13, 14};
    size_t hits = 0, i;
    hybrid_open(&h);
    hybrid_keys(&h, 1, keys, 4);
    memset(&part, 0, sizeof part);
    memset(&tensor, 0, sizeof tensor);
    tensor.data = h.memory[p];
    tensor.bytes = HYBRID_BLOCKS * hybrid_bytes[p];
    part.part = h.parts[p];
    part.form = KVBM_FORM_CROSS_NHD;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = HYBRID_BLOCKS;
    layout.parts = &part;
    layout.n_parts = 1;
    OK(kvbm_cache_attach(h.e.manager, h.ns, &layout, &cache, &check_error));
    memset(h.memory[p], 0x11, HYBRID_BLOCKS * hybrid_bytes[p]);
    OK(kvbm_cache_store(cache, keys, ids, 4, NULL, NULL, 0));
    OK(kvbm_manager_drop(h.e.manager, h.ns, &h.parts[p], keys, 1, NULL));
    kvbm_lookup_options_init(&how, sizeof how);
    how.mode = KVBM_LOOKUP_EACH;
    how.parts = &h.parts[p];
    how.n_parts = 1;
    OK(kvbm_manager_lookup(h.e.manager, h.ns, keys, 4, &how, &match, &hits));
    CHECK(hits == 3);
    kvbm_load_options_init(&load, sizeof load);
    load.item_status = status;
    memset(h.memory[p], 0xEE, HYBRID_BLOCKS * hybrid_bytes[p]);
    CHECK_STATUS(kvbm_cache_load(cache, match, to, 4, &load, NULL, 0), KVBM_PARTIAL);
    for (i = 0; i < 4; ++i) {
      CHECK(status[i] == (i == 0 ? KVBM_ERR_MISS : KVBM_OK));
      CHECK(h.memory[p][to[i] * hybrid_bytes[p]] == (i == 0 ? 0xEE : 0x11));
    }
    kvbm_match_release(match);
    kvbm_cache_release(cache);
    hybrid_close(&h);
  }
}

int main(void) {
  RUN(each_mode_gives_what_it_says);
  RUN(what_a_match_holds_is_not_evicted);
  RUN(keys_may_repeat_in_a_batch);
  RUN(empty_batches_are_done_at_once);
  RUN(a_hybrid_hit_is_all_that_is_needed_or_none);
  RUN(what_a_prefix_no_longer_needs_does_not_block_a_hit);
  RUN(a_hybrid_load_brings_every_needed_part);
  RUN(a_missing_window_or_state_is_never_reported_as_loaded);
  FINISH();
}

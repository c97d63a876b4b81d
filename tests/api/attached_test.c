/* Attached caches: store, lookup, load, queues, shards, positions, bad input. */
#include <poll.h>

#include "engine.h"

static void what_is_stored_comes_back(void) {
  engine_t e;
  OK(engine_open(&e, 48, NULL, 0));
  OK(engine_store(&e, 1, 20));
  CHECK(engine_load(&e, 1, 20) == 20);
  CHECK(engine_load(&e, 1, 24) == 20);   /* the longest prefix */
  CHECK(engine_load(&e, 500, 4) == 0);
  engine_close(&e);
}

static void a_queue_gives_exactly_one_completion(void) {
  engine_t e;
  kvbm_queue_t *queue = NULL;
  kvbm_key_t keys[8];
  uint32_t ids[8];
  kvbm_completion_t done[4];
  kvbm_status_t status[8];
  kvbm_store_options_t options;
  struct pollfd fd;
  uint64_t operation = 0;
  size_t i;
  OK(engine_open(&e, 16, NULL, 0));
  OK(kvbm_queue_create(e.context, 1, &queue, &check_error));
  CHECK_STATUS(kvbm_queue_create(e.context, 0, &queue, &check_error), KVBM_ERR_INVALID);
  engine_keys(&e, 7, 8, keys);
  for (i = 0; i < 8; ++i) ids[i] = (uint32_t)i, status[i] = 1;
  kvbm_store_options_init(&options, sizeof options);
  options.item_status = status;
  options.out_operation = &operation;
  fd.fd = kvbm_queue_fd(queue);
  fd.events = POLLIN;
  CHECK(poll(&fd, 1, 0) == 0);
  OK(kvbm_cache_store(e.cache, keys, ids, 8, &options, queue, 42));
  CHECK_STATUS(kvbm_cache_store(e.cache, keys, ids, 8, NULL, queue, 43), KVBM_ERR_AGAIN); /* depth 1, not polled yet */
  CHECK(kvbm_queue_wait(queue, done, 4, 60000000000ULL) == 1);
  CHECK(done[0].user_data == 42 && done[0].operation == operation && done[0].op == KVBM_OP_STORE);
  CHECK(done[0].status == KVBM_OK && done[0].items == 8 && done[0].items_done == 8);
  CHECK(done[0].bytes == 8 * BLOCK_BYTES);
  for (i = 0; i < 8; ++i) CHECK(status[i] == KVBM_OK);
  CHECK(poll(&fd, 1, 0) == 0);
  CHECK(kvbm_queue_poll(queue, done, 4) == 0);
  CHECK_STATUS(kvbm_queue_cancel(queue, operation), KVBM_ERR_STALE);
  kvbm_queue_release(queue);
  engine_close(&e);
}

static void bad_input_is_refused_and_nothing_is_lost(void) {
  engine_t e;
  kvbm_key_t keys[4];
  uint32_t ids[4] = {0, 1, 2, ENGINE_BLOCKS};
  uint32_t good[4] = {0, 1, 2, 3};
  kvbm_match_t *match = NULL;
  size_t hits = 9;
  struct {
    kvbm_store_options_t known;
    uint64_t later;
  } newer;
  OK(engine_open(&e, 16, NULL, 0));
  OK(engine_store(&e, 1, 4));
  engine_keys(&e, 1, 4, keys);
  CHECK_STATUS(kvbm_cache_store(e.cache, keys, ids, 4, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_store(NULL, keys, good, 4, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_store(e.cache, NULL, good, 4, NULL, NULL, 0), KVBM_ERR_INVALID);
  OK(kvbm_cache_store(e.cache, NULL, NULL, 0, NULL, NULL, 0));
  OK(kvbm_cache_lookup(e.cache, keys, 0, NULL, &match, &hits));
  CHECK(match == NULL && hits == 0);
  memset(&newer, 0, sizeof newer);
  kvbm_store_options_init(&newer.known, sizeof newer);
  OK(kvbm_cache_store(e.cache, keys, good, 4, &newer.known, NULL, 0)); /* a newer header, nothing new used */
  newer.later = 1;
  CHECK_STATUS(kvbm_cache_store(e.cache, keys, good, 4, &newer.known, NULL, 0), KVBM_ERR_UNSUPPORTED);
  keys[2] = keys[1]; /* repeated in one batch */
  OK(kvbm_cache_store(e.cache, keys, good, 4, NULL, NULL, 0));
  CHECK(engine_load(&e, 1, 4) == 4);
  engine_close(&e);
}

/* A model of 4 layers and 8 heads; the tensors of one rank with `heads` of them. */
static kvbm_cache_t *attach_rank(engine_t *e, kvbm_namespace_t *ns, uint16_t first, uint16_t heads, uint32_t form,
                                 unsigned char *memory, size_t bytes) {
  kvbm_tensor_t tensors[4];
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  kvbm_cache_t *cache = NULL;
  size_t i;
  memset(&part, 0, sizeof part);
  part.part.shard.layers = 4;
  part.part.shard.first_head = first;
  part.part.shard.heads = heads;
  part.form = form;
  for (i = 0; i < 4; ++i) {
    tensors[i].data = memory + i * bytes / 4;
    tensors[i].bytes = bytes / 4;
    tensors[i].block_stride = 0;
    tensors[i].page_bytes = 0;
  }
  part.tensors = tensors;
  part.n_tensors = 4;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = 4;
  options.parts = &part;
  options.n_parts = 1;
  OK(kvbm_cache_attach(e->manager, ns, &options, &cache, &check_error));
  return cache;
}

static void ranks_never_get_each_others_bytes(void) {
  engine_t e;
  kvbm_component_t component;
  kvbm_geometry_t *geometry = NULL;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_cache_t *rank[2], *other_form;
  unsigned char *memory[3];
  /* 4 layers x 2 planes x 4 blocks x 16 tokens x 4 heads x 8 dims x 2 bytes */
  const size_t bytes = 4u * 2 * 4 * 16 * 4 * 8 * 2;
  uint32_t tokens[16], id = 2, target = 1;
  kvbm_key_t key;
  kvbm_match_t *match = NULL;
  size_t n, hits, i, r;
  uint64_t record = 0;
  OK(engine_open(&e, 32, NULL, 0));
  memset(&component, 0, sizeof component);
  component.element = KVBM_ELEMENT_BF16;
  component.layers = 4;
  component.heads = 8;
  component.head_dim = 8;
  OK(kvbm_geometry_create(16, 1, &component, 1, &geometry, &check_error));
  OK(kvbm_geometry_record_bytes(geometry, 0, NULL, &record));
  CHECK(record == 4u * 2 * 8 * 16 * 8 * 2);
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "tp";
  who.geometry = geometry;
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  for (r = 0; r < 3; ++r) memory[r] = (unsigned char *)malloc(bytes);
  rank[0] = attach_rank(&e, ns, 0, 4, KVBM_FORM_NHD, memory[0], bytes);
  rank[1] = attach_rank(&e, ns, 4, 4, KVBM_FORM_NHD, memory[1], bytes);
  for (i = 0; i < 16; ++i) tokens[i] = (uint32_t)i;
  OK(kvbm_key_chain(ns, NULL, tokens, 16, 16, NULL, &key, 1, &n));
  for (i = 0; i < bytes; ++i) memory[0][i] = (unsigned char)(i * 7 + 1), memory[1][i] = (unsigned char)(i * 11 + 2);
  OK(kvbm_cache_store(rank[0], &key, &id, 1, NULL, NULL, 0));
  OK(kvbm_cache_lookup(rank[1], &key, 1, NULL, &match, &hits));
  CHECK(hits == 0); /* equal key, another shard */
  OK(kvbm_cache_store(rank[1], &key, &id, 1, NULL, NULL, 0));
  /* Rank 0 again, in another arrangement: the bytes of block 2 must come back re-ordered. */
  other_form = attach_rank(&e, ns, 0, 4, KVBM_FORM_HND, memory[2], bytes);
  memset(memory[2], 0, bytes);
  OK(kvbm_cache_lookup(other_form, &key, 1, NULL, &match, &hits));
  CHECK(hits == 1);
  OK(kvbm_cache_load(other_form, match, &target, 1, NULL, NULL, 0));
  kvbm_match_release(match);
  for (i = 0; i < 4u * 2 * 16 * 4 * 16; ++i) {
    const size_t byte = i % 16, head = i / 16 % 4, token = i / 64 % 16, plane = i / 1024 % 2, layer = i / 2048;
    const size_t nhd = layer * (bytes / 4) + ((plane * 4 + id) * 16 + token) * 64 + head * 16 + byte;
    const size_t hnd = layer * (bytes / 4) + ((plane * 4 + target) * 4 + head) * 256 + token * 16 + byte;
    if (memory[0][nhd] != memory[2][hnd]) {
      CHECK(!"a byte came back at another place");
      break;
    }
  }
  kvbm_cache_release(rank[0]);
  kvbm_cache_release(rank[1]);
  kvbm_cache_release(other_form);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(geometry);
  for (r = 0; r < 3; ++r) free(memory[r]);
  engine_close(&e);
}

static void content_keys_are_bound_to_their_position(void) {
  engine_t e;
  uint32_t tokens[4] = {5, 6, 7, 8}, id = 0, target = 40;
  kvbm_key_t key;
  kvbm_position_t here = {128, 9, 77}, there = {256, 9, 77};
  kvbm_store_options_t store;
  kvbm_load_options_t load;
  kvbm_match_t *match = NULL;
  kvbm_manager_stats_t stats;
  size_t n, hits;
  OK(engine_open(&e, 8, NULL, 0));
  OK(kvbm_key_content(e.ns, tokens, 4, 4, NULL, &key, 1, &n));
  kvbm_store_options_init(&store, sizeof store);
  store.positions = &here;
  OK(kvbm_cache_store(e.cache, &key, &id, 1, &store, NULL, 0));
  OK(kvbm_cache_lookup(e.cache, &key, 1, NULL, &match, &hits));
  CHECK(hits == 1);
  kvbm_load_options_init(&load, sizeof load);
  load.positions = &there;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, &target, 1, &load, NULL, 0), KVBM_ERR_MISMATCH);
  load.positions = &here;
  OK(kvbm_cache_load(e.cache, match, &target, 1, &load, NULL, 0));
  load.positions = &there;
  load.any_position = 1;
  OK(kvbm_cache_load(e.cache, match, &target, 1, &load, NULL, 0));
  kvbm_match_release(match);
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e.manager, &stats));
  CHECK(stats.position_mismatches == 1);
  engine_close(&e);
}

static void lookup_modes_and_care_of_blocks(void) {
  engine_t e;
  kvbm_key_t keys[4], mixed[3];
  kvbm_lookup_options_t options;
  kvbm_match_item_t items[3];
  kvbm_match_t *match = NULL;
  kvbm_pin_t pin = 0;
  size_t hits, n = 0;
  kvbm_block_t blocks[16];
  OK(engine_open(&e, 8, NULL, 0));
  OK(engine_store(&e, 1, 4));
  engine_keys(&e, 1, 4, keys);
  engine_keys(&e, 900, 1, &mixed[0]);
  mixed[1] = keys[1];
  mixed[2] = keys[3];
  kvbm_lookup_options_init(&options, sizeof options);
  OK(kvbm_manager_lookup(e.manager, e.ns, mixed, 3, &options, &match, &hits));
  CHECK(hits == 0 && match == NULL);
  options.mode = KVBM_LOOKUP_EACH;
  OK(kvbm_manager_lookup(e.manager, e.ns, mixed, 3, &options, &match, &hits));
  CHECK(hits == 2 && kvbm_match_count(match) == 3);
  OK(kvbm_match_items(match, 0, 3, items));
  CHECK(items[0].tier == KVBM_NO_TIER && items[1].tier == 0 && items[2].tier == 0);
  kvbm_match_release(match);
  {
    /* A lookup that is no use leaves the counts of the blocks as they are. */
    kvbm_scan_row_t before[8], after[8];
    uint64_t cursor = 0;
    size_t rows = 0, i;
    OK(kvbm_manager_scan(e.manager, &cursor, before, 8, &rows));
    options.no_use = 1;
    OK(kvbm_manager_lookup(e.manager, e.ns, keys, 4, &options, &match, &hits));
    CHECK(hits == 4);
    kvbm_match_release(match);
    cursor = 0;
    OK(kvbm_manager_scan(e.manager, &cursor, after, 8, &rows));
    for (i = 0; i < rows; ++i) CHECK(before[i].uses == after[i].uses);
    options.no_use = 0;
    OK(kvbm_manager_lookup(e.manager, e.ns, keys, 4, &options, &match, &hits));
    kvbm_match_release(match);
    cursor = 0;
    OK(kvbm_manager_scan(e.manager, &cursor, after, 8, &rows));
    CHECK(after[0].uses == before[0].uses + 1);
  }
  options.mode = KVBM_LOOKUP_ANY;
  OK(kvbm_manager_lookup(e.manager, e.ns, mixed, 3, &options, &match, &hits));
  CHECK(hits == 1);
  kvbm_match_release(match);
  OK(kvbm_manager_pin(e.manager, e.ns, NULL, keys, 4, 77, KVBM_FOREVER, &pin, &n));
  CHECK(n == 4 && pin != 0);
  CHECK_STATUS(kvbm_manager_allocate(e.manager, e.ns, 6, blocks, NULL, 0, NULL), KVBM_ERR_NO_ROOM);
  CHECK(engine_load(&e, 1, 4) == 4);
  OK(kvbm_manager_unpin_owner(e.manager, 77, &n));
  CHECK(n == 1);
  CHECK_STATUS(kvbm_manager_unpin(e.manager, pin), KVBM_ERR_STALE);
  OK(kvbm_manager_hint(e.manager, e.ns, NULL, keys, 4, KVBM_PRIORITY_KEEP));
  OK(kvbm_manager_drop(e.manager, e.ns, NULL, keys, 4, &n));
  CHECK(n == 4);
  CHECK(engine_load(&e, 1, 4) == 0);
  engine_close(&e);
}

static void namespaces_are_apart_and_epochs_end_them(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *other = NULL;
  kvbm_key_t a, b, keys[2];
  uint32_t tokens[4] = {1, 2, 3, 4};
  uint8_t secret[32] = {1}, before[16], after[16];
  size_t n, hits;
  kvbm_match_t *match = NULL;
  OK(engine_open(&e, 8, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  CHECK_STATUS(kvbm_namespace_open(e.manager, &who, &other, &check_error), KVBM_ERR_INVALID); /* no model */
  who.model = "test";
  who.secret = secret;
  OK(kvbm_namespace_open(e.manager, &who, &other, &check_error));
  OK(kvbm_key_chain(e.ns, NULL, tokens, 4, 4, NULL, &a, 1, &n));
  OK(kvbm_key_chain(other, NULL, tokens, 4, 4, NULL, &b, 1, &n));
  CHECK(memcmp(&a, &b, sizeof a) != 0);
  OK(engine_store(&e, 1, 2));
  engine_keys(&e, 1, 2, keys);
  OK(kvbm_manager_lookup(e.manager, other, keys, 2, NULL, &match, &hits));
  CHECK(hits == 0); /* even with the other's keys */
  kvbm_namespace_id(e.ns, before);
  OK(kvbm_namespace_invalidate(e.ns, &check_error));
  kvbm_namespace_id(e.ns, after);
  CHECK(memcmp(before, after, 16) != 0);
  CHECK(engine_load(&e, 1, 2) == 0);
  OK(engine_store(&e, 1, 2));
  CHECK(engine_load(&e, 1, 2) == 2);
  OK(kvbm_namespace_reset(e.ns, &check_error));
  CHECK(engine_load(&e, 1, 2) == 0);
  kvbm_namespace_release(other);
  engine_close(&e);
}

static void quotas_reject_or_evict(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *small = NULL;
  kvbm_block_t blocks[8];
  OK(engine_open(&e, 16, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "quota";
  who.quota_bytes = 3 * (BLOCK_BYTES + 384);
  who.quota_mode = KVBM_QUOTA_REJECT;
  OK(kvbm_namespace_open(e.manager, &who, &small, &check_error));
  OK(kvbm_manager_allocate(e.manager, small, 3, blocks, NULL, 0, NULL));
  CHECK_STATUS(kvbm_manager_allocate(e.manager, small, 1, blocks + 3, NULL, 0, NULL), KVBM_ERR_QUOTA);
  OK(kvbm_manager_allocate(e.manager, e.ns, 4, blocks + 3, NULL, 0, NULL));
  OK(kvbm_block_release(e.manager, blocks, 7));
  kvbm_namespace_release(small);
  engine_close(&e);
}

/* Registers blocks [first, first + n) of a namespace and releases them: they stay resident, and count. */
static kvbm_status_t leave_blocks(engine_t *e, kvbm_namespace_t *ns, uint8_t first, size_t n) {
  kvbm_block_t blocks[4];
  kvbm_key_t keys[4];
  size_t i;
  kvbm_status_t status = kvbm_manager_allocate(e->manager, ns, n, blocks, NULL, 0, NULL);
  if (status != KVBM_OK) return status;
  memset(keys, 0, sizeof keys);
  for (i = 0; i < n; ++i) keys[i].bytes[0] = (uint8_t)(first + i);
  OK(kvbm_manager_complete(e->manager, blocks, n, NULL));
  OK(kvbm_manager_register(e->manager, ns, blocks, keys, n, NULL));
  return kvbm_block_release(e->manager, blocks, n);
}

static void a_quota_that_is_refused_or_closed_takes_nothing(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  char model[32];
  int i;
  OK(engine_open(&e, 16, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = model;
  who.quota_mode = KVBM_QUOTA_REJECT;
  who.quota_bytes = 1; /* less than a block */
  strcpy(model, "refused");
  for (i = 0; i < 5000; ++i) CHECK_STATUS(kvbm_namespace_open(e.manager, &who, &ns, &check_error), KVBM_ERR_INVALID);
  who.quota_bytes = 3 * (BLOCK_BYTES + 384);
  for (i = 0; i < 5000; ++i) {
    snprintf(model, sizeof model, "closed %d", i);
    OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
    kvbm_namespace_release(ns);
  }
  engine_close(&e);
}

static void a_quota_counts_what_the_namespace_left_when_it_was_closed(void) {
  engine_t e;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_t *other = NULL;
  kvbm_key_t keys[3];
  size_t i;
  OK(engine_open(&e, 16, NULL, 0));
  kvbm_namespace_options_init(&who, sizeof who);
  who.quota_mode = KVBM_QUOTA_REJECT;
  who.quota_bytes = 3 * (BLOCK_BYTES + 384);
  who.model = "left";
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  OK(leave_blocks(&e, ns, 1, 3));
  kvbm_namespace_release(ns);
  who.model = "other";
  OK(kvbm_namespace_open(e.manager, &who, &other, &check_error));
  OK(leave_blocks(&e, other, 1, 3));
  who.model = "left";
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  CHECK_STATUS(leave_blocks(&e, ns, 4, 1), KVBM_ERR_QUOTA);
  memset(keys, 0, sizeof keys);
  for (i = 0; i < 3; ++i) keys[i].bytes[0] = (uint8_t)(i + 1);
  OK(kvbm_manager_drop(e.manager, ns, NULL, keys, 3, NULL));
  OK(leave_blocks(&e, ns, 4, 3));
  kvbm_namespace_release(ns);
  kvbm_namespace_release(other);
  engine_close(&e);
}

int main(void) {
  RUN(what_is_stored_comes_back);
  RUN(a_queue_gives_exactly_one_completion);
  RUN(bad_input_is_refused_and_nothing_is_lost);
  RUN(ranks_never_get_each_others_bytes);
  RUN(content_keys_are_bound_to_their_position);
  RUN(lookup_modes_and_care_of_blocks);
  RUN(namespaces_are_apart_and_epochs_end_them);
  RUN(quotas_reject_or_evict);
  RUN(a_quota_that_is_refused_or_closed_takes_nothing);
  RUN(a_quota_counts_what_the_namespace_left_when_it_was_closed);
  FINISH();
}

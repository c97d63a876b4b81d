/* Keys: what each kind depends on, and the position that a content key's block carries. */
#include "engine.h"

static char scratch[256];

enum { TOKENS = 16, N = 8 };

static void text(uint32_t *out, size_t n) {
  size_t i;
  for (i = 0; i < n; ++i) out[i] = (uint32_t)(i * 31 + 7);
}
static int same(const kvbm_key_t *a, const kvbm_key_t *b) { return memcmp(a, b, sizeof *a) == 0; }

static kvbm_namespace_t *namespace_with(engine_t *e, const char *tenant, uint32_t weak_hashes) {
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_options_init(&who, sizeof who);
  CHECK(who.weak_hashes == 0);
  who.model = "test";
  who.tenant = tenant;
  who.weak_hashes = weak_hashes;
  OK(kvbm_namespace_open(e->manager, &who, &ns, &check_error));
  return ns;
}

static kvbm_namespace_t *namespace_of(engine_t *e, const char *tenant) { return namespace_with(e, tenant, 0); }

static void a_chained_key_depends_on_all_before_it(void) {
  engine_t e;
  uint32_t t[N * TOKENS + 5];
  kvbm_key_t keys[N], other[N], none;
  size_t n = 0, i, changed;
  OK(engine_open(&e, 8, NULL, 0));
  text(t, N * TOKENS + 5);
  OK(kvbm_key_chain(e.ns, NULL, t, N * TOKENS + 5, TOKENS, NULL, keys, N, &n));
  CHECK(n == N); /* the partial last block gets none */
  for (changed = 0; changed < N; ++changed) {
    t[changed * TOKENS + changed] ^= 1;
    OK(kvbm_key_chain(e.ns, NULL, t, N * TOKENS, TOKENS, NULL, other, N, &n));
    for (i = 0; i < N; ++i) CHECK(same(&keys[i], &other[i]) == (i < changed));
    t[changed * TOKENS + changed] ^= 1;
  }
  OK(kvbm_key_chain(e.ns, NULL, t, 3 * TOKENS, TOKENS, NULL, other, N, &n)); /* in two calls */
  CHECK(n == 3);
  OK(kvbm_key_chain(e.ns, &other[2], t + 3 * TOKENS, (N - 3) * TOKENS, TOKENS, NULL, other + 3, N - 3, &n));
  CHECK(n == N - 3);
  CHECK(memcmp(keys, other, sizeof keys) == 0);
  memset(other, 0, sizeof other);
  memset(&none, 0, sizeof none);
  OK(kvbm_key_chain(e.ns, NULL, t, N * TOKENS, TOKENS, NULL, other, 2, &n)); /* as many as the capacity */
  CHECK(n == N);
  CHECK(same(&other[0], &keys[0]) && same(&other[1], &keys[1]) && same(&other[2], &none));
  OK(kvbm_key_chain(e.ns, NULL, t, N * TOKENS, TOKENS, NULL, NULL, 0, &n));
  CHECK(n == N);
  OK(kvbm_key_chain(e.ns, NULL, t, TOKENS - 1, TOKENS, NULL, other, N, &n));
  CHECK(n == 0);
  OK(kvbm_key_chain(e.ns, NULL, NULL, 0, TOKENS, NULL, NULL, 0, &n));
  CHECK(n == 0);
  OK(kvbm_key_chain(e.ns, NULL, t, 2 * TOKENS, 2 * TOKENS, NULL, other, N, &n)); /* equal tokens in other blocks */
  CHECK(n == 1);
  for (i = 0; i < N; ++i) CHECK(!same(&other[0], &keys[i]));
  CHECK_STATUS(kvbm_key_chain(e.ns, NULL, t, TOKENS, 0, NULL, other, N, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_chain(e.ns, NULL, NULL, TOKENS, TOKENS, NULL, other, N, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_chain(e.ns, NULL, t, TOKENS, TOKENS, NULL, NULL, 1, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_chain(e.ns, NULL, t, TOKENS, TOKENS, NULL, other, N, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_chain(NULL, NULL, t, TOKENS, TOKENS, NULL, other, N, &n), KVBM_ERR_INVALID);
  engine_close(&e);
}

static void extras_make_a_block_another_one(void) {
  engine_t e;
  uint32_t t[4 * TOKENS];
  const uint8_t lora[3] = {1, 2, 3}, longer[4] = {1, 2, 3, 0};
  kvbm_extra_t extras[4];
  kvbm_key_t keys[4], plain[4], other[4];
  size_t n, i;
  OK(engine_open(&e, 8, NULL, 0));
  text(t, 4 * TOKENS);
  memset(extras, 0, sizeof extras);
  OK(kvbm_key_chain(e.ns, NULL, t, 4 * TOKENS, TOKENS, NULL, plain, 4, &n));
  OK(kvbm_key_chain(e.ns, NULL, t, 4 * TOKENS, TOKENS, extras, keys, 4, &n));
  CHECK(memcmp(keys, plain, sizeof keys) == 0); /* none for any block is none */
  extras[2].data = lora;
  extras[2].bytes = 3;
  OK(kvbm_key_chain(e.ns, NULL, t, 4 * TOKENS, TOKENS, extras, keys, 4, &n));
  for (i = 0; i < 4; ++i) CHECK(same(&keys[i], &plain[i]) == (i < 2));
  extras[2].data = longer;
  extras[2].bytes = 4;
  OK(kvbm_key_chain(e.ns, NULL, t, 4 * TOKENS, TOKENS, extras, other, 4, &n));
  CHECK(!same(&other[2], &keys[2]) && !same(&other[3], &keys[3]));
  OK(kvbm_key_content(e.ns, t, 4 * TOKENS, TOKENS, NULL, plain, 4, &n));
  OK(kvbm_key_content(e.ns, t, 4 * TOKENS, TOKENS, extras, keys, 4, &n));
  for (i = 0; i < 4; ++i) CHECK(same(&keys[i], &plain[i]) == (i != 2));
  extras[2].data = NULL; /* bytes that are nowhere */
  CHECK_STATUS(kvbm_key_chain(e.ns, NULL, t, 4 * TOKENS, TOKENS, extras, keys, 4, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_content(e.ns, t, 4 * TOKENS, TOKENS, extras, keys, 4, &n), KVBM_ERR_INVALID);
  OK(kvbm_key_content(e.ns, t, 4 * TOKENS, TOKENS, extras, keys, 2, &n)); /* of a block that gets no key */
  engine_close(&e);
}

static void a_content_key_depends_on_its_own_tokens_alone(void) {
  engine_t e;
  uint32_t t[N * TOKENS];
  kvbm_key_t keys[N], moved[N], chained[N];
  size_t n = 0, i;
  OK(engine_open(&e, 8, NULL, 0));
  text(t, N * TOKENS);
  OK(kvbm_key_content(e.ns, t, N * TOKENS, TOKENS, NULL, keys, N, &n));
  CHECK(n == N);
  OK(kvbm_key_content(e.ns, t + 3 * TOKENS, (N - 3) * TOKENS, TOKENS, NULL, moved, N, &n));
  CHECK(n == N - 3);
  for (i = 3; i < N; ++i) CHECK(same(&keys[i], &moved[i - 3]));
  OK(kvbm_key_chain(e.ns, NULL, t, N * TOKENS, TOKENS, NULL, chained, N, &n));
  for (i = 0; i < N; ++i) CHECK(!same(&keys[i], &chained[i])); /* another kind is another key, the first as well */
  t[5] ^= 1;
  OK(kvbm_key_content(e.ns, t, N * TOKENS, TOKENS, NULL, moved, N, &n));
  for (i = 0; i < N; ++i) CHECK(same(&keys[i], &moved[i]) == (i != 0));
  CHECK_STATUS(kvbm_key_content(e.ns, t, TOKENS, 0, NULL, moved, N, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_content(NULL, t, TOKENS, TOKENS, NULL, moved, N, &n), KVBM_ERR_INVALID);
  engine_close(&e);
}

static void an_engines_hashes_become_keys(void) {
  engine_t e;
  kvbm_namespace_t *other;
  uint8_t hashes[4 * 64];
  kvbm_key_t keys[4], again[4], theirs[4], shorter[4];
  size_t i;
  OK(engine_open(&e, 8, NULL, 0));
  other = namespace_of(&e, "other");
  for (i = 0; i < sizeof hashes; ++i) hashes[i] = (uint8_t)(i * 7 + i / 64);
  OK(kvbm_key_from_hashes(e.ns, hashes, 32, 4, keys));
  OK(kvbm_key_from_hashes(e.ns, hashes + 32, 32, 1, again));
  CHECK(same(&keys[1], &again[0])); /* each by itself */
  OK(kvbm_key_from_hashes(other, hashes, 32, 4, theirs));
  OK(kvbm_key_from_hashes(e.ns, hashes, 31, 4, shorter));
  for (i = 0; i < 4; ++i) CHECK(!same(&keys[i], &theirs[i]) && !same(&keys[i], &shorter[i]));
  OK(kvbm_key_from_hashes(e.ns, hashes, 16, 4, again));
  OK(kvbm_key_from_hashes(e.ns, hashes, 64, 4, again));
  OK(kvbm_key_from_hashes(e.ns, NULL, 32, 0, NULL));
  CHECK_STATUS(kvbm_key_from_hashes(e.ns, hashes, 0, 4, again), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_from_hashes(e.ns, hashes, 65, 4, again), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_from_hashes(e.ns, NULL, 32, 4, again), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_from_hashes(e.ns, hashes, 32, 4, NULL), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_key_from_hashes(NULL, hashes, 32, 4, again), KVBM_ERR_INVALID);
  kvbm_namespace_release(other);
  engine_close(&e);
}

static void short_hashes_are_taken_only_where_the_namespace_says_so(void) {
  engine_t e;
  kvbm_namespace_t *weak, *strict;
  kvbm_namespace_options_t who;
  uint8_t hashes[4 * 64], weak_id[16], strict_id[16];
  kvbm_key_t keys[4], again[4];
  size_t n, i;
  OK(engine_open(&e, 8, NULL, 0));
  strict = namespace_with(&e, "one", 0);
  weak = namespace_with(&e, "one", 1);
  for (i = 0; i < sizeof hashes; ++i) hashes[i] = (uint8_t)(i * 7 + i / 64);
  memset(again, 0xEE, sizeof again);
  for (n = 1; n < 16; ++n) {
    CHECK_STATUS(kvbm_key_from_hashes(strict, hashes, n, 4, again), KVBM_ERR_INVALID);
    CHECK_STATUS(kvbm_key_from_hashes(strict, hashes, n, 0, again), KVBM_ERR_INVALID);
    for (i = 0; i < sizeof again; ++i) CHECK(((const uint8_t *)again)[i] == 0xEE);
    OK(kvbm_key_from_hashes(weak, hashes, n, 4, keys));
  }
  for (n = 16; n <= 64; ++n) { /* weak_hashes does not change the keys */
    OK(kvbm_key_from_hashes(strict, hashes, n, 4, again));
    OK(kvbm_key_from_hashes(weak, hashes, n, 4, keys));
    CHECK(memcmp(keys, again, sizeof keys) == 0);
  }
  kvbm_namespace_id(weak, weak_id);
  kvbm_namespace_id(strict, strict_id);
  CHECK(memcmp(weak_id, strict_id, 16) == 0);
  CHECK_STATUS(kvbm_key_from_hashes(weak, hashes, 0, 4, again), KVBM_ERR_INVALID);
  kvbm_namespace_release(weak);
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  who.weak_hashes = 2;
  CHECK_STATUS(kvbm_namespace_open(e.manager, &who, &weak, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "weak_hashes") != NULL);
  kvbm_namespace_release(strict);
  engine_close(&e);
}

static void keys_of_another_namespace_or_epoch_are_others(void) {
  engine_t e;
  kvbm_namespace_t *other;
  uint32_t t[N * TOKENS];
  kvbm_key_t mine[3 * N], theirs[3 * N], later[3 * N];
  kvbm_key_t *lists[3];
  kvbm_namespace_t *spaces[3];
  size_t k, i, j, n;
  OK(engine_open(&e, 8, NULL, 0));
  other = namespace_of(&e, "other");
  text(t, N * TOKENS);
  lists[0] = mine, lists[1] = theirs, lists[2] = later;
  spaces[0] = e.ns, spaces[1] = other, spaces[2] = e.ns;
  for (k = 0; k < 3; ++k) {
    if (k == 2) OK(kvbm_namespace_invalidate(e.ns, NULL));
    OK(kvbm_key_chain(spaces[k], NULL, t, N * TOKENS, TOKENS, NULL, lists[k], N, &n));
    OK(kvbm_key_content(spaces[k], t, N * TOKENS, TOKENS, NULL, lists[k] + N, N, &n));
    OK(kvbm_key_from_hashes(spaces[k], (const uint8_t *)t, 4 * TOKENS, N, lists[k] + 2 * N));
  }
  for (i = 0; i < 3 * N; ++i) {
    for (j = 0; j < 3 * N; ++j) {
      CHECK(!same(&mine[i], &theirs[j]) && !same(&mine[i], &later[j]) && !same(&theirs[i], &later[j]));
      if (i != j) CHECK(!same(&mine[i], &mine[j]));
    }
  }
  kvbm_namespace_release(other);
  engine_close(&e);
}

static uint64_t position_mismatches(engine_t *e) {
  kvbm_manager_stats_t stats;
  stats.struct_size = sizeof stats;
  OK(kvbm_manager_stats(e->manager, &stats));
  return stats.position_mismatches;
}

/* Loads the four keys for `positions` (NULL: none). Returns how many were loaded with the right bytes. */
static size_t load_at(engine_t *e, const kvbm_key_t *keys, const kvbm_position_t *positions, uint32_t any,
                      kvbm_status_t *status) {
  kvbm_lookup_options_t each;
  kvbm_load_options_t options;
  kvbm_match_t *match = NULL;
  uint32_t ids[4] = {40, 41, 42, 43};
  size_t hits = 0, i, good = 0;
  kvbm_lookup_options_init(&each, sizeof each);
  each.mode = KVBM_LOOKUP_EACH;
  OK(kvbm_manager_lookup(e->manager, e->ns, keys, 4, &each, &match, &hits));
  CHECK_U64(hits, 4);
  kvbm_load_options_init(&options, sizeof options);
  options.positions = positions;
  options.any_position = any;
  options.item_status = status;
  memset(engine_block(e, 40), 0xEE, 4 * BLOCK_BYTES);
  kvbm_cache_load(e->cache, match, ids, 4, &options, NULL, 0);
  for (i = 0; i < 4; ++i) {
    if (status[i] != KVBM_OK) continue;
    CHECK(engine_block_is(e, ids[i], (unsigned char)(60 + i)));
    ++good;
  }
  kvbm_match_release(match);
  return good;
}

static void positions_of(kvbm_position_t *out) {
  size_t i;
  for (i = 0; i < 4; ++i) {
    out[i].first_token = i * TOKENS;
    out[i].rotation = 99;
    out[i].left_context = i == 0 ? 0 : 1000 + i;
  }
}

static void check_positions(engine_t *e, const kvbm_key_t *keys) {
  kvbm_position_t at[4];
  kvbm_status_t status[4];
  size_t i;
  uint64_t before = position_mismatches(e);
  positions_of(at);
  CHECK(load_at(e, keys, at, 0, status) == 4);
  CHECK_U64(position_mismatches(e), before);
  at[1].first_token += TOKENS; /* elsewhere */
  at[2].rotation += 1;         /* turned otherwise */
  at[3].left_context += 1;     /* after something else */
  CHECK(load_at(e, keys, at, 0, status) == 1);
  CHECK(status[0] == KVBM_OK);
  for (i = 1; i < 4; ++i) CHECK_STATUS(status[i], KVBM_ERR_MISMATCH);
  CHECK_U64(position_mismatches(e), before + 3);
  CHECK(load_at(e, keys, NULL, 0, status) == 0); /* not said where: nowhere */
  CHECK_U64(position_mismatches(e), before + 7);
  CHECK(load_at(e, keys, at, 1, status) == 4); /* the caller turns them itself */
  CHECK(load_at(e, keys, NULL, 1, status) == 4);
  CHECK_U64(position_mismatches(e), before + 7);
}

static void a_block_at_another_position_is_a_counted_miss_unless_asked_for(void) {
  engine_t e;
  uint32_t t[4 * TOKENS], ids[4] = {0, 1, 2, 3};
  kvbm_key_t keys[4];
  kvbm_position_t at[4];
  kvbm_store_options_t options;
  char path[300];
  size_t n, i;
  snprintf(path, sizeof path, "%s/positions", scratch);
  OK(engine_open(&e, 16, path, 64 << 20));
  text(t, 4 * TOKENS);
  OK(kvbm_key_content(e.ns, t, 4 * TOKENS, TOKENS, NULL, keys, 4, &n));
  for (i = 0; i < 4; ++i) memset(engine_block(&e, ids[i]), 60 + (int)i, BLOCK_BYTES);
  positions_of(at);
  kvbm_store_options_init(&options, sizeof options);
  options.positions = at;
  OK(kvbm_cache_store(e.cache, keys, ids, 4, &options, NULL, 0));
  check_positions(&e, keys);
  OK(kvbm_manager_flush(e.manager, 60000000000ULL));
  engine_close(&e);
  OK(engine_open(&e, 16, path, 64 << 20)); /* the position is kept with the block */
  check_positions(&e, keys);
  engine_close(&e);
}

int main(void) {
  if (check_directory(scratch) == NULL) return 77;
  RUN(a_chained_key_depends_on_all_before_it);
  RUN(extras_make_a_block_another_one);
  RUN(a_content_key_depends_on_its_own_tokens_alone);
  RUN(an_engines_hashes_become_keys);
  RUN(short_hashes_are_taken_only_where_the_namespace_says_so);
  RUN(keys_of_another_namespace_or_epoch_are_others);
  RUN(a_block_at_another_position_is_a_counted_miss_unless_asked_for);
  check_remove(scratch);
  FINISH();
}

/* Details of wrong calls: the refused argument and the reason, from each call without a kvbm_error_t, on the calling
 * thread. An empty load, which follows a lookup without a hit, is not a mistake. */
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

enum { BLOCK = 4096, BLOCKS = 8 };

static kvbm_context_t *context;
static kvbm_manager_t *manager;
static kvbm_namespace_t *ns;
static kvbm_cache_t *cache;
static unsigned char engine[BLOCKS][BLOCK];

static kvbm_status_t attach(void *data, uint64_t bytes, kvbm_cache_t **out, kvbm_error_t *err) {
  kvbm_tensor_t tensor = {data, bytes, 0, BLOCK};
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = BLOCKS;
  options.parts = &part;
  options.n_parts = 1;
  return kvbm_cache_attach(manager, ns, &options, out, err);
}

static int open_all(void) {
  kvbm_context_options_t options;
  kvbm_manager_options_t m;
  kvbm_namespace_options_t n;
  kvbm_error_t err;
  kvbm_context_options_init(&options, sizeof options);
  kvbm_manager_options_init(&m, sizeof m);
  m.block_bytes = BLOCK;
  m.host_capacity_bytes = 1 << 20;
  kvbm_namespace_options_init(&n, sizeof n);
  n.model = "m";
  return kvbm_context_create(&options, &context, &err) == KVBM_OK &&
         kvbm_manager_create(context, &m, &manager, &err) == KVBM_OK &&
         kvbm_namespace_open(manager, &n, &ns, &err) == KVBM_OK && attach(engine, sizeof engine, &cache, &err) == KVBM_OK;
}

/* True if the details of the last failed call contain these words. */
static int said(kvbm_status_t status, const char *words) {
  kvbm_error_t last;
  CHECK_STATUS(kvbm_error_last(&last), KVBM_OK);
  if (last.status == status && strstr(last.message, words) != NULL) return 1;
  printf("  %s: %s\n", kvbm_status_name(last.status), last.message);
  return 0;
}

static void a_refused_argument_is_named(void) {
  kvbm_key_t keys[BLOCKS];
  const uint32_t wrong[BLOCKS] = {0, 99, 2, 3, 4, 5, 6, 7};
  const uint64_t sizes[1] = {BLOCK + 1};
  kvbm_lookup_options_t lookup;
  kvbm_match_t *match = NULL;
  kvbm_block_t blocks[2];
  kvbm_store_options_t store;
  size_t n = 0;
  memset(keys, 7, sizeof keys);
  CHECK_STATUS(kvbm_cache_store(cache, keys, wrong, BLOCKS, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "block_ids[1] is 99, the cache has 8 blocks"));
  CHECK_STATUS(kvbm_cache_store(cache, NULL, wrong, BLOCKS, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "keys or block_ids is NULL"));
  kvbm_store_options_init(&store, sizeof store);
  store.priority = 77;
  CHECK_STATUS(kvbm_cache_store(cache, keys, wrong, 1, &store, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "priority"));
  kvbm_lookup_options_init(&lookup, sizeof lookup);
  lookup.mode = 9;
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, 1, &lookup, &match, &n), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "options.mode"));
  CHECK_STATUS(kvbm_manager_offload(manager, ns, NULL, keys, 1, 5, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "tier is 5"));
  CHECK_STATUS(kvbm_manager_allocate(manager, ns, 1, blocks, NULL, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_complete(manager, blocks, 1, sizes), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "bytes[0] is 4097"));
  blocks[1] = blocks[0];
  CHECK_STATUS(kvbm_manager_complete(manager, blocks, 2, NULL), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "twice"));
  CHECK_STATUS(kvbm_manager_complete(manager, blocks, 1, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_register(manager, ns, blocks, keys, 1, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_lookup(manager, ns, keys, 1, NULL, &match, &n), KVBM_OK);
  CHECK_U64(n, 1);
  CHECK_STATUS(kvbm_match_blocks(match, 0, 0, 3, blocks + 1), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "3 from 0 on of 1"));
  kvbm_match_release(match);
  CHECK_STATUS(kvbm_block_release(manager, blocks, 1), KVBM_OK);
  CHECK_STATUS(kvbm_error_last(NULL), KVBM_ERR_INVALID);
}

/* The details are those of the last call, whatever came before it. */
static void what_was_said_of_another_call_is_forgotten(void) {
  const uint32_t wrong = 99;
  kvbm_key_t key;
  kvbm_error_t last, err;
  kvbm_manager_t *other = NULL;
  memset(&key, 7, sizeof key);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &wrong, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "99"));
  CHECK_STATUS(kvbm_manager_create(NULL, NULL, &other, &err), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "99")); /* that one had its own slot */
  CHECK_STATUS(kvbm_manager_create(NULL, NULL, &other, NULL), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "context or out_manager is NULL"));
  CHECK_STATUS(kvbm_cache_store(cache, NULL, NULL, 0, NULL, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_error_last(&last), KVBM_OK);
  CHECK_STATUS(last.status, KVBM_OK);
  CHECK(last.message[0] == '\0');
}

static void *refuse_elsewhere(void *unused) {
  const uint32_t wrong = 55;
  kvbm_key_t key;
  kvbm_error_t last;
  (void)unused;
  memset(&key, 7, sizeof key);
  CHECK_STATUS(kvbm_error_last(&last), KVBM_OK);
  CHECK_STATUS(last.status, KVBM_OK);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &wrong, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "55"));
  return NULL;
}

static void each_thread_hears_of_its_own_calls(void) {
  const uint32_t wrong = 99;
  kvbm_key_t key;
  pthread_t other;
  memset(&key, 7, sizeof key);
  CHECK_STATUS(kvbm_cache_store(cache, &key, &wrong, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(pthread_create(&other, NULL, refuse_elsewhere, NULL) == 0);
  pthread_join(other, NULL);
  CHECK(said(KVBM_ERR_INVALID, "99"));
}

static void a_load_of_nothing_after_a_miss_is_done(void) {
  kvbm_key_t key;
  kvbm_match_t *match = (kvbm_match_t *)&key;
  kvbm_queue_t *queue = NULL;
  kvbm_load_options_t options;
  kvbm_completion_t done;
  kvbm_error_t err;
  const uint32_t id = 0;
  size_t hits = 9;
  memset(&key, 0x55, sizeof key);
  CHECK_STATUS(kvbm_cache_lookup(cache, &key, 1, NULL, &match, &hits), KVBM_OK);
  CHECK(match == NULL && hits == 0);
  CHECK_STATUS(kvbm_cache_load(cache, match, NULL, hits, NULL, NULL, 0), KVBM_OK);
  kvbm_load_options_init(&options, sizeof options);
  options.compute_block_ns = 1000;
  CHECK_STATUS(kvbm_cache_load(cache, match, &id, hits, &options, NULL, 0), KVBM_OK);
  CHECK_STATUS(kvbm_queue_create(context, 4, &queue, &err), KVBM_OK);
  CHECK_STATUS(kvbm_cache_load(cache, match, NULL, hits, NULL, queue, 42), KVBM_OK);
  CHECK_U64(kvbm_queue_wait(queue, &done, 1, 60000000000ULL), 1);
  CHECK_U64(done.user_data, 42);
  CHECK_U64(done.op, KVBM_OP_LOAD);
  CHECK_STATUS(done.status, KVBM_OK);
  CHECK_U64(done.items, 0);
  kvbm_queue_release(queue);
  CHECK_STATUS(kvbm_cache_load(cache, match, &id, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(said(KVBM_ERR_INVALID, "match is NULL, as of a lookup that hit nothing"));
}

static void an_address_that_is_no_memory_is_refused(void) {
  kvbm_cache_t *none = NULL;
  kvbm_error_t err;
  void *gone = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(gone != MAP_FAILED);
  munmap(gone, BLOCKS * BLOCK);
  CHECK_STATUS(attach(gone, BLOCKS * BLOCK, &none, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "part 0: tensor 0") != NULL && strstr(err.message, "KVBM_MEMORY_CUDA") != NULL);
  CHECK(none == NULL);
}

static void who_has_no_peers_waits_for_none(void) {
  kvbm_error_t err;
  CHECK_STATUS(kvbm_manager_wait_for_peers(manager, 0, &err), KVBM_OK);
  CHECK_STATUS(kvbm_manager_wait_for_peers(NULL, 0, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "manager") != NULL);
}

int main(void) {
  if (!open_all()) return 1;
  RUN(a_refused_argument_is_named);
  RUN(what_was_said_of_another_call_is_forgotten);
  RUN(each_thread_hears_of_its_own_calls);
  RUN(a_load_of_nothing_after_a_miss_is_done);
  RUN(an_address_that_is_no_memory_is_refused);
  RUN(who_has_no_peers_waits_for_none);
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  kvbm_context_release(context);
  FINISH();
}

/* Two managers of one directory with KVBM_MANAGER_SHARE, like two processes: ownership, each finds the other's blocks,
 * the second takes over. Also a manager that shares nothing, and sets that cannot be shared. */
#include <time.h>

#include "check.h"

enum { BLOCK = 8192, BLOCKS = 16 };

typedef struct member {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  kvbm_error_t err;
  unsigned char engine[BLOCKS][BLOCK];
} member_t;

static kvbm_status_t member_open(member_t *m, const char *path, uint64_t block_bytes) {
  kvbm_manager_options_t manager;
  kvbm_namespace_options_t ns;
  kvbm_cache_options_t cache;
  kvbm_cache_part_t part;
  kvbm_tier_t disk;
  kvbm_tensor_t tensor = {m->engine, sizeof m->engine, 0, BLOCK};
  kvbm_status_t status;
  m->context = NULL, m->manager = NULL, m->ns = NULL, m->cache = NULL;
  status = kvbm_context_create(NULL, &m->context, &m->err);
  if (status < 0) return status;
  memset(&disk, 0, sizeof disk);
  disk.path = path;
  disk.capacity_bytes = 64 << 20;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.flags = KVBM_MANAGER_SHARE;
  manager.block_bytes = block_bytes;
  manager.host_capacity_bytes = 1 << 20;
  manager.tiers = &disk;
  manager.n_tiers = path != NULL;
  status = kvbm_manager_create(m->context, &manager, &m->manager, &m->err);
  if (status < 0) return status;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = "test model";
  status = kvbm_namespace_open(m->manager, &ns, &m->ns, &m->err);
  if (status < 0) return status;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&cache, sizeof cache);
  cache.n_blocks = BLOCKS;
  cache.parts = &part;
  cache.n_parts = 1;
  return kvbm_cache_attach(m->manager, m->ns, &cache, &m->cache, &m->err);
}

static void member_close(member_t *m) {
  kvbm_cache_release(m->cache);
  kvbm_namespace_release(m->ns);
  kvbm_manager_release(m->manager);
  kvbm_context_release(m->context);
}

static kvbm_share_t share_of(const member_t *m) {
  kvbm_share_t share;
  memset(&share, 0, sizeof share);
  share.struct_size = sizeof share;
  CHECK_STATUS(kvbm_manager_share(m->manager, &share), KVBM_OK);
  return share;
}

static kvbm_status_t store(member_t *m, uint32_t salt) {
  kvbm_key_t keys[BLOCKS];
  uint32_t ids[BLOCKS];
  uint32_t i;
  world_keys(m->ns, salt, keys, BLOCKS);
  for (i = 0; i < BLOCKS; ++i) {
    ids[i] = i;
    memset(m->engine[i], (int)(salt + i), BLOCK);
  }
  return kvbm_cache_store(m->cache, keys, ids, BLOCKS, NULL, NULL, 0);
}

/* Returns how many of the blocks are loaded with the right bytes; -1 for wrong bytes. */
static int load(member_t *m, uint32_t salt) {
  kvbm_key_t keys[BLOCKS];
  uint32_t ids[BLOCKS];
  kvbm_match_t *match = NULL;
  size_t hits = 0, i, j;
  int right = 0;
  world_keys(m->ns, salt, keys, BLOCKS);
  for (i = 0; i < BLOCKS; ++i) ids[i] = (uint32_t)i;
  memset(m->engine, 0xEE, sizeof m->engine);
  CHECK_STATUS(kvbm_cache_lookup(m->cache, keys, BLOCKS, NULL, &match, &hits), KVBM_OK);
  if (hits != 0) CHECK_STATUS(kvbm_cache_load(m->cache, match, ids, hits, NULL, NULL, 0), KVBM_OK);
  kvbm_match_release(match);
  for (i = 0; i < hits && right >= 0; ++i, ++right) {
    for (j = 0; j < BLOCK; ++j) {
      if (m->engine[i][j] != (unsigned char)(salt + i)) return -1;
    }
  }
  return right;
}

static member_t first, second;

static void each_finds_what_the_other_stored(void) {
  char path[] = "/tmp/kvbm-share-XXXXXX";
  char text[16384];
  size_t needed = 0;
  int tries;
  CHECK(mkdtemp(path) != NULL);
  CHECK_STATUS(member_open(&first, path, BLOCK), KVBM_OK);
  CHECK_STATUS(member_open(&second, path, BLOCK), KVBM_OK);
  CHECK_U64(share_of(&first).role, KVBM_SHARE_OWNER);
  CHECK_U64(share_of(&second).role, KVBM_SHARE_CLIENT);
  CHECK_U64(share_of(&second).owner_pid, getpid());
  CHECK_STATUS(store(&second, 10), KVBM_OK);
  CHECK_U64(load(&first, 10), BLOCKS);
  CHECK_STATUS(store(&first, 60), KVBM_OK);
  CHECK_U64(load(&second, 60), BLOCKS);
  CHECK_STATUS(kvbm_manager_flush(second.manager, 60000000000ULL), KVBM_OK);
  CHECK_STATUS(kvbm_manager_metrics(second.manager, text, sizeof text, &needed), KVBM_OK);
  CHECK(strstr(text, "kvbm_share_connected 1") != NULL);
  member_close(&first);
  for (tries = 0; tries < 30000 && share_of(&second).role != KVBM_SHARE_OWNER; ++tries) {
    const struct timespec wait = {0, 2000000};
    nanosleep(&wait, NULL);
  }
  CHECK_U64(share_of(&second).takeovers, 1);
  CHECK_U64(load(&second, 10), BLOCKS);
  CHECK_STATUS(kvbm_manager_reset(second.manager, NULL), KVBM_OK);
  member_close(&second);
}

static void sets_that_cannot_be_shared_are_refused(void) {
  char path[] = "/tmp/kvbm-share-XXXXXX";
  CHECK(mkdtemp(path) != NULL);
  CHECK_STATUS(member_open(&first, NULL, BLOCK), KVBM_ERR_CONFIG); /* nowhere to meet */
  CHECK(strstr(first.err.message, "share_directory") != NULL);
  member_close(&first);
  CHECK_STATUS(member_open(&first, path, BLOCK), KVBM_OK);
  CHECK_STATUS(member_open(&second, path, BLOCK / 2), KVBM_ERR_CONFIG);
  CHECK(strstr(second.err.message, "4096") != NULL && strstr(second.err.message, "8192") != NULL);
  member_close(&second);
  member_close(&first);
}

static void a_manager_that_shares_nothing_says_so(void) {
  world_t w;
  kvbm_share_t share;
  memset(&share, 0, sizeof share);
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  CHECK_STATUS(kvbm_manager_share(w.manager, &share), KVBM_ERR_INVALID);
  share.struct_size = sizeof share;
  CHECK_STATUS(kvbm_manager_share(w.manager, &share), KVBM_OK);
  CHECK_U64(share.role, KVBM_SHARE_OFF);
  CHECK_STATUS(kvbm_manager_share(NULL, &share), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_share(w.manager, NULL), KVBM_ERR_INVALID);
  world_close(&w);
}

int main(void) {
  RUN(each_finds_what_the_other_stored);
  RUN(sets_that_cannot_be_shared_are_refused);
  RUN(a_manager_that_shares_nothing_says_so);
  FINISH();
}

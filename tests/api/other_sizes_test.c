/* Blocks stored by ranks of one tensor-parallel size, read by ranks of another: in one manager, by processes of a
 * shared tier set (here two managers of one directory), and by nodes of a pool. */
#include "rank.h"

enum { POSITIONS = 64, TOKENS = 8, BLOCKS = POSITIONS / TOKENS };

static uint64_t draw = 1;

/* A node with space for the blocks of every test in its host. */
static kvbm_status_t pool_open(node_t *n, const char *peers, const char *name) {
  const kvbm_setting_t settings[] = {
      {"node.listen", "127.0.0.1:0"}, {"node.peers", peers}, {"node.pool", "sizes"}, {"node.name", name}};
  kvbm_context_options_t context;
  kvbm_manager_options_t manager;
  kvbm_status_t status;
  size_t needed = 0;
  memset(n, 0, sizeof *n);
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings;
  context.n_settings = 4;
  status = kvbm_context_create(&context, &n->context, &n->err);
  if (status < 0) return status;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = 1 << 16;
  manager.host_capacity_bytes = 16 << 20;
  status = kvbm_manager_create(n->context, &manager, &n->manager, &n->err);
  if (status < 0) return status;
  return kvbm_manager_node_address(n->manager, n->address, sizeof n->address, &needed);
}

/* A manager in a shared tier set. */
static kvbm_status_t member_open(node_t *n, const char *path) {
  kvbm_manager_options_t manager;
  kvbm_tier_t disk;
  kvbm_status_t status;
  memset(n, 0, sizeof *n);
  status = kvbm_context_create(NULL, &n->context, &n->err);
  if (status < 0) return status;
  memset(&disk, 0, sizeof disk);
  disk.path = path;
  disk.capacity_bytes = 64 << 20;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.flags = KVBM_MANAGER_SHARE;
  manager.block_bytes = 1 << 16;
  manager.host_capacity_bytes = 8 << 20;
  manager.tiers = &disk;
  manager.n_tiers = 1;
  return kvbm_manager_create(n->context, &manager, &n->manager, &n->err);
}

static void keys_of(const rank_t *r, kvbm_key_t *keys) {
  uint32_t tokens[POSITIONS], i;
  size_t made = 0;
  for (i = 0; i < POSITIONS; ++i) tokens[i] = i + 1;
  CHECK_STATUS(kvbm_key_chain(r->ns, NULL, tokens, POSITIONS, TOKENS, NULL, keys, BLOCKS, &made), KVBM_OK);
}

/* Opens a rank of `tp` for `model` on a node. */
static void open_rank(rank_t *r, node_t *node, const char *model, uint32_t tp, uint32_t rank) {
  shape_t shape = shape_of(rank_forms[(tp + rank) % 5], TOKENS, tp, rank, POSITIONS);
  shape.model = model;
  CHECK_STATUS(rank_open(r, node, shape, &draw), KVBM_OK);
}

static void store(node_t *node, const char *model, uint32_t tp, uint32_t rank) {
  rank_t r;
  kvbm_key_t keys[BLOCKS];
  uint32_t layer;
  open_rank(&r, node, model, tp, rank);
  keys_of(&r, keys);
  for (layer = 0; layer < LAYERS; ++layer) rank_fill(&r, 7, layer, 0, POSITIONS);
  CHECK_STATUS(kvbm_cache_store(r.cache, keys, r.ids, BLOCKS, NULL, NULL, 0), KVBM_OK);
  rank_close(&r);
}

/* Loads blocks of a rank. Returns the number of leading blocks found and loaded, all of them right. */
static size_t load(node_t *node, const char *model, uint32_t tp, uint32_t rank, uint64_t ask_ns) {
  rank_t r;
  kvbm_key_t keys[BLOCKS];
  kvbm_match_t *match = NULL;
  kvbm_lookup_options_t lookup;
  size_t hits = 0;
  uint32_t layer;
  open_rank(&r, node, model, tp, rank);
  keys_of(&r, keys);
  kvbm_lookup_options_init(&lookup, sizeof lookup);
  lookup.ask_nodes_ns = ask_ns;
  CHECK_STATUS(kvbm_cache_lookup(r.cache, keys, BLOCKS, &lookup, &match, &hits), KVBM_OK);
  if (hits != 0) {
    kvbm_match_item_t items[BLOCKS];
    size_t i;
    CHECK_STATUS(kvbm_match_items(match, 0, BLOCKS, items), KVBM_OK);
    for (i = 0; i < hits; ++i) CHECK(items[i].tier <= 2 && items[i].bytes == (uint64_t)LAYERS * 2 * TOKENS * r.heads * ROW);
    CHECK_STATUS(kvbm_cache_load(r.cache, match, r.ids, hits, NULL, NULL, 0), KVBM_OK);
    for (layer = 0; layer < LAYERS; ++layer) CHECK_U64(rank_wrong(&r, 7, layer, 0, (uint32_t)hits * TOKENS), 0);
    CHECK_U64(rank_spilled(&r, 0, (uint32_t)hits * TOKENS), 0);
  }
  kvbm_match_release(match);
  rank_close(&r);
  return hits;
}

/* Repeats the lookup until it finds n: a lookup does not wait for a slow owner. */
static size_t load_in_time(node_t *node, const char *model, uint32_t tp, uint32_t rank, size_t wanted) {
  size_t hits = 0;
  int tries;
  for (tries = 0; tries < 1000 && (hits = load(node, model, tp, rank, 0)) != wanted; ++tries) {
    const struct timespec wait = {0, 10000000};
    nanosleep(&wait, NULL);
  }
  return hits;
}

static unsigned long long metric(node_t *node, const char *name) {
  static char text[1 << 17];
  size_t needed = 0;
  const char *at;
  CHECK_STATUS(kvbm_manager_metrics(node->manager, text, sizeof text, &needed), KVBM_OK);
  for (at = text; (at = strstr(at, name)) != NULL; ++at) {
    if (at[-1] == '\n') return strtoull(at + strlen(name), NULL, 10);
  }
  return 0;
}

static void one_manager_reads_every_size(void) {
  const uint32_t sizes[] = {1, 2, 4, 8};
  node_t n;
  size_t from, to, rank;
  CHECK_STATUS(pool_open(&n, "", "alone"), KVBM_OK);
  for (from = 0; from < 4; ++from) {
    char model[32];
    snprintf(model, sizeof model, "of %u", (unsigned)sizes[from]);
    for (rank = 0; rank < sizes[from]; ++rank) store(&n, model, sizes[from], (uint32_t)rank);
    for (to = 0; to < 4; ++to) CHECK_U64(load(&n, model, sizes[to], sizes[to] - 1, 0), BLOCKS);
    CHECK_STATUS(kvbm_manager_reset(n.manager, NULL), KVBM_OK);
    CHECK_U64(load(&n, model, 1, 0, 0), 0);
  }
  CHECK_U64(metric(&n, "kvbm_lookup_resliced_total "), 12 * BLOCKS);
  node_close(&n);
}

static void processes_of_a_shared_tier_set_do(void) {
  char path[] = "/tmp/kvbm-sizes-XXXXXX";
  node_t owner, client, other;
  uint32_t rank;
  int tries;
  CHECK(mkdtemp(path) != NULL);
  CHECK_STATUS(member_open(&owner, path), KVBM_OK);
  CHECK_STATUS(member_open(&client, path), KVBM_OK);
  CHECK_STATUS(member_open(&other, path), KVBM_OK);
  for (rank = 0; rank < 4; ++rank) store(rank < 2 ? &owner : &client, "whole", 4, rank);
  for (rank = 0; rank < 3; ++rank) store(rank < 2 ? &owner : &client, "not whole", 4, rank);
  CHECK_U64(load_in_time(&other, "whole", 1, 0, BLOCKS), BLOCKS);
  CHECK_U64(load_in_time(&other, "whole", 8, 5, BLOCKS), BLOCKS);
  CHECK_U64(load_in_time(&client, "whole", 2, 1, BLOCKS), BLOCKS);
  CHECK_U64(load_in_time(&owner, "whole", 2, 0, BLOCKS), BLOCKS);
  CHECK_U64(metric(&other, "kvbm_lookup_shards_missing_total "), 0);
  for (tries = 0; tries < 1000 && metric(&other, "kvbm_lookup_shards_missing_total ") == 0; ++tries) {
    CHECK_U64(load(&other, "not whole", 1, 0, 0), 0);
  }
  CHECK(metric(&other, "kvbm_lookup_shards_missing_total ") != 0);
  CHECK_U64(load_in_time(&other, "not whole", 2, 0, BLOCKS), BLOCKS);
  CHECK_STATUS(kvbm_manager_flush(client.manager, 60 * SECOND_NS), KVBM_OK);
  node_close(&other);
  node_close(&client);
  node_close(&owner);
  /* An engine of another size starts later, on the remaining directory. */
  CHECK_STATUS(member_open(&owner, path), KVBM_OK);
  CHECK_U64(load_in_time(&owner, "whole", 8, 7, BLOCKS), BLOCKS);
  CHECK_U64(load(&owner, "not whole", 1, 0, 0), 0);
  node_close(&owner);
}

static void nodes_of_a_pool_do(void) {
  node_t a, b, c;
  char both[300];
  CHECK_STATUS(pool_open(&a, "", "a"), KVBM_OK);
  CHECK_STATUS(pool_open(&b, "", "b"), KVBM_OK);
  snprintf(both, sizeof both, "%s,%s", a.address, b.address);
  CHECK_STATUS(pool_open(&c, both, "c"), KVBM_OK);
  CHECK_STATUS(kvbm_manager_wait_for_peers(c.manager, 60 * SECOND_NS, NULL), KVBM_OK);
  store(&a, "spread", 2, 0);
  store(&b, "spread", 2, 1);
  CHECK_U64(load(&c, "spread", 1, 0, 0), 0); /* nothing was asked */
  CHECK_U64(load(&c, "spread", 1, 0, 60 * SECOND_NS), BLOCKS);
  CHECK_U64(load(&c, "spread", 4, 3, 60 * SECOND_NS), BLOCKS);
  node_close(&c);
  node_close(&b);
  node_close(&a);
}

int main(void) {
  RUN(one_manager_reads_every_size);
  RUN(processes_of_a_shared_tier_set_do);
  RUN(nodes_of_a_pool_do);
  FINISH();
}

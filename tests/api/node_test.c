/* Managers as nodes of a pool: what one has the other finds by asking, loads verified and pushes home; what a manager
 * that is no node answers; options that are refused. Loopback, ports of the system's choice. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { BLOCK = 8192, BLOCKS = 16 };

typedef struct member {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  char address[128];
  kvbm_error_t err;
} member_t;

/* Opens a member; peers and listen may be "". */
static kvbm_status_t member_open(member_t *m, const char *listen, const char *peers) {
  const kvbm_setting_t settings[] = {{"node.listen", listen}, {"node.peers", peers}, {"node.pool", "test"}};
  kvbm_context_options_t context;
  kvbm_manager_options_t manager;
  kvbm_namespace_options_t ns;
  kvbm_status_t status;
  size_t needed = 0;
  memset(m, 0, sizeof *m);
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings;
  context.n_settings = 3;
  status = kvbm_context_create(&context, &m->context, &m->err);
  if (status < 0) return status;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = BLOCK;
  manager.host_capacity_bytes = 1 << 20;
  status = kvbm_manager_create(m->context, &manager, &m->manager, &m->err);
  if (status < 0) return status;
  kvbm_namespace_options_init(&ns, sizeof ns);
  ns.model = "test model";
  status = kvbm_namespace_open(m->manager, &ns, &m->ns, &m->err);
  if (status < 0) return status;
  return kvbm_manager_node_address(m->manager, m->address, sizeof m->address, &needed);
}

static void member_close(member_t *m) {
  kvbm_namespace_release(m->ns);
  kvbm_manager_release(m->manager);
  kvbm_context_release(m->context);
  memset(m, 0, sizeof *m);
}

static void pause_a_little(void) {
  const struct timespec wait = {0, 2000000};
  nanosleep(&wait, NULL);
}

/* Waits until n nodes are connected and have reported their tiers. Returns 0 after a minute. */
static int wait_for_nodes(const member_t *m, size_t n) {
  int tries;
  for (tries = 0; tries < 30000; ++tries) {
    kvbm_node_row_t rows[8];
    size_t found = 0, i, ready = 0;
    if (kvbm_manager_nodes(m->manager, rows, 8, &found) < 0) return 0;
    for (i = 0; i < found && i < 8; ++i) ready += strcmp(rows[i].state, "ready") == 0 && rows[i].capacity_bytes != 0;
    if (ready >= n) return 1;
    pause_a_little();
  }
  return 0;
}

/* Registers blocks for n keys, each filled with its number. */
static kvbm_status_t fill(const member_t *m, uint32_t salt, kvbm_key_t *keys, size_t n) {
  kvbm_block_t blocks[BLOCKS];
  kvbm_view_t views[BLOCKS];
  kvbm_status_t status;
  size_t i;
  world_keys(m->ns, salt, keys, n);
  status = kvbm_manager_allocate(m->manager, m->ns, n, blocks, NULL, 0, NULL);
  if (status < 0) return status;
  kvbm_block_view(m->manager, blocks, n, views);
  for (i = 0; i < n; ++i) memset(views[i].data, (int)(salt + i), BLOCK);
  status = kvbm_manager_complete(m->manager, blocks, n, NULL);
  if (status == KVBM_OK) status = kvbm_manager_register(m->manager, m->ns, blocks, keys, n, NULL);
  kvbm_block_release(m->manager, blocks, n);
  return status;
}

/* Returns how many of the keys are loaded with the right bytes; -1 for wrong bytes. */
static int load(const member_t *m, uint32_t salt, const kvbm_key_t *keys, size_t n, uint64_t ask_ns) {
  static unsigned char engine[BLOCKS][BLOCK];
  kvbm_tensor_t tensor = {engine, sizeof engine, 0, BLOCK};
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  kvbm_lookup_options_t lookup;
  kvbm_cache_t *cache = NULL;
  kvbm_match_t *match = NULL;
  uint32_t ids[BLOCKS];
  size_t hits = 0, i, j;
  int right = 0;
  kvbm_error_t err;
  memset(&part, 0, sizeof part);
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = BLOCKS;
  options.parts = &part;
  options.n_parts = 1;
  CHECK_STATUS(kvbm_cache_attach(m->manager, m->ns, &options, &cache, &err), KVBM_OK);
  kvbm_lookup_options_init(&lookup, sizeof lookup);
  lookup.ask_nodes_ns = ask_ns;
  CHECK_STATUS(kvbm_cache_lookup(cache, keys, n, &lookup, &match, &hits), KVBM_OK);
  for (i = 0; i < BLOCKS; ++i) ids[i] = (uint32_t)i;
  memset(engine, 0xEE, sizeof engine);
  if (hits != 0) CHECK_STATUS(kvbm_cache_load(cache, match, ids, hits, NULL, NULL, 0), KVBM_OK);
  for (i = 0; i < hits; ++i) {
    for (j = 0; j < BLOCK && right >= 0; ++j) {
      if (engine[i][j] != (unsigned char)(salt + i)) right = -1;
    }
    if (right >= 0) ++right;
  }
  kvbm_match_release(match);
  kvbm_cache_release(cache);
  return right;
}

/* A row of the asked node itself has no node; another's id is random, so that any one byte of it may be 0. */
static int is_own(const uint8_t node[16]) {
  static const uint8_t none[16];
  return memcmp(node, none, sizeof none) == 0;
}

static void what_one_node_has_the_other_finds_and_loads(void) {
  member_t a, b;
  kvbm_key_t keys[BLOCKS];
  kvbm_manager_stats_t stats;
  CHECK_STATUS(member_open(&a, "127.0.0.1:0", ""), KVBM_OK);
  CHECK(strncmp(a.address, "127.0.0.1:", 10) == 0);
  CHECK_STATUS(fill(&a, 10, keys, BLOCKS), KVBM_OK);
  CHECK_STATUS(member_open(&b, "", a.address), KVBM_OK);
  CHECK(b.address[0] == '\0');
  CHECK(wait_for_nodes(&b, 1));
  CHECK_U64(load(&b, 10, keys, BLOCKS, 0), 0); /* no node was asked */
  CHECK_U64(load(&b, 10, keys, BLOCKS, 60000000000ULL), BLOCKS);
  stats.struct_size = sizeof stats;
  CHECK_STATUS(kvbm_manager_stats(b.manager, &stats), KVBM_OK);
  CHECK_U64(stats.tiers[1].loads, BLOCKS);
  CHECK_U64(load(&b, 10, keys, BLOCKS, 0), BLOCKS); /* now from its own host memory */
  member_close(&b);
  member_close(&a);
}

static void who_waits_for_peers_finds_at_once_what_they_have(void) {
  member_t a, b, c;
  kvbm_key_t keys[BLOCKS];
  kvbm_error_t err;
  char both[300];
  CHECK_STATUS(member_open(&a, "127.0.0.1:0", ""), KVBM_OK);
  CHECK_STATUS(fill(&a, 10, keys, BLOCKS), KVBM_OK);
  CHECK_STATUS(kvbm_manager_wait_for_peers(a.manager, 0, &err), KVBM_OK); /* no wait for nodes that dial it */
  CHECK_STATUS(member_open(&b, "", a.address), KVBM_OK);
  CHECK_STATUS(kvbm_manager_wait_for_peers(b.manager, 60000000000ULL, &err), KVBM_OK);
  CHECK_U64(load(&b, 10, keys, BLOCKS, 60000000000ULL), BLOCKS);
  CHECK_STATUS(kvbm_manager_wait_for_peers(b.manager, 0, NULL), KVBM_OK);
  /* One address has a node, the other no listener. */
  snprintf(both, sizeof both, "%s,127.0.0.1:1", a.address);
  CHECK_STATUS(member_open(&c, "", both), KVBM_OK);
  CHECK_STATUS(kvbm_manager_wait_for_peers(c.manager, 20000000ULL, &err), KVBM_ERR_DEADLINE);
  CHECK(strstr(err.message, "127.0.0.1:1") != NULL);
  member_close(&c);
  member_close(&b);
  member_close(&a);
}

static void what_is_offloaded_to_the_last_tier_is_at_its_home(void) {
  member_t a, b;
  kvbm_key_t keys[BLOCKS];
  CHECK_STATUS(member_open(&a, "127.0.0.1:0", ""), KVBM_OK);
  CHECK_STATUS(member_open(&b, "", a.address), KVBM_OK);
  CHECK(wait_for_nodes(&b, 1));
  CHECK_STATUS(fill(&b, 50, keys, BLOCKS), KVBM_OK);
  CHECK_STATUS(kvbm_manager_offload(b.manager, b.ns, NULL, keys, BLOCKS, 1, NULL, 0), KVBM_OK);
  CHECK_U64(load(&a, 50, keys, BLOCKS, 0), BLOCKS);
  member_close(&b);
  CHECK_U64(load(&a, 50, keys, BLOCKS, 0), BLOCKS);
  member_close(&a);
}

static void a_router_learns_who_has_how_much_of_each_request(void) {
  member_t a, b;
  kvbm_key_t keys[BLOCKS + 4];
  kvbm_locate_options_t options;
  kvbm_location_t rows[8];
  const size_t requests[3] = {BLOCKS, 1, 3};
  size_t n = 0;
  CHECK_STATUS(member_open(&a, "127.0.0.1:0", ""), KVBM_OK);
  CHECK_STATUS(fill(&a, 130, keys, BLOCKS), KVBM_OK);
  CHECK_STATUS(member_open(&b, "", a.address), KVBM_OK);
  CHECK(wait_for_nodes(&b, 1));
  /* Request 1: this node has one key less than the other has. Request 2: no node has it. Request 3: both have the
   * first key. */
  CHECK_STATUS(fill(&b, 130, keys, 6), KVBM_OK);
  world_keys(b.ns, 130, keys, BLOCKS);
  world_keys(b.ns, 131, keys + BLOCKS, 4);
  keys[BLOCKS + 1] = keys[0];
  kvbm_locate_options_init(&options, sizeof options);
  options.request_keys = requests;
  options.n_requests = 3;
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, BLOCKS + 4, &options, rows, 8, &n), KVBM_OK);
  CHECK_U64(n, 2); /* of its own memory alone */
  options.ask_nodes_ns = 60000000000ULL;
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, BLOCKS + 4, &options, rows, 8, &n), KVBM_OK);
  CHECK_U64(n, 4);
  CHECK_U64(rows[0].n_prefix, BLOCKS);
  CHECK_U64(rows[0].n_in_tier, BLOCKS);
  CHECK_U64(rows[0].bytes, (uint64_t)BLOCKS * BLOCK);
  CHECK(rows[0].request == 0 && rows[0].tier == 0 && !is_own(rows[0].node));
  CHECK_U64(rows[1].n_prefix, 6);
  CHECK(is_own(rows[1].node));
  CHECK(rows[2].request == 2 && rows[2].n_prefix == 1 && is_own(rows[2].node));
  CHECK(rows[3].request == 2 && rows[3].n_prefix == 1 && memcmp(rows[3].node, rows[0].node, 16) == 0);
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, BLOCKS + 4, &options, rows, 1, &n), KVBM_OK);
  CHECK_U64(n, 4);
  CHECK_U64(rows[1].n_prefix, 6); /* not written to */
  /* Blocks that a only knows of do not count as its own: it could load them from b. */
  CHECK_STATUS(fill(&b, 200, keys, 2), KVBM_OK);
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, 2, &options, rows, 8, &n), KVBM_ERR_INVALID);
  options.request_keys = NULL;
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, 2, &options, rows, 8, &n), KVBM_ERR_INVALID);
  options.n_requests = 0;
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, 2, &options, rows, 8, &n), KVBM_OK);
  CHECK(n == 1 && rows[0].n_prefix == 2 && is_own(rows[0].node));
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, 0, NULL, NULL, 0, &n), KVBM_OK);
  CHECK_U64(n, 0);
  CHECK_STATUS(kvbm_manager_locate(b.manager, a.ns, keys, 2, NULL, rows, 8, &n), KVBM_ERR_FOREIGN);
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, NULL, 2, NULL, rows, 8, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_locate(b.manager, b.ns, keys, 2, NULL, NULL, 8, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_locate(NULL, b.ns, keys, 2, NULL, rows, 8, &n), KVBM_ERR_INVALID);
  member_close(&b);
  member_close(&a);
}

static void a_node_that_has_gone_is_a_miss(void) {
  member_t a, b;
  kvbm_key_t keys[BLOCKS];
  kvbm_node_row_t row;
  size_t n = 0;
  CHECK_STATUS(member_open(&a, "127.0.0.1:0", ""), KVBM_OK);
  CHECK_STATUS(fill(&a, 90, keys, BLOCKS), KVBM_OK);
  CHECK_STATUS(member_open(&b, "", a.address), KVBM_OK);
  CHECK(wait_for_nodes(&b, 1));
  member_close(&a);
  CHECK_U64(load(&b, 90, keys, BLOCKS, 500000000ULL), 0);
  CHECK_STATUS(kvbm_manager_nodes(b.manager, &row, 1, &n), KVBM_OK);
  CHECK_U64(n, 1);
  CHECK(strcmp(row.state, "ready") != 0 && row.state[0] != '\0');
  CHECK(is_own(row.node));
  member_close(&b);
}

static void a_manager_that_is_no_node_says_so(void) {
  world_t w;
  size_t n = 7, needed = 7;
  char text[8] = "x";
  CHECK(world_open(&w, 1 << 20, NULL, 0));
  CHECK_STATUS(kvbm_manager_nodes(w.manager, NULL, 0, &n), KVBM_OK);
  CHECK_U64(n, 0);
  CHECK_STATUS(kvbm_manager_node_address(w.manager, text, sizeof text, &needed), KVBM_OK);
  CHECK(text[0] == '\0' && needed == 0);
  CHECK_STATUS(kvbm_manager_nodes(NULL, NULL, 0, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_nodes(w.manager, NULL, 1, &n), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_manager_nodes(w.manager, NULL, 0, NULL), KVBM_ERR_INVALID);
  needed = 7;
  CHECK_STATUS(kvbm_manager_node_address(NULL, text, sizeof text, &needed), KVBM_ERR_INVALID);
  CHECK(needed == 0);
  world_close(&w);
}

/* Returns a port without a listener; 0: none. */
static unsigned free_port(void) {
  struct sockaddr_in here;
  socklen_t size = sizeof here;
  unsigned port = 0;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  memset(&here, 0, sizeof here);
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (const struct sockaddr *)&here, sizeof here) == 0 &&
      getsockname(listener, (struct sockaddr *)&here, &size) == 0) {
    port = ntohs(here.sin_port);
  }
  close(listener);
  return port;
}

/* One list of addresses serves all nodes of a pool: a node does not take itself for one that is missing. */
static void a_node_among_its_own_peers_knows_itself(void) {
  char address[64];
  kvbm_node_row_t row;
  size_t found = 0;
  member_t m;
  int tries;
  snprintf(address, sizeof address, "127.0.0.1:%u", free_port());
  CHECK_STATUS(member_open(&m, address, address), KVBM_OK);
  memset(&row, 0, sizeof row);
  for (tries = 0; tries < 30000 && strcmp(row.state, "this node") != 0; ++tries) {
    CHECK_STATUS(kvbm_manager_nodes(m.manager, &row, 1, &found), KVBM_OK);
    pause_a_little();
  }
  CHECK(found == 1 && strcmp(row.state, "this node") == 0);
  for (tries = 0; tries < 200; ++tries) pause_a_little();
  CHECK_STATUS(kvbm_manager_nodes(m.manager, &row, 1, &found), KVBM_OK);
  CHECK(found == 1 && strcmp(row.state, "this node") == 0);
  member_close(&m);
}

static void options_that_cannot_be_are_refused_by_name(void) {
  static const struct {
    const char *listen, *peers, *said;
  } cases[] = {{"0.0.0.0:0", "", "node.key_file"},
               {"nonsense", "", "nonsense"},
               {"", "10.0.0.1:7000", "node.key_file"},
               {"", "nonsense", "nonsense"},
               {"127.0.0.1:99999", "", "99999"}};
  size_t i;
  for (i = 0; i < sizeof cases / sizeof *cases; ++i) {
    member_t m;
    CHECK(member_open(&m, cases[i].listen, cases[i].peers) < 0);
    if (strstr(m.err.message, cases[i].said) == NULL) printf("  %s: %s\n", cases[i].said, m.err.message);
    CHECK(strstr(m.err.message, cases[i].said) != NULL);
    member_close(&m);
  }
}

int main(void) {
  RUN(what_one_node_has_the_other_finds_and_loads);
  RUN(who_waits_for_peers_finds_at_once_what_they_have);
  RUN(what_is_offloaded_to_the_last_tier_is_at_its_home);
  RUN(a_router_learns_who_has_how_much_of_each_request);
  RUN(a_node_that_has_gone_is_a_miss);
  RUN(a_manager_that_is_no_node_says_so);
  RUN(a_node_among_its_own_peers_knows_itself);
  RUN(options_that_cannot_be_are_refused_by_name);
  FINISH();
}

/* Prefill->decode sessions through the C interface, between managers of one process and between processes: layers come
 * while others are computed, any shapes give the bytes of a reference, and whatever goes wrong has an end with a
 * reason. Loopback, ports of the system's choice. */
#include "rank.h"

enum { MAX_RANKS = 4 };

static int wait_readable(int fd, uint64_t timeout_ns, void *out, size_t bytes) {
  const uint64_t until = now_ns() + timeout_ns;
  char *at = (char *)out;
  while (bytes > 0 && now_ns() < until) {
    const ssize_t n = read(fd, at, bytes);
    if (n <= 0) return 0;
    at += n;
    bytes -= (size_t)n;
  }
  return bytes == 0;
}

/* A prefill node with one rank that offers `request`, in its own process. Letters control it: 'l' publishes one more
 * layer, 'a' publishes all, 'x' aborts, 'w' waits for the end and reports its status. */
typedef struct prefill {
  pid_t pid;
  int to, from;
  char address[128];
} prefill_t;

static void prefill_child(int in, int out, uint64_t request, uint64_t seed, shape_t shape) {
  node_t node;
  rank_t rank;
  kvbm_queue_t *queue = NULL;
  kvbm_offer_t *offer = NULL;
  char letter;
  uint64_t random = 1;
  uint32_t layer = 0;
  if (node_open(&node, "127.0.0.1:0", "", "prefill") != KVBM_OK || rank_open(&rank, &node, shape, &random) != KVBM_OK) _exit(3);
  for (layer = 0; layer < shape.layers; ++layer) rank_fill(&rank, seed, layer, 0, shape.positions);
  if (kvbm_queue_create(node.context, 4, &queue, NULL) != KVBM_OK) _exit(4);
  if (rank_offer(&rank, request, 60 * SECOND_NS, queue, &offer) != KVBM_OK) _exit(5);
  if (write(out, node.address, sizeof node.address) < 0) _exit(6);
  layer = 0;
  while (read(in, &letter, 1) == 1) {
    if (letter == 'l' && kvbm_offer_publish(offer, 0, layer++, 1, 0, 0, NULL) != KVBM_OK) _exit(7);
    if (letter == 'a' && kvbm_offer_publish_all(offer, NULL) != KVBM_OK) _exit(8);
    if (letter == 'x' && kvbm_offer_abort(offer, "the user went away") != KVBM_OK) _exit(9);
    if (letter == 'w') {
      kvbm_completion_t end;
      int32_t status = 1;
      if (kvbm_queue_wait(queue, &end, 1, 60 * SECOND_NS) == 1 && end.op == KVBM_OP_OFFER && end.user_data == 1000) {
        status = end.status;
      }
      if (write(out, &status, sizeof status) < 0) _exit(10);
    }
  }
  kvbm_offer_release(offer);
  kvbm_queue_release(queue);
  rank_close(&rank);
  node_close(&node);
  _exit(0);
}

static int prefill_start(prefill_t *p, uint64_t request, uint64_t seed, shape_t shape) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return 0;
  p->pid = fork();
  if (p->pid == 0) {
    close(to[1]), close(from[0]);
    prefill_child(to[0], from[1], request, seed, shape);
  }
  close(to[0]), close(from[1]);
  p->to = to[1];
  p->from = from[0];
  return wait_readable(p->from, 60 * SECOND_NS, p->address, sizeof p->address);
}

static void prefill_tell(const prefill_t *p, char letter) { CHECK(write(p->to, &letter, 1) == 1); }

static int32_t prefill_end(const prefill_t *p) {
  int32_t status = 2;
  prefill_tell(p, 'w');
  CHECK(wait_readable(p->from, 60 * SECOND_NS, &status, sizeof status));
  return status;
}

static int prefill_stop(prefill_t *p) {
  int status = 0;
  close(p->to);
  close(p->from);
  return waitpid(p->pid, &status, 0) == p->pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int says(const kvbm_error_t *err, const char *text) {
  if (strstr(err->message, text) != NULL) return 1;
  printf("  not \"%s\" in: %s\n", text, err->message);
  return 0;
}

static void a_decode_process_gets_layers_while_others_are_computed(void) {
  prefill_t prefill;
  node_t node;
  rank_t rank;
  kvbm_queue_t *queue = NULL;
  kvbm_session_t *session = NULL;
  kvbm_completion_t done[LAYERS + 1];
  kvbm_error_t err;
  uint64_t random = 2;
  uint32_t layer, seen = 0;
  CHECK(prefill_start(&prefill, 1, 42, shape_of(KVBM_FORM_NHD, 16, 1, 0, 100)));
  CHECK_STATUS(node_open(&node, "", prefill.address, "decode"), KVBM_OK);
  CHECK_STATUS(rank_open(&rank, &node, shape_of(KVBM_FORM_CROSS_NHD, 24, 1, 0, 100), &random), KVBM_OK);
  CHECK_STATUS(kvbm_queue_create(node.context, 64, &queue, &err), KVBM_OK);
  const kvbm_source_t source = {prefill.address, 0, 0};
  CHECK_STATUS(rank_receive(&rank, 1, 0, &source, 1, 60 * SECOND_NS, queue, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 0, 1000000, &err), KVBM_ERR_AGAIN);
  for (layer = 0; layer < LAYERS; ++layer) {
    prefill_tell(&prefill, 'l');
    CHECK_STATUS(kvbm_session_wait_layer(session, 0, layer, 60 * SECOND_NS, &err), KVBM_OK);
    CHECK_U64(rank_wrong(&rank, 42, layer, 0, 100), 0);
    if (layer + 1 < LAYERS) CHECK_STATUS(kvbm_session_wait_layer(session, 0, layer + 1, 0, &err), KVBM_ERR_AGAIN);
  }
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_OK);
  if (check_case_failed) printf("  %s\n", err.message);
  CHECK_U64(rank_spilled(&rank, 0, 100), 0);
  while (seen <= LAYERS) {
    const size_t n = kvbm_queue_wait(queue, done, LAYERS + 1, 60 * SECOND_NS);
    size_t i;
    if (n == 0) break;
    for (i = 0; i < n; ++i, ++seen) {
      CHECK_U64(done[i].user_data, 2000);
      CHECK_STATUS(done[i].status, KVBM_OK);
      CHECK_U64(done[i].items, LAYERS);
      CHECK_U64(done[i].op, seen < LAYERS ? KVBM_OP_LAYER : KVBM_OP_RECEIVE);
      if (seen == LAYERS) {
        CHECK_U64(done[i].items_done, LAYERS);
        CHECK_U64(done[i].bytes, (uint64_t)LAYERS * 2 * HEADS * 100 * ROW);
      } else {
        CHECK_U64(done[i].operation, seen); /* component 0, this layer */
        CHECK_U64(done[i].items_done, seen + 1);
      }
    }
  }
  CHECK_U64(seen, LAYERS + 1);
  CHECK_STATUS(kvbm_session_abort(session, NULL), KVBM_ERR_STALE);
  CHECK_STATUS(prefill_end(&prefill), KVBM_OK);
  kvbm_session_release(session);
  kvbm_queue_release(queue);
  rank_close(&rank);
  node_close(&node);
  CHECK_U64(prefill_stop(&prefill), 0);
}

/* n prefill ranks on one or n nodes, m decode ranks likewise; blocks, forms, chunks and the first position at
 * random. */
static void one_pair_of_shapes(uint64_t seed) {
  uint64_t random = seed;
  const uint32_t n = 1u << check_random(&random) % 3, m = 1u << check_random(&random) % 3;
  const uint32_t positions = 1 + (uint32_t)(check_random(&random) % 150);
  const uint32_t begin = check_random(&random) % 2 ? 0 : (uint32_t)(check_random(&random) % positions);
  const uint32_t prefill_nodes = check_random(&random) % 2 ? 1 : n, decode_nodes = check_random(&random) % 2 ? 1 : m;
  node_t nodes[2 * MAX_RANKS];
  rank_t from[MAX_RANKS], to[MAX_RANKS];
  kvbm_offer_t *offers[MAX_RANKS];
  kvbm_session_t *sessions[MAX_RANKS];
  kvbm_source_t sources[MAX_RANKS];
  char peers[MAX_RANKS * 128] = "";
  uint32_t i, layer;
  for (i = 0; i < prefill_nodes; ++i) {
    char name[32];
    snprintf(name, sizeof name, "prefill-%u", i);
    CHECK_STATUS(node_open(&nodes[i], "127.0.0.1:0", "", name), KVBM_OK);
    if (i) strcat(peers, ",");
    strcat(peers, nodes[i].address);
  }
  for (i = 0; i < decode_nodes; ++i) CHECK_STATUS(node_open(&nodes[n + i], "", peers, ""), KVBM_OK);
  for (i = 0; i < n; ++i) {
    const uint32_t form = rank_forms[check_random(&random) % 5], tokens = 1 + (uint32_t)(check_random(&random) % 40);
    CHECK_STATUS(rank_open(&from[i], &nodes[i % prefill_nodes], shape_of(form, tokens, n, i, positions), &random), KVBM_OK);
    /* By address or by name. */
    sources[i].node = prefill_nodes > 1 && i % 2 ? (i == 1 ? "prefill-1" : "prefill-3") : nodes[i % prefill_nodes].address;
    sources[i].rank = i;
    sources[i].reserved = 0;
  }
  for (i = 0; i < m; ++i) {
    const uint32_t form = rank_forms[check_random(&random) % 5], tokens = 1 + (uint32_t)(check_random(&random) % 40);
    CHECK_STATUS(rank_open(&to[i], &nodes[n + i % decode_nodes], shape_of(form, tokens, m, i, positions), &random), KVBM_OK);
    if (i % 2) CHECK_STATUS(rank_receive(&to[i], 9, begin, sources, n, 60 * SECOND_NS, NULL, &sessions[i]), KVBM_OK);
  }
  for (i = 0; i < n; ++i) CHECK_STATUS(rank_offer(&from[i], 9, 60 * SECOND_NS, NULL, &offers[i]), KVBM_OK);
  for (i = 0; i < m; i += 2) CHECK_STATUS(rank_receive(&to[i], 9, begin, sources, n, 60 * SECOND_NS, NULL, &sessions[i]), KVBM_OK);
  for (i = 0; i < n; ++i) {
    const uint32_t chunk = 1 + (uint32_t)(check_random(&random) % positions);
    uint32_t at;
    for (at = 0; at < positions; at += chunk) {
      const uint32_t end = at + chunk < positions ? at + chunk : positions;
      for (layer = 0; layer < LAYERS; ++layer) {
        rank_fill(&from[i], seed, layer, at, end);
        /* An offer without a wanted position may end before it is published. */
        if (kvbm_offer_publish(offers[i], 0, layer, 1, at, end, NULL) == KVBM_ERR_INVALID) CHECK(!"published");
      }
    }
  }
  for (i = 0; i < m; ++i) {
    kvbm_error_t err;
    CHECK_STATUS(kvbm_session_wait(sessions[i], 60 * SECOND_NS, &err), KVBM_OK);
    if (check_case_failed) printf("  decode rank %u: %s\n", i, err.message);
    for (layer = 0; layer < LAYERS; ++layer) CHECK_U64(rank_wrong(&to[i], seed, layer, begin, positions), 0);
    CHECK_U64(rank_spilled(&to[i], begin, positions), 0);
  }
  for (i = 0; i < n; ++i) CHECK_STATUS(kvbm_offer_wait(offers[i], 60 * SECOND_NS, NULL), KVBM_OK);
  for (i = 0; i < m; ++i) kvbm_session_release(sessions[i]), rank_close(&to[i]);
  for (i = 0; i < n; ++i) kvbm_offer_release(offers[i]), rank_close(&from[i]);
  for (i = 0; i < decode_nodes; ++i) node_close(&nodes[n + i]);
  for (i = 0; i < prefill_nodes; ++i) node_close(&nodes[i]);
  if (check_case_failed) printf("  seed %llu: %u to %u ranks, positions %u to %u\n", (unsigned long long)seed, n, m, begin, positions);
}

static void any_pair_of_shapes_gives_the_bytes_of_a_reference(void) {
  const char *rounds = getenv("KVBMTEST_SHAPES"), *first = getenv("KVBMTEST_FIRST");
  const uint64_t from = first ? strtoull(first, NULL, 10) : 1, n = rounds ? strtoull(rounds, NULL, 10) : 12;
  uint64_t seed;
  for (seed = from; seed < from + n && !check_case_failed; ++seed) one_pair_of_shapes(seed);
}

/* Two nodes in this process, a rank each, connected or about to be. */
typedef struct pair {
  node_t a, b;
  rank_t from, to;
  kvbm_queue_t *queue;
  kvbm_source_t source;
} pair_t;

static void pair_open(pair_t *p, shape_t from, shape_t to) {
  uint64_t random = 5;
  uint32_t layer;
  memset(p, 0, sizeof *p);
  CHECK_STATUS(node_open(&p->a, "127.0.0.1:0", "", "a"), KVBM_OK);
  CHECK_STATUS(node_open(&p->b, "127.0.0.1:0", p->a.address, "b"), KVBM_OK);
  CHECK_STATUS(rank_open(&p->from, &p->a, from, &random), KVBM_OK);
  CHECK_STATUS(rank_open(&p->to, &p->b, to, &random), KVBM_OK);
  CHECK_STATUS(kvbm_queue_create(p->a.context, 64, &p->queue, NULL), KVBM_OK);
  for (layer = 0; layer < from.layers; ++layer) rank_fill(&p->from, 3, layer, 0, from.positions);
  p->source.node = p->a.address;
}

static void pair_close(pair_t *p) {
  kvbm_queue_release(p->queue);
  rank_close(&p->from);
  rank_close(&p->to);
  node_close(&p->b);
  node_close(&p->a);
}

static void pair_plain(pair_t *p) {
  pair_open(p, shape_of(KVBM_FORM_HND, 16, 1, 0, 64), shape_of(KVBM_FORM_NHD, 32, 1, 0, 64));
}

static void either_side_may_give_up_and_the_other_hears_why(void) {
  pair_t p;
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  kvbm_completion_t end;
  kvbm_error_t err;
  pair_plain(&p);
  CHECK_STATUS(rank_offer(&p.from, 1, 60 * SECOND_NS, p.queue, &offer), KVBM_OK);
  CHECK_STATUS(rank_receive(&p.to, 1, 0, &p.source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish(offer, 0, 0, 1, 0, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 0, 60 * SECOND_NS, &err), KVBM_OK);
  CHECK_STATUS(kvbm_offer_abort(offer, "the user went away"), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_CANCELLED);
  CHECK(says(&err, "the user went away") && says(&err, p.a.address));
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 0, 0, &err), KVBM_OK); /* the layer was in place */
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 1, 0, &err), KVBM_ERR_CANCELLED);
  CHECK_U64(kvbm_queue_wait(p.queue, &end, 1, 60 * SECOND_NS), 1);
  CHECK_STATUS(end.status, KVBM_ERR_CANCELLED);
  CHECK_STATUS(kvbm_offer_publish_all(offer, &err), KVBM_ERR_STALE);
  kvbm_offer_release(offer);
  kvbm_session_release(session);

  CHECK_STATUS(rank_offer(&p.from, 2, 60 * SECOND_NS, p.queue, &offer), KVBM_OK);
  CHECK_STATUS(rank_receive(&p.to, 2, 0, &p.source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish(offer, 0, 0, 1, 0, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 0, 60 * SECOND_NS, &err), KVBM_OK);
  CHECK_STATUS(kvbm_session_abort(session, "no room for it"), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_CANCELLED);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_CANCELLED);
  CHECK(says(&err, "no room for it") && says(&err, "decode rank 0"));
  CHECK_U64(kvbm_queue_wait(p.queue, &end, 1, 60 * SECOND_NS), 1);
  kvbm_offer_release(offer);
  kvbm_session_release(session);

  /* Releasing a handle that goes on is giving up. */
  CHECK_STATUS(rank_offer(&p.from, 3, KVBM_FOREVER, p.queue, &offer), KVBM_OK);
  kvbm_offer_release(offer);
  CHECK_U64(kvbm_queue_wait(p.queue, &end, 1, 60 * SECOND_NS), 1);
  CHECK_STATUS(end.status, KVBM_ERR_CANCELLED);
  CHECK_STATUS(rank_receive(&p.to, 3, 0, &p.source, 1, KVBM_FOREVER, NULL, &session), KVBM_OK);
  kvbm_session_release(session);
  pair_close(&p); /* would wait for ever otherwise */
}

static void what_never_comes_ends_at_the_deadline_and_says_who(void) {
  pair_t p;
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  kvbm_completion_t end;
  kvbm_error_t err;
  const kvbm_source_t nobody = {"127.0.0.1:1", 0, 0}, stranger = {"node-of-nowhere", 3, 0}, itself = {"b", 0, 0};
  pair_plain(&p);
  /* A request without an offer, one that is offered but never computed, and absent nodes. */
  CHECK_STATUS(rank_receive(&p.to, 1, 0, &p.source, 1, SECOND_NS / 2, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_DEADLINE);
  CHECK(says(&err, p.a.address) && says(&err, "did not answer"));
  kvbm_session_release(session);
  CHECK_STATUS(rank_offer(&p.from, 2, SECOND_NS, p.queue, &offer), KVBM_OK);
  CHECK_STATUS(rank_receive(&p.to, 2, 0, &p.source, 1, SECOND_NS / 2, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_DEADLINE);
  CHECK(says(&err, p.a.address) && says(&err, "slices to send"));
  kvbm_session_release(session);
  CHECK_U64(kvbm_queue_wait(p.queue, &end, 1, 60 * SECOND_NS), 1);
  CHECK_STATUS(end.status, KVBM_ERR_DEADLINE);
  kvbm_offer_release(offer);
  CHECK_STATUS(rank_offer(&p.from, 2, SECOND_NS / 5, p.queue, &offer), KVBM_OK); /* the name is free again */
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_DEADLINE);
  CHECK(says(&err, "no decode rank has opened it"));
  kvbm_offer_release(offer);
  CHECK_STATUS(rank_receive(&p.to, 3, 0, &nobody, 1, SECOND_NS / 5, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_DEADLINE);
  CHECK(says(&err, "127.0.0.1:1") && says(&err, "node.peers"));
  kvbm_session_release(session);
  CHECK_STATUS(rank_receive(&p.to, 3, 0, &stranger, 1, SECOND_NS / 5, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_DEADLINE);
  CHECK(says(&err, "node-of-nowhere"));
  kvbm_session_release(session);
  CHECK_STATUS(rank_receive(&p.to, 3, 0, &itself, 1, KVBM_FOREVER, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_INVALID);
  kvbm_session_release(session);
  pair_close(&p);
}

static void differing_models_and_geometries_are_named_on_both_sides(void) {
  static const char *const facts[] = {"the model", "the number of layers"};
  int i;
  for (i = 0; i < 2; ++i) {
    pair_t p;
    kvbm_offer_t *offer = NULL;
    kvbm_session_t *session = NULL;
    kvbm_error_t err;
    shape_t from = shape_of(KVBM_FORM_NHD, 16, 1, 0, 64), to = from;
    if (i == 0) to.model = "another model";
    if (i == 1) to.layers = LAYERS + 1;
    pair_open(&p, from, to);
    /* Neither side waits for its deadline, which is long past the end of this test. */
    CHECK_STATUS(rank_offer(&p.from, 1, 3600 * SECOND_NS, NULL, &offer), KVBM_OK);
    CHECK_STATUS(rank_receive(&p.to, 1, 0, &p.source, 1, 3600 * SECOND_NS, NULL, &session), KVBM_OK);
    CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_MISMATCH);
    CHECK(says(&err, facts[i]) && says(&err, p.a.address));
    CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_MISMATCH);
    CHECK(says(&err, facts[i]) && says(&err, "decode rank 0 at node ") && says(&err, "; "));
    kvbm_session_release(session);
    kvbm_offer_release(offer);
    pair_close(&p);
  }
}

static void heads_that_no_prefill_rank_has_are_named(void) {
  pair_t p;
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  kvbm_error_t err;
  pair_open(&p, shape_of(KVBM_FORM_NHD, 16, 2, 1, 64), shape_of(KVBM_FORM_NHD, 16, 1, 0, 64)); /* rank 0 is not named */
  p.source.rank = 1;
  CHECK_STATUS(rank_offer(&p.from, 1, 60 * SECOND_NS, NULL, &offer), KVBM_OK);
  CHECK_STATUS(rank_receive(&p.to, 1, 0, &p.source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_MISMATCH);
  CHECK(says(&err, "no prefill rank has a part that is wanted"));
  kvbm_session_release(session);
  kvbm_offer_release(offer);
  pair_close(&p);
}

static void a_killed_prefill_process_ends_the_session_within_seconds(void) {
  prefill_t prefill;
  node_t node;
  rank_t rank;
  kvbm_session_t *session = NULL;
  kvbm_error_t err;
  uint64_t random = 2, killed;
  int status;
  CHECK(prefill_start(&prefill, 1, 42, shape_of(KVBM_FORM_NHD, 16, 1, 0, 100)));
  CHECK_STATUS(node_open(&node, "", prefill.address, "decode"), KVBM_OK);
  CHECK_STATUS(rank_open(&rank, &node, shape_of(KVBM_FORM_HND, 24, 1, 0, 100), &random), KVBM_OK);
  const kvbm_source_t source = {prefill.address, 0, 0};
  CHECK_STATUS(rank_receive(&rank, 1, 0, &source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  prefill_tell(&prefill, 'l');
  CHECK_STATUS(kvbm_session_wait_layer(session, 0, 0, 60 * SECOND_NS, &err), KVBM_OK);
  killed = now_ns();
  kill(prefill.pid, SIGKILL);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_OWNER_GONE);
  CHECK(now_ns() - killed < 10 * SECOND_NS);
  CHECK(says(&err, prefill.address));
  CHECK_U64(rank_wrong(&rank, 42, 0, 0, 100), 0);
  waitpid(prefill.pid, &status, 0);
  close(prefill.to), close(prefill.from);
  kvbm_session_release(session);
  rank_close(&rank);
  node_close(&node);
}

/* Starts a decode process that opens the request, reports the first layer, and then waits forever. */
static pid_t decode_start(const char *address, int out) {
  const pid_t pid = fork();
  if (pid == 0) {
    node_t node;
    rank_t rank;
    kvbm_session_t *session = NULL;
    uint64_t random = 2;
    const kvbm_source_t source = {address, 0, 0};
    if (node_open(&node, "", address, "decode") != KVBM_OK) _exit(3);
    if (rank_open(&rank, &node, shape_of(KVBM_FORM_HND, 24, 1, 0, 100), &random) != KVBM_OK) _exit(4);
    if (rank_receive(&rank, 1, 0, &source, 1, 60 * SECOND_NS, NULL, &session) != KVBM_OK) _exit(5);
    if (kvbm_session_wait_layer(session, 0, 0, 60 * SECOND_NS, NULL) != KVBM_OK) _exit(6);
    if (write(out, "1", 1) != 1) _exit(7);
    for (;;) pause();
  }
  return pid;
}

static void a_killed_or_frozen_decode_process_gives_the_blocks_back(void) {
  int round;
  for (round = 0; round < 2; ++round) {
    int ready[2], tell[2], status;
    pid_t prefill;
    char address[128], letter;
    struct {
      int32_t status;
      uint32_t released;
    } got = {1, 0};
    CHECK(pipe(ready) == 0 && pipe(tell) == 0);
    prefill = fork(); /* the C library may not be used after a fork of a process with a context: each side has its own */
    if (prefill == 0) {
      node_t node;
      rank_t rank;
      kvbm_queue_t *queue = NULL;
      kvbm_offer_t *offer = NULL;
      kvbm_completion_t end;
      uint64_t random = 1;
      if (node_open(&node, "127.0.0.1:0", "", "prefill") != KVBM_OK) _exit(3);
      if (rank_open(&rank, &node, shape_of(KVBM_FORM_NHD, 16, 1, 0, 100), &random) != KVBM_OK) _exit(4);
      if (kvbm_queue_create(node.context, 4, &queue, NULL) != KVBM_OK) _exit(4);
      if (rank_offer(&rank, 1, 60 * SECOND_NS, queue, &offer) != KVBM_OK) _exit(5);
      if (kvbm_offer_publish(offer, 0, 0, 1, 0, 0, NULL) != KVBM_OK) _exit(6);
      if (write(ready[1], node.address, sizeof node.address) < 0) _exit(7);
      if (kvbm_queue_wait(queue, &end, 1, 60 * SECOND_NS) == 1) got.status = end.status;
      kvbm_offer_release(offer);
      rank_close(&rank); /* the blocks are free, or this would wait */
      got.released = 1;
      if (write(ready[1], &got, sizeof got) < 0) _exit(8);
      _exit(0);
    }
    CHECK(wait_readable(ready[0], 60 * SECOND_NS, address, sizeof address));
    const pid_t decode = decode_start(address, tell[1]);
    CHECK(wait_readable(tell[0], 60 * SECOND_NS, &letter, 1));
    kill(decode, round == 0 ? SIGKILL : SIGSTOP);
    CHECK(wait_readable(ready[0], 60 * SECOND_NS, &got, sizeof got));
    CHECK_STATUS(got.status, KVBM_ERR_OWNER_GONE);
    CHECK_U64(got.released, 1);
    kill(decode, SIGKILL);
    waitpid(decode, &status, 0);
    waitpid(prefill, &status, 0);
    close(ready[0]), close(ready[1]), close(tell[0]), close(tell[1]);
  }
}

static void a_running_request_moves_on_from_the_decode_node_that_has_it(void) {
  pair_t p;
  node_t third;
  rank_t next;
  kvbm_offer_t *offer = NULL, *again = NULL;
  kvbm_session_t *session = NULL;
  kvbm_error_t err;
  uint64_t random = 8;
  uint32_t layer;
  pair_plain(&p);
  CHECK_STATUS(rank_offer(&p.from, 1, 60 * SECOND_NS, NULL, &offer), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish_all(offer, &err), KVBM_OK);
  CHECK_STATUS(rank_receive(&p.to, 1, 0, &p.source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_OK);
  kvbm_session_release(session);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_OK);
  kvbm_offer_release(offer);
  /* The third dials the second and calls it by its name; the same request id, on another node. */
  CHECK_STATUS(node_open(&third, "", p.b.address, "c"), KVBM_OK);
  CHECK_STATUS(rank_open(&next, &third, shape_of(KVBM_FORM_BLOCKS_NHD, 8, 1, 0, 64), &random), KVBM_OK);
  CHECK_STATUS(rank_offer(&p.to, 1, 60 * SECOND_NS, NULL, &again), KVBM_OK);
  const kvbm_source_t source = {"b", 0, 0};
  CHECK_STATUS(rank_receive(&next, 1, 10, &source, 1, 60 * SECOND_NS, NULL, &session), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish_all(again, &err), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_OK);
  for (layer = 0; layer < LAYERS; ++layer) CHECK_U64(rank_wrong(&next, 3, layer, 10, 64), 0);
  CHECK_U64(rank_spilled(&next, 10, 64), 0);
  CHECK_STATUS(kvbm_offer_wait(again, 60 * SECOND_NS, &err), KVBM_OK);
  kvbm_session_release(session);
  kvbm_offer_release(again);
  rank_close(&next);
  node_close(&third);
  pair_close(&p);
}

static void wrong_calls_are_refused_and_name_what_is_wrong(void) {
  pair_t p;
  kvbm_offer_t *offer = NULL, *second = NULL;
  kvbm_session_t *session = NULL;
  kvbm_queue_t *small = NULL;
  kvbm_session_options_t options;
  kvbm_offer_options_t offering;
  kvbm_request_id_t id = request_of(1);
  kvbm_error_t err;
  world_t lonely;
  uint32_t many[3] = {1, 2, 1}, none = KVBM_NO_BLOCK;
  pair_plain(&p);
  CHECK_STATUS(kvbm_offer_open(NULL, &id, many, 1, NULL, NULL, 0, &offer, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_offer_open(p.from.cache, &id, many, 0, NULL, NULL, 0, &offer, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_offer_open(p.from.cache, &id, &none, 1, NULL, NULL, 0, &offer, &err), KVBM_ERR_INVALID);
  many[0] = 4711;
  CHECK_STATUS(kvbm_offer_open(p.from.cache, &id, many, 1, NULL, NULL, 0, &offer, &err), KVBM_ERR_INVALID);
  CHECK(says(&err, "4711"));
  many[0] = 1;
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 3, &p.source, 1, NULL, NULL, 0, &session, &err), KVBM_ERR_INVALID);
  CHECK(says(&err, "block 1 is a target twice"));
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 2, &p.source, 0, NULL, NULL, 0, &session, &err), KVBM_ERR_INVALID);
  kvbm_session_options_init(&options, sizeof options);
  options.rank = 2, options.ranks = 2;
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 2, &p.source, 1, &options, NULL, 0, &session, &err), KVBM_ERR_INVALID);
  options.rank = 0, options.end = 1000;
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 2, &p.source, 1, &options, NULL, 0, &session, &err), KVBM_ERR_INVALID);
  CHECK(says(&err, "do not cover"));
  options.struct_size = 0;
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 2, &p.source, 1, &options, NULL, 0, &session, &err), KVBM_ERR_UNSUPPORTED);
  CHECK_STATUS(kvbm_queue_create(p.b.context, LAYERS, &small, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_open(p.to.cache, &id, many, 2, &p.source, 1, NULL, small, 0, &session, &err), KVBM_ERR_AGAIN);
  kvbm_queue_release(small);
  kvbm_offer_options_init(&offering, sizeof offering);
  CHECK_U64(offering.timeout_ns, 60 * SECOND_NS);
  CHECK_STATUS(rank_offer(&p.from, 1, 60 * SECOND_NS, NULL, &offer), KVBM_OK);
  CHECK_STATUS(rank_offer(&p.from, 1, 60 * SECOND_NS, NULL, &second), KVBM_ERR_EXISTS);
  CHECK_STATUS(kvbm_offer_publish(offer, 1, 0, 0, 0, 0, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_offer_publish(offer, 0, LAYERS, 1, 0, 0, &err), KVBM_ERR_INVALID);
  CHECK(says(&err, "layers 5 + 1"));
  CHECK_STATUS(kvbm_offer_publish(offer, 0, 1, 0, 0, 0, &err), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish(offer, 0, 0, 0, 7, 7, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_offer_abort(offer, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_CANCELLED);
  kvbm_offer_release(offer);
  CHECK_STATUS(kvbm_offer_wait(NULL, 0, &err), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_session_abort(NULL, NULL), KVBM_ERR_INVALID);
  kvbm_offer_release(NULL);
  kvbm_session_release(NULL);
  pair_close(&p);

  if (!world_open(&lonely, 1 << 20, NULL, 0)) CHECK(!"world_open");
  {
    static unsigned char memory[4][WORLD_BLOCK];
    kvbm_tensor_t tensor = {memory, sizeof memory, 0, WORLD_BLOCK};
    kvbm_cache_part_t part;
    kvbm_cache_options_t cache;
    kvbm_cache_t *opaque = NULL;
    memset(&part, 0, sizeof part);
    part.form = KVBM_FORM_OPAQUE, part.tensors = &tensor, part.n_tensors = 1;
    kvbm_cache_options_init(&cache, sizeof cache);
    cache.n_blocks = 4, cache.parts = &part, cache.n_parts = 1;
    CHECK_STATUS(kvbm_cache_attach(lonely.manager, lonely.ns, &cache, &opaque, &err), KVBM_OK);
    CHECK_STATUS(kvbm_offer_open(opaque, &id, many, 2, NULL, NULL, 0, &offer, &err), KVBM_ERR_STATE);
    CHECK(says(&err, "node.listen"));
    kvbm_cache_release(opaque);
  }
  world_close(&lonely);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  /* Tests that fork come first: a child may not use its parent's contexts, and threads are not forked. */
  RUN(a_decode_process_gets_layers_while_others_are_computed);
  RUN(a_killed_prefill_process_ends_the_session_within_seconds);
  RUN(a_killed_or_frozen_decode_process_gives_the_blocks_back);
  RUN(any_pair_of_shapes_gives_the_bytes_of_a_reference);
  RUN(either_side_may_give_up_and_the_other_hears_why);
  RUN(what_never_comes_ends_at_the_deadline_and_says_who);
  RUN(differing_models_and_geometries_are_named_on_both_sides);
  RUN(heads_that_no_prefill_rank_has_are_named);
  RUN(a_running_request_moves_on_from_the_decode_node_that_has_it);
  RUN(wrong_calls_are_refused_and_name_what_is_wrong);
  FINISH();
}

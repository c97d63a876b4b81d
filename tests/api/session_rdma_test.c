/* Sessions between caches on devices of the fake driver over a transport that takes device memory: payloads go out of
 * one device's memory into the other's, and through host memory where that is refused. */
#define SIDE_DIM 128 /* payloads that are worth it */
#include "device_side.h"

#include <stdlib.h>

typedef struct pair {
  side_t prefill, decode;
  char address[128];
} pair_t;

static void transport(const char *rdma, int refuses) {
  setenv("KVBM_NODE_TRANSPORT", "ucx", 1);
  setenv("KVBM_NODE_UCX_MODULE", KVBM_TEST_TRANSPORT, 1);
  setenv("KVBM_DEVICE_RDMA", rdma, 1);
  if (refuses) {
    setenv("TEST_REFUSES_MEMORY", "1", 1);
  } else {
    unsetenv("TEST_REFUSES_MEMORY");
  }
}

static int pair_open(pair_t *p, int from, int to) {
  size_t needed = 0;
  uint32_t l;
  memset(p, 0, sizeof *p);
  if (!side_open(&p->prefill, from, "node.listen", "127.0.0.1:0", "off", 16, KVBM_FORM_NHD)) return 0;
  kvbm_manager_node_address(p->prefill.manager, p->address, sizeof p->address, &needed);
  for (l = 0; l < LAYERS; ++l) fill(&p->prefill, l, p->prefill.kv[l]);
  return side_open(&p->decode, to, "node.peers", p->address, "off", 8, KVBM_FORM_HND);
}

static void pair_close(pair_t *p) {
  side_close(&p->decode);
  side_close(&p->prefill);
}

static uint64_t direct(const side_t *s, const char *side) {
  return metric(s, "kvbm_session_slices_total", side, "\"rdma\"");
}

/* Moves one request from beginning to end. */
static void move(pair_t *p, unsigned number) {
  kvbm_request_id_t request;
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  kvbm_source_t source;
  kvbm_error_t err;
  uint32_t l;
  memset(&request, 0, sizeof request);
  memcpy(request.bytes, &number, sizeof number);
  memset(&source, 0, sizeof source);
  source.node = p->address;
  for (l = 0; l < LAYERS; ++l) memset(p->decode.kv[l], 0xEE, LAYER_VALUES * 2);
  CHECK_STATUS(kvbm_session_open(p->decode.cache, &request, p->decode.blocks, TOKENS / 8, &source, 1, NULL, NULL, 0,
                                 &session, &err), KVBM_OK);
  CHECK_STATUS(kvbm_offer_open(p->prefill.cache, &request, p->prefill.blocks, TOKENS / 16, NULL, NULL, 0, &offer, &err),
               KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish_all(offer, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_OK);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_OK);
  for (l = 0; l < LAYERS; ++l) CHECK_U64(wrong(&p->decode, l), 0);
  kvbm_session_release(session);
  kvbm_offer_release(offer);
}

/* No transfer waits for device memory, so the first requests may do without it. */
static void payloads_go_from_device_to_device(void) {
  static const int where[3][2] = {{0, 1}, {0, HOST}, {HOST, 1}};
  size_t i;
  for (i = 0; i < 3; ++i) {
    const int from = where[i][0] != HOST, to = where[i][1] != HOST;
    unsigned number = 0;
    pair_t p;
    transport("auto", 0);
    if (!pair_open(&p, where[i][0], where[i][1])) OPEN_FAILED;
    do {
      move(&p, ++number);
    } while (number < 1000 && ((from && direct(&p.prefill, "\"prefill\"") < LAYERS) ||
                               (to && direct(&p.decode, "\"decode\"") < LAYERS)));
    CHECK(number < 1000);
    CHECK((direct(&p.prefill, "\"prefill\"") > 0) == from);
    CHECK((direct(&p.decode, "\"decode\"") > 0) == to);
    CHECK_U64(metric(&p.decode, "kvbm_session_slots", "\"rdma\"", ""), 0);
    CHECK_U64(metric(&p.prefill, "kvbm_session_slots", "\"rdma\"", ""), 0);
    CHECK_U64(metric(&p.decode, "kvbm_session_damaged_slices_total", "", ""), 0);
    pair_close(&p);
  }
}

static void what_is_off_or_refused_goes_through_host_memory(void) {
  int refuses;
  for (refuses = 0; refuses < 2; ++refuses) {
    unsigned number;
    pair_t p;
    transport(refuses ? "auto" : "off", refuses);
    if (!pair_open(&p, 0, 1)) OPEN_FAILED;
    for (number = 1; number < 20; ++number) move(&p, number);
    CHECK_U64(direct(&p.prefill, "\"prefill\"") + direct(&p.decode, "\"decode\""), 0);
    CHECK_U64(metric(&p.decode, "kvbm_session_rdma_failed_total", "", ""), (uint64_t)refuses);
    pair_close(&p);
  }
}

/* The device reports that no card reaches it. A user's explicit setting overrides that. */
static void a_device_that_no_card_reaches_is_left_alone_unless_told_otherwise(void) {
  int on;
  CHECK(fake.apply("direct=0"));
  for (on = 0; on < 2; ++on) {
    unsigned number = 0;
    pair_t p;
    transport(on ? "on" : "auto", 0);
    if (!pair_open(&p, 0, 1)) OPEN_FAILED;
    do {
      move(&p, ++number);
    } while (on ? number < 1000 && direct(&p.decode, "\"decode\"") < LAYERS : number < 20);
    CHECK(number < 1000);
    CHECK((direct(&p.decode, "\"decode\"") > 0) == on);
    pair_close(&p);
  }
  CHECK(fake.apply("direct=1"));
}

/* The last case: the device stays lost. */
static void a_device_that_is_lost_ends_both_sides_and_the_process_lives(void) {
  const kvbm_request_id_t request = {{'l', 'o', 's', 't'}};
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  kvbm_source_t source;
  kvbm_error_t err;
  unsigned number = 0;
  pair_t p;
  transport("auto", 0);
  if (!pair_open(&p, 0, 1)) OPEN_FAILED;
  do {
    move(&p, ++number);
  } while (number < 1000 && direct(&p.decode, "\"decode\"") < LAYERS);
  memset(&source, 0, sizeof source);
  source.node = p.address;
  CHECK_STATUS(kvbm_session_open(p.decode.cache, &request, p.decode.blocks, TOKENS / 8, &source, 1, NULL, NULL, 0,
                                 &session, &err), KVBM_OK);
  CHECK_STATUS(kvbm_offer_open(p.prefill.cache, &request, p.prefill.blocks, TOKENS / 16, NULL, NULL, 0, &offer, &err),
               KVBM_OK);
  CHECK(fake.apply("lose=1:719"));
  CHECK_STATUS(kvbm_offer_publish_all(offer, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(session, 60 * SECOND_NS, &err), KVBM_ERR_TIER_DISABLED);
  CHECK_STATUS(kvbm_offer_wait(offer, 60 * SECOND_NS, &err), KVBM_ERR_TIER_DISABLED);
  for (number = 0; metric(&p.decode, "kvbm_session_slots", "\"rdma\"", "") > 0 && number < 60000; ++number) {
    usleep(1000);
  }
  CHECK(number < 60000);
  kvbm_session_release(session);
  kvbm_offer_release(offer);
  pair_close(&p);
}

/* Writes a pool key, because UCX is only for nodes with one. */
static int make_key(char *path) {
  // Has the form of a key made by `kvbm key new`.
  static const char key[] =
      "kvbm-pool-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:75cfd3a0\n";
  const int fd = mkstemp(path); /* mode 0600 */
  const int written = fd >= 0 && write(fd, key, sizeof key - 1) == (ssize_t)(sizeof key - 1);
  if (fd >= 0) close(fd);
  return written && setenv("KVBM_NODE_KEY_FILE", path, 1) == 0;
}

int main(void) {
  char key[] = "/tmp/kvbm-key-XXXXXX";
  if (!fake_open() || !fake.apply("devices=2") || !make_key(key)) return 1;
  RUN(payloads_go_from_device_to_device);
  RUN(what_is_off_or_refused_goes_through_host_memory);
  RUN(a_device_that_no_card_reaches_is_left_alone_unless_told_otherwise);
  RUN(a_device_that_is_lost_ends_both_sides_and_the_process_lives);
  unlink(key);
  FINISH();
}

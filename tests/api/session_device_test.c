/* Prefill->decode sessions of caches in device memory, through the fake of the CUDA driver as a library: host and device
 * on either side, layers published behind a stream, and a device that is lost while a session goes on. */
#include "device_side.h"

typedef struct pair {
  side_t prefill, decode;
  char address[128];
  kvbm_offer_t *offer;
  kvbm_session_t *session;
} pair_t;

static int pair_open(pair_t *p, int from, int to, void *stream) {
  const kvbm_request_id_t request = {{'r', 'e', 'q', '-', '1'}};
  kvbm_session_options_t options;
  kvbm_source_t source;
  kvbm_error_t err;
  size_t needed = 0;
  memset(p, 0, sizeof *p);
  if (!side_open(&p->prefill, from, "node.listen", "127.0.0.1:0", "auto", 16, KVBM_FORM_NHD)) return 0;
  kvbm_manager_node_address(p->prefill.manager, p->address, sizeof p->address, &needed);
  if (!side_open(&p->decode, to, "node.peers", p->address, "auto", 8, KVBM_FORM_HND)) return 0;
  memset(&source, 0, sizeof source);
  source.node = p->address;
  kvbm_session_options_init(&options, sizeof options);
  options.stream = stream, options.has_stream = stream != NULL;
  if (kvbm_session_open(p->decode.cache, &request, p->decode.blocks, TOKENS / 8, &source, 1, &options, NULL, 0,
                        &p->session, &err) < 0 ||
      kvbm_offer_open(p->prefill.cache, &request, p->prefill.blocks, TOKENS / 16, NULL, NULL, 0, &p->offer, &err) < 0) {
    printf("  %s: %s\n", kvbm_status_name(err.status), err.message);
    return 0;
  }
  return 1;
}

static void pair_close(pair_t *p) {
  kvbm_session_release(p->session);
  kvbm_offer_release(p->offer);
  side_close(&p->decode);
  side_close(&p->prefill);
}

static void host_and_device_mix(void) {
  static const int where[3][2] = {{HOST, 1}, {0, HOST}, {0, 1}};
  size_t i;
  for (i = 0; i < 3; ++i) {
    pair_t p;
    uint32_t l;
    if (!pair_open(&p, where[i][0], where[i][1], NULL)) OPEN_FAILED;
    for (l = 0; l < LAYERS; ++l) {
      fill(&p.prefill, l, p.prefill.kv[l]);
      CHECK_STATUS(kvbm_offer_publish(p.offer, 0, l, 1, 0, 0, NULL), KVBM_OK);
      CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, l, 60 * SECOND_NS, NULL), KVBM_OK);
      CHECK_U64(wrong(&p.decode, l), 0);
    }
    CHECK_STATUS(kvbm_session_wait(p.session, 60 * SECOND_NS, NULL), KVBM_OK);
    CHECK_STATUS(kvbm_offer_wait(p.offer, 60 * SECOND_NS, NULL), KVBM_OK);
    pair_close(&p);
  }
}

/* A layer is enqueued on a stream that does not get on; it is published behind it and must not be read before. */
static void a_layer_is_published_when_the_stream_has_written_it(void) {
  static uint16_t computed[LAYERS][LAYER_VALUES];
  pair_t p;
  void *context = NULL, *stream = fake.make_stream(0), *decode_stream = fake.make_stream(1);
  uint32_t l;
  if (!pair_open(&p, 0, 1, decode_stream)) OPEN_FAILED;
  CHECK(fake.retain(&context, 0) == 0);
  CHECK(fake.apply("hold=1"));
  for (l = 0; l < LAYERS; ++l) {
    fill(&p.prefill, l, computed[l]);
    CHECK(fake.push(context) == 0);
    CHECK(fake.copy((address_t)(size_t)p.prefill.kv[l], (address_t)(size_t)computed[l], sizeof computed[l], stream) == 0);
    CHECK(fake.pop(&context) == 0);
    CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, l, 1, 0, 0, stream, NULL), KVBM_OK);
  }
  CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, 0, 0, NULL), KVBM_ERR_AGAIN);
  CHECK(fake.apply("hold=0"));
  for (l = 0; l < LAYERS; ++l) {
    CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, l, 60 * SECOND_NS, NULL), KVBM_OK);
    CHECK_U64(wrong(&p.decode, l), 0);
  }
  CHECK_STATUS(kvbm_session_wait(p.session, 60 * SECOND_NS, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_offer_wait(p.offer, 60 * SECOND_NS, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, 0, 1, 0, 0, stream, NULL), KVBM_ERR_STALE);
  pair_close(&p);
}

static void streams_that_do_not_fit_are_refused_in_words(void) {
  const kvbm_request_id_t request = {{'r', 'e', 'q', '-', '2'}};
  kvbm_session_options_t options;
  kvbm_session_t *session = NULL;
  kvbm_source_t source;
  kvbm_error_t err;
  void *stream = fake.make_stream(0);
  pair_t p;
  if (!pair_open(&p, HOST, 1, NULL)) OPEN_FAILED;
  CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, 0, 1, 0, 0, stream, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "host memory") != NULL);
  CHECK_STATUS(kvbm_offer_publish_on_stream(NULL, 0, 0, 1, 0, 0, stream, &err), KVBM_ERR_INVALID);
  memset(&source, 0, sizeof source);
  source.node = p.address;
  kvbm_session_options_init(&options, sizeof options);
  options.stream = stream, options.has_stream = 1; /* of device 0, and the cache is on device 1 */
  CHECK_STATUS(kvbm_session_open(p.decode.cache, &request, p.decode.blocks, TOKENS / 8, &source, 1, &options, NULL, 0,
                                 &session, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "another device") != NULL);
  options.has_stream = 0;
  CHECK_STATUS(kvbm_session_open(p.decode.cache, &request, p.decode.blocks, TOKENS / 8, &source, 1, &options, NULL, 0,
                                 &session, &err), KVBM_ERR_INVALID);
  CHECK(session == NULL);
  pair_close(&p);
}

/* Nothing is published, the offer goes on, and the capture is whole; so is one of another stream beside all that follows. */
static void a_stream_under_capture_cannot_publish(void) {
  pair_t p;
  kvbm_error_t err;
  void *stream = fake.make_stream(0), *other = fake.make_stream(0);
  uint32_t l;
  if (!pair_open(&p, 0, 1, NULL)) OPEN_FAILED;
  fill(&p.prefill, 0, p.prefill.kv[0]);
  fake.capture(stream, 1);
  CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, 0, 1, 0, 0, stream, &err), KVBM_ERR_INVALID);
  CHECK(strstr(err.message, "is being captured into a graph: give kvbm a stream that is not") != NULL);
  CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, 0, 1, 0, 0, stream, NULL), KVBM_ERR_INVALID);
  CHECK(fake.capture_is_whole(stream));
  CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, 0, 0, NULL), KVBM_ERR_AGAIN);
  fake.capture(stream, 0);
  fake.capture(other, 1);
  for (l = 0; l < LAYERS; ++l) {
    fill(&p.prefill, l, p.prefill.kv[l]);
    CHECK_STATUS(kvbm_offer_publish_on_stream(p.offer, 0, l, 1, 0, 0, stream, &err), KVBM_OK);
    CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, l, 60 * SECOND_NS, NULL), KVBM_OK);
    CHECK_U64(wrong(&p.decode, l), 0);
  }
  CHECK_STATUS(kvbm_session_wait(p.session, 60 * SECOND_NS, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_offer_wait(p.offer, 60 * SECOND_NS, NULL), KVBM_OK);
  CHECK(fake.capture_is_whole(other));
  fake.capture(other, 0);
  pair_close(&p);
}

/* The last case: the device stays lost. */
static void a_device_that_is_lost_ends_both_sides_and_the_process_lives(void) {
  pair_t p;
  kvbm_error_t err;
  uint32_t l;
  if (!pair_open(&p, 0, 1, NULL)) OPEN_FAILED;
  for (l = 0; l < LAYERS; ++l) fill(&p.prefill, l, p.prefill.kv[l]);
  CHECK_STATUS(kvbm_offer_publish(p.offer, 0, 0, 1, 0, 0, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait_layer(p.session, 0, 0, 60 * SECOND_NS, NULL), KVBM_OK);
  CHECK(fake.apply("lose=1:719"));
  CHECK_STATUS(kvbm_offer_publish_all(p.offer, NULL), KVBM_OK);
  CHECK_STATUS(kvbm_session_wait(p.session, 60 * SECOND_NS, &err), KVBM_ERR_TIER_DISABLED);
  CHECK(strstr(err.message, "device 1") != NULL);
  CHECK_STATUS(kvbm_offer_wait(p.offer, 60 * SECOND_NS, &err), KVBM_ERR_TIER_DISABLED);
  pair_close(&p);
}

int main(void) {
  if (!fake_open() || !fake.apply("devices=2")) return 1;
  RUN(host_and_device_mix);
  RUN(a_layer_is_published_when_the_stream_has_written_it);
  RUN(streams_that_do_not_fit_are_refused_in_words);
  RUN(a_stream_under_capture_cannot_publish);
  RUN(a_device_that_is_lost_ends_both_sides_and_the_process_lives);
  FINISH();
}

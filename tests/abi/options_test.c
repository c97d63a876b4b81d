/* Options structs of older and newer headers: shorter ones and longer ones with a zero tail are taken, longer ones with
 * anything in the tail are refused; the init functions give the documented defaults. */
#include "../api/check.h"

enum { kTail = 64 };
typedef union {
  unsigned char bytes[1024];
  uint64_t aligned;
} room_t;

static world_t w;
static kvbm_cache_t *cache;
static unsigned char memory[4096];
static kvbm_cache_part_t part;
static kvbm_tensor_t tensor;

static kvbm_status_t use_context(void *o) {
  kvbm_context_t *made = NULL;
  const kvbm_status_t status = kvbm_context_create(o, &made, NULL);
  kvbm_context_release(made);
  return status;
}
static kvbm_status_t use_manager(void *o) {
  kvbm_manager_t *made = NULL;
  const kvbm_status_t status = kvbm_manager_create(w.context, o, &made, NULL);
  kvbm_manager_release(made);
  return status;
}
static kvbm_status_t use_namespace(void *o) {
  kvbm_namespace_t *made = NULL;
  ((kvbm_namespace_options_t *)o)->model = "m";
  const kvbm_status_t status = kvbm_namespace_open(w.manager, o, &made, NULL);
  kvbm_namespace_release(made);
  return status;
}
static kvbm_status_t use_cache(void *o) {
  kvbm_cache_options_t *options = o;
  kvbm_cache_t *made = NULL;
  options->n_blocks = 4;
  options->parts = &part;
  options->n_parts = 1;
  const kvbm_status_t status = kvbm_cache_attach(w.manager, w.ns, options, &made, NULL);
  kvbm_cache_release(made);
  return status;
}
static kvbm_status_t use_register(void *o) { return kvbm_manager_register(w.manager, w.ns, NULL, NULL, 0, o); }
static kvbm_status_t use_lookup(void *o) {
  kvbm_match_t *match;
  size_t n;
  return kvbm_manager_lookup(w.manager, w.ns, NULL, 0, o, &match, &n);
}
static kvbm_status_t use_locate(void *o) {
  size_t n = 0;
  return kvbm_manager_locate(w.manager, w.ns, NULL, 0, o, NULL, 0, &n);
}
static kvbm_status_t use_store(void *o) { return kvbm_cache_store(cache, NULL, NULL, 0, o, NULL, 0); }
static kvbm_status_t use_load(void *o) {
  kvbm_key_t key;
  kvbm_match_t *match = NULL;
  const uint32_t id = 0;
  size_t n = 0;
  world_keys(w.ns, 1, &key, 1);
  kvbm_cache_store(cache, &key, &id, 1, NULL, NULL, 0);
  kvbm_cache_lookup(cache, &key, 1, NULL, &match, &n);
  const kvbm_status_t status = kvbm_cache_load(cache, match, &id, 1, o, NULL, 0);
  kvbm_match_release(match);
  return status;
}

/* Returns where accepted options lead: to the manager, which is no node. */
static kvbm_status_t use_offer(void *o) {
  const kvbm_request_id_t request = {{1}};
  const uint32_t id = 0;
  kvbm_offer_t *made = NULL;
  const kvbm_status_t status = kvbm_offer_open(cache, &request, &id, 1, o, NULL, 0, &made, NULL);
  return status == KVBM_ERR_STATE ? KVBM_OK : status;
}
static kvbm_status_t use_session(void *o) {
  const kvbm_request_id_t request = {{1}};
  const kvbm_source_t source = {"127.0.0.1:1", 0, 0};
  const uint32_t id = 0;
  kvbm_session_t *made = NULL;
  const kvbm_status_t status = kvbm_session_open(cache, &request, &id, 1, &source, 1, o, NULL, 0, &made, NULL);
  return status == KVBM_ERR_STATE ? KVBM_OK : status;
}

static kvbm_status_t use_codec(void *o) {
  uint64_t room;
  return kvbm_codec_room(1, o, &room, NULL);
}

static kvbm_status_t use_cache_code(void *o) {
  uint64_t room;
  return kvbm_cache_code_room(cache, 1, o, &room, NULL);
}

static const struct {
  const char *name;
  size_t size, shorter;
  kvbm_status_t (*init)(void *, uint32_t);
  kvbm_status_t (*use)(void *);
} all[] = {
#define ROW(x, short_at)                                                                                             \
  {#x, sizeof(kvbm_##x##_options_t), short_at, (kvbm_status_t(*)(void *, uint32_t))kvbm_##x##_options_init, use_##x}
    ROW(context, offsetof(kvbm_context_options_t, log)),
    ROW(manager, offsetof(kvbm_manager_options_t, policy)),
    ROW(namespace, offsetof(kvbm_namespace_options_t, secret)),
    ROW(cache, offsetof(kvbm_cache_options_t, memory)),
    ROW(register, offsetof(kvbm_register_options_t, unchained)),
    ROW(lookup, offsetof(kvbm_lookup_options_t, host_only)),
    ROW(store, offsetof(kvbm_store_options_t, stream)),
    ROW(load, offsetof(kvbm_load_options_t, positions)),
    ROW(locate, offsetof(kvbm_locate_options_t, request_keys)),
    ROW(offer, offsetof(kvbm_offer_options_t, end)),
    ROW(codec, offsetof(kvbm_codec_options_t, rows)),
    ROW(cache_code, offsetof(kvbm_cache_code_options_t, stream)),
    ROW(session, offsetof(kvbm_session_options_t, first_position)),
};
enum { kAll = sizeof all / sizeof all[0] };

static void every_size_is_taken_or_refused_as_documented(void) {
  size_t i;
  for (i = 0; i < kAll; ++i) {
    room_t room;
    const uint32_t size = (uint32_t)all[i].size;
    memset(&room, 0xEE, sizeof room);
    CHECK_STATUS(all[i].init(&room, size), KVBM_OK);
    CHECK(room.bytes[size] == 0xEE);
    CHECK_STATUS(all[i].use(&room), KVBM_OK);
    memset(&room, 0xEE, sizeof room);
    CHECK_STATUS(all[i].init(&room, (uint32_t)all[i].shorter), KVBM_OK);
    CHECK_STATUS(all[i].use(&room), KVBM_OK);
    CHECK_STATUS(all[i].init(&room, size + kTail), KVBM_OK);
    CHECK_STATUS(all[i].use(&room), KVBM_OK);
    room.bytes[size + kTail - 1] = 1;
    CHECK_STATUS(all[i].use(&room), KVBM_ERR_UNSUPPORTED);
    memset(&room, 0, sizeof room);
    CHECK(all[i].use(&room) < 0);
    CHECK_STATUS(all[i].init(NULL, size), KVBM_ERR_INVALID);
    CHECK_STATUS(all[i].init(&room, 3), KVBM_ERR_INVALID);
    /* The size was never set, so nothing behind the struct may be read. */
    CHECK_STATUS(all[i].init(&room, UINT32_MAX), KVBM_ERR_INVALID);
    CHECK_STATUS(all[i].init(&room, size), KVBM_OK);
    memset(&room, 0xFE, sizeof(uint32_t));
    CHECK_STATUS(all[i].use(&room), KVBM_ERR_UNSUPPORTED);
    if (check_case_failed) {
      printf("  %s\n", all[i].name);
      return;
    }
  }
}

static void defaults_are_zero_but_for_the_timeouts(void) {
  size_t i, at;
  for (i = 0; i < kAll; ++i) {
    room_t room;
    uint32_t size;
    memset(&room, 0xEE, sizeof room);
    all[i].init(&room, (uint32_t)all[i].size);
    memcpy(&size, &room, sizeof size);
    CHECK_U64(size, all[i].size);
    if (strcmp(all[i].name, "store") == 0) {
      CHECK_U64(((kvbm_store_options_t *)(void *)&room)->timeout_ns, KVBM_FOREVER);
      ((kvbm_store_options_t *)(void *)&room)->timeout_ns = 0;
    }
    if (strcmp(all[i].name, "load") == 0) {
      CHECK_U64(((kvbm_load_options_t *)(void *)&room)->timeout_ns, KVBM_FOREVER);
      ((kvbm_load_options_t *)(void *)&room)->timeout_ns = 0;
    }
    if (strcmp(all[i].name, "offer") == 0) {
      CHECK_U64(((kvbm_offer_options_t *)(void *)&room)->timeout_ns, 60000000000ULL);
      ((kvbm_offer_options_t *)(void *)&room)->timeout_ns = 0;
    }
    if (strcmp(all[i].name, "session") == 0) {
      CHECK_U64(((kvbm_session_options_t *)(void *)&room)->timeout_ns, 60000000000ULL);
      ((kvbm_session_options_t *)(void *)&room)->timeout_ns = 0;
    }
    for (at = sizeof size; at < all[i].size; ++at) CHECK(room.bytes[at] == 0);
  }
}

int main(void) {
  kvbm_cache_options_t options;
  setenv("KVBM_HOST_CAPACITY", "1MiB", 1);
  setenv("KVBM_HOST_BLOCK_BYTES", "8KiB", 1);
  if (!world_open(&w, 1 << 20, NULL, 0)) return 1;
  tensor.data = memory;
  tensor.bytes = sizeof memory;
  tensor.page_bytes = 1024;
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = 4;
  options.parts = &part;
  options.n_parts = 1;
  if (kvbm_cache_attach(w.manager, w.ns, &options, &cache, NULL) < 0) return 1;
  RUN(every_size_is_taken_or_refused_as_documented);
  RUN(defaults_are_zero_but_for_the_timeouts);
  kvbm_cache_release(cache);
  world_close(&w);
  FINISH();
}

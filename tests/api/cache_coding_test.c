/* kvbm_cache_encode and kvbm_cache_decode. A cache in host memory and one on a device (the fake CUDA driver) give the
 * same bytes, which kvbm_codec_decode accepts too, and both decode them. Impossible arguments are refused by name. */
#include "check.h"
#include "fake_driver.h"

enum { LAYERS = 3, HEADS = 2, DIM = 64, TOKENS = 16, BLOCKS = 10, DEVICE = 1 };
enum { MOST_LAYER_BYTES = 2 * BLOCKS * TOKENS * HEADS * DIM * 4, CODED_BYTES = LAYERS * MOST_LAYER_BYTES + 16384 };
/* Offsets in the head of a coded buffer: the sums of the losses. */
enum { SUMS_AT = 40, SUMS_END = 56, HEAD_BYTES = 56, LEAF_BYTES = 24 };

static kvbm_error_t err;
#define OK(call)                                              \
  do {                                                        \
    CHECK_STATUS(call, KVBM_OK);                              \
    if (err.status != KVBM_OK) printf("  %s\n", err.message); \
  } while (0)
/* Expects that a call is refused with these words. */
#define REFUSED(call, status, words)                                                        \
  do {                                                                                      \
    CHECK_STATUS(call, status);                                                             \
    CHECK(strstr(err.message, words) != NULL);                                              \
    if (strstr(err.message, words) == NULL) printf("  said: %s\n", err.message);            \
  } while (0)

typedef struct world_of_caches {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *on_host, *on_device;
  unsigned char *host[LAYERS], *device[LAYERS];
  size_t width, layer_bytes;
} caches_t;

static size_t width_of(uint32_t element) {
  return element == KVBM_ELEMENT_FP32 ? 4 : element == KVBM_ELEMENT_BF16 || element == KVBM_ELEMENT_FP16 ? 2 : 1;
}

static kvbm_cache_t *attach(caches_t *w, unsigned char *const *memory, uint32_t kind) {
  kvbm_tensor_t tensors[LAYERS];
  kvbm_cache_part_t part;
  kvbm_cache_options_t layout;
  kvbm_cache_t *cache = NULL;
  size_t l;
  memset(tensors, 0, sizeof tensors);
  memset(&part, 0, sizeof part);
  for (l = 0; l < LAYERS; ++l) tensors[l].data = memory[l], tensors[l].bytes = w->layer_bytes;
  part.form = kind == KVBM_MEMORY_HOST ? KVBM_FORM_NHD : KVBM_FORM_BLOCKS_HND; /* in another order */
  part.tensors = tensors, part.n_tensors = LAYERS;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = BLOCKS, layout.parts = &part, layout.n_parts = 1;
  layout.memory = kind, layout.device = kind == KVBM_MEMORY_HOST ? 0 : DEVICE;
  OK(kvbm_cache_attach(w->manager, w->ns, &layout, &cache, &err));
  return cache;
}

static int open_caches(caches_t *w, uint32_t element, uint32_t units) {
  const kvbm_component_t attention = {KVBM_COMPONENT_ATTENTION, element, LAYERS, HEADS, DIM, 0, 0, {0, 0}};
  const kvbm_setting_t settings[] = {{"device.library", KVBM_FAKE_DRIVER}, {"device.lost_after", "600s"},
                                     {"device.staging", "1MiB"}};
  kvbm_context_options_t context;
  kvbm_manager_options_t options;
  kvbm_namespace_options_t who;
  kvbm_geometry_t *geometry = NULL;
  size_t l;
  memset(w, 0, sizeof *w);
  w->width = width_of(element);
  w->layer_bytes = (size_t)2 * BLOCKS * TOKENS * HEADS * DIM * w->width;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings, context.n_settings = 3;
  OK(kvbm_context_create(&context, &w->context, &err));
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = LAYERS * w->layer_bytes / BLOCKS * units;
  options.host_capacity_bytes = 4u << 20;
  OK(kvbm_manager_create(w->context, &options, &w->manager, &err));
  OK(kvbm_geometry_create(TOKENS, units, &attention, 1, &geometry, &err));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test", who.geometry = geometry;
  OK(kvbm_namespace_open(w->manager, &who, &w->ns, &err));
  kvbm_geometry_release(geometry);
  if (w->ns == NULL) return 0;
  for (l = 0; l < LAYERS; ++l) {
    w->host[l] = (unsigned char *)calloc(1, w->layer_bytes);
    w->device[l] = (unsigned char *)(size_t)fake.allocate(DEVICE, w->layer_bytes);
  }
  w->on_host = attach(w, w->host, KVBM_MEMORY_HOST);
  w->on_device = attach(w, w->device, KVBM_MEMORY_CUDA);
  return w->on_host != NULL && w->on_device != NULL;
}

static void close_caches(caches_t *w) {
  size_t l;
  kvbm_cache_release(w->on_host);
  kvbm_cache_release(w->on_device);
  kvbm_namespace_release(w->ns);
  kvbm_manager_release(w->manager);
  kvbm_context_release(w->context);
  for (l = 0; l < LAYERS; ++l) {
    free(w->host[l]);
    if (w->device[l] != NULL) fake.free_memory((address_t)(size_t)w->device[l]);
  }
}

/* A row in the host's [K,V][block][token][head][dim] or the device's [block][K,V][head][token][dim]. */
static unsigned char *row_of(const caches_t *w, int on_device, size_t layer, size_t plane, size_t block, size_t head,
                             size_t token) {
  size_t row = ((plane * BLOCKS + block) * TOKENS + token) * HEADS + head;
  if (on_device) row = ((block * 2 + plane) * HEADS + head) * TOKENS + token;
  return (on_device ? w->device : w->host)[layer] + row * DIM * w->width;
}

/* The payload of a block: [layer][K,V][head][token][dim]. */
static size_t payload_of(const caches_t *w, int on_device, size_t block, unsigned char *out) {
  size_t n = 0, l, p, h, t;
  for (l = 0; l < LAYERS; ++l)
    for (p = 0; p < 2; ++p)
      for (h = 0; h < HEADS; ++h)
        for (t = 0; t < TOKENS; ++t, n += DIM * w->width)
          memcpy(out + n, row_of(w, on_device, l, p, block, h, t), DIM * w->width);
  return n;
}

/* Writes numbers like those of a cache, equal in both caches. */
static void fill(caches_t *w, uint32_t element) {
  uint32_t state = 12345 + element;
  size_t l, i, p, b, h, t;
  for (l = 0; l < LAYERS; ++l) {
    for (i = 0; i < w->layer_bytes; i += w->width) {
      uint32_t v;
      state = state * 1664525u + 1013904223u;
      v = (state >> 8 & 0x807F) | (0x7Cu + (state >> 28) % 4) << 7; /* bf16 */
      if (w->width == 4) v = v << 16 | (state & 0xFFFF);
      if (element == KVBM_ELEMENT_FP16) v = (state >> 8 & 0x83FF) | (0xCu + (state >> 28) % 4) << 10;
      if (w->width == 1) v = (state >> 8 & 0x87) | (0x6u + (state >> 28) % 2) << 3;
      memcpy(w->host[l] + i, &v, w->width);
    }
    for (p = 0; p < 2; ++p)
      for (b = 0; b < BLOCKS; ++b)
        for (h = 0; h < HEADS; ++h)
          for (t = 0; t < TOKENS; ++t) memcpy(row_of(w, 1, l, p, b, h, t), row_of(w, 0, l, p, b, h, t), DIM * w->width);
  }
}

static void clear(caches_t *w, int on_device) {
  size_t l;
  for (l = 0; l < LAYERS; ++l) memset((on_device ? w->device : w->host)[l], 0x11, w->layer_bytes);
}

static const uint32_t ids[] = {7, 2, 3, 9, 0, 4}, others[] = {1, 8, 6, 5, 4, 2};
enum { N = 6 };
static unsigned char by_host[CODED_BYTES], by_device[CODED_BYTES], plain[CODED_BYTES], found[CODED_BYTES];

static size_t encode(kvbm_cache_t *cache, uint32_t mode, unsigned char *out) {
  uint64_t room = 0;
  size_t n = 0;
  OK(kvbm_cache_code_room(cache, N, NULL, &room, &err));
  CHECK(room != 0 && room <= CODED_BYTES);
  OK(kvbm_cache_encode(cache, ids, N, mode, NULL, out, (size_t)room, &n, &err));
  CHECK(n != 0 && n <= room);
  return n;
}

static void expect_same(size_t n, int lossy, uint32_t leaves) {
  const size_t checksum = HEAD_BYTES + (size_t)leaves * LEAF_BYTES;
  size_t i;
  for (i = 0; i < n; ++i) {
    if (lossy && ((i >= SUMS_AT && i < SUMS_END) || (i >= checksum && i < checksum + 8))) continue;
    if (by_host[i] == by_device[i]) continue;
    printf("  byte %zu of %zu differs\n", i, n);
    CHECK(!"the same bytes");
    return;
  }
}

static void one_mode(caches_t *w, uint32_t element, uint32_t mode) {
  kvbm_cache_code_options_t options;
  kvbm_codec_info_t info = {sizeof info, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, other = info;
  size_t n, got = 0, at, i;
  int to;
  fill(w, element);
  n = encode(w->on_host, mode, by_host);
  CHECK_U64(encode(w->on_device, mode, by_device), n);
  OK(kvbm_codec_inspect(by_host, n, &info, &err));
  OK(kvbm_codec_inspect(by_device, n, &other, &err));
  CHECK_U64(info.mode, mode);
  CHECK_U64(info.element, element);
  CHECK_U64(info.row_elements, DIM);
  CHECK_U64(info.rows, TOKENS);
  CHECK(info.lossy == (mode >= 16) && other.error_ppb <= info.error_ppb + info.error_ppb / 1000 + 1);
  CHECK((info.error_ppb != 0) == (mode >= 16) && info.error_ppb <= other.error_ppb + other.error_ppb / 1000 + 1);
  expect_same(n, (int)info.lossy, info.leaves);
  /* kvbm_codec_decode gives the payloads; each cache decodes them. */
  OK(kvbm_codec_decode(by_device, n, KVBM_CODEC_ALLOW_LOSSY, plain, sizeof plain, &got, &err));
  CHECK_U64(got, info.raw_bytes);
  for (i = 0, at = 0; i < N && mode < 16; ++i) {
    const size_t bytes = payload_of(w, 0, ids[i], found);
    CHECK(memcmp(found, plain + at, bytes) == 0);
    at += bytes;
  }
  kvbm_cache_code_options_init(&options, sizeof options);
  options.flags = KVBM_CODEC_ALLOW_LOSSY;
  for (to = 0; to < 2; ++to) {
    clear(w, to);
    OK(kvbm_cache_decode(to ? w->on_device : w->on_host, to ? by_host : by_device, n, others, N, &options, &err));
    for (i = 0, at = 0; i < N; ++i) {
      const size_t bytes = payload_of(w, to, others[i], found);
      CHECK(memcmp(found, plain + at, bytes) == 0);
      at += bytes;
    }
    /* A block that was not named must be unchanged. */
    (void)payload_of(w, to, 0, found);
    CHECK(found[0] == 0x11 && memcmp(found, found + 1, at / N - 1) == 0);
  }
}

static void both_caches_give_and_take_the_same_bytes(void) {
  static const uint32_t elements[] = {KVBM_ELEMENT_BF16, KVBM_ELEMENT_FP16, KVBM_ELEMENT_FP32, KVBM_ELEMENT_FP8_E4M3};
  static const uint32_t modes[] = {KVBM_CODEC_OFF,      KVBM_CODEC_DEFAULT,  KVBM_CODEC_ZSTD, KVBM_CODEC_INT8,
                                   KVBM_CODEC_FP8_E4M3, KVBM_CODEC_FP8_E5M2, KVBM_CODEC_INT4, KVBM_CODEC_INT8_CODED};
  size_t e, m;
  for (e = 0; e < sizeof elements / sizeof *elements; ++e) {
    caches_t w;
    if (!open_caches(&w, elements[e], 1)) return;
    for (m = 0; m < sizeof modes / sizeof *modes; ++m) {
      if (modes[m] >= 16 && w.width == 1) continue; /* refused, see below */
      one_mode(&w, elements[e], modes[m]);
      if (check_case_failed) printf("  ^ element %u, mode %s\n", elements[e], kvbm_codec_mode_name(modes[m]));
    }
    close_caches(&w);
  }
}

static void stored_blocks_of_several_engine_blocks_are_coded_whole(void) {
  caches_t w;
  size_t n;
  uint64_t room;
  if (!open_caches(&w, KVBM_ELEMENT_BF16, 2)) return;
  fill(&w, KVBM_ELEMENT_BF16);
  n = encode(w.on_host, KVBM_CODEC_OFF, by_host);
  CHECK_U64(encode(w.on_device, KVBM_CODEC_OFF, by_device), n);
  CHECK(memcmp(by_host, by_device, n) == 0);
  REFUSED(kvbm_cache_code_room(w.on_host, 3, NULL, &room, &err), KVBM_ERR_INVALID, "a stored block is 2");
  REFUSED(kvbm_cache_code_room(w.on_host, (size_t)1 << 28, NULL, &room, &err), KVBM_ERR_INVALID, "more than 2^40 bytes");
  REFUSED(kvbm_cache_code_room(w.on_host, (size_t)1 << 63, NULL, &room, &err), KVBM_ERR_INVALID, "at most 2^28");
  REFUSED(kvbm_cache_encode(w.on_host, ids, 3, 0, NULL, by_host, sizeof by_host, &n, &err), KVBM_ERR_INVALID,
          "3 ids, a stored block is 2 engine blocks");
  close_caches(&w);
}

static void what_cannot_be_is_refused_by_name(void) {
  static const uint32_t beyond[] = {1, BLOCKS}, none[] = {0, 1, KVBM_NO_BLOCK}, twice[] = {1, 8, 6, 5, 8, 2};
  caches_t w, eight_bits;
  kvbm_cache_code_options_t options;
  uint64_t room = 0;
  size_t n = 0, coded, got;
  int side;
  if (!open_caches(&w, KVBM_ELEMENT_BF16, 1) || !open_caches(&eight_bits, KVBM_ELEMENT_FP8_E4M3, 1)) return;
  fill(&w, KVBM_ELEMENT_BF16);
  fill(&eight_bits, KVBM_ELEMENT_FP8_E4M3);
  for (side = 0; side < 2; ++side) {
    kvbm_cache_t *cache = side ? w.on_device : w.on_host;
    kvbm_cache_t *eight = side ? eight_bits.on_device : eight_bits.on_host;
    coded = encode(cache, KVBM_CODEC_INT8, by_host);
    kvbm_cache_code_options_init(&options, sizeof options);
    REFUSED(kvbm_cache_encode(eight, ids, N, KVBM_CODEC_INT8, NULL, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID,
            "int8 was asked for, the blocks hold fp8_e4m3");
    REFUSED(kvbm_cache_encode(cache, ids, N, 99, NULL, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID, "mode");
    REFUSED(kvbm_cache_encode(cache, beyond, 2, 0, NULL, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID,
            "block_ids[1] is 10, the cache has 10 blocks");
    REFUSED(kvbm_cache_encode(cache, none, 3, 0, NULL, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID,
            "block_ids[2] is KVBM_NO_BLOCK");
    OK(kvbm_cache_code_room(cache, N, NULL, &room, &err));
    REFUSED(kvbm_cache_encode(cache, ids, N, 0, NULL, plain, (size_t)room - 1, &n, &err), KVBM_ERR_NO_ROOM, "are needed");
    REFUSED(kvbm_cache_encode(cache, ids, N, 0, NULL, NULL, (size_t)room, &n, &err), KVBM_ERR_INVALID, "NULL");
    options.part = 1;
    REFUSED(kvbm_cache_encode(cache, ids, N, 0, &options, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID,
            "options.part is out of range");
    options.part = 0, options.element = KVBM_ELEMENT_FP16, options.row_elements = DIM, options.rows = TOKENS;
    REFUSED(kvbm_cache_encode(cache, ids, N, 0, &options, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID,
            "the cache has bf16, rows of 64, 16 rows");
    options.element = KVBM_ELEMENT_BF16;
    OK(kvbm_cache_encode(cache, ids, N, 0, &options, plain, sizeof plain, &n, &err));
    options.flags = KVBM_CODEC_ALLOW_LOSSY;
    REFUSED(kvbm_cache_encode(cache, ids, N, 0, &options, plain, sizeof plain, &n, &err), KVBM_ERR_INVALID, "flags");
    clear(&w, side);
    REFUSED(kvbm_cache_decode(cache, by_host, coded, ids, N, NULL, &err), KVBM_ERR_PERMISSION, "lossy");
    REFUSED(kvbm_cache_decode(cache, by_host, coded, twice, N, &options, &err), KVBM_ERR_INVALID,
            "block_ids[4] is 8, as block_ids[1] is");
    REFUSED(kvbm_cache_decode(cache, by_host, coded, ids, N - 1, &options, &err), KVBM_ERR_INVALID, "not of as many blocks");
    REFUSED(kvbm_cache_decode(cache, by_host, coded - 1, ids, N, &options, &err), KVBM_ERR_DAMAGED, "damaged");
    by_host[0] ^= 1;
    REFUSED(kvbm_cache_decode(cache, by_host, coded, ids, N, &options, &err), KVBM_ERR_DAMAGED, "not a coded buffer");
    by_host[0] ^= 1, by_host[coded - 200] ^= 1;
    REFUSED(kvbm_cache_decode(cache, by_host, coded, ids, N, &options, &err), KVBM_ERR_DAMAGED, "leaf");
    options.flags = 2;
    REFUSED(kvbm_cache_decode(cache, by_host, coded, ids, N, &options, &err), KVBM_ERR_INVALID, "flags");
    /* Changes the bytes, but not their number. */
    {
      kvbm_codec_options_t form;
      kvbm_codec_options_init(&form, sizeof form);
      memset(plain, 0, sizeof plain);
      OK(kvbm_codec_encode(plain, N * LAYERS * w.layer_bytes / BLOCKS, 0, &form, by_device, sizeof by_device, &got, &err));
      REFUSED(kvbm_cache_decode(cache, by_device, got, ids, N, NULL, &err), KVBM_ERR_MISMATCH, "of another cache");
    }
    /* No refused call has changed a block, except for whole leaves before a damaged one. */
    (void)payload_of(&w, side, others[0], found);
    CHECK(found[0] == 0x11);
    fill(&w, KVBM_ELEMENT_BF16);
  }
  close_caches(&w);
  close_caches(&eight_bits);
}

static void streams_are_those_of_the_device(void) {
  caches_t w;
  kvbm_cache_code_options_t options;
  size_t n = 0;
  void *stream = fake.make_stream(DEVICE), *foreign = fake.make_stream(0);
  if (!open_caches(&w, KVBM_ELEMENT_BF16, 1)) return;
  fill(&w, KVBM_ELEMENT_BF16);
  kvbm_cache_code_options_init(&options, sizeof options);
  options.stream = stream;
  REFUSED(kvbm_cache_encode(w.on_device, ids, N, KVBM_CODEC_INT8, &options, by_device, sizeof by_device, &n, &err),
          KVBM_ERR_INVALID, "has_stream");
  options.has_stream = 1;
  OK(kvbm_cache_encode(w.on_device, ids, N, KVBM_CODEC_INT8, &options, by_device, sizeof by_device, &n, &err));
  options.flags = KVBM_CODEC_ALLOW_LOSSY;
  OK(kvbm_cache_decode(w.on_device, by_device, n, others, N, &options, &err));
  options.flags = 0;
  REFUSED(kvbm_cache_encode(w.on_host, ids, N, KVBM_CODEC_INT8, &options, by_host, sizeof by_host, &n, &err),
          KVBM_ERR_INVALID, "a stream was given for a cache in host memory");
  options.stream = foreign;
  REFUSED(kvbm_cache_encode(w.on_device, ids, N, KVBM_CODEC_INT8, &options, by_host, sizeof by_host, &n, &err),
          KVBM_ERR_INVALID, "another device");
  options.stream = stream;
  fake.capture(stream, 1);
  REFUSED(kvbm_cache_encode(w.on_device, ids, N, KVBM_CODEC_INT8, &options, by_host, sizeof by_host, &n, &err),
          KVBM_ERR_INVALID, "being captured");
  CHECK(fake.capture_is_whole(stream));
  fake.capture(stream, 0);
  close_caches(&w);
}

/* Pages of which nothing is known are coded by zstd alone, unless the caller says what they hold. */
static void opaque_pages_are_what_the_caller_says(void) {
  enum { PAGE = 4096 };
  static unsigned char pages[BLOCKS][PAGE];
  const kvbm_tensor_t tensor = {pages, sizeof pages, 0, PAGE};
  const kvbm_cache_part_t part = {{0, 0, {0, 0, 0, 0, 0, {0, 0, 0}}}, KVBM_FORM_OPAQUE, 0, &tensor, 1, {0, 0}};
  kvbm_cache_options_t layout;
  kvbm_cache_code_options_t options;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_cache_t *cache = NULL;
  caches_t w;
  size_t i, n = 0;
  if (!open_caches(&w, KVBM_ELEMENT_BF16, 1)) return;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "opaque";
  OK(kvbm_namespace_open(w.manager, &who, &ns, &err));
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = BLOCKS, layout.parts = &part, layout.n_parts = 1;
  OK(kvbm_cache_attach(w.manager, ns, &layout, &cache, &err));
  for (i = 0; i < sizeof pages; i += 2) pages[i / PAGE][i % PAGE] = (unsigned char)i, pages[i / PAGE][i % PAGE + 1] = 0x3F;
  REFUSED(kvbm_cache_encode(cache, ids, N, KVBM_CODEC_INT8, NULL, by_host, sizeof by_host, &n, &err), KVBM_ERR_INVALID,
          "the blocks hold bytes of no known kind");
  kvbm_cache_code_options_init(&options, sizeof options);
  options.element = KVBM_ELEMENT_BF16, options.row_elements = 64;
  OK(kvbm_cache_encode(cache, ids, N, KVBM_CODEC_INT8, &options, by_host, sizeof by_host, &n, &err));
  CHECK(n < (size_t)N * PAGE * 3 / 4);
  options.flags = KVBM_CODEC_ALLOW_LOSSY;
  OK(kvbm_cache_decode(cache, by_host, n, others, N, &options, &err));
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  close_caches(&w);
}

static void a_lost_device_says_so(void) {
  caches_t w;
  size_t n = 0;
  if (!open_caches(&w, KVBM_ELEMENT_BF16, 1)) return;
  fill(&w, KVBM_ELEMENT_BF16);
  CHECK(fake.apply("lose=1:719"));
  REFUSED(kvbm_cache_encode(w.on_device, ids, N, KVBM_CODEC_INT8, NULL, by_host, sizeof by_host, &n, &err),
          KVBM_ERR_TIER_DISABLED, "lost");
  OK(kvbm_cache_encode(w.on_host, ids, N, KVBM_CODEC_INT8, NULL, by_host, sizeof by_host, &n, &err));
  close_caches(&w);
}

int main(void) {
  if (!fake_open() || !fake.apply("devices=2")) return 1;
  RUN(both_caches_give_and_take_the_same_bytes);
  RUN(stored_blocks_of_several_engine_blocks_are_coded_whole);
  RUN(what_cannot_be_is_refused_by_name);
  RUN(streams_are_those_of_the_device);
  RUN(opaque_pages_are_what_the_caller_says);
  RUN(a_lost_device_says_so);
  FINISH();
}

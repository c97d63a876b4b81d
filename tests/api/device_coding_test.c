/* Coded blocks on a disk, loaded into device memory through the fake CUDA driver. The device's (emulated) kernels
 * decode them to the same bits as the processor, for every mode and element. Damaged blocks are never loaded. A handle
 * without allow_lossy gets no lossy block. */
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include "check.h"
#include "fake_driver.h"

enum { LAYERS = 3, HEADS = 2, DIM = 64, TOKENS = 16, BLOCKS = 10, DEVICE = 1 };
/* Bytes of one layer of all blocks, in the widest element. */
enum { MOST_LAYER_BYTES = 2 * BLOCKS * TOKENS * HEADS * DIM * 4 };

static char scratch[256];
static kvbm_error_t check_error;
#define OK(call) CHECK_STATUS(call, KVBM_OK)

/* Options of a manager. */
typedef struct setup {
  const char *path;
  const char *codec;  /* of the disk */
  const char *recipe; /* of the namespace */
  const char *decode; /* device.decode */
  uint32_t element;
  uint32_t allow_lossy;
} setup_t;

typedef struct side {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *on_host, *on_device;
  kvbm_queue_t *queue;
  unsigned char *host[LAYERS], *device[LAYERS];
  size_t layer_bytes;
} side_t;

static size_t width_of(uint32_t element) {
  return element == KVBM_ELEMENT_FP32 ? 4 : element == KVBM_ELEMENT_BF16 || element == KVBM_ELEMENT_FP16 ? 2 : 1;
}

static kvbm_cache_t *attach(const side_t *w, unsigned char *const *memory, uint32_t kind) {
  kvbm_tensor_t tensors[LAYERS];
  kvbm_cache_part_t part;
  kvbm_cache_options_t layout;
  kvbm_cache_t *cache = NULL;
  size_t l;
  memset(tensors, 0, sizeof tensors);
  memset(&part, 0, sizeof part);
  for (l = 0; l < LAYERS; ++l) tensors[l].data = memory[l], tensors[l].bytes = w->layer_bytes;
  part.form = kind == KVBM_MEMORY_HOST ? KVBM_FORM_NHD : KVBM_FORM_HND; /* rows are regrouped on the way */
  part.tensors = tensors, part.n_tensors = LAYERS;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = BLOCKS, layout.parts = &part, layout.n_parts = 1;
  layout.memory = kind, layout.device = kind == KVBM_MEMORY_HOST ? 0 : DEVICE;
  OK(kvbm_cache_attach(w->manager, w->ns, &layout, &cache, &check_error));
  if (cache == NULL) printf("  %s\n", check_error.message);
  return cache;
}

static int side_open(side_t *w, const setup_t *s) {
  const kvbm_component_t attention = {KVBM_COMPONENT_ATTENTION, s->element, LAYERS, HEADS, DIM, 0, 0, {0, 0}};
  kvbm_setting_t settings[3];
  kvbm_context_options_t context;
  kvbm_manager_options_t options;
  kvbm_namespace_options_t who;
  kvbm_geometry_t *geometry = NULL;
  kvbm_tier_t tier;
  size_t l;
  memset(w, 0, sizeof *w);
  settings[0].key = "device.library", settings[0].value = KVBM_FAKE_DRIVER;
  settings[1].key = "device.decode", settings[1].value = s->decode;
  settings[2].key = "device.lost_after", settings[2].value = "600s"; /* its kernels run on the processor */
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings, context.n_settings = 3;
  OK(kvbm_context_create(&context, &w->context, &check_error));
  w->layer_bytes = (size_t)2 * BLOCKS * TOKENS * HEADS * DIM * width_of(s->element);
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = LAYERS * w->layer_bytes / BLOCKS;
  options.host_capacity_bytes = 8u << 20;
  memset(&tier, 0, sizeof tier);
  tier.path = s->path, tier.capacity_bytes = 64 << 20, tier.codec = s->codec;
  options.tiers = &tier, options.n_tiers = 1;
  OK(kvbm_manager_create(w->context, &options, &w->manager, &check_error));
  OK(kvbm_geometry_create(TOKENS, 1, &attention, 1, &geometry, &check_error));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test", who.geometry = geometry, who.codec = s->recipe, who.allow_lossy = s->allow_lossy;
  OK(kvbm_namespace_open(w->manager, &who, &w->ns, &check_error));
  kvbm_geometry_release(geometry);
  OK(kvbm_queue_create(w->context, 8, &w->queue, &check_error));
  if (w->ns == NULL) return 0;
  for (l = 0; l < LAYERS; ++l) {
    w->host[l] = (unsigned char *)calloc(1, w->layer_bytes);
    w->device[l] = (unsigned char *)(size_t)fake.allocate(DEVICE, w->layer_bytes);
    memset(w->device[l], 0x11, w->layer_bytes);
  }
  w->on_host = attach(w, w->host, KVBM_MEMORY_HOST);
  w->on_device = attach(w, w->device, KVBM_MEMORY_CUDA);
  return w->on_host != NULL && w->on_device != NULL;
}

static void side_close(side_t *w) {
  size_t l;
  kvbm_cache_release(w->on_host);
  kvbm_cache_release(w->on_device);
  kvbm_queue_release(w->queue);
  kvbm_namespace_release(w->ns);
  kvbm_manager_release(w->manager);
  kvbm_context_release(w->context);
  for (l = 0; l < LAYERS; ++l) {
    free(w->host[l]);
    if (w->device[l] != NULL) fake.free_memory((address_t)(size_t)w->device[l]);
  }
}

/* Element e of block b in the order [token][head][dim] of the host's cache; the device's has heads before tokens. */
static unsigned char *element_of(const side_t *w, int on_device, size_t width, size_t layer, size_t plane, size_t block,
                                 size_t token, size_t head, size_t dim) {
  unsigned char *base = (on_device ? w->device : w->host)[layer];
  const size_t inner = on_device ? (head * TOKENS + token) * DIM + dim : (token * HEADS + head) * DIM + dim;
  return base + ((plane * BLOCKS + block) * TOKENS * HEADS * DIM + inner) * width;
}

/* Copies a block into one order of bytes, from the host or a device. */
static size_t block_bytes(const side_t *w, int on_device, size_t width, size_t block, unsigned char *out) {
  size_t n = 0, l, p, t, h;
  for (l = 0; l < LAYERS; ++l) {
    for (p = 0; p < 2; ++p) {
      for (t = 0; t < TOKENS; ++t) {
        for (h = 0; h < HEADS; ++h, n += DIM * width) {
          memcpy(out + n, element_of(w, on_device, width, l, p, block, t, h, 0), DIM * width);
        }
      }
    }
  }
  return n;
}

/* Writes numbers like those of a cache: any signs and low bits, few exponents. */
static void fill(side_t *w, uint32_t element) {
  const size_t width = width_of(element);
  uint32_t state = 12345 + element;
  size_t l, i;
  for (l = 0; l < LAYERS; ++l) {
    for (i = 0; i < w->layer_bytes; i += width) {
      uint32_t v, wide;
      state = state * 1664525u + 1013904223u;
      wide = state;
      v = (state >> 8 & 0x807F) | (0x7Cu + (state >> 28) % 4) << 7; /* bf16 */
      if (width == 4) v = v << 16 | (wide & 0xFFFF);
      if (element == KVBM_ELEMENT_FP16) v = (state >> 8 & 0x83FF) | (0xCu + (state >> 28) % 4) << 10;
      if (width == 1) v = (state >> 8 & 0x87) | (0x6u + (state >> 28) % 2) << 3;
      memcpy(w->host[l] + i, &v, width);
    }
  }
}

static void keys_of(side_t *w, kvbm_key_t *keys) {
  uint32_t tokens[BLOCKS * TOKENS];
  size_t i, made = 0;
  for (i = 0; i < BLOCKS * TOKENS; ++i) tokens[i] = (uint32_t)i * 3 + 1;
  OK(kvbm_key_chain(w->ns, NULL, tokens, BLOCKS * TOKENS, TOKENS, NULL, keys, BLOCKS, &made));
  CHECK_U64(made, BLOCKS);
}

static void store_all(const setup_t *s) {
  side_t w;
  kvbm_key_t keys[BLOCKS];
  uint32_t ids[BLOCKS], i;
  if (!side_open(&w, s)) return;
  fill(&w, s->element);
  keys_of(&w, keys);
  for (i = 0; i < BLOCKS; ++i) ids[i] = i;
  OK(kvbm_cache_store(w.on_host, keys, ids, BLOCKS, NULL, NULL, 0));
  OK(kvbm_manager_flush(w.manager, 60000000000ULL));
  side_close(&w);
}

/* Loads whatever hits into blocks 0 on; layer by layer on a stream if `layers`. Returns the hits; statuses as given. */
static size_t load_all(side_t *w, kvbm_cache_t *cache, int layers, int keep_below, kvbm_status_t *status) {
  kvbm_key_t keys[BLOCKS];
  kvbm_match_t *match = NULL;
  kvbm_load_options_t options;
  kvbm_completion_t done;
  uint32_t ids[BLOCKS], i;
  uint64_t operation = 0;
  size_t hits = 0;
  keys_of(w, keys);
  for (i = 0; i < BLOCKS; ++i) ids[i] = i, status[i] = KVBM_ERR_INTERNAL;
  OK(kvbm_cache_lookup(cache, keys, BLOCKS, NULL, &match, &hits));
  kvbm_load_options_init(&options, sizeof options);
  options.item_status = status;
  options.keep_below = (uint32_t)keep_below;
  if (layers) {
    options.stream = fake.make_stream(DEVICE), options.has_stream = 1;
    options.wait_layers = 1, options.out_operation = &operation;
  }
  if (hits != 0 && !layers) (void)kvbm_cache_load(cache, match, ids, hits, &options, NULL, 0);
  if (hits != 0 && layers) {
    OK(kvbm_cache_load(cache, match, ids, hits, &options, w->queue, 1));
    for (i = 0; i < LAYERS; ++i) OK(kvbm_cache_wait_layer(cache, operation, i, options.stream));
    fake.synchronize(options.stream); /* from here on the engine reads */
    CHECK(kvbm_queue_wait(w->queue, &done, 1, KVBM_FOREVER) == 1);
  }
  kvbm_match_release(match);
  return hits;
}

static uint64_t metric(side_t *w, const char *row) {
  static char text[256 << 10];
  const char *at;
  size_t needed = 0;
  OK(kvbm_manager_metrics(w->manager, text, sizeof text, &needed));
  CHECK(needed < sizeof text);
  at = strstr(text, row);
  return at == NULL ? 0 : strtoull(at + strlen(row), NULL, 10);
}
#define DECODED "kvbm_device_decoded_leaves_total{device=\"1\",way=\"scatter\"} "

static unsigned char expected[BLOCKS][LAYERS * MOST_LAYER_BYTES / BLOCKS], found[LAYERS * MOST_LAYER_BYTES / BLOCKS];

/* Stores in `expected` how the processor decodes the blocks on the disk. */
static void expect_what_the_host_reads(const setup_t *s) {
  side_t w;
  kvbm_status_t status[BLOCKS];
  size_t i;
  if (!side_open(&w, s)) return;
  CHECK_U64(load_all(&w, w.on_host, 0, 0, status), BLOCKS);
  for (i = 0; i < BLOCKS; ++i) {
    CHECK_STATUS(status[i], KVBM_OK);
    (void)block_bytes(&w, 0, width_of(s->element), i, expected[i]);
  }
  CHECK_U64(metric(&w, DECODED), 0);
  side_close(&w);
}

/* Expects that every way of loading gives these bits. */
static uint64_t expect_the_same_on_the_device(const setup_t *s, int layers, int keep_below) {
  side_t w;
  kvbm_status_t status[BLOCKS];
  uint64_t decoded = 0;
  size_t i;
  if (!side_open(&w, s)) return 0;
  CHECK_U64(load_all(&w, w.on_device, layers, keep_below, status), BLOCKS);
  for (i = 0; i < BLOCKS; ++i) {
    const size_t n = block_bytes(&w, 1, width_of(s->element), i, found);
    CHECK_STATUS(status[i], KVBM_OK);
    CHECK(memcmp(found, expected[i], n) == 0);
  }
  CHECK_U64(metric(&w, "kvbm_device_bad_leaves_total{device=\"1\",way=\"scatter\"} "), 0);
  decoded = metric(&w, DECODED);
  side_close(&w);
  return decoded;
}

static const char *fresh_path(void) {
  static char path[320];
  static unsigned n;
  snprintf(path, sizeof path, "%s/tier%u", scratch, n++);
  return path;
}

enum { LEAVES = BLOCKS * LAYERS * 2 };

static void lossless_blocks_of_every_element_and_mode(void) {
  static const uint32_t elements[] = {KVBM_ELEMENT_BF16, KVBM_ELEMENT_FP16, KVBM_ELEMENT_FP32, KVBM_ELEMENT_FP8_E4M3,
                                      KVBM_ELEMENT_FP8_E5M2};
  static const char *const codecs[] = {"off", "fast", "default", "max", "zstd", "auto"};
  size_t e, c;
  for (e = 0; e < sizeof elements / sizeof *elements; ++e) {
    for (c = 0; c < sizeof codecs / sizeof *codecs; ++c) {
      setup_t s = {fresh_path(), codecs[c], NULL, "true", elements[e], 0};
      const int planar = c >= 1 && c <= 3;
      uint64_t decoded;
      store_all(&s);
      expect_what_the_host_reads(&s);
      decoded = expect_the_same_on_the_device(&s, 0, 0);
      if (planar && elements[e] == KVBM_ELEMENT_BF16) CHECK_U64(decoded, LEAVES);
      if (strcmp(codecs[c], "off") == 0 || strcmp(codecs[c], "zstd") == 0) CHECK_U64(decoded, 0);
      if (planar) (void)expect_the_same_on_the_device(&s, 1, (int)(e % 2));
      s.decode = "false";
      if (c == 2) CHECK_U64(expect_the_same_on_the_device(&s, 0, 0), 0);
    }
  }
}

static void lossy_blocks_where_they_are_allowed(void) {
  static const char *const recipes[] = {"fp8_e4m3", "fp8_e5m2", "int8", "int6", "int4",
                                        "k:0=int8,v:0=int6,default"};
  static const uint32_t elements[] = {KVBM_ELEMENT_BF16, KVBM_ELEMENT_FP16, KVBM_ELEMENT_FP32};
  size_t r, e;
  for (r = 0; r < sizeof recipes / sizeof *recipes; ++r) {
    for (e = 0; e < sizeof elements / sizeof *elements; ++e) {
      setup_t s = {fresh_path(), "default", recipes[r], "true", elements[e], 1};
      side_t w;
      kvbm_status_t status[BLOCKS];
      store_all(&s);
      expect_what_the_host_reads(&s);
      CHECK(expect_the_same_on_the_device(&s, (int)(r % 2), 0) != 0);
      s.allow_lossy = 0, s.recipe = NULL; /* another reader */
      if (!side_open(&w, &s)) return;
      (void)load_all(&w, w.on_device, 0, 0, status);
      CHECK(status[0] != KVBM_OK);
      CHECK_U64(w.device[0][0], 0x11);
      CHECK_U64(metric(&w, DECODED), 0);
      side_close(&w);
    }
  }
}

/* In one record K must be decoded by the processor, and V by the device. */
static void a_record_that_is_only_partly_for_the_device(void) {
  setup_t s = {fresh_path(), "default", "k=int8_coded,default", "true", KVBM_ELEMENT_BF16, 1};
  int layers;
  store_all(&s);
  expect_what_the_host_reads(&s);
  for (layers = 0; layers < 2; ++layers) CHECK_U64(expect_the_same_on_the_device(&s, layers, layers), LEAVES / 2);
}

static void sealed_records_are_opened_and_decoded_on_the_device(void) {
  static const char *const recipes[] = {NULL, "int8", "k=int8_coded,default", "k=off,v=default", "zstd"};
  char keys[320];
  FILE *file;
  size_t r;
  snprintf(keys, sizeof keys, "%s/keys", scratch);
  file = fopen(keys, "w");
  fputs("1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", file);
  fclose(file);
  chmod(keys, 0600);
  setenv("KVBM_SEAL_KEY_FILE", keys, 1);
  for (r = 0; r < sizeof recipes / sizeof *recipes; ++r) {
    setup_t s = {fresh_path(), "default", recipes[r], "true", KVBM_ELEMENT_BF16, 1};
    uint64_t decoded;
    store_all(&s);
    expect_what_the_host_reads(&s);
    decoded = expect_the_same_on_the_device(&s, (int)(r % 2), 0);
    CHECK_U64(decoded, r < 2 ? LEAVES : r < 4 ? LEAVES / 2 : 0);
  }
  unsetenv("KVBM_SEAL_KEY_FILE");
}

/* Flips a bit in every page of `path` that holds anything, `phase` bytes into it. */
static void damage_files(const char *path, size_t phase) {
  DIR *directory = opendir(path);
  struct dirent *entry;
  char name[640];
  static unsigned char page[4096];
  CHECK(directory != NULL);
  while (directory != NULL && (entry = readdir(directory)) != NULL) {
    struct stat about;
    off_t at;
    int fd;
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (stat(name, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < (1 << 20)) continue;
    fd = open(name, O_RDWR);
    for (at = 0; at + (off_t)sizeof page <= about.st_size; at += (off_t)sizeof page) {
      if (pread(fd, page, sizeof page, at) != (ssize_t)sizeof page) break;
      /* The index of records stays intact: only payloads are damaged. */
      if (page[phase] == 0 || memcmp(page, "KVB", 3) == 0) continue;
      page[phase] ^= (unsigned char)(1u << phase % 8);
      CHECK(pwrite(fd, page + phase, 1, at + (off_t)phase) == 1);
    }
    close(fd);
  }
  if (directory != NULL) closedir(directory);
}

static void what_is_damaged_reaches_no_engine(void) {
  static const char *const recipes[] = {NULL, "int8", "k=int8_coded,default"};
  static const size_t phases[] = {1, 3, 25, 33, 100, 700, 2047, 4000};
  size_t r, p, i, at, refused = 0;
  uint64_t bad = 0;
  for (r = 0; r < 3; ++r) {
    for (p = 0; p < sizeof phases / sizeof *phases; ++p) {
      setup_t s = {fresh_path(), "default", recipes[r], "true", KVBM_ELEMENT_BF16, 1};
      side_t w;
      kvbm_status_t status[BLOCKS];
      store_all(&s);
      expect_what_the_host_reads(&s);
      damage_files(s.path, phases[p]);
      if (!side_open(&w, &s)) return;
      (void)load_all(&w, w.on_device, (int)(p % 2), (int)(p / 2 % 2), status);
      for (i = 0; i < BLOCKS; ++i) {
        const size_t n = block_bytes(&w, 1, 2, i, found);
        refused += status[i] != KVBM_OK;
        /* Each leaf is right, 0xFF, or unchanged. Of a loaded block all leaves are right. */
        for (at = 0; at < n; at += n / (LAYERS * 2)) {
          const size_t leaf = n / (LAYERS * 2);
          const int right = memcmp(found + at, expected[i] + at, leaf) == 0;
          const int poison = found[at] == 0xFF && memcmp(found + at, found + at + 1, leaf - 1) == 0;
          const int before = found[at] == 0x11 && memcmp(found + at, found + at + 1, leaf - 1) == 0;
          CHECK(right || (status[i] != KVBM_OK && (poison || before)));
        }
      }
      bad += metric(&w, "kvbm_device_bad_leaves_total{device=\"1\",way=\"scatter\"} ");
      side_close(&w);
    }
  }
  CHECK(refused != 0);
  CHECK(bad != 0);
}

/* Later loads find in the host what the first one left to be decoded there, or in the tier below: never nothing. */
static void blocks_come_to_the_host_behind_the_load(void) {
  setup_t s = {fresh_path(), "default", NULL, "true", KVBM_ELEMENT_BF16, 0};
  side_t w;
  kvbm_status_t status[BLOCKS];
  uint64_t late = 0;
  size_t i;
  int turn;
  store_all(&s);
  expect_what_the_host_reads(&s);
  if (!side_open(&w, &s)) return;
  for (turn = 0; turn < 40 && late < BLOCKS; ++turn) {
    CHECK_U64(load_all(&w, turn % 2 == 0 ? w.on_device : w.on_host, 0, 0, status), BLOCKS);
    for (i = 0; i < BLOCKS; ++i) {
      const size_t n = block_bytes(&w, turn % 2 == 0, 2, i, found);
      CHECK_STATUS(status[i], KVBM_OK);
      CHECK(memcmp(found, expected[i], n) == 0);
    }
    late = metric(&w, "\nkvbm_device_decoded_late_total ") + metric(&w, "\nkvbm_device_left_below_total ");
  }
  CHECK(late != 0);
  side_close(&w);
}

int main(void) {
  if (check_directory(scratch) == NULL || !fake_open() || !fake.apply("devices=2")) return 1;
  RUN(lossless_blocks_of_every_element_and_mode);
  RUN(lossy_blocks_where_they_are_allowed);
  RUN(a_record_that_is_only_partly_for_the_device);
  RUN(sealed_records_are_opened_and_decoded_on_the_device);
  RUN(what_is_damaged_reaches_no_engine);
  RUN(blocks_come_to_the_host_behind_the_load);
  check_remove(scratch);
  FINISH();
}

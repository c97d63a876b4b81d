/* Attached caches in device memory, through the fake of the CUDA driver as a library: what is stored comes back, in the
 * order of streams and layer by layer, what does not fit is refused in words, and a lost device is not the end. */
#include <fcntl.h>

#include "engine.h"
#include "fake_driver.h"

static char last_log[512];
static void keep_log(void *user, int32_t level, const char *component, const char *text) {
  (void)user, (void)level, (void)component;
  snprintf(last_log, sizeof last_log, "%s", text);
}

enum { LAYERS = 3, PAGE = 4096, BLOCKS = 32, DEVICE = 1 };

/* An engine with a tensor per layer on a device: opaque pages, so that a layer is a tensor. */
typedef struct device_engine {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  kvbm_queue_t *queue;
  unsigned char *tensor[LAYERS];
} device_engine_t;

static kvbm_status_t attach(device_engine_t *e, unsigned char *const *memory, uint64_t bytes, uint32_t kind,
                            uint32_t device, kvbm_cache_t **out) {
  kvbm_tensor_t tensors[LAYERS];
  kvbm_cache_part_t part;
  kvbm_cache_options_t options;
  size_t i;
  memset(&part, 0, sizeof part);
  for (i = 0; i < LAYERS; ++i) {
    tensors[i].data = memory[i];
    tensors[i].bytes = bytes;
    tensors[i].block_stride = 0;
    tensors[i].page_bytes = PAGE;
  }
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = tensors;
  part.n_tensors = LAYERS;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = BLOCKS;
  options.parts = &part;
  options.n_parts = 1;
  options.memory = kind;
  options.device = device;
  memset(&check_error, 0, sizeof check_error);
  return kvbm_cache_attach(e->manager, e->ns, &options, out, &check_error);
}

/* `disk`: the directory of a disk tier; its blocks bypass the host; NULL: none. */
static kvbm_status_t open_manager_with(device_engine_t *e, const char *cuda, const char *library, const char *disk,
                                       uint64_t host_bytes) {
  kvbm_context_options_t options;
  kvbm_manager_options_t manager;
  kvbm_namespace_options_t who;
  kvbm_setting_t settings[5];
  kvbm_tier_t tier;
  kvbm_status_t status;
  memset(e, 0, sizeof *e);
  settings[0].key = "device.cuda", settings[0].value = cuda;
  settings[1].key = "device.library", settings[1].value = library;
  settings[2].key = "device.lost_after", settings[2].value = "600s"; /* its kernels run on the processor */
  settings[3].key = "device.storage", settings[3].value = disk != NULL ? "auto" : "off";
  settings[4].key = "device.storage_library", settings[4].value = KVBM_FAKE_CUFILE;
  kvbm_context_options_init(&options, sizeof options);
  options.settings = settings;
  options.n_settings = 5;
  options.log = keep_log;
  options.log_level = KVBM_LOG_WARNING;
  status = kvbm_context_create(&options, &e->context, &check_error);
  if (status != KVBM_OK) return status;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = LAYERS * PAGE;
  manager.host_capacity_bytes = host_bytes;
  memset(&tier, 0, sizeof tier);
  tier.path = disk;
  tier.capacity_bytes = 64u << 20;
  if (disk != NULL) manager.tiers = &tier, manager.n_tiers = 1;
  status = kvbm_manager_create(e->context, &manager, &e->manager, &check_error);
  if (status != KVBM_OK) return status;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "test";
  OK(kvbm_namespace_open(e->manager, &who, &e->ns, &check_error));
  OK(kvbm_queue_create(e->context, 8, &e->queue, &check_error));
  return KVBM_OK;
}

static kvbm_status_t open_manager(device_engine_t *e, const char *cuda, const char *library) {
  return open_manager_with(e, cuda, library, NULL, 2u << 20);
}

static int open_engine(device_engine_t *e) {
  size_t i;
  OK(open_manager(e, "auto", KVBM_FAKE_DRIVER));
  for (i = 0; i < LAYERS; ++i) e->tensor[i] = (unsigned char *)(size_t)fake.allocate(DEVICE, (size_t)BLOCKS * PAGE);
  OK(attach(e, e->tensor, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, DEVICE, &e->cache));
  if (e->cache == NULL) printf("  %s\n", check_error.message);
  return e->cache != NULL;
}

static void close_engine(device_engine_t *e) {
  size_t i;
  kvbm_cache_release(e->cache);
  kvbm_queue_release(e->queue);
  kvbm_namespace_release(e->ns);
  kvbm_manager_release(e->manager);
  kvbm_context_release(e->context);
  for (i = 0; i < LAYERS; ++i) {
    if (e->tensor[i] != NULL) fake.free_memory((address_t)(size_t)e->tensor[i]);
  }
}

static void chain(device_engine_t *e, uint32_t first, size_t n, kvbm_key_t *keys) {
  uint32_t tokens[BLOCKS * 4];
  size_t i, made;
  for (i = 0; i < n * 4; ++i) tokens[i] = first + (uint32_t)i;
  OK(kvbm_key_chain(e->ns, NULL, tokens, n * 4, 4, NULL, keys, n, &made));
  CHECK(made == n);
}

static unsigned char value_of(size_t layer, size_t block) { return (unsigned char)(1 + layer * 60 + block); }

static void fill_block(device_engine_t *e, size_t id, size_t as) {
  size_t layer;
  for (layer = 0; layer < LAYERS; ++layer) memset(e->tensor[layer] + id * PAGE, value_of(layer, as), PAGE);
}

static int block_is(device_engine_t *e, size_t id, size_t as) {
  size_t layer, i;
  for (layer = 0; layer < LAYERS; ++layer) {
    for (i = 0; i < PAGE; ++i) {
      if (e->tensor[layer][id * PAGE + i] != value_of(layer, as)) return 0;
    }
  }
  return 1;
}

static void store_some(device_engine_t *e, uint32_t first, size_t n) {
  kvbm_key_t keys[BLOCKS];
  uint32_t ids[BLOCKS];
  size_t i;
  chain(e, first, n, keys);
  for (i = 0; i < n; ++i) fill_block(e, i, i), ids[i] = (uint32_t)i;
  OK(kvbm_cache_store(e->cache, keys, ids, n, NULL, NULL, 0));
}

static void what_is_stored_comes_back(void) {
  device_engine_t e;
  kvbm_key_t keys[8];
  kvbm_match_t *match = NULL;
  kvbm_device_row_t row, rows[2];
  uint32_t ids[8];
  size_t hits = 0, i, n = 9;
  if (!open_engine(&e)) return;
  store_some(&e, 1, 8);
  chain(&e, 1, 8, keys);
  OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
  CHECK_U64(hits, 8);
  for (i = 0; i < 8; ++i) ids[i] = 20 + (uint32_t)i, fill_block(&e, ids[i], 40);
  OK(kvbm_cache_load(e.cache, match, ids, hits, NULL, NULL, 0));
  for (i = 0; i < 8; ++i) CHECK(block_is(&e, 20 + i, i));
  CHECK(block_is(&e, 3, 3));
  kvbm_match_release(match);
  OK(kvbm_manager_devices(e.manager, NULL, 0, &n));
  CHECK_U64(n, 1);
  OK(kvbm_manager_devices(e.manager, rows, 2, &n));
  row = rows[0];
  CHECK_U64(row.ordinal, DEVICE);
  CHECK(row.lost == 0 && strcmp(row.state, "ready") == 0 && strstr(row.name, "fake") != NULL && row.pci[0] != '\0');
  CHECK(row.pinned_bytes != 0 && row.memory_bytes != 0);
  CHECK_U64(row.gathers.bytes, 8 * LAYERS * PAGE);
  CHECK_U64(row.scatters.leaves, 8 * LAYERS);
  CHECK_U64(row.scatters.bad_leaves, 0);
  CHECK_STATUS(kvbm_manager_devices(NULL, rows, 2, &n), KVBM_ERR_INVALID);
  close_engine(&e);
}

static void load_by_layers(uint32_t how) {
  device_engine_t e;
  kvbm_key_t keys[8];
  kvbm_match_t *match = NULL;
  kvbm_load_options_t options;
  kvbm_status_t status[8];
  kvbm_completion_t done;
  void *stream = fake.make_stream(DEVICE);
  void *other = fake.make_stream(0);
  uint64_t operation = 0;
  uint32_t ids[8], layer;
  size_t hits = 0, i;
  if (!open_engine(&e)) return;
  store_some(&e, 1, 8);
  chain(&e, 1, 8, keys);
  OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
  for (i = 0; i < 8; ++i) ids[i] = 20 + (uint32_t)i;
  kvbm_load_options_init(&options, sizeof options);
  options.item_status = status;
  options.stream = stream;
  options.has_stream = 1;
  options.wait_layers = how;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5), KVBM_ERR_INVALID); /* no out_operation */
  options.out_operation = &operation;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, NULL, 5), KVBM_ERR_INVALID); /* no queue */
  OK(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5));
  for (layer = 0; layer < LAYERS; ++layer) OK(kvbm_cache_wait_layer(e.cache, operation, layer, stream));
  CHECK_STATUS(kvbm_cache_wait_layer(e.cache, operation, LAYERS, stream), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_cache_wait_layer(e.cache, operation + 1, 0, stream), KVBM_ERR_STALE);
  CHECK_STATUS(kvbm_cache_wait_layer(NULL, operation, 0, stream), KVBM_ERR_INVALID);
  fake.synchronize(stream);
  for (i = 0; i < 8; ++i) CHECK(block_is(&e, 20 + i, i)); /* before the completion was polled */
  CHECK(kvbm_queue_wait(e.queue, &done, 1, KVBM_FOREVER) == 1);
  CHECK(done.operation == operation && done.status == KVBM_OK && done.items_done == 8);
  for (i = 0; i < 8; ++i) CHECK(status[i] == KVBM_OK);
  OK(kvbm_cache_wait_layer(e.cache, operation, 0, stream)); /* over */
  options.stream = other;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "another device") != NULL);
  options.stream = stream;
  options.has_stream = 0;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5), KVBM_ERR_INVALID);
  kvbm_match_release(match);
  close_engine(&e);
}

static void a_load_is_waited_for_layer_by_layer_on_a_stream(void) {
  load_by_layers(KVBM_WAIT_LAYERS_ON_DEVICE);
  load_by_layers(KVBM_WAIT_LAYERS_ISSUED);
}

/* A load is refused with words before anything of it began, if streams shall wait for its layers on the device. With waits
 * for events, and without waits, it works. */
static void waits_are_refused(const char *says) {
  device_engine_t e;
  kvbm_key_t keys[4];
  kvbm_match_t *match = NULL;
  kvbm_load_options_t options;
  kvbm_device_row_t row;
  kvbm_completion_t done;
  uint64_t operation = 0;
  uint32_t ids[4], layer;
  size_t hits = 0, rows = 0, i;
  if (!open_engine(&e)) return;
  store_some(&e, 1, 4);
  chain(&e, 1, 4, keys);
  OK(kvbm_cache_lookup(e.cache, keys, 4, NULL, &match, &hits));
  for (i = 0; i < 4; ++i) ids[i] = 20 + (uint32_t)i;
  kvbm_load_options_init(&options, sizeof options);
  options.wait_layers = KVBM_WAIT_LAYERS_ON_DEVICE;
  options.out_operation = &operation;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5), KVBM_ERR_UNSUPPORTED);
  CHECK(strstr(last_log, says) != NULL);
  if (strstr(last_log, says) == NULL) printf("  %s\n", last_log);
  OK(kvbm_manager_devices(e.manager, &row, 1, &rows));
  CHECK_U64(row.lost, 0);
  CHECK_U64(row.scatters.batches, 0);
  options.wait_layers = KVBM_WAIT_LAYERS_ISSUED;
  options.stream = fake.make_stream(DEVICE);
  options.has_stream = 1;
  OK(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5));
  for (layer = 0; layer < LAYERS; ++layer) OK(kvbm_cache_wait_layer(e.cache, operation, layer, options.stream));
  fake.synchronize(options.stream);
  for (i = 0; i < 4; ++i) CHECK(block_is(&e, 20 + i, i));
  CHECK(kvbm_queue_wait(e.queue, &done, 1, KVBM_FOREVER) == 1 && done.items_done == 4);
  options.wait_layers = KVBM_WAIT_LAYERS_ISSUED + 1;
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &options, e.queue, 5), KVBM_ERR_UNSUPPORTED);
  for (i = 0; i < 4; ++i) ids[i] = 10 + (uint32_t)i;
  options.wait_layers = KVBM_WAIT_LAYERS_OFF;
  OK(kvbm_cache_load(e.cache, match, ids, hits, &options, NULL, 0));
  for (i = 0; i < 4; ++i) CHECK(block_is(&e, 10 + i, i));
  kvbm_match_release(match);
  close_engine(&e);
}

static void waits_for_layers_are_refused_where_they_could_not_end(void) {
  CHECK(fake.apply("waits=0"));
  waits_are_refused("device 1 or its driver has no 64-bit stream memory operations; load with wait_layers = KVBM_WAIT_LAYERS_ISSUED");
  CHECK(fake.apply("waits=1"));
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  waits_are_refused("CUDA_LAUNCH_BLOCKING is set");
  setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
  a_load_is_waited_for_layer_by_layer_on_a_stream();
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

static void memory_is_found_out_and_what_does_not_fit_is_refused(void) {
  device_engine_t e;
  kvbm_cache_t *cache = NULL;
  unsigned char *memory[LAYERS], *elsewhere[LAYERS], *host[LAYERS];
  kvbm_store_options_t options;
  const uint32_t bad = BLOCKS, good = 0;
  kvbm_key_t key;
  size_t i, n;
  const uint64_t bytes = (uint64_t)BLOCKS * PAGE;
  if (!open_engine(&e)) return;
  for (i = 0; i < LAYERS; ++i) {
    memory[i] = e.tensor[i];
    elsewhere[i] = (unsigned char *)(size_t)fake.allocate(0, (size_t)bytes);
    host[i] = malloc((size_t)bytes);
  }
  OK(attach(&e, memory, bytes, KVBM_MEMORY_AUTO, 0, &cache));
  kvbm_cache_release(cache);
  OK(attach(&e, host, bytes, KVBM_MEMORY_AUTO, 0, &cache));
  chain(&e, 1, 1, &key);
  kvbm_store_options_init(&options, sizeof options);
  options.has_stream = 1;
  CHECK_STATUS(kvbm_cache_store(cache, &key, &good, 1, &options, NULL, 0), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "host memory") != NULL);
  kvbm_cache_release(cache);
  OK(attach(&e, host, bytes, KVBM_MEMORY_HOST, 0, &cache));
  kvbm_cache_release(cache);
  OK(kvbm_manager_devices(e.manager, NULL, 0, &n));
  CHECK_U64(n, 1);
#define REFUSED(memory, bytes, kind, device, status, words)                                \
  do {                                                                                     \
    CHECK_STATUS(attach(&e, memory, bytes, kind, device, &cache), status);                 \
    if (strstr(check_error.message, words) == NULL) {                                      \
      printf("  %d: %s\n", __LINE__, check_error.message);                                 \
      check_case_failed = 1;                                                               \
    }                                                                                      \
  } while (0)
  REFUSED(elsewhere, bytes, KVBM_MEMORY_CUDA, DEVICE, KVBM_ERR_INVALID, "device 0");
  REFUSED(host, bytes, KVBM_MEMORY_CUDA, DEVICE, KVBM_ERR_INVALID, "tensor 0 of part 0");
  REFUSED(memory, bytes, KVBM_MEMORY_HOST, 0, KVBM_ERR_INVALID, "tensor 0 of part 0");
  REFUSED(memory, bytes + PAGE, KVBM_MEMORY_CUDA, DEVICE, KVBM_ERR_INVALID, "4096 bytes before it");
  REFUSED(memory, bytes, KVBM_MEMORY_CUDA, 7, KVBM_ERR_UNSUPPORTED, "7");
  REFUSED(memory, bytes, KVBM_MEMORY_AUTO, 1, KVBM_ERR_INVALID, "KVBM_MEMORY_CUDA");
  REFUSED(memory, bytes, 3, 0, KVBM_ERR_INVALID, "KVBM_MEMORY_");
  memory[1] = elsewhere[1];
  REFUSED(memory, bytes, KVBM_MEMORY_AUTO, 0, KVBM_ERR_INVALID, "tensor 1 of part 0");
  memory[1] = host[1];
  REFUSED(memory, bytes, KVBM_MEMORY_AUTO, 0, KVBM_ERR_INVALID, "tensor 1 of part 0");
  last_log[0] = '\0';
  CHECK_STATUS(kvbm_cache_store(e.cache, &key, &bad, 1, NULL, NULL, 0), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "a block id is out of range: block_ids[0] is 32, the cache has 32 blocks") != NULL);
  kvbm_store_options_init(&options, sizeof options);
  options.priority = KVBM_PRIORITY_KEEP + 1;
  CHECK_STATUS(kvbm_cache_store(e.cache, &key, &good, 1, &options, NULL, 0), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "priority is not") != NULL);
  kvbm_store_options_init(&options, sizeof options);
  options.has_stream = 1;
  options.stream = fake.make_stream(0);
  CHECK_STATUS(kvbm_cache_store(e.cache, &key, &good, 1, &options, NULL, 0), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "the stream belongs to another device than the cache") != NULL);
  kvbm_store_options_init(&options, sizeof options);
  options.reserved2 = 1;
  CHECK_STATUS(kvbm_cache_store(e.cache, &key, &good, 1, &options, NULL, 0), KVBM_ERR_UNSUPPORTED);
  for (i = 0; i < LAYERS; ++i) {
    fake.free_memory((address_t)(size_t)elsewhere[i]);
    free(host[i]);
  }
  close_engine(&e);
}

static void without_a_driver_there_are_words(void) {
  device_engine_t e;
  kvbm_cache_t *cache = NULL;
  unsigned char *memory[LAYERS] = {(unsigned char *)PAGE, (unsigned char *)PAGE, (unsigned char *)PAGE};
  OK(open_manager(&e, "auto", "/nowhere/libcuda.so.1"));
  CHECK_STATUS(attach(&e, memory, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, 0, &cache), KVBM_ERR_UNSUPPORTED);
  CHECK(strstr(check_error.message, "/nowhere/libcuda.so.1") != NULL);
  close_engine(&e);
  OK(open_manager(&e, "off", KVBM_FAKE_DRIVER));
  CHECK_STATUS(attach(&e, memory, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, 0, &cache), KVBM_ERR_UNSUPPORTED);
  CHECK(strstr(check_error.message, "device.cuda is off") != NULL);
  close_engine(&e);
  CHECK_STATUS(open_manager(&e, "on", "/nowhere/libcuda.so.1"), KVBM_ERR_UNSUPPORTED);
  kvbm_context_release(e.context);
  OK(open_manager(&e, "on", KVBM_FAKE_DRIVER));
  close_engine(&e);
}

static int copy_file(const char *from, const char *to) {
  char bytes[65536];
  size_t n;
  int good = 1;
  FILE *in = fopen(from, "rb");
  FILE *out = fopen(to, "wb");
  while (in != NULL && out != NULL && (n = fread(bytes, 1, sizeof bytes, in)) > 0) good = fwrite(bytes, 1, n, out) == n && good;
  good = in != NULL && out != NULL && good;
  if (in != NULL) fclose(in);
  if (out != NULL) good = fclose(out) == 0 && good;
  return good;
}

/* A driver that cannot be used: attaching reports it, and caches in host memory still work. `says`: words of the
 * message. The driver is a copy of the library under a name of its own, because a library is loaded only once. */
static void refused_by(const char *name, const char *settings, const char *says, const char *says_too) {
  char path[512];
  device_engine_t e;
  engine_t host;
  kvbm_cache_t *cache = NULL;
  unsigned char *memory[LAYERS] = {(unsigned char *)PAGE, (unsigned char *)PAGE, (unsigned char *)PAGE};
  const char *tmp = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/kvbm-%ld-%s.so", tmp != NULL ? tmp : "/tmp", (long)getpid(), name);
  if (settings != NULL) CHECK(copy_file(KVBM_FAKE_DRIVER, path));
  OK(open_manager(&e, "auto", path));
  /* The fake reads the variable when it is loaded. It must be removed then, because a context would take it for a
   * setting. */
  if (settings != NULL) setenv("KVBM_FAKE_CUDA", settings, 1);
  CHECK_STATUS(attach(&e, memory, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, 0, &cache), KVBM_ERR_UNSUPPORTED);
  unsetenv("KVBM_FAKE_CUDA");
  CHECK(cache == NULL);
  CHECK(strstr(check_error.message, says) != NULL && strstr(check_error.message, says_too) != NULL);
  if (strstr(check_error.message, says) == NULL || strstr(check_error.message, says_too) == NULL) {
    printf("  %s: %s\n", name, check_error.message);
  }
  /* Caches in host memory can still be attached, in this manager and in others. */
  memory[0] = memory[1] = memory[2] = calloc(BLOCKS, PAGE);
  OK(attach(&e, memory, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_AUTO, 0, &cache));
  kvbm_cache_release(cache);
  OK(engine_open(&host, 48, NULL, 0));
  OK(engine_store(&host, 1, 20));
  CHECK(engine_load(&host, 1, 20) == 20);
  engine_close(&host);
  close_engine(&e);
  free(memory[0]);
  if (settings != NULL) remove(path);
}

static void what_cannot_be_used_is_said_from_both_sides(void) {
  refused_by("absent", NULL, "absent.so", "cannot open");
  refused_by("old", "version=11080", "speaks CUDA 11.8", "kvbm needs 12.0");
  refused_by("none", "devices=0", "CUDA_ERROR_NO_DEVICE", "it sees no device");
  refused_by("older_driver", "image=200,version=12020", "a driver of CUDA 12.2", "this libkvbm has kernels for");
  refused_by("older_device", "image=209,major=7,minor=5", "device 0 is sm_75", "this libkvbm has kernels for");
  /* Without kernels in the driver it takes those of the build, where there are any. */
  refused_by("no_kernels", "brings_kernels=0,image=209", KVBM_BUILD_HAS_KERNELS ? "is sm_90" : "built without its CUDA kernels",
             KVBM_BUILD_HAS_KERNELS ? "this libkvbm has kernels for" : "where nvcc is");
}

/* Returns a metric that has no label but the device's. */
static unsigned long metric(kvbm_manager_t *manager, const char *name) {
  static char text[131072];
  size_t n;
  const char *at;
  OK(kvbm_manager_metrics(manager, text, sizeof text, &n));
  at = strstr(text, name);
  return at != NULL ? strtoul(at + strlen(name), NULL, 10) : 0;
}

static void what_is_on_a_disk_alone_comes_past_the_host(void) {
  char disk[256], probe[300];
  int direct;
  device_engine_t e;
  kvbm_key_t keys[8];
  kvbm_match_t *match = NULL;
  kvbm_load_options_t load;
  uint32_t ids[8];
  size_t hits = 0, i;
  CHECK(check_directory(disk) != NULL);
  snprintf(probe, sizeof probe, "%s/probe", disk);
  direct = open(probe, O_RDWR | O_CREAT | O_DIRECT, 0600);
  if (direct >= 0) close(direct);
  remove(probe);
  OK(open_manager_with(&e, "auto", KVBM_FAKE_DRIVER, disk, 8 * (LAYERS * PAGE + 4096) + 4096));
  for (i = 0; i < LAYERS; ++i) e.tensor[i] = (unsigned char *)(size_t)fake.allocate(DEVICE, (size_t)BLOCKS * PAGE);
  OK(attach(&e, e.tensor, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, DEVICE, &e.cache));
  store_some(&e, 1, 8);
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  store_some(&e, 5000, 8); /* the first ones leave the host */
  OK(kvbm_manager_flush(e.manager, KVBM_FOREVER));
  chain(&e, 1, 8, keys);
  OK(kvbm_cache_lookup(e.cache, keys, 8, NULL, &match, &hits));
  CHECK_U64(hits, 8);
  for (i = 0; i < 8; ++i) ids[i] = 20 + (uint32_t)i, fill_block(&e, ids[i], 40);
  kvbm_load_options_init(&load, sizeof load);
  load.keep_below = 1;
  OK(kvbm_cache_load(e.cache, match, ids, hits, &load, NULL, 0));
  for (i = 0; i < 8; ++i) CHECK(block_is(&e, 20 + i, i));
  /* If the directory has no direct I/O, this path is not used. */
  CHECK((metric(e.manager, "kvbm_device_storage_reads_total{device=\"1\"} ") != 0) == (direct >= 0));
  CHECK(metric(e.manager, "kvbm_device_storage_failed_total{device=\"1\"} ") == 0);
  kvbm_match_release(match);
  close_engine(&e);
  check_remove(disk);
}

static void a_stream_under_capture_is_refused(void) {
  device_engine_t e;
  kvbm_key_t keys[4];
  kvbm_match_t *match = NULL;
  kvbm_store_options_t store;
  kvbm_load_options_t load;
  kvbm_completion_t done;
  void *stream = fake.make_stream(DEVICE);
  uint64_t operation = 0;
  uint32_t ids[4] = {0, 1, 2, 3};
  size_t hits = 0;
  if (!open_engine(&e)) return;
  chain(&e, 1, 4, keys);
  kvbm_store_options_init(&store, sizeof store);
  store.stream = stream;
  store.has_stream = 1;
  fake.capture(stream, 1);
  last_log[0] = '\0';
  CHECK_STATUS(kvbm_cache_store(e.cache, keys, ids, 4, &store, NULL, 0), KVBM_ERR_INVALID);
  CHECK(strstr(last_log, "is being captured into a graph: give kvbm a stream that is not") != NULL);
  fake.capture(stream, 0);
  OK(kvbm_cache_store(e.cache, keys, ids, 4, &store, NULL, 0));
  OK(kvbm_cache_lookup(e.cache, keys, 4, NULL, &match, &hits));
  kvbm_load_options_init(&load, sizeof load);
  load.stream = stream;
  load.has_stream = 1;
  load.wait_layers = 1;
  load.out_operation = &operation;
  fake.capture(stream, 1);
  CHECK_STATUS(kvbm_cache_load(e.cache, match, ids, hits, &load, e.queue, 1), KVBM_ERR_INVALID);
  fake.capture(stream, 0);
  OK(kvbm_cache_load(e.cache, match, ids, hits, &load, e.queue, 1));
  CHECK(kvbm_queue_wait(e.queue, &done, 1, KVBM_FOREVER) == 1 && done.status == KVBM_OK);
  fake.capture(stream, 1);
  CHECK_STATUS(kvbm_cache_wait_layer(e.cache, operation, 0, stream), KVBM_ERR_INVALID); /* a load that has ended too */
  fake.capture(stream, 0);
  OK(kvbm_cache_wait_layer(e.cache, operation, 0, stream));
  kvbm_match_release(match);
  close_engine(&e);
}

/* The last of all: the device stays lost. */
static void a_lost_device_ends_its_operations_alone(void) {
  device_engine_t e;
  engine_t host;
  kvbm_key_t keys[4];
  kvbm_status_t status[4] = {1, 1, 1, 1};
  kvbm_store_options_t options;
  kvbm_completion_t done;
  kvbm_device_row_t row;
  uint32_t ids[4] = {0, 1, 2, 3};
  size_t i, n;
  char metrics[65536];
  if (!open_engine(&e)) return;
  chain(&e, 1, 4, keys);
  CHECK(fake.apply("hold=1"));
  kvbm_store_options_init(&options, sizeof options);
  options.item_status = status;
  OK(kvbm_cache_store(e.cache, keys, ids, 4, &options, e.queue, 9));
  CHECK(fake.apply("lose=1:719"));
  CHECK(fake.apply("hold=0"));
  CHECK(kvbm_queue_wait(e.queue, &done, 1, KVBM_FOREVER) == 1);
  CHECK_STATUS(done.status, KVBM_ERR_TIER_DISABLED);
  for (i = 0; i < 4; ++i) CHECK(status[i] == KVBM_ERR_TIER_DISABLED);
  CHECK_STATUS(kvbm_cache_store(e.cache, keys, ids, 4, NULL, NULL, 0), KVBM_ERR_TIER_DISABLED);
  CHECK_STATUS(attach(&e, e.tensor, (uint64_t)BLOCKS * PAGE, KVBM_MEMORY_CUDA, DEVICE, &host.cache),
               KVBM_ERR_TIER_DISABLED);
  OK(kvbm_manager_devices(e.manager, &row, 1, &n));
  CHECK(n == 1 && row.lost == 1 && strstr(row.state, "lost: ") == row.state);
  CHECK(strstr(row.state, "CUDA_ERROR_LAUNCH_FAILED (719)") != NULL);
  OK(kvbm_manager_metrics(e.manager, metrics, sizeof metrics, &n));
  CHECK(strstr(metrics, "kvbm_device_lost{device=\"1\"} 1") != NULL);
  OK(engine_open(&host, 48, NULL, 0));
  OK(engine_store(&host, 1, 20));
  CHECK(engine_load(&host, 1, 20) == 20);
  engine_close(&host);
  close_engine(&e);
}

int main(void) {
  if (!fake_open() || !fake.apply("devices=2")) return 1;
  RUN(without_a_driver_there_are_words);
  RUN(what_cannot_be_used_is_said_from_both_sides);
  RUN(what_is_stored_comes_back);
  RUN(a_stream_under_capture_is_refused);
  RUN(what_is_on_a_disk_alone_comes_past_the_host);
  RUN(a_load_is_waited_for_layer_by_layer_on_a_stream);
  RUN(waits_for_layers_are_refused_where_they_could_not_end);
  RUN(memory_is_found_out_and_what_does_not_fit_is_refused);
  RUN(a_lost_device_ends_its_operations_alone);
  FINISH();
}

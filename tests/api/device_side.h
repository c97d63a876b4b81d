/* One side of a session with a cache on a device of the fake driver, or in host memory, and its engine. */
#ifndef KVBM_TESTS_DEVICE_SIDE_H
#define KVBM_TESTS_DEVICE_SIDE_H

#include <stdlib.h>

#include "check.h"
#include "fake_driver.h"

#ifndef SIDE_DIM
#define SIDE_DIM 8 /* of a head; others may be chosen before this is included */
#endif

enum { LAYERS = 4, HEADS = 2, DIM = SIDE_DIM, TOKENS = 64, HOST = -1 };
enum { LAYER_VALUES = 2 * TOKENS * HEADS * DIM };
#define SECOND_NS 1000000000ull
#define OPEN_FAILED             \
  do {                          \
    CHECK(!"the sides opened"); \
    return;                     \
  } while (0)

/* One side: its paged cache is [K,V][block][...] for each layer, with blocks of its own size and order. */
typedef struct side {
  kvbm_context_t* context;
  kvbm_manager_t* manager;
  kvbm_namespace_t* ns;
  kvbm_cache_t* cache;
  int where; /* a device, or HOST */
  uint32_t block_tokens;
  uint32_t form;
  uint16_t* kv[LAYERS];
  uint32_t blocks[TOKENS];
} side_t;

static uint16_t host_memory[2][LAYERS][LAYER_VALUES];

/* `ipc`: value of the option device.ipc. */
static int side_open(side_t* s, int where, const char* option, const char* address, const char* ipc,
                     uint32_t block_tokens, uint32_t form) {
  const kvbm_setting_t settings[5] = {
      {option, address},
      {"device.library", KVBM_FAKE_DRIVER},
      {"device.lost_after", "600s"}, /* its kernels run on the processor */
      {"device.ipc", ipc},
      {"host.capacity", "4MiB"}}; /* no block lies there, and a node's is faulted in whole */
  const kvbm_component_t attention = {KVBM_COMPONENT_ATTENTION, KVBM_ELEMENT_BF16, LAYERS, HEADS, DIM, 0, 0, {0, 0}};
  kvbm_context_options_t context;
  kvbm_namespace_options_t who;
  kvbm_cache_options_t layout;
  kvbm_geometry_t* geometry = NULL;
  kvbm_tensor_t tensors[LAYERS];
  kvbm_cache_part_t part;
  kvbm_error_t err;
  uint32_t l, b;
  memset(s, 0, sizeof *s);
  s->where = where, s->block_tokens = block_tokens, s->form = form;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings, context.n_settings = 5;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "my-model, bf16";
  memset(&part, 0, sizeof part);
  part.form = form, part.tensors = tensors, part.n_tensors = LAYERS;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = TOKENS / block_tokens, layout.parts = &part, layout.n_parts = 1;
  layout.memory = where == HOST ? KVBM_MEMORY_HOST : KVBM_MEMORY_CUDA;
  layout.device = where == HOST ? 0 : (uint32_t)where;
  memset(tensors, 0, sizeof tensors);
  for (l = 0; l < LAYERS; ++l) {
    s->kv[l] = where == HOST ? host_memory[strcmp(option, "node.peers") == 0][l]
                             : (uint16_t*)(size_t)fake.allocate(where, LAYER_VALUES * 2);
    memset(s->kv[l], 0, LAYER_VALUES * 2);
    tensors[l].data = s->kv[l], tensors[l].bytes = LAYER_VALUES * 2;
  }
  for (b = 0; b < layout.n_blocks; ++b) s->blocks[b] = layout.n_blocks - 1 - b;
  if (kvbm_context_create(&context, &s->context, &err) < 0 ||
      kvbm_manager_create(s->context, NULL, &s->manager, &err) < 0 ||
      kvbm_geometry_create(block_tokens, 1, &attention, 1, &geometry, &err) < 0 || (who.geometry = geometry) == NULL ||
      kvbm_namespace_open(s->manager, &who, &s->ns, &err) < 0 ||
      kvbm_cache_attach(s->manager, s->ns, &layout, &s->cache, &err) < 0) {
    printf("  %s: %s\n", kvbm_status_name(err.status), err.message);
    return 0;
  }
  kvbm_geometry_release(geometry);
  return 1;
}

static void side_close(side_t* s) {
  uint32_t l;
  kvbm_cache_release(s->cache);
  kvbm_namespace_release(s->ns);
  kvbm_manager_release(s->manager);
  kvbm_context_release(s->context);
  for (l = 0; l < LAYERS && s->where != HOST; ++l) fake.free_memory((address_t)(size_t)s->kv[l]);
}

/* Returns the place of one value of a layer in a side's cache. */
static size_t place(const side_t* s, uint32_t plane, uint32_t head, uint32_t token, uint32_t element) {
  const uint32_t n = TOKENS / s->block_tokens;
  const size_t block = (size_t)plane * n + s->blocks[token / s->block_tokens];
  const uint32_t t = token % s->block_tokens;
  if (s->form == KVBM_FORM_NHD) return ((block * s->block_tokens + t) * HEADS + head) * DIM + element;
  return ((block * HEADS + head) * s->block_tokens + t) * DIM + element;
}

static uint16_t value(uint32_t layer, uint32_t plane, uint32_t head, uint32_t token, uint32_t element) {
  return (uint16_t)(1 + (((layer * 2 + plane) * HEADS + head) * TOKENS + token) * DIM + element);
}

static void fill(const side_t* s, uint32_t layer, uint16_t* out) {
  uint32_t p, h, t, e;
  for (p = 0; p < 2; ++p)
    for (h = 0; h < HEADS; ++h)
      for (t = 0; t < TOKENS; ++t)
        for (e = 0; e < DIM; ++e) out[place(s, p, h, t, e)] = value(layer, p, h, t, e);
}

static uint64_t wrong(const side_t* s, uint32_t layer) {
  uint32_t p, h, t, e;
  uint64_t n = 0;
  for (p = 0; p < 2; ++p)
    for (h = 0; h < HEADS; ++h)
      for (t = 0; t < TOKENS; ++t)
        for (e = 0; e < DIM; ++e) n += s->kv[layer][place(s, p, h, t, e)] != value(layer, p, h, t, e);
  return n;
}

/* Returns a metric with both labels; ~0 if there is none. */
static uint64_t metric(const side_t* s, const char* name, const char* label, const char* other) {
  static char text[1 << 17];
  size_t needed = 0;
  char *line, *rest = text;
  kvbm_manager_metrics(s->manager, text, sizeof text, &needed);
  while ((line = strsep(&rest, "\n")) != NULL) {
    const char* value = strrchr(line, ' ');
    if (strncmp(line, name, strlen(name)) != 0 || value == NULL) continue;
    if (strstr(line, label) != NULL && strstr(line, other) != NULL) return strtoull(value, NULL, 10);
  }
  return ~0ull;
}

#endif

/* Geometries, shards and arrangements of engines: refusals and their messages; separation of ranks. */
#include "engine.h"

static kvbm_component_t attention(uint32_t layers, uint32_t heads, uint32_t dim, uint32_t element) {
  kvbm_component_t c;
  memset(&c, 0, sizeof c);
  c.element = element;
  c.layers = layers;
  c.heads = heads;
  c.head_dim = dim;
  return c;
}
static kvbm_component_t window(uint32_t tokens) {
  kvbm_component_t c = attention(2, 2, 8, KVBM_ELEMENT_BF16);
  c.kind = KVBM_COMPONENT_WINDOW;
  c.window_tokens = tokens;
  return c;
}
static kvbm_component_t latent(uint32_t heads) {
  kvbm_component_t c = attention(2, heads, 64, KVBM_ELEMENT_BF16);
  c.kind = KVBM_COMPONENT_LATENT;
  return c;
}
static kvbm_component_t state(uint64_t bytes) {
  kvbm_component_t c = attention(2, 1, 0, KVBM_ELEMENT_BYTES);
  c.kind = KVBM_COMPONENT_STATE;
  c.state_bytes = bytes;
  return c;
}

static void every_refused_geometry_names_component_and_field(void) {
  struct {
    kvbm_component_t c;
    const char *field;
  } bad[20];
  const kvbm_component_t good = attention(2, 2, 8, KVBM_ELEMENT_BF16);
  kvbm_component_t list[17];
  kvbm_geometry_t *geometry = NULL;
  size_t n = 0, i;
  bad[n].c = good, bad[n].c.kind = 9, bad[n++].field = "kind";
  bad[n].c = good, bad[n].c.element = 99, bad[n++].field = "element";
  bad[n].c = good, bad[n].c.layers = 0, bad[n++].field = "layers";
  bad[n].c = good, bad[n].c.layers = UINT32_MAX, bad[n++].field = "layers";
  bad[n].c = good, bad[n].c.heads = 0, bad[n++].field = "heads";
  bad[n].c = good, bad[n].c.heads = UINT32_MAX, bad[n++].field = "heads";
  bad[n].c = good, bad[n].c.head_dim = 0, bad[n++].field = "head_dim";
  bad[n].c = good, bad[n].c.head_dim = UINT32_MAX, bad[n++].field = "head_dim";
  bad[n].c = good, bad[n].c.window_tokens = 16, bad[n++].field = "window_tokens";
  bad[n].c = good, bad[n].c.state_bytes = 16, bad[n++].field = "state_bytes";
  bad[n].c = good, bad[n].c.reserved[1] = 1, bad[n++].field = "reserved";
  bad[n].c = window(0), bad[n++].field = "window_tokens";
  bad[n].c = latent(2), bad[n++].field = "heads";
  bad[n].c = state(0), bad[n++].field = "state_bytes";
  bad[n].c = state(64), bad[n].c.layers = 0, bad[n++].field = "layers";
  bad[n].c = state(64), bad[n].c.element = KVBM_ELEMENT_BF16, bad[n++].field = "element";
  bad[n].c = state(64), bad[n].c.head_dim = 64, bad[n++].field = "head_dim";
  list[0] = good;
  for (i = 0; i < n; ++i) {
    list[1] = bad[i].c;
    memset(&check_error, 0, sizeof check_error);
    geometry = NULL;
    CHECK_STATUS(kvbm_geometry_create(16, 1, list, 2, &geometry, &check_error), KVBM_ERR_INVALID);
    CHECK(geometry == NULL);
    CHECK(check_error.status == KVBM_ERR_INVALID);
    if (strstr(check_error.message, "component 1") == NULL || strstr(check_error.message, bad[i].field) == NULL) {
      printf("  case %d, %s: \"%s\"\n", (int)i, bad[i].field, check_error.message);
      CHECK(!"the message names the component and the field");
    }
  }
  list[1] = good;
  CHECK_STATUS(kvbm_geometry_create(0, 1, list, 2, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "tokens") != NULL);
  CHECK_STATUS(kvbm_geometry_create(UINT32_MAX, 1, list, 2, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_create(16, 0, list, 2, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK(strstr(check_error.message, "units") != NULL);
  CHECK_STATUS(kvbm_geometry_create(16, UINT32_MAX, list, 2, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_create(16, 1, list, 0, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_create(16, 1, NULL, 1, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_create(16, 1, list, 2, NULL, NULL), KVBM_ERR_INVALID);
  for (i = 0; i < 17; ++i) list[i] = good;
  CHECK_STATUS(kvbm_geometry_create(16, 1, list, 17, &geometry, &check_error), KVBM_ERR_INVALID);
  CHECK(geometry == NULL);
  OK(kvbm_geometry_create(16, 1, list, 16, &geometry, NULL));
  kvbm_geometry_release(geometry);
  kvbm_geometry_release(NULL);
}

static void records_are_as_long_as_their_shard(void) {
  kvbm_component_t list[4];
  kvbm_geometry_t *geometry = NULL;
  kvbm_shard_t shard;
  uint64_t bytes = 0;
  list[0] = attention(6, 8, 16, KVBM_ELEMENT_FP8_E4M3);
  list[1] = window(32);
  list[2] = latent(1);
  list[3] = state(1000);
  OK(kvbm_geometry_create(16, 4, list, 4, &geometry, &check_error));
  OK(kvbm_geometry_record_bytes(geometry, 0, NULL, &bytes));
  CHECK_U64(bytes, 6 * 2 * 64 * 8 * 16);
  OK(kvbm_geometry_record_bytes(geometry, 1, NULL, &bytes));
  CHECK_U64(bytes, 2 * 2 * 64 * 2 * 8 * 2);
  OK(kvbm_geometry_record_bytes(geometry, 2, NULL, &bytes));
  CHECK_U64(bytes, 2 * 64 * 64 * 2);
  memset(&shard, 0, sizeof shard);
  OK(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes)); /* all zero is all of it */
  CHECK_U64(bytes, 6 * 2 * 64 * 8 * 16);
  shard.first_layer = 4, shard.layers = 2, shard.first_head = 6, shard.heads = 2;
  OK(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes));
  CHECK_U64(bytes, 2 * 2 * 64 * 2 * 16);
  shard.layers = 3;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  shard.layers = 2, shard.heads = 3;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  shard.heads = 0;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  shard.heads = 2, shard.first_layer = UINT16_MAX, shard.layers = UINT16_MAX;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  shard.first_layer = 4, shard.layers = 2, shard.replicated = 2;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  shard.replicated = 0, shard.reserved[2] = 1;
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 0, &shard, &bytes), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_record_bytes(geometry, 4, NULL, &bytes), KVBM_ERR_INVALID);
  CHECK_STATUS(kvbm_geometry_record_bytes(NULL, 0, NULL, &bytes), KVBM_ERR_INVALID);
  kvbm_geometry_release(geometry);
}

static void the_fingerprint_says_every_fact(void) {
  uint64_t seen[16];
  size_t n = 0, i, j;
  for (i = 0; i < 12; ++i) {
    kvbm_component_t list[2];
    kvbm_geometry_t *geometry = NULL, *twin = NULL;
    const uint32_t tokens = i == 1 ? 32 : 16, units = i == 2 ? 2 : 1;
    const size_t count = i == 3 ? 2 : 1;
    list[0] = list[1] = attention(i == 4 ? 3 : 2, i == 5 ? 4 : 2, i == 6 ? 16 : 8,
                                  i == 7 ? KVBM_ELEMENT_FP16 : KVBM_ELEMENT_BF16);
    if (i == 8) list[0] = window(32);
    if (i == 9) list[0] = window(64);
    if (i == 10) list[0] = state(64);
    if (i == 11) list[0] = state(65);
    OK(kvbm_geometry_create(tokens, units, list, count, &geometry, &check_error));
    OK(kvbm_geometry_create(tokens, units, list, count, &twin, &check_error));
    CHECK(kvbm_geometry_fingerprint(geometry) == kvbm_geometry_fingerprint(twin));
    seen[n] = kvbm_geometry_fingerprint(geometry);
    CHECK(seen[n] != 0);
    for (j = 0; j < n; ++j) CHECK(seen[j] != seen[n]);
    ++n;
    kvbm_geometry_release(twin);
    kvbm_geometry_release(geometry);
  }
}

/* A manager with large blocks, and a namespace of one geometry in it. */
typedef struct place {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
} place_t;
enum { PLACE_BLOCK = 256 * 1024 };

static void place_open(place_t *p) {
  kvbm_manager_options_t options;
  OK(kvbm_context_create(NULL, &p->context, &check_error));
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = PLACE_BLOCK;
  options.host_capacity_bytes = 24 * (PLACE_BLOCK + 16384);
  OK(kvbm_manager_create(p->context, &options, &p->manager, &check_error));
}
static void place_close(place_t *p) {
  kvbm_manager_release(p->manager);
  kvbm_context_release(p->context);
}
static kvbm_namespace_t *place_namespace(place_t *p, const char *model, const kvbm_geometry_t *geometry) {
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = model;
  who.geometry = geometry;
  OK(kvbm_namespace_open(p->manager, &who, &ns, &check_error));
  return ns;
}

static int says(const char *what) {
  if (strstr(check_error.message, what) != NULL) return 1;
  printf("  \"%s\" does not say \"%s\"\n", check_error.message, what);
  return 0;
}

static void a_layout_that_does_not_fit_is_refused_with_what_it_needs(void) {
  place_t place;
  const kvbm_component_t c = attention(2, 4, 8, KVBM_ELEMENT_BF16);
  kvbm_geometry_t *geometry = NULL;
  kvbm_namespace_t *ns, *opaque;
  kvbm_cache_t *cache = NULL;
  kvbm_cache_part_t parts[2];
  kvbm_tensor_t tensors[4];
  kvbm_cache_options_t layout;
  const uint64_t block = 2u * 16 * 4 * 8 * 2; /* of one layer: K and V */
  unsigned char *memory = (unsigned char *)malloc(8 * block);
  size_t i;
  place_open(&place);
  OK(kvbm_geometry_create(16, 1, &c, 1, &geometry, &check_error));
  ns = place_namespace(&place, "shaped", geometry);
  opaque = place_namespace(&place, "opaque", NULL);
  memset(parts, 0, sizeof parts);
  memset(tensors, 0, sizeof tensors);
  for (i = 0; i < 2; ++i) {
    tensors[i].data = memory + i * 4 * block;
    tensors[i].bytes = 4 * block;
    parts[i].form = KVBM_FORM_BLOCKS_NHD;
    parts[i].tensors = tensors;
    parts[i].n_tensors = 2;
  }
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = 4;
  layout.parts = parts;
  layout.n_parts = 1;
#define REFUSED(what)                                                                                             \
  do {                                                                                                            \
    CHECK_STATUS(kvbm_cache_attach(place.manager, ns, &layout, &cache, &check_error), KVBM_ERR_INVALID);          \
    CHECK(cache == NULL);                                                                                         \
    CHECK(says(what));                                                                                            \
  } while (0)
  OK(kvbm_cache_attach(place.manager, ns, &layout, &cache, &check_error)); /* fits exactly */
  kvbm_cache_release(cache);
  cache = NULL;
  tensors[1].bytes -= 1; /* one byte short in layer 1 */
  REFUSED("part 0");
  CHECK(says("layer 1"));
  tensors[1].bytes += 1;
  layout.n_blocks = 5;
  REFUSED("part 0");
  layout.n_blocks = 4;
  tensors[0].bytes = tensors[1].bytes = 0;
  REFUSED("part 0");
  tensors[0].bytes = tensors[1].bytes = 4 * block;
  tensors[0].data = NULL;
  REFUSED("part 0");
  tensors[0].data = memory;
  parts[0].n_tensors = 1; /* this form has one for each layer */
  REFUSED("1 tensors");
  CHECK(says("2"));
  parts[0].n_tensors = 0;
  REFUSED("no tensors");
  parts[0].n_tensors = 2;
  tensors[0].block_stride = tensors[1].block_stride = block - 2; /* blocks would overlap */
  REFUSED("stride");
  tensors[0].block_stride = tensors[1].block_stride = block + 64; /* fits three and a bit */
  REFUSED("part 0");
  layout.n_blocks = 3;
  OK(kvbm_cache_attach(place.manager, ns, &layout, &cache, &check_error));
  kvbm_cache_release(cache);
  cache = NULL;
  layout.n_blocks = 4;
  tensors[0].block_stride = 0;
  REFUSED("block_stride"); /* not the same for all */
  tensors[1].block_stride = 0;
  parts[0].form = 55;
  REFUSED("form");
  parts[0].form = KVBM_FORM_BLOCKS_NHD;
  parts[0].reserved = 1;
  REFUSED("reserved");
  parts[0].reserved = 0;
  parts[0].part.component = 1;
  REFUSED("component");
  parts[0].part.component = 0;
  parts[0].part.shard.layers = 3, parts[0].part.shard.heads = 4;
  REFUSED("layers");
  parts[0].part.shard.layers = 2, parts[0].part.shard.first_head = 2;
  REFUSED("heads");
  memset(&parts[0].part, 0, sizeof parts[0].part);
  layout.n_parts = 2;
  parts[1].part.component = 7;
  REFUSED("part 1");
  layout.n_parts = 0;
  REFUSED("part");
  layout.n_parts = 1, layout.n_blocks = 0;
  REFUSED("block");
  layout.n_blocks = 4;
  CHECK_STATUS(kvbm_cache_attach(place.manager, opaque, &layout, &cache, &check_error), KVBM_ERR_INVALID);
  CHECK(says("OPAQUE"));
  parts[0].form = KVBM_FORM_OPAQUE;
  REFUSED("part 0"); /* page_bytes is 0 */
  tensors[0].page_bytes = tensors[1].page_bytes = 4 * block + 1;
  REFUSED("part 0");
  kvbm_namespace_release(opaque);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(geometry);
  place_close(&place);
  free(memory);
}

static void a_record_larger_than_the_managers_blocks_is_refused(void) {
  engine_t e;
  const kvbm_component_t c = attention(2, 4, 64, KVBM_ELEMENT_BF16); /* 32 KiB, blocks are 8 KiB */
  kvbm_geometry_t *geometry = NULL;
  kvbm_namespace_options_t who;
  kvbm_namespace_t *ns = NULL;
  kvbm_cache_part_t part;
  kvbm_tensor_t tensor;
  kvbm_cache_options_t layout;
  kvbm_cache_t *cache = NULL;
  OK(engine_open(&e, 8, NULL, 0));
  OK(kvbm_geometry_create(16, 1, &c, 1, &geometry, &check_error));
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "large";
  who.geometry = geometry;
  OK(kvbm_namespace_open(e.manager, &who, &ns, &check_error));
  memset(&part, 0, sizeof part);
  memset(&tensor, 0, sizeof tensor);
  tensor.data = e.memory;
  tensor.bytes = (uint64_t)ENGINE_BLOCKS * BLOCK_BYTES;
  part.form = KVBM_FORM_CROSS_NHD;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = 2;
  layout.parts = &part;
  layout.n_parts = 1;
  CHECK_STATUS(kvbm_cache_attach(e.manager, ns, &layout, &cache, &check_error), KVBM_ERR_INVALID);
  CHECK(says("32768") && says("8192") && says("block_bytes"));
  kvbm_namespace_release(ns);
  kvbm_geometry_release(geometry);
  engine_close(&e);
}

/* ---- two ranks of random models ---- */

/* The axes of every form as the header gives them, outermost first: K plane, L layer, B block, T token, H head. */
static const char *const form_axes[20] = {"KBTH", "KBHT",  "BKTH",  "BKHT",  "BTHK",  "BHTK",  "BTH",   "BHT",  "LKBTH", "LKBHT",
                                          "BLKTH", "BLKHT", "BLTHK", "BLHTK", "BHLTK", "LHBTK", "KLBTH", "KBTLH", "KBLTH", "KBHTL"};

/* A rank's paged cache in one form. */
typedef struct rank {
  kvbm_shard_t shard;
  uint32_t form, layers, heads, tokens, blocks, row;
  size_t n_tensors, tensor_bytes;
  unsigned char *memory;
  kvbm_cache_t *cache;
} rank_t;

static size_t axis_size(const rank_t *r, char axis) {
  return axis == 'K' ? 2 : axis == 'L' ? r->layers : axis == 'B' ? r->blocks : axis == 'T' ? r->tokens : r->heads;
}

static unsigned char *row_at(const rank_t *r, size_t layer, size_t plane, size_t block, size_t token, size_t head) {
  const char *axes = form_axes[r->form];
  size_t stride = r->row, offset = 0, i, tensor = 0;
  for (i = strlen(axes); i-- > 0;) {
    const size_t at = axes[i] == 'K'   ? plane
                      : axes[i] == 'L' ? layer
                      : axes[i] == 'B' ? block
                      : axes[i] == 'T' ? token
                                       : head;
    offset += at * stride;
    stride *= axis_size(r, axes[i]);
  }
  if (strchr(axes, 'L') == NULL) tensor = layer;
  if (strchr(axes, 'K') == NULL) tensor = tensor * 2 + plane;
  return r->memory + tensor * r->tensor_bytes + offset;
}

/* The values of one head of one token of the model, equal on every rank. */
static uint64_t row_name(uint64_t model, size_t stored, size_t unit, size_t layer, size_t plane, size_t token, size_t head) {
  uint64_t state = model;
  state = state * 1000003 + stored;
  state = state * 1000003 + unit;
  state = state * 1000003 + layer;
  state = state * 1000003 + plane;
  state = state * 1000003 + token;
  state = state * 1000003 + head;
  return state;
}

/* Writes the model into engine blocks ids[key * units + unit], or counts the rows that are not the model's. */
static size_t each_row(const rank_t *r, uint64_t model, const uint32_t *ids, size_t n, size_t units, int write) {
  size_t wrong = 0, i, layer, plane, token, head;
  for (i = 0; i < n * units; ++i) {
    for (layer = 0; layer < r->layers; ++layer) {
      for (plane = 0; plane < 2; ++plane) {
        for (token = 0; token < r->tokens; ++token) {
          for (head = 0; head < r->heads; ++head) {
            unsigned char *row = row_at(r, layer, plane, ids[i], token, head);
            const uint64_t name = row_name(model, i / units, i % units, layer + r->shard.first_layer, plane, token,
                                           head + r->shard.first_head);
            if (write) {
              check_fill(row, r->row, name);
            } else {
              wrong += !check_filled(row, r->row, name);
            }
          }
        }
      }
    }
  }
  return wrong;
}

static void rank_open(place_t *place, kvbm_namespace_t *ns, rank_t *r, uint32_t form) {
  const char *axes = form_axes[form];
  kvbm_tensor_t tensors[16];
  kvbm_cache_part_t part;
  kvbm_cache_options_t layout;
  size_t i;
  r->form = form;
  r->n_tensors = (strchr(axes, 'L') == NULL ? r->layers : 1) * (strchr(axes, 'K') == NULL ? 2 : 1);
  r->tensor_bytes = (size_t)r->layers * 2 * r->blocks * r->tokens * r->heads * r->row / r->n_tensors;
  r->memory = (unsigned char *)malloc(r->n_tensors * r->tensor_bytes);
  memset(r->memory, 0xEE, r->n_tensors * r->tensor_bytes);
  memset(tensors, 0, sizeof tensors);
  memset(&part, 0, sizeof part);
  for (i = 0; i < r->n_tensors; ++i) {
    tensors[i].data = r->memory + i * r->tensor_bytes;
    tensors[i].bytes = r->tensor_bytes;
  }
  part.part.shard = r->shard;
  part.form = form;
  part.tensors = tensors;
  part.n_tensors = r->n_tensors;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = r->blocks;
  layout.parts = &part;
  layout.n_parts = 1;
  OK(kvbm_cache_attach(place->manager, ns, &layout, &r->cache, &check_error));
}
static void rank_close(rank_t *r) {
  kvbm_cache_release(r->cache);
  free(r->memory);
}

static void shuffled(uint64_t *random, uint32_t *ids, size_t n) {
  size_t i;
  for (i = 0; i < n; ++i) ids[i] = (uint32_t)i;
  for (i = n; i > 1; --i) {
    const size_t j = check_random(random) % i;
    const uint32_t t = ids[i - 1];
    ids[i - 1] = ids[j], ids[j] = t;
  }
}

enum { RANK_KEYS = 3 };

static void one_model_of_two_ranks(place_t *place, uint64_t seed) {
  uint64_t random = seed;
  const uint32_t elements[3] = {KVBM_ELEMENT_BF16, KVBM_ELEMENT_FP32, KVBM_ELEMENT_FP8_E4M3};
  const uint32_t widths[3] = {2, 4, 1};
  const size_t e = check_random(&random) % 3;
  const uint32_t layers = 2 * (1 + (uint32_t)(check_random(&random) % 2)), units = 1 + (uint32_t)(check_random(&random) % 3);
  const uint32_t heads = 2 * (1 + (uint32_t)(check_random(&random) % 3)), tokens = 1 + (uint32_t)(check_random(&random) % 8);
  const uint32_t dim = 4u << (check_random(&random) % 3);
  const int by_layers = check_random(&random) % 3 == 0; /* pipeline ranks instead of tensor-parallel ones */
  const kvbm_component_t c = attention(layers, heads, dim, elements[e]);
  kvbm_geometry_t *geometry = NULL;
  kvbm_namespace_t *ns;
  kvbm_match_t *match = NULL;
  kvbm_key_t keys[RANK_KEYS];
  rank_t from[2], to;
  uint32_t text[RANK_KEYS * 32], ids[RANK_KEYS * 4];
  char model[32];
  size_t r, i, n = 0, hits = 0;
  snprintf(model, sizeof model, "ranks %llu", (unsigned long long)seed);
  OK(kvbm_geometry_create(tokens, units, &c, 1, &geometry, &check_error));
  ns = place_namespace(place, model, geometry);
  for (i = 0; i < RANK_KEYS * tokens * units; ++i) text[i] = (uint32_t)i;
  OK(kvbm_key_chain(ns, NULL, text, RANK_KEYS * tokens * units, tokens * units, NULL, keys, RANK_KEYS, &n));
  memset(from, 0, sizeof from);
  for (r = 0; r < 2; ++r) {
    from[r].shard.layers = (uint16_t)(by_layers ? layers / 2 : layers);
    from[r].shard.heads = (uint16_t)(by_layers ? heads : heads / 2);
    from[r].shard.first_layer = (uint16_t)(by_layers ? r * layers / 2 : 0);
    from[r].shard.first_head = (uint16_t)(by_layers ? 0 : r * heads / 2);
    from[r].layers = from[r].shard.layers;
    from[r].heads = from[r].shard.heads;
    from[r].tokens = tokens;
    from[r].blocks = RANK_KEYS * units;
    from[r].row = dim * widths[e];
    to = from[r];
    rank_open(place, ns, &from[r], (uint32_t)(check_random(&random) % 20));
    OK(kvbm_cache_lookup(from[r].cache, keys, RANK_KEYS, NULL, &match, &hits));
    CHECK_U64(hits, 0); /* whatever the other rank has stored */
    shuffled(&random, ids, RANK_KEYS * units);
    each_row(&from[r], seed, ids, RANK_KEYS, units, 1);
    OK(kvbm_cache_store(from[r].cache, keys, ids, RANK_KEYS, NULL, NULL, 0));
  }
  for (r = 0; r < 2; ++r) {
    to = from[r];
    rank_open(place, ns, &to, (uint32_t)(check_random(&random) % 20)); /* the engine came back in another form */
    OK(kvbm_cache_lookup(to.cache, keys, RANK_KEYS, NULL, &match, &hits));
    CHECK_U64(hits, RANK_KEYS);
    shuffled(&random, ids, RANK_KEYS * units);
    CHECK_STATUS(kvbm_cache_load(from[1 - r].cache, match, ids, RANK_KEYS * units, NULL, NULL, 0), KVBM_ERR_INVALID);
    OK(kvbm_cache_load(to.cache, match, ids, RANK_KEYS * units, NULL, NULL, 0));
    CHECK_U64(each_row(&to, seed, ids, RANK_KEYS, units, 0), 0);
    kvbm_match_release(match);
    match = NULL;
    rank_close(&to);
  }
  if (check_case_failed) printf("  seed %llu\n", (unsigned long long)seed);
  for (r = 0; r < 2; ++r) rank_close(&from[r]);
  kvbm_namespace_release(ns);
  kvbm_geometry_release(geometry);
}

static void two_ranks_never_get_each_others_bytes_in_any_model_and_form(void) {
  place_t place;
  uint64_t seed;
  place_open(&place);
  for (seed = 1; seed <= 200 && !check_case_failed; ++seed) one_model_of_two_ranks(&place, seed);
  place_close(&place);
}

int main(void) {
  RUN(every_refused_geometry_names_component_and_field);
  RUN(records_are_as_long_as_their_shard);
  RUN(the_fingerprint_says_every_fact);
  RUN(a_layout_that_does_not_fit_is_refused_with_what_it_needs);
  RUN(a_record_larger_than_the_managers_blocks_is_refused);
  RUN(two_ranks_never_get_each_others_bytes_in_any_model_and_form);
  FINISH();
}

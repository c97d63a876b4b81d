/* Blocks of an attached cache, coded where they lie: on a GPU by its kernels, else by the processor, to the same bytes.
 *   code_blocks       prints sizes and what was lost; exit code 0 when the blocks came back nearly as they were */
#include <kvbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 4, DIM = 64, TOKENS = 16, BLOCKS = 8, VALUES = 2 * BLOCKS * TOKENS * HEADS * DIM };
static uint16_t kv[LAYERS][VALUES]; /* bf16; for each layer [K,V][block][token][head][dim] */

static void stop(const char *what, const kvbm_error_t *err) {
  fprintf(stderr, "%s: %s\n", what, err->message);
  exit(1);
}

/* The engine's cache, as it would be attached to store and load. On a GPU: data is an address there, nothing else changes. */
static kvbm_cache_t *attach(kvbm_manager_t *manager, kvbm_namespace_t **ns) {
  const kvbm_component_t attention = {KVBM_COMPONENT_ATTENTION, KVBM_ELEMENT_BF16, LAYERS, HEADS, DIM, 0, 0, {0, 0}};
  const kvbm_tensor_t tensors[LAYERS] = {{kv[0], sizeof kv[0], 0, 0}, {kv[1], sizeof kv[1], 0, 0}};
  const kvbm_cache_part_t part = {{0, 0, {0, 0, 0, 0, 0, {0, 0, 0}}}, KVBM_FORM_NHD, 0, tensors, LAYERS, {0, 0}};
  kvbm_namespace_options_t who;
  kvbm_cache_options_t layout;
  kvbm_geometry_t *geometry = NULL;
  kvbm_cache_t *cache = NULL;
  kvbm_error_t err;
  if (kvbm_geometry_create(TOKENS, 1, &attention, 1, &geometry, &err) < 0) stop("geometry", &err);
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "my-model, bf16", who.geometry = geometry;
  if (kvbm_namespace_open(manager, &who, ns, &err) < 0) stop("namespace", &err);
  kvbm_geometry_release(geometry);
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = BLOCKS, layout.parts = &part, layout.n_parts = 1;
  if (kvbm_cache_attach(manager, *ns, &layout, &cache, &err) < 0) stop("attach", &err);
  return cache;
}

int main(void) {
  const uint32_t blocks[3] = {6, 1, 4};
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  kvbm_namespace_t *ns = NULL;
  kvbm_cache_code_options_t options;
  kvbm_codec_info_t info = {sizeof info, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  kvbm_error_t err;
  uint64_t room = 0;
  size_t bytes = 0, l, i;
  if (kvbm_context_create(NULL, &context, &err) < 0) stop("context", &err);
  if (kvbm_manager_create(context, NULL, &manager, &err) < 0) stop("manager", &err);
  kvbm_cache_t *cache = attach(manager, &ns);
  for (l = 0; l < LAYERS; ++l)
    for (i = 0; i < VALUES; ++i) kv[l][i] = (uint16_t)(0x3F00 + i * 37 % 255);

  /* Out: one buffer for three blocks, in memory of ours. What the engine enqueues later may overwrite them already. */
  if (kvbm_cache_code_room(cache, 3, NULL, &room, &err) < 0) stop("room", &err);
  void *coded = malloc(room);
  if (coded == NULL) return 1;
  if (kvbm_cache_encode(cache, blocks, 3, KVBM_CODEC_INT8, NULL, coded, room, &bytes, &err) < 0) stop("encode", &err);
  if (kvbm_codec_inspect(coded, bytes, &info, &err) < 0) stop("inspect", &err);
  printf("%llu bytes became %zu, relative error %.1e\n", (unsigned long long)info.raw_bytes, bytes, (double)info.error_ppb * 1e-9);

  /* Back, into the same blocks or others. That it is not what was computed is to be said. */
  const uint16_t before = kv[1][VALUES - 1], of_block_6 = kv[0][6 * TOKENS * HEADS * DIM];
  memset(kv[0] + 6 * TOKENS * HEADS * DIM, 0, 2 * TOKENS * HEADS * DIM);
  kvbm_cache_code_options_init(&options, sizeof options);
  if (kvbm_cache_decode(cache, coded, bytes, blocks, 3, &options, &err) != KVBM_ERR_PERMISSION) return 1;
  options.flags = KVBM_CODEC_ALLOW_LOSSY;
  if (kvbm_cache_decode(cache, coded, bytes, blocks, 3, &options, &err) < 0) stop("decode", &err);
  free(coded);
  const int near_enough = abs(kv[0][6 * TOKENS * HEADS * DIM] - of_block_6) < 4 && kv[1][VALUES - 1] == before;

  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  kvbm_context_release(context);
  return near_enough ? 0 : 1;
}

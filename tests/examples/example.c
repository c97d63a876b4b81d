/* Stores two blocks of an engine's cache, overwrites the engine's memory, and loads them back. */
#include <kvbm.h>
#include <stdio.h>
#include <string.h>

static char kv[4][4096]; /* the engine's cache: four blocks of four tokens */

int main(void) {
  kvbm_context_t *context = NULL;
  kvbm_manager_t *manager = NULL;
  kvbm_namespace_t *ns = NULL;
  kvbm_cache_t *cache = NULL;
  kvbm_match_t *match = NULL;
  kvbm_error_t err;
  const uint32_t tokens[8] = {101, 7, 7, 9, 23, 5, 8, 2}; /* the prompt */
  const uint32_t blocks[2] = {3, 1};                      /* where the engine computed it */
  kvbm_key_t keys[2];
  size_t n = 0, hits = 0;

  kvbm_namespace_options_t who;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "my-model, bf16";
  kvbm_tensor_t tensor = {kv, sizeof kv, 0, sizeof kv[0]};
  kvbm_cache_part_t part = {{0, 0, {0, 0, 0, 0, 0, {0, 0, 0}}}, KVBM_FORM_OPAQUE, 0, &tensor, 1, {0, 0}};
  kvbm_cache_options_t layout;
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = 4, layout.parts = &part, layout.n_parts = 1;

  if (kvbm_context_create(NULL, &context, &err) < 0 || kvbm_manager_create(context, NULL, &manager, &err) < 0 ||
      kvbm_namespace_open(manager, &who, &ns, &err) < 0 || kvbm_cache_attach(manager, ns, &layout, &cache, &err) < 0) {
    fprintf(stderr, "%s: %s\n", kvbm_status_name(err.status), err.message);
    return 1;
  }
  memset(kv[3], 'a', 4096), memset(kv[1], 'b', 4096);
  kvbm_key_chain(ns, NULL, tokens, 8, 4, NULL, keys, 2, &n);            /* names for the prompt's two full blocks */
  kvbm_cache_store(cache, keys, blocks, n, NULL, NULL, 0);              /* offload them */
  memset(kv, 0, sizeof kv);                                             /* the engine forgets */
  kvbm_cache_lookup(cache, keys, n, NULL, &match, &hits);                     /* a later request with this prompt */
  kvbm_status_t loaded = kvbm_cache_load(cache, match, blocks, hits, NULL, NULL, 0); /* back, verified */
  printf("%zu of %zu blocks came back: %c%c\n", hits, n, kv[3][0], kv[1][4095]);

  kvbm_match_release(match);
  kvbm_cache_release(cache);
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  kvbm_context_release(context);
  return loaded == KVBM_OK && hits == 2 && kv[3][0] == 'a' && kv[1][4095] == 'b' ? 0 : 1;
}

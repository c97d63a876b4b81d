/* A prefill node and a decode node move the KV of one request, layer by layer. Both are in this program so that it
 * runs by itself. In production each half is an engine on its own machine, and the addresses are configuration. */
#include <kvbm.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 4, HEADS = 2, DIM = 8, TOKENS = 64 };

/* One side: its paged cache is [K,V][block][...] for each layer, with blocks of its own size and order. */
typedef struct {
  kvbm_context_t *context;
  kvbm_manager_t *manager;
  kvbm_namespace_t *ns;
  kvbm_cache_t *cache;
  uint16_t kv[LAYERS][2 * TOKENS * HEADS * DIM];
  uint32_t blocks[TOKENS];
} side_t;

static int open_side(side_t *s, const char *option, const char *address, uint32_t block_tokens, uint32_t form) {
  const kvbm_setting_t node = {option, address};
  const kvbm_component_t attention = {KVBM_COMPONENT_ATTENTION, KVBM_ELEMENT_BF16, LAYERS, HEADS, DIM, 0, 0, {0, 0}};
  kvbm_context_options_t context;
  kvbm_namespace_options_t who;
  kvbm_cache_options_t layout;
  kvbm_geometry_t *geometry = NULL;
  kvbm_tensor_t tensors[LAYERS];
  kvbm_error_t err;
  kvbm_context_options_init(&context, sizeof context);
  context.settings = &node, context.n_settings = 1;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = "my-model, bf16";
  kvbm_cache_part_t part = {{0, 0, {0, 0, 0, 0, 0, {0, 0, 0}}}, form, 0, tensors, LAYERS, {0, 0}};
  kvbm_cache_options_init(&layout, sizeof layout);
  layout.n_blocks = TOKENS / block_tokens, layout.parts = &part, layout.n_parts = 1;
  for (uint32_t l = 0; l < LAYERS; ++l) tensors[l] = (kvbm_tensor_t){s->kv[l], sizeof s->kv[l], 0, 0};
  for (uint32_t b = 0; b < layout.n_blocks; ++b) s->blocks[b] = layout.n_blocks - 1 - b; /* wherever the engine put them */
  if (kvbm_context_create(&context, &s->context, &err) < 0 || kvbm_manager_create(s->context, NULL, &s->manager, &err) < 0 ||
      kvbm_geometry_create(block_tokens, 1, &attention, 1, &geometry, &err) < 0 || (who.geometry = geometry) == NULL ||
      kvbm_namespace_open(s->manager, &who, &s->ns, &err) < 0 ||
      kvbm_cache_attach(s->manager, s->ns, &layout, &s->cache, &err) < 0) {
    fprintf(stderr, "%s: %s\n", kvbm_status_name(err.status), err.message);
    return 0;
  }
  kvbm_geometry_release(geometry);
  return 1;
}

static void close_side(side_t *s) {
  kvbm_cache_release(s->cache);
  kvbm_namespace_release(s->ns);
  kvbm_manager_release(s->manager);
  kvbm_context_release(s->context);
}

int main(void) {
  static side_t prefill, decode;
  const kvbm_request_id_t request = {{'r', 'e', 'q', '-', '1'}};
  char address[128];
  size_t needed = 0;
  kvbm_error_t err;
  kvbm_offer_t *offer = NULL;
  kvbm_session_t *session = NULL;
  int right = 1;
  if (!open_side(&prefill, "node.listen", "127.0.0.1:0", 16, KVBM_FORM_NHD)) return 1;
  kvbm_manager_node_address(prefill.manager, address, sizeof address, &needed);
  if (!open_side(&decode, "node.peers", address, 8, KVBM_FORM_HND)) return 1;

  /* Decode: say where the request shall be, and which ranks compute it. */
  const kvbm_source_t source = {address, 0, 0};
  if (kvbm_session_open(decode.cache, &request, decode.blocks, TOKENS / 8, &source, 1, NULL, NULL, 0, &session, &err) < 0 ||
      kvbm_offer_open(prefill.cache, &request, prefill.blocks, TOKENS / 16, NULL, NULL, 0, &offer, &err) < 0) {
    fprintf(stderr, "%s: %s\n", kvbm_status_name(err.status), err.message);
    return 1;
  }
  for (uint32_t l = 0; l < LAYERS; ++l) {
    /* Prefill: compute a layer, then say so. */
    for (uint32_t i = 0; i < 2 * TOKENS * HEADS * DIM; ++i) prefill.kv[l][i] = (uint16_t)(1000 * l + i);
    kvbm_offer_publish(offer, 0, l, 1, 0, 0, NULL);
    /* Decode: use it while the next one is computed. */
    if (kvbm_session_wait_layer(session, 0, l, KVBM_FOREVER, &err) < 0) {
      fprintf(stderr, "layer %u: %s\n", (unsigned)l, err.message);
      return 1;
    }
    /* The value of head 1, token 20, element 3, as each side has it: blocks of 16 [token][head], of 8 [head][token]. */
    const uint16_t sent = prefill.kv[l][prefill.blocks[20 / 16] * 16 * HEADS * DIM + (20 % 16 * HEADS + 1) * DIM + 3];
    const uint16_t got = decode.kv[l][decode.blocks[20 / 8] * 8 * HEADS * DIM + (1 * 8 + 20 % 8) * DIM + 3];
    right = right && sent == got;
  }
  right = right && kvbm_session_wait(session, KVBM_FOREVER, &err) == KVBM_OK;
  right = right && kvbm_offer_wait(offer, KVBM_FOREVER, &err) == KVBM_OK; /* the prefill's blocks are free */
  printf("%d layers of %d tokens arrived: %s\n", LAYERS, TOKENS, right ? "right" : "wrong");
  kvbm_session_release(session);
  kvbm_offer_release(offer);
  close_side(&decode);
  close_side(&prefill);
  return right ? 0 : 1;
}

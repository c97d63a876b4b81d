/* One rank of an engine for tests of sessions: a node, a cache in one of several forms, and bytes that name their
 * place, written and read row by row: nothing of the library's layouts is used for what must come out. */
#ifndef KVBM_TESTS_API_RANK_H
#define KVBM_TESTS_API_RANK_H

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

enum { ROW = 32, LAYERS = 5, HEADS = 8, ELEMENTS = 16 }; /* a row: 16 elements of bf16 */
#define SECOND_NS 1000000000ULL

typedef struct node {
  kvbm_context_t* context;
  kvbm_manager_t* manager;
  char address[128];
  kvbm_error_t err;
} node_t;

static inline kvbm_status_t node_open(node_t* n, const char* listen, const char* peers, const char* name) {
  const kvbm_setting_t settings[] = {
      {"node.listen", listen}, {"node.peers", peers}, {"node.pool", "sessions"}, {"node.name", name}, {"threads", "1"}};
  kvbm_context_options_t context;
  kvbm_manager_options_t manager;
  kvbm_status_t status;
  size_t needed = 0;
  memset(n, 0, sizeof *n);
  kvbm_context_options_init(&context, sizeof context);
  context.settings = settings;
  context.n_settings = 5;
  status = kvbm_context_create(&context, &n->context, &n->err);
  if (status < 0) return status;
  kvbm_manager_options_init(&manager, sizeof manager);
  manager.block_bytes = 1 << 20;
  manager.host_capacity_bytes = 8 << 20;
  status = kvbm_manager_create(n->context, &manager, &n->manager, &n->err);
  if (status < 0) return status;
  return kvbm_manager_node_address(n->manager, n->address, sizeof n->address, &needed);
}

static inline void node_close(node_t* n) {
  kvbm_manager_release(n->manager);
  kvbm_context_release(n->context);
  memset(n, 0, sizeof *n);
}

typedef struct shape {
  uint32_t form;
  uint32_t tokens; /* of a block */
  uint32_t tp, rank;
  uint32_t positions; /* of the request */
  const char* model;
  uint32_t layers; /* of the model */
} shape_t;

typedef struct rank {
  shape_t shape;
  kvbm_geometry_t* geometry;
  kvbm_namespace_t* ns;
  kvbm_cache_t* cache;
  unsigned char* memory;
  uint32_t n_blocks; /* in the tensors; twice what the request has */
  uint32_t n_ids;
  uint32_t ids[256];
  uint32_t heads, first_head;
  size_t bytes;
  kvbm_error_t err;
} rank_t;

static inline shape_t shape_of(uint32_t form, uint32_t tokens, uint32_t tp, uint32_t rank, uint32_t positions) {
  shape_t s = {form, tokens, tp, rank, positions, "a model", LAYERS};
  return s;
}

/* Where a row lies. */
static inline unsigned char* rank_row(const rank_t* r, uint32_t layer, uint32_t plane, uint32_t head, uint32_t block,
                                      uint32_t token) {
  const size_t h = r->heads, t = r->shape.tokens, b = r->n_blocks, l = r->shape.layers;
  const size_t nhd = token * h + head, hnd = head * t + token, each = h * t;
  size_t at = 0;
  if (r->shape.form == KVBM_FORM_NHD) at = ((layer * 2 + plane) * b + block) * each + nhd;
  if (r->shape.form == KVBM_FORM_HND) at = ((layer * 2 + plane) * b + block) * each + hnd;
  if (r->shape.form == KVBM_FORM_BLOCKS_NHD) at = ((layer * b + block) * 2 + plane) * each + nhd;
  if (r->shape.form == KVBM_FORM_LAYERS_HND) at = ((layer * 2 + plane) * b + block) * each + hnd;
  if (r->shape.form == KVBM_FORM_CROSS_NHD) at = ((block * l + layer) * 2 + plane) * each + nhd;
  return r->memory + at * ROW;
}

static const uint32_t rank_forms[] = {KVBM_FORM_NHD, KVBM_FORM_HND, KVBM_FORM_BLOCKS_NHD, KVBM_FORM_LAYERS_HND,
                                      KVBM_FORM_CROSS_NHD};

/* Blocks of the request are drawn from `random`, none of them twice. */
static inline kvbm_status_t rank_open(rank_t* r, node_t* node, shape_t shape, uint64_t* random) {
  const kvbm_component_t component = {
      KVBM_COMPONENT_ATTENTION, KVBM_ELEMENT_BF16, shape.layers, HEADS, ELEMENTS, 0, 0, {0, 0}};
  const int one_tensor = shape.form == KVBM_FORM_LAYERS_HND || shape.form == KVBM_FORM_CROSS_NHD;
  kvbm_namespace_options_t who;
  kvbm_cache_options_t options;
  kvbm_cache_part_t part;
  kvbm_tensor_t tensors[16];
  kvbm_status_t status;
  uint32_t i, n_tensors = one_tensor ? 1 : shape.layers;
  memset(r, 0, sizeof *r);
  r->shape = shape;
  r->heads = HEADS / shape.tp;
  r->first_head = r->heads * shape.rank;
  r->n_ids = (shape.positions + shape.tokens - 1) / shape.tokens;
  r->n_blocks = 2 * r->n_ids;
  r->bytes = (size_t)shape.layers * 2 * r->n_blocks * r->heads * shape.tokens * ROW;
  r->memory = (unsigned char*)malloc(r->bytes);
  memset(r->memory, 0xEE, r->bytes);
  for (i = 0; i < r->n_ids; ++i) {
    uint32_t j, taken = 1;
    while (taken) {
      r->ids[i] = (uint32_t)(check_random(random) % r->n_blocks);
      for (j = 0, taken = 0; j < i; ++j) taken |= r->ids[j] == r->ids[i];
    }
  }
  status = kvbm_geometry_create(shape.tokens, 1, &component, 1, &r->geometry, &r->err);
  if (status < 0) return status;
  kvbm_namespace_options_init(&who, sizeof who);
  who.model = shape.model;
  who.geometry = r->geometry;
  status = kvbm_namespace_open(node->manager, &who, &r->ns, &r->err);
  if (status < 0) return status;
  memset(tensors, 0, sizeof tensors);
  for (i = 0; i < n_tensors; ++i) {
    tensors[i].bytes = r->bytes / n_tensors;
    tensors[i].data = r->memory + i * tensors[i].bytes;
  }
  memset(&part, 0, sizeof part);
  part.part.shard.layers = (uint16_t)shape.layers;
  part.part.shard.first_head = (uint16_t)r->first_head;
  part.part.shard.heads = (uint16_t)r->heads;
  part.form = shape.form;
  part.tensors = tensors;
  part.n_tensors = n_tensors;
  kvbm_cache_options_init(&options, sizeof options);
  options.n_blocks = r->n_blocks;
  options.parts = &part;
  options.n_parts = 1;
  return kvbm_cache_attach(node->manager, r->ns, &options, &r->cache, &r->err);
}

static inline void rank_close(rank_t* r) {
  kvbm_cache_release(r->cache);
  kvbm_namespace_release(r->ns);
  kvbm_geometry_release(r->geometry);
  free(r->memory);
  memset(r, 0, sizeof *r);
}

static inline unsigned char truth(uint64_t seed, uint32_t layer, uint32_t plane, uint32_t head, uint32_t position,
                                  uint32_t i) {
  uint64_t z = seed + layer * 1000003ULL + plane * 7919ULL + head * 104729ULL + position * 15485863ULL + i / 8;
  return (unsigned char)(check_random(&z) >> (i % 8 * 8));
}

/* Writes the reference bytes at positions [begin, end) of a layer. */
static inline void rank_fill(rank_t* r, uint64_t seed, uint32_t layer, uint32_t begin, uint32_t end) {
  uint32_t plane, head, p, i;
  for (plane = 0; plane < 2; ++plane)
    for (head = 0; head < r->heads; ++head)
      for (p = begin; p < end; ++p) {
        unsigned char* row = rank_row(r, layer, plane, head, r->ids[p / r->shape.tokens], p % r->shape.tokens);
        for (i = 0; i < ROW; ++i) row[i] = truth(seed, layer, plane, r->first_head + head, p, i);
      }
}

/* Returns the number of rows of a layer at positions [begin, end) that differ from the reference. */
static inline uint32_t rank_wrong(const rank_t* r, uint64_t seed, uint32_t layer, uint32_t begin, uint32_t end) {
  uint32_t plane, head, p, i, wrong = 0;
  for (plane = 0; plane < 2; ++plane)
    for (head = 0; head < r->heads; ++head)
      for (p = begin; p < end; ++p) {
        const unsigned char* row = rank_row(r, layer, plane, head, r->ids[p / r->shape.tokens], p % r->shape.tokens);
        for (i = 0; i < ROW && row[i] == truth(seed, layer, plane, r->first_head + head, p, i); ++i) {
        }
        wrong += i != ROW;
      }
  return wrong;
}

/* Returns the number of bytes outside positions [begin, end) of the request that have changed. */
static inline size_t rank_spilled(const rank_t* r, uint32_t begin, uint32_t end) {
  size_t changed = 0, i;
  uint32_t layer, plane, head, p;
  unsigned char* copy = (unsigned char*)malloc(r->bytes);
  rank_t shadow = *r;
  memcpy(copy, r->memory, r->bytes);
  shadow.memory = copy;
  for (layer = 0; layer < r->shape.layers; ++layer)
    for (plane = 0; plane < 2; ++plane)
      for (head = 0; head < r->heads; ++head)
        for (p = begin; p < end; ++p)
          memset(rank_row(&shadow, layer, plane, head, r->ids[p / r->shape.tokens], p % r->shape.tokens), 0xEE, ROW);
  for (i = 0; i < r->bytes; ++i) changed += copy[i] != 0xEE;
  free(copy);
  return changed;
}

static inline kvbm_request_id_t request_of(uint64_t number) {
  kvbm_request_id_t id;
  memset(&id, 7, sizeof id);
  memcpy(id.bytes, &number, sizeof number);
  return id;
}

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* Offers all of the rank's blocks; publishes nothing. */
static inline kvbm_status_t rank_offer(rank_t* r, uint64_t request, uint64_t timeout_ns, kvbm_queue_t* queue,
                                       kvbm_offer_t** out) {
  const kvbm_request_id_t id = request_of(request);
  kvbm_offer_options_t options;
  kvbm_offer_options_init(&options, sizeof options);
  options.rank = r->shape.rank;
  options.end = r->shape.positions;
  options.timeout_ns = timeout_ns;
  return kvbm_offer_open(r->cache, &id, r->ids, r->n_ids, &options, queue, 1000 + r->shape.rank, out, &r->err);
}

/* Opens a session for positions from `begin` to the end of the request. */
static inline kvbm_status_t rank_receive(rank_t* r, uint64_t request, uint32_t begin, const kvbm_source_t* sources,
                                         size_t n_sources, uint64_t timeout_ns, kvbm_queue_t* queue,
                                         kvbm_session_t** out) {
  const kvbm_request_id_t id = request_of(request);
  const uint32_t skip = begin / r->shape.tokens;
  kvbm_session_options_t options;
  kvbm_session_options_init(&options, sizeof options);
  options.rank = r->shape.rank;
  options.ranks = r->shape.tp;
  options.first_position = (uint64_t)skip * r->shape.tokens;
  options.begin = begin;
  options.end = r->shape.positions;
  options.timeout_ns = timeout_ns;
  return kvbm_session_open(r->cache, &id, r->ids + skip, r->n_ids - skip, sources, n_sources, &options, queue,
                           2000 + r->shape.rank, out, &r->err);
}

#endif

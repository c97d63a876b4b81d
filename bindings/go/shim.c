/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kvbm_status_t no_memory(kvbm_error_t *err) {
  if (err != NULL) {
    memset(err, 0, sizeof *err);
    err->status = KVBM_ERR_NO_MEMORY;
    snprintf(err->message, sizeof err->message, "no memory for the arguments of the call");
  }
  return KVBM_ERR_NO_MEMORY;
}

/* Allocates an array of at least one element, so that NULL always means that there is no memory. */
static void *array(size_t n, size_t bytes) { return calloc(n != 0 ? n : 1, bytes); }

uint32_t kvbmgo_header_version(void) { return KVBM_VERSION; }

/* ------------------------------------------------------------------ context */

typedef struct log_sink {
  int fd;
} log_sink_t;

/* One line is one write, whole or not at all: pipes keep writes of up to 4,096 bytes together. A reader that is too
 * slow loses lines; the library never waits for it. */
static void write_log(void *user, int32_t level, const char *component, const char *text) {
  const log_sink_t *sink = user;
  char line[4096];
  const int saved = errno;
  int n = snprintf(line, sizeof line, "%d\t%s\t%s\n", (int)level, component, text);
  if (n > 0) {
    size_t length = (size_t)n;
    if (length >= sizeof line) {
      length = sizeof line;
      line[length - 1] = '\n';
    }
    for (size_t i = 0; i + 1 < length; ++i) {
      if (line[i] == '\n') line[i] = ' ';
    }
    while (write(sink->fd, line, length) < 0 && errno == EINTR) {
    }
  }
  errno = saved;
}

void kvbmgo_log_close(void *log) {
  log_sink_t *sink = log;
  if (sink == NULL) return;
  close(sink->fd);
  free(sink);
}

kvbm_status_t kvbmgo_context_create(const char *config_file, uint32_t threads, const char *settings, size_t n_settings,
                                    int log_fd, int32_t log_level, kvbm_context_t **out_context, void **out_log,
                                    kvbm_error_t *err) {
  kvbm_context_options_t options;
  kvbm_context_options_init(&options, sizeof options);
  kvbm_setting_t *list = array(n_settings, sizeof *list);
  if (list == NULL) return no_memory(err);
  for (size_t i = 0; i < n_settings; ++i) {
    list[i].key = settings;
    settings += strlen(settings) + 1;
    list[i].value = settings;
    settings += strlen(settings) + 1;
  }
  options.threads = threads;
  options.config_file = config_file;
  options.settings = list;
  options.n_settings = n_settings;
  log_sink_t *sink = NULL;
  if (log_fd >= 0) {
    sink = malloc(sizeof *sink);
    if (sink == NULL) {
      free(list);
      return no_memory(err);
    }
    sink->fd = log_fd;
    options.log = write_log;
    options.log_user = sink;
    options.log_level = log_level;
  }
  const kvbm_status_t status = kvbm_context_create(&options, out_context, err);
  free(list);
  if (status < 0) {
    free(sink); /* the descriptor stays the caller's */
  } else {
    *out_log = sink;
  }
  return status;
}

/* ------------------------------------------------------- manager, namespace */

kvbm_status_t kvbmgo_manager_create(kvbm_context_t *context, uint32_t flags, uint64_t block_bytes,
                                    uint64_t host_capacity_bytes, const char *host_file, const char *policy,
                                    const char *paths, const kvbm_tier_t *tiers, size_t n_tiers,
                                    kvbm_manager_t **out_manager, kvbm_error_t *err) {
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  kvbm_tier_t *list = array(n_tiers, sizeof *list);
  if (list == NULL) return no_memory(err);
  for (size_t i = 0; i < n_tiers; ++i) {
    list[i] = tiers[i];
    list[i].path = paths[0] != 0 ? paths : NULL;
    paths += strlen(paths) + 1;
    list[i].url = paths[0] != 0 ? paths : NULL;
    paths += strlen(paths) + 1;
    list[i].codec = paths[0] != 0 ? paths : NULL;
    paths += strlen(paths) + 1;
  }
  options.flags = flags;
  options.block_bytes = block_bytes;
  options.host_capacity_bytes = host_capacity_bytes;
  options.host_file = host_file;
  options.policy = policy;
  options.tiers = n_tiers != 0 ? list : NULL;
  options.n_tiers = n_tiers;
  const kvbm_status_t status = kvbm_manager_create(context, &options, out_manager, err);
  free(list);
  return status;
}

kvbm_status_t kvbmgo_namespace_open(kvbm_manager_t *manager, const char *tenant, const char *model,
                                    const char *adapter, const kvbm_geometry_t *geometry, const uint8_t *secret,
                                    uint64_t epoch, uint64_t quota_bytes, uint32_t quota_mode, const char *codec,
                                    uint32_t allow_lossy, uint32_t weak_hashes, kvbm_namespace_t **out_namespace,
                                    kvbm_error_t *err) {
  kvbm_namespace_options_t options;
  kvbm_namespace_options_init(&options, sizeof options);
  options.tenant = tenant;
  options.model = model;
  options.adapter = adapter;
  options.geometry = geometry;
  options.secret = secret;
  options.epoch = epoch;
  options.quota_bytes = quota_bytes;
  options.quota_mode = quota_mode;
  options.codec = codec;
  options.allow_lossy = allow_lossy;
  options.weak_hashes = weak_hashes;
  return kvbm_namespace_open(manager, &options, out_namespace, err);
}

/* --------------------------------------------------------------------- keys */

kvbm_status_t kvbmgo_keys(const kvbm_namespace_t *ns, int content, const kvbm_key_t *previous, const uint32_t *tokens,
                          size_t n_tokens, uint32_t block_tokens, const uint8_t *extra_data,
                          const uint64_t *extra_bytes, size_t n_extras, kvbm_key_t *out_keys, size_t capacity,
                          size_t *out_n) {
  kvbm_extra_t *extras = NULL;
  if (n_extras != 0) {
    extras = array(n_extras, sizeof *extras);
    if (extras == NULL) return KVBM_ERR_NO_MEMORY;
    for (size_t i = 0; i < n_extras; ++i) {
      extras[i].data = extra_bytes[i] != 0 ? extra_data : NULL;
      extras[i].bytes = (size_t)extra_bytes[i];
      extra_data += extra_bytes[i];
    }
  }
  const kvbm_status_t status =
      content ? kvbm_key_content(ns, tokens, n_tokens, block_tokens, extras, out_keys, capacity, out_n)
              : kvbm_key_chain(ns, previous, tokens, n_tokens, block_tokens, extras, out_keys, capacity, out_n);
  free(extras);
  return status;
}

/* -------------------------------------------------------- blocks and lookup */

kvbm_status_t kvbmgo_register(kvbm_manager_t *manager, kvbm_namespace_t *ns, kvbm_block_t *inout_blocks,
                              const kvbm_key_t *keys, size_t n_blocks, uint32_t duplicates, const kvbm_part_t *part,
                              const kvbm_key_t *parent, uint32_t unchained, uint32_t priority,
                              const kvbm_position_t *positions, kvbm_status_t *item_status) {
  kvbm_register_options_t options;
  kvbm_register_options_init(&options, sizeof options);
  options.duplicates = duplicates;
  options.part = part;
  options.parent = parent;
  options.unchained = unchained;
  options.priority = priority;
  options.positions = positions;
  options.item_status = item_status;
  return kvbm_manager_register(manager, ns, inout_blocks, keys, n_blocks, &options);
}

kvbm_status_t kvbmgo_lookup(kvbm_manager_t *manager, kvbm_cache_t *cache, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                            size_t n_keys, uint32_t mode, uint32_t host_only, uint32_t no_use,
                            const kvbm_part_t *parts, size_t n_parts, const kvbm_key_t *unit_keys,
                            size_t n_unit_keys, uint64_t ask_nodes_ns, kvbm_match_t **out_match, size_t *out_n,
                            size_t *out_units) {
  kvbm_lookup_options_t options;
  kvbm_lookup_options_init(&options, sizeof options);
  options.mode = mode;
  options.host_only = host_only;
  options.no_use = no_use;
  options.parts = parts;
  options.n_parts = n_parts;
  options.unit_keys = unit_keys;
  options.n_unit_keys = n_unit_keys;
  options.ask_nodes_ns = ask_nodes_ns;
  const kvbm_status_t status = cache != NULL
                                   ? kvbm_cache_lookup(cache, keys, n_keys, &options, out_match, out_n)
                                   : kvbm_manager_lookup(manager, ns, keys, n_keys, &options, out_match, out_n);
  *out_units = status >= 0 && *out_match != NULL ? kvbm_match_units(*out_match) : 0;
  return status;
}

kvbm_status_t kvbmgo_locate(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys, size_t n_keys,
                            const kvbm_part_t *parts, size_t n_parts, const size_t *request_keys, size_t n_requests,
                            uint64_t ask_nodes_ns, kvbm_location_t *out_rows, size_t capacity, size_t *out_n) {
  kvbm_locate_options_t options;
  kvbm_locate_options_init(&options, sizeof options);
  options.parts = parts;
  options.n_parts = n_parts;
  options.request_keys = request_keys;
  options.n_requests = n_requests;
  options.ask_nodes_ns = ask_nodes_ns;
  return kvbm_manager_locate(manager, ns, keys, n_keys, &options, out_rows, capacity, out_n);
}

/* ----------------------------------------------------------- attached cache */

kvbm_status_t kvbmgo_cache_attach(kvbm_manager_t *manager, kvbm_namespace_t *ns, uint32_t n_blocks, uint32_t memory,
                                  uint32_t device, const kvbmgo_cache_part_t *parts, size_t n_parts,
                                  const kvbm_tensor_t *tensors, kvbm_cache_t **out_cache, kvbm_error_t *err) {
  kvbm_cache_options_t options;
  kvbm_cache_options_init(&options, sizeof options);
  kvbm_cache_part_t *list = array(n_parts, sizeof *list);
  if (list == NULL) return no_memory(err);
  for (size_t i = 0; i < n_parts; ++i) {
    list[i].part = parts[i].part;
    list[i].form = parts[i].form;
    list[i].tensors = tensors;
    list[i].n_tensors = parts[i].n_tensors;
    tensors += parts[i].n_tensors;
  }
  options.n_blocks = n_blocks;
  options.parts = list;
  options.n_parts = n_parts;
  options.memory = memory;
  options.device = device;
  const kvbm_status_t status = kvbm_cache_attach(manager, ns, &options, out_cache, err);
  free(list);
  return status;
}

kvbmgo_pending_t *kvbmgo_pending_create(size_t n_items) {
  kvbmgo_pending_t *pending = malloc(sizeof *pending + n_items * sizeof pending->item_status[0]);
  if (pending == NULL) return NULL;
  pending->operation = 0;
  /* Items without a status were not done: the operation ended before it reached them. */
  for (size_t i = 0; i < n_items; ++i) pending->item_status[i] = KVBM_ERR_CANCELLED;
  return pending;
}

void kvbmgo_pending_release(kvbmgo_pending_t *pending) { free(pending); }

kvbm_status_t *kvbmgo_pending_status(kvbmgo_pending_t *pending) { return pending->item_status; }

kvbm_status_t kvbmgo_store(kvbm_cache_t *cache, const kvbm_key_t *keys, const uint32_t *block_ids, size_t n_keys,
                           uint32_t priority, uint32_t unchained, const kvbm_key_t *parent,
                           const kvbm_position_t *positions, const kvbm_key_t *unit_keys, uint64_t timeout_ns,
                           uint64_t stream, uint32_t has_stream, kvbm_status_t *item_status, uint64_t *out_operation,
                           kvbm_queue_t *queue, uint64_t user_data) {
  kvbm_store_options_t options;
  kvbm_store_options_init(&options, sizeof options);
  options.priority = priority;
  options.unchained = unchained;
  options.parent = parent;
  options.positions = positions;
  options.unit_keys = unit_keys;
  options.timeout_ns = timeout_ns;
  options.item_status = item_status;
  options.out_operation = out_operation;
  options.stream = (void *)(uintptr_t)stream;
  options.has_stream = has_stream;
  return kvbm_cache_store(cache, keys, block_ids, n_keys, &options, queue, user_data);
}

kvbm_status_t kvbmgo_load(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *block_ids, size_t n_block_ids,
                          const kvbmgo_load_t *how, const kvbm_position_t *positions, uint64_t timeout_ns,
                          kvbm_status_t *item_status, uint64_t *out_operation, kvbm_queue_t *queue,
                          uint64_t user_data) {
  kvbm_load_options_t options;
  kvbm_load_options_init(&options, sizeof options);
  options.first_key = how->first_key;
  options.any_position = how->any_position;
  options.first_layer = how->first_layer;
  options.n_layers = how->n_layers;
  options.keep_below = how->keep_below;
  options.compute_block_ns = how->compute_block_ns;
  options.stream = (void *)(uintptr_t)how->stream;
  options.has_stream = how->has_stream;
  options.wait_layers = how->wait_layers;
  options.positions = positions;
  options.timeout_ns = timeout_ns;
  options.item_status = item_status;
  options.out_operation = out_operation;
  return kvbm_cache_load(cache, match, block_ids, n_block_ids, &options, queue, user_data);
}

kvbm_status_t kvbmgo_wait_layer(kvbm_cache_t *cache, uint64_t operation, uint32_t layer, uint64_t stream) {
  return kvbm_cache_wait_layer(cache, operation, layer, (void *)(uintptr_t)stream);
}

static kvbm_cache_code_options_t code_options(const kvbmgo_code_t *how) {
  kvbm_cache_code_options_t options;
  kvbm_cache_code_options_init(&options, sizeof options);
  options.part = how->part;
  options.element = how->element;
  options.row_elements = how->row_elements;
  options.rows = how->rows;
  options.flags = how->flags;
  options.stream = (void *)(uintptr_t)how->stream;
  options.has_stream = how->has_stream;
  return options;
}

kvbm_status_t kvbmgo_code_room(kvbm_cache_t *cache, size_t n_blocks, const kvbmgo_code_t *how, uint64_t *out_bytes,
                               kvbm_error_t *err) {
  const kvbm_cache_code_options_t options = code_options(how);
  return kvbm_cache_code_room(cache, n_blocks, &options, out_bytes, err);
}

kvbm_status_t kvbmgo_encode(kvbm_cache_t *cache, const uint32_t *block_ids, size_t n_blocks, uint32_t mode,
                            const kvbmgo_code_t *how, void *out, size_t capacity, size_t *out_bytes,
                            kvbm_error_t *err) {
  const kvbm_cache_code_options_t options = code_options(how);
  return kvbm_cache_encode(cache, block_ids, n_blocks, mode, &options, out, capacity, out_bytes, err);
}

kvbm_status_t kvbmgo_decode(kvbm_cache_t *cache, const void *coded, size_t coded_bytes, const uint32_t *block_ids,
                            size_t n_blocks, const kvbmgo_code_t *how, kvbm_error_t *err) {
  const kvbm_cache_code_options_t options = code_options(how);
  return kvbm_cache_decode(cache, coded, coded_bytes, block_ids, n_blocks, &options, err);
}

/* ----------------------------------------------------------------- sessions */

kvbm_status_t kvbmgo_publish_on_stream(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                       uint32_t n_layers, uint64_t begin, uint64_t end, uint64_t stream,
                                       kvbm_error_t *err) {
  return kvbm_offer_publish_on_stream(offer, component, first_layer, n_layers, begin, end, (void *)(uintptr_t)stream,
                                      err);
}

kvbm_status_t kvbmgo_session_open(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *block_ids,
                                  size_t n_block_ids, const char *nodes, const uint32_t *ranks, size_t n_sources,
                                  const kvbm_session_options_t *options, uint64_t stream, kvbm_queue_t *queue,
                                  uint64_t user_data, kvbm_session_t **out_session, kvbm_error_t *err) {
  kvbm_session_options_t how = *options;
  how.stream = (void *)(uintptr_t)stream;
  kvbm_source_t *sources = array(n_sources, sizeof *sources);
  if (sources == NULL) return no_memory(err);
  for (size_t i = 0; i < n_sources; ++i) {
    sources[i].node = nodes;
    sources[i].rank = ranks[i];
    nodes += strlen(nodes) + 1;
  }
  const kvbm_status_t status = kvbm_session_open(cache, request, block_ids, n_block_ids, sources, n_sources, &how,
                                                 queue, user_data, out_session, err);
  free(sources);
  return status;
}

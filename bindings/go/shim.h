/* The crossings from Go to C that need more than one call or a struct with pointers in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A struct with Go pointers in it may not be handed to C. So options come here flat, as arguments, and the struct is
 * built on the C stack. An argument that may be NULL says so in kvbm.h.
 */
#ifndef KVBMGO_SHIM_H
#define KVBMGO_SHIM_H

#include <kvbm.h>

#ifdef KVBM_EXPERIMENTAL
#error "the binding is made for the stable part of kvbm.h"
#endif

/* The version of the header that the binding is compiled with. */
uint32_t kvbmgo_header_version(void);

/* `settings` is n_settings times a key and a value, each with its final zero byte. log_fd < 0: no log. */
kvbm_status_t kvbmgo_context_create(const char *config_file, uint32_t threads, const char *settings, size_t n_settings,
                                    int log_fd, int32_t log_level, kvbm_context_t **out_context, void **out_log,
                                    kvbm_error_t *err);
/* Closes the log's descriptor. Call it after the last object of the context was released. NULL is a no-op. */
void kvbmgo_log_close(void *log);

/* `paths` is n_tiers times a directory and a codec ("" = none), each with its final zero byte; the tiers' own path and
 * codec are set from it. */
kvbm_status_t kvbmgo_manager_create(kvbm_context_t *context, uint32_t flags, uint64_t block_bytes,
                                    uint64_t host_capacity_bytes, const char *host_file, const char *policy,
                                    const char *paths, const kvbm_tier_t *tiers, size_t n_tiers,
                                    kvbm_manager_t **out_manager, kvbm_error_t *err);

kvbm_status_t kvbmgo_namespace_open(kvbm_manager_t *manager, const char *tenant, const char *model,
                                    const char *adapter, const kvbm_geometry_t *geometry, const uint8_t *secret,
                                    uint64_t epoch, uint64_t quota_bytes, uint32_t quota_mode, const char *codec,
                                    uint32_t allow_lossy, uint32_t weak_hashes, kvbm_namespace_t **out_namespace,
                                    kvbm_error_t *err);

/* `extra_bytes` is [n_extras] lengths, `extra_data` their bytes one after the other. previous NULL and content != 0:
 * kvbm_key_content, else kvbm_key_chain. */
kvbm_status_t kvbmgo_keys(const kvbm_namespace_t *ns, int content, const kvbm_key_t *previous, const uint32_t *tokens,
                          size_t n_tokens, uint32_t block_tokens, const uint8_t *extra_data,
                          const uint64_t *extra_bytes, size_t n_extras, kvbm_key_t *out_keys, size_t capacity,
                          size_t *out_n);

kvbm_status_t kvbmgo_register(kvbm_manager_t *manager, kvbm_namespace_t *ns, kvbm_block_t *inout_blocks,
                              const kvbm_key_t *keys, size_t n_blocks, uint32_t duplicates, const kvbm_part_t *part,
                              const kvbm_key_t *parent, uint32_t unchained, uint32_t priority,
                              const kvbm_position_t *positions, kvbm_status_t *item_status);

/* Exactly one of manager and cache is given. *out_units is kvbm_match_units, 0 without a match. */
kvbm_status_t kvbmgo_lookup(kvbm_manager_t *manager, kvbm_cache_t *cache, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                            size_t n_keys, uint32_t mode, uint32_t host_only, uint32_t no_use,
                            const kvbm_part_t *parts, size_t n_parts, const kvbm_key_t *unit_keys,
                            size_t n_unit_keys, uint64_t ask_nodes_ns, kvbm_match_t **out_match, size_t *out_n,
                            size_t *out_units);

/* One part of a cache, flat: its tensors are the next n_tensors of the array that comes along. */
typedef struct kvbmgo_cache_part {
  kvbm_part_t part;
  uint32_t form;
  uint32_t n_tensors;
} kvbmgo_cache_part_t;

kvbm_status_t kvbmgo_cache_attach(kvbm_manager_t *manager, kvbm_namespace_t *ns, uint32_t n_blocks, uint32_t memory,
                                  uint32_t device, const kvbmgo_cache_part_t *parts, size_t n_parts,
                                  const kvbm_tensor_t *tensors, kvbm_cache_t **out_cache, kvbm_error_t *err);

/* Memory that the library writes during an operation: C memory, until the completion was polled. */
typedef struct kvbmgo_pending {
  uint64_t operation;
  kvbm_status_t item_status[];
} kvbmgo_pending_t;
kvbmgo_pending_t *kvbmgo_pending_create(size_t n_items);
void kvbmgo_pending_release(kvbmgo_pending_t *pending);
kvbm_status_t *kvbmgo_pending_status(kvbmgo_pending_t *pending);

kvbm_status_t kvbmgo_store(kvbm_cache_t *cache, const kvbm_key_t *keys, const uint32_t *block_ids, size_t n_keys,
                           uint32_t priority, uint32_t unchained, const kvbm_key_t *parent,
                           const kvbm_position_t *positions, const kvbm_key_t *unit_keys, uint64_t timeout_ns,
                           uint64_t stream, uint32_t has_stream, kvbm_status_t *item_status, uint64_t *out_operation,
                           kvbm_queue_t *queue, uint64_t user_data);

typedef struct kvbmgo_load {
  uint32_t first_key, any_position, first_layer, n_layers, keep_below;
  uint32_t has_stream, wait_layers;
  uint64_t compute_block_ns;
  uint64_t stream;
} kvbmgo_load_t;
kvbm_status_t kvbmgo_load(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *block_ids, size_t n_block_ids,
                          const kvbmgo_load_t *how, const kvbm_position_t *positions, uint64_t timeout_ns,
                          kvbm_status_t *item_status, uint64_t *out_operation, kvbm_queue_t *queue,
                          uint64_t user_data);

kvbm_status_t kvbmgo_wait_layer(kvbm_cache_t *cache, uint64_t operation, uint32_t layer, uint64_t stream);

/* kvbm_cache_code_options_t, with the stream as a number. */
typedef struct kvbmgo_code {
  uint32_t part, element, row_elements, rows, flags;
  uint32_t has_stream;
  uint64_t stream;
} kvbmgo_code_t;
kvbm_status_t kvbmgo_code_room(kvbm_cache_t *cache, size_t n_blocks, const kvbmgo_code_t *how, uint64_t *out_bytes,
                               kvbm_error_t *err);
kvbm_status_t kvbmgo_encode(kvbm_cache_t *cache, const uint32_t *block_ids, size_t n_blocks, uint32_t mode,
                            const kvbmgo_code_t *how, void *out, size_t capacity, size_t *out_bytes,
                            kvbm_error_t *err);
kvbm_status_t kvbmgo_decode(kvbm_cache_t *cache, const void *coded, size_t coded_bytes, const uint32_t *block_ids,
                            size_t n_blocks, const kvbmgo_code_t *how, kvbm_error_t *err);

kvbm_status_t kvbmgo_locate(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys, size_t n_keys,
                            const kvbm_part_t *parts, size_t n_parts, const size_t *request_keys, size_t n_requests,
                            uint64_t ask_nodes_ns, kvbm_location_t *out_rows, size_t capacity, size_t *out_n);

kvbm_status_t kvbmgo_publish_on_stream(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                       uint32_t n_layers, uint64_t begin, uint64_t end, uint64_t stream,
                                       kvbm_error_t *err);

/* `nodes` is n_sources names, each with its final zero byte. options->stream is not looked at: `stream` is it. */
kvbm_status_t kvbmgo_session_open(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *block_ids,
                                  size_t n_block_ids, const char *nodes, const uint32_t *ranks, size_t n_sources,
                                  const kvbm_session_options_t *options, uint64_t stream, kvbm_queue_t *queue,
                                  uint64_t user_data, kvbm_session_t **out_session, kvbm_error_t *err);

#endif

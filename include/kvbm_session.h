/* kvbm_session.h - moves a request's KV from the nodes that compute it to the nodes that decode it.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_SESSION_H
#define KVBM_SESSION_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- sessions */

/* Prefill->decode: the KV of one request moves from the nodes that compute it into the blocks of the nodes that use it,
 * layer by layer, while it is computed. The two sides may differ in tensor- and pipeline-parallel size, block size, and
 * form and order of their caches: bytes are re-sliced on the way. Every byte is verified when it is written. A running
 * request moves between decode nodes in the same way: the node that has it offers it, the other opens a session.
 *
 *   prefill, each rank                     decode, each rank
 *   kvbm_offer_open                        kvbm_session_open, naming every prefill rank
 *   kvbm_offer_publish, layer by layer     KVBM_OP_LAYER completions, as layers arrive
 *   KVBM_OP_OFFER: the blocks are free     KVBM_OP_RECEIVE: all layers are in place, or the error
 *
 * The two sides may call in either order: the earlier one waits within its deadline. Both managers are nodes (options
 * node.listen, node.peers). Both sides have the same tenant, model, adapter and secret, and the same components in
 * their geometry. The error names what differs. Caches have a form other than KVBM_FORM_OPAQUE, and at most one part of
 * each component.
 *
 * Each side's cache may be in host memory or on a device. Bytes of a device go through pinned host memory, or bypass it
 * (options device.ipc, device.rdma). Devices hash what they send and receive, and a layer is in place when the device
 * has verified it. A lost device ends its offers and sessions with KVBM_ERR_TIER_DISABLED on both sides.
 *
 * Positions are token indexes of the request, from 0. block_ids is [n_parts of the cache][n_block_ids]. Block i begins
 * at position first_position + i * tokens_per_block of the geometry. KVBM_NO_BLOCK at the front of a part's list means
 * that the part begins later (a sliding window). A list of only KVBM_NO_BLOCK excludes the part. Of a state component
 * only the last block counts. Layers and heads are numbered over the whole model.
 *
 * The contents of the engine's blocks are sent as they are. So a prefill rank must not offer blocks that it loaded
 * under allow_lossy to a decode rank that does not accept loss.
 *
 * Completions of sessions count service_ns from the call. kvbm_queue_cancel does not end sessions or offers.
 *
 * Example: one prefill rank and one decode rank, each in its own process. compute() and decode() are the engines'. The
 * geometry has blocks of 16 tokens.
 *
 *     extern void compute(uint32_t layer);
 *     extern void decode(uint32_t layer);
 *
 *     static kvbm_status_t prefill(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *ids,
 *                                  size_t n_ids, uint32_t layers) {
 *       kvbm_offer_t *offer = NULL;
 *       kvbm_error_t err;
 *       uint32_t layer;
 *       kvbm_status_t status = kvbm_offer_open(cache, request, ids, n_ids, NULL, NULL, 0, &offer, &err);
 *       for (layer = 0; status == KVBM_OK && layer < layers; ++layer) {
 *         compute(layer);
 *         status = kvbm_offer_publish(offer, 0, layer, 1, 0, 0, &err); // all positions of one layer
 *       }
 *       if (offer != NULL) status = kvbm_offer_wait(offer, KVBM_FOREVER, &err); // then the blocks are free
 *       kvbm_offer_release(offer);
 *       return status;
 *     }
 *
 *     static kvbm_status_t receive(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *ids,
 *                                  size_t n_ids, uint32_t layers, const char *prefill_node) {
 *       const kvbm_source_t source = {prefill_node, 0, 0}; // rank 0 there
 *       kvbm_session_t *session = NULL;
 *       kvbm_error_t err;
 *       uint32_t layer;
 *       kvbm_status_t status =
 *           kvbm_session_open(cache, request, ids, n_ids, &source, 1, NULL, NULL, 0, &session, &err);
 *       for (layer = 0; status == KVBM_OK && layer < layers; ++layer) {
 *         status = kvbm_session_wait_layer(session, 0, layer, KVBM_FOREVER, &err);
 *         if (status == KVBM_OK) decode(layer);
 *       }
 *       if (session != NULL) status = kvbm_session_wait(session, KVBM_FOREVER, &err);
 *       kvbm_session_release(session);
 *       return status; // err.message has the reason of a failure
 *     } */

/* Id of a request on every rank of both sides (frozen, 16 bytes). Use each id once, for example a UUID. */
typedef struct kvbm_request_id {
  uint8_t bytes[16];
} kvbm_request_id_t;

/* Options of kvbm_offer_open. */
typedef struct kvbm_offer_options {
  uint32_t struct_size;
  uint32_t rank;           /* this prefill rank, as in kvbm_source_t; below 65,536 */
  uint64_t first_position; /* position of the first block */
  uint64_t begin;          /* offers positions [begin, end); a value before the first block = from its begin */
  uint64_t end;            /* 0 = to the end of the blocks */
  /* Deadline of the whole offer: until the last decode rank is served. 60 s by default; KVBM_FOREVER = none. */
  uint64_t timeout_ns;
} kvbm_offer_options_t;

/* Fills defaults: rank 0, blocks from position 0, all of their positions, 60 s.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_options_init(kvbm_offer_options_t *out_options, uint32_t struct_size);
/* Offers the blocks of a request to decode nodes. Bytes are read only after they are published. From then on until the
 * end of the offer the library reads the blocks, and their published bytes must not change. The offer ends when every
 * decode rank is served, lost or has given up; at abort; or at the deadline.
 *
 * Then `queue` (NULL = none) gets one KVBM_OP_OFFER completion, and the engine may reuse the blocks. Its status is
 * KVBM_OK if every decode rank was served, else the first failure. items_done of `items` decode ranks were served;
 * bytes is the number sent. KVBM_ERR_MISMATCH comes as soon as a decode rank differs and none was admitted before it.
 * KVBM_ERR_PERMISSION instead means that the decode rank cannot unseal. Errors:
 *   KVBM_ERR_INVALID       blocks or positions do not fit; the message names them
 *   KVBM_ERR_EXISTS        this rank already offers the request
 *   KVBM_ERR_STATE         the manager is not a node
 *   KVBM_ERR_UNSUPPORTED   an opaque cache
 *   KVBM_ERR_LIMIT         4,096 offers are open
 *   KVBM_ERR_AGAIN         the queue is full
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_open(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_offer_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data, KVBM_OWN kvbm_offer_t **out_offer, kvbm_error_t *err);
/* Publishes positions [begin, end) of layers [first_layer, first_layer + n_layers) of a component: their bytes are
 * computed and in memory. n_layers 0 = all from first_layer on, end 0 = to the last position. A state is published as a
 * whole. Any order and pieces (up to 256 separate ones per layer) are allowed, and repeats too. Positions that are not
 * offered are ignored. Call it after the device has written the bytes, not after the kernel launch; for that use
 * kvbm_offer_publish_on_stream. Errors: KVBM_ERR_INVALID (a component or layer that is not offered), KVBM_ERR_STALE
 * (the offer has ended: the prefill may stop). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                          uint32_t n_layers, uint64_t begin, uint64_t end, kvbm_error_t *err);
/* Publishes like kvbm_offer_publish, for a cache on a device, when the work now in `stream` (NULL = the legacy stream)
 * is done. Call it after launching the kernels that compute the layer. The call does not wait, and later work in the
 * stream does not wait for it. If the device is lost before, the offer ends with KVBM_ERR_TIER_DISABLED. Errors: as
 * kvbm_offer_publish; KVBM_ERR_INVALID also for a cache in host memory, and for a stream as in kvbm_cache_store;
 * KVBM_ERR_TIER_DISABLED. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish_on_stream(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                                    uint32_t n_layers, uint64_t begin, uint64_t end, void *stream,
                                                    kvbm_error_t *err);
/* Publishes all offered positions of all layers, for a request that is computed already. Errors: KVBM_ERR_STALE (the
 * offer has ended). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish_all(kvbm_offer_t *offer, kvbm_error_t *err);
/* Ends the offer with KVBM_ERR_CANCELLED. Decode ranks that wait for it receive `reason` (a sentence; NULL = none). The
 * completion still comes, and until then the blocks are in use. Errors: KVBM_ERR_STALE (it has ended). Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_abort(kvbm_offer_t *offer, const char *reason);
/* Waits until the offer has ended, and returns its status with details in err. timeout_ns 0 only looks. May be called
 * any number of times, with or without a queue. Errors: KVBM_ERR_AGAIN (it has not ended after timeout_ns).
 * Thread: any. Blocks: up to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_wait(kvbm_offer_t *offer, uint64_t timeout_ns, kvbm_error_t *err);
/* Releases the offer. If it has not ended, it is aborted, and its completion still comes. Without a queue nothing then
 * reports when the blocks are free, so wait first. NULL is a no-op. Thread: any. Blocks: no, except the last handle of
 * a released manager. Since 0.1. */
KVBM_API void kvbm_offer_release(kvbm_offer_t *offer);

/* A prefill rank that a session reads from (frozen, 16 bytes). */
typedef struct kvbm_source {
  const char *node;  /* its node: an address of this manager's node.peers, or the node's name (option node.name) */
  uint32_t rank;     /* kvbm_offer_options_t.rank */
  uint32_t reserved; /* zero */
} kvbm_source_t;

/* Options of kvbm_session_open. */
typedef struct kvbm_session_options {
  uint32_t struct_size;
  uint32_t rank;           /* this decode rank, below `ranks` */
  uint32_t ranks;          /* number of decode ranks that open the request, below 65,536; 0 = 1 */
  uint32_t no_layers;      /* 1: no KVBM_OP_LAYER completions */
  uint64_t first_position; /* position of the first block */
  uint64_t begin;          /* receives positions [begin, end); a value before the first block = from its begin */
  uint64_t end;            /* 0 = to the end of the blocks */
  uint64_t timeout_ns;     /* deadline of the whole session; 60 s by default; KVBM_FOREVER = none */
  uint64_t budget_bytes;   /* limit of staging memory in flight for this session; 0 = 64 MiB */
  void *stream;            /* as in kvbm_store_options_t: the session writes after the work now in `stream`. A deadline
                              that passes before that takes effect only then */
  uint32_t has_stream;     /* 1: `stream` counts, also NULL; 0: the blocks may be written at once */
  uint32_t reserved;       /* zero */
} kvbm_session_options_t;

/* Fills defaults: the only decode rank, blocks from position 0, all of their positions, layer completions, 60 s.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_options_init(kvbm_session_options_t *out_options, uint32_t struct_size);
/* Receives a request into blocks of `cache` from the prefill ranks that have it. sources is [n_sources], 1 to 4,096:
 * every prefill rank of the request, also those with nothing for this rank. The session waits for nodes that are not
 * connected yet. Only bytes at the positions [begin, end) are written. No other code may write them until the session
 * has ended.
 *
 * `queue` (NULL = none) gets a KVBM_OP_LAYER completion for each layer when it is in place and verified. Its operation
 * is component * 2^32 + layer of the model, items_done of `items` layers are in place, and bytes is the size of this
 * layer. At the end comes one KVBM_OP_RECEIVE. All have `user_data`. The queue needs layers + 1 free places (one with
 * no_layers). After a failure the blocks are undefined, except layers that were completed; kvbm_session_wait returns
 * the details. The request may be opened again while it is offered. Final statuses:
 *   KVBM_OK
 *   KVBM_ERR_DEADLINE        the message names the nodes that did not answer or were not connected
 *   KVBM_ERR_MISMATCH        a fact of the model differs, or no rank has some of the blocks
 *   KVBM_ERR_OWNER_GONE      a prefill node died
 *   KVBM_ERR_CANCELLED       either side aborted
 *   KVBM_ERR_DAMAGED
 *   KVBM_ERR_TIER_DISABLED   a device was lost, on either side
 * Errors of the call: as kvbm_offer_open, without KVBM_ERR_EXISTS; KVBM_ERR_LIMIT (4,096 sessions are open); a stream
 * as in kvbm_cache_store. `request`, `sources` and their texts may be freed after the call. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_open(kvbm_cache_t *cache, const kvbm_request_id_t *request,
                                         const uint32_t *block_ids, size_t n_block_ids, const kvbm_source_t *sources,
                                         size_t n_sources, const kvbm_session_options_t *options, kvbm_queue_t *queue,
                                         uint64_t user_data, KVBM_OWN kvbm_session_t **out_session, kvbm_error_t *err);
/* Waits until the session has ended, and returns its status with details in err. timeout_ns 0 only looks. Errors:
 * KVBM_ERR_AGAIN (it has not ended after timeout_ns). Thread: any. Blocks: up to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_wait(kvbm_session_t *session, uint64_t timeout_ns, kvbm_error_t *err);
/* Waits until a layer is in place. KVBM_OK also if the session failed after that; else as kvbm_session_wait. Layers are
 * numbered over the whole model, and may arrive in any order. Errors:
 * KVBM_ERR_INVALID (a layer that this session does not receive), KVBM_ERR_AGAIN (not yet after timeout_ns).
 * Thread: any. Blocks: up to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_wait_layer(kvbm_session_t *session, uint32_t component, uint32_t layer,
                                               uint64_t timeout_ns, kvbm_error_t *err);
/* Ends the session with KVBM_ERR_CANCELLED. Prefill ranks receive `reason` (NULL = none). The completion still comes,
 * and until then the blocks may be written. Errors: KVBM_ERR_STALE (it has ended). Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_abort(kvbm_session_t *session, const char *reason);
/* Releases the session like kvbm_offer_release. Thread: any. Blocks: as kvbm_offer_release. Since 0.1. */
KVBM_API void kvbm_session_release(kvbm_session_t *session);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_SESSION_H */

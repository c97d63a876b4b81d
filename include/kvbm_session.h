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

/* Prefill->decode: the KV of one request moves from the nodes that compute it into the blocks of the nodes that will
 * use it, layer by layer, while it is computed. n ranks of one side and m of the other may differ in tensor- and
 * pipeline-parallel size, block size, form and order of their caches: bytes are re-sliced on the way, and every one is
 * verified as it is written. A running request moves from one decode node to another the same way: the one that has it
 * offers, the other opens.
 *
 *   prefill, each rank                     decode, each rank
 *   kvbm_offer_open                        kvbm_session_open, naming every prefill rank
 *   kvbm_offer_publish, layer by layer     KVBM_OP_LAYER completions, as layers are in place
 *   KVBM_OP_OFFER: the blocks are free     KVBM_OP_RECEIVE: all is in place, or why not
 *
 * The two calls may come in either order; what is early waits within its deadline. Both managers are nodes
 * (node.listen, node.peers). Both sides have the same tenant, model, adapter and secret, and the same components of the
 * geometry; what differs is named in the error. Caches are attached with a form other than KVBM_FORM_OPAQUE, and at
 * most one part of each component. Either side's may be in host memory or on a device: bytes then go through pinned
 * host memory or past it (device.ipc, device.rdma), hashed by the device on both ways, and a layer is in place when the
 * device has checked it. A device that is lost ends what it takes part in, with KVBM_ERR_TIER_DISABLED on both sides.
 *
 * Positions are tokens of the request, from 0. block_ids is [n_parts of the cache][n_block_ids]: block i begins at
 * position first_position + i * tokens_per_block of the geometry. KVBM_NO_BLOCK at the front of a part's list: the part
 * begins later (a sliding window); all of it: this part is not meant. Of a state component the last block counts.
 * Layers and heads are numbers of the whole model.
 *
 * What is offered is what the engine's blocks hold: a decode rank that wants nothing coded with loss must not be given
 * what a prefill rank brought up from a tier under allow_lossy.
 *
 * Completions of sessions have service_ns since the call, and are not ended by kvbm_queue_cancel. */

/* Names a request on every rank of both sides (frozen, 16 bytes): a UUID, say; never used again. */
typedef struct kvbm_request_id {
  uint8_t bytes[16];
} kvbm_request_id_t;

typedef struct kvbm_offer_options {
  uint32_t struct_size;
  uint32_t rank;           /* this prefill rank, as decode sides name it; below 65,536 */
  uint64_t first_position; /* of the first block */
  uint64_t begin;          /* positions [begin, end) are offered; before the first block = from there on */
  uint64_t end;            /* 0 = to the end of the blocks */
  uint64_t timeout_ns;     /* of the whole offer; 60 s by default */
} kvbm_offer_options_t;

/* Fills defaults: rank 0, blocks from position 0, all of their positions, 60 s.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_options_init(kvbm_offer_options_t *out_options, uint32_t struct_size);
/* Offers the blocks of a request to decode nodes. Nothing is read before it is published. The blocks are the library's
 * to read, and must keep what was published, until the offer ends: when every decode rank has what it wants, was lost
 * or gave up; at abort; at the deadline. Then `queue` (NULL = none) gets one KVBM_OP_OFFER completion: KVBM_OK if every
 * decode rank was served, else the first that went wrong; items_done of `items` decode ranks, bytes sent; the engine
 * may reuse the blocks. KVBM_ERR_MISMATCH (KVBM_ERR_PERMISSION: it cannot open what is sealed) as soon as a decode rank
 * differs and none was admitted before it. Errors: KVBM_ERR_INVALID (blocks or positions that do not fit, named), KVBM_ERR_EXISTS (this rank offers
 * the request already), KVBM_ERR_STATE (the manager is no node), KVBM_ERR_UNSUPPORTED (an opaque cache),
 * KVBM_ERR_LIMIT (4,096 offers are open), KVBM_ERR_AGAIN (the queue is full). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_open(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_offer_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data, KVBM_OWN kvbm_offer_t **out_offer, kvbm_error_t *err);
/* Says that positions [begin, end) of layers [first_layer, first_layer + n_layers) of a component are computed and in
 * memory. n_layers 0 = all from first_layer on, end 0 = to the last position; a state is published whole. Any order,
 * any pieces (256 separate ones a layer), repeats allowed; what lies outside the offered positions is ignored. Call it
 * after the device has written the bytes, not when the kernel was started; kvbm_offer_publish_on_stream may be called
 * earlier. Errors: KVBM_ERR_INVALID (a component or layer that is not offered), KVBM_ERR_STALE (the offer has ended:
 * the prefill may stop). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                          uint32_t n_layers, uint64_t begin, uint64_t end, kvbm_error_t *err);
/* The same for a cache on a device, once `stream` (NULL: the legacy stream) has done what it holds now: called behind
 * the kernels that compute the layer, it waits for nothing, and nothing on the stream waits for it. Where the device is
 * lost before, the offer ends with KVBM_ERR_TIER_DISABLED. Errors: as kvbm_offer_publish; KVBM_ERR_INVALID also for a
 * cache in host memory and for a stream as in kvbm_cache_store; KVBM_ERR_TIER_DISABLED. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish_on_stream(kvbm_offer_t *offer, uint32_t component, uint32_t first_layer,
                                                    uint32_t n_layers, uint64_t begin, uint64_t end, void *stream,
                                                    kvbm_error_t *err);
/* Publishes everything that is offered. Errors: KVBM_ERR_STALE. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_publish_all(kvbm_offer_t *offer, kvbm_error_t *err);
/* Ends the offer with KVBM_ERR_CANCELLED; decode ranks that wait for it are told `reason` (a sentence; NULL = none).
 * The completion still comes, and until then the blocks are in use. KVBM_ERR_STALE if it has ended. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_abort(kvbm_offer_t *offer, const char *reason);
/* Waits until the offer has ended and says how, in words in err; KVBM_ERR_AGAIN if it goes on after timeout_ns.
 * Thread: any. Blocks: until then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_wait(kvbm_offer_t *offer, uint64_t timeout_ns, kvbm_error_t *err);
/* Ends the caller's reference. One that goes on is aborted; its completion still comes. Thread: any. Blocks: no, unless
 * it is the last handle of a released manager. Since 0.1. */
KVBM_API void kvbm_offer_release(kvbm_offer_t *offer);

/* A prefill rank to read from (frozen, 16 bytes). */
typedef struct kvbm_source {
  const char *node;  /* as this manager knows its node: an address of node.peers, or the name of a node (node.name) */
  uint32_t rank;     /* kvbm_offer_options_t.rank */
  uint32_t reserved; /* zero */
} kvbm_source_t;

typedef struct kvbm_session_options {
  uint32_t struct_size;
  uint32_t rank;           /* this decode rank, of */
  uint32_t ranks;          /* that many which open the request; 0 = 1 */
  uint32_t no_layers;      /* 1: no KVBM_OP_LAYER completions */
  uint64_t first_position; /* of the first block */
  uint64_t begin;          /* positions [begin, end) are wanted; before the first block = from there on */
  uint64_t end;            /* 0 = to the end of the blocks */
  uint64_t timeout_ns;     /* of the whole session; 60 s by default */
  uint64_t budget_bytes;   /* staging that this session may have under way at once; 0 = 64 MiB */
  void *stream;            /* as in kvbm_store_options_t: the session begins after what `stream` holds now, and writes
                              nothing before; a deadline that has passed by then is met then */
  uint32_t has_stream;
  uint32_t reserved;       /* zero */
} kvbm_session_options_t;

/* Fills defaults: the only decode rank, blocks from position 0, all of their positions, layer completions, 60 s.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_options_init(kvbm_session_options_t *out_options, uint32_t struct_size);
/* Brings a request into these blocks from the prefill ranks that have it: all of them are named, also those of which
 * this rank wants nothing. Nodes that are not connected yet are waited for. Blocks are written inside the wanted
 * positions alone, and by nobody else until the session has ended. `queue` (NULL = none) gets a KVBM_OP_LAYER
 * completion for each layer once it is in place and verified: operation = component * 2^32 + layer of the model,
 * items_done of `items` layers are in place, bytes of this one; then one KVBM_OP_RECEIVE. All have `user_data`. The
 * queue must have room for layers + 1. A session that fails says why (kvbm_session_wait): its blocks are undefined, but
 * for layers that were completed; the request may be opened again while it is offered. Ends: KVBM_OK, KVBM_ERR_DEADLINE
 * (the text names who did not answer or was not connected), KVBM_ERR_MISMATCH (a fact of the model that differs, or
 * blocks that no rank has), KVBM_ERR_OWNER_GONE (a prefill node died), KVBM_ERR_CANCELLED (either side gave up),
 * KVBM_ERR_DAMAGED, KVBM_ERR_TIER_DISABLED (a device was lost, here or there). Errors: as kvbm_offer_open, but for
 * KVBM_ERR_EXISTS; a stream as in kvbm_cache_store. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_open(kvbm_cache_t *cache, const kvbm_request_id_t *request,
                                         const uint32_t *block_ids, size_t n_block_ids, const kvbm_source_t *sources,
                                         size_t n_sources, const kvbm_session_options_t *options, kvbm_queue_t *queue,
                                         uint64_t user_data, KVBM_OWN kvbm_session_t **out_session, kvbm_error_t *err);
/* Waits until the session has ended and says how, in words in err; KVBM_ERR_AGAIN if it goes on after timeout_ns.
 * Thread: any. Blocks: until then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_wait(kvbm_session_t *session, uint64_t timeout_ns, kvbm_error_t *err);
/* Waits until a layer is in place: KVBM_OK also when the session has failed after it. Otherwise as kvbm_session_wait.
 * Errors: KVBM_ERR_INVALID for a layer that is not wanted. Thread: any. Blocks: until then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_wait_layer(kvbm_session_t *session, uint32_t component, uint32_t layer,
                                               uint64_t timeout_ns, kvbm_error_t *err);
/* Ends the session with KVBM_ERR_CANCELLED; prefill ranks are told `reason` (NULL = none). The completion still comes,
 * and until then the blocks may be written. KVBM_ERR_STALE if it has ended. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_session_abort(kvbm_session_t *session, const char *reason);
/* As kvbm_offer_release. Thread: any. Since 0.1. */
KVBM_API void kvbm_session_release(kvbm_session_t *session);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_SESSION_H */

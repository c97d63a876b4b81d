/* kvbm_cache.h - finds blocks by their keys, and moves them between the tiers and an engine's own paged cache.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * kvbm_device.h documents caches in the memory of a GPU. The manual is kvbm.h, which includes this.
 *
 * EXAMPLE
 *   One request on an engine with blocks of 16 tokens. `ids` are its blocks for the prompt, at most 64. The function
 *   returns the number of leading blocks that were loaded; the engine computes the others, then calls keep().
 *
 *     static kvbm_key_t keys[64];
 *
 *     static size_t fetch(kvbm_cache_t *cache, kvbm_namespace_t *ns, kvbm_queue_t *queue, const uint32_t *tokens,
 *                         size_t n_blocks, const uint32_t *ids) {
 *       kvbm_status_t items[64];
 *       kvbm_load_options_t load;
 *       kvbm_completion_t done;
 *       kvbm_match_t *match = NULL;
 *       size_t n = 0, hits = 0, loaded = 0;
 *       kvbm_load_options_init(&load, sizeof load);
 *       load.item_status = items, load.timeout_ns = 50000000; // 50 ms
 *       kvbm_key_chain(ns, NULL, tokens, n_blocks * 16, 16, NULL, keys, 64, &n);
 *       kvbm_cache_lookup(cache, keys, n, NULL, &match, &hits);
 *       if (hits != 0 && kvbm_cache_load(cache, match, ids, hits, &load, queue, 1) == KVBM_OK) {
 *         kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER); // until then the blocks and `items` are borrowed
 *         while (loaded < hits && items[loaded] == KVBM_OK) ++loaded;
 *       }
 *       kvbm_match_release(match); // NULL if nothing hit
 *       return loaded;
 *     }
 *
 *     static kvbm_status_t keep(kvbm_cache_t *cache, const uint32_t *ids, size_t first, size_t n) {
 *       kvbm_store_options_t store;
 *       kvbm_store_options_init(&store, sizeof store);
 *       store.parent = first != 0 ? &keys[first - 1] : NULL;
 *       return kvbm_cache_store(cache, keys + first, ids + first, n - first, &store, NULL, 0); // NULL queue: waits
 *     }
 */
#ifndef KVBM_CACHE_H
#define KVBM_CACHE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------- lookup and matches */

/* Modes of a lookup.
 *   PREFIX   the longest prefix: ends at the first key that misses; for chained keys
 *   EACH     every key by itself; for content keys, and for keys of several prompts
 *   ANY      the first key that is there, and no other */
enum { KVBM_LOOKUP_PREFIX = 0, KVBM_LOOKUP_EACH = 1, KVBM_LOOKUP_ANY = 2 };

/* Options of kvbm_manager_lookup and kvbm_cache_lookup. Arrays are borrowed for the call. */
typedef struct kvbm_lookup_options {
  uint32_t struct_size;
  uint32_t mode;            /* KVBM_LOOKUP_* */
  const kvbm_part_t *parts; /* [n_parts], at most 32; a hit needs all of them. NULL = component 0, whole model */
  size_t n_parts;
  uint32_t host_only;       /* 1: look in the host tier only, and ask no other process or node */
  /* 1: do not count the lookup as a use of the blocks, for example when a router only compares prompts. */
  uint32_t no_use;
  /* PREFIX only: [n_unit_keys] keys of the prompt's engine blocks from its start, as given to
   * kvbm_store_options_t.unit_keys. With them a stored block of several engine blocks is also found by its leading
   * engine blocks. At most 2^28. NULL = not wanted */
  const kvbm_key_t *unit_keys;
  size_t n_unit_keys;
  /* Nodes only: ask the other nodes for keys that no tier here has, and wait at most so long for their answers.
   * 0 = do not ask; blocks of other nodes that are already known are still found */
  uint64_t ask_nodes_ns;
} kvbm_lookup_options_t;

/* Fills defaults: the longest prefix, component 0 of the whole model, all tiers, counted as a use, no unit keys, no
 * other nodes asked. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_lookup_options_init(kvbm_lookup_options_t *out_options, uint32_t struct_size);
/* Finds blocks in every tier, by indexes in memory: no disk is read. keys is [n_keys]; with 0 keys nothing is found.
 * *out_n is the number of leading keys that hit (PREFIX), the number of all keys that hit (EACH), 0 or 1 (ANY). If
 * nothing hit (see also kvbm_match_units), *out_match is NULL and the result KVBM_OK. After an error *out_match is NULL
 * and *out_n is 0.
 *
 * The match holds the blocks found in the host until it is released, so release it soon. Blocks found below are not
 * held: a load may report them as KVBM_ERR_MISS. A hit is no proof of the bytes, which only the load verifies.
 *
 * With several parts, a window component needs only the blocks that its window reaches, and a state component only the
 * last one. Part i of the match is parts[i] of the options.
 *
 * Tensor-parallel sizes: a block that is missing in the part's own shard is also found if ranks of another
 * tensor-parallel size stored it. All shards of one size that hold the part's heads must be there, with the same
 * layers, each in any tier.
 *   - A load reads, verifies and re-slices them, one block at a time or up to 32 MiB of them in memory beside the host.
 *     The result is cached in the host, and offloaded, as a block of the part's own shard.
 *   - Lookups try sizes up to 64: those that divide the number of heads, and those above it, with one head per rank.
 *   - If only some shards are there it is a miss (metric kvbm_lookup_shards_missing_total). Hits are counted in
 *     kvbm_lookup_resliced_total.
 *   - Blocks of opaque forms and of managed pools are never re-sliced. Latents and states need no re-slicing: every
 *     rank has all of them.
 *   - After a miss, other nodes (with ask_nodes_ns) and the owner of a shared tier set are asked for the other sizes.
 *     For a namespace without any such hit so far they are asked once a second.
 *   - kvbm_manager_locate and kvbm_manager_scan report records as they are stored. kvbm_manager_drop removes only
 *     blocks of the part's own shard.
 *
 * Errors: KVBM_ERR_INVALID (mode, parts, unit_keys without PREFIX), KVBM_ERR_LIMIT (as kvbm_namespace_open).
 * Thread: any. Blocks: no, except up to ask_nodes_ns for other nodes, and up to option share_ask for the owner of a
 * shared tier set, each once more for other sizes. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_lookup(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                                           size_t n_keys, const kvbm_lookup_options_t *options,
                                           KVBM_OWN kvbm_match_t **out_match, size_t *out_n);

/* One key of a match (frozen, 32 bytes). Describes the time of the lookup; a block below may have moved since. */
typedef struct kvbm_match_item {
  /* Slowest tier that a part of the key comes from: 0 host, 1 the first below, and so on. KVBM_NO_TIER = missed. */
  uint32_t tier;
  uint32_t parts_needed; /* bit i: part i is needed and was found; 0 = missed */
  uint64_t bytes;        /* payload bytes to move for the key, over all its parts, as decoded */
  uint64_t below_bytes;  /* part of `bytes` that is not in the host tier yet */
  uint64_t reserved;     /* zero */
} kvbm_match_item_t;
/* kvbm_match_item_t.tier of a key that missed. */
#define KVBM_NO_TIER UINT32_MAX

/* Returns the number of items: the keys of the lookup, hits or not, plus one if a partly matching block follows them; 0
 * for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API size_t kvbm_match_count(const kvbm_match_t *match);
/* Returns the number of leading engine blocks that hit; 0 for NULL. These are `units` for each leading key. A lookup
 * with unit_keys adds the leading units of a stored block that matches in part. That block is item *out_n of the match,
 * and only its matching units can be loaded: give kvbm_cache_load this many block ids. Even with *out_n = 0 there may
 * be some. After a restart a block on disk matches in part only once it has been in the host tier again. Models with
 * window or state components have no partial matches. Thread: any. Blocks: no. Since 0.1. */
KVBM_API size_t kvbm_match_units(const kvbm_match_t *match);
/* Describes keys [first, first + n); out_items is [n]. The range is of kvbm_match_count() keys. Errors:
 * KVBM_ERR_INVALID for a range outside the match. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_items(const kvbm_match_t *match, size_t first, size_t n,
                                        kvbm_match_item_t *out_items);
/* Makes new holds on part `part` of keys [first, first + n), for managed pools. out_blocks is [n]; 0 for a block that
 * is not in the host tier, or is damaged. Prefetch and look up again to get those of lower tiers. The holds outlive the
 * match. Errors: KVBM_ERR_INVALID for a range or part outside the match, KVBM_ERR_LIMIT as kvbm_block_clone.
 * Thread: any. Blocks: no; verifies blocks recovered from a host file at their first use. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_blocks(kvbm_match_t *match, uint32_t part, size_t first, size_t n,
                                         kvbm_block_t *out_blocks);
/* Predicts load times: out_load_ns[i] is the time in ns that loading keys [first, first + i] into an attached cache
 * would take from now on. The estimate uses recent times of their tiers, and the work already queued there
 * (docs/cost.md). It never falls with i; keys that missed add nothing. kvbm_manager_stats compares predictions with
 * measured times. out_load_ns is [n]. Errors: KVBM_ERR_INVALID for a range outside the match. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_cost(const kvbm_match_t *match, size_t first, size_t n, uint64_t *out_load_ns);
/* Releases the match and the blocks that it holds. Loads that were submitted with it go on. NULL is a no-op.
 * Thread: any. Blocks: no, except the last handle of a released manager. Since 0.1. */
KVBM_API void kvbm_match_release(kvbm_match_t *match);

/* ---------------------------------------------------------- attached caches */

/* Order of the axes of an engine's cache, outermost first. `dim`, the row of one head of one token, is always
 * innermost. If an axis is missing, there is one tensor for each of its values. Axes are dense; only blocks may have a
 * larger stride. Components of one plane (latent, state) have no axis [K,V], and any form fits them. A state is a row
 * of state_bytes bytes in place of [token][head][dim].
 *
 * The forms are those of vLLM 0.32, SGLang 0.5.23 and TensorRT-LLM. vLLM writes them with the letters B block, L layer,
 * H head, N token and C for K and V in one row. A record has one arrangement for every form, so an engine can load what
 * another one with another form stored. */
enum {
  /* one tensor for each layer */
  KVBM_FORM_NHD = 0,         /* [K,V][block][token][head][dim] */
  KVBM_FORM_HND = 1,         /* [K,V][block][head][token][dim] */
  KVBM_FORM_BLOCKS_NHD = 2,  /* [block][K,V][token][head][dim] */
  KVBM_FORM_BLOCKS_HND = 3,  /* [block][K,V][head][token][dim] */
  KVBM_FORM_PACKED_NHD = 4,  /* [block][token][head][K dim, V dim] */
  KVBM_FORM_PACKED_HND = 5,  /* [block][head][token][K dim, V dim]; vLLM LBHNC, from 0.32 */
  /* one tensor for each layer and plane: K0, V0, K1, V1, ... */
  KVBM_FORM_SPLIT_NHD = 6,   /* [block][token][head][dim]; also latents (MLA), with one tensor per layer */
  KVBM_FORM_SPLIT_HND = 7,   /* [block][head][token][dim] */
  /* one tensor for all layers */
  KVBM_FORM_LAYERS_NHD = 8,  /* [layer][K,V][block][token][head][dim] */
  KVBM_FORM_LAYERS_HND = 9,  /* [layer][K,V][block][head][token][dim] */
  KVBM_FORM_CROSS_NHD = 10,  /* [block][layer][K,V][token][head][dim] */
  KVBM_FORM_CROSS_HND = 11,  /* [block][layer][K,V][head][token][dim] */
  KVBM_FORM_CROSS_PACKED_LNH = 12, /* [block][layer][token][head][K dim, V dim]; vLLM BLNHC */
  KVBM_FORM_CROSS_PACKED_LHN = 13, /* [block][layer][head][token][K dim, V dim]; vLLM BLHNC */
  KVBM_FORM_CROSS_PACKED_HLN = 14, /* [block][head][layer][token][K dim, V dim]; vLLM BHLNC */
  KVBM_FORM_HEADS_PACKED = 15,     /* [layer][head][block][token][K dim, V dim]; vLLM LHBNC */
  KVBM_FORM_SGLANG_LAYER_FIRST = 16,       /* [K,V][layer][block * token][head][dim] */
  KVBM_FORM_SGLANG_PAGE_FIRST = 17,        /* [K,V][block * token][layer][head][dim] */
  KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT = 18, /* [K,V][block][layer][token][head][dim] */
  KVBM_FORM_SGLANG_PAGE_HEAD = 19,         /* [K,V][block][head][token][layer][dim] */
  /* n tensors, [block][bytes]: any bytes, for a layout that kvbm does not know. A record has the block's pages one
   * after the other, so only an engine with equal pages can load it. Never re-sliced, and without sessions. The only
   * form in a namespace without a geometry. */
  KVBM_FORM_OPAQUE = 100
};

/* One tensor of the engine (frozen, 32 bytes). */
typedef struct kvbm_tensor {
  /* Host memory, or an address on the device (kvbm_cache_options_t.memory). Owned by the caller, must outlive the
   * cache. Tensors of a part may not overlap; several parts may lie between each other, apart by block_stride. */
  void *data;
  /* Size of the tensor: room for n_blocks blocks at least. No byte outside is ever touched. */
  uint64_t bytes;
  /* Bytes from one block to the next, at least the size of a block; 0 = dense. Equal in all tensors of a part, except
   * for OPAQUE. Gaps between blocks are never read or written. */
  uint64_t block_stride;
  /* OPAQUE: bytes of a block in this tensor, at least 1; else not used. */
  uint64_t page_bytes;
} kvbm_tensor_t;

/* Memory of one part of the model in the engine (frozen, 64 bytes). */
typedef struct kvbm_cache_part {
  kvbm_part_t part;             /* 24 bytes: component and shard */
  uint32_t form;                /* KVBM_FORM_* */
  uint32_t reserved;            /* zero */
  /* [n_tensors] in the order [layer] or [layer][K,V], by the form. Layers are those of the shard: n_tensors is their
   * number, twice that (SPLIT forms with K and V), or 1 (forms with an axis for layers). Borrowed for the call. */
  const kvbm_tensor_t *tensors;
  size_t n_tensors;
  uint64_t reserved2[2];        /* zero */
} kvbm_cache_part_t;

/* Place of a cache's tensors. */
enum {
  KVBM_MEMORY_AUTO = 0, /* host, unless this process has libcuda loaded and it reports device memory */
  KVBM_MEMORY_HOST = 1, /* memory of this process; the first and last byte of each tensor must be mapped */
  KVBM_MEMORY_CUDA = 2  /* memory of the CUDA device `device` (kvbm_device.h) */
};

/* Description of an engine's cache, for kvbm_cache_attach. */
typedef struct kvbm_cache_options {
  uint32_t struct_size;
  uint32_t n_blocks;              /* engine blocks in the tensors, at least 1; block ids are [0, n_blocks) */
  const kvbm_cache_part_t *parts; /* [n_parts], 1 to 32 */
  size_t n_parts;
  uint32_t memory;                /* KVBM_MEMORY_* of all tensors; a mix of host and device memory is refused */
  uint32_t device;                /* CUDA: the ordinal, as cuDeviceGet counts; else 0 */
} kvbm_cache_options_t;

/* Fills defaults: memory is detected (AUTO). n_blocks and parts must be set before use. Errors: KVBM_ERR_INVALID for
 * NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_options_init(kvbm_cache_options_t *out_options, uint32_t struct_size);
/* Attaches an engine's paged cache, described by `options`, which may not be NULL. The tensors stay the caller's, and
 * nothing is read or written yet. `options` and its arrays may be freed after the call. A process may attach any number
 * of caches, one for each rank for example. Errors:
 *   KVBM_ERR_INVALID        the layout does not fit; the message names part and tensor, the needed and the given size.
 *                           Also: memory of another device, memory that the driver does not know, host memory declared
 *                           as a device's, a tensor that is larger than its allocation
 *   KVBM_ERR_INVALID        a stored block (`units` engine blocks) is larger than host.block_bytes; a form other than
 *                           OPAQUE in a namespace without a geometry; no block; not 1 to 32 parts
 *   KVBM_ERR_FOREIGN        `ns` belongs to another manager
 *   KVBM_ERR_LIMIT          as kvbm_namespace_open
 *   KVBM_ERR_UNSUPPORTED    no driver, or one too old; no such device, or one without kernels; the message says which
 *   KVBM_ERR_TIER_DISABLED  the device was lost
 * Thread: any. Blocks: for the first cache on a device, while the host tier's memory is registered with it (option
 * device.pin_threads). Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_attach(kvbm_manager_t *manager, kvbm_namespace_t *ns,
                                         const kvbm_cache_options_t *options, KVBM_OWN kvbm_cache_t **out_cache,
                                         kvbm_error_t *err);
/* Waits for all operations that touch the tensors, sessions and offers too, then releases the cache. The tensors may be
 * freed afterwards. To end it sooner, cancel the operations and abort the sessions first; their completions still come.
 * NULL is a no-op. In a forked child it does nothing. Thread: any, when no other call uses this cache. Blocks: until
 * these operations have ended. Since 0.1. */
KVBM_API void kvbm_cache_release(kvbm_cache_t *cache);
/* Does kvbm_manager_lookup for the cache's own parts, so that kvbm_cache_load takes the match. options->n_parts must be
 * 0. options NULL = defaults. Outputs and Errors: as kvbm_manager_lookup. Thread: any. Blocks: as kvbm_manager_lookup.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_lookup(kvbm_cache_t *cache, const kvbm_key_t *keys, size_t n_keys,
                                         const kvbm_lookup_options_t *options, KVBM_OWN kvbm_match_t **out_match,
                                         size_t *out_n);

/* The position at which a block under a content key was computed (frozen, 24 bytes). A load compares all three numbers:
 * KV depends on the position through the rotary embedding, and on the tokens before it through attention. */
typedef struct kvbm_position {
  uint64_t first_token;  /* index of the block's first token in its prompt, from 0 */
  uint64_t rotation;     /* fingerprint of the rotary parameters, chosen by the caller */
  uint64_t left_context; /* fingerprint of the tokens before the block; 0 = none */
} kvbm_position_t;

/* Options of kvbm_cache_store. Arrays are copied at submit, except item_status. */
typedef struct kvbm_store_options {
  uint32_t struct_size;
  uint32_t priority;            /* KVBM_PRIORITY_* of all blocks of the call */
  /* Key before the first; NULL = none: the first block begins a prompt. A block that another one follows leaves
   * the host after it, unless a tier below has it: so the prefix stays findable. */
  const kvbm_key_t *parent;
  uint32_t unchained;           /* 1: keys are not a prefix in order; parents are not noted, and `parent` is not used */
  uint32_t reserved;            /* zero */
  /* [n_keys] content keys only: where each was computed. Implies `unchained`. NULL = none */
  const kvbm_position_t *positions;
  uint64_t timeout_ns;          /* KVBM_FOREVER by default; blocks not stored by then are KVBM_ERR_DEADLINE */
  /* [n_keys] Written before the completion can be polled; borrowed until then. Not written if the call itself fails at
   * submit. NULL = not wanted */
  kvbm_status_t *item_status;
  /* With a queue: set before the call returns, for kvbm_queue_cancel. NULL = not wanted */
  uint64_t *out_operation;
  const kvbm_key_t *unit_keys;  /* [n_keys * units] the engine's own keys of the engine blocks in each stored block, for
                                   lookups of leading ones (kvbm_lookup_options_t.unit_keys); NULL = none */
  void *stream;                 /* CUDA: a stream of the cache's device; NULL with has_stream = the legacy stream */
  uint32_t has_stream;          /* 1: read the blocks after the work now in `stream`; 0: the blocks are ready */
  uint32_t reserved2;           /* zero */
} kvbm_store_options_t;

/* Fills defaults: normal priority, chained from a block without a parent, no deadline, no item statuses.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_store_options_init(kvbm_store_options_t *out_options, uint32_t struct_size);
/* Copies engine blocks into the host tier under their keys, and hashes them on the way. A block is findable when it is
 * complete, never before. block_ids is [n_parts][n_keys * units]; KVBM_NO_BLOCK if the engine has no block of that part
 * (outside a window). queue NULL: waits and returns the result. Else returns KVBM_OK when accepted, and the tensors
 * stay borrowed until the completion: the engine must not change these blocks before it. options NULL = defaults.
 *
 * The result is KVBM_OK if every item is, KVBM_PARTIAL if some are, else the first error. items_done counts items that
 * are KVBM_OK, and `bytes` the payload bytes copied. A store of 0 keys is KVBM_OK.
 *
 * A key that exists already is KVBM_OK and moves nothing. Exception: the existing block is not a duplicate
 * (kvbm_manager_register) and is replaced.
 *
 * A prompt may be longer than the host: blocks leave it once a tier below has them, and the store goes on at the speed
 * of that tier. If a prompt is longer than all tiers together, its beginning stays.
 *
 * A store waits for slots in order of submission, while operations are about to release some.
 *
 * Errors at submit (kvbm_error_last and one line of the log have the details):
 *   KVBM_ERR_INVALID        a block id out of range; more than 2^28 ids; a stream for a cache in host memory, of
 *                           another device, of a destroyed context, or one that is being captured into a graph
 *   KVBM_ERR_AGAIN          the queue is full
 *   KVBM_ERR_TIER_DISABLED  with a stream: the cache's device was lost
 * Errors of items:
 *   KVBM_ERR_NO_ROOM        all blocks are held or are in no other tier, and no operation is about to release any;
 *                           or no waiting store got a slot for option host.room_wait;
 *                           or a slot had to be evicted for a block with a `parent` in no tier, which no lookup finds
 *   KVBM_ERR_QUOTA          a rejecting quota: at once; an evicting quota: as KVBM_ERR_NO_ROOM
 *   KVBM_ERR_DEADLINE, KVBM_ERR_CANCELLED   not stored when the deadline passed, or when kvbm_queue_cancel came
 *   KVBM_ERR_OWNER_GONE     client of a shared tier set: there was no owner (kvbm_share_t)
 *   KVBM_ERR_LIMIT          client of a shared tier set: the owner is at the limit of kvbm_namespace_open
 *   KVBM_ERR_TIER_DISABLED  the cache's device was lost
 * Thread: any. Blocks: with a queue no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_store(kvbm_cache_t *cache, const kvbm_key_t *keys, const uint32_t *block_ids,
                                        size_t n_keys, const kvbm_store_options_t *options, kvbm_queue_t *queue,
                                        uint64_t user_data);

/* How streams wait for the layers of a load (kvbm_cache_wait_layer). The engine computes with a layer while later ones
 * are still on their way.
 * KVBM_WAIT_LAYERS_OFF: streams do not wait; the caller waits for the completion.
 * KVBM_WAIT_LAYERS_ON_DEVICE: the stream waits on the device for a word in memory, also for a layer that was not given
 *   to the driver yet: it is still on a disk, say. The CPU never blocks. Only for a caller that makes no call of the
 *   driver that waits for the stream (cudaFree, a copy to pageable memory, the first launch of a lazily loaded kernel)
 *   until the load has ended: such a call may hold a lock of the driver that the load needs. The load then gets on only
 *   after 5/8 of device.lost_after, and fails with KVBM_ERR_DEADLINE.
 * KVBM_WAIT_LAYERS_ISSUED: kvbm_cache_wait_layer blocks until the layer was given to the driver, and the stream then
 *   waits for an event. The driver sees the order, so any call may follow. Works on every device. Take this one unless
 *   every call of the engine is known.
 *
 * Example: a load into a cache on a GPU, in the order of the engine's stream. launch() enqueues the kernels of a layer.
 *
 *     extern void launch(uint32_t layer, void *stream);
 *
 *     static int load_by_layers(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *ids, size_t n_ids,
 *                               uint32_t n_layers, kvbm_queue_t *queue, void *stream) {
 *       kvbm_load_options_t load;
 *       kvbm_completion_t done;
 *       uint64_t operation = 0;
 *       uint32_t layer;
 *       kvbm_load_options_init(&load, sizeof load);
 *       load.stream = stream, load.has_stream = 1; // the blocks are written after the work now in `stream`
 *       load.wait_layers = KVBM_WAIT_LAYERS_ISSUED, load.out_operation = &operation;
 *       if (kvbm_cache_load(cache, match, ids, n_ids, &load, queue, 1) != KVBM_OK) return 0;
 *       for (layer = 0; layer < n_layers; ++layer) {
 *         if (kvbm_cache_wait_layer(cache, operation, layer, stream) != KVBM_OK) break;
 *         launch(layer, stream);
 *       }
 *       kvbm_queue_wait(queue, &done, 1, KVBM_FOREVER);
 *       return layer == n_layers && done.status == KVBM_OK; // 0: discard what launch() computed
 *     } */
enum { KVBM_WAIT_LAYERS_OFF = 0, KVBM_WAIT_LAYERS_ON_DEVICE = 1, KVBM_WAIT_LAYERS_ISSUED = 2 };

/* Options of kvbm_cache_load. Arrays are copied at submit, except item_status. n_keys is the number of keys that the
 * block ids are for: n_block_ids / units, rounded up. */
typedef struct kvbm_load_options {
  uint32_t struct_size;
  uint32_t first_key;          /* skip so many keys of the match, for example those that the engine has already */
  uint32_t any_position;       /* 1: content-keyed blocks may be used at any position (the caller re-rotates) */
  /* Load only layers [first_layer, first_layer + n_layers) of the part's shard, counted from its first one. OPAQUE:
   * tensors in place of layers. A range that no part has is KVBM_ERR_INVALID. n_layers 0 = all from first_layer on. */
  uint32_t first_layer;
  uint32_t n_layers;
  /* 1: do not cache blocks of lower tiers in the host tier, because this load is their only use for a while. */
  uint32_t keep_below;
  /* [n_keys] positions at which the blocks will be used; content keys only. A block stored at another position, or
   * without one, is KVBM_ERR_MISMATCH. NULL = chained keys; content keys are then KVBM_ERR_MISMATCH, unless
   * any_position is set */
  const kvbm_position_t *positions;
  /* KVBM_FOREVER by default. Blocks that have not landed by then are KVBM_ERR_DEADLINE. */
  uint64_t timeout_ns;
  kvbm_status_t *item_status;  /* [n_keys] written before the completion can be polled; NULL = not wanted */
  /* With a queue: set before the call returns, for kvbm_queue_cancel. NULL = not wanted */
  uint64_t *out_operation;
  /* Time in which the engine computes one of its blocks. Bounds the time of the load by the time of computing (see
   * kvbm_cache_load); 0 = unknown: the load waits for every block */
  uint64_t compute_block_ns;
  void *stream;                /* as in kvbm_store_options_t: the blocks are written after the work now in `stream` */
  uint32_t has_stream;         /* 1: `stream` counts, also NULL; 0: the blocks may be written at once */
  uint32_t wait_layers;        /* CUDA: KVBM_WAIT_LAYERS_*. Unless OFF kvbm_cache_wait_layer may be called; layers then
                                  land in their order, of all keys together, the first layer first. Needs a queue and
                                  out_operation */
} kvbm_load_options_t;

/* Fills defaults: from the first key, all layers, exact positions, blocks from below are cached in the host, no
 * deadline, no limit by computing time. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_load_options_init(kvbm_load_options_t *out_options, uint32_t struct_size);
/* Copies matched blocks into the engine's blocks, and verifies every byte on the way. Takes the keys of the match in
 * order, from first_key on. block_ids is [n_parts][n_block_ids], `units` ids per key. The last key may have fewer ids:
 * then only its leading units are loaded. KVBM_NO_BLOCK skips a block. Without block ids nothing is loaded, and the
 * result is KVBM_OK; `match` may then be NULL, as from a lookup without a hit. queue, result and items_done as for
 * kvbm_cache_store. The match may be released as soon as the call has returned. It must be of this cache's namespace
 * and parts, and may be loaded any number of times.
 *
 * A failed item (KVBM_ERR_MISS, _DAMAGED, _MISMATCH, _DEADLINE, ...) leaves its engine blocks undefined and is never
 * reported as loaded: compute it. At the deadline the completion comes at once (GPU: kvbm_device.h, "ends"), and no
 * tensor is written after it.
 *
 * With compute_block_ns the load stops early if computing is faster (docs/cost.md):
 *   - It loads as many leading keys as make loading these plus computing the others fastest. The estimate is that of
 *     kvbm_match_cost. Models with window or state components load all keys or none.
 *   - The decision is made again while the load runs. If waiting longer would lose, the completion comes. It comes at
 *     most 1/8 of the time of computing everything, plus 1 ms, after the next block was due.
 *   - Keys left to the engine are KVBM_ERR_DEADLINE, and the completion is KVBM_PARTIAL, even with no item done. The
 *     leading KVBM_OK items are the loaded prefix.
 *   - A tier that is not read because it would lose is measured with one block per second. No operation waits for that
 *     block, and a tier that recovers is used again.
 *
 * Errors at submit:
 *   - KVBM_ERR_INVALID: as for store; more keys than the match has, a match of other parts, layers that no part has.
 *     Also for wait_layers without a queue or out_operation, or on a cache in host memory.
 *   - KVBM_ERR_UNSUPPORTED: KVBM_WAIT_LAYERS_ON_DEVICE on a device that has no 64-bit stream memory operations, or in a
 *     process with CUDA_LAUNCH_BLOCKING. Nothing was begun, and KVBM_WAIT_LAYERS_ISSUED works.
 *   - KVBM_ERR_FOREIGN: the match is of another manager.
 *   - KVBM_ERR_AGAIN: the queue is full.
 *   - KVBM_ERR_TIER_DISABLED: the cache's device was lost.
 * Thread: any; no two loads at a time into one block. Blocks: with a queue no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_load(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_load_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data);
/* Makes a stream wait for a layer of a load. Work that is enqueued on `stream` from now on runs after layer `layer` of
 * every part and key of the load has landed and been checked. `operation` is the out_operation of a kvbm_cache_load of
 * this cache with wait_layers. Layers are numbered as in kvbm_load_options_t.first_layer. `stream` may be any stream of
 * the cache's device, and streams may wait in any order.
 *
 * The wait gives order, and does not say that the load was right. The stream is always released in the end, also when
 * the load fails, is cancelled or meets its deadline. Blocks that failed or did not come then hold NaN. They hold their
 * old content after a load that was ended early, where the driver refuses to overwrite them, and on a lost device. So
 * results behind a wait count only when the completion and item_status say that the blocks were loaded. Discard them
 * otherwise.
 *
 * KVBM_OK also when the load has completed: the stream then waits for nothing.
 * Errors:
 *   - KVBM_ERR_INVALID: the load does not bring that layer, or the stream is wrong as in kvbm_cache_store.
 *   - KVBM_ERR_STALE: this cache knows no such load, or 1,024 later ones with wait_layers came after it. Look at its
 *     completion.
 *   - KVBM_ERR_TIER_DISABLED: the device was lost.
 * Thread: any. Blocks: with KVBM_WAIT_LAYERS_ISSUED until the layer was given to the driver or the load has ended; else
 * no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_wait_layer(kvbm_cache_t *cache, uint64_t operation, uint32_t layer, void *stream);

/* ----------------------------------------------------- coding engine blocks */

/* The calls of this section encode blocks of an attached cache into a buffer of the caller, and decode them back. They
 * do the same as kvbm_codec_encode and kvbm_codec_decode (kvbm_codec.h) on the contents of the blocks, and give the
 * same bytes, in host memory and on a device. No tier stores the buffer and no lookup finds it: the caller keeps it,
 * with the name of its contents.
 *
 * On a device, kernels gather the blocks. For lossy modes (fp8_e4m3, fp8_e5m2, int8, int6, int4) they also quantise, so
 * only coded bytes cross the bus. For zstd they split the byte planes. When decoding, kernels merge planes and decode
 * every mode that loads decode on a device. The processor codes the rest, and leaves that cannot be quantised (an
 * infinity, a NaN, no gain). The output does not depend on where it was coded, with one exception: a device adds the
 * two sums of error_ppb in another order, so their last digits may differ.
 *
 * The coded bytes are the payloads of the stored blocks, one after the other in the order of the ids. A payload is
 * [layer][K,V][engine block][head][token][dim] for every form of cache. For OPAQUE it is the pages of the engine
 * blocks, one after the other. `row_elements` and `rows` of kvbm_codec_info_t describe it. kvbm_codec_inspect returns
 * sizes, mode and loss. */
typedef struct kvbm_cache_code_options {
  uint32_t struct_size;
  uint32_t part;         /* index of the part, in the order of kvbm_cache_options_t.parts */
  /* OPAQUE and states: the form of the bytes, as in kvbm_codec_options_t. Other parts: zero, or the known form */
  uint32_t element;      /* KVBM_ELEMENT_* */
  uint32_t row_elements; /* elements of a row */
  uint32_t rows;         /* rows until the channels change */
  uint32_t flags;        /* decode: KVBM_CODEC_ALLOW_LOSSY or 0; encode: 0 */
  void *stream;          /* as in kvbm_store_options_t: blocks are read or written after the work now in `stream` */
  uint32_t has_stream;   /* 1: `stream` counts, also NULL */
  uint32_t reserved;     /* zero */
} kvbm_cache_code_options_t;

/* Fills defaults: the first part, its own form, no lossy decoding, no stream. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_code_options_init(kvbm_cache_code_options_t *out_options, uint32_t struct_size);
/* Returns the buffer size that kvbm_cache_encode needs for n_blocks engine blocks, for any contents and mode. n_blocks
 * is a multiple of `units`. Errors: KVBM_ERR_INVALID (as kvbm_cache_encode; blocks of more than 2^40 bytes).
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_code_room(kvbm_cache_t *cache, size_t n_blocks,
                                            const kvbm_cache_code_options_t *options, uint64_t *out_bytes,
                                            kvbm_error_t *err);
/* Encodes engine blocks into `out`: host memory of `capacity` bytes, at least kvbm_cache_code_room(). *out_bytes of
 * them are used. block_ids is [n_blocks]: `units` ids make a stored block, and KVBM_NO_BLOCK is refused. `mode` is a
 * KVBM_CODEC_*; lossy modes (16 and above) need bf16, fp16 or fp32. After an error `out` is undefined. Errors:
 *   KVBM_ERR_INVALID        no such mode, or a lossy one for other elements; part, ids or options; a stream, as in
 *                           kvbm_cache_store. The message names it
 *   KVBM_ERR_NO_ROOM        capacity is too small; the message has the needed size
 *   KVBM_ERR_NO_MEMORY      of the host or the device
 *   KVBM_ERR_INTERNAL       the driver refused a call
 *   KVBM_ERR_DEADLINE       other work occupies the device for longer than option device.lost_after; the device may
 *                           still read the blocks when their turn comes, and writes nothing
 *   KVBM_ERR_TIER_DISABLED  the device was lost
 * Thread: any; calls on one device are serialised. Blocks: until done, including earlier work in the stream.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_encode(kvbm_cache_t *cache, const uint32_t *block_ids, size_t n_blocks, uint32_t mode,
                                         const kvbm_cache_code_options_t *options, void *out, size_t capacity,
                                         size_t *out_bytes, kvbm_error_t *err);
/* Decodes a whole coded buffer into engine blocks; no block may be named twice. Every leaf is verified before a byte of
 * it is written to a block. Lossy contents differ from what the model computed, and kvbm does not track them: do not
 * store such blocks under keys for which readers expect exact bytes. After an error other than refused arguments the
 * blocks are undefined: each byte is the decoded one or the one from before. Errors:
 *   KVBM_ERR_DAMAGED, KVBM_ERR_VERSION   treat it as a miss
 *   KVBM_ERR_PERMISSION     lossy, and options.flags lacks KVBM_CODEC_ALLOW_LOSSY
 *   KVBM_ERR_MISMATCH       coded with other elements or rows than those of the part
 *   KVBM_ERR_UNSUPPORTED    zstd, in a build without zstd
 *   KVBM_ERR_INVALID        as kvbm_cache_encode; a buffer of another number of blocks
 *   and the others of kvbm_cache_encode
 * Thread and Blocks: as kvbm_cache_encode. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_decode(kvbm_cache_t *cache, const void *coded, size_t coded_bytes,
                                         const uint32_t *block_ids, size_t n_blocks,
                                         const kvbm_cache_code_options_t *options, kvbm_error_t *err);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_CACHE_H */

/* kvbm_cache.h - finds blocks by their keys, and moves them between the tiers and an engine's own paged cache.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * kvbm_device.h documents caches in the memory of a GPU. The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_CACHE_H
#define KVBM_CACHE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------- lookup and matches */

/* PREFIX: the longest prefix. EACH: every key by itself. ANY: the first key that is there. */
enum { KVBM_LOOKUP_PREFIX = 0, KVBM_LOOKUP_EACH = 1, KVBM_LOOKUP_ANY = 2 };

typedef struct kvbm_lookup_options {
  uint32_t struct_size;
  uint32_t mode;            /* KVBM_LOOKUP_* */
  const kvbm_part_t *parts; /* [n_parts], at most 32; a hit needs all of them. NULL = component 0, whole model */
  size_t n_parts;
  uint32_t host_only;       /* 1: look in the host tier only */
  uint32_t no_use;          /* 1: do not count the lookup as a use of the blocks */
  /* PREFIX only: [n_unit_keys] keys of the prompt's engine blocks from its start, as given to
   * kvbm_store_options_t.unit_keys. With them a stored block of several engine blocks is also found by its leading
   * engine blocks. NULL = not wanted */
  const kvbm_key_t *unit_keys;
  size_t n_unit_keys;
  /* Nodes only: ask the other nodes for keys that no tier here has, and wait at most so long for their answers.
   * 0 = do not ask; blocks of other nodes that are already known are still found */
  uint64_t ask_nodes_ns;
} kvbm_lookup_options_t;

/* Fills defaults: the longest prefix, component 0 of the whole model, all tiers, counted as a use.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_lookup_options_init(kvbm_lookup_options_t *out_options, uint32_t struct_size);
/* Finds blocks in every tier, by indexes in memory. keys is [n_keys]. *out_n is the number of leading keys that hit
 * (PREFIX), the number of all keys that hit (EACH), 0 or 1 (ANY). The match holds the blocks found in the host until it
 * is released. If nothing hit (see also kvbm_match_units), *out_match is NULL and the result KVBM_OK. With several
 * parts, a window component needs only the blocks that its window reaches, and a state component only the last one.
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
 * Thread: any. Blocks: no, except up to ask_nodes_ns for other nodes, and up to option share_ask for the owner of a
 * shared tier set, each once more for other sizes. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_lookup(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                                           size_t n_keys, const kvbm_lookup_options_t *options,
                                           KVBM_OWN kvbm_match_t **out_match, size_t *out_n);

/* One key of a match (frozen, 32 bytes). */
typedef struct kvbm_match_item {
  uint32_t tier;         /* slowest tier that a part of the key comes from; KVBM_NO_TIER = missed (EACH, ANY) */
  uint32_t parts_needed; /* bit i: part i is needed and was found */
  uint64_t bytes;        /* payload bytes to move for the key */
  uint64_t below_bytes;  /* part of `bytes` that is not in the host tier yet */
  uint64_t reserved;
} kvbm_match_item_t;
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
/* Describes keys [first, first + n); out_items is [n]. Errors: KVBM_ERR_INVALID for a range outside the match.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_items(const kvbm_match_t *match, size_t first, size_t n,
                                        kvbm_match_item_t *out_items);
/* Makes new holds on part `part` of keys [first, first + n). out_blocks is [n]; 0 for a block that is not in the host
 * tier, or is damaged. Errors: KVBM_ERR_INVALID for a range outside the match, KVBM_ERR_LIMIT as kvbm_block_clone.
 * Thread: any. Blocks: no; verifies blocks recovered from a host file at their first use. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_blocks(kvbm_match_t *match, uint32_t part, size_t first, size_t n,
                                         kvbm_block_t *out_blocks);
/* Predicts load times: out_load_ns[i] is the time that loading keys [first, first + i] into an attached cache would
 * take from now on. The estimate uses recent times of their tiers, and the work already queued there (docs/cost.md). It
 * never falls with i; keys that missed add nothing. kvbm_manager_stats compares predictions with measured times.
 * out_load_ns is [n]. Errors: KVBM_ERR_INVALID for a range outside the match. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_cost(const kvbm_match_t *match, size_t first, size_t n, uint64_t *out_load_ns);
/* Releases the match and the blocks that it holds. Loads that were submitted with it go on. NULL is a no-op.
 * Thread: any. Blocks: no, except the last handle of a released manager. Since 0.1. */
KVBM_API void kvbm_match_release(kvbm_match_t *match);

/* ---------------------------------------------------------- attached caches */

/* Order of the axes of an engine's cache, outermost first. `dim`, the row of one head of one token, is always
 * innermost. If an axis is missing, there is one tensor for each of its values. */
enum {
  /* one tensor for each layer */
  KVBM_FORM_NHD = 0,         /* [K,V][block][token][head][dim] */
  KVBM_FORM_HND = 1,         /* [K,V][block][head][token][dim] */
  KVBM_FORM_BLOCKS_NHD = 2,  /* [block][K,V][token][head][dim] */
  KVBM_FORM_BLOCKS_HND = 3,  /* [block][K,V][head][token][dim] */
  KVBM_FORM_PACKED_NHD = 4,  /* [block][token][head][K dim, V dim] */
  KVBM_FORM_PACKED_HND = 5,  /* [block][head][token][K dim, V dim]; vLLM from 0.32 */
  /* one tensor for each layer and plane: K0, V0, K1, V1, ... */
  KVBM_FORM_SPLIT_NHD = 6,   /* [block][token][head][dim]; also latents (MLA), with one tensor per layer */
  KVBM_FORM_SPLIT_HND = 7,   /* [block][head][token][dim] */
  /* one tensor for all layers */
  KVBM_FORM_LAYERS_NHD = 8,  /* [layer][K,V][block][token][head][dim] */
  KVBM_FORM_LAYERS_HND = 9,  /* [layer][K,V][block][head][token][dim] */
  KVBM_FORM_CROSS_NHD = 10,  /* [block][layer][K,V][token][head][dim] */
  KVBM_FORM_CROSS_HND = 11,  /* [block][layer][K,V][head][token][dim] */
  KVBM_FORM_CROSS_PACKED_LNH = 12, /* [block][layer][token][head][K dim, V dim] */
  KVBM_FORM_CROSS_PACKED_LHN = 13, /* [block][layer][head][token][K dim, V dim] */
  KVBM_FORM_CROSS_PACKED_HLN = 14, /* [block][head][layer][token][K dim, V dim] */
  KVBM_FORM_HEADS_PACKED = 15,     /* [layer][head][block][token][K dim, V dim] */
  KVBM_FORM_SGLANG_LAYER_FIRST = 16,       /* [K,V][layer][block * token][head][dim] */
  KVBM_FORM_SGLANG_PAGE_FIRST = 17,        /* [K,V][block * token][layer][head][dim] */
  KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT = 18, /* [K,V][block][layer][token][head][dim] */
  KVBM_FORM_SGLANG_PAGE_HEAD = 19,         /* [K,V][block][head][token][layer][dim] */
  /* n tensors, [block][bytes]; a record has the block's pages one after the other; never re-sliced */
  KVBM_FORM_OPAQUE = 100
};

/* One tensor of the engine (frozen, 32 bytes). */
typedef struct kvbm_tensor {
  void *data;             /* host memory, or an address on the device (kvbm_cache_options_t.memory); owned by the
                             caller, must outlive the cache */
  uint64_t bytes;         /* size of the tensor; no byte outside is ever touched */
  uint64_t block_stride;  /* bytes from one block to the next; equal in all tensors of a part; 0 = dense */
  uint64_t page_bytes;    /* OPAQUE: bytes of a block in this tensor; else 0 */
} kvbm_tensor_t;

/* Memory of one part of the model in the engine (frozen, 64 bytes). */
typedef struct kvbm_cache_part {
  kvbm_part_t part;             /* 24 bytes: component and shard */
  uint32_t form;                /* KVBM_FORM_* */
  uint32_t reserved;
  const kvbm_tensor_t *tensors; /* [n_tensors] in the order [layer] or [layer][K,V], by the form */
  size_t n_tensors;
  uint64_t reserved2[2];
} kvbm_cache_part_t;

enum {
  KVBM_MEMORY_AUTO = 0, /* host, unless this process has libcuda loaded and it reports device memory */
  KVBM_MEMORY_HOST = 1,
  KVBM_MEMORY_CUDA = 2
};

typedef struct kvbm_cache_options {
  uint32_t struct_size;
  uint32_t n_blocks;              /* engine blocks in the tensors; block ids are [0, n_blocks) */
  const kvbm_cache_part_t *parts; /* [n_parts], 1 to 32 */
  size_t n_parts;
  uint32_t memory;                /* KVBM_MEMORY_* of all tensors; a mix of host and device memory is refused */
  uint32_t device;                /* CUDA: the ordinal, as cuDeviceGet counts; else 0 */
} kvbm_cache_options_t;

/* Fills defaults: memory is detected (AUTO). n_blocks and parts must be set before use. Errors: KVBM_ERR_INVALID for
 * NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_options_init(kvbm_cache_options_t *out_options, uint32_t struct_size);
/* Attaches an engine's paged cache, described by `options`. The tensors stay the caller's. Errors:
 *   KVBM_ERR_INVALID        the layout does not fit; the message names part and tensor, the needed and the given size.
 *                           Also: memory of another device, memory that the driver does not know, host memory declared
 *                           as a device's, a tensor that is larger than its allocation
 *   KVBM_ERR_UNSUPPORTED    no driver, or one too old; no such device, or one without kernels; the message says which
 *   KVBM_ERR_TIER_DISABLED  the device was lost
 * Thread: any. Blocks: for the first cache on a device, while the host tier's memory is registered with it (option
 * device.pin_threads). Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_attach(kvbm_manager_t *manager, kvbm_namespace_t *ns,
                                         const kvbm_cache_options_t *options, KVBM_OWN kvbm_cache_t **out_cache,
                                         kvbm_error_t *err);
/* Waits for all operations that touch the tensors, sessions and offers too, then releases the cache. The tensors may be
 * freed afterwards. Thread: any. Blocks: until these operations have ended. Since 0.1. */
KVBM_API void kvbm_cache_release(kvbm_cache_t *cache);
/* Does kvbm_manager_lookup for the cache's own parts; options->parts must be NULL. options NULL = defaults.
 * Thread: any. Blocks: as kvbm_manager_lookup. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_lookup(kvbm_cache_t *cache, const kvbm_key_t *keys, size_t n_keys,
                                         const kvbm_lookup_options_t *options, KVBM_OWN kvbm_match_t **out_match,
                                         size_t *out_n);

/* The position at which a block under a content key was computed (frozen, 24 bytes). */
typedef struct kvbm_position {
  uint64_t first_token;  /* index of the block's first token in its prompt */
  uint64_t rotation;     /* fingerprint of the rotary parameters, chosen by the caller */
  uint64_t left_context; /* fingerprint of the tokens before the block; 0 = none */
} kvbm_position_t;

typedef struct kvbm_store_options {
  uint32_t struct_size;
  uint32_t priority;            /* KVBM_PRIORITY_* */
  const kvbm_key_t *parent;     /* key before the first; NULL = none */
  uint32_t unchained;           /* 1: keys are not a prefix in order */
  uint32_t reserved;
  const kvbm_position_t *positions; /* [n_keys] content keys only: where each was computed; NULL = none */
  uint64_t timeout_ns;          /* KVBM_FOREVER by default; blocks not stored by then are KVBM_ERR_DEADLINE */
  kvbm_status_t *item_status;   /* [n_keys] written before the completion can be polled; NULL = not wanted */
  uint64_t *out_operation;      /* for kvbm_queue_cancel; NULL = not wanted */
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
 * stay borrowed until the completion.
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
 *   KVBM_ERR_DEADLINE
 *   KVBM_ERR_OWNER_GONE     client of a shared tier set: there was no owner (kvbm_share_t)
 *   KVBM_ERR_LIMIT          client of a shared tier set: the owner is at the limit of kvbm_namespace_open
 *   KVBM_ERR_TIER_DISABLED  the cache's device was lost
 * Thread: any. Blocks: with a queue no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_store(kvbm_cache_t *cache, const kvbm_key_t *keys, const uint32_t *block_ids,
                                        size_t n_keys, const kvbm_store_options_t *options, kvbm_queue_t *queue,
                                        uint64_t user_data);

/* How streams wait for the layers of a load (kvbm_cache_wait_layer).
 * KVBM_WAIT_LAYERS_ON_DEVICE: the stream waits on the device for a word in memory, also for a layer that was not given
 *   to the driver yet: it is still on a disk, say. The CPU never blocks. Only for a caller that makes no call of the
 *   driver that waits for the stream (cudaFree, a copy to pageable memory, the first launch of a lazily loaded kernel)
 *   until the load has ended: such a call may hold a lock of the driver that the load needs. The load then gets on only
 *   after 5/8 of device.lost_after, and fails with KVBM_ERR_DEADLINE.
 * KVBM_WAIT_LAYERS_ISSUED: kvbm_cache_wait_layer blocks until the layer was given to the driver, and the stream then
 *   waits for an event. The driver sees the order, so any call may follow. Works on every device. Take this one unless
 *   every call of the engine is known. */
enum { KVBM_WAIT_LAYERS_OFF = 0, KVBM_WAIT_LAYERS_ON_DEVICE = 1, KVBM_WAIT_LAYERS_ISSUED = 2 };
typedef struct kvbm_load_options {
  uint32_t struct_size;
  uint32_t first_key;          /* skip so many keys of the match */
  uint32_t any_position;       /* 1: content-keyed blocks may be used at any position (the caller re-rotates) */
  uint32_t first_layer;        /* load only layers [first_layer, first_layer + n_layers) of the part's shard */
  uint32_t n_layers;           /* 0 = all */
  uint32_t keep_below;         /* 1: do not cache blocks of lower tiers in the host tier */
  const kvbm_position_t *positions; /* [n_keys] positions at which the blocks will be used; content keys only. A block
                                       stored at another position, or without one, is KVBM_ERR_MISMATCH */
  uint64_t timeout_ns;         /* KVBM_FOREVER by default */
  kvbm_status_t *item_status;  /* [n_keys] written before the completion can be polled; NULL = not wanted */
  uint64_t *out_operation;     /* for kvbm_queue_cancel; NULL = not wanted */
  uint64_t compute_block_ns;   /* time in which the engine computes one of its blocks. Bounds the time of the load by
                                  the time of computing (see kvbm_cache_load); 0 = unknown */
  void *stream;                /* as in kvbm_store_options_t: the blocks are written after the work now in `stream` */
  uint32_t has_stream;
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
 * result is KVBM_OK; `match` may then be NULL, as from a lookup without a hit. queue as for kvbm_cache_store.
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
 *   - KVBM_ERR_INVALID: as for store. Also for wait_layers without a queue or out_operation, or on a cache in host memory.
 *   - KVBM_ERR_UNSUPPORTED: KVBM_WAIT_LAYERS_ON_DEVICE on a device that has no 64-bit stream memory operations, or in a
 *     process with CUDA_LAUNCH_BLOCKING. Nothing was begun, and KVBM_WAIT_LAYERS_ISSUED works.
 *   - KVBM_ERR_FOREIGN. KVBM_ERR_TIER_DISABLED: the cache's device was lost.
 * Thread: any. Since 0.1. */
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
  uint32_t element;
  uint32_t row_elements;
  uint32_t rows;
  uint32_t flags;        /* decode: KVBM_CODEC_ALLOW_LOSSY or 0; encode: 0 */
  void *stream;          /* as in kvbm_store_options_t: blocks are read or written after the work now in `stream` */
  uint32_t has_stream;
  uint32_t reserved;     /* zero */
} kvbm_cache_code_options_t;

/* Fills defaults: the first part, its own form, no lossy decoding, no stream. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_code_options_init(kvbm_cache_code_options_t *out_options, uint32_t struct_size);
/* Returns the buffer size that kvbm_cache_encode needs for n_blocks engine blocks, for any contents and mode. n_blocks
 * is a multiple of `units`. Errors: KVBM_ERR_INVALID (as kvbm_cache_encode). Thread: any. Blocks: no. Since 0.1. */
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

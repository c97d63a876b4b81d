/* kvbm_cache.h - finding blocks by their keys, and moving them between the tiers and an engine's own paged cache.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is said of caches in the memory of a GPU is in kvbm_device.h. The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_CACHE_H
#define KVBM_CACHE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------- lookup and matches */

enum { KVBM_LOOKUP_PREFIX = 0, KVBM_LOOKUP_EACH = 1, KVBM_LOOKUP_ANY = 2 };

typedef struct kvbm_lookup_options {
  uint32_t struct_size;
  uint32_t mode;            /* KVBM_LOOKUP_*: the longest prefix; each key by itself; the first that is there */
  const kvbm_part_t *parts; /* [n_parts] what must be there for a hit: all of them. NULL = component 0, whole model */
  size_t n_parts;
  uint32_t host_only;       /* 1: look in the host tier alone */
  uint32_t no_use;          /* 1: do not count as a use */
  /* PREFIX only: [n_unit_keys] keys of the prompt's engine blocks from its start, as kvbm_store_options_t.unit_keys
   * had them. With them a stored block of several engine blocks is found by those it begins with. NULL = not wanted */
  const kvbm_key_t *unit_keys;
  size_t n_unit_keys;
  /* Where this manager is a node: ask the others for keys that are nowhere here, and wait so long for their answers
   * (the call then blocks). 0 = no; what was learnt of other nodes before is found all the same */
  uint64_t ask_nodes_ns;
} kvbm_lookup_options_t;

/* Fills defaults: the longest prefix, component 0 of the whole model, all tiers, counted as a use.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_lookup_options_init(kvbm_lookup_options_t *out_options, uint32_t struct_size);
/* Finds blocks in every tier, from memory alone unless nodes are asked. *out_n is the number of leading keys that hit
 * (PREFIX), the number that hit at all (EACH), 0 or 1 (ANY). What hit is held by the match until it is released; where
 * nothing did (see also kvbm_match_units), *out_match is NULL. Of several parts, a window component need only have the
 * blocks its window reaches, and a state component the last.
 *
 * Tensor-parallel sizes. A block that is not there in the part's own shard is found all the same if ranks of another
 * tensor-parallel size have stored it: all shards of one size that hold the part's heads, of the same layers, each in any
 * tier. A load reads and checks them and cuts them anew, as sessions do, one block at a time or up to 32 MiB of them in
 * memory beside the host; what it made stays in the host (and goes down) as a block of the part's own shard. Sizes up to 64
 * are looked for that divide the heads, and those beyond the heads, whose ranks hold one each. Where some shards are there
 * and not all, it is a miss (metric kvbm_lookup_shards_missing_total); hits are counted in kvbm_lookup_resliced_total.
 * Blocks of opaque forms and of managed pools are never cut, latents and states need not be: every rank holds all of them.
 * Other nodes (with ask_nodes_ns) and the owner of a shared tier set are asked for the sizes after a miss; a namespace
 * that none was ever found for, once a second. kvbm_manager_locate and kvbm_manager_scan tell of records as they are; dropping a block
 * (kvbm_manager_drop) drops the part's own alone.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_lookup(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                                           size_t n_keys, const kvbm_lookup_options_t *options,
                                           KVBM_OWN kvbm_match_t **out_match, size_t *out_n);

/* One key of a match (frozen, 32 bytes). */
typedef struct kvbm_match_item {
  uint32_t tier;         /* the slowest tier that a part of it must come from; KVBM_NO_TIER = missed (EACH, ANY) */
  uint32_t parts_needed; /* bit i: part i is needed and there */
  uint64_t bytes;        /* payload bytes to move for it */
  uint64_t below_bytes;  /* of these, bytes that are not in the host tier yet */
  uint64_t reserved;
} kvbm_match_item_t;
#define KVBM_NO_TIER UINT32_MAX

/* Keys the match was made from, hits or not; one more if a block that matches in part lies behind them.
 * Thread: any. Since 0.1. */
KVBM_API size_t kvbm_match_count(const kvbm_match_t *match);
/* Leading engine blocks that hit: `units` for each leading key, and, of a lookup with unit_keys, those of the stored
 * block that matches in part. That one is item *out_n of the match, and no more than its matching units can be
 * loaded: give kvbm_cache_load this many block ids. A match whose *out_n is 0 may still have some. After a restart a
 * block on disk is found so once it has been in the host tier again. Models with window or state components have none.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API size_t kvbm_match_units(const kvbm_match_t *match);
/* What is known of keys [first, first + n). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_items(const kvbm_match_t *match, size_t first, size_t n,
                                        kvbm_match_item_t *out_items);
/* New holds on part `part` of keys [first, first + n); 0 where it is not in the host tier, or damaged. Errors:
 * KVBM_ERR_INVALID for a range outside the match, KVBM_ERR_LIMIT as kvbm_block_clone. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_blocks(kvbm_match_t *match, uint32_t part, size_t first, size_t n,
                                         kvbm_block_t *out_blocks);
/* Predicts loads: out_load_ns[i] is how long bringing keys [first, first + i] into an attached cache would take from
 * now on, as their tiers have done lately, with what is queued there in front. Never falls with i; keys that missed add
 * nothing. An estimate, not a promise: what came of it is in kvbm_manager_stats. Errors: KVBM_ERR_INVALID for a range
 * outside the match. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_match_cost(const kvbm_match_t *match, size_t first, size_t n, uint64_t *out_load_ns);
/* Lets go of everything that the match held; loads that were submitted with it go on. NULL is a no-op. Thread: any.
 * Blocks: no, unless it is the last handle of a released manager. Since 0.1. */
KVBM_API void kvbm_match_release(kvbm_match_t *match);

/* ---------------------------------------------------------- attached caches */

/* How an engine orders its cache. The axes are given outermost first; `dim`, the row of one head of one token,
 * is always innermost. Where an axis is missing, tensors are given for each of its values. */
enum {
  /* a tensor per layer */
  KVBM_FORM_NHD = 0,         /* [K,V][block][token][head][dim] */
  KVBM_FORM_HND = 1,         /* [K,V][block][head][token][dim] */
  KVBM_FORM_BLOCKS_NHD = 2,  /* [block][K,V][token][head][dim] */
  KVBM_FORM_BLOCKS_HND = 3,  /* [block][K,V][head][token][dim] */
  KVBM_FORM_PACKED_NHD = 4,  /* [block][token][head][K dim, V dim] */
  KVBM_FORM_PACKED_HND = 5,  /* [block][head][token][K dim, V dim]; vLLM from 0.32 */
  /* a tensor for each layer and plane: K0, V0, K1, V1, ... */
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
  /* n tensors, [block][bytes]; a record is the block's pages one after the other; never re-sliced */
  KVBM_FORM_OPAQUE = 100
};

/* A tensor of the engine (frozen, 32 bytes). */
typedef struct kvbm_tensor {
  void *data;             /* host memory, or an address on the device (kvbm_cache_options_t.memory); stays the
                             caller's, must outlive the cache */
  uint64_t bytes;         /* its whole extent: nothing outside is ever touched */
  uint64_t block_stride;  /* bytes from a block to the next; 0 = dense as the form says */
  uint64_t page_bytes;    /* OPAQUE: bytes of a block in this tensor; else 0 */
} kvbm_tensor_t;

/* How the engine holds one part of the model (frozen, 64 bytes). */
typedef struct kvbm_cache_part {
  kvbm_part_t part;             /* 24 bytes: which component and shard */
  uint32_t form;                /* KVBM_FORM_* */
  uint32_t reserved;
  const kvbm_tensor_t *tensors; /* [n_tensors] in the order [layer] or [layer][K,V], as the form says */
  size_t n_tensors;
  uint64_t reserved2[2];
} kvbm_cache_part_t;

enum {
  KVBM_MEMORY_AUTO = 0, /* host, unless this process has libcuda loaded and that knows the tensors as device memory */
  KVBM_MEMORY_HOST = 1,
  KVBM_MEMORY_CUDA = 2
};

typedef struct kvbm_cache_options {
  uint32_t struct_size;
  uint32_t n_blocks;              /* engine blocks in the tensors; ids are [0, n_blocks) */
  const kvbm_cache_part_t *parts; /* [n_parts] */
  size_t n_parts;
  uint32_t memory;                /* KVBM_MEMORY_*: where all the tensors lie; some here and some there is refused */
  uint32_t device;                /* CUDA: the ordinal, as cuDeviceGet counts; 0 otherwise */
} kvbm_cache_options_t;

/* Fills defaults: memory is found out; n_blocks and parts must be set. Errors: KVBM_ERR_INVALID for NULL. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_options_init(kvbm_cache_options_t *out_options, uint32_t struct_size);
/* Describes an engine's paged cache once. Errors: KVBM_ERR_INVALID naming the part, tensor, what the layout needs
 * and what is there, also for memory of another device, memory that the driver does not know, host memory that is
 * called a device's, and a tensor that goes beyond its allocation; KVBM_ERR_UNSUPPORTED: no driver, one too old, no
 * such device, or one for which there are no kernels, each named; KVBM_ERR_TIER_DISABLED: the device was lost. Thread:
 * any. Blocks: for the first cache on a device, while the host tier's memory is registered with it
 * (device.pin_threads). Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_attach(kvbm_manager_t *manager, kvbm_namespace_t *ns,
                                         const kvbm_cache_options_t *options, KVBM_OWN kvbm_cache_t **out_cache,
                                         kvbm_error_t *err);
/* Waits for operations that touch the tensors, sessions and offers too, then forgets them. Thread: any. Blocks: yes.
 * Since 0.1. */
KVBM_API void kvbm_cache_release(kvbm_cache_t *cache);
/* kvbm_manager_lookup with the cache's own parts (options->parts must be NULL; options NULL = defaults).
 * Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_lookup(kvbm_cache_t *cache, const kvbm_key_t *keys, size_t n_keys,
                                         const kvbm_lookup_options_t *options, KVBM_OWN kvbm_match_t **out_match,
                                         size_t *out_n);

/* The position a block under a content key was computed at (frozen, 24 bytes). */
typedef struct kvbm_position {
  uint64_t first_token;
  uint64_t rotation;     /* fingerprint of the rotary parameters, of the caller's choosing */
  uint64_t left_context; /* fingerprint of what stood before; 0 = nothing */
} kvbm_position_t;

typedef struct kvbm_store_options {
  uint32_t struct_size;
  uint32_t priority;            /* KVBM_PRIORITY_* */
  const kvbm_key_t *parent;     /* key before the first; NULL = none */
  uint32_t unchained;           /* 1: keys are not a prefix in order */
  uint32_t reserved;
  const kvbm_position_t *positions; /* [n_keys] content keys only: where each was computed; NULL = none */
  uint64_t timeout_ns;          /* KVBM_FOREVER by default; what is not in place by then is KVBM_ERR_DEADLINE */
  kvbm_status_t *item_status;   /* [n_keys] written before the completion can be polled; NULL = not wanted */
  uint64_t *out_operation;      /* for kvbm_queue_cancel; NULL = not wanted */
  const kvbm_key_t *unit_keys;  /* [n_keys * units] the engine's own keys of the blocks within each stored block, by
                                   which its leading ones are found (kvbm_lookup_options_t.unit_keys); NULL = none */
  void *stream;                 /* CUDA: a stream of the cache's device; NULL with has_stream is the legacy stream */
  uint32_t has_stream;          /* 1: the blocks are read after what `stream` holds now; 0: they are ready */
  uint32_t reserved2;           /* zero */
} kvbm_store_options_t;

/* Fills defaults: normal priority, chained from a block without a parent, no deadline, no item statuses.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_store_options_init(kvbm_store_options_t *out_options, uint32_t struct_size);
/* Copies engine blocks into the host tier under their keys, hashing on the way; visible when complete, never before.
 * A prompt may be longer than the host: what is stored leaves it for the next blocks once a tier below has it, and the
 * store goes on at the speed of that tier. Of one that is longer than all tiers the beginning stays.
 * block_ids is [n_parts][n_keys * units], KVBM_NO_BLOCK where the engine has no block of that part (outside a window).
 * A key that is there already is KVBM_OK and moves nothing, unless what is there may not stand for the caller's block
 * (kvbm_manager_register): then it is replaced. queue NULL: blocks until done and returns the result; else returns
 * KVBM_OK when accepted, and the tensors stay borrowed until the completion. Errors at submit: KVBM_ERR_INVALID
 * (a block id out of range; more than 2^28 of them; a stream for a cache in host memory, of another device, of a context
 * that is gone, or that is being captured into a graph: kvbm_error_last says which, and so does one line of the log),
 * KVBM_ERR_AGAIN, KVBM_ERR_TIER_DISABLED (with a stream, when the cache's device was lost). Per item: KVBM_ERR_NO_ROOM (everything is
 * held or lies nowhere else and nothing is being given back, or for host.room_wait no store got room: until then a store
 * waits, in order; or room would have to be made and the `parent` is in no tier, so that the block could not be found),
 * KVBM_ERR_QUOTA (at once, or likewise where the quota evicts), KVBM_ERR_DEADLINE; on a client of a shared tier set
 * (kvbm_share_t) KVBM_ERR_OWNER_GONE, and KVBM_ERR_LIMIT when the owner has as many namespaces, components and shards in
 * use as it can (kvbm_namespace_open); KVBM_ERR_TIER_DISABLED when the cache's device was lost. Thread: any.
 * Since 0.1. */
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
  uint32_t first_key;          /* skip this many keys of the match */
  uint32_t any_position;       /* 1: content-keyed blocks may be used at any position (the caller re-rotates) */
  uint32_t first_layer;        /* load only layers [first_layer, first_layer + n_layers) of the part's shard */
  uint32_t n_layers;           /* 0 = all */
  uint32_t keep_below;         /* 1: do not keep blocks from lower tiers in the host tier */
  const kvbm_position_t *positions; /* [n_keys] where the blocks will stand; content keys only: given for blocks that
                                       were stored without, they are KVBM_ERR_MISMATCH, as those stored elsewhere */
  uint64_t timeout_ns;         /* KVBM_FOREVER by default */
  kvbm_status_t *item_status;  /* [n_keys] */
  uint64_t *out_operation;
  uint64_t compute_block_ns;   /* what the engine would need to compute one of its blocks, of what this call loads.
                                  Then the load is never slower than that (see kvbm_cache_load); 0 = unknown */
  void *stream;                /* as in kvbm_store_options_t: the blocks are written after what `stream` holds now */
  uint32_t has_stream;
  uint32_t wait_layers;        /* CUDA: KVBM_WAIT_LAYERS_*. Unless OFF kvbm_cache_wait_layer may be called; layers then
                                  land in their order, of all keys together, the first layer first. Needs a queue and
                                  out_operation */
} kvbm_load_options_t;

/* Fills defaults: from the first key, all layers, exact positions, blocks from below are kept in the host, no deadline,
 * everything is loaded whatever it takes. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_load_options_init(kvbm_load_options_t *out_options, uint32_t struct_size);
/* Brings matched blocks into the engine's blocks, every byte verified on the way. Keys of the match starting at
 * first_key are taken in order; block_ids is [n_parts][n_block_ids], `units` ids a key; the last key may have fewer,
 * then only its leading units are loaded. KVBM_NO_BLOCK skips a block. Without block ids nothing is loaded, and that is
 * KVBM_OK: `match` may be NULL then, as a lookup that hit nothing gives it. An item that fails (KVBM_ERR_MISS, _DAMAGED,
 * _MISMATCH, _DEADLINE, ...) leaves its engine blocks undefined and is never reported as loaded: compute it. At the
 * deadline the completion comes at once (GPU: kvbm_device.h, ends) and no tensor is written any more. queue as for store.
 *
 * With compute_block_ns: of the keys, in their order, as many are loaded as make loading these and computing the others
 * quickest, by what their tiers have done lately (kvbm_match_cost); of a model with window or state components all or
 * none. What a load turns out to take decides again as it goes: when waiting on would lose, the completion comes, and
 * no later than an eighth of what computing everything would take, plus a millisecond, after the next block was due.
 * What is left for the engine to compute is KVBM_ERR_DEADLINE, and the completion KVBM_PARTIAL, also with no item done;
 * the leading KVBM_OK items are the prefix that made it. A tier that is not read because it would lose is measured with
 * one block a second, which nothing waits for, so that one that recovers is used again.
 *
 * Errors at submit: KVBM_ERR_INVALID as for store, and for wait_layers without a queue or out_operation or on a cache
 * in host memory; KVBM_ERR_UNSUPPORTED: KVBM_WAIT_LAYERS_ON_DEVICE on a device whose streams cannot wait for memory,
 * or in a process with CUDA_LAUNCH_BLOCKING: nothing was begun, and KVBM_WAIT_LAYERS_ISSUED works; KVBM_ERR_FOREIGN;
 * KVBM_ERR_TIER_DISABLED: the cache's device was lost. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_load(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_load_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data);
/* Makes a stream wait for a layer of a load: what is enqueued on `stream` from now on runs after layer `layer`, of
 * every part and key that `operation` loads, has landed and been checked. `operation` is the out_operation of a
 * kvbm_cache_load of this cache with wait_layers; layers are numbered as in kvbm_load_options_t.first_layer. Any
 * streams of the cache's device, in any order.
 *
 * Order alone does not say that the load was right. A stream that waits is always released in the end, also when the
 * load fails, is cancelled or meets its deadline: blocks then hold NaN (what failed or did not come), or what was there
 * before: of a load ended early, and where the driver refuses to overwrite them or the device was lost. What was
 * computed behind a wait counts only once the completion, and item_status, have said that its blocks were loaded;
 * otherwise it must be thrown away.
 *
 * KVBM_OK also when the load has completed: there is nothing to wait for. Errors: KVBM_ERR_INVALID (a layer that the
 * load does not bring, a stream as in kvbm_cache_store), KVBM_ERR_STALE (no such load of this cache, or one that
 * 1,024 later ones with wait_layers came after: look at its completion), KVBM_ERR_TIER_DISABLED (the device was lost).
 * Thread: any. Blocks: with KVBM_WAIT_LAYERS_ISSUED until the layer was given to the driver or the load has ended; else
 * no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_wait_layer(kvbm_cache_t *cache, uint64_t operation, uint32_t layer, void *stream);

/* ----------------------------------------------------- coding blocks by hand */

/* Blocks of an attached cache as a coded buffer in memory of the caller's, and back: kvbm_codec_encode and
 * kvbm_codec_decode (kvbm_codec.h) of what the blocks hold, wherever the cache lies, with the same bytes. Nothing of it
 * enters a tier, and no lookup finds it: the caller keeps the buffer and knows whose it is.
 *
 * On a device its kernels gather the blocks, quantise them (fp8_e4m3, fp8_e5m2, int8, int6, int4) or split their byte
 * planes (zstd), so that of a lossy mode only what is coded crosses the bus; back, they decode every mode that
 * kvbm_device.h's loads decode, and merge planes. All else, and leaves that are not to be quantised (an infinity, a NaN,
 * no gain), the processor codes. Which of them did it shows in no byte, but for the last digits of the two sums behind
 * error_ppb, which a device adds up in another order.
 *
 * What is coded: the payloads of the stored blocks, one after the other, in the order of the ids. A payload is
 * [layer][K,V][engine block][head][token][dim] whatever the form of the cache, or the pages of its engine blocks one
 * after the other (OPAQUE); `row_elements` and `rows` of kvbm_codec_info_t say so. kvbm_codec_inspect gives sizes, mode
 * and what was lost. */
typedef struct kvbm_cache_code_options {
  uint32_t struct_size;
  uint32_t part;         /* index of the part, in the order of kvbm_cache_options_t.parts */
  uint32_t element;      /* OPAQUE and states: what the bytes are, as in kvbm_codec_options_t; of other parts it is known: */
  uint32_t row_elements; /* zero, or the same */
  uint32_t rows;
  uint32_t flags;        /* decode: KVBM_CODEC_ALLOW_LOSSY; encode: 0, the mode says it */
  void *stream;          /* as in kvbm_store_options_t: blocks are read or written after what `stream` holds now */
  uint32_t has_stream;
  uint32_t reserved;     /* zero */
} kvbm_cache_code_options_t;

/* Fills defaults: the first part, its own form, nothing lossy back, at once. Errors: KVBM_ERR_INVALID for NULL. Thread:
 * any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_code_options_init(kvbm_cache_code_options_t *out_options, uint32_t struct_size);
/* Room that kvbm_cache_encode needs for so many engine blocks, whatever is in them and whichever mode. Errors:
 * KVBM_ERR_INVALID (as of kvbm_cache_encode). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_code_room(kvbm_cache_t *cache, size_t n_blocks,
                                            const kvbm_cache_code_options_t *options, uint64_t *out_bytes,
                                            kvbm_error_t *err);
/* Codes engine blocks into `out`, host memory of `capacity` bytes, kvbm_cache_code_room() at least; *out_bytes of them are
 * used. `units` ids make a stored block; KVBM_NO_BLOCK is refused. `mode`: KVBM_CODEC_*; lossy ones (from 16 on) are for
 * bf16, fp16 and fp32. Errors: KVBM_ERR_INVALID (no such mode, a lossy one for other elements; part, ids, options,
 * stream as in kvbm_cache_store; each named), KVBM_ERR_NO_ROOM (capacity; the message says what is needed),
 * KVBM_ERR_NO_MEMORY (of the device's, too), KVBM_ERR_INTERNAL (what the driver refused), KVBM_ERR_DEADLINE (other work
 * keeps the device longer than device.lost_after: it may still read the blocks until it has come to them, and writes
 * nothing), KVBM_ERR_TIER_DISABLED (the device was lost). After an error `out` is undefined. Thread: any; calls on one device follow one another. Blocks:
 * yes, also until the stream has got there. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_encode(kvbm_cache_t *cache, const uint32_t *block_ids, size_t n_blocks, uint32_t mode,
                                         const kvbm_cache_code_options_t *options, void *out, size_t capacity,
                                         size_t *out_bytes, kvbm_error_t *err);
/* Decodes a whole coded buffer into engine blocks, of which none may be named twice. Every leaf is checked before a byte
 * of it is written to a block. Blocks that were filled with loss are not what the model computed, and kvbm does not know:
 * do not store them under keys whose readers want exact bytes. Errors: KVBM_ERR_DAMAGED and KVBM_ERR_VERSION: treat it as
 * a miss; KVBM_ERR_PERMISSION (it is lossy and options.flags lacks KVBM_CODEC_ALLOW_LOSSY); KVBM_ERR_MISMATCH (coded as
 * other elements or rows than the part holds); KVBM_ERR_UNSUPPORTED (zstd, in a build without); KVBM_ERR_INVALID as above,
 * also for a buffer of another number of blocks; the others as above. After an error that is not a refusal of arguments
 * the blocks are undefined: each byte is what was coded or what was there before. Thread, Blocks: as above. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_decode(kvbm_cache_t *cache, const void *coded, size_t coded_bytes,
                                         const uint32_t *block_ids, size_t n_blocks,
                                         const kvbm_cache_code_options_t *options, kvbm_error_t *err);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_CACHE_H */

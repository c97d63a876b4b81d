/* kvbm.h - stores, finds and moves the KV cache of large language models.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * CONTENTS
 *   #include <kvbm.h> includes every other header. Each may also be included alone.
 *
 *   kvbm.h          this manual; version; context and settings; queues, completions, events; geometry; managers and
 *                   tiers; namespaces; keys; managed pools; residency control (prefetch, offload, drop, hint, pin);
 *                   observation (statistics, metrics, events, scan)
 *   kvbm_types.h    status; handles; parts of a model
 *   kvbm_cache.h    lookup and matches; attached caches: store, load, waiting for layers
 *   kvbm_device.h   caches in the memory of a GPU; devices
 *   kvbm_node.h     nodes of a pool and the location of blocks; one tier set shared by processes of a host
 *   kvbm_session.h  prefill->decode: offers and sessions
 *   kvbm_codec.h    codecs for the caller's own buffers
 *   kvbm_plugin.h   plug-in tiers, stores and eviction policies: tables of C functions
 *
 * THE MODEL
 *   For every token of a prompt an inference engine computes key and value vectors in every layer of its model: the
 *   KV cache. libkvbm keeps these vectors outside the GPU's memory and finds them again by content. Loading them
 *   replaces computing them.
 *
 *   block       the KV of a fixed number of consecutive tokens. A 16-byte key names its content.
 *   namespace   the scope of a key: tenant, model, adapter, geometry, epoch and a secret. Keys of different
 *               namespaces never match, even if the tokens are equal.
 *   shard       the layers and heads of the model that the bytes belong to. Two tensor-parallel ranks use the same
 *               keys and different shards, and never get each other's bytes. Blocks that ranks of another
 *               tensor-parallel size stored are found too, and re-sliced (kvbm_manager_lookup).
 *   component   the kind of state, for hybrid models: attention, sliding window, latent, recurrent state.
 *   tier        a place for blocks, fastest first: host memory (tier 0), then disks, plug-ins and stores in the
 *               configured order. Offload moves a block down, onboard moves it up. The engine's own paged cache, in
 *               host memory or on a GPU (kvbm_device.h), is above all tiers and has no number.
 *   record      a block's bytes of one component and shard, with a hash of every 64 KiB of them. Bytes that come
 *               from a tier are checked against the hashes. Damage is a miss, never wrong bytes.
 *
 * TWO WAYS TO USE IT
 *   Attached cache: the engine has its own paged KV cache. It describes the cache once (kvbm_cache_attach), and calls
 *   lookup, load and store with keys and its own block ids.
 *   Managed pool: kvbm owns the blocks. The engine allocates, fills, completes, registers, looks up and releases them.
 *
 * THE LIFE OF A BLOCK IN C
 *   Reset --allocate--> Partial --complete--> Complete --register--> Registered --last release--> evictable
 *   A kvbm_block_t names a *hold* on a block, not the block. Every allocate, match and clone makes a new hold, and
 *   every hold ends once. A call with an ended hold returns KVBM_ERR_STALE, with another manager's hold
 *   KVBM_ERR_FOREIGN. Neither touches memory. Resolving a hold and using it is atomic: a call runs before the end of
 *   the hold or after it, whatever other threads do. A block is evicted only if it has no hold.
 *
 * CONVENTIONS
 *   1. Functions return kvbm_status_t: 0 done, above 0 accepted or partly done, below 0 failed. Failures come in bands
 *      of 100 that name the remedy. A cache miss is a count, not an error.
 *   2. Arguments come in this order: subject, inputs (pointer, then count), options, outputs (out_*), and last a
 *      nullable kvbm_error_t that receives the details. For calls without one, kvbm_error_last returns them.
 *      Outputs are written only on success unless the call says otherwise. out_ counts are always written.
 *   3. Options structs begin with struct_size. Call the *_options_init function, set fields, pass the struct.
 *      An unset field has its default. NULL options mean all defaults. A nonzero field that this library does not
 *      know is refused (KVBM_ERR_UNSUPPORTED), never ignored.
 *   4. Long-lived objects are opaque pointers with reference counts. Releasing them in any order is legal: children
 *      keep parents alive. Releasing NULL is a no-op. KVBM_OWN marks a reference that the caller must release.
 *   5. Pointers passed in are borrowed for the call. Asynchronous calls copy arrays at submit. Two things stay borrowed
 *      until the completion is polled: the bytes of attached caches, and item_status arrays.
 *   6. Sizes are in bytes and times in nanoseconds, and names say so. Strings are UTF-8 with a final zero byte.
 *   7. Counts are checked before anything is read. No array of a call may have more than 2^28 (268,435,456) elements,
 *      all its dimensions multiplied. More is KVBM_ERR_INVALID, or the error of the call's own smaller limit. An array
 *      that is shorter than its count is not detected. The capacity of an output may be any number; no more is written
 *      than there is.
 *   8. No call aborts, exits, throws, installs a signal handler, or runs a callback on a library thread. There are two
 *      exceptions, documented as such: the log callback and plug-in tables.
 *   9. "Errors" lists what a call returns besides these, which any call that returns a status may return:
 *      KVBM_ERR_INVALID (NULL, or a value out of range), KVBM_ERR_FOREIGN (objects of two managers), KVBM_ERR_FORKED,
 *      KVBM_ERR_UNSUPPORTED (convention 3), KVBM_ERR_NO_MEMORY and KVBM_ERR_INTERNAL.
 *  10. "Frozen" structs never change their size or their fields. So arrays of them are safe across versions.
 *  11. "Blocks" says what a call waits for: other threads' work, input and output, a network, or its own long work.
 *      "no" does not exclude short locks and allocations. "Since" is the first version with the declaration.
 *
 * THREADS
 *   Each function has a Thread line. "any": threads may call it concurrently on one object. "one": the caller
 *   serialises calls on that object. Library threads are named kvbm-*, block all signals and end with the context.
 *   After fork a child may not use objects of its parent: calls return KVBM_ERR_FORKED, and releases do nothing, so
 *   destructors may run there. A child creates objects of its own.
 *
 * STABILITY
 *   Symbols and struct layouts keep their meaning within a soname. Values are never reused. Formats on disk have
 *   versions of their own (docs/formats.md).
 */
#ifndef KVBM_H
#define KVBM_H

#include "kvbm_cache.h"
#include "kvbm_codec.h"
#include "kvbm_device.h"
#include "kvbm_node.h"
#include "kvbm_plugin.h"
#include "kvbm_session.h"
#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

/* Version of this header. Before 1.0 a new minor version is a new soname. */
#define KVBM_VERSION_MAJOR 0
#define KVBM_VERSION_MINOR 1
#define KVBM_VERSION_PATCH 0
/* The header's version as one number that can be compared: major * 1000000 + minor * 1000 + patch. */
#define KVBM_VERSION (KVBM_VERSION_MAJOR * 1000000 + KVBM_VERSION_MINOR * 1000 + KVBM_VERSION_PATCH)

/* Returns the version of the running library, in the form of KVBM_VERSION. Compare it with the macro to detect a header
 * and a library of different versions. Thread: any. Blocks: no. Since 0.1. */
KVBM_API uint32_t kvbm_version(void);
/* Returns the version as text, "0.1.0". Static; never NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_version_string(void);

/* ----------------------------------------------------- context and settings */

/* Levels of the log. ERROR: damage was found, or a tier or device is out of service. WARNING: a submission was refused,
 * or a fault was contained. INFO: rare events such as connections. DEBUG: for work on kvbm itself. */
enum { KVBM_LOG_OFF = 0, KVBM_LOG_ERROR = 1, KVBM_LOG_WARNING = 2, KVBM_LOG_INFO = 3, KVBM_LOG_DEBUG = 4 };

/* Receives one log line. `text` has the message, then its fields as " key=value". `component` names the part of the
 * library. Both are valid during the call. Runs on any thread, several at a time, library threads included. The
 * function must not call kvbm, and what it waits for delays the work of that thread. */
typedef void (*kvbm_log_fn)(void *user, int32_t level, const char *component, const char *text);

/* One setting: the key of a configuration option (docs/configuration.md) and its value as text (frozen). Sizes are
 * whole numbers of bytes, or with KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB. Durations have ns, us, ms, s, m
 * or h. In the environment the option host.capacity is KVBM_HOST_CAPACITY. */
typedef struct kvbm_setting {
  const char *key;   /* e.g. "host.capacity" */
  const char *value; /* e.g. "8GiB" */
} kvbm_setting_t;

/* Options of kvbm_context_create. Texts and `settings` are copied. */
typedef struct kvbm_context_options {
  uint32_t struct_size;
  uint32_t threads;              /* worker threads, at most 256; 0 = from configuration ("threads", default 2) */
  const char *config_file;       /* TOML, at most 1 MiB; NULL = $KVBM_CONFIG, else none */
  const kvbm_setting_t *settings; /* [n_settings] override file and environment */
  size_t n_settings;
  kvbm_log_fn log;               /* NULL = silent */
  void *log_user;                /* passed to `log`; must live until the context's last child is released */
  int32_t log_level;             /* KVBM_LOG_*; 0 with a callback = KVBM_LOG_WARNING */
  int32_t reserved;              /* zero */
} kvbm_context_options_t;

/* Fills defaults: no file but $KVBM_CONFIG, no settings, silent. struct_size = sizeof(kvbm_context_options_t) of the
 * caller's header; this and all *_options_init functions set the field to it. Errors: KVBM_ERR_INVALID (NULL, or a size
 * below 4 or above 65,536). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_options_init(kvbm_context_options_t *out_options, uint32_t struct_size);

/* Creates a context: configuration, worker threads, I/O engine. Resolves the configuration once, in this order:
 * defaults, the TOML file, KVBM_* of the environment, `settings`. A later source overrides an earlier one. `options`
 * NULL = all defaults. Opens no tier and no network. Errors: KVBM_ERR_CONFIG (unknown key or KVBM_* variable, bad
 * value, no such file; the message names key, value and origin), KVBM_ERR_UNSUPPORTED (io.engine = uring where the
 * system has none). Thread: any, but none may change the environment meanwhile. Blocks: for reading one file.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_create(const kvbm_context_options_t *options, KVBM_OWN kvbm_context_t **out_context,
                                           kvbm_error_t *err);
/* Releases the caller's reference. The context lives until its last child is released. Thread: any. Blocks: the last
 * reference, until the worker threads have ended. Since 0.1. */
KVBM_API void kvbm_context_release(kvbm_context_t *context);
/* Writes the effective configuration as TOML, with the origin of each value as a comment. Two-phase: *out_needed is the
 * length without the final zero byte. `out` may be NULL if capacity is 0. Longer text is cut and zero-terminated, and
 * the result is still KVBM_OK: compare *out_needed with capacity. Give a larger buffer to get all. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_config(const kvbm_context_t *context, char *out, size_t capacity,
                                           size_t *out_needed);
/* Writes the table of all configuration options (key, type, default, meaning) as Markdown. Two-phase like
 * kvbm_context_config. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_config_reference(char *out, size_t capacity, size_t *out_needed);

/* ------------------------------------------------------ queues, completions */

/* Kinds of operations, in kvbm_completion_t.op. */
enum {
  KVBM_OP_STORE = 1,    /* kvbm_cache_store */
  KVBM_OP_LOAD = 2,     /* kvbm_cache_load */
  KVBM_OP_PREFETCH = 3, /* kvbm_manager_prefetch */
  KVBM_OP_OFFLOAD = 4,  /* kvbm_manager_offload */
  KVBM_OP_OFFER = 5,   /* kvbm_offer_open */
  KVBM_OP_RECEIVE = 6, /* kvbm_session_open */
  KVBM_OP_LAYER = 7    /* one layer of a kvbm_session_open; one completion for each */
};

/* Result of one accepted submission (frozen, 64 bytes). Every accepted submission has exactly one completion, even if
 * it finished at once, failed or was cancelled. A refused submission has none. Operations end in any order. */
typedef struct kvbm_completion {
  uint64_t user_data;      /* as given at submit; kvbm never looks at it */
  uint64_t operation;      /* number of the operation, as out_operation; sessions: see kvbm_session_open */
  int32_t op;              /* KVBM_OP_* */
  kvbm_status_t status;    /* KVBM_OK, KVBM_PARTIAL (see item_status), or the error that stopped it */
  uint64_t items_done;     /* keys done, with all their parts; sessions and offers: see there */
  uint64_t items;          /* keys requested */
  uint64_t bytes;          /* payload bytes moved */
  uint64_t wait_ns;        /* from submit to the start of work */
  uint64_t service_ns;     /* from the start of work to its end */
} kvbm_completion_t;

/* Kinds of events: see kvbm_event_t. */
enum { KVBM_EVENT_STORED = 1, KVBM_EVENT_REMOVED = 2, KVBM_EVENT_CLEARED = 3, KVBM_EVENT_DISABLED = 4 };

/* Reports a change of a block's location (frozen, 72 bytes).
 *   STORED    the block is in `tier`. A move between tiers is a STORED in one and a REMOVED in the other.
 *   REMOVED   the block left `tier`, for any reason. May also come for a block that was not there.
 *   CLEARED   every block of namespace_id left every tier (kvbm_namespace_reset, kvbm_namespace_invalidate).
 *             A zero namespace_id means all namespaces (kvbm_manager_reset). A block that is stored during that call
 *             may still be there.
 *   DISABLED  `tier` is out of service with all its blocks.
 * A scan directly after kvbm_manager_subscribe, plus all events after it, gives the same as a later kvbm_manager_scan,
 * for the tiers that a scan lists.
 * Each shard of a block has events of its own; no field tells them apart. */
typedef struct kvbm_event {
  uint64_t sequence;   /* of the manager, from 1, without gaps; a gap seen by a reader means lost events */
  int32_t kind;        /* KVBM_EVENT_* */
  uint32_t tier;       /* 0 = host; STORED, REMOVED and DISABLED only */
  uint8_t namespace_id[16]; /* as kvbm_namespace_id; zero for DISABLED */
  kvbm_key_t key;      /* STORED and REMOVED only; else zero bytes */
  kvbm_key_t parent;   /* zero bytes = none or unknown */
  uint32_t component;  /* index into the geometry's components */
  uint32_t reserved;   /* zero */
} kvbm_event_t;

/* Creates a queue for at most `depth` operations in flight, 1 to 65,536. Completions that wait to be polled count too,
 * so none is ever lost. Errors: KVBM_ERR_INVALID (depth), KVBM_ERR_NO_MEMORY (no file descriptor left either).
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_queue_create(kvbm_context_t *context, uint32_t depth, KVBM_OWN kvbm_queue_t **out_queue,
                                         kvbm_error_t *err);
/* Releases the caller's reference. Operations in flight still finish; their completions are dropped. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API void kvbm_queue_release(kvbm_queue_t *queue);
/* Returns a file descriptor that polls readable while completions or events wait; -1 for NULL. With edge-triggered
 * polling (EPOLLET) the first waiting completion makes an edge, and so does the first waiting event. Each does so
 * whether or not the other kind waits. Drain a kind before you wait for it again. Owned by the queue: do not read or
 * close it. Closed with the queue's last reference. Thread: any. Blocks: no. Since 0.1. */
KVBM_API int kvbm_queue_fd(const kvbm_queue_t *queue);
/* Takes up to `capacity` completions, oldest first, and returns their number; 0 for NULL and in a forked child.
 * Thread: any; each completion goes to one caller. Blocks: no. Since 0.1. */
KVBM_API size_t kvbm_queue_poll(kvbm_queue_t *queue, kvbm_completion_t *out_completions, size_t capacity);
/* Takes completions like kvbm_queue_poll, and waits up to timeout_ns for the first one. Returns 0 after the timeout,
 * and at once for a capacity of 0. Events do not end the wait: for both, poll the descriptor. Thread: any. Blocks: up
 * to timeout_ns. Since 0.1. */
KVBM_API size_t kvbm_queue_wait(kvbm_queue_t *queue, kvbm_completion_t *out_completions, size_t capacity,
                                uint64_t timeout_ns);
/* Requests the early end of an operation. Its completion still comes: KVBM_ERR_CANCELLED, KVBM_PARTIAL if some items
 * were done (the others are KVBM_ERR_CANCELLED), or the result it already had. Until then its memory stays borrowed.
 * Errors: KVBM_ERR_STALE (it has completed). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_queue_cancel(kvbm_queue_t *queue, uint64_t operation);
/* Takes up to `capacity` block events (kvbm_manager_subscribe) and returns their number. At most 65,536 events wait. If
 * the reader is slower than the writer, the oldest are lost, and a gap in the sequence shows it. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API size_t kvbm_queue_poll_events(kvbm_queue_t *queue, kvbm_event_t *out_events, size_t capacity);

/* ----------------------------------------------------- geometry, components */

/* Kinds of components. */
enum {
  KVBM_COMPONENT_ATTENTION = 0, /* K and V of every token */
  KVBM_COMPONENT_WINDOW = 1,    /* K and V; only the last window_tokens matter */
  KVBM_COMPONENT_LATENT = 2,    /* one latent row per token (MLA) */
  KVBM_COMPONENT_STATE = 3      /* a recurrent state; only the one of the last block matters */
};

/* One component of the whole model: all layers and heads, before sharding (frozen, 48 bytes). Fields that the kind does
 * not use must be zero. */
typedef struct kvbm_component {
  uint32_t kind;          /* KVBM_COMPONENT_* */
  uint32_t element;       /* KVBM_ELEMENT_*; state: 0, which is KVBM_ELEMENT_BYTES */
  uint32_t layers;        /* layers that have this component; 1 to 4,096 */
  uint32_t heads;         /* KV heads of the model, 1 to 4,096; latent and state: 0 or 1 */
  /* Elements of one head's row, at least 1 and at most 64 KiB; latent: the row's width; state: 0. */
  uint32_t head_dim;
  uint32_t window_tokens; /* WINDOW only: at least 1 */
  uint64_t state_bytes;   /* STATE only: bytes per layer and engine block; 1 to 2 GiB */
  uint64_t reserved[2];   /* zero */
} kvbm_component_t;

/* Creates a geometry: facts of the model and the tokens of one engine block. `units` engine blocks make one stored
 * block. With units = 1 they are the same; 16 with 16-token blocks gives records of 256 tokens. tokens_per_block and
 * units are 1 to 4,096. components is [n_components], 1 to 16, and copied. Larger stored blocks cost less per token on
 * disks and links; smaller ones match more prompts. Errors: KVBM_ERR_INVALID (the message names component and field).
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_geometry_create(uint32_t tokens_per_block, uint32_t units,
                                            const kvbm_component_t *components, size_t n_components,
                                            KVBM_OWN kvbm_geometry_t **out_geometry, kvbm_error_t *err);
/* Releases the caller's reference. Namespaces made with the geometry keep it alive. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API void kvbm_geometry_release(kvbm_geometry_t *geometry);
/* Returns the 64-bit fingerprint that is part of the namespace (formula: docs/formats.md); 0 for NULL, and never for a
 * geometry. Thread: any. Blocks: no. Since 0.1. */
KVBM_API uint64_t kvbm_geometry_fingerprint(const kvbm_geometry_t *geometry);
/* Returns the payload bytes of one record of a component and shard (NULL = the whole component): layers * planes (2 for
 * K and V, else 1) * heads * head_dim * bytes of an element * tokens_per_block * units. Of a state: layers * units *
 * state_bytes. host.block_bytes must be at least the largest one. Errors: KVBM_ERR_INVALID (component, shard; a record
 * of more than 4,095 MiB). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_geometry_record_bytes(const kvbm_geometry_t *geometry, uint32_t component,
                                                  const kvbm_shard_t *shard, uint64_t *out_bytes);

/* ----------------------------------------------------------------- managers */

/* Admission of a tier: the blocks that are written there (docs/concepts.md, "Edge, admission"). */
enum {
  KVBM_ADMIT_ALL = 0,         /* every block when it is stored; the store does not wait */
  KVBM_ADMIT_ON_EVICTION = 1, /* blocks that the tier above is about to evict, if this one lacks them */
  KVBM_ADMIT_AFTER_USES = 2,  /* blocks that were stored or hit admission_uses times, ever */
  KVBM_ADMIT_FREQUENCY = 3,   /* blocks that were stored or hit admission_uses times, lately */
  KVBM_ADMIT_ON_REQUEST = 4   /* only blocks that kvbm_manager_offload sends */
};
/* Store beyond a namespace's quota. EVICT: evicts blocks of the same namespace; only if none may be evicted, it waits
 * and then fails. REJECT: fails at once. Both fail with KVBM_ERR_QUOTA. */
enum { KVBM_QUOTA_EVICT = 0, KVBM_QUOTA_REJECT = 1 };

/* A tier below host memory (frozen, 128 bytes). Exactly one of `path`, `table`, and `url` or `store` is set. */
typedef struct kvbm_tier {
  /* Directory of a disk tier: owned by this user and not writable by others, or created so (0700); else NULL. One
   * process at a time may open it; its blocks are found again after a restart or a crash. */
  const char *path;
  const kvbm_tier_table_t *table; /* a plug-in tier; else NULL */
  void *table_user;               /* passed to the table's functions */
  /* Hard limit of everything in the tier's directory or store; store: 0 = no limit; plug-in: not used. Smaller than
   * before is allowed: blocks are removed. Too small is KVBM_ERR_CONFIG, with the least size. */
  uint64_t capacity_bytes;
  uint64_t write_bytes_per_s;     /* bandwidth limit of offload into it; 0 = none */
  uint64_t read_bytes_per_s;      /* bandwidth limit of onboard from it; 0 = none */
  uint32_t admission;             /* KVBM_ADMIT_*: which blocks of the host are written here, and which of those that a
                                     disk above evicts */
  uint32_t admission_uses;        /* AFTER_USES: n; FREQUENCY: threshold; 1 to 15, 0 = 2 */
  const char *codec;              /* compression of records here: off (NULL), auto, fast, default, max, zstd */
  uint32_t codec_goal;            /* goal of auto; 0: blocks are onboarded sooner, 1: more blocks fit */
  uint32_t reserved0;             /* zero */
  const char *url;                /* a store: s3://bucket/prefix?region=..., redis://host:port/0, file:///mnt/shared/kv,
                                     plugin:/path/of.so (docs/stores.md); else NULL */
  const kvbm_store_table_t *store; /* the caller's own store in this process, instead of one named by `url`. `url` then
                                     has only its options, as mine://?poll=1s, or is NULL. Lives as long as the
                                     manager */
  uint64_t reserved[5];           /* zero */
} kvbm_tier_t;

/* Bits of kvbm_manager_options_t.flags. */
#define KVBM_MANAGER_SHARE 1u /* like option share=on: several processes of this host share the tier set */

/* Options of kvbm_manager_create. Texts, `tiers`, and tables of tiers and policies are copied; the code and data that
 * the tables point to are not (kvbm_plugin.h). */
typedef struct kvbm_manager_options {
  uint32_t struct_size;
  uint32_t flags;                /* KVBM_MANAGER_*, or zero */
  uint64_t block_bytes;          /* largest payload of a record, at most 2 GiB; 0 = configuration "host.block_bytes" */
  uint64_t host_capacity_bytes;  /* host tier, record heads included; a hard limit; 0 = configuration "host.capacity" */
  const char *host_file;         /* keep host blocks in this tmpfs or hugetlbfs file across restarts. Owned by this user
                                    and not writable by others, or created so (0600). Truncating it while it is in use
                                    kills this process (SIGBUS). NULL = anonymous memory */
  /* Eviction policy: prefix, lru, fifo, lfu or tinylfu; NULL = configuration "host.policy" (default "prefix", which
   * knows prefix trees). */
  const char *policy;
  const kvbm_policy_table_t *policy_table; /* the caller's own policy instead; NULL = none */
  void *policy_user;             /* passed to policy_table's create */
  const kvbm_tier_t *tiers;      /* [n_tiers], fastest first, instead of those of the configuration; NULL = [[tier]] */
  size_t n_tiers;                /* at most 6; other nodes, as the last tier, are not counted */
} kvbm_manager_options_t;

/* Fills defaults: everything from the configuration. struct_size = sizeof the struct in the caller's header.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_options_init(kvbm_manager_options_t *out_options, uint32_t struct_size);

/* Creates a manager: the owner of one set of tiers. Maps the host tier, then opens and recovers the tiers below.
 * options NULL = everything from the configuration. Damaged records are left out and are no error. Errors:
 *   KVBM_ERR_CONFIG       a capacity below one block, an impossible size
 *   KVBM_ERR_IN_USE       a tier directory or host_file has another owner; the message names it
 *   KVBM_ERR_VERSION      a directory of a newer format
 *   KVBM_ERR_EXISTS       a directory with files that are not kvbm's, or such a host_file; nothing is changed
 *   KVBM_ERR_DAMAGED      a directory with an unreadable superblock
 *   KVBM_ERR_DISK_FULL, KVBM_ERR_NO_MEMORY, KVBM_ERR_IO
 *   KVBM_ERR_PERMISSION   a directory, a file in it or a host_file that another user owns or others may write, or a
 *                         symbolic link; the message has the path and the chmod or chown that repairs it
 *   KVBM_ERR_UNSUPPORTED  a host_file on a file system that does not guarantee its pages: served by another program or
 *                         machine, or without reservation
 * Thread: any. Blocks: for mapping and recovery. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_create(kvbm_context_t *context, const kvbm_manager_options_t *options,
                                           KVBM_OWN kvbm_manager_t **out_manager, kvbm_error_t *err);
/* Releases the caller's reference. The last release among manager, namespaces, caches, matches, offers and sessions
 * finishes work in flight and closes the tiers. Acknowledged blocks are found again after a restart. Thread: any.
 * Blocks: until closed. Since 0.1. */
KVBM_API void kvbm_manager_release(kvbm_manager_t *manager);
/* Removes every block without a hold from every tier. Held blocks vanish from lookups and are freed when released.
 * Persistent. Errors: KVBM_ERR_UNSUPPORTED if there is a plug-in tier: its records stay (kvbm_namespace_invalidate
 * makes them unfindable). Thread: any. Blocks: for a synced write per disk; on a client of a shared tier set for the
 * owner, up to 2 s. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_reset(kvbm_manager_t *manager, kvbm_error_t *err);
/* Waits until no offload is queued or in flight. Every block that was queued is then in its tier and survives the death
 * of this process.
 *
 * Stores that are faster than the tiers fill the queue, which has half of the host tier. A block without a place in it
 * is counted (offloads_skipped) and written later, before its eviction, if there is time.
 *
 * A block that a tier did not accept (full or failing disk) is sent once more. KVBM_PARTIAL means: there was such a
 * block since the last flush that reported one, or a tier is out of service. The block may be in the tier by now, or
 * may have left host memory. KVBM_OK of a later flush means that all such blocks that are still in host memory are in
 * the tier. A failure is reported by every flush that runs at that time, else by the next one.
 *
 * In a shared tier set the result covers each block that this process stored (kvbm_manager_share).
 * Errors: KVBM_ERR_DEADLINE (not done within timeout_ns; the offloads go on). Thread: any. Blocks: until done, up to
 * timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_flush(kvbm_manager_t *manager, uint64_t timeout_ns);
/* Flushes like kvbm_manager_flush, then syncs every disk, so its contents survive a power loss. KVBM_OK comes after the
 * syncs. Costs a flush of each device's write cache.
 *
 * A failed sync removes from the tier all records written to the same file since its last good sync. Operating systems
 * mark such data as written, and later syncs do not report it. The result is KVBM_PARTIAL, and the next flush sends
 * those blocks again that are still in host memory. Acknowledged blocks may be evicted later like any block.
 *
 * In a shared tier set the owner does it. Errors: as kvbm_manager_flush; KVBM_ERR_UNSUPPORTED (no tier below host
 * memory, or a plug-in tier: nothing is promised for it, the others were synced). Thread: any. Blocks: until done, up
 * to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_flush_durable(kvbm_manager_t *manager, uint64_t timeout_ns);

/* --------------------------------------------------------------- namespaces */

/* Options of kvbm_namespace_open. Everything is copied; the namespace keeps the geometry alive. */
typedef struct kvbm_namespace_options {
  uint32_t struct_size;
  uint32_t quota_mode;            /* KVBM_QUOTA_*: what a store does when the quota is used up; with quota_bytes only */
  const char *tenant;             /* NULL = ""; tenant, model and adapter have at most 1,024 bytes each */
  const char *model;              /* required: weights, revision, element type; all that makes KV comparable */
  const char *adapter;            /* LoRA and the like; NULL = none */
  const kvbm_geometry_t *geometry; /* NULL = opaque blocks */
  /* [32] From the operator, never from a request; NULL = zeroes (one tenant). Names of the namespace cannot be made
   * or guessed without it. */
  const uint8_t *secret;
  uint64_t epoch;                 /* at least this epoch; the tiers may know a higher one */
  uint64_t quota_bytes; /* host bytes of this namespace, over all its handles, heads included; 0 = as set, or none */
  /* Coding of its records on tiers and links that code: a recipe such as "default", "int8" or
   * "k:0-3=int8,v:0-3=int6,default". The first rule that fits a plane and layer counts; none: off. NULL = as the tier
   * codes. A lossy recipe applies only while every open handle of the namespace has a lossy recipe or allow_lossy. For
   * managed blocks a lossy recipe is one mode for all. */
  const char *codec;
  /* 1: this handle may get blocks that were coded with loss. 0: they are misses for it, in every tier. */
  uint32_t allow_lossy;
  /* 1: kvbm_key_from_hashes takes hashes of fewer than 16 bytes from this handle; 0: it refuses them. Two contents with
   * the same short hash are easy to construct, and one then gets the other's KV. Set it only if every sender of prompts
   * is trusted. */
  uint32_t weak_hashes;
} kvbm_namespace_options_t;

/* Fills defaults: no tenant, no adapter, opaque blocks, zero secret, epoch 0, no quota. `model` must be set before use.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_options_init(kvbm_namespace_options_t *out_options, uint32_t struct_size);
/* Opens a namespace of a manager. Equal options give the same namespace id on every machine. Any number of namespaces
 * may be open, and be opened and released. The limit is on combinations of namespace, epoch, component and shard:
 * 65,536. A combination counts while it has blocks in the host or on a disk of this manager. It also counts if a handle
 * that is open at its epoch has used it. The call that would use one more returns KVBM_ERR_LIMIT. To free some, release
 * a handle, or evict or reset blocks. Errors: KVBM_ERR_INVALID (no model, a text too long, a bad recipe, a quota below
 * one block), KVBM_ERR_LIMIT (as kvbm_namespace_set_quota). Thread: any. Blocks: for reading the tiers' epochs.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_open(kvbm_manager_t *manager, const kvbm_namespace_options_t *options,
                                           KVBM_OWN kvbm_namespace_t **out_namespace, kvbm_error_t *err);
/* Releases the caller's reference. The namespace's blocks stay; opening it again with the same options finds them.
 * Thread: any. Blocks: no, except the last handle of a released manager (kvbm_manager_release). Since 0.1. */
KVBM_API void kvbm_namespace_release(kvbm_namespace_t *ns);
/* Copies the 16-byte namespace id, as in events and scan rows. It changes with the epoch. Writes nothing if an argument
 * is NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API void kvbm_namespace_id(const kvbm_namespace_t *ns, uint8_t out_id[16]);
/* Makes every block stored so far unfindable in every tier, permanently. Raises the epoch and persists it before it
 * returns. Keys made before do not match any more: make them again.
 *
 * Connected nodes of the pool do the same at once; other nodes when they connect, or when they open the namespace. Any
 * number of namespaces can be invalidated, any number of times: alone, in a pool and in a shared tier set. A manager
 * keeps the exact epochs of 4,096 namespaces, at most 1,024 of them only for other nodes. For closed namespaces beyond
 * that it keeps a bound that is never too low (docs/operations.md, "Limits worth knowing").
 *
 * Errors: KVBM_ERR_INVALID (epoch UINT64_MAX, the last one), KVBM_ERR_LIMIT (4,096 other invalidated namespaces are
 * open), KVBM_ERR_UNSUPPORTED (done, but only until this manager ends: a plug-in tier keeps records, and no disk,
 * written store or host_file keeps epochs; open the namespace with a later kvbm_namespace_options_t.epoch then).
 * Thread: any. Blocks: for one write per tier, and for another one in progress. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_invalidate(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Removes this namespace's blocks from every tier. Keys stay valid. Errors and Blocks as kvbm_manager_reset.
 * Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_reset(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Changes the quota of every handle of the namespace; 0 = none. Lowering it evicts blocks without a hold. Blocks from
 * before the first quota do not count. Errors: KVBM_ERR_INVALID (less than one block), KVBM_ERR_LIMIT (4,095 namespaces
 * of this manager have a quota). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_set_quota(kvbm_namespace_t *ns, uint64_t quota_bytes, uint32_t quota_mode);

/* --------------------------------------------------------------------- keys */

/* Bytes that identify a block besides its tokens: LoRA, multimodal hashes, cache salt (frozen, 16 bytes). */
typedef struct kvbm_extra {
  const uint8_t *data; /* NULL with bytes = 0: none for this block */
  size_t bytes;        /* at most 2^28 */
} kvbm_extra_t;

/* Makes the keys of consecutive full blocks of `block_tokens` tokens. Each key depends on all blocks before it. Use
 * these keys for prefix caching. `previous` is the key of the block before, NULL at the start of a prompt. tokens is
 * [n_tokens], and block_tokens is at least 1: the tokens of a stored block, tokens_per_block * units. A partial last
 * block gets no key. `extras` is NULL or has one entry per full block. out_keys is [capacity]; may be NULL for 0.
 * *out_n is the number of full blocks, which may be more than `capacity` keys are written. Formula: docs/formats.md.
 * Errors: KVBM_ERR_INVALID (more than 2^28 tokens, a block_tokens of 0, an extra without data). Thread: any.
 * Blocks: no; hashes all tokens. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_chain(const kvbm_namespace_t *ns, const kvbm_key_t *previous, const uint32_t *tokens,
                                      size_t n_tokens, uint32_t block_tokens, const kvbm_extra_t *extras,
                                      kvbm_key_t *out_keys, size_t capacity, size_t *out_n);
/* Makes keys of full blocks from their own tokens alone, at any place of a prompt. A block stored under such a key has
 * the position at which it was computed (kvbm_store_options_t, kvbm_register_options_t). Loading it at another position
 * is a miss unless any_position is set. One position is stored at a time: a block of another position replaces the
 * stored one. Arguments, errors and outputs as kvbm_key_chain. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_content(const kvbm_namespace_t *ns, const uint32_t *tokens, size_t n_tokens,
                                        uint32_t block_tokens, const kvbm_extra_t *extras, kvbm_key_t *out_keys,
                                        size_t capacity, size_t *out_n);
/* Makes keys from an engine's own hashes: `hashes` is [n][hash_bytes], *out_keys is [n]. hash_bytes is 16 to 64, or 1
 * to 64 if the namespace was opened with weak_hashes. A key is as good as its hash: blocks with equal hashes are one
 * block. The hash must cover all that the block's KV depends on in its prompt, including the tokens before it. If
 * prompts come from untrusted senders it must be cryptographic (SHA-256, BLAKE2, BLAKE3). Put its algorithm and seed
 * into the namespace's `model`, so that hashes of another kind never match. Errors: KVBM_ERR_INVALID (also for shorter
 * hashes without weak_hashes). Thread: any. Blocks: no; one SHA-256 per hash. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_from_hashes(const kvbm_namespace_t *ns, const uint8_t *hashes, size_t hash_bytes,
                                            size_t n, kvbm_key_t *out_keys);

/* ------------------------------------------------------------ managed pools */

/* Memory of a block (frozen, 24 bytes). */
typedef struct kvbm_view {
  void *data;     /* writable only while the block is Partial and this is its only hold */
  uint64_t bytes; /* Partial: block_bytes of the manager; later: the completed length */
  uint64_t slot;  /* position in the host tier, stable while held */
} kvbm_view_t;

/* Example: computes one block of a managed pool, or takes it if it is there. `bytes` is its payload.
 *
 *     extern void compute(void *data, uint64_t bytes);
 *
 *     static kvbm_block_t get_block(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *key,
 *                                   uint64_t bytes) {
 *       kvbm_match_t *match = NULL;
 *       kvbm_block_t block = 0;
 *       kvbm_view_t view;
 *       size_t hits = 0;
 *       if (kvbm_manager_lookup(manager, ns, key, 1, NULL, &match, &hits) == KVBM_OK && hits == 1) {
 *         kvbm_match_blocks(match, 0, 0, 1, &block); // stays 0 if the block is in a tier below: prefetch it
 *       }
 *       kvbm_match_release(match);
 *       if (block != 0 || kvbm_manager_allocate(manager, ns, 1, &block, NULL, 0, NULL) != KVBM_OK) return block;
 *       kvbm_block_view(manager, &block, 1, &view);
 *       compute(view.data, bytes);
 *       if (kvbm_manager_complete(manager, &block, 1, &bytes) == KVBM_OK &&
 *           kvbm_manager_register(manager, ns, &block, key, 1, NULL) >= 0) return block;
 *       kvbm_block_release(manager, &block, 1);
 *       return 0; // else the caller releases the block when it has read it
 *     } */

/* Allocates n_blocks Partial blocks, all or none, and evicts blocks without a hold if necessary. out_blocks is
 * [n_blocks]; not written after an error. Up to `evicted_capacity` keys of evicted blocks are written; *out_n_evicted
 * counts them all (both may be NULL). The bytes of a new block are undefined. A refused call may have evicted blocks
 * too, and reports them in the same way: only after evicting the rest is it known what is held. Errors:
 * KVBM_ERR_NO_ROOM (all blocks are held, by offloads too; more blocks than the host has), KVBM_ERR_QUOTA,
 * KVBM_ERR_LIMIT (as kvbm_block_clone). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_allocate(kvbm_manager_t *manager, kvbm_namespace_t *ns, size_t n_blocks,
                                             kvbm_block_t *out_blocks, kvbm_key_t *out_evicted,
                                             size_t evicted_capacity, size_t *out_n_evicted);
/* Partial -> Complete: the bytes are final. `bytes` is [n_blocks] payload lengths, NULL = block_bytes each. The holds
 * stay as they are. All or none. Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE (not Partial),
 * KVBM_ERR_INVALID (a length of 0 or above block_bytes, a hold named twice). Thread: any; of several calls with one
 * hold one completes it, and the others return KVBM_ERR_STATE. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_complete(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                             const uint64_t *bytes);

/* Registration of a block under a key that exists. REUSE: the hold then names the existing block, and the caller's
 * block is freed. KEEP: the caller's block stays private until released, and is not findable. */
enum { KVBM_DUPLICATE_REUSE = 0, KVBM_DUPLICATE_KEEP = 1 };

/* Options of kvbm_manager_register. Arrays are borrowed for the call. */
typedef struct kvbm_register_options {
  uint32_t struct_size;
  uint32_t duplicates;      /* KVBM_DUPLICATE_* */
  const kvbm_part_t *part;  /* NULL = component 0, whole model */
  const kvbm_key_t *parent; /* key before the first; NULL = none */
  uint32_t unchained;       /* 1: keys are not a prefix in order; blocks have no parents */
  uint32_t priority;        /* KVBM_PRIORITY_* */
  kvbm_status_t *item_status; /* [n_blocks] KVBM_OK or KVBM_ERR_EXISTS (reused or kept private); NULL = not wanted */
  const kvbm_position_t *positions; /* [n_blocks] content keys only: where each was computed; NULL = none */
} kvbm_register_options_t;

/* Fills defaults: duplicates are reused, component 0 of the whole model, no parent, chained, normal priority, no
 * positions. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_register_options_init(kvbm_register_options_t *out_options, uint32_t struct_size);
/* Complete -> Registered: findable by key from now on, read-only. keys is [n_blocks], a prefix in order unless
 * `unchained` is set. Old holds end and new ones replace them in inout_blocks, also for blocks with a failed item.
 * Lower tiers receive the blocks by their admission. All blocks are checked before any is changed, so a call that such
 * a check refuses leaves the holds as they are.
 *
 * The result is KVBM_OK if every item is KVBM_OK or KVBM_ERR_EXISTS, else KVBM_PARTIAL or the error of all. The hold of
 * an item with another error names its own block, which is Complete again and may be registered again. options NULL =
 * defaults.
 *
 * The bytes are hashed here. A later change of them, by any code, is damage for every load (KVBM_ERR_DAMAGED, then a
 * miss), in host memory and in every tier. With option host.managed_hashes = when_needed they are hashed when the block
 * first leaves host memory for a tier or another node. A change before that is never detected.
 *
 * A block that is already there under the key is not a duplicate in two cases. Either it was coded with loss, and `ns`
 * was opened without allow_lossy. Or it has a position that differs from `positions`, or one while none is given. Then
 * the caller's block replaces it in the host, and it is removed from the tiers below. Holds on it stay valid.
 *
 * Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE (not Complete), KVBM_ERR_INVALID (options, part, a hold
 * named twice), KVBM_ERR_LIMIT (registering this hold failed too often: release it). Thread: any; of several calls with
 * one hold one registers it, and the others return KVBM_ERR_STALE. Blocks: for hashing, about as long as reading the
 * bytes takes (when_needed: only blocks with positions). If a client of a shared tier set replaces a block, also until
 * the owner has removed it. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_register(kvbm_manager_t *manager, kvbm_namespace_t *ns, kvbm_block_t *inout_blocks,
                                             const kvbm_key_t *keys, size_t n_blocks,
                                             const kvbm_register_options_t *options);

/* Returns the memory of held blocks; out_views is [n_blocks]. A view is valid until the hold ends, also if another
 * thread ends it. The bytes are not verified: they are the current contents of memory. Only kvbm_cache_load compares
 * them with the registered hashes, and only it checks the position of a block under a content key. Errors:
 * KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE (a weak hold). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_view(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                       kvbm_view_t *out_views);
/* Adds one hold on each Registered block, all or none. out_blocks is [n_blocks]. Errors: KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN, KVBM_ERR_STATE (not Registered, or weak), KVBM_ERR_LIMIT (no hold is free). A manager has four
 * holds for each block of the host plus 65,536, and a block has at most 2,031,616. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_clone(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                        kvbm_block_t *out_blocks);
/* Ends holds. A Partial or Complete block returns to the pool. A Registered one stays findable and becomes evictable
 * with its last hold. Every valid hold is ended, even if others of the batch are not valid. Errors: KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_release(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks);
/* Makes weak holds, which do not keep a block. kvbm_block_upgrade turns one into a new hold, or 0 if the block is gone.
 * A weak hold is released like any other. out_weak is [n_blocks]. All or none. Errors: as kvbm_block_clone.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_downgrade(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                            kvbm_block_t *out_weak);
/* Makes holds from weak holds, which stay valid. out_blocks is [n_blocks]; 0 for a block that is gone. After an error
 * no new hold is left, and out_blocks is undefined. Errors: KVBM_ERR_STATE (not a weak hold), KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN, KVBM_ERR_LIMIT (no hold is free). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_upgrade(kvbm_manager_t *manager, const kvbm_block_t *weak, size_t n_blocks,
                                          kvbm_block_t *out_blocks);

/* -------------------------------------------------------- residency control */

/* The calls that take keys mean the records of `part` (NULL = component 0, whole model); keys is [n_keys]. */

/* Brings blocks up into the host tier for a later fast load. Keys that are in no tier are ignored. Counts as a use of
 * the blocks, and not as a lookup in the statistics. Waits for free slots ahead of stores; blocks that get none stay
 * below. The result is KVBM_OK all the same: items_done counts the keys that are in the host now, those that were there
 * included. The blocks are not held: they may be evicted before the load. queue NULL: waits for the result. Errors:
 * KVBM_ERR_AGAIN (the queue is full). Thread: any. Blocks: with a queue only on a client of a shared tier set, up to
 * option share_ask. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_prefetch(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                             const kvbm_key_t *keys, size_t n_keys, kvbm_queue_t *queue,
                                             uint64_t user_data);
/* Copies host blocks to tier `tier` (1 = the first below) now, whatever its admission is. Completes when they are
 * there. Keys that are not in the host are ignored: they are in `items` and not in items_done. The blocks are held
 * until then, and stay in the host. If the tier does not take some, the result is KVBM_PARTIAL, or its first error if
 * it takes none, such as KVBM_ERR_DISK_FULL or KVBM_ERR_TIER_DISABLED. queue NULL: waits for the result. Errors:
 * KVBM_ERR_INVALID (no such tier), KVBM_ERR_AGAIN (the queue is full). Thread: any. Blocks: with a queue no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_offload(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                            const kvbm_key_t *keys, size_t n_keys, uint32_t tier, kvbm_queue_t *queue,
                                            uint64_t user_data);
/* Removes blocks from every tier. *out_n counts those of the host tier (may be NULL). Held and pinned blocks are not
 * findable any more, and freed when they are released. Not persistent: a record on disk
 * may be found again after a restart, with its right content. For a permanent removal use kvbm_manager_reset,
 * kvbm_namespace_reset or kvbm_namespace_invalidate. On a client of a shared tier set the owner removes the blocks too,
 * but the result does not tell: if the owner is not connected, or does not answer within 2 s, they may still be found
 * in its tiers. Then drop them again. kvbm_namespace_invalidate reports it if the owner did not take part. Thread: any.
 * Blocks: on a client of a shared tier set for the owner, up to 2 s for every 2,048 keys. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_drop(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, size_t *out_n);
/* Passes a hint about blocks (KVBM_PRIORITY_*) to every policy, policy_table too, and to the disk tiers of this
 * process. A hint about a record that is already on disk is not persistent. Absent blocks are ignored. A later hint
 * replaces an earlier one. Errors: KVBM_ERR_INVALID (no such priority). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_hint(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, uint32_t priority);
/* Keeps host blocks resident for `owner` for timeout_ns, or until unpinned. The caller chooses the number, for
 * kvbm_manager_unpin_owner; 0 = no owner. A block may have several pins. A pin ends with the manager. Pins the leading
 * keys that are in the host and that `ns` may get (kvbm_namespace_options_t.allow_lossy). *out_n is their number (may
 * be NULL); if it is 0, *out_pin is 0. Errors: KVBM_ERR_LIMIT (a block has 131,071 pins, or the manager 1,048,576;
 * expired pins do not count). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_pin(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                        const kvbm_key_t *keys, size_t n_keys, uint64_t owner, uint64_t timeout_ns,
                                        kvbm_pin_t *out_pin, size_t *out_n);
/* Ends a pin early. Its blocks are evictable again unless another pin or hold keeps them. Errors: KVBM_ERR_STALE (it
 * has ended, is of another manager, or never was one: deadline passed, owner ended, or unpinned). Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin(kvbm_manager_t *manager, kvbm_pin_t pin);
/* Ends every pin of an owner, for example when it has died. *out_n counts them (may be NULL). An owner of 0 has none.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin_owner(kvbm_manager_t *manager, uint64_t owner, size_t *out_n);

/* -------------------------------------------------------------- observation */

/* Counters of one tier (frozen, 160 bytes), since the manager was created. Tiers sum to the total: hits to keys_hit,
 * and hits and misses to keys_looked_up. The first line and metadata_bytes are values of now, not counters. */
typedef struct kvbm_tier_stats {
  /* used_bytes: all that counts against the capacity. payload_bytes: of the blocks, without their heads. */
  uint64_t capacity_bytes, used_bytes, blocks, payload_bytes;
  uint64_t hits, hit_bytes, misses;   /* hits: keys found by lookups, at the slowest tier that holds a part of the key;
                                         hit_bytes: payloads of all parts, each at its own tier; misses: keys not found,
                                         all counted at the last tier */
  uint64_t stores, store_bytes;       /* blocks written into the tier and their payload bytes; host: stored by engines,
                                         or onboarded to stay */
  uint64_t loads, load_bytes;         /* blocks read from the tier, verified */
  uint64_t evictions, damaged, errors; /* evictions: to make space; damaged: failed verification; errors: of the tier */
  uint64_t metadata_bytes;             /* memory of the tier's index; not part of used_bytes */
  uint64_t disabled;                  /* 1 after a fault that took it out of service */
  uint64_t reserved[4];
} kvbm_tier_stats_t;

/* Counters of a tier that codes or seals records. Bytes are of payloads. */
typedef struct kvbm_tier_codec_stats {
  uint64_t coded;                     /* records coded, sealed ones included */
  uint64_t plain_bytes, stored_bytes; /* bytes of coded and of sealed records: before, and after */
  uint64_t sealed, left_plain;        /* records sealed; records stored unchanged */
  uint64_t encode_ns, decode_ns;      /* sums over all threads */
  uint64_t decoded, decoded_bytes;    /* records decoded, and their bytes after decoding */
  uint64_t refused_lossy;             /* records that no open handle of their namespace allows */
  uint64_t missing_keys;              /* sealed with a key that is not in seal.key_file, or not sealed with one set */
  uint64_t damaged;                   /* records that did not decode or unseal, and were removed */
  uint64_t stepped_down;              /* times that encoding delayed writes; auto then codes faster, or not at all */
  uint64_t probes;                    /* records that auto coded only to measure */
  uint32_t mode;                      /* KVBM_CODEC_* of most of the records coded last; a lossy one if any is lossy */
  uint32_t automatic;                 /* 1: auto */
  uint32_t setting;                   /* KVBM_CODEC_* of option tiers[].codec; 0: off, or auto */
  uint32_t seals;                     /* 1: every record written there is sealed (seal.key_file) */
  double lossy_error;                 /* sum of squared differences / sum of squared values of lossy records; else 0 */
} kvbm_tier_codec_stats_t;

/* Counters of a manager since it was created. Entry 0 of the arrays is the host; entries from n_tiers on are zero. */
typedef struct kvbm_manager_counters {
  uint32_t struct_size;
  uint32_t n_tiers;            /* host included; at most 8 */
  uint64_t lookups, keys_looked_up, keys_hit; /* of kvbm_manager_lookup and kvbm_cache_lookup */
  uint64_t holds, pins, matches; /* live now */
  uint64_t operations_in_flight; /* submitted, and without a completion yet */
  /* Blocks refused with KVBM_ERR_NO_ROOM and KVBM_ERR_QUOTA; operations that met their deadline; blocks at another
   * position; blocks that failed verification. */
  uint64_t stores_refused_room, stores_refused_quota, deadline_missed, position_mismatches, verify_failures;
  uint64_t offloads_skipped;   /* blocks that a full queue did not take (some are written later), or evicted before */
  kvbm_tier_stats_t tiers[8];
  /* Counters of loads with kvbm_load_options_t.compute_block_ns: */
  uint64_t loads_weighed;      /* loads started, because loading was predicted to be faster */
  uint64_t load_predicted_ns;  /* sum of their predicted times */
  uint64_t load_actual_ns;     /* sum of their measured times */
  uint64_t loads_not_started;  /* loads refused as a whole, because computing was predicted to be faster */
  uint64_t blocks_left;        /* keys left to the engine to compute */
  uint64_t compute_saved_ns;   /* sum of computing time minus load time, where loading was faster */
  uint64_t compute_lost_ns;    /* sum of load time minus computing time, where loading was slower */
  /* Counters of tiers with coded or sealed records (tiers[].codec, seal.key_file), one entry per tier: */
  kvbm_tier_codec_stats_t codec[8];
  uint64_t lossy_refused;      /* blocks that a handle without allow_lossy did not get, or replaced by its own */
} kvbm_manager_stats_t;

/* Fills the struct; set struct_size first, which is kept. Cheap: no tier is read, but plug-ins are asked. Counters are
 * read one by one, so sums may differ by work in progress. Errors: KVBM_ERR_INVALID (struct_size not set). Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_stats(kvbm_manager_t *manager, kvbm_manager_stats_t *out_stats);
/* Writes all metrics as Prometheus text exposition (docs/operations.md). Two-phase like kvbm_context_config.
 * Thread: any. Blocks: on a node, for one turn of the links' thread. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_metrics(kvbm_manager_t *manager, char *out, size_t capacity, size_t *out_needed);
/* Sends block events to a queue (NULL = stop), and keeps the queue alive. One queue per manager: a new one replaces the
 * old one. Events of before are not sent; kvbm_manager_scan lists what is there. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_subscribe(kvbm_manager_t *manager, kvbm_queue_t *queue);

/* One live block or stored record (frozen, 64 bytes). */
typedef struct kvbm_scan_row {
  kvbm_key_t key;
  uint8_t namespace_id[16]; /* as kvbm_namespace_id */
  uint64_t bytes;           /* payload bytes, as decoded */
  uint32_t tier;            /* 0 = host; a block may be in several tiers, and has a row for each */
  uint32_t component;       /* index into the geometry's components */
  uint32_t uses;            /* lookups that found it here, up to 65,535 */
  uint32_t holds;           /* host only: holds, matches and operations that keep it */
  uint32_t pins;            /* host only */
  uint32_t age;             /* since its last use: requests in the host tier, seconds on a disk */
} kvbm_scan_row_t;

/* Lists blocks of the host and records of disks page by page, without stopping any work. Plug-ins, stores and other
 * nodes cannot be listed: their tiers have no rows. *inout_cursor is 0 to begin and 0 again at the end; it is of one
 * manager. Blocks that are stored or removed during the walk may or may not be listed; all others are listed exactly
 * once. Writes *out_n rows, at most `capacity` and 65,536. Errors: KVBM_ERR_INVALID (a capacity of 0, a cursor that
 * this call did not return). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_scan(kvbm_manager_t *manager, uint64_t *inout_cursor, kvbm_scan_row_t *out_rows,
                                         size_t capacity, size_t *out_n);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_H */

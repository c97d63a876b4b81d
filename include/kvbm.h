/* kvbm.h - keeps and moves the KV cache of large language models.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * CONTENTS
 *   #include <kvbm.h> gives everything. The other headers are its chapters; each may also be included alone.
 *
 *   kvbm.h          this manual; version; context and settings; queues, completions, events; geometry; managers and
 *                   their tiers; namespaces; keys; managed pools; care of what is cached (prefetch, offload, drop,
 *                   hint, pin); seeing it work (statistics, metrics, events, scan)
 *   kvbm_types.h    status; handles; parts of a model
 *   kvbm_cache.h    lookup and matches; attached caches: store, load, waiting for layers
 *   kvbm_device.h   what holds for caches in the memory of a GPU; devices
 *   kvbm_node.h     nodes of a pool, and who has what; sharing of one tier set by processes of a host
 *   kvbm_session.h  prefill->decode: offers and sessions
 *   kvbm_codec.h    codecs, in the caller's own buffers
 *   kvbm_plugin.h   plug-in tiers and eviction policies: tables of C functions
 *
 * THE MODEL
 *   An inference engine computes, for every token of a prompt, key and value vectors in every layer
 *   of its model: the KV cache. libkvbm keeps those vectors beyond the memory of the GPU, finds them
 *   again by content, and brings them back before the engine would have computed them again.
 *
 *   block       the KV of a fixed number of consecutive tokens. Its content is named by a 16-byte key.
 *   namespace   who the key means something to: tenant, model, adapter, geometry, epoch and a secret. Keys of
 *               different namespaces never match, whatever their tokens.
 *   shard       which layers and heads of the model the bytes are. Two tensor-parallel ranks use the
 *               same keys and different shards, and never get each other's bytes. What ranks of another
 *               tensor-parallel size stored is found too, and cut anew (kvbm_manager_lookup).
 *   component   what kind of state it is, for hybrid models: attention, sliding window, recurrent state.
 *   tier        where bytes live, fastest first: host memory (tier 0), then disks and plug-ins in the
 *               order they were configured. Offload moves a block down, onboard moves it up. The engine's own paged
 *               cache, in host memory or on a GPU (kvbm_device.h), is above them all and has no number.
 *   record      a block's bytes of one component and shard, with hashes of every 64 KiB of them. Whatever
 *               comes back from a tier is checked against them; damage is a miss, never wrong bytes.
 *
 * TWO WAYS TO USE IT
 *   Attached cache: the engine keeps its own paged KV cache. It describes it once (kvbm_cache_attach)
 *   and calls lookup, load and store with keys and its own block ids.
 *   Managed pool: the engine lets kvbm own the blocks: allocate, fill, complete, register, look up, release.
 *
 * THE LIFE OF A BLOCK IN C
 *   Reset --allocate--> Partial --complete--> Complete --register--> Registered --last release--> evictable
 *   A kvbm_block_t names a *hold* on a block, not the block: every allocate, match and clone makes a new
 *   one, and every hold ends once. Using an ended hold gives KVBM_ERR_STALE, another manager's
 *   KVBM_ERR_FOREIGN; neither touches memory. Looking a hold up and using it is one step, whatever other
 *   threads do with the same hold: a call comes before its end or after it. A block is evicted only when
 *   nothing holds it.
 *
 * CONVENTIONS
 *   1. Functions return kvbm_status_t: 0 done, above 0 accepted or partly done, below 0 failed, in bands
 *      of 100 that name the remedy. A cache miss is a count, not an error.
 *   2. Arguments come in the order: subject, inputs (pointer, then count), options, outputs (out_*),
 *      then a nullable kvbm_error_t that receives the particulars; kvbm_error_last has those of calls without one.
 *      Outputs are written only on success unless said otherwise; out_ counts are always written.
 *   3. Options structs begin with struct_size. Call the *_options_init function, set what you want, pass it.
 *      Unset means the default. NULL options mean all defaults. A field that this library does not
 *      know and that is not zero is refused (KVBM_ERR_UNSUPPORTED), never ignored.
 *   4. Long-lived objects are opaque pointers, counted inside: releasing them in any order is legal, children
 *      keep parents alive, NULL is a no-op. KVBM_OWN marks what the caller must release.
 *   5. Pointers passed in are borrowed for the call. Asynchronous calls copy arrays at submit; the bytes
 *      of attached caches stay borrowed until the completion is polled, as do item_status arrays.
 *   6. Sizes are bytes and times nanoseconds, and names say so. Strings are UTF-8 with a final zero byte.
 *   7. Counts are checked before anything is read: no array of a call may have more than 2^28 (268,435,456) elements,
 *      all its dimensions multiplied. More is KVBM_ERR_INVALID (where a call has a smaller limit, its error). What is
 *      shorter than its count is not found out. The capacity of an output may be any number; no more is written than
 *      there is.
 *   8. No call aborts, exits, throws, installs a signal handler, or runs a callback on a library thread,
 *      with two exceptions that say so: the log callback and plug-in tables.
 *
 * THREADS
 *   Each function has a Thread line: "any" may be called concurrently on one object, "one" needs the
 *   caller to serialise calls on that object. Library threads are named kvbm-*, block all signals and end with
 *   the context. After fork a child may not use objects of its parent: calls return KVBM_ERR_FORKED, and releases
 *   do nothing, so that destructors may run there. It makes objects of its own.
 *
 * STABILITY
 *   Symbols and struct layouts keep their meaning within a soname. Values are never reused. Formats on disk carry
 *   their own versions (docs/formats.md).
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

#define KVBM_VERSION_MAJOR 0
#define KVBM_VERSION_MINOR 1
#define KVBM_VERSION_PATCH 0
/* The version as one number that compares: major * 1000000 + minor * 1000 + patch. */
#define KVBM_VERSION (KVBM_VERSION_MAJOR * 1000000 + KVBM_VERSION_MINOR * 1000 + KVBM_VERSION_PATCH)

/* The version of the library that runs, in the form of KVBM_VERSION; compare it with the macro to
 * find a header and a library that do not belong together. Thread: any. Since 0.1. */
KVBM_API uint32_t kvbm_version(void);
/* The same as text, "0.1.0". Static; never NULL. Thread: any. Since 0.1. */
KVBM_API const char *kvbm_version_string(void);

/* ----------------------------------------------------- context and settings */

enum { KVBM_LOG_OFF = 0, KVBM_LOG_ERROR = 1, KVBM_LOG_WARNING = 2, KVBM_LOG_INFO = 3, KVBM_LOG_DEBUG = 4 };

/* Receives one log line. `text` is valid during the call. May be called on any thread, also a
 * library one; it must not call kvbm. */
typedef void (*kvbm_log_fn)(void *user, int32_t level, const char *component, const char *text);

/* One setting: the key of a configuration option and its value as text (frozen). */
typedef struct kvbm_setting {
  const char *key;   /* e.g. "host.capacity" */
  const char *value; /* e.g. "8GiB" */
} kvbm_setting_t;

typedef struct kvbm_context_options {
  uint32_t struct_size;
  uint32_t threads;              /* worker threads; 0 = from configuration ("threads", default 2) */
  const char *config_file;       /* TOML; NULL = $KVBM_CONFIG, else none */
  const kvbm_setting_t *settings; /* [n_settings] these win over file and environment */
  size_t n_settings;
  kvbm_log_fn log;               /* NULL = silent */
  void *log_user;
  int32_t log_level;             /* KVBM_LOG_*; 0 with a callback = KVBM_LOG_WARNING */
  int32_t reserved;
} kvbm_context_options_t;

/* Fills defaults; struct_size = sizeof(kvbm_context_options_t) as the caller's header has it.
 * Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_options_init(kvbm_context_options_t *out_options, uint32_t struct_size);

/* Creates a context: configuration, worker threads, I/O engine. Configuration is resolved once, here:
 * defaults, then the TOML file, then KVBM_* of the environment, then `settings`; the later wins.
 * Errors: KVBM_ERR_CONFIG (unknown key, bad value; the message names key, value and origin),
 * KVBM_ERR_NO_MEMORY. Thread: any. Blocks: for the reading of one file. Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_create(const kvbm_context_options_t *options, KVBM_OWN kvbm_context_t **out_context,
                                           kvbm_error_t *err);
/* Ends the caller's reference. The context lives until its last child is released. Thread: any. Since 0.1. */
KVBM_API void kvbm_context_release(kvbm_context_t *context);
/* Writes the effective configuration as TOML, each value with its origin as a comment. Two-phase: *out_needed is the
 * length without the final zero byte; `out` may be NULL if capacity is 0; what does not fit is cut and
 * still zero-terminated. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_context_config(const kvbm_context_t *context, char *out, size_t capacity,
                                           size_t *out_needed);
/* Writes the table of all configuration options (key, type, default, meaning) as Markdown. Two-phase as
 * above. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_config_reference(char *out, size_t capacity, size_t *out_needed);

/* ------------------------------------------------------ queues, completions */

enum {
  KVBM_OP_STORE = 1,
  KVBM_OP_LOAD = 2,
  KVBM_OP_PREFETCH = 3,
  KVBM_OP_OFFLOAD = 4,
  KVBM_OP_OFFER = 5,   /* kvbm_offer_open */
  KVBM_OP_RECEIVE = 6, /* kvbm_session_open */
  KVBM_OP_LAYER = 7    /* a layer of a kvbm_session_open; one for each */
};

/* What became of one accepted submission (frozen, 64 bytes). Every accepted submission gives exactly one, also
 * when it finished at once, failed or was cancelled; a refused one gives none. */
typedef struct kvbm_completion {
  uint64_t user_data;      /* as given at submit */
  uint64_t operation;      /* as returned by submit */
  int32_t op;              /* KVBM_OP_* */
  kvbm_status_t status;    /* KVBM_OK, KVBM_PARTIAL (see item_status), or why nothing was done */
  uint64_t items_done;     /* blocks done */
  uint64_t items;          /* blocks asked for */
  uint64_t bytes;          /* payload bytes moved */
  uint64_t wait_ns;        /* from submit until work began */
  uint64_t service_ns;     /* from then until done */
} kvbm_completion_t;

enum { KVBM_EVENT_STORED = 1, KVBM_EVENT_REMOVED = 2, KVBM_EVENT_CLEARED = 3, KVBM_EVENT_DISABLED = 4 };

/* A block changed its place (frozen, 72 bytes). A move between tiers is a STORED in one and a REMOVED in the other.
 * Whatever makes a block leave a tier, REMOVED of that tier says it (of a block that was not there too), or CLEARED: every
 * block of namespace_id has left every tier (kvbm_namespace_reset, kvbm_namespace_invalidate), or of all namespaces where
 * that is zero (kvbm_manager_reset), and one that is stored during that call may be there all the same; or DISABLED: the
 * tier is out of use with all that it has. So what a reader is told adds
 * up to what kvbm_manager_scan says, from a scan right after kvbm_manager_subscribe on. Shards of one block are told one by
 * one, with nothing in the event that tells them apart. */
typedef struct kvbm_event {
  uint64_t sequence;   /* from 1, without gaps; a gap seen by a reader means events were lost */
  int32_t kind;        /* KVBM_EVENT_* */
  uint32_t tier;       /* 0 = host */
  uint8_t namespace_id[16];
  kvbm_key_t key;
  kvbm_key_t parent;   /* zero bytes = none or unknown */
  uint32_t component;
  uint32_t reserved;
} kvbm_event_t;

/* Creates a queue for at most `depth` operations in flight (1 to 65,536). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_queue_create(kvbm_context_t *context, uint32_t depth, KVBM_OWN kvbm_queue_t **out_queue,
                                         kvbm_error_t *err);
/* Ends the caller's reference; operations in flight still finish, their completions are dropped. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API void kvbm_queue_release(kvbm_queue_t *queue);
/* A file descriptor that polls readable while completions or events wait. For those who wait for edges (EPOLLET) the
 * first completion and the first event to wait are an edge each, whether or not the other kind waits; take all there is
 * of a kind before waiting for it again. Owned by the queue: do not read or close it. Thread: any. Since 0.1. */
KVBM_API int kvbm_queue_fd(const kvbm_queue_t *queue);
/* Takes up to `capacity` completions and returns how many. Never blocks. Thread: any. Since 0.1. */
KVBM_API size_t kvbm_queue_poll(kvbm_queue_t *queue, kvbm_completion_t *out_completions, size_t capacity);
/* As poll, but waits up to timeout_ns for the first one; 0 after the timeout. Thread: any. Since 0.1. */
KVBM_API size_t kvbm_queue_wait(kvbm_queue_t *queue, kvbm_completion_t *out_completions, size_t capacity,
                                uint64_t timeout_ns);
/* Asks that an operation ends early. Its completion still comes (KVBM_ERR_CANCELLED, or what it had become)
 * and until then its memory stays borrowed. KVBM_ERR_STALE if it has completed. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_queue_cancel(kvbm_queue_t *queue, uint64_t operation);
/* Takes up to `capacity` block events (kvbm_manager_subscribe) and returns how many. Never blocks. When the reader
 * is slower than the writer the oldest are lost and the sequence shows it. Thread: any. Since 0.1. */
KVBM_API size_t kvbm_queue_poll_events(kvbm_queue_t *queue, kvbm_event_t *out_events, size_t capacity);

/* ----------------------------------------------------- geometry, components */

enum {
  KVBM_COMPONENT_ATTENTION = 0, /* K and V of every token */
  KVBM_COMPONENT_WINDOW = 1,    /* K and V; only the last window_tokens matter */
  KVBM_COMPONENT_LATENT = 2,    /* one latent row per token (MLA) */
  KVBM_COMPONENT_STATE = 3      /* a recurrent state; only the last block's matters */
};

/* One component of the model, whole: all layers and heads, before sharding (frozen, 48 bytes). */
typedef struct kvbm_component {
  uint32_t kind;          /* KVBM_COMPONENT_* */
  uint32_t element;       /* KVBM_ELEMENT_* */
  uint32_t layers;        /* layers that have this component */
  uint32_t heads;         /* KV heads in all; 1 for latent and state */
  uint32_t head_dim;      /* elements of a head's row; the latent's width; unused for state */
  uint32_t window_tokens; /* WINDOW only */
  uint64_t state_bytes;   /* STATE only: bytes per layer and block */
  uint64_t reserved[2];   /* zero */
} kvbm_component_t;

/* Creates a geometry: model facts and the tokens of one engine block. `units` engine blocks make one stored
 * block (1 = the same; 16 with 16-token blocks = 256-token records). Errors: KVBM_ERR_INVALID naming the component and
 * field. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_geometry_create(uint32_t tokens_per_block, uint32_t units,
                                            const kvbm_component_t *components, size_t n_components,
                                            KVBM_OWN kvbm_geometry_t **out_geometry, kvbm_error_t *err);
/* Ends the caller's reference; namespaces made with the geometry keep it. NULL is a no-op. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API void kvbm_geometry_release(kvbm_geometry_t *geometry);
/* The 64-bit fingerprint that is part of the namespace (formula: docs/formats.md). Thread: any. Since 0.1. */
KVBM_API uint64_t kvbm_geometry_fingerprint(const kvbm_geometry_t *geometry);
/* Payload bytes of one record of that component and shard (NULL = all of it). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_geometry_record_bytes(const kvbm_geometry_t *geometry, uint32_t component,
                                                  const kvbm_shard_t *shard, uint64_t *out_bytes);

/* ----------------------------------------------------------------- managers */

enum {
  KVBM_ADMIT_ALL = 0,
  KVBM_ADMIT_ON_EVICTION = 1,
  KVBM_ADMIT_AFTER_USES = 2,
  KVBM_ADMIT_FREQUENCY = 3,
  KVBM_ADMIT_ON_REQUEST = 4 /* what kvbm_manager_offload sends, and nothing else */
};
enum { KVBM_QUOTA_EVICT = 0, KVBM_QUOTA_REJECT = 1 };

/* A tier below host memory (frozen, 128 bytes). */
typedef struct kvbm_tier {
  const char *path;               /* directory of a disk tier, which this user owns and nobody else may write, or that is
                                     made so (0700); else NULL */
  const kvbm_tier_table_t *table; /* a plug-in tier; else NULL */
  void *table_user;               /* handed to the table's functions */
  uint64_t capacity_bytes;        /* hard cap of everything in the tier's directory or store; of a store 0 = no cap */
  uint64_t write_bytes_per_s;     /* bandwidth cap of offload into it; 0 = none */
  uint64_t read_bytes_per_s;      /* bandwidth cap of onboard from it; 0 = none */
  uint32_t admission;             /* KVBM_ADMIT_* : which blocks of the host come here, and which that a disk above it
                                     lets go to make room */
  uint32_t admission_uses;        /* AFTER_USES: n; FREQUENCY: threshold; 1 to 15, 0 = 2 */
  const char *codec;              /* how records are coded here: off (NULL), auto, fast, default, max, zstd */
  uint32_t codec_goal;            /* what auto is for; 0: blocks are brought up sooner, 1: more of them fit */
  uint32_t reserved0;             /* zero */
  const char *url;                /* a store: s3://bucket/prefix?region=..., redis://host:port/0, file:///mnt/shared/kv,
                                     plugin:/path/of.so (docs/stores.md); else NULL */
  const kvbm_store_table_t *store; /* a store of the caller's own, in this process, instead of one that `url` names; `url`
                                     then only gives its options, as mine://?poll=1s, or is NULL. Lives as long as the
                                     manager */
  uint64_t reserved[5];           /* zero */
} kvbm_tier_t;

/* kvbm_manager_options_t.flags. */
#define KVBM_MANAGER_SHARE 1u /* as the option share=on: several processes of this host share the tier set */

typedef struct kvbm_manager_options {
  uint32_t struct_size;
  uint32_t flags;                /* KVBM_MANAGER_*, or zero */
  uint64_t block_bytes;          /* largest payload of a record; 0 = configuration "host.block_bytes" */
  uint64_t host_capacity_bytes;  /* host tier, record heads included; 0 = configuration "host.capacity" */
  const char *host_file;         /* keep host blocks in this tmpfs or hugetlbfs file over restarts: this user's, which
                                    nobody else may write, or made so (0600). Whoever cuts it short while it is in use
                                    ends the process (SIGBUS). NULL = anonymous */
  const char *policy;            /* eviction policy; NULL = configuration "host.policy" (default "prefix") */
  const kvbm_policy_table_t *policy_table; /* the caller's own policy instead; NULL = none */
  void *policy_user;
  const kvbm_tier_t *tiers;      /* [n_tiers], fastest first; NULL = configuration [[tier]] */
  size_t n_tiers;
} kvbm_manager_options_t;

/* Fills defaults (everything from the configuration). struct_size = sizeof the struct as the caller's header has it.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_options_init(kvbm_manager_options_t *out_options, uint32_t struct_size);

/* Creates a manager: one owner of one set of tiers. Maps the host tier, opens and recovers the tiers below.
 * Errors: KVBM_ERR_CONFIG (a capacity smaller than one block, an impossible size), KVBM_ERR_IN_USE (a tier
 * directory or host_file has another owner; the message names it), KVBM_ERR_VERSION (a directory of a newer format),
 * KVBM_ERR_EXISTS (a directory with files of someone else, a host_file that is one; nothing is changed),
 * KVBM_ERR_DAMAGED (a directory whose superblock cannot be read), KVBM_ERR_DISK_FULL, KVBM_ERR_NO_MEMORY, KVBM_ERR_IO,
 * KVBM_ERR_PERMISSION (a directory, a file in it or a host_file that another user owns or others may write, or that is a
 * symbolic link: the message has the path and the chmod or chown that mends it), KVBM_ERR_UNSUPPORTED (a host_file on a
 * file system that cannot promise to keep its pages: served by others, or without reservation). Thread: any. Blocks: for
 * mapping and recovery. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_create(kvbm_context_t *context, const kvbm_manager_options_t *options,
                                           KVBM_OWN kvbm_manager_t **out_manager, kvbm_error_t *err);
/* Ends the caller's reference. When the last of manager, namespaces, caches and matches goes, work in flight is
 * finished and the tiers are closed; what was acknowledged is found again. Thread: any. Blocks: until closed.
 * Since 0.1. */
KVBM_API void kvbm_manager_release(kvbm_manager_t *manager);
/* Forgets every block of every tier that nothing holds; held ones vanish from lookups and go when released. Errors:
 * KVBM_ERR_UNSUPPORTED if there is a plug-in tier: its records stay (kvbm_namespace_invalidate makes them unfindable).
 * Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_reset(kvbm_manager_t *manager, kvbm_error_t *err);
/* Waits until no offload is queued or in flight: what was taken into a queue is in its tier then and survives the
 * death of this process. A store that outruns its tiers fills the queue (half of the host tier); what finds no place
 * is counted (offloads_skipped) and goes down later, before it would be evicted, where there is time. What a tier did
 * not take when it was sent (a full or failing disk) is sent once more, and KVBM_PARTIAL says that there was such a
 * block since the last flush that said so, or that a tier is out of service: the block may be there by now, or may have
 * left host memory. KVBM_OK of a flush after it: all of them that still are in host memory are there. A failure is told
 * to every flush that was under way then, or to the next. KVBM_ERR_DEADLINE if it takes longer. In a shared tier set
 * (kvbm_manager_share) it answers for each block that this process stored, as said there. Thread: any. Blocks: until
 * then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_flush(kvbm_manager_t *manager, uint64_t timeout_ns);
/* As kvbm_manager_flush, and makes what the disks then have survive the loss of power: each is synced, and KVBM_OK is said
 * after that. A sync that fails takes everything out of the tier that was written to the same file since the last good one
 * (systems hold such data for written, and later syncs say nothing of it): KVBM_PARTIAL, and the next flush sends again what
 * is still in host memory. What was acknowledged may be evicted later as any block. KVBM_ERR_UNSUPPORTED where nothing was
 * promised: no tier below host memory, or a plug-in tier; all the rest was done. In a shared tier set the owner is asked.
 * Costs a flush of each device's write cache. Thread: any. Blocks: until then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_flush_durable(kvbm_manager_t *manager, uint64_t timeout_ns);

/* --------------------------------------------------------------- namespaces */

typedef struct kvbm_namespace_options {
  uint32_t struct_size;
  uint32_t quota_mode;            /* KVBM_QUOTA_*: what a store does when the quota is used up */
  const char *tenant;             /* NULL = "" */
  const char *model;              /* required: weights, revision, element type; what makes KV comparable */
  const char *adapter;            /* LoRA and the like; NULL = none */
  const kvbm_geometry_t *geometry; /* NULL = opaque blocks */
  const uint8_t *secret;          /* [32] from the operator, never from a request; NULL = zeroes (one tenant) */
  uint64_t epoch;                 /* at least this epoch; the tiers may know a higher one */
  uint64_t quota_bytes; /* host bytes this namespace may use, all its handles together; 0 = as it is set, or none */
  /* How its records are coded on tiers and links where anything is: a recipe as "default", "int8" or
   * "k:0-3=int8,v:0-3=int6,default". One that loses something is used only while every open handle of the namespace has
   * such a recipe or allow_lossy; NULL = as the tier codes. Managed blocks: one lossy mode for all. */
  const char *codec;
  /* 1: this handle may be given blocks that were coded with loss; 0: they are misses for it, wherever they are. */
  uint32_t allow_lossy;
  /* 1: kvbm_key_from_hashes takes hashes of fewer than 16 bytes from this handle; 0: it refuses them. Two contents with one
   * such hash are easily found, and one is then served the other's KV: say so only where nobody who sends prompts would. */
  uint32_t weak_hashes;
} kvbm_namespace_options_t;

/* Fills defaults: no tenant, no adapter, opaque blocks, zero secret, epoch 0, no quota. `model` must be set before use.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_options_init(kvbm_namespace_options_t *out_options, uint32_t struct_size);
/* Opens a namespace of a manager. The same options give the same namespace id on every machine. Any number can be open, and
 * come and go. What is limited is what is in use: 65,536 combinations of namespace, epoch, component and shard that
 * have blocks in the host or on a disk of this manager, or were used by a handle that is open at its epoch. The call that
 * would use one more says KVBM_ERR_LIMIT; releasing a handle, or evicting or resetting blocks, makes room.
 * Thread: any. Blocks: for reading the tiers' epochs. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_open(kvbm_manager_t *manager, const kvbm_namespace_options_t *options,
                                           KVBM_OWN kvbm_namespace_t **out_namespace, kvbm_error_t *err);
/* Ends the caller's reference. The namespace's blocks stay; opening it again with the same options finds them. The
 * last handle of a manager's family closes the tiers (kvbm_manager_release). Thread: any. Since 0.1. */
KVBM_API void kvbm_namespace_release(kvbm_namespace_t *ns);
/* Copies the 16-byte namespace id (it changes with the epoch). Thread: any. Since 0.1. */
KVBM_API void kvbm_namespace_id(const kvbm_namespace_t *ns, uint8_t out_id[16]);
/* Makes every block stored so far unfindable, for good, in every tier: raises the epoch and persists it before it
 * returns. Keys made before do not match any more: make them again. Nodes of the pool do the same: at once those
 * that are connected, the others when they are, or when they open the namespace. Any number of namespaces can be
 * invalidated, one after the other, any number of times, alone, in a pool and in a shared tier set. A manager keeps the
 * epochs of 4,096 namespaces exactly, at most 1,024 of them for other nodes' sake alone; of those that are closed and had to
 * make room it keeps a bound that is never too low (docs/operations.md, Limits worth knowing).
 * Errors: KVBM_ERR_INVALID at epoch UINT64_MAX, which has none after it; KVBM_ERR_LIMIT where 4,096 other namespaces
 * that were invalidated are open.
 * Thread: any. Blocks: one write per tier, and while another one is written. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_invalidate(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Forgets this namespace's blocks in every tier; keys stay valid. Errors: as kvbm_manager_reset. Thread: any. Since
 * 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_reset(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Changes the quota, for every handle of the namespace; 0 = none. Lowering it evicts what nothing holds. Blocks from
 * before the first quota do not count. Errors: KVBM_ERR_INVALID (less than one block), KVBM_ERR_LIMIT (4,095
 * namespaces of this manager have one). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_set_quota(kvbm_namespace_t *ns, uint64_t quota_bytes, uint32_t quota_mode);

/* --------------------------------------------------------------------- keys */

/* Bytes that make a block more than its tokens: LoRA, multimodal hashes, cache salt (frozen, 16 bytes). */
typedef struct kvbm_extra {
  const uint8_t *data; /* NULL with bytes = 0: none for this block */
  size_t bytes;
} kvbm_extra_t;

/* Keys of consecutive full blocks of `block_tokens` tokens, each depending on all before it: the names to use for
 * prefix caching. `previous` is the key of the block before, NULL at the start of a prompt. A partial last block
 * gets none. `extras` is NULL or has one entry per full block. *out_n is the number of full blocks; at most
 * `capacity` keys are written. Formula: docs/formats.md. Errors: KVBM_ERR_INVALID. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_chain(const kvbm_namespace_t *ns, const kvbm_key_t *previous, const uint32_t *tokens,
                                      size_t n_tokens, uint32_t block_tokens, const kvbm_extra_t *extras,
                                      kvbm_key_t *out_keys, size_t capacity, size_t *out_n);
/* Keys of full blocks by their own tokens alone, wherever they stand. A block stored under such a key carries the
 * position it was computed at (kvbm_store_options_t, kvbm_register_options_t); loading it elsewhere is a miss unless
 * allowed. One position at a time is kept: a block of another one takes the place of what is there. Arguments, errors
 * and outputs as kvbm_key_chain. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_content(const kvbm_namespace_t *ns, const uint32_t *tokens, size_t n_tokens,
                                        uint32_t block_tokens, const kvbm_extra_t *extras, kvbm_key_t *out_keys,
                                        size_t capacity, size_t *out_n);
/* Keys from an engine's own hashes: `hashes` is [n][hash_bytes], hash_bytes 16 to 64, or 1 to 64 where the namespace was
 * opened with weak_hashes. A key is no better than the hash it is made of: blocks with equal hashes are one block here.
 * The hash must cover all that the block's KV depends on in its prompt (the tokens before it as well), and be cryptographic
 * (SHA-256, BLAKE2, BLAKE3) where prompts come from strangers; its algorithm and seed belong into the namespace's `model`,
 * so that hashes of another kind never match. *out_keys is [n]. Errors: KVBM_ERR_INVALID (also for shorter hashes without
 * weak_hashes). Thread: any. Blocks: no; one SHA-256 a hash. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_from_hashes(const kvbm_namespace_t *ns, const uint8_t *hashes, size_t hash_bytes,
                                            size_t n, kvbm_key_t *out_keys);

/* ------------------------------------------------------------ managed pools */

/* Memory of a block (frozen, 24 bytes). */
typedef struct kvbm_view {
  void *data;     /* writable only while the block is Partial and the hold is yours alone */
  uint64_t bytes; /* block_bytes of the manager while Partial, then what was completed */
  uint64_t slot;  /* position in the host tier, stable while held */
} kvbm_view_t;

/* Takes n Partial blocks, all or none, evicting what nothing holds if need be. Up to `evicted_capacity` keys of evicted
 * blocks are written; *out_n_evicted counts them all (both may be NULL). The bytes of a new block are undefined.
 * A call that is refused may have evicted as well: what is held is known only when the rest has gone. Its evictions are
 * told in the same way.
 * Errors: KVBM_ERR_NO_ROOM (everything is held, by offloads too; this never waits), KVBM_ERR_QUOTA. Thread: any.
 * Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_allocate(kvbm_manager_t *manager, kvbm_namespace_t *ns, size_t n_blocks,
                                             kvbm_block_t *out_blocks, kvbm_key_t *out_evicted,
                                             size_t evicted_capacity, size_t *out_n_evicted);
/* Partial -> Complete: the bytes are final. `bytes` is [n_blocks] payload lengths, NULL = block_bytes each. The holds
 * stay as they are. All or none. Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE (not Partial),
 * KVBM_ERR_INVALID (a length of 0 or beyond block_bytes, a hold that is named twice). Thread: any; of several calls with
 * one hold one completes it, and the others get KVBM_ERR_STATE. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_complete(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                             const uint64_t *bytes);

enum { KVBM_DUPLICATE_REUSE = 0, KVBM_DUPLICATE_KEEP = 1 };

typedef struct kvbm_register_options {
  uint32_t struct_size;
  uint32_t duplicates;      /* REUSE: a key that is there already gives its block and frees yours; KEEP: yours stays
                               private until released, and does not become findable */
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
 * options say otherwise. Old holds end, new ones take their place, also for a block whose item failed. Lower tiers
 * receive the blocks as their admission says. All blocks are checked before any is changed: an error before that leaves
 * the holds as they are. Of several calls with one hold one registers it, and the others get KVBM_ERR_STALE.
 * Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE (not Complete), KVBM_ERR_INVALID (options, part, a hold that
 * is named twice), KVBM_ERR_LIMIT (a hold was registered in vain so often that it cannot be once more: release it).
 *
 * The bytes are hashed here: what changes of them from now on, by whomever, is damage for every later load
 * (KVBM_ERR_DAMAGED, then a miss), in host memory as in every tier. The option host.managed_hashes = when_needed puts
 * that off until a block first leaves host memory for a tier or another node: what changes before is not noticed then,
 * nor afterwards.
 *
 * What is there under a key is no duplicate if it may not stand for the caller's block: it was coded with loss and `ns`
 * was opened without allow_lossy, or it was not computed at the position that `positions` says (or it has one, and none
 * is given). The caller's block then takes its place in the host, and it is forgotten in the tiers below; holds on it
 * stay good. Thread: any. Blocks: for hashing the blocks, about as long as reading them takes (with when_needed those
 * with positions alone); where something is replaced on a client of a shared tier set, until its owner has forgotten it.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_register(kvbm_manager_t *manager, kvbm_namespace_t *ns, kvbm_block_t *inout_blocks,
                                             const kvbm_key_t *keys, size_t n_blocks,
                                             const kvbm_register_options_t *options);

/* Where the bytes of held blocks are. Valid until the hold ends, also where another thread ends it. It does not say at
 * which position a block under a content key was computed: kvbm_cache_load looks at that. Nor are the bytes verified: they
 * are what is in memory now, and only kvbm_cache_load compares them with what was registered. Errors: KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN, KVBM_ERR_STATE (a weak hold). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_view(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                       kvbm_view_t *out_views);
/* One more hold on each (Registered blocks only), all or none. Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN,
 * KVBM_ERR_STATE (not Registered, or weak), KVBM_ERR_LIMIT (no hold is free: there are four for
 * each block of the host, and 65,536; or a block has 2,031,616 already). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_clone(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                        kvbm_block_t *out_blocks);
/* Ends holds. A Partial or Complete block goes back to the pool; a Registered one stays findable and becomes evictable
 * with its last hold. Every valid hold is ended even if others of the batch are not valid. Errors: KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_release(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks);
/* Weak references: they do not keep a block. Upgrade gives a new hold, or 0 where the block has gone. The weak hold
 * itself is released like any other. All or none. Errors: as kvbm_block_clone. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_downgrade(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                            kvbm_block_t *out_weak);
/* See kvbm_block_downgrade. out_blocks is [n_blocks]; 0 where the block has gone. Errors: KVBM_ERR_STATE for a hold
 * that is not weak, KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_LIMIT (no hold is free). Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_upgrade(kvbm_manager_t *manager, const kvbm_block_t *weak, size_t n_blocks,
                                          kvbm_block_t *out_blocks);

/* --------------------------------------------------- care of what is cached */

/* Brings blocks up into the host tier so that a later load is quick. Keys that are nowhere are ignored. A use of the
 * blocks, but no lookup in the statistics. Waits for room ahead of stores; what gets none stays below. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_prefetch(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                             const kvbm_key_t *keys, size_t n_keys, kvbm_queue_t *queue,
                                             uint64_t user_data);
/* Copies host blocks to tier `tier` (1 = the first below) now, whatever its admission says. Completes when they are
 * there. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_offload(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                            const kvbm_key_t *keys, size_t n_keys, uint32_t tier, kvbm_queue_t *queue,
                                            uint64_t user_data);
/* Forgets blocks in every tier. *out_n counts those that were in the host tier (may be NULL). Not written down: a
 * record on disk that was dropped this way may be found again after a restart (it is still what was
 * stored under its key). kvbm_manager_reset, kvbm_namespace_reset and kvbm_namespace_invalidate are for good. Thread:
 * any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_drop(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, size_t *out_n);
/* Tells every policy, policy_table too, and the disk tiers of this process what is known of blocks (KVBM_PRIORITY_*).
 * What was said of a record that was on disk already is not written down. Absent: ignored. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_hint(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, uint32_t priority);
/* Keeps host blocks resident for `owner` (any number of the caller's choosing) until timeout_ns from now or until
 * unpinned. The leading keys that are there for `ns` (kvbm_namespace_options_t.allow_lossy) are pinned; *out_n says how
 * many; with 0 the pin is 0. Errors: KVBM_ERR_LIMIT where a block has 131,071 pins, or the manager 1,048,576: those whose
 * time is over do not count. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_pin(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                        const kvbm_key_t *keys, size_t n_keys, uint64_t owner, uint64_t timeout_ns,
                                        kvbm_pin_t *out_pin, size_t *out_n);
/* Ends a pin early; the blocks are evictable again unless something else keeps them. Errors: KVBM_ERR_STALE if it has
 * ended (its deadline passed, its owner was ended, or it was unpinned). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin(kvbm_manager_t *manager, kvbm_pin_t pin);
/* Ends every pin of an owner, as when it has died. *out_n counts them (may be NULL). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin_owner(kvbm_manager_t *manager, uint64_t owner, size_t *out_n);

/* ----------------------------------------------------------- seeing it work */

/* Counters of one tier (frozen, 160 bytes). Tiers sum to the total: hits to keys_hit, and hits and misses to
 * keys_looked_up. */
typedef struct kvbm_tier_stats {
  uint64_t capacity_bytes, used_bytes, blocks, payload_bytes; /* payload_bytes: of the blocks, without their heads */
  uint64_t hits, hit_bytes, misses;   /* hits: keys that lookups found, by the slowest tier that a part of them comes
                                         from; hit_bytes: payloads of all their parts, by the tier of each; misses: keys
                                         that they did not, all on the last tier */
  uint64_t stores, store_bytes;       /* blocks that came in and their payload bytes; of the host: stored by engines,
                                         or brought up from a tier below to stay */
  uint64_t loads, load_bytes;         /* blocks that went out, verified */
  uint64_t evictions, damaged, errors;
  uint64_t metadata_bytes;
  uint64_t disabled;                  /* 1 after a fault that took it out of service */
  uint64_t reserved[4];
} kvbm_tier_stats_t;

/* What a tier that codes made of what it was given; bytes are of payloads. */
typedef struct kvbm_tier_codec_stats {
  uint64_t coded;                     /* records that were coded (of sealed ones too), */
  uint64_t plain_bytes, stored_bytes; /* bytes of these and of sealed ones before, and after */
  uint64_t sealed, left_plain;        /* records sealed; records stored as they were */
  uint64_t encode_ns, decode_ns;      /* of all threads together */
  uint64_t decoded, decoded_bytes;    /* records that came back, and their bytes */
  uint64_t refused_lossy;             /* records that no open handle of their namespace allows */
  uint64_t missing_keys;              /* sealed with a key that is not in seal.key_file, or not sealed with one set */
  uint64_t damaged;                   /* records that did not decode or open: forgotten */
  uint64_t stepped_down;              /* times that encoding held writing up; auto then codes faster, or not at all */
  uint64_t probes;                    /* records that auto coded only to measure */
  uint32_t mode;                      /* KVBM_CODEC_* of most of what was coded last, lossy if any is */
  uint32_t automatic;                 /* 1: auto */
  uint32_t setting;                   /* KVBM_CODEC_* that tiers[].codec names; 0: it is off, or auto */
  uint32_t seals;                     /* 1: whatever is written there is sealed (seal.key_file) */
  double lossy_error;                 /* of what was coded with loss: squared differences to squared values; else 0 */
} kvbm_tier_codec_stats_t;

typedef struct kvbm_manager_counters {
  uint32_t struct_size;
  uint32_t n_tiers;            /* host included */
  uint64_t lookups, keys_looked_up, keys_hit; /* of kvbm_manager_lookup and kvbm_cache_lookup */
  uint64_t holds, pins, matches; /* live now */
  uint64_t operations_in_flight;
  uint64_t stores_refused_room, stores_refused_quota, deadline_missed, position_mismatches, verify_failures;
  uint64_t offloads_skipped;   /* blocks that a full queue did not take (they may go down later), or evicted before */
  kvbm_tier_stats_t tiers[8];
  /* Of loads with kvbm_load_options_t.compute_block_ns: */
  uint64_t loads_weighed;      /* started, because they would win */
  uint64_t load_predicted_ns;  /* time that these were to take, summed, */
  uint64_t load_actual_ns;     /* and took */
  uint64_t loads_not_started;  /* because they would lose, whole */
  uint64_t blocks_left;        /* keys that were left to the engine to compute */
  uint64_t compute_saved_ns;   /* what computing the loaded keys would have taken beyond the load, */
  uint64_t compute_lost_ns;    /* and what loads took beyond that, where they were late */
  /* Of tiers whose records are coded or sealed (tiers[].codec, seal.key_file), by tier: */
  kvbm_tier_codec_stats_t codec[8];
  uint64_t lossy_refused;      /* blocks that a handle without allow_lossy was not given, or has put its own in place
                                  of */
} kvbm_manager_stats_t;

/* Fills the struct; set struct_size first. Cheap. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_stats(kvbm_manager_t *manager, kvbm_manager_stats_t *out_stats);
/* All metrics as Prometheus text exposition. Two-phase as kvbm_context_config. Thread: any. Blocks: where the manager
 * is a node, for a turn of the links' thread. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_metrics(kvbm_manager_t *manager, char *out, size_t capacity, size_t *out_needed);
/* Sends block events to a queue (NULL = stop). One queue per manager. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_subscribe(kvbm_manager_t *manager, kvbm_queue_t *queue);

/* One live block or stored record (frozen, 64 bytes). */
typedef struct kvbm_scan_row {
  kvbm_key_t key;
  uint8_t namespace_id[16];
  uint64_t bytes;
  uint32_t tier;
  uint32_t component;
  uint32_t uses;
  uint32_t holds;
  uint32_t pins;
  uint32_t age; /* since its last use: requests in the host tier, seconds on a disk, 0 in a plug-in */
} kvbm_scan_row_t;

/* Reads a page of what is there without stopping any work. *inout_cursor is 0 to begin and 0 again at the end; blocks
 * that come and go during the walk may or may not be seen, others exactly once. *out_n rows are written, 65,536 at most.
 * Errors: KVBM_ERR_INVALID (a capacity of 0, a cursor that this did not give). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_scan(kvbm_manager_t *manager, uint64_t *inout_cursor, kvbm_scan_row_t *out_rows,
                                         size_t capacity, size_t *out_n);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_H */

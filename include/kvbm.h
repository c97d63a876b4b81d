/* kvbm.h - keeps and moves the KV cache of large language models.
 *
 * SPDX-License-Identifier: Apache-2.0
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
 *               same keys and different shards, and never get each other's bytes.
 *   component   what kind of state it is, for hybrid models: attention, sliding window, recurrent state.
 *   tier        where bytes live, fastest first: host memory (tier 0), then disks and plug-ins in the
 *               order they were configured. Offload moves a block down, onboard moves it up. The engine's own paged
 *               cache, in host memory or on a GPU, is above them all and has no number.
 *   record      a block's bytes of one component and shard, with hashes of every 64 KiB of them. Whatever
 *               comes back from a tier is checked against them; damage is a miss, never wrong bytes.
 *
 * TWO WAYS TO USE IT
 *   Attached cache: the engine keeps its own paged KV cache. It describes it once (kvbm_cache_attach)
 *   and calls lookup, load and store with keys and its own block ids.
 *   Managed pool: the engine lets kvbm own the blocks: allocate, fill, complete, register, look up, release.
 *
 * MEMORY OF A GPU
 *   An attached cache may lie in the memory of a CUDA device (kvbm_cache_options_t.memory). The calls are the same.
 *   Records still lie in host memory and below; kernels and copies of the device carry bytes between them and the
 *   tensors and hash them on the device. They run on streams of the library's own in the device's primary context, on
 *   no more of its multiprocessors than device.multiprocessors says.
 *   order       Without a stream the work begins at once: the caller has synchronised. With one (has_stream) it
 *               begins after what that stream holds at submit. What is enqueued there afterwards does not wait for
 *               the work: it is enqueued after the completion was polled, or made to wait by kvbm_cache_wait_layer.
 *               Stores of one device begin in the order of their calls, and so do loads: one behind a stream that
 *               takes its time holds up those after it.
 *   streams     A CUstream or cudaStream_t of that device, alive. One that is being captured into a graph is refused
 *               (KVBM_ERR_INVALID): order and layers are of one call, which a replay would not make again. Captures of
 *               other streams and kvbm's work do not disturb each other. The library keeps no stream: it may be
 *               destroyed when the call that it was given to has returned.
 *   memory      Tensors stay the caller's. They are freed after kvbm_cache_release, the device's context after the
 *               manager.
 *   ends        What was given to the device cannot be taken back: at a deadline or a cancel the completion comes when
 *               that has come to an end: once the caller's stream has got there, after some milliseconds of work,
 *               device.lost_after at most.
 *   faults      A leaf that is wrong on its way in is overwritten with 0xFF (NaN in bf16, fp16, fp32 and fp8) before
 *               anything that waits on the device can read it, and its item is never KVBM_OK. A device that fails (a
 *               sticky error, or no end within device.lost_after) stays lost: operations on its caches end as
 *               KVBM_ERR_TIER_DISABLED, the log says so once, everything else goes on.
 *
 * THE LIFE OF A BLOCK IN C
 *   Reset --allocate--> Partial --complete--> Complete --register--> Registered --last release--> evictable
 *   A kvbm_block_t names a *hold* on a block, not the block: every allocate, match and clone makes a new
 *   one, and every hold ends once. Using an ended hold gives KVBM_ERR_STALE, another manager's
 *   KVBM_ERR_FOREIGN; neither touches memory. A block is evicted only when nothing holds it.
 *
 * CONVENTIONS
 *   1. Functions return kvbm_status_t: 0 done, above 0 accepted or partly done, below 0 failed, in bands
 *      of 100 that name the remedy. A cache miss is a count, not an error.
 *   2. Arguments come in the order: subject, inputs (pointer, then count), options, outputs (out_*),
 *      then a nullable kvbm_error_t that receives the particulars. Outputs are written only on success
 *      unless said otherwise; out_ counts are always written.
 *   3. Options structs begin with struct_size. Call the *_options_init function, set what you want, pass it.
 *      Unset means the default. NULL options mean all defaults. A field that this library does not
 *      know and that is not zero is refused (KVBM_ERR_UNSUPPORTED), never ignored.
 *   4. Long-lived objects are opaque pointers, counted inside: releasing them in any order is legal, children
 *      keep parents alive, NULL is a no-op. KVBM_OWN marks what the caller must release.
 *   5. Pointers passed in are borrowed for the call. Asynchronous calls copy arrays at submit; the bytes
 *      of attached caches stay borrowed until the completion is polled, as do item_status arrays.
 *   6. Sizes are bytes and times nanoseconds, and names say so. Strings are UTF-8 with a final zero byte.
 *   7. No call aborts, exits, throws, installs a signal handler, or runs a callback on a library thread,
 *      with two exceptions that say so: the log callback and plug-in tables.
 *
 * THREADS
 *   Each function has a Thread line: "any" may be called concurrently on one object, "one" needs the
 *   caller to serialise calls on that object. Library threads are named kvbm-*, block all signals and end with
 *   the context. After fork a child may not use objects of its parent: calls return KVBM_ERR_FORKED, and releases
 *   do nothing, so that destructors may run there. It makes objects of its own.
 *
 * STABILITY
 *   Symbols and struct layouts keep their meaning within a soname. Values are never reused. Formats on disk carry their own versions (docs/formats).
 */
#ifndef KVBM_H
#define KVBM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define KVBM_API
#elif defined(SWIG)
#define KVBM_API
#else
#define KVBM_API __attribute__((visibility("default")))
#endif
/* Marks an output or input whose ownership passes to the receiver. Expands to nothing. */
#define KVBM_OWN

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

/* ------------------------------------------------------------------- status */

typedef int32_t kvbm_status_t;

enum {
  KVBM_OK = 0,
  KVBM_PARTIAL = 1, /* some items of the batch failed; read their statuses */
  /* -100 .. -199: the call is wrong; fix the caller. */
  KVBM_ERR_INVALID = -100,
  KVBM_ERR_STALE = -101,
  KVBM_ERR_FOREIGN = -102,
  KVBM_ERR_STATE = -103,
  KVBM_ERR_FORKED = -104,
  KVBM_ERR_CONFIG = -105,
  KVBM_ERR_IN_USE = -106,
  KVBM_ERR_EXISTS = -107,
  /* -200 .. -299: no room; release, evict, wait or raise a limit. */
  KVBM_ERR_NO_ROOM = -200,
  KVBM_ERR_QUOTA = -201,
  KVBM_ERR_AGAIN = -202,
  KVBM_ERR_NO_MEMORY = -203,
  KVBM_ERR_DISK_FULL = -204,
  /* -300 .. -399: time, peers and owners; retry, or go elsewhere. */
  KVBM_ERR_DEADLINE = -300,
  KVBM_ERR_CANCELLED = -301,
  KVBM_ERR_OWNER_GONE = -302,
  KVBM_ERR_CLOSED = -303,
  /* -400 .. -499: not here or not trustworthy; treat as a miss and compute. */
  KVBM_ERR_MISS = -400,
  KVBM_ERR_DAMAGED = -401,
  KVBM_ERR_MISMATCH = -402,
  /* -500 .. -599: not available here. */
  KVBM_ERR_UNSUPPORTED = -500,
  KVBM_ERR_VERSION = -501,
  KVBM_ERR_PERMISSION = -502,
  /* -600 .. -699: the library's or the system's fault. */
  KVBM_ERR_INTERNAL = -600,
  KVBM_ERR_IO = -601,
  KVBM_ERR_TIER_DISABLED = -602
};

/* The symbolic name of a status, e.g. "KVBM_ERR_NO_ROOM". Static; never NULL. Thread: any. Since 0.1. */
KVBM_API const char *kvbm_status_name(kvbm_status_t status);
/* One sentence that says what it means and what to do. Static; never NULL. Thread: any. Since 0.1. */
KVBM_API const char *kvbm_status_text(kvbm_status_t status);

/* Particulars of a failure. Caller-owned, reusable, nothing to free; every call that takes one accepts NULL. */
typedef struct kvbm_error {
  kvbm_status_t status;
  uint32_t reserved;
  char message[504]; /* what was refused, why, and what to do; zero-terminated, cut if longer */
} kvbm_error_t;

/* ------------------------------------------------------------------ handles */

typedef struct kvbm_context kvbm_context_t;
typedef struct kvbm_queue kvbm_queue_t;
typedef struct kvbm_geometry kvbm_geometry_t;
typedef struct kvbm_manager kvbm_manager_t;
typedef struct kvbm_namespace kvbm_namespace_t;
typedef struct kvbm_cache kvbm_cache_t;
typedef struct kvbm_match kvbm_match_t;
typedef struct kvbm_offer kvbm_offer_t;
typedef struct kvbm_session kvbm_session_t;

/* A hold on a block: hold index, generation and manager, packed. Zero is never valid. */
typedef uint64_t kvbm_block_t;
/* A pin: keeps blocks resident for an owner until a deadline. Zero is never valid. */
typedef uint64_t kvbm_pin_t;

/* The name of a block's content in its namespace (frozen, 16 bytes). */
typedef struct kvbm_key {
  uint8_t bytes[16];
} kvbm_key_t;

/* No deadline. */
#define KVBM_FOREVER UINT64_MAX

/* ------------------------------------------------------ context and settings */

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

/* ------------------------------------------------------- queues, completions */

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

/* A block changed its place (frozen, 72 bytes). A move between tiers is a STORED in one and a REMOVED in the
 * other. */
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

/* ---------------------------------------------- geometry, shards, arrangements */

enum {
  KVBM_ELEMENT_BYTES = 0, /* opaque */
  KVBM_ELEMENT_BF16 = 1,
  KVBM_ELEMENT_FP16 = 2,
  KVBM_ELEMENT_FP32 = 3,
  KVBM_ELEMENT_FP8_E4M3 = 4,
  KVBM_ELEMENT_FP8_E5M2 = 5,
  KVBM_ELEMENT_INT8 = 6
};

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

/* Which part of a component a record holds (frozen, 16 bytes). All zero = all layers and heads. */
typedef struct kvbm_shard {
  uint16_t first_layer;
  uint16_t layers;
  uint16_t first_head;
  uint16_t heads;
  uint16_t replicated; /* 1: every rank of the group holds the same (MLA latents) */
  uint16_t reserved[3];
} kvbm_shard_t;

/* Creates a geometry: model facts and the tokens of one engine block. `units` engine blocks make one stored
 * block (1 = the same; 16 with 16-token blocks = 256-token records). Errors: KVBM_ERR_INVALID naming the component and
 * field. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_geometry_create(uint32_t tokens_per_block, uint32_t units,
                                            const kvbm_component_t *components, size_t n_components,
                                            KVBM_OWN kvbm_geometry_t **out_geometry, kvbm_error_t *err);
/* Ends the caller's reference; namespaces made with the geometry keep it. NULL is a no-op. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API void kvbm_geometry_release(kvbm_geometry_t *geometry);
/* The 64-bit fingerprint that is part of the namespace (formula: docs/formats). Thread: any. Since 0.1. */
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

/* How often and how a plug-in is asked; see "plug-in tiers". */
typedef struct kvbm_tier_table kvbm_tier_table_t;
typedef struct kvbm_policy_table kvbm_policy_table_t;

/* A tier below host memory (frozen, 128 bytes). */
typedef struct kvbm_tier {
  const char *path;               /* directory of a disk tier; NULL for a plug-in */
  const kvbm_tier_table_t *table; /* a plug-in tier; NULL for a disk */
  void *table_user;               /* handed to the table's functions */
  uint64_t capacity_bytes;        /* hard cap of everything in the tier's directory */
  uint64_t write_bytes_per_s;     /* bandwidth cap of offload into it; 0 = none */
  uint64_t read_bytes_per_s;      /* bandwidth cap of onboard from it; 0 = none */
  uint32_t admission;             /* KVBM_ADMIT_* : which blocks of the host come here (what is above is not asked) */
  uint32_t admission_uses;        /* AFTER_USES: n; FREQUENCY: threshold; 1 to 15, 0 = 2 */
  const char *codec;              /* how records are coded here: off (NULL), auto, fast, default, max, zstd */
  uint32_t codec_goal;            /* what auto is for; 0: blocks are brought up sooner, 1: more of them fit */
  uint32_t reserved0;             /* zero */
  uint64_t reserved[7];           /* zero */
} kvbm_tier_t;

/* kvbm_manager_options_t.flags. */
#define KVBM_MANAGER_SHARE 1u /* as the option share=on: several processes of this host share the tier set */

typedef struct kvbm_manager_options {
  uint32_t struct_size;
  uint32_t flags;                /* KVBM_MANAGER_*, or zero */
  uint64_t block_bytes;          /* largest payload of a record; 0 = configuration "host.block_bytes" */
  uint64_t host_capacity_bytes;  /* host tier, record heads included; 0 = configuration "host.capacity" */
  const char *host_file;         /* keep host blocks in this tmpfs or hugetlbfs file over restarts; NULL = anonymous */
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
 * directory has another owner; the message names its process), KVBM_ERR_VERSION (a directory of a newer format),
 * KVBM_ERR_EXISTS (a directory with files of someone else; nothing is changed), KVBM_ERR_DAMAGED (one whose superblock
 * cannot be read), KVBM_ERR_DISK_FULL, KVBM_ERR_NO_MEMORY, KVBM_ERR_IO, KVBM_ERR_PERMISSION. Thread: any. Blocks: for
 * mapping and recovery. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_create(kvbm_context_t *context, const kvbm_manager_options_t *options,
                                           KVBM_OWN kvbm_manager_t **out_manager, kvbm_error_t *err);
/* Ends the caller's reference. When the last of manager, namespaces, caches and matches goes, work in flight is
 * finished and the tiers are closed; what was acknowledged is found again. Thread: any. Blocks: until closed. */
KVBM_API void kvbm_manager_release(kvbm_manager_t *manager);
/* Forgets every block of every tier that nothing holds; held ones vanish from lookups and go when released. Errors:
 * KVBM_ERR_UNSUPPORTED if there is a plug-in tier: its records stay (kvbm_namespace_invalidate makes them unfindable).
 * Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_reset(kvbm_manager_t *manager, kvbm_error_t *err);
/* Waits until no offload is queued or in flight: what was taken into a queue is in its tier then and survives the
 * death of this process. A store that outruns its tiers fills the queue (half of the host tier); what finds no place
 * is counted (offloads_skipped) and goes down later, before it would be evicted, where there is time.
 * KVBM_ERR_DEADLINE if it takes longer. A client of a shared tier set (kvbm_manager_share) waits until the owner has
 * done this for what this process stored before. Thread: any. Blocks: until then. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_flush(kvbm_manager_t *manager, uint64_t timeout_ns);

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
   * such a recipe or allow_lossy; NULL = as the tier codes, without loss. */
  const char *codec;
  /* 1: this handle may be given blocks that were coded with loss; 0: they are misses for it, wherever they are. */
  uint32_t allow_lossy;
  uint32_t reserved0;   /* zero */
} kvbm_namespace_options_t;

/* Fills defaults: no tenant, no adapter, opaque blocks, zero secret, epoch 0, no quota. `model` must be set before use.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_options_init(kvbm_namespace_options_t *out_options, uint32_t struct_size);
/* Opens a namespace of a manager. The same options give the same namespace id on every machine.
 * Thread: any. Blocks: for reading the tiers' epochs. Since 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_open(kvbm_manager_t *manager, const kvbm_namespace_options_t *options,
                                           KVBM_OWN kvbm_namespace_t **out_namespace, kvbm_error_t *err);
/* Ends the caller's reference. The namespace's blocks stay; opening it again with the same options finds them. The
 * last handle of a manager's family closes the tiers (kvbm_manager_release). Thread: any. Since 0.1. */
KVBM_API void kvbm_namespace_release(kvbm_namespace_t *ns);
/* Copies the 16-byte namespace id (it changes with the epoch). Thread: any. Since 0.1. */
KVBM_API void kvbm_namespace_id(const kvbm_namespace_t *ns, uint8_t out_id[16]);
/* Makes every block stored so far unfindable, for good, in every tier: raises the epoch and persists it before it
 * returns. Keys made before do not match any more: make them again. Nodes of the pool that are connected are told, and
 * do the same. Thread: any. Blocks: one write per tier. */
KVBM_API kvbm_status_t kvbm_namespace_invalidate(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Forgets this namespace's blocks in every tier; keys stay valid. Errors: as kvbm_manager_reset. Thread: any. Since
 * 0.1. */
KVBM_API kvbm_status_t kvbm_namespace_reset(kvbm_namespace_t *ns, kvbm_error_t *err);
/* Changes the quota, for every handle of the namespace; 0 = none. Lowering it evicts what nothing holds. Blocks from
 * before the first quota do not count. Errors: KVBM_ERR_INVALID (less than one block), KVBM_ERR_NO_ROOM (4,095
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
 * `capacity` keys are written. Formula: docs/formats. Errors: KVBM_ERR_INVALID. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_chain(const kvbm_namespace_t *ns, const kvbm_key_t *previous, const uint32_t *tokens,
                                      size_t n_tokens, uint32_t block_tokens, const kvbm_extra_t *extras,
                                      kvbm_key_t *out_keys, size_t capacity, size_t *out_n);
/* Keys of full blocks by their own tokens alone, wherever they stand. A block stored under such a key carries the
 * position it was computed at (kvbm_store_options_t); loading it elsewhere is a miss unless allowed. Arguments,
 * errors and outputs as kvbm_key_chain. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_content(const kvbm_namespace_t *ns, const uint32_t *tokens, size_t n_tokens,
                                        uint32_t block_tokens, const kvbm_extra_t *extras, kvbm_key_t *out_keys,
                                        size_t capacity, size_t *out_n);
/* Keys from an engine's own hashes: `hashes` is [n][hash_bytes], hash_bytes 1 to 64. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_key_from_hashes(const kvbm_namespace_t *ns, const uint8_t *hashes, size_t hash_bytes,
                                            size_t n, kvbm_key_t *out_keys);

/* ------------------------------------------------------------ managed pools */

/* What part of the namespace's records a call means. NULL = component 0 and the whole model. */
typedef struct kvbm_part {
  uint32_t component; /* index into the geometry's components */
  uint32_t reserved;
  kvbm_shard_t shard;
} kvbm_part_t;

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
 * Errors: KVBM_ERR_NO_ROOM (everything is held), KVBM_ERR_QUOTA. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_allocate(kvbm_manager_t *manager, kvbm_namespace_t *ns, size_t n_blocks,
                                             kvbm_block_t *out_blocks, kvbm_key_t *out_evicted,
                                             size_t evicted_capacity, size_t *out_n_evicted);
/* Partial -> Complete: the bytes are final. `bytes` is [n_blocks] payload lengths, NULL = block_bytes each. The holds
 * stay as they are. All or none. Errors: KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_STATE. Thread: any. Blocks: no.
 * Since 0.1. */
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
} kvbm_register_options_t;

enum { KVBM_PRIORITY_NORMAL = 0, KVBM_PRIORITY_ONE_SHOT = 1, KVBM_PRIORITY_CONTINUES = 2, KVBM_PRIORITY_KEEP = 3 };

/* Fills defaults: duplicates are reused, component 0 of the whole model, no parent, chained, normal priority.
 * Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_register_options_init(kvbm_register_options_t *out_options, uint32_t struct_size);
/* Complete -> Registered: findable by key from now on, read-only. keys is [n_blocks], a prefix in order unless
 * options say otherwise. Old holds end, new ones take their place. Lower tiers receive the blocks as their admission
 * says. All blocks are checked before any is changed. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_register(kvbm_manager_t *manager, kvbm_namespace_t *ns, kvbm_block_t *inout_blocks,
                                             const kvbm_key_t *keys, size_t n_blocks,
                                             const kvbm_register_options_t *options);

/* Where the bytes of held blocks are. Valid until the hold ends. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_view(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                       kvbm_view_t *out_views);
/* One more hold on each (Registered blocks only). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_clone(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                        kvbm_block_t *out_blocks);
/* Ends holds. A Partial or Complete block goes back to the pool; a Registered one stays findable and becomes evictable
 * with its last hold. Every valid hold is ended even if others of the batch are not valid. Errors: KVBM_ERR_STALE,
 * KVBM_ERR_FOREIGN. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_release(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks);
/* Weak references: they do not keep a block. Upgrade gives a new hold, or 0 where the block has gone. The weak hold
 * itself is released like any other. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_downgrade(kvbm_manager_t *manager, const kvbm_block_t *blocks, size_t n_blocks,
                                            kvbm_block_t *out_weak);
/* See kvbm_block_downgrade. out_blocks is [n_blocks]; 0 where the block has gone. Errors: KVBM_ERR_STATE for a hold
 * that is not weak, KVBM_ERR_STALE, KVBM_ERR_FOREIGN, KVBM_ERR_NO_ROOM (no hold is free). Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_block_upgrade(kvbm_manager_t *manager, const kvbm_block_t *weak, size_t n_blocks,
                                          kvbm_block_t *out_blocks);

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
 * blocks its window reaches, and a state component the last. Thread: any. Blocks: no. Since 0.1. */
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
/* New holds on part `part` of keys [first, first + n); 0 where it is not in the host tier. Thread: any. Since 0.1. */
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

/* ----------------------------------------------------------- attached caches */

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
 * any. Blocks: for the first cache on a device, while the host tier's memory is registered with it, about a
 * second for each 10 GB and thread (device.pin_threads). Since 0.1. */
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

/* In a list of block ids: none. */
#define KVBM_NO_BLOCK UINT32_MAX

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
  const kvbm_position_t *positions; /* [n_keys] content keys only; NULL = none */
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
 * block_ids is [n_parts][n_keys * units], KVBM_NO_BLOCK where the engine has no block of that part (outside a window).
 * A key that is there already is KVBM_OK and moves nothing. queue NULL: blocks until done and returns the result; else
 * returns KVBM_OK when accepted, and the tensors stay borrowed until the completion. Errors at submit: KVBM_ERR_INVALID
 * (a block id out of range; a stream for a cache in host memory, of another device, of a context that is gone, or that
 * is being captured into a graph: the log says which), KVBM_ERR_AGAIN, KVBM_ERR_TIER_DISABLED (with a stream, when the cache's device was lost). Per item:
 * KVBM_ERR_NO_ROOM, KVBM_ERR_QUOTA, KVBM_ERR_DEADLINE; KVBM_ERR_OWNER_GONE on a client of a shared tier set
 * (kvbm_share_t); KVBM_ERR_TIER_DISABLED when the cache's device was lost. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_store(kvbm_cache_t *cache, const kvbm_key_t *keys, const uint32_t *block_ids,
                                        size_t n_keys, const kvbm_store_options_t *options, kvbm_queue_t *queue,
                                        uint64_t user_data);

typedef struct kvbm_load_options {
  uint32_t struct_size;
  uint32_t first_key;          /* skip this many keys of the match */
  uint32_t any_position;       /* 1: content-keyed blocks may be used at any position (the caller re-rotates) */
  uint32_t first_layer;        /* load only layers [first_layer, first_layer + n_layers) of the part's shard */
  uint32_t n_layers;           /* 0 = all */
  uint32_t keep_below;         /* 1: do not keep blocks from lower tiers in the host tier */
  const kvbm_position_t *positions; /* [n_keys] where the blocks will stand; content keys only */
  uint64_t timeout_ns;         /* KVBM_FOREVER by default */
  kvbm_status_t *item_status;  /* [n_keys] */
  uint64_t *out_operation;
  uint64_t compute_block_ns;   /* what the engine would need to compute one of its blocks, of what this call loads.
                                  Then the load is never slower than that (see kvbm_cache_load); 0 = unknown */
  void *stream;                /* as in kvbm_store_options_t: the blocks are written after what `stream` holds now */
  uint32_t has_stream;
  uint32_t wait_layers;        /* CUDA: 1: kvbm_cache_wait_layer will be called; layers then land in their order, of all
                                  keys together, the first layer first. Needs a queue and out_operation */
} kvbm_load_options_t;

/* Fills defaults: from the first key, all layers, exact positions, blocks from below are kept in the host, no deadline,
 * everything is loaded whatever it takes. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_load_options_init(kvbm_load_options_t *out_options, uint32_t struct_size);
/* Brings matched blocks into the engine's blocks, every byte verified on the way. Keys of the match starting at
 * first_key are taken in order; block_ids is [n_parts][n_block_ids], `units` ids a key; the last key may have fewer,
 * then only its leading units are loaded. KVBM_NO_BLOCK skips a block. An item that fails (KVBM_ERR_MISS, _DAMAGED,
 * _MISMATCH, _DEADLINE, ...) leaves its engine blocks undefined and is never reported as loaded: compute it. At the
 * deadline the completion comes at once and the tensors are no longer written to. queue as for store.
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
 * in host memory; KVBM_ERR_FOREIGN; KVBM_ERR_TIER_DISABLED: the cache's device was lost. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_load(kvbm_cache_t *cache, kvbm_match_t *match, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_load_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data);
/* Makes a stream wait for a layer of a load: what is enqueued on `stream` from now on runs after layer `layer`, of
 * every part and key that `operation` loads, has landed and been checked. `operation` is the out_operation of a
 * kvbm_cache_load of this cache with wait_layers; layers are numbered as in kvbm_load_options_t.first_layer. Any
 * streams of the cache's device, in any order.
 *
 * Order alone does not say that the load was right. A stream that waits is always released in the end, also when the
 * load fails, is cancelled or meets its deadline: blocks then hold NaN (a leaf that failed its check), or what was
 * there before (what never came). So what was computed behind a wait counts only once the completion, and item_status,
 * have said that its blocks were loaded; otherwise it must be thrown away.
 *
 * KVBM_OK also when the load has completed: there is nothing to wait for. Errors: KVBM_ERR_INVALID (a layer that the
 * load does not bring, a stream as in kvbm_cache_store), KVBM_ERR_STALE (no such load of this cache, or one that
 * 1,024 later ones with wait_layers came after: look at its completion), KVBM_ERR_TIER_DISABLED (the device was lost).
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_cache_wait_layer(kvbm_cache_t *cache, uint64_t operation, uint32_t layer, void *stream);

/* ---------------------------------------------------- care of what is cached */

/* Brings blocks up into the host tier so that a later load is quick. Keys that are nowhere are ignored. queue as for
 * store. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_prefetch(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                             const kvbm_key_t *keys, size_t n_keys, kvbm_queue_t *queue,
                                             uint64_t user_data);
/* Copies host blocks to tier `tier` (1 = the first below) now, whatever its admission says. Completes when they are
 * there. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_offload(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                            const kvbm_key_t *keys, size_t n_keys, uint32_t tier, kvbm_queue_t *queue,
                                            uint64_t user_data);
/* Forgets blocks in every tier. *out_n counts those that were in the host tier (may be NULL). Not written down: a
 * record on disk, or in a host file, that was dropped this way may be found again after a restart (it is still what was
 * stored under its key). kvbm_manager_reset, kvbm_namespace_reset and kvbm_namespace_invalidate are for good. Thread:
 * any. */
KVBM_API kvbm_status_t kvbm_manager_drop(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, size_t *out_n);
/* Tells the policies what is known of blocks (KVBM_PRIORITY_*). Absent keys are ignored. Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_hint(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                         const kvbm_key_t *keys, size_t n_keys, uint32_t priority);
/* Keeps host blocks resident for `owner` (any number of the caller's choosing) until timeout_ns from now or until
 * unpinned. The leading keys that are there are pinned; *out_n says how many; with 0 the pin is 0. Thread: any. */
KVBM_API kvbm_status_t kvbm_manager_pin(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_part_t *part,
                                        const kvbm_key_t *keys, size_t n_keys, uint64_t owner, uint64_t timeout_ns,
                                        kvbm_pin_t *out_pin, size_t *out_n);
/* Ends a pin early; the blocks are evictable again unless something else keeps them. Errors: KVBM_ERR_STALE if it has
 * ended (its deadline passed, its owner was ended, or it was unpinned). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin(kvbm_manager_t *manager, kvbm_pin_t pin);
/* Ends every pin of an owner, as when it has died. *out_n counts them (may be NULL). Thread: any. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_unpin_owner(kvbm_manager_t *manager, uint64_t owner, size_t *out_n);

/* ------------------------------------------------------------ seeing it work */

/* Counters of one tier (frozen, 160 bytes). Tiers sum to the total. */
typedef struct kvbm_tier_stats {
  uint64_t capacity_bytes, used_bytes, blocks, payload_bytes;
  uint64_t hits, hit_bytes, misses;   /* keys that lookups found here first; keys found in no tier count on the last */
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
  uint32_t mode;                      /* KVBM_CODEC_* of what was stored last */
  uint32_t automatic;                 /* 1: auto */
  uint32_t setting;                   /* KVBM_CODEC_* that tiers[].codec names; 0: it is off, or auto */
  uint32_t seals;                     /* 1: whatever is written there is sealed (seal.key_file) */
  uint64_t reserved[1];
} kvbm_tier_codec_stats_t;

typedef struct kvbm_manager_counters {
  uint32_t struct_size;
  uint32_t n_tiers;            /* host included */
  uint64_t lookups, keys_looked_up, keys_hit;
  uint64_t holds, pins, matches; /* live now */
  uint64_t operations_in_flight;
  uint64_t stores_refused_room, stores_refused_quota, deadline_missed, position_mismatches, verify_failures;
  uint64_t offloads_skipped;   /* blocks that a full offload queue did not take; they may go down later */
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
  uint64_t lossy_refused;      /* blocks that a handle without allow_lossy was not given */
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
 * that come and go during the walk may or may not be seen, others exactly once. *out_n rows are written. Thread: any.
 */
KVBM_API kvbm_status_t kvbm_manager_scan(kvbm_manager_t *manager, uint64_t *inout_cursor, kvbm_scan_row_t *out_rows,
                                         size_t capacity, size_t *out_n);

/* ------------------------------------------------------------------- devices */

/* What was moved in one direction between a device and records in host memory (frozen, 80 bytes). */
typedef struct kvbm_device_moves {
  uint64_t batches, leaves, bytes;
  uint64_t bad_leaves;      /* into the device: not what the record says; overwritten with 0xFF and refused */
  /* By the way that each leaf took: kernels on mapped host memory; kernels and one large copy through memory of the
   * device; copies straight between pages and record; through pinned memory of the library's, because the record's is
   * not registered with the device. */
  uint64_t mapped_leaves, staged_leaves, straight_leaves, bounced_leaves;
  uint64_t device_ns;       /* time on the device, of parts that ran beside each other summed */
  uint64_t reserved;
} kvbm_device_moves_t;

/* A device that caches of this manager lie on, or lay on (frozen, 480 bytes). */
typedef struct kvbm_device_row {
  uint32_t ordinal;         /* kvbm_cache_options_t.device */
  uint32_t lost;            /* 1: it failed, and nothing more is done on it */
  char name[96];
  char pci[32];             /* "0000:1b:00.0" */
  char state[128];          /* "ready", or in words what is wrong */
  uint64_t memory_bytes;
  uint64_t pinned_bytes;    /* of the host tier, registered with it; 0: leaves are bounced */
  kvbm_device_moves_t gathers;  /* out of the device: stores, offers */
  kvbm_device_moves_t scatters; /* into it: loads, sessions */
  uint64_t reserved[5];
} kvbm_device_row_t;

/* Fills rows for the devices that caches of this manager were attached on, by ordinal. *out_n is how many there are,
 * which may be more than `capacity`. Asks the driver nothing. What a machine offers is said by `kvbm doctor`. Errors:
 * KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_devices(kvbm_manager_t *manager, kvbm_device_row_t *out_rows, size_t capacity,
                                            size_t *out_n);

/* --------------------------------------------------------------------- nodes */

/* A manager whose configuration has node.listen or node.peers is a node: other nodes of its pool read what it has, and
 * theirs is its last tier (kvbm_manager_stats counts it as such). What they have is found by asking
 * (kvbm_lookup_options_t.ask_nodes_ns), read by kvbm_cache_load and kvbm_manager_prefetch, verified as everything is,
 * and kvbm_manager_offload to that tier offers blocks to the node whose key they are. Nodes on other machines need a
 * key: node.key_file. Resets and drops are of this manager alone: other nodes keep what they have. */

/* A node that is connected, or an address of node.peers (frozen, 456 bytes). */
typedef struct kvbm_node_row {
  uint8_t node[16];    /* its id; zero while nobody has answered at the address */
  char address[96];    /* where it was dialled, or where it came from; cut to fit */
  char state[128];     /* "ready", or in words why it is not */
  uint64_t capacity_bytes;
  uint64_t used_bytes;
  uint64_t records;
  uint64_t fetched_bytes; /* by this connection, of records read from it */
  uint64_t served_bytes;  /* of records that it read here */
  char path[16];          /* how its host memory is read: "local", in place on this machine, or "tcp"; "" until known */
  char path_reason[128];  /* in words why it is not "local" */
  uint64_t local_bytes;   /* of records read in place, that no connection carried */
  /* How records and slices of it are asked for (node.codec, seal.key_file), and what came: */
  uint8_t codec;               /* KVBM_CODEC_* that large reads are asked with now; with auto what that has decided */
  uint8_t codec_automatic;     /* 1: node.codec = auto */
  uint8_t codec_sealed;        /* 1: nothing is taken from it that is not sealed */
  uint8_t codec_reserved;
  uint32_t codec_refused;      /* what came and was not used: lossy, not sealed, or with a key that is not here */
  uint64_t codec_plain_bytes;  /* payloads of what came coded or sealed, decoded, */
  uint64_t codec_stored_bytes; /* and as they came */
} kvbm_node_row_t;

/* Fills rows for the nodes that are connected and the addresses that are not. *out_n is how many there are, which may
 * be more than `capacity`; 0 for a manager that is no node. Thread: any. Blocks: for a turn of the links' thread. Since
 * 0.1. */
KVBM_API kvbm_status_t kvbm_manager_nodes(kvbm_manager_t *manager, kvbm_node_row_t *out_rows, size_t capacity,
                                          size_t *out_n);
/* The address on which this manager listens, with the port that it got; empty if it does not. Two-phase as
 * kvbm_context_config. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_node_address(kvbm_manager_t *manager, char *out, size_t capacity,
                                                 size_t *out_needed);

typedef struct kvbm_locate_options {
  uint32_t struct_size;
  uint32_t reserved;         /* 0 */
  const kvbm_part_t *parts;  /* [n_parts] as in kvbm_lookup_options_t. NULL = component 0, whole model */
  size_t n_parts;
  /* [n_requests] how many of the keys each request has, one request after the other; NULL = all are one request's */
  const size_t *request_keys;
  size_t n_requests;
  uint64_t ask_nodes_ns; /* ask the nodes that are connected, and wait so long for their answers. 0 = own tiers alone */
} kvbm_locate_options_t;

/* How far one node has the keys of one request (frozen, 48 bytes): `n_prefix` leading keys lie in this tier or faster
 * ones, and fewer in the faster ones alone. A node without the first key has no row; one with all of its keys in one
 * tier has one. */
typedef struct kvbm_location {
  uint8_t node[16];   /* as in kvbm_node_row_t; zero: this manager */
  uint32_t request;   /* index of the request */
  uint32_t tier;      /* the node's own number of it, 0 = its host memory */
  uint64_t n_prefix;
  uint64_t n_in_tier; /* keys of the prefix of which something lies in this tier itself */
  uint64_t bytes;     /* payload bytes of the prefix */
} kvbm_location_t;

/* Fills defaults: one request, component 0 of the whole model, own tiers alone. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_locate_options_init(kvbm_locate_options_t *out_options, uint32_t struct_size);
/* Says which node has the longest prefix of each request, and in which tiers: what a router compares before it sends a
 * request somewhere. keys is [n_keys], those of several requests one after the other. Rows come by request, the longest
 * prefix first; *out_n is how many there are, which may be more than `capacity`. Holds nothing and counts as no use:
 * what is there now may be gone later. KVBM_PARTIAL: some node has not answered all of it in time, and what it did not
 * answer counts as absent. Errors: KVBM_ERR_INVALID (also where request_keys do not add up to n_keys),
 * KVBM_ERR_FOREIGN, KVBM_ERR_UNSUPPORTED. Thread: any. Blocks: up to ask_nodes_ns. Cost: a message of 2,048 keys each
 * way to every node that is connected. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_locate(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                                           size_t n_keys, const kvbm_locate_options_t *options,
                                           kvbm_location_t *out_rows, size_t capacity, size_t *out_n);

/* ------------------------------------------------------------------- sharing */

/* With the option share=on, or KVBM_MANAGER_SHARE, several processes of one host and user open one tier set. The first
 * is its owner, the others are clients; each has a host tier of its own. The calls are the same for all, and mean this:
 *
 * store      A client's kvbm_cache_store is over when the owner has the blocks: who looks them up from then on, in any
 *            process of the set, finds them. An item is KVBM_ERR_OWNER_GONE if there was no owner to give it to: this
 *            process keeps it, and gives it to the next owner. kvbm_manager_register does not wait for the owner.
 * flush      KVBM_OK on a client: everything that it stored before is where the owner's own flush would have it, on the
 * disk if there is one, and survives the death of any process of the set. KVBM_PARTIAL: but for blocks that the owner
 *            had no room for. While there is no owner it waits for the next one; KVBM_ERR_OWNER_GONE after 5 s.
 * lookup     A client asks the owner for what it does not have, and waits share_ask at most; so does prefetch. An owner
 * that did not answer in time is not waited for again until it does. What the owner has counts as the tier after the
 *            disk's. It is not held by the match: a load of it can be KVBM_ERR_MISS.
 * drop, reset, invalidate   Reach the owner before they return, or fail after 2 s. Other clients hear of invalidate,
 * and keep blocks that were dropped or reset in their own memory until they evict them. pin, hint, holds, events, scan,
 * quota   Are of this process's host tier and, for the owner, of its disk.
 *
 * When the owner dies, even by SIGKILL, calls that wait for it end as KVBM_ERR_OWNER_GONE or find nothing, and one of
 * the clients opens the disk and is the owner from then on, as soon as it has noticed: everything that a flush said is
 * on the disk is found again. A forked child is no part of the set; it makes a context of its own. */
enum { KVBM_SHARE_OFF = 0, KVBM_SHARE_OWNER = 1, KVBM_SHARE_CLIENT = 2, KVBM_SHARE_NO_OWNER = 3 };

typedef struct kvbm_share {
  uint32_t struct_size;
  uint32_t role;           /* KVBM_SHARE_*; NO_OWNER: a client that is looking for the next owner */
  uint64_t owner_pid;      /* 0: none */
  uint64_t clients;        /* of this owner */
  uint64_t takeovers;      /* 1: this process became the owner after another one */
  uint64_t owners_lost;    /* links to an owner that ended */
  uint64_t silent_lookups; /* lookups that went on without the owner's answer */
} kvbm_share_t;

/* Says what this process is in a shared tier set; set struct_size first. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_share(kvbm_manager_t *manager, kvbm_share_t *out_share);

/* ------------------------------------------------------------------ sessions */

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
 * host memory, hashed by the device on both ways, and a layer is in place when the device has checked it. A device that
 * is lost ends what it takes part in, with KVBM_ERR_TIER_DISABLED on both sides.
 *
 * Positions are tokens of the request, from 0. block_ids is [n_parts of the cache][n_block_ids]: block i begins at
 * position first_position + i * tokens_per_block of the geometry. KVBM_NO_BLOCK at the front of a part's list: the part
 * begins later (a sliding window); all of it: this part is not meant. Of a state component the last block counts.
 * Layers and heads are numbers of the whole model.
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
 * may reuse the blocks. KVBM_ERR_MISMATCH at the deadline: the only decode ranks that came have another model or
 * geometry. Errors: KVBM_ERR_INVALID (blocks or positions that do not fit, named), KVBM_ERR_EXISTS (this rank offers
 * the request already), KVBM_ERR_STATE (the manager is no node), KVBM_ERR_UNSUPPORTED (an opaque cache),
 * KVBM_ERR_NO_ROOM (4,096 offers are open), KVBM_ERR_AGAIN (the queue is full). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_offer_open(kvbm_cache_t *cache, const kvbm_request_id_t *request, const uint32_t *block_ids,
                                       size_t n_block_ids, const kvbm_offer_options_t *options, kvbm_queue_t *queue,
                                       uint64_t user_data, KVBM_OWN kvbm_offer_t **out_offer, kvbm_error_t *err);
/* Says that positions [begin, end) of layers [first_layer, first_layer + n_layers) of a component are computed and in
 * memory. n_layers 0 = all from first_layer on, end 0 = to the last position; a state is published whole. Any order,
 * any pieces (256 separate ones a layer), repeats allowed; what lies outside the offered positions is ignored. Call it
 * after the device has written the bytes, not when the kernel was started; kvbm_offer_publish_on_stream may be called
 * earlier. Errors: KVBM_ERR_INVALID (a component or layer that is not offered), KVBM_ERR_STALE (the offer has ended: the
 * prefill may stop). Thread: any. Blocks: no. Since 0.1. */
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
/* As kvbm_offer_release. */
KVBM_API void kvbm_session_release(kvbm_session_t *session);

/* -------------------------------------------------------------------- codecs */

/* Coding KV by hand, in the caller's own buffers: the same codecs that tiers and links use, without a manager. A coded
 * buffer describes itself (docs/formats, "coded stream"): it is cut into leaves of at most 64 KiB, each is coded on its
 * own and has the hash of the bytes that decoding must give. So whatever happened to it, decoding gives the right bytes
 * or KVBM_ERR_DAMAGED, never wrong KV; a leaf that coding would not make smaller is kept as it is, and the whole never
 * grows by more than kvbm_codec_room() says. Hashes find faults, not forgery: who must fear that seals (seal.key_file).
 *
 * Calls need no context, keep nothing of the caller's, and are pure: the same input, mode and options give the same
 * bytes on every processor. A thread that codes keeps up to 1 MiB of work memory until it ends. Buffers may have any
 * alignment; 64 bytes is fastest. Input and output must not overlap. */

/* What is asked for. Below 16: lossless, every bit comes back, NaNs and negative zeros included. From 16 on: lossy; what
 * they lose is in kvbm_codec_info_t, and a reader must allow them. A mode that does not fit the element falls back to
 * one that fits and loses less: zstd or nothing for a lossless one, DEFAULT for a lossy one. */
enum {
  KVBM_CODEC_OFF = 0,      /* hashed and not coded */
  KVBM_CODEC_FAST = 1,     /* decodes at about the speed of memory */
  KVBM_CODEC_DEFAULT = 2,  /* a little denser, a little slower */
  KVBM_CODEC_MAX = 3,      /* where space counts */
  KVBM_CODEC_ZSTD = 4,     /* any bytes; the reference */
  KVBM_CODEC_FP8_E4M3 = 16,
  KVBM_CODEC_FP8_E5M2 = 17,
  KVBM_CODEC_INT8 = 18,
  KVBM_CODEC_INT6 = 19,
  KVBM_CODEC_INT4 = 20,
  KVBM_CODEC_INT8_CODED = 21, /* as above and with an entropy stage: denser, slower */
  KVBM_CODEC_INT6_CODED = 22,
  KVBM_CODEC_INT4_CODED = 23,
  KVBM_CODEC_DELTA = 24 /* anchors and coded differences of tokens */
};

/* What the bytes are: rows of `row_elements` elements, in which the same place is the same channel. All zero = opaque
 * bytes, which only zstd can make smaller. How caches are said:
 *   [token][head][dim]   row_elements = heads * dim, rows = 0
 *   [head][token][dim]   row_elements = dim, rows = tokens
 * K and V, and layers, may follow one another in one buffer if each has the same form; calling once for each is as good.
 * Lossy modes keep a scale for each channel of a leaf, so a leaf of few tokens costs relatively more. */
typedef struct kvbm_codec_options {
  uint32_t struct_size;
  uint32_t element;      /* KVBM_ELEMENT_* */
  uint32_t row_elements; /* elements of a row; 0 = not known */
  uint32_t rows;         /* rows after which other channels begin (the next head); 0 = never */
} kvbm_codec_options_t;

/* What a coded buffer says of itself. */
typedef struct kvbm_codec_info {
  uint32_t struct_size;
  uint32_t mode;         /* KVBM_CODEC_* that was asked for */
  uint32_t element;      /* as in kvbm_codec_options_t */
  uint32_t row_elements;
  uint32_t rows;
  uint32_t lossy;        /* 1: some leaf is; decoding needs KVBM_CODEC_ALLOW_LOSSY */
  uint32_t leaves;
  uint32_t raw_leaves;   /* of these, kept as they were */
  uint64_t raw_bytes;    /* what decoding gives */
  uint64_t coded_bytes;  /* the whole coded buffer */
  uint64_t error_ppb;    /* lossy: sum of squared differences / sum of squared values, in 1e-9, rounded up; else 0 */
} kvbm_codec_info_t;

/* kvbm_codec_decode flags. */
#define KVBM_CODEC_ALLOW_LOSSY 1u /* take back bytes that are not those that were coded */

/* The name of a mode as configuration and the kvbm command have it: "off", "fast", "default", "int8_coded". Static;
 * NULL for a number that is no mode. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_mode_name(uint32_t mode);
/* The mode of that name. Errors: KVBM_ERR_INVALID (no such mode; the message lists them). Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_mode_by_name(const char *name, uint32_t *out_mode, kvbm_error_t *err);
/* Which implementation runs on this processor: "avx512", "bmi2", "portable"; all give the same bytes. Static; never
 * NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_kernel(void);
/* Fills defaults: opaque bytes. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_options_init(kvbm_codec_options_t *out_options, uint32_t struct_size);
/* Room that coding `raw_bytes` of that form (NULL = opaque) needs, whatever is in them and whichever mode: about
 * raw_bytes * 1.002 + 4 KiB. What is coded is mostly much smaller. Errors: KVBM_ERR_INVALID (options; more than 2^40
 * bytes). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_room(uint64_t raw_bytes, const kvbm_codec_options_t *options, uint64_t *out_bytes,
                                       kvbm_error_t *err);
/* Codes `raw` into `out`, which has `capacity` bytes, kvbm_codec_room() at least; *out_bytes of them are used. `options`
 * NULL = opaque. Errors: KVBM_ERR_INVALID (no such mode, options that do not fit, named), KVBM_ERR_NO_ROOM (capacity; the
 * message says what is needed), KVBM_ERR_NO_MEMORY. After an error `out` is undefined. Thread: any. Blocks: no; one core
 * for the whole buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_encode(const void *raw, size_t raw_bytes, uint32_t mode,
                                         const kvbm_codec_options_t *options, void *out, size_t capacity,
                                         size_t *out_bytes, kvbm_error_t *err);
/* Reads what a coded buffer says of itself, without decoding; set out_info->struct_size first. Sizes, table and their
 * checksum are checked, leaves are not. A coded buffer from elsewhere may claim up to 2^40 bytes: look before room is
 * taken. Errors: KVBM_ERR_DAMAGED (not a coded buffer, cut short or changed), KVBM_ERR_VERSION (of a newer library),
 * KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_inspect(const void *coded, size_t coded_bytes, kvbm_codec_info_t *out_info,
                                          kvbm_error_t *err);
/* Decodes a whole coded buffer (exactly coded_bytes) into `out_raw`, raw_bytes of kvbm_codec_info_t at least; *out_bytes
 * of it are written, and checked. Errors: KVBM_ERR_DAMAGED and KVBM_ERR_VERSION: treat it as a miss;
 * KVBM_ERR_PERMISSION (it is lossy and `flags` lacks KVBM_CODEC_ALLOW_LOSSY); KVBM_ERR_NO_ROOM (the message says what
 * is needed); KVBM_ERR_UNSUPPORTED (zstd, in a build without); KVBM_ERR_INVALID, also for unknown flags;
 * KVBM_ERR_NO_MEMORY. `out_raw` is undefined then. Thread: any. Blocks: no; one core for the buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_decode(const void *coded, size_t coded_bytes, uint32_t flags, void *out_raw,
                                         size_t capacity, size_t *out_bytes, kvbm_error_t *err);

/* ------------------------------------------------------------- plug-in tiers */

/* One item of a plug-in's put or get (frozen, 64 bytes). A record is opaque to the plug-in: it keeps `head` and
 * `payload` and gives them back byte for byte. kvbm checks everything that comes back. */
typedef struct kvbm_tier_item {
  uint8_t identity[32]; /* the name to store it under: unique per record content, safe as a file name in hex */
  void *head;           /* put: read it; get: fill it */
  void *payload;
  uint32_t head_bytes;    /* put: length; get: room, then set to the length */
  uint32_t reserved;
  uint64_t payload_bytes; /* likewise */
} kvbm_tier_item_t;

/* A storage tier in C. Functions are called on threads of the library's, several at a time, and may block for as long
 * as the deadline allows (10 s where the caller has none); a table that hangs, lies or answers twice is contained: its
 * answers are checked, bytes that do not verify are damage of the tier (counted, and not found there again until they are
 * stored anew), late and second answers are ignored and counted, and after 16 faults the tier is disabled. Errors that it
 * reports itself are no faults: the blocks are misses. What a plug-in writes where it was given nothing to write, nobody
 * can contain: it is in the process. */
struct kvbm_tier_table {
  uint32_t struct_size;
  uint32_t concurrency; /* calls at a time; 0 = 1 */
  const char *name;
  /* Fill out_present[i] with 1 or 0 and out_payload_bytes[i], out_head_bytes[i] where present. From memory, quick. */
  void (*find)(void *user, const uint8_t (*identities)[32], size_t n, uint8_t *out_present, uint32_t *out_head_bytes,
               uint64_t *out_payload_bytes);
  /* Store or fetch n items; out_status[i] = KVBM_OK or an error. Return when all are decided. */
  void (*put)(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  void (*get)(void *user, kvbm_tier_item_t *inout_items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  void (*erase)(void *user, const uint8_t (*identities)[32], size_t n);
  /* Capacity and use in bytes, records. Any pointer is valid. */
  void (*stats)(void *user, uint64_t *out_capacity_bytes, uint64_t *out_used_bytes, uint64_t *out_records);
};

/* ------------------------------------------------------------------ policies */

/* An eviction policy in C. All calls are serialised. Slots are numbers in [0, n_slots). A slot that evict returns and
 * that kvbm_may_evict refuses is put back and counted; a policy that returns nothing usable is helped out by scanning.
 */
struct kvbm_policy_table {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  void *(*create)(void *user, uint32_t n_slots);
  void (*destroy)(void *policy);
  void (*inserted)(void *policy, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick);
  void (*used)(void *policy, const uint32_t *slots, size_t n, uint32_t tick);
  /* Choose and forget one slot for which may_evict(asker, slot) is nonzero; UINT32_MAX = none. */
  uint32_t (*evict)(void *policy, int (*may_evict)(const void *asker, uint32_t slot), const void *asker, uint32_t tick);
  void (*erased)(void *policy, uint32_t slot);
};

#ifdef __cplusplus
}
#endif

#endif /* KVBM_H */

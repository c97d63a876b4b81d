/* kvbm_plugin.h - the caller's own tiers, stores and eviction policies, as tables of C functions.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tier's table is passed in kvbm_tier_t.table, a policy's in kvbm_manager_options_t.policy_table. A store's table is
 * exported by a shared library that kvbm_tier_t.url names, or passed in kvbm_tier_t.store. The manual is kvbm.h, which
 * includes this.
 */
#ifndef KVBM_PLUGIN_H
#define KVBM_PLUGIN_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ plug-in tiers */

typedef struct kvbm_tier_table kvbm_tier_table_t;
typedef struct kvbm_policy_table kvbm_policy_table_t;

/* One item of a plug-in's put or get (frozen, 64 bytes). A record is opaque to the plug-in: it stores `head` and
 * `payload` and returns them byte for byte. kvbm verifies all returned bytes. */
typedef struct kvbm_tier_item {
  uint8_t identity[32]; /* name of the record: unique per content, safe as a file name in hex */
  void *head;           /* put: input; get: output, [head_bytes] */
  void *payload;        /* put: input; get: output, [payload_bytes] */
  uint32_t head_bytes;    /* put: length; get: capacity, then set to the length */
  uint32_t reserved;      /* zero */
  uint64_t payload_bytes; /* put: length; get: capacity, then set to the length */
} kvbm_tier_item_t;

/* A storage tier in C. All five functions are required, and must be safe to call from several threads at a time.
 *
 * put, get and most erases run on library threads, at most `concurrency` at a time. They may block until the deadline
 * (10 s if the caller has none). find, stats and the erase of kvbm_manager_drop run on threads that call kvbm. They
 * must be fast: if one hangs, its caller hangs.
 *
 * Other faults of a table are contained. kvbm checks its answers. Bytes that fail verification are damage of the tier:
 * counted, and not found there again until they are stored anew. Late and repeated answers are ignored and counted.
 * After 16 faults the tier is disabled. Errors that the plug-in reports are not faults: the blocks are misses. Writes
 * outside the given memory cannot be contained, because the plug-in runs in the process. */
struct kvbm_tier_table {
  uint32_t struct_size;
  uint32_t concurrency; /* calls of put, get and erase at a time; 0 = 1 */
  const char *name;
  /* Sets out_present[i] to 1 or 0 for identities [n], and for present records out_payload_bytes[i] and
   * out_head_bytes[i]. Must be fast: from memory. */
  void (*find)(void *user, const uint8_t (*identities)[32], size_t n, uint8_t *out_present, uint32_t *out_head_bytes,
               uint64_t *out_payload_bytes);
  /* Store or fetch items [n], and return when all are decided. out_status[i] = KVBM_OK or an error. */
  void (*put)(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  void (*get)(void *user, kvbm_tier_item_t *inout_items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  /* Removes records; absent ones are ignored. */
  void (*erase)(void *user, const uint8_t (*identities)[32], size_t n);
  /* Returns capacity and used bytes, and the number of records. No pointer is NULL. */
  void (*stats)(void *user, uint64_t *out_capacity_bytes, uint64_t *out_used_bytes, uint64_t *out_records);
};

/* ------------------------------------------------------------------- stores */

/* A store has objects: bytes under a name, written whole, read in ranges, listed in the order of their names. S3, Redis
 * and shared file systems are stores. A store only moves bytes, and may lose any object at any time. kvbm does the
 * rest: it packs records into objects, finds them again, verifies every byte, retries, and bounds time and memory.
 *
 * A store is a shared library that exports one symbol, `const kvbm_store_table_t kvbm_store_table`. kvbm loads it for a
 * URL: scheme://... loads libkvbm_store_<scheme>.so, and plugin:/path/of.so?... loads that file. `kvbm plugin check`
 * tests a library against the rules of this section. */

#define KVBM_STORE_ABI 1u

/* Values of kvbm_store_op_t.kind. */
enum {
  KVBM_STORE_PUT = 1,    /* Writes data[0, bytes) as the object `name`, and replaces an existing one. The object is
                            visible whole or not at all, also to other hosts and after a crash in the middle. */
  KVBM_STORE_GET = 2,    /* Reads the object's bytes from `offset` into data[0, bytes). Sets `done` to the number of
                            bytes read: fewer than `bytes` only at the end of the object. KVBM_ERR_MISS: no such
                            object. */
  KVBM_STORE_REMOVE = 3, /* Removes the object. KVBM_OK if it does not exist. */
  KVBM_STORE_LIST = 4    /* Fills data[0, bytes) with names that begin with `name` and sort after `after`, ascending by
                            bytes, each followed by a NUL. Sets `done` to the bytes used, and `more` to 1 if names
                            are left. Only objects written with KVBM_STORE_LISTED must be listed. A name of an object
                            that was just removed may be listed. An object is listed at most one second after its put
                            finished. */
};
/* Bits of kvbm_store_op_t.flags. */
#define KVBM_STORE_LISTED 1u /* PUT, REMOVE: listings contain this object; stores that list every object ignore it */

#define KVBM_STORE_NAME_BYTES 160 /* longest object name, without its NUL */
#define KVBM_STORE_LIST_BYTES 16384 /* smallest `bytes` of a LIST */

/* One operation. The library owns it and all memory that it points to. It leaves both untouched from `start` until the
 * store calls `finished` for it; after that the store must not touch them. Names are relative to the location in the
 * URL. They consist of [a-z0-9], '-', '.', and '/' between parts; no part is empty or begins with '.'. There are never
 * objects "a" and "a/b" at the same time, so a store may use files and folders. */
typedef struct kvbm_store_op {
  uint32_t kind;       /* KVBM_STORE_PUT .. KVBM_STORE_LIST */
  uint32_t flags;      /* KVBM_STORE_LISTED or 0 */
  const char *name;    /* name of the object; LIST: the prefix, which may be empty */
  const char *after;   /* LIST: begin after this name; empty = at the first. NULL for other kinds */
  void *data;          /* PUT: input; GET, LIST: output */
  uint64_t bytes;      /* length of data */
  uint64_t offset;     /* GET: first byte to read */
  uint64_t timeout_ns; /* the caller gives up at this time after `start`; finish the operation by then */
  uint64_t expire_s;   /* PUT: the object is not needed after so many seconds; 0 = no limit. A store with
                          KVBM_STORE_EXPIRES removes it then; other stores ignore it */
  uint64_t done;       /* out, GET and LIST: bytes written to data */
  uint32_t more;       /* out, LIST: 1 if names are left */
  uint32_t reserved;   /* zero */
  char message[128];   /* out, on errors: one clause with the store's answer, zero-terminated, no secrets */
  void *store_private; /* for the store, NULL at start */
  void *library_private; /* not for the store */
} kvbm_store_op_t;

/* Bits of kvbm_store_facts_t.features. */
#define KVBM_STORE_BLOCKS 1u  /* start() returns when its operations are finished. The library calls it on `concurrency`
                                 threads of its own, with one operation at a time */
#define KVBM_STORE_EXPIRES 2u /* removes objects by itself after expire_s */
#define KVBM_STORE_EVICTS 4u  /* may remove any object by itself to free space */

/* Properties of a store, filled by open(). */
typedef struct kvbm_store_facts {
  uint32_t struct_size; /* set by the library; do not write fields beyond it */
  uint32_t features;    /* KVBM_STORE_BLOCKS .. KVBM_STORE_EVICTS */
  uint32_t concurrency; /* useful number of operations in flight; 1 to 1024; 0 = 16 */
  uint32_t reserved;    /* zero */
  uint64_t object_bytes;     /* object size with the best throughput; 0 = 4 MiB */
  uint64_t max_object_bytes; /* larger objects are refused; 0 = no limit */
  char description[160]; /* location for logs: the URL without secrets */
} kvbm_store_facts_t;

/* An option of a URL, decoded. */
typedef struct kvbm_store_option {
  const char *name;
  const char *value; /* never NULL */
} kvbm_store_option_t;

/* Input of open(). It and all memory that it points to live until close() returns. */
typedef struct kvbm_store_config {
  uint32_t struct_size;
  uint32_t reserved;     /* zero */
  const char *scheme;    /* "s3" of s3://bucket/prefix?region=eu-west-1 */
  const char *authority; /* "bucket": the text between :// and the next /, decoded; "" if none */
  const char *user;      /* of user:password@authority, decoded; "" if absent, also if there is only a password */
  const char *password;  /* of user:password@authority, decoded; "" if absent */
  const char *path;      /* "/prefix", decoded; "" if absent */
  const kvbm_store_option_t *options; /* after '?', decoded; only names in the table's `options` */
  size_t n_options;
  void *context; /* first argument of the two functions that follow */
  /* Reports the end of an operation. Call it exactly once for each operation passed to start(). status:
   *   KVBM_OK
   *   KVBM_ERR_MISS        GET: no such object
   *   KVBM_ERR_AGAIN       busy or throttled: retried later
   *   KVBM_ERR_IO, KVBM_ERR_DEADLINE   may be retried
   *   KVBM_ERR_DISK_FULL
   *   KVBM_ERR_PERMISSION, KVBM_ERR_CONFIG   wrong credentials, bucket or the like: not retried soon, and logged with
   *                        op->message
   * Thread: any, also within start(). Blocks: no. */
  void (*finished)(void *context, kvbm_store_op_t *op, kvbm_status_t status);
  /* Writes one line to the log. level: 0 error, 1 warning, 2 information, 3 detail. Thread: any. */
  void (*log)(void *context, int32_t level, const char *text);
} kvbm_store_config_t;

/* Description of an option of a store's URLs. */
typedef struct kvbm_store_option_help {
  const char *name;
  const char *help; /* one line of help: values, unit and default */
} kvbm_store_option_help_t;

/* A store in C. All functions except cancel are required. Thread: start and cancel may be called from several threads
 * at a time. */
typedef struct kvbm_store_table {
  uint32_t struct_size;
  uint32_t abi;     /* KVBM_STORE_ABI */
  const char *name; /* kind of store, in lower case: "s3" */
  const kvbm_store_option_help_t *options; /* [n_options] options that open() accepts */
  size_t n_options;
  /* Creates a store. Checks its configuration and the first answer of the server, within timeout_ns. An unreachable
   * server is not an error: operations fail until it can be reached. After an error `message` has one sentence with the
   * refused input and the remedy. Errors: KVBM_ERR_CONFIG (a wrong option, name or location), KVBM_ERR_PERMISSION
   * (refused credentials), KVBM_ERR_UNSUPPORTED (another program, or a version that lacks a feature). */
  kvbm_status_t (*open)(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *out_facts,
                        KVBM_OWN void **out_store, char message[256]);
  /* Starts operations [n]. Must not block, except with KVBM_STORE_BLOCKS. */
  void (*start)(void *store, kvbm_store_op_t *const *ops, size_t n);
  /* Notifies that the caller has given up on an operation: finish it as soon as possible, with any status. If it has
   * just finished or finishes now, do nothing. *op can be read during the call. May be NULL. */
  void (*cancel)(void *store, kvbm_store_op_t *op);
  /* Ends the store and its threads. All operations have finished before this call. */
  void (*close)(void *store);
} kvbm_store_table_t;

/* ----------------------------------------------------------------- policies */

/* An eviction policy in C. All calls are serialised, and run on threads that use blocks: they must be fast. Slots are
 * numbers in [0, n_slots). `names` is [n], a hash of each slot's block. A block that returns has the same hash, so a
 * policy can remember evicted blocks. `tick` counts requests and never falls. A slot returned by evict has left the
 * policy. If it is not evicted after all, it is inserted again once it is evictable. A choice that may_evict refuses,
 * or of a slot that the policy does not have, is counted, and kvbm searches for a slot itself. */
struct kvbm_policy_table {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  /* Creates the policy for slots [0, n_slots). destroy ends it. */
  void *(*create)(void *user, uint32_t n_slots);
  void (*destroy)(void *policy);
  /* Slots [n] hold new blocks; slots [n] were used; one slot was freed (erased). */
  void (*inserted)(void *policy, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick);
  void (*used)(void *policy, const uint32_t *slots, size_t n, uint32_t tick);
  /* Chooses and removes one slot for which may_evict(asker, slot) is nonzero; UINT32_MAX = none. */
  uint32_t (*evict)(void *policy, int (*may_evict)(const void *asker, uint32_t slot), const void *asker, uint32_t tick);
  void (*erased)(void *policy, uint32_t slot);
};

#ifdef __cplusplus
}
#endif

#endif /* KVBM_PLUGIN_H */

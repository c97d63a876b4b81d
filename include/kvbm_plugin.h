/* kvbm_plugin.h - tiers, stores and eviction policies of the caller's own, as tables of C functions.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tier's table is handed over in kvbm_tier_t.table, a policy's in kvbm_manager_options_t.policy_table. A store's table
 * is exported by a shared library, which kvbm_tier_t.url names. The manual is kvbm.h, which includes this.
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

/* A storage tier in C. All five functions are required, and must be safe to call from several threads at a time. put,
 * get and most erases run on threads of the library's, `concurrency` of them at most, and may block for as long as the
 * deadline allows (10 s where the caller has none). find, stats and the erase of kvbm_manager_drop run on the thread of
 * whoever calls kvbm: they must be quick, and one that hangs holds its caller up. Everything else that a table does
 * wrong is contained: its answers are checked, bytes that do not verify are damage of the tier (counted, and not found
 * there again until they are stored anew), late and second answers are ignored and counted, and after 16 faults the
 * tier is disabled. Errors that it reports itself are no faults: the blocks are misses. What a plug-in writes where it
 * was given nothing to write, nobody can contain: it is in the process. */
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
  /* Capacity and use in bytes, records; none of the pointers is NULL. */
  void (*stats)(void *user, uint64_t *out_capacity_bytes, uint64_t *out_used_bytes, uint64_t *out_records);
};

/* ------------------------------------------------------------------- stores */

/* A store keeps objects: bytes under a name, written whole, read in ranges, listed in order of their names. S3, Redis and
 * shared file systems are stores. kvbm does the rest for each of them: it packs records into objects, finds them again,
 * checks every byte that comes back, retries, and bounds time and memory. A store only moves bytes, and may lose any
 * object at any time.
 *
 * A store is a shared library that exports one symbol, `const kvbm_store_table_t kvbm_store_table`. kvbm loads it for a
 * URL: scheme://... loads libkvbm_store_<scheme>.so, and plugin:/path/of.so?... loads that file. `kvbm plugin check`
 * tells whether a library keeps what is written here. */

#define KVBM_STORE_ABI 1u

/* kvbm_store_op_t.kind. */
enum {
  KVBM_STORE_PUT = 1,    /* Write data[0, bytes) as the object `name`, replacing it if it exists. It is visible whole or not
                            at all, also to other hosts and after a crash in the middle. */
  KVBM_STORE_GET = 2,    /* Read the object's bytes from `offset` into data[0, bytes). Set `done` to the number of bytes
                            read: fewer than `bytes` only at the end of the object. KVBM_ERR_MISS: no such object. */
  KVBM_STORE_REMOVE = 3, /* Remove the object. KVBM_OK if it does not exist. */
  KVBM_STORE_LIST = 4    /* Fill data[0, bytes) with names that begin with `name` and sort after `after`, ascending by
                            bytes, each followed by a NUL. Set `done` to the bytes used and `more` to 1 if names are left.
                            Only objects written with KVBM_STORE_LISTED must appear; a name may be given whose object has
                            just gone. An object appears at most one second after its put finished. */
};
/* kvbm_store_op_t.flags. */
#define KVBM_STORE_LISTED 1u /* PUT, REMOVE: listings show this object; stores that list everything ignore the flag */

#define KVBM_STORE_NAME_BYTES 160 /* longest object name, without its NUL */
#define KVBM_STORE_LIST_BYTES 16384 /* least room that a LIST is given */

/* One operation. The library owns it and all memory that it names, and leaves both untouched from `start` until the store
 * calls `finished` for it; after that the store must not touch them. Names are relative to the URL's place and consist of
 * [a-z0-9], '-', '.', and '/' between parts; no part is empty or begins with '.'. No object "a" is stored beside an object
 * "a/b": a store may keep one as a file and the other in a folder. */
typedef struct kvbm_store_op {
  uint32_t kind;       /* KVBM_STORE_PUT .. KVBM_STORE_LIST */
  uint32_t flags;      /* KVBM_STORE_LISTED or 0 */
  const char *name;    /* the object; LIST: the prefix, which may be empty */
  const char *after;   /* LIST: begin behind this name; empty: at the first. NULL for others */
  void *data;          /* PUT: read it; GET, LIST: fill it */
  uint64_t bytes;      /* length of data */
  uint64_t offset;     /* GET */
  uint64_t timeout_ns; /* the caller gives up so long after `start`; end the operation by then */
  uint64_t expire_s;   /* PUT: the object is not needed after so many seconds; 0 = no limit. A store with
                          KVBM_STORE_EXPIRES removes it then, others ignore this */
  uint64_t done;       /* out, GET and LIST */
  uint32_t more;       /* out, LIST */
  uint32_t reserved;   /* zero */
  char message[128];   /* out, on errors: one clause that says what the store answered, zero-terminated, no secrets */
  void *store_private; /* the store's own, NULL at start */
  void *library_private;
} kvbm_store_op_t;

/* kvbm_store_facts_t.features. */
#define KVBM_STORE_BLOCKS 1u  /* start() returns when its operations are finished: the library calls it on `concurrency`
                                 threads of its own, with one operation at a time */
#define KVBM_STORE_EXPIRES 2u /* removes objects by itself when expire_s is over */
#define KVBM_STORE_EVICTS 4u  /* may remove any object by itself to make room */

/* What a store is, filled by open(). */
typedef struct kvbm_store_facts {
  uint32_t struct_size; /* set by the library; fields behind it must be left alone */
  uint32_t features;    /* KVBM_STORE_BLOCKS .. KVBM_STORE_EVICTS */
  uint32_t concurrency; /* operations that are worth having in flight; 1 to 1024; 0 = 16 */
  uint32_t reserved;    /* zero */
  uint64_t object_bytes;     /* the size of an object that is written and read at best speed; 0 = 4 MiB */
  uint64_t max_object_bytes; /* larger objects are refused; 0 = no limit */
  char description[160]; /* where it is, for people: the URL without secrets */
} kvbm_store_facts_t;

typedef struct kvbm_store_option {
  const char *name;
  const char *value; /* never NULL */
} kvbm_store_option_t;

/* What open() is given. It and everything that it names live until close() returns. */
typedef struct kvbm_store_config {
  uint32_t struct_size;
  uint32_t reserved;     /* zero */
  const char *scheme;    /* "s3" of s3://bucket/prefix?region=eu-west-1 */
  const char *authority; /* "bucket": what stands between :// and the next /, decoded; "" if nothing */
  const char *user;      /* of user:password@authority, decoded; "" if absent. Empty when only a password is given */
  const char *password;  /* likewise */
  const char *path;      /* "/prefix", decoded; "" if absent */
  const kvbm_store_option_t *options; /* after '?', decoded; only names of the table's own `options` */
  size_t n_options;
  void *context; /* for the two functions that follow */
  /* Call it exactly once for each operation that start() was given. status: KVBM_OK; KVBM_ERR_MISS (GET: not there);
   * KVBM_ERR_AGAIN (busy or throttled: retried later); KVBM_ERR_IO and KVBM_ERR_DEADLINE (may be retried);
   * KVBM_ERR_DISK_FULL; KVBM_ERR_PERMISSION, KVBM_ERR_CONFIG (wrong credentials, bucket or the like: not retried soon, and
   * told to people with op->message). Thread: any, also within start(). Blocks: no. */
  void (*finished)(void *context, kvbm_store_op_t *op, kvbm_status_t status);
  /* A line for the log. level: 0 error, 1 warning, 2 information, 3 detail. Thread: any. */
  void (*log)(void *context, int32_t level, const char *text);
} kvbm_store_config_t;

/* An option of a store's URLs. */
typedef struct kvbm_store_option_help {
  const char *name;
  const char *help; /* one line for people: values, unit and default */
} kvbm_store_option_help_t;

/* All functions are required but cancel. Thread: start and cancel may be called from several threads at a time. */
typedef struct kvbm_store_table {
  uint32_t struct_size;
  uint32_t abi;     /* KVBM_STORE_ABI */
  const char *name; /* of the kind of store, in lower case: "s3" */
  const kvbm_store_option_help_t *options; /* [n_options] that open() understands */
  size_t n_options;
  /* Makes a store. It checks what it is given and the first answer of the server, within timeout_ns. A server that cannot
   * be reached now is no error: operations fail until it can. Errors: KVBM_ERR_CONFIG (a wrong option, name or place),
   * KVBM_ERR_PERMISSION (refused credentials), KVBM_ERR_UNSUPPORTED (another program or a version that lacks something):
   * `message` then has one sentence with what was refused and the remedy. */
  kvbm_status_t (*open)(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *out_facts,
                        KVBM_OWN void **out_store, char message[256]);
  /* Takes n operations. Must not block, unless the facts say KVBM_STORE_BLOCKS. */
  void (*start)(void *store, kvbm_store_op_t *const *ops, size_t n);
  /* The caller has given up on an operation: finish it as soon as possible, with any status. It may have finished just
   * now, or finish at this moment: then nothing is to do. *op itself can be read during the call. May be NULL. */
  void (*cancel)(void *store, kvbm_store_op_t *op);
  /* Ends the store and its threads. Every operation has finished before. */
  void (*close)(void *store);
} kvbm_store_table_t;

/* ----------------------------------------------------------------- policies */

/* An eviction policy in C. All calls are serialised, on the thread of whoever uses blocks: they must be quick. Slots
 * are numbers in [0, n_slots). `names` has a hash of what lies in each slot, the same whenever that block comes again, so
 * that a policy can remember what it evicted. `tick` counts requests, never falls. A slot that evict returns has left the
 * policy; if it stays after all, it is inserted anew once it can go. A refused or foreign choice is counted; kvbm scans. */
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

#endif /* KVBM_PLUGIN_H */

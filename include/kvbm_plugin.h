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
 * `payload` and returns them byte for byte. kvbm verifies all returned bytes. The memory is kvbm's own copy, and the
 * plug-in may use it until the function returns. It is never the engine's memory, nor the host tier's. */
typedef struct kvbm_tier_item {
  /* Name of the record: SHA-256 of namespace, key, geometry, component and shard. Equal in every process and after a
   * restart. A record of the same name replaces the older one. Safe as a file name in hex. */
  uint8_t identity[32];
  void *head;           /* put: input; get: output, [head_bytes] */
  void *payload;        /* put: input; get: output, [payload_bytes] */
  /* put: length; get: capacity, which is the length that find reported, then set to the length. */
  uint32_t head_bytes;
  uint32_t reserved;      /* zero */
  uint64_t payload_bytes; /* put: length; get: capacity, then set to the length; less than 4 GiB */
} kvbm_tier_item_t;

/* A storage tier in C. All five functions are required, and must be safe to call from several threads at a time.
 * kvbm_manager_create copies the table. `name`, the code of the functions and what `user` points to must stay until
 * kvbm_manager_release has returned. `user` is kvbm_tier_t.table_user. An incomplete table is KVBM_ERR_UNSUPPORTED.
 * kvbm_manager_scan does not list the records of a plug-in.
 *
 * put, get and most erases run on library threads, at most `concurrency` at a time. They may block until the deadline
 * (10 s if the caller has none). find, stats and the erase of kvbm_manager_drop run on threads that call kvbm. They
 * must be fast: if one hangs, its caller hangs.
 *
 * Other faults of a table are contained. kvbm checks its answers. Bytes that fail verification are damage of the tier:
 * counted, and not found there again until they are stored anew. Late and repeated answers are ignored and counted.
 * After 16 faults the tier is disabled. Errors that the plug-in reports are not faults: the blocks are misses. Writes
 * outside the given memory cannot be contained, because the plug-in runs in the process.
 *
 * Example: a tier over a map from identity to bytes. map_get() and map_put() stand for code that locks and copies; they
 * return 0 if there is no such record, or no space. The tier is passed as tiers[i].table = &my_tier.
 *
 *     extern int map_find(const uint8_t name[32], uint32_t *head_bytes, uint64_t *payload_bytes);
 *     extern int map_put(const kvbm_tier_item_t *item);
 *     extern int map_get(kvbm_tier_item_t *item);
 *     extern void map_erase(const uint8_t name[32]);
 *     extern void map_sizes(uint64_t *capacity, uint64_t *used, uint64_t *records);
 *
 *     static void my_find(void *user, const uint8_t (*names)[32], size_t n, uint8_t *present, uint32_t *heads,
 *                         uint64_t *payloads) {
 *       size_t i;
 *       (void)user;
 *       for (i = 0; i < n; ++i) present[i] = map_find(names[i], &heads[i], &payloads[i]) ? 1 : 0;
 *     }
 *     static void my_put(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns,
 *                        kvbm_status_t *status) {
 *       size_t i;
 *       (void)user, (void)timeout_ns;
 *       for (i = 0; i < n; ++i) status[i] = map_put(&items[i]) ? KVBM_OK : KVBM_ERR_NO_ROOM;
 *     }
 *     static void my_get(void *user, kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *status) {
 *       size_t i;
 *       (void)user, (void)timeout_ns;
 *       for (i = 0; i < n; ++i) status[i] = map_get(&items[i]) ? KVBM_OK : KVBM_ERR_MISS;
 *     }
 *     static void my_erase(void *user, const uint8_t (*names)[32], size_t n) {
 *       size_t i;
 *       (void)user;
 *       for (i = 0; i < n; ++i) map_erase(names[i]);
 *     }
 *     static void my_stats(void *user, uint64_t *capacity, uint64_t *used, uint64_t *records) {
 *       (void)user;
 *       map_sizes(capacity, used, records);
 *     }
 *     static const kvbm_tier_table_t my_tier = {sizeof(kvbm_tier_table_t), 4, "map", my_find, my_put, my_get, my_erase,
 *                                               my_stats}; */
struct kvbm_tier_table {
  /* sizeof(kvbm_tier_table_t). */
  uint32_t struct_size;
  /* Calls of put, get and erase at a time, each on a thread of its own; 0 = 1, more than 64 = 64. */
  uint32_t concurrency;
  /* Name for logs and metrics; may be NULL. */
  const char *name;
  /* Sets out_present[i] to 1 or 0 for identities [n], and for present records out_payload_bytes[i] and
   * out_head_bytes[i]. All are 0 before the call, and n is at most 64. Must be fast: from memory. A record with sizes
   * that no record can have counts as absent. */
  void (*find)(void *user, const uint8_t (*identities)[32], size_t n, uint8_t *out_present, uint32_t *out_head_bytes,
               uint64_t *out_payload_bytes);
  /* Store or fetch items [n], and return when all are decided, within timeout_ns. out_status[i] = KVBM_OK or an error;
   * a status that is not set counts as an error. get: KVBM_ERR_MISS is a plain miss, any other error is counted in
   * kvbm_tier_stats_t.errors. An item that fails does not stop the others. */
  void (*put)(void *user, const kvbm_tier_item_t *items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  void (*get)(void *user, kvbm_tier_item_t *inout_items, size_t n, uint64_t timeout_ns, kvbm_status_t *out_status);
  /* Removes records; absent ones are ignored. They must not be found again, except after a new put. */
  void (*erase)(void *user, const uint8_t (*identities)[32], size_t n);
  /* Returns capacity and used bytes, and the number of records, for kvbm_manager_stats. No pointer is NULL. kvbm does
   * not enforce the capacity: the plug-in evicts by itself, or refuses a put. */
  void (*stats)(void *user, uint64_t *out_capacity_bytes, uint64_t *out_used_bytes, uint64_t *out_records);
};

/* ------------------------------------------------------------------- stores */

/* A store has objects: bytes under a name, written whole, read in ranges, listed in the order of their names. S3, Redis
 * and shared file systems are stores. A store only moves bytes, and may lose any object at any time. kvbm does the
 * rest: it packs records into objects, finds them again, verifies every byte, retries, and bounds time and memory.
 *
 * A store is a shared library that exports one symbol, `const kvbm_store_table_t kvbm_store_table`. kvbm loads it for a
 * URL: scheme://... loads libkvbm_store_<scheme>.so, and plugin:/path/of.so?... loads that file. `kvbm plugin check`
 * tests a library against the rules of this section. A file that all users may write is refused (KVBM_ERR_PERMISSION).
 * tests/examples/memory_store.c is a complete store in 140 lines. */

/* Version of this section's structs and rules. A library of another version is refused (KVBM_ERR_VERSION). */
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
  void *data;          /* PUT: input, not to be changed; GET, LIST: output, not initialised */
  uint64_t bytes;      /* length of data */
  uint64_t offset;     /* GET: first byte to read */
  uint64_t timeout_ns; /* the caller gives up at this time after `start`; finish the operation by then */
  uint64_t expire_s;   /* PUT: the object is not needed after so many seconds; 0 = no limit. A store with
                          KVBM_STORE_EXPIRES removes it then; other stores ignore it */
  uint64_t done;       /* out, GET and LIST: bytes written to data */
  uint32_t more;       /* out, LIST: 1 if names are left */
  uint32_t reserved;   /* zero */
  char message[128];   /* out, on errors: one clause with the store's answer, zero-terminated, no secrets */
  void *store_private; /* for the store, NULL at start; the library does not look at it */
  void *library_private; /* not for the store: neither read nor written by it */
} kvbm_store_op_t;

/* Bits of kvbm_store_facts_t.features. */
#define KVBM_STORE_BLOCKS 1u  /* start() returns when its operations are finished. The library calls it on `concurrency`
                                 threads of its own, with one operation at a time */
#define KVBM_STORE_EXPIRES 2u /* removes objects by itself after expire_s */
#define KVBM_STORE_EVICTS 4u  /* may remove any object by itself to free space */

/* Properties of a store, filled by open(). All zero before; zero means the default of a field. */
typedef struct kvbm_store_facts {
  uint32_t struct_size; /* set by the library; do not write fields beyond it */
  uint32_t features;    /* KVBM_STORE_BLOCKS .. KVBM_STORE_EVICTS */
  /* Useful number of operations in flight, 1 to 1024; 0 = 16; more is cut. With KVBM_STORE_BLOCKS at most 64, because
   * each takes a thread. */
  uint32_t concurrency;
  uint32_t reserved;    /* zero */
  /* Object size with the best throughput; 0 = 4 MiB. Cut to 4 KiB to 1 GiB. The URL's option `pack` overrides it. */
  uint64_t object_bytes;
  uint64_t max_object_bytes; /* kvbm writes no larger object; 0 = no limit */
  /* Location for logs: the URL without secrets, zero-terminated. Control characters become spaces. */
  char description[160];
} kvbm_store_facts_t;

/* An option of a URL, decoded. An option that the URL has twice is refused before open() is called. */
typedef struct kvbm_store_option {
  const char *name;  /* one of kvbm_store_table_t.options */
  const char *value; /* never NULL; may be empty */
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
  /* [n_options] After '?', decoded; only names in the table's `options`. kvbm takes its own ones (docs/stores.md). */
  const kvbm_store_option_t *options;
  size_t n_options;      /* at most 64 */
  /* First argument of the two functions that follow. */
  void *context;
  /* Reports the end of an operation. Call it exactly once for each operation passed to start(). The library may free
   * *op before this returns. A request is tried up to 4 times in all, with growing pauses. status:
   *   KVBM_OK
   *   KVBM_ERR_MISS        GET: no such object
   *   KVBM_ERR_AGAIN       busy or throttled: retried later
   *   KVBM_ERR_IO, KVBM_ERR_DEADLINE   may be retried
   *   KVBM_ERR_DISK_FULL
   *   KVBM_ERR_PERMISSION, KVBM_ERR_CONFIG   wrong credentials, bucket or the like: not retried soon, and logged with
   *                        op->message
   * Thread: any, also within start(). Blocks: no. */
  void (*finished)(void *context, kvbm_store_op_t *op, kvbm_status_t status);
  /* Writes one line to the log. level: 0 error, 1 warning, 2 information, 3 detail; others count as the nearest. NULL
   * is a no-op, and text after 1,024 bytes is cut. No secrets. Thread: any. Blocks: as long as the log callback. */
  void (*log)(void *context, int32_t level, const char *text);
} kvbm_store_config_t;

/* Description of an option of a store's URLs. */
typedef struct kvbm_store_option_help {
  const char *name; /* 1 to 64 of a to z, 0 to 9, _ and - */
  const char *help; /* one line of help: values, unit and default */
} kvbm_store_option_help_t;

/* A store in C. All functions except cancel are required. Thread: start and cancel may be called from several threads
 * at a time. An incomplete table is KVBM_ERR_DAMAGED, with the missing part in the message. */
typedef struct kvbm_store_table {
  uint32_t struct_size; /* sizeof(kvbm_store_table_t) */
  uint32_t abi;         /* KVBM_STORE_ABI */
  const char *name;     /* kind of store: 1 to 24 of a to z, 0 to 9, + and -, first a letter: "s3" */
  const kvbm_store_option_help_t *options; /* [n_options] options that open() accepts; NULL = none */
  size_t n_options;     /* at most 256 */
  /* Creates a store. Checks its configuration and the first answer of the server, within timeout_ns. An unreachable
   * server is not an error: operations fail until it can be reached. After an error `message` has one sentence with the
   * refused input and the remedy. Errors: KVBM_ERR_CONFIG (a wrong option, name or location), KVBM_ERR_PERMISSION
   * (refused credentials), KVBM_ERR_UNSUPPORTED (another program, or a version that lacks a feature). */
  kvbm_status_t (*open)(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *out_facts,
                        KVBM_OWN void **out_store, char message[256]);
  /* Starts operations [n]. Must not block, except with KVBM_STORE_BLOCKS. They may finish in any order. The array `ops`
   * is borrowed for the call, the operations until finished(). */
  void (*start)(void *store, kvbm_store_op_t *const *ops, size_t n);
  /* Notifies that the caller has given up on an operation: finish it as soon as possible, with any status. If it has
   * just finished or finishes now, do nothing. *op can be read during the call. May be NULL. */
  void (*cancel)(void *store, kvbm_store_op_t *op);
  /* Ends the store and its threads. All operations have finished before this call. */
  void (*close)(void *store);
} kvbm_store_table_t;

/* ----------------------------------------------------------------- policies */

/* An eviction policy in C. All calls are serialised, and run on threads that use blocks: they must be fast, and must
 * not call kvbm. Slots are numbers in [0, n_slots). `names` is [n], a hash of each slot's block. A block that returns
 * has the same hash, so a policy can remember evicted blocks. `tick` counts requests and never falls. A slot returned
 * by evict has left the policy. If it is not evicted after all, it is inserted again once it is evictable. A choice
 * that may_evict refuses, or of a slot that the policy does not have, is counted, and kvbm searches for a slot itself.
 *
 * Hints (KVBM_PRIORITY_*) come before the policy. It does not know a ONE_SHOT or KEEP block while the hint lasts, and a
 * CONTINUES block is inserted again, once, when the policy first chooses it. may_evict refuses blocks with a hold, a
 * match or a pin, and those that others follow. So the policy need not know of these.
 *
 * kvbm_manager_create copies the table. `name`, the code of the functions and what `user` points to must stay until
 * kvbm_manager_release has returned. All functions are required: else KVBM_ERR_UNSUPPORTED.
 *
 * Example: first in, first out, over a linked list of slots. list_after() returns the next newer slot.
 *
 *     extern void list_append(void *list, uint32_t slot);
 *     extern void list_remove(void *list, uint32_t slot);
 *     extern uint32_t list_after(void *list, uint32_t slot); // of UINT32_MAX the oldest, of the newest UINT32_MAX
 *     extern void *list_create(void *user, uint32_t n_slots);
 *     extern void list_destroy(void *list);
 *
 *     static void fifo_inserted(void *p, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick) {
 *       size_t i;
 *       (void)names, (void)tick;
 *       for (i = 0; i < n; ++i) list_append(p, slots[i]);
 *     }
 *     static void fifo_used(void *p, const uint32_t *slots, size_t n, uint32_t tick) {
 *       (void)p, (void)slots, (void)n, (void)tick; // uses do not count here
 *     }
 *     static uint32_t fifo_evict(void *p, int (*may_evict)(const void *, uint32_t), const void *asker, uint32_t tick) {
 *       uint32_t slot = list_after(p, UINT32_MAX);
 *       (void)tick;
 *       while (slot != UINT32_MAX && !may_evict(asker, slot)) slot = list_after(p, slot);
 *       if (slot != UINT32_MAX) list_remove(p, slot);
 *       return slot;
 *     }
 *     static const kvbm_policy_table_t fifo = {sizeof(kvbm_policy_table_t), 0, "fifo", list_create, list_destroy,
 *                                              fifo_inserted, fifo_used, fifo_evict, list_remove}; */
struct kvbm_policy_table {
  /* sizeof(kvbm_policy_table_t). */
  uint32_t struct_size;
  uint32_t reserved; /* zero */
  /* Name for logs; NULL = "plugin". */
  const char *name;
  /* Creates a policy for slots [0, n_slots), and returns the first argument of the others, which may be NULL. `user` is
   * kvbm_manager_options_t.policy_user. Called once for the manager, and once more for each namespace that gets a
   * quota: its blocks have a policy of their own. */
  void *(*create)(void *user, uint32_t n_slots);
  /* Ends a policy. No call with it follows. */
  void (*destroy)(void *policy);
  /* Slots [n], at most 64, hold blocks that the policy does not know yet, or not any more. */
  void (*inserted)(void *policy, const uint32_t *slots, const uint64_t *names, size_t n, uint32_t tick);
  /* Slots [n] of the policy were used, for example found by a lookup. */
  void (*used)(void *policy, const uint32_t *slots, size_t n, uint32_t tick);
  /* Chooses and removes one slot for which may_evict(asker, slot) is nonzero; UINT32_MAX = none. Both are valid during
   * the call only. */
  uint32_t (*evict)(void *policy, int (*may_evict)(const void *asker, uint32_t slot), const void *asker, uint32_t tick);
  /* One slot of the policy was freed: its block was dropped, or evicted without the policy. */
  void (*erased)(void *policy, uint32_t slot);
};

#ifdef __cplusplus
}
#endif

#endif /* KVBM_PLUGIN_H */

/* kvbm_plugin.h - tiers and eviction policies of the caller's own, as tables of C functions.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tier's table is handed over in kvbm_tier_t.table, a policy's in kvbm_manager_options_t.policy_table. The manual is
 * kvbm.h, which includes this.
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

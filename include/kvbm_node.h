/* kvbm_node.h - managers as nodes of a pool, and processes of one host that share a tier set.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * kvbm_session.h moves a request from node to node. The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_NODE_H
#define KVBM_NODE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- nodes */

/* A manager with option node.listen or node.peers is a node. The other nodes of its pool read its blocks, and their
 * blocks are its last tier, which kvbm_manager_stats counts. Lookups find blocks of other nodes by asking
 * (kvbm_lookup_options_t.ask_nodes_ns). kvbm_cache_load and kvbm_manager_prefetch read them and verify every byte.
 * kvbm_manager_offload to the last tier offers each block to the home node of its key. Resets and drops apply to this
 * manager only: other nodes keep their blocks.
 *
 * Without a key file (option node.key_file, made by `kvbm key new`) all nodes are processes of one user on one machine.
 * Both sides of a connection verify that with the kernel. A key file is needed for other users, other network
 * namespaces, containers with their own user namespace, other machines, and the transport UCX.
 *
 * TCP links between nodes with a key are authenticated (option node.protect). All bytes come from a holder of the key,
 * even with an attacker on the path. Changed, repeated, missing or reordered bytes end the link. Transfers over it then
 * fail with KVBM_ERR_DAMAGED or KVBM_ERR_OWNER_GONE, never with a wrong block. node.protect = encrypt also hides
 * contents. Two things are refused beyond this machine, unless option node.trusted_network confirms that no other party
 * can reach the network: node.protect = off; and UCX, because its network cards access memory directly, unless records
 * are sealed (option seal.key_file). Memory that nodes of one machine read in place crosses no network.
 *
 * Example: a router that asks which node has most of a prompt. Returns the length of that prefix in keys; 0 = none.
 *
 *     extern void send_to(const uint8_t node[16]); // all zero: this process
 *
 *     static uint64_t route(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys, size_t n_keys) {
 *       kvbm_locate_options_t ask;
 *       kvbm_location_t rows[64];
 *       size_t n_rows = 0;
 *       kvbm_locate_options_init(&ask, sizeof ask);
 *       ask.ask_nodes_ns = 5000000; // 5 ms; KVBM_PARTIAL if some node did not answer by then
 *       if (kvbm_manager_locate(manager, ns, keys, n_keys, &ask, rows, 64, &n_rows) < 0 || n_rows == 0) return 0;
 *       send_to(rows[0].node); // one request: the longest prefix comes first
 *       return rows[0].n_prefix;
 *     } */

/* A connected node, or an address of node.peers (frozen, 456 bytes). */
typedef struct kvbm_node_row {
  uint8_t node[16];    /* id of the node; zero until a node has answered at the address */
  char address[96];    /* address that was dialled, or that the node connected from; cut to fit */
  /* "ready", "this node" (an address of node.peers that is this manager's own), or the reason why not. A reason that
   * begins with "refused: " does not change by waiting. Cut to fit. */
  char state[128];
  uint64_t capacity_bytes; /* of the node's tiers, as it last reported; 0 until then */
  uint64_t used_bytes;     /* used part of capacity_bytes, as it last reported */
  uint64_t records;        /* number of records in the node's tiers, as it last reported */
  uint64_t fetched_bytes; /* bytes of records read from the node over this connection */
  uint64_t served_bytes;  /* bytes of records that the node read from this one */
  char path[16];          /* path of reads from its host memory: "local" (in place) or "tcp"; "" until known */
  char path_reason[128];  /* the reason why it is not "local" */
  uint64_t local_bytes;   /* bytes of records read in place, without a connection */
  /* Coding of records and slices read from the node (node.codec, seal.key_file): */
  uint8_t codec;               /* KVBM_CODEC_* requested for large reads now; with auto its current choice */
  uint8_t codec_automatic;     /* 1: node.codec = auto */
  uint8_t codec_sealed;        /* 1: records that are not sealed are refused */
  uint8_t codec_reserved;      /* zero */
  /* Records refused on arrival: lossy, not sealed, or sealed with an unknown key. Stays at UINT32_MAX. */
  uint32_t codec_refused;
  uint64_t codec_plain_bytes;  /* payload bytes of records that came coded or sealed, after decoding, */
  uint64_t codec_stored_bytes; /* and before decoding */
} kvbm_node_row_t;

/* Fills rows for the connected nodes and the addresses without one. out_rows is [capacity]; *out_n is the number of
 * rows, which may be more, and 0 for a manager that is not a node. out_rows NULL with capacity 0 only counts.
 * Thread: any. Blocks: for one turn of the links' thread. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_nodes(kvbm_manager_t *manager, kvbm_node_row_t *out_rows, size_t capacity,
                                          size_t *out_n);
/* Writes the address on which this manager listens, "host:port" with its actual port; empty if it does not listen. Use
 * it after option node.listen with port 0. Two-phase like kvbm_context_config. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_node_address(kvbm_manager_t *manager, char *out, size_t capacity,
                                                 size_t *out_needed);

/* Waits until every address of node.peers is a connected node that has reported its contents. The next lookup with
 * ask_nodes_ns then asks all of them; a lookup before that finds nothing on nodes that are still connecting. Returns at
 * once for a manager without node.peers: it does not wait for nodes that dial this one. After an error `err` names each
 * missing address with the reason; nodes that are connected by then are used. Errors:
 *   KVBM_ERR_DEADLINE     timeout_ns has passed (KVBM_FOREVER: no limit; 0: one look, without waiting)
 *   KVBM_ERR_PERMISSION   all missing addresses refuse this node, or it refuses them; returned as soon as that is known
 * Thread: any. Blocks: up to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_wait_for_peers(kvbm_manager_t *manager, uint64_t timeout_ns, kvbm_error_t *err);

/* Options of kvbm_manager_locate. Arrays are borrowed for the call. */
typedef struct kvbm_locate_options {
  uint32_t struct_size;
  uint32_t reserved;         /* zero */
  const kvbm_part_t *parts;  /* [n_parts], at most 32, as in kvbm_lookup_options_t. NULL = component 0, whole model */
  size_t n_parts;
  /* [n_requests] number of keys of each request, in the order of `keys`. The sum is n_keys; a request may have none.
   * NULL = one request */
  const size_t *request_keys;
  size_t n_requests;     /* at most 2^28; 0 exactly if request_keys is NULL */
  uint64_t ask_nodes_ns; /* ask the connected nodes, and wait at most so long for answers. 0 = own tiers only */
} kvbm_locate_options_t;

/* The prefix of one request on one node, by tier (frozen, 48 bytes). `n_prefix` leading keys are in this tier or in
 * faster ones, and fewer in the faster ones alone. So a node has a row for each tier that makes the prefix longer, and
 * none if it lacks the first key. */
typedef struct kvbm_location {
  uint8_t node[16];   /* as in kvbm_node_row_t; zero = this manager */
  uint32_t request;   /* index of the request */
  uint32_t tier;      /* the node's own tier number, 0 = its host memory */
  uint64_t n_prefix;  /* leading keys in this tier or faster ones */
  uint64_t n_in_tier; /* keys of the prefix with a part in this tier itself */
  uint64_t bytes;     /* payload bytes of the prefix */
} kvbm_location_t;

/* Fills defaults: one request, component 0 of the whole model, own tiers only. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_locate_options_init(kvbm_locate_options_t *out_options, uint32_t struct_size);
/* Returns the length and the tiers of the prefix of each request on each node, for routers. keys is [n_keys]: the keys
 * of all requests, one request after the other. out_rows is [capacity], ordered by request and then by the longest
 * prefix first; among equal ones this manager, then the faster tier. *out_n is the number of rows, which may be more
 * than `capacity`. Holds no block and counts as no use, so a block may be gone later. KVBM_PARTIAL: a node did not
 * answer for all keys in time; unanswered keys count as absent. Errors: KVBM_ERR_INVALID (also if request_keys do not
 * add up to n_keys), KVBM_ERR_FOREIGN, KVBM_ERR_UNSUPPORTED. Thread: any. Blocks: up to ask_nodes_ns. Cost: one message
 * each way per 2,048 keys and connected node. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_locate(kvbm_manager_t *manager, kvbm_namespace_t *ns, const kvbm_key_t *keys,
                                           size_t n_keys, const kvbm_locate_options_t *options,
                                           kvbm_location_t *out_rows, size_t capacity, size_t *out_n);

/* ------------------------------------------------------------------ sharing */

/* With option share=on, or KVBM_MANAGER_SHARE, several processes of one host and user open one tier set. The first
 * process is its owner, the others are clients. Each has a host tier of its own. A set has at most one disk, and no
 * plug-in tiers. All processes give equal sizes of blocks and of the disk; else KVBM_ERR_CONFIG. Without a disk, option
 * share_directory says where the processes meet. The calls are the same, with these differences:
 *
 * store      A client's kvbm_cache_store completes when the owner has the blocks. From then on every process of the set
 *            finds them. If there is no owner, the item is KVBM_ERR_OWNER_GONE: this process keeps the block and passes
 *            it to the next owner. kvbm_manager_register does not wait for the owner.
 * flush      KVBM_OK: every block that this process stored before is on the disk, which was asked for each of them by
 *            name. It survives the death of any process of the set. Without a disk: every block is in the owner's
 *            memory. With an admission other than KVBM_ADMIT_ALL a block may be in the owner's memory instead.
 *            KVBM_PARTIAL: some blocks are missing. The owner had no space for them, its disk rejected or evicted them,
 *            or an owner died that had them only in memory. The next flush offers the blocks again of which this
 *            process still has a copy, and its result covers them. Every flush in progress reports the others, else the
 *            next one. Without an owner a flush waits for the next one. KVBM_ERR_OWNER_GONE: there was none for 5 s.
 *            KVBM_ERR_TIER_DISABLED: the disk is out of service.
 * lookup     A client asks the owner for blocks that it does not have, and waits at most option share_ask; so does
 *            prefetch. After a timeout it does not wait for the owner again until the owner answers. The owner's blocks
 *            count as the tier after the disk. The match does not hold them: a load may return KVBM_ERR_MISS.
 * drop, reset, invalidate
 *            Reach the owner before they return, or fail after 2 s. Other clients are notified of invalidate. They keep
 *            blocks that were dropped or reset in their own memory until they evict them.
 * pin, hint, holds, events, scan, quota
 *            Apply to this process's host tier and, on the owner, to its disk.
 *
 * If the owner dies, even by SIGKILL, calls that wait for it return KVBM_ERR_OWNER_GONE or find nothing. One of the
 * clients then opens the disk and becomes the owner, as soon as it detects that. All blocks that a flush reported as on
 * the disk are found again. A forked child is not part of the set; it creates a context of its own. */
enum { KVBM_SHARE_OFF = 0, KVBM_SHARE_OWNER = 1, KVBM_SHARE_CLIENT = 2, KVBM_SHARE_NO_OWNER = 3 };

/* Role and counters of this process in a shared tier set. All zero if the tier set is not shared. */
typedef struct kvbm_share {
  uint32_t struct_size;
  uint32_t role;           /* KVBM_SHARE_*; NO_OWNER: a client that waits for the next owner */
  uint64_t owner_pid;      /* process id of the owner; 0 = none is known */
  uint64_t clients;        /* number of clients, on the owner; else 0 */
  uint64_t takeovers;      /* 1: this process became the owner after another owner */
  uint64_t owners_lost;    /* links to an owner that have ended */
  uint64_t silent_lookups; /* lookups that continued without the owner's answer */
} kvbm_share_t;

/* Returns the role of this process in a shared tier set; set struct_size first. Errors: KVBM_ERR_INVALID for NULL.
 * Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_share(kvbm_manager_t *manager, kvbm_share_t *out_share);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_NODE_H */

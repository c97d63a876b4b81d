/* kvbm_node.h - managers that are nodes of a pool, and processes of one host that share a tier set.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Moving a request from node to node is in kvbm_session.h. The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_NODE_H
#define KVBM_NODE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- nodes */

/* A manager whose configuration has node.listen or node.peers is a node: other nodes of its pool read what it has, and
 * theirs is its last tier (kvbm_manager_stats counts it as such). What they have is found by asking
 * (kvbm_lookup_options_t.ask_nodes_ns), read by kvbm_cache_load and kvbm_manager_prefetch, verified as everything is,
 * and kvbm_manager_offload to that tier offers blocks to the node whose key they are. Without
 * a key (node.key_file, a file that `kvbm key new` makes) nodes are processes of one user on one machine, which both sides
 * of a connection ask the kernel: other users of it, other network namespaces, containers in user namespaces of their own,
 * other machines and the transport UCX need one. Resets and drops are of this manager alone: other nodes keep what they
 * have.
 *
 * Links over TCP between nodes with a key are authenticated (node.protect): bytes that come are those which a holder of
 * the key sent, also with an attacker on the path. What was changed, repeated, left out or moved there ends the link, and what
 * was on its way over it is KVBM_ERR_DAMAGED or KVBM_ERR_OWNER_GONE, never a wrong block. node.protect = encrypt hides
 * contents as well; off is refused beyond this machine unless node.trusted_network says that no other party reaches that
 * network, and so is UCX, whose cards read and write by themselves, unless records are sealed (seal.key_file). Memory that
 * nodes of one machine read in place crosses no network. */

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

/* Waits until every address of node.peers is a connected node whose contents are known, so that the next lookup that asks
 * nodes (ask_nodes_ns) asks all of them; without this, one that comes while they are being connected finds nothing there. At
 * once for a manager without node.peers: nodes that will dial this one are not waited for. Errors: KVBM_ERR_INVALID;
 * KVBM_ERR_DEADLINE when timeout_ns (KVBM_FOREVER: none) has passed, and KVBM_ERR_PERMISSION as soon as the addresses that
 * are left refuse this node, or it them: `err` names each and says why. Nodes that are connected by then are used all the
 * same. Thread: any. Blocks: up to timeout_ns. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_wait_for_peers(kvbm_manager_t *manager, uint64_t timeout_ns, kvbm_error_t *err);

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

/* ------------------------------------------------------------------ sharing */

/* With the option share=on, or KVBM_MANAGER_SHARE, several processes of one host and user open one tier set. The first
 * is its owner, the others are clients; each has a host tier of its own. The calls are the same for all, and mean this:
 *
 * store      A client's kvbm_cache_store is over when the owner has the blocks: who looks them up from then on, in any
 *            process of the set, finds them. An item is KVBM_ERR_OWNER_GONE if there was no owner to give it to: this
 *            process keeps it, and gives it to the next owner. kvbm_manager_register does not wait for the owner.
 * flush      KVBM_OK: everything that this process stored before is on the disk, which was asked for each block by
 *            its name, and survives the death of any process of the set. Without a disk: in the owner's memory. (What a
 *            disk with another admission than KVBM_ADMIT_ALL does not get may be in the owner's memory, too.)
 *            KVBM_PARTIAL: but for blocks that are not there: the owner had no room for them, its disk did not take
 *            them or has let them go since, or an owner died that had them in memory alone. Those of which this
 *            process still has a copy are offered again by the next flush, which answers for them; of others every
 *            flush that was under way then tells, or the next. While there is no owner it waits for the next one;
 *            KVBM_ERR_OWNER_GONE after 5 s. KVBM_ERR_TIER_DISABLED: the disk is out of service.
 * lookup     A client asks the owner for what it does not have, and waits share_ask at most; so does prefetch. An
 *            owner that did not answer in time is not waited for again until it does. What the owner has counts as the
 *            tier after the disk's. It is not held by the match: a load of it can be KVBM_ERR_MISS.
 * drop, reset, invalidate
 *            Reach the owner before they return, or fail after 2 s. Other clients hear of invalidate, and keep blocks
 *            that were dropped or reset in their own memory until they evict them.
 * pin, hint, holds, events, scan, quota
 *            Are of this process's host tier and, for the owner, of its disk.
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

#ifdef __cplusplus
}
#endif

#endif /* KVBM_NODE_H */

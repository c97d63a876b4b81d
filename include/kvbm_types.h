/* kvbm_types.h - types that all headers of libkvbm use: statuses, handles, keys, parts of a model.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_TYPES_H
#define KVBM_TYPES_H

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
/* Marks an output or input that the receiver then owns. Expands to nothing. */
#define KVBM_OWN

/* ------------------------------------------------------------------- status */

typedef int32_t kvbm_status_t;

enum {
  KVBM_OK = 0,      /* done, or accepted */
  KVBM_PARTIAL = 1, /* some items of the batch failed; read item_status */
  /* -100 .. -199: the call is wrong; fix the caller. */
  KVBM_ERR_INVALID = -100, /* an argument is NULL, out of range or inconsistent */
  KVBM_ERR_STALE = -101,   /* the handle was released or consumed before */
  KVBM_ERR_FOREIGN = -102, /* the handle belongs to another manager, or never was one */
  KVBM_ERR_STATE = -103,   /* the object is not in the state that the call needs */
  KVBM_ERR_FORKED = -104,  /* called in a forked child; create a context there */
  KVBM_ERR_CONFIG = -105,  /* bad configuration; the message names key, value and origin */
  KVBM_ERR_IN_USE = -106,  /* another owner has the directory or file; stop it or choose another */
  KVBM_ERR_EXISTS = -107,  /* already there; nothing was changed */
  /* -200 .. -299: no space; release, evict, wait or raise a limit. */
  KVBM_ERR_NO_ROOM = -200,   /* no free slot and nothing evictable, or an output buffer that is too small */
  KVBM_ERR_QUOTA = -201,     /* the namespace has used its quota */
  KVBM_ERR_AGAIN = -202,     /* the queue is full, or it is too early; poll completions and retry */
  KVBM_ERR_NO_MEMORY = -203, /* the system or the device refused memory */
  KVBM_ERR_DISK_FULL = -204, /* the file system is full */
  KVBM_ERR_LIMIT = -205,     /* a fixed maximum count is reached; the call that returns it documents the limit */
  /* -300 .. -399: time, peers and owners; retry, or use another node. */
  KVBM_ERR_DEADLINE = -300,   /* the deadline passed before it was done */
  KVBM_ERR_CANCELLED = -301,  /* cancelled, by this side or the other */
  KVBM_ERR_OWNER_GONE = -302, /* the owner of a shared tier set, or the node that had the blocks, is gone */
  KVBM_ERR_CLOSED = -303,     /* the object is being released */
  /* -400 .. -499: not here or not trustworthy; treat as a miss and compute. */
  KVBM_ERR_MISS = -400,     /* the block is not here */
  KVBM_ERR_DAMAGED = -401,  /* stored bytes failed verification; they are not used again */
  KVBM_ERR_MISMATCH = -402, /* the stored block does not fit the request: position, shape, model */
  /* -500 .. -599: not available here. */
  KVBM_ERR_UNSUPPORTED = -500, /* this build, machine or header version lacks it; the message says what */
  KVBM_ERR_VERSION = -501,     /* written by a newer format or library; upgrade, or use another directory */
  KVBM_ERR_PERMISSION = -502,  /* not permitted: owner, mode, limit, credentials, or a lossy block not allowed */
  /* -600 .. -699: a fault of the library or the system. */
  KVBM_ERR_INTERNAL = -600,     /* a fault inside kvbm; report it with the message */
  KVBM_ERR_IO = -601,           /* the system reported an input/output error */
  KVBM_ERR_TIER_DISABLED = -602 /* a tier or device was taken out of service after a fault */
};

/* Returns the symbolic name of a status, e.g. "KVBM_ERR_NO_ROOM". Static; never NULL. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API const char *kvbm_status_name(kvbm_status_t status);
/* Returns one sentence with the meaning of a status and the remedy. Static; never NULL. Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API const char *kvbm_status_text(kvbm_status_t status);

/* Details of a failure. Caller-owned, reusable, nothing to free. Every call that takes one accepts NULL. */
typedef struct kvbm_error {
  kvbm_status_t status;
  uint32_t reserved;
  char message[504]; /* the refused argument, the reason and the remedy; zero-terminated, cut if longer */
} kvbm_error_t;

/* Copies the details of this thread's last call without a kvbm_error_t: the refused argument and the reason. A call is
 * without one if it has no such parameter, or if the parameter was NULL. out_error->status is the status of that call
 * if it failed and has details; else 0, with an empty message. Each such call overwrites the details. Calls with a
 * kvbm_error_t and functions that return no status leave them as they are. Failures of completions and items are not
 * here. Errors: KVBM_ERR_INVALID for NULL. Thread: any; each thread has its own details. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_error_last(kvbm_error_t *out_error);

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

/* A hold on a block: hold index, generation and manager, packed into one number. Zero is never valid. */
typedef uint64_t kvbm_block_t;
/* A pin: keeps blocks resident for an owner until a deadline. Zero is never valid. */
typedef uint64_t kvbm_pin_t;

/* The name of a block's content in its namespace (frozen, 16 bytes). */
typedef struct kvbm_key {
  uint8_t bytes[16];
} kvbm_key_t;

/* No deadline. */
#define KVBM_FOREVER UINT64_MAX

/* Entry of a list of block ids: no block. */
#define KVBM_NO_BLOCK UINT32_MAX

/* Hints about blocks, for the policies (docs/concepts.md, "Hint").
 *   ONE_SHOT    not used again: evicted before all others
 *   CONTINUES   the conversation goes on: spared
 *   KEEP        evicted only if no other block of its quota group can be */
enum { KVBM_PRIORITY_NORMAL = 0, KVBM_PRIORITY_ONE_SHOT = 1, KVBM_PRIORITY_CONTINUES = 2, KVBM_PRIORITY_KEEP = 3 };

/* --------------------------------------------------------- parts of a model */

enum {
  KVBM_ELEMENT_BYTES = 0, /* opaque */
  KVBM_ELEMENT_BF16 = 1,
  KVBM_ELEMENT_FP16 = 2,
  KVBM_ELEMENT_FP32 = 3,
  KVBM_ELEMENT_FP8_E4M3 = 4,
  KVBM_ELEMENT_FP8_E5M2 = 5,
  KVBM_ELEMENT_INT8 = 6
};

/* The part of a component that a record holds (frozen, 16 bytes). All zero = all layers and heads. */
typedef struct kvbm_shard {
  uint16_t first_layer;
  uint16_t layers;
  uint16_t first_head;
  uint16_t heads;
  uint16_t replicated; /* 1: every rank of the group holds the same bytes (MLA latents) */
  uint16_t reserved[3]; /* zero */
} kvbm_shard_t;

/* The records of a namespace that a call means: those of one component and shard. NULL = component 0, whole model. */
typedef struct kvbm_part {
  uint32_t component; /* index into the geometry's components */
  uint32_t reserved;  /* zero */
  kvbm_shard_t shard;
} kvbm_part_t;

#ifdef __cplusplus
}
#endif

#endif /* KVBM_TYPES_H */

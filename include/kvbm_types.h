/* kvbm_types.h - what the headers of libkvbm have in common: statuses, handles, keys, parts of a model.
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
/* Marks an output or input whose ownership passes to the receiver. Expands to nothing. */
#define KVBM_OWN

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
  KVBM_ERR_LIMIT = -205, /* of a count, whatever room there is: the call that says it documents the limit */
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

/* Particulars of the last call on this thread that was not given a kvbm_error_t, because it takes none or was given NULL: which
 * argument was refused and why. Its status is that call's if that failed and there is more to say than the status; else 0,
 * with an empty message. Such a call forgets what the one before it said, and calls that are given a kvbm_error_t change
 * nothing. Functions that return no status do not count. What a completion or an item reports is not here. Errors:
 * KVBM_ERR_INVALID for NULL. Thread: any; each has particulars of its own. Blocks: no. Since 0.1. */
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

/* In a list of block ids: none. */
#define KVBM_NO_BLOCK UINT32_MAX

/* What is known of blocks, for the policies. */
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

/* Which part of a component a record holds (frozen, 16 bytes). All zero = all layers and heads. */
typedef struct kvbm_shard {
  uint16_t first_layer;
  uint16_t layers;
  uint16_t first_head;
  uint16_t heads;
  uint16_t replicated; /* 1: every rank of the group holds the same (MLA latents) */
  uint16_t reserved[3];
} kvbm_shard_t;

/* What part of the namespace's records a call means. NULL = component 0 and the whole model. */
typedef struct kvbm_part {
  uint32_t component; /* index into the geometry's components */
  uint32_t reserved;
  kvbm_shard_t shard;
} kvbm_part_t;

#ifdef __cplusplus
}
#endif

#endif /* KVBM_TYPES_H */

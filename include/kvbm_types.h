/* kvbm_types.h - types that all headers of libkvbm use: statuses, handles, keys, parts of a model.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * kvbm.h is the manual and includes this. Its section CONVENTIONS defines the lines Thread, Blocks, Errors and Since.
 */
#ifndef KVBM_TYPES_H
#define KVBM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks an exported function. The library exports these functions and nothing else. Empty for SWIG and on Windows. */
#if defined(_WIN32)
#define KVBM_API
#elif defined(SWIG)
#define KVBM_API
#else
#define KVBM_API __attribute__((visibility("default")))
#endif
/* Marks an output that the caller then owns: end it with the release function of its type. Expands to nothing. */
#define KVBM_OWN

/* ------------------------------------------------------------------- status */

/* Result of a call, an operation or one item of a batch: 0 done, above 0 partly done, below 0 failed. Test failures
 * with `status < 0`. The hundreds name the remedy, and later versions add values to these bands. So act on the band if
 * you do not know the value. No value ever gets another meaning. */
typedef int32_t kvbm_status_t;

enum {
  /* Done. From a call with a queue: accepted, and the completion has the result. */
  KVBM_OK = 0,
  /* Some items of the batch were done and others not. item_status has the status of each. The caller computes the
   * missing blocks, or calls again for them. */
  KVBM_PARTIAL = 1,
  /* -100 .. -199: the call is wrong; fix the caller. */
  /* An argument is NULL, out of range or inconsistent with another. The message names it. */
  KVBM_ERR_INVALID = -100,
  /* The hold, pin, operation, offer or session has ended: released, consumed, expired or completed. Use a new one. */
  KVBM_ERR_STALE = -101,
  /* The handle belongs to another manager, or never was one. Two managers share no objects. */
  KVBM_ERR_FOREIGN = -102,
  /* The object is not in the state that the call needs, such as a Complete block where a Partial one is needed. */
  KVBM_ERR_STATE = -103,
  /* Called in a forked child with an object of its parent. Create a context in the child. */
  KVBM_ERR_FORKED = -104,
  /* Bad configuration. The message names key, value and origin: file and line, environment variable, or options. */
  KVBM_ERR_CONFIG = -105,
  /* Another process or manager has the directory or file. Stop it, choose another path, or share it (kvbm_node.h). */
  KVBM_ERR_IN_USE = -106,
  /* Already there, and nothing was changed: foreign files in a tier's directory, a key, or a request id. */
  KVBM_ERR_EXISTS = -107,
  /* -200 .. -299: no space; release, evict, wait or raise a limit. */
  /* No slot is free and no block may be evicted, or an output buffer is too small. Release holds, matches and pins,
   * raise host.capacity, or give a larger buffer. */
  KVBM_ERR_NO_ROOM = -200,
  /* The namespace has used its quota. Raise it, or drop some of its blocks. */
  KVBM_ERR_QUOTA = -201,
  /* The queue is full, or the offer or session has not ended yet. Poll completions, or wait, and call again. */
  KVBM_ERR_AGAIN = -202,
  /* The system or the device refused memory. Objects stay usable. */
  KVBM_ERR_NO_MEMORY = -203,
  /* The file system is full. Free space, or lower the tier's capacity. */
  KVBM_ERR_DISK_FULL = -204,
  /* A fixed maximum count is reached. The call that returns it documents the limit and the remedy. */
  KVBM_ERR_LIMIT = -205,
  /* -300 .. -399: time, peers and owners; retry, or use another node. */
  /* The deadline passed before it was done. Compute the blocks, or call again with more time. */
  KVBM_ERR_DEADLINE = -300,
  /* Cancelled, by this side or the other. */
  KVBM_ERR_CANCELLED = -301,
  /* The owner of a shared tier set, or the node that had the blocks, is gone. Retry, or use another node. */
  KVBM_ERR_OWNER_GONE = -302,
  /* The object is being released. Make no more calls with it. */
  KVBM_ERR_CLOSED = -303,
  /* -400 .. -499: not here or not trustworthy; treat as a miss and compute. */
  /* The block is not here, or not any more: a lookup may have found it before it was evicted. */
  KVBM_ERR_MISS = -400,
  /* Stored bytes failed verification. The library does not use them again. */
  KVBM_ERR_DAMAGED = -401,
  /* The stored block does not fit the request: another position, shape or model. */
  KVBM_ERR_MISMATCH = -402,
  /* -500 .. -599: not available here. */
  /* This build, machine or library version lacks it. The message says what is missing. */
  KVBM_ERR_UNSUPPORTED = -500,
  /* Written by a newer format or library. Upgrade, or use another directory. */
  KVBM_ERR_VERSION = -501,
  /* Not permitted: owner or mode of a file, a system limit, credentials, or a lossy block that was not allowed. */
  KVBM_ERR_PERMISSION = -502,
  /* -600 .. -699: a fault of the library or the system. */
  /* A fault inside kvbm. Report it with the message. */
  KVBM_ERR_INTERNAL = -600,
  /* The system or a store reported an input/output error. The message has its text. */
  KVBM_ERR_IO = -601,
  /* A tier or device was taken out of service after a fault. Its blocks are misses, and the other tiers go on. */
  KVBM_ERR_TIER_DISABLED = -602
};

/* Returns the symbolic name of a status, e.g. "KVBM_ERR_NO_ROOM"; "KVBM_ERR_UNKNOWN" for a number that is no status of
 * this library. Static; never NULL. Thread: any, also in a forked child. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_status_name(kvbm_status_t status);
/* Returns the meaning of a status and the remedy, in English, for logs. The text may change between versions. Static;
 * never NULL, also for unknown numbers. Thread: any, also in a forked child. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_status_text(kvbm_status_t status);

/* Details of a failure (frozen, 512 bytes). Caller-owned, reusable, needs no initialisation, nothing to free. Every
 * call that takes one accepts NULL, and writes it on success too. One thread at a time may use one. */
typedef struct kvbm_error {
  /* The status that the call returned; KVBM_OK after success. */
  kvbm_status_t status;
  /* Zero. */
  uint32_t reserved;
  /* The refused argument, the reason and the remedy, in English. Zero-terminated; cut if longer, maybe inside a UTF-8
   * character. May have paths, addresses and names from the call. Of no use after success. */
  char message[504];
} kvbm_error_t;

/* Copies the details of this thread's last call without a kvbm_error_t: the refused argument and the reason. A call is
 * without one if it has no such parameter, or if the parameter was NULL. out_error->status is the status of that call
 * if it failed and has details; else 0, with an empty message. Each such call overwrites the details. Calls with a
 * kvbm_error_t and functions that return no status leave them as they are. Failures of completions and items are not
 * here. Errors: KVBM_ERR_INVALID for NULL. Thread: any; each thread has its own details. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_error_last(kvbm_error_t *out_error);

/* ------------------------------------------------------------------ handles */

/* Each object below is opaque and has one release function. Release every reference once, and do not use it afterwards:
 * a released pointer is not detected. Pointers are valid in the process that got them. */

/* Configuration, worker threads and the I/O engine. A process may have several; one is enough. */
typedef struct kvbm_context kvbm_context_t;
/* Completions of operations and events of blocks. Belongs to a context; serves any number of its managers. */
typedef struct kvbm_queue kvbm_queue_t;
/* Facts of a model: components, layers, heads, and tokens of a block. Immutable; needs no context. */
typedef struct kvbm_geometry kvbm_geometry_t;
/* One set of tiers. Belongs to a context. */
typedef struct kvbm_manager kvbm_manager_t;
/* The scope of keys. Belongs to a manager. */
typedef struct kvbm_namespace kvbm_namespace_t;
/* An engine's own paged cache, as described by the engine. Belongs to a namespace of a manager. */
typedef struct kvbm_cache kvbm_cache_t;
/* The result of a lookup: holds the blocks that it found in the host. Belongs to a manager. */
typedef struct kvbm_match kvbm_match_t;
/* The prefill side of moving a request. Belongs to a cache. */
typedef struct kvbm_offer kvbm_offer_t;
/* The decode side of moving a request. Belongs to a cache. */
typedef struct kvbm_session kvbm_session_t;

/* A hold on a block: hold index, generation and manager, packed into one number. A value is never reused, so an old one
 * is found out (KVBM_ERR_STALE). Zero is never valid (KVBM_ERR_INVALID). The number has one of 255 tags for the
 * manager: if a process creates more managers, a hold of another one may pass for its own. */
typedef uint64_t kvbm_block_t;
/* A pin: keeps blocks resident for an owner until a deadline. Zero is never valid. A manager refuses a pin of
 * another one (KVBM_ERR_STALE). */
typedef uint64_t kvbm_pin_t;

/* The name of a block's content in its namespace (frozen, 16 bytes). Made by kvbm_key_chain, kvbm_key_content or
 * kvbm_key_from_hashes. Equal on every machine for equal inputs, so it may be sent and stored. */
typedef struct kvbm_key {
  uint8_t bytes[16];
} kvbm_key_t;

/* No deadline. Other timeouts are nanoseconds from the call, on the monotonic clock. A timeout of 0 has passed at once:
 * waiting calls return what is there, and operations do not begin. */
#define KVBM_FOREVER UINT64_MAX

/* Entry of a list of block ids: no block. */
#define KVBM_NO_BLOCK UINT32_MAX

/* Hints about blocks, for the policies (docs/concepts.md, "Hint"). They order evictions and promise nothing: only holds
 * and pins keep a block.
 *   NORMAL      no hint
 *   ONE_SHOT    not used again: evicted before all others
 *   CONTINUES   the conversation goes on: spared
 *   KEEP        evicted only if no other block of its quota group can be */
enum { KVBM_PRIORITY_NORMAL = 0, KVBM_PRIORITY_ONE_SHOT = 1, KVBM_PRIORITY_CONTINUES = 2, KVBM_PRIORITY_KEEP = 3 };

/* --------------------------------------------------------- parts of a model */

/* Type of the numbers in a component. Sizes count, and codecs use the form; loads and stores never convert. */
enum {
  KVBM_ELEMENT_BYTES = 0,    /* 1 byte; opaque */
  KVBM_ELEMENT_BF16 = 1,     /* 2 bytes; the upper half of an fp32 */
  KVBM_ELEMENT_FP16 = 2,     /* 2 bytes; IEEE 754 binary16 */
  KVBM_ELEMENT_FP32 = 3,     /* 4 bytes; IEEE 754 binary32 */
  KVBM_ELEMENT_FP8_E4M3 = 4, /* 1 byte; 4 bits of exponent, 3 of mantissa */
  KVBM_ELEMENT_FP8_E5M2 = 5, /* 1 byte; 5 bits of exponent, 2 of mantissa */
  KVBM_ELEMENT_INT8 = 6      /* 1 byte */
};

/* The part of a component that a record holds (frozen, 16 bytes). All zero = all layers and heads. A shard is part of a
 * record's name, so equal keys with different shards name different records. Without a geometry that is its only use.
 *
 * Rank r of n tensor-parallel ranks, for a component with h heads (only these shards are re-sliced between sizes):
 *   n divides h          heads = h / n, first_head = r * heads, replicated = 0
 *   n = h * m, m > 1     heads = 1, first_head = r / m, replicated = 1
 *   latent or state      heads = 1, first_head = 0, replicated = 1, as all zero gives too
 * A pipeline stage sets first_layer and layers. */
typedef struct kvbm_shard {
  /* First layer, counted over the layers that have this component, from 0. */
  uint16_t first_layer;
  /* Number of layers; at least 1 unless the whole shard is zero. first_layer + layers is at most the component's. */
  uint16_t layers;
  /* First KV head of the model, from 0. */
  uint16_t first_head;
  /* Number of heads; at least 1 unless the whole shard is zero. first_head + heads is at most the component's. */
  uint16_t heads;
  /* 1: several ranks hold the same bytes (MLA latents, states, heads that are copied to more ranks). Only 0 or 1. */
  uint16_t replicated;
  uint16_t reserved[3]; /* zero */
} kvbm_shard_t;

/* The records of a namespace that a call means: those of one component and shard (frozen, 24 bytes). NULL = component
 * 0, whole model. A component or shard that the geometry does not have is KVBM_ERR_INVALID. */
typedef struct kvbm_part {
  uint32_t component; /* index into the geometry's components; without a geometry any number below 65,535 */
  uint32_t reserved;  /* zero */
  kvbm_shard_t shard;
} kvbm_part_t;

#ifdef __cplusplus
}
#endif

#endif /* KVBM_TYPES_H */

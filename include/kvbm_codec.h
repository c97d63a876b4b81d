/* kvbm_codec.h - encodes and decodes KV in the caller's own buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_CODEC_H
#define KVBM_CODEC_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------- codecs */

/* The codecs of tiers and links, for buffers of the caller and without a manager. A coded buffer describes itself
 * (docs/formats.md, "coded stream"). It consists of leaves of at most 64 KiB. Each leaf is coded independently and has
 * the hash of its decoded bytes. So decoding gives the right bytes or KVBM_ERR_DAMAGED, never wrong KV, whatever
 * happened to the buffer. A leaf that coding would not shrink is stored unchanged. The output is never larger than
 * kvbm_codec_room(). Hashes detect faults, not forgery: against forgery use sealing (option seal.key_file).
 *
 * Calls need no context and keep no memory of the caller. They are pure: the same input, mode and options give the same
 * bytes on every processor. KVBM_CODEC_ZSTD, and leaves full of zeros, also need the same version of zstd. For blocks
 * of an attached cache, also on a device, use kvbm_cache_encode (kvbm_cache.h). A thread that encodes or decodes keeps
 * up to 1 MiB of work memory until it ends. Buffers may have any alignment; 64 bytes is fastest. Input and output must
 * not overlap. docs/codec.md has ratios and speeds of every mode, with the data that they were measured on.
 *
 * Example: encodes a page of [token][head][dim] in bf16, and decodes it again. Returns 0 if a call was refused.
 *
 *     extern void *allocate(uint64_t bytes);
 *
 *     static size_t pack(const uint16_t *page, size_t page_bytes, uint32_t heads, uint32_t dim, void **out_coded) {
 *       kvbm_codec_options_t form;
 *       kvbm_error_t err;
 *       uint64_t room = 0;
 *       size_t coded_bytes = 0;
 *       kvbm_codec_options_init(&form, sizeof form);
 *       form.element = KVBM_ELEMENT_BF16, form.row_elements = heads * dim;
 *       if (kvbm_codec_room(page_bytes, &form, &room, &err) != KVBM_OK) return 0;
 *       *out_coded = allocate(room);
 *       if (kvbm_codec_encode(page, page_bytes, KVBM_CODEC_DEFAULT, &form, *out_coded, (size_t)room, &coded_bytes,
 *                             &err) != KVBM_OK) return 0; // err.message has the reason
 *       return coded_bytes;
 *     }
 *
 *     static int unpack(const void *coded, size_t coded_bytes, uint16_t *page, size_t page_bytes) {
 *       kvbm_codec_info_t info;
 *       size_t n = 0;
 *       info.struct_size = sizeof info;
 *       if (kvbm_codec_inspect(coded, coded_bytes, &info, NULL) != KVBM_OK || info.raw_bytes != page_bytes) return 0;
 *       return kvbm_codec_decode(coded, coded_bytes, 0, page, page_bytes, &n, NULL) == KVBM_OK;
 *     } */

/* Coding modes. Below 16: lossless, every bit is restored, NaNs and negative zeros included. 16 and above: lossy; the
 * error is in kvbm_codec_info_t, and a reader must allow it. A mode that does not fit the element falls back to one
 * that fits and loses less: zstd or none for a lossless mode, DEFAULT for a lossy one. */
enum {
  KVBM_CODEC_OFF = 0,      /* hashed, not coded */
  KVBM_CODEC_FAST = 1,     /* decodes at about memory speed */
  KVBM_CODEC_DEFAULT = 2,  /* slightly denser and slower */
  KVBM_CODEC_MAX = 3,      /* densest lossless mode */
  KVBM_CODEC_ZSTD = 4,     /* for any bytes: byte planes, then zstd level 1; the reference */
  /* Lossy modes are for bf16, fp16 and fp32. A leaf with an infinity or a NaN is coded without loss. */
  KVBM_CODEC_FP8_E4M3 = 16, /* 8 bits a number, with scales */
  KVBM_CODEC_FP8_E5M2 = 17, /* 8 bits a number, with scales */
  KVBM_CODEC_INT8 = 18,     /* whole numbers of 8 bits, with a scale for each channel or row: half the size of bf16 */
  KVBM_CODEC_INT6 = 19,     /* 6 bits: 3/8 of the size of bf16 */
  KVBM_CODEC_INT4 = 20,     /* 4 bits: a quarter of the size of bf16 */
  KVBM_CODEC_INT8_CODED = 21, /* as INT8, with an entropy stage: denser, slower */
  KVBM_CODEC_INT6_CODED = 22, /* as INT6, with an entropy stage */
  KVBM_CODEC_INT4_CODED = 23, /* as INT4, with an entropy stage */
  KVBM_CODEC_DELTA = 24 /* anchor tokens, and coded differences of the others, as in the CacheGen paper; the densest */
};

/* Form of the bytes: rows of `row_elements` elements, in which one index is one channel. All zero = opaque bytes, which
 * only zstd can shrink. Values for caches:
 *   [token][head][dim]   row_elements = heads * dim, rows = 0
 *   [head][token][dim]   row_elements = dim, rows = tokens
 * K, V and layers of the same form may follow one another in one buffer; a call for each is as good. Lossy modes store
 * a scale for each channel of a leaf, so leaves of few tokens have more overhead. A wrong form costs density, and never
 * gives wrong bytes. */
typedef struct kvbm_codec_options {
  uint32_t struct_size;
  /* KVBM_ELEMENT_* of the numbers. */
  uint32_t element;
  /* Elements of a row; 0 = unknown. A row of more than 64 KiB counts as unknown. */
  uint32_t row_elements;
  /* Rows until the channels change (the next head); 0 = never. Needs row_elements. */
  uint32_t rows;
} kvbm_codec_options_t;

/* Description of a coded buffer, read from its own table. Set struct_size before the call; it is kept. */
typedef struct kvbm_codec_info {
  uint32_t struct_size;
  uint32_t mode;         /* KVBM_CODEC_* given to encode */
  uint32_t element;      /* as in kvbm_codec_options_t */
  uint32_t row_elements; /* as in kvbm_codec_options_t */
  uint32_t rows;         /* as in kvbm_codec_options_t */
  uint32_t lossy;        /* 1: some leaf is lossy; decoding needs KVBM_CODEC_ALLOW_LOSSY */
  uint32_t leaves;       /* number of leaves */
  uint32_t raw_leaves;   /* leaves stored unchanged */
  uint64_t raw_bytes;    /* size of the decoded bytes */
  uint64_t coded_bytes;  /* size of the coded buffer */
  uint64_t error_ppb;    /* lossy: sum of squared differences / sum of squared values, in 1e-9, rounded up; else 0 */
} kvbm_codec_info_t;

/* Flags of kvbm_codec_decode and kvbm_cache_code_options_t. */
#define KVBM_CODEC_ALLOW_LOSSY 1u /* accept bytes that differ from the encoded ones */

/* Returns the name of a mode as in configuration and the kvbm command: "off", "fast", "default", "int8_coded". Static;
 * NULL for a number that is not a mode. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_mode_name(uint32_t mode);
/* Returns the mode of a name, as kvbm_codec_mode_name writes it; "auto" is a setting of tiers and no mode. Errors:
 * KVBM_ERR_INVALID (no such mode; the message lists them). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_mode_by_name(const char *name, uint32_t *out_mode, kvbm_error_t *err);
/* Returns the implementation that this processor uses, fastest first: "avx512", "bmi2" or "portable". All give the same
 * bytes. Static; never NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_kernel(void);
/* Fills defaults: opaque bytes. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_options_init(kvbm_codec_options_t *out_options, uint32_t struct_size);
/* Returns the buffer size needed to encode `raw_bytes` of a form (NULL = opaque), for any contents and mode. It is
 * about raw_bytes * 1.002 + 4 KiB; coded buffers are mostly much smaller. Errors: KVBM_ERR_INVALID (options; more than
 * 2^40 bytes). *out_bytes is not written then. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_room(uint64_t raw_bytes, const kvbm_codec_options_t *options, uint64_t *out_bytes,
                                       kvbm_error_t *err);
/* Encodes `raw` into `out`, which has `capacity` bytes, at least kvbm_codec_room(). *out_bytes of them are used.
 * `options` NULL = opaque. raw_bytes may be 0. A build without zstd stores leaves unchanged that zstd would code. After
 * an error `out` is undefined, and *out_bytes is not written. Errors:
 *   KVBM_ERR_INVALID        no such mode; options that do not fit, which the message names; more than 2^40 bytes
 *   KVBM_ERR_NO_ROOM        capacity is too small; the message has the needed size
 * Thread: any. Blocks: no; uses one core for the whole buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_encode(const void *raw, size_t raw_bytes, uint32_t mode,
                                         const kvbm_codec_options_t *options, void *out, size_t capacity,
                                         size_t *out_bytes, kvbm_error_t *err);
/* Reads the description of a coded buffer without decoding it; set out_info->struct_size first. Checks sizes, table and
 * their checksum, not the leaves. A coded buffer from an untrusted source may claim up to 2^40 bytes: check raw_bytes
 * before you allocate. Errors: KVBM_ERR_DAMAGED (not a coded buffer, truncated or changed), KVBM_ERR_VERSION (written
 * by a newer library), KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_inspect(const void *coded, size_t coded_bytes, kvbm_codec_info_t *out_info,
                                          kvbm_error_t *err);
/* Decodes a whole coded buffer (exactly coded_bytes) into `out_raw`, which has at least raw_bytes of kvbm_codec_info_t.
 * *out_bytes of them are written and verified. After an error `out_raw` is undefined. Errors:
 *   KVBM_ERR_DAMAGED, KVBM_ERR_VERSION   treat it as a miss
 *   KVBM_ERR_PERMISSION     lossy, and `flags` lacks KVBM_CODEC_ALLOW_LOSSY
 *   KVBM_ERR_NO_ROOM        capacity is too small; the message has the needed size
 *   KVBM_ERR_UNSUPPORTED    zstd, in a build without zstd
 *   KVBM_ERR_INVALID        also unknown flags
 * Thread: any. Blocks: no; uses one core for the whole buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_decode(const void *coded, size_t coded_bytes, uint32_t flags, void *out_raw,
                                         size_t capacity, size_t *out_bytes, kvbm_error_t *err);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_CODEC_H */

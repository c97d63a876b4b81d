/* kvbm_codec.h - codes KV in the caller's own buffers.
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

/* Coding KV by hand, in the caller's own buffers: the same codecs that tiers and links use, without a manager. A coded
 * buffer describes itself (docs/formats.md, "coded stream"): it is cut into leaves of at most 64 KiB, each is coded on
 * its own and has the hash of the bytes that decoding must give. So whatever happened to it, decoding gives the right
 * bytes or KVBM_ERR_DAMAGED, never wrong KV; a leaf that coding would not make smaller is kept as it is, and the whole
 * never grows by more than kvbm_codec_room() says. Hashes find faults, not forgery: who must fear that seals
 * (seal.key_file).
 *
 * Calls need no context, keep nothing of the caller's, and are pure: the same input, mode and options give the same
 * bytes on every processor, where zstd is of one version (KVBM_CODEC_ZSTD, and leaves full of zeros). Blocks of an
 * attached cache, also on a device, are coded where they lie by kvbm_cache_encode (kvbm_cache.h). A thread that codes
 * keeps up to 1 MiB of work memory until it ends. Buffers may have any alignment; 64 bytes is fastest. Input and output
 * must not overlap. */

/* What is asked for. Below 16: lossless, every bit comes back, NaNs and negative zeros included. From 16 on: lossy;
 * what they lose is in kvbm_codec_info_t, and a reader must allow them. A mode that does not fit the element falls
 * back to one that fits and loses less: zstd or nothing for a lossless one, DEFAULT for a lossy one. */
enum {
  KVBM_CODEC_OFF = 0,      /* hashed and not coded */
  KVBM_CODEC_FAST = 1,     /* decodes at about the speed of memory */
  KVBM_CODEC_DEFAULT = 2,  /* a little denser, a little slower */
  KVBM_CODEC_MAX = 3,      /* where space counts */
  KVBM_CODEC_ZSTD = 4,     /* any bytes; the reference */
  KVBM_CODEC_FP8_E4M3 = 16,
  KVBM_CODEC_FP8_E5M2 = 17,
  KVBM_CODEC_INT8 = 18,
  KVBM_CODEC_INT6 = 19,
  KVBM_CODEC_INT4 = 20,
  KVBM_CODEC_INT8_CODED = 21, /* as above and with an entropy stage: denser, slower */
  KVBM_CODEC_INT6_CODED = 22,
  KVBM_CODEC_INT4_CODED = 23,
  KVBM_CODEC_DELTA = 24 /* anchors and coded differences of tokens */
};

/* What the bytes are: rows of `row_elements` elements, in which the same place is the same channel. All zero = opaque
 * bytes, which only zstd can make smaller. How caches are said:
 *   [token][head][dim]   row_elements = heads * dim, rows = 0
 *   [head][token][dim]   row_elements = dim, rows = tokens
* K and V, and layers, may follow one another in one buffer if each has the same form; calling once for each is as
 * good. Lossy modes keep a scale for each channel of a leaf, so a leaf of few tokens costs relatively more. */
typedef struct kvbm_codec_options {
  uint32_t struct_size;
  uint32_t element;      /* KVBM_ELEMENT_* */
  uint32_t row_elements; /* elements of a row; 0 = not known */
  uint32_t rows;         /* rows after which other channels begin (the next head); 0 = never */
} kvbm_codec_options_t;

/* What a coded buffer says of itself. */
typedef struct kvbm_codec_info {
  uint32_t struct_size;
  uint32_t mode;         /* KVBM_CODEC_* that was asked for */
  uint32_t element;      /* as in kvbm_codec_options_t */
  uint32_t row_elements;
  uint32_t rows;
  uint32_t lossy;        /* 1: some leaf is; decoding needs KVBM_CODEC_ALLOW_LOSSY */
  uint32_t leaves;
  uint32_t raw_leaves;   /* of these, kept as they were */
  uint64_t raw_bytes;    /* what decoding gives */
  uint64_t coded_bytes;  /* the whole coded buffer */
  uint64_t error_ppb;    /* lossy: sum of squared differences / sum of squared values, in 1e-9, rounded up; else 0 */
} kvbm_codec_info_t;

/* kvbm_codec_decode flags. */
#define KVBM_CODEC_ALLOW_LOSSY 1u /* take back bytes that are not those that were coded */

/* The name of a mode as configuration and the kvbm command have it: "off", "fast", "default", "int8_coded". Static;
 * NULL for a number that is no mode. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_mode_name(uint32_t mode);
/* The mode of that name. Errors: KVBM_ERR_INVALID (no such mode; the message lists them). Thread: any. Blocks: no.
 * Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_mode_by_name(const char *name, uint32_t *out_mode, kvbm_error_t *err);
/* Which implementation runs on this processor: "avx512", "bmi2", "portable"; all give the same bytes. Static; never
 * NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API const char *kvbm_codec_kernel(void);
/* Fills defaults: opaque bytes. Errors: KVBM_ERR_INVALID for NULL. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_options_init(kvbm_codec_options_t *out_options, uint32_t struct_size);
/* Room that coding `raw_bytes` of that form (NULL = opaque) needs, whatever is in them and whichever mode: about
 * raw_bytes * 1.002 + 4 KiB. What is coded is mostly much smaller. Errors: KVBM_ERR_INVALID (options; more than 2^40
 * bytes). Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_room(uint64_t raw_bytes, const kvbm_codec_options_t *options, uint64_t *out_bytes,
                                       kvbm_error_t *err);
/* Codes `raw` into `out`, which has `capacity` bytes, kvbm_codec_room() at least; *out_bytes of them are used.
 * `options` NULL = opaque. Errors: KVBM_ERR_INVALID (no such mode, options that do not fit, named), KVBM_ERR_NO_ROOM
 * (capacity; the message says what is needed), KVBM_ERR_NO_MEMORY. After an error `out` is undefined. Thread: any.
 * Blocks: no; one core for the whole buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_encode(const void *raw, size_t raw_bytes, uint32_t mode,
                                         const kvbm_codec_options_t *options, void *out, size_t capacity,
                                         size_t *out_bytes, kvbm_error_t *err);
/* Reads what a coded buffer says of itself, without decoding; set out_info->struct_size first. Sizes, table and their
 * checksum are checked, leaves are not. A coded buffer from elsewhere may claim up to 2^40 bytes: look before room is
 * taken. Errors: KVBM_ERR_DAMAGED (not a coded buffer, cut short or changed), KVBM_ERR_VERSION (of a newer library),
 * KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_inspect(const void *coded, size_t coded_bytes, kvbm_codec_info_t *out_info,
                                          kvbm_error_t *err);
/* Decodes a whole coded buffer (exactly coded_bytes) into `out_raw`, raw_bytes of kvbm_codec_info_t at least;
 * *out_bytes of it are written, and checked. Errors: KVBM_ERR_DAMAGED and KVBM_ERR_VERSION: treat it as a miss;
 * KVBM_ERR_PERMISSION (it is lossy and `flags` lacks KVBM_CODEC_ALLOW_LOSSY); KVBM_ERR_NO_ROOM (the message says what
 * is needed); KVBM_ERR_UNSUPPORTED (zstd, in a build without); KVBM_ERR_INVALID, also for unknown flags;
 * KVBM_ERR_NO_MEMORY. `out_raw` is undefined then. Thread: any. Blocks: no; one core for the buffer. Since 0.1. */
KVBM_API kvbm_status_t kvbm_codec_decode(const void *coded, size_t coded_bytes, uint32_t flags, void *out_raw,
                                         size_t capacity, size_t *out_bytes, kvbm_error_t *err);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_CODEC_H */

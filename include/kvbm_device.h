/* kvbm_device.h - caches in the memory of a GPU: what holds for them, and the devices that they lie on.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * MEMORY OF A GPU
 *   An attached cache may lie in the memory of a CUDA device (kvbm_cache_options_t.memory). The calls are the same.
 *   Records still lie in host memory and below; kernels and copies of the device carry bytes between them and the
 *   tensors and hash them on the device. They run on streams of the library's own in its primary context; stores, loads
 *   and coding by hand on no more of its multiprocessors each than device.multiprocessors says.
 *   order       Without a stream the work begins at once: the caller has synchronised. With one (has_stream) it
 *               begins after what that stream holds at submit. What is enqueued there afterwards does not wait for
 *               the work: it is enqueued after the completion was polled, or made to wait by kvbm_cache_wait_layer.
 *               Stores of one device begin in the order of their calls, and so do loads: one behind a stream that
 *               takes its time holds up those after it.
 *   streams     A CUstream or cudaStream_t of that device, alive. One that is being captured into a graph is refused
 *               (KVBM_ERR_INVALID): order and layers are of one call, which a replay would not make again. Captures of
 *               other streams and kvbm's work do not disturb each other. The library keeps no stream: it may be
 *               destroyed when the call that it was given to has returned.
 *   memory      Tensors stay the caller's. They are freed after kvbm_cache_release, the device's context after the
 *               manager.
 *   ends        What was given to the device cannot be taken back: at a deadline or a cancel the completion comes when
 *               that has come to an end: once the caller's stream has got there, after some milliseconds of work,
 *               device.lost_after at most.
 *   faults      A leaf that is wrong on its way in is overwritten with 0xFF (NaN in bf16, fp16, fp32 and fp8) before
 *               anything that waits on the device can read it, and its item is never KVBM_OK. A device that fails (a
 *               sticky error, or no end within device.lost_after) stays lost: operations on its caches end as
 *               KVBM_ERR_TIER_DISABLED, the log says so once, everything else goes on.
 *
 * The manual of everything else is kvbm.h, which includes this.
 */
#ifndef KVBM_DEVICE_H
#define KVBM_DEVICE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ devices */

/* What was moved in one direction between a device and records in host memory (frozen, 80 bytes). */
typedef struct kvbm_device_moves {
  uint64_t batches, leaves, bytes;
  uint64_t bad_leaves;      /* not what the record or, out of it, the device says; 0xFF on it; refused */
  /* By the way that each leaf took: kernels on mapped host memory; kernels and one large copy through memory of the
   * device; copies straight between pages and record; through pinned memory of the library's, because the record's is
   * not registered with the device. */
  uint64_t mapped_leaves, staged_leaves, straight_leaves, bounced_leaves;
  uint64_t device_ns;       /* time on the device, of parts that ran beside each other summed */
  uint64_t reserved;
} kvbm_device_moves_t;

/* A device that caches of this manager lie on, or lay on (frozen, 480 bytes). */
typedef struct kvbm_device_row {
  uint32_t ordinal;         /* kvbm_cache_options_t.device */
  uint32_t lost;            /* 1: it failed, and nothing more is done on it */
  char name[96];
  char pci[32];             /* "0000:1b:00.0" */
  char state[128];          /* "ready", or in words what is wrong */
  uint64_t memory_bytes;
  uint64_t pinned_bytes;    /* of the host tier, registered with it; 0: leaves are bounced */
  kvbm_device_moves_t gathers;  /* out of the device: stores, offers */
  kvbm_device_moves_t scatters; /* into it: loads, sessions */
  uint64_t reserved[5];
} kvbm_device_row_t;

/* Fills rows for the devices that caches of this manager were attached on, by ordinal. *out_n is how many there are,
 * which may be more than `capacity`. Asks the driver nothing. What a machine offers is said by `kvbm doctor`. Errors:
 * KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_devices(kvbm_manager_t *manager, kvbm_device_row_t *out_rows, size_t capacity,
                                            size_t *out_n);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_DEVICE_H */

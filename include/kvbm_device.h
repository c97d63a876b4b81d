/* kvbm_device.h - rules for caches in the memory of a GPU, and the devices of these caches.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * MEMORY OF A GPU
 *   An attached cache may be in the memory of a CUDA device (kvbm_cache_options_t.memory). The calls are the same.
 *   Records stay in host memory and the tiers below. Kernels and copies of the device move bytes between records and
 *   tensors, and hash them on the device. They run on the library's own streams in the device's primary context.
 *   Stores, loads and coding use at most option device.multiprocessors of its multiprocessors each.
 *   order       Without a stream the work begins at once, so the caller synchronises first. With one (has_stream) it
 *               begins after the work that the stream holds at submit. Work enqueued there later does not wait for it:
 *               enqueue it after polling the completion, or make it wait with kvbm_cache_wait_layer. Stores of one
 *               device begin in the order of their calls, and so do loads. So a call behind a slow stream delays the
 *               calls after it.
 *   streams     A live CUstream or cudaStream_t of that device. A stream that is being captured into a graph is refused
 *               (KVBM_ERR_INVALID): a replay would not repeat the call that defines order and layers. Captures of other
 *               streams and kvbm's work do not disturb each other. The library keeps no stream: it may be destroyed
 *               after the call that it was passed to has returned.
 *   memory      The caller owns the tensors. Free them after kvbm_cache_release, and destroy the device's context after
 *               the manager.
 *   ends        Work that was given to the device cannot be revoked. After a deadline or a cancel the completion comes
 *               when that work has ended: after the earlier work in the caller's stream, plus some milliseconds, but at
 *               most option device.lost_after.
 *   faults      A leaf that fails verification during a load is overwritten with 0xFF (NaN in bf16, fp16, fp32 and fp8)
 *               before work that waits on the device can read it. Its item is never KVBM_OK. A device that fails (a
 *               sticky error, or no end within device.lost_after) stays lost. Operations on its caches then end with
 *               KVBM_ERR_TIER_DISABLED, the log reports it once, and everything else goes on.
 *
 * docs/gpu.md has the details. The manual is kvbm.h, which includes this.
 */
#ifndef KVBM_DEVICE_H
#define KVBM_DEVICE_H

#include "kvbm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ devices */

/* Counters of one direction of copies between a device and records in host memory (frozen, 80 bytes). They only grow,
 * from 0 when the manager first uses the device. */
typedef struct kvbm_device_moves {
  /* Batches are groups of leaves that were given to the driver together. Leaves are pieces of a record of at most
   * 64 KiB, each with a hash of its own. Bytes are those of these leaves. */
  uint64_t batches, leaves, bytes;
  uint64_t bad_leaves;      /* leaves that failed verification: overwritten with 0xFF on the device, or refused */
  /* Leaves by their path.
   *   mapped    kernels that access mapped host memory
   *   staged    kernels, and one large copy through device memory
   *   straight  copies between pages and record
   *   bounced   through pinned memory of the library, because the record's memory is not registered with the device */
  uint64_t mapped_leaves, staged_leaves, straight_leaves, bounced_leaves;
  uint64_t device_ns;       /* time on the device; parts that ran concurrently are added */
  uint64_t reserved;        /* zero */
} kvbm_device_moves_t;

/* A device that has or had caches of this manager (frozen, 480 bytes). */
typedef struct kvbm_device_row {
  uint32_t ordinal;         /* kvbm_cache_options_t.device */
  uint32_t lost;            /* 1: the device failed and is not used any more */
  char name[96];            /* name that the driver reports; this and the next two are zero-terminated, cut to fit */
  char pci[32];             /* "0000:1b:00.0" */
  /* "ready", "ready; " with the reason why host memory is not registered, or "lost: " with the fault. */
  char state[128];
  uint64_t memory_bytes;    /* memory of the device */
  uint64_t pinned_bytes;    /* bytes of the host tier registered with the device; 0: leaves are bounced */
  kvbm_device_moves_t gathers;  /* from the device: stores, offers */
  kvbm_device_moves_t scatters; /* to the device: loads, sessions */
  uint64_t reserved[5];         /* zero */
} kvbm_device_row_t;

/* Fills rows for the devices that have or had attached caches of this manager, ordered by ordinal. out_rows is
 * [capacity]; *out_n is the number of devices, which may be more, and 0 without any. out_rows NULL with capacity 0 only
 * counts. Makes no call to the driver. `kvbm doctor` lists the devices of a
 * machine. Errors: KVBM_ERR_INVALID. Thread: any. Blocks: no. Since 0.1. */
KVBM_API kvbm_status_t kvbm_manager_devices(kvbm_manager_t *manager, kvbm_device_row_t *out_rows, size_t capacity,
                                            size_t *out_n);

#ifdef __cplusplus
}
#endif

#endif /* KVBM_DEVICE_H */

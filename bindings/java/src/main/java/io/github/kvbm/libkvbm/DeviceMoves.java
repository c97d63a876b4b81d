// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Counters of one direction of copies between a device and host memory.
 *
 * @param batches batches that succeeded
 * @param leaves leaves in these batches
 * @param bytes bytes of these leaves
 * @param badLeaves leaves that failed verification, and were refused
 * @param mappedLeaves moved by kernels on mapped host memory
 * @param stagedLeaves moved by kernels through memory of the device
 * @param straightLeaves copied straight between pages and record
 * @param bouncedLeaves leaves of records that are not registered with the device
 * @param deviceNs time on the device
 */
public record DeviceMoves(long batches, long leaves, long bytes, long badLeaves, long mappedLeaves, long stagedLeaves,
    long straightLeaves, long bouncedLeaves, long deviceNs) {
  static DeviceMoves read(Struct in, int at) {
    return new DeviceMoves(in.getLong(at + device_moves_batches), in.getLong(at + device_moves_leaves),
        in.getLong(at + device_moves_bytes), in.getLong(at + device_moves_bad_leaves),
        in.getLong(at + device_moves_mapped_leaves), in.getLong(at + device_moves_staged_leaves),
        in.getLong(at + device_moves_straight_leaves), in.getLong(at + device_moves_bounced_leaves),
        in.getLong(at + device_moves_device_ns));
  }
}

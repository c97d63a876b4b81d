// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * What was moved in one direction between a device and host memory.
 *
 * @param batches that ended well
 * @param leaves in them
 * @param bytes of these
 * @param badLeaves into the device: not what the record says, and refused
 * @param mappedLeaves moved by kernels on mapped host memory
 * @param stagedLeaves moved by kernels through memory of the device
 * @param straightLeaves copied straight between pages and record
 * @param bouncedLeaves whose record is not registered with the device
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

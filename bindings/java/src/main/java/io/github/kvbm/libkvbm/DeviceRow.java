// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * A device that has or had caches of a manager.
 *
 * @param ordinal as the driver counts
 * @param lost whether the device failed and is not used any more
 * @param name name in the driver
 * @param pci PCI address
 * @param state "ready", or a description of the fault
 * @param memoryBytes of the device
 * @param pinnedBytes of the host tier, registered with it
 * @param gathers copies from the device
 * @param scatters copies to the device
 */
public record DeviceRow(int ordinal, boolean lost, String name, String pci, String state, long memoryBytes,
    long pinnedBytes, DeviceMoves gathers, DeviceMoves scatters) {
  static DeviceRow read(Struct in, int at) {
    return new DeviceRow(in.getInt(at + device_row_ordinal), in.getInt(at + device_row_lost) != 0,
        in.text(at + device_row_name, 96), in.text(at + device_row_pci, 32), in.text(at + device_row_state, 128),
        in.getLong(at + device_row_memory_bytes), in.getLong(at + device_row_pinned_bytes),
        DeviceMoves.read(in, at + device_row_gathers), DeviceMoves.read(in, at + device_row_scatters));
  }
}

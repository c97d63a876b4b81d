// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * One live block or stored record.
 *
 * @param key the block
 * @param namespaceId its namespace, 16 bytes
 * @param bytes its payload
 * @param tier 0 = host
 * @param component index into the geometry's components
 * @param uses number of uses
 * @param holds live holds
 * @param pins live pins
 * @param age since its last use: requests in the host tier, seconds on a disk
 */
public record ScanRow(
    Key key, Key namespaceId, long bytes, int tier, int component, int uses, int holds, int pins, int age) {
  static ScanRow read(Struct in, int at) {
    return new ScanRow(Key.of(in.bytes(at + scan_row_key, 16)), Key.of(in.bytes(at + scan_row_namespace_id, 16)),
        in.getLong(at + scan_row_bytes), in.getInt(at + scan_row_tier), in.getInt(at + scan_row_component),
        in.getInt(at + scan_row_uses), in.getInt(at + scan_row_holds), in.getInt(at + scan_row_pins),
        in.getInt(at + scan_row_age));
  }

  /** {@return what it says, the tier by its name} */
  @Override
  public String toString() {
    return "ScanRow[" + key + ", " + Kvbm.tierName(tier) + ", " + bytes + " bytes, uses " + uses + ", holds " + holds
        + ", pins " + pins + "]";
  }
}

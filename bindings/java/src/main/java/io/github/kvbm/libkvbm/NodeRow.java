// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * A node that is connected, or an address where one should be.
 *
 * @param node its id, 16 bytes; zero while nobody has answered
 * @param address where it was dialled, or where it came from
 * @param state "ready", or in words why it is not
 * @param capacityBytes of its tiers
 * @param usedBytes of these
 * @param records that it has
 * @param fetchedBytes of records read from it by this connection
 * @param servedBytes of records that it read here
 * @param path how its host memory is read: "local", "tcp", or "" until known
 * @param pathReason in words why it is not "local"
 * @param localBytes of records read in place
 */
public record NodeRow(Key node, String address, String state, long capacityBytes, long usedBytes, long records,
    long fetchedBytes, long servedBytes, String path, String pathReason, long localBytes) {
  static NodeRow read(Struct in, int at) {
    return new NodeRow(Key.of(in.bytes(at + node_row_node, 16)), in.text(at + node_row_address, 96),
        in.text(at + node_row_state, 128), in.getLong(at + node_row_capacity_bytes),
        in.getLong(at + node_row_used_bytes), in.getLong(at + node_row_records),
        in.getLong(at + node_row_fetched_bytes), in.getLong(at + node_row_served_bytes),
        in.text(at + node_row_path, 16), in.text(at + node_row_path_reason, 128),
        in.getLong(at + node_row_local_bytes));
  }
}

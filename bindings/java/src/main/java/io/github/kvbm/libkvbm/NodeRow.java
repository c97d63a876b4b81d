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
 * @param codec that large reads are asked with now
 * @param codecAutomatic whether node.codec = auto has chosen it
 * @param codecSealed whether nothing is taken from it that is not sealed
 * @param codecRefused what came and was not used
 * @param codecPlainBytes of what came coded or sealed, decoded
 * @param codecStoredBytes and as it came
 */
public record NodeRow(Key node, String address, String state, long capacityBytes, long usedBytes, long records,
    long fetchedBytes, long servedBytes, String path, String pathReason, long localBytes, CodecMode codec,
    boolean codecAutomatic, boolean codecSealed, int codecRefused, long codecPlainBytes, long codecStoredBytes) {
  static NodeRow read(Struct in, int at) {
    return new NodeRow(Key.of(in.bytes(at + node_row_node, 16)), in.text(at + node_row_address, 96),
        in.text(at + node_row_state, 128), in.getLong(at + node_row_capacity_bytes),
        in.getLong(at + node_row_used_bytes), in.getLong(at + node_row_records),
        in.getLong(at + node_row_fetched_bytes), in.getLong(at + node_row_served_bytes),
        in.text(at + node_row_path, 16), in.text(at + node_row_path_reason, 128),
        in.getLong(at + node_row_local_bytes), CodecMode.of(in.getByte(at + node_row_codec)),
        in.getByte(at + node_row_codec_automatic) != 0, in.getByte(at + node_row_codec_sealed) != 0,
        in.getInt(at + node_row_codec_refused), in.getLong(at + node_row_codec_plain_bytes),
        in.getLong(at + node_row_codec_stored_bytes));
  }
}

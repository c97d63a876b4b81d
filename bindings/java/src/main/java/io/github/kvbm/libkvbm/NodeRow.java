// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * A connected node, or an address of node.peers.
 *
 * @param node id of the node, 16 bytes; zero until it has answered
 * @param address address that was dialled, or that the node connected from
 * @param state "ready", or the reason why not
 * @param capacityBytes of its tiers
 * @param usedBytes of these
 * @param records number of its records
 * @param fetchedBytes bytes of records read from it over this connection
 * @param servedBytes bytes of records that it read from this node
 * @param path path of reads from its host memory: "local", "tcp", or "" until known
 * @param pathReason the reason why it is not "local"
 * @param localBytes bytes of records read in place
 * @param codec codec requested for large reads now
 * @param codecAutomatic whether node.codec = auto has chosen it
 * @param codecSealed whether records that are not sealed are refused
 * @param codecRefused records refused on arrival
 * @param codecPlainBytes payload bytes of records that came coded or sealed, after decoding
 * @param codecStoredBytes and before decoding
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

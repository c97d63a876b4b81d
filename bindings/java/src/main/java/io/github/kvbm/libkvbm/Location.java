// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * The prefix of one request on one node, by tier.
 *
 * @param node as in {@link NodeRow}; zero: this manager
 * @param request index of the request
 * @param tier the node's own number of it, 0 = its host memory
 * @param prefix leading keys in this tier or faster ones
 * @param inTier keys of the prefix with a part in this tier itself
 * @param bytes payload bytes of the prefix
 */
public record Location(Key node, int request, int tier, long prefix, long inTier, long bytes) {
  static Location read(Struct in, int at) {
    return new Location(Key.of(in.bytes(at + location_node, 16)), in.getInt(at + location_request),
        in.getInt(at + location_tier), in.getLong(at + location_n_prefix), in.getLong(at + location_n_in_tier),
        in.getLong(at + location_bytes));
  }

  /** {@return what it says, the tier by its name} */
  @Override
  public String toString() {
    return "Location[" + node + ", request " + request + ", " + Kvbm.tierName(tier) + ", " + prefix + " keys, " + bytes
        + " bytes]";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.List;

/**
 * The position that a block under a content key was computed at.
 *
 * @param firstToken its first token
 * @param rotation fingerprint of the rotary parameters, of the caller's choosing
 * @param leftContext fingerprint of what stood before; 0 = nothing
 */
public record Position(long firstToken, long rotation, long leftContext) {
  static long write(Call call, List<Position> positions, int n) {
    if (positions == null) return 0;
    if (positions.size() != n) {
      throw new IllegalArgumentException(positions.size() + " positions for " + n + " keys");
    }
    Struct all = call.memory((long) SIZEOF_position * n);
    for (int i = 0; i < n; ++i) {
      Position position = positions.get(i);
      all.put(i * SIZEOF_position + position_first_token, position.firstToken());
      all.put(i * SIZEOF_position + position_rotation, position.rotation());
      all.put(i * SIZEOF_position + position_left_context, position.leftContext());
    }
    return all.address;
  }
}

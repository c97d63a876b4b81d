// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

/** The fuzzer's target, over bytes of a fixed seed. */
class FuzzedCallsTest {
  private static final long SEED = 20240229;

  @Test
  void bytesOfAFixedSeed() {
    Random random = new Random(SEED);
    int done = 0;
    for (int round = 0; round < 150; ++round) {
      byte[] data = new byte[random.nextInt(400)];
      random.nextBytes(data);
      try {
        done += new FuzzedCalls(data).run();
      } catch (Throwable e) {
        throw new AssertionError("round " + round + " of seed " + SEED, e);
      }
    }
    assertTrue(done > 500, done + " calls worked");
  }
}

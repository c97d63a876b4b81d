// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import com.code_intelligence.jazzer.junit.FuzzTest;

/** Gives the fuzzer's bytes to the target. JAZZER_FUZZ=1 searches; without it the known inputs are run. */
class CallsFuzzTest {
  @FuzzTest(maxDuration = "60s")
  void anyBytes(byte[] data) {
    new FuzzedCalls(data).run();
  }
}

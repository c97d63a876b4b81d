// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Types of elements. */
public enum Element implements Numbered {
  /** Opaque bytes. */
  BYTES(KVBM_ELEMENT_BYTES),

  /** Bfloat16. */
  BF16(KVBM_ELEMENT_BF16),

  /** IEEE half. */
  FP16(KVBM_ELEMENT_FP16),

  /** IEEE single. */
  FP32(KVBM_ELEMENT_FP32),

  /** 8 bits, E4M3. */
  FP8_E4M3(KVBM_ELEMENT_FP8_E4M3),

  /** 8 bits, E5M2. */
  FP8_E5M2(KVBM_ELEMENT_FP8_E5M2),

  /** 8-bit integer. */
  INT8(KVBM_ELEMENT_INT8);

  private final int number;

  Element(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static Element of(int number) {
    return Numbered.of(values(), number, "element");
  }
}

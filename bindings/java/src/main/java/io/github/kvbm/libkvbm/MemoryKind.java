// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Where the tensors of a cache lie. */
public enum MemoryKind implements Numbered {
  /** Host memory, unless the driver knows the tensors as a device's. */
  AUTO(KVBM_MEMORY_AUTO),

  /** Host memory. */
  HOST(KVBM_MEMORY_HOST),

  /** Memory of a CUDA device. */
  CUDA(KVBM_MEMORY_CUDA);

  private final int number;

  MemoryKind(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static MemoryKind of(int number) {
    return Numbered.of(values(), number, "kind of memory");
  }
}

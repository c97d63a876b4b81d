// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Where the tensors of a cache lie. */
public final class MemoryKind {
  /** Host memory, unless the driver knows the tensors as a device's. */
  public static final int AUTO = KVBM_MEMORY_AUTO;

  /** Host memory. */
  public static final int HOST = KVBM_MEMORY_HOST;

  /** Memory of a CUDA device. */
  public static final int CUDA = KVBM_MEMORY_CUDA;

  private MemoryKind() {}
}

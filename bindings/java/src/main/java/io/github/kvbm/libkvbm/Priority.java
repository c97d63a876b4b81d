// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** What is known of blocks, for the eviction policies. */
public final class Priority {
  /** Nothing. */
  public static final int NORMAL = KVBM_PRIORITY_NORMAL;

  /** It will not be used again. */
  public static final int ONE_SHOT = KVBM_PRIORITY_ONE_SHOT;

  /** The conversation goes on. */
  public static final int CONTINUES = KVBM_PRIORITY_CONTINUES;

  /** It is to stay. */
  public static final int KEEP = KVBM_PRIORITY_KEEP;

  private Priority() {}
}

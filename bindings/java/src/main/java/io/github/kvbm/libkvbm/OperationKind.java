// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Kinds of operations of a {@link Completion}. */
public enum OperationKind implements Numbered {
  /** {@link Cache#storeAsync}. */
  STORE(KVBM_OP_STORE),

  /** {@link Cache#loadAsync}. */
  LOAD(KVBM_OP_LOAD),

  /** {@link Manager#prefetchAsync}. */
  PREFETCH(KVBM_OP_PREFETCH),

  /** {@link Manager#offloadAsync}. */
  OFFLOAD(KVBM_OP_OFFLOAD),

  /** {@link Offer}. */
  OFFER(KVBM_OP_OFFER),

  /** {@link Session}. */
  RECEIVE(KVBM_OP_RECEIVE),

  /** A layer of a {@link Session}. */
  LAYER(KVBM_OP_LAYER),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private static final OperationKind[] ALL = values();

  private final int number;

  OperationKind(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static OperationKind of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }
}

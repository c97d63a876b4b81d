// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** What a {@link Completion} is of. */
public enum OperationKind {
  /** {@link Cache#storeAsync}. */
  STORE(Completion.STORE),

  /** {@link Cache#loadAsync}. */
  LOAD(Completion.LOAD),

  /** {@link Manager#prefetchAsync}. */
  PREFETCH(Completion.PREFETCH),

  /** {@link Manager#offloadAsync}. */
  OFFLOAD(Completion.OFFLOAD),

  /** {@link Offer}. */
  OFFER(Completion.OFFER),

  /** {@link Session}. */
  RECEIVE(Completion.RECEIVE),

  /** A layer of a {@link Session}. */
  LAYER(Completion.LAYER),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private final int number;

  OperationKind(int number) {
    this.number = number;
  }

  static OperationKind of(int number) {
    for (OperationKind kind : values()) {
      if (kind.number == number) return kind;
    }
    return UNKNOWN;
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * What became of one accepted submission.
 *
 * @param id the {@link Operation#id()} it belongs to
 * @param operation the library's number of it; of a {@link #LAYER}, component * 2^32 + layer
 * @param op one of the kinds of this class
 * @param status {@link Status#OK}, {@link Status#PARTIAL}, or why nothing was done
 * @param itemsDone blocks done
 * @param items blocks asked for
 * @param bytes payload bytes moved
 * @param waitNs from submit until work began
 * @param serviceNs from then until done
 */
public record Completion(
    long id, long operation, int op, int status, long itemsDone, long items, long bytes, long waitNs, long serviceNs) {
  /** {@link Cache#storeAsync}. */
  public static final int STORE = KVBM_OP_STORE;

  /** {@link Cache#loadAsync}. */
  public static final int LOAD = KVBM_OP_LOAD;

  /** {@link Manager#prefetchAsync}. */
  public static final int PREFETCH = KVBM_OP_PREFETCH;

  /** {@link Manager#offloadAsync}. */
  public static final int OFFLOAD = KVBM_OP_OFFLOAD;

  /** {@link Offer}. */
  public static final int OFFER = KVBM_OP_OFFER;

  /** {@link Session}. */
  public static final int RECEIVE = KVBM_OP_RECEIVE;

  /** A layer of a {@link Session}. */
  public static final int LAYER = KVBM_OP_LAYER;

  static Completion read(Struct in, int at) {
    return new Completion(in.getLong(at + completion_user_data), in.getLong(at + completion_operation),
        in.getInt(at + completion_op), in.getInt(at + completion_status), in.getLong(at + completion_items_done),
        in.getLong(at + completion_items), in.getLong(at + completion_bytes), in.getLong(at + completion_wait_ns),
        in.getLong(at + completion_service_ns));
  }

  /** {@return what it is of} */
  public OperationKind kind() {
    return OperationKind.of(op);
  }

  /** {@return its operation and status by their names, and how much was done} */
  @Override
  public String toString() {
    return "Completion[id=" + id + ", " + kind() + ", " + Status.name(status) + ", " + itemsDone + " of " + items + " items, "
        + bytes + " bytes]";
  }
}

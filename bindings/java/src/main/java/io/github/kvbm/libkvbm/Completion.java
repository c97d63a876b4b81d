// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * What became of one accepted submission.
 *
 * @param id the {@link Operation#id()} it belongs to
 * @param operation the library's number of it; of a {@link OperationKind#LAYER}, component * 2^32 + layer
 * @param op what it is of
 * @param status {@link Status#OK}, {@link Status#PARTIAL}, or why nothing was done
 * @param itemsDone blocks done
 * @param items blocks asked for
 * @param bytes payload bytes moved
 * @param waitNs from submit until work began
 * @param serviceNs from then until done
 */
public record Completion(long id, long operation, OperationKind op, Status status, long itemsDone, long items,
    long bytes, long waitNs, long serviceNs) {
  static Completion read(Struct in, int at) {
    return new Completion(in.getLong(at + completion_user_data), in.getLong(at + completion_operation),
        OperationKind.of(in.getInt(at + completion_op)), Status.of(in.getInt(at + completion_status)),
        in.getLong(at + completion_items_done), in.getLong(at + completion_items), in.getLong(at + completion_bytes),
        in.getLong(at + completion_wait_ns), in.getLong(at + completion_service_ns));
  }

  /** {@return its operation and status by their names, and how much was done} */
  @Override
  public String toString() {
    return "Completion[id=" + id + ", " + op + ", " + status + ", " + itemsDone + " of " + items + " items, "
        + bytes + " bytes]";
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Result of one accepted submission.
 *
 * @param id the {@link Operation#id()} it belongs to
 * @param operation the library's number of it; of a {@link OperationKind#LAYER}, component * 2^32 + layer
 * @param op kind of the operation
 * @param status {@link Status#OK}, {@link Status#PARTIAL}, or the error that stopped it
 * @param itemsDone blocks done
 * @param items blocks requested
 * @param bytes payload bytes moved
 * @param waitNs from submit to the start of work
 * @param serviceNs from the start of work to its end
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

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import io.github.kvbm.libkvbm.raw.kvbm;

/**
 * A call that failed. The class says what to do about it: {@link CallerException}, {@link NoRoomException},
 * {@link PeerException}, {@link MissException}, {@link UnavailableException}, {@link InternalException}.
 */
public class KvbmException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** As kvbm.h has it: also one that this version does not know. */
  private final int status;

  KvbmException(int status, String message) {
    super(kvbm.kvbm_status_name(status) + ": " + (message.isEmpty() ? kvbm.kvbm_status_text(status) : message));
    this.status = status;
  }

  static KvbmException of(int status, String message) {
    switch (status / 100) {
      case -1:
        return new CallerException(status, message);
      case -2:
        return new NoRoomException(status, message);
      case -3:
        return new PeerException(status, message);
      case -4:
        return new MissException(status, message);
      case -5:
        return new UnavailableException(status, message);
      default:
        return new InternalException(status, message);
    }
  }

  /** {@return the status} */
  public Status status() {
    return Status.of(status);
  }

  /** {@return its number in kvbm.h} */
  public int statusNumber() {
    return status;
  }

  /** {@return the symbolic name of the status, e.g. KVBM_ERR_NO_ROOM} */
  public String statusName() {
    return kvbm.kvbm_status_name(status);
  }
}

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * A call that failed. The class says what to do about it: {@link CallerException}, {@link NoRoomException},
 * {@link PeerException}, {@link MissException}, {@link UnavailableException}, {@link InternalException}.
 */
public class KvbmException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** One of {@link Status}. */
  private final int status;

  KvbmException(int status, String message) {
    super(Status.name(status) + ": " + (message.isEmpty() ? Status.text(status) : message));
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

  /** {@return the status, one of {@link Status}} */
  public int status() {
    return status;
  }

  /** {@return the symbolic name of the status, e.g. KVBM_ERR_NO_ROOM} */
  public String statusName() {
    return Status.name(status);
  }
}

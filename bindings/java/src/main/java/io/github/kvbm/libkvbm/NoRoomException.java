// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** No room (-200 to -299): release, evict, wait or raise a limit. */
public final class NoRoomException extends KvbmException {
  private static final long serialVersionUID = 1L;

  NoRoomException(int status, String message) {
    super(status, message);
  }
}

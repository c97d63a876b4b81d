// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** The call is wrong (-100 to -199): fix the caller. */
public final class CallerException extends KvbmException {
  private static final long serialVersionUID = 1L;

  CallerException(int status, String message) {
    super(status, message);
  }
}

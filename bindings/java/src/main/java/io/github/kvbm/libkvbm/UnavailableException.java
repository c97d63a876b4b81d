// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** Not available here (-500 to -599). */
public final class UnavailableException extends KvbmException {
  private static final long serialVersionUID = 1L;

  UnavailableException(int status, String message) {
    super(status, message);
  }
}

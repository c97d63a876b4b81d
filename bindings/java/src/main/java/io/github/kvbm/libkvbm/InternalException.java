// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** The library's or the system's fault (-600 to -699). */
public final class InternalException extends KvbmException {
  private static final long serialVersionUID = 1L;

  InternalException(int status, String message) {
    super(status, message);
  }
}

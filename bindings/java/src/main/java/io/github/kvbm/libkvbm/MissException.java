// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** Not here or not trustworthy (-400 to -499): treat it as a miss and compute. */
public final class MissException extends KvbmException {
  private static final long serialVersionUID = 1L;

  MissException(int status, String message) {
    super(status, message);
  }
}

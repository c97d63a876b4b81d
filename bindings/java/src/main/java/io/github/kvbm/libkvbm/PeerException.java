// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** Time, peers and owners (-300 to -399): retry, or go elsewhere. */
public final class PeerException extends KvbmException {
  private static final long serialVersionUID = 1L;

  PeerException(int status, String message) {
    super(status, message);
  }
}

// SPDX-License-Identifier: Apache-2.0
/** Keeps and moves the KV cache of large language models. */
module io.github.kvbm.libkvbm {
  exports io.github.kvbm.libkvbm;
}

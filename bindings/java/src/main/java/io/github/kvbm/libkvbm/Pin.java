// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * Blocks that stay resident for an owner until a deadline, or until {@link Manager#unpin}.
 *
 * @param id the library's number of it; 0 = nothing is pinned
 * @param count leading keys that are pinned
 */
public record Pin(long id, int count) {}

// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.util.List;

/**
 * What {@link Manager#locate} found.
 *
 * @param rows by request, the longest prefix first
 * @param complete false if some node has not answered in time; what it has counts as absent
 */
public record LocateResult(List<Location> rows, boolean complete) {}

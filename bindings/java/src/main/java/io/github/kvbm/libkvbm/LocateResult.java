// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.util.List;

/**
 * Result of {@link Manager#locate}.
 *
 * @param rows by request, the longest prefix first
 * @param complete false if a node has not answered in time; its keys count as absent
 */
public record LocateResult(List<Location> rows, boolean complete) {}

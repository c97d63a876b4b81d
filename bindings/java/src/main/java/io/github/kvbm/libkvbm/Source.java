// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * A prefill rank to read from.
 *
 * @param node as this manager knows its node: an address of node.peers, or the name of a node
 * @param rank the rank of its {@link OfferOptions}
 */
public record Source(String node, int rank) {}

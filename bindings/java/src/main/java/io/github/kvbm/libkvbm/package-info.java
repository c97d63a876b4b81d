// SPDX-License-Identifier: Apache-2.0
/**
 * Stores KV-cache blocks of large language models in host memory, on disk and on other nodes.
 *
 * <p>A {@link io.github.kvbm.libkvbm.Context} holds the configuration and the worker threads, a
 * {@link io.github.kvbm.libkvbm.Manager} one set of tiers, and a {@link io.github.kvbm.libkvbm.Namespace} is the scope
 * of keys. An engine with its own paged cache describes it once ({@link io.github.kvbm.libkvbm.Cache}) and stores and
 * loads by key. For other engines the manager owns the blocks ({@link io.github.kvbm.libkvbm.BlockArray}).
 *
 * <p><b>Ownership.</b> Close every object that is {@link java.lang.AutoCloseable}; a cleaner closes forgotten objects
 * some time after they became unreachable. Closing twice, and in any order, is allowed: children keep their
 * parents alive. Using a closed object is an {@link java.lang.IllegalStateException}.
 *
 * <p><b>Errors</b> are {@link io.github.kvbm.libkvbm.KvbmException}, one class for each remedy. A cache miss is a
 * count, not an error.
 *
 * <p><b>Threads.</b> Every object may be used from any thread, also while another thread closes it: an object in use is
 * released when its last call returns.
 *
 * <p>Numbers that C has as unsigned are {@code int} and {@code long} with the same bits; sizes are bytes and times
 * nanoseconds, and names say so.
 */
package io.github.kvbm.libkvbm;

// SPDX-License-Identifier: Apache-2.0

// Package libkvbm stores, finds and moves the KV cache of large language models: blocks of an engine's cache, in host
// memory, on disk and on other nodes, found again by content and verified on the way back. It wraps libkvbm, a C
// library. kvbm.h documents each call in detail under the same name (kvbm_cache_store is [Cache.Store]).
//
// # Objects
//
// A [Context] makes [Manager] and [Queue] objects; a manager opens a [Namespace] and attaches a [Cache]. All of them,
// and [Match], [Blocks], [Geometry], [Offer] and [Session], have a Close method. Close may be called twice, in any order
// and while other goroutines use the object: calls in progress end first, later ones return an error that is
// [io/fs.ErrClosed]. Children keep the parts of their parents that they need. An unreachable object is closed some time
// after the garbage collector has found it; do not rely on that, call Close.
//
// # Errors
//
// Every failure is an [*Error] with a [Status] and a text, or a [*PartialError] for a batch that was done in part.
// Compare with errors.Is. Each status has a value ([ErrNoRoom]), and so has each band of statuses, which names the
// remedy ([ErrRoom]). Deadlines and cancellation are context.DeadlineExceeded and context.Canceled as well. A cache
// miss is a count, not an error.
//
// # Waiting
//
// Calls that wait take a context.Context. If the context can end, they wait in Go's network poller, not in a thread of
// their own: the operation is submitted, and cancelled when the context ends. The call returns when the library has
// released the memory. With a context that never ends, the operation is one C call on the calling thread, which is
// fastest. Submit many operations at a time to a [Queue]. Prefetches and offloads use no memory of the caller and
// cannot be cancelled: when the context ends the call returns, and they end by themselves.
//
// # Threads
//
// Every method may be called by several goroutines at a time. The exception: methods of one [Blocks] that end or change
// its holds must not run together with a use of its views.
package libkvbm

// SPDX-License-Identifier: Apache-2.0

// Package libkvbm keeps and moves the KV cache of large language models: blocks of an engine's cache, in host memory,
// on disk and on other nodes, found again by content and checked on the way back. It is libkvbm, a C library, in Go's
// terms; what a call means in detail is in kvbm.h under the same name (kvbm_cache_store is [Cache.Store]).
//
// # Objects
//
// A [Context] makes [Manager] and [Queue] objects; a manager opens a [Namespace] and attaches a [Cache]. All of them,
// and [Match], [Blocks], [Geometry], [Offer] and [Session], have a Close method. Close may be called twice, in any order
// and while other goroutines use the object: calls under way end first, later ones give an error that is
// [io/fs.ErrClosed]. Children keep what they need of their parents. An object that is forgotten is closed some time after
// the garbage collector has found it; count on Close.
//
// # Errors
//
// Every failure is an [*Error] with a [Status] and a text, or a [*PartialError] where a batch was done in part. Compare
// with errors.Is: each status has a value ([ErrNoRoom]), each band of statuses, which stands for the remedy, has one too
// ([ErrRoom]), and deadlines and cancellation are context.DeadlineExceeded and context.Canceled as well. A cache miss is
// a count, not an error.
//
// # Waiting
//
// Calls that wait take a context.Context. They wait in Go's network poller, not in a thread of their own, once the
// context can end: the operation is submitted, and cancelled when the context ends, and the call returns when the
// library has let go of the memory. A context that never ends makes the shortest path: one C call that runs the
// operation on the calling thread. Many operations at a time are submitted to a [Queue]. Prefetches and offloads have
// nothing of the caller's and cannot be cancelled: when the context ends the call returns, and they end by themselves.
//
// # Threads
//
// Every method may be called by several goroutines at a time, but for those of one [Blocks] that end or change its
// holds together with a use of its views.
package libkvbm

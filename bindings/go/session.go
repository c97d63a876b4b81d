// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// Source is a prefill rank to read from.
type Source struct {
	Node string // as this manager knows its node: an address of node.peers, or the name of a node (node.name)
	Rank uint32 // OfferOptions.Rank
}

// SessionOptions is how a request is fetched; nil and the zero value are the defaults.
type SessionOptions struct {
	Rank          uint32        // this decode rank, of
	Ranks         uint32        // that many which open the request; 0 = 1
	NoLayers      bool          // no OpLayer completions
	FirstPosition uint64        // of the first block
	Begin         uint64        // positions [Begin, End) are wanted; before the first block = from there on
	End           uint64        // 0 = to the end of the blocks
	Timeout       time.Duration // of the whole session; 0 = 60 s, negative = at once
	BudgetBytes   uint64        // staging that this session may have under way at once; 0 = 64 MiB
	// Stream is of the cache's device: the session begins after what it holds now. nil: at once.
	Stream *Stream
	// Queue gets an OpLayer completion for each layer (Operation = component<<32 + layer), and one OpReceive. It needs
	// room for them. nil = none.
	Queue    *Queue
	UserData uint64
}

// A Session brings a request into the blocks of a decode rank.
type Session struct{ h *handle }

// OpenSession receives a request into these blocks from the prefill ranks that have it; name all of them. Only bytes at
// the wanted positions are written. No other code may write them until the session has ended.
func (c *Cache) OpenSession(request RequestID, blockIDs []uint32, sources []Source, o *SessionOptions) (*Session,
	error) {
	const op = "Cache.OpenSession"
	if err := c.handle().enter(op, "cache"); err != nil {
		return nil, err
	}
	defer c.h.exit()
	if o == nil {
		o = &SessionOptions{}
	}
	n, err := c.idsOfAPart(op, blockIDs)
	if err != nil {
		return nil, err
	}
	var nodes []byte
	ranks := make([]C.uint32_t, len(sources))
	for i, s := range sources {
		if nodes, err = appendText(op, "a source's node", nodes, s.Node); err != nil {
			return nil, err
		}
		ranks[i] = C.uint32_t(s.Rank)
	}
	options := o.c()
	var stream C.uint64_t
	stream, options.has_stream = o.Stream.c()
	var out *C.kvbm_session_t
	var detail C.kvbm_error_t
	status, err := onQueue(op, o.Queue, o.UserData, func(queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
		return C.kvbmgo_session_open(c.c(), request.c(), (*C.uint32_t)(unsafe.SliceData(blockIDs)), n, chars(nodes),
			unsafe.SliceData(ranks), C.size_t(len(ranks)), &options, stream, queue, id,
			&out, &detail)
	})
	if err != nil {
		return nil, err
	}
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	owner := c.manager // not the cache: closing that waits for this
	owner.keep()
	return &Session{newHandle("session", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_session_release((*C.kvbm_session_t)(p))
		owner.unkeep()
	})}, nil
}

func (o *SessionOptions) c() C.kvbm_session_options_t {
	var options C.kvbm_session_options_t
	C.kvbm_session_options_init(&options, C.sizeof_kvbm_session_options_t)
	options.rank = C.uint32_t(o.Rank)
	options.ranks = C.uint32_t(o.Ranks)
	options.no_layers = bit(o.NoLayers)
	options.first_position = C.uint64_t(o.FirstPosition)
	options.begin = C.uint64_t(o.Begin)
	options.end = C.uint64_t(o.End)
	options.budget_bytes = C.uint64_t(o.BudgetBytes)
	if o.Timeout != 0 {
		options.timeout_ns = C.uint64_t(max(o.Timeout, 0))
	}
	return options
}

func (s *Session) handle() *handle {
	if s == nil {
		return nil
	}
	return s.h
}

func (s *Session) c() *C.kvbm_session_t { return (*C.kvbm_session_t)(s.h.ptr) }

// Close ends the session; one that goes on is aborted, and its completion still comes.
func (s *Session) Close() error {
	if s != nil && s.h != nil {
		if !s.h.closed() {
			s.Abort("") // wakes its waiters
		}
		s.h.close()
	}
	return nil
}

// Wait waits until the session has ended and says how: nil if everything is in place. When ctx ends first the session
// goes on.
func (s *Session) Wait(ctx context.Context) error {
	const op = "Session.Wait"
	return callUntil(ctx, op, s.handle(), "session", func() error {
		return s.waitNS(op, uint64(timeoutOf(ctx, 0)))
	})
}

func (s *Session) waitNS(op string, timeoutNS uint64) error {
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_session_wait(s.c(), C.uint64_t(timeoutNS), &detail), &detail)
}

// WaitLayer waits until a layer is in place: nil also when the session has failed after it.
func (s *Session) WaitLayer(ctx context.Context, component, layer uint32) error {
	const op = "Session.WaitLayer"
	return callUntil(ctx, op, s.handle(), "session", func() error {
		return s.waitLayerNS(op, component, layer, uint64(timeoutOf(ctx, 0)))
	})
}

func (s *Session) waitLayerNS(op string, component, layer uint32, timeoutNS uint64) error {
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_session_wait_layer(s.c(), C.uint32_t(component), C.uint32_t(layer),
		C.uint64_t(timeoutNS), &detail), &detail)
}

// Abort ends the session. Prefill ranks receive the reason. The blocks may be written until it has ended (Wait).
// ErrStale if it has ended.
func (s *Session) Abort(reason string) error {
	const op = "Session.Abort"
	why, err := text(op, "the reason", reason)
	if err != nil {
		return err
	}
	if err := s.handle().enter(op, "session"); err != nil {
		return err
	}
	defer s.h.exit()
	return fail(op, C.kvbm_session_abort(s.c(), chars(why)))
}

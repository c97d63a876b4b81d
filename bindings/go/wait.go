// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"
)

const forever = math.MaxUint64

// Queues for calls that wait, one per call, so completions need not be passed between goroutines.
type queuePool struct {
	mu     sync.Mutex
	free   []*Queue
	closed bool
}

const maxFreeQueues = 16

func (p *queuePool) take(op string, owner *handle) (*Queue, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		q := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return q, nil
	}
	p.mu.Unlock()
	return newQueue(op, owner, 1)
}

func (p *queuePool) put(q *Queue) {
	p.mu.Lock()
	if !p.closed && len(p.free) < maxFreeQueues {
		p.free = append(p.free, q)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	q.Close()
}

// close ends the free queues, which keep the context. Those in use end when they are put back.
func (p *queuePool) close() {
	p.mu.Lock()
	free := p.free
	p.free, p.closed = nil, true
	p.mu.Unlock()
	for _, q := range free {
		q.Close()
	}
}

// An operation that a call waits for.
type operation struct {
	op    string
	items int
	// Whether the library writes item statuses, and an operation number to cancel it by. Where it does not, nothing of
	// the caller's is in use after the submission.
	memory bool
	// start submits to queue, or runs on this thread where that is nil.
	start func(status *C.kvbm_status_t, out *C.uint64_t, queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t
}

// run does an operation and waits for it: on this thread if ctx never ends, else on a queue.
func (o *operation) run(ctx context.Context, core *contextCore) error {
	if ctx == nil {
		return invalid(o.op, "the context.Context is nil")
	}
	if ctx.Done() == nil {
		return o.runHere()
	}
	if ctx.Err() != nil {
		return ended(o.op, ctx)
	}
	q, err := core.queues.take(o.op, core.h)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // for failHere
	_, status := q.core.submit(o.items, o.memory, 0, func(memory *C.kvbmgo_pending_t, id C.uint64_t) C.kvbm_status_t {
		if memory == nil {
			return o.start(nil, nil, q.core.queue, id)
		}
		return o.start(C.kvbmgo_pending_status(memory), &memory.operation, q.core.queue, id)
	})
	err = failHere(o.op, status)
	runtime.UnlockOSThread()
	if err != nil {
		core.queues.put(q)
		return err
	}
	return o.await(ctx, core, q)
}

// await waits for the only operation of q. When ctx ends it is cancelled, and waited for: until its completion its
// memory is in use.
func (o *operation) await(ctx context.Context, core *contextCore, q *Queue) error {
	var done [1]Completion
	n, _ := q.Wait(ctx, done[:])
	if n == 0 && !o.memory {
		q.Close() // the operation cannot be cancelled, uses none of the caller's memory and ends by itself
		return ended(o.op, ctx)
	}
	var cause error
	if n == 0 {
		cause = context.Cause(ctx)
		q.core.cancelAll()
		q.Wait(context.Background(), done[:])
	}
	core.queues.put(q)
	return done[0].err(o.op, cause)
}

func (o *operation) runHere() error {
	var few [64]C.kvbm_status_t
	items := few[:]
	if o.items > len(few) {
		items = make([]C.kvbm_status_t, o.items)
	}
	items = items[:o.items]
	var first *C.kvbm_status_t
	if o.memory && o.items > 0 {
		first = &items[0]
	}
	status, err := toldStatus(o.op, func() C.kvbm_status_t { return o.start(first, nil, nil, 0) })
	if status == C.KVBM_PARTIAL {
		e := &PartialError{Op: o.op}
		if o.memory {
			e.Items = make([]Status, o.items)
			for i, s := range items {
				e.Items[i] = Status(s)
			}
		}
		return e
	}
	return err
}

func (c *queueCore) cancelAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.memory != nil {
			C.kvbm_queue_cancel(c.queue, p.memory.operation)
		}
	}
}

// timeoutOf gives the library the time that is left: the timeout of the options (0 = none), and that of ctx if it is
// sooner.
func timeoutOf(ctx context.Context, timeout time.Duration) C.uint64_t {
	left := C.uint64_t(forever)
	if timeout != 0 {
		left = C.uint64_t(max(timeout, 0))
	}
	if end, has := ctx.Deadline(); has {
		left = min(left, C.uint64_t(max(time.Until(end), 0)))
	}
	return left
}

// callUntil runs a call of the library's that waits and cannot be cancelled. When ctx ends first it is left to itself,
// on its own goroutine, until its timeout.
func callUntil(ctx context.Context, op string, h *handle, what string, call func() error) error {
	if ctx == nil {
		return invalid(op, "the context.Context is nil")
	}
	if err := h.enter(op, what); err != nil {
		return err
	}
	if ctx.Done() == nil {
		defer h.exit()
		return call()
	}
	if ctx.Err() != nil {
		h.exit()
		return ended(op, ctx)
	}
	result := make(chan error, 1)
	go func() {
		defer h.exit()
		result <- call()
	}()
	select {
	case err := <-result:
		if !errors.Is(err, ErrAgain) {
			return err
		}
		<-ctx.Done() // the library's clock was at the deadline first
	case <-ctx.Done():
	}
	return ended(op, ctx)
}

// submit starts an operation on a queue of the caller's.
func (o *operation) submit(q *Queue, userData uint64) (uint64, error) {
	if err := q.handle().enter(o.op, "queue"); err != nil {
		return 0, err
	}
	defer q.h.exit()
	runtime.LockOSThread() // for failHere
	defer runtime.UnlockOSThread()
	number, status := q.core.submit(o.items, o.memory, userData,
		func(memory *C.kvbmgo_pending_t, id C.uint64_t) C.kvbm_status_t {
			if memory == nil {
				return o.start(nil, nil, q.core.queue, id)
			}
			return o.start(C.kvbmgo_pending_status(memory), &memory.operation, q.core.queue, id)
		})
	return number, failHere(o.op, status)
}

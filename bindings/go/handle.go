// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A handle owns a pointer of the C library. The library counts references of its own, so what has to be counted here is
// the calls under way: the pointer is released when it was closed and no call uses it.
//
// Invariant: state is the calls under way, plus kept for every object that needs the pointer after Close, plus closed.
// The pointer is released once, under mu, when state is closed alone.
type handle struct {
	state   atomic.Int64
	what    string
	ptr     unsafe.Pointer
	release func(unsafe.Pointer)

	mu   sync.Mutex
	idle *sync.Cond // made by the first Close that has to wait
	gone bool
}

const (
	handleKept   = int64(1) << 24
	handleClosed = int64(1) << 62
	handleCalls  = handleKept - 1
)

// Live handles, for the tests that look for leaks.
var liveHandles atomic.Int64

// newHandle takes ownership of a pointer. The finalizer releases objects that were not closed. Releasing may wait for
// operations, which the goroutine of finalizers must not do.
func newHandle(what string, ptr unsafe.Pointer, release func(unsafe.Pointer)) *handle {
	h := &handle{what: what, ptr: ptr, release: release}
	liveHandles.Add(1)
	runtime.SetFinalizer(h, func(h *handle) { go h.close() })
	return h
}

func errClosed(op, what string) error {
	return &Error{Op: op, Status: StatusInvalid, Message: "the " + what + " was closed", cause: fs.ErrClosed}
}

func errNil(op, what string) error {
	return &Error{Op: op, Status: StatusInvalid, Message: "the " + what + " is nil"}
}

// enter begins a call; exit must follow unless it fails. Because exit follows, the object is not collected meanwhile.
func (h *handle) enter(op, what string) error {
	if h == nil {
		return errNil(op, what)
	}
	if h.state.Add(1) >= handleClosed {
		h.exit()
		return errClosed(op, what)
	}
	return nil
}

func (h *handle) exit() {
	if s := h.state.Add(-1); s >= handleClosed && s&handleCalls == 0 {
		h.settle()
	}
}

// keep makes the pointer outlive Close until unkeep. Use it only during a call, or while it is kept already.
func (h *handle) keep() { h.state.Add(handleKept) }

func (h *handle) unkeep() {
	if h.state.Add(-handleKept) == handleClosed {
		h.settle()
	}
}

// settle releases the pointer if it is unused, and wakes waiters in close.
func (h *handle) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone && h.state.Load() == handleClosed {
		h.gone = true
		h.release(h.ptr)
		liveHandles.Add(-1)
	}
	if h.idle != nil {
		h.idle.Broadcast()
	}
}

// close ends the object. It returns when no call is under way and, unless something keeps it, the pointer was released.
func (h *handle) close() {
	for {
		s := h.state.Load()
		if s >= handleClosed {
			break
		}
		if h.state.CompareAndSwap(s, s+handleClosed) {
			runtime.SetFinalizer(h, nil)
			break
		}
	}
	h.settle()
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.state.Load()&handleCalls != 0 {
		if h.idle == nil {
			h.idle = sync.NewCond(&h.mu)
		}
		h.idle.Wait()
	}
}

func (h *handle) closed() bool { return h.state.Load() >= handleClosed }

// Two handles of one call.
func enterBoth(op string, a *handle, whatA string, b *handle, whatB string) error {
	if err := a.enter(op, whatA); err != nil {
		return err
	}
	if err := b.enter(op, whatB); err != nil {
		a.exit()
		return err
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// Op is what a completion is of.
type Op int32

// The operations of kvbm.h.
const (
	OpStore    Op = C.KVBM_OP_STORE
	OpLoad     Op = C.KVBM_OP_LOAD
	OpPrefetch Op = C.KVBM_OP_PREFETCH
	OpOffload  Op = C.KVBM_OP_OFFLOAD
	OpOffer    Op = C.KVBM_OP_OFFER
	OpReceive  Op = C.KVBM_OP_RECEIVE
	OpLayer    Op = C.KVBM_OP_LAYER
)

// Completion is what became of one accepted submission.
type Completion struct {
	UserData  uint64 // as given at submit
	Operation uint64 // as returned by submit
	Op        Op
	Status    Status // StatusOK, StatusPartial, or why nothing was done
	ItemsDone uint64 // blocks done
	ItemCount uint64 // blocks asked for
	Bytes     uint64 // payload bytes moved
	Waited    time.Duration
	Service   time.Duration
	Items     []Status // of a store or load: the status of each item
}

// Err returns nil for StatusOK, a *PartialError or an *Error.
func (c *Completion) Err() error { return c.err("Completion", nil) }

func (c *Completion) err(op string, cause error) error {
	if c.Status == StatusPartial {
		return &PartialError{Op: op, Items: c.Items, cause: cause}
	}
	if c.Status < 0 {
		return &Error{Op: op, Status: c.Status, Message: c.Status.Text(), cause: cause}
	}
	return nil
}

// A Queue takes submissions and gives a completion for each. Its memory for what is under way is its own: a queue that
// is closed cancels its stores and loads and waits for them first.
type Queue struct {
	h    *handle
	core *queueCore
}

// An accepted submission with a completion that was not polled yet.
type pendingOperation struct {
	userData uint64
	memory   *C.kvbmgo_pending_t // nil: the library writes nothing but the completion
	items    int
}

type queueCore struct {
	queue  *C.kvbm_queue_t
	poller *poller

	// Held while something is taken from the library and while looking at entries that were put aside before. So entries
	// are taken in the order in which they came.
	taking sync.Mutex

	mu      sync.Mutex
	pending map[uint64]*pendingOperation
	next    uint64
	// Entries taken from the library because they kept the descriptor readable during a wait for the other kind.
	completions []Completion
	events      []Event
}

// NewQueue makes a queue for at most depth operations in flight, 1 to 65,536.
func (c *Context) NewQueue(depth int) (*Queue, error) {
	const op = "Context.NewQueue"
	if err := c.handle().enter(op, "context"); err != nil {
		return nil, err
	}
	defer c.h.exit()
	return newQueue(op, c.h, depth)
}

func newQueue(op string, owner *handle, depth int) (*Queue, error) {
	if depth < 1 || depth > 65536 {
		return nil, invalid(op, "depth is %d; it is 1 to 65,536", depth)
	}
	var out *C.kvbm_queue_t
	var detail C.kvbm_error_t
	status := C.kvbm_queue_create((*C.kvbm_context_t)(owner.ptr), C.uint32_t(depth), &out, &detail)
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	p, err := newPoller(int(C.kvbm_queue_fd(out)))
	if err != nil {
		C.kvbm_queue_release(out)
		return nil, &Error{Op: op, Status: StatusIO, Message: "the queue's descriptor: " + err.Error(), cause: err}
	}
	core := &queueCore{queue: out, poller: p, pending: map[uint64]*pendingOperation{}}
	owner.keep()
	q := &Queue{core: core}
	q.h = newHandle("queue", unsafe.Pointer(out), func(unsafe.Pointer) {
		core.drain()
		core.poller.close()
		C.kvbm_queue_release(core.queue)
		owner.unkeep()
	})
	return q, nil
}

func (q *Queue) handle() *handle {
	if q == nil {
		return nil
	}
	return q.h
}

// Close cancels the stores and loads of the queue, waits for them and ends the queue. Other operations still finish;
// their completions are dropped.
func (q *Queue) Close() error {
	if q != nil && q.h != nil {
		q.core.poller.interrupt()
		q.h.close()
	}
	return nil
}

// FD returns a descriptor that polls readable while completions or events wait. It is the queue's: do not read or close
// it. Wait needs no descriptor.
func (q *Queue) FD() (int, error) {
	const op = "Queue.FD"
	if err := q.handle().enter(op, "queue"); err != nil {
		return -1, err
	}
	defer q.h.exit()
	return int(C.kvbm_queue_fd(q.core.queue)), nil
}

// Poll takes completions that wait, up to len(out), and returns how many. It never waits.
func (q *Queue) Poll(out []Completion) (int, error) {
	const op = "Queue.Poll"
	if err := q.handle().enter(op, "queue"); err != nil {
		return 0, err
	}
	defer q.h.exit()
	return q.core.poll(out), nil
}

// Wait is Poll that waits for the first completion until ctx ends. The goroutine is parked in the network poller.
func (q *Queue) Wait(ctx context.Context, out []Completion) (int, error) {
	return q.wait(ctx, "Queue.Wait", len(out), func(c *queueCore) int { return c.poll(out) }, (*queueCore).putEventsAside)
}

// wait takes up to room entries of one kind as soon as there are any. A sleeping waiter puts aside entries of the other
// kind.
func (q *Queue) wait(ctx context.Context, op string, room int, take func(*queueCore) int,
	putOthersAside func(*queueCore)) (int, error) {
	if err := q.handle().enter(op, "queue"); err != nil {
		return 0, err
	}
	defer q.h.exit()
	if room == 0 {
		return 0, nil
	}
	n := 0
	ready := func() bool {
		n = take(q.core)
		return n > 0
	}
	switch q.core.poller.wait(ctx, ready, func() { putOthersAside(q.core) }) {
	case waitReady:
		return n, nil
	case waitInterrupted:
		return 0, errClosed(op, "queue")
	}
	return 0, ended(op, ctx)
}

// Cancel asks that an operation ends early. Its completion still comes, and until then its memory is in use. ErrStale if
// it has completed.
func (q *Queue) Cancel(operation uint64) error {
	const op = "Queue.Cancel"
	if err := q.handle().enter(op, "queue"); err != nil {
		return err
	}
	defer q.h.exit()
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_queue_cancel(q.core.queue, C.uint64_t(operation))
	})
}

// submit registers what an operation needs until its completion and starts it. call gets the pending operation, nil
// where the operation has none, and the number that its completion will carry.
func (c *queueCore) submit(items int, withMemory bool, userData uint64,
	call func(memory *C.kvbmgo_pending_t, id C.uint64_t) C.kvbm_status_t) (uint64, C.kvbm_status_t) {
	p := &pendingOperation{userData: userData, items: items}
	if withMemory {
		if p.memory = C.kvbmgo_pending_create(C.size_t(items)); p.memory == nil {
			return 0, C.KVBM_ERR_NO_MEMORY
		}
	}
	c.mu.Lock()
	c.next++
	id := c.next
	c.pending[id] = p
	c.mu.Unlock()
	status := call(p.memory, C.uint64_t(id))
	c.mu.Lock()
	defer c.mu.Unlock()
	if status < 0 {
		delete(c.pending, id)
		C.kvbmgo_pending_release(p.memory)
		return 0, status
	}
	// The completion may have been polled meanwhile, and the memory with it.
	if c.pending[id] == p && p.memory != nil {
		return uint64(p.memory.operation), status
	}
	return 0, status
}

// poll takes completions: those put aside first, they are older.
func (c *queueCore) poll(out []Completion) int {
	c.taking.Lock()
	defer c.taking.Unlock()
	c.mu.Lock()
	total := copy(out, c.completions)
	c.completions = append(c.completions[:0], c.completions[total:]...)
	c.mu.Unlock()
	var raw [16]C.kvbm_completion_t
	for total < len(out) {
		room := min(len(raw), len(out)-total)
		n := int(C.kvbm_queue_poll(c.queue, &raw[0], C.size_t(room)))
		for i := range raw[:n] {
			out[total+i] = c.take(&raw[i])
		}
		total += n
		if n < room {
			break
		}
	}
	return total
}

func (c *queueCore) putCompletionsAside() {
	c.taking.Lock()
	defer c.taking.Unlock()
	var out [16]Completion
	for {
		var raw [16]C.kvbm_completion_t
		n := int(C.kvbm_queue_poll(c.queue, &raw[0], C.size_t(len(raw))))
		if n == 0 {
			return
		}
		for i := range raw[:n] {
			out[i] = c.take(&raw[i])
		}
		c.mu.Lock()
		c.completions = append(c.completions, out[:n]...)
		c.mu.Unlock()
		c.poller.tell()
	}
}

// take turns a completion of the library into one of Go, and frees what the operation needed.
func (c *queueCore) take(raw *C.kvbm_completion_t) Completion {
	done := Completion{Operation: uint64(raw.operation), Op: Op(raw.op), Status: Status(raw.status),
		ItemsDone: uint64(raw.items_done), ItemCount: uint64(raw.items), Bytes: uint64(raw.bytes),
		Waited: time.Duration(raw.wait_ns), Service: time.Duration(raw.service_ns)}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := uint64(raw.user_data)
	p := c.pending[id]
	if p == nil {
		return done
	}
	done.UserData = p.userData
	if done.Op == OpLayer {
		return done // the session's own completion is still to come
	}
	delete(c.pending, id)
	if p.memory != nil {
		done.Items = make([]Status, p.items)
		copy(done.Items, unsafe.Slice((*Status)(C.kvbmgo_pending_status(p.memory)), p.items))
		C.kvbmgo_pending_release(p.memory)
	}
	return done
}

// drain cancels what the library still writes into memory of this queue, and waits for it.
func (c *queueCore) drain() {
	c.cancelAll()
	if !c.writing() {
		return
	}
	c.poller.finish(func() bool {
		c.putCompletionsAside()
		return !c.writing()
	}, c.putEventsAside)
}

// writing reports whether an operation is under way that the library gave memory of this queue to.
func (c *queueCore) writing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.memory != nil {
			return true
		}
	}
	return false
}

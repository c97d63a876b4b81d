// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import "context"

// EventKind is what happened to a block.
type EventKind int32

// The kinds of kvbm.h.
const (
	EventStored   EventKind = C.KVBM_EVENT_STORED
	EventRemoved  EventKind = C.KVBM_EVENT_REMOVED
	EventCleared  EventKind = C.KVBM_EVENT_CLEARED
	EventDisabled EventKind = C.KVBM_EVENT_DISABLED
)

// Event is a block that changed its place. A move between tiers is an EventStored in one and an EventRemoved in the
// other.
type Event struct {
	Sequence    uint64 // from 1, without gaps; a gap means that events were lost
	Kind        EventKind
	Tier        TierNumber
	NamespaceID ID
	Key         Key
	Parent      Key // zero = none or unknown
	Component   uint32
}

// As many as the library keeps for a slow reader.
const maxKeptEvents = 65536

// PollEvents takes block events that wait (see Manager.Subscribe), up to len(out), and returns how many. It never
// waits.
func (q *Queue) PollEvents(out []Event) (int, error) {
	const op = "Queue.PollEvents"
	if err := q.handle().enter(op, "queue"); err != nil {
		return 0, err
	}
	defer q.h.exit()
	return q.core.pollEvents(out), nil
}

// WaitEvents is PollEvents that waits for the first event until ctx ends.
func (q *Queue) WaitEvents(ctx context.Context, out []Event) (int, error) {
	return q.wait(ctx, "Queue.WaitEvents", len(out), func(c *queueCore) int { return c.pollEvents(out) },
		(*queueCore).putCompletionsAside)
}

func (c *queueCore) pollEvents(out []Event) int {
	c.taking.Lock()
	defer c.taking.Unlock()
	c.mu.Lock()
	total := copy(out, c.events)
	c.events = append(c.events[:0], c.events[total:]...)
	c.mu.Unlock()
	for total < len(out) {
		n := c.takeEvents(out[total:])
		if n == 0 {
			break
		}
		total += n
	}
	return total
}

func (c *queueCore) takeEvents(out []Event) int {
	var raw [16]C.kvbm_event_t
	n := int(C.kvbm_queue_poll_events(c.queue, &raw[0], C.size_t(min(len(raw), len(out)))))
	for i := range raw[:n] {
		e := &raw[i]
		out[i] = Event{Sequence: uint64(e.sequence), Kind: EventKind(e.kind), Tier: TierNumber(e.tier),
			NamespaceID: goID(e.namespace_id), Key: goKey(e.key), Parent: goKey(e.parent), Component: uint32(e.component)}
	}
	return n
}

// putEventsAside keeps events for the next reader, the newest of them.
func (c *queueCore) putEventsAside() {
	c.taking.Lock()
	defer c.taking.Unlock()
	var out [16]Event
	for {
		n := c.takeEvents(out[:])
		if n == 0 {
			return
		}
		c.mu.Lock()
		c.events = append(c.events, out[:n]...)
		if extra := len(c.events) - maxKeptEvents; extra > 0 {
			c.events = append(c.events[:0], c.events[extra:]...)
		}
		c.mu.Unlock()
		c.poller.tell()
	}
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"
)

// A Pin keeps blocks resident; 0 is none.
type Pin uint64

// Prefetch brings blocks up into the host tier so that a later load is quick. Keys that are nowhere are ignored. part
// nil = component 0, whole model. When ctx ends first the call returns, and the prefetch ends by itself.
func (m *Manager) Prefetch(ctx context.Context, ns *Namespace, part *Part, keys []Key) error {
	const op = "Manager.Prefetch"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return err
	}
	defer m.h.exit()
	defer ns.h.exit()
	return m.prefetchOperation(op, ns, part, keys).run(ctx, m.core)
}

// SubmitPrefetch is Prefetch that does not wait: its completion comes to q, with userData.
func (m *Manager) SubmitPrefetch(q *Queue, ns *Namespace, part *Part, keys []Key, userData uint64) error {
	const op = "Manager.SubmitPrefetch"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return err
	}
	defer m.h.exit()
	defer ns.h.exit()
	_, err := m.prefetchOperation(op, ns, part, keys).submit(q, userData)
	return err
}

func (m *Manager) prefetchOperation(op string, ns *Namespace, part *Part, keys []Key) *operation {
	return &operation{op: op, items: len(keys),
		start: func(_ *C.kvbm_status_t, _ *C.uint64_t, queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
			in, n := keysOf(keys)
			return C.kvbm_manager_prefetch(m.c(), ns.c(), partOf(part), in, n, queue, id)
		}}
}

// Offload copies host blocks to a tier (1 = the first below) now, whatever its admission says. It returns when they are
// there. When ctx ends first the call returns, and the offload ends by itself.
func (m *Manager) Offload(ctx context.Context, ns *Namespace, part *Part, keys []Key, tier uint32) error {
	const op = "Manager.Offload"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return err
	}
	defer m.h.exit()
	defer ns.h.exit()
	return m.offloadOperation(op, ns, part, keys, tier).run(ctx, m.core)
}

// SubmitOffload is Offload that does not wait: its completion comes to q, with userData.
func (m *Manager) SubmitOffload(q *Queue, ns *Namespace, part *Part, keys []Key, tier uint32, userData uint64) error {
	const op = "Manager.SubmitOffload"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return err
	}
	defer m.h.exit()
	defer ns.h.exit()
	_, err := m.offloadOperation(op, ns, part, keys, tier).submit(q, userData)
	return err
}

func (m *Manager) offloadOperation(op string, ns *Namespace, part *Part, keys []Key, tier uint32) *operation {
	return &operation{op: op, items: len(keys),
		start: func(_ *C.kvbm_status_t, _ *C.uint64_t, queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
			in, n := keysOf(keys)
			return C.kvbm_manager_offload(m.c(), ns.c(), partOf(part), in, n, C.uint32_t(tier), queue, id)
		}}
}

// Drop forgets blocks in every tier and returns how many were in the host tier.
func (m *Manager) Drop(ns *Namespace, part *Part, keys []Key) (int, error) {
	const op = "Manager.Drop"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return 0, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	in, n := keysOf(keys)
	var dropped C.size_t
	err := told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_drop(m.c(), ns.c(), partOf(part), in, n, &dropped)
	})
	return int(dropped), err
}

// Hint tells the policies what is known of blocks. Absent keys are ignored.
func (m *Manager) Hint(ns *Namespace, part *Part, keys []Key, priority Priority) error {
	const op = "Manager.Hint"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return err
	}
	defer m.h.exit()
	defer ns.h.exit()
	in, n := keysOf(keys)
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_hint(m.c(), ns.c(), partOf(part), in, n, C.uint32_t(priority))
	})
}

// Pin keeps host blocks resident for owner until timeout has passed (0 = for ever) or Unpin. The leading keys that are
// there are pinned; the result says how many; with 0 the pin is 0.
func (m *Manager) Pin(ns *Namespace, part *Part, keys []Key, owner uint64, timeout time.Duration) (Pin, int, error) {
	ns64 := uint64(forever)
	if timeout != 0 {
		ns64 = uint64(max(timeout, 0))
	}
	return m.pin(ns, part, keys, owner, ns64)
}

func (m *Manager) pin(ns *Namespace, part *Part, keys []Key, owner, timeoutNS uint64) (Pin, int, error) {
	const op = "Manager.Pin"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return 0, 0, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	in, n := keysOf(keys)
	var out C.kvbm_pin_t
	var pinned C.size_t
	err := told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_pin(m.c(), ns.c(), partOf(part), in, n, C.uint64_t(owner), C.uint64_t(timeoutNS), &out,
			&pinned)
	})
	return Pin(out), int(pinned), err
}

// Unpin ends a pin early. ErrStale if it has ended.
func (m *Manager) Unpin(pin Pin) error {
	const op = "Manager.Unpin"
	if err := m.handle().enter(op, "manager"); err != nil {
		return err
	}
	defer m.h.exit()
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_unpin(m.c(), C.kvbm_pin_t(pin))
	})
}

// UnpinOwner ends every pin of an owner, as when it has died, and returns how many there were.
func (m *Manager) UnpinOwner(owner uint64) (int, error) {
	const op = "Manager.UnpinOwner"
	if err := m.handle().enter(op, "manager"); err != nil {
		return 0, err
	}
	defer m.h.exit()
	var n C.size_t
	status := C.kvbm_manager_unpin_owner(m.c(), C.uint64_t(owner), &n)
	return int(n), fail(op, status)
}

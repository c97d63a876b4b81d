// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// The calls on holds, as kvbm.h has them. Blocks keeps holds so that they end once; here nothing does.

func holdsOf(holds []Hold) (*C.kvbm_block_t, C.size_t) {
	return (*C.kvbm_block_t)(unsafe.Pointer(unsafe.SliceData(holds))), C.size_t(len(holds))
}

// Holds that one call may ask for, 2 GiB of them. Go ends the program when it gets no memory for a slice.
const maxHolds = 1 << 28

func allocateHolds(op string, m *C.kvbm_manager_t, ns *C.kvbm_namespace_t, n int, evicted []Key) ([]Hold, int, error) {
	if n < 0 || n > maxHolds {
		return nil, 0, invalid(op, "the number of blocks is %d", n)
	}
	holds := make([]Hold, n)
	out, count := holdsOf(holds)
	keys, capacity := keysOf(evicted)
	var nEvicted C.size_t
	_, err := toldStatus(op, func() C.kvbm_status_t {
		return C.kvbm_manager_allocate(m, ns, count, out, keys, capacity, &nEvicted)
	})
	if err != nil {
		return nil, int(nEvicted), err
	}
	return holds, int(nEvicted), nil
}

func completeHolds(op string, m *C.kvbm_manager_t, holds []Hold, bytes []uint64) error {
	in, count := holdsOf(holds)
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_manager_complete(m, in, count, (*C.uint64_t)(unsafe.SliceData(bytes)))
	})
}

func registerHolds(op string, m *C.kvbm_manager_t, ns *C.kvbm_namespace_t, holds []Hold, keys []Key,
	o *RegisterOptions) ([]Status, error) {
	if len(keys) != len(holds) {
		return nil, invalid(op, "there are %d keys for %d blocks", len(keys), len(holds))
	}
	if o == nil {
		o = &RegisterOptions{}
	}
	if o.Positions != nil && len(o.Positions) != len(holds) {
		return nil, invalid(op, "there are %d positions for %d blocks", len(o.Positions), len(holds))
	}
	items := make([]Status, len(holds))
	inout, count := holdsOf(holds)
	in, _ := keysOf(keys)
	_, err := toldStatus(op, func() C.kvbm_status_t {
		return C.kvbmgo_register(m, ns, inout, in, count, C.uint32_t(o.Duplicates), partOf(o.Part),
			(*C.kvbm_key_t)(unsafe.Pointer(o.Parent)), bit(o.Unchained), C.uint32_t(o.Priority),
			positionsOf(o.Positions), statusesOf(items))
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// A rawView is a kvbm_view_t, as memory that Go knows no pointers in: what is in it are the library's, and cgo would
// look at each of them at every call.
type rawView [3]uint64

func viewHolds(op string, m *C.kvbm_manager_t, holds []Hold, out []rawView) error {
	in, count := holdsOf(holds)
	return fail(op, C.kvbm_block_view(m, in, count, (*C.kvbm_view_t)(unsafe.Pointer(unsafe.SliceData(out)))))
}

// viewsOf gives the memory of holds, none of which is 0.
func viewsOf(op string, m *C.kvbm_manager_t, holds []Hold) ([]View, error) {
	raw := make([]rawView, len(holds))
	if err := viewHolds(op, m, holds, raw); err != nil {
		return nil, err
	}
	views := make([]View, len(holds))
	for i := range raw {
		views[i] = viewOf(&raw[i])
	}
	return views, nil
}

func viewOf(raw *rawView) View {
	v := (*C.kvbm_view_t)(unsafe.Pointer(raw))
	return View{unsafe.Slice((*byte)(v.data), int(v.bytes)), uint64(v.slot)}
}

func releaseHolds(op string, m *C.kvbm_manager_t, holds []Hold) error {
	if len(holds) == 0 {
		return nil
	}
	in, count := holdsOf(holds)
	return fail(op, C.kvbm_block_release(m, in, count))
}

func cloneHolds(op string, m *C.kvbm_manager_t, holds []Hold) ([]Hold, error) {
	made := make([]Hold, len(holds))
	in, count := holdsOf(holds)
	out, _ := holdsOf(made)
	return made, fail(op, C.kvbm_block_clone(m, in, count, out))
}

func downgradeHolds(op string, m *C.kvbm_manager_t, holds []Hold) ([]Hold, error) {
	made := make([]Hold, len(holds))
	in, count := holdsOf(holds)
	out, _ := holdsOf(made)
	return made, fail(op, C.kvbm_block_downgrade(m, in, count, out))
}

func upgradeHolds(op string, m *C.kvbm_manager_t, holds []Hold) ([]Hold, error) {
	made := make([]Hold, len(holds))
	in, count := holdsOf(holds)
	out, _ := holdsOf(made)
	return made, fail(op, C.kvbm_block_upgrade(m, in, count, out))
}

func statusesOf(items []Status) *C.kvbm_status_t {
	return (*C.kvbm_status_t)(unsafe.Pointer(unsafe.SliceData(items)))
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// LookupMode is what a lookup looks for.
type LookupMode uint32

// The modes of kvbm.h.
const (
	LookupPrefix LookupMode = C.KVBM_LOOKUP_PREFIX // the longest prefix
	LookupEach   LookupMode = C.KVBM_LOOKUP_EACH   // each key by itself
	LookupAny    LookupMode = C.KVBM_LOOKUP_ANY    // the first that is there
)

// NoTier is the tier of a key that missed.
const NoTier TierNumber = 1<<32 - 1

// LookupOptions is how blocks are looked up; nil and the zero value are the defaults.
type LookupOptions struct {
	Mode     LookupMode
	Parts    []Part // parts that a hit needs; nil = component 0, whole model. Not for Cache.Lookup
	HostOnly bool   // look in the host tier alone
	NoUse    bool   // do not count as a use
	// UnitKeys, for LookupPrefix, are the keys of the prompt's engine blocks from its start.
	UnitKeys []Key
	// AskNodes asks other nodes for keys that are nowhere here, and waits so long for their answers. 0 = no.
	AskNodes time.Duration
}

// A Match holds what a lookup found until it is closed. nil is the match of a lookup that found nothing: its methods
// say so.
type Match struct {
	h       *handle
	manager *handle
	hits    int
	units   int
}

// MatchItem is what is known of one key of a match.
type MatchItem struct {
	Tier        TierNumber // the slowest tier that a part of it must come from; NoTier = missed
	PartsNeeded uint32     // bit i: part i is needed and there
	Bytes       uint64     // payload bytes to move for it
	BelowBytes  uint64     // part of Bytes that is not in the host tier yet
}

// Lookup finds blocks in every tier. What it finds is held by the match; close it.
func (m *Manager) Lookup(ns *Namespace, keys []Key, o *LookupOptions) (*Match, error) {
	const op = "Manager.Lookup"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	return lookup(op, m.h, m.c(), nil, ns.c(), keys, o)
}

func lookup(op string, manager *handle, m *C.kvbm_manager_t, cache *C.kvbm_cache_t, ns *C.kvbm_namespace_t, keys []Key,
	o *LookupOptions) (*Match, error) {
	var none LookupOptions
	if o == nil {
		o = &none
	}
	if o.AskNodes < 0 {
		return nil, invalid(op, "AskNodes is negative")
	}
	in, n := keysOf(keys)
	unitKeys, nUnitKeys := keysOf(o.UnitKeys)
	var out *C.kvbm_match_t
	var hits, units C.size_t
	_, err := toldStatus(op, func() C.kvbm_status_t {
		return C.kvbmgo_lookup(m, cache, ns, in, n, C.uint32_t(o.Mode), bit(o.HostOnly), bit(o.NoUse),
			partsOf(o.Parts), C.size_t(len(o.Parts)), unitKeys, nUnitKeys, C.uint64_t(o.AskNodes), &out, &hits, &units)
	})
	if err != nil {
		return nil, err
	}
	if out == nil {
		return nil, nil
	}
	manager.keep()
	return &Match{manager: manager, hits: int(hits), units: int(units),
		h: newHandle("match", unsafe.Pointer(out), func(p unsafe.Pointer) {
			C.kvbm_match_release((*C.kvbm_match_t)(p))
			manager.unkeep()
		})}, nil
}

func (m *Match) handle() *handle {
	if m == nil {
		return nil
	}
	return m.h
}

// c is nil of a match of nothing, which is nil.
func (m *Match) c() *C.kvbm_match_t {
	if m == nil {
		return nil
	}
	return (*C.kvbm_match_t)(m.h.ptr)
}

func (m *Match) exit() {
	if m != nil {
		m.h.exit()
	}
}

// Close releases the blocks held by the match. Loads that were submitted with it go on.
func (m *Match) Close() error {
	if m != nil && m.h != nil {
		m.h.close()
	}
	return nil
}

// Hits returns the number of leading keys that hit (LookupPrefix), of those that hit at all (LookupEach), or 0 or 1
// (LookupAny).
func (m *Match) Hits() int {
	if m == nil {
		return 0
	}
	return m.hits
}

// Units returns the leading engine blocks that hit, those of a stored block that matches in part included.
func (m *Match) Units() int {
	if m == nil {
		return 0
	}
	return m.units
}

// Count returns the number of keys the match was made from.
func (m *Match) Count() int {
	if m == nil || m.h.enter("Match.Count", "match") != nil {
		return 0
	}
	defer m.h.exit()
	return int(C.kvbm_match_count(m.c()))
}

// Items says what is known of keys [first, first+n).
func (m *Match) Items(first, n int) ([]MatchItem, error) {
	const op = "Match.Items"
	if err := m.enterRange(op, first, n); err != nil {
		return nil, err
	}
	defer m.h.exit()
	raw := make([]C.kvbm_match_item_t, n)
	_, err := toldStatus(op, func() C.kvbm_status_t {
		return C.kvbm_match_items(m.c(), C.size_t(first), C.size_t(n), unsafe.SliceData(raw))
	})
	if err != nil {
		return nil, err
	}
	items := make([]MatchItem, n)
	for i, r := range raw {
		items[i] = MatchItem{TierNumber(r.tier), uint32(r.parts_needed), uint64(r.bytes), uint64(r.below_bytes)}
	}
	return items, nil
}

// Cost predicts loads: element i is how long loading keys [first, first+i] would take from now on.
func (m *Match) Cost(first, n int) ([]time.Duration, error) {
	const op = "Match.Cost"
	if err := m.enterRange(op, first, n); err != nil {
		return nil, err
	}
	defer m.h.exit()
	raw := make([]C.uint64_t, n)
	if err := told(op, func() C.kvbm_status_t {
		return C.kvbm_match_cost(m.c(), C.size_t(first), C.size_t(n), unsafe.SliceData(raw))
	}); err != nil {
		return nil, err
	}
	times := make([]time.Duration, n)
	for i, ns := range raw {
		times[i] = time.Duration(ns)
	}
	return times, nil
}

// Blocks makes holds on part `part` (0 unless the lookup had several) of keys [first, first+n). A block that is not in
// the host tier is not there (Blocks.Has); Manager.Prefetch brings it up.
func (m *Match) Blocks(part uint32, first, n int) (*Blocks, error) {
	const op = "Match.Blocks"
	if err := m.enterRange(op, first, n); err != nil {
		return nil, err
	}
	defer m.h.exit()
	holds, err := m.blockHolds(op, part, first, n)
	if err != nil {
		return nil, err
	}
	return &Blocks{newHoldSet(m.manager, holds)}, nil
}

func (m *Match) blockHolds(op string, part uint32, first, n int) ([]Hold, error) {
	holds := make([]Hold, n)
	out, count := holdsOf(holds)
	return holds, told(op, func() C.kvbm_status_t {
		return C.kvbm_match_blocks(m.c(), C.uint32_t(part), C.size_t(first), count, out)
	})
}

func (m *Match) enterRange(op string, first, n int) error {
	if err := m.handle().enter(op, "match"); err != nil {
		return err
	}
	if count := int(C.kvbm_match_count(m.c())); first < 0 || n < 0 || first > count || n > count-first {
		m.h.exit()
		return invalid(op, "keys [%d, %d) of %d", first, first+n, count)
	}
	return nil
}

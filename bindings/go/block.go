// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"slices"
	"sync"
)

// Priority is what is known of a block's future use.
type Priority uint32

// The priorities of kvbm.h.
const (
	PriorityNormal    Priority = C.KVBM_PRIORITY_NORMAL
	PriorityOneShot   Priority = C.KVBM_PRIORITY_ONE_SHOT
	PriorityContinues Priority = C.KVBM_PRIORITY_CONTINUES
	PriorityKeep      Priority = C.KVBM_PRIORITY_KEEP
)

// Duplicates selects the treatment of a block with a key that exists already.
type Duplicates uint32

// The choices of kvbm.h.
const (
	DuplicatesReuse Duplicates = C.KVBM_DUPLICATE_REUSE // the block that is there is given, and yours is freed
	DuplicatesKeep  Duplicates = C.KVBM_DUPLICATE_KEEP  // yours stays private until released
)

// RegisterOptions is how blocks are registered; nil and the zero value are the defaults.
type RegisterOptions struct {
	Duplicates Duplicates
	Part       *Part // nil = component 0, whole model
	Parent     *Key  // key before the first; nil = none
	Unchained  bool  // keys are not a prefix in order; blocks have no parents
	Priority   Priority
	Positions  []Position // where each block was computed; content keys only
}

// A Hold names a hold on a block, not the block; 0 is none.
type Hold uint64

// View is the memory of a block.
type View struct {
	// Data is the block's memory itself. It may be read while the Blocks that gave it are not closed, and written only
	// while the block is neither complete nor shared.
	Data []byte
	Slot uint64 // position in the host tier, stable while held
}

// Blocks is a batch of holds on blocks of a manager's pool. It keeps the manager's memory until it is closed, also where
// the manager is closed before. Views do not keep it: close Blocks yourself, after the last use of a view, or the
// garbage collector may do it too early.
type Blocks struct{ set *holdSet }

// WeakBlocks is a batch of references that do not keep their blocks.
type WeakBlocks struct{ set *holdSet }

type holdSet struct {
	mu      sync.Mutex
	manager *handle
	holds   []Hold    // 0 where there is none
	views   []rawView // kept for the next time
	closed  bool
}

// newHoldSet takes holds over. Only in a call of the manager's, or by a set of it.
func newHoldSet(manager *handle, holds []Hold) *holdSet {
	s := &holdSet{manager: manager, holds: holds}
	manager.keep()
	runtime.SetFinalizer(s, func(s *holdSet) { go s.close() })
	liveHandles.Add(1)
	return s
}

func (s *holdSet) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	runtime.SetFinalizer(s, nil)
	err := releaseHolds("Blocks.Close", s.c(), s.present())
	s.manager.unkeep()
	liveHandles.Add(-1)
	return err
}

// enter locks the set for a call; mu.Unlock must follow unless it fails.
func (s *holdSet) enter(op string) error {
	if s == nil {
		return errNil(op, "set of blocks")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed(op, "set of blocks")
	}
	return nil
}

func (s *holdSet) c() *C.kvbm_manager_t { return (*C.kvbm_manager_t)(s.manager.ptr) }

// present returns the holds that are not 0.
func (s *holdSet) present() []Hold {
	for i, h := range s.holds {
		if h == 0 {
			some := append([]Hold(nil), s.holds[:i]...)
			for _, h := range s.holds[i:] {
				if h != 0 {
					some = append(some, h)
				}
			}
			return some
		}
	}
	return s.holds
}

// derive makes new holds of those that are present, each at its place.
func (s *holdSet) derive(op string, call func(op string, m *C.kvbm_manager_t, in []Hold) ([]Hold, error)) (*holdSet,
	error) {
	if err := s.enter(op); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	made, err := call(op, s.c(), s.present())
	if err != nil {
		return nil, err
	}
	if len(made) < len(s.holds) {
		spread := make([]Hold, len(s.holds))
		next := 0
		for i, h := range s.holds {
			if h != 0 {
				spread[i] = made[next]
				next++
			}
		}
		made = spread
	}
	return newHoldSet(s.manager, made), nil
}

func (s *holdSet) count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds)
}

func (s *holdSet) has(i int) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && i >= 0 && i < len(s.holds) && s.holds[i] != 0
}

// Allocate takes n new blocks, all or none, evicting what nothing holds if need be. Their bytes are undefined.
func (m *Manager) Allocate(ns *Namespace, n int) (*Blocks, error) {
	blocks, _, err := m.AllocateEvicting(ns, n, nil)
	return blocks, err
}

// AllocateEvicting is Allocate that says what was evicted: keys are written to evicted as far as it goes; nEvicted
// counts them all.
func (m *Manager) AllocateEvicting(ns *Namespace, n int, evicted []Key) (blocks *Blocks, nEvicted int, err error) {
	const op = "Manager.Allocate"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return nil, 0, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	holds, nEvicted, err := allocateHolds(op, m.c(), ns.c(), n, evicted)
	if err != nil {
		return nil, nEvicted, err
	}
	return &Blocks{newHoldSet(m.h, holds)}, nEvicted, nil
}

// Close ends the holds. Blocks that are not registered go back to the pool; registered ones stay findable and become
// evictable with their last hold.
func (b *Blocks) Close() error {
	if b == nil {
		return nil
	}
	return b.set.close()
}

func (b *Blocks) inner() *holdSet {
	if b == nil {
		return nil
	}
	return b.set
}

// Len returns the number of blocks, those that are not there included.
func (b *Blocks) Len() int { return b.inner().count() }

// Has reports whether block i is there: of a match, whether it is in the host tier; of weak blocks, whether it still is.
func (b *Blocks) Has(i int) bool { return b.inner().has(i) }

// Views returns the memory of the blocks; an empty view where a block is not there. Nothing is copied.
func (b *Blocks) Views() ([]View, error) { return b.AppendViews(nil) }

// AppendViews is Views that appends to a slice of the caller's.
func (b *Blocks) AppendViews(to []View) ([]View, error) {
	const op = "Blocks.Views"
	s := b.inner()
	if err := s.enter(op); err != nil {
		return to, err
	}
	defer s.mu.Unlock()
	held := s.present()
	if cap(s.views) < len(held) {
		s.views = make([]rawView, len(held))
	}
	raw := s.views[:len(held)]
	if err := viewHolds(op, s.c(), held, raw); err != nil {
		return to, err
	}
	first := len(to)
	to = slices.Grow(to, len(s.holds))[:first+len(s.holds)]
	out := to[first:]
	if len(held) == len(out) { // the common case, and that which has to be quick
		for i := range raw {
			out[i] = viewOf(&raw[i])
		}
		return to, nil
	}
	for i, h := range s.holds {
		out[i] = View{}
		if h != 0 {
			out[i] = viewOf(&raw[0])
			raw = raw[1:]
		}
	}
	return to, nil
}

// Complete says that the bytes are final. bytes has the payload length of each block, nil = all of it. All or none.
func (b *Blocks) Complete(bytes []uint64) error {
	const op = "Blocks.Complete"
	s := b.inner()
	if err := s.enter(op); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if bytes != nil && len(bytes) != len(s.holds) {
		return invalid(op, "there are %d lengths for %d blocks", len(bytes), len(s.holds))
	}
	return completeHolds(op, s.c(), s.holds, bytes)
}

// Register makes complete blocks findable by key, and read-only. The result has StatusOK for each, or StatusExists where
// the key was there already.
func (b *Blocks) Register(ns *Namespace, keys []Key, o *RegisterOptions) ([]Status, error) {
	const op = "Blocks.Register"
	s := b.inner()
	if err := s.enter(op); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := ns.handle().enter(op, "namespace"); err != nil {
		return nil, err
	}
	defer ns.h.exit()
	return registerHolds(op, s.c(), ns.c(), s.holds, keys, o)
}

// Clone makes one more hold on each (registered blocks only).
func (b *Blocks) Clone() (*Blocks, error) {
	set, err := b.inner().derive("Blocks.Clone", cloneHolds)
	if err != nil {
		return nil, err
	}
	return &Blocks{set}, nil
}

// Downgrade makes weak references.
func (b *Blocks) Downgrade() (*WeakBlocks, error) {
	set, err := b.inner().derive("Blocks.Downgrade", downgradeHolds)
	if err != nil {
		return nil, err
	}
	return &WeakBlocks{set}, nil
}

// Take moves the holds on blocks [from, to) into a set of their own.
func (b *Blocks) Take(from, to int) (*Blocks, error) {
	const op = "Blocks.Take"
	s := b.inner()
	if err := s.enter(op); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if from < 0 || to < from || to > len(s.holds) {
		return nil, invalid(op, "[%d, %d) of %d blocks", from, to, len(s.holds))
	}
	taken := append([]Hold(nil), s.holds[from:to]...)
	s.holds = append(s.holds[:from], s.holds[to:]...)
	return &Blocks{newHoldSet(s.manager, taken)}, nil
}

func (w *WeakBlocks) inner() *holdSet {
	if w == nil {
		return nil
	}
	return w.set
}

// Len returns the number of references.
func (w *WeakBlocks) Len() int { return w.inner().count() }

// Close ends the references.
func (w *WeakBlocks) Close() error { return w.inner().close() }

// Upgrade makes holds of what is still there; Blocks.Has says of which.
func (w *WeakBlocks) Upgrade() (*Blocks, error) {
	set, err := w.inner().derive("WeakBlocks.Upgrade", upgradeHolds)
	if err != nil {
		return nil, err
	}
	return &Blocks{set}, nil
}

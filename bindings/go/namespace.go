// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/hex"
	"unsafe"
)

// ID is 16 bytes that name a namespace or a node.
type ID [16]byte

// String returns the bytes in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

func goID(c [16]C.uint8_t) ID { return *(*ID)(unsafe.Pointer(&c)) }

// QuotaMode is what a store does when the quota is used up.
type QuotaMode uint32

// The modes of kvbm.h.
const (
	QuotaEvict  QuotaMode = C.KVBM_QUOTA_EVICT
	QuotaReject QuotaMode = C.KVBM_QUOTA_REJECT
)

// NamespaceOptions is the scope of keys. Model must be set.
type NamespaceOptions struct {
	Tenant     string
	Model      string    // weights, revision, element type; what makes KV comparable
	Adapter    string    // LoRA and the like; "" = none
	Geometry   *Geometry // nil = opaque blocks
	Secret     []byte    // 32 bytes from the operator, never from a request; nil = zeroes (one tenant)
	Epoch      uint64    // at least this epoch; the tiers may know a higher one
	QuotaBytes uint64    // host bytes this namespace may use; 0 = as it is set, or none
	QuotaMode  QuotaMode
	Codec      string // how its records are coded where anything is, "default", "k:0-3=int8,default"; "" = as the tier codes
	AllowLossy bool   // blocks that were coded with loss are misses without it
	WeakHashes bool   // KeyFromHashes takes hashes of fewer than 16 bytes, for which others with equal hashes are easily found
}

// A Namespace is the scope of keys: tenant, model, adapter, geometry, epoch and a secret.
type Namespace struct {
	h     *handle
	units uint32 // engine blocks of a stored block
}

// OpenNamespace opens a namespace. The same options give the same namespace on every machine.
func (m *Manager) OpenNamespace(o *NamespaceOptions) (*Namespace, error) {
	const op = "Manager.OpenNamespace"
	if err := m.handle().enter(op, "manager"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	if o == nil {
		return nil, invalid(op, "a namespace has a model")
	}
	if o.Secret != nil && len(o.Secret) != 32 {
		return nil, invalid(op, "the secret has %d bytes; it has 32", len(o.Secret))
	}
	var names [4][]byte
	var err error
	for i, s := range []string{o.Tenant, o.Model, o.Adapter, o.Codec} {
		if names[i], err = text(op, [...]string{"Tenant", "Model", "Adapter", "Codec"}[i], s); err != nil {
			return nil, err
		}
	}
	ns := &Namespace{units: 1}
	var geometry *C.kvbm_geometry_t
	if o.Geometry != nil {
		if err := o.Geometry.h.enter(op, "geometry"); err != nil {
			return nil, err
		}
		defer o.Geometry.h.exit()
		geometry = (*C.kvbm_geometry_t)(o.Geometry.h.ptr)
		ns.units = o.Geometry.units
	}
	var out *C.kvbm_namespace_t
	var detail C.kvbm_error_t
	status := C.kvbmgo_namespace_open(m.c(), chars(names[0]), chars(names[1]), chars(names[2]), geometry,
		(*C.uint8_t)(unsafe.SliceData(o.Secret)), C.uint64_t(o.Epoch), C.uint64_t(o.QuotaBytes),
		C.uint32_t(o.QuotaMode), chars(names[3]), bit(o.AllowLossy), bit(o.WeakHashes), &out, &detail)
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	owner := m.h
	owner.keep()
	ns.h = newHandle("namespace", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_namespace_release((*C.kvbm_namespace_t)(p))
		owner.unkeep()
	})
	return ns, nil
}

func (n *Namespace) handle() *handle {
	if n == nil {
		return nil
	}
	return n.h
}

func (n *Namespace) c() *C.kvbm_namespace_t { return (*C.kvbm_namespace_t)(n.h.ptr) }

// Close ends the namespace's handle. Its blocks stay; opening it again finds them.
func (n *Namespace) Close() error {
	if n != nil && n.h != nil {
		n.h.close()
	}
	return nil
}

// ID returns the namespace's id, which changes with its epoch.
func (n *Namespace) ID() (ID, error) {
	const op = "Namespace.ID"
	if err := n.handle().enter(op, "namespace"); err != nil {
		return ID{}, err
	}
	defer n.h.exit()
	var id ID
	C.kvbm_namespace_id(n.c(), (*C.uint8_t)(&id[0]))
	return id, nil
}

// Invalidate makes every block stored so far unfindable, for good, in every tier. Keys made before do not match any
// more: make them again.
func (n *Namespace) Invalidate() error {
	const op = "Namespace.Invalidate"
	if err := n.handle().enter(op, "namespace"); err != nil {
		return err
	}
	defer n.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_namespace_invalidate(n.c(), &detail), &detail)
}

// Reset forgets this namespace's blocks in every tier; keys stay valid.
func (n *Namespace) Reset() error {
	const op = "Namespace.Reset"
	if err := n.handle().enter(op, "namespace"); err != nil {
		return err
	}
	defer n.h.exit()
	var detail C.kvbm_error_t
	return failWith(op, C.kvbm_namespace_reset(n.c(), &detail), &detail)
}

// SetQuota changes the quota, for every handle of the namespace; 0 = none. Lowering it evicts what nothing holds.
func (n *Namespace) SetQuota(bytes uint64, mode QuotaMode) error {
	const op = "Namespace.SetQuota"
	if err := n.handle().enter(op, "namespace"); err != nil {
		return err
	}
	defer n.h.exit()
	return told(op, func() C.kvbm_status_t {
		return C.kvbm_namespace_set_quota(n.c(), C.uint64_t(bytes), C.uint32_t(mode))
	})
}

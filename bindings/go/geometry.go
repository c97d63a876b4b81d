// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"math"
	"unsafe"
)

// Element is the type of a number in a cache.
type Element uint32

// The elements of kvbm.h.
const (
	ElementBytes   Element = C.KVBM_ELEMENT_BYTES
	ElementBF16    Element = C.KVBM_ELEMENT_BF16
	ElementFP16    Element = C.KVBM_ELEMENT_FP16
	ElementFP32    Element = C.KVBM_ELEMENT_FP32
	ElementFP8E4M3 Element = C.KVBM_ELEMENT_FP8_E4M3
	ElementFP8E5M2 Element = C.KVBM_ELEMENT_FP8_E5M2
	ElementInt8    Element = C.KVBM_ELEMENT_INT8
)

// ComponentKind is what kind of state a component is.
type ComponentKind uint32

// The kinds of kvbm.h.
const (
	ComponentAttention ComponentKind = C.KVBM_COMPONENT_ATTENTION // K and V of every token
	ComponentWindow    ComponentKind = C.KVBM_COMPONENT_WINDOW    // K and V; only the last window's tokens matter
	ComponentLatent    ComponentKind = C.KVBM_COMPONENT_LATENT    // one latent row per token
	ComponentState     ComponentKind = C.KVBM_COMPONENT_STATE     // a recurrent state; only the last block's matters
)

// Component is one component of the model, whole: all layers and heads, before sharding.
type Component struct {
	Kind         ComponentKind
	Element      Element // ElementBytes for state
	Layers       uint32  // layers that have this component
	Heads        uint32  // KV heads in all; 1 for latent and state
	HeadDim      uint32  // elements of a head's row; the latent's width; 0 for state
	WindowTokens uint32  // ComponentWindow only
	StateBytes   uint64  // ComponentState only: bytes per layer and block
}

// Shard is which layers and heads of a component a record holds. The zero value is all of them.
type Shard struct {
	FirstLayer, Layers, FirstHead, Heads uint16
	Replicated                           bool // every rank of the group holds the same
}

// Part is what part of a namespace's records a call means. The zero value is component 0 of the whole model.
type Part struct {
	Component uint32
	Shard     Shard
}

func (s Shard) c() C.kvbm_shard_t {
	return C.kvbm_shard_t{first_layer: C.uint16_t(s.FirstLayer), layers: C.uint16_t(s.Layers),
		first_head: C.uint16_t(s.FirstHead), heads: C.uint16_t(s.Heads), replicated: C.uint16_t(bit(s.Replicated))}
}

func (p Part) c() C.kvbm_part_t {
	return C.kvbm_part_t{component: C.uint32_t(p.Component), shard: p.Shard.c()}
}

// partOf gives C's NULL for a part that is not given, which means the same as the zero value.
func partOf(p *Part) *C.kvbm_part_t {
	if p == nil {
		return nil
	}
	c := p.c()
	return &c
}

func partsOf(parts []Part) *C.kvbm_part_t {
	if len(parts) == 0 {
		return nil
	}
	list := make([]C.kvbm_part_t, len(parts))
	for i, p := range parts {
		list[i] = p.c()
	}
	return &list[0]
}

// A Geometry is the facts of a model that make its KV comparable, and the tokens of one engine block.
type Geometry struct {
	h     *handle
	units uint32
}

// NewGeometry makes a geometry. units engine blocks make one stored block.
func NewGeometry(tokensPerBlock, units uint32, components []Component) (*Geometry, error) {
	const op = "NewGeometry"
	if err := checkLibrary(op); err != nil {
		return nil, err
	}
	list := make([]C.kvbm_component_t, len(components))
	for i, c := range components {
		list[i] = C.kvbm_component_t{kind: C.uint32_t(c.Kind), element: C.uint32_t(c.Element),
			layers: C.uint32_t(c.Layers), heads: C.uint32_t(c.Heads), head_dim: C.uint32_t(c.HeadDim),
			window_tokens: C.uint32_t(c.WindowTokens), state_bytes: C.uint64_t(c.StateBytes)}
	}
	var out *C.kvbm_geometry_t
	var detail C.kvbm_error_t
	status := C.kvbm_geometry_create(C.uint32_t(tokensPerBlock), C.uint32_t(units), unsafe.SliceData(list),
		C.size_t(len(list)), &out, &detail)
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	return &Geometry{units: units, h: newHandle("geometry", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_geometry_release((*C.kvbm_geometry_t)(p))
	})}, nil
}

func (g *Geometry) handle() *handle {
	if g == nil {
		return nil
	}
	return g.h
}

// Close ends the geometry; namespaces that were opened with it keep it.
func (g *Geometry) Close() error {
	if g != nil && g.h != nil {
		g.h.close()
	}
	return nil
}

// Fingerprint returns the number that is part of a namespace's id.
func (g *Geometry) Fingerprint() (uint64, error) {
	const op = "Geometry.Fingerprint"
	if err := g.handle().enter(op, "geometry"); err != nil {
		return 0, err
	}
	defer g.h.exit()
	return uint64(C.kvbm_geometry_fingerprint((*C.kvbm_geometry_t)(g.h.ptr))), nil
}

// RecordBytes returns the payload bytes of one record of a component and shard; nil is all of it.
func (g *Geometry) RecordBytes(component uint32, shard *Shard) (uint64, error) {
	const op = "Geometry.RecordBytes"
	if err := g.handle().enter(op, "geometry"); err != nil {
		return 0, err
	}
	defer g.h.exit()
	var part *C.kvbm_shard_t
	if shard != nil {
		c := shard.c()
		part = &c
	}
	var out C.uint64_t
	status := C.kvbm_geometry_record_bytes((*C.kvbm_geometry_t)(g.h.ptr), C.uint32_t(component), part, &out)
	return uint64(out), fail(op, status)
}

// count32 refuses what does not fit into a uint32_t of the library.
func count32(op, what string, n int) (C.uint32_t, error) {
	if n < 0 || uint64(n) > math.MaxUint32 {
		return 0, invalid(op, "%s is %d", what, n)
	}
	return C.uint32_t(n), nil
}

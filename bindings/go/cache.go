// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// Form is how an engine orders its cache; kvbm_cache.h has the axes of each.
type Form uint32

// The forms of kvbm.h.
const (
	FormNHD                   Form = C.KVBM_FORM_NHD
	FormHND                   Form = C.KVBM_FORM_HND
	FormBlocksNHD             Form = C.KVBM_FORM_BLOCKS_NHD
	FormBlocksHND             Form = C.KVBM_FORM_BLOCKS_HND
	FormPackedNHD             Form = C.KVBM_FORM_PACKED_NHD
	FormPackedHND             Form = C.KVBM_FORM_PACKED_HND
	FormSplitNHD              Form = C.KVBM_FORM_SPLIT_NHD
	FormSplitHND              Form = C.KVBM_FORM_SPLIT_HND
	FormLayersNHD             Form = C.KVBM_FORM_LAYERS_NHD
	FormLayersHND             Form = C.KVBM_FORM_LAYERS_HND
	FormCrossNHD              Form = C.KVBM_FORM_CROSS_NHD
	FormCrossHND              Form = C.KVBM_FORM_CROSS_HND
	FormCrossPackedLNH        Form = C.KVBM_FORM_CROSS_PACKED_LNH
	FormCrossPackedLHN        Form = C.KVBM_FORM_CROSS_PACKED_LHN
	FormCrossPackedHLN        Form = C.KVBM_FORM_CROSS_PACKED_HLN
	FormHeadsPacked           Form = C.KVBM_FORM_HEADS_PACKED
	FormSGLangLayerFirst      Form = C.KVBM_FORM_SGLANG_LAYER_FIRST
	FormSGLangPageFirst       Form = C.KVBM_FORM_SGLANG_PAGE_FIRST
	FormSGLangPageFirstDirect Form = C.KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT
	FormSGLangPageHead        Form = C.KVBM_FORM_SGLANG_PAGE_HEAD
	FormOpaque                Form = C.KVBM_FORM_OPAQUE
)

// NoBlock in a list of block ids is none.
const NoBlock uint32 = 1<<32 - 1

// MemoryKind is where the tensors of a cache lie.
type MemoryKind uint32

// The kinds of memory of kvbm.h.
const (
	MemoryAuto MemoryKind = C.KVBM_MEMORY_AUTO // host memory, unless the driver knows the tensors as a device's
	MemoryHost MemoryKind = C.KVBM_MEMORY_HOST
	MemoryCUDA MemoryKind = C.KVBM_MEMORY_CUDA
)

// WaitLayers is how streams wait for the layers of a load (Cache.WaitLayer).
type WaitLayers uint32

// The ways to wait of kvbm.h.
const (
	WaitLayersOff WaitLayers = C.KVBM_WAIT_LAYERS_OFF
	// On the device, also for a layer that was not given to the driver yet. WaitLayer never blocks; until the load has
	// ended its caller must make no call of the driver that waits for the stream.
	WaitLayersOnDevice WaitLayers = C.KVBM_WAIT_LAYERS_ON_DEVICE
	// WaitLayer blocks until the layer was given to the driver. Any call may follow. Works on every device.
	WaitLayersIssued WaitLayers = C.KVBM_WAIT_LAYERS_ISSUED
)

// Stream is a CUstream or cudaStream_t of a device, as a number; 0 is the legacy stream.
type Stream uintptr

// Tensor is a tensor of the engine: Data in host memory, or Address and Bytes on a device. Memory of Go's is pinned
// until the cache is closed; other memory (a slice made with unsafe.Slice) must stay where it is until then.
type Tensor struct {
	Data        []byte  // its whole extent: nothing outside is ever touched
	Address     uintptr // without Data: memory of a device,
	Bytes       uint64  // and its whole extent
	BlockStride uint64  // bytes from a block to the next; 0 = dense as the form says
	PageBytes   uint64  // FormOpaque: bytes of a block in this tensor; else 0
}

// CachePart is how the engine holds one part of the model.
type CachePart struct {
	Part    Part
	Form    Form
	Tensors []Tensor // in the order [layer] or [layer][K,V], as the form says
}

// CacheOptions describes an engine's paged cache.
type CacheOptions struct {
	Blocks int // engine blocks in the tensors; ids are [0, Blocks)
	Parts  []CachePart
	Memory MemoryKind // where all the tensors lie
	Device uint32     // MemoryCUDA: the device's ordinal
}

// A Cache is an engine's own paged cache that a manager stores from and loads into.
type Cache struct {
	h       *handle
	manager *handle
	core    *contextCore
	parts   int
	units   int
}

// AttachCache describes an engine's paged cache once.
func (m *Manager) AttachCache(ns *Namespace, o *CacheOptions) (*Cache, error) {
	const op = "Manager.AttachCache"
	if err := enterBoth(op, m.handle(), "manager", ns.handle(), "namespace"); err != nil {
		return nil, err
	}
	defer m.h.exit()
	defer ns.h.exit()
	if o == nil {
		return nil, invalid(op, "a cache has blocks and parts")
	}
	blocks, err := count32(op, "Blocks", o.Blocks)
	if err != nil {
		return nil, err
	}
	pinned := new(runtime.Pinner)
	parts, tensors, err := packParts(op, pinned, o.Parts)
	if err != nil {
		pinned.Unpin()
		return nil, err
	}
	var out *C.kvbm_cache_t
	var detail C.kvbm_error_t
	status := C.kvbmgo_cache_attach(m.c(), ns.c(), blocks, C.uint32_t(o.Memory), C.uint32_t(o.Device),
		unsafe.SliceData(parts), C.size_t(len(parts)), unsafe.SliceData(tensors), &out, &detail)
	if status < 0 {
		pinned.Unpin()
		return nil, failWith(op, status, &detail)
	}
	owner := m.h
	owner.keep()
	h := newHandle("cache", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_cache_release((*C.kvbm_cache_t)(p)) // waits for what touches the tensors
		pinned.Unpin()
		owner.unkeep()
	})
	return &Cache{h: h, manager: owner, core: m.core, parts: len(parts), units: int(ns.units)}, nil
}

func packParts(op string, pinned *runtime.Pinner, parts []CachePart) ([]C.kvbmgo_cache_part_t, []C.kvbm_tensor_t,
	error) {
	list := make([]C.kvbmgo_cache_part_t, len(parts))
	var tensors []C.kvbm_tensor_t
	for i, p := range parts {
		n, err := count32(op, "the number of tensors", len(p.Tensors))
		if err != nil {
			return nil, nil, err
		}
		list[i] = C.kvbmgo_cache_part_t{part: p.Part.c(), form: C.uint32_t(p.Form), n_tensors: n}
		for j, t := range p.Tensors {
			if t.Data == nil && t.Address != 0 {
				row := C.kvbm_tensor_t{bytes: C.uint64_t(t.Bytes), block_stride: C.uint64_t(t.BlockStride),
					page_bytes: C.uint64_t(t.PageBytes)}
				*(*uintptr)(unsafe.Pointer(&row.data)) = t.Address // no pointer of Go's
				tensors = append(tensors, row)
				continue
			}
			if len(t.Data) == 0 {
				return nil, nil, invalid(op, "part %d: tensor %d has no memory", i, j)
			}
			data := unsafe.SliceData(t.Data)
			pinned.Pin(data)
			tensors = append(tensors, C.kvbm_tensor_t{data: unsafe.Pointer(data), bytes: C.uint64_t(len(t.Data)),
				block_stride: C.uint64_t(t.BlockStride), page_bytes: C.uint64_t(t.PageBytes)})
		}
	}
	return list, tensors, nil
}

func (c *Cache) handle() *handle {
	if c == nil {
		return nil
	}
	return c.h
}

func (c *Cache) c() *C.kvbm_cache_t { return (*C.kvbm_cache_t)(c.h.ptr) }

// Close waits for operations that touch the tensors, sessions and offers too, and releases their memory.
func (c *Cache) Close() error {
	if c != nil && c.h != nil {
		c.h.close()
	}
	return nil
}

// Lookup is Manager.Lookup with the cache's own parts.
func (c *Cache) Lookup(keys []Key, o *LookupOptions) (*Match, error) {
	const op = "Cache.Lookup"
	if err := c.handle().enter(op, "cache"); err != nil {
		return nil, err
	}
	defer c.h.exit()
	return lookup(op, c.manager, nil, c.c(), nil, keys, o)
}

// Position is where a block under a content key was computed.
type Position struct {
	FirstToken  uint64
	Rotation    uint64 // fingerprint of the rotary parameters, of the caller's choosing
	LeftContext uint64 // fingerprint of what stood before; 0 = nothing
}

func positionsOf(positions []Position) *C.kvbm_position_t {
	return (*C.kvbm_position_t)(unsafe.Pointer(unsafe.SliceData(positions)))
}

// StoreOptions is how blocks are stored; nil and the zero value are the defaults.
type StoreOptions struct {
	Priority  Priority
	Parent    *Key          // key before the first; nil = none
	Unchained bool          // keys are not a prefix in order
	Positions []Position    // one for each key; content keys only
	Timeout   time.Duration // blocks not stored by then are StatusDeadline; 0 = none, negative = at once
	// UnitKeys are the engine's own keys of the blocks within each stored block.
	UnitKeys []Key
	// Stream is of the cache's device: the blocks are read after what it holds. nil: they are ready.
	Stream *Stream
}

// LoadOptions is how blocks are loaded; nil and the zero value are the defaults.
type LoadOptions struct {
	FirstKey    int    // skip this many keys of the match
	AnyPosition bool   // content-keyed blocks may be used at any position
	FirstLayer  uint32 // load only layers [FirstLayer, FirstLayer+Layers) of the part's shard
	Layers      uint32 // 0 = all
	KeepBelow   bool   // do not keep blocks from lower tiers in the host tier
	// Time in which the engine computes one of its blocks. Only the leading blocks are loaded for which loading is faster,
	// and a late load stops. Blocks left to compute are StatusErrDeadline in a *PartialError. 0 = unknown: all are loaded.
	ComputeBlock time.Duration
	Positions    []Position    // where the blocks will stand, one for each key; content keys only
	Timeout      time.Duration // 0 = none, negative = at once
	// Stream is of the cache's device: the blocks are written after what it holds. nil: at once.
	Stream *Stream
	// WaitLayers lets layers land in their order, and says how WaitLayer makes streams wait; of SubmitLoad alone.
	WaitLayers WaitLayers
}

func (s *Stream) c() (C.uint64_t, C.uint32_t) {
	if s == nil {
		return 0, 0
	}
	return C.uint64_t(*s), 1
}

// Store copies engine blocks into the host tier under their keys. blockIDs are the blocks of each part in turn, as many
// a key as a stored block has engine blocks; NoBlock where the engine has none. It returns when all is done; a
// *PartialError says what could not be stored. When ctx ends first, what is not done yet is not done any more.
func (c *Cache) Store(ctx context.Context, keys []Key, blockIDs []uint32, o *StoreOptions) error {
	const op = "Cache.Store"
	operation, err := c.storeOperation(op, ctx, keys, blockIDs, o)
	if err != nil {
		return err
	}
	defer c.h.exit()
	return operation.run(ctx, c.core)
}

// SubmitStore is Store that does not wait: its completion comes to q, with userData. The result is the operation's
// number for Queue.Cancel, 0 if it is done already.
func (c *Cache) SubmitStore(q *Queue, keys []Key, blockIDs []uint32, o *StoreOptions, userData uint64) (uint64, error) {
	operation, err := c.storeOperation("Cache.SubmitStore", context.Background(), keys, blockIDs, o)
	if err != nil {
		return 0, err
	}
	defer c.h.exit()
	return operation.submit(q, userData)
}

// storeOperation begins a call of the cache's, unless it fails.
func (c *Cache) storeOperation(op string, ctx context.Context, keys []Key, blockIDs []uint32, o *StoreOptions) (
	*operation, error) {
	if err := c.handle().enter(op, "cache"); err != nil {
		return nil, err
	}
	if o == nil {
		o = &StoreOptions{}
	}
	switch {
	case ctx == nil:
		return nil, c.refuse(invalid(op, "the context.Context is nil"))
	case len(blockIDs) != len(keys)*c.units*c.parts:
		return nil, c.refuse(invalid(op, "there are %d block ids for %d keys of %d engine blocks in %d parts",
			len(blockIDs), len(keys), c.units, c.parts))
	case o.Positions != nil && len(o.Positions) != len(keys):
		return nil, c.refuse(invalid(op, "there are %d positions for %d keys", len(o.Positions), len(keys)))
	case o.UnitKeys != nil && len(o.UnitKeys) != len(keys)*c.units:
		return nil, c.refuse(invalid(op, "there are %d unit keys for %d keys of %d engine blocks", len(o.UnitKeys),
			len(keys), c.units))
	}
	start := func(items *C.kvbm_status_t, number *C.uint64_t, queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
		in, n := keysOf(keys)
		unitKeys, _ := keysOf(o.UnitKeys)
		stream, hasStream := o.Stream.c()
		return C.kvbmgo_store(c.c(), in, (*C.uint32_t)(unsafe.SliceData(blockIDs)), n, C.uint32_t(o.Priority),
			bit(o.Unchained), (*C.kvbm_key_t)(unsafe.Pointer(o.Parent)), positionsOf(o.Positions), unitKeys,
			timeoutOf(ctx, o.Timeout), stream, hasStream, items, number, queue, id)
	}
	return &operation{op: op, items: len(keys), memory: true, start: start}, nil
}

func (c *Cache) refuse(err error) error {
	c.h.exit()
	return err
}

// Load brings matched blocks into the engine's blocks, every byte verified on the way. blockIDs are the blocks of each
// part in turn; NoBlock skips a block. It returns nil when everything is loaded; otherwise the engine blocks of the
// items that failed, which a *PartialError names, are undefined: compute them. Without block ids nothing is loaded, also of
// a nil match, which a lookup that hit nothing gives.
func (c *Cache) Load(ctx context.Context, match *Match, blockIDs []uint32, o *LoadOptions) error {
	const op = "Cache.Load"
	operation, err := c.loadOperation(op, ctx, match, blockIDs, o)
	if err != nil {
		return err
	}
	defer c.h.exit()
	defer match.exit()
	return operation.run(ctx, c.core)
}

// SubmitLoad is Load that does not wait, as SubmitStore.
func (c *Cache) SubmitLoad(q *Queue, match *Match, blockIDs []uint32, o *LoadOptions, userData uint64) (uint64, error) {
	operation, err := c.loadOperation("Cache.SubmitLoad", context.Background(), match, blockIDs, o)
	if err != nil {
		return 0, err
	}
	defer c.h.exit()
	defer match.exit()
	return operation.submit(q, userData)
}

// WaitLayer makes a stream wait for a layer of a SubmitLoad with WaitLayers, by its number. That the stream goes on
// does not say that the load was right: what was computed behind the wait counts only once the completion has said so.
// With WaitLayersIssued it blocks until the layer was given to the driver or the load has ended: LoadOptions.Timeout and
// Queue.Cancel end a load, and so its waits.
func (c *Cache) WaitLayer(operation uint64, layer uint32, stream Stream) error {
	const op = "Cache.WaitLayer"
	if err := c.handle().enter(op, "cache"); err != nil {
		return err
	}
	defer c.h.exit()
	if err := told(op, func() C.kvbm_status_t {
		return C.kvbmgo_wait_layer(c.c(), C.uint64_t(operation), C.uint32_t(layer), C.uint64_t(stream))
	}); err != nil {
		return err
	}
	return nil
}

// loadOperation begins a call of the cache's and the match's, unless it fails.
func (c *Cache) loadOperation(op string, ctx context.Context, match *Match, blockIDs []uint32, o *LoadOptions) (
	*operation, error) {
	if err := c.handle().enter(op, "cache"); err != nil {
		return nil, err
	}
	if match != nil {
		if err := match.h.enter(op, "match"); err != nil {
			return nil, c.refuse(err)
		}
	}
	refuse := func(err error) (*operation, error) {
		match.exit()
		return nil, c.refuse(err)
	}
	if match == nil && len(blockIDs) > 0 {
		return refuse(invalid(op, "the match is nil, as of a lookup that hit nothing, and there are %d block ids to load into",
			len(blockIDs)))
	}
	if o == nil {
		o = &LoadOptions{}
	}
	if ctx == nil {
		return refuse(invalid(op, "the context.Context is nil"))
	}
	perPart := len(blockIDs) / c.parts
	if perPart*c.parts != len(blockIDs) {
		return refuse(invalid(op, "%d block ids cannot be shared by %d parts", len(blockIDs), c.parts))
	}
	items := (perPart + c.units - 1) / c.units
	if o.Positions != nil && len(o.Positions) != items {
		return refuse(invalid(op, "there are %d positions for %d keys", len(o.Positions), items))
	}
	first, err := count32(op, "FirstKey", o.FirstKey)
	if err != nil {
		return refuse(err)
	}
	if o.ComputeBlock < 0 {
		return refuse(invalid(op, "ComputeBlock is %v", o.ComputeBlock))
	}
	how := C.kvbmgo_load_t{first_key: first, any_position: bit(o.AnyPosition), first_layer: C.uint32_t(o.FirstLayer),
		n_layers: C.uint32_t(o.Layers), keep_below: bit(o.KeepBelow), wait_layers: C.uint32_t(o.WaitLayers),
		compute_block_ns: C.uint64_t(o.ComputeBlock)}
	how.stream, how.has_stream = o.Stream.c()
	start := func(status *C.kvbm_status_t, number *C.uint64_t, queue *C.kvbm_queue_t, id C.uint64_t) C.kvbm_status_t {
		return C.kvbmgo_load(c.c(), match.c(), (*C.uint32_t)(unsafe.SliceData(blockIDs)), C.size_t(perPart), &how,
			positionsOf(o.Positions), timeoutOf(ctx, o.Timeout), status, number, queue, id)
	}
	return &operation{op: op, items: items, memory: true, start: start}, nil
}

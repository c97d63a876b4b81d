// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"testing"
	"time"
)

// Arguments made of a fuzzer's bytes; zeroes when they are used up.
type fuzzInput struct{ data []byte }

func (f *fuzzInput) byte() byte {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

func (f *fuzzInput) uint32() uint32 {
	var b [4]byte
	for i := range b {
		b[i] = f.byte()
	}
	return binary.LittleEndian.Uint32(b[:])
}

// ids are mostly blocks that are there.
func (f *fuzzInput) ids() []uint32 {
	ids := make([]uint32, f.byte()%8)
	for i := range ids {
		if ids[i] = uint32(f.byte() % (testBlocks + 1)); f.byte() > 250 {
			ids[i] = f.uint32()
		}
	}
	return ids
}

func (f *fuzzInput) keys(all []Key) []Key {
	keys := make([]Key, f.byte()%8)
	for i := range keys {
		keys[i] = all[int(f.byte())%len(all)]
	}
	return keys
}

// codeOptions are mostly those of a cache of one part in host memory.
func (f *fuzzInput) codeOptions() *CodeOptions {
	o := &CodeOptions{Form: &CodecForm{Element: Element(f.byte() % 8), RowElements: uint32(f.byte())}}
	switch f.byte() {
	case 0:
		o.Form = nil
	case 1:
		o.Part = int(int8(f.byte()))
	case 2:
		o.Form.Rows = f.uint32()
	case 3:
		o.Form.RowElements = f.uint32()
	case 4:
		stream := Stream(f.byte())
		o.Stream = &stream
	}
	return o
}

// known fails the test if an error is none of this package's.
func known(t *testing.T, err error) {
	var e *Error
	var p *PartialError
	if err != nil && !errors.As(err, &e) && !errors.As(err, &p) {
		t.Errorf("%T: %v", err, err)
	}
	if e != nil && e.Status != StatusInvalid && errors.Is(err, fs.ErrClosed) || errors.Is(err, ErrInternal) {
		t.Errorf("an error that should not be: %v", err)
	}
}

// FuzzCalls makes a life of calls, right and wrong ones, and looks that nothing but errors comes of it.
func FuzzCalls(f *testing.F) {
	b := newBench(f, ManagerOptions{HostCapacityBytes: 1 << 20})
	all := b.keys(f, 1, 16)
	f.Add([]byte{0, 4, 1, 2, 3, 4, 4, 0, 1, 1, 1, 2, 1, 3, 1, 4, 1, 1, 4, 1, 2, 3, 4, 2, 4, 0, 0, 1, 0, 2, 0, 3, 0})
	f.Add([]byte{0, 16, 1, 64, 9, 2, 3, 0, 5, 0, 2, 17, 1, 64, 9, 2, 4, 0, 6, 0, 0, 0, 18, 9})
	f.Add([]byte{3, 4, 4, 5, 6, 7, 4, 8, 5, 9, 6, 255, 255, 1, 200, 2, 7, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &fuzzInput{data}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var match *Match
		var blocks *Blocks
		var coded []byte
		queue, err := b.kv.NewQueue(int(in.byte())%16 + 1)
		ok(t, err)
		defer queue.Close()
		defer func() { match.Close(); blocks.Close() }()
		for len(in.data) > 0 {
			switch in.byte() % 19 {
			case 0:
				known(t, b.cache.Store(ctx, in.keys(all), in.ids(), &StoreOptions{Unchained: in.byte()%2 == 0,
					Priority: Priority(in.byte() % 5)}))
			case 1:
				match.Close()
				match, err = b.cache.Lookup(in.keys(all), &LookupOptions{Mode: LookupMode(in.byte() % 4)})
				known(t, err)
			case 2:
				known(t, b.cache.Load(ctx, match, in.ids(), &LoadOptions{FirstKey: int(in.byte() % 4)}))
			case 3:
				blocks.Close()
				blocks, err = b.manager.Allocate(b.ns, int(int8(in.byte())))
				known(t, err)
			case 4:
				bytes := make([]uint64, in.byte()%8)
				for i := range bytes {
					bytes[i] = uint64(in.uint32()) % (2 * testBlockBytes)
				}
				known(t, blocks.Complete(bytes))
			case 5:
				_, err = blocks.Register(b.ns, in.keys(all), &RegisterOptions{Duplicates: Duplicates(in.byte() % 3)})
				known(t, err)
			case 6:
				views, err := blocks.Views()
				known(t, err)
				sum := byte(0)
				for _, v := range views {
					for _, x := range v.Data {
						sum += x
					}
				}
			case 7:
				blocks.Close()
			case 8:
				_, err = b.cache.SubmitStore(queue, in.keys(all), in.ids(), nil, 0)
				known(t, err)
			case 9:
				_, err = b.cache.SubmitLoad(queue, match, in.ids(), nil, 0)
				known(t, err)
			case 10:
				_, err = queue.Poll(make([]Completion, in.byte()%4))
				known(t, err)
			case 11:
				known(t, queue.Cancel(uint64(in.uint32())))
			case 12:
				more, err := match.Blocks(uint32(in.byte()%2), int(int8(in.byte())), int(int8(in.byte())))
				known(t, err)
				more.Close()
			case 13:
				_, err = b.manager.Drop(b.ns, &Part{Component: uint32(in.byte() % 2)}, in.keys(all))
				known(t, err)
			case 14:
				pin, _, err := b.manager.Pin(b.ns, nil, in.keys(all), uint64(in.byte()), time.Duration(in.byte()))
				known(t, err)
				known(t, b.manager.Unpin(pin))
			case 15:
				taken, err := blocks.Take(int(int8(in.byte())), int(int8(in.byte())))
				known(t, err)
				taken.Close()
			case 16:
				how, ids, mode := in.codeOptions(), in.ids(), CodecMode(in.byte()%26)
				coded, err = b.cache.Encode(ids, mode, how)
				known(t, err)
			case 17:
				how, ids, lossy := in.codeOptions(), in.ids(), in.byte()%2 == 0
				if n := len(coded); n > 0 && in.byte() > 200 {
					coded = append(coded[:int(in.uint32()%uint32(n)):n], in.byte())
				}
				known(t, b.cache.Decode(coded, ids, lossy, how))
			case 18:
				into := make([]byte, 4*int(in.byte()))
				_, err = b.cache.EncodeInto(into, in.ids(), CodecMode(in.byte()), in.codeOptions())
				known(t, err)
				_, err = b.cache.CodeRoom(int(int32(in.uint32())), in.codeOptions())
				known(t, err)
			}
		}
	})
}

// FuzzAttach describes caches of any kind over memory of any length.
func FuzzAttach(f *testing.F) {
	b := newBench(f, ManagerOptions{})
	g, err := NewGeometry(4, 2, []Component{{Kind: ComponentAttention, Element: ElementBF16, Layers: 2, Heads: 2,
		HeadDim: 4}})
	ok(f, err)
	shaped, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "shaped", Geometry: g})
	ok(f, err)
	f.Add(uint32(100), uint32(4), uint32(8192), uint32(1), uint64(0), uint64(64), uint32(0))
	f.Add(uint32(0), uint32(4), uint32(1024), uint32(2), uint64(0), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, form, blocks, bytes, tensors uint32, stride, page uint64, component uint32) {
		memory := make([]byte, bytes%65536)
		part := CachePart{Form: Form(form), Part: Part{Component: component}}
		for i := uint32(0); i < tensors%8; i++ {
			part.Tensors = append(part.Tensors, Tensor{Data: memory, BlockStride: stride, PageBytes: page})
		}
		for _, ns := range []*Namespace{b.ns, shaped} {
			cache, err := b.manager.AttachCache(ns, &CacheOptions{Blocks: int(blocks), Parts: []CachePart{part}})
			known(t, err)
			if err != nil {
				continue
			}
			keys, err := ns.KeyFromHashes(make([]byte, 16), 16)
			ok(t, err)
			known(t, cache.Store(context.Background(), keys, blockIDs(0, cache.units), nil))
			match, err := cache.Lookup(keys, nil)
			known(t, err)
			known(t, cache.Load(context.Background(), match, blockIDs(0, cache.units), nil))
			match.Close()
			_, err = b.manager.Drop(ns, nil, keys)
			known(t, err)
			cache.Close()
		}
	})
}

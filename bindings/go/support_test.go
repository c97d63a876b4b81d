// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"
)

// A bench is what most tests need: a manager with small blocks, an opaque namespace and an attached cache.
type testBench struct {
	kv      *Context
	manager *Manager
	ns      *Namespace
	cache   *Cache
	memory  []byte
}

const (
	testBlockBytes = 8192
	testBlocks     = 32
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newBench(t testing.TB, o ManagerOptions) *testBench {
	t.Helper()
	b := openBench(t, o)
	t.Cleanup(b.close)
	return b
}

func openBench(t testing.TB, o ManagerOptions) *testBench {
	t.Helper()
	b := &testBench{memory: make([]byte, testBlocks*testBlockBytes)}
	var err error
	b.kv, err = NewContext(nil)
	ok(t, err)
	if o.BlockBytes == 0 {
		o.BlockBytes = testBlockBytes
	}
	if o.HostCapacityBytes == 0 {
		o.HostCapacityBytes = 4 << 20
	}
	b.manager, err = b.kv.NewManager(&o)
	ok(t, err)
	b.ns, err = b.manager.OpenNamespace(&NamespaceOptions{Model: "test model"})
	ok(t, err)
	b.cache, err = b.manager.AttachCache(b.ns, &CacheOptions{Blocks: testBlocks, Parts: []CachePart{{Form: FormOpaque,
		Tensors: []Tensor{{Data: b.memory, PageBytes: testBlockBytes}}}}})
	ok(t, err)
	return b
}

func (b *testBench) close() {
	b.cache.Close()
	b.ns.Close()
	b.manager.Close()
	b.kv.Close()
}

func (b *testBench) block(i int) []byte { return b.memory[i*testBlockBytes:][:testBlockBytes] }

func (b *testBench) keys(t testing.TB, first uint32, n int) []Key {
	t.Helper()
	tokens := make([]uint32, 4*n)
	for i := range tokens {
		tokens[i] = first + uint32(i)
	}
	keys, err := b.ns.KeyChain(nil, tokens, 4, nil)
	ok(t, err)
	return keys
}

func blockIDs(first, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	return ids
}

// register makes n blocks under keys, with the pattern of seed+i.
func (b *testBench) register(t testing.TB, keys []Key, seed uint32) *Blocks {
	t.Helper()
	blocks, err := b.manager.Allocate(b.ns, len(keys))
	ok(t, err)
	views, err := blocks.Views()
	ok(t, err)
	for i, v := range views {
		fillPattern(v.Data, seed+uint32(i))
	}
	ok(t, blocks.Complete(nil))
	_, err = blocks.Register(b.ns, keys, nil)
	ok(t, err)
	return blocks
}

func wantStatus(t testing.TB, err error, want Status) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Status != want {
		t.Fatalf("the error is %v, not %v", err, want)
	}
}

func wantClosed(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, fs.ErrClosed) || !errors.Is(err, ErrCaller) {
		t.Fatalf("the error is %v, not that of a closed object", err)
	}
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

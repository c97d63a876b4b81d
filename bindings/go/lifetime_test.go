// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"errors"
	"io/fs"
	"math/rand"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// settled waits until the finalizers have closed what is garbage; no more than `most` objects are left then.
func settled(t *testing.T, most int64) {
	t.Helper()
	end := time.Now().Add(60 * time.Second)
	for liveHandles.Load() > most {
		if time.Now().After(end) {
			t.Fatalf("%d objects are left, not %d", liveHandles.Load(), most)
		}
		runtime.GC()
		runtime.Gosched()
	}
}

func TestClosingTwiceAndInAnyOrderIsFine(t *testing.T) {
	before := liveHandles.Load()
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	random := rand.New(rand.NewSource(seed))
	for round := 0; round < 20; round++ {
		b := newBench(t, ManagerOptions{})
		keys := b.keys(t, 1, 4)
		blocks := b.register(t, keys, 1)
		match, err := b.cache.Lookup(keys, nil)
		ok(t, err)
		held, err := match.Blocks(0, 0, 4)
		ok(t, err)
		weak, err := held.Downgrade()
		ok(t, err)
		queue, err := b.kv.NewQueue(4)
		ok(t, err)
		_, err = b.cache.SubmitStore(queue, b.keys(t, 100, 4), blockIDs(0, 4), nil, 1)
		ok(t, err)
		all := []closer{b.kv, b.manager, b.ns, b.cache, blocks, match, held, weak, queue}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, o := range all {
			ok(t, o.Close())
			ok(t, o.Close())
		}
	}
	if live := liveHandles.Load(); live > before {
		t.Fatalf("%d objects are left", live-before)
	}
}

func TestForgottenObjectsAreClosedInAnyOrder(t *testing.T) {
	settled(t, liveHandles.Load())
	before := liveHandles.Load()
	for round := 0; round < 10; round++ {
		func() {
			kv, err := NewContext(nil)
			ok(t, err)
			m, err := kv.NewManager(&ManagerOptions{BlockBytes: testBlockBytes, HostCapacityBytes: 1 << 20})
			ok(t, err)
			ns, err := m.OpenNamespace(&NamespaceOptions{Model: "forgotten"})
			ok(t, err)
			cache, err := m.AttachCache(ns, &CacheOptions{Blocks: 4, Parts: []CachePart{{Form: FormOpaque,
				Tensors: []Tensor{{Data: make([]byte, 4*testBlockBytes), PageBytes: testBlockBytes}}}}})
			ok(t, err)
			queue, err := kv.NewQueue(2)
			ok(t, err)
			keys, err := ns.KeyChain(nil, []uint32{1, 2, 3, 4}, 4, nil)
			ok(t, err)
			_, err = cache.SubmitStore(queue, keys, []uint32{1}, nil, 7)
			ok(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			ok(t, cache.Store(ctx, keys, []uint32{2}, nil)) // leaves a queue of the context's own behind
			cancel()
			match, err := cache.Lookup(keys, nil)
			ok(t, err)
			if match != nil {
				_, err = match.Blocks(0, 0, 1)
				ok(t, err)
			}
			if round%2 == 0 {
				kv.Close()
			}
		}()
	}
	settled(t, before)
}

func TestNothingIsLeftOpenBehind(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		ok(t, err)
		return len(entries)
	}
	round := func() {
		b := newBench(t, ManagerOptions{})
		ok(t, b.cache.Store(soon(t), b.keys(t, 1, 4), blockIDs(0, 4), nil))
		queue, err := b.kv.NewQueue(4)
		ok(t, err)
		queue.Close()
		b.close()
	}
	round()
	before, threads := count(), runtime.NumGoroutine()
	for i := 0; i < 50; i++ {
		round()
	}
	// 50 of each would be left by a leak; a few come and go with the runtime's own work.
	if after := count(); after > before+20 {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if after := runtime.NumGoroutine(); after > threads+20 {
		t.Errorf("%d goroutines before, %d after", threads, after)
	}
}

func TestBlocksOutliveTheirManagersClose(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	blocks := b.register(t, b.keys(t, 1, 4), 40)
	views, err := blocks.Views()
	ok(t, err)
	b.close()
	for i, v := range views {
		ok(t, comparePattern(v.Data, 40+uint32(i)))
	}
	again, err := blocks.Views()
	ok(t, err)
	if &again[0].Data[0] != &views[0].Data[0] {
		t.Error("the second view is another memory")
	}
	ok(t, blocks.Close())
	_, err = blocks.Views()
	wantClosed(t, err)
}

func TestClosingWhileOthersUseIt(t *testing.T) {
	for round := 0; round < 20; round++ {
		b := newBench(t, ManagerOptions{})
		keys := b.keys(t, 1, 16)
		b.register(t, keys, 1).Close()
		var users sync.WaitGroup
		for i := 0; i < 4; i++ {
			users.Add(1)
			go func() {
				defer users.Done()
				for {
					match, err := b.manager.Lookup(b.ns, keys, nil)
					if errors.Is(err, fs.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if match.Hits() != len(keys) {
						t.Errorf("%d hits", match.Hits())
					}
					match.Close()
				}
			}()
		}
		runtime.Gosched()
		b.ns.Close()
		b.manager.Close()
		users.Wait()
	}
}

func TestMemoryOfAnAttachedCacheStaysWhereItIs(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 8)
	memory := make([]byte, 8*testBlockBytes)
	fillPattern(memory, 3)
	cache, err := b.manager.AttachCache(b.ns, &CacheOptions{Blocks: 8, Parts: []CachePart{{Form: FormOpaque,
		Tensors: []Tensor{{Data: memory, PageBytes: testBlockBytes}}}}})
	ok(t, err)
	memory = nil
	for i := 0; i < 5; i++ { // only the cache knows the memory now
		runtime.GC()
		_ = make([]byte, 8*testBlockBytes)
	}
	ok(t, cache.Store(context.Background(), keys, blockIDs(0, 8), nil))
	ok(t, cache.Close())
	match, err := b.cache.Lookup(keys, nil)
	ok(t, err)
	defer match.Close()
	ok(t, b.cache.Load(context.Background(), match, blockIDs(0, 8), nil))
	ok(t, comparePattern(b.memory[:8*testBlockBytes], 3))
}

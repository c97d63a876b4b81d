// SPDX-License-Identifier: Apache-2.0

// Bench measures what the Go layer adds to the C calls: one line of JSON, medians in nanoseconds.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	libkvbm "github.com/kvbm/libkvbm-go"
)

const mib = 1 << 20

type figures struct {
	Language  string `json:"language"`
	Lookup256 int64  `json:"lookup_256_ns"`
	View256   int64  `json:"view_256_ns"`
	Store1MiB int64  `json:"store_1MiB_ns"`
	Load1MiB  int64  `json:"load_1MiB_ns"`
}

func main() {
	f := figures{Language: "go"}
	err := measureSmall(&f)
	if err == nil {
		err = measureLarge(&f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	line, _ := json.Marshal(f)
	fmt.Println(string(line))
}

// median calls once per call and before, which is not timed, in front of it.
func median(warm, calls int, before, call func() error) (int64, error) {
	times := make([]int64, 0, calls)
	for i := 0; i < warm+calls; i++ {
		if before != nil {
			if err := before(); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		err := call()
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		if i >= warm {
			times = append(times, took.Nanoseconds())
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	return times[len(times)/2], nil
}

func open(blockBytes uint64) (*libkvbm.Manager, *libkvbm.Namespace, error) {
	kv, err := libkvbm.NewContext(nil)
	if err != nil {
		return nil, nil, err
	}
	manager, err := kv.NewManager(&libkvbm.ManagerOptions{BlockBytes: blockBytes, HostCapacityBytes: 64 * mib})
	if err != nil {
		return nil, nil, err
	}
	ns, err := manager.OpenNamespace(&libkvbm.NamespaceOptions{Model: "bench"})
	return manager, ns, err
}

func keysOf(ns *libkvbm.Namespace, n int) ([]libkvbm.Key, error) {
	tokens := make([]uint32, n*16)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return ns.KeyChain(nil, tokens, 16, nil)
}

func measureSmall(f *figures) error {
	manager, ns, err := open(4096)
	if err != nil {
		return err
	}
	defer manager.Close()
	defer ns.Close()
	keys, err := keysOf(ns, 1024)
	if err != nil {
		return err
	}
	blocks, err := manager.Allocate(ns, len(keys))
	if err != nil {
		return err
	}
	if err := blocks.Complete(nil); err != nil {
		return err
	}
	if _, err := blocks.Register(ns, keys, nil); err != nil {
		return err
	}
	blocks.Close()
	keys = keys[:256]
	f.Lookup256, err = median(1000, 5000, nil, func() error {
		match, err := manager.Lookup(ns, keys, nil)
		if err != nil || match.Hits() != len(keys) {
			return fmt.Errorf("%d of %d keys: %w", match.Hits(), len(keys), err)
		}
		return match.Close()
	})
	if err != nil {
		return err
	}
	match, err := manager.Lookup(ns, keys, nil)
	if err != nil {
		return err
	}
	defer match.Close()
	held, err := match.Blocks(0, 0, len(keys))
	if err != nil {
		return err
	}
	defer held.Close()
	var views []libkvbm.View
	f.View256, err = median(1000, 5000, nil, func() (err error) {
		views, err = held.AppendViews(views[:0])
		return err
	})
	return err
}

func measureLarge(f *figures) error {
	manager, ns, err := open(mib)
	if err != nil {
		return err
	}
	defer manager.Close()
	defer ns.Close()
	memory := make([]byte, 32*mib) // Go begins it at a page, as the programs of the other languages do
	for i := range memory {
		memory[i] = byte(i)
	}
	cache, err := manager.AttachCache(ns, &libkvbm.CacheOptions{Blocks: 32, Parts: []libkvbm.CachePart{{
		Form: libkvbm.FormOpaque, Tensors: []libkvbm.Tensor{{Data: memory, PageBytes: mib}}}}})
	if err != nil {
		return err
	}
	defer cache.Close()
	keys, err := keysOf(ns, 16)
	if err != nil {
		return err
	}
	blocks := make([]uint32, 16)
	for i := range blocks {
		blocks[i] = uint32(i)
	}
	ctx := context.Background()
	drop := func() error {
		_, err := manager.Drop(ns, nil, keys)
		return err
	}
	f.Store1MiB, err = median(20, 200, drop, func() error { return cache.Store(ctx, keys, blocks, nil) })
	if err != nil {
		return err
	}
	match, err := cache.Lookup(keys, nil)
	if err != nil {
		return err
	}
	defer match.Close()
	f.Load1MiB, err = median(20, 200, nil, func() error { return cache.Load(ctx, match, blocks, nil) })
	f.Store1MiB /= int64(len(keys))
	f.Load1MiB /= int64(len(keys))
	return err
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	libkvbm "github.com/kvbm/libkvbm-go"
)

func open(settings map[string]string) (*libkvbm.Context, *libkvbm.Manager, *libkvbm.Namespace) {
	kv, err := libkvbm.NewContext(&libkvbm.ContextOptions{Settings: settings})
	if err != nil {
		log.Fatal(err)
	}
	manager, err := kv.NewManager(&libkvbm.ManagerOptions{BlockBytes: 4096, HostCapacityBytes: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	ns, err := manager.OpenNamespace(&libkvbm.NamespaceOptions{Model: "my-model, bf16"})
	if err != nil {
		log.Fatal(err)
	}
	return kv, manager, ns
}

// The engine lets kvbm own the blocks: allocate, fill, complete, register, look up, release.
func ExampleManager_Allocate() {
	kv, manager, ns := open(nil)
	defer kv.Close()
	defer manager.Close()
	defer ns.Close()
	keys, _ := ns.KeyChain(nil, []uint32{101, 7, 7, 9, 23, 5, 8, 2}, 4, nil)

	blocks, err := manager.Allocate(ns, len(keys))
	if err != nil {
		log.Fatal(err)
	}
	defer blocks.Close()
	views, _ := blocks.Views()
	for i, v := range views {
		copy(v.Data, fmt.Sprintf("block %d", i))
	}
	if err := blocks.Complete(nil); err != nil {
		log.Fatal(err)
	}
	if _, err := blocks.Register(ns, keys, nil); err != nil {
		log.Fatal(err)
	}

	match, _ := manager.Lookup(ns, keys, nil)
	defer match.Close()
	held, _ := match.Blocks(0, 0, match.Hits())
	defer held.Close()
	views, _ = held.Views()
	fmt.Printf("%d hits, the last is %s\n", match.Hits(), views[1].Data[:7])
	// Output: 2 hits, the last is block 1
}

// A batch that was done in part says what became of each item; errors.Is looks into all of them.
func ExampleCache_Load() {
	kv, manager, ns := open(nil)
	defer kv.Close()
	defer manager.Close()
	defer ns.Close()
	memory := make([]byte, 8*4096)
	cache, err := manager.AttachCache(ns, &libkvbm.CacheOptions{Blocks: 8, Parts: []libkvbm.CachePart{{
		Form: libkvbm.FormOpaque, Tensors: []libkvbm.Tensor{{Data: memory, PageBytes: 4096}}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	keys, _ := ns.KeyChain(nil, make([]uint32, 8), 4, nil)

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := cache.Store(ctx, keys, []uint32{0, 1}, nil); err != nil {
		log.Fatal(err)
	}
	match, _ := cache.Lookup(keys, nil)
	defer match.Close()
	err = cache.Load(ctx, match, []uint32{6, 7}, nil)
	var partial *libkvbm.PartialError
	switch {
	case err == nil:
		fmt.Println("all blocks are in place")
	case errors.As(err, &partial):
		fmt.Println("compute the blocks that failed:", partial.Items)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, libkvbm.ErrMiss):
		fmt.Println("compute all blocks")
	}
	// Output: all blocks are in place
}

// Many operations at a time: submit them, and wait for the completions where it suits.
func ExampleQueue_Wait() {
	kv, manager, ns := open(nil)
	defer kv.Close()
	defer manager.Close()
	defer ns.Close()
	memory := make([]byte, 8*4096)
	cache, err := manager.AttachCache(ns, &libkvbm.CacheOptions{Blocks: 8, Parts: []libkvbm.CachePart{{
		Form: libkvbm.FormOpaque, Tensors: []libkvbm.Tensor{{Data: memory, PageBytes: 4096}}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	queue, err := kv.NewQueue(16)
	if err != nil {
		log.Fatal(err)
	}
	defer queue.Close()

	for request := uint32(0); request < 4; request++ {
		keys, _ := ns.KeyChain(nil, []uint32{request, 1, 2, 3}, 4, nil)
		if _, err := cache.SubmitStore(queue, keys, []uint32{request}, nil, uint64(request)); err != nil {
			log.Fatal(err)
		}
	}
	stored := uint64(0)
	for left := 4; left > 0; {
		var done [8]libkvbm.Completion
		n, err := queue.Wait(context.Background(), done[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range done[:n] {
			if c.Err() == nil {
				stored += c.ItemsDone
			}
		}
		left -= n
	}
	fmt.Println(stored, "blocks")
	// Output: 4 blocks
}

// A prefill node and a decode node move the KV of one request, layer by layer, while it is computed. Both are in this
// program so that it can be run as it is.
func ExampleCache_OpenSession() {
	const layers, tokens = 2, 16
	side := func(settings map[string]string, memory [][]byte, blockTokens uint32, form libkvbm.Form) (*libkvbm.Manager,
		*libkvbm.Cache) {
		kv, err := libkvbm.NewContext(&libkvbm.ContextOptions{Settings: settings})
		if err != nil {
			log.Fatal(err)
		}
		manager, err := kv.NewManager(&libkvbm.ManagerOptions{BlockBytes: 4096, HostCapacityBytes: 1 << 20})
		if err != nil {
			log.Fatal(err)
		}
		geometry, err := libkvbm.NewGeometry(blockTokens, 1, []libkvbm.Component{{Kind: libkvbm.ComponentAttention,
			Element: libkvbm.ElementBF16, Layers: layers, Heads: 2, HeadDim: 8}})
		if err != nil {
			log.Fatal(err)
		}
		ns, err := manager.OpenNamespace(&libkvbm.NamespaceOptions{Model: "my-model, bf16", Geometry: geometry})
		if err != nil {
			log.Fatal(err)
		}
		part := libkvbm.CachePart{Form: form}
		for _, m := range memory {
			part.Tensors = append(part.Tensors, libkvbm.Tensor{Data: m})
		}
		cache, err := manager.AttachCache(ns, &libkvbm.CacheOptions{Blocks: tokens / int(blockTokens),
			Parts: []libkvbm.CachePart{part}})
		if err != nil {
			log.Fatal(err)
		}
		return manager, cache
	}
	const layerBytes = 2 * tokens * 2 * 8 * 2 // K and V of all tokens, 2 heads, 8 elements, 2 bytes
	sent := [][]byte{make([]byte, layerBytes), make([]byte, layerBytes)}
	got := [][]byte{make([]byte, layerBytes), make([]byte, layerBytes)}
	prefill, from := side(map[string]string{"node.listen": "127.0.0.1:0"}, sent, 16, libkvbm.FormNHD)
	address, _ := prefill.NodeAddress()
	_, to := side(map[string]string{"node.peers": address}, got, 16, libkvbm.FormNHD)

	request := libkvbm.RequestID{'r', 'e', 'q', '-', '1'}
	session, err := to.OpenSession(request, []uint32{0}, []libkvbm.Source{{Node: address}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	offer, err := from.OpenOffer(request, []uint32{0}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer offer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for layer := uint32(0); layer < layers; layer++ {
		copy(sent[layer], fmt.Sprintf("layer %d", layer)) // prefill computes it,
		if err := offer.Publish(0, layer, 1, 0, 0); err != nil {
			log.Fatal(err)
		}
		if err := session.WaitLayer(ctx, 0, layer); err != nil { // and decode uses it while the next one is computed
			log.Fatal(err)
		}
		fmt.Printf("%s\n", got[layer][:7])
	}
	fmt.Println(session.Wait(ctx), offer.Wait(ctx))
	// Output:
	// layer 0
	// layer 1
	// <nil> <nil>
}

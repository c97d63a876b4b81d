// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestNilAndEmptyObjectsGiveErrors(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 2)
	for name, call := range map[string]func() error{
		"nil context":           func() error { _, err := (*Context)(nil).NewManager(nil); return err },
		"empty context":         func() error { _, err := (&Context{}).NewQueue(1); return err },
		"nil manager":           func() error { _, err := (*Manager)(nil).Lookup(b.ns, keys, nil); return err },
		"empty manager":         func() error { _, err := (&Manager{}).Stats(); return err },
		"nil namespace":         func() error { _, err := b.manager.Lookup(nil, keys, nil); return err },
		"empty namespace":       func() error { _, err := (&Namespace{}).KeyChain(nil, nil, 4, nil); return err },
		"nil namespace options": func() error { _, err := b.manager.OpenNamespace(nil); return err },
		"nil cache options":     func() error { _, err := b.manager.AttachCache(b.ns, nil); return err },
		"nil cache":             func() error { return (*Cache)(nil).Store(context.Background(), keys, []uint32{0, 1}, nil) },
		"nil match":             func() error { return b.cache.Load(context.Background(), nil, []uint32{0}, nil) },
		"items of nil match":    func() error { _, err := (*Match)(nil).Items(0, 0); return err },
		"empty match":           func() error { return b.cache.Load(context.Background(), &Match{}, []uint32{0}, nil) },
		"nil queue":             func() error { _, err := b.cache.SubmitStore(nil, keys, []uint32{0, 1}, nil, 0); return err },
		"empty queue":           func() error { return b.manager.SubmitPrefetch(&Queue{}, b.ns, nil, keys, 0) },
		"wait of nil queue":     func() error { _, err := (*Queue)(nil).Wait(context.Background(), nil); return err },
		"empty queue of events": func() error { return b.manager.Subscribe(&Queue{}) },
		"nil geometry":          func() error { _, err := (*Geometry)(nil).Fingerprint(); return err },
		"empty geometry": func() error {
			_, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "m", Geometry: &Geometry{}})
			return err
		},
		"nil blocks":       func() error { _, err := (*Blocks)(nil).Views(); return err },
		"empty blocks":     func() error { _, err := (&Blocks{}).Views(); return err },
		"nil weak blocks":  func() error { _, err := (*WeakBlocks)(nil).Upgrade(); return err },
		"nil offer":        func() error { return (*Offer)(nil).PublishAll() },
		"empty offer":      func() error { return (&Offer{}).Wait(context.Background()) },
		"nil session":      func() error { return (*Session)(nil).Wait(context.Background()) },
		"empty session":    func() error { return (&Session{}).Abort("") },
		"nil Go context":   func() error { return b.cache.Store(nil, keys, []uint32{0, 1}, nil) }, //nolint:staticcheck
		"nil Go context 2": func() error { return b.manager.Flush(nil) },                          //nolint:staticcheck
		"nil Go context 3": func() error { return b.manager.Prefetch(nil, b.ns, nil, keys) },      //nolint:staticcheck
	} {
		if err := call(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []closer{(*Context)(nil), (*Manager)(nil), (*Namespace)(nil), (*Cache)(nil), (*Match)(nil),
		(*Queue)(nil), (*Geometry)(nil), (*Blocks)(nil), (*WeakBlocks)(nil), (*Offer)(nil), (*Session)(nil), &Context{},
		&Manager{}, &Namespace{}, &Cache{}, &Match{}, &Queue{}, &Geometry{}, &Blocks{}, &WeakBlocks{}, &Offer{},
		&Session{}} {
		ok(t, o.Close())
	}
}

func TestClosedObjectsGiveErrors(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 2)
	blocks := b.register(t, keys, 1)
	match, err := b.cache.Lookup(keys, nil)
	ok(t, err)
	queue, err := b.kv.NewQueue(1)
	ok(t, err)
	geometry, err := NewGeometry(4, 1, []Component{{Kind: ComponentAttention, Element: ElementBF16, Layers: 1, Heads: 1,
		HeadDim: 8}})
	ok(t, err)
	for _, o := range []closer{match, queue, geometry, blocks} {
		ok(t, o.Close())
	}
	ctx := context.Background()
	_, err = match.Items(0, 1)
	wantClosed(t, err)
	wantClosed(t, b.cache.Load(ctx, match, []uint32{0}, nil))
	_, err = b.cache.SubmitStore(queue, keys, []uint32{0, 1}, nil, 0)
	wantClosed(t, err)
	_, err = queue.Poll(make([]Completion, 1))
	wantClosed(t, err)
	wantClosed(t, b.manager.Subscribe(queue))
	_, err = geometry.Fingerprint()
	wantClosed(t, err)
	_, err = b.manager.OpenNamespace(&NamespaceOptions{Model: "m", Geometry: geometry})
	wantClosed(t, err)
	wantClosed(t, blocks.Complete(nil))
	_, err = blocks.Register(b.ns, keys, nil)
	wantClosed(t, err)
	_, err = blocks.Clone()
	wantClosed(t, err)
	b.close()
	_, err = b.manager.Lookup(b.ns, keys, nil)
	wantClosed(t, err)
	wantClosed(t, b.cache.Store(ctx, keys, []uint32{0, 1}, nil))
	wantClosed(t, b.manager.Flush(ctx))
	_, err = b.ns.ID()
	wantClosed(t, err)
	_, err = b.kv.Config()
	wantClosed(t, err)
	if match.Count() != 0 {
		t.Error("a closed match counts its keys")
	}
}

func TestArraysThatDoNotAgreeAreRefused(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 4)
	ctx := context.Background()
	b.register(t, keys, 1).Close()
	match, err := b.cache.Lookup(keys, nil)
	ok(t, err)
	defer match.Close()
	blocks, err := b.manager.Allocate(b.ns, 2)
	ok(t, err)
	defer blocks.Close()
	for name, call := range map[string]func() error{
		"too few ids":   func() error { return b.cache.Store(ctx, keys, blockIDs(0, 3), nil) },
		"too many ids":  func() error { return b.cache.Store(ctx, keys, blockIDs(0, 5), nil) },
		"no such block": func() error { return b.cache.Store(ctx, keys, blockIDs(testBlocks-3, 4), nil) },
		"too few positions": func() error {
			return b.cache.Store(ctx, keys, blockIDs(0, 4), &StoreOptions{Positions: make([]Position, 3)})
		},
		"too few unit keys": func() error { return b.cache.Store(ctx, keys, blockIDs(0, 4), &StoreOptions{UnitKeys: keys[:1]}) },
		"wrong priority":    func() error { return b.cache.Store(ctx, keys, blockIDs(0, 4), &StoreOptions{Priority: 99}) },
		"more than matched": func() error { return b.cache.Load(ctx, match, blockIDs(0, 5), nil) },
		"first key":         func() error { return b.cache.Load(ctx, match, blockIDs(0, 1), &LoadOptions{FirstKey: -1}) },
		"first key beyond":  func() error { return b.cache.Load(ctx, match, blockIDs(0, 1), &LoadOptions{FirstKey: 4}) },
		"load positions": func() error {
			return b.cache.Load(ctx, match, blockIDs(0, 2), &LoadOptions{Positions: make([]Position, 5)})
		},
		"match items":      func() error { _, err := match.Items(3, 2); return err },
		"match blocks":     func() error { _, err := match.Blocks(0, -1, 2); return err },
		"match part":       func() error { _, err := match.Blocks(7, 0, 1); return err },
		"register keys":    func() error { _, err := blocks.Register(b.ns, keys, nil); return err },
		"complete lengths": func() error { return blocks.Complete([]uint64{1}) },
		"take":             func() error { _, err := blocks.Take(1, 3); return err },
		"negative blocks":  func() error { _, err := b.manager.Allocate(b.ns, -1); return err },
		"too many blocks":  func() error { _, err := b.manager.Allocate(b.ns, 1<<32); return err },
		"extras":           func() error { _, err := b.ns.KeyChain(nil, make([]uint32, 8), 4, make([][]byte, 1)); return err },
		"block tokens":     func() error { _, err := b.ns.KeyChain(nil, make([]uint32, 8), 0, nil); return err },
		"negative tokens":  func() error { _, err := b.ns.KeyContent(make([]uint32, 8), -4, nil); return err },
		"hashes":           func() error { _, err := b.ns.KeyFromHashes(make([]byte, 10), 3); return err },
		"hash bytes":       func() error { _, err := b.ns.KeyFromHashes(nil, 0); return err },
		"long hashes":      func() error { _, err := b.ns.KeyFromHashes(make([]byte, 65), 65); return err },
		"short hashes":     func() error { _, err := b.ns.KeyFromHashes(make([]byte, 30), 15); return err },
		"requests": func() error {
			_, err := b.manager.Locate(b.ns, keys, &LocateOptions{RequestKeys: []int{1, 1}})
			return err
		},
		"negative requests": func() error {
			_, err := b.manager.Locate(b.ns, keys, &LocateOptions{RequestKeys: []int{-1}})
			return err
		},
		"negative time":     func() error { _, err := b.manager.Lookup(b.ns, keys, &LookupOptions{AskNodes: -1}); return err },
		"lookup mode":       func() error { _, err := b.manager.Lookup(b.ns, keys, &LookupOptions{Mode: 9}); return err },
		"scan without room": func() error { _, _, err := b.manager.Scan(0, nil); return err },
		"queue depth":       func() error { _, err := b.kv.NewQueue(0); return err },
		"queue depth 2":     func() error { _, err := b.kv.NewQueue(1 << 20); return err },
		"secret": func() error {
			_, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "m", Secret: make([]byte, 31)})
			return err
		},
		"no model":  func() error { _, err := b.manager.OpenNamespace(&NamespaceOptions{}); return err },
		"zero byte": func() error { _, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "a\x00b"}); return err },
		"zero byte 2": func() error {
			_, err := NewContext(&ContextOptions{Settings: map[string]string{"a\x00": "b"}})
			return err
		},
		"zero byte 3": func() error { _, err := NewContext(&ContextOptions{ConfigFile: "a\x00"}); return err },
		"tier path":   func() error { _, err := b.kv.NewManager(&ManagerOptions{Tiers: []Tier{{}}}); return err },
		"tier path and URL": func() error {
			_, err := b.kv.NewManager(&ManagerOptions{Tiers: []Tier{{Path: "/nowhere", URL: "file:///nowhere"}}})
			return err
		},
		"tier of offload": func() error { return b.manager.Offload(ctx, b.ns, nil, keys, 3) },
		"no tensors": func() error {
			_, err := b.manager.AttachCache(b.ns, &CacheOptions{Blocks: 1, Parts: []CachePart{{Form: FormOpaque}}})
			return err
		},
		"no parts":                func() error { _, err := b.manager.AttachCache(b.ns, &CacheOptions{Blocks: 1}); return err },
		"no blocks":               func() error { return attach(b, -1, make([]byte, 64), 64) },
		"nil data":                func() error { return attach(b, 1, nil, 64) },
		"data that is too short":  func() error { return attach(b, 4, make([]byte, 4*testBlockBytes-1), testBlockBytes) },
		"pages that are too long": func() error { return attach(b, 4, make([]byte, 4096), 1<<62) },
	} {
		if err := call(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func attach(b *testBench, n int, data []byte, page uint64) error {
	_, err := b.manager.AttachCache(b.ns, &CacheOptions{Blocks: n, Parts: []CachePart{{Form: FormOpaque,
		Tensors: []Tensor{{Data: data, PageBytes: page}}}}})
	return err
}

func TestObjectsOfAnotherManagerAreRefused(t *testing.T) {
	a, b := newBench(t, ManagerOptions{}), newBench(t, ManagerOptions{})
	keys := a.keys(t, 1, 2)
	blocks := a.register(t, keys, 1)
	defer blocks.Close()
	match, err := a.cache.Lookup(keys, nil)
	ok(t, err)
	defer match.Close()
	_, err = b.manager.Lookup(a.ns, keys, nil)
	wantStatus(t, err, StatusForeign)
	_, err = b.manager.Allocate(a.ns, 1)
	wantStatus(t, err, StatusForeign)
	wantStatus(t, b.cache.Load(context.Background(), match, blockIDs(0, 2), nil), StatusForeign)
	_, err = b.manager.AttachCache(a.ns, &CacheOptions{Blocks: 1, Parts: []CachePart{{Form: FormOpaque,
		Tensors: []Tensor{{Data: make([]byte, 64), PageBytes: 64}}}}})
	wantStatus(t, err, StatusForeign)
}

func TestARegisteredBlockIsRegisteredOnce(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 2)
	blocks := b.register(t, keys, 1)
	defer blocks.Close()
	_, err := blocks.Register(b.ns, keys, nil)
	wantStatus(t, err, StatusState)
	wantStatus(t, blocks.Complete(nil), StatusState)
	more := b.register(t, keys, 1)
	defer more.Close()
	_, err = b.manager.Allocate(b.ns, 1<<20)
	if !errors.Is(err, ErrNoRoom) || !errors.Is(err, ErrRoom) {
		t.Errorf("too many blocks: %v", err)
	}
}

func TestSetsOfBlocks(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 4)
	blocks := b.register(t, keys, 9)
	some, err := blocks.Take(1, 3)
	ok(t, err)
	if blocks.Len() != 2 || some.Len() != 2 {
		t.Fatalf("%d and %d", blocks.Len(), some.Len())
	}
	views, err := some.Views()
	ok(t, err)
	ok(t, comparePattern(views[0].Data, 10))
	weak, err := some.Downgrade()
	ok(t, err)
	defer weak.Close()
	clone, err := some.Clone()
	ok(t, err)
	ok(t, some.Close())
	ok(t, clone.Close())
	_, err = b.manager.Drop(b.ns, nil, keys[1:2])
	ok(t, err)
	again, err := weak.Upgrade()
	ok(t, err)
	defer again.Close()
	if again.Has(0) || !again.Has(1) || again.Has(2) || again.Len() != 2 {
		t.Fatalf("%v, %v of %d", again.Has(0), again.Has(1), again.Len())
	}
	views, err = again.Views()
	ok(t, err)
	if views[0].Data != nil {
		t.Error("a block that has gone has memory")
	}
	ok(t, comparePattern(views[1].Data, 11))
	ok(t, blocks.Close())
}

func TestLogReachesGo(t *testing.T) {
	lines := make(chan string, 1024)
	kv, err := NewContext(&ContextOptions{LogLevel: LogDebug, Log: func(level LogLevel, component, text string) {
		select {
		case lines <- component + ": " + text:
		default:
		}
	}, Settings: map[string]string{"node.peers": "127.0.0.1:1"}})
	ok(t, err)
	manager, err := kv.NewManager(&ManagerOptions{Tiers: []Tier{{Path: t.TempDir(), CapacityBytes: 64 << 20}}})
	ok(t, err)
	select {
	case line := <-lines:
		if !strings.Contains(line, ": ") {
			t.Errorf("the line is %q", line)
		}
	case <-soon(t).Done():
		t.Error("no line came")
	}
	ok(t, kv.Close())
	ok(t, manager.Close())
}

func TestWhatAnErrorAndAnObjectSay(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 2)
	err := b.cache.Store(context.Background(), keys, []uint32{0, 99}, nil)
	if err == nil || !strings.Contains(err.Error(), "block_ids[1] is 99, the cache has 32 blocks") {
		t.Errorf("the error is %v", err)
	}
	match, err := b.cache.Lookup(keys, nil)
	ok(t, err)
	ids := blockIDs(0, 2)
	ok(t, b.cache.Load(context.Background(), match, ids[:match.Hits()], nil))
	wantStatus(t, b.cache.Load(context.Background(), match, ids, nil), StatusInvalid)
	ok(t, b.manager.WaitForPeers(context.Background()))
	for text, want := range map[string]string{
		OpLoad.String(): "load", EventStored.String(): "stored", TierNumber(0).String(): "host", NoTier.String(): "no tier",
		TierNumber(2).String(): "tier 2", match.String(): "libkvbm.Match(nil)", b.cache.String(): "libkvbm.Cache(parts 1, units 1)",
	} {
		if text != want {
			t.Errorf("%q is not %q", text, want)
		}
	}
	b.cache.Close()
	if text := b.cache.String(); text != "libkvbm.Cache(parts 1, units 1, closed)" {
		t.Errorf("the text is %q", text)
	}
}

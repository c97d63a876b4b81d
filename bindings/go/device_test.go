// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvbm/libkvbm-go/internal/testdriver"
)

const (
	devicePage   = 4096
	deviceBlocks = 16
	deviceLayers = 2
)

// driverFile returns the fake CUDA driver, where it is built.
func driverFile(t *testing.T) string {
	path := os.Getenv("KVBMTEST_CUDA_DRIVER")
	if path == "" {
		path = filepath.Join("..", "..", "build", "release", "tests", "libtest_cuda_driver.so")
	}
	path, err := filepath.Abs(path)
	ok(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skip("skipped: the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)")
	}
	return path
}

// deviceManager makes a manager that uses this file as CUDA driver, and a namespace.
func deviceManager(t *testing.T, library string) (*Context, *Manager, *Namespace) {
	kv, err := NewContext(&ContextOptions{Settings: map[string]string{"device.library": library, "device.cuda": "auto"}})
	ok(t, err)
	t.Cleanup(func() { kv.Close() })
	manager, err := kv.NewManager(&ManagerOptions{BlockBytes: deviceLayers * devicePage, HostCapacityBytes: 4 << 20})
	ok(t, err)
	t.Cleanup(func() { manager.Close() })
	ns, err := manager.OpenNamespace(&NamespaceOptions{Model: "m"})
	ok(t, err)
	t.Cleanup(func() { ns.Close() })
	return kv, manager, ns
}

func deviceOptions(addresses [deviceLayers]uintptr) *CacheOptions {
	part := CachePart{Form: FormOpaque}
	for _, address := range addresses {
		part.Tensors = append(part.Tensors, Tensor{Address: address, Bytes: deviceBlocks * devicePage, PageBytes: devicePage})
	}
	return &CacheOptions{Blocks: deviceBlocks, Parts: []CachePart{part}, Memory: MemoryCUDA}
}

func TestWithoutADriverACacheOnADeviceIsRefused(t *testing.T) {
	const nowhere = "/nowhere/libcuda.so.1"
	_, manager, ns := deviceManager(t, nowhere)
	_, err := manager.AttachCache(ns, deviceOptions([deviceLayers]uintptr{devicePage, devicePage}))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), nowhere) {
		t.Errorf("the error is %v", err)
	}
	rows, err := manager.Devices()
	ok(t, err)
	if len(rows) != 0 {
		t.Errorf("devices without a cache on one: %v", rows)
	}
}

func TestACacheInHostMemoryHasNoStreams(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	var legacy Stream
	keys := b.keys(t, 1, 1)
	if err := b.cache.Store(soon(t), keys, blockIDs(0, 1), &StoreOptions{Stream: &legacy}); !errors.Is(err, ErrInvalid) {
		t.Errorf("the error of a store behind a stream is %v", err)
	}
	if err := b.cache.WaitLayer(1, 0, legacy); err == nil {
		t.Error("waited for a layer of no load")
	}
}

func TestWhatIsStoredFromADeviceComesBackLayerByLayer(t *testing.T) {
	for name, how := range map[string]WaitLayers{"on device": WaitLayersOnDevice, "issued": WaitLayersIssued} {
		t.Run(name, func(t *testing.T) { loadByLayers(t, how) })
	}
}

func loadByLayers(t *testing.T, how WaitLayers) {
	path := driverFile(t)
	driver, err := testdriver.Open(path)
	ok(t, err)
	kv, manager, ns := deviceManager(t, path)
	var addresses [deviceLayers]uintptr
	var memory [deviceLayers][]byte
	for layer := range memory {
		addresses[layer], memory[layer] = driver.Memory(deviceBlocks * devicePage)
	}
	cache, err := manager.AttachCache(ns, deviceOptions(addresses))
	ok(t, err)
	defer cache.Close()
	page := func(layer, block int) []byte { return memory[layer][block*devicePage : (block+1)*devicePage] }
	content := func(layer, block int) []byte { return bytes.Repeat([]byte{byte(10*layer + block + 1)}, devicePage) }
	for layer := range memory {
		for block := 0; block < 3; block++ {
			copy(page(layer, block), content(layer, block))
		}
	}
	keys, err := ns.KeyChain(nil, make([]uint32, 12), 4, nil)
	ok(t, err)
	raw := driver.Stream()
	stream := Stream(raw)
	ok(t, cache.Store(soon(t), keys, []uint32{0, 1, 2}, &StoreOptions{Stream: &stream}))
	match, err := cache.Lookup(keys, nil)
	ok(t, err)
	defer match.Close()
	queue, err := kv.NewQueue(4)
	ok(t, err)
	defer queue.Close()
	load, err := cache.SubmitLoad(queue, match, []uint32{5, 6, 7}, &LoadOptions{Stream: &stream, WaitLayers: how}, 1)
	ok(t, err)
	for layer := range memory {
		ok(t, cache.WaitLayer(load, uint32(layer), stream))
	}
	if err := cache.WaitLayer(load, deviceLayers, stream); !errors.Is(err, ErrInvalid) {
		t.Errorf("the error of a layer that does not come is %v", err)
	}
	driver.Synchronize(raw)
	for layer := range memory {
		for block := 0; block < 3; block++ {
			if !bytes.Equal(page(layer, 5+block), content(layer, block)) {
				t.Errorf("layer %d of block %d is something else", layer, block)
			}
		}
	}
	var done [1]Completion
	_, err = queue.Wait(soon(t), done[:])
	ok(t, err)
	if err := done[0].Err(); err != nil || done[0].ItemsDone != 3 {
		t.Errorf("the completion is %+v", done[0])
	}
	rows, err := manager.Devices()
	ok(t, err)
	if len(rows) != 1 || rows[0].Lost || rows[0].State != "ready" || rows[0].PinnedBytes == 0 ||
		rows[0].Gathers.Bytes != 3*deviceLayers*devicePage || rows[0].Scatters.Leaves != 3*deviceLayers {
		t.Errorf("the devices are %+v", rows)
	}
}

func TestARequestMovesBetweenDevicesBehindTheirStreams(t *testing.T) {
	path := driverFile(t)
	driver, err := testdriver.Open(path)
	ok(t, err)
	const tokens, heads, dim = 16, 2, 8
	const block = 2 * tokens * heads * dim * 2
	side := func(option, value string) (*Manager, *Cache, [deviceLayers][]byte) {
		kv, err := NewContext(&ContextOptions{Settings: map[string]string{"device.library": path, option: value}})
		ok(t, err)
		t.Cleanup(func() { kv.Close() })
		manager, err := kv.NewManager(&ManagerOptions{BlockBytes: 65536, HostCapacityBytes: 4 << 20})
		ok(t, err)
		t.Cleanup(func() { manager.Close() })
		geometry, err := NewGeometry(tokens, 1, []Component{{Kind: ComponentAttention, Element: ElementBF16,
			Layers: deviceLayers, Heads: heads, HeadDim: dim}})
		ok(t, err)
		t.Cleanup(func() { geometry.Close() })
		ns, err := manager.OpenNamespace(&NamespaceOptions{Model: "m", Geometry: geometry})
		ok(t, err)
		t.Cleanup(func() { ns.Close() })
		part := CachePart{Form: FormBlocksNHD}
		var memory [deviceLayers][]byte
		for layer := range memory {
			var address uintptr
			address, memory[layer] = driver.Memory(4 * block)
			part.Tensors = append(part.Tensors, Tensor{Address: address, Bytes: 4 * block})
		}
		cache, err := manager.AttachCache(ns, &CacheOptions{Blocks: 4, Parts: []CachePart{part}, Memory: MemoryCUDA})
		ok(t, err)
		t.Cleanup(func() { cache.Close() })
		return manager, cache, memory
	}
	prefill, from, sent := side("node.listen", "127.0.0.1:0")
	address, err := prefill.NodeAddress()
	ok(t, err)
	_, to, got := side("node.peers", address)
	request := RequestID{'d', 'e', 'v', 'i', 'c', 'e'}
	writing, computing := Stream(driver.Stream()), Stream(driver.Stream())
	session, err := to.OpenSession(request, []uint32{3, 1}, []Source{{Node: address}}, &SessionOptions{Stream: &writing})
	ok(t, err)
	defer session.Close()
	offer, err := from.OpenOffer(request, []uint32{0, 2}, nil)
	ok(t, err)
	defer offer.Close()
	for layer := range sent {
		copy(sent[layer], bytes.Repeat([]byte{byte(layer + 1)}, 4*block))
		ok(t, offer.PublishOnStream(0, uint32(layer), 1, 0, 0, computing))
		ok(t, session.WaitLayer(soon(t), 0, uint32(layer)))
		if !bytes.Equal(got[layer][3*block:], bytes.Repeat([]byte{byte(layer + 1)}, block)) {
			t.Errorf("layer %d is something else", layer)
		}
	}
	ok(t, session.Wait(soon(t)))
	ok(t, offer.Wait(soon(t)))
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/kvbm/libkvbm-go/internal/testdriver"
)

// bf16 between 0.5 and 1, other ones for each seed.
func codedValues(n, seed int) []byte {
	out := make([]byte, n)
	for i := 0; i < n; i += 2 {
		out[i], out[i+1] = byte((i*7+seed)%128), 0x3F
	}
	return out
}

func TestBlocksOfACacheAreCodedAsTheirBytes(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	copy(b.memory, codedValues(len(b.memory), 0))
	copy(b.block(1), codedValues(testBlockBytes, 1))
	form := &CodecForm{Element: ElementBF16, RowElements: 64}
	how := &CodeOptions{Form: form}
	plain := append(bytes.Clone(b.block(5)), b.block(1)...)
	for mode := CodecOff; mode <= CodecZstd; mode++ {
		coded, err := b.cache.Encode([]uint32{5, 1}, mode, how)
		ok(t, err)
		alone, err := Encode(plain, mode, form)
		ok(t, err)
		if !bytes.Equal(coded, alone) {
			t.Errorf("%s gave other bytes than those of the blocks", mode)
		}
	}
	coded, err := b.cache.Encode([]uint32{5, 1}, CodecInt8, how)
	ok(t, err)
	refused := b.cache.Decode(coded, []uint32{2, 3}, false, how)
	if !errors.Is(refused, ErrPermission) || !strings.Contains(refused.Error(), "lossy") {
		t.Errorf("not refused: %v", refused)
	}
	ok(t, b.cache.Decode(coded, []uint32{2, 3}, true, how))
	back, err := Decode(coded, true)
	ok(t, err)
	if got := append(bytes.Clone(b.block(2)), b.block(3)...); !bytes.Equal(got, back) || bytes.Equal(got, plain) {
		t.Error("other bytes came into the blocks")
	}
	room, err := b.cache.CodeRoom(2, how)
	ok(t, err)
	into := make([]byte, room)
	n, err := b.cache.EncodeInto(into, []uint32{5, 1}, CodecInt8, how)
	ok(t, err)
	if !bytes.Equal(into[:n], coded) {
		t.Error("other bytes in the caller's memory")
	}
}

func TestCodingThatIsNotPossibleIsRefusedInWords(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	coded, err := b.cache.Encode([]uint32{0, 1}, CodecOff, nil)
	ok(t, err)
	changed := bytes.Clone(coded)
	changed[len(changed)-1] ^= 1
	var legacy Stream
	for _, c := range []struct {
		name string
		call func() error
		kind error
		says string
	}{
		{"lossy of bytes", func() error { _, err := b.cache.Encode([]uint32{0}, CodecInt8, nil); return err }, ErrInvalid,
			"bytes of no known kind"},
		{"no such mode", func() error { _, err := b.cache.Encode([]uint32{0}, 99, nil); return err }, ErrInvalid, "mode"},
		{"no such block", func() error { _, err := b.cache.Encode([]uint32{testBlocks}, CodecOff, nil); return err },
			ErrInvalid, "block_ids"},
		{"no block", func() error { _, err := b.cache.Encode([]uint32{NoBlock}, CodecOff, nil); return err }, ErrInvalid,
			"block_ids"},
		{"no such part", func() error { _, err := b.cache.Encode([]uint32{0}, CodecOff, &CodeOptions{Part: 1}); return err },
			ErrInvalid, "part"},
		{"part before the first", func() error { _, err := b.cache.CodeRoom(1, &CodeOptions{Part: -1}); return err },
			ErrInvalid, "Part is -1"},
		{"fewer than no blocks", func() error { _, err := b.cache.CodeRoom(-1, nil); return err }, ErrInvalid, "-1 blocks"},
		{"a stream", func() error {
			_, err := b.cache.Encode([]uint32{0}, CodecOff, &CodeOptions{Stream: &legacy})
			return err
		}, ErrInvalid, "stream"},
		{"little room", func() error { _, err := b.cache.EncodeInto(nil, []uint32{0}, CodecOff, nil); return err }, ErrNoRoom,
			"are needed"},
		{"twice the same", func() error { return b.cache.Decode(coded, []uint32{1, 1}, false, nil) }, ErrInvalid,
			"block_ids"},
		{"fewer blocks", func() error { return b.cache.Decode(coded, []uint32{1}, false, nil) }, ErrInvalid, "blocks"},
		{"changed", func() error { return b.cache.Decode(changed, []uint32{2, 3}, false, nil) }, ErrDamaged, ""},
		{"nothing", func() error { return b.cache.Decode(nil, nil, false, nil) }, ErrDamaged, ""},
		{"nil cache", func() error { _, err := (*Cache)(nil).Encode(nil, CodecOff, nil); return err }, ErrInvalid, "nil"},
		{"nil cache 2", func() error { return (*Cache)(nil).Decode(coded, nil, false, nil) }, ErrInvalid, "nil"},
	} {
		if err := c.call(); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	b.cache.Close()
	_, err = b.cache.Encode([]uint32{0}, CodecOff, nil)
	wantClosed(t, err)
	wantClosed(t, b.cache.Decode(coded, []uint32{0, 1}, false, nil))
}

func TestADeviceCodesItsBlocksToTheBytesOfTheProcessor(t *testing.T) {
	path := driverFile(t)
	driver, err := testdriver.Open(path)
	ok(t, err)
	_, manager, ns := deviceManager(t, path)
	var addresses [deviceLayers]uintptr
	var onDevice, onHost [deviceLayers][]byte
	part := CachePart{Form: FormOpaque}
	for layer := range onDevice {
		addresses[layer], onDevice[layer] = driver.Memory(deviceBlocks * devicePage)
		onHost[layer] = codedValues(deviceBlocks*devicePage, layer)
		copy(onDevice[layer], onHost[layer])
		part.Tensors = append(part.Tensors, Tensor{Data: onHost[layer], PageBytes: devicePage})
	}
	device, err := manager.AttachCache(ns, deviceOptions(addresses))
	ok(t, err)
	defer device.Close()
	host, err := manager.AttachCache(ns, &CacheOptions{Blocks: deviceBlocks, Parts: []CachePart{part}})
	ok(t, err)
	defer host.Close()
	stream := Stream(driver.Stream())
	how := &CodeOptions{Form: &CodecForm{Element: ElementBF16, RowElements: 64}}
	behind := &CodeOptions{Form: how.Form, Stream: &stream}
	ids, others := []uint32{3, 0, 7}, []uint32{9, 10, 11}
	for _, mode := range []CodecMode{CodecDefault, CodecInt8, CodecZstd, CodecOff} {
		lossy := mode == CodecInt8
		coded, err := device.Encode(ids, mode, behind)
		ok(t, err)
		there, err := host.Encode(ids, mode, how)
		ok(t, err)
		// The last digits of what was lost may differ.
		if len(coded) != len(there) || !lossy && !bytes.Equal(coded, there) {
			t.Errorf("%s: the device coded to other bytes", mode)
		}
		if err := device.Decode(coded, others, false, behind); lossy && !errors.Is(err, ErrPermission) {
			t.Errorf("not refused: %v", err)
		}
		ok(t, device.Decode(coded, others, lossy, behind))
		plain, err := Decode(coded, lossy)
		ok(t, err)
		for i := range others {
			for layer := range onDevice {
				if got := onDevice[layer][(9+i)*devicePage:][:devicePage]; !bytes.Equal(got,
					plain[(i*deviceLayers+layer)*devicePage:][:devicePage]) {
					t.Errorf("%s: block %d of layer %d is something else", mode, i, layer)
				}
			}
		}
	}
	if _, err := host.Encode(ids, CodecOff, behind); !errors.Is(err, ErrInvalid) {
		t.Errorf("the error of a stream in host memory is %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

const (
	codecDim    = 64
	codecTokens = 96
)

var codecForm = &CodecForm{Element: ElementBF16, RowElements: codecDim, Rows: codecTokens}

// bf16 as [head][token][dim]: the high halves of normal floats.
func codecPage() []byte {
	random := rand.New(rand.NewSource(1))
	var page []byte
	for i := 0; i < 4*codecTokens*codecDim; i++ {
		bits := math.Float32bits(float32(random.NormFloat64()))
		page = append(page, byte(bits>>16), byte(bits>>24))
	}
	return page
}

type codecVectors struct {
	Streams []struct {
		Name, Mode, Coded string
		Row, Rows         uint32
		Lossy             bool
		RawBytes          uint64 `json:"raw_bytes"`
		DecodedSHA256     string `json:"decoded_sha256"`
	}
	Refused []struct {
		Name, Coded string
		Status      Status
	}
}

func readCodecVectors(t *testing.T) (v codecVectors) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "tests", "data", "vectors", "codec.json"))
	ok(t, err)
	ok(t, json.Unmarshal(text, &v))
	if len(v.Streams) == 0 || len(v.Refused) == 0 {
		t.Fatal("there are no vectors")
	}
	return v
}

func TestCodecVectorsDecodeToTheirBytes(t *testing.T) {
	for _, stream := range readCodecVectors(t).Streams {
		t.Run(stream.Name, func(t *testing.T) {
			coded, err := hex.DecodeString(stream.Coded)
			ok(t, err)
			info, err := Inspect(coded)
			ok(t, err)
			mode, err := ParseCodecMode(stream.Mode)
			ok(t, err)
			if info.Mode != mode || info.Mode.String() != stream.Mode || info.Form.RowElements != stream.Row ||
				info.Form.Rows != stream.Rows || info.Lossy != stream.Lossy || info.RawBytes != stream.RawBytes ||
				info.CodedBytes != uint64(len(coded)) {
				t.Errorf("it says of itself %+v", info)
			}
			raw, err := Decode(coded, stream.Lossy)
			ok(t, err)
			if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != stream.DecodedSHA256 {
				t.Error("other bytes came back")
			}
			if _, err := Decode(coded, false); stream.Lossy && !errors.Is(err, ErrPermission) {
				t.Errorf("not refused: %v", err)
			}
		})
	}
}

func TestCodecVectorsThatAreWrongAreRefused(t *testing.T) {
	for _, refused := range readCodecVectors(t).Refused {
		coded, err := hex.DecodeString(refused.Coded)
		ok(t, err)
		_, err = Decode(coded, true)
		var failure *Error
		if !errors.As(err, &failure) || failure.Status != refused.Status {
			t.Errorf("%s: %v", refused.Name, err)
		}
	}
}

func TestLosslessModesGiveBackEveryBit(t *testing.T) {
	page := codecPage()
	for mode := CodecOff; mode <= CodecZstd; mode++ {
		coded, err := Encode(page, mode, codecForm)
		ok(t, err)
		if (len(coded) < len(page)*9/10) != (mode != CodecOff) {
			t.Errorf("%s made %d bytes of %d", mode, len(coded), len(page))
		}
		room, err := CodecRoom(len(page), codecForm)
		ok(t, err)
		into, back := make([]byte, room), make([]byte, len(page))
		n, err := EncodeInto(into, page, mode, codecForm)
		ok(t, err)
		if !bytes.Equal(into[:n], coded) {
			t.Errorf("%s: other bytes in the caller's memory", mode)
		}
		if n, err := DecodeInto(back, coded, false); err != nil || n != len(page) || !bytes.Equal(back, page) {
			t.Errorf("%s: %d bytes came back, %v", mode, n, err)
		}
	}
	coded, err := Encode(nil, CodecDefault, nil)
	ok(t, err)
	if raw, err := Decode(coded, false); err != nil || len(raw) != 0 {
		t.Errorf("of nothing came %d bytes, %v", len(raw), err)
	}
}

func TestLossyModesAskFirst(t *testing.T) {
	coded, err := Encode(codecPage(), CodecInt8, codecForm)
	ok(t, err)
	if info, err := Inspect(coded); err != nil || !info.Lossy || info.ErrorPPB == 0 {
		t.Errorf("it says of itself %+v, %v", info, err)
	}
	if _, err := Decode(coded, false); !errors.Is(err, ErrPermission) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("not refused: %v", err)
	}
	if raw, err := Decode(coded, true); err != nil || len(raw) != len(codecPage()) {
		t.Errorf("%d bytes came back, %v", len(raw), err)
	}
}

func TestChangedCodedBytesGiveTheRightBytesOrNone(t *testing.T) {
	page := codecPage()
	coded, err := Encode(page, CodecDefault, codecForm)
	ok(t, err)
	refused := 0
	for i := 0; i < len(coded); i += 1 + i/128*976 {
		coded[i] ^= 0x24
		if raw, err := Decode(coded, false); err != nil {
			refused++
		} else if !bytes.Equal(raw, page) {
			t.Fatalf("wrong bytes with byte %d changed", i)
		}
		coded[i] ^= 0x24
	}
	if refused < 50 {
		t.Errorf("only %d were refused", refused)
	}
	if _, err := Inspect(coded[:len(coded)-1]); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut short: %v", err)
	}
}

func TestCodecRefusesWhatDoesNotFit(t *testing.T) {
	page := codecPage()
	coded, err := Encode(page, CodecDefault, codecForm)
	ok(t, err)
	for name, try := range map[string]struct {
		want error
		do   func() error
	}{
		"a mode that is none":     {ErrInvalid, func() error { _, err := Encode(page, 7, nil); return err }},
		"a name that is none":     {ErrInvalid, func() error { _, err := ParseCodecMode("best"); return err }},
		"an empty name":           {ErrInvalid, func() error { _, err := ParseCodecMode(""); return err }},
		"a name with a zero":      {ErrInvalid, func() error { _, err := ParseCodecMode("max\x00"); return err }},
		"an element that is none": {ErrInvalid, func() error { _, err := Encode(page, CodecFast, &CodecForm{Element: 99}); return err }},
		"too few bytes":           {ErrInvalid, func() error { _, err := CodecRoom(-1, nil); return err }},
		"no room to code":         {ErrNoRoom, func() error { _, err := EncodeInto(nil, page, CodecFast, nil); return err }},
		"no room to decode":       {ErrNoRoom, func() error { _, err := DecodeInto(make([]byte, 9), coded, false); return err }},
		"buffers that overlap":    {ErrInvalid, func() error { _, err := DecodeInto(coded, coded, false); return err }},
		"nothing to look at":      {ErrDamaged, func() error { _, err := Inspect(nil); return err }},
	} {
		if err := try.do(); !errors.Is(err, try.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if CodecMode(7).String() != "CodecMode(7)" || CodecKernel() == "" {
		t.Error("a name is wrong")
	}
}

func TestATierCodesAndANamespaceSaysHow(t *testing.T) {
	b := newBench(t, ManagerOptions{Tiers: []Tier{{Path: t.TempDir(), CapacityBytes: 1 << 26, Codec: "default"}}})
	copy(b.block(0), bytes.Repeat([]byte("engine"), 100))
	ok(t, b.cache.Store(background, b.keys(t, 1, 1), []uint32{0}, nil))
	ok(t, b.manager.Flush(background))
	s, err := b.manager.Stats()
	ok(t, err)
	if len(s.Codec) != 2 || s.Codec[1].Coded+s.Codec[1].LeftPlain == 0 || s.LossyRefused != 0 {
		t.Errorf("the counters are %+v", s.Codec)
	}
	lossy, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "m", Codec: "int8", AllowLossy: true})
	ok(t, err)
	lossy.Close()
	if _, err := b.manager.OpenNamespace(&NamespaceOptions{Model: "m", Codec: "nothing known"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a recipe that is none: %v", err)
	}
	bad := &ManagerOptions{Tiers: []Tier{{Path: t.TempDir(), CapacityBytes: 1 << 26, Codec: "nothing known"}}}
	if _, err := b.kv.NewManager(bad); !errors.Is(err, ErrCaller) {
		t.Errorf("a codec that is none: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// CodecMode is what coding is asked for. Below 16 every bit comes back; from 16 on it is lossy, and a reader must allow
// that.
type CodecMode uint32

// The modes of kvbm.h.
const (
	CodecOff       CodecMode = C.KVBM_CODEC_OFF
	CodecFast      CodecMode = C.KVBM_CODEC_FAST
	CodecDefault   CodecMode = C.KVBM_CODEC_DEFAULT
	CodecMax       CodecMode = C.KVBM_CODEC_MAX
	CodecZstd      CodecMode = C.KVBM_CODEC_ZSTD
	CodecFP8E4M3   CodecMode = C.KVBM_CODEC_FP8_E4M3
	CodecFP8E5M2   CodecMode = C.KVBM_CODEC_FP8_E5M2
	CodecInt8      CodecMode = C.KVBM_CODEC_INT8
	CodecInt6      CodecMode = C.KVBM_CODEC_INT6
	CodecInt4      CodecMode = C.KVBM_CODEC_INT4
	CodecInt8Coded CodecMode = C.KVBM_CODEC_INT8_CODED
	CodecInt6Coded CodecMode = C.KVBM_CODEC_INT6_CODED
	CodecInt4Coded CodecMode = C.KVBM_CODEC_INT4_CODED
	CodecDelta     CodecMode = C.KVBM_CODEC_DELTA
)

// String returns the name that configuration has for the mode: "default", "int8_coded".
func (m CodecMode) String() string {
	if name := C.kvbm_codec_mode_name(C.uint32_t(m)); name != nil {
		return C.GoString(name)
	}
	return fmt.Sprintf("CodecMode(%d)", uint32(m))
}

// ParseCodecMode returns the mode of a name.
func ParseCodecMode(name string) (CodecMode, error) {
	const op = "ParseCodecMode"
	chars := make([]byte, 0, len(name)+1)
	chars, err := appendText(op, "the name", chars, name)
	if err != nil {
		return 0, err
	}
	var mode C.uint32_t
	var detail C.kvbm_error_t
	status := C.kvbm_codec_mode_by_name((*C.char)(unsafe.Pointer(unsafe.SliceData(chars))), &mode, &detail)
	return CodecMode(mode), failWith(op, status, &detail)
}

// CodecKernel returns which implementation runs on this processor: "avx512", "bmi2", "portable". All give the same bytes.
func CodecKernel() string { return C.GoString(C.kvbm_codec_kernel()) }

// CodecForm is what the bytes are: rows of RowElements elements, in which the same place is the same channel.
// [token][head][dim] is RowElements heads*dim; [head][token][dim] is RowElements dim and Rows tokens. The zero value is
// opaque bytes, which only zstd can make smaller.
type CodecForm struct {
	Element     Element
	RowElements uint32 // 0 = not known
	Rows        uint32 // rows after which other channels begin (the next head); 0 = never
}

func (f *CodecForm) c() C.kvbm_codec_options_t {
	options := C.kvbm_codec_options_t{struct_size: C.sizeof_kvbm_codec_options_t}
	if f != nil {
		options.element = C.uint32_t(f.Element)
		options.row_elements = C.uint32_t(f.RowElements)
		options.rows = C.uint32_t(f.Rows)
	}
	return options
}

// CodecRoom returns how many bytes EncodeInto needs, whatever is in the bytes and whichever the mode; nil = opaque.
func CodecRoom(rawBytes int, form *CodecForm) (int, error) {
	const op = "CodecRoom"
	if err := checkLibrary(op); err != nil {
		return 0, err
	}
	if rawBytes < 0 {
		return 0, invalid(op, "%d bytes are too few", rawBytes)
	}
	options := form.c()
	var room C.uint64_t
	var detail C.kvbm_error_t
	status := C.kvbm_codec_room(C.uint64_t(rawBytes), &options, &room, &detail)
	return int(room), failWith(op, status, &detail)
}

// Encode encodes KV without a context or manager. The coded buffer describes itself and has a hash of each part. So
// Decode returns the right bytes or an error, whatever happens to the buffer. form nil = opaque. A call uses a core and
// a thread until it is done.
func Encode(raw []byte, mode CodecMode, form *CodecForm) ([]byte, error) {
	room, err := CodecRoom(len(raw), form)
	if err != nil {
		return nil, err
	}
	coded := make([]byte, room)
	n, err := EncodeInto(coded, raw, mode, form)
	if err != nil {
		return nil, err
	}
	return coded[:n:n], nil
}

// EncodeInto is Encode into memory of the caller's, which has CodecRoom bytes; it returns how many were used.
func EncodeInto(into, raw []byte, mode CodecMode, form *CodecForm) (int, error) {
	const op = "Encode"
	if err := checkBuffers(op, into, raw); err != nil {
		return 0, err
	}
	if into == nil {
		into = []byte{} // no room, rather than no argument
	}
	options := form.c()
	var n C.size_t
	var detail C.kvbm_error_t
	status := C.kvbm_codec_encode(unsafe.Pointer(unsafe.SliceData(raw)), C.size_t(len(raw)), C.uint32_t(mode), &options,
		unsafe.Pointer(unsafe.SliceData(into)), C.size_t(len(into)), &n, &detail)
	return int(n), failWith(op, status, &detail)
}

// CodecInfo is what coded bytes say of themselves.
type CodecInfo struct {
	Mode       CodecMode // that was asked for
	Form       CodecForm
	Lossy      bool // decoding has to allow it
	Leaves     uint32
	RawLeaves  uint32 // leaves stored unchanged
	RawBytes   uint64 // size of the decoded bytes
	CodedBytes uint64
	ErrorPPB   uint64 // lossy: sum of squared differences / sum of squared values, in 1e-9
}

// Inspect reads what coded bytes say of themselves, without decoding: look before room is taken for what comes from
// elsewhere. Bytes that are not coded, were cut short or changed are ErrDamaged.
func Inspect(coded []byte) (*CodecInfo, error) {
	const op = "Inspect"
	if err := checkLibrary(op); err != nil {
		return nil, err
	}
	info := C.kvbm_codec_info_t{struct_size: C.sizeof_kvbm_codec_info_t}
	var detail C.kvbm_error_t
	status := C.kvbm_codec_inspect(unsafe.Pointer(unsafe.SliceData(coded)), C.size_t(len(coded)), &info, &detail)
	if status < 0 {
		return nil, failWith(op, status, &detail)
	}
	return &CodecInfo{Mode: CodecMode(info.mode), Lossy: info.lossy != 0, Leaves: uint32(info.leaves),
		Form:      CodecForm{Element(info.element), uint32(info.row_elements), uint32(info.rows)},
		RawLeaves: uint32(info.raw_leaves), RawBytes: uint64(info.raw_bytes), CodedBytes: uint64(info.coded_bytes),
		ErrorPPB: uint64(info.error_ppb)}, nil
}

// Decode decodes a coded buffer. A changed or truncated buffer is ErrDamaged, one of a newer library ErrVersion: both
// are misses. A lossy buffer is ErrPermission unless allowLossy.
func Decode(coded []byte, allowLossy bool) ([]byte, error) {
	info, err := Inspect(coded)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, info.RawBytes)
	if _, err := DecodeInto(raw, coded, allowLossy); err != nil {
		return nil, err
	}
	return raw, nil
}

// DecodeInto is Decode into memory of the caller's; it returns how many bytes it wrote. After an error into may have any
// bytes.
func DecodeInto(into, coded []byte, allowLossy bool) (int, error) {
	const op = "Decode"
	if err := checkBuffers(op, into, coded); err != nil {
		return 0, err
	}
	var flags C.uint32_t
	if allowLossy {
		flags = C.KVBM_CODEC_ALLOW_LOSSY
	}
	var n C.size_t
	var detail C.kvbm_error_t
	status := C.kvbm_codec_decode(unsafe.Pointer(unsafe.SliceData(coded)), C.size_t(len(coded)), flags,
		unsafe.Pointer(unsafe.SliceData(into)), C.size_t(len(into)), &n, &detail)
	return int(n), failWith(op, status, &detail)
}

func checkBuffers(op string, into, from []byte) error {
	if err := checkLibrary(op); err != nil {
		return err
	}
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(unsafe.Pointer(unsafe.SliceData(from)))
	if len(into) != 0 && len(from) != 0 && a < b+uintptr(len(from)) && b < a+uintptr(len(into)) {
		return invalid(op, "the buffers overlap")
	}
	return nil
}

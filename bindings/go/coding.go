// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// CodeOptions is which blocks of a cache are coded, and how; nil and the zero value are the defaults.
type CodeOptions struct {
	Part int // index in CacheOptions.Parts
	// Form is what the bytes of an opaque part, or of a state, are; of other parts it is known: nil, or the same.
	Form *CodecForm
	// Stream is of the cache's device: the blocks are read or written after what it holds. nil: at once.
	Stream *Stream
}

func (o *CodeOptions) c(op string, allowLossy bool) (how C.kvbmgo_code_t, err error) {
	if o == nil {
		o = &CodeOptions{}
	}
	how.part, err = count32(op, "Part", o.Part)
	if o.Form != nil {
		how.element, how.row_elements = C.uint32_t(o.Form.Element), C.uint32_t(o.Form.RowElements)
		how.rows = C.uint32_t(o.Form.Rows)
	}
	if allowLossy {
		how.flags = C.KVBM_CODEC_ALLOW_LOSSY
	}
	how.stream, how.has_stream = o.Stream.c()
	return how, err
}

// CodeRoom returns how many bytes EncodeInto needs for so many engine blocks, whatever is in them and whichever the mode.
func (c *Cache) CodeRoom(blocks int, o *CodeOptions) (int, error) {
	const op = "Cache.CodeRoom"
	if err := c.handle().enter(op, "cache"); err != nil {
		return 0, err
	}
	defer c.h.exit()
	how, err := o.c(op, false)
	if err != nil {
		return 0, err
	}
	if blocks < 0 {
		return 0, invalid(op, "%d blocks are too few", blocks)
	}
	var room C.uint64_t
	var detail C.kvbm_error_t
	status := C.kvbmgo_code_room(c.c(), C.size_t(blocks), &how, &room, &detail)
	return int(room), failWith(op, status, &detail)
}

// Encode codes engine blocks of one part, as Encode of the package does bytes and with the same result: on a device by
// its kernels. Nothing of it enters a tier. As many ids as a stored block has engine blocks make one. It returns when all
// is done, also when a stream has to get there first.
func (c *Cache) Encode(blockIDs []uint32, mode CodecMode, o *CodeOptions) ([]byte, error) {
	room, err := c.CodeRoom(len(blockIDs), o)
	if err != nil {
		return nil, err
	}
	coded := make([]byte, room)
	n, err := c.EncodeInto(coded, blockIDs, mode, o)
	if err != nil {
		return nil, err
	}
	return coded[:n:n], nil
}

// EncodeInto is Encode into memory of the caller's, which has CodeRoom bytes; it returns how many were used. After an
// error into may have any bytes.
func (c *Cache) EncodeInto(into []byte, blockIDs []uint32, mode CodecMode, o *CodeOptions) (int, error) {
	const op = "Cache.Encode"
	if err := c.handle().enter(op, "cache"); err != nil {
		return 0, err
	}
	defer c.h.exit()
	how, err := o.c(op, false)
	if err != nil {
		return 0, err
	}
	if into == nil {
		into = []byte{} // no room, rather than no argument
	}
	var n C.size_t
	var detail C.kvbm_error_t
	status := C.kvbmgo_encode(c.c(), (*C.uint32_t)(unsafe.SliceData(blockIDs)), C.size_t(len(blockIDs)),
		C.uint32_t(mode), &how, unsafe.Pointer(unsafe.SliceData(into)), C.size_t(len(into)), &n, &detail)
	return int(n), failWith(op, status, &detail)
}

// Decode decodes the result of Encode into engine blocks; no block may be named twice. Every byte is verified before it
// is written. A changed or truncated buffer is ErrDamaged, one of a newer library ErrVersion: both are misses, and the
// blocks are undefined. A lossy buffer is ErrPermission unless allowLossy. Do not store lossy blocks under keys for
// which readers expect exact bytes.
func (c *Cache) Decode(coded []byte, blockIDs []uint32, allowLossy bool, o *CodeOptions) error {
	const op = "Cache.Decode"
	if err := c.handle().enter(op, "cache"); err != nil {
		return err
	}
	defer c.h.exit()
	how, err := o.c(op, allowLossy)
	if err != nil {
		return err
	}
	var detail C.kvbm_error_t
	status := C.kvbmgo_decode(c.c(), unsafe.Pointer(unsafe.SliceData(coded)), C.size_t(len(coded)),
		(*C.uint32_t)(unsafe.SliceData(blockIDs)), C.size_t(len(blockIDs)), &how, &detail)
	return failWith(op, status, &detail)
}

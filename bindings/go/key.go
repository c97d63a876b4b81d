// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/hex"
	"unsafe"
)

// Key is the name of a block's content in its namespace. A []Key goes to C as it is.
type Key [16]byte

// String returns the bytes in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

func goKey(c C.kvbm_key_t) Key { return *(*Key)(unsafe.Pointer(&c)) }

func keysOf(keys []Key) (*C.kvbm_key_t, C.size_t) {
	return (*C.kvbm_key_t)(unsafe.Pointer(unsafe.SliceData(keys))), C.size_t(len(keys))
}

// KeyChain makes the keys of consecutive full blocks of blockTokens tokens, each depending on all before it: the names
// to use for prefix caching. previous is the key of the block before, nil at the start of a prompt. A partial last block
// gets none. extras is nil or has the bytes that make each full block more than its tokens, nil for none.
func (n *Namespace) KeyChain(previous *Key, tokens []uint32, blockTokens int, extras [][]byte) ([]Key, error) {
	return n.keys("Namespace.KeyChain", false, previous, tokens, blockTokens, extras)
}

// KeyContent makes the keys of full blocks by their own tokens alone, wherever they stand. A block stored under such a
// key carries the position it was computed at (StoreOptions.Positions, RegisterOptions.Positions).
func (n *Namespace) KeyContent(tokens []uint32, blockTokens int, extras [][]byte) ([]Key, error) {
	return n.keys("Namespace.KeyContent", true, nil, tokens, blockTokens, extras)
}

func (n *Namespace) keys(op string, content bool, previous *Key, tokens []uint32, blockTokens int,
	extras [][]byte) ([]Key, error) {
	if err := n.handle().enter(op, "namespace"); err != nil {
		return nil, err
	}
	defer n.h.exit()
	perBlock, err := count32(op, "blockTokens", blockTokens)
	if err != nil {
		return nil, err
	}
	if perBlock == 0 {
		return nil, invalid(op, "a block has no tokens")
	}
	blocks := len(tokens) / blockTokens
	if extras != nil && len(extras) != blocks {
		return nil, invalid(op, "there are %d extras for %d full blocks", len(extras), blocks)
	}
	var data []byte
	lengths := make([]C.uint64_t, len(extras))
	for i, e := range extras {
		data = append(data, e...)
		lengths[i] = C.uint64_t(len(e))
	}
	keys := make([]Key, blocks)
	out, capacity := keysOf(keys)
	var made C.size_t
	mode := C.int(0)
	if content {
		mode = 1
	}
	err = told(op, func() C.kvbm_status_t {
		return C.kvbmgo_keys(n.c(), mode, (*C.kvbm_key_t)(unsafe.Pointer(previous)),
			(*C.uint32_t)(unsafe.SliceData(tokens)), C.size_t(len(tokens)), perBlock,
			(*C.uint8_t)(unsafe.SliceData(data)), unsafe.SliceData(lengths), C.size_t(len(lengths)), out, capacity, &made)
	})
	if err != nil {
		return nil, err
	}
	return keys[:min(len(keys), int(made))], nil
}

// KeyFromHashes makes keys from an engine's own hashes of hashBytes bytes each, one after the other: 16 to 64, or 1 to 64
// where the namespace has WeakHashes.
func (n *Namespace) KeyFromHashes(hashes []byte, hashBytes int) ([]Key, error) {
	const op = "Namespace.KeyFromHashes"
	if err := n.handle().enter(op, "namespace"); err != nil {
		return nil, err
	}
	defer n.h.exit()
	if hashBytes < 1 || len(hashes)%hashBytes != 0 {
		return nil, invalid(op, "%d bytes are no hashes of %d bytes", len(hashes), hashBytes)
	}
	keys := make([]Key, len(hashes)/hashBytes)
	out, count := keysOf(keys)
	status := C.kvbm_key_from_hashes(n.c(), (*C.uint8_t)(unsafe.SliceData(hashes)), C.size_t(hashBytes), count, out)
	if status == C.KVBM_ERR_INVALID && hashBytes < 16 {
		return nil, invalid(op, "hashes of %d bytes are taken where the namespace has WeakHashes; 16 or more always", hashBytes)
	}
	if status < 0 {
		return nil, fail(op, status)
	}
	return keys, nil
}

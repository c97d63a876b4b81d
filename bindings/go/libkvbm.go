// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#cgo pkg-config: kvbm
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// The version of the kvbm.h that this package was compiled with.
const (
	VersionMajor = C.KVBM_VERSION_MAJOR
	VersionMinor = C.KVBM_VERSION_MINOR
	VersionPatch = C.KVBM_VERSION_PATCH
)

// Arrays of these are handed to C as they are, so they have C's size; a difference does not compile.
var (
	_ [unsafe.Sizeof(Key{}) - C.sizeof_kvbm_key_t]struct{}
	_ [C.sizeof_kvbm_key_t - unsafe.Sizeof(Key{})]struct{}
	_ [unsafe.Sizeof(Position{}) - C.sizeof_kvbm_position_t]struct{}
	_ [C.sizeof_kvbm_position_t - unsafe.Sizeof(Position{})]struct{}
	_ [unsafe.Sizeof(RequestID{}) - C.sizeof_kvbm_request_id_t]struct{}
	_ [C.sizeof_kvbm_request_id_t - unsafe.Sizeof(RequestID{})]struct{}
	_ [unsafe.Sizeof(Hold(0)) - C.sizeof_kvbm_block_t]struct{}
	_ [C.sizeof_kvbm_block_t - unsafe.Sizeof(Hold(0))]struct{}
	_ [unsafe.Sizeof(rawView{}) - C.sizeof_kvbm_view_t]struct{}
	_ [C.sizeof_kvbm_view_t - unsafe.Sizeof(rawView{})]struct{}
	_ [unsafe.Sizeof(Status(0)) - C.sizeof_kvbm_status_t]struct{}
	_ [C.sizeof_kvbm_status_t - unsafe.Sizeof(Status(0))]struct{}
	_ [unsafe.Sizeof(uint64(0)) - C.sizeof_size_t]struct{}
)

// Version returns the version of the library that runs, as "0.1.0".
func Version() string { return C.GoString(C.kvbm_version_string()) }

// VersionNumber returns the version of the library that runs as one number that compares:
// major*1000000 + minor*1000 + patch.
func VersionNumber() uint32 { return uint32(C.kvbm_version()) }

// Every object begins with a context or a geometry, and both begin here.
func checkLibrary(op string) error {
	return checkVersion(op, uint32(C.kvbmgo_header_version()), VersionNumber())
}

// Before 1.0 a minor version may change what calls mean; after it only a major one does. A library older than the header
// lacks what the header promises.
func checkVersion(op string, header, library uint32) error {
	major := func(v uint32) uint32 { return v / 1000000 }
	minor := func(v uint32) uint32 { return v / 1000 }
	fits := major(header) == major(library) && header <= library
	if major(header) == 0 {
		fits = fits && minor(header) == minor(library)
	}
	if fits {
		return nil
	}
	return &Error{Op: op, Status: StatusVersion, Message: fmt.Sprintf(
		"the program was compiled with kvbm.h %s and runs with libkvbm %s: compile it again with the header of the "+
			"library that is installed, or let the loader find the library of the header (LD_LIBRARY_PATH)",
		versionText(header), versionText(library))}
}

func versionText(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v/1000000, v/1000%1000, v%1000)
}

func bit(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

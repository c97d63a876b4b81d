// SPDX-License-Identifier: Apache-2.0

// Package testdriver is the engine's side of the fake CUDA driver that the library's own tests use
// (libtest_cuda_driver.so): its devices have host memory.
package testdriver

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static const char *open_error(void) { return dlerror(); }
static void *entry(void *library, const char *name) { return dlsym(library, name); }
static uint64_t allocate(void *entry, int device, size_t bytes) {
  return ((unsigned long long (*)(int, size_t))entry)(device, bytes);
}
static uint64_t make_stream(void *entry, int device) { return (uintptr_t)((void *(*)(int))entry)(device); }
static void synchronize(void *entry, uint64_t stream) { ((void (*)(void *))entry)((void *)(uintptr_t)stream); }
static void *memory_at(uint64_t address) { return (void *)(uintptr_t)address; }
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Driver is the fake, for as long as the process.
type Driver struct{ allocate, makeStream, synchronize unsafe.Pointer }

// Open loads the library of this path.
func Open(path string) (*Driver, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	library := C.open_library(name)
	if library == nil {
		return nil, errors.New(C.GoString(C.open_error()))
	}
	find := func(entry string) unsafe.Pointer {
		name := C.CString(entry)
		defer C.free(unsafe.Pointer(name))
		return C.entry(library, name)
	}
	d := &Driver{find("kvbm_fake_allocate"), find("kvbm_fake_make_stream"), find("kvbm_fake_synchronize")}
	if d.allocate == nil || d.makeStream == nil || d.synchronize == nil {
		return nil, errors.New(path + " is not the fake CUDA driver")
	}
	return d, nil
}

// Memory allocates on device 0: an address for the library, and the same bytes for the test.
func (d *Driver) Memory(bytes int) (uintptr, []byte) {
	address := C.allocate(d.allocate, 0, C.size_t(bytes))
	return uintptr(address), unsafe.Slice((*byte)(C.memory_at(address)), bytes)
}

// Stream makes a stream of device 0.
func (d *Driver) Stream() uintptr { return uintptr(C.make_stream(d.makeStream, 0)) }

// Synchronize waits until the stream has done what it holds.
func (d *Driver) Synchronize(stream uintptr) { C.synchronize(d.synchronize, C.uint64_t(stream)) }

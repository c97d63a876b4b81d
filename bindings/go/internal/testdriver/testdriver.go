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
static int copy(void *entry, uint64_t to, uint64_t from, size_t bytes, uint64_t stream) {
  return ((int (*)(unsigned long long, unsigned long long, size_t, void *))entry)(to, from, bytes, (void *)(uintptr_t)stream);
}
static void set(void *entry, uint64_t stream, int on) { ((void (*)(void *, int))entry)((void *)(uintptr_t)stream, on); }
static int apply(void *entry, const char *text) { return ((int (*)(const char *))entry)(text); }
static void *memory_at(uint64_t address) { return (void *)(uintptr_t)address; }
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Driver is the fake, for as long as the process.
type Driver struct{ allocate, makeStream, synchronize, copy, hold, capture, apply unsafe.Pointer }

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
	d := &Driver{find("kvbm_fake_allocate"), find("kvbm_fake_make_stream"), find("kvbm_fake_synchronize"),
		find("kvbm_fake_copy"), find("kvbm_fake_hold"), find("kvbm_fake_capture"), find("kvbm_fake_apply")}
	for _, entry := range []unsafe.Pointer{d.allocate, d.makeStream, d.synchronize, d.copy, d.hold, d.capture, d.apply} {
		if entry == nil {
			return nil, errors.New(path + " is not the fake CUDA driver")
		}
	}
	return d, nil
}

// Apply sets it up ("devices=2"), or has something fail: see tests/support/fake_cuda.
func (d *Driver) Apply(text string) error {
	words := C.CString(text)
	defer C.free(unsafe.Pointer(words))
	if C.apply(d.apply, words) == 0 {
		return errors.New("the fake CUDA driver does not know " + text)
	}
	return nil
}

// Memory allocates on device 0: an address for the library, and the same bytes for the test.
func (d *Driver) Memory(bytes int) (uintptr, []byte) { return d.MemoryOn(0, bytes) }

// MemoryOn is Memory on a device.
func (d *Driver) MemoryOn(device, bytes int) (uintptr, []byte) {
	address := C.allocate(d.allocate, C.int(device), C.size_t(bytes))
	return uintptr(address), unsafe.Slice((*byte)(C.memory_at(address)), bytes)
}

// Stream makes a stream of device 0.
func (d *Driver) Stream() uintptr { return d.StreamOn(0) }

// StreamOn makes a stream of a device.
func (d *Driver) StreamOn(device int) uintptr {
	return uintptr(C.make_stream(d.makeStream, C.int(device)))
}

// Copy enqueues a copy on a stream; false where there is no such stream.
func (d *Driver) Copy(to, from uintptr, bytes int, stream uintptr) bool {
	return C.copy(d.copy, C.uint64_t(to), C.uint64_t(from), C.size_t(bytes), C.uint64_t(stream)) != 0
}

// Hold stops a stream until it is released.
func (d *Driver) Hold(stream uintptr, on bool) { C.set(d.hold, C.uint64_t(stream), number(on)) }

// Capture begins and ends a capture of a stream into a graph.
func (d *Driver) Capture(stream uintptr, on bool) { C.set(d.capture, C.uint64_t(stream), number(on)) }

func number(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// Synchronize waits until the stream has done what it holds.
func (d *Driver) Synchronize(stream uintptr) { C.synchronize(d.synchronize, C.uint64_t(stream)) }

// SPDX-License-Identifier: Apache-2.0
//
// Python objects that own objects of libkvbm. SWIG wraps the functions; these types manage lifetimes:
//   Handle  an opaque pointer. A call in flight holds a reference, so the library's object is released when the last
//           call on it has returned, even if it was closed meanwhile.
//   Memory  zeroed native memory: key arrays, lists of holds, item statuses that the library writes later.
//   Holds   holds on blocks, and the number of their views. They end with their last use.
//   Dlpack  a DLPack tensor in host memory, as a buffer.
//   Channel, Operation  a store in Python, and an operation passed to it.
// Everything here runs with the GIL held, which is the lock of all fields. Only the stable ABI of CPython 3.11.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <kvbm.h>

enum kvbm_kind {
  KVBM_KIND_CONTEXT,
  KVBM_KIND_QUEUE,
  KVBM_KIND_GEOMETRY,
  KVBM_KIND_MANAGER,
  KVBM_KIND_NAMESPACE,
  KVBM_KIND_CACHE,
  KVBM_KIND_MATCH,
  KVBM_KIND_OFFER,
  KVBM_KIND_SESSION,
  KVBM_KINDS
};

// Number of forks since the module was loaded: objects of another generation belong to a parent process.
extern unsigned kvbm_generation;

// Raises the exception of the idiomatic layer for a status. `message` NULL or "": the status's own text. Returns -1.
int kvbm_raise(kvbm_status_t status, const char *message);
// Sets the function that makes kvbm_raise's exceptions from (status, message). Returns the one before.
PyObject *kvbm_set_error_factory(PyObject *factory);

// A kvbm_log_fn: see log.c.
void kvbm_log_to_pipe(void *user, int32_t level, const char *component, const char *text);

// The stores of Python's: see store.c. The authority of a tier's URL is the number of its Channel.
extern const kvbm_store_table_t kvbm_python_store;

// Takes ownership of `pointer`, also when it fails. None for NULL.
PyObject *kvbm_handle_new(void *pointer, enum kvbm_kind kind);
// The pointer of a Handle of that kind, or of None where `nullable`. Returns 0, or -1 with an exception.
int kvbm_handle_get(PyObject *object, enum kvbm_kind kind, int nullable, void **out_pointer);

PyObject *kvbm_memory_new(size_t bytes, char format);
// Sets the address of a Memory, of a bytes object (const only), or NULL for None. The object keeps it valid. Returns 0
// or -1.
int kvbm_address(PyObject *object, size_t at_least, int writable, void **out_address);

// Gets a contiguous buffer with items of that size: integers of that width, or raw bytes if `item` is 1 or 16. Release
// `out` after use. Returns 0 or -1.
int kvbm_buffer_get(PyObject *object, size_t item, const char *what, Py_buffer *out, size_t *out_n);

// Registers the types in the module. 0 or -1.
int kvbm_add_handle_type(PyObject *module);
int kvbm_add_memory_type(PyObject *module);
int kvbm_add_holds_type(PyObject *module);
int kvbm_add_dlpack_type(PyObject *module);
int kvbm_add_store_types(PyObject *module);

// Adds a type made from `spec` under `name`; a borrowed reference that the module keeps, or NULL.
PyTypeObject *kvbm_add_type(PyObject *module, PyType_Spec *spec, const char *name);

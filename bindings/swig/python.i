// SPDX-License-Identifier: Apache-2.0
//
// Maps the argument patterns of kvbm.h to Python. The result is the private module libkvbm._raw: one function for each
// of the header's. It returns [status, outputs...] and raises for statuses below zero. The layer above checks
// conditions between arguments, such as that a list of block ids is long enough for the keys.
//
// No function holds the GIL while the library may block. A `quick` function keeps it: releasing it costs more than the
// call, or the layer above needs the call and its own bookkeeping in one step.

%{
#include "owned.h"

#include <stdlib.h>
#include <string.h>

// The error details of this thread's current call.
static __thread kvbm_error_t kvbm_particulars;
static int kvbm_check(kvbm_status_t status) {
  if (status >= 0) return 0;
  if (kvbm_particulars.status != status) kvbm_error_last(&kvbm_particulars);
  const int raised = kvbm_raise(status, kvbm_particulars.status == status ? kvbm_particulars.message : NULL);
  kvbm_particulars.status = 0;  // for the next call
  return raised;
}
// Reads a whole number from 0 to `most`. Raises OverflowError with the argument's name, or TypeError.
static int kvbm_number(PyObject *object, unsigned long long most, const char *what, unsigned long long *out) {
  PyObject *index = PyNumber_Index(object);
  if (index == NULL) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: expected a whole number, got %R", what, object);
    return -1;
  }
  *out = PyLong_AsUnsignedLongLong(index);
  const int refused = PyErr_Occurred() != NULL || *out > most;
  if (refused) {
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s: %R is not between 0 and %llu", what, index, most);
  }
  Py_DECREF(index);
  return refused ? -1 : 0;
}
static int kvbm_count(PyObject *object, size_t most, const char *what, size_t *out) {
  unsigned long long number;
  if (kvbm_number(object, most, what, &number) < 0) return -1;
  *out = (size_t)number;
  return 0;
}
// Allocates zeroed memory for n items of `size` bytes, or raises.
static void *kvbm_items(size_t n, size_t size) {
  void *items = n < (size_t)1 << 32 ? calloc(n == 0 ? 1 : n, size) : NULL;
  if (items == NULL) PyErr_NoMemory();
  return items;
}
%}

%init %{
  if (kvbm_add_handle_type(m) < 0 || kvbm_add_memory_type(m) < 0 || kvbm_add_holds_type(m) < 0 ||
      kvbm_add_dlpack_type(m) < 0 || kvbm_add_store_types(m) < 0) {
    return -1;
  }
%}

%pythoncode %{
Handle = _native.Handle
Memory = _native.Memory
Holds = _native.Holds
Dlpack = _native.Dlpack
Channel = _native.Channel
Operation = _native.Operation
%}

// 64-bit and 32-bit limits: SWIG does not evaluate their macros.
%constant uint64_t KVBM_FOREVER = UINT64_MAX;
%constant uint32_t KVBM_NO_TIER = UINT32_MAX;
%constant uint32_t KVBM_NO_BLOCK = UINT32_MAX;
%constant uint32_t KVBM_HEADER_VERSION = KVBM_VERSION;

// ---- the GIL

%exception {
  Py_BEGIN_ALLOW_THREADS
  $action
  Py_END_ALLOW_THREADS
}
%define KVBM_QUICK(FUNCTION)
%exception FUNCTION {
  $action
}
%enddef
KVBM_QUICK(kvbm_version)
KVBM_QUICK(kvbm_version_string)
KVBM_QUICK(kvbm_status_name)
KVBM_QUICK(kvbm_status_text)
KVBM_QUICK(kvbm_set_error_factory)
KVBM_QUICK(kvbm_queue_fd)
KVBM_QUICK(kvbm_queue_poll)
KVBM_QUICK(kvbm_queue_poll_events)
KVBM_QUICK(kvbm_geometry_fingerprint)
KVBM_QUICK(kvbm_geometry_record_bytes)
KVBM_QUICK(kvbm_namespace_id)
KVBM_QUICK(kvbm_manager_complete)
KVBM_QUICK(kvbm_manager_register)
KVBM_QUICK(kvbm_block_clone)
KVBM_QUICK(kvbm_block_release)
KVBM_QUICK(kvbm_block_downgrade)
KVBM_QUICK(kvbm_block_upgrade)
KVBM_QUICK(kvbm_match_count)
KVBM_QUICK(kvbm_match_units)
KVBM_QUICK(kvbm_match_items)
KVBM_QUICK(kvbm_match_blocks)
KVBM_QUICK(kvbm_match_cost)
KVBM_QUICK(kvbm_codec_mode_name)
KVBM_QUICK(kvbm_codec_mode_by_name)
KVBM_QUICK(kvbm_codec_kernel)
KVBM_QUICK(kvbm_codec_room)

// ---- numbers

%define KVBM_NUMBER(TYPE, MOST)
%typemap(in) TYPE (unsigned long long number) {
  if (kvbm_number($input, MOST, "$1_name", &number) < 0) SWIG_fail;
  $1 = (TYPE)number;
}
%enddef
KVBM_NUMBER(uint8_t, UINT8_MAX)
KVBM_NUMBER(uint16_t, UINT16_MAX)
KVBM_NUMBER(uint32_t, UINT32_MAX)
KVBM_NUMBER(uint64_t, UINT64_MAX)
KVBM_NUMBER(size_t, SIZE_MAX)

// ---- statuses and errors

%typemap(out) kvbm_status_t {
  if (kvbm_check($1) < 0) SWIG_fail;
  $result = PyLong_FromLong($1);
}
%typemap(in, numinputs=0) kvbm_error_t *err {
  kvbm_particulars.status = 0;
  kvbm_particulars.message[0] = '\0';
  $1 = &kvbm_particulars;
}
%typemap(freearg) kvbm_error_t *err {
  kvbm_particulars.status = 0;
}
PyObject *kvbm_set_error_factory(PyObject *factory);

// ---- handles

%define KVBM_HANDLE(TYPE, KIND, NULLABLE)
%typemap(in) TYPE * (void *pointer), const TYPE * (void *pointer) {
  if (kvbm_handle_get($input, KIND, NULLABLE, &pointer) < 0) SWIG_fail;
  $1 = (TYPE *)pointer;
}
%typemap(in, numinputs=0) TYPE ** (TYPE *created = NULL) {
  $1 = &created;
}
%typemap(argout) TYPE ** {
  PyObject *handle = kvbm_handle_new(*$1, KIND);
  if (handle == NULL) SWIG_fail;
  %append_output(handle);
}
%enddef
KVBM_HANDLE(kvbm_context_t, KVBM_KIND_CONTEXT, 0)
KVBM_HANDLE(kvbm_queue_t, KVBM_KIND_QUEUE, 1)
KVBM_HANDLE(kvbm_geometry_t, KVBM_KIND_GEOMETRY, 1)
KVBM_HANDLE(kvbm_manager_t, KVBM_KIND_MANAGER, 0)
KVBM_HANDLE(kvbm_namespace_t, KVBM_KIND_NAMESPACE, 0)
KVBM_HANDLE(kvbm_cache_t, KVBM_KIND_CACHE, 0)
KVBM_HANDLE(kvbm_match_t, KVBM_KIND_MATCH, 1)
KVBM_HANDLE(kvbm_offer_t, KVBM_KIND_OFFER, 0)
KVBM_HANDLE(kvbm_session_t, KVBM_KIND_SESSION, 0)

// kvbm_check calls it.
%ignore kvbm_error_last;
// Handles release themselves.
%ignore kvbm_context_release;
%ignore kvbm_queue_release;
%ignore kvbm_geometry_release;
%ignore kvbm_manager_release;
%ignore kvbm_namespace_release;
%ignore kvbm_cache_release;
%ignore kvbm_match_release;
%ignore kvbm_offer_release;
%ignore kvbm_session_release;
// Holds.views replaces them.
%ignore kvbm_block_view;
%ignore kvbm_view;

// ---- options: constructors that fill defaults, and fields that borrow memory

%define KVBM_OPTIONS(STRUCT, TYPE, INIT)
%ignore INIT;
%extend STRUCT {
  STRUCT() {
    TYPE *options = (TYPE *)calloc(1, sizeof *options);
    if (options != NULL) INIT(options, sizeof *options);
    return options;
  }
}
%enddef
KVBM_OPTIONS(kvbm_context_options, kvbm_context_options_t, kvbm_context_options_init)
%extend kvbm_context_options {
  // Writes lines of up to `level` into a pipe, for the listener of that number: see native/log.c.
  void log_to_pipe(int descriptor, uint32_t listener, int32_t level) {
    $self->log = kvbm_log_to_pipe;
    $self->log_user = (void *)(uintptr_t)(((uint64_t)listener << 32) | (uint32_t)descriptor);
    $self->log_level = level;
  }
}
%extend kvbm_tier {
  // Serves the tier by a store written in Python: `url` has the number of its Channel.
  void serve_python(void) { $self->store = &kvbm_python_store; }
}
KVBM_OPTIONS(kvbm_manager_options, kvbm_manager_options_t, kvbm_manager_options_init)
KVBM_OPTIONS(kvbm_namespace_options, kvbm_namespace_options_t, kvbm_namespace_options_init)
KVBM_OPTIONS(kvbm_register_options, kvbm_register_options_t, kvbm_register_options_init)
KVBM_OPTIONS(kvbm_lookup_options, kvbm_lookup_options_t, kvbm_lookup_options_init)
KVBM_OPTIONS(kvbm_cache_options, kvbm_cache_options_t, kvbm_cache_options_init)
KVBM_OPTIONS(kvbm_store_options, kvbm_store_options_t, kvbm_store_options_init)
KVBM_OPTIONS(kvbm_load_options, kvbm_load_options_t, kvbm_load_options_init)
KVBM_OPTIONS(kvbm_locate_options, kvbm_locate_options_t, kvbm_locate_options_init)
KVBM_OPTIONS(kvbm_offer_options, kvbm_offer_options_t, kvbm_offer_options_init)
KVBM_OPTIONS(kvbm_session_options, kvbm_session_options_t, kvbm_session_options_init)
KVBM_OPTIONS(kvbm_codec_options, kvbm_codec_options_t, kvbm_codec_options_init)
KVBM_OPTIONS(kvbm_cache_code_options, kvbm_cache_code_options_t, kvbm_cache_code_options_init)

%define KVBM_SIZED(STRUCT, TYPE)
%extend STRUCT {
  STRUCT() {
    TYPE *counters = (TYPE *)calloc(1, sizeof *counters);
    if (counters != NULL) counters->struct_size = sizeof *counters;
    return counters;
  }
}
%enddef
KVBM_SIZED(kvbm_manager_counters, kvbm_manager_stats_t)
KVBM_SIZED(kvbm_share, kvbm_share_t)
KVBM_SIZED(kvbm_codec_info, kvbm_codec_info_t)
%ignore kvbm_manager_counters::tiers;
%ignore kvbm_manager_counters::codec;
%extend kvbm_manager_counters {
  const kvbm_tier_stats_t *tier(uint32_t i) { return i < 8 ? &$self->tiers[i] : NULL; }
  const kvbm_tier_codec_stats_t *tier_codec(uint32_t i) { return i < 8 ? &$self->codec[i] : NULL; }
}

// A pointer borrowed for the call, or for as long as the layer above keeps the object: Memory, bytes or None.
%define KVBM_BORROWED(TYPE, NAME)
%typemap(in) const TYPE *NAME (void *address) {
  if (kvbm_address($input, sizeof(TYPE), 0, &address) < 0) SWIG_fail;
  $1 = (TYPE *)address;
}
%enddef
KVBM_BORROWED(kvbm_setting_t, settings)
KVBM_BORROWED(kvbm_component_t, components)
KVBM_BORROWED(kvbm_shard_t, shard)
KVBM_BORROWED(kvbm_tier_t, tiers)
KVBM_BORROWED(kvbm_part_t, part)
KVBM_BORROWED(kvbm_part_t, parts)
KVBM_BORROWED(kvbm_key_t, parent)
KVBM_BORROWED(kvbm_key_t, previous)
KVBM_BORROWED(kvbm_key_t, unit_keys)
KVBM_BORROWED(kvbm_extra_t, extras)
KVBM_BORROWED(kvbm_cache_part_t, parts)
KVBM_BORROWED(kvbm_tensor_t, tensors)
KVBM_BORROWED(kvbm_position_t, positions)
KVBM_BORROWED(kvbm_request_id_t, request)
KVBM_BORROWED(kvbm_source_t, sources)
KVBM_BORROWED(size_t, request_keys)
KVBM_BORROWED(uint64_t, bytes)

%typemap(in) const uint8_t *secret (void *address) {
  if (kvbm_address($input, 32, 0, &address) < 0) SWIG_fail;
  $1 = (uint8_t *)address;
}
%typemap(in) const uint8_t *data (void *address) {
  if (kvbm_address($input, 0, 0, &address) < 0) SWIG_fail;
  $1 = (uint8_t *)address;
}
%typemap(in) kvbm_status_t *item_status (void *address) {
  if (kvbm_address($input, 0, 1, &address) < 0) SWIG_fail;
  $1 = (kvbm_status_t *)address;
}
%typemap(in) uint64_t *out_operation (void *address) {
  if (kvbm_address($input, sizeof(uint64_t), 1, &address) < 0) SWIG_fail;
  $1 = (uint64_t *)address;
}
%typemap(in) kvbm_block_t *inout_blocks (void *address) {
  if (kvbm_address($input, 0, 1, &address) < 0) SWIG_fail;
  $1 = (kvbm_block_t *)address;
}
// The engine's memory and streams as addresses: the layer above holds the buffer that buffer_extent() read.
%typemap(in) void *data, void *stream {
  $1 = PyLong_AsVoidPtr($input);
  if ($1 == NULL && PyErr_Occurred()) SWIG_fail;
}

%exception buffer_extent "$action"
%inline %{
// Returns (address, bytes) of a contiguous, writable buffer.
static PyObject *buffer_extent(PyObject *object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return NULL;
  PyObject *extent = Py_BuildValue("(Nn)", PyLong_FromVoidPtr(buffer.buf), buffer.len);
  PyBuffer_Release(&buffer);
  return extent;
}
%}
%exception buffers_overlap "$action"
%inline %{
// Returns whether two contiguous buffers overlap.
static PyObject *buffers_overlap(PyObject *one, PyObject *other) {
  Py_buffer a, b;
  if (PyObject_GetBuffer(one, &a, PyBUF_C_CONTIGUOUS) < 0) return NULL;
  if (PyObject_GetBuffer(other, &b, PyBUF_C_CONTIGUOUS) < 0) {
    PyBuffer_Release(&a);
    return NULL;
  }
  const uintptr_t from = (uintptr_t)a.buf, to = (uintptr_t)b.buf;
  PyObject *answer = PyBool_FromLong(from < to + (size_t)b.len && to < from + (size_t)a.len);
  PyBuffer_Release(&b);
  PyBuffer_Release(&a);
  return answer;
}
%}

// Text: bytes that the layer above encodes and keeps alive.
%define KVBM_TEXT(NAME)
%typemap(in) const char *NAME (void *address) {
  if (kvbm_address($input, 0, 0, &address) < 0) SWIG_fail;
  $1 = (char *)address;
}
%typemap(freearg) const char *NAME ""
%typemap(memberin) const char *NAME "$1 = $input;"
%enddef
KVBM_TEXT(config_file)
KVBM_TEXT(key)
KVBM_TEXT(value)
KVBM_TEXT(path)
KVBM_TEXT(url)
KVBM_TEXT(host_file)
KVBM_TEXT(policy)
KVBM_TEXT(tenant)
KVBM_TEXT(model)
KVBM_TEXT(adapter)
KVBM_TEXT(node)
KVBM_TEXT(reason)
KVBM_TEXT(codec)
KVBM_TEXT(name)

// ---- arrays of structs, in a Memory: T_at(memory, i) is an object over the i-th struct, to set its fields

%define KVBM_ARRAY(T)
%constant size_t T ## _size = sizeof(T);
%exception T ## _at {
  $action
  if (result == NULL) SWIG_fail;
}
%inline %{
static T *T ## _at(PyObject *memory, size_t i) {
  void *address;
  if (i >= ((size_t)1 << 32) || kvbm_address(memory, (i + 1) * sizeof(T), 1, &address) < 0) return NULL;
  return (T *)address + i;
}
%}
%enddef

// ---- buffers

// An array; the layer above has checked its length or passes it separately.
%define KVBM_BUFFER(TYPE, NAME, ITEM)
%typemap(in) const TYPE *NAME (Py_buffer buffer, size_t unused) {
  if (kvbm_buffer_get($input, ITEM, #NAME, &buffer, &unused) < 0) SWIG_fail;
  $1 = (TYPE *)buffer.buf;
}
%typemap(arginit) const TYPE *NAME "buffer$argnum.obj = NULL;"
%typemap(freearg) const TYPE *NAME "if (buffer$argnum.obj != NULL) PyBuffer_Release(&buffer$argnum);"
%enddef
// An array and its length.
%define KVBM_COUNTED_BUFFER(TYPE, NAME, COUNT, ITEM)
%typemap(in) (const TYPE *NAME, size_t COUNT) (Py_buffer buffer) {
  if (kvbm_buffer_get($input, ITEM, #NAME, &buffer, &$2) < 0) SWIG_fail;
  $1 = (TYPE *)buffer.buf;
}
%typemap(arginit) (const TYPE *NAME, size_t COUNT) "buffer$argnum.obj = NULL;"
%typemap(freearg) (const TYPE *NAME, size_t COUNT) "if (buffer$argnum.obj != NULL) PyBuffer_Release(&buffer$argnum);"
%enddef
KVBM_BUFFER(kvbm_key_t, keys, 16)
KVBM_BUFFER(uint32_t, block_ids, 4)
KVBM_BUFFER(uint8_t, hashes, 1)
KVBM_COUNTED_BUFFER(kvbm_key_t, keys, n_keys, 16)
KVBM_COUNTED_BUFFER(uint32_t, tokens, n_tokens, 4)
KVBM_COUNTED_BUFFER(kvbm_block_t, blocks, n_blocks, 8)
KVBM_COUNTED_BUFFER(void, raw, raw_bytes, 1)
KVBM_COUNTED_BUFFER(void, coded, coded_bytes, 1)

// ---- outputs

%define KVBM_OUT(TYPE, NAME, CONVERT)
%typemap(in, numinputs=0) TYPE *NAME (TYPE written = 0) {
  $1 = &written;
}
%typemap(argout) TYPE *NAME {
  %append_output(CONVERT(*$1));
}
%enddef
KVBM_OUT(size_t, out_n, PyLong_FromSize_t)
KVBM_OUT(size_t, out_n_evicted, PyLong_FromSize_t)
KVBM_OUT(size_t, out_needed, PyLong_FromSize_t)
KVBM_OUT(uint64_t, out_bytes, PyLong_FromUnsignedLongLong)
KVBM_OUT(kvbm_pin_t, out_pin, PyLong_FromUnsignedLongLong)
KVBM_OUT(uint32_t, out_mode, PyLong_FromUnsignedLong)
KVBM_OUT(size_t, out_bytes, PyLong_FromSize_t)
// Room for bytes: a writable buffer, or a number. For a number, new bytes of that length are the last output.
%define KVBM_ROOM(NAME)
%typemap(in) (void *NAME, size_t capacity) (Py_buffer buffer, PyObject *created = NULL) {
  if (PyLong_Check($input)) {
    if (kvbm_count($input, SIZE_MAX, "$2_name", &$2) < 0) SWIG_fail;
    created = PyBytes_FromStringAndSize(NULL, $2 > PY_SSIZE_T_MAX ? PY_SSIZE_T_MAX : (Py_ssize_t)$2);
    if (created == NULL) SWIG_fail;
    $1 = PyBytes_AsString(created);
  } else {
    if (PyObject_GetBuffer($input, &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) SWIG_fail;
    $1 = buffer.buf;
    $2 = (size_t)buffer.len;
  }
}
%typemap(arginit) (void *NAME, size_t capacity) "buffer$argnum.obj = NULL;"
%typemap(argout) (void *NAME, size_t capacity) {
  if (created$argnum != NULL) %append_output(Py_NewRef(created$argnum));
}
%typemap(freearg) (void *NAME, size_t capacity) {
  if (buffer$argnum.obj != NULL) PyBuffer_Release(&buffer$argnum);
  Py_XDECREF(created$argnum);
}
%enddef
KVBM_ROOM(out)
KVBM_ROOM(out_raw)
%apply uint64_t *INOUT { uint64_t *inout_cursor };

%typemap(in, numinputs=0) uint8_t out_id[16] (uint8_t written[16]) {
  memset(written, 0, sizeof written);
  $1 = written;
}
%typemap(argout) uint8_t out_id[16] {
  %append_output(PyBytes_FromStringAndSize((const char *)$1, 16));
}
// Two-phase text: a Memory, or None to get the length.
%typemap(in) (char *out, size_t capacity) (void *address, Py_buffer buffer) {
  buffer.len = 0;
  if (kvbm_address($input, 0, 1, &address) < 0) SWIG_fail;
  if (address != NULL) {
    if (PyObject_GetBuffer($input, &buffer, PyBUF_SIMPLE) < 0) SWIG_fail;
    PyBuffer_Release(&buffer);
  }
  $1 = (char *)address;
  $2 = (size_t)buffer.len;
}
%define KVBM_KEYS_OUT(NAME, CAPACITY)
%typemap(in) (kvbm_key_t *NAME, size_t CAPACITY) (void *address, Py_buffer buffer) {
  buffer.len = 0;
  if (kvbm_address($input, 0, 1, &address) < 0) SWIG_fail;
  if (address != NULL) {
    if (PyObject_GetBuffer($input, &buffer, PyBUF_SIMPLE) < 0) SWIG_fail;
    PyBuffer_Release(&buffer);
  }
  $1 = (kvbm_key_t *)address;
  $2 = (size_t)buffer.len / sizeof(kvbm_key_t);
}
%enddef
KVBM_KEYS_OUT(out_keys, capacity)
KVBM_KEYS_OUT(out_evicted, evicted_capacity)
%typemap(in) kvbm_key_t *out_keys (void *address) {
  if (kvbm_address($input, 0, 1, &address) < 0) SWIG_fail;
  $1 = (kvbm_key_t *)address;
}

// New holds: a Memory of format Q with the requested number of items.
%typemap(in) (size_t n_blocks, kvbm_block_t *out_blocks) (PyObject *created = NULL, void *address),
             (size_t n, kvbm_block_t *out_blocks) (PyObject *created = NULL, void *address) {
  if (kvbm_count($input, (size_t)1 << 32, "$1_name", &$1) < 0) SWIG_fail;
  created = kvbm_memory_new($1 * sizeof(kvbm_block_t), 'Q');
  if (created == NULL || kvbm_address(created, 0, 1, &address) < 0) SWIG_fail;
  $2 = (kvbm_block_t *)address;
}
%typemap(argout) (size_t n_blocks, kvbm_block_t *out_blocks), (size_t n, kvbm_block_t *out_blocks) {
  %append_output(Py_NewRef(created$argnum));
}
%typemap(freearg) (size_t n_blocks, kvbm_block_t *out_blocks), (size_t n, kvbm_block_t *out_blocks) {
  Py_XDECREF(created$argnum);
}
%define KVBM_MORE_HOLDS(FROM, TO)
%typemap(in) (const kvbm_block_t *FROM, size_t n_blocks, kvbm_block_t *TO)
    (Py_buffer buffer, PyObject *created = NULL, void *address) {
  if (kvbm_buffer_get($input, 8, "blocks", &buffer, &$2) < 0) SWIG_fail;
  $1 = (kvbm_block_t *)buffer.buf;
  created = kvbm_memory_new($2 * sizeof(kvbm_block_t), 'Q');
  if (created == NULL || kvbm_address(created, 0, 1, &address) < 0) SWIG_fail;
  $3 = (kvbm_block_t *)address;
}
%typemap(arginit) (const kvbm_block_t *FROM, size_t n_blocks, kvbm_block_t *TO) "buffer$argnum.obj = NULL;"
%typemap(argout) (const kvbm_block_t *FROM, size_t n_blocks, kvbm_block_t *TO) {
  %append_output(Py_NewRef(created$argnum));
}
%typemap(freearg) (const kvbm_block_t *FROM, size_t n_blocks, kvbm_block_t *TO) {
  if (buffer$argnum.obj != NULL) PyBuffer_Release(&buffer$argnum);
  Py_XDECREF(created$argnum);
}
%enddef
KVBM_MORE_HOLDS(blocks, out_blocks)
KVBM_MORE_HOLDS(blocks, out_weak)
KVBM_MORE_HOLDS(weak, out_blocks)

// Rows: a capacity goes in, a list of tuples comes out, in the order of the struct's fields. WRITTEN is the total
// number of rows, which may exceed the capacity; if COUNTED, it precedes the list.
%define KVBM_ROWS(ARGUMENTS, TYPE, COUNT, ROWS, WRITTEN, COUNTED, ...)
%typemap(in) ARGUMENTS (TYPE *rows = NULL) {
  if (kvbm_count($input, SIZE_MAX, "capacity", &COUNT) < 0) SWIG_fail;
  if ((rows = (TYPE *)kvbm_items(COUNT, sizeof(TYPE))) == NULL) SWIG_fail;
  ROWS = rows;
}
%typemap(argout) ARGUMENTS {
  const size_t n_rows = (size_t)(WRITTEN) < COUNT ? (size_t)(WRITTEN) : COUNT;
  PyObject *list = PyList_New((Py_ssize_t)n_rows);
  for (size_t i = 0; list != NULL && i < n_rows; ++i) {
    const TYPE *row = &rows$argnum[i];
    PyObject *item = Py_BuildValue(__VA_ARGS__);
    if (item == NULL) {
      Py_CLEAR(list);
    } else {
      PyList_SetItem(list, (Py_ssize_t)i, item);
    }
  }
  if (list == NULL) SWIG_fail;
#if COUNTED
  %append_output(PyLong_FromSize_t(WRITTEN));
#endif
  %append_output(list);
}
%typemap(freearg) ARGUMENTS "free(rows$argnum);"
%enddef
%typemap(out) size_t "$result = PyLong_FromSize_t($1);"
KVBM_ROWS(%arg((kvbm_completion_t *out_completions, size_t capacity)), kvbm_completion_t, $2, $1, result, 0,
          "(KKiiKKKKK)", row->user_data, row->operation, row->op, row->status, row->items_done, row->items, row->bytes,
          row->wait_ns, row->service_ns)
KVBM_ROWS(%arg((kvbm_event_t *out_events, size_t capacity)), kvbm_event_t, $2, $1, result, 0, "(KiIy#y#y#I)",
          row->sequence, row->kind, row->tier, (const char *)row->namespace_id, (Py_ssize_t)16,
          (const char *)row->key.bytes, (Py_ssize_t)16, (const char *)row->parent.bytes, (Py_ssize_t)16, row->component)
KVBM_ROWS(%arg((size_t n, kvbm_match_item_t *out_items)), kvbm_match_item_t, $1, $2, $1, 0, "(IIKK)", row->tier,
          row->parts_needed, row->bytes, row->below_bytes)
KVBM_ROWS(%arg((size_t n, uint64_t *out_load_ns)), uint64_t, $1, $2, $1, 0, "K", *row)
KVBM_ROWS(%arg((kvbm_scan_row_t *out_rows, size_t capacity, size_t *out_n)), kvbm_scan_row_t, $2, $1, written$argnum, 1,
          "(y#y#KIIIIII)", (const char *)row->key.bytes, (Py_ssize_t)16, (const char *)row->namespace_id,
          (Py_ssize_t)16, row->bytes, row->tier, row->component, row->uses, row->holds, row->pins, row->age)
KVBM_ROWS(%arg((kvbm_node_row_t *out_rows, size_t capacity, size_t *out_n)), kvbm_node_row_t, $2, $1, written$argnum, 1,
          "(y#ssKKKKKssKIIIIKK)", (const char *)row->node, (Py_ssize_t)16, row->address, row->state, row->capacity_bytes,
          row->used_bytes, row->records, row->fetched_bytes, row->served_bytes, row->path, row->path_reason,
          row->local_bytes, (unsigned)row->codec, (unsigned)row->codec_automatic, (unsigned)row->codec_sealed,
          (unsigned)row->codec_refused, row->codec_plain_bytes, row->codec_stored_bytes)
KVBM_ROWS(%arg((kvbm_device_row_t *out_rows, size_t capacity, size_t *out_n)), kvbm_device_row_t, $2, $1,
          written$argnum, 1, "(IisssKK(KKKKKKKKK)(KKKKKKKKK))", row->ordinal, (int)row->lost, row->name, row->pci,
          row->state, row->memory_bytes, row->pinned_bytes, row->gathers.batches, row->gathers.leaves,
          row->gathers.bytes, row->gathers.bad_leaves, row->gathers.mapped_leaves, row->gathers.staged_leaves,
          row->gathers.straight_leaves, row->gathers.bounced_leaves, row->gathers.device_ns, row->scatters.batches,
          row->scatters.leaves, row->scatters.bytes, row->scatters.bad_leaves, row->scatters.mapped_leaves,
          row->scatters.staged_leaves, row->scatters.straight_leaves, row->scatters.bounced_leaves,
          row->scatters.device_ns)
KVBM_ROWS(%arg((kvbm_location_t *out_rows, size_t capacity, size_t *out_n)), kvbm_location_t, $2, $1, written$argnum, 1,
          "(y#IIKKK)", (const char *)row->node, (Py_ssize_t)16, row->request, row->tier, row->n_prefix, row->n_in_tier,
          row->bytes)
%define KVBM_COUNTED_ROWS(TYPE)
%typemap(in) (TYPE *out_rows, size_t capacity, size_t *out_n) (TYPE *rows = NULL, size_t written = 0) {
  if (kvbm_count($input, SIZE_MAX, "capacity", &$2) < 0) SWIG_fail;
  if ((rows = (TYPE *)kvbm_items($2, sizeof(TYPE))) == NULL) SWIG_fail;
  $1 = rows;
  $3 = &written;
}
%enddef
KVBM_COUNTED_ROWS(kvbm_scan_row_t)
KVBM_COUNTED_ROWS(kvbm_node_row_t)
KVBM_COUNTED_ROWS(kvbm_location_t)
KVBM_COUNTED_ROWS(kvbm_device_row_t)

KVBM_ARRAY(kvbm_setting_t)
KVBM_ARRAY(kvbm_component_t)
KVBM_ARRAY(kvbm_shard_t)
KVBM_ARRAY(kvbm_tier_t)
KVBM_ARRAY(kvbm_part_t)
KVBM_ARRAY(kvbm_extra_t)
KVBM_ARRAY(kvbm_cache_part_t)
KVBM_ARRAY(kvbm_tensor_t)
KVBM_ARRAY(kvbm_position_t)
KVBM_ARRAY(kvbm_source_t)

// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "owned.h"

typedef struct {
  PyObject_HEAD
  void *data;
  size_t bytes;
  Py_ssize_t shape, stride;
  char format[2];
  char readonly;
} memory_t;

static PyTypeObject *memory_type;

static Py_ssize_t item_bytes(char format) {
  switch (format) {
    case 'B': return 1;
    case 'i': case 'I': return 4;
    case 'Q': return 8;
    default: return 0;
  }
}

static PyObject *make(PyTypeObject *type, size_t bytes, char format) {
  const Py_ssize_t item = item_bytes(format);
  if (item == 0 || bytes % (size_t)item != 0 || bytes > PY_SSIZE_T_MAX / 2) {
    PyErr_SetString(PyExc_ValueError, "a Memory is so many bytes of format B, i, I or Q");
    return NULL;
  }
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  memory_t *memory = (memory_t *)alloc(type, 0);
  if (memory == NULL) return NULL;
  // Aligned as every struct of kvbm.h needs; never NULL, so that an empty array has an address.
  memory->data = calloc(bytes == 0 ? 1 : bytes, 1);
  memory->bytes = bytes;
  memory->shape = (Py_ssize_t)bytes / item;
  memory->stride = item;
  memory->format[0] = format;
  if (memory->data == NULL) {
    Py_DECREF(memory);
    return PyErr_NoMemory();
  }
  return (PyObject *)memory;
}

PyObject *kvbm_memory_new(size_t bytes, char format) { return make(memory_type, bytes, format); }

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *source;
  const char *format = "B";
  static char *names[] = {"", "format", NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|s:Memory", names, &source, &format)) return NULL;
  if (strlen(format) != 1) format = "?";
  if (PyLong_Check(source)) {
    const Py_ssize_t bytes = PyLong_AsSsize_t(source);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    return make(type, bytes < 0 ? SIZE_MAX : (size_t)bytes, format[0]);
  }
  Py_buffer from;
  if (PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) < 0) return NULL;
  PyObject *memory = make(type, (size_t)from.len, format[0]);
  if (memory != NULL) memcpy(((memory_t *)memory)->data, from.buf, (size_t)from.len);
  PyBuffer_Release(&from);
  return memory;
}

static void memory_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  free(((memory_t *)self)->data);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(self);
  Py_DECREF(type);
}

static int memory_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  memory_t *memory = (memory_t *)self;
  if (PyBuffer_FillInfo(view, self, memory->data, (Py_ssize_t)memory->bytes, memory->readonly, flags) < 0) return -1;
  if ((flags & PyBUF_FORMAT) != 0) {
    view->format = memory->format;
    view->itemsize = memory->stride;
    if ((flags & PyBUF_ND) != 0) view->shape = &memory->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = &memory->stride;
  }
  return 0;
}

static PyObject *memory_freeze(PyObject *self, PyObject *unused) {
  (void)unused;
  ((memory_t *)self)->readonly = 1;
  Py_RETURN_NONE;
}

static PyObject *memory_slice(PyObject *self, PyObject *args) {
  memory_t *memory = (memory_t *)self;
  Py_ssize_t first, bytes;
  if (!PyArg_ParseTuple(args, "nn:slice", &first, &bytes)) return NULL;
  if (first < 0 || bytes < 0 || (size_t)first > memory->bytes || (size_t)bytes > memory->bytes - (size_t)first) {
    PyErr_SetString(PyExc_IndexError, "outside of the memory");
    return NULL;
  }
  memory_t *part = (memory_t *)make(Py_TYPE(self), (size_t)bytes, memory->format[0]);
  if (part == NULL) return NULL;
  memcpy(part->data, (char *)memory->data + first, (size_t)bytes);
  part->readonly = memory->readonly;
  return (PyObject *)part;
}

static PyObject *memory_nbytes(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromSize_t(((memory_t *)self)->bytes);
}

int kvbm_address(PyObject *object, size_t at_least, int writable, void **out_address) {
  size_t bytes = 0;
  *out_address = NULL;
  if (object == Py_None) return 0;
  if (PyObject_TypeCheck(object, memory_type)) {
    memory_t *memory = (memory_t *)object;
    if (writable && memory->readonly) {
      PyErr_SetString(PyExc_BufferError, "the memory is read-only");
      return -1;
    }
    *out_address = memory->data;
    bytes = memory->bytes;
  } else if (!writable && PyBytes_Check(object)) {
    *out_address = PyBytes_AsString(object);
    bytes = (size_t)PyBytes_Size(object);
  } else {
    PyErr_SetString(PyExc_TypeError, writable ? "expected a Memory" : "expected a Memory, bytes or None");
    return -1;
  }
  if (bytes < at_least) {
    PyErr_Format(PyExc_ValueError, "%zu bytes are needed, and there are %zu", at_least, bytes);
    return -1;
  }
  return 0;
}

// Whether a struct-module format is one integer of any sign.
static int is_integer(const char *format) {
  if (format[0] == '@' || format[0] == '=' || format[0] == '<') ++format;
  return format[0] != '\0' && strchr("iIlLqQnN", format[0]) != NULL && format[1] == '\0';
}

int kvbm_buffer_get(PyObject *object, size_t item, const char *what, Py_buffer *out, size_t *out_n) {
  out->obj = NULL;
  *out_n = 0;
  // A C-contiguous buffer or BufferError; no copy is made that would go stale behind the caller's back.
  if (PyObject_GetBuffer(object, out, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) return -1;
  const size_t bytes = (size_t)out->len;
  const char *format = out->format != NULL ? out->format : "B";
  if ((item == 4 || item == 8) && ((size_t)out->itemsize != item || !is_integer(format))) {
    PyErr_Format(PyExc_TypeError, "%s: expected %zu-bit integers, got items of %zd bytes with format '%s'", what,
                 item * 8, out->itemsize, format);
  } else if (bytes % item != 0) {
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes are no whole number of items of %zu", what, bytes, item);
  } else {
    *out_n = bytes / item;
    return 0;
  }
  PyBuffer_Release(out);
  out->obj = NULL;
  return -1;
}

static PyMethodDef memory_methods[] = {
    {"freeze", memory_freeze, METH_NOARGS, "Buffers over it are read-only from now on."},
    {"slice", memory_slice, METH_VARARGS, "A copy of some of its bytes, of the same type."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef memory_getset[] = {{"nbytes", memory_nbytes, NULL, "Its length in bytes.", NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot memory_slots[] = {{Py_tp_new, memory_new},
                                     {Py_tp_dealloc, memory_dealloc},
                                     {Py_tp_methods, memory_methods},
                                     {Py_tp_getset, memory_getset},
                                     {Py_bf_getbuffer, memory_getbuffer},
                                     {0, NULL}};
static PyType_Spec memory_spec = {"libkvbm._native.Memory", sizeof(memory_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, memory_slots};

int kvbm_add_memory_type(PyObject *module) {
  memory_type = kvbm_add_type(module, &memory_spec, "Memory");
  return memory_type == NULL ? -1 : 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// A consumer of DLPack capsules: what __dlpack__() gives becomes a buffer of bytes over the same memory. The structs
// are those of DLPack's ABI 0 ("dltensor") and 1 ("dltensor_versioned"), see dlpack.h of the dmlc/dlpack project.
#include <stdint.h>

#include "owned.h"

enum { kDlCpu = 1, kDlCudaHost = 3, kDlRocmHost = 11 };  // DLDeviceType: memory that the CPU reads and writes
enum { kDlReadOnly = 1 };                                // DLPACK_FLAG_BITMASK_READ_ONLY

typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;  // in elements; NULL = compact
  uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed {
  dl_tensor_t tensor;
  void *context;
  void (*deleter)(struct dl_managed *self);
} dl_managed_t;

typedef struct dl_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_versioned *self);
  uint64_t flags;
  dl_tensor_t tensor;
} dl_versioned_t;

typedef struct {
  PyObject_HEAD
  dl_managed_t *managed;
  dl_versioned_t *versioned;
  void *data;
  Py_ssize_t bytes;
  char readonly;
} dlpack_t;

static PyTypeObject *dlpack_type;

// The extent of a compact row-major tensor, or -1 with an exception.
static Py_ssize_t extent(const dl_tensor_t *tensor) {
  uint64_t n = 1;
  if (tensor->device_type != kDlCpu && tensor->device_type != kDlCudaHost && tensor->device_type != kDlRocmHost) {
    kvbm_raise(KVBM_ERR_UNSUPPORTED, "the tensor is not in host memory");
    return -1;
  }
  const uint64_t item_bits = (uint64_t)tensor->bits * tensor->lanes;
  for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
    const int64_t size = tensor->shape[d];
    if (tensor->strides != NULL && size > 1 && tensor->strides[d] != (int64_t)n) {
      PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
      return -1;
    }
    if (size < 0 || __builtin_mul_overflow(n, (uint64_t)size, &n)) n = UINT64_MAX;
  }
  if (item_bits == 0 || item_bits % 8 != 0 || n > (uint64_t)PY_SSIZE_T_MAX / (item_bits / 8)) {
    PyErr_SetString(PyExc_BufferError, "the tensor's elements are no whole bytes, or its shape is impossible");
    return -1;
  }
  return (Py_ssize_t)(n * (item_bits / 8));
}

static PyObject *dlpack_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *capsule;
  (void)kwargs;
  if (!PyArg_ParseTuple(args, "O:Dlpack", &capsule)) return NULL;
  dl_managed_t *managed = NULL;
  dl_versioned_t *versioned = NULL;
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    managed = PyCapsule_GetPointer(capsule, "dltensor");
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  } else {
    PyErr_SetString(PyExc_TypeError, "expected an unused DLPack capsule");
    return NULL;
  }
  if (versioned != NULL && versioned->major != 1) {
    PyErr_Format(PyExc_BufferError, "DLPack version %u is not known here", (unsigned)versioned->major);
    return NULL;
  }
  const dl_tensor_t *tensor = managed != NULL ? &managed->tensor : &versioned->tensor;
  const Py_ssize_t bytes = extent(tensor);
  if (bytes < 0) return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  dlpack_t *self = (dlpack_t *)alloc(type, 0);
  if (self == NULL) return NULL;
  // The new name tells the capsule's own destructor that the tensor has an owner.
  if (PyCapsule_SetName(capsule, managed != NULL ? "used_dltensor" : "used_dltensor_versioned") < 0) {
    Py_DECREF(self);
    return NULL;
  }
  self->managed = managed;
  self->versioned = versioned;
  self->data = (char *)tensor->data + tensor->byte_offset;
  self->bytes = bytes;
  self->readonly = versioned != NULL && (versioned->flags & kDlReadOnly) != 0;
  return (PyObject *)self;
}

static void dlpack_dealloc(PyObject *object) {
  dlpack_t *self = (dlpack_t *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->managed != NULL && self->managed->deleter != NULL) self->managed->deleter(self->managed);
  if (self->versioned != NULL && self->versioned->deleter != NULL) self->versioned->deleter(self->versioned);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(object);
  Py_DECREF(type);
}

static int dlpack_getbuffer(PyObject *object, Py_buffer *view, int flags) {
  dlpack_t *self = (dlpack_t *)object;
  return PyBuffer_FillInfo(view, object, self->data, self->bytes, self->readonly, flags);
}

static PyType_Slot dlpack_slots[] = {{Py_tp_new, dlpack_new},
                                     {Py_tp_dealloc, dlpack_dealloc},
                                     {Py_bf_getbuffer, dlpack_getbuffer},
                                     {0, NULL}};
static PyType_Spec dlpack_spec = {"libkvbm._native.Dlpack", sizeof(dlpack_t), 0, Py_TPFLAGS_DEFAULT, dlpack_slots};

int kvbm_add_dlpack_type(PyObject *module) {
  dlpack_type = kvbm_add_type(module, &dlpack_spec, "Dlpack");
  return dlpack_type == NULL ? -1 : 0;
}

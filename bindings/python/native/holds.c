// SPDX-License-Identifier: Apache-2.0
//
// Holds on blocks of one manager, and views of their bytes. Invariant: while a view exists its hold has not ended, so
// the bytes under a memoryview stay what they are; `views` counts them. A writable view exists only of a Partial block:
// what changes the state of the blocks takes the holds out first, which is refused while there are views.
#include <stdlib.h>
#include <string.h>

#include "owned.h"

typedef struct {
  PyObject_HEAD
  PyObject *manager;  // the Handle: the memory under the views is the manager's
  kvbm_block_t *ids;  // NULL: taken out, or ended
  Py_ssize_t n;
  Py_ssize_t views;
  unsigned generation;
  char writable;
  char ended;
} holds_t;

typedef struct {
  PyObject_HEAD
  holds_t *owner;
  void *data;
  Py_ssize_t bytes;
  char readonly;
} view_t;

static PyTypeObject *holds_type, *view_type;

static void free_self(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(self);
  Py_DECREF(type);
}

// Ends the holds if nothing uses them any more.
static void settle(holds_t *holds) {
  if (!holds->ended || holds->views != 0 || holds->ids == NULL) return;
  void *manager;
  if (holds->generation == kvbm_generation && kvbm_handle_get(holds->manager, KVBM_KIND_MANAGER, 0, &manager) == 0) {
    kvbm_block_release(manager, holds->ids, (size_t)holds->n);
  }
  free(holds->ids);
  holds->ids = NULL;
  // Ended holds do not keep the manager's tiers open.
  Py_CLEAR(holds->manager);
}

static int adopt(holds_t *holds, PyObject *ids, int writable) {
  Py_buffer from;
  size_t n;
  if (kvbm_buffer_get(ids, sizeof(kvbm_block_t), "holds", &from, &n) < 0) return -1;
  kvbm_block_t *copy = malloc(n == 0 ? 1 : n * sizeof *copy);
  if (copy == NULL) {
    PyBuffer_Release(&from);
    PyErr_NoMemory();
    return -1;
  }
  memcpy(copy, from.buf, n * sizeof *copy);
  PyBuffer_Release(&from);
  holds->ids = copy;
  holds->n = (Py_ssize_t)n;
  holds->writable = (char)writable;
  return 0;
}

static PyObject *holds_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *manager, *ids;
  int writable = 0;
  void *pointer;
  if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
    PyErr_SetString(PyExc_TypeError, "Holds takes no keyword arguments");
    return NULL;
  }
  if (!PyArg_ParseTuple(args, "OO|p:Holds", &manager, &ids, &writable)) return NULL;
  if (kvbm_handle_get(manager, KVBM_KIND_MANAGER, 0, &pointer) < 0) return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  holds_t *holds = (holds_t *)alloc(type, 0);
  if (holds == NULL) return NULL;
  holds->manager = Py_NewRef(manager);
  holds->generation = kvbm_generation;
  if (adopt(holds, ids, writable) < 0) Py_CLEAR(holds);
  return (PyObject *)holds;
}

static void holds_dealloc(PyObject *self) {
  holds_t *holds = (holds_t *)self;
  holds->ended = 1;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  settle(holds);
  PyErr_Clear();
  free(holds->ids);
  Py_CLEAR(holds->manager);
  PyErr_Restore(type, value, trace);
  free_self(self);
}

static int usable(holds_t *holds) {
  if (holds->ended) return kvbm_raise(KVBM_ERR_STALE, "the blocks were released");
  if (holds->ids == NULL) return kvbm_raise(KVBM_ERR_STATE, "the blocks are being changed by another thread");
  return 0;
}

// take(): moves the holds out, into a Memory.
static PyObject *holds_take(PyObject *self, PyObject *unused) {
  (void)unused;
  holds_t *holds = (holds_t *)self;
  if (usable(holds) < 0) return NULL;
  if (holds->views != 0) {
    PyErr_Format(PyExc_BufferError, "the blocks still have %zd views: release them first", holds->views);
    return NULL;
  }
  PyObject *memory = kvbm_memory_new((size_t)holds->n * sizeof(kvbm_block_t), 'Q');
  void *data;
  if (memory == NULL || kvbm_address(memory, 0, 1, &data) < 0) {
    Py_XDECREF(memory);
    return NULL;
  }
  memcpy(data, holds->ids, (size_t)holds->n * sizeof(kvbm_block_t));
  free(holds->ids);
  holds->ids = NULL;
  return memory;
}

// put(ids, writable): gives holds back after take().
static PyObject *holds_put(PyObject *self, PyObject *args) {
  holds_t *holds = (holds_t *)self;
  PyObject *ids;
  int writable = 0;
  if (!PyArg_ParseTuple(args, "O|p:put", &ids, &writable)) return NULL;
  if (holds->ids != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the holds were not taken");
    return NULL;
  }
  if (adopt(holds, ids, writable) < 0) return NULL;
  settle(holds);  // released by another thread meanwhile
  Py_RETURN_NONE;
}

static PyObject *holds_end(PyObject *self, PyObject *unused) {
  (void)unused;
  holds_t *holds = (holds_t *)self;
  if (holds->generation != kvbm_generation) {
    kvbm_raise(KVBM_ERR_FORKED, NULL);
    return NULL;
  }
  holds->ended = 1;
  settle(holds);
  Py_RETURN_NONE;
}

static PyObject *make_view(holds_t *owner, const kvbm_view_t *at) {
  view_t *view = PyObject_New(view_t, view_type);
  if (view == NULL) return NULL;
  view->owner = (holds_t *)Py_NewRef((PyObject *)owner);
  view->data = at->data;
  view->bytes = (Py_ssize_t)at->bytes;
  view->readonly = !owner->writable;
  ++owner->views;
  // The memoryview keeps the view, that keeps the holds.
  PyObject *result = PyMemoryView_FromObject((PyObject *)view);
  Py_DECREF(view);
  return result;
}

// Result of kvbm_block_view for some of the blocks, in `few` if it is large enough; NULL with an exception.
static kvbm_view_t *look(holds_t *holds, PyObject *args, kvbm_view_t few[32], Py_ssize_t *out_n) {
  Py_ssize_t first, n;
  void *manager;
  if (!PyArg_ParseTuple(args, "nn", &first, &n)) return NULL;
  if (usable(holds) < 0 || kvbm_handle_get(holds->manager, KVBM_KIND_MANAGER, 0, &manager) < 0) return NULL;
  if (first < 0 || n < 0 || first > holds->n || n > holds->n - first) {
    PyErr_SetString(PyExc_IndexError, "no such block");
    return NULL;
  }
  kvbm_view_t *at = n > 32 ? malloc((size_t)n * sizeof *at) : few;
  if (at == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  const kvbm_status_t status = kvbm_block_view(manager, holds->ids + first, (size_t)n, at);
  if (status < 0) {
    kvbm_raise(status, NULL);
    if (at != few) free(at);
    return NULL;
  }
  *out_n = n;
  return at;
}

// views(first, n): memoryviews over the blocks' bytes.
static PyObject *holds_views(PyObject *self, PyObject *args) {
  kvbm_view_t few[32];
  Py_ssize_t n;
  kvbm_view_t *at = look((holds_t *)self, args, few, &n);
  if (at == NULL) return NULL;
  PyObject *list = PyList_New(n);
  for (Py_ssize_t i = 0; list != NULL && i < n; ++i) {
    PyObject *view = make_view((holds_t *)self, &at[i]);
    if (view == NULL) {
      Py_CLEAR(list);
    } else {
      PyList_SetItem(list, i, view);
    }
  }
  if (at != few) free(at);
  return list;
}

// slots(first, n): positions of the blocks in the host tier.
static PyObject *holds_positions(PyObject *self, PyObject *args) {
  kvbm_view_t few[32];
  Py_ssize_t n;
  kvbm_view_t *at = look((holds_t *)self, args, few, &n);
  if (at == NULL) return NULL;
  PyObject *list = PyList_New(n);
  for (Py_ssize_t i = 0; list != NULL && i < n; ++i) {
    PyObject *slot = PyLong_FromUnsignedLongLong(at[i].slot);
    if (slot == NULL) {
      Py_CLEAR(list);
    } else {
      PyList_SetItem(list, i, slot);
    }
  }
  if (at != few) free(at);
  return list;
}

// A read-only copy of the ids, for calls that take them.
static PyObject *holds_ids(PyObject *self, PyObject *unused) {
  (void)unused;
  holds_t *holds = (holds_t *)self;
  void *data;
  if (usable(holds) < 0) return NULL;
  PyObject *memory = kvbm_memory_new((size_t)holds->n * sizeof(kvbm_block_t), 'Q');
  if (memory == NULL || kvbm_address(memory, 0, 1, &data) < 0) {
    Py_XDECREF(memory);
    return NULL;
  }
  memcpy(data, holds->ids, (size_t)holds->n * sizeof(kvbm_block_t));
  return memory;
}

static Py_ssize_t holds_length(PyObject *self) { return ((holds_t *)self)->n; }

static PyObject *holds_manager(PyObject *self, void *unused) {
  (void)unused;
  PyObject *manager = ((holds_t *)self)->manager;
  return Py_NewRef(manager != NULL ? manager : Py_None);
}

static PyObject *holds_ended(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((holds_t *)self)->ended);
}

static PyObject *holds_writable(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((holds_t *)self)->writable);
}

static int view_getbuffer(PyObject *self, Py_buffer *buffer, int flags) {
  view_t *view = (view_t *)self;
  buffer->obj = NULL;
  // The memory of a parent's blocks is not mapped in its children.
  if (view->owner->generation != kvbm_generation) return kvbm_raise(KVBM_ERR_FORKED, NULL);
  return PyBuffer_FillInfo(buffer, self, view->data, view->bytes, view->readonly, flags);
}

static void view_dealloc(PyObject *self) {
  holds_t *owner = ((view_t *)self)->owner;
  if (owner != NULL) {
    --owner->views;
    settle(owner);
    Py_DECREF(owner);
  }
  free_self(self);
}

static PyMethodDef holds_methods[] = {
    {"take", holds_take, METH_NOARGS, "Moves the holds out; refused while there are views."},
    {"put", holds_put, METH_VARARGS, "Gives holds back after take()."},
    {"end", holds_end, METH_NOARGS, "Ends the holds, once the last view has gone."},
    {"views", holds_views, METH_VARARGS, "Memoryviews over the bytes of some of the blocks."},
    {"slots", holds_positions, METH_VARARGS, "Positions of some of the blocks in the host tier."},
    {"ids", holds_ids, METH_NOARGS, "A copy of the hold numbers."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef holds_getset[] = {{"manager", holds_manager, NULL, "Its Handle; None after the end.", NULL},
                                     {"ended", holds_ended, NULL, "Whether end() was called.", NULL},
                                     {"writable", holds_writable, NULL, "Whether views may be written to.", NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot holds_slots[] = {{Py_tp_new, holds_new},         {Py_tp_dealloc, holds_dealloc},
                                    {Py_tp_methods, holds_methods}, {Py_tp_getset, holds_getset},
                                    {Py_sq_length, holds_length},   {0, NULL}};
static PyType_Spec holds_spec = {"libkvbm._native.Holds", sizeof(holds_t), 0, Py_TPFLAGS_DEFAULT, holds_slots};
static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc}, {Py_bf_getbuffer, view_getbuffer}, {0, NULL}};
static PyType_Spec view_spec = {"libkvbm._native.View", sizeof(view_t), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};

int kvbm_add_holds_type(PyObject *module) {
  holds_type = kvbm_add_type(module, &holds_spec, "Holds");
  view_type = kvbm_add_type(module, &view_spec, "View");
  return holds_type == NULL || view_type == NULL ? -1 : 0;
}

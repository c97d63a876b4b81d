// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <string.h>

#include "owned.h"

unsigned kvbm_generation = 0;

typedef struct {
  PyObject_HEAD
  void *pointer;
  PyObject *keep;  // objects that the library borrows until the release has returned, e.g. tensors of a cache
  unsigned generation;
  enum kvbm_kind kind;
} handle_t;

static PyTypeObject *handle_type;
static PyObject *error_factory;

static const char *const kind_names[KVBM_KINDS] = {"context", "queue", "geometry", "manager", "namespace",
                                                   "cache",   "match", "offer",    "session"};

static void release(enum kvbm_kind kind, void *pointer) {
  switch (kind) {
    case KVBM_KIND_CONTEXT: kvbm_context_release(pointer); break;
    case KVBM_KIND_QUEUE: kvbm_queue_release(pointer); break;
    case KVBM_KIND_GEOMETRY: kvbm_geometry_release(pointer); break;
    case KVBM_KIND_MANAGER: kvbm_manager_release(pointer); break;
    case KVBM_KIND_NAMESPACE: kvbm_namespace_release(pointer); break;
    case KVBM_KIND_CACHE: kvbm_cache_release(pointer); break;
    case KVBM_KIND_MATCH: kvbm_match_release(pointer); break;
    case KVBM_KIND_OFFER: kvbm_offer_release(pointer); break;
    case KVBM_KIND_SESSION: kvbm_session_release(pointer); break;
    case KVBM_KINDS: break;
  }
}

int kvbm_raise(kvbm_status_t status, const char *message) {
  if (message == NULL || message[0] == '\0') message = kvbm_status_text(status);
  if (error_factory == NULL) {
    PyErr_Format(PyExc_RuntimeError, "%s: %s", kvbm_status_name(status), message);
    return -1;
  }
  // A message that was cut to fit may end within a character.
  PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  if (text == NULL) return -1;
  PyObject *error = PyObject_CallFunction(error_factory, "iO", (int)status, text);
  Py_DECREF(text);
  if (error == NULL) return -1;
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return -1;
}

PyObject *kvbm_set_error_factory(PyObject *factory) {
  Py_XDECREF(error_factory);
  error_factory = Py_NewRef(factory);
  Py_RETURN_NONE;
}

PyObject *kvbm_handle_new(void *pointer, enum kvbm_kind kind) {
  if (pointer == NULL) Py_RETURN_NONE;
  handle_t *handle = PyObject_New(handle_t, handle_type);
  if (handle == NULL) {
    release(kind, pointer);
    return NULL;
  }
  handle->pointer = pointer;
  handle->keep = NULL;
  handle->generation = kvbm_generation;
  handle->kind = kind;
  return (PyObject *)handle;
}

int kvbm_handle_get(PyObject *object, enum kvbm_kind kind, int nullable, void **out_pointer) {
  if (object == Py_None) {
    *out_pointer = NULL;
    if (nullable) return 0;
    char text[64];
    PyOS_snprintf(text, sizeof text, "the %s is closed", kind_names[kind]);
    return kvbm_raise(KVBM_ERR_STALE, text);
  }
  handle_t *handle = (handle_t *)object;
  if (Py_TYPE(object) != handle_type || handle->kind != kind) {
    PyErr_Format(PyExc_TypeError, "expected the handle of a %s", kind_names[kind]);
    return -1;
  }
  // Checked here because calls without a status, such as kvbm_queue_wait, cannot say it.
  if (handle->generation != kvbm_generation) return kvbm_raise(KVBM_ERR_FORKED, NULL);
  *out_pointer = handle->pointer;
  return 0;
}

static void handle_dealloc(PyObject *self) {
  handle_t *handle = (handle_t *)self;
  PyTypeObject *type = Py_TYPE(self);
  // In a forked child the library's threads are gone and its locks may be held: what is the parent's stays as it is.
  if (handle->generation == kvbm_generation) {
    PyObject *type_of, *value, *trace;
    PyErr_Fetch(&type_of, &value, &trace);
    Py_BEGIN_ALLOW_THREADS
    release(handle->kind, handle->pointer);
    Py_END_ALLOW_THREADS
    PyErr_Restore(type_of, value, trace);
  }
  Py_CLEAR(handle->keep);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(self);
  Py_DECREF(type);
}

static PyObject *handle_keep(PyObject *self, PyObject *object) {
  PyObject *before = ((handle_t *)self)->keep;
  ((handle_t *)self)->keep = Py_NewRef(object);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

static PyObject *handle_repr(PyObject *self) {
  return PyUnicode_FromFormat("<libkvbm handle of a %s>", kind_names[((handle_t *)self)->kind]);
}

static PyMethodDef handle_methods[] = {
    {"keep", handle_keep, METH_O, "Keeps an object until the library has released the handle."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot handle_slots[] = {{Py_tp_dealloc, handle_dealloc},
                                     {Py_tp_repr, handle_repr},
                                     {Py_tp_methods, handle_methods},
                                     {0, NULL}};
static PyType_Spec handle_spec = {"libkvbm._native.Handle", sizeof(handle_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, handle_slots};

static void forked(void) { ++kvbm_generation; }

PyTypeObject *kvbm_add_type(PyObject *module, PyType_Spec *spec, const char *name) {
  PyObject *type = PyType_FromSpec(spec);
  if (type == NULL) return NULL;
  // The module's reference may end before the last object's; this one never does.
  if (PyModule_AddObjectRef(module, name, type) < 0) return NULL;
  return (PyTypeObject *)type;
}

int kvbm_add_handle_type(PyObject *module) {
  static int watching = 0;
  if (!watching) {
    if (pthread_atfork(NULL, NULL, forked) != 0) {
      PyErr_SetString(PyExc_OSError, "cannot watch for forks");
      return -1;
    }
    watching = 1;
  }
  handle_type = kvbm_add_type(module, &handle_spec, "Handle");
  return handle_type == NULL ? -1 : 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// Stores that are Python objects, as a kvbm_store_table_t. The library's threads only put operations into a list here,
// and never wait for the GIL or run Python: the holder of the GIL may be waiting for them, and after the interpreter has
// ended they would wait for ever. Threads of Python's take the operations out (libkvbm/store.py).
//   Channel    the list of one store. The library has it from open() to close(), Python for as long as it likes.
//   Operation  one operation in Python's hands, and its memory as a buffer. The library gets it back when it is
//              finished and nothing sees its memory any more; one that is forgotten is an I/O error.
// The channel's lock guards its list; the GIL guards the fields of the Python objects. The library is not called under
// the lock, and the lock is not held while waiting for the GIL.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owned.h"

typedef struct flight flight_t;
typedef struct channel channel_t;

struct flight {
  kvbm_store_op_t *op;
  channel_t *channel;
  flight_t *previous, *next;
  uint64_t id;
  int taken, cancelled, told;
};

struct channel {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  channel_t *next;                     // of all; under channels_lock
  uint64_t number;
  unsigned references;                 // the Python object, and the library
  const kvbm_store_config_t *config;   // since open()
  int opened, closed, shut;            // shut: Python takes no more
  int tells_cancels;
  uint64_t last_id;
  flight_t *first, *last;
  kvbm_store_facts_t facts;
};

static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;
static channel_t *channels;
static uint64_t last_number;

static PyTypeObject *channel_type, *operation_type;

// ---- the library's side

static void drop(channel_t *channel) {
  pthread_mutex_lock(&channel->lock);
  const unsigned left = --channel->references;
  pthread_mutex_unlock(&channel->lock);
  if (left != 0) return;
  pthread_cond_destroy(&channel->changed);
  pthread_mutex_destroy(&channel->lock);
  free(channel);
}

static void unlink_flight(channel_t *channel, flight_t *flight) {
  if (flight->previous != NULL) flight->previous->next = flight->next; else channel->first = flight->next;
  if (flight->next != NULL) flight->next->previous = flight->previous; else channel->last = flight->previous;
}

// Gives an operation back. After it the channel may be gone.
static void answer(const kvbm_store_config_t *config, kvbm_store_op_t *op, kvbm_status_t status, uint64_t done,
                   uint32_t more, const char *message) {
  op->done = done;
  op->more = more;
  snprintf(op->message, sizeof op->message, "%s", message);
  config->finished(config->context, op, status);
}

static kvbm_status_t open_store(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *out_facts,
                                void **out_store, char message[256]) {
  (void)timeout_ns;
  const uint64_t number = strtoull(config->authority, NULL, 10);
  channel_t *found = NULL;
  pthread_mutex_lock(&channels_lock);
  for (channel_t *each = channels; each != NULL; each = each->next) {
    if (each->number == number) found = each;
  }
  if (found != NULL) {
    pthread_mutex_lock(&found->lock);
    const int usable = !found->opened && !found->closed && !found->shut;
    if (usable) {
      found->opened = 1;
      found->config = config;
      ++found->references;
    }
    pthread_mutex_unlock(&found->lock);
    if (!usable) found = NULL;
  }
  pthread_mutex_unlock(&channels_lock);
  if (found == NULL) {
    snprintf(message, 256, "a store of Python's serves one manager; give Tier(store=...) an object of its own");
    return KVBM_ERR_CONFIG;
  }
  const uint32_t struct_size = out_facts->struct_size;
  *out_facts = found->facts;
  out_facts->struct_size = struct_size;
  *out_store = found;
  return KVBM_OK;
}

static void start_operations(void *store, kvbm_store_op_t *const *ops, size_t n) {
  channel_t *channel = store;
  for (size_t i = 0; i < n; ++i) {
    flight_t *flight = calloc(1, sizeof *flight);
    pthread_mutex_lock(&channel->lock);
    const int shut = channel->shut;
    if (flight != NULL && !shut) {
      flight->op = ops[i];
      flight->channel = channel;
      flight->id = ++channel->last_id;
      flight->previous = channel->last;
      if (channel->last != NULL) channel->last->next = flight; else channel->first = flight;
      channel->last = flight;
      ops[i]->store_private = flight;
      pthread_cond_signal(&channel->changed);
    }
    pthread_mutex_unlock(&channel->lock);
    if (flight == NULL) {
      answer(channel->config, ops[i], KVBM_ERR_AGAIN, 0, 0, "there is no memory");
    } else if (shut) {
      free(flight);
      answer(channel->config, ops[i], KVBM_ERR_CONFIG, 0, 0, "the Python program has ended");
    }
  }
}

// An operation that Python has not seen yet ends here. For others the store is notified, if it can cancel them.
static void cancel_operation(void *store, kvbm_store_op_t *op) {
  channel_t *channel = store;
  pthread_mutex_lock(&channel->lock);
  flight_t *flight = channel->first;
  while (flight != NULL && flight->op != op) flight = flight->next;
  const int waits = flight != NULL && !flight->taken;
  if (waits) unlink_flight(channel, flight);
  if (flight != NULL) flight->cancelled = 1;
  if (channel->tells_cancels) pthread_cond_broadcast(&channel->changed);
  pthread_mutex_unlock(&channel->lock);
  if (!waits) return;
  free(flight);
  answer(channel->config, op, KVBM_ERR_DEADLINE, 0, 0, "the store was busy with other operations");
}

static void close_store(void *store) {
  channel_t *channel = store;
  pthread_mutex_lock(&channel->lock);
  channel->closed = 1;
  pthread_cond_broadcast(&channel->changed);
  pthread_mutex_unlock(&channel->lock);
  drop(channel);
}

const kvbm_store_table_t kvbm_python_store = {
    sizeof(kvbm_store_table_t), KVBM_STORE_ABI,   "python",         NULL,       0,
    open_store,                 start_operations, cancel_operation, close_store};

// ---- operations

typedef struct {
  PyObject_HEAD
  flight_t *flight;  // NULL: the library has it back
  unsigned generation;
  Py_ssize_t exports;  // views of its memory
  int finished;
  kvbm_status_t status;
  uint64_t done;
  uint32_t more;
  char message[sizeof(((kvbm_store_op_t *)NULL)->message)];
} operation_t;

static void give_back(operation_t *self) {
  flight_t *flight = self->flight;
  self->flight = NULL;
  // In a forked child the operation belongs to the parent.
  if (flight == NULL || self->generation != kvbm_generation) return;
  channel_t *channel = flight->channel;
  kvbm_store_op_t *op = flight->op;
  pthread_mutex_lock(&channel->lock);
  unlink_flight(channel, flight);
  pthread_mutex_unlock(&channel->lock);
  free(flight);
  // The operation keeps the library from closing the channel until here.
  answer(channel->config, op, self->status, self->done, self->more, self->message);
}

static void operation_dealloc(PyObject *object) {
  operation_t *self = (operation_t *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (!self->finished) {
    self->status = KVBM_ERR_IO;
    snprintf(self->message, sizeof self->message, "the operation was given up");
  }
  give_back(self);
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(object);
  Py_DECREF(type);
}

static int operation_getbuffer(PyObject *object, Py_buffer *view, int flags) {
  operation_t *self = (operation_t *)object;
  if (self->flight == NULL || self->finished || self->generation != kvbm_generation) {
    PyErr_SetString(PyExc_BufferError, "the operation has ended");
    return -1;
  }
  const kvbm_store_op_t *op = self->flight->op;
  if (op->bytes > (uint64_t)PY_SSIZE_T_MAX) {
    PyErr_SetString(PyExc_BufferError, "the operation is too large");
    return -1;
  }
  static char nothing;
  void *data = op->data != NULL ? op->data : &nothing;
  if (PyBuffer_FillInfo(view, object, data, (Py_ssize_t)op->bytes, op->kind == KVBM_STORE_PUT, flags) < 0) return -1;
  ++self->exports;
  return 0;
}

static void operation_releasebuffer(PyObject *object, Py_buffer *view) {
  operation_t *self = (operation_t *)object;
  (void)view;
  if (--self->exports == 0 && self->finished) give_back(self);
}

static PyObject *operation_facts(PyObject *object, PyObject *unused) {
  operation_t *self = (operation_t *)object;
  (void)unused;
  if (self->flight == NULL) {
    PyErr_SetString(PyExc_ValueError, "the operation has ended");
    return NULL;
  }
  const kvbm_store_op_t *op = self->flight->op;
  return Py_BuildValue("(KIssKKK)", self->flight->id, op->kind, op->name, op->after != NULL ? op->after : "", op->bytes,
                       op->offset, op->timeout_ns);
}

static PyObject *operation_finish(PyObject *object, PyObject *args) {
  operation_t *self = (operation_t *)object;
  int status, more;
  unsigned long long done;
  const char *message;
  if (!PyArg_ParseTuple(args, "iKps:finish", &status, &done, &more, &message)) return NULL;
  if (self->finished) {
    PyErr_SetString(PyExc_ValueError, "the operation has ended");
    return NULL;
  }
  self->finished = 1;
  self->status = status;
  self->done = done;
  self->more = more != 0;
  snprintf(self->message, sizeof self->message, "%s", message);
  if (self->exports == 0) give_back(self);
  return PyBool_FromLong(self->flight == NULL);
}

static PyMethodDef operation_methods[] = {
    {"facts", operation_facts, METH_NOARGS, "(id, kind, name, after, bytes, offset, timeout_ns)"},
    {"finish", operation_finish, METH_VARARGS,
     "finish(status, done, more, message): whether the library has it back, or only when the last view of it ends."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot operation_slots[] = {{Py_tp_dealloc, operation_dealloc},
                                        {Py_tp_methods, operation_methods},
                                        {Py_bf_getbuffer, operation_getbuffer},
                                        {Py_bf_releasebuffer, operation_releasebuffer},
                                        {0, NULL}};
static PyType_Spec operation_spec = {"libkvbm._native.Operation", sizeof(operation_t), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, operation_slots};

// ---- channels

typedef struct {
  PyObject_HEAD
  channel_t *channel;
  unsigned generation;
} channel_object_t;

static channel_t *channel_of(PyObject *object) {
  channel_object_t *self = (channel_object_t *)object;
  if (self->generation == kvbm_generation) return self->channel;
  kvbm_raise(KVBM_ERR_FORKED, NULL);
  return NULL;
}

// Waiting operations end now, later ones end at once.
static void shut(channel_t *channel) {
  for (;;) {
    pthread_mutex_lock(&channel->lock);
    channel->shut = 1;
    flight_t *flight = channel->first;
    while (flight != NULL && flight->taken) flight = flight->next;
    if (flight != NULL) unlink_flight(channel, flight);
    const kvbm_store_config_t *config = channel->config;
    pthread_cond_broadcast(&channel->changed);
    pthread_mutex_unlock(&channel->lock);
    if (flight == NULL) return;
    kvbm_store_op_t *op = flight->op;
    free(flight);
    answer(config, op, KVBM_ERR_CONFIG, 0, 0, "the Python program has ended");
  }
}

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  const char *description;
  unsigned features, concurrency;
  unsigned long long object_bytes, max_object_bytes;
  int tells_cancels;
  (void)kwargs;
  if (!PyArg_ParseTuple(args, "sIIKKp:Channel", &description, &features, &concurrency, &object_bytes, &max_object_bytes,
                        &tells_cancels)) {
    return NULL;
  }
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  channel_object_t *self = (channel_object_t *)alloc(type, 0);
  if (self == NULL) return NULL;
  self->generation = kvbm_generation;
  channel_t *channel = self->channel = calloc(1, sizeof *channel);
  if (channel == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  pthread_mutex_init(&channel->lock, NULL);
  pthread_cond_init(&channel->changed, NULL);
  channel->references = 1;
  channel->tells_cancels = tells_cancels;
  channel->facts.features = features;
  channel->facts.concurrency = concurrency;
  channel->facts.object_bytes = object_bytes;
  channel->facts.max_object_bytes = max_object_bytes;
  snprintf(channel->facts.description, sizeof channel->facts.description, "%s", description);
  pthread_mutex_lock(&channels_lock);
  channel->number = ++last_number;
  channel->next = channels;
  channels = channel;
  pthread_mutex_unlock(&channels_lock);
  return (PyObject *)self;
}

static void channel_dealloc(PyObject *object) {
  channel_object_t *self = (channel_object_t *)object;
  PyTypeObject *type = Py_TYPE(object);
  channel_t *channel = self->channel;
  if (channel != NULL && self->generation == kvbm_generation) {
    pthread_mutex_lock(&channels_lock);
    channel_t **at = &channels;
    while (*at != channel) at = &(*at)->next;
    *at = channel->next;
    pthread_mutex_unlock(&channels_lock);
    shut(channel);
    drop(channel);
  }
  freefunc tp_free = (freefunc)PyType_GetSlot(type, Py_tp_free);
  tp_free(object);
  Py_DECREF(type);
}

static PyObject *channel_take(PyObject *object, PyObject *unused) {
  channel_t *channel = channel_of(object);
  (void)unused;
  if (channel == NULL) return NULL;
  // Makes the object first, so that no operation is lost if memory is refused.
  operation_t *operation = PyObject_New(operation_t, operation_type);
  if (operation == NULL) return NULL;
  memset((char *)operation + sizeof(PyObject), 0, sizeof *operation - sizeof(PyObject));
  operation->generation = kvbm_generation;
  flight_t *taken = NULL;
  uint64_t cancelled = 0;
  Py_BEGIN_ALLOW_THREADS
  pthread_mutex_lock(&channel->lock);
  for (;;) {
    for (flight_t *each = channel->first; each != NULL && taken == NULL && cancelled == 0; each = each->next) {
      if (!each->taken) {
        each->taken = 1;
        taken = each;
      } else if (channel->tells_cancels && each->cancelled && !each->told) {
        each->told = 1;
        cancelled = each->id;
      }
    }
    if (taken != NULL || cancelled != 0 || channel->closed || channel->shut) break;
    pthread_cond_wait(&channel->changed, &channel->lock);
  }
  pthread_mutex_unlock(&channel->lock);
  Py_END_ALLOW_THREADS
  operation->flight = taken;
  if (taken != NULL) return (PyObject *)operation;
  Py_DECREF(operation);
  if (cancelled != 0) return PyLong_FromUnsignedLongLong(cancelled);
  Py_RETURN_NONE;
}

static PyObject *channel_shut(PyObject *object, PyObject *unused) {
  channel_t *channel = channel_of(object);
  (void)unused;
  if (channel == NULL) return NULL;
  Py_BEGIN_ALLOW_THREADS
  shut(channel);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

// For a manager that was not made: the library will not open it any more, or has closed it already.
static PyObject *channel_abandon(PyObject *object, PyObject *unused) {
  channel_t *channel = channel_of(object);
  (void)unused;
  if (channel == NULL) return NULL;
  pthread_mutex_lock(&channel->lock);
  if (!channel->opened) channel->closed = 1;
  pthread_cond_broadcast(&channel->changed);
  pthread_mutex_unlock(&channel->lock);
  Py_RETURN_NONE;
}

static PyObject *channel_number(PyObject *object, void *unused) {
  channel_t *channel = channel_of(object);
  (void)unused;
  return channel == NULL ? NULL : PyLong_FromUnsignedLongLong(channel->number);
}

static PyMethodDef channel_methods[] = {
    {"take", channel_take, METH_NOARGS,
     "Waits for the next Operation, or the id of one that was cancelled; None: there will be no more."},
    {"shut", channel_shut, METH_NOARGS, "Ends what waits, and what comes later at once."},
    {"abandon", channel_abandon, METH_NOARGS, "Ends a channel that the library has not opened."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef channel_getset[] = {{"number", channel_number, NULL, "For its URL.", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot channel_slots[] = {{Py_tp_new, channel_new},
                                      {Py_tp_dealloc, channel_dealloc},
                                      {Py_tp_methods, channel_methods},
                                      {Py_tp_getset, channel_getset},
                                      {0, NULL}};
static PyType_Spec channel_spec = {"libkvbm._native.Channel", sizeof(channel_object_t), 0, Py_TPFLAGS_DEFAULT,
                                   channel_slots};

int kvbm_add_store_types(PyObject *module) {
  operation_type = kvbm_add_type(module, &operation_spec, "Operation");
  if (operation_type == NULL) return -1;
  channel_type = kvbm_add_type(module, &channel_spec, "Channel");
  return channel_type == NULL ? -1 : 0;
}

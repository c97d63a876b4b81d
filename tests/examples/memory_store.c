/* A store of one's own: objects in this process's memory. Built as a shared library it is used by its URL:
 *   cc -shared -fPIC -o libmemory_store.so memory_store.c -lpthread
 *   kvbm plugin check plugin:$PWD/libmemory_store.so?most=64
 * It shows the shape of a store and keeps every rule of kvbm_plugin.h. A real one sends requests in start() and calls
 * finished() from the thread that reads the answers; this one has each answer at once. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvbm_plugin.h"

typedef struct object {
  struct object *next; /* by name, ascending */
  char *name;
  char *bytes;
  uint64_t size;
} object;

/* Objects on an imaginary server: all stores of a process share them, as two hosts would. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static object *objects;
static uint64_t used;

typedef struct store {
  const kvbm_store_config_t *config;
  uint64_t most; /* bytes of all objects */
} store;

/* Where the object of that name is linked, or would be. */
static object **place_of(const char *name) {
  object **at = &objects;
  while (*at != NULL && strcmp((*at)->name, name) < 0) at = &(*at)->next;
  return at;
}

static int is_at(object **at, const char *name) { return *at != NULL && strcmp((*at)->name, name) == 0; }

static void take_out(object **at) {
  object *gone = *at;
  *at = gone->next;
  used -= gone->size;
  free(gone->name), free(gone->bytes), free(gone);
}

static kvbm_status_t put(store *s, kvbm_store_op_t *op) {
  object **at = place_of(op->name);
  const uint64_t had = is_at(at, op->name) ? (*at)->size : 0;
  object *fresh;
  if (op->bytes > s->most || used - had > s->most - op->bytes) {
    snprintf(op->message, sizeof op->message, "the objects of this store may have %llu bytes", (unsigned long long)s->most);
    return KVBM_ERR_DISK_FULL;
  }
  fresh = calloc(1, sizeof *fresh);
  if (fresh == NULL || (fresh->name = strdup(op->name)) == NULL || (fresh->bytes = malloc(op->bytes + 1)) == NULL) {
    if (fresh != NULL) free(fresh->name);
    free(fresh);
    return KVBM_ERR_AGAIN;
  }
  if (op->bytes != 0) memcpy(fresh->bytes, op->data, op->bytes);
  fresh->size = op->bytes;
  if (is_at(at, op->name)) take_out(at);
  fresh->next = *at;
  *at = fresh;
  used += fresh->size;
  return KVBM_OK;
}

static kvbm_status_t get(kvbm_store_op_t *op) {
  object **at = place_of(op->name);
  if (!is_at(at, op->name)) return KVBM_ERR_MISS;
  op->done = op->offset >= (*at)->size ? 0 : (*at)->size - op->offset;
  if (op->done > op->bytes) op->done = op->bytes;
  if (op->done != 0) memcpy(op->data, (*at)->bytes + op->offset, op->done);
  return KVBM_OK;
}

static kvbm_status_t list(kvbm_store_op_t *op) {
  const object *one;
  op->done = 0, op->more = 0;
  for (one = objects; one != NULL; one = one->next) {
    const size_t n = strlen(one->name) + 1;
    if (strcmp(one->name, op->after) <= 0 || strncmp(one->name, op->name, strlen(op->name)) != 0) continue;
    if (n > op->bytes - op->done) {
      op->more = 1;
      break;
    }
    memcpy((char *)op->data + op->done, one->name, n);
    op->done += n;
  }
  return KVBM_OK;
}

static void start(void *of, kvbm_store_op_t *const *ops, size_t n) {
  store *s = of;
  size_t i;
  for (i = 0; i < n; ++i) {
    kvbm_status_t status = KVBM_OK;
    object **at;
    pthread_mutex_lock(&mutex);
    if (ops[i]->kind == KVBM_STORE_PUT) status = put(s, ops[i]);
    if (ops[i]->kind == KVBM_STORE_GET) status = get(ops[i]);
    if (ops[i]->kind == KVBM_STORE_LIST) status = list(ops[i]);
    if (ops[i]->kind == KVBM_STORE_REMOVE && is_at(at = place_of(ops[i]->name), ops[i]->name)) take_out(at);
    pthread_mutex_unlock(&mutex);
    s->config->finished(s->config->context, ops[i], status); /* the operation is the library's again */
  }
}

static kvbm_status_t open_store(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *facts, void **out,
                                char message[256]) {
  unsigned long most_mib = 1024;
  store *s;
  (void)timeout_ns; /* there is nothing to wait for */
  if (config->n_options != 0) { /* only "most" can be there: the library knows our options */
    char *end;
    most_mib = strtoul(config->options[0].value, &end, 10);
    if (*end != '\0' || most_mib == 0 || most_mib > 1048576) {
      snprintf(message, 256, "most is a number of MiB from 1 to 1048576");
      return KVBM_ERR_CONFIG;
    }
  }
  s = calloc(1, sizeof *s);
  if (s == NULL) return snprintf(message, 256, "there is no memory"), KVBM_ERR_NO_MEMORY;
  s->config = config;
  s->most = (uint64_t)most_mib << 20;
  facts->concurrency = 64;
  snprintf(facts->description, sizeof facts->description, "memory of this process, up to %lu MiB", most_mib);
  *out = s;
  return KVBM_OK;
}

static void close_store(void *of) { free(of); }

static const kvbm_store_option_help_t options[] = {{"most", "MiB of all objects, 1 to 1048576 (default 1024)"}};

KVBM_API extern const kvbm_store_table_t kvbm_store_table;
const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t), KVBM_STORE_ABI, "memory", options, 1, open_store, start, NULL /* cancel */, close_store};

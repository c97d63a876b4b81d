/* The store of tests/examples/memory_store.c, made to break one rule of kvbm_plugin.h, for tests of `kvbm plugin
 * check`. Which: the option `breaks` of its URL. Each is at its place below. */
#define kvbm_store_table memory_store_table
#include "../../examples/memory_store.c"
#undef kvbm_store_table

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

typedef struct hostile {
  const kvbm_store_config_t *config;
  kvbm_store_config_t inner_config;
  void *inner;
  char breaks[32];
  kvbm_status_t status; /* of the inner store's last operation */
  char *after_last;     /* behind the memory of the last get of ranges */
  int second;           /* not the first of its process that is open */
} hostile;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one inner operation at a time */
static int open_now;

static int breaks(const hostile *h, const char *what) { return strcmp(h->breaks, what) == 0; }
static int has(const kvbm_store_op_t *op, const char *part) { return strstr(op->name, part) != NULL; }

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static void inner_finished(void *context, kvbm_store_op_t *op, kvbm_status_t status) {
  (void)op;
  ((hostile *)context)->status = status;
}

static kvbm_status_t run(hostile *h, kvbm_store_op_t *op) {
  kvbm_status_t status;
  pthread_mutex_lock(&turn);
  memory_store_table.start(h->inner, &op, 1);
  status = h->status;
  pthread_mutex_unlock(&turn);
  return status;
}

/* Returns the inner store's operation for this one. */
static kvbm_status_t perform(hostile *h, kvbm_store_op_t *op, char name[512]) {
  kvbm_store_op_t there = *op;
  char byte;
  there.kind = KVBM_STORE_GET, there.data = &byte, there.bytes = 0;
  if (breaks(h, "fold") && has(op, "/names/")) {
    for (; *name != '\0'; ++name) *name = *name == '-' ? '.' : *name;
  }
  if (breaks(h, "alone") && h->second && has(op, "/two/")) strcat(name, "-second");
  if (breaks(h, "prefix") && op->kind == KVBM_STORE_LIST) op->name = "";
  if (breaks(h, "offset") && op->kind == KVBM_STORE_GET) op->offset = 0;
  if (breaks(h, "empty") && op->kind == KVBM_STORE_PUT && op->bytes == 0) return KVBM_OK;
  if (breaks(h, "stays") && op->kind == KVBM_STORE_REMOVE && has(op, "/gone/")) return KVBM_OK;
  if (breaks(h, "lost") && op->kind == KVBM_STORE_GET && has(op, "/many/0-0")) return KVBM_ERR_MISS;
  if (breaks(h, "missing") && op->kind == KVBM_STORE_REMOVE && run(h, &there) == KVBM_ERR_MISS) return KVBM_ERR_IO;
  if (breaks(h, "old") && op->kind == KVBM_STORE_PUT && has(op, "replaced") && op->bytes < 9000) {
    there.offset = op->bytes, there.bytes = 1;
    if (run(h, &there) == KVBM_OK && there.done != 0) return KVBM_OK;
  }
  if (breaks(h, "torn") && op->kind == KVBM_STORE_PUT && has(op, "/whole")) {
    there = *op;
    there.bytes /= 2;
    (void)run(h, &there);
    sleep_ms(1);
  }
  return run(h, op);
}

/* Puts `name` before the names of a list. */
static void list_first(kvbm_store_op_t *op, const char *name) {
  const size_t n = strlen(name) + 1;
  if (op->done + n > op->bytes) return;
  memmove((char *)op->data + n, op->data, op->done);
  memcpy(op->data, name, n);
  op->done += n;
}

static void change_list(hostile *h, kvbm_store_op_t *op) {
  char first[512] = "", second[512] = "";
  const size_t n = op->done == 0 ? 0 : strlen(op->data) + 1;
  if (breaks(h, "repeats") && op->after[0] != '\0') list_first(op, op->after);
  if (breaks(h, "nomore")) op->more = 0;
  if (breaks(h, "hidden") && has(op, "/soon/")) op->done = 0;
  if (breaks(h, "nothing") && has(op, "/nothing/")) snprintf(first, sizeof first, "%sx", op->name), list_first(op, first);
  if (breaks(h, "unended") && op->done != 0) op->done -= 1;
  if (n == 0 || op->done <= n || !has(op, "/list/")) return;
  if (breaks(h, "forgets")) {
    op->done -= n;
    memmove(op->data, (char *)op->data + n, op->done);
  } else if (breaks(h, "unsorted")) {
    strcpy(first, op->data);
    strcpy(second, (char *)op->data + n);
    strcpy(op->data, second);
    strcpy((char *)op->data + strlen(second) + 1, first);
  }
}

static void run_one(hostile *h, kvbm_store_op_t *op) {
  kvbm_store_op_t own = *op, foreign = *op;
  char name[512];
  kvbm_status_t status;
  strcpy(name, op->name);
  own.name = name;
  if (breaks(h, "late") && h->after_last != NULL) *h->after_last = 0;
  h->after_last = NULL;
  if (breaks(h, "slow") && op->timeout_ns <= 1000000) sleep_ms(900);
  if (breaks(h, "blocks") && has(op, "/many/0-0")) sleep_ms(900);
  if (breaks(h, "never") && op->kind == KVBM_STORE_GET && has(op, "/many/0-0")) return;
  if (breaks(h, "cancel") && op->kind == KVBM_STORE_PUT && has(op, "/cancelled-3")) return;
  status = perform(h, &own, name);
  op->done = own.done, op->more = own.more;
  memcpy(op->message, own.message, sizeof op->message);
  if (op->kind == KVBM_STORE_LIST) change_list(h, op);
  if (op->kind == KVBM_STORE_GET) {
    if (breaks(h, "hit") && status == KVBM_ERR_MISS) status = KVBM_OK, op->done = 0;
    if (breaks(h, "short") && op->done != 0) op->done -= 1;
    if (breaks(h, "done")) op->done = op->bytes + 1;
    if (breaks(h, "beside")) ((char *)op->data)[op->bytes] = 0;
    if (has(op, "/ranges")) h->after_last = (char *)op->data + op->bytes;
  }
  if (breaks(h, "field")) op->timeout_ns = 0;
  if (breaks(h, "status") && op->kind == KVBM_STORE_PUT && has(op, "replaced")) status = KVBM_ERR_MISS;
  if (breaks(h, "foreign")) h->config->finished(h->config->context, &foreign, status);
  h->config->finished(h->config->context, op, status);
  if (breaks(h, "twice") && op->kind == KVBM_STORE_PUT) h->config->finished(h->config->context, op, status);
}

static void start_hostile(void *of, kvbm_store_op_t *const *ops, size_t n) {
  size_t i;
  for (i = 0; i < n; ++i) run_one(of, ops[i]);
}

static kvbm_status_t open_hostile(const kvbm_store_config_t *config, uint64_t timeout_ns, kvbm_store_facts_t *facts, void **out,
                                  char message[256]) {
  kvbm_status_t status;
  size_t i;
  hostile *h = calloc(1, sizeof *h);
  if (h == NULL) return KVBM_ERR_NO_MEMORY;
  h->config = config;
  h->inner_config = *config;
  h->inner_config.context = h;
  h->inner_config.finished = inner_finished;
  h->inner_config.n_options = 0;
  for (i = 0; i < config->n_options; ++i) {
    if (strcmp(config->options[i].name, "breaks") == 0) snprintf(h->breaks, sizeof h->breaks, "%s", config->options[i].value);
    if (strcmp(config->options[i].name, "most") == 0) h->inner_config.options = &config->options[i], h->inner_config.n_options = 1;
  }
  status = memory_store_table.open(&h->inner_config, timeout_ns, facts, &h->inner, message);
  if (breaks(h, "silent")) message[0] = '\0';
  if (breaks(h, "over")) ((char *)facts)[facts->struct_size] = 0;
  if (status != KVBM_OK) return free(h), status;
  if (breaks(h, "facts")) facts->features = 1U << 30;
  if (breaks(h, "expires")) facts->features = KVBM_STORE_EXPIRES;
  if (breaks(h, "large")) facts->max_object_bytes = 1 << 20;
  if (breaks(h, "returns")) facts->features = KVBM_STORE_BLOCKS, strcpy(h->breaks, "never");
  if (breaks(h, "fds")) (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
  h->second = __atomic_fetch_add(&open_now, 1, __ATOMIC_ACQ_REL) != 0;
  *out = h;
  return KVBM_OK;
}

static void *stay(void *unused) {
  for (;;) pause();
  return unused;
}

static void close_hostile(void *of) {
  hostile *h = of;
  pthread_t thread;
  if (breaks(h, "threads") && pthread_create(&thread, NULL, stay, NULL) == 0) pthread_detach(thread);
  memory_store_table.close(h->inner);
  __atomic_fetch_sub(&open_now, 1, __ATOMIC_ACQ_REL);
  free(h);
}

static void cancel_hostile(void *of, kvbm_store_op_t *op) { (void)of, (void)op; }

static const kvbm_store_option_help_t hostile_options[] = {{"breaks", "which rule"}, {"most", "MiB of all objects"}};

KVBM_API extern const kvbm_store_table_t kvbm_store_table;
const kvbm_store_table_t kvbm_store_table = {
    sizeof(kvbm_store_table_t), KVBM_STORE_ABI, "hostile", hostile_options, 2, open_hostile, start_hostile, cancel_hostile, close_hostile};

/* libtest_cufile.so: a fake of cuFile for tests, over the fake CUDA driver. Its device memory is memory of the process,
 * so reads are preads into it. Set up by kvbm_fake_cufile(), and before it is loaded by the environment variable
 * KVBM_FAKE_CUFILE: "open=5007" (result of cuFileDriverOpen), "compatible=1" (no module). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct error {
  int code, cuda;
} error_t;

typedef struct description {
  int type;
  union {
    int fd;
    void *handle;
  } file;
  const void *operations;
} description_t;

typedef struct properties {
  struct {
    unsigned major, minor;
    size_t poll, direct;
    unsigned status, control;
  } module;
  unsigned rest[6];
} properties_t;

enum { FILES = 256 };
enum { AS_IT_IS = 0, FAILS = 1, IS_SHORT = 2, WRONG_BYTES = 3, IN_PIECES = 4, WAITS = 5 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int how, opened, descriptors[FILES], refuse_files, refuse_buffer;
static long reads_left, files_open, buffers, reads_begun, reads_done;
static const char *buffer;
static size_t buffer_bytes;

static long setting(const char *key) {
  const char *text = getenv("KVBM_FAKE_CUFILE");
  const char *at = text != NULL ? strstr(text, key) : NULL;
  return at != NULL ? strtol(at + strlen(key), NULL, 10) : 0;
}

/* Behaviour of the next `n` reads: fails, short, wrong bytes, in pieces, waiting until released. */
EXPORT void kvbm_fake_cufile(int what, long n);
void kvbm_fake_cufile(int what, long n) {
  pthread_mutex_lock(&mutex);
  how = what;
  reads_left = n;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}
EXPORT void kvbm_fake_cufile_refuse(int files, int buffers_too);
void kvbm_fake_cufile_refuse(int files, int buffers_too) { refuse_files = files, refuse_buffer = buffers_too; }

EXPORT long kvbm_fake_cufile_count(const char *what);
long kvbm_fake_cufile_count(const char *what) {
  long n;
  pthread_mutex_lock(&mutex);
  n = strcmp(what, "files") == 0 ? files_open : strcmp(what, "buffers") == 0 ? buffers : strcmp(what, "begun") == 0 ? reads_begun : reads_done;
  pthread_mutex_unlock(&mutex);
  return n;
}

EXPORT error_t cuFileDriverOpen(void);
error_t cuFileDriverOpen(void) {
  const error_t said = {(int)setting("open="), 0};
  opened = said.code == 0;
  return said;
}

EXPORT error_t cuFileDriverGetProperties(properties_t *out);
error_t cuFileDriverGetProperties(properties_t *out) {
  const error_t good = {0, 0};
  const error_t closed = {5001, 0};
  memset(out, 0, sizeof *out);
  if (setting("compatible=") == 0) out->module.major = 2, out->module.minor = 20;
  return opened ? good : closed;
}

EXPORT error_t cuFileHandleRegister(void **handle, const description_t *description);
error_t cuFileHandleRegister(void **handle, const description_t *description) {
  error_t said = {0, 0};
  size_t i = 0;
  pthread_mutex_lock(&mutex);
  if (!opened) said.code = 5001;
  else if (refuse_files) said.code = 5008;
  else if (description->type != 1 || description->operations != NULL || fcntl(description->file.fd, F_GETFD) < 0) said.code = 5022;
  while (said.code == 0 && i < FILES && descriptors[i] != 0) ++i;
  if (i == FILES) said.code = 5030;
  if (said.code == 0) {
    descriptors[i] = description->file.fd;
    ++files_open;
    *handle = &descriptors[i];
  }
  pthread_mutex_unlock(&mutex);
  return said;
}

EXPORT void cuFileHandleDeregister(void *handle);
void cuFileHandleDeregister(void *handle) {
  pthread_mutex_lock(&mutex);
  *(int *)handle = 0;
  --files_open;
  pthread_mutex_unlock(&mutex);
}

EXPORT error_t cuFileBufRegister(const void *base, size_t bytes, int flags);
error_t cuFileBufRegister(const void *base, size_t bytes, int flags) {
  const error_t good = {0, 0};
  const error_t refused = {5045, 0};
  if (refuse_buffer || flags != 0) return refused;
  buffer = base, buffer_bytes = bytes;
  ++buffers;
  return good;
}

EXPORT error_t cuFileBufDeregister(const void *base);
error_t cuFileBufDeregister(const void *base) {
  const error_t good = {0, 0};
  const error_t unknown = {5024, 0};
  if (base != buffer) return unknown;
  --buffers;
  return good;
}

EXPORT ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset, off_t buffer_offset);
ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset, off_t buffer_offset) {
  char *const to = (char *)base + buffer_offset;
  ssize_t n;
  int so = AS_IT_IS;
  /* Stricter than cuFile: only what it does without a detour. */
  if (base != buffer || buffer_offset < 0 || (size_t)buffer_offset + bytes > buffer_bytes) return -5012;
  if (((size_t)file_offset | (size_t)buffer_offset | bytes) % 4096 != 0) return -5022;
  pthread_mutex_lock(&mutex);
  ++reads_begun;
  pthread_cond_broadcast(&changed);
  if (reads_left > 0) --reads_left, so = how;
  while (so == WAITS && how == WAITS) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  if (so == FAILS) {
    errno = EIO;
    return -1;
  }
  if (so == IS_SHORT) return 0;
  if (so == IN_PIECES && bytes > 4096) bytes = 4096;
  n = pread(*(int *)handle, to, bytes, file_offset);
  if (so == WRONG_BYTES && n > 0) to[n / 2] = (char)(to[n / 2] ^ 1);
  pthread_mutex_lock(&mutex);
  ++reads_done;
  pthread_mutex_unlock(&mutex);
  return n;
}

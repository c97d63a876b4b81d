/*
 * libtest_cuda_locked.so: a driver with one lock around every call, as drivers may have. Its cuMemFree waits for all
 * streams under the lock. For gpu_probe, which must detect that. The fake driver, named by KVBM_FAKE_DRIVER in the
 * environment, does the calls.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef unsigned long long pointer;
typedef void *handle;

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static handle streams[64];
static int stream_count;

static void *entry_of(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen(getenv("KVBM_FAKE_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  void *const found = library != NULL ? dlsym(library, name) : NULL;
  if (found == NULL) abort();
  return found;
}

/* The fake's entry of that name, called under the lock. */
#define LOCKED(name, parameters, arguments)          \
  int name parameters;                               \
  int name parameters {                              \
    pthread_mutex_lock(&one);                        \
    int(*real) parameters;                           \
    *(void **)&real = entry_of(#name);               \
    const int code = real arguments;                 \
    pthread_mutex_unlock(&one);                      \
    return code;                                     \
  }
/* A call that waits, and so runs without the lock. */
#define WAITING(name, parameters, arguments)         \
  int name parameters;                               \
  int name parameters {                              \
    int(*real) parameters;                           \
    pthread_mutex_lock(&one);                        \
    *(void **)&real = entry_of(#name);               \
    pthread_mutex_unlock(&one);                      \
    return real arguments;                           \
  }

LOCKED(cuInit, (unsigned f), (f))
LOCKED(cuGetErrorName, (int e, const char **n), (e, n))
LOCKED(cuDeviceGet, (int *d, int i), (d, i))
LOCKED(cuDeviceGetAttribute, (int *v, int a, int d), (v, a, d))
LOCKED(cuDevicePrimaryCtxRetain, (handle *c, int d), (c, d))
LOCKED(cuCtxPushCurrent_v2, (handle c), (c))
LOCKED(cuCtxGetStreamPriorityRange, (int *l, int *g), (l, g))
LOCKED(cuModuleLoadData, (handle *m, const void *i), (m, i))
LOCKED(cuModuleGetFunction, (handle *f, handle m, const char *n), (f, m, n))
LOCKED(cuLaunchKernel, (handle f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                        handle s, void **p, void **x), (f, a, b, c, d, e, g, h, s, p, x))
LOCKED(cuMemAlloc_v2, (pointer *p, size_t n), (p, n))
LOCKED(cuMemHostAlloc, (void **p, size_t n, unsigned f), (p, n, f))
LOCKED(cuMemHostGetDevicePointer_v2, (pointer *d, void *h, unsigned f), (d, h, f))
LOCKED(cuMemcpyAsync, (pointer t, pointer f, size_t n, handle s), (t, f, n, s))
LOCKED(cuMemsetD8Async, (pointer t, unsigned char v, size_t n, handle s), (t, v, n, s))
LOCKED(cuStreamWaitEvent, (handle s, handle e, unsigned f), (s, e, f))
LOCKED(cuStreamWaitValue64_v2, (handle s, pointer a, uint64_t v, unsigned f), (s, a, v, f))
LOCKED(cuStreamWriteValue64_v2, (handle s, pointer a, uint64_t v, unsigned f), (s, a, v, f))
LOCKED(cuEventCreate, (handle *e, unsigned f), (e, f))
LOCKED(cuEventRecord, (handle e, handle s), (e, s))
WAITING(cuStreamSynchronize, (handle s), (s))
WAITING(cuEventSynchronize, (handle e), (e))

int cuStreamCreateWithPriority(handle *s, unsigned f, int p);
int cuStreamCreateWithPriority(handle *s, unsigned f, int p) {
  pthread_mutex_lock(&one);
  int (*real)(handle *, unsigned, int);
  *(void **)&real = entry_of("cuStreamCreateWithPriority");
  const int code = real(s, f, p);
  if (code == 0 && stream_count < 64) streams[stream_count++] = *s;
  pthread_mutex_unlock(&one);
  return code;
}

int cuMemFree_v2(pointer p);
int cuMemFree_v2(pointer p) {
  pthread_mutex_lock(&one);
  int (*synchronize)(handle);
  int (*real)(pointer);
  *(void **)&synchronize = entry_of("cuStreamSynchronize");
  *(void **)&real = entry_of("cuMemFree_v2");
  for (int i = 0; i < stream_count; ++i) synchronize(streams[i]);
  const int code = real(p);
  pthread_mutex_unlock(&one);
  return code;
}

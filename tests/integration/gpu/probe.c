/*
 * gpu_probe: which calls of the CUDA driver stop beside a stream that waits for a word, which kvbm's waits for layers
 * stand on (docs/gpu.md, "Waiting for layers"). Linked to the C library alone; the driver is loaded.
 *
 *   gpu_probe [--seconds N] [--driver FILE] [CASE...]
 *
 * In each case one stream, the engine's, waits for a word in mapped host memory, and a thread makes one call there that may
 * wait inside of the driver. Another thread copies, launches and then writes the word on streams of its own 200 ms later, as
 * a load does. When that has not ended after half of N seconds (10), the CPU raises the word, as kvbm does when
 * device.lost_after is over. Each case is a process of its own, killed after N seconds and 5.
 *
 * Prints one JSON array: of each case its outcome (passes; hangs_until_raised; hangs; refused: a call said no; crashed), what
 * each thread was in when it hung, and milliseconds. Exit status 0 whatever the outcomes are; 77: there is no device; 2: usage.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int cu_result;
typedef unsigned long long cu_pointer;
typedef void *cu_handle;

/* Entries by the names that the driver's library exports. */
#define ENTRIES(X)                                                                                                   \
  X(cuInit, (unsigned))                                                                                              \
  X(cuGetErrorName, (cu_result, const char **))                                                                      \
  X(cuDeviceGet, (int *, int))                                                                                       \
  X(cuDeviceGetAttribute, (int *, int, int))                                                                         \
  X(cuDevicePrimaryCtxRetain, (cu_handle *, int))                                                                    \
  X(cuCtxPushCurrent_v2, (cu_handle))                                                                                \
  X(cuCtxGetStreamPriorityRange, (int *, int *))                                                                     \
  X(cuModuleLoadData, (cu_handle *, const void *))                                                                   \
  X(cuModuleGetFunction, (cu_handle *, cu_handle, const char *))                                                     \
  X(cuLaunchKernel, (cu_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_handle, void **, void **)) \
  X(cuMemAlloc_v2, (cu_pointer *, size_t))                                                                           \
  X(cuMemFree_v2, (cu_pointer))                                                                                      \
  X(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
  X(cuMemHostGetDevicePointer_v2, (cu_pointer *, void *, unsigned))                                                  \
  X(cuMemcpyAsync, (cu_pointer, cu_pointer, size_t, cu_handle))                                                      \
  X(cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_handle))                                                 \
  X(cuStreamCreateWithPriority, (cu_handle *, unsigned, int))                                                        \
  X(cuStreamSynchronize, (cu_handle))                                                                                \
  X(cuStreamWaitEvent, (cu_handle, cu_handle, unsigned))                                                             \
  X(cuStreamWaitValue64_v2, (cu_handle, cu_pointer, uint64_t, unsigned))                                             \
  X(cuStreamWriteValue64_v2, (cu_handle, cu_pointer, uint64_t, unsigned))                                            \
  X(cuEventCreate, (cu_handle *, unsigned))                                                                          \
  X(cuEventRecord, (cu_handle, cu_handle))                                                                           \
  X(cuEventSynchronize, (cu_handle))

static struct {
#define DECLARE(name, arguments) cu_result(*name) arguments;
  ENTRIES(DECLARE)
#undef DECLARE
} cu;

enum { kMapped = 2, kPortable = 1, kNonBlocking = 1, kNoTiming = 2, kNoDevice = 100, kWaitOps64 = 122, kMostStreams = 32 };
#define MIB ((size_t)1 << 20)

/* Adds one to a word. Two names, so that one of them is loaded only in its case. */
#define KERNEL(name)                                                                               \
  ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry " name "(.param .u64 p) {\n"     \
  ".reg .u64 a;\n.reg .u32 v;\nld.param.u64 a, [p];\ncvta.to.global.u64 a, a;\n"                   \
  "ld.global.u32 v, [a];\nadd.u32 v, v, 1;\nst.global.u32 [a], v;\nret;\n}\n"
static const char kKernel[] = KERNEL("kvbm_probe");
static const char kLateKernel[] = KERNEL("kvbm_probe_late");

/* Objects that a case uses, all of them made before anything waits. */
static struct {
  uint64_t *word;
  cu_pointer word_device, big, other, extra, counter;
  void *pinned, *other_pinned, *pageable;
  cu_handle engine[kMostStreams], kernels, copies, between, end;
  cu_handle function; /* NULL: the driver takes no kernel of ours, and fills memory instead */
} made;

struct probe_case {
  const char *name;
  const char *what;
  const char *(*call)(const struct probe_case *); /* of the engine's thread; NULL, or what was refused */
  int streams;
};

static _Atomic(const char *) engine_in, loader_in; /* the call that each thread is in */
static _Atomic(const char *) refused;
static atomic_int engine_over, loader_over, last_code;
static atomic_llong engine_us, loader_us;

static long long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void sleep_us(long long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&t, NULL);
}

/* Leaves the function with the name of the entry that said no. */
#define TRY(at, entry, ...)                     \
  do {                                          \
    atomic_store(&(at), #entry);                \
    const int code_ = cu.entry(__VA_ARGS__);    \
    atomic_store(&(at), NULL);                  \
    if (code_ != 0) {                           \
      atomic_store(&last_code, code_);          \
      return #entry;                            \
    }                                           \
  } while (0)
#define ENGINE(entry, ...) TRY(engine_in, entry, __VA_ARGS__)
#define LOADER(entry, ...) TRY(loader_in, entry, __VA_ARGS__)

static cu_pointer address(const void *memory) { return (cu_pointer)(uintptr_t)memory; }

/* ---- The calls of the engine's thread, behind its wait ---- */

static const char *to_pageable(const struct probe_case *c) {
  (void)c;
  ENGINE(cuMemcpyAsync, address(made.pageable), made.big, MIB, made.engine[0]);
  return NULL;
}

static const char *free_memory(const struct probe_case *c) {
  (void)c;
  ENGINE(cuMemFree_v2, made.extra);
  return NULL;
}

static const char *pin_memory(const struct probe_case *c) {
  void *out = NULL;
  (void)c;
  ENGINE(cuMemHostAlloc, &out, MIB, kPortable);
  return NULL;
}

static const char *load_module(const struct probe_case *c) {
  cu_handle module = NULL, function = NULL;
  void *parameters[] = {&made.counter};
  (void)c;
  ENGINE(cuModuleLoadData, &module, kLateKernel);
  ENGINE(cuModuleGetFunction, &function, module, "kvbm_probe_late");
  ENGINE(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, made.engine[0], parameters, NULL);
  return NULL;
}

static const char *copies_behind(const struct probe_case *c) {
  for (int i = 0; i < c->streams; ++i) {
    ENGINE(cuMemcpyAsync, made.big, address(made.pinned), 16 * MIB, made.engine[i]);
  }
  return NULL;
}

static const struct probe_case kCases[] = {
    {"copy_to_pageable", "1 MiB out to pageable memory behind the wait", to_pageable, 1},
    {"free", "cuMemFree of memory that nobody uses", free_memory, 1},
    {"pin", "cuMemHostAlloc of 1 MiB", pin_memory, 1},
    {"load_module", "a module loaded, and its kernel launched behind the wait", load_module, 1},
    {"copy_to_device", "16 MiB in from pinned memory behind the wait", copies_behind, 1},
    {"copies_behind_8_waits", "as much on each of 8 streams that wait", copies_behind, 8},
    {"copies_behind_32_waits", "as much on each of 32 streams that wait", copies_behind, kMostStreams},
};
enum { kCaseCount = sizeof kCases / sizeof kCases[0] };

/* ---- One case ---- */

/* NULL, or what was refused. */
static const char *begin(int *no_device) {
  int device = 0, least = 0, greatest = 0;
  cu_handle context = NULL, module = NULL;
  atomic_store(&last_code, cu.cuInit(0));
  *no_device = atomic_load(&last_code) != 0;
  if (*no_device) return "cuInit";
  *no_device = 1;
  ENGINE(cuDeviceGet, &device, 0);
  *no_device = 0;
  ENGINE(cuDevicePrimaryCtxRetain, &context, device);
  ENGINE(cuCtxPushCurrent_v2, context);
  ENGINE(cuCtxGetStreamPriorityRange, &least, &greatest);
  ENGINE(cuMemHostAlloc, (void **)&made.word, 4096, kPortable | kMapped);
  memset(made.word, 0, 4096);
  ENGINE(cuMemHostGetDevicePointer_v2, &made.word_device, made.word, 0);
  ENGINE(cuMemAlloc_v2, &made.big, 16 * MIB);
  ENGINE(cuMemAlloc_v2, &made.other, 16 * MIB);
  ENGINE(cuMemAlloc_v2, &made.extra, 4 * MIB);
  ENGINE(cuMemAlloc_v2, &made.counter, 256);
  ENGINE(cuMemHostAlloc, &made.pinned, 16 * MIB, kPortable);
  ENGINE(cuMemHostAlloc, &made.other_pinned, 16 * MIB, kPortable);
  made.pageable = malloc(MIB);
  for (int i = 0; i < kMostStreams; ++i) ENGINE(cuStreamCreateWithPriority, &made.engine[i], kNonBlocking, 0);
  ENGINE(cuStreamCreateWithPriority, &made.kernels, kNonBlocking, greatest);
  ENGINE(cuStreamCreateWithPriority, &made.copies, kNonBlocking, greatest);
  ENGINE(cuEventCreate, &made.between, kNoTiming);
  ENGINE(cuEventCreate, &made.end, kNoTiming);
  if (cu.cuModuleLoadData(&module, kKernel) != 0 || cu.cuModuleGetFunction(&made.function, module, "kvbm_probe") != 0) {
    made.function = NULL;
  }
  return NULL;
}

/* A copy in, a kernel behind it, then the word. Also once before the case, so that nothing is loaded late. */
static const char *bring(int write_word) {
  void *parameters[] = {&made.counter};
  LOADER(cuMemcpyAsync, made.other, address(made.other_pinned), MIB, made.copies);
  LOADER(cuEventRecord, made.between, made.copies);
  LOADER(cuStreamWaitEvent, made.kernels, made.between, 0);
  if (made.function != NULL) {
    LOADER(cuLaunchKernel, made.function, 1, 1, 1, 1, 1, 1, 0, made.kernels, parameters, NULL);
  } else {
    LOADER(cuMemsetD8Async, made.counter, 0, 64, made.kernels);
  }
  if (write_word) LOADER(cuStreamWriteValue64_v2, made.kernels, made.word_device, 1, 0);
  LOADER(cuEventRecord, made.end, made.kernels);
  LOADER(cuEventSynchronize, made.end);
  return NULL;
}

static const char *engine_steps(const struct probe_case *c) {
  const char *why;
  for (int i = 0; i < c->streams; ++i) ENGINE(cuStreamWaitValue64_v2, made.engine[i], made.word_device, 1, 0);
  why = c->call(c);
  for (int i = 0; i < c->streams && why == NULL; ++i) ENGINE(cuStreamSynchronize, made.engine[i]);
  return why;
}

static cu_handle context_of_threads;

static const char *enter_engine(void) {
  ENGINE(cuCtxPushCurrent_v2, context_of_threads);
  return NULL;
}

static const char *enter_loader(void) {
  LOADER(cuCtxPushCurrent_v2, context_of_threads);
  return NULL;
}

static void *engine(void *opaque) {
  const long long began = now_us();
  const char *why = enter_engine();
  if (why == NULL) why = engine_steps(opaque);
  if (why != NULL) atomic_store(&refused, why);
  atomic_store(&engine_us, now_us() - began);
  atomic_store(&engine_over, 1);
  return NULL;
}

static void *loader(void *opaque) {
  (void)opaque;
  sleep_us(200000);
  const long long began = now_us();
  const char *why = enter_loader();
  if (why == NULL) why = bring(1);
  if (why != NULL) atomic_store(&refused, why);
  atomic_store(&loader_us, now_us() - began);
  atomic_store(&loader_over, 1);
  return NULL;
}

static int both_over_by(long long until_us) {
  while (now_us() < until_us) {
    if (atomic_load(&refused) != NULL || (atomic_load(&engine_over) && atomic_load(&loader_over))) return 1;
    sleep_us(2000);
  }
  return 0;
}

static void say(int out, const char *outcome, const char *engine_at, const char *loader_at) {
  char line[512];
  const char *error = NULL, *entry = atomic_load(&refused);
  if (entry != NULL && (cu.cuGetErrorName(atomic_load(&last_code), &error) != 0 || error == NULL)) error = "unknown";
  const int n = snprintf(line, sizeof line,
                         "\"outcome\": \"%s\", \"engine_in\": \"%s\", \"loader_in\": \"%s\", \"engine_ms\": %.3f, "
                         "\"loader_ms\": %.3f, \"kernel\": \"%s\", \"why\": \"%s%s%s\"",
                         outcome, engine_at, loader_at, (double)atomic_load(&engine_us) / 1e3,
                         (double)atomic_load(&loader_us) / 1e3, made.function != NULL ? "launched" : "memory filled",
                         entry != NULL ? entry : "", entry != NULL ? ": " : "", entry != NULL ? error : "");
  if (write(out, line, (size_t)n) != n) _exit(3);
}

static const char *or_done(const char *at, int over) { return over ? "" : at != NULL ? at : "between calls"; }

/* The child: ends by itself also where threads hang. */
static void run_case(const struct probe_case *c, int out, double seconds) {
  pthread_t threads[2];
  int no_device = 0, supported = 1, device = 0;
  const char *why = begin(&no_device);
  if (why == NULL) why = bring(0);
  if (why == NULL && cu.cuDeviceGetAttribute(&supported, kWaitOps64, device) == 0 && !supported) {
    atomic_store(&last_code, 801);
    why = "cuStreamWaitValue64 (the device says that it has none)";
  }
  if (why != NULL) {
    atomic_store(&refused, why);
    say(out, no_device ? "no_device" : "refused", "", "");
    _exit(0);
  }
  cu.cuDevicePrimaryCtxRetain(&context_of_threads, device);
  const long long began = now_us();
  pthread_create(&threads[0], NULL, engine, (void *)(uintptr_t)c);
  pthread_create(&threads[1], NULL, loader, NULL);
  const int passed = both_over_by(began + (long long)(seconds * 5e5));
  const char *engine_at = or_done(atomic_load(&engine_in), atomic_load(&engine_over));
  const char *loader_at = or_done(atomic_load(&loader_in), atomic_load(&loader_over));
  if (passed) {
    say(out, atomic_load(&refused) != NULL ? "refused" : "passes", "", "");
    _exit(0);
  }
  __atomic_store_n(made.word, 1, __ATOMIC_RELEASE);
  say(out, both_over_by(began + (long long)(seconds * 1e6)) ? "hangs_until_raised" : "hangs", engine_at, loader_at);
  _exit(0);
}

/* ---- All of them ---- */

static int load_driver(const char *file) {
  void *library = dlopen(file, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "gpu_probe: %s\n", dlerror());
    return 0;
  }
#define RESOLVE(name, arguments)                                                \
  if ((*(void **)&cu.name = dlsym(library, #name)) == NULL) {                   \
    fprintf(stderr, "gpu_probe: %s has no entry %s\n", file, #name);            \
    return 0;                                                                   \
  }
  ENTRIES(RESOLVE)
#undef RESOLVE
  return 1;
}

/* Reads the child's output until it exits or its time is over. A process that the driver keeps from dying is left
 * behind. */
static void wait_for(pid_t child, int in, double seconds, char *said, size_t room) {
  const long long until = now_us() + (long long)((seconds + 5) * 1e6);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now_us() < until) sleep_us(5000);
  if (ended == 0) {
    kill(child, SIGKILL);
    for (int i = 0; i < 400 && (ended = waitpid(child, &status, WNOHANG)) == 0; ++i) sleep_us(5000);
    snprintf(said, room, "\"outcome\": \"hangs\", \"why\": \"the process was killed%s\"", ended == 0 ? " and is still there" : "");
    return;
  }
  const ssize_t n = read(in, said, room - 1);
  if (n > 0) {
    said[n] = 0;
  } else {
    snprintf(said, room, "\"outcome\": \"crashed\", \"why\": \"%s %d\"", WIFSIGNALED(status) ? "signal" : "exit status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
}

static int chosen(const struct probe_case *c, char **names, int count) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(names[i], c->name) == 0) return 1;
  }
  return count == 0;
}

static int known(const char *name) {
  for (int i = 0; i < kCaseCount; ++i) {
    if (strcmp(name, kCases[i].name) == 0) return 1;
  }
  return 0;
}

static int usage(void) {
  fprintf(stderr, "usage: gpu_probe [--seconds N] [--driver FILE] [CASE...]\ncases:");
  for (int i = 0; i < kCaseCount; ++i) fprintf(stderr, " %s", kCases[i].name);
  fprintf(stderr, "\n");
  return 2;
}

int main(int argc, char **argv) {
  const char *file = getenv("KVBMTEST_CUDA");
  double seconds = 10;
  int first = 1, printed = 0;
  if (file == NULL) file = "libcuda.so.1";
  for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
    if (strcmp(argv[first], "--seconds") == 0) {
      seconds = atof(argv[first + 1]);
    } else if (strcmp(argv[first], "--driver") == 0) {
      file = argv[first + 1];
    } else {
      return usage();
    }
  }
  for (int i = first; i < argc; ++i) {
    if (!known(argv[i])) return usage();
  }
  if (seconds <= 0) return usage();
  for (int i = 0; i < kCaseCount; ++i) {
    const struct probe_case *c = &kCases[i];
    char said[1024];
    int ends[2];
    if (!chosen(c, argv + first, argc - first)) continue;
    if (pipe(ends) != 0) return 1;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      /* The driver is loaded here: it knows no process but the one that it runs in. */
      if (!load_driver(file)) _exit(77);
      run_case(c, ends[1], seconds);
    }
    close(ends[1]);
    wait_for(child, ends[0], seconds, said, sizeof said);
    close(ends[0]);
    if (printed == 0 && (strstr(said, "\"no_device\"") != NULL || strstr(said, "exit status 77") != NULL)) {
      fprintf(stderr, "gpu_probe: there is no device here\n");
      return 77;
    }
    printf("%s{\"case\": \"%s\", \"what\": \"%s\", %s}", printed++ == 0 ? "[" : ",\n ", c->name, c->what, said);
  }
  printf("]\n");
  return 0;
}

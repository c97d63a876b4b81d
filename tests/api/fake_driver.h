/* The fake of the CUDA driver as a library, and what an engine does with it. */
#ifndef KVBM_TESTS_FAKE_DRIVER_H
#define KVBM_TESTS_FAKE_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#ifndef KVBM_FAKE_DRIVER
#error "the path of libtest_cuda_driver.so"
#endif

typedef unsigned long long address_t;

static struct {
  int (*apply)(const char* text);
  address_t (*allocate)(int ordinal, size_t bytes);
  void (*free_memory)(address_t pointer);
  void* (*make_stream)(int ordinal);
  void (*synchronize)(void* stream);
  void (*capture)(void* stream, int on);
  int (*capture_is_whole)(void* stream);
  int (*retain)(void** context, int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*copy)(address_t to, address_t from, size_t bytes, void* stream);
} fake;

static int fake_open(void) {
  void* library = dlopen(KVBM_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    return 0;
  }
  struct {
    void* entry;
    const char* name;
  } all[] = {{&fake.apply, "kvbm_fake_apply"},
             {&fake.allocate, "kvbm_fake_allocate"},
             {&fake.free_memory, "kvbm_fake_free"},
             {&fake.make_stream, "kvbm_fake_make_stream"},
             {&fake.synchronize, "kvbm_fake_synchronize"},
             {&fake.capture, "kvbm_fake_capture"},
             {&fake.capture_is_whole, "kvbm_fake_capture_is_whole"},
             {&fake.retain, "cuDevicePrimaryCtxRetain"},
             {&fake.push, "cuCtxPushCurrent_v2"},
             {&fake.pop, "cuCtxPopCurrent_v2"},
             {&fake.copy, "cuMemcpyAsync"}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    void* found = dlsym(library, all[i].name);
    if (found == NULL) {
      printf("%s is not in %s\n", all[i].name, KVBM_FAKE_DRIVER);
      return 0;
    }
    *(void**)all[i].entry = found;
  }
  return 1;
}

#endif

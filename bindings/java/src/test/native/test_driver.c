/* The engine's side of the fake CUDA driver that the library's own tests use (libtest_cuda_driver.so): its devices have
 * host memory. SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>

#define DRIVER(name) Java_io_github_kvbm_libkvbm_TestDriver_##name

static unsigned long long (*fake_allocate)(int device, size_t bytes);
static void *(*fake_make_stream)(int device);
static void (*fake_synchronize)(void *stream);

/* Whether the file of this name is the fake. It stays loaded. */
JNIEXPORT jboolean JNICALL DRIVER(load)(JNIEnv *env, jclass self, jstring path) {
  const char *name = (*env)->GetStringUTFChars(env, path, NULL);
  (void)self;
  if (name == NULL) return JNI_FALSE;
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  (*env)->ReleaseStringUTFChars(env, path, name);
  if (library == NULL) return JNI_FALSE;
  *(void **)&fake_allocate = dlsym(library, "kvbm_fake_allocate");
  *(void **)&fake_make_stream = dlsym(library, "kvbm_fake_make_stream");
  *(void **)&fake_synchronize = dlsym(library, "kvbm_fake_synchronize");
  return fake_allocate != NULL && fake_make_stream != NULL && fake_synchronize != NULL;
}

/* Memory of device 0. */
JNIEXPORT jlong JNICALL DRIVER(allocate)(JNIEnv *env, jclass self, jlong bytes) {
  (void)env;
  (void)self;
  return (jlong)fake_allocate(0, (size_t)bytes);
}

JNIEXPORT jlong JNICALL DRIVER(stream)(JNIEnv *env, jclass self) {
  (void)env;
  (void)self;
  return (jlong)(intptr_t)fake_make_stream(0);
}

JNIEXPORT void JNICALL DRIVER(synchronize)(JNIEnv *env, jclass self, jlong stream) {
  (void)env;
  (void)self;
  fake_synchronize((void *)(intptr_t)stream);
}

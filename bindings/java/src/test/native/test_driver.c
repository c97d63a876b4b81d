/* The engine's side of the fake CUDA driver that the library's own tests use (libtest_cuda_driver.so): its devices have
 * host memory. SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>

#define DRIVER(name) Java_io_github_kvbm_libkvbm_TestDriver_##name

static unsigned long long (*fake_allocate)(int device, size_t bytes);
static void *(*fake_make_stream)(int device);
static void (*fake_synchronize)(void *stream);
static int (*fake_copy)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
static void (*fake_hold)(void *stream, int on);
static void (*fake_capture)(void *stream, int on);
static int (*fake_apply)(const char *text);

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
  *(void **)&fake_copy = dlsym(library, "kvbm_fake_copy");
  *(void **)&fake_hold = dlsym(library, "kvbm_fake_hold");
  *(void **)&fake_capture = dlsym(library, "kvbm_fake_capture");
  *(void **)&fake_apply = dlsym(library, "kvbm_fake_apply");
  return fake_allocate != NULL && fake_make_stream != NULL && fake_synchronize != NULL && fake_copy != NULL &&
         fake_hold != NULL && fake_capture != NULL && fake_apply != NULL;
}

/* Configures the fake. */
JNIEXPORT jboolean JNICALL DRIVER(apply)(JNIEnv *env, jclass self, jstring text) {
  const char *words = (*env)->GetStringUTFChars(env, text, NULL);
  (void)self;
  if (words == NULL) return JNI_FALSE;
  const int taken = fake_apply(words);
  (*env)->ReleaseStringUTFChars(env, text, words);
  return taken != 0 ? JNI_TRUE : JNI_FALSE;
}

JNIEXPORT jlong JNICALL DRIVER(allocateOn)(JNIEnv *env, jclass self, jint device, jlong bytes) {
  (void)env;
  (void)self;
  return (jlong)fake_allocate(device, (size_t)bytes);
}

JNIEXPORT jlong JNICALL DRIVER(streamOn)(JNIEnv *env, jclass self, jint device) {
  (void)env;
  (void)self;
  return (jlong)(intptr_t)fake_make_stream(device);
}

/* Enqueues a copy on a stream. */
JNIEXPORT jboolean JNICALL DRIVER(copy)(JNIEnv *env, jclass self, jlong to, jlong from, jlong bytes, jlong stream) {
  (void)env;
  (void)self;
  const int taken = fake_copy((unsigned long long)to, (unsigned long long)from, (size_t)bytes, (void *)(intptr_t)stream);
  return taken != 0 ? JNI_TRUE : JNI_FALSE;
}

JNIEXPORT void JNICALL DRIVER(hold)(JNIEnv *env, jclass self, jlong stream, jboolean on) {
  (void)env;
  (void)self;
  fake_hold((void *)(intptr_t)stream, on);
}

JNIEXPORT void JNICALL DRIVER(capture)(JNIEnv *env, jclass self, jlong stream, jboolean on) {
  (void)env;
  (void)self;
  fake_capture((void *)(intptr_t)stream, on);
}

JNIEXPORT void JNICALL DRIVER(synchronize)(JNIEnv *env, jclass self, jlong stream) {
  (void)env;
  (void)self;
  fake_synchronize((void *)(intptr_t)stream);
}

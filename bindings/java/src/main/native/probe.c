/* Asks a libkvbm for its version before anything is linked with it: one of another version may lack what the wrapper
 * needs, and the dynamic linker's words about that say nothing of versions. SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <jni.h>
#include <kvbm.h>
#include <string.h>

#define PROBE(name) Java_io_github_kvbm_libkvbm_raw_Probe_##name

/* The version of the header that the wrapper was made from. */
JNIEXPORT jint JNICALL PROBE(header)(JNIEnv *env, jclass self) {
  (void)env;
  (void)self;
  return KVBM_VERSION;
}

/* The version of the library in the file of this name (with a final zero byte); 0 if it is no libkvbm. */
JNIEXPORT jint JNICALL PROBE(library)(JNIEnv *env, jclass self, jbyteArray path) {
  char name[4096];
  const jsize n = (*env)->GetArrayLength(env, path);
  (void)self;
  if (n < 1 || (size_t)n > sizeof name) return 0;
  (*env)->GetByteArrayRegion(env, path, 0, n, (jbyte *)name);
  if (name[n - 1] != '\0') return 0;
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return 0;
  uint32_t (*version)(void) = NULL;
  void *found = dlsym(library, "kvbm_version");
  memcpy(&version, &found, sizeof version);
  /* The library stays loaded: either it is used next, or the JVM does not need this module. */
  return version == NULL ? 0 : (jint)version();
}

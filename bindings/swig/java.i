/* Java's part of the interface. Each pointer is an address (a Java long) from the idiomatic layer, and each status,
 * handle and count is a plain number, so a call costs only its JNI transition. Structs are not wrapped: the idiomatic
 * layer writes them into direct memory by the offsets below, which the C compiler computes.
 * SPDX-License-Identifier: Apache-2.0 */

%{
#include <pthread.h>
#include <stddef.h>
#include <string.h>
%}

/* ------------------------------------------------------- pointers as addresses */

%typemap(jni) SWIGTYPE *, SWIGTYPE [ANY] "jlong"
%typemap(jtype) SWIGTYPE *, SWIGTYPE [ANY] "long"
%typemap(jstype) SWIGTYPE *, SWIGTYPE [ANY] "long"
%typemap(javain) SWIGTYPE *, SWIGTYPE [ANY] "$javainput"
%typemap(javaout) SWIGTYPE * { return $jnicall; }
%typemap(in) SWIGTYPE * %{ $1 = ($1_ltype)(intptr_t)$input; %}
%typemap(in) SWIGTYPE [ANY] %{ $1 = ($1_ltype)(intptr_t)$input; %}
%typemap(freearg) SWIGTYPE [ANY] ""
%typemap(argout) SWIGTYPE [ANY] ""
%typemap(out) SWIGTYPE * %{ $result = (jlong)(intptr_t)$1; %}
/* Text goes in as an address too: the JVM's modified UTF-8 differs from the UTF-8 that the library expects. */
%apply SWIGTYPE * { const char *reason, const char *name, char *out, uint8_t *, const uint8_t *, void *data, void *stream }
%apply SWIGTYPE [ANY] { uint8_t [ANY] }
%typemap(freearg) const char *reason, const char *name, char *out ""
%typemap(argout) const char *reason, const char *name, char *out ""

/* ------------------------------------------------------------------ left out of Java */

%rename("$ignore", %$isclass) "";
%ignore KVBM_FOREVER;
%ignore KVBM_NO_TIER;
%ignore KVBM_NO_BLOCK;
%ignore KVBM_OWN;
%ignore KVBM_API;
%javaconst(1);
%javaconst(0) KVBM_MANAGER_SHARE; // Java has no literal 1u
%javaconst(0) KVBM_CODEC_ALLOW_LOSSY;

/* --------------------------------------------------------------- memory and buffers */

%typemap(jni) kvbm_java_buffer_t "jobject"
%typemap(jtype) kvbm_java_buffer_t "java.nio.ByteBuffer"
%typemap(jstype) kvbm_java_buffer_t "java.nio.ByteBuffer"
%typemap(javaout) kvbm_java_buffer_t { return $jnicall; }
%typemap(out) kvbm_java_buffer_t %{ $result = (*jenv)->NewDirectByteBuffer(jenv, $1.data, $1.bytes); %}
%typemap(jni) kvbm_java_memory_t "jobject"
%typemap(jtype) kvbm_java_memory_t "java.nio.ByteBuffer"
%typemap(jstype) kvbm_java_memory_t "java.nio.ByteBuffer"
%typemap(javain) kvbm_java_memory_t "$javainput"
%typemap(in) kvbm_java_memory_t %{ $1.data = (*jenv)->GetDirectBufferAddress(jenv, $input); %}
%{
typedef struct kvbm_java_buffer { void *data; jlong bytes; } kvbm_java_buffer_t;
typedef struct kvbm_java_memory { void *data; } kvbm_java_memory_t;

/* Returns a direct buffer over memory outside of the Java heap. */
static kvbm_java_buffer_t kvbm_java_buffer_at(long long address, long long bytes) {
  const kvbm_java_buffer_t buffer = {(void *)(intptr_t)address, (jlong)bytes};
  return buffer;
}
/* Returns the address of a direct buffer's element 0, or 0 for a buffer on the heap. */
static long long kvbm_java_address_of(kvbm_java_memory_t buffer) { return (long long)(intptr_t)buffer.data; }
%}
kvbm_java_buffer_t kvbm_java_buffer_at(long long address, long long bytes);
long long kvbm_java_address_of(kvbm_java_memory_t buffer);

%include "java_layout.i"

/* ------------------------------------------------------------------------- log lines */

%{
static JavaVM *kvbm_java_vm;
static jclass kvbm_java_log_class;
static jmethodID kvbm_java_log_line;
static pthread_key_t kvbm_java_attached;

static void kvbm_java_detach(void *unused) {
  (void)unused;
  (*kvbm_java_vm)->DetachCurrentThread(kvbm_java_vm);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
  JNIEnv *env = NULL;
  (void)reserved;
  kvbm_java_vm = vm;
  if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  jclass found = (*env)->FindClass(env, "io/github/kvbm/libkvbm/raw/Log");
  if (found == NULL) return JNI_ERR;
  kvbm_java_log_class = (jclass)(*env)->NewGlobalRef(env, found);
  kvbm_java_log_line = (*env)->GetStaticMethodID(env, found, "line", "(JI[B[B)V");
  if (kvbm_java_log_class == NULL || kvbm_java_log_line == NULL) return JNI_ERR;
  return pthread_key_create(&kvbm_java_attached, kvbm_java_detach) == 0 ? JNI_VERSION_1_8 : JNI_ERR;
}

/* Returns the calling thread's JNIEnv. Attaches a thread of the library to the JVM as a daemon for its lifetime. */
static JNIEnv *kvbm_java_env(void) {
  JNIEnv *env = NULL;
  if ((*kvbm_java_vm)->GetEnv(kvbm_java_vm, (void **)&env, JNI_VERSION_1_8) == JNI_OK) return env;
  JavaVMAttachArgs args = {JNI_VERSION_1_8, (char *)"kvbm", NULL};
  if ((*kvbm_java_vm)->AttachCurrentThreadAsDaemon(kvbm_java_vm, (void **)&env, &args) != JNI_OK) return NULL;
  pthread_setspecific(kvbm_java_attached, env);
  return env;
}

static jbyteArray kvbm_java_bytes(JNIEnv *env, const char *text) {
  const jsize n = (jsize)strlen(text);
  jbyteArray bytes = (*env)->NewByteArray(env, n);
  if (bytes != NULL) (*env)->SetByteArrayRegion(env, bytes, 0, n, (const jbyte *)text);
  return bytes;
}

/* A log line may come within a call that throws no exception, so an exception of the listener is cleared here. */
static void kvbm_java_log(void *user, int32_t level, const char *component, const char *text) {
  JNIEnv *env = kvbm_java_env();
  if (env == NULL || (*env)->PushLocalFrame(env, 4) != 0) return;
  jbyteArray from = kvbm_java_bytes(env, component);
  jbyteArray line = from != NULL ? kvbm_java_bytes(env, text) : NULL;
  if (line != NULL) {
    (*env)->CallStaticVoidMethod(env, kvbm_java_log_class, kvbm_java_log_line, (jlong)(intptr_t)user, (jint)level, from,
                                 line);
  }
  if ((*env)->ExceptionCheck(env)) (*env)->ExceptionClear(env);
  (*env)->PopLocalFrame(env, NULL);
}

/* Returns the address for kvbm_context_options_t.log. */
static long long kvbm_java_log_function(void) { return (long long)(intptr_t)&kvbm_java_log; }
%}
long long kvbm_java_log_function(void);

/* Loads the library with the native functions first. */
%pragma(java) jniclasscode=%{
  static {
    Loader.load();
  }
%}

/* Transport modules for tests of copy/transport_module, one per KVBM_CASE; the good one does nothing but load. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "copy/transport_abi.h"

#define GOOD 1
#define OLDER_VERSION 2
#define SMALL_TABLE 3
#define HOLES 4
#define REFUSES 5
#define NO_ENTRY 6
#define HANDLERS 7

static int32_t open_(const kvbm_transport_options_t* o, const kvbm_transport_host_t* h, kvbm_transport_t** out, char* e,
                     size_t n) {
  (void)o, (void)h, (void)out;
  snprintf(e, n, "this is a test module");
  return -500;
}
static void close_(kvbm_transport_t* t) { (void)t; }
static uint32_t features(const kvbm_transport_t* t) { return (void)t, 0; }
static size_t describe(const kvbm_transport_t* t, char* s, size_t n) { return (void)t, (void)s, (void)n, (size_t)0; }
static int fd(const kvbm_transport_t* t) { return (void)t, -1; }
static int32_t arm(kvbm_transport_t* t, uint64_t* w) { return (void)t, (void)w, 0; }
static uint32_t progress(kvbm_transport_t* t) { return (void)t, 0; }
static int32_t listen_(kvbm_transport_t* t, const char* a, char* b, size_t bn, char* e, size_t n) {
  return (void)t, (void)a, (void)b, (void)bn, (void)e, (void)n, -500;
}
static int32_t connect_(kvbm_transport_t* t, const char* a, kvbm_transport_peer_t* p, char* e, size_t n) {
  return (void)t, (void)a, (void)p, (void)e, (void)n, -500;
}
static int32_t admit(kvbm_transport_t* t, kvbm_transport_peer_t p) { return (void)t, (void)p, -101; }
static int32_t disconnect(kvbm_transport_t* t, kvbm_transport_peer_t p, int32_t f) {
  return (void)t, (void)p, (void)f, -101;
}
static int32_t send_(kvbm_transport_t* t, kvbm_transport_peer_t p, const void* b, size_t n) {
  return (void)t, (void)p, (void)b, (void)n, -101;
}
static int32_t post(kvbm_transport_t* t, kvbm_transport_peer_t p, uint64_t g, void* to, uint64_t n,
                    kvbm_transport_token_t k) {
  return (void)t, (void)p, (void)g, (void)to, (void)n, (void)k, -101;
}
static int32_t push(kvbm_transport_t* t, kvbm_transport_peer_t p, uint64_t g, const kvbm_transport_piece_t* c, size_t n,
                    kvbm_transport_token_t k) {
  return (void)t, (void)p, (void)g, (void)c, (void)n, (void)k, -101;
}
static int32_t cancel(kvbm_transport_t* t, kvbm_transport_peer_t p, kvbm_transport_token_t k) {
  return (void)t, (void)p, (void)k, -101;
}

static kvbm_transport_ops_t table = {sizeof(kvbm_transport_ops_t),
                                     KVBM_TRANSPORT_ABI_VERSION,
                                     "test",
                                     "a module of the tests",
                                     open_,
                                     close_,
                                     features,
                                     describe,
                                     fd,
                                     arm,
                                     progress,
                                     listen_,
                                     connect_,
                                     admit,
                                     disconnect,
                                     send_,
                                     post,
                                     push,
                                     cancel,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL};

#if KVBM_CASE == HANDLERS
static char stack[65536];
static void handler(int signal) { (void)signal; }
__attribute__((constructor)) static void install(void) {
  struct sigaction action;
  stack_t alternate;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  for (int i = 1; i <= 64; ++i) sigaction(i, &action, NULL);
  memset(&alternate, 0, sizeof alternate);
  alternate.ss_sp = stack, alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, NULL);
}
#endif

#if KVBM_CASE != NO_ENTRY
__attribute__((visibility("default"))) const kvbm_transport_ops_t* kvbm_transport_entry(uint32_t host, char* error,
                                                                                        size_t size);
const kvbm_transport_ops_t* kvbm_transport_entry(uint32_t host, char* error, size_t size) {
  (void)host, (void)error, (void)size;
#if KVBM_CASE == OLDER_VERSION
  table.abi_version = KVBM_TRANSPORT_ABI_VERSION - 1;
#elif KVBM_CASE == SMALL_TABLE
  table.struct_size = sizeof table - sizeof(void*);
#elif KVBM_CASE == HOLES
  table.push = NULL;
#elif KVBM_CASE == REFUSES
  snprintf(error, size, "not on this machine");
  return NULL;
#endif
  return &table;
}
#else
__attribute__((visibility("default"))) const void* something_else(void);
const void* something_else(void) { return &table; }
#endif

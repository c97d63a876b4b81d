/* A small harness for C99 tests of libkvbm from outside: named cases, checks that count, a world to test in.
 *
 * A program is  static void some_behaviour(void) { CHECK(...); }  int main(void) { RUN(some_behaviour); FINISH(); }
 * It ends with "N passed, N failed" and 0, 1, or 77 if every case that ran was skipped. */
#ifndef KVBM_TESTS_API_CHECK_H
#define KVBM_TESTS_API_CHECK_H

#include <kvbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_passed, check_failed, check_skipped, check_case_failed, check_case_skipped;

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      printf("  %s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      check_case_failed = 1;                                           \
    }                                                                  \
  } while (0)
#define CHECK_STATUS(call, expected)                                                                  \
  do {                                                                                                \
    const kvbm_status_t check_got = (call);                                                           \
    if (check_got != (expected)) {                                                                    \
      printf("  %s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, kvbm_status_name(check_got), \
             kvbm_status_name(expected));                                                             \
      check_case_failed = 1;                                                                          \
    }                                                                                                 \
  } while (0)
#define CHECK_U64(value, expected)                                                                                 \
  do {                                                                                                             \
    const unsigned long long check_got = (unsigned long long)(value), check_want = (unsigned long long)(expected); \
    if (check_got != check_want) {                                                                                 \
      printf("  %s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #value, check_got, check_want);                \
      check_case_failed = 1;                                                                                       \
    }                                                                                                              \
  } while (0)
#define SKIP(why)                   \
  do {                              \
    printf("  skipped: %s\n", why); \
    check_case_skipped = 1;         \
    return;                         \
  } while (0)
#define RUN(name)                                                                                      \
  do {                                                                                                 \
    check_case_failed = check_case_skipped = 0;                                                        \
    name();                                                                                            \
    check_failed += check_case_failed;                                                                 \
    check_skipped += !check_case_failed && check_case_skipped;                                         \
    check_passed += !check_case_failed && !check_case_skipped;                                         \
    printf("%s %s\n", check_case_failed ? "FAILED" : check_case_skipped ? "skip  " : "ok    ", #name); \
    fflush(stdout);                                                                                    \
  } while (0)
#define FINISH()                                                             \
  do {                                                                       \
    printf("%d passed, %d failed", check_passed, check_failed);              \
    if (check_skipped) printf(", %d skipped", check_skipped);                \
    printf("\n");                                                            \
    return check_failed ? 1 : (check_passed == 0 && check_skipped) ? 77 : 0; \
  } while (0)

/* A context, a manager and a namespace without geometry. */
typedef struct world {
  kvbm_context_t* context;
  kvbm_manager_t* manager;
  kvbm_namespace_t* ns;
  kvbm_error_t err;
} world_t;

enum { WORLD_BLOCK = 8192 };

static inline kvbm_namespace_t* world_namespace(kvbm_manager_t* manager, const char* tenant,
                                                const kvbm_geometry_t* geometry) {
  kvbm_namespace_options_t options;
  kvbm_namespace_t* ns = NULL;
  kvbm_error_t err;
  kvbm_namespace_options_init(&options, sizeof options);
  options.tenant = tenant;
  options.model = "test model";
  options.geometry = geometry;
  if (kvbm_namespace_open(manager, &options, &ns, &err) < 0) printf("  namespace: %s\n", err.message);
  return ns;
}

/* The last line that a world logged on the thread of a test. */
static __thread char check_log[512];
static inline void check_keep_log(void* user, int32_t level, const char* component, const char* text) {
  (void)user, (void)level, (void)component;
  snprintf(check_log, sizeof check_log, "%s", text);
}
/* Expects that a call is refused, and that the log has these words for it. */
#define CHECK_REFUSED(call, expected, words)                                                          \
  do {                                                                                                \
    check_log[0] = '\0';                                                                              \
    CHECK_STATUS(call, expected);                                                                     \
    if (strstr(check_log, words) == NULL) {                                                           \
      printf("  %s:%d: %s logged \"%s\", not \"%s\"\n", __FILE__, __LINE__, #call, check_log, words); \
      check_case_failed = 1;                                                                          \
    }                                                                                                 \
  } while (0)

/* Opens a world. NULL tiers: host memory only, without settings from the environment. Returns 0, with the error in
 * w->err, if that fails. */
static inline int world_open(world_t* w, uint64_t host_bytes, const kvbm_tier_t* tiers, size_t n_tiers) {
  kvbm_context_options_t context;
  kvbm_manager_options_t options;
  memset(w, 0, sizeof *w);
  kvbm_context_options_init(&context, sizeof context);
  context.log = check_keep_log;
  if (kvbm_context_create(&context, &w->context, &w->err) < 0) return 0;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = WORLD_BLOCK;
  options.host_capacity_bytes = host_bytes;
  options.tiers = tiers;
  options.n_tiers = n_tiers;
  if (kvbm_manager_create(w->context, &options, &w->manager, &w->err) < 0) return 0;
  w->ns = world_namespace(w->manager, "", NULL);
  return w->ns != NULL;
}
static inline void world_close(world_t* w) {
  kvbm_namespace_release(w->ns);
  kvbm_manager_release(w->manager);
  kvbm_context_release(w->context);
  memset(w, 0, sizeof *w);
}

/* n keys that differ for every salt. */
static inline void world_keys(const kvbm_namespace_t* ns, uint32_t salt, kvbm_key_t* out, size_t n) {
  size_t i, made = 0;
  for (i = 0; i < n; ++i) {
    const uint32_t token[1] = {salt * 65536u + (uint32_t)i};
    kvbm_key_chain(ns, i ? &out[i - 1] : NULL, token, 1, 1, NULL, &out[i], 1, &made);
  }
}

/* A repeatable generator (splitmix64). */
static inline uint64_t check_random(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline void check_fill(void* data, size_t bytes, uint64_t seed) {
  unsigned char* at = (unsigned char*)data;
  size_t i;
  for (i = 0; i < bytes; ++i) at[i] = (unsigned char)(check_random(&seed) >> 11);
}
static inline int check_filled(const void* data, size_t bytes, uint64_t seed) {
  const unsigned char* at = (const unsigned char*)data;
  size_t i;
  for (i = 0; i < bytes; ++i) {
    if (at[i] != (unsigned char)(check_random(&seed) >> 11)) return 0;
  }
  return 1;
}

/* A directory of its own under $TMPDIR, removed by check_remove. */
static inline const char* check_directory(char out[256]) {
  const char* base = getenv("TMPDIR");
  snprintf(out, 256, "%s/kvbm-api-XXXXXX", base && *base ? base : "/tmp");
  return mkdtemp(out);
}
static inline void check_remove(const char* directory) {
  char command[320];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (system(command) != 0) printf("  cannot remove %s\n", directory);
}

#endif

/* A harness of a few lines for tests of the C interface: named cases, counts, no dependency. */
#ifndef KVBM_TESTS_API_CHECK_H
#define KVBM_TESTS_API_CHECK_H

#include <kvbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_failed_in_case;
static int check_passed;
static int check_failed;
static kvbm_error_t check_error;

#define CHECK(what)                                                     \
  do {                                                                  \
    if (!(what)) {                                                      \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
      check_failed_in_case = 1;                                         \
    }                                                                   \
  } while (0)

#define CHECK_STATUS(expected, call)                                                                         \
  do {                                                                                                       \
    const kvbm_status_t check_got = (call);                                                                  \
    if (check_got != (expected)) {                                                                           \
      printf("%s:%d: %s gave %s, expected %s (%s)\n", __FILE__, __LINE__, #call, kvbm_status_name(check_got), \
             kvbm_status_name(expected), check_error.message);                                               \
      check_failed_in_case = 1;                                                                              \
    }                                                                                                        \
  } while (0)

#define OK(call) CHECK_STATUS(KVBM_OK, call)

#define RUN(test)                                            \
  do {                                                       \
    check_failed_in_case = 0;                                \
    memset(&check_error, 0, sizeof check_error);             \
    test();                                                  \
    printf("%s %s\n", check_failed_in_case ? "FAIL" : "ok  ", #test); \
    if (check_failed_in_case) ++check_failed;                \
    else ++check_passed;                                     \
  } while (0)

static int check_end(void) {
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed == 0 ? 0 : 1;
}

#endif

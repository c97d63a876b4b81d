// SPDX-License-Identifier: Apache-2.0
//
// Log lines come on threads of the library, which must never wait for the GIL: the thread that holds it may wait for
// such a thread. They are written to a non-blocking pipe, which a Python thread reads. Lines that do not fit are
// dropped.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "owned.h"

// `user` is the descriptor, and above it the number that the listener has. A line is "LISTENER LEVEL COMPONENT TEXT\n".
void kvbm_log_to_pipe(void *user, int32_t level, const char *component, const char *text) {
  const uint64_t both = (uint64_t)(uintptr_t)user;
  const int kept = errno;
  char line[PIPE_BUF];  // a write of so much is not mixed with others'
  int n = snprintf(line, sizeof line, "%u %d %s %s", (unsigned)(both >> 32), (int)level,
                   component != NULL && component[0] != '\0' ? component : "-", text != NULL ? text : "");
  if (n < 0) return;
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  for (int i = 0; i < n; ++i) {
    if (line[i] == '\n') line[i] = ' ';
  }
  line[n++] = '\n';
  const ssize_t written = write((int)(both & 0xFFFFFFFFU), line, (size_t)n);
  (void)written;
  errno = kept;
}

#include "base/crypto/random.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <vector>

namespace kvbm::random_test {
namespace {

TEST(SeededRandom, fills_with_what_it_would_give_word_by_word) {
  for (const size_t bytes : {0U, 1U, 7U, 8U, 9U, 64U, 100U}) {
    SeededRandom filling(5);
    SeededRandom giving(5);
    std::vector<std::byte> filled(bytes), given(bytes + 8);
    static_cast<Random&>(filling).fill(filled);
    for (size_t at = 0; at < bytes; at += 8) {
      const uint64_t word = giving.next();
      std::memcpy(given.data() + at, &word, sizeof word);
    }
    given.resize(bytes);
    EXPECT_EQ(filled, given);
    EXPECT_EQ(filling.next(), giving.next()) << bytes;
  }
}

// Makes getrandom fail in this process from now on. Returns false if that is not possible.
bool refuse_getrandom() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter = {sizeof program / sizeof program[0], program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

enum { kRight = 0, kWrong = 1, kNoFilter = 77 };

// Runs `body` in a child process and returns its exit code.
template <class Body>
int in_child(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SystemRandom, that_the_system_gives_nothing_is_an_error_at_start) {
  EXPECT_TRUE(SystemRandom().ready().ok());
  const int code = in_child([] {
    if (!refuse_getrandom()) return kNoFilter;
    return SystemRandom().ready().code() == Code::io_error ? kRight : kWrong;
  });
  if (code == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(code, kRight);
}

TEST(SystemRandom, that_is_refused_later_goes_on_with_numbers_of_its_own) {
  const int code = in_child([] {
    SystemRandom one;
    SystemRandom two;
    if (!refuse_getrandom()) return kNoFilter;
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) {
      seen.insert(one.next());
      seen.insert(two.next());
    }
    return one.ready().ok() && seen.size() == 2000 ? kRight : kWrong;
  });
  if (code == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
  EXPECT_EQ(code, kRight);
}

}  // namespace
}  // namespace kvbm::random_test

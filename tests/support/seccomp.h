// A seccomp filter like that of a container: chosen system calls fail with an errno, permanently, in all threads of
// this process and in programs that it runs. Only for a child process of a test.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace kvbm::test {

// Number of calls that were refused and counted.
inline volatile sig_atomic_t refused_calls = 0;

inline void refuse_and_count(int /*signal*/, siginfo_t* info, void* context) {
  refused_calls = refused_calls + 1;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  registers.gregs[REG_RAX] = -info->si_errno;
#elif defined(__aarch64__)
  registers.regs[0] = static_cast<unsigned long long>(-static_cast<long long>(info->si_errno));
#endif
}

// Returns false if the system allows no filter. `counts`: in refused_calls, by a signal.
inline bool refuse_calls(const std::vector<long>& numbers, int error, bool counts = false) {
  struct sigaction action {};
  action.sa_sigaction = &refuse_and_count;
  action.sa_flags = SA_SIGINFO;
  if (counts) ::sigaction(SIGSYS, &action, nullptr);
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long number : numbers) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    const unsigned refusal = counts ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO;
    program.push_back(BPF_STMT(BPF_RET | BPF_K, refusal | static_cast<unsigned>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

}  // namespace kvbm::test

// Fork detection: a page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14), so
// that the test is one byte load; getpid where the kernel refuses it.
#pragma once

#include <sys/types.h>

namespace kvbm {

class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  // True in a child that was forked after this object was made. Thread: any. About 1 ns.
  [[nodiscard]] bool forked() const noexcept { return page_ != nullptr ? *page_ == 0 : slow_forked(); }

 private:
  [[nodiscard]] bool slow_forked() const noexcept;
  const volatile unsigned char* page_ = nullptr;
  pid_t owner_;
};

}  // namespace kvbm

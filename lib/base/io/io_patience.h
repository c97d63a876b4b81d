// How long a transfer is retried that a signal interrupted or that met a temporary shortage: about a second. One that
// moves nothing for so long is reported as an error, so that no thread spins for ever.
#pragma once

#include <time.h>

#include <cerrno>
#include <cstdint>

namespace kvbm {

inline constexpr uint32_t kMaxIoAttempts = 1000;
inline constexpr uint64_t kIoPauseNs = 1'000'000;

inline void io_pause() noexcept {
  const timespec pause{0, static_cast<long>(kIoPauseNs)};
  nanosleep(&pause, nullptr);
}

// Decides after a blocking call that failed with `error`, or moved nothing usable, whether to repeat it. `attempts`
// counts those in a row; the caller sets it to 0 when bytes moved. May sleep.
inline bool try_io_again(int error, uint32_t& attempts) noexcept {
  if ((error != EINTR && error != EAGAIN) || ++attempts >= kMaxIoAttempts) return false;
  if (error == EAGAIN) io_pause();
  return true;
}

// Repeats a blocking call while signals interrupt it. `call` reports errors as the system does: -1, and errno.
template <class Call>
auto uninterrupted(Call&& call) noexcept {
  uint32_t attempts = 0;
  auto answer = call();
  while (answer < 0 && try_io_again(errno, attempts)) answer = call();
  return answer;
}

}  // namespace kvbm

// How long a transfer is tried again that a signal cut short or that met a shortage which passes: about a second. One that
// moves nothing for so long is reported, so that nothing spins for ever.
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

// After a blocking call that failed with `error`, or moved nothing it could go on from: whether to make it again.
// `attempts` counts those in a row; the caller sets it to 0 when something moved. May sleep.
inline bool try_io_again(int error, uint32_t& attempts) noexcept {
  if ((error != EINTR && error != EAGAIN) || ++attempts >= kMaxIoAttempts) return false;
  if (error == EAGAIN) io_pause();
  return true;
}

// Makes a blocking call until it is not cut short by a signal. `call` answers as the system does: -1, and errno.
template <class Call>
auto uninterrupted(Call&& call) noexcept {
  uint32_t attempts = 0;
  auto answer = call();
  while (answer < 0 && try_io_again(errno, attempts)) answer = call();
  return answer;
}

}  // namespace kvbm

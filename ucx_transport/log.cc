#include "log.h"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "base/thread/mutex.h"

namespace kvbm::ucx {

namespace {

// Levels of the log: values of KVBM_LOG_* in kvbm.h.
constexpr int32_t kError = 1;
constexpr int32_t kWarning = 2;

struct Hosts {
  Mutex mutex;
  std::vector<const kvbm_transport_host_t*> open KVBM_GUARDED_BY(mutex);
  bool installed KVBM_GUARDED_BY(mutex) = false;
};

// Never destroyed: UCX may log from its own destructors.
Hosts& hosts() {
  static auto* all = new Hosts;
  return *all;
}

// Passes a line to the hosts. The lock is held across the host's callback, so that none runs after stop_log(); a host
// must not call back.
ucs_log_func_rc_t on_line(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                          const char* format, va_list arguments) {
  // A fatal message is printed by UCX before the process ends.
  if (level == UCS_LOG_LEVEL_FATAL) return UCS_LOG_FUNC_RC_CONTINUE;
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  char text[512] = "UCX: ";
  constexpr size_t kPrefix = 5;
  va_list copy;
  va_copy(copy, arguments);
  (void)std::vsnprintf(text + kPrefix, sizeof text - kPrefix, format, copy);
  va_end(copy);
  Hosts& all = hosts();
  const MutexLock lock(all.mutex);
  for (const kvbm_transport_host_t* host : all.open) {
    host->log(host->context, level == UCS_LOG_LEVEL_ERROR ? kError : kWarning, text);
  }
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void start_log(const kvbm_transport_host_t* host) {
  Hosts& all = hosts();
  const MutexLock lock(all.mutex);
  if (!all.installed) ucs_log_push_handler(&on_line);
  all.installed = true;
  if (std::find(all.open.begin(), all.open.end(), host) == all.open.end()) all.open.push_back(host);
}

void stop_log(const kvbm_transport_host_t* host) {
  Hosts& all = hosts();
  const MutexLock lock(all.mutex);
  all.open.erase(std::remove(all.open.begin(), all.open.end(), host), all.open.end());
}

}  // namespace kvbm::ucx

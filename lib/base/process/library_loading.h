// The lock under which a foreign library is loaded: of two loads at once each would take the signal handlers of the
// other's library for the host's (base/process/signal_keeper.h). Held over the load, so for set-up only.
#pragma once

#include "base/thread/mutex.h"

namespace kvbm {

inline Mutex library_loading;

}  // namespace kvbm

// The lock under which a foreign library is loaded and started: of two loads at once each would take the signal
// handlers of the other's library for the host's (base/process/signal_keeper.h). Held over the load, so for set-up
// only.
//
// A start that hangs, such as cuInit of a driver that has failed, so keeps every other library from loading for as
// long. It cannot run outside of the lock: a handler that it sets meanwhile would be the host's to the next load, which
// would restore it after this one had removed it.
#pragma once

#include "base/thread/mutex.h"

namespace kvbm {

inline Mutex library_loading;

}  // namespace kvbm

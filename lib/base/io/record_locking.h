// The lock under which files are opened and locked by POSIX record locks. Such a lock belongs to the process: it does
// not exclude the process's other threads, and one of them that opened the same file and closed it would drop the lock.
// Held over file calls, so for set-up only.
#pragma once

#include "base/thread/mutex.h"

namespace kvbm {

inline Mutex record_locking;

}  // namespace kvbm

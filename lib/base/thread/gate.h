// Counts the calls inside an object, so that its owner can end it when none is left.
//
// Thread: any. No call may enter a closed gate; where that can happen, the caller looks at what enter() returns.
#pragma once

#include "base/thread/awaited.h"
#include "base/thread/open_calls.h"

namespace kvbm {

class Gate {
 public:
  // Returns false after close(); else leave() must follow.
  bool enter() noexcept { return calls_.enter(); }
  void leave() {
    if (calls_.leave()) empty_.give(true);
  }
  // Waits for the calls inside. Called once; the gate may be destroyed after it.
  void close() {
    if (!calls_.close()) empty_.wait();
  }

 private:
  OpenCalls calls_;
  Awaited<bool> empty_;
};

}  // namespace kvbm

// A caller that waits for something of a node drives the node's links meanwhile: what it waits for then needs no other
// thread of this process (copy/transport_thread.h).
//
// Thread: any that is not the links'. Lock: mutex_, held over TransportThread::nudge() alone. What wakes a caller may
// come late, when the links are gone: it keeps this object, and end() makes it harmless.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "copy/completion.h"
#include "copy/transport_thread.h"
#include "manager/operation.h"

namespace kvbm::manager {

class NodeHelp : public std::enable_shared_from_this<NodeHelp> {
 public:
  explicit NodeHelp(copy::TransportThread& links) : links_(&links), nudged_(&links) {}

  // Runs the operation's steps on this thread until it has ended.
  copy::Completion run(Operation& operation);
  // Runs begin(told) and waits until `told` was called, on whatever thread, once.
  void wait(UniqueFunction<void(UniqueFunction<void()> told)> begin);
  // Before the links go. Nobody waits here any more.
  void end();

 private:
  void nudge();

  copy::TransportThread* const links_;
  Mutex mutex_;
  copy::TransportThread* nudged_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager

// Lets a caller that waits for a node drive the node's links meanwhile. So the wait needs no other thread of this
// process (copy/transport_thread.h).
//
// Thread: any except the links'. A wake-up may arrive after the links are gone: its sender keeps this object, and end()
// makes the wake-up harmless.
#pragma once

#include <memory>

#include "base/thread/revocable.h"
#include "copy/completion.h"
#include "copy/transport_thread.h"
#include "manager/operation/operation.h"

namespace kvbm::manager {

class NodeHelp : public std::enable_shared_from_this<NodeHelp> {
 public:
  explicit NodeHelp(copy::TransportThread& links) : links_(&links), nudged_(links) {}

  // Runs the operation's steps on this thread until it has ended.
  copy::Completion run(Operation& operation);
  // Runs `begin` with a callback, and waits until that was called once, on any thread.
  void wait(UniqueFunction<void(UniqueFunction<void()> done)> begin);
  // Must run before the links are destroyed. No caller waits here any more.
  void end() { nudged_.revoke(); }

 private:
  void nudge() {
    nudged_.use([](copy::TransportThread& links) { links.nudge(); });
  }

  copy::TransportThread* const links_;
  Revocable<copy::TransportThread> nudged_;
};

}  // namespace kvbm::manager

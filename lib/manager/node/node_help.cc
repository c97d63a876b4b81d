#include "manager/node/node_help.h"

#include <atomic>
#include <utility>

namespace kvbm::manager {

copy::Completion NodeHelp::run(Operation& operation) {
  copy::Completion completion;
  bool over = false;
  const copy::TransportThread::AboutToHelp soon(*links_);
  operation.start_waited(
      [&](const copy::Completion& result) {
        completion = result;
        over = true;
      },
      [self = shared_from_this()] { self->nudge(); });
  for (;;) {
    // Drives the links between two steps as well: input that has arrived makes space for more.
    if (operation.run_woken()) links_->help_once();
    if (over) return completion;
    links_->help_until([&] { return operation.is_woken(); });
  }
}

void NodeHelp::wait(UniqueFunction<void(UniqueFunction<void()> done)> begin) {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  const copy::TransportThread::AboutToHelp soon(*links_);
  begin([self = shared_from_this(), over] {
    over->store(true, std::memory_order_release);
    self->nudge();
  });
  links_->help_until([&over] { return over->load(std::memory_order_acquire); });
}

}  // namespace kvbm::manager

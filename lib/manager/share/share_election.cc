#include "manager/share/share_election.h"

#include <utility>

namespace kvbm::manager {

void ShareElection::seek() {
  if (!std::exchange(seeking_, true)) try_once();
}

void ShareElection::try_once() {
  if (stopped_) return;
  if (!host_.is_owner()) {
    if (host_.is_connected()) {
      seeking_ = false;
      complained_.clear();
      return;
    }
    const Status tried = host_.try_to_own();
    if (!tried.ok()) {
      if (tried.code() != Code::in_use && tried.message() != complained_) {
        complained_ = tried.message();
        host_.cannot_own(tried);
      }
      host_.dial();
      return try_later();
    }
  }
  if (!host_.listen().ok()) return try_later();
  seeking_ = false;
}

void ShareElection::try_later() {
  executor_.post_at(executor_.clock().now_ns() + kRetryNs, [this] { try_once(); });
}

}  // namespace kvbm::manager

// One request of PeerFetch to a node. Internal to it.
#pragma once

#include <atomic>

#include "cluster/coding/link_coder.h"
#include "cluster/tier/peer_fetch.h"

namespace kvbm::cluster {

// Reports to the coder when its last piece has been delivered. Thread: pieces end on any.
struct PeerFetch::Request {
  Request(std::shared_ptr<LinkCoder> by, const NodeId& from, LinkCoder::Asked how)
      : coder(std::move(by)), node(from), asked(how) {}
  ~Request() { coder->answered(asked, coded.load(std::memory_order_relaxed), got.load(std::memory_order_relaxed)); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const std::shared_ptr<LinkCoder> coder;
  const NodeId node;
  const LinkCoder::Asked asked;
  std::atomic<uint64_t> got{0};    // plain bytes
  std::atomic<bool> coded{false};  // a piece arrived coded
};

}  // namespace kvbm::cluster

// Messages that a peer's connection does not accept yet. Bounded for each peer; order is kept. A peer with more
// unread messages loses its connection: a dropped message may be the last of its session, and the other side would
// wait for it for as long as the session may take.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "cluster/session/link.h"

namespace kvbm::cluster::session {

class Outbox {
 public:
  Outbox(Link& link, size_t max_bytes_per_peer) : link_(link), max_bytes_(max_bytes_per_peer) {}

  // Sends or queues a message. ok: sent, or queued. no_room: too much is queued, and the connection ends. Otherwise
  // the link's code: the peer is gone.
  Code send(PeerId peer, std::vector<std::byte> message) {
    const auto it = waiting_.find(peer);
    if (it == waiting_.end()) {
      const Code code = link_.send(peer, message);
      if (code != Code::again) return code;
    }
    Queue& queue = waiting_[peer];
    if (queue.bytes + message.size() > max_bytes_) {
      link_.drop(peer);
      return Code::no_room;
    }
    queue.bytes += message.size();
    queue.messages.push_back(std::move(message));
    return Code::ok;
  }
  // Returns true if nothing is queued: messages that are not urgent (pulls) are only made then.
  [[nodiscard]] bool clear(PeerId peer) const { return waiting_.find(peer) == waiting_.end(); }
  void writable(PeerId peer) {
    const auto it = waiting_.find(peer);
    if (it == waiting_.end()) return;
    Queue& queue = it->second;
    while (!queue.messages.empty()) {
      if (link_.send(peer, queue.messages.front()) == Code::again) return;
      queue.bytes -= queue.messages.front().size();
      queue.messages.pop_front();
    }
    waiting_.erase(it);
  }
  void closed(PeerId peer) { waiting_.erase(peer); }

 private:
  struct Queue {
    std::deque<std::vector<std::byte>> messages;
    size_t bytes = 0;
  };
  Link& link_;
  size_t max_bytes_;
  std::map<PeerId, Queue> waiting_;
};

}  // namespace kvbm::cluster::session

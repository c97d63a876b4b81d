// The part of a link that carries cluster/session: its messages, and the ends of its transfers. Both are queued until
// the end of the turn and then passed to the listener, in the order of their arrival. Internal to peer_link.
//
// The session chooses names for its transfers (cluster/session/staging.h); the transport knows them by tokens.
// Invariant: a name is in both tables from its acceptance to its end. Thread: the link's.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "cluster/link/link_types.h"
#include "copy/flat_table.h"

namespace kvbm::cluster {

class LinkSessions {
 public:
  Code post(PeerPort& port, uint64_t tag, MutableBytes to, uint64_t name) {
    uint64_t token = 0;
    const Code code = port.post(tag, to, token);
    return keep(code, token, name);
  }
  Code push(PeerPort& port, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t name) {
    uint64_t token = 0;
    const Code code = port.push(tag, pieces, token);
    return keep(code, token, name);
  }
  void cancel(PeerPort& port, uint64_t name) {
    if (const uint64_t* token = tokens_.find(name)) port.cancel(*token);
  }
  // Returns true if the token was one of these.
  bool ended(uint64_t token, Code code, uint64_t bytes) {
    const uint64_t* found = names_.find(token);
    if (found == nullptr) return false;
    const uint64_t name = *found;
    names_.erase(token);
    tokens_.erase(name);
    happened_.push_back({Kind::moved, code, name, bytes, {}});
    return true;
  }
  void message(ConstBytes bytes) { happened_.push_back({Kind::message, Code::ok, 0, 0, {bytes.begin(), bytes.end()}}); }
  // Notes that a message did not fit; writable() is called once there is space.
  void wait_for_room() noexcept { waits_ = true; }
  void room() {
    if (std::exchange(waits_, false)) happened_.push_back({Kind::writable, Code::ok, 0, 0, {}});
  }
  [[nodiscard]] bool has_news() const noexcept { return !happened_.empty(); }
  void deliver(PeerLink& link, LinkListener& listener) {
    std::vector<Happened> now;
    now.swap(happened_);
    for (const Happened& h : now) {
      if (h.kind == Kind::message) listener.link_session(link, h.message);
      if (h.kind == Kind::moved) listener.link_session_moved(link, h.name, h.code, h.bytes);
      if (h.kind == Kind::writable) listener.link_session_writable(link);
    }
  }

 private:
  enum class Kind : uint8_t { message, moved, writable };
  struct Happened {
    Kind kind = Kind::message;
    Code code = Code::ok;
    uint64_t name = 0;
    uint64_t bytes = 0;
    std::vector<std::byte> message;
  };
  Code keep(Code code, uint64_t token, uint64_t name) {
    if (code != Code::ok) return code;
    names_.insert(token, name);
    tokens_.insert(name, token);
    return code;
  }

  copy::FlatTable<uint64_t> names_;   // by token
  copy::FlatTable<uint64_t> tokens_;  // by name
  std::vector<Happened> happened_;
  bool waits_ = false;
};

}  // namespace kvbm::cluster

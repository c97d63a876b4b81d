// A connection and everything in progress on it.
//
// Invariants. Memory of a post, push or get belongs to the host again once its `ended` is set: then no request of UCX
// names it (`requests` == 0). A peer is `gone` only after its endpoint is closed, no operation is left in UCX and
// every token has ended. Budget: messages in flight at most Limits::queue_bytes and one more message, pushed bytes in
// flight at most Limits::bulk_bytes and one more part.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "copy/transport_abi.h"
#include "wire.h"

namespace kvbm::ucx {

enum class Phase : uint8_t {
  greeting,  // there is an endpoint, but no frame from the other side yet
  open,
  leaving,   // the other side sent bye and will disconnect
  flushing,  // the host called disconnect with flush
  closing,   // UCX is closing the endpoint
  gone       // closed() is queued
};

struct Post {
  kvbm_transport_token_t token = 0;
  uint64_t tag = 0;
  std::byte* to = nullptr;
  uint64_t room = 0;
  bool device = false;                   // only hardware writes it
  uint64_t push = 0;                     // 0 = no part has arrived
  uint64_t total = 0;                    // the push's size
  uint64_t next = 0;                     // offset of the next part
  uint64_t prefix = 0;                   // bytes from the start that are in place
  uint64_t told = 0;                     // bytes reported by arrived()
  std::map<uint64_t, uint64_t> islands;  // parts in place beyond the prefix: offset -> bytes
  unsigned requests = 0;
  int32_t status = 0;  // not 0: accept no more parts, end when requests == 0
  bool ended = false;
};

struct Push {
  kvbm_transport_token_t token = 0;
  uint64_t tag = 0;
  uint64_t id = 0;
  std::vector<kvbm_transport_piece_t> pieces;
  size_t piece = 0;  // the next byte to send
  uint64_t within = 0;
  uint64_t total = 0;
  uint64_t sent = 0;
  bool device = false;  // device memory is among the pieces
  bool begun = false;
  bool all_sent = false;
  unsigned requests = 0;
  int32_t status = 0;
  bool ended = false;
};

// A key of a peer's memory, unpacked.
struct RemoteKey {
  ucp_rkey_h handle = nullptr;
  uint64_t base = 0;
  uint64_t bytes = 0;
  unsigned users = 0;
};

struct Get {
  kvbm_transport_token_t token = 0;
  RemoteKey* key = nullptr;
  uint64_t bytes = 0;
  int32_t status = 0;
  bool ended = false;
};

struct Peer {
  kvbm_transport_peer_t id = 0;
  ucp_ep_h endpoint = nullptr;
  Phase phase = Phase::greeting;
  bool dialled = false;   // connect(), not accepted
  bool reported = false;  // reported to the host
  bool admitted = false;
  bool silent = false;  // the host called disconnect: deliver only ends
  bool dirty = false;
  bool wants_writable = false;
  bool owes_welcome = false;
  bool owes_bye_ack = false;
  bool bye_sent = false;
  bool bye_answered = false;
  bool endpoint_closed = false;
  bool native_get = false;
  bool by_card = false;
  bool lanes_known = false;  // the two above are set
  uint64_t deadline_ns = 0;  // of the phase; 0 = none
  std::string address;

  uint64_t queued_bytes = 0;  // of messages in UCX
  uint64_t bulk_bytes = 0;    // of parts in UCX
  unsigned operations = 0;    // all requests in UCX except the one that closes the endpoint
  size_t unended = 0;         // tokens
  uint64_t next_out = 0;      // message sequences
  uint64_t next_in = 0;
  uint64_t next_push = 1;

  std::map<kvbm_transport_token_t, std::unique_ptr<Post>> posts;
  std::unordered_map<uint64_t, Post*> tags;       // looked up only
  std::unordered_map<uint64_t, Post*> receiving;  // by push, looked up only
  std::map<kvbm_transport_token_t, std::unique_ptr<Push>> pushes;
  std::deque<Push*> sending;
  std::map<kvbm_transport_token_t, std::unique_ptr<Get>> gets;
  std::list<std::pair<std::string, RemoteKey>> keys;  // most recently used first

  int32_t failure = 0;  // status for closed()
  std::string reason;

  bool token_in_use(kvbm_transport_token_t token) const {
    return posts.count(token) != 0 || pushes.count(token) != 0 || gets.count(token) != 0;
  }
  bool usable() const { return phase == Phase::greeting || phase == Phase::open; }
};

}  // namespace kvbm::ucx

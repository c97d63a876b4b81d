// The transport: peers over one worker, and the queue of events for the host.
//
// UCX calls back in the middle of its own work; those callbacks only record events. progress() lets UCX work, then
// handles the records (closes, next parts, answers), then delivers to the host outside any call of UCX. So a host's
// callback may make any call. One thread at a time (transport_abi.h); only the log has a lock.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "address.h"
#include "copy/transport_abi.h"
#include "memory.h"
#include "peer.h"
#include "worker.h"

namespace kvbm::ucx {

class Transport;

// One request of UCX.
struct Operation {
  enum class Kind : uint8_t { control, message, part_out, part_in, get, close };
  Transport* transport = nullptr;
  Peer* peer = nullptr;
  Kind kind = Kind::control;
  Push* push = nullptr;
  Post* post = nullptr;
  Get* get = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  alignas(8) std::byte head[kHeadBytes] = {};
  std::vector<std::byte> payload;  // for a message
};

struct Event {
  enum class Kind : uint8_t { accepted, connected, message, writable, pushed, arrived, received, closed };
  Kind kind = Kind::message;
  kvbm_transport_peer_t peer = 0;
  kvbm_transport_token_t token = 0;
  int32_t status = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> message;  // `bytes` of data, aligned to 8
};

struct Listener {
  Transport* transport = nullptr;
  ucp_listener_h handle = nullptr;
};

struct Knock {
  Listener* listener = nullptr;
  ucp_conn_request_h request = nullptr;
};

struct Limits {
  uint64_t queue_bytes = 0;
  uint64_t bulk_bytes = 0;
};

class Transport {
 public:
  Transport(const kvbm_transport_host_t& host, Limits limits, std::unique_ptr<Worker> worker);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  // Installs the handlers of active messages.
  Status start();

  const Worker& worker() const { return *worker_; }
  int32_t arm(uint64_t* within_ns);
  uint32_t progress();

  // Sets `error` to an address refusal and its remedy.
  int32_t listen(std::string_view address, std::string* bound, std::string* error);
  int32_t connect(std::string_view address, kvbm_transport_peer_t* peer, std::string* error);
  int32_t admit(kvbm_transport_peer_t peer);
  int32_t disconnect(kvbm_transport_peer_t peer, bool flush);

  int32_t send(kvbm_transport_peer_t peer, const void* bytes, size_t size);
  int32_t post(kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes, kvbm_transport_token_t token);
  int32_t push(kvbm_transport_peer_t peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n_pieces,
               kvbm_transport_token_t token);
  int32_t cancel(kvbm_transport_peer_t peer, kvbm_transport_token_t token);

  Memory& memory() { return memory_; }
  int32_t get(kvbm_transport_peer_t peer, void* to, uint64_t remote, const void* key, size_t key_size, uint64_t bytes,
              kvbm_transport_token_t token);

 private:
  friend struct Callbacks;  // callbacks for UCX

  // Members in transport.cc: the life of a peer.
  Peer* find(kvbm_transport_peer_t id);
  Peer& add_peer();
  bool after_worker();
  void settle(Peer& peer);
  void mark(Peer& peer);
  bool deliver();
  void deliver_one(Event& event);
  Operation* start_operation(Peer& peer, Operation::Kind kind);
  // Takes the result of a UCX call; true if the operation is in progress or done.
  bool took(Operation* operation, ucs_status_ptr_t given);
  void finish(Operation* operation, ucs_status_t status);

  // Members in greeting.cc: control frames, from the first of a connection to its last.
  int32_t check_reach(const Address& address, std::string* error) const;
  Status make_endpoint(Peer& peer, ucp_ep_params_t* params);
  void accept(const Knock& knock);
  void send_control(Peer& peer, Control kind);
  void pay_answers(Peer& peer);
  void set_deadline(Peer& peer, uint64_t in_ns);
  void hear(Peer& peer, const ControlHead& head);
  void fail(Peer& peer, int32_t status, std::string reason);
  void begin_close(Peer& peer);
  void close_endpoint(Peer& peer);
  void check_timers();
  void check_flushed(Peer& peer);
  void check_gone(Peer& peer);

  // Members in bulk.cc: messages and pushes.
  void pump(Peer& peer);
  bool send_part(Peer& peer, Push& push);
  // Returns the post for a part, or NULL if the part is dropped.
  Post* place(Peer& peer, const BulkHead& head, uint64_t bytes);
  void landed(Peer& peer, Post& post, uint64_t offset, uint64_t bytes);
  // Fails a post with memory that cannot take an arrived part.
  void refuse(Peer& peer, Post& post);
  void end_if_done(Peer& peer, Push& push);
  void end_if_done(Peer& peer, Post& post);
  void end_all(Peer& peer);
  void end(Peer& peer, Get& get, ucs_status_t status);
  void ask_lanes(Peer& peer);
  bool reads_natively(Peer& peer);
  // Returns true if cards carry bulk of that open peer, so that it can be read from a device and written into one.
  bool reaches_devices(Peer& peer);

  const kvbm_transport_host_t host_;
  const Limits limits_;
  // Declared before the worker, which may call back about them until it is destroyed.
  std::deque<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> idle_operations_;
  std::map<kvbm_transport_peer_t, std::unique_ptr<Peer>> peers_;
  std::unordered_map<ucp_ep_h, Peer*> by_endpoint_;  // looked up only
  kvbm_transport_peer_t next_peer_ = 1;
  std::list<Listener> listeners_;  // UCX keeps their addresses
  std::vector<Knock> knocking_;
  std::vector<kvbm_transport_peer_t> dirty_;
  size_t greeting_ = 0;  // accepted without a frame so far
  size_t timed_ = 0;     // peers with a deadline

  std::deque<Event> events_;
  bool closing_ = false;

  std::unique_ptr<Worker> worker_;
  Memory memory_;
};

// Returns monotonic time.
uint64_t now_ns();

}  // namespace kvbm::ucx

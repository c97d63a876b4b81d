#include "copy/transport.h"

#include <algorithm>
#include <vector>

namespace kvbm::copy {

namespace {

constexpr size_t kTextBytes = 512;

Code code_of(int32_t status) noexcept { return static_cast<Code>(status); }

Status status_of(int32_t status, const char* what, const char* text) { return {code_of(status), what, text}; }

Transport& of(void* context) noexcept { return *static_cast<Transport*>(context); }

}  // namespace

// Fills in the host's half of the table.
Transport::Transport(const kvbm_transport_ops_t& ops, TransportListener& listener, const Log* log)
    : ops_(ops), listener_(listener), log_(log) {
  host_.struct_size = sizeof host_;
  host_.context = this;
  host_.log = [](void* context, int32_t level, const char* text) {
    const Transport& self = of(context);
    if (self.log_ == nullptr) return;
    self.log_->write(static_cast<LogLevel>(std::clamp(level, 0, 4)), "transport", text,
                     {{"transport", self.ops_.name}});
  };
  host_.accepted = [](void* context, Peer peer, const char* address) {
    of(context).peers_.insert(peer, true);
    of(context).listener_.peer_accepted(peer, address);
  };
  host_.connected = [](void* context, Peer peer) { of(context).listener_.peer_connected(peer); };
  host_.message = [](void* context, Peer peer, const void* bytes, size_t size) {
    of(context).listener_.peer_message(peer, {static_cast<const std::byte*>(bytes), size});
  };
  host_.writable = [](void* context, Peer peer) { of(context).listener_.peer_writable(peer); };
  host_.pushed = [](void* context, Peer peer, Token token, int32_t status) {
    Transport& self = of(context);
    if (self.ended(peer, token, true, "a push that is not known ended")) {
      self.listener_.pushed(peer, token, code_of(status));
    }
  };
  host_.arrived = [](void* context, Peer peer, Token token, uint64_t bytes) {
    Transport& self = of(context);
    if (self.tokens_.find(token) != nullptr) self.listener_.arrived(peer, token, bytes);
  };
  host_.received = [](void* context, Peer peer, Token token, int32_t status, uint64_t bytes) {
    Transport& self = of(context);
    if (self.ended(peer, token, false, "a post that is not known ended")) {
      self.listener_.received(peer, token, code_of(status), status == 0 ? bytes : 0);
    }
  };
  host_.closed = [](void* context, Peer peer, int32_t status, const char* reason) {
    Transport& self = of(context);
    if (!self.peers_.erase(peer)) return self.complain("a peer that is not known was closed", peer);
    self.end_operations(peer, code_of(status));
    self.listener_.peer_closed(peer, status_of(status, "", reason));
  };
}

Result<std::unique_ptr<Transport>> Transport::open(const kvbm_transport_ops_t& ops, const TransportOptions& options,
                                                   TransportListener& listener, const Log* log) {
  if (ops.abi_version != KVBM_TRANSPORT_ABI_VERSION || ops.struct_size < sizeof ops) {
    return Status(Code::newer_version, "the transport was built for another version of kvbm", ops.name);
  }
  std::unique_ptr<Transport> out(new Transport(ops, listener, log));
  kvbm_transport_options_t c{};
  c.struct_size = sizeof c;
  c.peer_queue_bytes = options.peer_queue_bytes;
  c.peer_bulk_bytes = options.peer_bulk_bytes;
  c.devices = options.devices.empty() ? nullptr : options.devices.c_str();
  c.transports = options.transports.empty() ? nullptr : options.transports.c_str();
  c.flags = options.own_user_only ? static_cast<uint32_t>(KVBM_TRANSPORT_OWN_USER_ONLY) : 0U;
  char error[kTextBytes] = "";
  const int32_t status = ops.open(&c, &out->host_, &out->transport_, error, sizeof error);
  if (status != 0) return status_of(status, "the transport cannot be opened", error);
  return out;
}

Transport::~Transport() { close(); }

void Transport::close() {
  if (transport_ == nullptr) return;
  ops_.close(std::exchange(transport_, nullptr));
  std::vector<Peer> peers;
  peers_.for_each([&](Peer peer, bool) { peers.push_back(peer); });
  std::sort(peers.begin(), peers.end());
  for (const Peer peer : peers) {
    peers_.erase(peer);
    end_operations(peer, Code::closed);
    listener_.peer_closed(peer, Status(Code::closed, "this side's transport was closed"));
  }
}

void Transport::complain(const char* what, uint64_t value) const {
  if (log_ != nullptr) {
    log_->write(LogLevel::error, "transport", what, {{"transport", ops_.name}, {"value", std::to_string(value)}});
  }
}

// Returns true if the listener must be notified.
bool Transport::ended(Peer peer, Token token, bool push, const char* what) {
  const Operation* known = tokens_.find(token);
  if (known == nullptr || known->peer != peer || known->push != push) {
    complain(what, token);
    return false;
  }
  return tokens_.erase(token);
}

// Ends operations that the transport has left unfinished; a correct one has ended them all.
void Transport::end_operations(Peer peer, Code status) {
  if (tokens_.empty()) return;
  std::vector<std::pair<Token, bool>> left;
  tokens_.for_each([&](Token token, const Operation& operation) {
    if (operation.peer == peer) left.emplace_back(token, operation.push);
  });
  std::sort(left.begin(), left.end());
  for (const auto& [token, push] : left) {
    tokens_.erase(token);
    if (push) {
      listener_.pushed(peer, token, status);
    } else {
      listener_.received(peer, token, status, 0);
    }
  }
}

int Transport::fd() const noexcept { return transport_ != nullptr ? ops_.fd(transport_) : -1; }

Code Transport::arm(uint64_t& within_ns) {
  within_ns = UINT64_MAX;
  return transport_ != nullptr ? code_of(ops_.arm(transport_, &within_ns)) : Code::ok;
}

bool Transport::progress() { return transport_ != nullptr && ops_.progress(transport_) > 0; }

uint32_t Transport::features() const noexcept { return transport_ != nullptr ? ops_.features(transport_) : 0; }

std::string Transport::describe() const {
  if (transport_ == nullptr) return "closed";
  char text[kTextBytes] = "";
  ops_.describe(transport_, text, sizeof text);
  return text;
}

Result<std::string> Transport::listen(const std::string& address) {
  if (transport_ == nullptr) return Status(Code::closed, "the transport is closed");
  char bound[kTextBytes] = "";
  char error[kTextBytes] = "";
  const int32_t status = ops_.listen(transport_, address.c_str(), bound, sizeof bound, error, sizeof error);
  if (status != 0) return status_of(status, "", error);
  return std::string(bound);
}

Result<Peer> Transport::connect(const std::string& address) {
  if (transport_ == nullptr) return Status(Code::closed, "the transport is closed");
  char error[kTextBytes] = "";
  Peer peer = 0;
  const int32_t status = ops_.connect(transport_, address.c_str(), &peer, error, sizeof error);
  if (status != 0) return status_of(status, "", error);
  peers_.insert(peer, true);
  return peer;
}

Code Transport::admit(Peer peer) {
  return transport_ != nullptr ? code_of(ops_.admit(transport_, peer)) : Code::closed;
}
Code Transport::protect(Peer peer, Protection how, const uint8_t* send_key, const uint8_t* receive_key) {
  static_assert(FrameGuard::kKeyBytes == KVBM_TRANSPORT_PROTECT_KEY_BYTES &&
                static_cast<uint32_t>(Protection::authenticate) == KVBM_TRANSPORT_AUTHENTICATE &&
                static_cast<uint32_t>(Protection::encrypt) == KVBM_TRANSPORT_ENCRYPT);
  if (transport_ == nullptr) return Code::closed;
  if ((features() & KVBM_TRANSPORT_PROTECT) == 0 || ops_.protect == nullptr) return Code::unsupported;
  return code_of(ops_.protect(transport_, peer, static_cast<uint32_t>(how), send_key, receive_key));
}
Code Transport::disconnect(Peer peer, bool flush) {
  return transport_ != nullptr ? code_of(ops_.disconnect(transport_, peer, flush ? 1 : 0)) : Code::closed;
}
Code Transport::send(Peer peer, ConstBytes message) {
  return transport_ != nullptr ? code_of(ops_.send(transport_, peer, message.data(), message.size())) : Code::closed;
}

// The token is in the table before the transport knows it, so that none of its ends can be missed.
template <class Call>
Code Transport::start(Peer peer, bool push, Token& token, Call&& call) {
  if (transport_ == nullptr) return Code::closed;
  const Token fresh = last_token_ + 1;
  tokens_.insert(fresh, {peer, push});
  const Code code = code_of(call(fresh));
  if (code != Code::ok) {
    tokens_.erase(fresh);
    return code;
  }
  token = last_token_ = fresh;
  return Code::ok;
}

Code Transport::post(Peer peer, uint64_t tag, MutableBytes to, Token& token) {
  return start(peer, false, token,
               [&](Token fresh) { return ops_.post(transport_, peer, tag, to.data(), to.size(), fresh); });
}

Code Transport::push(Peer peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n_pieces, Token& token) {
  return start(peer, true, token,
               [&](Token fresh) { return ops_.push(transport_, peer, tag, pieces, n_pieces, fresh); });
}

Code Transport::push(Peer peer, uint64_t tag, ConstBytes bytes, Token& token) {
  const kvbm_transport_piece_t piece{bytes.data(), bytes.size()};
  return push(peer, tag, &piece, 1, token);
}

Code Transport::cancel(Peer peer, Token token) {
  return transport_ != nullptr ? code_of(ops_.cancel(transport_, peer, token)) : Code::closed;
}

Result<Transport::Memory> Transport::add_memory(MutableBytes memory) {
  if ((features() & KVBM_TRANSPORT_GET) == 0) return Status(Code::unsupported, "this transport has no one-sided reads");
  Memory out;
  char key[KVBM_TRANSPORT_KEY_BYTES];
  size_t key_size = sizeof key;
  const int32_t status = ops_.add_memory(transport_, memory.data(), memory.size(), &out.name, key, &key_size);
  if (status != 0) return Status(code_of(status), "the transport cannot register memory");
  out.key.assign(key, key_size);
  return out;
}

Result<uint64_t> Transport::add_device_memory(MutableBytes memory) {
  if ((features() & KVBM_TRANSPORT_DEVICE) == 0)
    return Status(Code::unsupported, "this transport takes no device memory");
  uint64_t name = 0;
  const int32_t status = ops_.add_device_memory(transport_, memory.data(), memory.size(), &name);
  if (code_of(status) == Code::unsupported) {
    return Status(Code::unsupported, "no network card reaches the device's memory",
                  "the kernel has neither nvidia_peermem nor dma-buf for it; `kvbm doctor` says what there is");
  }
  if (status != 0) return Status(code_of(status), "the transport cannot register memory of a device");
  return name;
}

Code Transport::remove_memory(uint64_t name) {
  if ((features() & (KVBM_TRANSPORT_GET | KVBM_TRANSPORT_DEVICE)) == 0) return Code::unsupported;
  return code_of(ops_.remove_memory(transport_, name));
}

Code Transport::get(Peer peer, MutableBytes to, uint64_t remote_address, std::string_view key, Token& token) {
  if ((features() & KVBM_TRANSPORT_GET) == 0) return Code::unsupported;
  return start(peer, false, token, [&](Token fresh) {
    return ops_.get(transport_, peer, to.data(), remote_address, key.data(), key.size(), to.size(), fresh);
  });
}

}  // namespace kvbm::copy

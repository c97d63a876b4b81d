#include "support/sim_transport.h"

#include <algorithm>
#include <cstring>

#include "copy/tcp/address.h"
#include "copy/tcp/frame.h"

namespace kvbm::test {

namespace {

constexpr uint64_t kChunkBytes = 64U << 10;
constexpr int kTurn = 64;  // arrivals that one progress() takes

SimTransport* of(kvbm_transport_t* transport) { return reinterpret_cast<SimTransport*>(transport); }

// Returns the header that the tag of a packet covers besides its bytes.
std::array<std::byte, copy::tcp::kHeaderBytes> header_of(const SimPacket& packet, size_t bytes) {
  using copy::tcp::Kind;
  std::array<std::byte, copy::tcp::kHeaderBytes> out;
  const Kind kind = packet.kind == SimPacketKind::message ? Kind::message : packet.first ? Kind::bulk : Kind::more;
  copy::tcp::encode(
      {kind, static_cast<uint32_t>(bytes), packet.first ? packet.tag : 0, packet.first ? packet.total : 0}, out.data());
  return out;
}

int32_t report(const Status& status, char* error, size_t size) {
  const std::string text = status.message();
  if (size != 0) error[text.copy(error, size - 1)] = '\0';
  return static_cast<int32_t>(status.code());
}

}  // namespace

SimTransport::SimTransport(SimNetwork& network, SimNetwork::Node node, const kvbm_transport_options_t& options,
                           const kvbm_transport_host_t& host)
    : network_(network), node_(node), id_(network.next_transport_++), options_(options), host_(host) {
  network_.transports_[id_] = this;
}

SimTransport::~SimTransport() {
  if (!alive_) return;
  network_.transports_.erase(id_);
  std::erase_if(network_.listeners_, [&](const auto& entry) { return entry.second == id_; });
  std::vector<std::pair<uint64_t, int>> wires;
  for (const auto& [id, wire] : network_.wires_) {
    for (int side = 0; side < 2; ++side) {
      if (wire->transport[side] == id_) wires.emplace_back(id, side);
    }
  }
  for (const auto& [id, side] : wires) {
    const auto found = network_.wires_.find(id);
    if (found != network_.wires_.end()) network_.leave(*found->second, side);
  }
}

void SimTransport::killed() {
  alive_ = false;
  ends_.clear();
  inbox_.clear();
  ended_.clear();
  dying_.clear();
}

void SimTransport::something_to_do() { network_.wake(node_); }

SimTransport::End* SimTransport::find(uint64_t peer) {
  const auto found = ends_.find(peer);
  return found == ends_.end() ? nullptr : &found->second;
}

SimTransport::End* SimTransport::of_wire(uint64_t wire) {
  const auto found = peer_of_wire_.find(wire);
  return found == peer_of_wire_.end() ? nullptr : find(found->second);
}

SimWire* SimTransport::wire_of(const End& end) {
  const auto found = network_.wires_.find(end.wire);
  return found == network_.wires_.end() || found->second->transport[end.side] != id_ ? nullptr : found->second.get();
}

SimTransport::End& SimTransport::add(uint64_t wire, int side, bool connected) {
  const uint64_t peer = next_peer_++;
  End& end = ends_[peer];
  end.peer = peer;
  end.wire = wire;
  end.side = side;
  end.connected = connected;
  peer_of_wire_[wire] = peer;
  return end;
}

Code SimTransport::usable(uint64_t peer, End*& end) {
  if (!alive_) return Code::closed;
  end = find(peer);
  if (end == nullptr) return Code::stale_handle;
  return end->dead || end->flushing ? Code::closed : Code::ok;
}

// --- calls

Status SimTransport::listen(const std::string& text, std::string& bound) {
  if (!alive_) return {Code::closed, "the process is gone"};
  const auto address = copy::tcp::Address::parse(text);
  if (!address.ok()) return address.status();
  const std::string host = SimNetwork::host(node_);
  const std::string asked = text.substr(0, text.rfind(':'));
  const bool loopback = asked == SimNetwork::loopback(node_);
  if (asked != host && !loopback && asked != "127.0.0.1" && asked != "localhost") {
    return {Code::invalid_argument, "the address to listen on is none of this machine's", text};
  }
  uint16_t port = address.value().port();
  if (port == 0) port = network_.places_.at(node_).next_port++;
  bound = (loopback ? asked : host) + ":" + std::to_string(port);
  if (!network_.listeners_.emplace(bound, id_).second)
    return {Code::in_use, "the address to listen on is in use", text};
  return {};
}

Status SimTransport::connect(const std::string& text, uint64_t& peer) {
  if (!alive_) return {Code::closed, "the process is gone"};
  const auto address = copy::tcp::Address::parse(text);
  if (!address.ok()) return address.status();
  peer = add(network_.start_wire(*this, address.value().text()), 0, false).peer;
  return {};
}

Code SimTransport::admit(uint64_t peer) {
  End* end = nullptr;
  if (const Code code = usable(peer, end); code != Code::ok) return code;
  end->admitted = true;
  return Code::ok;
}

Code SimTransport::protect(uint64_t peer, copy::Protection how, const uint8_t* send_key, const uint8_t* receive_key) {
  End* end = nullptr;
  if (const Code code = usable(peer, end); code != Code::ok) return code;
  if (!end->admitted || end->sends != nullptr || !end->pushes.empty()) return Code::wrong_state;
  // Bytes waiting for the window would get tags as well; none wait so early.
  if (!end->messages.empty()) return Code::wrong_state;
  end->sends = copy::FrameGuard::make(how, send_key).value();
  end->receives = copy::FrameGuard::make(how, receive_key).value();
  return Code::ok;
}

Code SimTransport::disconnect(uint64_t peer, bool flush) {
  if (!alive_) return Code::closed;
  End* end = find(peer);
  if (end == nullptr) return Code::stale_handle;
  if (end->dead) return Code::ok;
  const bool fresh = !end->flushing;
  end->flushing = true;
  end_tokens(*end, false, Code::closed, false);
  if (!flush) {
    die(*end, Code::closed, "disconnected");
  } else if (fresh) {
    network_.later(network_.sim_.clock().now_ns() + SimNetwork::kFlushNs, [net = &network_, id = id_, peer] {
      SimTransport* self = net->transport_of(id);
      End* late = self != nullptr ? self->find(peer) : nullptr;
      if (late == nullptr) return;
      self->die(*late, Code::deadline, "the peer did not take what was sent before the connection ended");
      self->something_to_do();
    });
    pump(*end);
  }
  something_to_do();
  return Code::ok;
}

Code SimTransport::send(uint64_t peer, ConstBytes bytes) {
  End* end = nullptr;
  if (const Code code = usable(peer, end); code != Code::ok) return code;
  if (bytes.size() > (end->admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES)) {
    return Code::invalid_argument;
  }
  if (end->queued >= options_.peer_queue_bytes) {
    end->refused = true;
    return Code::again;
  }
  end->messages.emplace_back(bytes.begin(), bytes.end());
  end->queued += bytes.size() + 32;
  pump(*end);
  return Code::ok;
}

Code SimTransport::post(uint64_t peer, uint64_t tag, void* to, uint64_t bytes, uint64_t token) {
  End* end = nullptr;
  if (const Code code = usable(peer, end); code != Code::ok) return code;
  if (to == nullptr && bytes != 0) return Code::invalid_argument;
  if (end->tokens.count(token) != 0 || end->posts.count(tag) != 0 || (end->active_posted && end->active_tag == tag)) {
    return Code::exists;
  }
  end->posts[tag] = {static_cast<std::byte*>(to), bytes, token};
  end->tokens[token] = false;
  end->tags[token] = tag;
  return Code::ok;
}

Code SimTransport::push(uint64_t peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token) {
  End* end = nullptr;
  if (const Code code = usable(peer, end); code != Code::ok) return code;
  if (!end->admitted) return Code::wrong_state;
  if (pieces == nullptr && n != 0) return Code::invalid_argument;
  Push push;
  push.tag = tag;
  push.token = token;
  for (size_t i = 0; i < n; ++i) {
    if (pieces[i].bytes > UINT64_MAX - push.total || (pieces[i].data == nullptr && pieces[i].bytes != 0)) {
      return Code::invalid_argument;
    }
    push.total += pieces[i].bytes;
    if (pieces[i].bytes != 0) push.pieces.push_back(pieces[i]);
  }
  if (!end->tokens.emplace(token, true).second) return Code::exists;
  end->pushes.push_back(std::move(push));
  pump(*end);
  return Code::ok;
}

Code SimTransport::cancel(uint64_t peer, uint64_t token) {
  if (!alive_) return Code::closed;
  End* end = find(peer);
  const auto known = end == nullptr ? std::map<uint64_t, bool>::iterator{} : end->tokens.find(token);
  if (end == nullptr || known == end->tokens.end()) return Code::stale_handle;
  if (end->dead) return Code::ok;
  if (known->second) {
    const auto push =
        std::find_if(end->pushes.begin(), end->pushes.end(), [&](const Push& p) { return p.token == token; });
    if (push == end->pushes.end() || push->begun) return Code::ok;
    end->pushes.erase(push);
    ended_.push_back({Told::pushed, peer, token, Code::cancelled});
  } else {
    if (end->active_posted && end->active.token == token) end->active_posted = false;
    end->posts.erase(end->tags.at(token));
    ended_.push_back({Told::received, peer, token, Code::cancelled});
  }
  end->tags.erase(token);
  end->tokens.erase(token);
  something_to_do();
  return Code::ok;
}

// --- sending

void SimTransport::transmit(End& end, SimWire& wire, SimPacket packet) {
  if (end.sends != nullptr) {
    const size_t n = packet.bytes.size();
    packet.bytes.resize(n + copy::FrameGuard::kTagBytes);
    const MutableBytes payload = MutableBytes(packet.bytes).first(n);
    const bool sealed = end.sends->begin(header_of(packet, n), n, codec::AesGcm::Use::seal) == Code::ok &&
                        end.sends->seal(payload, payload.data()) && end.sends->finish(packet.bytes.data() + n);
    if (!sealed) std::abort();
  }
  network_.transmit(wire, end.side, std::move(packet));
}

void SimTransport::send_chunk(End& end, SimWire& wire) {
  Push& push = end.pushes.front();
  SimPacket packet;
  packet.kind = SimPacketKind::chunk;
  packet.first = !push.begun;
  packet.tag = push.tag;
  packet.total = push.total;
  push.begun = true;
  const uint64_t most = 1 + network_.sim_.random().below(kChunkBytes);
  const uint64_t n =
      std::min(push.total - push.sent, push.total > kChunkBytes ? std::max(most, kChunkBytes / 4) : kChunkBytes);
  uint64_t skip = push.sent;
  for (const kvbm_transport_piece_t& piece : push.pieces) {
    if (packet.bytes.size() == n) break;
    if (skip >= piece.bytes) {
      skip -= piece.bytes;
      continue;
    }
    const auto* from = static_cast<const std::byte*>(piece.data) + skip;
    packet.bytes.insert(packet.bytes.end(), from, from + std::min(n - packet.bytes.size(), piece.bytes - skip));
    skip = 0;
  }
  push.sent += n;
  transmit(end, wire, std::move(packet));
  if (push.sent != push.total) return;
  end.tokens.erase(push.token);
  ended_.push_back({Told::pushed, end.peer, push.token, Code::ok});
  end.pushes.pop_front();
  something_to_do();
}

// Sends as much as the window takes, messages first.
void SimTransport::pump(End& end) {
  SimWire* wire = wire_of(end);
  if (wire == nullptr || !end.connected || end.dead) return;
  SimWire::Direction& out = wire->out[end.side];
  while (out.untaken < SimNetwork::kWindowBytes && (!end.messages.empty() || !end.pushes.empty())) {
    if (end.messages.empty()) {
      send_chunk(end, *wire);
      continue;
    }
    SimPacket packet;
    packet.bytes = std::move(end.messages.front());
    end.messages.pop_front();
    end.queued -= packet.weight();
    transmit(end, *wire, std::move(packet));
  }
  if (end.refused && !end.flushing && end.queued <= options_.peer_queue_bytes / 2) {
    end.refused = false;
    ended_.push_back({Told::writable, end.peer, 0, Code::ok});
    something_to_do();
  }
  if (end.flushing && end.messages.empty() && end.pushes.empty() && !out.shut) network_.shut(*wire, end.side);
}

// --- from the network

void SimTransport::deliver(uint64_t wire, SimPacket packet) { inbox_.push_back({wire, false, std::move(packet)}); }
void SimTransport::accept(uint64_t wire) { inbox_.push_back({wire, true, {}}); }

void SimTransport::window_opened(uint64_t wire) {
  if (End* end = of_wire(wire)) pump(*end);
}

void SimTransport::broke(uint64_t wire, Code status, const std::string& reason) {
  if (End* end = of_wire(wire)) die(*end, status, reason);
}

// Removes the tag from a packet after a check, or ends the connection.
bool SimTransport::open_guarded(End& end, SimPacket& packet) {
  if (end.receives == nullptr) return true;
  const size_t tag = copy::FrameGuard::kTagBytes;
  const size_t n = packet.bytes.size() < tag ? 0 : packet.bytes.size() - tag;
  const MutableBytes payload = MutableBytes(packet.bytes).first(n);
  if (packet.bytes.size() >= tag &&
      end.receives->begin(header_of(packet, n), n, codec::AesGcm::Use::open) == Code::ok &&
      end.receives->open(payload) && end.receives->verify(packet.bytes.data() + n)) {
    packet.bytes.resize(n);
    return true;
  }
  die(end, Code::damaged, "bytes were changed, repeated, left out or moved on their way: a tag does not fit");
  return false;
}

void SimTransport::take_message(End& end, const SimPacket& packet) {
  if (packet.bytes.size() > (end.admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES)) {
    return die(end, Code::damaged, "a message is too large for a peer that is not admitted");
  }
  std::vector<uint64_t> aligned(packet.bytes.size() / 8 + 1);
  if (!packet.bytes.empty()) std::memcpy(aligned.data(), packet.bytes.data(), packet.bytes.size());
  host_.message(host_.context, end.peer, aligned.data(), packet.bytes.size());
}

void SimTransport::take_chunk(End& end, const SimPacket& packet) {
  if (!end.admitted) return die(end, Code::damaged, "bulk of a peer that is not admitted");
  // Checks the order of frames, like copy/tcp/frame.h.
  const uint64_t n = packet.bytes.size();
  if (packet.first && end.rest != 0) return die(end, Code::damaged, "a push begins inside another");
  if (!packet.first && n > end.rest) return die(end, Code::damaged, "a push's later frame has a wrong length");
  end.rest = (packet.first ? packet.total : end.rest) - n;
  if (packet.first) {
    end.active_tag = packet.tag;
    end.active_at = 0;
    end.active_total = packet.total;
    end.active_posted = false;
    const auto post = end.posts.find(packet.tag);
    if (post != end.posts.end()) {
      end.active = post->second;
      end.posts.erase(post);
      end.active_posted = packet.total <= end.active.bytes;
      if (!end.active_posted) {
        const uint64_t token = end.active.token;
        end.tokens.erase(token);
        end.tags.erase(token);
        host_.received(host_.context, end.peer, token, static_cast<int32_t>(Code::mismatch), 0);
        return;
      }
    }
  }
  if (end.active_posted && !packet.bytes.empty()) {
    std::memcpy(end.active.to + end.active_at, packet.bytes.data(), packet.bytes.size());
  }
  end.active_at += packet.bytes.size();
  if (!end.active_posted) return;
  const uint64_t token = end.active.token;
  if (end.active_at != end.active_total) {
    if (host_.arrived != nullptr) host_.arrived(host_.context, end.peer, token, end.active_at);
    return;
  }
  end.active_posted = false;
  end.tokens.erase(token);
  end.tags.erase(token);
  host_.received(host_.context, end.peer, token, 0, end.active_total);
}

void SimTransport::take(Arrival arrival) {
  if (arrival.accept) {
    const auto wire = network_.wires_.find(arrival.wire);
    if (wire == network_.wires_.end()) return;
    const End& end = add(arrival.wire, 1, true);
    const std::string address = SimNetwork::host(wire->second->node[0]) + ":" + std::to_string(40000 + arrival.wire);
    return host_.accepted(host_.context, end.peer, address.c_str());
  }
  End* end = of_wire(arrival.wire);
  if (end == nullptr || end->dead) return;
  SimPacket& packet = arrival.packet;
  if (packet.kind == SimPacketKind::message || packet.kind == SimPacketKind::chunk) {
    const auto wire = network_.wires_.find(arrival.wire);
    if (wire != network_.wires_.end()) network_.taken(*wire->second, end->side, packet.weight());
    if (end->flushing || !open_guarded(*end, packet)) return;
    return packet.kind == SimPacketKind::message ? take_message(*end, packet) : take_chunk(*end, packet);
  }
  switch (packet.kind) {
    case SimPacketKind::opened:
      end->connected = true;
      if (!end->flushing) host_.connected(host_.context, end->peer);
      return pump(*end);
    case SimPacketKind::refused:
      return die(*end, Code::io_error, "cannot connect: connection refused; is a node listening there?");
    case SimPacketKind::fin:
      return die(*end, Code::closed, "the peer closed the connection");
    default:
      return die(*end, Code::closed, "the connection was reset by the peer");
  }
}

// --- progress

void SimTransport::tell_ended() {
  for (size_t left = ended_.size(); left != 0; --left) {
    const Told told = ended_.front();
    ended_.pop_front();
    if (told.kind == Told::pushed) {
      host_.pushed(host_.context, told.peer, told.token, static_cast<int32_t>(told.status));
    } else if (told.kind == Told::received) {
      host_.received(host_.context, told.peer, told.token, static_cast<int32_t>(told.status), 0);
    } else if (End* end = find(told.peer); end != nullptr && !end->dead && !end->flushing) {
      host_.writable(host_.context, told.peer);
    }
    if (!alive_) return;
  }
}

void SimTransport::end_tokens(End& end, bool pushes, Code status, bool now) {
  std::vector<uint64_t> tokens;
  for (const auto& [token, push] : end.tokens) {
    if (push == pushes) tokens.push_back(token);
  }
  if (!pushes) {
    end.posts.clear();
    end.tags.clear();
    end.active_posted = false;
  }
  for (const uint64_t token : tokens) end.tokens.erase(token);
  for (const uint64_t token : tokens) {
    if (!now) {
      ended_.push_back({pushes ? Told::pushed : Told::received, end.peer, token, status});
    } else if (pushes) {
      host_.pushed(host_.context, end.peer, token, static_cast<int32_t>(status));
    } else {
      host_.received(host_.context, end.peer, token, static_cast<int32_t>(status), 0);
    }
    if (!alive_) return;
  }
}

void SimTransport::die(End& end, Code status, std::string reason) {
  if (end.dead) return;
  end.dead = true;
  end.status = status;
  end.reason = end.flushing && status != Code::deadline ? "disconnected" : std::move(reason);
  dying_.push_back(end.peer);
}

void SimTransport::bury() {
  while (alive_ && !dying_.empty()) {
    End& end = ends_.at(dying_.front());
    dying_.pop_front();
    end.pushes.clear();
    while (alive_ && !ended_.empty()) tell_ended();
    if (!alive_) return;
    if (SimWire* wire = wire_of(end)) network_.leave(*wire, end.side);
    end_tokens(end, true, end.status, true);
    if (alive_) end_tokens(end, false, end.status, true);
    if (!alive_) return;
    const uint64_t peer = end.peer;
    const std::string reason = end.reason;
    const auto status = static_cast<int32_t>(end.status);
    peer_of_wire_.erase(end.wire);
    ends_.erase(peer);
    host_.closed(host_.context, peer, status, reason.c_str());
  }
}

uint32_t SimTransport::progress() {
  if (!alive_ || network_.frozen(node_)) return 0;
  tell_ended();
  for (int turn = 0; turn < kTurn && alive_ && !inbox_.empty(); ++turn) {
    Arrival arrival = std::move(inbox_.front());
    inbox_.pop_front();
    take(std::move(arrival));
  }
  if (alive_) tell_ended();
  bury();
  return busy() ? 1 : 0;
}

// --- the table

namespace {

int32_t sim_open(const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** out,
                 char* error, size_t size) {
  const auto [network, node] = sim_node_that_opens();
  if (network == nullptr)
    return report({Code::wrong_state, "SimNetwork::ops() names the node that opens"}, error, size);
  *out = reinterpret_cast<kvbm_transport_t*>(new SimTransport(*network, node, *options, *host));
  return 0;
}

}  // namespace

const kvbm_transport_ops_t& SimTransport::table() {
  static const kvbm_transport_ops_t ops = [] {
    kvbm_transport_ops_t t{};
    t.struct_size = sizeof t;
    t.abi_version = KVBM_TRANSPORT_ABI_VERSION;
    t.name = "simulated";
    t.build = "tests";
    t.open = sim_open;
    t.close = [](kvbm_transport_t* self) { delete of(self); };
    t.features = [](const kvbm_transport_t*) -> uint32_t { return KVBM_TRANSPORT_OWN_USER | KVBM_TRANSPORT_PROTECT; };
    t.describe = [](const kvbm_transport_t*, char* text, size_t size) -> size_t {
      const std::string all = "simulated network";
      if (size != 0) text[all.copy(text, size - 1)] = '\0';
      return all.size();
    };
    t.fd = [](const kvbm_transport_t*) { return -1; };
    t.arm = [](kvbm_transport_t* self, uint64_t* within_ns) {
      *within_ns = UINT64_MAX;
      return static_cast<int32_t>(of(self)->busy() ? Code::again : Code::ok);
    };
    t.progress = [](kvbm_transport_t* self) { return of(self)->progress(); };
    t.listen = [](kvbm_transport_t* self, const char* address, char* bound, size_t bound_size, char* error,
                  size_t size) {
      std::string name;
      if (Status s = of(self)->listen(address, name); !s.ok()) return report(s, error, size);
      if (bound_size != 0) bound[name.copy(bound, bound_size - 1)] = '\0';
      return int32_t{0};
    };
    t.connect = [](kvbm_transport_t* self, const char* address, kvbm_transport_peer_t* peer, char* error, size_t size) {
      const Status s = of(self)->connect(address, *peer);
      return s.ok() ? int32_t{0} : report(s, error, size);
    };
    t.admit = [](kvbm_transport_t* self, kvbm_transport_peer_t peer) {
      return static_cast<int32_t>(of(self)->admit(peer));
    };
    t.protect = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, uint32_t how, const uint8_t* send_key,
                   const uint8_t* receive_key) {
      return static_cast<int32_t>(of(self)->protect(peer, static_cast<copy::Protection>(how), send_key, receive_key));
    };
    t.disconnect = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, int32_t flush) {
      return static_cast<int32_t>(of(self)->disconnect(peer, flush != 0));
    };
    t.send = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, const void* bytes, size_t size) {
      return static_cast<int32_t>(of(self)->send(peer, {static_cast<const std::byte*>(bytes), size}));
    };
    t.post = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
                kvbm_transport_token_t token) {
      return static_cast<int32_t>(of(self)->post(peer, tag, to, bytes, token));
    };
    t.push = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, uint64_t tag, const kvbm_transport_piece_t* pieces,
                size_t n, kvbm_transport_token_t token) {
      return static_cast<int32_t>(of(self)->push(peer, tag, pieces, n, token));
    };
    t.cancel = [](kvbm_transport_t* self, kvbm_transport_peer_t peer, kvbm_transport_token_t token) {
      return static_cast<int32_t>(of(self)->cancel(peer, token));
    };
    return t;
  }();
  return ops;
}

}  // namespace kvbm::test

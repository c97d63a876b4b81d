#include "support/sim_network.h"

#include <algorithm>

#include "support/sim_transport.h"

namespace kvbm::test {

namespace {

// Number of attempts before a connection is given up.
constexpr uint64_t kAsks = 50;
// Time for which a packet that is to be overtaken waits for a later one.
constexpr uint64_t kHeldBackNs = 5'000'000;

// Network and node that the next open() on this thread belongs to.
thread_local SimNetwork* opening_network = nullptr;
thread_local SimNetwork::Node opening_node = 0;

}  // namespace

std::pair<SimNetwork*, SimNetwork::Node> sim_node_that_opens() { return {opening_network, opening_node}; }

SimNetwork::SimNetwork(SimExecutor& sim) : sim_(sim) {}

SimNetwork::~SimNetwork() {
  // Tells transports that outlive the network that it is gone.
  for (const auto& [id, transport] : transports_) transport->killed();
  for (const Place& place : places_) place.process->kill();
}

// Posts a task that does nothing if the network is gone by then.
void SimNetwork::later(uint64_t when_ns, Task task) {
  sim_.post_at(when_ns, [life = std::weak_ptr<bool>(life_), task = std::move(task)]() mutable {
    if (!life.expired()) task();
  });
}

SimNetwork::Node SimNetwork::add_node() {
  places_.emplace_back();
  places_.back().process = std::make_unique<SimProcess>(sim_);
  return static_cast<Node>(places_.size() - 1);
}

std::string SimNetwork::host(Node node) {
  return "10." + std::to_string(node >> 16) + "." + std::to_string((node >> 8) & 255) + "." +
         std::to_string(node & 255);
}

std::string SimNetwork::loopback(Node node) {
  return "127." + std::to_string((node >> 16) + 1) + "." + std::to_string((node >> 8) & 255) + "." +
         std::to_string(node & 255);
}

const kvbm_transport_ops_t& SimNetwork::ops(Node node) {
  opening_network = this;
  opening_node = node;
  return SimTransport::table();
}

void SimNetwork::on_wake(Node node, std::function<void()> wake) { places_.at(node).wake = std::move(wake); }
Executor& SimNetwork::executor(Node node) { return *places_.at(node).process; }

void SimNetwork::set_clock(Node node, uint64_t begins_ns, uint64_t per_mille) {
  places_.at(node).process->set_clock(begins_ns, per_mille);
}

void SimNetwork::skip(Node node, uint64_t ns) {
  sim_.note("skip", ns);
  ++counts_.skips;
  places_.at(node).process->skip(ns);
}

SimNetwork::Link& SimNetwork::link(Node a, Node b) { return links_[pair_of(a, b)]; }
void SimNetwork::refuse(Node node, bool refused) { places_.at(node).refused = refused; }
bool SimNetwork::frozen(Node node) const { return places_.at(node).frozen; }
size_t SimNetwork::connections() const { return wires_.size(); }

bool SimNetwork::is_cut(const SimWire& wire) const { return cuts_.count(pair_of(wire.node[0], wire.node[1])) != 0; }

SimTransport* SimNetwork::transport_of(uint64_t id) {
  const auto found = transports_.find(id);
  return found == transports_.end() ? nullptr : found->second;
}

uint64_t SimNetwork::delay(const SimWire& wire) {
  const Link& l = link(wire.node[0], wire.node[1]);
  return l.min_delay_ns + sim_.random().below(l.max_delay_ns - l.min_delay_ns + 1);
}

void SimNetwork::wake(Node node) {
  const Place& place = places_.at(node);
  if (!place.frozen && place.wake) place.wake();
}

// --- faults

void SimNetwork::cut(Node a, Node b) {
  const Pair pair = pair_of(a, b);
  if (cuts_.count(pair) != 0) return;
  const uint64_t serial = cuts_[pair] = ++cut_serial_;
  sim_.note("cut", serial);
  later(sim_.clock().now_ns() + kSilenceNs, [this, pair, serial] {
    const auto found = cuts_.find(pair);
    if (found == cuts_.end() || found->second != serial) return;
    std::vector<uint64_t> dead;
    for (const auto& [id, wire] : wires_) {
      if (pair_of(wire->node[0], wire->node[1]) == pair) dead.push_back(id);
    }
    for (const uint64_t id : dead) {
      break_wire(*wires_.at(id), static_cast<int32_t>(Code::deadline), "does not answer any more");
    }
  });
}

void SimNetwork::heal(Node a, Node b) {
  if (cuts_.erase(pair_of(a, b)) == 0) return;
  sim_.note("heal", a * 65536ULL + b);
  for (const auto& [id, wire] : wires_) {
    if (pair_of(wire->node[0], wire->node[1]) != pair_of(a, b)) continue;
    for (int from = 0; from < 2; ++from) {
      SimWire::Direction& out = wire->out[from];
      for (; out.stalled != 0; --out.stalled) {
        out.last_arrival = std::max(out.last_arrival + 1, sim_.clock().now_ns() + delay(*wire));
        later(out.last_arrival, [this, name = id, to = 1 - from] { arrive(name, to); });
      }
      const uint64_t untold = std::exchange(out.untold, 0);
      if (untold == 0) continue;
      later(sim_.clock().now_ns() + delay(*wire), [this, name = id, from, untold] { take_back(name, from, untold); });
    }
  }
}

void SimNetwork::freeze(Node node) {
  sim_.note("freeze", node);
  places_.at(node).frozen = true;
  places_.at(node).process->freeze();
}

void SimNetwork::thaw(Node node) {
  if (!places_.at(node).frozen) return;
  sim_.note("thaw", node);
  places_.at(node).frozen = false;
  places_.at(node).process->thaw();
  wake(node);
}

void SimNetwork::kill(Node node) {
  sim_.note("kill", node);
  places_.at(node).frozen = false;
  places_.at(node).process->kill();
  places_.at(node).wake = nullptr;
  std::vector<SimTransport*> gone;
  for (const auto& [id, transport] : transports_) {
    if (transport->node() == node) gone.push_back(transport);
  }
  for (SimTransport* transport : gone) {
    transports_.erase(transport->id());
    std::erase_if(listeners_, [&](const auto& entry) { return entry.second == transport->id(); });
    transport->killed();
  }
  std::vector<uint64_t> broken;
  for (const auto& [id, wire] : wires_) {
    if (wire->node[0] == node || wire->node[1] == node) broken.push_back(id);
  }
  for (const uint64_t id : broken) {
    SimWire& wire = *wires_.at(id);
    const int from = wire.node[0] == node ? 0 : 1;
    // A requested connection is answered by the process that listens when the request arrives.
    if (from == 1 && !wire.asked) continue;
    SimPacket reset;
    reset.kind = SimPacketKind::reset;
    transmit(wire, from, std::move(reset));
    leave(wire, from);
  }
}

void SimNetwork::break_connections(Node a, Node b) {
  std::vector<uint64_t> broken;
  for (const auto& [id, wire] : wires_) {
    if (pair_of(wire->node[0], wire->node[1]) == pair_of(a, b)) broken.push_back(id);
  }
  for (const uint64_t id : broken) break_wire(*wires_.at(id), static_cast<int32_t>(Code::closed), "was reset");
}

void SimNetwork::break_wire(SimWire& wire, int32_t status, const std::string& reason) {
  const uint64_t id = wire.id;
  const std::string text = "the connection to " + wire.address + " " + reason;
  for (int side = 0; side < 2; ++side) {
    if (SimTransport* transport = transport_of(wire.transport[side])) {
      transport->broke(id, static_cast<Code>(status), text);
      wake(transport->node());
    }
  }
  wires_.erase(id);
}

bool SimNetwork::chance(double of) {
  return of > 0 && static_cast<double>(sim_.random().below(1'000'000'000)) < of * 1e9;
}

void SimNetwork::flip(std::vector<std::byte>& bytes, double chance) {
  if (bytes.empty() || !this->chance(chance)) return;
  const uint64_t bit = sim_.random().below(bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  sim_.note("flip", bit);
}

// --- wires

void SimNetwork::transmit(SimWire& wire, int from, SimPacket packet) {
  SimWire::Direction& out = wire.out[from];
  if (out.shut) return;
  if (packet.is_payload()) {
    const bool bulk = packet.kind == SimPacketKind::chunk;
    if (const Meddle& hook = bulk ? meddle_bulk : meddle) hook(wire.id, from, packet.bytes);
    flip(packet.bytes, bulk ? faults.flip_bulk : faults.flip_message);
    if (bulk) bulk_bytes_ += packet.bytes.size();
    if (chance(faults.lose_connection)) {
      sim_.note("lose", wire.id);
      later(0, [this, id = wire.id] {
        const auto found = wires_.find(id);
        if (found != wires_.end()) break_wire(*found->second, static_cast<int32_t>(Code::closed), "was lost");
      });
    }
    packet.dropped = chance(faults.drop);
    packet.late = chance(faults.exchange);
    if (chance(faults.repeat)) {
      sim_.note("repeat", wire.id);
      ++counts_.repeated;
      fly(wire, from, packet);
    }
  }
  fly(wire, from, std::move(packet));
}

void SimNetwork::fly(SimWire& wire, int from, SimPacket packet) {
  SimWire::Direction& out = wire.out[from];
  if (packet.is_payload()) out.untaken += packet.weight();
  const Link& l = link(wire.node[0], wire.node[1]);
  const uint64_t now = sim_.clock().now_ns();
  const uint64_t takes = l.bytes_per_ms == 0 ? 0 : packet.weight() * 1'000'000 / l.bytes_per_ms;
  out.free_at = std::max(now, out.free_at) + takes;
  out.last_arrival = std::max(out.last_arrival + 1, out.free_at + delay(wire));
  out.flying.push_back(std::move(packet));
  later(out.last_arrival, [this, id = wire.id, to = 1 - from] { arrive(id, to); });
}

// Delivers the first packet in flight to side `to`. Each packet has one task, so packets keep the wire's order.
void SimNetwork::arrive(uint64_t id, int to) {
  const auto found = wires_.find(id);
  if (found == wires_.end()) return;
  SimWire& wire = *found->second;
  SimWire::Direction& in = wire.out[1 - to];
  if (in.flying.empty()) return;
  if (is_cut(wire)) {
    ++in.stalled;
    return;
  }
  SimPacket& front = in.flying.front();
  if (front.late) {
    // Moves the packet behind the next one. If there is none yet, the packet waits a while.
    const bool next = in.flying.size() > 1 && in.flying[1].is_payload();
    if (!next && !std::exchange(front.waited, true)) {
      return later(sim_.clock().now_ns() + kHeldBackNs, [this, id, to] { arrive(id, to); });
    }
    front.late = false;
    if (next) {
      sim_.note("exchange", id);
      ++counts_.exchanged;
      std::swap(in.flying[0], in.flying[1]);
    }
  }
  SimPacket packet = std::move(in.flying.front());
  in.flying.pop_front();
  if (packet.dropped) {
    sim_.note("drop", id);
    ++counts_.dropped;
    return taken(wire, to, packet.weight());
  }
  sim_.note("arrive", static_cast<uint64_t>(packet.kind) + id * 16);
  const bool last = packet.kind == SimPacketKind::reset || packet.kind == SimPacketKind::refused;
  SimTransport* transport = transport_of(wire.transport[to]);
  if (transport == nullptr) {
    if (last) wires_.erase(found);
    return;
  }
  transport->deliver(id, std::move(packet));
  const Node node = transport->node();
  if (last) wires_.erase(found);
  wake(node);
}

uint64_t SimNetwork::start_wire(SimTransport& from, const std::string& address) {
  auto wire = std::make_unique<SimWire>();
  const uint64_t id = wire->id = next_wire_++;
  wire->node[0] = from.node();
  wire->transport[0] = from.id();
  wire->address = address;
  const std::string host_text = address.substr(0, address.rfind(':'));
  Node to = 0;
  while (to < places_.size() && host(to) != host_text && loopback(to) != host_text) ++to;
  wire->node[1] = to < places_.size() ? to : from.node();
  const bool known = to < places_.size();
  SimWire& kept = *(wires_[id] = std::move(wire));
  // A host that is not there never answers.
  const uint64_t after = known ? delay(kept) : kSilenceNs;
  later(sim_.clock().now_ns() + after, [this, id, known] {
    const auto found = wires_.find(id);
    if (found == wires_.end()) return;
    if (known) return open_wire(*found->second);
    break_wire(*found->second, static_cast<int32_t>(Code::deadline), "was never answered");
  });
  return id;
}

void SimNetwork::open_wire(SimWire& wire) {
  if (is_cut(wire)) {
    // Retries the connection, like TCP.
    if (++wire.asks > kAsks) return break_wire(wire, static_cast<int32_t>(Code::deadline), "was never answered");
    later(sim_.clock().now_ns() + kSilenceNs / kAsks, [this, id = wire.id] {
      const auto found = wires_.find(id);
      if (found != wires_.end()) open_wire(*found->second);
    });
    return;
  }
  wire.asked = true;
  const auto listener = listeners_.find(wire.address);
  SimTransport* transport = listener == listeners_.end() ? nullptr : transport_of(listener->second);
  SimPacket answer;
  answer.kind =
      transport == nullptr || places_.at(wire.node[1]).refused ? SimPacketKind::refused : SimPacketKind::opened;
  if (answer.kind == SimPacketKind::opened) {
    wire.transport[1] = transport->id();
    transport->accept(wire.id);
    wake(transport->node());
  }
  transmit(wire, 1, std::move(answer));
}

// Side `to` has read bytes, so the other side's window opens after a delay.
void SimNetwork::taken(SimWire& wire, int to, uint64_t bytes) {
  const int from = 1 - to;
  if (is_cut(wire)) {
    wire.out[from].untold += bytes;
    return;
  }
  later(sim_.clock().now_ns() + delay(wire), [this, id = wire.id, from, bytes] { take_back(id, from, bytes); });
}

void SimNetwork::take_back(uint64_t id, int from, uint64_t bytes) {
  const auto found = wires_.find(id);
  if (found == wires_.end()) return;
  SimWire& wire = *found->second;
  if (is_cut(wire)) {
    wire.out[from].untold += bytes;
    return;
  }
  wire.out[from].untaken -= std::min(wire.out[from].untaken, bytes);
  if (SimTransport* transport = transport_of(wire.transport[from])) {
    transport->window_opened(id);
    wake(transport->node());
  }
}

// Side `from` sends no more; bytes in flight still arrive.
void SimNetwork::shut(SimWire& wire, int from) {
  SimPacket fin;
  fin.kind = SimPacketKind::fin;
  transmit(wire, from, std::move(fin));
  wire.out[from].shut = true;
}

// Side `from` is gone.
void SimNetwork::leave(SimWire& wire, int from) {
  shut(wire, from);
  wire.transport[from] = 0;
  if (wire.transport[1 - from] == 0) wires_.erase(wire.id);
}

}  // namespace kvbm::test

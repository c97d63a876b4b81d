#include "support/session_world.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvbm::test {

using cluster::session::Receiver;
using cluster::session::ReceiverEvent;
using cluster::session::RequestId;
using cluster::session::Sender;
using cluster::session::SenderEvent;
using cluster::session::Staging;

namespace {

MutableBytes aligned(std::vector<std::byte>& memory, size_t bytes, size_t at) {
  const auto base = reinterpret_cast<uintptr_t>(memory.data());
  const size_t skip = (64 - base % 64) % 64;
  return {memory.data() + skip + at, bytes};
}

}  // namespace

RequestId request_id(uint64_t number) {
  RequestId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  id.bytes[15] = 1;
  return id;
}

SessionNode::SessionNode(SimExecutor& sim, SessionNetwork& net, const Options& options)
    : mover(sim), coder(sim), sim_(sim), net_(net) {
  const uint64_t half = Staging::slot_bytes_for(options.slice_bytes) * options.staging_slots;
  memory_.resize(2 * half + 64);
  id = net.add(this);
  mover.stopped = [this] { return net_.frozen(id); };
  coder.stopped = mover.stopped;
  Sender::Options s;
  s.rank = options.rank;
  s.straight_from_bytes = options.straight_from_bytes;
  s.peer_outbox_bytes = options.outbox_bytes;
  s.moved = [this] { drain(); };
  s.note = [this](const std::string& text) { notes.push_back(text); };
  s.least_direct_bytes = options.least_direct_bytes;
  if (options.codes) s.coder = &coder;
  sender = std::make_unique<Sender>(s, Staging::make(aligned(memory_, half, 0), options.slice_bytes).value(),
                                    net.link(id), *this);
  Receiver::Options r;
  r.peer_outbox_bytes = options.outbox_bytes;
  r.moved = [this] { drain(); };
  r.note = s.note;
  r.least_direct_bytes = options.least_direct_bytes;
  if (options.codes) r.coder = &coder;
  receiver = std::make_unique<Receiver>(r, Staging::make(aligned(memory_, half, half), options.slice_bytes).value(),
                                        net.link(id));
}

void SessionNode::on_event(const ReceiverEvent& e) {
  if (e.kind == ReceiverEvent::Kind::layer_ready) {
    EXPECT_EQ(finished.count(e.session), 0u) << "a layer after the end";
    EXPECT_TRUE(layers[e.session].insert({e.layer, e.component}).second) << "a layer twice";
    sim_.note("layer", e.layer);
    if (target == nullptr) return;
    for (const auto& c : target->caches) {
      if (c->part().component != e.component) continue;
      EXPECT_EQ(c->check_layer(seed, e.layer), "") << "reported as complete";
    }
    return;
  }
  EXPECT_TRUE(finished.emplace(e.session, e.status).second) << "a session ended twice";
  last_finish_ns = sim_.clock().now_ns();
  sim_.note(code_name(e.status.code()), e.session);
}

void SessionNode::drain() {
  ReceiverEvent e;
  while (receiver->take_event(&e)) on_event(e);
  SenderEvent s;
  while (sender->take_event(&s)) {
    EXPECT_TRUE(offers_ended.emplace(s.request, s.status).second) << "an offer ended twice";
    sim_.note(code_name(s.status.code()), s.sinks_done);
  }
  const uint64_t next = std::min(sender->next_deadline(), receiver->next_deadline());
  if (next >= tick_at_ || next == kNever) return;
  tick_at_ = next;
  sim_.post_at(next, [this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) tick();
  });
}

void SessionNode::tick() {
  tick_at_ = kNever;
  if (sender == nullptr) return;  // killed
  if (net_.frozen(id)) {          // late wake-up, like a stopped process
    tick_at_ = sim_.clock().now_ns() + 5'000'000;
    sim_.post_at(tick_at_, [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) tick();
    });
    return;
  }
  sender->tick(sim_.clock().now_ns());
  receiver->tick(sim_.clock().now_ns());
  drain();
}

void SessionNode::on_message(uint64_t peer, ConstBytes bytes) {
  const auto header = cluster::session::peek(bytes);
  if (header.ok() && goes_to_sender(header.value().type)) {
    sender->on_message(peer, bytes, sim_.clock().now_ns());
  } else {
    receiver->on_message(peer, bytes);
  }
  drain();
}

void SessionNode::on_received(uint64_t, uint64_t token, Code status, uint64_t bytes) {
  receiver->on_received(token, status, bytes);
  drain();
}

void SessionNode::on_pushed(uint64_t, uint64_t token, Code status) {
  sender->on_pushed(token, status);
  drain();
}

void SessionNode::on_writable(uint64_t peer) {
  sender->on_writable(peer);
  receiver->on_writable(peer);
  drain();
}

void SessionNode::on_closed(uint64_t peer) {
  closed.insert(peer);
  sender->on_closed(peer);
  receiver->on_closed(peer);
  drain();
}

Status SessionNode::hold(const RequestId& request, std::span<const cluster::session::LocalPart>) {
  if (refuse_holds) return Status(Code::in_use, "no hold");
  EXPECT_TRUE(held.insert(request).second) << "held twice";
  return {};
}

void SessionNode::release(const RequestId& request) { EXPECT_EQ(held.erase(request), 1u) << "released without a hold"; }

}  // namespace kvbm::test

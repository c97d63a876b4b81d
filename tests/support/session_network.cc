#include "support/session_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "cluster/session/wire.h"
#include "support/session_mover.h"

namespace kvbm::test {

class SessionNetwork::NodeLink final : public cluster::session::Link {
 public:
  NodeLink(SessionNetwork& net, Node node) : net_(net), node_(node) {}
  Code send(uint64_t peer, ConstBytes message) override { return net_.send(node_, peer, message); }
  Code post(uint64_t peer, uint64_t tag, MutableBytes to, uint64_t token) override {
    return net_.post(node_, peer, tag, to, token);
  }
  Code push(uint64_t peer, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) override {
    return net_.push(node_, peer, tag, pieces, token);
  }
  void cancel(uint64_t peer, uint64_t token) override { net_.cancel(peer, token); }
  void drop(uint64_t peer) override { net_.cut(peer); }
  [[nodiscard]] bool takes_grain(uint64_t) const override { return net_.grains; }
  [[nodiscard]] bool takes_ways(uint64_t) const override { return net_.ways; }
  [[nodiscard]] bool takes_device_memory() const override { return net_.nodes_[node_].direct.takes; }
  Status add_memory(MutableBytes memory) override {
    Direct& direct = net_.nodes_[node_].direct;
    if (direct.refuses) return {Code::unsupported, "the transport cannot register memory"};
    direct.memory.push_back(memory);
    return {};
  }

 private:
  SessionNetwork& net_;
  Node node_;
};

SessionNetwork::Node SessionNetwork::add(SessionPeer* peer) {
  const auto id = static_cast<Node>(nodes_.size());
  nodes_.emplace_back();
  nodes_.back().peer = peer;
  nodes_.back().link = std::make_unique<NodeLink>(*this, id);
  return id;
}

std::pair<uint64_t, uint64_t> SessionNetwork::connect(Node a, Node b) {
  const uint64_t x = next_end_++;
  const uint64_t y = next_end_++;
  ends_[x].node = a;
  ends_[x].other = y;
  ends_[y].node = b;
  ends_[y].other = x;
  return {x, y};
}

void SessionNetwork::later(UniqueFunction<void()> task) {
  sim_.post_at(sim_.clock().now_ns() + 1000 + sim_.random().below(faults.delay_ns), std::move(task));
}

bool SessionNetwork::wait_if_frozen(const End& end, UniqueFunction<void()> again) {
  if (!nodes_[end.node].frozen) return false;
  sim_.post_at(sim_.clock().now_ns() + 5'000'000, std::move(again));
  return true;
}

bool SessionNetwork::on_device(Node node, const std::byte* data, uint64_t bytes) {
  if (!SimMover::is_direct(data)) return false;
  const auto& known = nodes_[node].direct.memory;
  const bool registered = std::any_of(known.begin(), known.end(), [&](MutableBytes m) {
    return data >= m.data() && data + bytes <= m.data() + m.size();
  });
  EXPECT_TRUE(registered) << "device memory that the transport does not know";
  return true;
}

void SessionNetwork::borrow(const std::byte* data, uint64_t bytes, bool exclusive) {
  const auto after = borrowed_.upper_bound(data);
  const bool next = after != borrowed_.end() && after->first < data + bytes;
  const bool before = after != borrowed_.begin() && std::prev(after)->first + std::prev(after)->second > data;
  EXPECT_FALSE(next || before) << "memory of a transfer was used again before its token ended";
  if (exclusive) borrowed_[data] = bytes;
}

void SessionNetwork::give_back(const std::byte* data) { borrowed_.erase(data); }

Code SessionNetwork::send(Node node, uint64_t id, ConstBytes message) {
  End& end = ends_.at(id);
  EXPECT_EQ(end.node, node);
  if (!end.open || end.told) return Code::stale_handle;
  if (end.full) return Code::again;
  if (chance(faults.full)) {
    end.full = true;
    later([this, id] { drained(id); });
    return Code::again;
  }
  std::vector<std::byte> sent(message.begin(), message.end());
  // Removes the ways from OPEN and ACCEPT.
  const auto type = static_cast<cluster::session::Type>(message[0]);
  const size_t at = type == cluster::session::Type::open ? 54 : type == cluster::session::Type::accept ? 38 : 0;
  if (!apart && at != 0) sent[at] &= ~std::byte{cluster::session::kWayApart};
  // Removes the ways from each entry of a PULL, too.
  const bool pull = whole && type == cluster::session::Type::pull;
  for (size_t i = 47; pull && i < sent.size(); i += 40) sent[i] &= ~std::byte{cluster::session::kWayApart};
  if (chance(faults.drop)) {
    ++meddled_;
    return Code::ok;
  }
  enqueue(end.other, sent);
  if (chance(faults.repeat)) {
    ++meddled_;
    enqueue(end.other, sent);
  }
  return Code::ok;
}

void SessionNetwork::enqueue(uint64_t id, ConstBytes message) {
  auto& inbox = ends_.at(id).inbox;
  const bool early = !inbox.empty() && chance(faults.exchange);
  meddled_ += early ? 1 : 0;
  inbox.emplace(early ? std::prev(inbox.end()) : inbox.end(), message.begin(), message.end());
  later([this, id] { deliver(id); });
}

void SessionNetwork::drained(uint64_t id) {
  End& end = ends_.at(id);
  if (wait_if_frozen(end, [this, id] { drained(id); })) return;
  end.full = false;
  if (end.open && !end.told) nodes_[end.node].peer->on_writable(id);
}

void SessionNetwork::deliver(uint64_t id) {
  End& end = ends_.at(id);
  if (!end.open || end.inbox.empty()) return;
  if (wait_if_frozen(end, [this, id] { deliver(id); })) return;
  const std::vector<std::byte> message = std::move(end.inbox.front());
  end.inbox.pop_front();
  sim_.note("message", message.size());
  nodes_[end.node].peer->on_message(id, message);
}

Code SessionNetwork::post(Node node, uint64_t id, uint64_t tag, MutableBytes to, uint64_t token) {
  End& end = ends_.at(id);
  EXPECT_EQ(end.node, node);
  if (!end.open || end.told) return Code::stale_handle;
  if (chance(faults.refuse)) {
    later([this, id] { drained(id); });
    return Code::again;
  }
  EXPECT_EQ(end.posts.count(tag), 0u);
  (void)on_device(node, to.data(), to.size());
  borrow(to.data(), to.size(), true);
  end.posts[tag] = {to.data(), to.size(), token, false, false};
  return Code::ok;
}

Code SessionNetwork::push(Node node, uint64_t id, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) {
  if (faults.closed) return Code::closed;
  End& end = ends_.at(id);
  EXPECT_EQ(end.node, node);
  if (!end.open || end.told) return Code::stale_handle;
  // The first piece is staging; the others may be engine memory, which several pushes may read.
  for (const ConstBytes p : pieces) borrow(p.data(), p.size(), p.data() == pieces[0].data());
  end.pushes[token] = {tag, token, {pieces.begin(), pieces.end()}, false};
  later([this, id, token] { move(id, token, 0); });
  return Code::ok;
}

// Phase 0: begins a transfer and writes a part of the posted memory. Phase 1: ends it.
void SessionNetwork::move(uint64_t id, uint64_t token, int phase) {
  End& from = ends_.at(id);
  if (!from.open || from.pushes.count(token) == 0) return;
  End& to = ends_.at(from.other);
  if (wait_if_frozen(from, [this, id, token, phase] { move(id, token, phase); })) return;
  if (wait_if_frozen(to, [this, id, token, phase] { move(id, token, phase); })) return;
  Push& push = from.pushes.at(token);
  const auto post = to.posts.find(push.tag);
  if (phase == 0) {
    push.started = true;
    if (post != to.posts.end()) {
      post->second.busy = true;
      const uint64_t part = sim_.random().below(post->second.bytes + 1);
      std::memset(post->second.data, 0xAB, part);
    }
    later([this, id, token] { move(id, token, 1); });
    return;
  }
  Push done = std::move(push);
  from.pushes.erase(token);
  finish_move(id, std::move(done));
}

void SessionNetwork::finish_move(uint64_t id, Push push) {
  End& from = ends_.at(id);
  const uint64_t to_id = from.other;
  End& to = ends_.at(to_id);
  if (on_device(from.node, push.pieces.back().data(), push.pieces.back().size()) &&
      chance(nodes_[from.node].direct.fails)) {
    give_back(push.pieces[0].data());
    if (const auto begun = to.posts.find(push.tag); begun != to.posts.end()) {
      begun->second.busy = false;
      if (begun->second.cancelled) later([this, to_id, tag = push.tag] { end_cancelled(to_id, tag); });
    }
    if (!from.told) nodes_[from.node].peer->on_pushed(id, push.token, Code::closed);
    return;
  }
  const auto it = to.posts.find(push.tag);
  if (it != to.posts.end()) {
    const Post post = it->second;
    to.posts.erase(it);
    uint64_t size = 0;
    for (const ConstBytes p : push.pieces) size += p.size();
    Code code = size <= post.bytes ? Code::ok : Code::mismatch;
    if (code == Code::ok) {
      uint64_t at = 0;
      for (const ConstBytes p : push.pieces) {
        std::memcpy(post.data + at, p.data(), p.size());
        at += p.size();
      }
      if (chance(faults.garble)) {
        ++garbled_;
        if (sim_.random().below(4) == 0) {
          size -= 1 + sim_.random().below(size);
        } else {
          post.data[sim_.random().below(size)] ^= static_cast<std::byte>(1 + sim_.random().below(255));
        }
      }
    }
    if (on_device(to.node, post.data, post.bytes) && chance(nodes_[to.node].direct.fails)) code = Code::closed;
    if (post.cancelled && sim_.random().below(2) == 0) code = Code::cancelled;
    give_back(post.data);
    if (!to.told) nodes_[to.node].peer->on_received(to_id, post.token, code, code == Code::ok ? size : 0);
  }
  give_back(push.pieces[0].data());
  if (!ends_.at(id).told) nodes_[ends_.at(id).node].peer->on_pushed(id, push.token, Code::ok);
}

void SessionNetwork::cancel(uint64_t id, uint64_t token) {
  End& end = ends_.at(id);
  if (!end.open) return;
  for (auto& [tag, post] : end.posts) {
    if (post.token != token) continue;
    post.cancelled = true;
    if (!post.busy) later([this, id, t = tag] { end_cancelled(id, t); });
    return;
  }
  const auto push = end.pushes.find(token);
  if (push == end.pushes.end() || push->second.started) return;
  const std::byte* data = push->second.pieces[0].data();
  end.pushes.erase(push);
  later([this, id, token, data] {
    if (ends_.at(id).told) return;
    give_back(data);
    nodes_[ends_.at(id).node].peer->on_pushed(id, token, Code::cancelled);
  });
}

void SessionNetwork::end_cancelled(uint64_t id, uint64_t tag) {
  End& end = ends_.at(id);
  const auto it = end.posts.find(tag);
  if (it == end.posts.end() || it->second.busy) return;  // begun meanwhile: it ends when that ends
  const Post post = it->second;
  end.posts.erase(it);
  std::memset(post.data, 0xCD, post.bytes);
  give_back(post.data);
  if (!end.told) nodes_[end.node].peer->on_received(id, post.token, Code::cancelled, 0);
}

void SessionNetwork::cut(uint64_t id) {
  for (const uint64_t side : {id, ends_.at(id).other}) {
    End& end = ends_.at(side);
    if (!end.open) continue;
    end.open = false;
    end.inbox.clear();
    later([this, side] { drain(side); });
  }
}

// Ends the tokens of a closed connection one by one, then reports the end.
void SessionNetwork::drain(uint64_t id) {
  End& end = ends_.at(id);
  if (end.told) return;
  if (wait_if_frozen(end, [this, id] { drain(id); })) return;
  if (!end.posts.empty()) {
    const Post post = end.posts.begin()->second;
    end.posts.erase(end.posts.begin());
    std::memset(post.data, 0xEF, post.bytes);
    give_back(post.data);
    nodes_[end.node].peer->on_received(id, post.token, Code::closed, 0);
  } else if (!end.pushes.empty()) {
    const uint64_t token = end.pushes.begin()->first;
    give_back(end.pushes.begin()->second.pieces[0].data());
    end.pushes.erase(end.pushes.begin());
    nodes_[end.node].peer->on_pushed(id, token, Code::closed);
  } else {
    end.told = true;
    sim_.note("closed", id);
    nodes_[end.node].peer->on_closed(id);
    return;
  }
  later([this, id] { drain(id); });
}

void SessionNetwork::kill(Node node) {
  nodes_[node].frozen = false;
  for (auto& [id, end] : ends_) {
    if (end.node != node || end.told) continue;
    const bool open = end.open;
    end.open = false;
    end.told = true;
    for (const auto& [tag, post] : end.posts) give_back(post.data);
    for (const auto& [token, push] : end.pushes) give_back(push.pieces[0].data());
    end.posts.clear();
    end.pushes.clear();
    end.inbox.clear();
    if (open && ends_.at(end.other).open) {
      ends_.at(end.other).open = false;
      later([this, other = end.other] { drain(other); });
    }
  }
}

std::vector<uint64_t> SessionNetwork::open_connections() const {
  std::vector<uint64_t> out;
  for (const auto& [id, end] : ends_) {
    if (end.open && id < end.other) out.push_back(id);
  }
  return out;
}

}  // namespace kvbm::test

#include "support/link_world.h"
#include "support/opaque_leaves.h"

#include <algorithm>

#include "codec/hash/leaf_hash.h"
#include "copy/transport_abi.h"

namespace kvbm::test {

using cluster::PeerLink;

void NodeExecutor::post_at(uint64_t when_ns, Task task) {
  auto shared = std::make_shared<Task>(std::move(task));
  sim_.post_at(when_ns, [this, shared] {
    if (frozen_) {
      waiting_.push_back(shared);
    } else {
      (*shared)();
    }
  });
}

void NodeExecutor::thaw() {
  frozen_ = false;
  std::vector<std::shared_ptr<Task>> waiting;
  waiting.swap(waiting_);
  // Runs the tasks in the order of their arrival, as a process that was stopped finds bytes in its sockets.
  for (auto& task : waiting) {
    if (frozen_) {
      waiting_.push_back(task);
    } else {
      (*task)();
    }
  }
}

Key SimSource::key_of(uint64_t number) {
  Key key;
  SeededRandom random(number * 77 + 5);
  random.fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

Identity SimSource::identity_of(FamilyTable& families, uint64_t number) {
  Family family;
  family.ns.bytes[0] = static_cast<uint8_t>(number % 3);
  family.shard = {0, 4, 0, static_cast<uint16_t>(1 + number % 3), 0};
  return {key_of(number), families.intern(family).value()};
}

std::vector<std::byte> SimSource::payload_of(uint64_t number, size_t bytes) {
  std::vector<std::byte> out(bytes);
  SeededRandom random(number ^ 0xABCDEF);
  random.fill(out);
  if (number >= kCompressible) {
    for (size_t i = 0; i < bytes; i += 2) out[i] = out[i] & std::byte{0x03};
  }
  return out;
}

void SimSource::put(uint64_t number, size_t payload_bytes) {
  const Identity id = identity_of(families_, number);
  if (records_.count(id) != 0) return;
  Record record;
  record.payload = payload_of(number, payload_bytes);
  std::vector<codec::Leaf> leaves = test::opaque_leaves(payload_bytes);
  for (codec::Leaf& leaf : leaves)
    leaf.hash = codec::leaf_hash(ConstBytes(record.payload).subspan(leaf.offset, leaf.stored_bytes));
  const Family& family = families_.get(id.family);
  codec::Header header;
  header.flags = codec::kOpaque;
  header.ns = family.ns;
  header.key = id.key;
  header.component = family.component;
  header.shard = family.shard;
  header.geometry = family.geometry;
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  header.raw_bytes = header.stored_bytes = payload_bytes;
  record.head.resize(codec::head_bytes(header.leaf_count, 0));
  (void)codec::encode_head(header, leaves, {}, record.head).ok();
  records_[id] = std::move(record);
}

void SimSource::drop(std::map<Identity, Record>::iterator at) {
  for (auto* bytes : {&at->second.head, &at->second.payload}) {
    std::fill(bytes->begin(), bytes->end(), std::byte{0xDD});
    graveyard_.push_back(std::move(*bytes));
  }
  records_.erase(at);
}

void SimSource::evict(uint64_t number) {
  const auto at = records_.find(identity_of(families_, number));
  if (at == records_.end()) return;
  at->second.leaving = true;
  if (at->second.holds == 0) drop(at);
}

void SimSource::drop_hold(std::map<Identity, Record>::iterator at) {
  if (--at->second.holds == 0 && at->second.leaving) drop(at);
}

uint64_t SimSource::holds() const {
  uint64_t n = 0;
  for (const auto& [id, record] : records_) n += record.holds;
  return n;
}

void SimSource::find(std::span<const Identity> ids, std::span<cluster::wire::FoundItem> out) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto at = records_.find(ids[i]);
    out[i] = {};
    if (at == records_.end() || at->second.leaving) continue;
    out[i] = {1, 0, static_cast<uint32_t>(at->second.head.size()), at->second.payload.size(), 7};
  }
}

bool SimSource::pin(const Identity& id) {
  const auto at = records_.find(id);
  if (at == records_.end() || at->second.leaving) return false;
  ++at->second.holds;
  return true;
}

void SimSource::unpin(const Identity& id) { drop_hold(records_.find(id)); }

void SimSource::open(const Identity& id, uint64_t, uint32_t first_leaf, uint32_t leaves, uint64_t,
                     UniqueFunction<void(const cluster::OpenedRecord&)> done) {
  auto answer = [this, id, first_leaf, leaves, done = std::move(done)]() mutable {
    auto at = records_.find(id);
    if (at != records_.end() && static_cast<double>(sim_.random().below(1000)) < wrong_record * 1000)
      at = records_.begin();
    cluster::OpenedRecord opened;
    if (at != records_.end()) {
      const auto head = codec::HeadView::parse(at->second.head);
      const auto range = cluster::leaves_range(head.value(), first_leaf, leaves);
      opened.code = range.status().code();
      if (range.ok()) {
        ++at->second.holds;
        opened.head = at->second.head;
        opened.payload = ConstBytes(at->second.payload).subspan(range.value().offset, range.value().bytes);
        opened.pin = next_pin_++;
        opened_[opened.pin] = at->first;
      }
    }
    done(opened);
  };
  if (max_open_ns == 0 || sim_.random().below(4) == 0) {
    answer();
  } else {
    executor_.post_at(sim_.clock().now_ns() + sim_.random().below(max_open_ns), std::move(answer));
  }
}

void SimSource::close(uint64_t pin) {
  const auto at = opened_.find(pin);
  drop_hold(records_.find(at->second));
  opened_.erase(at);
}

cluster::wire::NodeStatus SimSource::status() { return {0, 1 << 30, 1 << 20, 1 << 30, records_.size(), 0}; }

void SimSource::invalidate(std::vector<cluster::EpochWord> words, uint32_t may_add,
                           UniqueFunction<void(std::vector<cluster::EpochWord>)> done) {
  epoch_batches.push_back(words.size());
  HeldEpochs held{std::move(words), may_add, std::move(done)};
  if (holds_epochs) {
    held_epochs_.push_back(std::move(held));
  } else {
    take(std::move(held));
  }
}

void SimSource::answer_epochs() {
  std::vector<HeldEpochs> all;
  all.swap(held_epochs_);
  for (HeldEpochs& held : all) take(std::move(held));
}

// Not used here; values far above are implausible.
void SimSource::take(HeldEpochs held) {
  for (cluster::EpochWord& word : held.words) {
    const auto at = epochs.find(word.base);
    word.known = at == epochs.end() ? 0 : at->second;
    if (word.epoch > word.known + (uint64_t{1} << 32)) {
      word.code = Code::invalid_argument;
    } else if (word.epoch > word.known && at == epochs.end() && held.may_add == 0) {
      word.code = Code::at_limit;
    } else if (word.epoch > word.known) {
      word.added = at == epochs.end();
      held.may_add -= word.added ? 1 : 0;
      epochs[word.base] = word.known = word.epoch;
    }
  }
  held.done(std::move(held.words));
}

class SimPort final : public cluster::PeerPort {
 public:
  SimPort(std::shared_ptr<SimConnection> connection, int end) : connection_(std::move(connection)), end_(end) {}
  Code send(ConstBytes message) override { return connection_->send(end_, message); }
  Code post(uint64_t tag, MutableBytes to, uint64_t& token) override { return connection_->post(end_, tag, to, token); }
  Code push(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) override {
    return connection_->push(end_, tag, pieces, token);
  }
  void cancel(uint64_t token) override { connection_->cancel(end_, token); }
  void admit() override { connection_->ends_[end_].admitted = true; }
  // Records no protection, because these links have none.
  Code protect(copy::Protection, const cluster::ChannelKeys&) override { return Code::unsupported; }
  void disconnect(bool) override {
    if (!connection_->ends_[end_].ending) connection_->cut();
  }

 private:
  std::shared_ptr<SimConnection> connection_;
  int end_;
};

std::unique_ptr<cluster::PeerPort> SimConnection::port(int end) {
  return std::make_unique<SimPort>(shared_from_this(), end);
}

uint64_t SimConnection::delay() {
  return sim_.clock().now_ns() + faults_.min_delay_ns +
         sim_.random().below(faults_.max_delay_ns - faults_.min_delay_ns);
}

void SimConnection::at_end(int end, uint64_t when_ns, UniqueFunction<void(PeerLink&)> fn) {
  ends_[end].executor->post_at(when_ns, [self = shared_from_this(), end, fn = std::move(fn)]() mutable {
    const auto link = self->ends_[end].link.lock();
    if (link != nullptr && !self->ends_[end].closed) fn(*link);
  });
}

void SimConnection::start() {
  at_end(0, delay(), [](PeerLink& link) { link.connected(); });
}

Code SimConnection::send(int end, ConstBytes message) {
  End& here = ends_[end];
  End& there = ends_[1 - end];
  if (here.ending) return Code::closed;
  const bool large = message.size() > KVBM_TRANSPORT_STRANGER_BYTES;
  if (large && !here.admitted) ++broken_rules_;
  if (here.blocked) return Code::again;
  if (static_cast<double>(sim_.random().below(10000)) < faults_.refuse_send * 10000) {
    here.blocked = true;
    at_end(end, delay(), [self = shared_from_this(), end](PeerLink& link) {
      self->ends_[end].blocked = false;
      link.writable();
    });
    return Code::again;
  }
  auto bytes = std::make_shared<std::vector<std::byte>>(message.begin(), message.end());
  if (!bytes->empty() && static_cast<double>(sim_.random().below(100000)) < faults_.garble_message * 100000) {
    (*bytes)[sim_.random().below(bytes->size())] ^= static_cast<std::byte>(1U << sim_.random().below(8));
  }
  there.last_ns = std::max(there.last_ns + 1, delay());
  at_end(1 - end, there.last_ns, [self = shared_from_this(), end, bytes, large](PeerLink& link) {
    End& to = self->ends_[1 - end];
    if (to.ending) return;
    if (large && !to.admitted) ++self->broken_rules_;
    link.message(*bytes);
  });
  return Code::ok;
}

Code SimConnection::post(int end, uint64_t tag, MutableBytes to, uint64_t& token) {
  if (ends_[end].ending) return Code::closed;
  if (ends_[end].posts.count(tag) != 0) return Code::exists;
  token = next_token_++;
  ends_[end].posts[tag] = {to, token, false, false};
  return Code::ok;
}

Code SimConnection::push(int end, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) {
  if (ends_[end].ending) return Code::closed;
  if (!ends_[end].admitted) return Code::wrong_state;
  token = next_token_++;
  ends_[end].pushes[token] = false;
  auto bulk = std::make_shared<Bulk>(Bulk{tag, token, {pieces.begin(), pieces.end()}});
  at_end(1 - end, delay(), [self = shared_from_this(), end, bulk](PeerLink&) { self->begin_bulk(end, bulk); });
  return Code::ok;
}

void SimConnection::finish_push(int end, uint64_t token, Code code) {
  at_end(end, delay(), [self = shared_from_this(), end, token, code](PeerLink& link) {
    if (self->ends_[end].pushes.erase(token) != 0) link.pushed(token, code);
  });
}

void SimConnection::finish_post(int end, uint64_t tag, Code code, uint64_t bytes) {
  End& here = ends_[end];
  const auto at = here.posts.find(tag);
  if (at == here.posts.end()) return;
  const uint64_t token = at->second.token;
  here.posts.erase(at);
  if (const auto link = here.link.lock()) link->received(token, code, code == Code::ok ? bytes : 0);
}

// Moves the first half of the bytes now, and the rest later, out of the source as it is then.
void SimConnection::begin_bulk(int from, std::shared_ptr<Bulk> bulk) {
  End& source = ends_[from];
  End& target = ends_[1 - from];
  const auto push = source.pushes.find(bulk->token);
  if (push == source.pushes.end() || target.ending) return;
  push->second = true;
  const auto post = target.posts.find(bulk->tag);
  if (post == target.posts.end() || post->second.cancelled) return finish_push(from, bulk->token, Code::ok);
  uint64_t total = 0;
  for (const ConstBytes piece : bulk->pieces) total += piece.size();
  if (total > post->second.to.size()) {
    finish_post(1 - from, bulk->tag, Code::mismatch, 0);
    return finish_push(from, bulk->token, Code::ok);
  }
  post->second.busy = true;
  std::copy(bulk->pieces[0].begin(), bulk->pieces[0].end(), post->second.to.begin());
  at_end(1 - from, delay(), [self = shared_from_this(), from, bulk](PeerLink&) { self->end_bulk(from, bulk); });
}

void SimConnection::end_bulk(int from, const std::shared_ptr<Bulk>& bulk) {
  End& source = ends_[from];
  End& target = ends_[1 - from];
  const auto post = target.posts.find(bulk->tag);
  if (post == target.posts.end() || source.pushes.count(bulk->token) == 0) return;
  MutableBytes to = post->second.to;
  uint64_t at = 0;
  for (size_t i = 0; i < bulk->pieces.size(); ++i) {
    if (i > 0) std::copy(bulk->pieces[i].begin(), bulk->pieces[i].end(), to.begin() + static_cast<std::ptrdiff_t>(at));
    at += bulk->pieces[i].size();
  }
  if (static_cast<double>(sim_.random().below(10000)) < faults_.garble_bulk * 10000) {
    to[sim_.random().below(at)] ^= static_cast<std::byte>(1U << sim_.random().below(8));
  }
  const bool cancelled = post->second.cancelled;
  finish_post(1 - from, bulk->tag, cancelled ? Code::cancelled : Code::ok, at);
  finish_push(from, bulk->token, Code::ok);
}

void SimConnection::cancel(int end, uint64_t token) {
  End& here = ends_[end];
  for (auto& [tag, post] : here.posts) {
    if (post.token != token) continue;
    post.cancelled = true;
    // A record that is being written ends with the write.
    if (post.busy) return;
    at_end(end, sim_.clock().now_ns() + 1000, [self = shared_from_this(), end, tag = tag](PeerLink&) {
      const auto at = self->ends_[end].posts.find(tag);
      if (at != self->ends_[end].posts.end() && !at->second.busy) self->finish_post(end, tag, Code::cancelled, 0);
    });
    return;
  }
  const auto push = here.pushes.find(token);
  if (push != here.pushes.end() && !push->second) {
    at_end(end, sim_.clock().now_ns() + 1000, [self = shared_from_this(), end, token](PeerLink& link) {
      const auto at = self->ends_[end].pushes.find(token);
      if (at == self->ends_[end].pushes.end() || at->second) return;
      self->ends_[end].pushes.erase(at);
      link.pushed(token, Code::cancelled);
    });
  }
}

void SimConnection::cut() {
  for (int end = 0; end < 2; ++end) {
    if (ends_[end].ending) continue;
    at_end(end, delay(), [self = shared_from_this(), end](PeerLink&) { self->close_end(end); });
  }
  for (End& end : ends_) end.ending = true;
}

void SimConnection::close_end(int end) {
  End& here = ends_[end];
  const auto link = here.link.lock();
  if (here.closed || link == nullptr) return;
  while (!here.posts.empty()) finish_post(end, here.posts.begin()->first, Code::closed, 0);
  while (!here.pushes.empty()) {
    const uint64_t token = here.pushes.begin()->first;
    here.pushes.erase(here.pushes.begin());
    link->pushed(token, Code::closed);
  }
  here.closed = true;
  link->closed({Code::owner_gone, "peer: the connection was cut"});
}

uint64_t SimConnection::unfinished() const {
  uint64_t n = 0;
  for (const End& end : ends_) n += end.posts.size() + end.pushes.size();
  return n;
}

}  // namespace kvbm::test

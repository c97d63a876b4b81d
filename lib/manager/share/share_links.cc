#include "manager/share/share_links.h"

#include <utility>

namespace kvbm::manager {

namespace {
// Retry interval of a message while the link is full, and the time limit of one that no caller waits for.
constexpr uint64_t kAgainNs = 1'000'000;
constexpr uint64_t kAnswerNs = 2'000'000'000;
}  // namespace

ShareLinks::ShareLinks(cluster::NodeFacts self, cluster::LinkLimits limits, FamilyTable& families, Random& random,
                       Host& host, const Log* log)
    : self_(std::move(self)), limits_(limits), families_(families), random_(random), host_(host), log_(log) {}

ShareLinks::~ShareLinks() = default;

void ShareLinks::begin(cluster::RecordSource& source) {
  link_host_ = std::make_unique<cluster::LinkHost>(
      cluster::LinkHost{*executor_, random_, families_, source, *this, self_, {}, limits_, log_, "share"});
  hub_ = std::make_unique<cluster::LinkHub>(*link_host_);
  hub_->attach(*transport_);
}

void ShareLinks::dial(const std::string& address) {
  if (ended_ || listening_ || dialled_ != nullptr) return;
  auto link = hub_->connect(address);
  if (!link.ok()) {
    host_.owner_lost(link.status(), false);
    return;
  }
  dialled_ = std::move(link).value();
}

Status ShareLinks::listen(const std::string& address) {
  if (ended_) return {Code::closed, "the tier set is being closed"};
  if (listening_) return {};
  auto bound = transport_->listen(address);
  if (!bound.ok()) return bound.status();
  listening_ = true;
  if (dialled_ != nullptr) dialled_->close();
  return {};
}

void ShareLinks::end() {
  if (std::exchange(ended_, true)) return;
  if (hub_ != nullptr) hub_->close();
}

// ---- Queries ----

void ShareLinks::ask(ShareMessage message, uint64_t deadline_ns, Answered done) {
  if (!connected_) {
    done(Code::owner_gone, 0, {});
    return;
  }
  message.request = ++last_request_;
  asked_.emplace(message.request, std::move(done));
  say(*dialled_, message, deadline_ns, Unsaid::is_dropped);
  if (deadline_ns == kNever) return;
  executor_->post_at(deadline_ns, [this, request = message.request] { answered(request, Code::deadline, 0, {}); });
}

void ShareLinks::answered(uint64_t request, Code code, uint64_t value, std::vector<Key> keys) {
  const auto known = asked_.find(request);
  if (known == asked_.end()) return;
  Answered done = std::move(known->second);
  asked_.erase(known);
  done(code, value, std::move(keys));
}

void ShareLinks::announce(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns,
                          UniqueFunction<void(Code)> done) {
  if (!listening_) {
    if (connected_) {
      dialled_->invalidate(base, epoch, deadline_ns, std::move(done));
    } else {
      done(Code::owner_gone);
    }
    return;
  }
  for (const auto& [node, link] : clients_) link->invalidate(base, epoch, deadline_ns, [](Code) {});
  done(Code::ok);
}

void ShareLinks::say(cluster::PeerLink& link, const ShareMessage& message, uint64_t deadline_ns, Unsaid unsaid) {
  say(link.weak_from_this(), std::make_shared<const std::vector<std::byte>>(encode(message)), deadline_ns, unsaid);
}

void ShareLinks::say(const std::weak_ptr<cluster::PeerLink>& link, std::shared_ptr<const std::vector<std::byte>> bytes,
                     uint64_t deadline_ns, Unsaid unsaid) {
  const auto alive = link.lock();
  if (alive == nullptr || alive->send_session(*bytes) != Code::again) return;
  const uint64_t now = executor_->clock().now_ns();
  if (now >= deadline_ns) {
    if (unsaid == Unsaid::ends_the_link) alive->drop({Code::no_room, "share: it does not take what is said to it"});
    return;
  }
  executor_->post_at(now + kAgainNs, [this, link, bytes = std::move(bytes), deadline_ns, unsaid] {
    say(link, bytes, deadline_ns, unsaid);
  });
}

// ---- Implements cluster::Peers ----

std::vector<cluster::PeerLink*> ShareLinks::ready() const {
  std::vector<cluster::PeerLink*> out;
  if (connected_) out.push_back(dialled_.get());
  for (const auto& [node, link] : clients_) out.push_back(link.get());
  return out;
}

cluster::PeerLink* ShareLinks::link_to(const cluster::NodeId& node) const {
  if (connected_ && dialled_->peer().node == node) return dialled_.get();
  const auto known = clients_.find(node);
  return known == clients_.end() ? nullptr : known->second.get();
}

size_t ShareLinks::homes(const Key& /*key*/, std::span<cluster::PeerLink*> out) const {
  if (!connected_ || out.empty()) return 0;
  out[0] = dialled_.get();
  return 1;
}

// ---- Callbacks of the transport and the links ----

void ShareLinks::peer_accepted(copy::Peer peer, std::string_view address) {
  if (ended_) {
    (void)transport_->disconnect(peer, false);
    return;
  }
  hub_->peer_accepted(peer, address);
}

void ShareLinks::link_ready(cluster::PeerLink& link) {
  if (link.role() == cluster::Role::initiator) return;  // the owner speaks first
  clients_[link.peer().node] = link.shared_from_this();
  say(link, host_.here(), executor_->clock().now_ns() + kAnswerNs, Unsaid::ends_the_link);
  host_.clients_changed(clients_.size());
}

void ShareLinks::link_ended(cluster::PeerLink& link, const Status& why) {
  if (dialled_ != nullptr && dialled_.get() == &link) {
    const bool was_connected = std::exchange(connected_, false);
    executor_->post([last = std::move(dialled_)] {});  // the link is still on the stack
    dialled_ = nullptr;
    std::map<uint64_t, Answered> open;
    open.swap(asked_);
    for (auto& [request, done] : open) done(Code::owner_gone, 0, {});
    host_.owner_lost(why, was_connected);
    return;
  }
  const auto known = clients_.find(link.peer().node);
  if (known == clients_.end() || known->second.get() != &link) return;
  executor_->post([last = known->second] {});
  clients_.erase(known);
  host_.clients_changed(clients_.size());
}

void ShareLinks::link_offered(cluster::PeerLink& link, std::span<const cluster::Offered> items, uint64_t lease,
                              std::vector<uint32_t>& want) {
  if (!ended_ && listening_) host_.offered(link, items, lease, want);
}

void ShareLinks::link_session(cluster::PeerLink& link, ConstBytes bytes) {
  ShareMessage message;
  if (Status s = decode(bytes, message); !s.ok()) {
    link.close();
    return;
  }
  const bool from_owner = dialled_ != nullptr && dialled_.get() == &link;
  if (message.kind == ShareKind::answer || message.kind == ShareKind::here) {
    if (!from_owner) return link.close();
    if (message.kind == ShareKind::answer) {
      return answered(message.request, message.code, message.value, std::move(message.keys));
    }
    if (connected_) return;
    connected_ = host_.owner_found(message, link.peer(), dialled_peer_);
    if (!connected_) link.close();
    return;
  }
  if (from_owner) return link.close();
  host_.asked(message, [this, weak = link.weak_from_this(), request = message.request](Code code, uint64_t value,
                                                                                       std::vector<Key> keys) {
    const auto alive = weak.lock();
    if (alive == nullptr || request == 0) return;
    ShareMessage answer;
    answer.code = code;
    answer.request = request;
    answer.value = value;
    answer.keys = std::move(keys);
    say(*alive, answer, executor_->clock().now_ns() + kAnswerNs, Unsaid::ends_the_link);
  });
}

}  // namespace kvbm::manager

#include "cluster/link/link_hub.h"

#include <algorithm>

namespace kvbm::cluster {

Code TransportPort::push(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) {
  kvbm_transport_piece_t out[72];  // a session sends 65 at most, if it sends engine memory without copying
  if (pieces.size() > std::size(out)) return Code::invalid_argument;
  for (size_t i = 0; i < pieces.size(); ++i) out[i] = {pieces[i].data(), pieces[i].size()};
  return transport_.push(peer_, tag, out, pieces.size(), token);
}

std::shared_ptr<PeerLink> LinkHub::link(copy::Peer peer) const {
  const auto found = links_.find(peer);
  return found == links_.end() ? nullptr : found->second.link;
}

Result<std::shared_ptr<PeerLink>> LinkHub::connect(const std::string& address, std::optional<NodeId> expected) {
  const auto peer = transport_->connect(address);
  if (!peer.ok()) return peer.status();
  auto link =
      PeerLink::create(host_, std::make_unique<TransportPort>(*transport_, peer.value()), Role::initiator, expected);
  links_[peer.value()] = {link, {}};
  return link;
}

std::shared_ptr<PeerLink> LinkHub::find(const NodeId& node) const {
  std::shared_ptr<PeerLink> best;
  const Role preferred = host_.self.node < node ? Role::initiator : Role::responder;
  for (const auto& [peer, entry] : links_) {
    const std::shared_ptr<PeerLink>& link = entry.link;
    if (link->state() != PeerLink::State::ready || link->peer().node != node) continue;
    if (best == nullptr || link->role() == preferred) best = link;
  }
  return best;
}

void LinkHub::close() {
  const auto all = links_;
  for (const auto& [peer, entry] : all) entry.link->close();
}

void LinkHub::peer_accepted(copy::Peer peer, std::string_view address) {
  size_t strangers = 0;
  std::shared_ptr<PeerLink> oldest;
  for (const auto& [other, entry] : links_) {
    const std::shared_ptr<PeerLink>& link = entry.link;
    if (link->role() != Role::responder || !link->is_stranger()) continue;
    if (oldest == nullptr || link->born_ns() < oldest->born_ns()) oldest = link;
    ++strangers;
  }
  if (strangers >= kMaxStrangers) {
    ++refused_strangers_;
    oldest->drop({Code::no_room, "peer: others wanted to connect, and it had not finished the handshake"});
  }
  auto link = PeerLink::create(host_, std::make_unique<TransportPort>(*transport_, peer), Role::responder);
  links_[peer] = {std::move(link), std::string(address)};
}

void LinkHub::peer_connected(copy::Peer peer) {
  if (const auto link = this->link(peer)) link->connected();
}

void LinkHub::peer_message(copy::Peer peer, ConstBytes bytes) {
  if (const auto link = this->link(peer)) link->message(bytes);
}

void LinkHub::peer_writable(copy::Peer peer) {
  if (const auto link = this->link(peer)) link->writable();
}

void LinkHub::pushed(copy::Peer peer, copy::Token token, Code status) {
  if (const auto link = this->link(peer)) link->pushed(token, status);
}

void LinkHub::arrived(copy::Peer peer, copy::Token token, uint64_t bytes) {
  if (const auto link = this->link(peer)) link->arrived(token, bytes);
}

void LinkHub::received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) {
  if (const auto link = this->link(peer)) link->received(token, status, bytes);
}

bool LinkHub::is_own(const PeerLink& link) const {
  const Handshake::HelloNonce& nonce = link.hello_nonce();
  if (nonce == Handshake::HelloNonce{}) return false;
  if (std::find(own_hellos_.begin(), own_hellos_.end(), nonce) != own_hellos_.end()) return true;
  return std::any_of(links_.begin(), links_.end(), [&](const auto& other) {
    return other.second.link->role() != link.role() && other.second.link->hello_nonce() == nonce;
  });
}

void LinkHub::peer_closed(copy::Peer peer, const Status& status) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const Entry entry = std::move(found->second);
  links_.erase(found);
  PeerLink& link = *entry.link;
  link.closed(status);
  if (link.role() == Role::responder && is_own(link)) {
    own_hellos_[next_own_++ % own_hellos_.size()] = link.hello_nonce();
    return;
  }
  if (link.role() != Role::responder || link.proven() || !is_refusal(link.why().code())) return;
  strangers_.refused(entry.from, link.peer().node, link.peer().pool, link.why(), host_.executor.clock().now_ns());
}

}  // namespace kvbm::cluster

#include "cluster/mesh/mesh.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvbm::cluster {

namespace {

// Returns true if a peer connected and was refused for its identity or protocol; false if it left, or was too slow.
bool not_let_in(Code why) noexcept {
  return why != Code::ok && why != Code::closed && why != Code::owner_gone && why != Code::deadline &&
         why != Code::no_room && why != Code::at_limit && why != Code::no_memory;
}

// Returns true if a difference of the two sides caused the refusal (Handshake::check_peer): a retry is useless.
bool keeps_apart(Code why) noexcept {
  return why == Code::newer_version || why == Code::not_permitted || why == Code::mismatch;
}

// Replaces "peer: ", the start of all refusals: rows have little space.
std::string refusal_of(const std::string& failure) {
  constexpr std::string_view kPeer = "peer: ";
  return "refused: " + (failure.starts_with(kPeer) ? failure.substr(kPeer.size()) : failure);
}

// Use of an address: a listening node may give port 0, which takes a free one.
enum class Use : uint8_t { listen, dial };

// Checks an address. Names are not looked up here, whichever transport carries the links: a library must not block
// for that.
Status check_place(const char* option, const std::string& address, Use use) {
  const bool any_port = use == Use::listen && address.ends_with(":0");
  const Status form = check_address(any_port ? address.substr(0, address.size() - 1) + "1" : address);
  if (!form.ok()) {
    return {Code::bad_config, "an address is HOST:PORT, as in 127.0.0.1:7000 or [::1]:7000",
            std::string(option) + " is \"" + address + "\": " + form.what()};
  }
  const std::string host = address.substr(0, address.rfind(':'));
  const bool number = host.front() == '[' || host.find_first_not_of("0123456789.") == std::string::npos;
  if (number || host == "localhost") return {};
  return {Code::bad_config, "names of hosts are not looked up: give the number, as in 10.0.0.7:7000",
          std::string(option) + " is \"" + address + "\""};
}

const char* said_of(copy::Protection how) noexcept {
  switch (how) {
    case copy::Protection::authenticate:
      return "authenticated";
    case copy::Protection::encrypt:
      return "encrypted";
    default:
      return "unprotected";
  }
}

// Returns why no connection to the address is allowed; null if one is.
const char* not_beyond(const MeshOptions& options, const std::string& address) {
  if (only_this_machine(address)) return nullptr;
  if (!options.key) return "it is on another machine, which needs a key: set node.key_file";
  if (options.self.protect != copy::Protection::off || options.unprotected_beyond) return nullptr;
  return "it is on another machine, and node.protect is off: set it to authenticate, or node.trusted_network=on if "
         "only "
         "this pool can change what crosses that network";
}

void add_to(MeshCounts& counts, const LinkStats& link) noexcept {
  counts.violations += link.violations;
  counts.damaged += link.damaged + link.wrong_records;
  counts.epochs_refused += link.epochs_refused;
  counts.epochs_put_off += link.epochs_put_off;
  counts.leases_short += link.leases_short;
}

// Time limit for a node to report what it offers.
constexpr uint64_t kStatusNs = 2'000'000'000;
// A peer is sent kEpochsAtOnce epochs at once. An epoch that it had no time for is sent again after kEpochAgainNs.
constexpr size_t kEpochsAtOnce = 32;
constexpr uint64_t kEpochAgainNs = 100'000'000;
constexpr uint64_t kMaxEpochToTell = uint64_t{1} << 63;  // peers refuse a higher one

// Sends epochs to one peer, one after the other.
struct EpochTelling : std::enable_shared_from_this<EpochTelling> {
  std::weak_ptr<PeerLink> link;
  Executor* executor = nullptr;
  std::vector<NamespaceEpoch> epochs;
  size_t next = 0;

  void tell_next() {
    while (next < epochs.size() && epochs[next].epoch > kMaxEpochToTell) ++next;
    if (next < epochs.size()) tell(epochs[next++]);
  }
  // Has no deadline: a live link will handle it, and a link that ends is replaced by another.
  void tell(const NamespaceEpoch& one) {
    const auto alive = link.lock();
    if (alive == nullptr || alive->state() != PeerLink::State::ready) return;
    alive->invalidate(one.base, one.epoch, kNever, [self = shared_from_this(), one](Code code) {
      if (code != Code::again) return self->tell_next();
      self->executor->post_at(self->executor->clock().now_ns() + kEpochAgainNs, [self, one] { self->tell(one); });
    });
  }
};

}  // namespace

bool only_this_machine(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:");
}

Status check_mesh_options(const MeshOptions& options) {
  // Checks the form first: a mistyped address must not be reported as a missing key.
  if (!options.listen.empty()) {
    if (Status s = check_place("node.listen", options.listen, Use::listen); !s.ok()) return s;
  }
  for (const std::string& peer : options.peers) {
    if (Status s = check_place("node.peers", peer, Use::dial); !s.ok()) return s;
  }
  if (!options.listen.empty() && !options.key && !only_this_machine(options.listen)) {
    return {Code::bad_config, "node.listen is open to other machines and there is no key",
            options.listen + ": set node.key_file, or listen on 127.0.0.1 for this user's processes alone"};
  }
  for (const std::string& peer : options.peers) {
    if (!options.key && !only_this_machine(peer)) {
      return {Code::bad_config, "a peer on another machine needs a key", peer + ": set node.key_file"};
    }
  }
  if (!options.key && options.self.protect != copy::Protection::off) {
    return {Code::bad_config, "node.protect needs a key", "set node.key_file (kvbm key new makes one)"};
  }
  std::vector<std::string> addresses = options.peers;
  if (!options.listen.empty()) addresses.push_back(options.listen);
  for (const std::string& address : addresses) {
    if (not_beyond(options, address) == nullptr) continue;
    return {Code::bad_config, "node.protect is off and links leave this machine",
            address +
                ": set node.protect=authenticate, or node.trusted_network=on if only this pool can change what "
                "crosses that network"};
  }
  return {};
}

Mesh::Mesh(MeshOptions options, FamilyTable& families, Random& random, const Log* log)
    : options_(std::move(options)), families_(families), random_(random), log_(log) {}

Mesh::~Mesh() = default;

Status Mesh::begin(RecordSource& source) {
  if (Status s = check_mesh_options(options_); !s.ok()) return s;
  if (options_.self.protect != copy::Protection::off && (transport_->features() & KVBM_TRANSPORT_PROTECT) == 0) {
    return {Code::bad_config, "what carries the links cannot protect them", transport_->describe()};
  }
  if (!options_.key && (transport_->features() & KVBM_TRANSPORT_OWN_USER) == 0) {
    return {Code::bad_config, "what carries the links cannot tell which user owns a peer",
            transport_->describe() + ": set node.key_file"};
  }
  host_ = std::make_unique<LinkHost>(
      LinkHost{*executor_, random_, families_, source, *this, options_.self, options_.key, options_.limits, log_});
  hub_ = std::make_unique<LinkHub>(*host_);
  hub_->attach(*transport_);
  if (!options_.listen.empty()) {
    auto bound = transport_->listen(options_.listen);
    if (!bound.ok()) return bound.status();
    address_ = std::move(bound).value();
  }
  for (const std::string& address : options_.peers) add_target({address}, {});
  return {};
}

void Mesh::end() {
  if (std::exchange(ended_, true)) return;
  if (hub_ != nullptr) hub_->close();
}

std::vector<PeerLink*> Mesh::ready() const {
  std::vector<PeerLink*> out;
  for (const auto& [node, link] : ready_) out.push_back(link);
  return out;
}

PeerLink* Mesh::link_to(const NodeId& node) const {
  const auto known = ready_.find(node);
  return known == ready_.end() ? nullptr : known->second;
}

size_t Mesh::homes(const Key& key, std::span<PeerLink*> out) const {
  // One home more is ranked, because this node may be among them.
  std::array<uint32_t, Placement::kMaxReplicas> ranked{};
  const size_t wanted = std::min(out.size() + 1, ranked.size());
  const size_t found = placement_.homes(key, std::span(ranked).first(wanted));
  size_t n = 0;
  for (size_t i = 0; i < found && n < out.size(); ++i) {
    if (PeerLink* const link = link_to(placed_[ranked[i]])) out[n++] = link;
  }
  return n;
}

bool Mesh::too_large(const NodeId& node, uint64_t payload_bytes) {
  const PeerLink* const link = link_to(node);
  Connection* const c = link != nullptr ? find(*link) : nullptr;
  if (c == nullptr || c->status.block_bytes == 0 || payload_bytes <= c->status.block_bytes) return false;
  if (!std::exchange(c->told_size, true)) {
    say(LogLevel::warning, "node " + short_text(node) + " at " + c->address + " takes blocks of " +
                               std::to_string(c->status.block_bytes) + " bytes at most, this one is of " +
                               std::to_string(payload_bytes) +
                               ": give all nodes of the pool the same block_bytes (kvbm: --block-bytes)");
  }
  return true;
}

std::vector<Mesh::NodeRow> Mesh::rows() const {
  std::vector<NodeRow> out;
  for (const Connection& connection : connections_) {
    const PeerLink& link = *connection.link;
    if (link.state() != PeerLink::State::ready) continue;
    out.push_back({link.peer().node, connection.address, "ready", connection.status, link.stats()});
  }
  for (const auto& [name, target] : targets_) {
    const auto its = [at = name](const Connection& c) {
      return c.dialled == at && c.link->state() == PeerLink::State::ready;
    };
    if (std::any_of(connections_.begin(), connections_.end(), its)) continue;
    // A link that has ended may not have been reported yet.
    std::string state = target.connected ? "ending" : target.refused ? refusal_of(target.failure) : target.state;
    out.push_back({{}, target.addresses[target.next], std::move(state), {}, {}});
  }
  return out;
}

MeshCounts Mesh::counts() const {
  MeshCounts out = counts_;
  for (const Connection& connection : connections_) add_to(out, connection.link->stats());
  return out;
}

// ---- Callbacks of the transport ----

void Mesh::add(std::shared_ptr<PeerLink> link, std::string address, uint64_t dialled) {
  Connection connection;
  connection.link = std::move(link);
  connection.address = std::move(address);
  connection.dialled = dialled;
  connections_.push_back(std::move(connection));
}

void Mesh::peer_accepted(copy::Peer peer, std::string_view address) {
  if (ended_) {
    (void)transport_->disconnect(peer, false);
    return;
  }
  hub_->peer_accepted(peer, address);
  if (auto link = hub_->link(peer)) add(std::move(link), std::string(address), kAccepted);
}

void Mesh::peer_connected(copy::Peer peer) { hub_->peer_connected(peer); }
void Mesh::peer_message(copy::Peer peer, ConstBytes bytes) { hub_->peer_message(peer, bytes); }
void Mesh::peer_writable(copy::Peer peer) { hub_->peer_writable(peer); }
void Mesh::pushed(copy::Peer peer, copy::Token token, Code status) { hub_->pushed(peer, token, status); }
void Mesh::arrived(copy::Peer peer, copy::Token token, uint64_t bytes) { hub_->arrived(peer, token, bytes); }
void Mesh::received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) {
  hub_->received(peer, token, status, bytes);
}
void Mesh::peer_closed(copy::Peer peer, const Status& status) { hub_->peer_closed(peer, status); }

Mesh::Connection* Mesh::find(const PeerLink& link) {
  for (Connection& connection : connections_) {
    if (connection.link.get() == &link) return &connection;
  }
  return nullptr;
}

// ---- Dialling ----

uint64_t Mesh::add_target(std::vector<std::string> addresses, std::optional<NodeId> expected) {
  const uint64_t name = ++last_target_;
  targets_.emplace(name, Target{std::move(addresses), Backoff(random_), expected});
  dial(name);
  return name;
}

void Mesh::drop_target(uint64_t target) {
  targets_.erase(target);
  for (Connection& connection : connections_) {
    if (connection.dialled != target) continue;
    connection.dialled = kAccepted;
    const std::shared_ptr<PeerLink> link = connection.link;
    link->close();
    return;
  }
}

void Mesh::set_members(const MemberList& members) {
  if (ended_) return;
  std::map<NodeId, const Member*> wanted;
  member_weights_.clear();
  for (const Member& member : members) {
    if (member.weight != 0) member_weights_[member.id] = member.weight;
    const bool named = std::find_first_of(member.addresses.begin(), member.addresses.end(), options_.peers.begin(),
                                          options_.peers.end()) != member.addresses.end();
    if (member.id != options_.self.node && !named) wanted[member.id] = &member;
  }
  for (auto known = member_targets_.begin(); known != member_targets_.end();) {
    const auto still = wanted.find(known->first);
    if (still != wanted.end() && targets_.at(known->second).addresses == still->second->addresses) {
      ++known;
      continue;
    }
    const uint64_t target = known->second;
    known = member_targets_.erase(known);
    drop_target(target);
  }
  for (const auto& [id, member] : wanted) {
    if (member_targets_.count(id) != 0) continue;
    // A member without a name is called by an address, which is no name of a node.
    const bool named = member->name != member->addresses.front();
    member_targets_[id] = add_target(member->addresses, named ? std::optional(id) : std::nullopt);
  }
  place();
}

void Mesh::dial(uint64_t target) {
  const auto known = targets_.find(target);
  if (ended_ || known == targets_.end() || known->second.is_self) return;
  Target& t = known->second;
  const std::string& address = t.addresses[t.next];
  if (const char* why = not_beyond(options_, address)) {
    t.state = why;
    return;
  }
  auto link = hub_->connect(address, t.expected);
  if (!link.ok()) {
    t.failure = t.state = link.status().message();
    t.refused = false;
    dial_later(target);
    return;
  }
  // A node that is dialled repeatedly is connecting most of the time: the last failure is what matters.
  t.state = t.failure.empty() ? "connecting" : "connecting; the last time: " + t.failure;
  add(std::move(link).value(), address, target);
}

void Mesh::dial_later(uint64_t target) {
  const auto known = targets_.find(target);
  if (ended_ || known == targets_.end() || known->second.is_self) return;
  Target& t = known->second;
  t.next = (t.next + 1) % t.addresses.size();
  executor_->post_at(executor_->clock().now_ns() + t.backoff.wait_ns(), [this, target] { dial(target); });
}

// ---- Callbacks of the links ----

void Mesh::link_ready(PeerLink& link) {
  Connection* c = find(link);
  if (c == nullptr) return;
  c->established = true;
  ++counts_.ready;
  choose_link(link.peer().node);
  if (const auto dialled = targets_.find(c->dialled); dialled != targets_.end()) {
    dialled->second.backoff.succeeded();
    dialled->second.connected = true;
    dialled->second.state = "ready";
    dialled->second.failure.clear();
    dialled->second.refused = false;
    for (auto& [address, throttle] : dialled->second.throttles) throttle.over();
  }
  say(LogLevel::info, name_of(link) + " is connected, " + said_of(link.protection()));
  ask_status(c->link);
  tell_epochs(c->link);
  if (hosts_ && !ended_) hosts_(link, nullptr);
  if (sessions_ != nullptr) sessions_->link_ready(link);
}

void Mesh::link_host(PeerLink& link, const HostFacts& facts) {
  if (hosts_ && !ended_) hosts_(link, &facts);
}

// Chooses one link if two nodes have dialled each other and have two; both choose the same one.
void Mesh::choose_link(const NodeId& node) {
  const auto best = hub_->find(node);
  if (best != nullptr) {
    ready_[node] = best.get();
  } else {
    ready_.erase(node);
  }
}

void Mesh::ask_status(const std::shared_ptr<PeerLink>& link) {
  link->ask_status(executor_->clock().now_ns() + kStatusNs,
                   [this, weak = std::weak_ptr<PeerLink>(link)](Code code, const wire::NodeStatus& status) {
                     const auto alive = weak.lock();
                     Connection* c = alive != nullptr ? find(*alive) : nullptr;
                     if (c == nullptr || code != Code::ok) return;
                     c->status = status;
                     place();
                   });
}

void Mesh::tell_epochs(const std::shared_ptr<PeerLink>& link) {
  host_->source.epochs(
      [executor = executor_, weak = std::weak_ptr<PeerLink>(link)](std::vector<NamespaceEpoch> epochs) {
        const auto telling = std::make_shared<EpochTelling>();
        telling->link = weak;
        telling->executor = executor;
        telling->epochs = std::move(epochs);
        for (size_t i = 0; i < kEpochsAtOnce; ++i) telling->tell_next();
      });
}

void Mesh::place() {
  std::vector<PlacementNode> nodes;
  placed_.clear();
  for (const auto& [node, link] : ready_) {
    const Connection* c = find(*link);
    if (c == nullptr) continue;
    const auto listed = member_weights_.find(node);
    nodes.push_back({node, listed != member_weights_.end() ? listed->second : c->status.weight});
    placed_.push_back(node);
  }
  if (!options_.listen.empty()) {
    const auto listed = member_weights_.find(options_.self.node);
    const bool own_word = listed == member_weights_.end();
    nodes.push_back({options_.self.node, own_word ? host_->source.status().weight : listed->second});
    placed_.push_back(options_.self.node);
  }
  placement_ = Placement(nodes);
}

void Mesh::link_ended(PeerLink& link, const Status& why) {
  if (sessions_ != nullptr) sessions_->link_ended(link, why);
  Connection* c = find(link);
  if (c == nullptr) return;
  ++counts_.ended[why.code()];
  add_to(counts_, link.stats());
  const NodeId node = link.peer().node;
  const bool was_ready = ready_.count(node) != 0 && ready_[node] == &link;
  const uint64_t target = c->dialled;
  const bool itself = hub_->is_own(link);
  if (target == kAccepted && !c->established && !itself && not_let_in(why.code())) {
    refused_ = "a connection from " + c->address + " was refused: " + why.message();
  }
  if (was_ready)
    say(why.code() == Code::closed ? LogLevel::info : LogLevel::warning,
        "node " + short_text(node) + " at " + c->address + " is gone: " + why.message());
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->link.get() != &link) continue;
    executor_->post([last = it->link] {});  // the link is still on the stack
    connections_.erase(it);
    break;
  }
  if (was_ready) {
    choose_link(node);
    place();
    if (ends_ && !ended_ && ready_.count(node) == 0) ends_(node);
  }
  const auto dialled = targets_.find(target);
  if (dialled == targets_.end()) return;
  Target& t = dialled->second;
  t.connected = false;
  if (itself && why.what() == std::string_view(refusal_text(Refusal::same_node))) {
    t.is_self = true;
    t.state = "this node";
    t.failure.clear();
    t.refused = false;
    return;
  }
  t.failure = t.state = why.message();
  // If another node answers than expected, the expected one may return.
  const bool is_it = (node == NodeId{} || t.expected.value_or(node) == node) && node != options_.self.node;
  t.refused = !was_ready && is_it && keeps_apart(why.code()) && t.addresses.size() == 1;
  if (!was_ready && why.code() != Code::closed && why.code() != Code::owner_gone) {
    const std::string& address = t.addresses[t.next];
    const std::string text = t.throttles[address].failed(t.state, executor_->clock().now_ns());
    if (!text.empty()) say(LogLevel::warning, "no link to " + address + ": " + text);
  }
  dial_later(target);
}

void Mesh::link_offered(PeerLink& link, std::span<const Offered> items, uint64_t lease, std::vector<uint32_t>& want) {
  if (taker_ && !ended_) taker_(link, items, lease, want);
}

// ---- Sessions ----

Result<PeerLink*> Mesh::link_named(const std::string& name) const {
  NodeId node = node_id_of(name);
  const char* why = "no node of that name is connected, and it is no address of node.peers";
  std::string state;
  const auto is_there = [&](const auto& known) {
    const std::vector<std::string>& addresses = known.second.addresses;
    return std::find(addresses.begin(), addresses.end(), name) != addresses.end();
  };
  const auto target = std::find_if(targets_.begin(), targets_.end(), is_there);
  if (target != targets_.end()) {
    const auto connection = std::find_if(connections_.begin(), connections_.end(), [&](const Connection& c) {
      return c.dialled == target->first && c.link->state() == PeerLink::State::ready;
    });
    node = target->second.is_self ? options_.self.node : NodeId{};
    if (connection != connections_.end()) node = connection->link->peer().node;
    why = "not connected";
    state = target->second.state;
  }
  if (node == options_.self.node) return Status(Code::invalid_argument, "this node itself", name);
  PeerLink* link = link_to(node);
  if (link == nullptr) return Status(Code::owner_gone, why, name + (state.empty() ? "" : ": " + state));
  return link;
}

std::string Mesh::name_of(const PeerLink& link) const {
  const auto connection = std::find_if(connections_.begin(), connections_.end(),
                                       [&](const Connection& c) { return c.link.get() == &link; });
  const std::string address = connection != connections_.end() ? " at " + connection->address : "";
  return "node " + short_text(link.peer().node) + address;
}

std::string Mesh::missing(const std::string& said) const {
  std::string text;
  for (const auto& [name, target] : targets_) {
    if (target.connected || target.is_self) continue;
    const std::string& address = target.addresses[target.next];
    if (said.find(address) != std::string::npos) continue;
    const std::string& why = target.failure.empty() ? target.state : target.failure;
    text.append(text.empty() ? "" : "; ").append("no link to ").append(address).append(": ").append(why);
  }
  if (!refused_.empty()) text.append(text.empty() ? "" : "; ").append(refused_);
  return text;
}

void Mesh::link_session(PeerLink& link, ConstBytes bytes) {
  if (sessions_ != nullptr) sessions_->link_session(link, bytes);
}

void Mesh::link_session_moved(PeerLink& link, uint64_t name, Code code, uint64_t bytes) {
  if (sessions_ != nullptr) sessions_->link_session_moved(link, name, code, bytes);
}

void Mesh::link_session_writable(PeerLink& link) {
  if (sessions_ != nullptr) sessions_->link_session_writable(link);
}

void Mesh::say(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->write(level, "node", text);
}

}  // namespace kvbm::cluster

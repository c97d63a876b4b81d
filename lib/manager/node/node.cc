#include "manager/node/node.h"

#include <unistd.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "cluster/admission/pool_key.h"
#include "cluster/coding/coded_source.h"
#include "cluster/coding/link_coder.h"
#include "cluster/mesh/mesh.h"
#include "cluster/mesh/session_host.h"
#include "cluster/mesh/survey.h"
#include "cluster/same_host/host_facts.h"
#include "cluster/same_host/mapped_pools.h"
#include "cluster/same_host/same_host.h"
#include "cluster/tier/peer_tier.h"
#include "codec/record/record.h"
#include "copy/transport_thread.h"
#include "manager/common/key_file.h"
#include "manager/lower/coding_terms.h"
#include "manager/node/accept_offered.h"
#include "manager/node/local_node.h"
#include "manager/node/members_file.h"
#include "manager/node/node_help.h"
#include "manager/node/node_row.h"
#include "manager/node/node_source.h"
#include "manager/node/node_transport.h"
#include "manager/session/node_sessions.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// Returns no key for an empty path.
Result<std::optional<cluster::SharedKey>> read_pool_key(const std::string& path) {
  if (path.empty()) return std::optional<cluster::SharedKey>();
  const auto file = KeyText::read("node.key_file cannot be used", path);
  if (!file.ok()) return file.status();
  const auto key = cluster::parse_pool_key(file.value().text());
  if (!key.ok()) return Status(Code::bad_config, "node.key_file holds no key", path + ": " + key.status().message());
  return std::optional(key.value());
}

}  // namespace

Result<std::unique_ptr<Node>> Node::create(const Environment& environment, const NodeOptions& options,
                                           std::shared_ptr<const codec::KeyRing> seal_keys) {
  auto options_of_mesh = std::make_unique<cluster::MeshOptions>();
  cluster::MeshOptions& mesh = *options_of_mesh;
  mesh.listen = options.listen;
  mesh.peers = options.peers;
  auto key = read_pool_key(options.key_file);
  if (!key.ok()) return key.status();
  mesh.key = key.value();
  std::string name = options.name;
  if (name.empty()) {
    std::ostringstream random;
    random << "node-" << std::hex << environment.random->next();
    name = random.str();
  }
  if (!cluster::valid_name(name)) return Status(Code::bad_config, "node.name is no name", name);
  if (!cluster::valid_name(options.pool)) return Status(Code::bad_config, "node.pool is no name", options.pool);
  mesh.self.node = cluster::node_id_of(name);
  mesh.self.incarnation = environment.random->next();
  mesh.self.pool = options.pool;
  mesh.self.request_limit = mesh.limits.requests;
  // The protection that sockets would have; make_tier() knows the transport of the links.
  mesh.self.protect = wanted_protection(options);
  mesh.unprotected_beyond = options.trusted_network || seal_keys != nullptr;
  if (Status s = cluster::check_mesh_options(mesh); !s.ok()) return s;
  if (options.peers_file_join && (options.name.empty() || options.listen.empty() || options.peers_file.empty())) {
    return Status(Code::bad_config, "node.peers_file_join needs node.peers_file, node.name and node.listen");
  }
  return std::unique_ptr<Node>(new Node(environment, std::move(options_of_mesh), options, std::move(seal_keys)));
}

Node::Node(const Environment& environment, std::unique_ptr<const cluster::MeshOptions> mesh, const NodeOptions& options,
           std::shared_ptr<const codec::KeyRing> keys)
    : env_(environment),
      mesh_options_(std::move(mesh)),
      options_(options),
      keys_(std::move(keys)),
      boot_(cluster::boot_id()),
      pools_(std::make_shared<cluster::MappedPools>()) {}

std::shared_ptr<cluster::LinkCoder> Node::make_coder() const {
  cluster::LinkCoding how;
  how.automatic = options_.codec == "auto";
  how.mode = codec::mode_by_name(options_.codec).value_or(codec::Mode::off);
  how.keys = keys_;
  how.buffer_bytes = options_.staging_bytes;  // enough for all requests of one peer at once, and some more
  if (!how.in_use()) return nullptr;
  auto coder = std::make_shared<cluster::LinkCoder>(std::move(how), *env_.random, env_.clock(), env_.log);
  if (coder->options().automatic) coder->measure();
  return coder;
}

Node::~Node() {
  stop();
  if (help_ != nullptr) help_->end();
  if (sessions_ != nullptr) sessions_->close();
  // The links make their last calls while their thread ends. They go to the mesh, and from there to the source.
  thread_.reset();
  sessions_.reset();
  mesh_.reset();
}

Result<std::unique_ptr<tier::Tier>> Node::make_tier(TierIndex index, FamilyTable& families) {
  const auto transport = choose_transport(options_, keys_ != nullptr);
  if (!transport.ok()) return transport.status();
  const NodeTransport& chosen = transport.value();
  cluster::MeshOptions mesh = *mesh_options_;
  if (Status s = settle_protection(options_, chosen, keys_ != nullptr, mesh); !s.ok()) return s;
  mesh_ = std::make_unique<cluster::Mesh>(std::move(mesh), families, *env_.random, env_.log);
  auto thread = copy::TransportThread::create("node", *chosen.ops, chosen.options, *mesh_, env_.log);
  if (!thread.ok()) return thread.status();
  if (env_.log != nullptr) env_.log->write(LogLevel::info, "node", "transport " + chosen.why);
  thread_ = std::move(thread).value();
  help_ = std::make_shared<NodeHelp>(*thread_);
  mesh_->attach(thread_->transport(), *thread_);
  coder_ = make_coder();
  NodeSessions::Options sessions;
  sessions.staging_bytes = options_.session_staging_bytes;
  if (options_.device_ipc) sessions.boot = boot_;
  sessions.rdma = options_.device_rdma;
  sessions.coder = coder_;
  sessions.in_place = [pools = pools_](const cluster::NodeId& node) { return pools->of(node) != nullptr; };
  sessions_ = NodeSessions::create(env_, std::move(sessions), *mesh_, *thread_);
  cluster::PeerTierOptions options;
  options.staging_bytes = options_.staging_bytes;
  options.replicas = options_.replicas;
  options.pools = pools_;
  options.coder = coder_;
  auto tier = std::make_unique<cluster::PeerTier>(options, *env_.executor, families, *mesh_);
  tier_ = tier.get();
  index_ = index;
  return std::unique_ptr<tier::Tier>(std::move(tier));
}

Status Node::start(const std::shared_ptr<TierStack>& stack, Namespaces& namespaces,
                   const std::shared_ptr<CodingTerms>& coding_terms) {
  source_ = std::make_unique<NodeSource>(stack, namespaces, *thread_);
  if (coder_ != nullptr) {
    coder_->use_terms([terms = coding_terms](FamilyId family) { return terms->of(family); });
    coded_source_ = std::make_unique<cluster::CodedSource>(*source_, coder_, *thread_, *env_.executor, stack);
  }
  if (options_.listen.empty()) source_->offer_no_room();
  std::shared_ptr<MembersFile> file;
  if (!options_.peers_file.empty()) {
    auto opened = MembersFile::open(env_, options_.peers_file);
    if (!opened.ok()) return opened.status();
    file = std::move(opened).value();
  }
  same_host_ = meet_same_host(env_, options_, mesh_options_->self, stack->host().arena(), *pools_,
                              [this](const cluster::NodeId& node) { tier_->forget_node(node); });
  Status begun;
  thread_->post_and_wait([&] {
    // The records of a node that has ended cannot be read: a prefix believed to lie there would end at its first
    // block. Records in mapped memory are read as before.
    mesh_->hear_of_ends([this](const cluster::NodeId& node) {
      if (pools_->of(node) == nullptr) tier_->forget_node(node);
    });
    mesh_->hear_of_hosts([this](cluster::PeerLink& link, const cluster::HostFacts* said) { meet(link, said); });
    mesh_->take_offers([this, weak = std::weak_ptr<TierStack>(stack)](cluster::PeerLink& link,
                                                                      std::span<const cluster::Offered> offered,
                                                                      uint64_t lease, std::vector<uint32_t>& want) {
      const std::shared_ptr<TierStack> alive = weak.lock();
      if (alive != nullptr) accept_offered(alive, index_, *tier_, link, offered, lease, source_->links(), want);
    });
    begun = mesh_->begin(coded_source_ != nullptr ? static_cast<cluster::RecordSource&>(*coded_source_) : *source_);
    address_ = mesh_->address();
  });
  return begun.ok() && file != nullptr ? watch_members(std::move(file)) : begun;
}

void Node::meet(cluster::PeerLink& link, const cluster::HostFacts* said) {
  if (said != nullptr) {
    const bool here = boot_ != decltype(boot_){} && said->boot == boot_;
    if (coder_ != nullptr) coder_->is_on_this_machine(link.peer().node, here);
    if (same_host_ != nullptr) same_host_->heard(link.peer(), link.role(), *said);
    return;
  }
  const auto facts =
      same_host_ != nullptr ? same_host_->ready(link.peer(), link.role()) : std::optional<cluster::HostFacts>();
  // Machine and user are sent even if no node can connect in place.
  link.send_host(facts.value_or(cluster::HostFacts{boot_, geteuid(), {}, {}, {}}));
}

Status Node::watch_members(std::shared_ptr<MembersFile> file) {
  cluster::Member self;
  if (options_.peers_file_join) {
    if (address_.starts_with("0.0.0.0:") || address_.starts_with("[::]:")) {
      return {Code::bad_config, "node.peers_file_join needs an address that others can dial in node.listen", address_};
    }
    self.name = options_.name;
    self.id = mesh_options_->self.node;
    self.addresses = {address_};
    self.incarnation = mesh_options_->self.incarnation;
    thread_->post_and_wait([&] { self.weight = source_->status().weight; });
  }
  const Status watched = file->watch(
      [mesh = mesh_.get(), links = source_->links()](const cluster::MemberList& members) {
        links->post([mesh, members] { mesh->set_members(members); });
      },
      std::move(self));
  if (watched.ok()) members_ = std::move(file);
  return watched;
}

void Node::stop() {
  if (thread_ == nullptr || source_ == nullptr) return;
  if (const auto file = std::exchange(members_, nullptr)) file->leave();
  thread_->post_and_wait([this] { mesh_->end(); });  // from here on no call reaches same_host_
  same_host_.reset();
  if (coded_source_ != nullptr) coded_source_->detach();
  if (sessions_ != nullptr) sessions_->detach();
  source_->detach();
}

copy::Completion Node::run_and_wait(Operation& operation) { return help_->run(operation); }

bool Node::locate(const Identity& id, cluster::NodeId& node) const { return tier_->locate(id, node); }

const cluster::OfferCounts& Node::offers() const { return tier_->offers(); }

const cluster::NodeId& Node::id() const noexcept { return mesh_options_->self.node; }

void Node::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  tier_->ask(std::move(ids), deadline_ns, std::move(done));
}

void Node::ask_and_wait(std::vector<Identity> ids, uint64_t deadline_ns) {
  help_->wait([&](UniqueFunction<void()> done) { tier_->ask(std::move(ids), deadline_ns, std::move(done)); });
}

void Node::survey(std::vector<Identity> ids, uint64_t deadline_ns,
                  UniqueFunction<void(std::vector<cluster::NodeAnswer>)> done) {
  // Once links have ended no node is connected, and the survey answers at once.
  thread_->post([this, ids = std::move(ids), deadline_ns, done = std::move(done)]() mutable {
    cluster::survey(*mesh_, std::move(ids), deadline_ns, std::move(done));
  });
}

std::vector<NodeRow> Node::nodes() {
  std::vector<NodeRow> rows;
  thread_->post_and_wait([&] {
    for (cluster::Mesh::NodeRow& link : mesh_->rows()) rows.push_back({std::move(link), {}, 0, {}});
  });
  for (NodeRow& row : rows) {
    if (row.link.node == cluster::NodeId{}) continue;
    row.path = same_host_ != nullptr
                   ? same_host_->state(row.link.node)
                   : cluster::SameHost::State{cluster::SameHost::Path::link,
                                              options_.local ? "this node's log says why" : "node.local is off here"};
    const auto pool = pools_->of(row.link.node);
    if (pool != nullptr) row.local_bytes = pool->bytes.load(std::memory_order_relaxed);
    if (coder_ != nullptr) row.coding = coder_->state(row.link.node);
  }
  return rows;
}

cluster::SessionCounts Node::session_counts() {
  cluster::SessionCounts out;
  if (sessions_ != nullptr) thread_->post_and_wait([&] { out = sessions_->counts(); });
  return out;
}

Sessions& Node::sessions() noexcept { return sessions_->sessions(); }

cluster::MeshCounts Node::counts() {
  cluster::MeshCounts out;
  thread_->post_and_wait([&] { out = mesh_->counts(); });
  return out;
}

}  // namespace kvbm::manager

#include "manager/node.h"

#include <condition_variable>
#include <fstream>
#include <sstream>
#include <utility>

#include "copy/tcp/tcp_transport.h"
#include "manager/manager.h"
#include "manager/take.h"

namespace kvbm::manager {

namespace {

Result<std::optional<cluster::SharedKey>> read_key(const std::string& path) {
  if (path.empty()) return std::optional<cluster::SharedKey>();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status(Code::bad_config, "node.key_file cannot be read", path);
  std::string key = text.str();
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  auto shared = cluster::shared_key_of(key);
  if (!shared.ok())
    return Status(Code::bad_config, "node.key_file holds no key", path + ": " + shared.status().message());
  return std::optional(shared.value());
}

}  // namespace

Result<std::unique_ptr<Node>> Node::create(const Environment& environment, const NodeOptions& options) {
  cluster::MeshOptions mesh;
  mesh.listen = options.listen;
  mesh.peers = options.peers;
  auto key = read_key(options.key_file);
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
  if (Status s = cluster::check_mesh_options(mesh); !s.ok()) return s;
  return std::unique_ptr<Node>(new Node(environment, std::move(mesh), options.staging_bytes));
}

Node::Node(const Environment& environment, cluster::MeshOptions mesh, uint64_t staging_bytes)
    : env_(environment), mesh_options_(std::move(mesh)), staging_bytes_(staging_bytes) {}

Node::~Node() {
  stop();
  if (help_ != nullptr) help_->end();
  // The links' last calls are made while their thread ends; the mesh has them, and they the source.
  thread_.reset();
  mesh_.reset();
}

Result<std::unique_ptr<tier::Tier>> Node::make_tier(TierIndex index, FamilyTable& families) {
  mesh_ = std::make_unique<cluster::Mesh>(mesh_options_, families, *env_.random, env_.log);
  auto thread = copy::TransportThread::create("node", copy::tcp::ops(), {}, *mesh_, env_.log);
  if (!thread.ok()) return thread.status();
  thread_ = std::move(thread).value();
  help_ = std::make_shared<NodeHelp>(*thread_);
  mesh_->attach(thread_->transport(), *thread_);
  cluster::PeerTierOptions options;
  options.staging_bytes = staging_bytes_;
  auto tier = std::make_unique<cluster::PeerTier>(options, *env_.executor, families, *mesh_);
  tier_ = tier.get();
  index_ = index;
  return std::unique_ptr<tier::Tier>(std::move(tier));
}

Status Node::start(const std::shared_ptr<Manager>& manager) {
  source_ = std::make_unique<NodeSource>(manager, *thread_);
  Status begun;
  on_links([&] {
    mesh_->take_offers([this, weak = std::weak_ptr<Manager>(manager)](cluster::PeerLink& link,
                                                                      std::span<const cluster::Offered> offered,
                                                                      uint64_t lease, std::vector<uint32_t>& want) {
      const std::shared_ptr<Manager> alive = weak.lock();
      if (alive != nullptr) take_offered(alive, index_, *tier_, link, offered, lease, source_->links(), want);
    });
    begun = mesh_->begin(*source_);
    address_ = mesh_->address();
  });
  return begun;
}

void Node::stop() {
  if (thread_ == nullptr || source_ == nullptr) return;
  on_links([this] { mesh_->end(); });
  source_->detach();
}

void Node::on_links(UniqueFunction<void()> task) {
  Mutex mutex;
  std::condition_variable_any turned;
  bool done = false;
  thread_->post([&] {
    task();
    MutexLock lock(mutex);
    done = true;
    turned.notify_all();
  });
  MutexLock lock(mutex);
  while (!done) turned.wait(mutex);
}

void Node::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  tier_->ask(std::move(ids), deadline_ns, std::move(done));
}

void Node::ask_and_wait(std::vector<Identity> ids, uint64_t deadline_ns) {
  help_->wait([&](UniqueFunction<void()> told) { tier_->ask(std::move(ids), deadline_ns, std::move(told)); });
}

std::vector<cluster::Mesh::NodeRow> Node::nodes() {
  std::vector<cluster::Mesh::NodeRow> rows;
  on_links([&] { rows = mesh_->rows(); });
  return rows;
}

}  // namespace kvbm::manager

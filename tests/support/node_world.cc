#include "support/node_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "codec/lossless/zstd_leaf.h"
#include "manager/host/host_record.h"
#include "manager/node/accept_offered.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"

namespace kvbm::test {

namespace {

uint64_t bytes_of(uint64_t n) { return n % 3 == 0 ? kNodeBlock : 1000 + 517 * n; }

Key key_of(uint64_t n) {
  Key k;
  const uint64_t low = (n + 1) * 0x9E3779B97F4A7C15ULL;
  std::memcpy(k.bytes.data(), &low, sizeof low);
  std::memcpy(k.bytes.data() + 8, &n, sizeof n);
  k.bytes[15] = 1;
  return k;
}

std::byte byte_of(uint64_t n, uint64_t at) { return static_cast<std::byte>((n * 31 + at * 7 + (at >> 8)) & 0xFF); }

cluster::LinkCoding coding_of(uint64_t number) {
  cluster::LinkCoding out;
  if (number % 4 == 1) out.mode = codec::Mode::zstd;
  out.automatic = number % 4 == 3;
  out.buffer_bytes = 1 << 20;  // four of the large ones
  if (number % 4 >= 2) {
    out.keys = codec::KeyRing::parse("7 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n").value();
  }
  return out;
}

}  // namespace

SimNode::SimNode(SimExecutor& sim, SimNetwork& net, Options what)
    : sim_(sim), net_(net), options_(std::move(what)), disk_(sim) {
  log_.set_sink(&SimNode::keep_line, this, LogLevel::info);
  if (options_.coding.in_use()) {
    coder_ = std::make_shared<cluster::LinkCoder>(options_.coding, sim.random(), executor().clock(), &log_);
  }
  manager::Options options;
  options.host.block_bytes = kNodeBlock;
  options.host.capacity_bytes = 4096 + kNodeSlots * (204800 + tier::HostArena::head_stride(kNodeBlock));
  options.host.huge_pages = false;
  options.tiers.resize(1);
  options.tiers[0].admission = manager::AdmissionKind::on_request;
  options.tiers[0].make = [this](TierIndex, FamilyTable& families, tier::TierListener*) { return make_tier(families); };
  manager::Environment environment;
  environment.executor = &executor();
  environment.files = &disk_;
  environment.random = &sim.random();
  environment.log = &log_;
  manager_ = manager::Manager::create(environment, std::move(options)).value();
  manager::NamespaceOptions who;
  who.model = "m";
  ns_ = manager_->namespaces().open(std::move(who)).value();
  plan_ = ns_->plan({}).value();
  source_ = std::make_unique<manager::NodeSource>(manager_->stack().keep(), manager_->namespaces(), executor());
  mesh_->take_offers([this](cluster::PeerLink& link, std::span<const cluster::Offered> offered, uint64_t lease,
                            std::vector<uint32_t>& want) {
    manager::accept_offered(manager_->stack().keep(), TierIndex{1}, *tier_, link, offered, lease, source_->links(),
                            want);
  });
  if (coder_ != nullptr) {
    coded_source_ = std::make_unique<cluster::CodedSource>(*source_, coder_, executor(), executor(), manager_);
  }
  EXPECT_TRUE(mesh_->begin(coder_ != nullptr ? static_cast<cluster::RecordSource&>(*coded_source_) : *source_).ok());
}

void SimNode::keep_line(void* self, const LogMessage& message) {
  static_cast<SimNode*>(self)->lines_.emplace_back(message.text);
}

size_t SimNode::logged(const std::string& text, const std::string& other) const {
  return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
    return line.find(text) != std::string::npos && line.find(other) != std::string::npos;
  }));
}

Result<std::unique_ptr<tier::Tier>> SimNode::make_tier(FamilyTable& families) {
  cluster::MeshOptions options;
  options.self.node = cluster::node_id_of("node" + std::to_string(options_.node));
  options.self.incarnation = sim_.random().next();
  options.self.pool = "pool";
  options.self.request_limit = 16;
  options.key = options_.key;
  options.self.protect = options_.protect;
  options.unprotected_beyond = true;  // the test controls the path
  options.listen = options_.listen;
  options.peers = options_.peers;
  mesh_ = std::make_unique<cluster::Mesh>(options, families, sim_.random(), &log_);
  transport_ = copy::Transport::open(net_.ops(options_.node), {}, *mesh_).value();
  net_.on_wake(options_.node, [this] {
    executor().post([this] {
      while (transport_->progress()) {
      }
    });
  });
  mesh_->attach(*transport_, executor());
  cluster::PeerTierOptions staging;
  staging.staging_bytes = 4 << 20;
  staging.location_bytes = 64 << 10;
  staging.coder = coder_;
  auto tier = std::make_unique<cluster::PeerTier>(staging, executor(), families, *mesh_);
  tier_ = tier.get();
  return std::unique_ptr<tier::Tier>(std::move(tier));
}

void SimNode::store(uint64_t n) {
  SlotId slot = kNoSlot;
  if (manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr) != Code::ok) return;
  std::byte* payload = manager_->host().arena().payload(slot).data();
  for (uint64_t i = 0; i < bytes_of(n); ++i) payload[i] = byte_of(n, i);
  ASSERT_EQ(manager_->host().table().complete({&slot, 1}), Code::ok);
  manager_->host().arena().clear_head(slot);
  manager::note_payload_bytes(manager_->host(), slot, bytes_of(n));
  const Key key = key_of(n);
  block::Publication what;
  what.family = plan_.family;
  what.keys = {&key, 1};
  Code code = Code::internal;
  ASSERT_EQ(manager_->stack().publish({&slot, 1}, what, {}, {&code, 1}), Code::ok);
  manager_->host().release({&slot, 1});
}

Identity SimNode::id(uint64_t n) const { return {key_of(n), plan_.family}; }

void SimNode::push(uint64_t n) {
  ++begun;
  auto operation = std::make_shared<manager::OffloadOperation>(manager_->stack().keep(), TierIndex{1}, plan_.family,
                                                               std::vector<Key>{key_of(n)}, after(3000 * kMs));
  operation->start([this](const copy::Completion& completion) {
    ++ended;
    pushed += completion.items_done;
  });
}

void SimNode::fetch(uint64_t n) {
  ++begun;
  tier_->ask({{key_of(n), plan_.family}}, after(1000 * kMs), [this, n] { bring(n); });
}

void SimNode::bring(uint64_t n) {
  manager::LookupRequest request;
  request.mode = manager::LookupMode::each;
  const Key key = key_of(n);
  auto match = manager::look_up(manager_->stack().keep(), ns_, {&plan_, 1}, {&key, 1}, request);
  auto operation =
      std::make_shared<manager::PrefetchOperation>(manager_->stack().keep(), std::move(match), 1, after(3000 * kMs));
  operation->start([this, n](const copy::Completion& completion) {
    ++ended;
    if (completion.items_done != 0 && check(n)) ++brought;
  });
}

bool SimNode::check(uint64_t n) {
  const SlotId slot = manager_->host().acquire_one(plan_.family, key_of(n));
  if (slot == kNoSlot) return false;
  const ConstBytes payload = manager_->host().arena().payload(slot);
  bool right = manager_->host().table().payload_bytes(slot) == bytes_of(n);
  for (uint64_t i = 0; right && i < bytes_of(n); ++i) right = payload[i] == byte_of(n, i);
  if (!right) ++wrong;
  manager_->host().release({&slot, 1});
  return true;
}

// ---- The pool ----

NodeWorld::NodeWorld(uint64_t seed, uint64_t how, Keys of_nodes, copy::Protection wanted)
    : sim(seed), net(sim), coding(coding_of(how)), keys(std::move(of_nodes)), protect(wanted) {
  for (size_t i = 0; i < kNodes; ++i) {
    nodes.push_back(net.add_node());
    // Gives each machine a clock with another start and another speed.
    net.set_clock(nodes[i], sim.random().below(1'000'000'000 * kMs), 900 + sim.random().below(201));
  }
  for (size_t i = 0; i < kNodes; ++i) processes.push_back(start(i));
}

NodeWorld::~NodeWorld() {
  for (auto& process : processes) (void)process.release();
  sim.drop_all();
}

std::string NodeWorld::address(size_t i) const {
  return (keys[i].has_value() ? SimNetwork::host(nodes[i]) : SimNetwork::loopback(nodes[i])) + ":7000";
}

std::unique_ptr<SimNode> NodeWorld::start(size_t i) {
  SimNode::Options options;
  options.node = nodes[i];
  options.listen = address(i);
  options.key = keys[i];
  if (keys[i].has_value()) options.protect = protect;
  options.coding = coding;
  for (size_t j = 0; j < kNodes; ++j) {
    if (j != i) options.peers.push_back(address(j));
  }
  return std::make_unique<SimNode>(sim, net, std::move(options));
}

bool NodeWorld::connected() {
  return std::all_of(processes.begin(), processes.end(),
                     [](const auto& process) { return process->mesh().ready().size() + 1 == kNodes; });
}

bool NodeWorld::idle() {
  return std::all_of(processes.begin(), processes.end(),
                     [](const auto& process) { return process->begun == process->ended; });
}

void NodeWorld::heal() {
  for (size_t i = 0; i < kNodes; ++i) {
    net.thaw(nodes[i]);
    for (size_t j = 0; j < kNodes; ++j) {
      if (i != j) net.heal(nodes[i], nodes[j]);
    }
  }
  net.faults = {};
  net.meddle = nullptr;
  net.meddle_bulk = nullptr;
}

}  // namespace kvbm::test

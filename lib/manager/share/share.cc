#include "manager/share/share.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "cluster/same_host/mapped_pools.h"
#include "copy/local/unix_transport.h"
#include "copy/transport_thread.h"
#include "manager/lower/open_disk.h"
#include "manager/namespaces/namespaces.h"
#include "manager/node/accept_offered.h"
#include "manager/node/local_node.h"
#include "manager/node/node_source.h"
#include "manager/share/owned_tier.h"
#include "manager/share/shared_tier.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

constexpr const char* kSocketName = "share.sock";
// Memory for blocks that other processes send: enough for a few of the largest.
constexpr uint64_t kStagingBytes = 64ULL << 20;
constexpr uint64_t kBlocksStaged = 4;
// Limit of stop()'s wait for the owner to take the blocks offered to it.
constexpr uint64_t kDrainNs = 1'000'000'000;
// Time limit of a background query to an owner that did not answer in time.
constexpr uint64_t kProbeNs = 2'000'000'000;

uint64_t staging_bytes(uint64_t block_bytes) {
  return std::max(kStagingBytes, kBlocksStaged * (block_bytes + block_bytes / 8 + 65536));
}

// Returns true for refusals that a retry does not change.
bool is_final(Code code) {
  return code == Code::mismatch || code == Code::newer_version || code == Code::not_permitted;
}

// Only a disk is shared among the tiers below the host. Each process uses stores by itself, as they have many users.
bool has_disk(const Options& options) { return !options.tiers.empty() && options.tiers[0].url.empty(); }

Status check(const Options& options) {
  size_t disks = 0;
  for (const TierOptions& tier : options.tiers) {
    if (!tier.url.empty()) continue;
    if (tier.make) {
      return {Code::bad_config, "share=on works with a disk and with stores, not with a plug-in tier",
              "give each process its own, or use a disk"};
    }
    ++disks;
  }
  if (disks > 1) {
    return {Code::bad_config, "share=on works with one disk at most",
            std::to_string(disks) + " disks are given: leave one, or share nothing"};
  }
  if (disks == 1 && !has_disk(options)) {
    return {Code::bad_config, "share=on needs its disk above all stores", options.tiers[0].url};
  }
  if (disks == 1 && !options.share.directory.empty()) {
    return {Code::bad_config, "share_directory is for tier sets without a disk", options.share.directory};
  }
  if (disks == 0 && options.share.directory.empty()) {
    return {Code::bad_config, "share=on without a disk needs a directory to meet in", "set share_directory"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Share>> Share::create(const Environment& environment, Options& options) {
  if (!options.share.on) return std::unique_ptr<Share>();
  if (Status s = check(options); !s.ok()) return s;
  options.host.shared = shares_host_memory(options);
  std::unique_ptr<Share> share(new Share(environment, options));
  Share* const made = share.get();
  const bool disk = has_disk(options);
  if (disk) {
    made->owned_index_ = 1;
    options.tiers[0].make = [made](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      auto tier = std::make_unique<OwnedTier>(*made->env_.executor, made->directory_);
      made->owned_ = tier.get();
      return std::unique_ptr<tier::Tier>(std::move(tier));
    };
  }
  TierOptions others;
  others.admission = AdmissionKind::all;
  others.make = [made](TierIndex index, FamilyTable& families,
                       tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
    if (Status s = made->open_links(families); !s.ok()) return s;
    cluster::PeerTierOptions peers;
    peers.staging_bytes = staging_bytes(made->block_bytes_);
    peers.pools = made->pools_;
    auto tier = std::make_unique<SharedTier>(peers, *made->env_.executor, families, *made->links_);
    made->shared_ = tier.get();
    made->shared_index_ = index;
    return std::unique_ptr<tier::Tier>(std::move(tier));
  };
  options.tiers.insert(options.tiers.begin() + (disk ? 1 : 0), std::move(others));
  return share;
}

Share::Share(const Environment& environment, const Options& options)
    : env_(environment),
      options_(options.share),
      block_bytes_(options.host.block_bytes),
      pools_(std::make_shared<cluster::MappedPools>()) {
  if (has_disk(options)) disk_ = options.tiers[0];
  directory_ = disk_.path.empty() ? options_.directory : disk_.path;
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
}

Share::~Share() {
  stop();
  elections_.reset();
  // The links make their last calls while their thread ends. They go to links_, and from there to the source.
  thread_.reset();
  links_.reset();
}

Status Share::open_links(FamilyTable& families) {
  std::ostringstream name;
  name << "process-" << getpid() << "-" << std::hex << env_.random->next();
  cluster::LinkLimits limits;
  limits.staging_bytes = limits.quarantine_bytes = staging_bytes(block_bytes_);
  // Clients are processes of this user, which have handles of these namespaces.
  limits.new_epochs = EpochTable::kRows;
  limits.own_families = true;
  cluster::NodeFacts self;
  self.node = cluster::node_id_of(name.str());
  self.incarnation = env_.random->next();
  self.pool = "share";
  self.request_limit = limits.requests;
  links_ = std::make_unique<ShareLinks>(std::move(self), limits, families, *env_.random, *this, env_.log);
  auto thread = copy::TransportThread::create("share", *copy::local::unix_transport_ops(), {}, *links_, env_.log);
  if (!thread.ok()) return thread.status();
  thread_ = std::move(thread).value();
  links_->attach(thread_->transport(), *thread_);
  auto elections = ThreadExecutor::create("elect", 1);
  if (!elections.ok()) return elections.status();
  elections_ = std::move(elections).value();
  election_ = std::make_unique<ShareElection>(*elections_, static_cast<ShareElection::Host&>(*this));
  return {};
}

// ---- Roles ----

Status Share::start(const std::shared_ptr<TierStack>& stack, Namespaces& namespaces, ShareState& state) {
  stack_ = stack;
  namespaces_ = &namespaces;
  state_ = &state;
  shared_->attach(state);
  state.pools = pools_;
  stack->unflushed().begin([this] { flush_without_caller(); });
  state.role.store(ShareRole::client, std::memory_order_release);
  if (owned_index_ != kNoTier) stack->lower().stand_by(owned_index_, true);
  source_ = std::make_unique<NodeSource>(stack, namespaces, *thread_);
  source_->trust_epochs();
  thread_->post_and_wait([this] { links_->begin(*source_); });
  const uint64_t until = env_.clock().now_ns() + kOpenNs;
  for (;;) {
    const Status locked = try_to_own();
    if (locked.ok()) return listen();
    if (locked.code() != Code::in_use) return locked;
    dial();
    if (first_answer_.wait_until(env_.clock(), env_.clock().now_ns() + ShareElection::kRetryNs)) {
      return first_answer_.wait();
    }
    if (env_.clock().now_ns() < until) continue;
    return {Code::in_use, "the tier set has an owner that does not share it, or does not answer",
            locked.message() + ": share it there too, end that process, or let it go on if it is stopped"};
  }
}

void Share::answer_start(const Status& how) {
  if (answered_start_) return;  // the first answer counts
  first_answer_.give(how);
  answered_start_ = true;
}

// Opens the disk, or takes the lock of a set without a disk. in_use: another process is the owner.
Status Share::try_to_own() {
  if (owned_ != nullptr) {
    const FamilyTable::Keep keep(stack_->host().families());  // until the tier can report the families it has
    auto opened = open_disk(disk_, env_, stack_->host().families(), &stack_->lower(), owned_index_);
    if (!opened.ok()) return opened.status();
    owned_->own(std::move(opened).value());
    stack_->lower().stand_by(owned_index_, false);
  } else {
    auto directory = env_.files->open_directory(directory_, true);
    if (!directory.ok()) return directory.status();
    auto lock = directory.value()->lock();
    if (!lock.ok()) return lock.status();
    lock_ = std::move(lock).value();
  }
  stack_->lower().require_tier(kNoTier);
  if (owned_ != nullptr) {
    stack_->lower().offer_all(owned_index_);
    namespaces_->adopt_epochs(*owned_);
    learn_epochs(*owned_);
  }
  ShareState& state = *state_;
  state.owner_pid.store(static_cast<uint64_t>(getpid()), std::memory_order_relaxed);
  if (state.owners_lost.load(std::memory_order_relaxed) != 0) state.takeovers.fetch_add(1, std::memory_order_relaxed);
  state.role.store(ShareRole::owner, std::memory_order_release);
  stack_->lower().stand_by(shared_index_, true);
  return {};
}

// This process has the lock: a socket at that path is a dead owner's, or of a child that it forked.
Status Share::listen() {
  if (listening_) return {};
  if (auto directory = env_.files->open_directory(directory_, false); directory.ok()) {
    (void)directory.value()->remove(kSocketName).ok();
  }
  Status bound;
  thread_->post_and_wait([&] {
    lend_memory();
    bound = links_->listen(address());
  });
  listening_ = bound.ok();
  if (bound.ok()) say(LogLevel::info, "this process owns the tier set in " + directory_);
  return bound;
}

// Called before the first client can connect. Without it all records are sent over the links, as from an owner with
// memory in a file.
void Share::lend_memory() {
  const tier::HostArena& arena = stack_->host().arena();
  if (arena.fd() < 0 || std::exchange(lends_memory_, true)) return;
  const auto lent = copy::local::UnixTransport::of(thread_->transport().handle()).offer_pool(arena.fd(), arena.shape());
  if (!lent.ok())
    say(LogLevel::warning, "clients cannot read this process's memory in place: " + lent.status().message());
}

void Share::map_memory(const cluster::NodeFacts& owner, copy::Peer peer) {
  const auto handed = copy::local::UnixTransport::of(thread_->transport().handle()).pools(peer);
  if (handed.empty()) return;
  mapped_ = owner.node;
  mapped_pool_ = handed.front()->id();
  pools_->set(owner.node, owner.incarnation, handed.front());
}

bool Share::can_ask() const noexcept { return state_->connected.load(std::memory_order_acquire); }

bool Share::is_connected() const { return state_->connected.load(std::memory_order_acquire); }

void Share::dial() {
  thread_->post([this] { links_->dial(address()); });
}

void Share::cannot_own(const Status& why) {
  say(LogLevel::error, "the tier set cannot be taken over: " + why.message());
}

// Offers this process's blocks to an owner that it has just connected to, even if it is the previous one. Runs on the
// elections' thread, like flushes, so that no flush sees it half done.
void Share::settle_in() {
  if (stopping_ || is(ShareRole::owner)) return;
  unsettled_ = false;  // reset first: a link that ends meanwhile sets it again
  learn_epochs(*shared_);
  stack_->lower().offer_all(shared_index_);
}

// Raises epochs that a tier knows and this process has missed.
void Share::learn_epochs(tier::Tier& from) {
  for (const NamespaceId& base : namespaces_->known()) {
    const auto epoch = from.epoch(base);
    if (!epoch.ok() || epoch.value() == 0) continue;
    if (const Status s = namespaces_->raise_epoch(base, epoch.value()); !s.ok()) say(LogLevel::warning, s.message());
  }
}

void Share::stop() {
  if (thread_ == nullptr || source_ == nullptr || stopping_) return;
  if (state_->connected) {
    const auto drained = std::make_shared<Awaited<bool>>();
    stack_->lower().flush([drained] { drained->give(true); });
    (void)drained->wait_until(env_.clock(), env_.clock().now_ns() + kDrainNs);
  }
  stopping_ = true;
  election_->stop();
  // One turn of the elections' thread: if it was opening the disk, it has finished.
  const auto turned = std::make_shared<Awaited<bool>>();
  elections_->post([this, turned] {
    if (flushing_ != nullptr) end_flush(flushing_, Code::closed);
    turned->give(true);
  });
  turned->wait();
  thread_->post_and_wait([this] { links_->end(); });
  source_->detach();
  thread_->post_and_wait([] {});  // tasks that were posted before
}

// ---- Callbacks of the links ----

ShareMessage Share::here() {
  ShareMessage out;
  out.kind = ShareKind::here;
  out.value = static_cast<uint64_t>(getpid());
  out.block_bytes = block_bytes_;
  out.disk_bytes = disk_bytes();
  return out;
}

bool Share::owner_found(const ShareMessage& here, const cluster::NodeFacts& owner, copy::Peer peer) {
  const uint64_t pid = here.value;
  if (here.block_bytes != block_bytes_ || here.disk_bytes != disk_bytes()) {
    const auto text = [](uint64_t block, uint64_t disk) {
      return "blocks of " + std::to_string(block) + " bytes and " +
             (disk != 0 ? "a disk of " + std::to_string(disk) + " bytes" : std::string("no disk"));
    };
    const Status refusal(Code::bad_config, "the tier set is shared with another configuration; use the same one",
                         directory_ + ": here " + text(block_bytes_, disk_bytes()) + ", process " +
                             std::to_string(pid) + " has " + text(here.block_bytes, here.disk_bytes));
    if (found_ && refusal.message() != refused_) say(LogLevel::error, refused_ = refusal.message());
    answer_start(refusal);
    return false;
  }
  map_memory(owner, peer);
  ShareState& state = *state_;
  state.owner_pid.store(pid, std::memory_order_relaxed);
  state.connected.store(true, std::memory_order_release);
  silent_ = false;
  stack_->lower().require_tier(shared_index_);
  const bool again = state.owners_lost.load(std::memory_order_relaxed) != 0;
  say(LogLevel::info, "process " + std::to_string(pid) + " owns the tier set in " + directory_);
  if (again && !stopping_) elections_->post([this] { settle_in(); });
  found_ = true;
  answer_start({});
  return true;
}

void Share::owner_lost(const Status& why, bool was_connected) {
  ShareState& state = *state_;
  if (was_connected) {
    state.connected.store(false, std::memory_order_release);
    state.owner_pid.store(0, std::memory_order_relaxed);
    state.owners_lost.fetch_add(1, std::memory_order_relaxed);
    unsettled_ = true;
    (void)pools_->drop(mapped_, std::exchange(mapped_pool_, 0));
    shared_->forget_all();
    if (stopping_) return;
    say(LogLevel::warning, "the owner of the tier set in " + directory_ + " is gone: " + why.message());
    elections_->post([this] { election_->seek(); });
    return;
  }
  if (is_final(why.code())) answer_start(why);
}

void Share::clients_changed(size_t n) { state_->clients.store(static_cast<uint32_t>(n), std::memory_order_relaxed); }

void Share::offered(cluster::PeerLink& link, std::span<const cluster::Offered> items, uint64_t lease,
                    std::vector<uint32_t>& want) {
  const uint64_t name = ++last_take_;
  takes_.insert(name);
  accept_offered(stack_, shared_index_, shared_->peers(), link, items, lease, source_->links(), want, [this, name] {
    takes_.erase(name);
    pump_flushes();
  });
}

void Share::asked(const ShareMessage& message, ShareLinks::Answered answer) {
  if (message.kind == ShareKind::flush) return asked_to_flush(message, std::move(answer));
  auto reply = std::make_shared<ShareLinks::Answered>(std::move(answer));
  // May block on files, so not on the links' thread.
  env_.executor->post([stack = stack_, &namespaces = *namespaces_, reply, message, links = source_->links()] {
    Code code = Code::ok;
    uint64_t value = 0;
    FamilyId family = 0;
    if (message.kind == ShareKind::epoch) {
      const auto epoch = namespaces.epoch_of(message.base);
      code = epoch.status().code();
      if (epoch.ok()) value = epoch.value();
    } else if (stack->host().families().find(message.family, family)) {  // there are no records of an unknown family
      if (message.kind == ShareKind::erase) {
        value = stack->drop(family, message.keys);
      } else {
        code = stack->erase_family(family).code();
      }
    }
    links->post([reply, code, value] { (*reply)(code, value, {}); });
  });
}

// ---- Lookups ----

void Share::ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done) {
  ShareState& state = *state_;
  if (ids.empty() || !state.connected.load(std::memory_order_acquire)) return done();
  const bool wait = !silent_.load(std::memory_order_relaxed);
  if (!wait) {
    state.silent_lookups.fetch_add(1, std::memory_order_relaxed);
    if (!probing_.exchange(true)) {
      const uint64_t until = env_.clock().now_ns() + kProbeNs;
      shared_->peers().ask(std::move(ids), until, [this, until] {
        if (env_.clock().now_ns() < until) silent_ = false;
        probing_ = false;
      });
    }
    return done();
  }
  auto call = std::make_shared<UniqueFunction<void()>>(std::move(done));
  shared_->peers().ask(std::move(ids), deadline_ns, [this, deadline_ns, call] {
    if (env_.clock().now_ns() >= deadline_ns) {
      silent_ = true;
      state_->silent_lookups.fetch_add(1, std::memory_order_relaxed);
    }
    (*call)();
  });
}

bool Share::is(ShareRole role) const noexcept { return state_->role.load(std::memory_order_acquire) == role; }

void Share::say(LogLevel level, const std::string& text) const {
  if (env_.log != nullptr) env_.log->write(level, "share", text);
}

}  // namespace kvbm::manager

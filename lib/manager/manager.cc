#include "manager/manager.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "manager/host_record.h"
#include "manager/offload.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::manager {

namespace {

// Tags tell the holds of one manager from those of another; with more than 255 managers in a process they repeat.
uint8_t next_tag() noexcept {
  static std::atomic<uint32_t> count{0};
  return static_cast<uint8_t>(count.fetch_add(1, std::memory_order_relaxed) % 255 + 1);
}

}  // namespace

Manager::Manager(const Environment& environment, Options options)
    : env_(environment), options_(std::move(options)), events_(families_), accounts_(1, true) {
  record_base_ = env_.random->next();
}

Manager::~Manager() = default;

Result<std::shared_ptr<Manager>> Manager::create(const Environment& environment, Options options) {
  if (options.tiers.size() > kMaxTiersBelow) {
    return Status(Code::bad_config, "too many tiers", "at most 6 below the host tier");
  }
  auto manager = std::shared_ptr<Manager>(new Manager(environment, std::move(options)));
  Status opened = manager->open_host();
  if (opened.ok()) opened = manager->open_tiers();
  if (!opened.ok()) return opened;
  if (manager->arena_->recovered()) manager->recover_host();
  return manager;
}

Status Manager::open_host() {
  auto arena = tier::HostArena::create(options_.host);
  if (!arena.ok()) return arena.status();
  arena_ = std::move(arena).value();

  block::BlockTable::Options table;
  table.slots = arena_->slots();
  table.policy = options_.policy;
  table.make = options_.make_policy ? options_.make_policy : &policy::make_eviction_policy;
  auto blocks = block::BlockTable::create(table);
  if (!blocks.ok()) return blocks.status();
  table_ = std::move(blocks).value();

  block::HoldTable::Options holds;
  holds.tag = next_tag();
  // Every slot held twice over, and room for weak holds: far beyond what an engine keeps.
  holds.max_holds = static_cast<uint32_t>(std::min<uint64_t>(arena_->slots() * 4ULL + 65536, 1U << 28));
  holds_ = std::make_unique<block::HoldTable>(holds);
  pins_ = std::make_unique<block::PinTable>(*table_);
  return {};
}

Status Manager::open_tiers() {
  for (size_t i = 0; i < options_.tiers.size(); ++i) {
    const TierOptions& options = options_.tiers[i];
    const auto index = static_cast<TierIndex>(i + 1);
    if (options.make) {
      auto made = options.make(index, families_, this);
      if (!made.ok()) return made.status();
      tiers_.push_back(std::move(made).value());
    } else {
      tier::disk::DiskTierOptions disk;
      disk.path = options.path;
      disk.capacity_bytes = options.capacity_bytes;
      disk.write_bytes_per_s = options.write_bytes_per_s;
      disk.read_bytes_per_s = options.read_bytes_per_s;
      auto opened = tier::disk::DiskTier::open(disk, *env_.files, *env_.executor, families_, *env_.random, this, index);
      if (!opened.ok()) return opened.status();
      tiers_.push_back(std::move(opened).value());
    }
    offloaders_.push_back(std::make_unique<Offloader>(*this, index, options));
    hears_uses_ = hears_uses_ || offloaders_.back()->admits_on_use();
  }
  return {};
}

void Manager::shutdown(UniqueFunction<void()> done) {
  closing_.store(true, std::memory_order_release);
  struct Closing {
    std::shared_ptr<Manager> manager;
    UniqueFunction<void()> done;
    std::atomic<size_t> waiting{0};
  };
  auto closing = std::make_shared<Closing>();
  closing->manager = shared_from_this();
  closing->done = std::move(done);
  closing->waiting = offloaders_.size() + 1;
  const auto one = [closing] {
    if (closing->waiting.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      UniqueFunction<void()> call = std::move(closing->done);
      call();
    }
  };
  for (size_t i = 0; i < offloaders_.size(); ++i) {
    offloaders_[i]->when_idle([closing, one, i] { closing->manager->tiers_[i]->shutdown(one); });
  }
  one();
}

void Manager::flush(UniqueFunction<void()> done) {
  auto waiting = std::make_shared<std::atomic<size_t>>(offloaders_.size() + 1);
  auto call = std::make_shared<UniqueFunction<void()>>(std::move(done));
  const auto one = [waiting, call] {
    if (waiting->fetch_sub(1, std::memory_order_acq_rel) == 1) (*call)();
  };
  for (auto& offloader : offloaders_) offloader->when_idle(one);
  one();
}

std::array<uint8_t, 16> Manager::new_record_id() noexcept {
  std::array<uint8_t, 16> id;
  const uint64_t count = record_count_.fetch_add(1, std::memory_order_relaxed);
  std::memcpy(id.data(), &record_base_, sizeof record_base_);
  std::memcpy(id.data() + 8, &count, sizeof count);
  return id;
}

// ---- Namespaces ----

Result<std::shared_ptr<Namespace>> Manager::open_namespace(NamespaceOptions options) {
  if (options.model.empty()) return Status(Code::invalid_argument, "a namespace needs a model identity");
  if (options.tenant.size() > 1024 || options.model.size() > 1024 || options.adapter.size() > 1024) {
    return Status(Code::invalid_argument, "tenant, model and adapter are at most 1024 bytes each");
  }
  block::AccountId account = block::kSharedAccount;
  if (options.quota_bytes != 0) {
    MutexLock lock(namespaces_mutex_);
    while (account < accounts_.size() && accounts_[account]) ++account;
    if (account == block::kMaxAccounts) return Status(Code::no_room, "too many namespaces with quotas");
    if (account == accounts_.size()) accounts_.push_back(false);
    accounts_[account] = true;
  }
  uint64_t epoch = options.epoch;
  const Namespace probe(options, families_, account, 0);
  for (auto& tier : tiers_) {
    const auto known = tier->epoch(probe.base_id());
    if (!known.ok()) return known.status();
    epoch = std::max(epoch, known.value());
  }
  auto ns = std::make_shared<Namespace>(std::move(options), families_, account, epoch);
  if (account != block::kSharedAccount) {
    const Status set = set_quota(*ns, ns->options().quota_bytes, ns->options().quota_mode);
    if (!set.ok()) return set;
  }
  return ns;
}

Status Manager::set_quota(Namespace& ns, uint64_t bytes, block::OverQuota mode) {
  if (ns.account() == block::kSharedAccount) {
    return Status(Code::unsupported, "the namespace was opened without a quota; open it with one to change it");
  }
  const uint64_t slots = bytes == 0 ? block::kNoLimit : bytes / arena_->slot_bytes();
  if (slots == 0) {
    return Status(Code::invalid_argument, "the quota is smaller than one block");
  }
  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(slots, block::kNoLimit));
  const Code code = table_->set_limit(ns.account(), limit, mode);
  return code == Code::ok ? Status{} : Status(code, "the quota could not be set");
}

Status Manager::invalidate(Namespace& ns) {
  const uint64_t epoch = ns.epoch() + 1;
  for (auto& tier : tiers_) {
    const Status set = tier->set_epoch(ns.base_id(), epoch);
    if (!set.ok()) return set;
  }
  for (const FamilyId family : ns.advance(epoch)) {
    table_->erase_family(family);
    for (auto& tier : tiers_) {
      const Status erased = tier->erase_family(family);
      if (!erased.ok()) env_.log->write(LogLevel::warning, "manager", "an old epoch's records stay until they are evicted");
    }
  }
  events_.publish(copy::EventKind::cleared, 0);
  return {};
}

Status Manager::reset(Namespace& ns) {
  Status first;
  for (const FamilyId family : ns.families()) {
    table_->erase_family(family);
    for (auto& tier : tiers_) {
      Status erased = tier->erase_family(family);
      if (!erased.ok() && first.ok()) first = std::move(erased);
    }
  }
  events_.publish(copy::EventKind::cleared, 0);
  return first;
}

Status Manager::reset_all() {
  Status first;
  table_->erase_all();
  for (FamilyId family = 0; family < families_.size(); ++family) {
    for (auto& tier : tiers_) {
      Status erased = tier->erase_family(family);
      if (!erased.ok() && first.ok()) first = std::move(erased);
    }
  }
  events_.publish(copy::EventKind::cleared, 0);
  return first;
}

// ---- Slots ----

Code Manager::allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted) {
  std::vector<block::Evicted> mine;
  std::vector<block::Evicted>& gone = evicted != nullptr ? *evicted : mine;
  const size_t before = gone.size();
  const Code code = table_->allocate(account, out, &gone, tick());
  try {
    if (gone.size() != before) tell_evicted(std::span(gone).subspan(before));
    for (auto& offloader : offloaders_) offloader->relieve();
  } catch (...) {
    if (code == Code::ok) release(out);  // refused memory: the caller gets none of them
    throw;
  }
  return code;
}

void Manager::tell_evicted(std::span<const block::Evicted> gone) {
  add(counters_.tiers[0].evictions, gone.size());
  if (!events_.wanted()) return;
  std::vector<Identity> ids;
  ids.reserve(gone.size());
  for (const block::Evicted& one : gone) ids.push_back(one.identity);
  events_.publish(copy::EventKind::removed, 0, ids);
}

void Manager::evict_held(std::span<const SlotId> slots) {
  if (slots.empty()) return;
  std::vector<block::Evicted> gone;
  table_->evict_held(slots, &gone, tick());
  tell_evicted(gone);
}

Code Manager::publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
                      std::span<Code> codes) {
  const Code all = table_->publish(inout, what, codes);
  add(counters_.tiers[0].stores, static_cast<uint64_t>(std::count(codes.begin(), codes.end(), Code::ok)));
  if (events_.wanted()) {
    std::vector<Key> keys;
    std::vector<Key> parents;
    for (size_t i = 0; i < inout.size(); ++i) {
      if (codes[i] != Code::ok) continue;
      keys.push_back(what.keys[i]);
      parents.push_back(i < parents_of_events.size() ? parents_of_events[i] : Key{});
    }
    events_.publish(copy::EventKind::stored, 0, what.family, keys, parents);
  }
  if (offloaders_.empty()) return all;
  std::vector<SlotId> fresh;
  fresh.reserve(inout.size());
  for (size_t i = 0; i < inout.size(); ++i) {
    if (codes[i] == Code::ok) fresh.push_back(inout[i]);
  }
  for (auto& offloader : offloaders_) {
    if (!fresh.empty()) offloader->stored(fresh);
  }
  return all;
}

SlotId Manager::acquire_one(FamilyId family, const Key& key) noexcept {
  SlotId slot = kNoSlot;
  table_->acquire_each(family, {&key, 1}, {&slot, 1}, block::kNoUse);
  return slot;
}

void Manager::quarantine(SlotId slot) {
  const Identity id = table_->identity(slot);
  add(counters_.verify_failures, 1);
  add(counters_.tiers[0].damaged, 1);
  table_->erase(id.family, {&id.key, 1});
  events_.publish(copy::EventKind::removed, 0, {&id, 1});
  env_.log->write(LogLevel::error, "manager", "a host block failed verification and was dropped");
}

void Manager::used(std::span<const SlotId> slots) {
  for (auto& offloader : offloaders_) offloader->used(slots);
}

// ---- Care ----

size_t Manager::drop(FamilyId family, std::span<const Key> keys) {
  const size_t n = table_->erase(family, keys);
  std::vector<Identity> ids;
  ids.reserve(keys.size());
  for (const Key& key : keys) ids.push_back({key, family});
  for (auto& tier : tiers_) tier->erase(ids);
  events_.publish(copy::EventKind::removed, 0, ids);
  return n;
}

void Manager::hint(FamilyId family, std::span<const Key> keys, uint8_t priority) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  table_->acquire_each(family, keys, slots, block::kNoUse);
  slots.erase(std::remove(slots.begin(), slots.end(), kNoSlot), slots.end());
  table_->set_priority(slots, priority);
  release(slots);
}

Code Manager::pin(FamilyId family, std::span<const Key> keys, uint64_t owner, uint64_t deadline_ns, block::PinId& id,
                  size_t& count) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  count = table_->acquire_prefix(family, keys, slots, block::kNoUse);
  id = 0;
  if (count == 0) return Code::ok;
  slots.resize(count);
  struct Release {
    Manager& manager;
    std::span<const SlotId> slots;
    ~Release() { manager.release(slots); }
  };
  const Release release_at_end{*this, slots};
  const auto pinned = pins_->pin(slots, owner, deadline_ns);
  if (!pinned.ok()) {
    count = 0;
    return pinned.status().code();
  }
  id = pinned.value();
  if (deadline_ns != kNever) arm_pins(deadline_ns);
  return Code::ok;
}

Code Manager::unpin(block::PinId id) { return pins_->unpin(id); }

size_t Manager::unpin_owner(uint64_t owner) { return pins_->owner_died(owner).size(); }

void Manager::arm_pins(uint64_t deadline_ns) {
  uint64_t armed = armed_ns_.load(std::memory_order_relaxed);
  while (deadline_ns < armed) {
    if (!armed_ns_.compare_exchange_weak(armed, deadline_ns, std::memory_order_relaxed)) continue;
    env_.executor->post_at(deadline_ns, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->expire_pins();
    });
    return;
  }
}

void Manager::expire_pins() {
  armed_ns_.store(kNever, std::memory_order_relaxed);
  pins_->expire(env_.clock().now_ns());
  const uint64_t next = pins_->next_deadline_ns();
  if (next != kNever) arm_pins(next);
}

// ---- tier::TierListener ----

void Manager::removed(TierIndex tier, std::span<const Identity> ids, bool damaged) {
  TierCounters& counters = counters_.tiers[tier];
  add(damaged ? counters.damaged : counters.evictions, ids.size());
  // The host's copy no longer has one below: it may be offloaded again.
  for (const Identity& id : ids) {
    SlotId slot = kNoSlot;
    table_->acquire_each(id.family, {&id.key, 1}, {&slot, 1}, block::kNoUse);
    if (slot == kNoSlot) continue;
    table_->clear_flags(slot, on_tier_flag(tier));
    release({&slot, 1});
  }
  events_.publish(copy::EventKind::removed, tier, ids);
}

void Manager::disabled(TierIndex tier, const Status& why) {
  disabled_.fetch_or(1U << tier, std::memory_order_relaxed);
  env_.log->write(LogLevel::error, "tier", why.message());
  events_.publish(copy::EventKind::disabled, tier);
}

}  // namespace kvbm::manager

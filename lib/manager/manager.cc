#include "manager/manager.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "base/memory_wait.h"
#include "cluster/peer_tier.h"
#include "manager/coded_tiers.h"
#include "manager/coding_terms.h"
#include "manager/device_caches.h"
#include "manager/host_record.h"
#include "manager/newcomers.h"
#include "manager/offload.h"
#include "manager/seal_keys.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::manager {

namespace {

// Tags tell the holds of one manager from those of another; with more than 255 managers in a process they repeat.
uint8_t next_tag() noexcept {
  static std::atomic<uint32_t> count{0};
  return static_cast<uint8_t>(count.fetch_add(1, std::memory_order_relaxed) % 255 + 1);
}

// Initial cost of a source before it is measured: about a third of what docs/benchmarks.md measured on a small
// machine. A wrong guess costs little: the first batches correct it.
copy::SourceCost::Seed seed_of(std::string_view kind, uint64_t cap_bytes_per_s) noexcept {
  if (kind == "disk") return {200'000, 1.0, cap_bytes_per_s};    // 0.2 ms, 1 GB/s
  if (kind == "plugin") return {1'000'000, 5.0, 0};              // 1 ms, 0.2 GB/s
  if (kind == "store") return {5'000'000, 2.0, 0};               // 5 ms, 0.5 GB/s
  return {500'000, 1.0, 0};                                      // nodes, the owner: 0.5 ms, 1 GB/s
}
constexpr copy::SourceCost::Seed kHostSeed{20'000, 0.15, 0};     // 20 us, 6.7 GB/s

}  // namespace

// Marks an invalidation in progress: begins before the host drops blocks, ends after the tiers have.
class Manager::Forgetting {
 public:
  Forgetting(Manager& manager, size_t first, size_t n) : forgets_(std::span(manager.forgets_).subspan(first, n)) {
    for (Forgets& one : forgets_) one.begun.fetch_add(1);
  }
  ~Forgetting() {
    for (Forgets& one : forgets_) one.ended.fetch_add(1);
  }
  Forgetting(const Forgetting&) = delete;
  Forgetting& operator=(const Forgetting&) = delete;

 private:
  std::span<Forgets> forgets_;
};

Manager::Manager(const Environment& environment, Options options)
    : env_(environment),
      options_(std::move(options)),
      events_(families_),
      coding_terms_(std::make_shared<CodingTerms>()) {
  record_base_ = env_.random->next();
}

Manager::~Manager() = default;

Result<std::shared_ptr<Manager>> Manager::create(const Environment& environment, Options options) {
  if (options.tiers.size() > kMaxTiersBelow) {
    return Status(Code::bad_config, "too many tiers", "at most 6 below the host tier");
  }
  if (Status keys = load_seal_keys(options); !keys.ok()) return keys;
  auto manager = std::shared_ptr<Manager>(new Manager(environment, std::move(options)));
  Status opened = manager->open_host();
  if (opened.ok()) opened = manager->open_tiers();
  if (!opened.ok()) return opened;
  manager->opened_.store(true, std::memory_order_release);  // read by wanted()
  if (manager->arena_->recovered()) manager->recover_host();
  manager->watch_families();
  return manager;
}

Status Manager::open_host() {
  tier::HostOptions host = options_.host;
  auto arena = tier::HostArena::create(host);
  if (!arena.ok() && arena.status().code() == Code::in_use && options_.share.on) {
    // Processes of a shared set have one configuration but a host tier each: only one of them can have the file.
    env_.log->write(LogLevel::warning, "manager", "the host tier is kept in memory: " + arena.status().message());
    host.file.clear();
    host.shared = true;
    arena = tier::HostArena::create(host);
  }
  if (!arena.ok() && host.shared) {
    env_.log->write(LogLevel::warning, "manager",
                    "the host memory cannot be shared with other processes: " + arena.status().message());
    host.shared = false;
    arena = tier::HostArena::create(host);
  }
  if (!arena.ok()) return arena.status();
  arena_ = std::move(arena).value();
  DeviceOptions device = options_.device;
  device.has_disk = std::any_of(options_.tiers.begin(), options_.tiers.end(),
                                [](const TierOptions& tier) { return !tier.path.empty(); });
  devices_ = std::make_unique<DeviceCaches>(env_, device, arena_->payloads(), arena_->payload(0).size(),
                                             arena_);
  if (Status there = devices_->require(); !there.ok()) return there;

  block::BlockTable::Options table;
  table.slots = arena_->slots();
  table.policy = options_.policy;
  table.make = options_.make_policy ? options_.make_policy : &policy::make_eviction_policy;
  table.marks = arena_->marks();
  auto blocks = block::BlockTable::create(table);
  if (!blocks.ok()) return blocks.status();
  table_ = std::move(blocks).value();

  block::HoldTable::Options holds;
  holds.tag = next_tag();
  // Two holds for every slot, plus weak holds: far more than an engine keeps.
  holds.max_holds = static_cast<uint32_t>(std::min<uint64_t>(arena_->slots() * 4ULL + 65536, 1U << 28));
  holds_ = std::make_unique<block::HoldTable>(holds);
  pins_ = std::make_unique<block::PinTable>(*table_);
  taken_ = std::make_unique<TakenBlocks>(*table_, [this](SlotId slot) {
    const auto head = codec::HeadView::parse(arena_->head(slot));
    return head.ok() ? head.value().header().parent : Key{};
  });
  landing_staging_ = std::make_unique<LandingStaging>(LandingStaging::limit_for(arena_->capacity_bytes()),
                                                      arena_->payload(0).size(), options_.host.huge_pages);
  // Offloaded blocks are found by their units too, while this table of some thousand entries remembers them.
  unit_index_ = std::make_unique<UnitIndex>(std::max<size_t>(size_t{arena_->slots()} * 4, 16384));
  return {};
}

Status Manager::open_tiers() {
  costs_[0].seed(kHostSeed);
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
    costs_[index].seed(seed_of(tiers_.back()->kind(), options.read_bytes_per_s));
    link_costs_[index].seed(seed_of(tiers_.back()->kind(), options.read_bytes_per_s));
    tiers_.back() = code_tier(*this, index, options, std::move(tiers_.back()));
    offloaders_.push_back(std::make_unique<Offloader>(*this, index, options));
    hears_uses_ = hears_uses_ || offloaders_.back()->admits_on_use();
    if (tiers_.back()->kind() != cluster::PeerTier::kKind) own_tiers_ |= on_tier_flag(index);
  }
  adopt_epochs();
  note_tiers_in_use();
  return {};
}

// Repeats the update if another thread has changed the tiers meanwhile.
void Manager::note_tiers_in_use() noexcept {
  const auto in_use = [this] {
    uint8_t flags = 0;
    for (size_t i = 1; i <= options_.tiers.size(); ++i) {
      if (!out_of_use(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
    }
    // A block received from a node is flagged as being on the peer tier, but may exist here alone.
    return static_cast<uint8_t>(taken_->any_given() ? flags & own_tiers_ : flags);
  };
  uint8_t flags = 0;
  do {
    flags = in_use();
    table_->let_go_with(flags);
  } while (flags != in_use());
}

void Manager::shutdown(UniqueFunction<void()> done) {
  const MemoryWait nobody_to_tell;
  closing_.store(true, std::memory_order_release);
  room_.room_came();  // wakes the waiters, which then see that the manager is closing
  closed_ = std::move(done);
  closing_parts_ = offloaders_.size() + 1;
  for (size_t i = 0; i < offloaders_.size(); ++i) {
    if (!closes_after_above(i)) close_tier(i);
  }
  part_closed();
}

// Returns true if the tier takes over records from the tier above, and so must be closed after that one.
bool Manager::closes_after_above(size_t i) const noexcept {
  return i != 0 && i < tiers_.size() && tiers_[i - 1]->offers_what_it_lets_go() && is_storage(*tiers_[i]);
}

void Manager::close_tier(size_t i) {
  offloaders_[i]->when_idle([self = shared_from_this(), i] {
    self->tiers_[i]->shutdown([self, i] {
      if (self->closes_after_above(i + 1)) self->close_tier(i + 1);
      self->part_closed();
    });
  });
}

void Manager::part_closed() {
  if (closing_parts_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  UniqueFunction<void()> call = std::move(closed_);
  call();
}

std::array<uint8_t, 16> Manager::new_record_id() noexcept {
  std::array<uint8_t, 16> id;
  const uint64_t count = record_count_.fetch_add(1, std::memory_order_relaxed);
  std::memcpy(id.data(), &record_base_, sizeof record_base_);
  std::memcpy(id.data() + 8, &count, sizeof count);
  return id;
}

// ---- Invalidation ----

// Erases every family of the namespace, including those of other handles and of earlier processes.
Status Manager::erase_families_of(const NamespaceId& id) {
  Status first;
  for (const FamilyId family : families_.of(id)) {
    Status erased = forget_family(family);
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  return first;
}

Status Manager::forget_family(FamilyId family) {
  Status first;
  const Forgetting forgetting(*this, family % kForgets, 1);
  table_->erase_family(family);
  share_.unflushed.forget(family);
  taken_->let_go_all(tick());
  for (auto& offloader : offloaders_) {
    Status erased = offloader->erase_families({&family, 1});
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  return first;
}

Status Manager::reset(Namespace& ns) {
  Status first = erase_families_of(ns.id());
  events_.cleared(ns.id());
  return first.ok() ? arena_->sync() : first;
}

Status Manager::reset_all() {
  Status first;
  const Forgetting forgetting(*this, 0, kForgets);
  table_->erase_all();
  share_.unflushed.forget_all();
  taken_->let_go_all(tick());
  const std::vector<FamilyId> all = families_.all();
  for (auto& offloader : offloaders_) {
    Status erased = offloader->erase_families(all);
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  events_.cleared({});
  return first.ok() ? arena_->sync() : first;
}

// ---- Slots ----

Code Manager::allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted,
                       bool evicting) {
  std::vector<block::Evicted> mine;
  std::vector<block::Evicted>& gone = evicted != nullptr ? *evicted : mine;
  const size_t before = gone.size();
  Code code = table_->allocate(account, out, &gone, tick(), evicting);
  while (code == Code::no_room && evicting && taken_->let_go_some(tick())) {
    code = table_->allocate(account, out, &gone, tick());
  }
  if (code == Code::ok && recovered_.any()) {
    for (const SlotId slot : out) recovered_.remove(slot);
  }
  const MemoryWait told;  // the evictions have happened, so reporting them must not fail
  if (gone.size() != before) tell_lost(std::span(gone).subspan(before));
  for (auto& offloader : offloaders_) offloader->relieve();
  return code;
}

bool Manager::host_has_last_copies() const noexcept {
  bool last_copies = false;
  for (TierIndex i = 1; i <= tiers_.size(); ++i) {
    const bool write_back = options_.tiers[i - 1U].admission == AdmissionKind::on_eviction;
    last_copies = last_copies || (write_back && !out_of_use(i) && !is_fed(i));
  }
  return last_copies;
}

size_t Manager::slots_to_land_in(size_t n) {
  if (!host_has_last_copies() || table_->counters().free >= n) return n;
  const MemoryWait told;
  for (auto& offloader : offloaders_) offloader->relieve();
  return std::min<size_t>(n, table_->counters().free);
}

size_t Manager::slots_to_store_in(block::AccountId account, size_t n, Code& why) {
  if (!host_has_last_copies()) return n;
  const auto room = [&] {
    size_t most = std::min<size_t>(n, table_->counters().free);
    why = Code::no_room;
    const block::AccountUse use = table_->account_use(account);
    const uint32_t left = use.limit > use.used ? use.limit - use.used : 0;
    if (account == block::kSharedAccount || use.mode == block::OverQuota::reject || left >= most) return most;
    why = Code::over_quota;
    return size_t{left};
  };
  if (const size_t most = room(); most == n) return n;
  const MemoryWait told;
  const block::AccountId whose = why == Code::over_quota ? account : block::kSharedAccount;
  for (auto& offloader : offloaders_) offloader->relieve(n, whose);
  while (room() == 0 && offloading_blocks() == 0 && taken_->let_go_some(tick())) {
    for (auto& offloader : offloaders_) offloader->relieve(n, whose);
  }
  return room();
}

void Manager::write_back(SlotId slot) {
  const MemoryWait told;
  for (TierIndex i = 1; i <= tiers_.size(); ++i) {
    if (options_.tiers[i - 1U].admission != AdmissionKind::on_eviction || out_of_use(i) || is_fed(i)) continue;
    table_->retain({&slot, 1});
    offloader(i).request({slot}, nullptr);
  }
}

// Searches from the host down: a block that moves down is in the lower tier before it leaves the upper one.
bool Manager::is_nowhere(const Identity& id) {
  const SlotId slot = acquire_one(id.family, id.key);
  if (slot != kNoSlot) release({&slot, 1});
  if (slot != kNoSlot) return false;
  for (TierIndex i = 1; i <= tiers_.size(); ++i) {
    if (out_of_use(i)) continue;
    tier::Found found;
    if (!is_storage(*tiers_[i - 1U])) return false;
    tiers_[i - 1U]->find({&id, 1}, {&found, 1}, false);
    if (found.present) return false;
  }
  return true;
}

Code Manager::allocate_leading(block::AccountId account, std::span<SlotId> out, size_t& got, bool evicting) {
  got = 0;
  for (size_t want = out.size(); got < out.size();) {
    want = std::min(want, out.size() - got);
    Code code = Code::no_memory;
    try {
      code = allocate(account, out.subspan(got, want), nullptr, evicting);
    } catch (const std::bad_alloc&) {
      if (got == 0) throw;
      return Code::ok;  // slots taken so far belong to the caller
    }
    if (code == Code::ok) {
      got += want;
    } else if (want > 1) {
      want = (want + 1) / 2;
    } else {
      return got != 0 ? Code::ok : code;
    }
  }
  return Code::ok;
}

void Manager::tell_evicted(std::span<const block::Evicted> gone) {
  add(counters_.tiers[0].evictions, gone.size());
  taken_->evicted(gone, own_tiers_);
  if (!events_.wanted()) return;
  std::vector<Identity> ids;
  ids.reserve(gone.size());
  for (const block::Evicted& one : gone) ids.push_back(one.identity);
  events_.publish(copy::EventKind::removed, 0, ids);
}

void Manager::tell_lost(std::span<const block::Evicted> gone) {
  for (auto& offloader : offloaders_) offloader->evicted(gone);
  tell_evicted(gone);
}

size_t Manager::evict_held(std::span<const SlotId> slots) {
  if (slots.empty()) return 0;
  std::vector<block::Evicted> gone;
  const MemoryWait told;
  const size_t count = table_->evict_held(slots, &gone, tick());
  tell_evicted(gone);
  room_.room_came();
  return count;
}

void Manager::yield_offloads(size_t blocks) {
  const MemoryWait told;
  for (auto& offloader : offloaders_) {
    if (blocks == 0) return;
    blocks -= std::min(blocks, offloader->yield(blocks));
  }
}

uint64_t Manager::offloading_blocks() const {
  uint64_t bytes = 0;
  for (const auto& offloader : offloaders_) bytes += offloader->held_bytes();
  return bytes / arena_->slot_bytes();
}

Code Manager::publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
                      std::span<Code> codes, const Bringer& bringer, const Newcomers* newcomers) {
  const Code all = table_->publish(inout, what, codes);
  const MemoryWait told;  // the blocks are findable from here on, so the rest must not fail
  // The family's epoch ended so long ago that its id was recycled: no lookup asks for these blocks.
  const bool ended = !families_.has(what.family);
  if (ended) [[unlikely]] table_->erase(what.family, what.keys);
  uint64_t came_in = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < inout.size(); ++i) {
    if (codes[i] != Code::ok) continue;
    ++came_in;
    bytes += table_->payload_bytes(inout[i]);
  }
  add(counters_.tiers[0].stores, came_in);
  add(counters_.tiers[0].store_bytes, bytes);
  if (newcomers != nullptr) forget_others(what, *newcomers, codes);
  if (events_.wanted() && !ended) {
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
  for (size_t i = 0; i < offloaders_.size(); ++i) {
    if (!fresh.empty() && i + 1 != bringer.apart) offloaders_[i]->stored(fresh, bringer.waits);
  }
  return all;
}

// Erases from the tiers below the blocks that a caller's block has replaced. They must not be read up again, nor keep
// the new block from being offloaded. Also erases records that exist only below and may differ from the new block.
void Manager::forget_others(const block::Publication& what, const Newcomers& newcomers, std::span<const Code> codes) {
  std::vector<Identity> ids;
  for (const size_t i : newcomers.replaced()) ids.push_back({what.keys[i], what.family});
  if (!ids.empty()) events_.publish(copy::EventKind::removed, 0, ids);
  if (!newcomers.are_callers()) return;
  std::vector<Identity> doubtful;
  for (size_t i = 0; i < what.keys.size() && newcomers.doubt_what_is_below(); ++i) {
    if (codes[i] == Code::ok) doubtful.push_back({what.keys[i], what.family});
  }
  std::vector<tier::Found> found(doubtful.size());
  for (auto& tier : tiers_) {
    if (doubtful.empty()) break;
    std::fill(found.begin(), found.end(), tier::Found{});
    tier->find(doubtful, found, false);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].present) ids.push_back(doubtful[i]);
    }
  }
  if (ids.empty()) return;
  const Forgetting forgetting(*this, what.family % kForgets, 1);
  for (auto& offloader : offloaders_) offloader->erase(ids);
}

SlotId Manager::acquire_one(FamilyId family, const Key& key) noexcept {
  SlotId slot = kNoSlot;
  table_->acquire_each(family, {&key, 1}, {&slot, 1}, block::kNoUse);
  return slot;
}

void Manager::keep_taken(std::span<const SlotId> slots) {
  if (taken_->any_given()) note_tiers_in_use();
  const uint64_t now = env_.clock().now_ns();
  if (taken_->keep(slots, now, tick())) expire_taken_at(now + TakenBlocks::kKeptNs);
}

void Manager::expire_taken_at(uint64_t when_ns) {
  env_.executor->post_at(when_ns, [weak = weak_from_this()] {
    const std::shared_ptr<Manager> alive = weak.lock();
    if (alive == nullptr) return;
    const uint64_t next = alive->taken_->expire(alive->env_.clock().now_ns(), alive->tick());
    alive->room_.room_came();
    if (next != kNever) alive->expire_taken_at(next);
  });
}

void Manager::quarantine(SlotId slot) {
  // The block is dropped and counted already; another block has its key now.
  if (table_->info(slot).withdrawn) return;
  add(counters_.verify_failures, 1);
  add(counters_.tiers[0].damaged, 1);
  if (table_->state(slot) != block::SlotState::registered) return;  // no lookup can find it
  const Identity id = table_->identity(slot);
  table_->erase(id.family, {&id.key, 1});
  events_.publish(copy::EventKind::removed, 0, {&id, 1});
  env_.log->write(LogLevel::error, "manager", "a host block failed verification and was dropped");
}

void Manager::tell_underflow() noexcept {
  if (underflow_told_.exchange(true, std::memory_order_relaxed)) return;
  const MemoryWait nobody_to_tell;
  env_.log->write(LogLevel::error, "manager",
                  "a reference to a host block was released that nothing held, which was refused: a fault of kvbm, or of "
                  "what writes to its memory; please report it (kvbm_reference_underflows_total counts them)");
}

void Manager::reject(TierIndex tier, const Identity& id, uint64_t location) {
  add(counters_.tiers[tier].errors, 1);
  tier_below(tier).reject(id, location);
  env_.log->write(LogLevel::error, "manager", "a block read from a lower tier failed verification and was dropped");
}

void Manager::used(std::span<const SlotId> slots) {
  for (auto& offloader : offloaders_) offloader->used(slots);
}

// ---- A shared tier set ----

void Manager::offer_all(TierIndex index) { offer(index, on_tier_flag(index)); }

void Manager::offer_missing(TierIndex index) { offer(index, 0); }

// `forgotten`: flags that are no longer valid.
void Manager::offer(TierIndex index, uint8_t forgotten) {
  constexpr size_t kPage = 256;
  std::vector<block::SlotInfo> page;
  for (SlotId next = 0; next < table_->slots();) {
    page.clear();
    next = table_->scan(next, page, kPage);
    std::vector<SlotId> held;
    for (const block::SlotInfo& info : page) {
      if (info.state != block::SlotState::registered || info.withdrawn) continue;
      if ((info.flags & ~forgotten & on_tier_flag(index)) != 0) continue;
      if (table_->acquire_weak(info.slot, info.generation)) held.push_back(info.slot);
    }
    for (const SlotId slot : held) table_->clear_flags(slot, forgotten);
    if (!held.empty()) offloaders_[index - 1U]->stored(held);
    release(held);
  }
}

// ---- Residency control ----

size_t Manager::drop(FamilyId family, std::span<const Key> keys) {
  const Forgetting forgetting(*this, family % kForgets, 1);
  const size_t n = table_->erase(family, keys);
  std::vector<Identity> ids;
  ids.reserve(keys.size());
  for (const Key& key : keys) ids.push_back({key, family});
  share_.unflushed.forget(ids);
  for (auto& offloader : offloaders_) offloader->erase(ids);
  events_.publish(copy::EventKind::removed, 0, ids);
  return n;
}

// Reads `ended` first: equal counts then prove that no invalidation was in progress in between.
uint64_t Manager::forget_mark(FamilyId family) const noexcept {
  const Forgets& forgets = forgets_[family % kForgets];
  const uint64_t ended = forgets.ended.load();
  const uint64_t begun = forgets.begun.load();
  return begun == ended ? begun : kForgetting;
}

bool Manager::forgotten_since(FamilyId family, uint64_t mark) const noexcept {
  return mark == kForgetting || forgets_[family % kForgets].begun.load() != mark;
}

void Manager::hint(FamilyId family, std::span<const Key> keys, uint8_t priority) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  table_->acquire_each(family, keys, slots, block::kNoUse);
  slots.erase(std::remove(slots.begin(), slots.end(), kNoSlot), slots.end());
  table_->set_priority(slots, priority, tick());
  release(slots);
  std::vector<Identity> ids;
  ids.reserve(keys.size());
  for (const Key& key : keys) ids.push_back({key, family});
  for (auto& tier : tiers_) tier->hint(ids, priority);
}

Code Manager::pin(FamilyId family, std::span<const Key> keys, uint64_t owner, uint64_t deadline_ns, block::PinId& id,
                  size_t& count, bool takes_lossy) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  slots.resize(table_->acquire_prefix(family, keys, slots, block::kNoUse));
  count = slots.size();
  id = 0;
  if (has_lossy() && !takes_lossy) {
    const auto lossy = std::find_if(slots.begin(), slots.end(), [this](SlotId slot) { return lies_lossy(*this, slot); });
    count = static_cast<size_t>(lossy - slots.begin());
    release(std::span(slots).subspan(count));
    slots.resize(count);
  }
  if (count == 0) return Code::ok;
  struct Release {
    Manager& manager;
    std::span<const SlotId> slots;
    ~Release() { manager.release(slots); }
  };
  const Release release_at_end{*this, slots};
  auto pinned = pins_->pin(slots, owner, deadline_ns);
  if (pinned.status().code() == Code::at_limit && !pins_->expire(env_.clock().now_ns()).empty()) {
    pinned = pins_->pin(slots, owner, deadline_ns);  // some pins had expired, but the executor had not removed them yet
    room_.room_came();
  }
  if (!pinned.ok()) {
    count = 0;
    return pinned.status().code();
  }
  id = pinned.value();
  if (deadline_ns != kNever) arm_pins(deadline_ns);
  return Code::ok;
}

Code Manager::unpin(block::PinId id) {
  const Code code = pins_->unpin(id);
  room_.room_came();
  return code;
}

size_t Manager::unpin_owner(uint64_t owner) {
  const size_t ended = pins_->owner_died(owner).size();
  room_.room_came();
  return ended;
}

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
  room_.room_came();
  const uint64_t next = pins_->next_deadline_ns();
  if (next != kNever) arm_pins(next);
}

// ---- tier::TierListener ----

void Manager::removed(TierIndex tier, std::span<const Identity> ids, bool damaged) {
  TierCounters& counters = counters_.tiers[tier];
  if (damaged) {
    add(counters.damaged, ids.size());
  } else {
    add(counters.evictions, ids.size());
  }
  // The record below is gone, so the host's copy may be offloaded again. No block is flagged until all tiers are
  // open.
  if (opened_.load(std::memory_order_acquire)) offloaders_[tier - 1U]->left(ids);
  events_.publish(copy::EventKind::removed, tier, ids);
}

void Manager::disabled(TierIndex tier, const Status& why) {
  disabled_.fetch_or(1U << tier, std::memory_order_relaxed);
  note_tiers_in_use();
  env_.log->write(LogLevel::error, "tier", why.message());
  events_.disabled(tier);
}

void Manager::warns(TierIndex /*tier*/, const Status& why) {
  if (env_.log != nullptr) env_.log->write(LogLevel::warning, "tier", why.message());
}

}  // namespace kvbm::manager

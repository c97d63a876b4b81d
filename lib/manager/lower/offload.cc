#include "manager/lower/offload.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/host/host_record.h"
#include "manager/host/host_tier.h"
#include "manager/lower/tier_order.h"

namespace kvbm::manager {

namespace {
// Host bytes that may be queued for tiers, and that tiers may be writing: half and a quarter of the host, so that
// offloads never fill the cache.
constexpr uint64_t kQueueShare = 2;
constexpr uint64_t kFlightShare = 4;

// Returns one edge's part of a share, at least one block.
uint64_t part_of(uint64_t share, HostTier& host) {
  const auto& tiers = host.options().tiers;
  const auto edges = std::count_if(tiers.begin(), tiers.end(),
                                   [](const TierOptions& tier) { return tier.admission != AdmissionKind::on_request; });
  const uint64_t slots = host.arena().slots() / share / std::max<uint64_t>(static_cast<uint64_t>(edges), 1);
  return std::max<uint64_t>(slots, 1) * host.arena().slot_bytes();
}
}  // namespace

Offloader::Offloader(HostTier& host, TierOrder& order, TierIndex tier, const TierOptions& options)
    : host_(host),
      order_(order),
      tier_(tier),
      options_(options),
      limit_bytes_(part_of(kQueueShare, host)),
      slot_bytes_(host.arena().slot_bytes()),
      flight_bytes_(std::min(kFlightBytes, part_of(kFlightShare, host))),
      admission_(policy::make_admission(
          admission_name(options.admission),
          {std::max<size_t>(65536, options.capacity_bytes / slot_bytes_), options.admission_uses})),
      queued_(host.table().slots()),
      writing_(host.table().slots(), false) {}

bool Offloader::admits_on_use() const noexcept {
  return options_.admission == AdmissionKind::after_uses || options_.admission == AdmissionKind::frequency;
}

uint64_t Offloader::queued_bytes() const {
  MutexLock lock(mutex_);
  return queue_.size() * slot_bytes_ + in_flight_ + taking_over_;
}

uint64_t Offloader::held_bytes() const {
  MutexLock lock(mutex_);
  // Blocks that relieve() has chosen but not queued yet have references too. Their number is not known, so one is
  // counted.
  return held_ + in_flight_ + (relieving_ || ending_ != 0 ? slot_bytes_ : 0);
}

void Offloader::stored(std::span<const SlotId> slots, bool all_stay) {
  const MemoryWait no_error_path;
  if (options_.admission == AdmissionKind::on_eviction || options_.admission == AdmissionKind::on_request) return;
  if (order_.out_of_use(tier_)) return;
  std::vector<Entry> entries;
  entries.reserve(slots.size());
  {
    MutexLock lock(mutex_);
    for (const SlotId slot : slots) {
      const uint64_t name = host_.table().identity(slot).hash();
      admission_->used(name);
      const bool there = (host_.table().flags(slot) & on_tier_flag(tier_)) != 0;  // read from there
      if (admission_->admits(name) && !there) entries.push_back(Entry{slot});
    }
  }
  add(std::move(entries), all_stay);
}

void Offloader::used(std::span<const SlotId> slots) {
  const MemoryWait no_error_path;
  if (!admits_on_use() || order_.out_of_use(tier_)) return;
  std::vector<Entry> entries;
  {
    MutexLock lock(mutex_);
    for (const SlotId slot : slots) {
      if (slot == kNoSlot || (host_.table().flags(slot) & on_tier_flag(tier_)) != 0) continue;
      const uint64_t name = host_.table().identity(slot).hash();
      admission_->used(name);
      if (admission_->admits(name)) entries.push_back(Entry{slot});
    }
  }
  add(std::move(entries));
}

void Offloader::request(std::vector<SlotId> slots, std::shared_ptr<Report> report) {
  const MemoryWait no_error_path;
  std::vector<Entry> entries;
  entries.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    entries.push_back(Entry{slots[i]});
    entries.back().index = i;
    entries.back().report = report;
  }
  {
    MutexLock lock(mutex_);
    held_ += entries.size() * slot_bytes_;
    queue_.insert(queue_.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  pump();
}

// Takes a reference for as many entries as may have one.
void Offloader::add(std::vector<Entry> entries, bool all_stay) {
  if (entries.empty()) return;
  size_t skipped = 0;
  {
    MutexLock lock(mutex_);
    for (Entry& entry : entries) {
      if (writing_[entry.slot]) continue;
      entry.generation = host_.table().generation(entry.slot);
      entry.held = all_stay || held_ + in_flight_ + slot_bytes_ <= limit_bytes_;
      // An entry queued without a reference may be evicted before its turn: a later one may get a reference.
      const Queued& known = queued_[entry.slot];
      if (known.is && known.generation == entry.generation && (known.held || !entry.held)) continue;
      if (queue_.size() >= 2 * static_cast<size_t>(host_.table().slots())) {
        ++skipped;
        continue;
      }
      if (entry.held) {
        host_.table().retain({&entry.slot, 1});
        held_ += slot_bytes_;
      }
      entry.marked = true;
      queued_[entry.slot] = {true, entry.held, entry.generation};
      queue_.push_back(std::move(entry));
    }
  }
  if (skipped != 0) manager::add(host_.counters().offload_skipped, skipped);
  pump();
}

bool Offloader::take_reference(Entry& entry) {
  if (entry.held) return true;
  entry.held = host_.table().acquire_weak(entry.slot, entry.generation);
  if (!entry.held) manager::add(host_.counters().offload_skipped, 1);
  return entry.held;
}

void Offloader::relieve(size_t wanted_slots, block::AccountId account) {
  const MemoryWait no_error_path;
  if (admits_on_use() || options_.admission == AdmissionKind::on_request || order_.out_of_use(tier_)) return;
  const uint32_t slots = host_.table().slots();
  const auto most = static_cast<uint32_t>(std::min<size_t>(wanted_slots, std::max<uint32_t>(slots / kFlightShare, 1)));
  const uint32_t low = std::max<uint32_t>({slots / 32, most, 1});
  if (account == block::kSharedAccount && host_.table().counters().free >= low) return;
  const bool write_back = options_.admission == AdmissionKind::on_eviction;
  if (write_back && order_.is_fed(tier_)) return;
  // A write-through tier has had the block before: if a tier below took it over from here, it still exists there.
  const uint8_t below =
      on_tier_flag(tier_) | (write_back ? order_.flags_of_feeders(tier_) : order_.flags_of_fed(tier_));
  uint32_t wanted = 0;
  {
    MutexLock lock(mutex_);
    if (relieving_ || held_ + in_flight_ >= limit_bytes_) return;
    wanted = shortage(low, wanted_slots != 0, account);
    if (wanted == 0) return;
    relieving_ = true;
  }
  std::vector<Entry> entries;
  for (wanted = std::min<uint32_t>(wanted, 64); wanted != 0;) {
    std::vector<SlotId> cold(wanted);
    // A block with children can be evicted once it is below, and must be if the ends of its chain are in use.
    cold.resize(host_.table().select_cold(cold, host_.tick(), account, write_back));
    std::vector<SlotId> clean;
    for (const SlotId slot : cold) {
      const bool there = (host_.table().flags(slot) & below) != 0;
      if (there) {
        clean.push_back(slot);
      } else {
        entries.push_back(Entry{slot});
        entries.back().evict_after = true;
        entries.back().account = host_.table().info(slot).account;
      }
    }
    // Replaces blocks that were acquired by readers meanwhile.
    wanted = static_cast<uint32_t>(clean.size() - host_.evict_held(clean));
  }
  // A tier should get parents before their children, as far as the order is known here.
  std::stable_sort(entries.begin(), entries.end(), [this](const Entry& a, const Entry& b) {
    return host_.table().depth(a.slot) < host_.table().depth(b.slot);
  });
  {
    MutexLock lock(mutex_);
    relieving_ = false;
    held_ += entries.size() * slot_bytes_;
    all_demotions_ += static_cast<uint32_t>(entries.size());
    for (const Entry& entry : entries) ++demotions_[entry.account];
    // Queued ahead of the others, because they are about to be evicted.
    queue_.insert(queue_.begin(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  pump();
}

// Returns how many blocks are to be written and evicted. Reads the count of free slots under the lock: blocks that
// another thread has just evicted are in it.
uint32_t Offloader::shortage(uint32_t low, bool counts_demotions, block::AccountId account) const {
  const bool at_limit = account != block::kSharedAccount;
  uint32_t have = at_limit ? 0 : host_.table().counters().free;
  const auto of_account = demotions_.find(account);
  if (counts_demotions && !at_limit) have += all_demotions_;
  if (counts_demotions && at_limit && of_account != demotions_.end()) have += of_account->second;
  return low > have ? low - have : 0;
}

void Offloader::end_demotions(std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    if (!entry.evict_after) continue;
    --all_demotions_;
    const auto of_account = demotions_.find(entry.account);
    if (--of_account->second == 0) demotions_.erase(of_account);
  }
}

void Offloader::evicted(std::span<const block::Evicted> gone) {
  if (options_.admission != AdmissionKind::on_eviction || order_.out_of_use(tier_) || order_.is_fed(tier_)) return;
  const uint8_t below = on_tier_flag(tier_) | order_.flags_of_feeders(tier_);
  const auto lost =
      std::count_if(gone.begin(), gone.end(), [below](const block::Evicted& one) { return (one.flags & below) == 0; });
  if (lost != 0) manager::add(host_.counters().offload_skipped, static_cast<uint64_t>(lost));
}

size_t Offloader::yield(size_t blocks) {
  std::vector<SlotId> given;
  {
    MutexLock lock(mutex_);
    for (auto at = queue_.rbegin(); at != queue_.rend() && given.size() < blocks; ++at) {
      if (!at->held || !at->marked) continue;
      given.push_back(at->slot);
      at->held = false;
      held_ -= slot_bytes_;
      if (Queued& known = queued_[at->slot]; known.generation == at->generation) known.held = false;
    }
  }
  // Notifies only if slots are released: the caller may wait in the space queue, and would wake itself forever.
  if (!given.empty()) host_.release(given);
  return given.size();
}

void Offloader::when_idle(UniqueFunction<void()> idle) {
  const MemoryWait no_error_path;
  {
    MutexLock lock(mutex_);
    if (!at_rest()) {
      idle_.push_back(std::move(idle));
      return;
    }
  }
  idle();
}

std::vector<Offloader::Entry> Offloader::next_batch() {
  std::vector<Entry> batch;
  if (in_flight_ >= flight_bytes_) return batch;
  // The first batch is small, because the tier is idle while it is hashed.
  const uint64_t most = std::min(in_flight_ == 0 ? kFirstBatchBytes : kBatchBytes, flight_bytes_ - in_flight_);
  while (!queue_.empty() && batch.size() < kBatchItems && batch.size() * slot_bytes_ < most) {
    const Entry& next = queue_.front();
    if (next.held) held_ -= slot_bytes_;
    if (Queued& known = queued_[next.slot]; next.marked && known.generation == next.generation) known.is = false;
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  in_flight_ += batch.size() * slot_bytes_;
  return batch;
}

// Sends one batch a task: its blocks are hashed here, and work that loads wait for runs between two batches.
void Offloader::pump() {
  for (;;) {
    std::vector<Entry> batch;
    std::vector<UniqueFunction<void()>> idle;
    bool more = false;
    {
      MutexLock lock(mutex_);
      batch = next_batch();
      more = !batch.empty() && !queue_.empty();
      if (batch.empty() && at_rest()) idle.swap(idle_);
    }
    for (auto& call : idle) call();
    if (batch.empty()) return;
    send(std::move(batch));
    if (!more) continue;
    host_.env().executor->post([this, keep = host_.lifetime().keep(*this)] { pump(); });
    return;
  }
}

// miss: the block was invalidated.
void Offloader::note_failure(const Entry& entry, Code code) noexcept {
  if (code == Code::ok || code == Code::miss || entry.report != nullptr) return;
  failed_.fetch_add(1, std::memory_order_release);
}

// Ends entries that will not be sent. Slots are released before the reports, so that they can be evicted from there
// on.
void Offloader::drop(std::span<Entry> entries, Code why) {
  std::vector<SlotId> slots;
  for (const Entry& entry : entries) slots.push_back(entry.slot);
  host_.release(slots);
  {
    MutexLock lock(mutex_);
    end_demotions(entries);
  }
  for (Entry& entry : entries) {
    note_failure(entry, why);
    if (entry.report != nullptr) (*entry.report)(entry.index, why);
  }
}

// Starts the write of an entry. now: write it, `item` is filled in. later: it cannot be written yet, and is in
// `later`. over: it has ended, or waits for a write of the same block.
Offloader::Turn Offloader::begin(Entry& entry, tier::PutItem& item, std::vector<Entry>& later) {
  if (!take_reference(entry)) return Turn::over;
  const SlotId slot = entry.slot;
  if (host_.table().info(slot).withdrawn) {  // invalidated while it was queued
    drop({&entry, 1}, Code::miss);
    return Turn::over;
  }
  const bool disabled = order_.disabled(tier_);
  bool there = false;
  {
    MutexLock lock(mutex_);
    // A block that is being written may be flagged before it is certain to be there.
    if (writing_[slot]) {
      followers_.emplace(slot, std::move(entry));
      return Turn::over;
    }
    there = (host_.table().flags(slot) & on_tier_flag(tier_)) != 0;
    if (!there && !disabled) writing_[slot] = true;
  }
  if (there || disabled) {
    drop({&entry, 1}, there ? Code::ok : Code::tier_disabled);
    return Turn::over;
  }
  const Code code = describe_for_put(host_, slot, item);
  if (code == Code::ok) return Turn::now;
  std::vector<Entry> ended;
  ended.push_back(std::move(entry));
  std::vector<Code> codes = {code};
  end_writing(ended, codes);
  if (code != Code::again) {
    drop(ended, code);
    return Turn::over;
  }
  std::move(ended.begin(), ended.end(), std::back_inserter(later));
  return Turn::later;
}

// Ends the writes of these blocks. Appends the entries that waited for them, each with the outcome of its write.
void Offloader::end_writing(std::vector<Entry>& entries, std::vector<Code>& codes) {
  MutexLock lock(mutex_);
  const size_t n = entries.size();
  for (size_t i = 0; i < n; ++i) {
    const SlotId slot = entries[i].slot;
    writing_[slot] = false;
    const auto [first, last] = followers_.equal_range(slot);
    for (auto at = first; at != last; ++at) {
      entries.push_back(std::move(at->second));
      entries.back().again = entries[i].again;
      codes.push_back(codes[i]);
    }
    followers_.erase(first, last);
  }
}

void Offloader::send(std::vector<Entry> entries) {
  // Allocates all memory that is needed before any block is marked as being written.
  auto batch = std::make_unique<tier::PutBatch>();
  auto sent = std::make_shared<Sent>();
  std::vector<Entry> later;
  std::vector<SlotId> slots;
  std::vector<uint8_t> priorities(entries.size());
  batch->items.reserve(entries.size());
  batch->status.reserve(entries.size());
  sent->entries.reserve(entries.size());
  slots.reserve(entries.size());
  for (Entry& entry : entries) {
    tier::PutItem item;
    if (begin(entry, item, later) != Turn::now) continue;
    batch->items.push_back(item);
    slots.push_back(entry.slot);
    sent->entries.push_back(std::move(entry));
  }
  sent->left = left_.load();
  sent->erased = erased_.load();
  const uint64_t charged = sent->entries.size() * slot_bytes_;
  sent->charged = charged;
  {
    MutexLock lock(mutex_);
    in_flight_ += charged + later.size() * slot_bytes_;
    in_flight_ -= entries.size() * slot_bytes_;
  }
  if (!later.empty()) send_later(std::move(later));
  if (sent->entries.empty()) return;  // pump() continues
  batch->status.assign(sent->entries.size(), Code::internal);
  host_.table().priorities(slots, priorities);
  for (size_t i = 0; i < slots.size(); ++i) batch->items[i].priority = priorities[i];
  batch->done = [this, keep = host_.lifetime().keep(*this), sent](tier::PutBatch& done) {
    finished(*sent, done);
    if (sent->open.fetch_sub(1, std::memory_order_acq_rel) == 1) end(*sent);
  };
  // References of its own: the batch may be over before put() returns.
  host_.table().retain(slots);
  order_.tier(tier_).put(std::move(batch));
  erase_forgotten(slots);
  host_.table().release(slots, host_.tick());  // end() notifies waiters for space
  if (sent->open.fetch_sub(1, std::memory_order_acq_rel) == 1) end(*sent);
}

// Retries blocks while another thread makes their heads.
void Offloader::send_later(std::vector<Entry> entries) {
  auto shared = std::make_shared<std::vector<Entry>>(std::move(entries));
  host_.env().executor->post_at(host_.env().clock().now_ns() + kHeadRetryNs,
                                [this, keep = host_.lifetime().keep(*this), shared] {
                                  send(std::move(*shared));
                                  pump();
                                });
}

// Erases blocks that were invalidated before the tier had this put. Invalidation withdraws a block from the host
// first and erases it below afterwards, so such a slot is withdrawn by now.
void Offloader::erase_forgotten(std::span<const SlotId> slots) {
  std::vector<Identity> ids;
  for (const SlotId slot : slots) {
    if (host_.table().info(slot).withdrawn) ids.push_back(host_.table().identity(slot));
  }
  if (!ids.empty()) erase(ids);
}

// Erases blocks that were invalidated before the tier had stored them: a plug-in ignores an erase of a record it does
// not have yet. Blocks that were stored anew meanwhile stay.
void Offloader::erase_what_was_late(std::span<const SlotId> withdrawn) {
  std::vector<Identity> ids;
  for (const SlotId slot : withdrawn) {
    const Identity id = host_.table().identity(slot);
    const SlotId anew = host_.acquire_one(id.family, id.key);
    if (anew == kNoSlot) ids.push_back(id);
    host_.release(anew);
  }
  if (!ids.empty()) erase(ids);
}

// Clears the on-tier flag of these blocks. Returns the slots that had it, with references.
std::vector<SlotId> Offloader::unmark(std::span<const Identity> ids) {
  std::vector<SlotId> marked;
  marked.reserve(ids.size());
  left_.fetch_add(1);
  for (const Identity& id : ids) {
    const SlotId slot = host_.acquire_one(id.family, id.key);
    if (slot == kNoSlot) continue;
    if ((host_.table().clear_flags(slot, on_tier_flag(tier_)) & on_tier_flag(tier_)) != 0) {
      marked.push_back(slot);
    } else {
      host_.release({&slot, 1});
    }
  }
  return marked;
}

void Offloader::left(std::span<const Identity> ids) {
  const MemoryWait no_error_path;
  host_.release(unmark(ids));
}

class Offloader::Erasing {
 public:
  explicit Erasing(Offloader& offloader) : offloader_(offloader) { offloader_.erasing_.fetch_add(1); }
  ~Erasing() { offloader_.erased_.fetch_add(1); }
  Erasing(const Erasing&) = delete;
  Erasing& operator=(const Erasing&) = delete;

 private:
  Offloader& offloader_;
};

void Offloader::erase(std::span<const Identity> ids) {
  const MemoryWait no_error_path;
  const Erasing erasing(*this);
  order_.tier(tier_).erase(ids);
  send_again(unmark(ids));
  host_.events().publish(copy::EventKind::removed, tier_, ids);
}

Status Offloader::erase_families(std::span<const FamilyId> families) {
  constexpr size_t kPage = 256;
  const Erasing erasing(*this);
  Status erased = order_.tier(tier_).erase_families(families);
  const MemoryWait no_error_path;
  left_.fetch_add(1);
  std::vector<block::SlotInfo> page;
  for (SlotId next = 0; next < host_.table().slots();) {
    page.clear();
    next = host_.table().scan(next, page, kPage);
    std::vector<SlotId> anew;
    for (const block::SlotInfo& info : page) {
      if (info.state != block::SlotState::registered || info.withdrawn) continue;
      if ((host_.table().flags(info.slot) & on_tier_flag(tier_)) == 0) continue;
      if (!host_.table().acquire_weak(info.slot, info.generation)) continue;
      if (!std::binary_search(families.begin(), families.end(), host_.table().identity(info.slot).family)) {
        host_.release({&info.slot, 1});
        continue;
      }
      host_.table().clear_flags(info.slot, on_tier_flag(tier_));
      anew.push_back(info.slot);
    }
    send_again(std::move(anew));
  }
  return erased;
}

void Offloader::send_again(std::vector<SlotId> held) {
  if (held.empty()) return;
  if (order_.out_of_use(tier_)) return host_.release(held);
  request(std::move(held), nullptr);
}

std::vector<SlotId> Offloader::confirm(std::span<const SlotId> slots) {
  std::vector<Identity> ids;
  std::vector<SlotId> gone;
  ids.reserve(slots.size());
  for (const SlotId slot : slots) ids.push_back(host_.table().identity(slot));
  std::vector<tier::Found> found(ids.size());
  order_.tier(tier_).find(ids, found, false);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (found[i].present) continue;
    host_.table().clear_flags(slots[i], on_tier_flag(tier_));
    gone.push_back(slots[i]);
  }
  return gone;
}

void Offloader::finished(Sent& sent, tier::PutBatch& batch) {
  const MemoryWait no_error_path;
  std::vector<Entry>& entries = sent.entries;
  TierCounters& counters = host_.counters().tiers[tier_];
  std::vector<Identity> stored;
  std::vector<SlotId> forgotten;
  std::vector<SlotId> marked;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Code code = batch.status[i];
    if (code == Code::ok) {
      host_.table().set_flags(entries[i].slot, on_tier_flag(tier_));
      manager::add(counters.stores, 1);
      manager::add(counters.store_bytes, batch.items[i].payload.size());
      const bool gone = host_.table().info(entries[i].slot).withdrawn;
      if (gone) forgotten.push_back(entries[i].slot);
      if (!gone) stored.push_back(batch.items[i].id);
      if (!gone) marked.push_back(entries[i].slot);
    } else if (code == Code::no_room || code == Code::at_limit) {  // not the tier's fault: loads use all segments
      manager::add(host_.counters().offload_skipped, 1);
      if (code == Code::at_limit) manager::add(host_.counters().offload_at_limit, 1);
    } else {
      manager::add(counters.errors, 1);
    }
  }
  host_.events().publish(copy::EventKind::stored, tier_, stored);
  // left_ is raised before a removal is published. So if a record is gone by now, its removal is published after its
  // store: here, or by the next thread that raises left_.
  if (left_.load() != sent.left) {
    const std::vector<SlotId> gone = confirm(marked);
    tell_removed(gone);
    mark_again(sent, gone);
  }
  erase_what_was_late(forgotten);
  sent.codes = batch.status;
  end_writing(entries, sent.codes);
  queue_again(sent);
}

void Offloader::tell_removed(std::span<const SlotId> gone) const {
  std::vector<Identity> ids;
  ids.reserve(gone.size());
  for (const SlotId slot : gone) ids.push_back(host_.table().identity(slot));
  host_.events().publish(copy::EventKind::removed, tier_, ids);
}

// Marks blocks to be written again if an erase has removed them. Blocks that the tier itself has evicted are not.
void Offloader::mark_again(Sent& sent, std::span<const SlotId> gone) const {
  if (gone.empty() || erasing_.load() == sent.erased) return;
  for (Entry& entry : sent.entries) {
    entry.again = std::find(gone.begin(), gone.end(), entry.slot) != gone.end();
  }
}

// Runs before the batch ends, so that at_rest() is false in between.
void Offloader::queue_again(Sent& sent) {
  const auto first = std::find_if(sent.entries.begin(), sent.entries.end(), [](const Entry& one) { return one.again; });
  if (first == sent.entries.end()) return;
  std::vector<Entry> ended;
  std::vector<Code> codes;
  ended.reserve(sent.entries.size());
  codes.reserve(sent.entries.size());
  MutexLock lock(mutex_);
  for (size_t i = 0; i < sent.entries.size(); ++i) {
    Entry& entry = sent.entries[i];
    if (!entry.again) {
      ended.push_back(std::move(entry));
      codes.push_back(sent.codes[i]);
      continue;
    }
    entry.again = false;
    held_ += slot_bytes_;
    queue_.push_back(std::move(entry));
  }
  sent.entries = std::move(ended);
  sent.codes = std::move(codes);
}

// Ends a batch once neither the tier nor send() holds references: its blocks can be evicted, and reports find the
// slots free.
void Offloader::end(Sent& sent) {
  const MemoryWait no_error_path;
  std::vector<Entry>& entries = sent.entries;
  std::vector<SlotId> keep;
  std::vector<SlotId> evict;
  std::vector<SlotId> refused;
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool ok = sent.codes[i] == Code::ok;
    (!entries[i].evict_after ? keep : ok ? evict : refused).push_back(entries[i].slot);
  }
  if (!keep.empty()) host_.release(keep);
  if (order_.out_of_use(tier_)) {
    host_.release(refused);
  } else {
    // Wakes no waiter for room: it would send the same blocks down again at once, and again, while the tier takes none.
    host_.table().release(refused, host_.tick());
  }
  // A node that reports a block as stored may still hold its lease of it.
  const bool some_stayed = host_.evict_held(evict) != evict.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    note_failure(entries[i], sent.codes[i]);
    if (entries[i].report != nullptr) (*entries[i].report)(entries[i].index, sent.codes[i]);
  }
  {
    MutexLock lock(mutex_);
    in_flight_ -= sent.charged;
    end_demotions(entries);
    ending_ += some_stayed ? 1 : 0;
  }
  if (some_stayed) {
    relieve();
    MutexLock lock(mutex_);
    --ending_;
  }
  pump();
}

}  // namespace kvbm::manager

#include "tier/disk/disk_core.h"

#include <algorithm>

namespace kvbm::tier::disk {

DiskCore::DiskCore(const DiskTierOptions& options, Executor& executor, FamilyTable& families, TierListener* listener,
                   TierIndex tier)
    : options_(options),
      executor_(executor),
      families_(families),
      listener_(listener),
      tier_(tier),
      index_(options.index_bytes),
      read_cap_(options.read_bytes_per_s),
      write_cap_(options.write_bytes_per_s) {}

std::string DiskCore::describe() const {
  return "disk " + options_.path + ", " + std::to_string(options_.capacity_bytes >> 20) + " MiB in segments of " +
         std::to_string(segment_bytes_ >> 20) + " MiB";
}

Segment& DiskCore::segment(uint32_t number) {
  MutexLock lock(mutex_);
  return *segments_[number];
}

void DiskCore::find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept {
  MutexLock lock(mutex_);
  const uint32_t now = touch ? seconds() : 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    out[i] = Found{};
    if (disabled_) continue;
    const uint32_t entry = index_.find(ids[i]);
    if (entry == DiskIndex::kNone) continue;
    IndexEntry& e = index_.at(entry);
    out[i] = Found{true, e.head_bytes(), e.payload_bytes, uint64_t{e.location} + 1};
    if (!touch) continue;
    e.last_use = now;
    if (e.uses != UINT8_MAX) ++e.uses;
    ++segments_[segment_of(e.location)]->heat;
  }
}

bool DiskCore::pin(const Identity& id) noexcept {
  MutexLock lock(mutex_);
  const uint32_t entry = index_.find(id);
  if (entry == DiskIndex::kNone || disabled_) return false;
  const auto [it, fresh] = pins_.try_emplace(id);
  if (fresh) {
    it->second.segment = segment_of(index_.at(entry).location);
    ++segments_[it->second.segment]->pins;
  }
  ++it->second.count;
  return true;
}

void DiskCore::unpin(const Identity& id) noexcept {
  bool released = false;
  {
    MutexLock lock(mutex_);
    const auto it = pins_.find(id);
    if (it == pins_.end() || --it->second.count != 0) return;
    released = --segments_[it->second.segment]->pins == 0 && !put_queue_.empty();
    pins_.erase(it);
  }
  if (released) pump();
}

void DiskCore::drop_entry(uint32_t entry) {
  const IndexEntry& e = index_.at(entry);
  segments_[segment_of(e.location)]->gone(e.bytes());
  stats_.payload_bytes -= e.payload_bytes;
  index_.erase(entry);
}

// The segment's next life has none of these families.
void DiskCore::unlist(const Segment& segment) {
  for (const auto& [family, rows] : segment.footer_size.families()) {
    const auto listed = listed_.find(family);
    if (listed != listed_.end() && --listed->second == 0) listed_.erase(listed);
  }
}

void DiskCore::erase(std::span<const Identity> ids) {
  std::vector<Identity> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  MutexLock lock(mutex_);
  for (const Identity& id : ids) {
    const uint32_t entry = index_.find(id);
    if (entry != DiskIndex::kNone) drop_entry(entry);
  }
  // Records still being written must not appear afterwards.
  for (const auto& op : puts_) {
    for (size_t i = 0; i < op->batch->items.size(); ++i) {
      if (std::binary_search(sorted.begin(), sorted.end(), op->batch->items[i].id)) op->erased[i] = true;
    }
  }
}

// Changes memory only. The medium has the hint known when the record was written or carried (reclaim.cc): after a kill,
// hints given since are lost.
void DiskCore::hint(std::span<const Identity> ids, uint8_t priority) {
  std::vector<Identity> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  MutexLock lock(mutex_);
  for (const Identity& id : ids) {
    const uint32_t entry = index_.find(id);
    if (entry != DiskIndex::kNone) index_.at(entry).priority = priority & 3U;
  }
  for (const auto& op : puts_) {
    for (size_t i = 0; i < op->batch->items.size(); ++i) {
      if (std::binary_search(sorted.begin(), sorted.end(), op->batch->items[i].id)) op->hints[i] = priority;
    }
  }
}

// From now on no record of these families is found.
void DiskCore::drop_families(const std::map<FamilyId, Family>& ids) {
  for (const auto& op : puts_) {
    for (size_t i = 0; i < op->batch->items.size(); ++i) {
      if (ids.contains(op->batch->items[i].id.family)) op->erased[i] = true;
    }
  }
  std::set<uint32_t> numbers;
  uint64_t left = 0;
  for (const auto& [id, family] : ids) {
    const uint32_t records = index_.families().records(id);
    if (records != 0) numbers.insert(index_.families().number_of(id));
    left += records;
  }
  for (uint32_t i = 0; left != 0 && i < index_.entries(); ++i) {
    if (index_.at(i).location == 0 || !numbers.contains(index_.at(i).family)) continue;
    drop_entry(i);
    --left;
  }
}

// Returns the last life that holds any record of the family; 0: none does.
uint64_t DiskCore::last_life_with(const Family& family) const {
  uint64_t last = 0;
  if (!listed_.contains(family)) return last;
  for (const auto& s : segments_) {
    if (s != nullptr && s->state != SegmentState::free && s->footer_size.lists(family)) {
      last = std::max(last, s->life.sequence);
    }
  }
  return last;
}

// Adds the tombstones. If there would be many, and together they cover every record that segments hold, one tombstone
// for all families replaces them.
void DiskCore::bury(const std::vector<Tombstone>& dead, std::vector<Tombstone>& tombstones) const {
  std::map<Family, uint64_t> last;
  for (const Tombstone& t : tombstones) last[t.family] = std::max(last[t.family], t.sequence);
  for (const Tombstone& t : dead) last[t.family] = std::max(last[t.family], t.sequence);
  const bool all = last.size() > kMaxTombstones / 2 && last.size() >= listed_.size() &&
                   std::all_of(listed_.begin(), listed_.end(), [&](const auto& listed) KVBM_NO_TSA {
                     const auto known = last.find(listed.first);
                     return known != last.end() && last_life_with(listed.first) <= known->second;
                   });
  tombstones.clear();
  for (const auto& [family, sequence] : last) tombstones.push_back(Tombstone{family, sequence});
  if (!all) return;
  const auto earlier = [](const Tombstone& a, const Tombstone& b) { return a.sequence < b.sequence; };
  tombstones = {Tombstone{kEveryFamily, std::max_element(tombstones.begin(), tombstones.end(), earlier)->sequence}};
}

Status DiskCore::erase_families(std::span<const FamilyId> ids) {
  std::map<FamilyId, Family> erased;
  for (const FamilyId id : ids) {
    if (families_.has(id)) erased.emplace(id, families_.get(id));  // a family without an id has no record
  }
  if (erased.empty()) return {};
  MutexLock control(control_);
  if (directory_lock_ == nullptr) return {Code::closed, "the disk tier was shut down"};
  Superblock next;
  Work work;
  std::vector<Tombstone> dead;
  {
    MutexLock lock(mutex_);
    drop_families(erased);
    for (const auto& [id, family] : erased) {
      if (const uint64_t last = last_life_with(family); last != 0) dead.push_back(Tombstone{family, last});
    }
    if (dead.empty()) return {};  // no restart could find any of them
    // Later records go to a later life than all that are erased here.
    const auto in_open = [this](const Tombstone& t)
                             KVBM_NO_TSA { return segments_[open_]->footer_size.lists(t.family); };
    if (open_ != UINT32_MAX && std::any_of(dead.begin(), dead.end(), in_open)) begin_seal(open_, work);
    prune_tombstones();
    next = superblock_;
    for (const Tombstone& t : dead) unwritten_.insert(t.family);
    bury(dead, next.tombstones);
    crowded_ = crowded_ || next.tombstones.size() > kMaxTombstones / 2;
  }
  perform(work);
  executor_.post([self = shared_from_this()] { self->pump(); });
  const Status status = write_superblock(*superblock_file_, next);
  if (!status.ok()) {
    superblock_.writes = next.writes;  // the slot may be half written; the other one stays good
    return status;
  }
  superblock_ = std::move(next);
  MutexLock lock(mutex_);
  for (const Tombstone& t : dead) unwritten_.erase(t.family);
  return status;
}

void DiskCore::families(FamilyTable::Named& named) {
  MutexLock lock(mutex_);
  index_.families().each([&](FamilyId id) { named.add(id); });
  std::erase_if(unwritten_, [this](const Family& family) KVBM_REQUIRES(mutex_) { return !listed_.contains(family); });
  for (const Family& family : unwritten_) {
    FamilyId id = kNoFamily;
    if (families_.find(family, id)) named.add(id);
  }
}

size_t DiskCore::scan(uint64_t& cursor, std::span<ScanRow> out) {
  MutexLock lock(mutex_);
  size_t n = 0;
  uint64_t at = cursor;
  const uint32_t now = seconds();
  for (; at < index_.entries() && n < out.size(); ++at) {
    const IndexEntry& e = index_.at(static_cast<uint32_t>(at));
    if (e.location != 0)
      out[n++] = ScanRow{index_.identity(e), e.payload_bytes, now - std::min(now, e.last_use), e.uses};
  }
  cursor = at < index_.entries() ? at : 0;
  return n;
}

TierStats DiskCore::stats() const {
  MutexLock lock(mutex_);
  TierStats s = stats_;
  s.capacity_bytes = options_.capacity_bytes;
  s.used_bytes = kSuperblockBytes + kPage + segments_.size() * segment_bytes_;
  s.records = index_.size();
  s.index_bytes = index_.bytes();
  return s;
}

uint64_t DiskCore::epoch(const NamespaceId& base_id) {
  MutexLock lock(mutex_);
  const auto it = epochs_.find(base_id);
  return it == epochs_.end() ? 0 : it->second.epoch;
}

std::vector<EpochRow> DiskCore::epochs() {
  MutexLock lock(mutex_);
  std::vector<EpochRow> out;
  for (const auto& [base, entry] : epochs_) out.push_back({base, entry.epoch, entry.raised, entry.foreign});
  return out;
}

std::vector<uint64_t> DiskCore::epoch_floors() {
  MutexLock lock(mutex_);
  return floors_;
}

Status DiskCore::set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                            std::span<const EpochRow> floored) {
  MutexLock control(control_);
  if (directory_lock_ == nullptr) return {Code::closed, "the disk tier was shut down"};
  Superblock next = superblock_;
  for (const NamespaceId& base : forgotten) next.epochs.erase(base);
  for (const EpochRow& row : floored) {
    if (next.floors.empty()) next.floors.resize(kEpochFloors);
    uint64_t& floor = next.floors[epoch_floor_of(row.base)];
    floor = std::max(floor, row.epoch);
    next.epochs.erase(row.base);
  }
  for (const EpochRow& row : rows) {
    EpochEntry& entry = next.epochs[row.base];
    if (row.epoch < entry.epoch) return {Code::invalid_argument, "the disk tier holds a later epoch of this namespace"};
    entry = {row.epoch, row.raised, row.foreign};
  }
  if (next.epochs == superblock_.epochs && next.floors == superblock_.floors) return {};
  Status status = write_superblock(*superblock_file_, next);
  if (!status.ok()) {
    superblock_.writes = next.writes;
    return status;
  }
  superblock_ = std::move(next);
  auto epochs = superblock_.epochs;
  auto floors = superblock_.floors;
  MutexLock lock(mutex_);
  epochs_.swap(epochs);
  floors_.swap(floors);
  return {};
}

void DiskCore::shutdown(UniqueFunction<void()> done) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    shutdown_done_ = std::move(done);
  }
  executor_.post([self = shared_from_this()] { self->pump(); });
}

void DiskCore::finish_shutdown(Work& work) {
  if (!stopping_ || !shutdown_done_) return;
  if (!puts_.empty() || gets_open_ != 0 || reclaim_ != nullptr || preparing_ != 0 || growing_ || syncs_open_ != 0)
    return;
  if (open_ != UINT32_MAX) begin_seal(open_, work);
  if (closing_ == 0) work.shutdown_done = std::move(shutdown_done_);
}

void DiskCore::fail(Work& work) {
  if (disabled_) return;
  disabled_ = work.disabled = true;
  refuse_puts(Code::tier_disabled, work);
  refuse_reads(Code::tier_disabled, work);
}

// Counts each time, warns the first time.
void DiskCore::full(Work& work) {
  ++stats_.full;
  if (std::exchange(full_, true)) return;
  const uint64_t have = uint64_t{segments_.size()} * segment_bytes_;
  work.warning = Status(Code::disk_full, "the file system of a disk tier is full",
                        options_.path + ": the tier has " + std::to_string(have) + " of its " +
                            std::to_string(options_.capacity_bytes) +
                            " bytes and lets blocks go earlier; free space there, or lower the tier's capacity");
}

// Called at open: space that the capacity still allows for is not reserved until it is used.
void DiskCore::check_free_space() {
  const auto there = directory_->free_bytes();
  if (!there.ok() || listener_ == nullptr) return;
  uint64_t wanted = 0;
  {
    MutexLock lock(mutex_);
    wanted = (max_segments_ - std::min<uint64_t>(max_segments_, segments_.size())) * segment_bytes_;
  }
  if (there.value() >= wanted) return;
  listener_->warns(tier_, Status(Code::disk_full, "the file system of a disk tier has less room than its capacity",
                                 options_.path + ": " + std::to_string(there.value()) + " bytes are free, " +
                                     std::to_string(wanted) +
                                     " more are to be used; free space there, or lower the tier's capacity"));
}

void DiskCore::wake_at(uint64_t when_ns) {
  executor_.post_at(when_ns, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
}

void DiskCore::expire(Work& work) {
  const uint64_t now = executor_.clock().now_ns();
  if (now < next_deadline_) return;
  expire_puts(now, work);
  expire_reads(now, work);
  next_deadline_ = kNever;
  for (const auto& op : put_queue_) next_deadline_ = std::min(next_deadline_, op->batch->deadline_ns);
  for (const auto& run : read_queue_) next_deadline_ = std::min(next_deadline_, run->op->batch->deadline_ns);
}

void DiskCore::advance(Work& work) {
  expire(work);
  if (stopping_) cancel_reads(work);
  fill_reads(work);
  fill_writes(work);
  maybe_reclaim(work);
  offer(work);
  finish_shutdown(work);
}

void DiskCore::pump() {
  Work work;
  {
    MutexLock lock(mutex_);
    advance(work);
  }
  perform(work);
}

// `on_executor`: the caller holds no lock, so gets that may end on any thread end here.
void DiskCore::perform(Work& work, bool on_executor) {
  const auto self = shared_from_this();
  for (auto& run : work.reads) {
    File& file = *segment(run->segment).file;
    ReadRun& r = *run;
    file.read(r.offset, r.runs, [self, run = std::move(run)](const Result<size_t>& moved) mutable {
      self->read_done(std::move(run), moved);
    });
  }
  for (auto& run : work.writes) {
    if (run->sent == 0) encode(*run);
    write_on(std::move(run));
  }
  for (const uint32_t s : work.seals) seal(s);
  for (const uint32_t s : work.syncs) sync_segment(s);
  for (const auto& wait : work.syncs_done) wait->done(wait->ok);
  for (const uint32_t s : work.prepares) prepare(s);
  if (work.grow) executor_.post([self] { self->grow(); });
  if (work.reclaim) executor_.post([self] { self->reclaim_collect(); });
  if (work.offer) executor_.post([self] { self->offer_next(); });
  if (work.wake_at != 0) wake_at(work.wake_at);
  if (work.patient_until != 0) wake_at(work.patient_until);
  if (listener_ != nullptr) {
    if (!work.evicted.empty()) listener_->removed(tier_, work.evicted, false);
    if (work.not_durable != 0) listener_->not_durable(tier_, work.not_durable);
    if (!work.damaged.empty()) listener_->removed(tier_, work.damaged, true);
    if (!work.warning.ok()) listener_->warns(tier_, work.warning);
    if (work.disabled)
      listener_->disabled(tier_,
                          Status(Code::tier_disabled, "the disk tier met I/O errors again and again", options_.path));
  }
  for (const auto& op : work.puts_done) executor_.post([op] { op->batch->done(*op->batch); });
  for (const auto& op : work.gets_done) {
    if (on_executor && op->batch->accepts.verifies)
      op->batch->done(*op->batch);
    else
      executor_.post([op] { op->batch->done(*op->batch); });
  }
  if (!work.shutdown_done) return;
  {
    // Another owner may open the directory as soon as `done` runs, although some thread may still hold this object.
    MutexLock control(control_);
    directory_lock_.reset();
  }
  executor_.post(std::move(work.shutdown_done));
}

}  // namespace kvbm::tier::disk

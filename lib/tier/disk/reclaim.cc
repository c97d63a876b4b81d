// Makes room. The closed segment that is worth least is emptied: its hottest records are carried forward within a
// quarter of a segment, the rest is offered to the tier below (demote.cc). Then its header is renewed, and it is free
// again. One segment at a time.
//
// A record is found by its prefix, so no prefix is evicted in favour of records that depend on it. If every segment
// that could be emptied holds the prefix of the record to be written, that record is refused (no_room). A chain longer
// than the tier keeps its beginning.
#include <algorithm>

#include "policy/hints.h"
#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

constexpr uint32_t kCollectStep = 65536;  // index entries looked at per hold of the mutex
constexpr uint64_t kCarryBytes = uint64_t{4} << 20;
constexpr uint32_t kRenewals = 3;
constexpr uint64_t kGrowAgainNs = 500'000'000;  // after the file system was full
constexpr uint32_t kManySegments = 8;           // with fewer segments than this, one free segment must do
// Free segments made ahead of use while the capacity is not used up: making one takes several turns of the device, each
// behind the writes in progress. At most an eighth of the capacity. Half of them may be used up before the next ones
// are made, then as many at once: the sync of the directory at the end of each turn takes a thread of the executor.
constexpr uint64_t kGrowAheadBytes = uint64_t{128} << 20;

// Uses count most; a record with children is worth more than one without. Hints come first, as in the host: keep is
// worth more than any other record, one-shot nothing.
uint32_t worth(const IndexEntry& e, bool followed) {
  constexpr uint32_t kKept = 4U * (UINT8_MAX + 1U) + 3U;
  if (followed) return 4U * kKept + e.uses;
  constexpr uint32_t kContinues = 4U;  // as a use
  if (e.priority == policy::kHintOneShot) return 0;
  const uint32_t own = 4U * e.uses + (e.children > 0 ? 3U : 0U);
  return own + (e.priority == policy::kHintKeep ? kKept : e.priority == policy::kHintContinue ? kContinues : 0U);
}

}  // namespace

void DiskCore::maybe_reclaim(Work& work) {
  if (disabled_) return;
  const bool busy = growing_ || preparing_ != 0 || reclaim_ != nullptr;
  const bool short_of = free_.size() < enough_free();
  // One source of new lives at a time, so that sequences enter free_ in order.
  if (!busy && !stopping_ && to_grow() != 0 && executor_.clock().now_ns() >= grow_again_at_) {
    growing_ = work.grow = true;
    return;
  }
  while (!disabled_) {
    const bool stuck = !put_queue_.empty() && open_ == UINT32_MAX && free_.empty();
    const bool vain = stuck && next_follows_refused();
    if (!busy && !stopping_ && !vain && (stuck || !nothing_to_reclaim_) && (short_of || index_.full() || crowded_)) {
      std::vector<bool> followed;
      const uint32_t v = victim(followed);
      nothing_to_reclaim_ = v == UINT32_MAX;  // until another segment is begun, or only a refusal is left
      if (v != UINT32_MAX) {
        reclaim_ = std::make_unique<Reclaim>();
        reclaim_->segment = v;
        crowded_ = false;
        reclaim_->followed = std::move(followed);
        segments_[v]->state = SegmentState::reclaiming;
        work.reclaim = true;
        return;
      }
    }
    if (!stuck || growing_ || preparing_ != 0 || reclaim_ != nullptr || closing_ != 0) return;
    refuse_puts(Code::no_room, work, 1);
    nothing_to_reclaim_ = false;  // for the next one
  }
}

uint32_t DiskCore::enough_free() const { return max_segments_ >= kManySegments ? 2 : 1; }

// Returns the number of segments to make now.
uint32_t DiskCore::to_grow() const {
  const auto have = static_cast<uint32_t>(free_.size());
  const uint32_t least = enough_free();
  uint32_t wanted = least;
  if (!index_.full())
    wanted = std::max(wanted, std::min(static_cast<uint32_t>(kGrowAheadBytes / segment_bytes_), max_segments_ / 8));
  if (have >= std::max(least, wanted / 2)) return 0;
  return std::min(wanted - have, max_segments_ - static_cast<uint32_t>(segments_.size()));
}

// Links a record that has just been published with its parent, and with a child published before it.
void DiskCore::link(uint32_t entry, const PutItem& item) {
  if (item.has_parent && !index_.link(entry, item.parent)) {
    if (unlinked_.size() >= kUnlinked) unlinked_.clear();
    unlinked_.insert_or_assign(item.parent, entry);
  }
  const auto child = unlinked_.find(item.id);
  if (child == unlinked_.end()) return;
  // If the child's entry was reused, the new record in it gets a wrong parent: a hint.
  if (index_.at(child->second).location != 0) (void)index_.link(child->second, item.id);
  unlinked_.erase(child);
}

// Adds the entry and its ancestors, as far as they are here.
void DiskCore::follow(uint32_t entry, Followed& out) const {
  while (entry != DiskIndex::kNone && out.add(entry)) {
    const IndexEntry& e = index_.at(entry);
    if (e.location == 0) return;
    out.bytes[segment_of(e.location)] += e.bytes();
    entry = index_.parent_of(entry);
  }
}

// Adds the ancestors of a record to be written. Ancestors that are still being written are found in the rows of their
// segment.
void DiskCore::follow_next_of(const PutItem& item, Followed& out) const {
  if (!item.has_parent) return;
  Identity before = item.parent;
  uint32_t entry = index_.find(before);
  for (uint64_t below = UINT64_MAX; entry == DiskIndex::kNone;) {
    // Segments that have rows, the latest first.
    const Segment* latest = nullptr;
    for (const auto& s : segments_) {
      const bool later = latest == nullptr || s->life.sequence > latest->life.sequence;
      if (!s->rows.empty() && s->life.sequence < below && later) latest = s.get();
    }
    if (latest == nullptr) return;
    below = latest->life.sequence;
    for (size_t i = latest->rows.size(); i-- > 0 && entry == DiskIndex::kNone;) {
      const Row& row = latest->rows[i].row;
      if (row.key != before.key) continue;
      if (!row.has_parent) return;
      before.key = row.parent;
      entry = index_.find(before);
    }
  }
  follow(entry, out);
}

bool DiskCore::next_follows_refused() const {
  const PutOp& op = *put_queue_.front();
  if (op.carry() || op.next == op.to_write.size()) return false;
  const PutItem& item = op.batch->items[op.to_write[op.next]];
  return item.has_parent && refused_.count(item.parent) != 0;
}

DiskCore::Followed DiskCore::followed_by_next() const {
  Followed out{std::vector<bool>(index_.entries()), std::vector<uint64_t>(segments_.size())};
  if (put_queue_.empty() || put_queue_.front()->carry()) return out;
  const PutOp& op = *put_queue_.front();
  for (size_t i = op.next; i < op.to_write.size(); ++i) {
    const PutItem& item = op.batch->items[op.to_write[i]];
    const bool follows_last = i != op.next && item.has_parent && item.parent == op.batch->items[op.to_write[i - 1]].id;
    if (!follows_last) follow_next_of(item, out);
  }
  return out;
}

// Adds the ancestors of all records in segments without a footer: the chains that are being written.
void DiskCore::follow_written(Followed& out) const {
  const Row* like = nullptr;  // a row of the family that was looked for last
  FamilyId family = 0;
  bool known = false;
  for (const auto& s : segments_) {
    for (const Segment::LiveRow& live : s->rows) {
      const Row& row = live.row;
      if (like == nullptr || like->family != row.family) known = families_.find(row.family, family);
      like = &row;
      if (!known) continue;
      follow(index_.find({row.key, family}), out);
      if (row.has_parent) follow(index_.find({row.parent, family}), out);
    }
  }
}

// Chooses the segment to empty. Benefit over cost as in the log-structured file system (Rosenblum and Ousterhout,
// 1992): what is lost by emptying it (live bytes, raised by recent finds) against how long it has rested.
//
// A segment is skipped if the next put depends on more of it than could be carried. If only chains that are being
// written do, it is taken only when no other is left and a put waits: the newest, so that chains lose their ends. No
// segment is chosen while nothing is being written: the next records are not known.
uint32_t DiskCore::victim(std::vector<bool>& followed) {
  const bool idle = put_queue_.empty() && std::all_of(segments_.begin(), segments_.end(),
                                                      [](const auto& segment) { return segment->rows.empty(); });
  if (idle) return UINT32_MAX;
  const Followed next = followed_by_next();
  Followed lately = next;
  follow_written(lately);
  const uint64_t carried = segment_bytes_ / 4;
  uint32_t best = UINT32_MAX;
  uint32_t newest = UINT32_MAX;
  double least = 0;
  uint64_t last_closed = 0;
  for (const auto& s : segments_) {
    if (s->state == SegmentState::closed) last_closed = std::max(last_closed, s->life.sequence);
  }
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    Segment& s = *segments_[i];
    if (s.state != SegmentState::closed || s.sync_running) continue;
    // The records written last before an opening lie in a segment that was hardly begun. By its few bytes it would be
    // the cheapest victim, but its records are the most likely to be requested. It counts as a full one, unless it is
    // carried.
    const bool last = s.life.sequence == last_closed && s.live_records != 0;
    const bool lost = last && (free_.empty() || !carried_whole(s));
    const uint64_t live = lost ? segment_bytes_ : s.live_bytes;
    const double heat = s.live_records == 0 ? 0 : static_cast<double>(s.heat) / s.live_records;
    const auto age = static_cast<double>(next_life_ - s.life.sequence);
    const double score = static_cast<double>(live) * (1 + heat) / age;
    s.heat /= 2;
    if (s.pins != 0 || next.bytes[i] > carried) continue;
    if (lately.bytes[i] > carried) {
      if (newest == UINT32_MAX || s.life.sequence > segments_[newest]->life.sequence) newest = i;
      continue;
    }
    if (best != UINT32_MAX && score >= least) continue;
    best = i;
    least = score;
  }
  followed = best != UINT32_MAX ? std::move(lately.entries) : next.entries;
  return best != UINT32_MAX ? best : put_queue_.empty() ? UINT32_MAX : newest;
}

// Each opening leaves a segment nearly empty behind. Its records are all carried if nothing else needs that room.
// Either the capacity is not used up, but the file system has no space to grow; or all segments exist, but less than
// half of their bytes are live.
bool DiskCore::carried_whole(const Segment& emptied) const {
  uint64_t live = 0;
  for (const auto& segment : segments_) live += segment->live_bytes;
  const bool room = segments_.size() < max_segments_ || live <= max_segments_ * segment_bytes_ / 2;
  return room && emptied.live_bytes <= segment_bytes_ / 4;
}

void DiskCore::reclaim_abort() {
  segments_[reclaim_->segment]->state = SegmentState::closed;
  reclaim_.reset();
}

void DiskCore::reclaim_collect() {
  bool more = false;
  {
    MutexLock lock(mutex_);
    Reclaim& r = *reclaim_;
    const uint32_t end = std::min(index_.entries(), r.cursor + kCollectStep);
    for (; r.cursor < end; ++r.cursor) {
      const IndexEntry& e = index_.at(r.cursor);
      if (e.location != 0 && segment_of(e.location) == r.segment) r.ids.push_back(index_.identity(e));
    }
    more = r.cursor < index_.entries();
    if (!more) reclaim_choose(r);
  }
  if (more)
    executor_.post([self = shared_from_this()] { self->reclaim_collect(); });
  else
    reclaim_carry();
}

void DiskCore::reclaim_choose(Reclaim& r) {
  if (index_.full()) return;
  const bool sparse = carried_whole(*segments_[r.segment]);
  std::vector<std::pair<uint32_t, Identity>> hot;
  for (const Identity& id : r.ids) {
    const uint32_t entry = index_.find(id);
    if (entry == DiskIndex::kNone) continue;
    if (const uint32_t w = worth(index_.at(entry), entry < r.followed.size() && r.followed[entry]); w > 0 || sparse)
      hot.emplace_back(w, id);
  }
  std::stable_sort(hot.begin(), hot.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  uint64_t bytes = 0;
  for (const auto& [w, id] : hot) {
    const IndexEntry& e = index_.at(index_.find(id));
    bytes += e.bytes();
    if (bytes > segment_bytes_ / 4) break;
    r.carry.push_back(id);
  }
}

// Adds the read of a record if it still lies in the segment; then `bytes` grows by what it takes with its padding.
// Returns its location; 0: it has left.
uint32_t DiskCore::add_read(const Identity& id, uint32_t segment, GetBatch& batch, uint64_t& bytes) const {
  const uint32_t entry = index_.find(id);
  if (entry == DiskIndex::kNone || segment_of(index_.at(entry).location) != segment) return 0;
  const IndexEntry& e = index_.at(entry);
  GetItem item;
  item.id = id;
  item.head_bytes = e.head_bytes();
  item.payload_bytes = e.payload_bytes;
  batch.items.push_back(item);
  bytes += record_bytes(item.head_bytes, item.payload_bytes);
  return e.location;
}

void DiskCore::reclaim_carry() {
  auto batch = std::make_unique<GetBatch>();
  std::vector<uint32_t> from;
  std::vector<uint64_t> at;
  uint64_t bytes = 0;
  Work work;
  {
    MutexLock lock(mutex_);
    Reclaim& r = *reclaim_;
    if (stopping_ || disabled_) reclaim_abort();
    while (reclaim_ != nullptr && r.next < r.carry.size() && bytes < kCarryBytes) {
      const uint64_t offset = bytes;
      const uint32_t location = add_read(r.carry[r.next++], r.segment, *batch, bytes);
      if (location == 0) continue;
      from.push_back(location);
      at.push_back(offset);
    }
    if (reclaim_ == nullptr) advance(work);
  }
  perform(work);
  if (batch->items.empty()) return demote();
  auto memory = std::make_shared<AlignedBuffer>(bytes);
  if (memory->data() == nullptr) return demote();
  for (size_t i = 0; i < at.size(); ++i) {
    GetItem& item = batch->items[i];
    std::byte* const p = memory->data() + at[i];
    item.head = MutableBytes(p, item.head_bytes);
    item.payload = MutableBytes(p + head_area(item.head_bytes), item.payload_bytes);
  }
  // Weak here and below, because the batch waits in a queue of this object.
  batch->done = [weak = weak_from_this(), memory, from](GetBatch& got) mutable {
    if (const auto self = weak.lock()) {
      self->reclaim_store(std::make_unique<GetBatch>(std::move(got)), memory, std::move(from));
    }
  };
  get(std::move(batch), true);
}

// Makes put items of the records that were read and are still here, in the form in which they were read. `which`: the
// items' numbers.
std::vector<PutItem> DiskCore::items_of(const GetBatch& got, std::vector<size_t>* which) const {
  std::vector<PutItem> items;
  for (size_t i = 0; i < got.items.size(); ++i) {
    const GetItem& item = got.items[i];
    const uint32_t entry = index_.find(item.id);
    if (got.status[i] != Code::ok || entry == DiskIndex::kNone) continue;
    const IndexEntry& e = index_.at(entry);
    PutItem put;
    put.id = item.id;
    put.head = item.head;
    put.payload = item.payload;
    put.uses = e.uses;
    put.priority = static_cast<uint8_t>(e.priority);
    auto head = codec::HeadView::parse(put.head);
    if (!head.ok()) continue;
    put.parent = Identity{head.value().header().parent, item.id.family};
    put.has_parent = put.parent.key != Key{};
    items.push_back(put);
    which->push_back(i);
  }
  return items;
}

void DiskCore::reclaim_store(std::unique_ptr<GetBatch> got, std::shared_ptr<AlignedBuffer> memory,
                             std::vector<uint32_t> from) {
  auto batch = std::make_unique<PutBatch>();
  std::vector<uint32_t> moved;
  {
    MutexLock lock(mutex_);
    std::vector<size_t> which;
    batch->items = items_of(*got, &which);
    for (const size_t i : which) moved.push_back(from[i]);
  }
  if (batch->items.empty()) return reclaim_carry();
  batch->done = [weak = weak_from_this(), memory](PutBatch&) {
    if (const auto self = weak.lock()) self->reclaim_carry();
  };
  put(std::move(batch), std::move(moved));
}

void DiskCore::reclaim_drop() {
  Work work;
  {
    MutexLock lock(mutex_);
    if (reclaim_ == nullptr) return;
    Reclaim& r = *reclaim_;
    Segment& segment = *segments_[r.segment];
    if (segment.pins != 0 || disabled_) {
      reclaim_abort();
    } else {
      for (const Identity& id : r.ids) {
        const uint32_t entry = index_.find(id);
        if (entry == DiskIndex::kNone || segment_of(index_.at(entry).location) != r.segment) continue;
        work.evicted.push_back(id);
        drop_entry(entry);
      }
      stats_.evicted += work.evicted.size();
      stats_.reclaimed_bytes += segment_bytes_;
      r.draining = true;
      reclaim_drained(work);
    }
    advance(work);
  }
  perform(work);
}

// No entry points into the segment any more; its life ends with its last reader and its last sync.
void DiskCore::reclaim_drained(Work& work) {
  if (reclaim_ == nullptr || !reclaim_->draining) return;
  Segment& segment = *segments_[reclaim_->segment];
  if (segment.reads != 0 || segment.sync_running) return;
  segment.written = segment.synced;  // nothing is left to be synced
  segment.state = SegmentState::preparing;
  ++preparing_;
  const uint32_t number = reclaim_->segment;
  std::vector<uint32_t> unsynced;
  for (const uint32_t to : reclaim_->carried_to) {
    const bool seen = std::find(unsynced.begin(), unsynced.end(), to) != unsynced.end();
    if (!seen && segments_[to]->synced < segments_[to]->written) unsynced.push_back(to);
  }
  reclaim_.reset();
  if (unsynced.empty()) return work.prepares.push_back(number);
  // Carried records must survive a power cut in their new place before their old one is overwritten.
  auto wait = std::make_shared<SyncWait>();
  wait->done = [this, number](bool) { prepare(number); };
  wait_for_sync(unsynced, std::move(wait), work);
}

// The header of the next life is durable before the first record of that life is written, so that an old footer is
// never believed over new bytes. A new file has no earlier life: the sync that makes its first records durable (before
// its footer, or of a durable put) also covers its header.
void DiskCore::prepare(uint32_t number) {
  SegmentLife life;
  File* file = nullptr;
  bool fresh = false;
  {
    MutexLock lock(mutex_);
    life = segments_[number]->life;
    fresh = life.sequence == 0;
    life.sequence = next_life_++;
    life.generation = static_cast<uint32_t>(life.sequence);
    life.epoch = epoch_;
    file = segments_[number]->file.get();
    next_lives_.push_back({life, false, false});
  }
  auto page = std::make_shared<AlignedBuffer>(kPage);
  if (page->data() == nullptr) return prepared(life, false);
  encode_segment_header(life, page->span());
  const IoRun run{page->data(), kPage};
  file->write(0, {&run, 1}, [self = shared_from_this(), life, page, file, fresh](const Result<size_t>& moved) {
    if (!moved.ok() || moved.value() != kPage) return self->prepared(life, false);
    if (fresh) return self->prepared(life, true);
    file->sync([self, life](const Status& status) { self->prepared(life, status.ok()); });
  });
}

// Headers become durable in any order; their segments enter free_ in the order of their sequences.
void DiskCore::prepared(const SegmentLife& life, bool ok) {
  Work work;
  {
    MutexLock lock(mutex_);
    for (NextLife& next : next_lives_) {
      if (next.life.sequence == life.sequence) next = {life, true, ok};
    }
    for (; !next_lives_.empty() && next_lives_.front().done; next_lives_.pop_front()) begin_next_life(work);
    advance(work);
  }
  perform(work);
}

void DiskCore::begin_next_life(Work& work) {
  const NextLife& next = next_lives_.front();
  Segment& segment = *segments_[next.life.segment];
  --preparing_;
  if (next.ok) {
    failures_ = 0;
    segment.renew_failures = 0;
    unlist(segment);
    segment.begin_life(next.life);
    free_.push_back(next.life.segment);
    return;
  }
  // Now empty, it is the next victim again: this is the retry.
  segment.state = ++segment.renew_failures < kRenewals ? SegmentState::closed : SegmentState::lost;
  if (++failures_ >= kFailuresToDisable) fail(work);
}

// Makes several files at once: they share the sync of the directory.
void DiskCore::grow() {
  uint32_t number = 0;
  uint32_t wanted = 0;
  {
    MutexLock lock(mutex_);
    number = static_cast<uint32_t>(segments_.size());
    wanted = to_grow();
  }
  Status why_not;
  auto made = make_files(number, wanted, why_not);
  Work work;
  {
    MutexLock lock(mutex_);
    growing_ = false;
    for (auto& segment : made) {
      segment->state = SegmentState::preparing;
      segments_.push_back(std::move(segment));
      ++preparing_;
      work.prepares.push_back(number++);
    }
    // The file system is full or fails: go on with the segments there are, and try again later.
    if (made.size() < wanted) grow_again_at_ = executor_.clock().now_ns() + kGrowAgainNs;
    if (why_not.code() == Code::disk_full) {
      full(work);
    } else if (made.size() == wanted) {
      full_ = false;
    }
    advance(work);
  }
  perform(work);
}

}  // namespace kvbm::tier::disk

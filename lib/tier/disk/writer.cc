// Appending. Records of a batch are placed in the open segment one after the other; runs of them are written as one
// vectored write, with payloads straight from the caller's memory.
#include <algorithm>
#include <utility>

#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

// While loads are near, a single write of this size is in flight: no load waits longer for it.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
// While a load is running the next piece waits for its end, but no longer than this: a device may complete a read only
// after the write queued behind it. Long loads leave writing 125 MB/s.
constexpr uint64_t kLongestYield = 2'000'000;
// Loads of one engine arrive in bursts: time after one during which the next is expected.
constexpr uint64_t kLoadsAreNear = 20'000'000;

bool direct_ready(ConstBytes payload) { return reinterpret_cast<uintptr_t>(payload.data()) % kIoAlign == 0; }

// Upper bound: small heads share a page.
uint64_t staging_need(const PutItem& item) {
  return head_area(item.head.size()) + (direct_ready(item.payload) ? 0 : round_up(item.payload.size(), kPage));
}

}  // namespace

void DiskCore::put(std::unique_ptr<PutBatch> batch, std::vector<uint32_t> moved_from) {
  auto op = std::make_shared<PutOp>();
  const size_t n = batch->items.size();
  const uint64_t deadline = batch->deadline_ns;
  batch->status.assign(n, Code::ok);
  op->tries.assign(n, 0);
  op->erased.assign(n, false);
  op->hints.assign(n, PutOp::kNoHint);
  op->moved_from = std::move(moved_from);
  op->batch = std::move(batch);
  bool nothing_to_write = false;  // once queued, the operation belongs to the thread that holds the mutex
  Work work;
  {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < n; ++i) {
      const PutItem& item = op->batch->items[i];
      Code& status = op->batch->status[i];
      if (disabled_ || stopping_) {
        status = disabled_ ? Code::tier_disabled : Code::closed;
      } else if (item.head.size() < codec::kHeaderBytes || item.head.size() >= (1U << 22) ||
                 item.payload.size() > codec::kMaxRecordBytes || !families_.has(item.id.family)) {
        status = Code::invalid_argument;
      } else if (kPage + record_bytes(item.head.size(), item.payload.size()) + kPage > segment_bytes_) {
        status = Code::no_room;  // larger than a segment
      } else if (const uint32_t known = index_.find(item.id); op->carry() || known == DiskIndex::kNone) {
        status = Code::again;
        op->to_write.push_back(i);
      } else if (op->batch->durable) {
        note_unsynced(*op, segment_of(index_.at(known).location));
      }
    }
    op->open = static_cast<uint32_t>(op->to_write.size());
    nothing_to_write = op->to_write.empty() && op->segments.empty();
    if (!nothing_to_write) puts_.push_back(op);
    if (op->to_write.empty() && !nothing_to_write) finish_put(op, work);
    if (!op->to_write.empty()) {
      op->queued = true;
      // Carried records go first: they make the room that other puts wait for.
      if (op->carry())
        put_queue_.push_front(op);
      else
        put_queue_.push_back(op);
      next_deadline_ = std::min(next_deadline_, deadline);
    }
  }
  if (nothing_to_write) {
    executor_.post([op] { op->batch->done(*op->batch); });
    return;
  }
  if (deadline != kNever) wake_at(deadline);
  perform(work);
  pump();
}

// Makes a durable batch end with a sync of this segment.
void DiskCore::note_unsynced(PutOp& op, uint32_t segment) {
  const bool noted = std::find(op.segments.begin(), op.segments.end(), segment) != op.segments.end();
  if (!noted && segments_[segment]->synced < segments_[segment]->written) op.segments.push_back(segment);
}

void DiskCore::fill_writes(Work& work) {
  const uint64_t now = executor_.clock().now_ns();
  if (!begun_.empty()) {
    if (yields(now, work)) return;
    for (auto& run : begun_) work.writes.push_back(std::move(run));
    begun_.clear();
  }
  while (!disabled_ && !put_queue_.empty()) {
    const bool loading = loads_are_near(now);
    if (loading && write_bytes_ == 0 && yields(now, work)) return;
    const uint64_t limit = loading ? 1 : options_.write_budget_bytes;
    if (write_bytes_ > 0 && (write_bytes_ >= limit || !read_queue_.empty())) return;
    if (const uint64_t at = write_cap_.ready_at(now); at != 0) {
      work.wake_at = at;
      return;
    }
    auto run = next_write(work, loading ? kPieceBytes : kRunBytes);
    if (run == nullptr) return;
    write_bytes_ += run->bytes;
    write_cap_.take(now, run->bytes);
    work.writes.push_back(std::move(run));
  }
}

bool DiskCore::open_segment() {
  if (free_.empty()) return false;
  open_ = free_.front();
  free_.pop_front();
  segments_[open_]->state = SegmentState::open;
  nothing_to_reclaim_ = false;
  refused_.clear();
  return true;
}

bool DiskCore::start_run(WriteRun& run, const PutItem& item, uint64_t& room) {
  const uint64_t need = staging_need(item);
  run.segment = open_;
  run.offset = segments_[open_]->next_page * kPage;
  if (need > kSlotBytes) {
    run.own = AlignedBuffer(need);
    room = need;
    return run.own.data() != nullptr;
  }
  if (staging_free_.empty()) return false;
  run.staging = staging_free_.back();
  staging_free_.pop_back();
  room = kSlotBytes;
  return true;
}

std::unique_ptr<WriteRun> DiskCore::next_write(Work& work, uint64_t most) {
  auto run = std::make_unique<WriteRun>();
  uint64_t room = 0;
  uint64_t used = 0;
  while (!put_queue_.empty()) {
    const std::shared_ptr<PutOp> op = put_queue_.front();
    if (op->next == op->to_write.size()) {
      op->queued = false;
      put_queue_.pop_front();
      continue;
    }
    const uint32_t i = op->to_write[op->next];
    const PutItem& item = op->batch->items[i];
    // The record was forgotten while it waited. In a life later than its tombstone a restart would find it.
    if (op->erased[i]) {
      ++op->next;
      settle(op, i, Code::ok, work);
      continue;
    }
    const uint64_t bytes = record_bytes(item.head.size(), item.payload.size());
    const Family family = families_.get(item.id.family);
    if (!run->items.empty() && (run->bytes + bytes > most || run->runs.size() + 2 > kRunVectors ||
                                used + staging_need(item) > room || !segments_[open_]->has_room(bytes, family)))
      break;
    if (open_ != UINT32_MAX && !segments_[open_]->has_room(bytes, family)) begin_seal(open_, work);
    if (open_ == UINT32_MAX && !open_segment()) {
      if (!op->carry()) return nullptr;
      ++op->next;
      settle(op, i, Code::no_room, work);
      continue;
    }
    if (!segments_[open_]->has_room(bytes, family)) {
      ++op->next;
      settle(op, i, Code::no_room, work);
      continue;
    }
    if (run->items.empty() && !start_run(*run, item, room)) return nullptr;
    std::byte* const base = run->staging != nullptr ? run->staging : run->own.data();
    used += add_record(*run, op, i, base + used);
    ++op->next;
  }
  if (run->items.empty()) return nullptr;
  ++segments_[run->segment]->writes;
  return run;
}

uint64_t DiskCore::add_record(WriteRun& run, const std::shared_ptr<PutOp>& op, uint32_t i, std::byte* const staging) {
  const PutItem& item = op->batch->items[i];
  Segment& segment = *segments_[run.segment];
  const uint64_t payload = round_up(item.payload.size(), kPage);
  std::byte* at = staging;
  const auto add_head_pages = [&](uint64_t bytes) {
    run.runs.push_back(IoRun{at, bytes});
    run.bytes += bytes;
    segment.next_page += pages(bytes);
    at += bytes;
  };
  RecordPlace place{segment.next_page, 0, static_cast<uint32_t>(item.head.size()), item.payload.size()};
  std::byte* area = at;
  if (!may_share(item.head.size(), item.payload.size())) {
    run.shared = nullptr;
    add_head_pages(place.area_bytes());
  } else {
    if (run.shared == nullptr || run.shared_used == kHeadUnits) {
      run.shared = at;
      run.shared_page = segment.next_page;
      run.shared_used = 0;
      std::memset(at, 0, kPage);
      add_head_pages(kPage);
    }
    place.page = segment.next_page;
    place.back = (place.page - run.shared_page) * kHeadUnits - run.shared_used;
    area = run.shared + run.shared_used * kHeadUnit;
    ++run.shared_used;
  }
  Segment::LiveRow row;
  row.row.key = item.id.key;
  row.row.page = place.page;
  row.row.back = place.back;
  row.row.head_bytes = place.head_bytes;
  row.row.payload_bytes = place.payload_bytes;
  row.row.family = families_.get(item.id.family);
  row.row.parent = item.parent.key;
  row.row.has_parent = item.has_parent;
  row.row.uses = static_cast<uint8_t>(std::min<uint16_t>(item.uses, UINT8_MAX));
  row.row.priority = item.priority;
  WriteRun::Item out{op, i, static_cast<uint32_t>(segment.rows.size()), place, next_record_++, area, nullptr};
  if (segment.footer_size.add(row.row.family)) ++listed_[row.row.family];
  segment.rows.push_back(row);
  segment.next_page += pages(payload);
  if (payload != 0) {
    // The write reads this memory only; IoRun serves both directions.
    auto* data = const_cast<std::byte*>(item.payload.data());
    if (!direct_ready(item.payload)) {
      data = out.payload_copy = at;
      at += payload;
    }
    run.runs.push_back(IoRun{data, payload});
  }
  run.bytes += payload;
  run.items.push_back(std::move(out));
  if (std::find(op->segments.begin(), op->segments.end(), run.segment) == op->segments.end())
    op->segments.push_back(run.segment);
  return static_cast<uint64_t>(at - staging);
}

bool DiskCore::loads_are_near(uint64_t now) const {
  return loads_open_ > 0 || (last_load_ns_ != 0 && now - last_load_ns_ < kLoadsAreNear);
}

bool DiskCore::yields(uint64_t now, Work& work) {
  const uint64_t until = last_piece_ns_ + kLongestYield;
  if (loads_open_ == 0 || stopping_ || disabled_ || now >= until) return false;
  if (std::exchange(yields_until_, until) != until)
    work.wake_at = work.wake_at == 0 ? until : std::min(until, work.wake_at);
  return true;
}

// A piece was written; the rest of its run is queued.
void DiskCore::next_piece(std::unique_ptr<WriteRun> run) {
  Work work;
  {
    MutexLock lock(mutex_);
    last_piece_ns_ = executor_.clock().now_ns();
    begun_.push_back(std::move(run));
    advance(work);
  }
  perform(work);
}

// Writes the rest of a run: all of it, or a piece at a time while loads are near.
void DiskCore::write_on(std::unique_ptr<WriteRun> run) {
  uint64_t most = run->bytes;
  {
    MutexLock lock(mutex_);
    if (loads_are_near(executor_.clock().now_ns())) most = kPieceBytes;
  }
  std::vector<IoRun> piece;
  uint64_t bytes = 0;
  uint64_t at = 0;
  for (const IoRun& r : run->runs) {
    const uint64_t skip = std::min<uint64_t>(run->sent > at ? run->sent - at : 0, r.bytes);
    at += r.bytes;
    const uint64_t take = std::min<uint64_t>(r.bytes - skip, most - bytes);
    if (take != 0) piece.push_back(IoRun{r.data + skip, take});
    bytes += take;
    if (bytes == most) break;
  }
  File& file = *segment(run->segment).file;
  const uint64_t offset = run->offset + run->sent;
  file.write(offset, piece,
             [self = shared_from_this(), bytes, run = std::move(run)](const Result<size_t>& moved) mutable {
               if (moved.ok() && moved.value() == bytes) run->sent += bytes;
               const bool more = moved.ok() && moved.value() == bytes && run->sent < run->bytes;
               if (more) return self->next_piece(std::move(run));
               self->written(std::move(run), moved.status());
             });
}

void DiskCore::encode(WriteRun& run) {
  const SegmentLife life = segment(run.segment).life;
  for (WriteRun::Item& out : run.items) {
    const PutItem& item = out.op->batch->items[out.item];
    Envelope e;
    e.directory_id = directory_id_;
    e.sequence = out.sequence;
    e.segment = run.segment;
    e.generation = life.generation;
    e.epoch = life.epoch;
    e.page = out.place.page;
    e.back = out.place.back;
    e.head_bytes = out.place.head_bytes;
    e.payload_bytes = item.payload.size();
    e.uses = item.uses;
    e.priority = item.priority;
    encode_head_area(e, item.head, MutableBytes(out.area, out.place.area_bytes()));
    if (out.payload_copy == nullptr) continue;
    std::memcpy(out.payload_copy, item.payload.data(), item.payload.size());
    std::memset(out.payload_copy + item.payload.size(), 0, round_up(item.payload.size(), kPage) - item.payload.size());
  }
}

void DiskCore::written(std::unique_ptr<WriteRun> run, const Status& status) {
  Work work;
  {
    MutexLock lock(mutex_);
    Segment& segment = *segments_[run->segment];
    write_bytes_ -= run->bytes;
    last_piece_ns_ = executor_.clock().now_ns();
    --segment.writes;
    if (run->staging != nullptr) staging_free_.push_back(run->staging);
    if (run->sent == run->bytes && !segment.sync_failed) {
      failures_ = 0;
      for (const WriteRun::Item& item : run->items) publish(item, run->segment, work);
    } else {
      // Records written to a segment after one of its syncs failed may not be durable, though the write and later syncs
      // succeed.
      const Code code = status.code() == Code::disk_full ? Code::disk_full : Code::io_error;
      if (code == Code::disk_full) full(work);
      // This segment may be bad: close it, and try its records once more in another.
      if (open_ == run->segment) begin_seal(open_, work);
      for (const WriteRun::Item& item : run->items) {
        PutOp& op = *item.op;
        if (op.tries[item.item]++ > 0 || op.carry() || stopping_ || disabled_) {
          settle(item.op, item.item, code, work);
          continue;
        }
        op.to_write.push_back(item.item);
        next_deadline_ = std::min(next_deadline_, op.batch->deadline_ns);
        if (op.queued) continue;
        op.queued = true;
        // Before other puts, but behind those of reclaim, without which all would wait for room.
        put_queue_.insert(std::find_if(put_queue_.begin(), put_queue_.end(), [](const auto& p) { return !p->carry(); }),
                          item.op);
      }
      if (++failures_ >= kFailuresToDisable) fail(work);
    }
    if (segment.state == SegmentState::closing && segment.writes == 0 && !segment.sealing) {
      segment.sealing = true;
      work.seals.push_back(run->segment);
    }
    advance(work);
  }
  perform(work);
}

void DiskCore::publish(const WriteRun::Item& item, uint32_t number, Work& work) {
  PutOp& op = *item.op;
  const PutItem& put = op.batch->items[item.item];
  Segment& segment = *segments_[number];
  Row& row = segment.rows[item.row].row;
  const uint64_t bytes = row.place().bytes();
  const uint32_t location = number * segment_pages_ + row.page;
  const uint32_t known = index_.find(put.id);
  // Another batch has stored it first.
  if (op.batch->durable && known != DiskIndex::kNone) note_unsynced(op, segment_of(index_.at(known).location));
  if (op.erased[item.item] || (!op.carry() && known != DiskIndex::kNone))
    return settle(item.op, item.item, Code::ok, work);
  uint32_t entry = known;
  if (op.carry()) {
    const uint32_t from = op.moved_from[item.item];
    if (known == DiskIndex::kNone || index_.at(known).location != from)
      return settle(item.op, item.item, Code::ok, work);
    segments_[segment_of(from)]->gone(index_.at(known).bytes());
    if (const auto pin = pins_.find(put.id); pin != pins_.end() && pin->second.segment == segment_of(from)) {
      --segments_[pin->second.segment]->pins;
      pin->second.segment = number;
      ++segment.pins;
    }
    index_.at(known).set_place(row.place());
    index_.at(known).uses /= 2;  // an old count does not keep a record for ever
    stats_.rewritten_bytes += bytes;
  } else {
    entry = index_.insert(put.id);
    if (entry == DiskIndex::kNone) {
      ++stats_.dropped_full;
      return settle(item.op, item.item, Code::no_room, work);
    }
    link(entry, put);
    IndexEntry& e = index_.at(entry);
    e.uses = row.uses;
    e.last_use = seconds();
    e.set_place(row.place());
    if (op.hints[item.item] != PutOp::kNoHint) row.priority = op.hints[item.item];
    e.priority = row.priority & 3U;
    stats_.payload_bytes += row.payload_bytes;
    ++stats_.puts;
    stats_.put_bytes += bytes;
  }
  index_.at(entry).location = location;
  segment.rows[item.row].written = ++segment.written;
  segment.live_bytes += bytes;
  ++segment.live_records;
  settle(item.op, item.item, Code::ok, work);
}

void DiskCore::settle(const std::shared_ptr<PutOp>& op, uint32_t item, Code code, Work& work) {
  op->batch->status[item] = code;
  if (code != Code::ok) ++stats_.put_errors;
  if (--op->open == 0) finish_put(op, work);
}

void DiskCore::finish_put(const std::shared_ptr<PutOp>& op, Work& work) {
  // A segment without unsynced records needs no sync; it may even have begun another life since this put wrote there.
  std::erase_if(op->segments, [this](uint32_t number) KVBM_NO_TSA {
    const Segment& s = *segments_[number];
    return s.synced >= s.written && !s.sync_running && !s.sync_failed;
  });
  if (op->batch->durable && !op->segments.empty()) {
    auto wait = std::make_shared<SyncWait>();
    wait->put = op;
    return wait_for_sync(op->segments, std::move(wait), work);
  }
  if (op->carry() && reclaim_ != nullptr) {
    reclaim_->carried_to.insert(reclaim_->carried_to.end(), op->segments.begin(), op->segments.end());
  }
  puts_.erase(std::find(puts_.begin(), puts_.end(), op));
  work.puts_done.push_back(op);
}

void DiskCore::begin_seal(uint32_t number, Work& work) {
  Segment& segment = *segments_[number];
  if (open_ == number) open_ = UINT32_MAX;
  if (segment.next_page == 1) {
    segment.state = SegmentState::free;
    free_.push_front(number);
    return;
  }
  segment.state = SegmentState::closing;
  ++closing_;
  if (segment.writes != 0) return;
  segment.sealing = true;
  work.seals.push_back(number);
}

// Records are synced before the footer is written: no footer is on the medium before all records that it names.
void DiskCore::seal(uint32_t number) {
  Work work;
  {
    MutexLock lock(mutex_);
    auto wait = std::make_shared<SyncWait>();
    wait->done = [this, number](bool ok) {
      if (ok)
        write_footer(number);
      else
        sealed(number, false);
    };
    wait_for_sync({number}, std::move(wait), work);
  }
  perform(work);
}

void DiskCore::write_footer(uint32_t number) {
  std::vector<std::byte> bytes;
  Segment& s = segment(number);
  uint64_t segment_bytes = 0;
  {
    MutexLock lock(mutex_);
    std::vector<Row> rows;
    for (const Segment::LiveRow& live : s.rows) {
      if (live.written != 0) rows.push_back(live.row);
    }
    segment_bytes = s.life.segment_bytes;
    bytes = encode_footer(s.life, rows);
  }
  auto buffer = std::make_shared<AlignedBuffer>(bytes.size());
  if (buffer->data() == nullptr) return sealed(number, false);
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  const IoRun run{buffer->data(), buffer->size()};
  s.file->write(
      segment_bytes - bytes.size(), {&run, 1},
      [self = shared_from_this(), number, buffer](const Result<size_t>& moved) {
        if (!moved.ok() || moved.value() != buffer->size()) return self->sealed(number, false);
        // A footer that a power cut destroys costs a scan. Each sync delays writes that are in flight.
        if (!self->is_stopping()) return self->sealed(number, true);
        self->segment(number).file->sync([self, number](const Status& status) { self->sealed(number, status.ok()); });
      });
}

bool DiskCore::is_stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void DiskCore::sealed(uint32_t number, bool footer) {
  Work work;
  {
    MutexLock lock(mutex_);
    Segment& segment = *segments_[number];
    segment.state = SegmentState::closed;
    segment.footer = footer;
    segment.sealing = false;
    segment.rows = {};
    --closing_;
    advance(work);
  }
  perform(work);
}

void DiskCore::expire_puts(uint64_t now, Work& work) {
  for (auto it = put_queue_.begin(); it != put_queue_.end();) {
    const std::shared_ptr<PutOp> op = *it;
    if (op->batch->deadline_ns > now) {
      ++it;
      continue;
    }
    it = put_queue_.erase(it);
    op->queued = false;
    while (op->next < op->to_write.size()) settle(op, op->to_write[op->next++], Code::deadline, work);
  }
}

void DiskCore::refuse_puts(Code code, Work& work, size_t most) {
  for (; most != 0 && !put_queue_.empty(); --most) {
    const std::shared_ptr<PutOp> op = put_queue_.front();
    put_queue_.pop_front();
    op->queued = false;
    while (op->next < op->to_write.size()) {
      if (code == Code::no_room) {
        ++stats_.dropped_full;
        if (refused_.size() < kRefused) refused_.insert(op->batch->items[op->to_write[op->next]].id);
      }
      settle(op, op->to_write[op->next++], code, work);
    }
  }
}

}  // namespace kvbm::tier::disk

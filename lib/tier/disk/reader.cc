// Reading. The extents of a batch are sorted by place, neighbours become one vectored read into the targets, and every
// record is checked before its item is ok.
#include <algorithm>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

bool aligned(const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % kIoAlign == 0; }

}  // namespace

// Held by a reader that reads a payload past the tier. Until its end the segment is not renewed and the tier not
// closed.
struct DiskCore::FileHold {
  FileHold(std::shared_ptr<DiskCore> held, uint32_t number) : core(std::move(held)), segment(number) {}
  ~FileHold() { core->release_file(segment); }
  FileHold(const FileHold&) = delete;
  FileHold& operator=(const FileHold&) = delete;
  const std::shared_ptr<DiskCore> core;
  const uint32_t segment;
};

bool DiskCore::reads_from_files() const noexcept {
  MutexLock lock(mutex_);
  return !segments_.empty() && segments_[0]->file->direct() && segments_[0]->file->descriptor() >= 0;
}

void DiskCore::lend_file(GetItem& item, const GetOp::Place& place) {
  Segment& segment = *segments_[place.segment];
  // Only bytes written past the page cache are certainly on the medium.
  if (!segment.file->direct() || segment.file->descriptor() < 0) return;
  item.file.hold = std::make_shared<FileHold>(shared_from_this(), place.segment);
  item.file.fd = segment.file->descriptor();
  item.file.offset = place.record.payload_at();
  ++segment.reads;
  ++gets_open_;
  ++loads_open_;
}

void DiskCore::release_file(uint32_t segment) noexcept {
  const MemoryWait no_error_path;
  Work work;
  {
    MutexLock lock(mutex_);
    --segments_[segment]->reads;
    --gets_open_;
    --loads_open_;
    last_load_ns_ = executor_.clock().now_ns();
    reclaim_drained(work);
    advance(work);
  }
  perform(work);
}

void DiskCore::get(std::unique_ptr<GetBatch> batch, bool internal) {
  auto op = std::make_shared<GetOp>();
  const size_t n = batch->items.size();
  const uint64_t deadline = batch->deadline_ns;
  batch->status.assign(n, Code::again);
  op->places.resize(n);
  op->batch = std::move(batch);
  bool wait = false;
  {
    MutexLock lock(mutex_);
    std::vector<Extent> extents;
    for (uint32_t i = 0; i < n; ++i) {
      const Code code = place_read(*op, i, internal);
      if (code != Code::again) {
        op->batch->status[i] = code;
        continue;
      }
      ++op->open;
      GetItem& item = op->batch->items[i];
      GetOp::Place& place = op->places[i];
      ++segments_[place.segment]->reads;
      if (op->batch->accepts.files) lend_file(item, place);
      const RecordPlace& record = place.record;
      extents.push_back({op, i, place.segment, record.head_page_at(), IoRun{item.head.data(), record.head_read_bytes()},
                         false, record.shares(), {}});
      if (place.bytes != 0)
        extents.push_back({op, i, place.segment, record.payload_at(), IoRun{item.payload.data(), place.bytes}, false,
                           false, {}});
      place.extents = place.bytes != 0 ? 2 : 1;
    }
    std::stable_sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
      return a.segment != b.segment ? a.segment < b.segment : a.offset < b.offset;
    });
    queue_reads(std::move(extents));
    wait = op->open != 0;
    if (wait) {
      ++gets_open_;
      op->internal = internal;
      loads_open_ += internal ? 0 : 1;
      next_deadline_ = std::min(next_deadline_, deadline);
    }
  }
  if (!wait) {
    executor_.post([op] { op->batch->done(*op->batch); });
    return;
  }
  if (deadline != kNever) wake_at(deadline);
  pump();
}

// `extents` are sorted by place. A page with heads of several items is read once.
void DiskCore::queue_reads(std::vector<Extent> extents) {
  Extent* page = nullptr;  // of heads, read last
  for (Extent& e : extents) {
    if (e.shared_head && page != nullptr && page->segment == e.segment && page->offset == e.offset) {
      page->others.push_back(e.item);
      continue;
    }
    read_queue_.push_back(std::move(e));
    if (read_queue_.back().shared_head) page = &read_queue_.back();
  }
}

// The page of heads was read into the target of the first item. Copies each head to its own target, the first one last.
void DiskCore::part_heads(const Extent& e) {
  std::vector<GetItem>& items = e.op->batch->items;
  const auto at = [&](uint32_t item) {
    const RecordPlace& record = e.op->places[item].record;
    return e.run.data + (record.head_at() - record.head_page_at());
  };
  for (const uint32_t other : e.others) std::memcpy(items[other].head.data(), at(other), items[other].head_bytes);
  std::memmove(items[e.item].head.data(), at(e.item), items[e.item].head_bytes);
}

// Returns again if the item is to be read; any other code is its result.
Code DiskCore::place_read(GetOp& op, uint32_t i, bool internal) {
  GetItem& item = op.batch->items[i];
  GetOp::Place& place = op.places[i];
  if (disabled_) return Code::tier_disabled;
  if (stopping_) return Code::closed;
  const uint32_t entry = index_.find(item.id);
  if (entry == DiskIndex::kNone) {
    ++stats_.misses;
    return Code::miss;
  }
  const IndexEntry& e = index_.at(entry);
  place.record = e.place(page_of(e.location));
  item.head_bytes = place.record.head_bytes;
  item.payload_bytes = e.payload_bytes;
  const bool head_alone = op.batch->accepts.files;
  if (item.head.size() < item.head_bytes || (item.payload.size() < item.payload_bytes && !head_alone) ||
      !aligned(item.head.data()) || !aligned(item.payload.data()))
    return Code::invalid_argument;
  place.location = e.location;
  place.segment = segment_of(e.location);
  place.bytes = head_alone ? 0 : round_up(item.payload_bytes, kPage);
  place.internal = internal;
  place.leaves = !op.batch->accepts.verifies;
  item.location = uint64_t{e.location} + 1;
  return Code::again;
}

void DiskCore::fill_reads(Work& work) {
  const uint64_t now = executor_.clock().now_ns();
  while (!read_queue_.empty() && (read_bytes_ == 0 || read_bytes_ < options_.read_budget_bytes)) {
    if (const uint64_t at = read_cap_.ready_at(now); at != 0) {
      work.wake_at = work.wake_at == 0 ? at : std::min(at, work.wake_at);
      return;
    }
    auto run = std::make_unique<ReadRun>();
    run->segment = read_queue_.front().segment;
    run->offset = read_queue_.front().offset;
    while (!read_queue_.empty() && run->runs.size() < kRunVectors) {
      Extent& e = read_queue_.front();
      if (e.segment != run->segment || e.offset != run->offset + run->bytes) break;
      if (run->bytes != 0 && run->bytes + e.run.bytes > kRunBytes) break;
      if (run->bytes != 0 && (e.alone || run->extents.front().alone)) break;
      run->bytes += e.run.bytes;
      run->runs.push_back(e.run);
      run->extents.push_back(std::move(e));
      read_queue_.pop_front();
    }
    read_bytes_ += run->bytes;
    read_cap_.take(now, run->bytes);
    work.reads.push_back(std::move(run));
  }
}

Code DiskCore::verify(const GetItem& item, const GetOp::Place& place) const {
  auto head = codec::HeadView::parse(ConstBytes(item.head).first(item.head_bytes));
  if (!head.ok()) return Code::damaged;
  const codec::Header& h = head.value().header();
  const Family& f = families_.get(item.id.family);
  if (h.key != item.id.key || h.ns != f.ns || h.geometry != f.geometry || h.component != f.component ||
      h.shard != f.shard || h.stored_bytes != item.payload_bytes)
    return Code::damaged;
  for (uint32_t i = 0; place.leaves && i < h.leaf_count; ++i) {
    const codec::Leaf leaf = head.value().leaf(i);
    const uint64_t end = uint64_t{leaf.offset} + leaf.stored_bytes;
    if (end > item.payload_bytes) return Code::damaged;
    if (end > place.bytes) continue;
    if (codec::leaf_hash(ConstBytes(item.payload).subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash)
      return Code::damaged;
  }
  return Code::ok;
}

void DiskCore::read_done(std::unique_ptr<ReadRun> run, const Result<size_t>& moved) {
  // A short read means that the file was truncated: the missing bytes were not read.
  const bool ok = moved.ok() && moved.value() == run->bytes;
  Work work;
  std::vector<std::pair<std::shared_ptr<GetOp>, uint32_t>> whole;
  for (const Extent& e : run->extents) {
    if (ok && e.shared_head) part_heads(e);
  }
  {
    MutexLock lock(mutex_);
    read_bytes_ -= run->bytes;
    if (ok)
      failures_ = 0;
    else if (++failures_ >= kFailuresToDisable)
      fail(work);
    if (!ok && !disabled_ && run->extents.size() > 1) read_apart(*run);
    const auto came = [&](const std::shared_ptr<GetOp>& op, uint32_t item) KVBM_NO_TSA {
      if (op->places[item].extents == 1 && op->batch->status[item] == Code::again) {
        whole.emplace_back(op, item);  // its last extent: check it, unlocked
      } else {
        item_read(op, item, Code::again, work);
      }
    };
    for (const Extent& e : run->extents) {
      if (!ok) {
        extent_done(e, Code::io_error, work);
        continue;
      }
      came(e.op, e.item);
      for (const uint32_t other : e.others) came(e.op, other);
    }
  }
  std::vector<Code> codes;
  codes.reserve(whole.size());
  for (const auto& [op, i] : whole) codes.push_back(verify(op->batch->items[i], op->places[i]));
  {
    MutexLock lock(mutex_);
    for (size_t k = 0; k < whole.size(); ++k) settle_read(whole[k].first, whole[k].second, codes[k], work);
    advance(work);
  }
  perform(work, true);
}

// A place that cannot be read, or a truncated file, must not cost neighbouring records: each extent is read by itself,
// ahead of the others.
void DiskCore::read_apart(ReadRun& run) {
  for (auto at = run.extents.rbegin(); at != run.extents.rend(); ++at) {
    at->alone = true;
    next_deadline_ = std::min(next_deadline_, at->op->batch->deadline_ns);
    read_queue_.push_front(std::move(*at));
  }
  run.extents.clear();
}

// Ends a read for all items that it was for.
void DiskCore::extent_done(const Extent& e, Code code, Work& work) {
  item_read(e.op, e.item, code, work);
  for (const uint32_t other : e.others) item_read(e.op, other, code, work);
}

// Ends one of an item's reads; `again` means without an error. The item settles with its last.
void DiskCore::item_read(const std::shared_ptr<GetOp>& op, uint32_t item, Code code, Work& work) {
  GetOp::Place& place = op->places[item];
  Code& status = op->batch->status[item];
  if (status == Code::again) status = code;
  if (place.extents > 1) {
    --place.extents;
    return;
  }
  settle_read(op, item, status, work);
}

// Quarantines a record: it is forgotten, and its place is not reused before the whole segment is.
void DiskCore::found_damaged(const Identity& id, uint32_t location, Work& work) {
  ++stats_.get_errors;
  const uint32_t entry = index_.find(id);
  if (entry == DiskIndex::kNone || index_.at(entry).location != location) return;
  ++stats_.damaged;
  work.damaged.push_back(id);
  drop_entry(entry);
}

void DiskCore::reject(const Identity& id, uint64_t location) {
  Work work;
  {
    MutexLock lock(mutex_);
    found_damaged(id, static_cast<uint32_t>(location - 1), work);
  }
  perform(work);
}

void DiskCore::settle_read(const std::shared_ptr<GetOp>& op, uint32_t i, Code code, Work& work) {
  const GetItem& item = op->batch->items[i];
  const GetOp::Place& place = op->places[i];
  op->batch->status[i] = code;
  Segment& segment = *segments_[place.segment];
  --segment.reads;
  if (code == Code::ok && !place.internal) {
    ++stats_.gets;
    stats_.get_bytes += item.head_bytes + place.bytes;
  } else if (code == Code::damaged || code == Code::io_error) {
    found_damaged(item.id, place.location, work);
  }
  if (--op->open == 0) {
    --gets_open_;
    if (!op->internal) {
      --loads_open_;
      last_load_ns_ = executor_.clock().now_ns();
    }
    work.gets_done.push_back(op);
  }
  reclaim_drained(work);
}

void DiskCore::expire_reads(uint64_t now, Work& work) {
  for (auto it = read_queue_.begin(); it != read_queue_.end();) {
    if (it->op->batch->deadline_ns > now) {
      ++it;
      continue;
    }
    const Extent e = std::move(*it);
    it = read_queue_.erase(it);
    extent_done(e, Code::deadline, work);
  }
}

void DiskCore::refuse_reads(Code code, Work& work) {
  while (!read_queue_.empty()) {
    const Extent e = std::move(read_queue_.front());
    read_queue_.pop_front();
    extent_done(e, code, work);
  }
}

// At the end no caller waits for queued reads any more: they belong to loads that were cancelled or ran out of time.
// Reads of reclaim go on.
void DiskCore::cancel_reads(Work& work) {
  for (auto it = read_queue_.begin(); it != read_queue_.end();) {
    if (it->op->places[it->item].internal) {
      ++it;
      continue;
    }
    const Extent e = std::move(*it);
    it = read_queue_.erase(it);
    extent_done(e, Code::closed, work);
  }
}

}  // namespace kvbm::tier::disk

// Reading. The items of a batch are sorted by place, neighbours become one vectored read into the targets, and every
// record is checked before its item is ok.
#include <algorithm>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

bool aligned(const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % kIoAlign == 0; }

IoRun head_piece(const GetOp& op, uint32_t i) {
  return {op.batch->items[i].head.data(), op.places[i].record.head_read_bytes()};
}

IoRun payload_piece(const GetOp& op, uint32_t i) { return {op.batch->items[i].payload.data(), op.places[i].bytes}; }

// True if the heads of both items are on one page, which is read once for them.
bool share_page(const GetOp& op, uint32_t a, uint32_t b) {
  const GetOp::Place& one = op.places[a];
  const GetOp::Place& other = op.places[b];
  return one.record.shares() && other.record.shares() && one.segment == other.segment &&
         one.record.head_page_at() == other.record.head_page_at();
}

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
  op->internal = internal;
  bool wait = false;
  {
    MutexLock lock(mutex_);
    std::vector<uint32_t> to_read;
    for (uint32_t i = 0; i < n; ++i) {
      const Code code = place_read(*op, i);
      if (code != Code::again) {
        op->batch->status[i] = code;
        continue;
      }
      ++op->open;
      ++segments_[op->places[i].segment]->reads;
      if (op->batch->accepts.files) lend_file(op->batch->items[i], op->places[i]);
      to_read.push_back(i);
    }
    queue_reads(op, std::move(to_read));
    wait = op->open != 0;
    if (wait) {
      ++gets_open_;
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

// A page with heads of several items is read once.
void DiskCore::queue_reads(const std::shared_ptr<GetOp>& op, std::vector<uint32_t> items) {
  const std::vector<GetOp::Place>& places = op->places;
  std::stable_sort(items.begin(), items.end(),
                   [&](uint32_t a, uint32_t b) { return places[a].location < places[b].location; });
  ReadRun* heads = nullptr;  // has the head read last
  for (const uint32_t i : items) {
    GetOp::Place& place = op->places[i];
    place.open = place.bytes != 0 ? 2 : 1;
    if (heads == nullptr || !share_page(*op, heads->heads.back(), i))
      heads = &run_at(op, place.segment, place.record.head_page_at(), head_piece(*op, i));
    heads->heads.push_back(i);
    if (place.bytes != 0)
      run_at(op, place.segment, place.record.payload_at(), payload_piece(*op, i)).payloads.push_back(i);
  }
}

// Appends a piece to the last run of the queue if that ends where the piece begins, else to a new run.
ReadRun& DiskCore::run_at(const std::shared_ptr<GetOp>& op, uint32_t segment, uint64_t offset, const IoRun& piece) {
  ReadRun* run = read_queue_.empty() ? nullptr : read_queue_.back().get();
  const bool joins = run != nullptr && run->op == op && run->segment == segment && run->offset + run->bytes == offset &&
                     run->runs.size() < kRunVectors && run->bytes + piece.bytes <= kRunBytes;
  if (!joins) {
    read_queue_.push_back(std::make_unique<ReadRun>(ReadRun{op, segment, offset, 0, {}, {}, {}}));
    run = read_queue_.back().get();
  }
  run->runs.push_back(piece);
  run->bytes += piece.bytes;
  return *run;
}

// Copies each head from the shared page that it was read with to its own target. The first head of a page lies in the
// memory of the page, so it is moved last.
void DiskCore::part_heads(const ReadRun& run) {
  const GetOp& op = *run.op;
  const auto at = [&](uint32_t first, uint32_t item) {
    const RecordPlace& record = op.places[item].record;
    return op.batch->items[first].head.data() + (record.head_at() - record.head_page_at());
  };
  for (size_t k = 0; k < run.heads.size();) {
    const uint32_t first = run.heads[k++];
    if (!op.places[first].record.shares()) continue;
    for (; k < run.heads.size() && share_page(op, first, run.heads[k]); ++k) {
      GetItem& other = op.batch->items[run.heads[k]];
      std::memcpy(other.head.data(), at(first, run.heads[k]), other.head_bytes);
    }
    GetItem& item = op.batch->items[first];
    std::memmove(item.head.data(), at(first, first), item.head_bytes);
  }
}

// Returns again if the item is to be read; any other code is its result.
Code DiskCore::place_read(GetOp& op, uint32_t i) {
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
    std::unique_ptr<ReadRun> run = std::move(read_queue_.front());
    read_queue_.pop_front();
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
  const std::shared_ptr<GetOp>& op = run->op;
  Work work;
  if (ok) part_heads(*run);
  std::vector<uint32_t> whole;
  {
    MutexLock lock(mutex_);
    read_bytes_ -= run->bytes;
    if (ok)
      failures_ = 0;
    else if (++failures_ >= kFailuresToDisable)
      fail(work);
    const bool again = !ok && !disabled_ && run->runs.size() > 1;
    if (again) read_apart(*run);
    for (const auto* items : {&run->heads, &run->payloads}) {
      for (const uint32_t i : *items) {
        if (again) continue;
        if (ok && op->places[i].open == 1 && op->batch->status[i] == Code::again) {
          whole.push_back(i);  // its last read: check it, unlocked
        } else {
          item_read(op, i, ok ? Code::again : Code::io_error, work);
        }
      }
    }
  }
  std::vector<Code> codes;
  codes.reserve(whole.size());
  for (const uint32_t i : whole) codes.push_back(verify(op->batch->items[i], op->places[i]));
  {
    MutexLock lock(mutex_);
    for (size_t k = 0; k < whole.size(); ++k) settle_read(op, whole[k], codes[k], work);
    advance(work);
  }
  perform(work, true);
}

// A place that cannot be read, or a truncated file, must not cost neighbouring records: each piece is read by itself,
// ahead of the others.
void DiskCore::read_apart(const ReadRun& run) {
  const GetOp& op = *run.op;
  next_deadline_ = std::min(next_deadline_, op.batch->deadline_ns);
  const auto read_first = [&](uint64_t offset, const IoRun& piece) KVBM_REQUIRES(mutex_) -> ReadRun& {
    read_queue_.push_front(
        std::make_unique<ReadRun>(ReadRun{run.op, run.segment, offset, piece.bytes, {piece}, {}, {}}));
    return *read_queue_.front();
  };
  for (const uint32_t i : run.payloads)
    read_first(op.places[i].record.payload_at(), payload_piece(op, i)).payloads.push_back(i);
  ReadRun* heads = nullptr;
  for (const uint32_t i : run.heads) {
    if (heads == nullptr || !share_page(op, heads->heads.back(), i))
      heads = &read_first(op.places[i].record.head_page_at(), head_piece(op, i));
    heads->heads.push_back(i);
  }
}

// Ends one of an item's reads; `again` means without an error. The item settles with its last.
void DiskCore::item_read(const std::shared_ptr<GetOp>& op, uint32_t item, Code code, Work& work) {
  Code& status = op->batch->status[item];
  if (status == Code::again) status = code;
  if (--op->places[item].open == 0) settle_read(op, item, status, work);
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
  if (code == Code::ok && !op->internal) {
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

// Ends the reads of the queue that `which` names.
template <typename Which>
void DiskCore::end_reads(Code code, Work& work, Which which) {
  for (auto it = read_queue_.begin(); it != read_queue_.end();) {
    if (!which(**it)) {
      ++it;
      continue;
    }
    const std::unique_ptr<ReadRun> run = std::move(*it);
    it = read_queue_.erase(it);
    for (const auto* items : {&run->heads, &run->payloads}) {
      for (const uint32_t i : *items) item_read(run->op, i, code, work);
    }
  }
}

void DiskCore::expire_reads(uint64_t now, Work& work) {
  end_reads(Code::deadline, work, [now](const ReadRun& run) { return run.op->batch->deadline_ns <= now; });
}

void DiskCore::refuse_reads(Code code, Work& work) {
  end_reads(code, work, [](const ReadRun&) { return true; });
}

// At the end no caller waits for queued reads any more: they belong to loads that were cancelled or ran out of time.
// Reads of reclaim go on.
void DiskCore::cancel_reads(Work& work) {
  end_reads(Code::closed, work, [](const ReadRun& run) { return !run.op->internal; });
}

}  // namespace kvbm::tier::disk

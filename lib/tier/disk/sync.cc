// Durability. A record survives a power cut once a sync of its segment has succeeded that began after it was written. A
// sync that fails loses everything since the last good one, for good: systems treat pages that they could not write as
// clean, and a later sync that succeeds does not cover them.
#include <algorithm>
#include <utility>

#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {

// Group commit: callers that wait when a sync begins are served by it, later ones by the next.
void DiskCore::wait_for_sync(const std::vector<uint32_t>& segments, std::shared_ptr<SyncWait> wait, Work& work) {
  wait->open = static_cast<uint32_t>(segments.size());
  for (const uint32_t number : segments) {
    Segment& segment = *segments_[number];
    segment.sync_waiters.push_back(wait);
    if (!std::exchange(segment.sync_running, true)) work.syncs.push_back(number);
  }
}

void DiskCore::sync(UniqueFunction<void(const Status&)> done) {
  Work work;
  {
    MutexLock lock(mutex_);
    std::vector<uint32_t> segments;
    // A sync under way may fail: its records are then gone, and this caller must hear of it, too.
    for (uint32_t i = 0; i < segments_.size(); ++i) {
      if (segments_[i]->synced < segments_[i]->written || segments_[i]->sync_running) segments.push_back(i);
    }
    auto wait = std::make_shared<SyncWait>();
    ++syncs_open_;
    wait->done = [this, call = std::move(done)](bool ok) mutable {
      call(ok ? Status() : Status(Code::io_error, "blocks could not be made durable", options_.path));
      Work rest;
      {
        MutexLock held(mutex_);
        --syncs_open_;
        advance(rest);
      }
      perform(rest);
    };
    if (segments.empty())
      work.syncs_done.push_back(std::move(wait));
    else
      wait_for_sync(segments, std::move(wait), work);
  }
  perform(work);
}

void DiskCore::sync_segment(uint32_t number) {
  std::vector<std::shared_ptr<SyncWait>> waits;
  File* file = nullptr;
  uint64_t covers = 0;
  uint64_t life = 0;
  {
    MutexLock lock(mutex_);
    Segment& segment = *segments_[number];
    life = segment.life.sequence;
    waits.swap(segment.sync_waiters);
    file = segment.file.get();
    covers = segment.written;
  }
  file->sync([self = shared_from_this(), number, life, covers, waits = std::move(waits)](const Status& status) mutable {
    self->synced(number, life, std::move(waits), covers, status);
  });
}

// `life`: the segment's sequence when the sync began. Its result says nothing of a later life. Whether the records of
// an ended one were durable is not known any more, which counts as a failure for those that wait.
void DiskCore::synced(uint32_t number, uint64_t life, std::vector<std::shared_ptr<SyncWait>> waits, uint64_t covers,
                      const Status& status) {
  bool ok = false;
  Work lost;
  {
    MutexLock lock(mutex_);
    Segment& segment = *segments_[number];
    const bool same = segment.life.sequence == life;
    ok = same && status.ok() && !segment.sync_failed;
    if (ok) {
      segment.synced = std::max(segment.synced, covers);
    } else if (same) {
      sync_failed(number, lost);
    }
  }
  // First, while the sync still counts as running: callers that hear of the failure may send these records again at
  // once.
  if (!ok) perform(lost);
  Work work;
  {
    MutexLock lock(mutex_);
    Segment& segment = *segments_[number];
    if (!ok) {
      // Callers that wait for the next sync have records written since the last good one, too.
      std::move(segment.sync_waiters.begin(), segment.sync_waiters.end(), std::back_inserter(waits));
      segment.sync_waiters.clear();
    }
    segment.sync_running = !segment.sync_waiters.empty();
    if (segment.sync_running) work.syncs.push_back(number);
    for (auto& wait : waits) {
      wait->ok = wait->ok && ok;
      if (--wait->open != 0) continue;
      if (wait->put == nullptr) {
        work.syncs_done.push_back(std::move(wait));
        continue;
      }
      PutOp& op = *wait->put;
      if (!wait->ok) {
        for (Code& code : op.batch->status) code = code == Code::ok ? Code::io_error : code;
      }
      puts_.erase(std::find(puts_.begin(), puts_.end(), wait->put));
      work.puts_done.push_back(wait->put);
    }
    reclaim_drained(work);
    advance(work);
  }
  perform(work);
}

// Makes all records of the segment that were written since its last good sync unfindable. Nothing more is written to
// it.
void DiskCore::sync_failed(uint32_t number, Work& work) {
  Segment& segment = *segments_[number];
  if (!std::exchange(segment.sync_failed, true) && ++failures_ >= kFailuresToDisable) fail(work);
  const auto drop = [&](uint32_t entry) KVBM_REQUIRES(mutex_) {
    work.evicted.push_back(index_.identity(index_.at(entry)));
    drop_entry(entry);
    ++stats_.put_errors;
    ++work.not_durable;
  };
  for (const Segment::LiveRow& live : segment.rows) {
    FamilyId family = 0;
    if (live.written <= segment.synced || !families_.find(live.row.family, family)) continue;
    const uint32_t entry = index_.find(Identity{live.row.key, family});
    if (entry != DiskIndex::kNone && index_.at(entry).location == number * segment_pages_ + live.row.page) drop(entry);
  }
  // In a segment of an earlier owner, or one with its footer written, these records are not known: all are dropped.
  for (uint32_t i = 0; segment.rows.empty() && segment.synced < segment.written && i < index_.entries(); ++i) {
    if (index_.at(i).location != 0 && segment_of(index_.at(i).location) == number) drop(i);
  }
  segment.written = segment.synced;
  if (open_ == number) begin_seal(number, work);
}

}  // namespace kvbm::tier::disk

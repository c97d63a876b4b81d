// Hands evicted records to a lower tier. Records of a segment being emptied that the tier's owner wants below are read
// in order, checked and passed to the listener before they are forgotten here. So each is found here until it is found
// there.
//
// Loads go first, and the capacity is kept whatever happens below. Writing waits for the take-over only at a pace of
// 125 MB/s; records not taken over by then are lost, as evicted records are without a lower tier.
#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

constexpr uint64_t kPartBytes = uint64_t{2} << 20;    // one read in turn: no load waits for more
constexpr uint64_t kMovingBytes = uint64_t{8} << 20;  // limit of records being taken over, before another part is read
// Longest time that writing waits for the take-over, for each byte of a segment.
constexpr uint64_t kPatienceNsPerByte = 8;

}  // namespace

void DiskCore::demote() {
  std::vector<std::pair<uint32_t, Identity>> places;
  {
    MutexLock lock(mutex_);
    if (reclaim_ == nullptr) return;
    for (const Identity& id : reclaim_->ids) {
      const uint32_t entry = index_.find(id);
      if (entry == DiskIndex::kNone) continue;
      const uint32_t location = index_.at(entry).location;
      if (segment_of(location) == reclaim_->segment) places.emplace_back(location, id);
    }
  }
  if (listener_ == nullptr) return reclaim_drop();
  std::sort(places.begin(), places.end());
  std::vector<Identity> ids;
  ids.reserve(places.size());
  for (const auto& [location, id] : places) ids.push_back(id);
  listener_->wanted(tier_, ids);
  if (ids.empty()) return reclaim_drop();
  Work work;
  {
    MutexLock lock(mutex_);
    reclaim_->wanted = std::move(ids);
    reclaim_->offering = true;
    advance(work);
  }
  perform(work);
}

// Runs after each event. Decides whether the next part is to be read now, or the take-over has ended.
void DiskCore::offer(Work& work) {
  if (reclaim_ == nullptr || !reclaim_->offering || reclaim_->reading) return;
  Reclaim& r = *reclaim_;
  const uint64_t now = executor_.clock().now_ns();
  const bool held_up = index_.full() || (!put_queue_.empty() && open_ == UINT32_MAX && free_.empty());
  if (held_up && r.patient_until == kNever) {
    r.patient_until = now + segment_bytes_ * kPatienceNsPerByte;
    work.patient_until = r.patient_until;
  }
  const bool all_read = r.offered == r.wanted.size();
  const bool over = stopping_ || disabled_ || now >= r.patient_until || (all_read && moving_bytes_ == 0);
  const bool next = !all_read && moving_bytes_ < kMovingBytes && loads_open_ == 0;
  r.reading = work.offer = over || next;
}

// Chooses the next part of the wanted records; returns its bytes with their padding.
uint64_t DiskCore::choose_part(Reclaim& r, GetBatch& batch) {
  uint64_t bytes = 0;
  while (r.offered < r.wanted.size() && bytes < kPartBytes) {
    (void)add_read(r.wanted[r.offered++], r.segment, batch, bytes);
  }
  return bytes;
}

void DiskCore::offer_next() {
  auto batch = std::make_unique<GetBatch>();
  uint64_t bytes = 0;
  bool over = false;
  Work work;
  {
    MutexLock lock(mutex_);
    Reclaim& r = *reclaim_;
    const bool stop = stopping_ || disabled_ || executor_.clock().now_ns() >= r.patient_until;
    if (!stop) bytes = choose_part(r, *batch);
    moving_bytes_ += bytes;
    if (bytes == 0) {
      r.reading = false;
      over = stop || moving_bytes_ == 0;
      r.offering = !over;
      if (over && !stopping_) stats_.moves_lost += r.wanted.size() - r.offered;
      if (over && stopping_) reclaim_abort();
      advance(work);
    }
  }
  perform(work);
  if (over) return reclaim_drop();
  if (bytes == 0) return;
  auto memory = std::make_shared<AlignedBuffer>(bytes);
  if (memory->data() == nullptr) {
    batch->status.assign(batch->items.size(), Code::no_memory);
    return give_away(*batch, memory, bytes);
  }
  std::byte* at = memory->data();
  for (GetItem& item : batch->items) {
    item.head = MutableBytes(at, item.head_bytes);
    item.payload = MutableBytes(at + head_area(item.head_bytes), item.payload_bytes);
    at += record_bytes(item.head_bytes, item.payload_bytes);
  }
  // Weak, because the batch waits in a queue of this object.
  batch->done = [weak = weak_from_this(), memory, bytes](GetBatch& got) {
    if (const auto self = weak.lock()) self->give_away(got, memory, bytes);
  };
  get(std::move(batch), true);
}

void DiskCore::give_away(const GetBatch& got, const std::shared_ptr<AlignedBuffer>& memory, uint64_t bytes) {
  const MemoryWait no_error_path;
  auto batch = std::make_unique<PutBatch>();
  batch->as_stored = true;
  {
    MutexLock lock(mutex_);
    std::vector<size_t> which;
    batch->items = items_of(got, &which);
    // A record erased meanwhile needs no take-over.
    for (size_t i = 0; i < got.items.size(); ++i) {
      if (got.status[i] != Code::ok && got.status[i] != Code::miss) ++stats_.moves_lost;
    }
  }
  batch->status.assign(batch->items.size(), Code::internal);
  batch->done = [self = shared_from_this(), memory, bytes](PutBatch& done) { self->moved(done, bytes); };
  if (batch->items.empty()) {
    moved(*batch, bytes);
  } else {
    listener_->take_over(tier_, std::move(batch));
  }
  Work work;
  {
    MutexLock lock(mutex_);
    reclaim_->reading = false;
    advance(work);
  }
  perform(work);
}

// Runs also for a part with a segment that was no longer waited for.
void DiskCore::moved(const PutBatch& batch, uint64_t bytes) {
  const MemoryWait no_error_path;
  Work work;
  {
    MutexLock lock(mutex_);
    moving_bytes_ -= bytes;
    for (const Code code : batch.status) ++(code == Code::ok ? stats_.moved_down : stats_.moves_lost);
    advance(work);
  }
  perform(work);
}

}  // namespace kvbm::tier::disk

// Storing out of device memory: the device gathers and hashes leaves in batches.
#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "device/context/device.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/device/device_flight.h"
#include "manager/operation/store.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// Slots that a lost device may still write to. They are released when the transfers have certainly ended, which may
// be never; the arena lives as long.
struct Forsaken {
  explicit Forsaken(HostTier& host) : owner(host.lifetime().keep(host)), arena(host.shared_arena()) {}
  ~Forsaken() {
    const auto host = owner.lock();
    if (host == nullptr) return;
    host->release(slots);
    // A transfer thread may run this, and destroying the manager would end that thread: the executor drops the last
    // reference.
    const MemoryWait nobody_to_tell;
    host->env().executor->post([host] {});
  }
  Forsaken(const Forsaken&) = delete;
  Forsaken& operator=(const Forsaken&) = delete;
  const std::weak_ptr<HostTier> owner;
  const std::shared_ptr<tier::HostArena> arena;
  std::vector<SlotId> slots;
};

}  // namespace

// The records of the open chunk that are in flight. Invariant: a record's head is written only when all its leaves
// are back.
struct StoreOperation::Flight {
  struct Record {
    std::vector<codec::Leaf> leaves;
    uint32_t back = 0;
    Code code = Code::ok;
  };
  Flight(HostTier& host, device::Transfers& transfers, std::shared_ptr<device::StreamPoint> after)
      : forsaken(std::make_shared<Forsaken>(host)),
        batches(transfers, DeviceFlight::Way::gather, std::move(after), forsaken) {}
  const std::shared_ptr<Forsaken> forsaken;
  DeviceFlight batches;
  bool lost = false;  // a batch ended because the device was lost
  std::vector<Record> records;  // parallel to fresh_
};

void StoreOperation::begin_flight() {
  flight_ = std::make_shared<Flight>(host_, request_.cache->device()->transfers(), std::move(request_.after));
}

bool StoreOperation::is_lost() const noexcept { return request_.cache->device()->device().is_lost(); }

bool StoreOperation::quiet() noexcept {
  if (flight_ == nullptr) return true;
  while (const auto trip = flight_->batches.take()) flight_->lost |= trip->code == Code::tier_disabled;
  return flight_->batches.away() == 0;
}

size_t StoreOperation::chunk_keys() const noexcept {
  if (flight_ == nullptr) return kChunk;
  const uint64_t bytes = request_.cache->parts()[part_].payload_bytes();
  return std::clamp<size_t>(kDeviceChunkBytes / std::max<uint64_t>(bytes, 1), kChunk, kDeviceChunk);
}

// Keeps batches in flight until every fresh record of the chunk is back.
Operation::Next StoreOperation::move_some() {
  take_back();
  DeviceFlight& batches = flight_->batches;
  if (!batches.can_send()) return Next::wait;
  const bool more = add_leaves();
  if (!batches.empty()) {
    auto self = std::static_pointer_cast<StoreOperation>(shared_from_this());
    batches.send([self] { self->came_back(); });
    if (more) return Next::more;
  }
  if (batches.away() != 0) return Next::wait;
  drop_failed();
  return Next::finished;
}

// Fills one batch. False: every leaf of the chunk has been sent.
bool StoreOperation::add_leaves() {
  const CachePart& part = request_.cache->parts()[part_];
  flight_->records.resize(fresh_.size());
  for (; at_ < fresh_.size(); ++at_, leaf_ = 0) {
    const Fresh& fresh = fresh_[at_];
    Flight::Record& record = flight_->records[at_];
    const auto ids = ids_of(part_, fresh.key);
    if (leaf_ == 0) {
      host_.arena().clear_head(fresh.slot);
      record.leaves.assign(part.leaves().begin(), part.leaves().end());
    }
    const device::LeafTable& table = *part.table();
    std::byte* payload = host_.arena().payload(fresh.slot).data();
    while (leaf_ < part.leaf_count()) {
      if (flight_->batches.full()) return true;
      const uint32_t end = table.group_end(leaf_);
      flight_->batches.add_many(at_, table, leaf_, end, ids[table.unit(leaf_)], payload + table.offset(leaf_), false);
      leaf_ = end;
    }
  }
  return false;
}

// Takes batches that have ended: stores their hashes, and writes the heads of records that are complete.
void StoreOperation::take_back() {
  while (const auto trip = flight_->batches.take()) {
    flight_->lost |= trip->code == Code::tier_disabled;
    size_t at = 0;
    for (const DeviceFlight::Run& run : trip->runs) {
      Flight::Record& record = flight_->records[run.record];
      if (trip->code != Code::ok) {
        record.code = trip->code;
        continue;
      }
      for (uint32_t i = 0; i < run.count; ++i, ++at) {
        record.leaves[run.first_leaf + i].hash = trip->hashes[at];
        if (trip->good[at] == 0) record.code = Code::damaged;
      }
      record.back += run.count;
      if (record.code != Code::ok || record.back != record.leaves.size()) continue;
      record.code = finish_record(fresh_[run.record], record.leaves);
      if (record.code == Code::ok) bytes_ += request_.cache->parts()[part_].payload_bytes();
      record.leaves = {};
    }
  }
}

// Runs when a batch has ended. Thread: any. Posts a reference to the executor, because a transfer thread must not
// drop the last one.
void StoreOperation::came_back() {
  wake();
  const MemoryWait nobody_to_tell;
  host_.env().executor->post([self = shared_from_this()] {});
}

// Ends references to slots that were not published.
void StoreOperation::let_go(std::span<const SlotId> slots) {
  if (flight_ == nullptr || !flight_->lost) return host_.release(slots);
  const MemoryWait nobody_to_tell;
  flight_->forsaken->slots.insert(flight_->forsaken->slots.end(), slots.begin(), slots.end());
}

// Drops records that did not come back: their slots have undefined content.
void StoreOperation::drop_failed() {
  std::vector<SlotId> failed;
  failed.reserve(fresh_.size());  // no allocation can fail half way
  size_t kept = 0;
  for (size_t i = 0; i < fresh_.size(); ++i) {
    const Code code = flight_->records[i].code;
    if (code == Code::ok) {
      fresh_[kept++] = fresh_[i];
      continue;
    }
    fail(fresh_[i].key, code);
    failed.push_back(fresh_[i].slot);
  }
  fresh_.resize(kept, {});
  flight_->records.clear();
  let_go(failed);
}

}  // namespace kvbm::manager

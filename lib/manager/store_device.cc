// Storing out of device memory: leaves are gathered and hashed by the device, and come back in batches.
#include <algorithm>
#include <utility>

#include "manager/device_flight.h"
#include "manager/manager.h"
#include "manager/store.h"

namespace kvbm::manager {

// What of the open chunk is on its way. Invariant: a record's head is written only when every leaf of it is back.
struct StoreOperation::Flight {
  struct Record {
    std::vector<codec::Leaf> leaves;
    uint32_t back = 0;
    Code code = Code::ok;
  };
  explicit Flight(device::Transfers& transfers, device::CuEvent after)
      : batches(transfers, DeviceFlight::Way::gather, after) {}
  DeviceFlight batches;
  std::vector<Record> records;  // beside fresh_
};

StoreOperation::~StoreOperation() = default;

void StoreOperation::begin_flight() {
  flight_ = std::make_unique<Flight>(request_.cache->device()->transfers(),
                                     request_.after != nullptr ? request_.after->event() : nullptr);
}

bool StoreOperation::is_lost() const noexcept { return request_.cache->device()->device().is_lost(); }

bool StoreOperation::quiet() noexcept {
  if (flight_ == nullptr) return true;
  while (flight_->batches.take() != nullptr) {
  }
  return flight_->batches.away() == 0;
}

size_t StoreOperation::chunk_keys() const noexcept {
  if (flight_ == nullptr) return kChunk;
  const uint64_t bytes = request_.cache->parts()[part_].payload_bytes();
  return std::clamp<size_t>(kDeviceChunkBytes / std::max<uint64_t>(bytes, 1), kChunk, kDeviceChunk);
}

// Keeps batches on their way until every fresh record of the chunk is back.
Operation::Next StoreOperation::move_some() {
  take_back();
  DeviceFlight& batches = flight_->batches;
  if (!batches.can_send()) return Next::wait;
  const bool more = add_leaves();
  if (!batches.empty()) {
    auto self = std::static_pointer_cast<StoreOperation>(shared_from_this());
    batches.send([self] { self->wake(); });
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
      manager_.arena().clear_head(fresh.slot);
      record.leaves.resize(part.leaf_count());
    }
    std::byte* payload = manager_.arena().payload(fresh.slot).data();
    for (; leaf_ < part.leaf_count(); ++leaf_) {
      if (flight_->batches.full()) return true;
      uint32_t unit = 0;
      uint32_t layer = 0;
      codec::Leaf& leaf = record.leaves[leaf_];
      leaf = part.leaf(leaf_, unit, layer);
      device::LeafMove move;
      move.device = part.run(leaf_, ids[unit]);
      move.record = payload + leaf.offset;
      move.check = false;
      flight_->batches.add(at_, leaf_, move);
    }
  }
  return false;
}

// Batches that are back: their hashes, and the heads of records that are whole with them.
void StoreOperation::take_back() {
  while (const auto trip = flight_->batches.take()) {
    size_t at = 0;
    for (const DeviceFlight::Run& run : trip->runs) {
      Flight::Record& record = flight_->records[run.record];
      if (trip->code != Code::ok) {
        record.code = trip->code;
        continue;
      }
      for (uint32_t i = 0; i < run.count; ++i) record.leaves[run.first_leaf + i].hash = trip->hashes[at++];
      record.back += run.count;
      if (record.code != Code::ok || record.back != record.leaves.size()) continue;
      record.code = finish_record(fresh_[run.record], record.leaves);
      if (record.code == Code::ok) bytes_ += request_.cache->parts()[part_].payload_bytes();
      record.leaves = {};
    }
  }
}

// What did not come back is not published: its slots hold anything.
void StoreOperation::drop_failed() {
  std::vector<SlotId> failed;
  failed.reserve(fresh_.size());  // nothing is refused half way
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
  manager_.release(failed);
}

}  // namespace kvbm::manager

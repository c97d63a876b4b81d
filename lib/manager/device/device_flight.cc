#include "manager/device/device_flight.h"

#include <utility>

namespace kvbm::manager {

void DeviceFlight::begin() {
  if (!batch_.leaves.empty()) return;
  batch_.leaves.reserve(last_entries_);
  runs_.reserve(last_runs_);
}

void DeviceFlight::add(size_t record, uint32_t leaf, const device::LeafMove& move) {
  begin();
  batch_.leaves.push_back(move);
  count(record, leaf, move.leaf_count, move.device.total());
}

void DeviceFlight::count(size_t record, uint32_t leaf, uint32_t n, uint64_t bytes) {
  bytes_ += bytes;
  leaves_ += n;
  if (!runs_.empty() && runs_.back().record == record && runs_.back().first_leaf + runs_.back().count == leaf) {
    runs_.back().count += n;
    runs_.back().bytes += bytes;
    return;
  }
  runs_.push_back({record, leaf, n, bytes});
}

void DeviceFlight::add_many(size_t record, const device::LeafTable& table, uint32_t first, uint32_t last,
                            uint32_t block, std::byte* at, bool check) {
  begin();
  device::LeafMove& move = batch_.leaves.emplace_back();
  move.table = &table;
  move.block = block;
  move.first_leaf = first;
  move.leaf_count = last - first;
  move.device = device::LeafMove::table_run(table, first, last - first, block);
  move.record = at;
  move.check = check;
  if (check) move.expected = batch_.expected.size() - move.leaf_count;
  count(record, first, move.leaf_count, move.device.bytes);
}

void DeviceFlight::poison(const StridedRun& run) {
  device::LeafMove move;
  move.device = run;
  move.poison = true;
  add(kNoRecord, 0, move);
}

void DeviceFlight::mark(uint64_t value) {
  if (!batch_.marks.empty() && batch_.marks.back().leaf_count == batch_.leaves.size()) {
    batch_.marks.back().value = value;
  } else {
    batch_.marks.push_back({batch_.leaves.size(), value});
  }
}

void DeviceFlight::send(UniqueFunction<void()> ended) {
  auto trip = std::make_unique<Trip>();
  auto keep = keep_;
  if (!owned_.empty()) {
    owned_.push_back(keep_);
    keep = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(owned_));
    owned_ = {};
  }
  device::TransferBatch batch;
  last_entries_ = batch_.leaves.size();
  last_runs_ = runs_.size();
  trip->runs = std::move(runs_);
  batch = std::move(batch_);
  runs_ = {};
  batch_ = {};
  bytes_ = 0;
  leaves_ = 0;
  batch.after = after_;
  batch.landmark = landmark_;
  batch.keep = std::move(keep);
  batch.done = [this, trip = std::move(trip), ended = std::move(ended)](device::TransferBatch& done,
                                                                        Code code) mutable {
    trip->code = code;
    trip->hashes = std::move(done.hashes);
    trip->good = std::move(done.good);
    for (std::atomic<Trip*>& place : back_) {
      Trip* none = nullptr;
      if (!place.compare_exchange_strong(none, trip.get(), std::memory_order_acq_rel)) continue;  // partner: take()
      (void)trip.release();
      break;
    }
    ended();
  };
  if (way_ == Way::gather) {
    transfers_.gather(std::move(batch));
  } else {
    transfers_.scatter(std::move(batch));
  }
  ++away_;  // the last: what was refused memory was not sent
}

std::unique_ptr<DeviceFlight::Trip> DeviceFlight::take() {
  for (std::atomic<Trip*>& place : back_) {
    Trip* const trip = place.exchange(nullptr, std::memory_order_acquire);
    if (trip == nullptr) continue;
    --away_;
    return std::unique_ptr<Trip>(trip);
  }
  return nullptr;
}

}  // namespace kvbm::manager

// Loading from a disk into a device past host memory: the tier reads heads, cuFile reads payloads into memory of the
// device, and kernels scatter and compare leaves from there. The block is not cached in the host tier.
//
// Used for loads that do not keep their records in the host (keep_below), and for all loads with device.storage = on.
// Not used for weighed loads: their batches must be abortable. Records that are coded, sealed or lossy, or that do
// not fit in the buffer, and all reads that fail are read through host memory instead.
#include "manager/operation/load.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"
#include "base/thread/memory_wait.h"
#include "codec/coded/coded_record.h"
#include "copy/cost.h"
#include "device/storage/storage_reads.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// A record that is read from a disk into device memory: its head is in host memory, its payload in device memory.
struct StorageLanding {
  explicit StorageLanding(uint64_t most_head_bytes)
      : head_room(round_up(most_head_bytes, kIoAlign)), head(aligned_bytes(kIoAlign, head_room)) {}
  [[nodiscard]] ConstBytes bytes() const noexcept { return {head.get(), head_bytes}; }

  const uint64_t head_room;
  const AlignedBytes head;
  uint32_t head_bytes = 0;
  device::StorageReads::Piece piece;
};

}  // namespace

// A batch of items from its request until it is read.
struct LoadOperation::StorageTrip {
  std::shared_ptr<LoadOperation> load;
  TierIndex tier = 0;
  std::vector<Item> items;
  std::vector<Code> codes;                                // parallel to items; again: read through host memory
  std::vector<std::shared_ptr<StorageLanding>> landings;  // parallel to items
  std::vector<tier::FilePlace> files;                     // held until everything is read
  copy::SourceCost::Ticket ticket;
  uint64_t bytes = 0;  // counted in landing_bytes_
};

// In memory of the device.
class LoadOperation::DeviceOrigin final : public Origin {
 public:
  Code open(LoadOperation& load, Entry& e) const override {
    e.record.payload = const_cast<std::byte*>(e.item.got.payload);  // nothing writes to a record that is loaded
    e.record.on_device = true;
    return load.accept_head(e, codec::HeadView::parse(e.item.got.head), false);
  }
  bool close(LoadOperation& load, Entry& e) const override {
    if (e.code == Code::damaged) load.reject(e.item);
    e.item.got.keep.reset();
    load.request_.cache->device()->storage()->checked(e.code != Code::damaged);
    return true;
  }
};

// Notes which records the device reads from files.
void LoadOperation::find_files() {
  if (!reads_files_) return;
  for (Item& item : below_) {
    if (item.got.from == kOtherSize) continue;
    const tier::Found& found = request_.match->parts()[item.part].found[item.key];
    // A record of another size is coded, or has another shape.
    item.from_file = found.payload_bytes == request_.cache->parts()[item.part].payload_bytes() &&
                     stack_.lower().tier(item.got.from).reads_from_files();
  }
}

// Requests the heads of the items that fit in the device's buffer; the others are read through the host. False: none
// fit.
bool LoadOperation::request_from_storage(std::vector<Item>& items) {
  const MemoryWait counted;
  auto trip = std::make_shared<StorageTrip>();
  auto batch = std::make_unique<tier::GetBatch>();
  uint64_t bytes = 0;
  std::vector<Item> others;
  for (Item& item : items) {
    const tier::Found& found = request_.match->parts()[item.part].found[item.key];
    auto landing = std::make_shared<StorageLanding>(found.head_bytes);
    landing->piece = request_.cache->device()->storage()->reserve(round_up(found.payload_bytes, kIoAlign));
    if (!landing->piece || landing->head == nullptr) {
      item.from_file = false;
      others.push_back(std::move(item));
      continue;
    }
    tier::GetItem ask;
    ask.id = identity(item);
    ask.location = found.location;
    ask.head = {landing->head.get(), landing->head_room};
    batch->items.push_back(std::move(ask));
    bytes += found.payload_bytes;
    trip->landings.push_back(std::move(landing));
    trip->tier = item.got.from;
    trip->items.push_back(std::move(item));
  }
  below_.insert(below_.begin(), others.begin(), others.end());
  if (trip->items.empty()) return false;
  trip->load = std::static_pointer_cast<LoadOperation>(shared_from_this());
  trip->bytes = bytes;
  {
    MutexLock lock(mutex_);
    landing_bytes_ += bytes;
  }
  trip->ticket = stack_.lower().cost(trip->tier).asked(host_.env().clock().now_ns(), bytes);
  batch->status.assign(batch->items.size(), Code::internal);
  batch->deadline_ns = deadline_ns();
  batch->accepts.verifies = true;
  batch->accepts.files = true;
  batch->done = [trip](tier::GetBatch& heads) { trip->load->read_payloads(trip, heads); };
  stack_.lower().tier(trip->tier).get(std::move(batch));
  return true;
}

// Runs when the heads are read. Thread: any.
void LoadOperation::read_payloads(const std::shared_ptr<StorageTrip>& trip, tier::GetBatch& batch) {
  const MemoryWait no_error_path;
  std::vector<device::StorageReads::Read> reads;
  std::vector<size_t> which;
  trip->codes = batch.status;
  for (size_t i = 0; i < trip->items.size(); ++i) {
    Item& item = trip->items[i];
    StorageLanding& landing = *trip->landings[i];
    tier::GetItem& answer = batch.items[i];
    trip->files.push_back(std::move(answer.file));
    if (trip->codes[i] != Code::ok) continue;
    item.got.location = answer.location;
    landing.head_bytes = answer.head_bytes;
    const auto head = codec::HeadView::parse(landing.bytes());
    const uint64_t expected = request_.cache->parts()[item.part].payload_bytes();
    const bool plain = head.ok() && !codec::is_coded(head.value()) &&
                       (head.value().header().flags & codec::kLossy) == 0 &&
                       head.value().header().stored_bytes == expected && answer.payload_bytes == expected;
    trip->codes[i] = Code::again;
    if (!plain || trip->files[i].fd < 0) continue;
    reads.push_back({trip->files[i].fd, trip->files[i].offset, round_up(expected, kIoAlign), &landing.piece, false});
    which.push_back(i);
  }
  // Continues on the executor: dropping the last reference to the load may end the manager, which a storage thread
  // must not.
  Executor& executor = *host_.env().executor;
  request_.cache->device()->storage()->read(
      std::move(reads),
      [trip, which = std::move(which), &executor](std::vector<device::StorageReads::Read> done) mutable {
        for (size_t k = 0; k < which.size(); ++k) {
          if (done[k].good) trip->codes[which[k]] = Code::ok;
        }
        executor.post([trip = std::move(trip)] {
          trip->files.clear();
          trip->load->landed_on_device(*trip);
        });
      });
}

void LoadOperation::landed_on_device(StorageTrip& trip) {
  const MemoryWait until_landed;
  using Answer = copy::SourceCost::Answer;
  uint64_t bytes = 0;
  uint64_t records = 0;
  bool late = false;
  static const DeviceOrigin on_device{};
  for (size_t i = 0; i < trip.items.size(); ++i) {
    Delivery& one = trip.items[i].got;
    trip.items[i].origin = &on_device;
    one.code = trip.codes[i];
    late = late || one.code == Code::deadline;
    if (one.code != Code::ok) continue;
    bytes += request_.cache->parts()[trip.items[i].part].payload_bytes();
    ++records;
    one.payload = trip.landings[i]->piece.data();
    one.head = trip.landings[i]->bytes();
    one.keep = std::move(trip.landings[i]);
  }
  trip.landings.clear();
  stack_.lower().cost(trip.tier).answered(host_.env().clock().now_ns(), trip.ticket,
                                          late         ? Answer::late
                                          : bytes != 0 ? Answer::arrived
                                                       : Answer::nothing,
                                          bytes);
  add(host_.counters().tiers[trip.tier].loads, records);
  add(host_.counters().tiers[trip.tier].load_bytes, bytes);
  receive(std::move(trip.items), trip.bytes, 0);
}

}  // namespace kvbm::manager

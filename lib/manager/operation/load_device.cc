// Loading into device memory: the device scatters and compares leaves in batches.
//
// If a stream waits for layers, blocks in the host are sent layer by layer over all keys: a group of entries is
// passed over once a layer. Blocks that are read up later form a group of their own, after the first. A layer's mark
// follows its last leaf, once no pending read could bring more of that layer. Before the mark, missing leaves are
// overwritten (load_walk.cc).
#include "manager/operation/load.h"

#include <deque>
#include <utility>

#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/operation/device_mover.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

struct LoadOperation::Flight final : Entries {
  Flight(HostTier& host, device::Transfers& transfers, std::shared_ptr<device::StreamPoint> after,
         std::shared_ptr<device::Landmark> landmark)
      : mover(transfers, DeviceFlight::Way::scatter, std::move(after), host.shared_arena(), std::move(landmark)) {}
  Entry& add() {
    Entry& e = entries.emplace_back();
    e.number = entries.size() - 1;
    return e;
  }
  Entry* next(LoadOperation& load, bool past) override;
  void end(LoadOperation& load, std::vector<SlotId>& left) override;
  DeviceMover mover;
  std::deque<Entry> entries;  // in the order in which they are sent
  size_t group = 0;           // the first entry of the group that is passed over
  size_t at = 0;              // the next entry in this pass
  uint32_t layer = 0;         // of this pass
};

void LoadOperation::begin_flight() {
  flight_ = std::make_shared<Flight>(host_, request_.cache->device()->transfers(), request_.after,
                                     request_.layers != nullptr ? request_.layers->landmark : nullptr);
  mover_ = &flight_->mover;
  entries_ = flight_.get();
  reads_in_place_ = false;  // a device reads from memory of this process
  AttachedDevice& device = *request_.cache->device();
  reads_files_ = device.reads_files(!request_.keep_below);
  if (host_.options().device.decode) {
    accepts_.decodes = [&transfers = device.transfers()](codec::LeafCodec codec, ConstBytes coded) {
      return transfers.decodes(codec, coded);
    };
  }
  if (request_.layers != nullptr) flight_->layer = request_.layers->first_layer;
}

// In the first pass over a group all items read so far join it.
LoadOperation::Entry* LoadOperation::Flight::next(LoadOperation& load, bool past) {
  const LayerMarks* layers = load.request_.layers.get();
  if (past) ++at;
  for (;;) {
    if (layers == nullptr || layer == layers->first_layer) {
      while (layers != nullptr || at == entries.size()) {
        Entry& e = add();  // before the item: if memory was refused, its slot would be lost
        if (load.next_item(e.item)) continue;
        entries.pop_back();
        break;
      }
      for (const Failed& never : load.never_came_) {
        Entry& e = add();
        e.item.part = never.part;
        e.item.key = never.key;
        e.code = never.code;
        e.opened = e.closed = true;
      }
      load.never_came_.clear();
    }
    load.last_layer_ = layers == nullptr || layer + 1 == layers->end_layer ? UINT32_MAX : layer;
    if (at < entries.size()) return &entries[at];
    if (layers == nullptr || group == entries.size()) return nullptr;
    if (load.all_are_here()) mover.mark(layers->value(layer));
    if (++layer == layers->end_layer) {
      layer = layers->first_layer;
      group = entries.size();
    }
    at = group;
  }
}

// Returns true if every item that can still be read has joined.
bool LoadOperation::all_are_here() {
  if (!below_.empty() || !never_came_.empty()) return false;
  MutexLock lock(mutex_);
  return landing_ == 0 && ready_.empty() && failed_.empty() && to_host_.empty();
}

// Reads the outcome of leaves that are back, and settles their items.
void LoadOperation::take_back() {
  if (mover_->away() == 0) return;
  LeafMover::Moved moved;
  while (mover_->take(moved)) {
    Entry& e = flight_->entries[moved.record];
    e.away -= moved.leaves;
    if (moved.code != Code::ok) {
      fail(e, moved.code);
      continue;
    }
    bytes_ += moved.bytes;
    close_if_back(e);
  }
}

// Raises the landmark to its end, so that streams waiting for layers continue, whatever the outcome.
void LoadOperation::Flight::end(LoadOperation& load, std::vector<SlotId>& left) {
  for (const Entry& e : entries) {
    if (!e.closed) e.item.origin->leave(load, e.item, left);
  }
  entries.clear();
  if (load.request_.layers == nullptr) return;
  LayerMarks& layers = *load.request_.layers;
  load.request_.cache->device()->transfers().raise(*layers.landmark, layers.last());
  layers.ended.store(true, std::memory_order_release);
}

}  // namespace kvbm::manager

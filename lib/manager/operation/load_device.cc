// Loading into device memory: the device scatters and compares leaves in batches.
//
// If a stream waits for layers, blocks in the host are sent layer by layer over all keys: a group of entries is
// passed over once a layer. Blocks that are read up later form a group of their own, after the first. A layer's mark
// follows its last leaf, once no pending read could bring more of that layer. Before the mark, missing leaves are
// overwritten (load_walk.cc).
#include <deque>
#include <utility>

#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/operation/device_mover.h"
#include "manager/operation/load_origin.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

struct LoadOperation::Flight {
  Flight(HostTier& host, device::Transfers& transfers, std::shared_ptr<device::StreamPoint> after,
         std::shared_ptr<device::Landmark> landmark)
      : mover(transfers, DeviceFlight::Way::scatter, std::move(after), host.shared_arena(), std::move(landmark)) {}
  Entry& add(Item item) {
    Entry& e = entries.emplace_back();
    e.item = std::move(item);
    e.number = entries.size() - 1;
    return e;
  }
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
  can_.in_place = false;  // a device reads from memory of this process
  AttachedDevice& device = *request_.cache->device();
  can_.files = device.storage() != nullptr && (request_.keep_below || device.storage_for_all());
  if (host_.options().device.decode) {
    can_.through_host.decodes = [&transfers = device.transfers()](codec::LeafCodec codec, ConstBytes coded) {
      return transfers.decodes(codec, coded);
    };
  }
  if (request_.layers != nullptr) flight_->layer = request_.layers->first_layer;
}

// Finds the next entry to send. In the first pass over a group all items read so far join it.
LoadOperation::Entry* LoadOperation::next_in_flight(bool past) {
  Flight& f = *flight_;
  const LayerMarks* layers = request_.layers.get();
  if (past) ++f.at;
  for (;;) {
    if (layers == nullptr || f.layer == layers->first_layer) {
      Item item;
      while ((layers != nullptr || f.at == f.entries.size()) && next_item(item)) f.add(std::move(item));
      for (const Failed& never : never_came_) {
        Entry& e = f.add({never.part, never.key});
        e.code = never.code;
        e.opened = e.closed = true;
      }
      never_came_.clear();
    }
    last_layer_ = layers == nullptr || f.layer + 1 == layers->end_layer ? UINT32_MAX : f.layer;
    if (f.at < f.entries.size()) return &f.entries[f.at];
    if (layers == nullptr || f.group == f.entries.size()) return nullptr;
    if (all_are_here()) f.mover.mark(layers->value(f.layer));
    if (++f.layer == layers->end_layer) {
      f.layer = layers->first_layer;
      f.group = f.entries.size();
    }
    f.at = f.group;
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

// Runs when nothing is in flight. Raises the landmark to its end, so that streams waiting for layers continue,
// whatever the outcome.
void LoadOperation::end_flight(std::vector<SlotId>& left) {
  for (const Entry& e : flight_->entries) {
    if (!e.closed) e.item.origin->leave(*this, e.item, left);
  }
  flight_->entries.clear();
  if (request_.layers == nullptr) return;
  LayerMarks& layers = *request_.layers;
  request_.cache->device()->transfers().raise(*layers.landmark, layers.last());
  layers.ended.store(true, std::memory_order_release);
}

}  // namespace kvbm::manager

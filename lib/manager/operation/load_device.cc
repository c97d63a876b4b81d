// Loading into device memory: the device scatters and compares leaves in batches.
//
// If a stream waits for layers, blocks in the host are sent layer by layer over all keys: a group of entries is
// passed over once a layer. Blocks that are read up later form a group of their own, after the first. A layer's mark
// follows its last leaf, once no pending read could bring more of that layer. Before the mark, missing leaves are
// overwritten: an item that fails or is never read has its unsent leaves poisoned in the passes that would have sent
// them. (A load that ends early, by a deadline or a cancel, leaves pages it has not touched.)
#include <deque>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "device/context/device.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/device/device_flight.h"
#include "manager/operation/load.h"
#include "manager/operation/load_storage.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

struct LoadOperation::Flight {
  // One item from the time it is next until it is settled.
  struct Entry {
    Item item;
    std::optional<codec::HeadView> head = {};
    bool cut_otherwise = false;
    uint32_t checked = 0;  // leaves of the head that are checked in place
    uint32_t next_leaf = 0;
    uint32_t away = 0;  // leaves in flight
    Code code = Code::ok;
    bool opened = false;
    bool sent = false;  // all its leaves are sent
    bool closed = false;  // settled too; only if a stream waits for layers may leaves still be overwritten
  };
  Flight(HostTier& host, device::Transfers& transfers, std::shared_ptr<device::StreamPoint> after,
         std::shared_ptr<device::Landmark> landmark)
      : batches(transfers, DeviceFlight::Way::scatter, std::move(after), host.shared_arena(),
                std::move(landmark)) {}
  DeviceFlight batches;
  std::deque<Entry> entries;  // in the order in which they are sent
  size_t group = 0;           // the first entry of the group that is passed over
  size_t at = 0;              // the next entry in this pass
  uint32_t layer = 0;         // of this pass
  uint64_t began_ns = 0;      // when the first batch was sent after none were in flight
};

void LoadOperation::begin_flight() {
  flight_ = std::make_shared<Flight>(host_, request_.cache->device()->transfers(), request_.after,
                                     request_.layers != nullptr ? request_.layers->landmark : nullptr);
  if (request_.layers != nullptr) flight_->layer = request_.layers->first_layer;
}

bool LoadOperation::quiet() noexcept {
  if (flight_ == nullptr) return true;
  while (flight_->batches.take() != nullptr) {
  }
  return flight_->batches.away() == 0;
}

// Keeps batches in flight while there is something to send.
Operation::Next LoadOperation::move_some() {
  if (!planned_) begin();
  take_back();
  if (weighs() && out_of_time(false)) return Next::finished;
  request_more();
  DeviceFlight& batches = flight_->batches;
  if (batches.can_send()) {
    const bool more = add_leaves();
    if (!batches.empty()) {
      if (batches.away() == 0) flight_->began_ns = host_.env().clock().now_ns();
      auto self = std::static_pointer_cast<LoadOperation>(shared_from_this());
      batches.send([self] { self->came_back(); });
    }
    if (more) return Next::more;
  }
  if (batches.away() == 0) return what_next();
  if (weighs()) wait_at_most();
  return Next::wait;
}

// Fills one batch. False: there is nothing more to send now.
bool LoadOperation::add_leaves() {
  uint64_t hashed = 0;
  while (next_entry()) {
    const uint32_t last = request_.layers == nullptr || flight_->layer + 1 == request_.layers->end_layer
                              ? UINT32_MAX
                              : flight_->layer;
    if (!add_leaves_of(flight_->at, last, hashed)) return true;
    ++flight_->at;
  }
  return false;
}

// Finds the next entry to send. In the first pass over a group all items read so far join it.
bool LoadOperation::next_entry() {
  Flight& f = *flight_;
  const LayerMarks* layers = request_.layers.get();
  for (;;) {
    if (layers == nullptr || f.layer == layers->first_layer) {
      Item item;
      while ((layers != nullptr || f.at == f.entries.size()) && next_item(item)) {
        f.entries.push_back({std::move(item)});
      }
      for (const Failed& never : never_came_) {
        f.entries.push_back({{never.part, never.key, kNoSlot, 0}});
        Flight::Entry& e = f.entries.back();
        e.code = never.code;
        e.opened = e.closed = true;
      }
      never_came_.clear();
    }
    if (f.at < f.entries.size()) return true;
    if (layers == nullptr || f.group == f.entries.size()) return false;
    if (all_are_here()) f.batches.mark(layers->value(f.layer));
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

// Adds leaves of one entry up to a layer. False: the batch is full, or this step has hashed enough.
bool LoadOperation::add_leaves_of(size_t entry, uint32_t last_layer, uint64_t& hashed) {
  Flight::Entry& e = flight_->entries[entry];
  if (!e.opened) open_entry(entry);
  if (e.sent) return true;
  if (e.code != Code::ok) return poison_leaves_of(entry, last_layer);
  const CachePart& part = request_.cache->parts()[e.item.part];
  const auto ids = ids_of(e.item.part, e.item.key);
  std::byte* payload = e.item.slot == kNoSlot ? nullptr : host_.arena().payload(e.item.slot).data();
  // Borrowed memory is only read, as every record that is sent to a device.
  if (e.item.lender != nullptr) payload = const_cast<std::byte*>(e.item.lent.data());
  if (e.item.landing != nullptr) payload = e.item.landing->piece.data();  // device memory
  const uint32_t end = request_.n_layers == 0 ? UINT32_MAX : request_.first_layer + request_.n_layers;
  Code whole = Code::ok;
  if (e.cut_otherwise && !check_whole(*e.head, payload, e.checked, hashed, whole)) return false;
  if (whole != Code::ok) {
    fail_entry(entry, whole);
    return poison_leaves_of(entry, last_layer);
  }
  const bool compared = e.head.has_value() && !e.cut_otherwise;
  for (; e.next_leaf < part.leaf_count(); ++e.next_leaf) {
    if (part.table()->layer(e.next_leaf) > last_layer) return true;
    if (const uint32_t n = add_many_of(entry, last_layer, payload, ids, compared); n != 0) {
      e.next_leaf += n - 1;
      continue;
    }
    uint32_t unit = 0;
    uint32_t layer = 0;
    const codec::Leaf leaf = part.leaf(e.next_leaf, unit, layer);
    // Checked before full(): if a layer exactly fills a batch, that batch must carry the layer's mark.
    if (layer > last_layer) return true;
    if (flight_->batches.full() || hashed >= kStepBytes) return false;
    const bool wanted = unit < ids.size() && ids[unit] != kNoBlock && layer >= request_.first_layer && layer < end;
    // A block that stays in the host must be right as a whole.
    if (!wanted && (!e.item.owns_slot() || request_.keep_below || !compared)) continue;
    codec::Leaf expected = leaf;
    if (compared) expected = e.head->leaf(e.next_leaf);
    bool right = expected.offset == leaf.offset && expected.raw_bytes == leaf.raw_bytes;
    if (right && !wanted && e.item.coded != nullptr) continue;  // the host checks all of it when it decodes it
    if (right && !wanted) {
      hashed += leaf.raw_bytes;
      right = codec::leaf_hash(ConstBytes(payload + leaf.offset, leaf.raw_bytes)) == expected.hash;
    }
    if (!right) {
      fail_entry(entry, Code::damaged);
      return poison_leaves_of(entry, last_layer);
    }
    if (!wanted) continue;
    device::LeafMove move;
    move.device = part.run(e.next_leaf, ids[unit]);
    move.record = payload + leaf.offset;
    move.expected = expected.hash;
    move.check = compared;  // else it was checked whole, or is a managed block without a head (host.managed_hashes)
    move.on_device = e.item.landing != nullptr;
    if (e.item.coded != nullptr) {
      std::shared_ptr<void> own;
      const Code named = name_coded(*e.item.coded, e.next_leaf, payload, move, own);
      if (named != Code::ok) {
        fail_entry(entry, named);
        return poison_leaves_of(entry, last_layer);
      }
      if (own != nullptr) hashed += leaf.raw_bytes;
      if (own != nullptr) flight_->batches.own(std::move(own));
    }
    flight_->batches.add(entry, e.next_leaf, move);
    ++e.away;
  }
  e.sent = true;
  e.head.reset();
  close_if_back(entry);
  return true;
}

// Adds the next leaves of an entry as one run, as far as they are wanted, plain and as the head describes. Returns
// their number; 0: the next leaf must be added on its own.
uint32_t LoadOperation::add_many_of(size_t entry, uint32_t last_layer, std::byte* payload, std::span<const uint32_t> ids,
                                    bool compared) {
  Flight::Entry& e = flight_->entries[entry];
  DeviceFlight& batches = flight_->batches;
  if (e.item.coded != nullptr || e.item.landing != nullptr || batches.full()) return 0;
  const device::LeafTable& table = *request_.cache->parts()[e.item.part].table();
  const uint32_t first = e.next_leaf;
  const uint32_t unit = table.unit(first);
  const uint32_t end_layer = request_.n_layers == 0 ? UINT32_MAX : request_.first_layer + request_.n_layers;
  if (unit >= ids.size() || ids[unit] == kNoBlock || table.layer(first) < request_.first_layer) return 0;
  uint32_t last = first;
  for (; last < table.group_end(first); ++last) {
    if (table.layer(last) > last_layer || table.layer(last) >= end_layer) break;
    if (!compared) continue;
    const codec::Leaf expected = e.head->leaf(last);
    if (expected.offset != table.offset(last) || expected.raw_bytes != table.bytes(last)) break;
    batches.expect(expected.hash);
  }
  if (last == first) return 0;
  batches.add_many(entry, table, first, last, ids[unit], payload + table.offset(first), compared);
  e.away += last - first;
  return last - first;
}

// Overwrites the wanted leaves of a failed entry that were not sent, up to a layer. False: the batch is full.
bool LoadOperation::poison_leaves_of(size_t entry, uint32_t last_layer) {
  Flight::Entry& e = flight_->entries[entry];
  if (e.sent) return true;
  const CachePart& part = request_.cache->parts()[e.item.part];
  const auto ids = ids_of(e.item.part, e.item.key);
  const uint32_t end = request_.n_layers == 0 ? UINT32_MAX : request_.first_layer + request_.n_layers;
  for (; e.next_leaf < part.leaf_count(); ++e.next_leaf) {
    uint32_t unit = 0;
    uint32_t layer = 0;
    (void)part.leaf(e.next_leaf, unit, layer);
    if (layer > last_layer) return true;
    if (flight_->batches.full()) return false;
    const bool wanted = unit < ids.size() && ids[unit] != kNoBlock && layer >= request_.first_layer && layer < end;
    if (wanted) flight_->batches.poison(part.run(e.next_leaf, ids[unit]));
  }
  e.sent = true;
  return true;
}

void LoadOperation::open_entry(size_t entry) {
  Flight::Entry& e = flight_->entries[entry];
  e.opened = true;
  if (request_.cache->device()->device().is_lost()) return fail_entry(entry, Code::tier_disabled);
  current_ = e.item;
  const Code code = open_item();
  if (code != Code::ok) return fail_entry(entry, code);
  e.head = head_;
  e.cut_otherwise = cut_otherwise_;
}

void LoadOperation::fail_entry(size_t entry, Code code) {
  Flight::Entry& e = flight_->entries[entry];
  if (e.code == Code::ok) e.code = code;
  // Pages of a lost device are not overwritten: nothing reads them any more.
  if (request_.layers == nullptr || request_.cache->device()->device().is_lost()) e.sent = true;
  close_if_back(entry);
}

// Closes the entry if none of its leaves are in flight and no more will be sent.
void LoadOperation::close_if_back(size_t entry) {
  const Flight::Entry& e = flight_->entries[entry];
  if (!e.closed && e.away == 0 && (e.sent || e.code != Code::ok)) close_entry(entry);
}

void LoadOperation::close_entry(size_t entry) {
  Flight::Entry& e = flight_->entries[entry];
  e.closed = true;
  e.head.reset();
  current_ = std::move(e.item);
  close_item(e.code);
}

// Runs when a batch has ended. Thread: any. Posts a reference to the executor, because a transfer thread must not
// drop the last one.
void LoadOperation::came_back() {
  wake();
  const MemoryWait nobody_to_tell;
  host_.env().executor->post([self = shared_from_this()] {});
}

// Takes batches that have ended, reads the result of each leaf, and settles their items.
void LoadOperation::take_back() {
  DeviceFlight& batches = flight_->batches;
  if (batches.away() == 0) return;
  while (const auto trip = batches.take()) {
    size_t at = 0;
    for (const DeviceFlight::Run& run : trip->runs) {
      if (run.record == DeviceFlight::kNoRecord) {
        at += run.count;
        continue;
      }
      Flight::Entry& e = flight_->entries[run.record];
      bool good = trip->code == Code::ok;
      for (uint32_t i = 0; i < run.count; ++i, ++at) good = good && trip->good[at] != 0;
      e.away -= run.count;
      if (good) {
        bytes_ += run.bytes;
        close_if_back(run.record);
      } else {
        fail_entry(run.record, trip->code == Code::ok ? Code::damaged : trip->code);
      }
    }
  }
  if (batches.away() == 0) copy_ns_ += host_.env().clock().now_ns() - flight_->began_ns;
}

// Runs when nothing is in flight. Raises the landmark to its end, so that streams waiting for layers continue,
// whatever the outcome.
void LoadOperation::end_flight(std::vector<SlotId>& left) {
  for (const Flight::Entry& e : flight_->entries) {
    if (!e.closed && e.item.owns_slot()) left.push_back(e.item.slot);
  }
  flight_->entries.clear();
  if (request_.layers == nullptr) return;
  LayerMarks& layers = *request_.layers;
  request_.cache->device()->transfers().raise(*layers.landmark, layers.last());
  layers.ended.store(true, std::memory_order_release);
}

}  // namespace kvbm::manager

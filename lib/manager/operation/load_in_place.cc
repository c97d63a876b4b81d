// Loading of blocks in mapped memory that another process owns; takes no slot of this host.
#include "manager/operation/load.h"

#include <algorithm>
#include <utility>

#include "copy/local/fetch.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

// A record in memory that another process owns and may write at any moment.
class LoadOperation::InPlaceOrigin final : public Origin {
 public:
  Code open(LoadOperation& load, Entry& e) const override {
    const tier::InPlace& place = load.places_[load.next_in_place_ - 1];
    const Head& taken = load.heads_[(load.next_in_place_ - 1) % load.heads_.size()];
    Code code = taken.code;
    if (code == Code::ok) {
      e.head = taken.view;
    } else if (code == Code::no_room) {
      load.large_head_room_.resize(place.head.size());
      code = load.take_head(place, load.large_head_room_, e.head);
    }
    if (code == Code::ok) code = load.check_head(*e.head, e.item);
    if (code != Code::ok) return code;
    // The owner may write the record between hashing and copying, so it is read by a message instead.
    if (!load.is_cut_alike(*e.head, e.item)) return Code::miss;
    e.record.payload = const_cast<std::byte*>(place.payload.data());  // nothing writes to a record that is loaded
    e.record.head = &*e.head;
    return Code::ok;
  }
  // False: the record was gone when it was read; it is then requested by a message.
  bool close(LoadOperation& load, Entry& e) const override {
    tier::InPlace& place = load.places_[load.next_in_place_ - 1];
    load.ended_in_place_ = load.next_in_place_;
    place.code = e.code;
    place.bytes = e.code == Code::ok ? load.request_.cache->parts()[e.item.part].payload_bytes() : 0;
    if (e.code == Code::ok || e.code == Code::mismatch) return true;
    load.bytes_ -= e.moved;
    load.below_.push_back(std::move(e.item));
    return false;
  }
};

// Asks for all places in one call: the tables that hold them would leave the caches while blocks are copied.
void LoadOperation::find_in_place() {
  places_.resize(in_place_.size());
  for (size_t i = 0; i < in_place_.size(); ++i) {
    const Item& item = in_place_[i];
    places_[i].id = identity(item);
    places_[i].location = request_.match->parts()[item.part].found[item.key].location;
  }
  for (size_t first = 0, last = 0; first < in_place_.size(); first = last) {
    const TierIndex tier = in_place_[first].got.from;
    while (last < in_place_.size() && in_place_[last].got.from == tier) ++last;
    stack_.lower().tier(tier).in_place(std::span(places_).subspan(first, last - first));
  }
  static const InPlaceOrigin here{};
  size_t kept = 0;
  for (size_t i = 0; i < in_place_.size(); ++i) {
    if (places_[i].memory == nullptr) {
      below_.push_back(in_place_[i]);
      continue;
    }
    if (kept != i) places_[kept] = std::move(places_[i]);
    in_place_[kept] = in_place_[i];
    in_place_[kept].origin = &here;
    ++kept;
  }
  in_place_.resize(kept);
  heads_.resize(std::min(kept, kHeads));
}

bool LoadOperation::next_in_place(Item& item) {
  if (next_in_place_ == in_place_.size()) return false;
  if (next_in_place_ == next_head_) take_heads();
  item = in_place_[next_in_place_++];
  return true;
}

// Returns the head size that the lookup reported; another size shows when the head is read.
size_t LoadOperation::head_bytes(size_t index) const noexcept {
  const Item& item = in_place_[index];
  const uint32_t found = request_.match->parts()[item.part].found[item.key].head_bytes;
  return found < codec::kHeaderBytes || found > kHeadRoom ? kHeadRoom : found;
}

void LoadOperation::ask_for_heads(size_t first, size_t n) const {
  for (size_t i = first; i < std::min(first + n, in_place_.size()); ++i) {
    const ConstBytes head = places_[i].head.first(std::min(head_bytes(i), places_[i].head.size()));
    for (size_t at = 0; at < head.size(); at += 64) __builtin_prefetch(head.data() + at, 0, 2);
  }
}

void LoadOperation::take_heads() {
  const size_t first = next_head_;
  if (first == 0) ask_for_heads(0, heads_.size());
  uint64_t bytes = 0;
  while (next_head_ - first < heads_.size() && next_head_ < in_place_.size() && bytes < kStepBytes) {
    const tier::InPlace& place = places_[next_head_];
    Head& head = heads_[next_head_ % heads_.size()];
    head.code = take_head(place, MutableBytes(head.room).first(head_bytes(next_head_)), head.view);
    bytes += place.payload.size();
    ++next_head_;
  }
  // Prefetches the next heads while these items are copied: no cache has them until then.
  ask_for_heads(next_head_, next_head_ - first);
}

// Copies the head into memory of this operation and checks it there, because the owner may write the original at any
// time.
Code LoadOperation::take_head(const tier::InPlace& place, MutableBytes room,
                              std::optional<codec::HeadView>& out) const {
  const Family& family = host_.families().get(place.id.family);
  return copy::local::read_head({place.head, place.payload}, family, place.id.key, room, out);
}

// Reports the outcome of the records read since the last call to their tiers. Batched: a fence between two copies
// would wait for the stores of the first.
void LoadOperation::tell_in_place() {
  const size_t end = ended_in_place_;
  while (told_in_place_ != end) {
    const size_t first = told_in_place_;
    const TierIndex tier = in_place_[first].got.from;
    uint64_t records = 0;
    uint64_t bytes = 0;
    for (; told_in_place_ != end && in_place_[told_in_place_].got.from == tier; ++told_in_place_) {
      records += places_[told_in_place_].code == Code::ok ? 1 : 0;
      bytes += places_[told_in_place_].bytes;
    }
    stack_.lower().tier(tier).read_in_place(std::span(places_).subspan(first, told_in_place_ - first));
    add(host_.counters().tiers[tier].loads, records);
    add(host_.counters().tiers[tier].load_bytes, bytes);
  }
}

}  // namespace kvbm::manager

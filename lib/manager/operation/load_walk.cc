// The walk of a load over leaves: opens a record, passes its leaves to the mover, and closes it. Only
// LoadOperation::Origin knows where the record lies.
//
// If a stream waits for layers, an item that fails or is never read has its unsent leaves overwritten in the passes
// that would have sent them. (A load that ends early, by a deadline or a cancel, leaves pages it has not touched.)
#include "manager/operation/load.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "codec/hash/leaf_hash.h"
#include "manager/operation/leaf_mover.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

// Passes leaves of all items that have arrived to the mover. True: there are more, for another step.
bool LoadOperation::walk_all() {
  // Orders the copies of this step before its end, which is the first that other threads observe of them.
  const codec::CopiesOrdered of_all_blocks;
  uint64_t spent = 0;
  for (Entry* e = entries_->next(*this, false); e != nullptr; e = entries_->next(*this, true)) {
    if (!walk(*e, spent)) return true;
  }
  return false;
}

// Passes leaves of one entry up to last_layer_. False: the batch is full, or this step has done enough.
bool LoadOperation::walk(Entry& e, uint64_t& spent) {
  if (!e.opened) open(e);
  if (e.sent) return true;
  if (e.code != Code::ok) return overwrite(e);
  const CachePart& part = request_.cache->parts()[e.item.part];
  const auto ids = ids_of(e.item.part, e.item.key);
  Code code = Code::ok;
  if (e.cut_otherwise && !check_whole(*e.head, e.record.payload, e.checked, spent, code)) return false;
  while (code == Code::ok && e.next_leaf < part.leaf_count()) {
    uint32_t unit = 0;
    uint32_t layer = 0;
    const codec::Leaf leaf = part.leaf(e.next_leaf, unit, layer);
    // Comes before add(): if a layer exactly fills a batch, that batch must carry the layer's mark.
    if (layer > last_layer_) return true;
    if (spent >= kStepBytes) return false;
    if (const uint32_t block = wanted_block(ids, unit, layer); block != kNoBlock) {
      const LeafMover::Added added =
          mover_->add(e.number, e.record, {part, e.next_leaf, leaf, block, std::min(last_layer_, end_layer_ - 1)});
      bytes_ += added.moved;
      e.moved += added.moved;
      e.away += added.away;
      spent += added.spent;
      code = added.code;
      if (code != Code::ok) break;
      if (added.leaves == 0) return false;
      e.next_leaf += added.leaves;
      continue;
    }
    if (e.all_checked) {
      spent += leaf.raw_bytes;
      const codec::Leaf expected = e.head->leaf(e.next_leaf);
      const bool right = codec::leaf_hash(ConstBytes(e.record.payload + leaf.offset, leaf.raw_bytes)) == expected.hash;
      code = right ? Code::ok : Code::damaged;
    }
    ++e.next_leaf;
  }
  if (code != Code::ok) {
    fail(e, code);
    return overwrite(e);
  }
  e.sent = true;
  e.head.reset();
  close_if_back(e);
  return true;
}

// Returns the engine's block for a leaf of that unit and layer; kNoBlock: it is not wanted.
uint32_t LoadOperation::wanted_block(std::span<const uint32_t> ids, uint32_t unit, uint32_t layer) const noexcept {
  return unit < ids.size() && layer >= request_.first_layer && layer < end_layer_ ? ids[unit] : kNoBlock;
}

// Overwrites the wanted leaves of a failed entry that were not sent, up to last_layer_. False: the batch is full.
bool LoadOperation::overwrite(Entry& e) {
  if (e.sent) return true;
  const CachePart& part = request_.cache->parts()[e.item.part];
  const auto ids = ids_of(e.item.part, e.item.key);
  for (; e.next_leaf < part.leaf_count(); ++e.next_leaf) {
    uint32_t unit = 0;
    uint32_t layer = 0;
    (void)part.leaf(e.next_leaf, unit, layer);
    if (layer > last_layer_) return true;
    if (mover_->full()) return false;
    const uint32_t block = wanted_block(ids, unit, layer);
    if (block != kNoBlock) mover_->overwrite(part.run(e.next_leaf, block));
  }
  e.sent = true;
  return true;
}

void LoadOperation::open(Entry& e) {
  e.opened = true;
  const Code code = mover_->is_lost() ? Code::tier_disabled : e.item.origin->open(*this, e);
  if (code != Code::ok) fail(e, code);
}

// Returns true if the record was cut into leaves as the part is, so that each leaf is compared as it is copied. A
// block that its engine registered has no part known to kvbm (codec::opaque_leaf()).
bool LoadOperation::is_cut_alike(const codec::HeadView& head, const Item& item) const noexcept {
  const CachePart& part = request_.cache->parts()[item.part];
  if (head.header().leaf_count != part.leaf_count()) return false;
  const std::span<const codec::Leaf> known = part.leaves();
  for (uint32_t i = 0; i < part.leaf_count(); ++i) {
    uint32_t unit = 0;
    uint32_t layer = 0;
    const codec::Leaf wanted = known.empty() ? part.leaf(i, unit, layer) : known[i];
    const codec::Leaf has = head.leaf(i);
    if (has.offset != wanted.offset || has.raw_bytes != wanted.raw_bytes) return false;
  }
  return true;
}

// Checks a record with other leaf boundaries by its own leaves, before any of it is copied. False: there is more to
// hash.
bool LoadOperation::check_whole(const codec::HeadView& head, const std::byte* payload, uint32_t& next, uint64_t& hashed,
                                Code& code) {
  for (; next < head.header().leaf_count; ++next) {
    if (hashed >= kStepBytes) return false;
    const codec::Leaf leaf = head.leaf(next);
    hashed += leaf.raw_bytes;
    if (codec::leaf_hash(ConstBytes(payload + leaf.offset, leaf.raw_bytes)) == leaf.hash) continue;
    code = Code::damaged;
    break;
  }
  return true;
}

Code LoadOperation::check_head(const codec::HeadView& head, const Item& item) const {
  const CachePart& part = request_.cache->parts()[item.part];
  const codec::Header& header = head.header();
  if (header.stored_bytes != part.payload_bytes()) return Code::mismatch;
  if ((header.flags & codec::kLossy) != 0 && !request_.cache->ns()->options().allow_lossy) {
    add(host_.counters().lossy_refused, 1);
    return Code::miss;
  }
  const bool content = (header.flags & codec::kContentKey) != 0;
  return check_position(content, content ? codec::find_position(head.attributes()) : std::nullopt, item.key);
}

// Accepts a block with a position only at that position, and one without only if none is asked for.
Code LoadOperation::check_position(bool content, const std::optional<codec::Position>& has, size_t key) const {
  if (request_.any_position) return Code::ok;
  const size_t k = key - request_.first_key;
  std::optional<codec::Position> wanted;
  if (k < request_.positions.size()) wanted = request_.positions[k];
  if (content == wanted.has_value() && has == wanted) return Code::ok;
  add(host_.counters().position_mismatches, 1);
  return Code::mismatch;
}

void LoadOperation::fail(Entry& e, Code code) {
  if (e.code == Code::ok) e.code = code;
  // Nothing reads the pages before the load has ended: they are not overwritten.
  if (request_.layers == nullptr) e.sent = true;
  close_if_back(e);
}

// Closes the entry if none of its leaves are in flight and no more will be sent.
void LoadOperation::close_if_back(Entry& e) {
  if (!e.closed && e.away == 0 && (e.sent || e.code != Code::ok)) close(e);
}

// Ends the use of the entry's record, and settles its item.
void LoadOperation::close(Entry& e) {
  e.closed = true;
  e.head.reset();
  if (!e.item.origin->close(*this, e)) return;
  if (e.code == Code::ok) ++loads_;
  settle(e.item.key, e.code);
}

}  // namespace kvbm::manager

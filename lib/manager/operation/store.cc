#include "manager/operation/store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/hash/leaf_hash.h"
#include "manager/host/host_record.h"
#include "manager/lower/offload.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// Adds slots to `to`, without the places that are empty.
void add_held(std::span<const SlotId> slots, std::vector<SlotId>& to) {
  std::copy_if(slots.begin(), slots.end(), std::back_inserter(to), [](SlotId slot) { return slot != kNoSlot; });
}

}  // namespace

StoreOperation::StoreOperation(StoreRequest request)
    : Operation(*request.cache->stack().host().env().executor, request.cache->stack().host().counters(),
                copy::OpKind::store, request.deadline_ns),
      request_(std::move(request)),
      stack_(request_.cache->stack()),
      host_(stack_.host()),
      status_(request_.keys.size(), Code::ok),
      required_(stack_.lower().required_tier()),
      place_(host_.space_queue().place_of_store()),
      tier_codes_(required_ == kNoTier ? 0 : request_.keys.size()),
      tier_open_(tier_codes_.size()) {
  if (request_.cache->device() != nullptr) begin_flight();
}

const Key* StoreOperation::parent_of(size_t key) const noexcept {
  if (request_.unchained) return nullptr;
  if (key != 0) return &request_.keys[key - 1];
  return request_.parent.has_value() ? &*request_.parent : nullptr;
}

std::span<const uint32_t> StoreOperation::ids_of(size_t part, size_t key) const noexcept {
  const size_t units = request_.cache->units();
  return std::span(request_.block_ids).subspan((part * request_.keys.size() + key) * units, units);
}

std::span<const Key> StoreOperation::units_of(size_t key) const noexcept {
  if (request_.unit_keys.empty()) return {};
  const size_t units = request_.cache->units();
  return std::span(request_.unit_keys).subspan(key * units, units);
}

Code StoreOperation::has_block(size_t part, size_t key) const noexcept {
  const auto ids = ids_of(part, key);
  const auto none = std::count(ids.begin(), ids.end(), kNoBlock);
  if (none == 0) return Code::ok;
  return static_cast<size_t>(none) == ids.size() ? Code::miss : Code::invalid_argument;
}

void StoreOperation::fail(size_t key, Code code) {
  if (status_[key] == Code::ok) status_[key] = code;
  if (code == Code::no_room) add(host_.counters().refused_room, 1);
  if (code == Code::over_quota) add(host_.counters().refused_quota, 1);
}

Operation::Next StoreOperation::step() {
  if (plans_.empty()) {
    auto plans = request_.cache->plans();
    if (!plans.ok()) {
      for (size_t k = 0; k < request_.keys.size(); ++k) fail(k, plans.status().code());
      return Next::finished;
    }
    plans_ = std::move(plans).value();
    decided_.assign(request_.keys.size(), false);
  }
  if (request_.keys.empty()) return Next::finished;
  if (part_ == plans_.size()) return await_handover();
  if (!chunk_open_ && open_chunk() == Next::wait) return Next::wait;
  const Next copied = move_some();
  if (copied != Next::finished) return copied;
  const size_t keys = present_.size();
  close_chunk();
  chunk_first_ += keys;
  if (chunk_first_ >= request_.keys.size()) {
    host_.release(last_);
    last_ = kNoSlot;
    chunk_first_ = 0;
    no_room_ = Code::ok;
    follows_nothing_ = false;
    ++part_;
  }
  return part_ == plans_.size() ? await_handover() : Next::more;
}

// Sends the open chunk, which is in the host, to the tier that must have it as well, before the host can evict it.
void StoreOperation::hand_over() {
  if (required_ == kNoTier) return;
  const MemoryWait counted;  // the offloader releases what is acquired from here on
  std::vector<SlotId> slots;
  std::vector<size_t> key_of;
  const auto add = [&](SlotId slot, size_t key) {
    if (slot == kNoSlot || status_[key] != Code::ok || has_block(part_, key) != Code::ok) return;
    slots.push_back(slot);
    key_of.push_back(key);
  };
  for (size_t i = 0; i < present_.size(); ++i) add(present_[i], chunk_first_ + i);
  for (const Fresh& fresh : fresh_) add(fresh.slot, fresh.key);
  if (slots.empty()) return;
  host_.table().retain(slots);
  for (size_t i = 0; i < slots.size(); ++i) {
    // Sends flagged blocks as well: the tier may have lost them since. A block that it still has costs no copy.
    host_.table().clear_flags(slots[i], on_tier_flag(required_));
    tier_open_[key_of[i]].fetch_add(1, std::memory_order_relaxed);
  }
  tier_waiting_.fetch_add(slots.size(), std::memory_order_relaxed);
  auto self = std::static_pointer_cast<StoreOperation>(shared_from_this());
  auto report = std::make_shared<Offloader::Report>([self, key_of = std::move(key_of)](size_t index, Code code) {
    int32_t none = 0;
    std::atomic<int32_t>& first = self->tier_codes_[key_of[index]];
    if (code != Code::ok) first.compare_exchange_strong(none, static_cast<int32_t>(code), std::memory_order_relaxed);
    self->tier_open_[key_of[index]].fetch_sub(1, std::memory_order_release);
    self->tier_waiting_.fetch_sub(1, std::memory_order_release);
    self->wake();
  });
  stack_.lower().offloader(required_).request(std::move(slots), std::move(report));
}

// Waits for the tier that must have all blocks as well; the host has them by now.
Operation::Next StoreOperation::await_handover() {
  note_stored();
  return tier_waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
}

// Records the stored blocks for a flush of a shared tier set, wherever they were sent.
void StoreOperation::note_stored() {
  Unflushed& unflushed = stack_.unflushed();
  if (!unflushed.wanted() || std::exchange(noted_, true)) return;
  const MemoryWait counted;
  std::vector<Identity> ids;
  for (size_t part = 0; part < plans_.size(); ++part) {
    for (size_t k = 0; k < request_.keys.size(); ++k) {
      if (status_[k] != Code::ok || has_block(part, k) != Code::ok) continue;
      ids.push_back({request_.keys[k], plans_[part].family});
    }
  }
  unflushed.stored(ids);
}

// Ends the handover, once. Blocks still open end as `why`: the host has them, and the tier may get them yet.
void StoreOperation::end_handover(Code why) {
  for (size_t k = 0; k < tier_codes_.size(); ++k) {
    const bool open = tier_open_[k].load(std::memory_order_acquire) != 0;
    const auto code = static_cast<Code>(tier_codes_[k].load(std::memory_order_relaxed));
    if (code != Code::ok) fail(k, code);
    if (open) fail(k, why);
  }
}

size_t StoreOperation::chunk_keys() const noexcept {
  const uint64_t bytes = request_.cache->parts()[part_].payload_bytes();
  return std::clamp<size_t>(kDeviceChunkBytes / std::max<uint64_t>(bytes, 1), kChunk, most_keys_);
}

// Finds the keys that are stored already and takes slots for the others: for all, or for as many leading ones as
// there are slots for, and the chunk ends there. Without any slot the chunk stays closed and this waits. Meanwhile it
// holds only the previous block; its published blocks are being offloaded and may be evicted after that.
Operation::Next StoreOperation::open_chunk() {
  const size_t n = std::min(chunk_keys(), request_.keys.size() - chunk_first_);
  const auto keys = std::span<const Key>(request_.keys).subspan(chunk_first_, n);
  present_.assign(n, kNoSlot);
  // A lookup that is repeated after a wait does not count as a second use.
  const uint32_t tick = waits_since_ns_ == 0 ? host_.tick() : block::kNoUse;
  host_.table().acquire_each(plans_[part_].family, keys, present_, tick);
  leave_others();
  if (const Key* const parent = parent_of(chunk_first_); parent != nullptr && last_ == kNoSlot) {
    last_ = host_.acquire_one(plans_[part_].family, *parent);
    if (last_ == kNoSlot && chunk_first_ == 0) {
      follows_nothing_ = stack_.is_nowhere({*parent, plans_[part_].family});
    }
  }
  const std::vector<size_t> missing = find_missing();
  fresh_.clear();
  fresh_.reserve(missing.size());  // a slot that is taken must find its entry here
  if (!missing.empty() && take_slots(missing) == Next::wait) {
    cut_chunk(0);
    return Next::wait;
  }
  leaves_.resize(fresh_.size() * request_.cache->parts()[part_].leaf_count());
  at_ = 0;
  leaf_ = 0;
  chunk_open_ = true;
  return Next::more;
}

// Returns the resolver for keys from `first` on.
DuplicateResolver StoreOperation::resolver(size_t first) const {
  std::span<const codec::Position> positions(request_.positions);
  if (!positions.empty()) positions = positions.subspan(first);
  return {host_, request_.cache->ns()->options().allow_lossy, positions};
}

// Treats resident blocks as missing if they cannot replace the engine's: another engine stored them, or an earlier
// process left them and they fail verification.
void StoreOperation::leave_others() {
  const DuplicateResolver mine = resolver(chunk_first_);
  for (size_t i = 0; i < present_.size(); ++i) {
    if (present_[i] == kNoSlot || has_block(part_, chunk_first_ + i) != Code::ok) continue;
    if (mine.stands_in(present_[i], i) && host_.trust(present_[i])) continue;
    host_.release({&present_[i], 1});
    present_[i] = kNoSlot;
  }
}

// Returns the keys of the chunk that must be copied.
std::vector<size_t> StoreOperation::find_missing() {
  std::vector<size_t> missing;
  missing.reserve(present_.size());
  for (size_t i = 0; i < present_.size(); ++i) {
    const size_t key = chunk_first_ + i;
    if (present_[i] != kNoSlot || status_[key] != Code::ok) continue;
    Code has = has_block(part_, key);
    if (has == Code::ok && mover_->is_lost()) has = Code::tier_disabled;
    if (has == Code::invalid_argument || has == Code::tier_disabled) fail(key, has);
    if (has == Code::ok) missing.push_back(key);
  }
  return missing;
}

// Takes slots. wait: SpaceQueue will wake this. Otherwise the chunk is as long as there are slots, or none will be
// free.
Operation::Next StoreOperation::take_slots(std::span<const size_t> missing) {
  if (no_room_ != Code::ok) {
    give_up(missing, no_room_);
    return Next::more;
  }
  const block::AccountId account = request_.cache->ns()->account();
  const auto self = std::static_pointer_cast<StoreOperation>(shared_from_this());
  SpaceQueue& queue = host_.space_queue();
  Code code = Code::no_room;
  SpaceQueue::Verdict verdict = queue.ask(self, place_, account, last_ != kNoSlot);
  while (verdict == SpaceQueue::Verdict::try_it) {
    if (take_leading(missing, loss_, code)) return Next::more;
    if (release_last()) continue;
    verdict = SpaceQueue::Verdict::refused;
    if (queue.may_wait_after(code, account) && !follows_nothing_) {
      verdict = queue.refused(self, place_, account, last_ != kNoSlot, code, stack_.lower().offloading_blocks() != 0);
    }
  }
  const uint64_t waited = waits_since_ns_ == 0 ? 0 : host_.env().clock().now_ns() - waits_since_ns_;
  const bool late = waited >= host_.options().room_wait_ns;
  const bool may_wait = !late && !host_.closing() && !follows_nothing_ && queue.may_wait_after(code, account);
  if (verdict == SpaceQueue::Verdict::refused && loss_ == Loss::nothing && may_wait) {
    // Blocks that can be written back since the last try are, before any block is lost for this store.
    if (take_leading(missing, Loss::nothing, code)) return Next::more;
    if (stack_.lower().offloading_blocks() != 0) verdict = SpaceQueue::Verdict::wait;
  }
  if (verdict == SpaceQueue::Verdict::wait) {
    if (waits_since_ns_ == 0) waits_since_ns_ = host_.env().clock().now_ns();
    // Keys in front of the first missing one are stored already and need no slots.
    if (missing.front() == chunk_first_) return Next::wait;
    cut_chunk(missing.front() - chunk_first_);
    return Next::more;
  }
  // No slot will become free, or not in time: blocks that should have been written back are evicted now.
  if (waited != 0 && late) loss_ = Loss::what_must;  // the rest does not wait that long either
  if (queue.may_wait_after(code, account) && take_leading(missing, Loss::what_must, code)) return Next::more;
  end_wait(false);
  give_up(missing, code);
  return Next::more;
}

// Takes all slots, or as many leading ones as there are; the chunk then ends there. False: none, and `code` has the
// reason.
bool StoreOperation::take_leading(std::span<const size_t> missing, Loss loss, Code& code) {
  const block::AccountId account = request_.cache->ns()->account();
  size_t n = missing.size();
  // A block that cannot be found, because its parent is in no tier, evicts no other block. Otherwise a prompt longer
  // than all tiers would lose its beginning to its end.
  if (follows_nothing_) n = std::min<size_t>(n, host_.table().counters().free);
  if (n == 0) {
    code = Code::no_room;
    return false;
  }
  if (loss == Loss::nothing) n = stack_.slots_to_store_in(account, n, code);
  if (n == 0) return false;
  std::vector<SlotId> slots(n);
  size_t got = 0;
  const bool evicting = loss == Loss::what_must || !stack_.lower().host_has_last_copies();
  code = stack_.allocate_leading(account, slots, got, evicting);
  if (got == 0 && loss == Loss::what_must) {
    stack_.lower().yield_offloads(n);
    code = stack_.allocate_leading(account, slots, got);
  }
  for (size_t i = 0; i < got; ++i) fresh_.push_back({missing[i], slots[i], 0, Code::ok});
  if (got == 0) return false;
  end_wait(true);
  if (got != missing.size()) cut_chunk(missing[got] - chunk_first_);
  return true;
}

// Releases the previous block if a tier below has it: among few slots it would be one too many. A block that is
// written only at its eviction is written back once its parent is below. Returns true if it was released.
bool StoreOperation::release_last() {
  if (last_ == kNoSlot) return false;
  if (!host_.table().lies_below(last_)) {
    const SlotId parent = host_.table().parent(last_);
    const bool comes_next = parent == kNoSlot || host_.table().lies_below(parent);
    if (sent_down_ != last_ && comes_next) {
      sent_down_ = last_;
      stack_.lower().write_back(last_);
    }
    return false;
  }
  host_.table().release({&last_, 1}, host_.tick());
  last_ = sent_down_ = kNoSlot;
  return true;
}

// Leaves the space queue.
void StoreOperation::end_wait(bool got_some) {
  host_.space_queue().leave(place_, got_some);
  if (waits_since_ns_ == 0) return;
  // Counts at least 1 ns, because 0 stands for an operation that did not wait.
  waited_ns_ += std::max<uint64_t>(host_.env().clock().now_ns() - waits_since_ns_, 1);
  waits_since_ns_ = 0;
}

// Fails the keys. A block without a slot ends the prefix: later blocks would never be found.
void StoreOperation::give_up(std::span<const size_t> missing, Code code) {
  for (const size_t key : missing) fail(key, code);
  if (no_room_ == Code::ok) {
    host_.space_queue().log_refused("a store", code, waited_ns_, stack_.lower().offloading_blocks());
  }
  no_room_ = code;
}

// Ends the chunk earlier. Releases without notifying the space queue: this operation may be queued there, and would
// wake itself forever.
void StoreOperation::cut_chunk(size_t keys) {
  std::vector<SlotId> left;
  left.reserve(present_.size());
  add_held(std::span(present_).subspan(keys), left);
  present_.resize(keys);
  host_.table().release(left, host_.tick());
}

// Keeps the mover busy until every fresh record of the chunk is back.
Operation::Next StoreOperation::move_some() {
  take_back();
  if (!mover_->can_send()) return Next::wait;
  const bool more = walk();
  if (!mover_->empty()) {
    auto self = std::static_pointer_cast<StoreOperation>(shared_from_this());
    mover_->send([self] { self->wake_from_transfer(); });
  }
  if (more) return Next::more;
  if (mover_->away() != 0) return Next::wait;
  drop_failed();
  return Next::finished;
}

// Passes leaves of the chunk to the mover. True: there are more, for another step.
bool StoreOperation::walk() {
  const codec::CopiesOrdered of_this_step;  // the next step may run on another thread
  const CachePart& part = request_.cache->parts()[part_];
  uint64_t spent = 0;
  for (; at_ < fresh_.size(); ++at_, leaf_ = 0) {
    Fresh& fresh = fresh_[at_];
    const auto ids = ids_of(part_, fresh.key);
    const std::span<codec::Leaf> leaves = leaves_of(at_);
    if (leaf_ == 0) {
      host_.arena().clear_head(fresh.slot);
      std::copy(part.leaves().begin(), part.leaves().end(), leaves.begin());  // for leaves that go along with others
    }
    LeafRecord record;
    record.payload = host_.arena().payload(fresh.slot).data();
    while (leaf_ < part.leaf_count()) {
      if (spent >= kStepBytes) return true;
      uint32_t unit = 0;
      uint32_t layer = 0;
      codec::Leaf& leaf = leaves[leaf_];
      leaf = part.leaf(leaf_, unit, layer);
      const LeafMover::Added added = mover_->add(at_, record, {part, leaf_, leaf, ids[unit], UINT32_MAX});
      if (added.leaves == 0) return true;
      leaf.hash = added.hash;
      fresh.back += added.leaves - added.away;
      spent += added.spent;
      leaf_ += added.leaves;
    }
    if (fresh.back == part.leaf_count()) complete(at_);
  }
  return false;
}

// Takes the hashes of leaves that are back.
void StoreOperation::take_back() {
  LeafMover::Moved moved;
  while (mover_->take(moved)) {
    lost_ = lost_ || moved.code == Code::tier_disabled;
    Fresh& fresh = fresh_[moved.record];
    if (moved.code != Code::ok) fresh.code = moved.code;
    const std::span<codec::Leaf> leaves = leaves_of(moved.record);
    for (size_t i = 0; i < moved.hashes.size(); ++i) leaves[moved.first + i].hash = moved.hashes[i];
    fresh.back += moved.leaves;
    if (fresh.back == leaves.size()) complete(moved.record);
  }
}

std::span<codec::Leaf> StoreOperation::leaves_of(size_t index) noexcept {
  const size_t n = request_.cache->parts()[part_].leaf_count();
  return std::span(leaves_).subspan(index * n, n);
}

// Writes the head of a record that has all its leaves.
void StoreOperation::complete(size_t index) {
  Fresh& fresh = fresh_[index];
  codec::order_copies();  // before a head vouches for these bytes
  if (fresh.code == Code::ok) fresh.code = finish_record(fresh, leaves_of(index));
  if (fresh.code == Code::ok) bytes_ += request_.cache->parts()[part_].payload_bytes();
}

// Drops records that have no head: their slots have undefined content.
void StoreOperation::drop_failed() {
  const auto is_good = [](const Fresh& fresh) { return fresh.code == Code::ok; };
  if (std::all_of(fresh_.begin(), fresh_.end(), is_good)) return;
  std::vector<SlotId> failed;
  failed.reserve(fresh_.size());  // no allocation can fail half way
  size_t kept = 0;
  for (const Fresh& fresh : fresh_) {
    if (fresh.code == Code::ok) {
      fresh_[kept++] = fresh;
      continue;
    }
    fail(fresh.key, fresh.code);
    failed.push_back(fresh.slot);
  }
  fresh_.resize(kept, {});
  release_unpublished(failed);
}

bool StoreOperation::quiet() noexcept {
  LeafMover::Moved dropped;
  while (mover_->take(dropped)) lost_ = lost_ || dropped.code == Code::tier_disabled;
  return mover_->away() == 0;
}

Code StoreOperation::finish_record(const Fresh& fresh, std::span<const codec::Leaf> leaves) {
  const CachePart& part = request_.cache->parts()[part_];
  HeadFacts facts;
  facts.family = plans_[part_].family;
  facts.key = request_.keys[fresh.key];
  if (const Key* parent = parent_of(fresh.key)) facts.parent = *parent;
  facts.payload_bytes = part.payload_bytes();
  if (part.is_opaque()) facts.flags |= codec::kOpaque;
  std::vector<std::byte> attributes;
  if (!request_.positions.empty()) {
    facts.flags |= codec::kContentKey;
    const auto value = codec::encode_position(request_.positions[fresh.key]);
    const Status added = codec::append_attribute(attributes, codec::Attribute::position, value);
    if (!added.ok()) return added.code();
  }
  const auto units = units_of(fresh.key);
  const ConstBytes unit_bytes = std::as_bytes(units);
  // If they do not fit in the head, the block is found by its units only until the process ends.
  if (!units.empty() && codec::head_bytes(part.leaf_count(), attributes.size() + 4 + unit_bytes.size()) <=
                            host_.arena().head(fresh.slot).size()) {
    (void)codec::append_attribute(attributes, codec::Attribute::unit_keys, unit_bytes);
  }
  return write_head(host_, fresh.slot, facts, leaves, attributes);
}

// Publishes the copied blocks, in runs of consecutive keys, each chained to the block before it.
void StoreOperation::close_chunk() {
  const size_t n = present_.size();
  SlotId before = last_;
  size_t f = 0;
  for (size_t i = 0; i < n;) {
    const size_t key = chunk_first_ + i;
    if (f == fresh_.size() || fresh_[f].key != key) {
      before = present_[i];
      ++i;
      continue;
    }
    size_t count = 1;
    while (count < kChunk && f + count < fresh_.size() && fresh_[f + count].key == key + count) ++count;
    publish_run(f, count, before);
    before = fresh_[f + count - 1].slot;
    f += count;
    i += count;
  }
  hand_over();
  // The last block of the chunk is the parent of the next chunk's first: keep its reference.
  const SlotId keep = before;
  std::vector<SlotId> done;
  add_held({&last_, 1}, done);
  add_held(present_, done);
  for (const Fresh& fresh : fresh_) add_held({&fresh.slot, 1}, done);
  if (keep != kNoSlot) host_.table().retain({&keep, 1});
  last_ = keep;
  sent_down_ = kNoSlot;
  host_.release(done);
  present_.clear();
  fresh_.clear();
  chunk_open_ = false;
}

void StoreOperation::publish_run(size_t first, size_t count, SlotId parent) {
  SlotId slots[kChunk];
  Code codes[kChunk];
  Key parents[kChunk];
  const size_t key = fresh_[first].key;
  for (size_t i = 0; i < count; ++i) {
    slots[i] = fresh_[first + i].slot;
    if (const Key* p = parent_of(key + i)) parents[i] = *p;
  }
  const Code completed = host_.table().complete({slots, count});
  block::Publication what;
  what.family = plans_[part_].family;
  what.keys = std::span<const Key>(request_.keys).subspan(key, count);
  what.lineage = request_.unchained ? block::Lineage::none : block::Lineage::chain;
  what.first_parent = request_.unchained ? kNoSlot : parent;
  what.priority = request_.priority;
  what.tick = host_.tick();
  DuplicateResolver mine = resolver(key);
  what.precedence = &mine;
  if (completed == Code::ok) {
    [[maybe_unused]] const Code all =
        stack_.publish({slots, count}, what, {parents, count}, {codes, count}, {required_, true}, &mine);
  } else {
    std::fill_n(codes, count, completed);
  }
  for (size_t i = 0; i < count; ++i) {
    fresh_[first + i].slot = slots[i];
    if (codes[i] == Code::ok) host_.keep_over_restart(slots[i]);
    if (codes[i] != Code::ok && codes[i] != Code::exists)
      fail(key + i, codes[i]);
    else
      host_.unit_index().add(what.family, request_.keys[key + i], units_of(key + i));
  }
}

void StoreOperation::conclude(Code why, copy::Completion& completion) {
  std::vector<SlotId> left;
  add_held({&last_, 1}, left);
  add_held(present_, left);
  host_.release(left);
  left.clear();
  for (const Fresh& fresh : fresh_) left.push_back(fresh.slot);
  release_unpublished(left);
  end_wait(false);
  note_stored();
  if (waited_ns_ != 0) host_.counters().room_wait.record(waited_ns_);
  // Keys from the open chunk on were not published by this part; earlier parts alone are no hit.
  const bool all_stored = !plans_.empty() && part_ == plans_.size();
  if (why != Code::ok && !all_stored) {
    const size_t from = part_ + 1 == plans_.size() ? chunk_first_ : 0;
    for (size_t k = from; k < status_.size(); ++k) fail(k, why);
  }
  end_handover(why);
  completion.items = status_.size();
  for (size_t k = 0; k < status_.size(); ++k) {
    if (status_[k] == Code::ok) ++completion.items_done;
    if (k < request_.item_status.size()) request_.item_status[k] = static_cast<int32_t>(status_[k]);
  }
  completion.bytes = bytes_;
  const bool all = completion.items_done == completion.items;
  completion.status = all ? Code::ok : completion.items_done != 0 ? Code::partial : why;
  if (!all && completion.items_done == 0 && why == Code::ok) {
    completion.status = *std::find_if(status_.begin(), status_.end(), [](Code c) { return c != Code::ok; });
  }
}

}  // namespace kvbm::manager

#include "manager/operation/load.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/hash/copy_hint.h"
#include "manager/operation/reslice_landing.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

LoadOperation::LoadOperation(LoadRequest request)
    : Operation(*request.cache->stack().host().env().executor, request.cache->stack().host().counters(),
                copy::OpKind::load, request.deadline_ns),
      request_(std::move(request)),
      stack_(request_.cache->stack()),
      host_(stack_.host()),
      end_layer_(request_.n_layers == 0 ? UINT32_MAX : request_.first_layer + request_.n_layers) {
  const size_t units = request_.cache->units();
  n_keys_ = (request_.n_ids + units - 1) / units;
  status_.assign(n_keys_, Code::ok);
  pending_.assign(n_keys_, 0);
  uint64_t bytes = 0;
  for (const CachePart& part : request_.cache->parts()) bytes += n_keys_ * part.payload_bytes();
  host_mover_.use(codec::hint_for(bytes));  // the engine reads what was loaded
  accepts_.verifies = true;
  // A record that is to stay in the host is read into a slot.
  accepts_.borrows = reads_in_place_ = request_.keep_below;
  if (request_.cache->device() != nullptr) begin_flight();
  if (request_.compute_block_ns != 0) begin_weighing();
}

std::span<const uint32_t> LoadOperation::ids_of(size_t part, size_t key) const noexcept {
  const size_t units = request_.cache->units();
  const size_t first = (key - request_.first_key) * units;
  const size_t n = std::min(units, request_.n_ids - first);
  return std::span(request_.block_ids).subspan(part * request_.n_ids + first, n);
}

void LoadOperation::settle(size_t key, Code code) {
  const size_t k = key - request_.first_key;
  if (status_[k] == Code::ok) status_[k] = code;
  --pending_[k];
}

// Returns true if any wanted unit lies behind the matching units of a partly matching block: those units are another
// prompt's.
bool LoadOperation::beyond_match(size_t key, std::span<const uint32_t> ids) const noexcept {
  const uint32_t units = request_.match->partial_units();
  if (units == 0 || key != request_.match->hits() || ids.size() <= units) return false;
  const auto rest = ids.subspan(units);
  return std::any_of(rest.begin(), rest.end(), [](uint32_t id) { return id != kNoBlock; });
}

// Decides where every wanted part of every key is read from.
void LoadOperation::plan() {
  MutexLock lock(mutex_);
  for (size_t k = 0; k < n_keys_; ++k) {
    const size_t key = request_.first_key + k;
    for (size_t p = 0; p < request_.cache->parts().size(); ++p) {
      const auto ids = ids_of(p, key);
      if (std::all_of(ids.begin(), ids.end(), [](uint32_t id) { return id == kNoBlock; })) continue;
      if (beyond_match(key, ids)) {
        status_[k] = Code::miss;
        if (request_.layers != nullptr) never_came_.push_back({p, key, Code::miss});
        continue;
      }
      const TierIndex tier = request_.match->tier_of(p, key);
      if (tier == kNoTier) {
        // In a prefix match a window or state part has no block where none is needed.
        const bool needless = request_.match->mode() == LookupMode::prefix &&
                              request_.match->parts()[p].plan.kind != layout::ComponentKind::attention &&
                              request_.match->parts()[p].plan.kind != layout::ComponentKind::latent &&
                              key < request_.match->hits();
        if (!needless) status_[k] = Code::miss;
        if (!needless && request_.layers != nullptr) never_came_.push_back({p, key, Code::miss});
        continue;
      }
      ++pending_[k];
      Item item{p, key};
      item.got.from = tier;
      if (tier == 0) {
        item.got.slot = request_.match->parts()[p].slots[key];
        item.origin = &origin_of_match();
        ready_.push_back(std::move(item));
      } else if (reads_in_place_ && tier != kOtherSize) {
        in_place_.push_back(std::move(item));
      } else {
        below_.push_back(std::move(item));
      }
    }
  }
  arrived_.store(!ready_.empty(), std::memory_order_release);
  planned_ = true;  // set last: if memory was refused half way, the plan says nothing of the other keys
}

// `tier`: one below the host.
bool LoadOperation::in_store(TierIndex tier) const noexcept {
  const auto& tiers = host_.options().tiers;
  return tier <= tiers.size() && !tiers[tier - 1U].url.empty();
}

// Returns the bytes still to be read, assuming that all records not asked for yet have one size.
uint64_t LoadOperation::bytes_left() const noexcept {
  return landing_bytes_ + (below_.empty() ? 0 : below_.size() * bytes_of(below_.front()));
}

bool LoadOperation::may_ask() const {
  return !below_.empty() && placed_.load(std::memory_order_relaxed) < too_many_ && pace_->may_ask(*this);
}

// Takes the items of the next batch off below_, and adds their requests to `batch`. All are from one tier. `left`:
// bytes still to be read.
std::vector<LoadOperation::Item> LoadOperation::take_batch(tier::GetBatch& batch, uint64_t left) {
  const TierIndex tier = below_.front().got.from;
  const bool from_file = below_.front().from_file;
  const uint64_t most = pace_->batch_bytes(*this, below_.front(), left);
  const size_t most_items = pace_->batch_items(*this);
  const bool packed = in_store(tier);
  std::vector<Item> items;
  uint64_t bytes = 0, location = 0;
  while (!below_.empty() && below_.front().got.from == tier && items.size() < most_items &&
         (bytes < most || items.empty()) && below_.front().from_file == from_file) {
    const Item item = below_.front();
    const tier::Found& found = request_.match->parts()[item.part].found[item.key];
    // Leaves an object of a store to the next batch, rather than read it in two requests.
    if (packed && !items.empty() && bytes >= most / 2 && found.location != location + 1) break;
    location = found.location;
    below_.pop_front();
    batch.items.push_back(request_of(identity(item), found));
    bytes += found.payload_bytes;
    items.push_back(item);
  }
  return items;
}

// Keeps a few batches in flight, each from one tier, in the order of the keys.
void LoadOperation::request_more() {
  const MemoryWait counted;  // items taken off below_ must reach landed()
  for (;;) {
    uint64_t left = 0;
    {
      MutexLock lock(mutex_);
      below_.insert(below_.begin(), to_host_.begin(), to_host_.end());
      to_host_.clear();
      if (!may_ask()) return;
      left = bytes_left();
      ++landing_;
    }
    const TierIndex tier = below_.front().got.from;
    const bool from_file = below_.front().from_file;
    auto batch = std::make_unique<tier::GetBatch>();
    std::vector<Item> items = take_batch(*batch, left);
    ++asked_;
    if (from_file) {
      if (request_from_storage(items)) continue;
      MutexLock lock(mutex_);
      --landing_;
      continue;
    }
    LandingRoom room = find_places(items, batch->items);
    if (items.empty()) continue;
    uint64_t bytes = 0;
    for (const tier::GetItem& item : batch->items) bytes += item.payload_bytes;
    {
      MutexLock lock(mutex_);
      landing_bytes_ += bytes;
      landing_blocks_ += items.size();
    }
    auto self = std::static_pointer_cast<LoadOperation>(shared_from_this());
    batch->deadline_ns = std::min(deadline_ns(), pace_->give_up_ns());
    if (tier == kOtherSize) {
      std::vector<ResliceItem> made;
      for (const Item& item : items) made.push_back({item.part, item.key});
      onboard_resliced(
          request_.match, std::move(made), std::move(room), batch->deadline_ns, false,
          [self, items, bytes](std::vector<Delivery> results) { self->landed(items, bytes, std::move(results)); });
      continue;
    }
    batch->accepts = accepts_;
    onboard(stack_.keep(), tier, std::move(batch), std::move(room),
            [self, items, bytes](std::vector<Delivery> results) { self->landed(items, bytes, std::move(results)); });
  }
}

// Keeps in `items` those that have a place to be read into. The others are asked for when this load has released some
// of its places. Empty: nothing is read.
LandingRoom LoadOperation::find_places(std::vector<Item>& items, std::vector<tier::GetItem>& wanted) {
  LandingRoom room;
  const uint64_t before = placed_.load(std::memory_order_acquire);
  take_places(stack_, request_.cache->ns()->account(), items.size(), before == 0, room);
  const size_t n = room.count();
  too_many_ = n == items.size() ? UINT64_MAX : std::max<uint64_t>(before + n, 1);
  if (n == 0) {
    MutexLock lock(mutex_);
    --landing_;
    if (before == 0) {  // the system has no memory for one block
      for (const Item& item : items) failed_.push_back({item.part, item.key, Code::no_memory});
      items.clear();
      arrived_.store(true, std::memory_order_release);
      return room;
    }
  }
  below_.insert(below_.begin(), items.begin() + static_cast<ptrdiff_t>(n), items.end());
  items.resize(n);
  wanted.resize(n);
  placed_.fetch_add(n, std::memory_order_relaxed);
  return room;
}

Identity LoadOperation::identity(const Item& item) const noexcept {
  return {request_.match->keys()[item.key], request_.match->parts()[item.part].plan.family};
}

// Takes over a batch that was read into places of this load. Thread: any.
void LoadOperation::landed(std::vector<Item> items, uint64_t bytes, std::vector<Delivery> results) {
  const uint64_t places = items.size();
  for (size_t i = 0; i < places; ++i) {
    items[i].got = std::move(results[i]);
    items[i].origin = &origin_of(items[i].got);
    if (items[i].got.code != Code::ok) placed_.fetch_sub(1, std::memory_order_release);
  }
  receive(std::move(items), bytes, places);
}

// Takes over a batch of `bytes` for which `places` places were taken. Thread: any.
void LoadOperation::receive(std::vector<Item> items, uint64_t bytes, uint64_t places) {
  std::vector<SlotId> late;
  {
    MutexLock lock(mutex_);
    --landing_;
    landing_bytes_ -= bytes;
    landing_blocks_ -= places;
    ++landed_;
    for (Item& item : items) {
      const Code code = item.got.code;
      if (code == Code::ok && over_) {
        item.origin->leave(*this, item, late);
      } else if (code == Code::ok) {
        ready_.push_back(std::move(item));
      } else if (code == Code::again && std::exchange(item.from_file, false)) {
        to_host_.push_back(std::move(item));
      } else {
        failed_.push_back({item.part, item.key, code});
      }
    }
    arrived_.store(true, std::memory_order_release);
  }
  host_.release(late);
  wake();
}

bool LoadOperation::expects() {
  MutexLock lock(mutex_);
  return landing_ != 0;
}

void LoadOperation::settle_failed() {
  const MemoryWait counted;  // each item is settled once
  if (request_.layers != nullptr) never_came_.insert(never_came_.end(), failed_.begin(), failed_.end());
  for (const Failed& item : failed_) settle(item.key, item.code);
  failed_.clear();
}

bool LoadOperation::next_item(Item& item) {
  if (!arrived_.load(std::memory_order_acquire)) return false;
  MutexLock lock(mutex_);
  settle_failed();
  arrived_.store(!ready_.empty(), std::memory_order_relaxed);
  if (ready_.empty()) return false;
  item = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

LoadOperation::Entry* LoadOperation::OneByOne::next(LoadOperation& load, bool /*past*/) {
  if (!entry_.closed) return &entry_;
  if (!load.next_item(entry_.item) && !load.next_in_place(entry_.item)) return nullptr;
  entry_.begin();
  return &entry_;
}

void LoadOperation::OneByOne::end(LoadOperation& load, std::vector<SlotId>& left) {
  if (!entry_.closed) entry_.item.origin->leave(load, entry_.item, left);
  entry_.item.got.keep.reset();
}

Operation::Next LoadOperation::step() {
  const uint64_t now = host_.env().clock().now_ns();
  if (!planned_) copy_ns_ = now - submitted_ns();
  if (mover_->away() == 0) began_ns_ = now;
  const Next next = move_some();
  tell_in_place();
  if (mover_->away() == 0 && bytes_ != timed_bytes_) {
    copy_ns_ += host_.env().clock().now_ns() - began_ns_;
    timed_bytes_ = bytes_;
  }
  return next;
}

void LoadOperation::begin() {
  plan();
  find_in_place();
  find_files();
  pace_->begin(*this);
}

// Keeps the mover busy while there is something to move.
Operation::Next LoadOperation::move_some() {
  if (!planned_) begin();
  take_back();
  if (pace_->out_of_time(*this, false)) return Next::finished;
  request_more();
  if (mover_->can_send()) {
    const bool more = walk_all();
    if (!mover_->empty()) {
      auto self = std::static_pointer_cast<LoadOperation>(shared_from_this());
      mover_->send([self] { self->wake_from_transfer(); });
    }
    if (more) return Next::more;
  }
  if (mover_->away() == 0) return what_next();
  pace_->wait_at_most(*this);
  return Next::wait;
}

bool LoadOperation::quiet() noexcept {
  LeafMover::Moved dropped;
  while (mover_->take(dropped)) {
  }
  return mover_->away() == 0;
}

// Decides how to go on when nothing can be copied now.
Operation::Next LoadOperation::what_next() {
  if (pace_->out_of_time(*this, true)) return Next::finished;
  {
    MutexLock lock(mutex_);
    if (!ready_.empty() || !failed_.empty() || !to_host_.empty()) return Next::more;
    if (may_ask()) return Next::more;
    if (landing_ == 0 && below_.empty()) return Next::finished;
  }
  pace_->wait_at_most(*this);
  return Next::wait;
}

LoadFailure load_failure_of(Code code) noexcept {
  switch (code) {
    case Code::miss:
      return LoadFailure::miss;
    case Code::damaged:
      return LoadFailure::damaged;
    case Code::mismatch:
      return LoadFailure::mismatch;
    case Code::deadline:
    case Code::cancelled:
      return LoadFailure::deadline;
    case Code::no_room:
    case Code::over_quota:
      return LoadFailure::no_room;
    case Code::no_memory:
      return LoadFailure::no_memory;
    default:
      return LoadFailure::other;
  }
}

void LoadOperation::conclude(Code why, copy::Completion& completion) {
  std::vector<SlotId> left;
  bool reading = false;
  {
    MutexLock lock(mutex_);
    over_ = true;
    reading = landing_ != 0;
    for (const Item& item : ready_) item.origin->leave(*this, item, left);
    settle_failed();
    ready_.clear();
  }
  entries_->end(*this, left);
  places_.clear();  // and with them the mappings that they hold
  host_.release(left);
  // Released before the completion is visible: the caller may then rely on the match being released, but this object
  // may live until a thread returns.
  // A load that waited for the engine's stream says nothing about the time of copying.
  if (bytes_ != 0 && request_.after == nullptr)
    stack_.lower().cost(0).took(host_.env().clock().now_ns(), bytes_, copy_ns_);
  if (why == Code::ok) pace_->account(*this);
  const bool leaves = pace_->leaves_rest() && why == Code::ok;
  if (!reading) request_.match = nullptr;
  completion.items = n_keys_;
  for (size_t k = 0; k < n_keys_; ++k) {
    if (pending_[k] != 0 && status_[k] == Code::ok)
      status_[k] = leaves ? Code::deadline : why == Code::ok ? Code::internal : why;
    if (!planned_ && why != Code::ok) status_[k] = why;
    const bool given_up = leaves && pending_[k] != 0;
    if (status_[k] == Code::ok) {
      ++completion.items_done;
    } else if (!given_up) {
      add(host_.counters().load_failed[static_cast<size_t>(load_failure_of(status_[k]))], 1);
    }
    if (k < request_.item_status.size()) request_.item_status[k] = static_cast<int32_t>(status_[k]);
  }
  completion.bytes = bytes_;
  add(host_.counters().tiers[0].loads, loads_);
  add(host_.counters().tiers[0].load_bytes, bytes_);
  const bool all = completion.items_done == completion.items;
  completion.status = all ? Code::ok : completion.items_done != 0 ? Code::partial : why;
  if (!all && completion.items_done == 0 && why == Code::ok) {
    const auto pending = [](uint16_t parts) { return parts != 0; };
    const bool chosen = leaves && std::any_of(pending_.begin(), pending_.end(), pending);
    completion.status =
        chosen ? Code::partial : *std::find_if(status_.begin(), status_.end(), [](Code c) { return c != Code::ok; });
  }
}

}  // namespace kvbm::manager

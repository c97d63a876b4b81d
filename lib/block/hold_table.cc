#include "block/hold_table.h"

#include <algorithm>
#include <new>

#include "base/thread/batch_lock.h"
#include "base/thread/thread_number.h"

namespace kvbm::block {

HoldTable::HoldTable(const Options& options)
    : tag_(options.tag),
      max_pages_(std::max(1U, options.max_holds / kPageHolds + (options.max_holds % kPageHolds != 0 ? 1U : 0U))),
      first_generation_(std::clamp(options.first_generation, 1U, kMaxGeneration)),
      pages_(std::make_unique<std::atomic<Page*>[]>(max_pages_)) {}

HoldTable::~HoldTable() {
  for (uint32_t i = 0; i < page_count_.load(std::memory_order_relaxed); ++i) {
    delete pages_[i].load(std::memory_order_relaxed);
  }
}

class HoldTable::LaneLock {
 public:
  explicit LaneLock(HoldTable& table) : table_(table), entries_(table) {}
  ~LaneLock() KVBM_NO_TSA {
    if (lane_ != nullptr) lane_->mutex.unlock();
  }
  // Takes the lock of the lane that a hold belongs to; at most one is held. Holds made together are in one lane. Null:
  // there is no such page.
  Lane* take(HoldValue value) KVBM_NO_TSA {
    const Page* const page = entries_.page(index_of(value));
    if (page == page_) return lane_;
    page_ = page;
    Lane* const lane = page == nullptr ? nullptr : &table_.lanes_[page->lane];
    if (lane == lane_) return lane_;
    if (lane_ != nullptr) lane_->mutex.unlock();
    lane_ = lane;
    if (lane_ != nullptr) BatchLock::lock(lane_->mutex);
    return lane_;
  }
  [[nodiscard]] Entries& entries() noexcept { return entries_; }

 private:
  HoldTable& table_;
  Entries entries_;
  const Page* page_ = nullptr;
  Lane* lane_ = nullptr;
};

HoldTable::BatchLanes::BatchLanes(HoldTable& table, std::span<const HoldValue> values) noexcept : table_(table) {
  Entries entries(table);
  const Page* last = nullptr;
  for (const HoldValue value : values) {
    const Page* const page = entries.page(index_of(value));
    if (page == last || page == nullptr) continue;
    last = page;
    lanes_ |= 1U << page->lane;
  }
  static_assert(kLanes <= 32);
  for (uint32_t left = lanes_; left != 0; left &= left - 1) {
    BatchLock::lock(table_.lanes_[static_cast<size_t>(__builtin_ctz(left))].mutex);
  }
}

HoldTable::BatchLanes::~BatchLanes() {
  for (uint32_t left = lanes_; left != 0; left &= left - 1) {
    table_.lanes_[static_cast<size_t>(__builtin_ctz(left))].mutex.unlock();
  }
}

// Gives the lane a page.
Code HoldTable::grow(uint32_t number) {
  MutexLock lock(growing_);
  const uint32_t count = page_count_.load(std::memory_order_relaxed);
  if (count == max_pages_) return Code::at_limit;
  Page* const page = new (std::nothrow) Page;
  if (page == nullptr) return Code::no_memory;
  const uint32_t base = count * kPageHolds;
  for (uint32_t i = 0; i < kPageHolds; ++i) {
    const uint32_t next = i + 1 < kPageHolds ? base + i + 1 : kNoSlot;
    page->words[i].store(make_word(next, first_generation_, 0), std::memory_order_relaxed);
    page->slot_generations[i].store(0, std::memory_order_relaxed);
  }
  page->lane = number;
  pages_[count].store(page, std::memory_order_release);
  page_count_.store(count + 1, std::memory_order_release);
  Lane& lane = lanes_[number];
  BatchLock held(lane.mutex);
  if (lane.tail == kNoSlot) {
    lane.head = base;
  } else {
    std::atomic<uint64_t>& tail = Entries(*this).word(lane.tail);
    const uint64_t word = tail.load(std::memory_order_relaxed);
    tail.store(make_word(base, generation_of(word), 0), std::memory_order_relaxed);
  }
  lane.tail = base + kPageHolds - 1;
  lane.free += kPageHolds;
  return Code::ok;
}

size_t HoldTable::create_in(Lane& lane, HoldKind kind, std::span<const SlotId> slots,
                            std::span<const uint32_t> slot_generations, std::span<HoldValue> out) noexcept {
  BatchLock lock(lane.mutex);
  const size_t n = std::min<size_t>(slots.size(), lane.free);
  Entries entries(*this);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t index = lane.head;
    Page& page = *entries.page(index);
    std::atomic<uint64_t>& entry = page.words[index % kPageHolds];
    const uint64_t free_word = entry.load(std::memory_order_relaxed);
    lane.head = slot_of(free_word);
    if (kind == HoldKind::weak) {
      // A reader that sees this generation finds, in the word, that the hold before has ended: resolve_by().
      page.slot_generations[index % kPageHolds].store(slot_generations[i], std::memory_order_release);
    }
    const uint32_t generation = generation_of(free_word);
    entry.store(make_word(slots[i], generation, static_cast<uint8_t>(kind)), std::memory_order_release);
    out[i] = make_value(index, generation, tag_);
  }
  lane.free -= static_cast<uint32_t>(n);
  if (lane.free == 0) lane.head = lane.tail = kNoSlot;
  return n;
}

Code HoldTable::create(HoldKind kind, std::span<const SlotId> slots, std::span<const uint32_t> slot_generations,
                       std::span<HoldValue> out) {
  if (out.size() < slots.size() || (kind == HoldKind::weak && slot_generations.size() != slots.size())) {
    return Code::invalid_argument;
  }
  const uint32_t mine = thread_number() % kLanes;
  size_t made = 0;
  Code code = Code::ok;
  // First its own lane, with as many new pages as that needs; if no page is left, free entries of other lanes.
  for (uint32_t other = 0; made < slots.size() && other < kLanes;) {
    const auto generations = kind == HoldKind::weak ? slot_generations.subspan(made) : slot_generations;
    made += create_in(lanes_[(mine + other) % kLanes], kind, slots.subspan(made), generations, out.subspan(made));
    if (made == slots.size()) break;
    if (code == Code::ok) code = grow(mine);
    if (code != Code::ok) ++other;
  }
  if (made == slots.size()) return Code::ok;
  LaneLock lock(*this);
  for (size_t i = made; i-- > 0;) end_one(*lock.take(out[i]), out[i], lock.entries());  // undone
  return code;
}

Code HoldTable::resolve(HoldValue value, Hold* out) const noexcept {
  Entries entries(*this);
  return resolve_by(entries, value, out);
}

Code HoldTable::resolve_by(Entries& entries, HoldValue value, Hold* out) const noexcept {
  *out = Hold{};
  uint64_t word = 0;
  const Code code = check(value, entries, &word);
  if (code != Code::ok) return code;
  out->slot = slot_of(word);
  out->kind = static_cast<HoldKind>(kind_of(word));
  if (out->kind == HoldKind::weak) {
    const uint32_t index = index_of(value);
    // Pairs with the release in create_in(): the generation may belong to the entry's next hold.
    out->slot_generation = entries.page(index)->slot_generations[index % kPageHolds].load(std::memory_order_acquire);
    if (entries.word(index).load(std::memory_order_acquire) != word) {
      *out = Hold{};
      return Code::stale_handle;
    }
  }
  return Code::ok;
}

size_t HoldTable::resolve(std::span<const HoldValue> values, std::span<Hold> out,
                          std::span<Code> codes) const noexcept {
  size_t resolved = 0;
  Entries entries(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    const Code code = resolve_by(entries, values[i], &out[i]);
    resolved += code == Code::ok ? 1 : 0;
    if (!codes.empty()) codes[i] = code;
  }
  return resolved;
}

// Puts the entry at the end of the free list.
void HoldTable::put_back(Lane& lane, uint32_t index, Entries& entries) noexcept {
  if (lane.tail == kNoSlot) {
    lane.head = index;
  } else {
    std::atomic<uint64_t>& tail = entries.word(lane.tail);
    tail.store(make_word(index, generation_of(tail.load(std::memory_order_relaxed)), 0), std::memory_order_relaxed);
  }
  lane.tail = index;
  ++lane.free;
}

// The hold is live, and the lock of its lane is held.
void HoldTable::end_one(Lane& lane, HoldValue value, Entries& entries) noexcept {
  const uint32_t index = index_of(value);
  const uint32_t generation = generation_of(value);
  const bool wraps = generation >= kMaxGeneration - 1;  // a new hold can be taken once
  entries.word(index).store(make_word(kNoSlot, wraps ? 0 : generation + 1, 0), std::memory_order_release);
  if (wraps) {
    ++lane.retired;
  } else {
    put_back(lane, index, entries);
  }
}

size_t HoldTable::end(std::span<const HoldValue> values, std::span<Hold> out, std::span<Code> codes) noexcept {
  size_t ended = 0;
  LaneLock lock(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    Lane* const lane = lock.take(values[i]);
    const Code code = resolve_by(lock.entries(), values[i], &out[i]);
    if (!codes.empty()) codes[i] = code;
    if (code != Code::ok) continue;
    ++ended;
    end_one(*lane, values[i], lock.entries());
  }
  return ended;
}

Code HoldTable::take_resolved(std::span<HoldValue> inout, std::span<const SlotId> slots) noexcept {
  for (const HoldValue value : inout) {
    if (generation_of(value) == kMaxGeneration) return Code::at_limit;
  }
  Entries entries(*this);
  for (size_t i = 0; i < inout.size(); ++i) {
    inout[i] += kOneGeneration;
    entries.word(index_of(inout[i]))
        .store(make_word(slots[i], generation_of(inout[i]), kTaken), std::memory_order_release);
  }
  return Code::ok;
}

// No lock: no other thread changes a taken entry.
void HoldTable::settle(std::span<const HoldValue> values, HoldKind kind, std::span<const SlotId> slots) noexcept {
  Entries entries(*this);
  for (size_t i = 0; i < values.size(); ++i) {
    entries.word(index_of(values[i]))
        .store(make_word(slots[i], generation_of(values[i]), static_cast<uint8_t>(kind)), std::memory_order_release);
  }
}

uint32_t HoldTable::live() const noexcept {
  uint32_t not_live = 0;
  for (const Lane& lane : lanes_) {
    MutexLock lock(lane.mutex);
    not_live += lane.free + lane.retired;
  }
  const uint32_t all = page_count_.load(std::memory_order_relaxed) * kPageHolds;
  return all > not_live ? all - not_live : 0;
}

size_t HoldTable::bytes() const noexcept {
  return sizeof *this + max_pages_ * sizeof(std::atomic<Page*>) +
         page_count_.load(std::memory_order_relaxed) * sizeof(Page);
}

}  // namespace kvbm::block

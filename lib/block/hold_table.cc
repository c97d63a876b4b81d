#include "block/hold_table.h"

#include <algorithm>
#include <new>

#include "block/batch_lock.h"

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

bool HoldTable::grow() {
  const uint32_t count = page_count_.load(std::memory_order_relaxed);
  if (count == max_pages_) return false;
  Page* const page = new (std::nothrow) Page;
  if (page == nullptr) return false;
  const uint32_t base = count * kPageHolds;
  for (uint32_t i = 0; i < kPageHolds; ++i) {
    const uint32_t next = i + 1 < kPageHolds ? base + i + 1 : kNoSlot;
    page->words[i].store(make_word(next, first_generation_, 0), std::memory_order_relaxed);
    page->slot_generations[i].store(0, std::memory_order_relaxed);
  }
  pages_[count].store(page, std::memory_order_release);
  page_count_.store(count + 1, std::memory_order_release);
  if (tail_ == kNoSlot) {
    head_ = base;
  } else {
    std::atomic<uint64_t>& tail = word_at(tail_);
    const uint64_t word = tail.load(std::memory_order_relaxed);
    tail.store(make_word(base, generation_of(word), 0), std::memory_order_relaxed);
  }
  tail_ = base + kPageHolds - 1;
  free_ += kPageHolds;
  return true;
}

Code HoldTable::create(HoldKind kind, std::span<const SlotId> slots, std::span<const uint32_t> slot_generations,
                       std::span<HoldValue> out) {
  if (out.size() < slots.size() || (kind == HoldKind::weak && slot_generations.size() != slots.size())) {
    return Code::invalid_argument;
  }
  BatchLock lock(lock_);
  while (free_ < slots.size()) {
    const bool full = page_count_.load(std::memory_order_relaxed) == max_pages_;
    if (!grow()) return full ? Code::no_room : Code::no_memory;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t index = head_;
    Page& page = *pages_[index / kPageHolds].load(std::memory_order_relaxed);
    std::atomic<uint64_t>& entry = page.words[index % kPageHolds];
    const uint64_t free_word = entry.load(std::memory_order_relaxed);
    head_ = slot_of(free_word);
    if (kind == HoldKind::weak) {
      page.slot_generations[index % kPageHolds].store(slot_generations[i], std::memory_order_relaxed);
    }
    const uint32_t generation = generation_of(free_word);
    entry.store(make_word(slots[i], generation, static_cast<uint8_t>(kind)), std::memory_order_release);
    out[i] = make_value(index, generation, tag_);
  }
  free_ -= static_cast<uint32_t>(slots.size());
  if (free_ == 0) head_ = tail_ = kNoSlot;
  return Code::ok;
}

size_t HoldTable::resolve(std::span<const HoldValue> values, std::span<Hold> out,
                          std::span<Code> codes) const noexcept {
  size_t resolved = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Code code = resolve(values[i], &out[i]);
    resolved += code == Code::ok ? 1 : 0;
    if (!codes.empty()) codes[i] = code;
  }
  return resolved;
}

// At the back of the free list.
void HoldTable::put_back(uint32_t index) {
  if (tail_ == kNoSlot) {
    head_ = index;
  } else {
    std::atomic<uint64_t>& tail = word_at(tail_);
    tail.store(make_word(index, generation_of(tail.load(std::memory_order_relaxed)), 0), std::memory_order_relaxed);
  }
  tail_ = index;
  ++free_;
}

size_t HoldTable::end(std::span<const HoldValue> values, std::span<Hold> out, std::span<Code> codes) noexcept {
  size_t ended = 0;
  BatchLock lock(lock_);
  for (size_t i = 0; i < values.size(); ++i) {
    const Code code = resolve(values[i], &out[i]);
    if (!codes.empty()) codes[i] = code;
    if (code != Code::ok) continue;
    ++ended;
    const uint32_t index = index_of(values[i]);
    const uint32_t generation = generation_of(values[i]);
    const bool wraps = generation == kMaxGeneration;
    word_at(index).store(make_word(kNoSlot, wraps ? 0 : generation + 1, 0), std::memory_order_release);
    if (wraps) {
      ++retired_;
    } else {
      put_back(index);
    }
  }
  return ended;
}

size_t HoldTable::renew(HoldKind kind, std::span<const SlotId> slots, std::span<HoldValue> inout,
                        std::span<Code> codes) noexcept {
  size_t renewed = 0;
  BatchLock lock(lock_);
  for (size_t i = 0; i < inout.size(); ++i) {
    uint64_t word = 0;
    Code code = kind == HoldKind::weak ? Code::invalid_argument : check(inout[i], &word);
    const uint32_t generation = generation_of(word);
    // An entry at its last generation retires when it ends; the caller ends it and creates another.
    if (code == Code::ok && generation == kMaxGeneration) code = Code::no_room;
    if (code == Code::ok) {
      const uint32_t index = index_of(inout[i]);
      word_at(index).store(make_word(slots[i], generation + 1, static_cast<uint8_t>(kind)), std::memory_order_release);
      inout[i] = make_value(index, generation + 1, tag_);
      ++renewed;
    }
    if (!codes.empty()) codes[i] = code;
  }
  return renewed;
}

uint32_t HoldTable::live() const noexcept {
  MutexLock lock(lock_);
  return page_count_.load(std::memory_order_relaxed) * kPageHolds - free_ - retired_;
}

size_t HoldTable::bytes() const noexcept {
  return sizeof *this + max_pages_ * sizeof(std::atomic<Page*>) +
         page_count_.load(std::memory_order_relaxed) * sizeof(Page);
}

}  // namespace kvbm::block

#include "manager/landing_room.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "manager/manager.h"

namespace kvbm::manager {

std::byte* StagedMemory::take() {
  MutexLock lock(mutex_);
  if (arena_ == nullptr && !map()) return nullptr;
  if (free_.empty()) return nullptr;
  std::byte* const block = free_.back();
  free_.pop_back();
  ++used_;
  return block;
}

bool StagedMemory::map() {
  constexpr uint64_t kHugePage = 2ULL << 20;  // a smaller mapping uses no huge page
  if (most_ == 0) return false;
  free_.reserve(most_);
  ArenaOptions options;
  options.bytes = most_ * stride_;
  options.huge_pages = huge_pages_ && options.bytes >= kHugePage;
  auto mapped = Arena::map(options);
  if (!mapped.ok()) return false;
  arena_ = std::move(mapped).value();
  for (uint64_t i = most_; i-- > 0;) free_.push_back(arena_->data() + i * stride_);
  return true;
}

void StagedMemory::give_back(std::byte* block) noexcept {
  MutexLock lock(mutex_);
  free_.push_back(block);
  --used_;
}

uint64_t StagedMemory::used_bytes() const {
  MutexLock lock(mutex_);
  return used_ * stride_;
}

StagedBlock::~StagedBlock() {
  if (memory != nullptr) {
    memory->give_back(bytes.data());
  } else {
    std::free(bytes.data());
  }
}

uint64_t LandingStaging::limit_for(uint64_t host_bytes) noexcept {
  constexpr uint64_t kMost = 16ULL << 20;
  return std::min(host_bytes / 2, kMost);
}

std::shared_ptr<StagedBlock> LandingStaging::take(bool beyond) {
  auto block = std::make_shared<StagedBlock>();
  if (auto* const place = memory_->take(); place != nullptr) {
    block->bytes = {place, block_bytes_};
    block->memory = memory_;
    return block;
  }
  if (!beyond) return nullptr;
  const size_t size = round_up(block_bytes_, kIoAlign);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kIoAlign, size));
  if (memory == nullptr) return nullptr;
  block->bytes = {memory, block_bytes_};
  return block;
}

Code take_slots(Manager& manager, block::AccountId account, size_t n, LandingRoom& out, bool evicting) {
  out.slots.assign(n, kNoSlot);
  size_t got = 0;
  const Code code = manager.allocate_leading(account, out.slots, got, evicting);
  out.slots.resize(got);
  return code;
}

void take_places(Manager& manager, block::AccountId account, size_t n, bool alone, LandingRoom& out) {
  out.staged.reserve(n);  // before there is a slot that could be lost
  // If the host has last copies, does not evict: a last copy is worth more than a copy of a record below.
  (void)take_slots(manager, account, manager.slots_to_land_in(n), out, !manager.host_has_last_copies());
  out.staged.resize(out.slots.size());
  while (out.count() < n) {
    auto block = manager.landing_staging().take(alone && out.count() == 0);
    if (block == nullptr) return;
    out.slots.push_back(kNoSlot);
    out.staged.push_back(std::move(block));
    add(manager.counters().load_staged, 1);
  }
}

}  // namespace kvbm::manager

#include "manager/host/landing_staging.h"

#include <algorithm>
#include <utility>

namespace kvbm::manager {

StagedBlock::~StagedBlock() {
  if (staging != nullptr) staging->give_back(bytes.data());
}

std::byte* LandingStaging::take_place() {
  MutexLock lock(mutex_);
  if (arena_ == nullptr && !map()) return nullptr;
  if (free_.empty()) return nullptr;
  std::byte* const block = free_.back();
  free_.pop_back();
  ++used_;
  return block;
}

bool LandingStaging::map() {
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

void LandingStaging::give_back(std::byte* block) noexcept {
  MutexLock lock(mutex_);
  free_.push_back(block);
  --used_;
}

uint64_t LandingStaging::used_bytes() const {
  MutexLock lock(mutex_);
  return used_ * stride_;
}

uint64_t LandingStaging::limit_for(uint64_t host_bytes) noexcept {
  constexpr uint64_t kMost = 16ULL << 20;
  return std::min(host_bytes / 2, kMost);
}

std::shared_ptr<StagedBlock> LandingStaging::take(bool beyond) {
  auto block = std::make_shared<StagedBlock>();
  if (auto* const place = take_place(); place != nullptr) {
    block->bytes = {place, block_bytes_};
    block->staging = shared_from_this();
    return block;
  }
  if (!beyond) return nullptr;
  block->own = aligned_bytes(kIoAlign, block_bytes_);
  if (block->own == nullptr) return nullptr;
  block->bytes = {block->own.get(), block_bytes_};
  return block;
}

}  // namespace kvbm::manager

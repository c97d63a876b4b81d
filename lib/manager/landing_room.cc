#include "manager/landing_room.h"

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/memory_wait.h"
#include "manager/manager.h"

namespace kvbm::manager {

StagedBlock::~StagedBlock() {
  const MemoryWait nobody_to_tell;
  if (pool != nullptr) {
    pool->give_back(bytes);
  } else {
    std::free(bytes.data());
  }
}

uint64_t LandingStaging::limit_for(uint64_t host_bytes) noexcept {
  constexpr uint64_t kMost = 16ULL << 20;
  return std::min(host_bytes / 4, kMost);
}

std::shared_ptr<StagedBlock> LandingStaging::take(bool beyond) {
  auto block = std::make_shared<StagedBlock>();
  block->bytes = pool_->take(block_bytes_);
  if (!block->bytes.empty()) {
    block->pool = pool_;
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
  // What nobody else has is not lost for a copy of what lies below.
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

#include "cluster/session/direct_staging.h"

#include <algorithm>
#include <utility>

namespace kvbm::cluster::session {

struct DirectStaging::Memory {
  enum class Step : uint8_t { none, asked, there, refused };
  SliceMover* mover = nullptr;
  Step step = Step::none;
  SharedMemory memory;
  std::vector<uint32_t> free;
  uint32_t failed_in_a_row = 0;
  bool has_worked = false;
};

DirectStaging::DirectStaging(const Options& options, Link& link) : options_(options), link_(link) {}
DirectStaging::~DirectStaging() = default;

DirectStaging::Memory& DirectStaging::of(SliceMover& mover) {
  for (auto& m : all_) {
    if (m->mover == &mover) return *m;
  }
  all_.push_back(std::make_unique<Memory>());
  all_.back()->mover = &mover;
  return *all_.back();
}

DirectStaging::Slot DirectStaging::take(PeerId peer, SliceMover& mover, uint64_t bytes) {
  Slot out;
  if (bytes < options_.least_bytes || bytes > options_.slot_bytes || !link_.takes_device_memory() ||
      without_.count(peer) != 0) {
    return out;
  }
  Memory& memory = of(mover);
  if (memory.step == Memory::Step::none) {
    memory.step = Memory::Step::asked;
    mover.direct(options_.slots * options_.slot_bytes, options_.written,
                 [self = std::weak_ptr<DirectStaging*>(self_), asked = &mover](Result<SharedMemory> result) {
                   if (const auto alive = self.lock()) (*alive)->made(asked, std::move(result));
                 });
  }
  if (memory.step != Memory::Step::there || memory.free.empty()) return out;
  out.memory_ = &memory;
  out.number_ = memory.free.back();
  memory.free.pop_back();
  return out;
}

void DirectStaging::made(const SliceMover* mover, Result<SharedMemory> result) {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& m) { return m->mover == mover; });
  Memory& memory = **at;
  Status status = result.status();
  if (status.ok()) status = link_.add_memory({result.value().data, result.value().bytes});
  if (!status.ok()) return give_up(memory, status.message());
  memory.free.reserve(options_.slots);
  for (uint32_t i = options_.slots; i-- > 0;) memory.free.push_back(i);
  memory.memory = std::move(result).value();
  memory.step = Memory::Step::there;
}

void DirectStaging::give(Slot& slot) noexcept {
  if (!slot.taken()) return;
  slot.memory_->free.push_back(slot.number_);  // capacity was reserved when it was made
  slot = {};
}

std::byte* DirectStaging::data(const Slot& slot) const noexcept {
  return slot.memory_->memory.data + slot.number_ * options_.slot_bytes;
}

void DirectStaging::place(const Slot& slot, SliceMove& move) const {
  move.payload = data(slot);
  move.shared = true;
  move.landed = options_.written;
  move.keep = slot.memory_->memory.keep;
}

void DirectStaging::worked(const Slot& slot) noexcept {
  slot.memory_->failed_in_a_row = 0;
  slot.memory_->has_worked = true;
}

void DirectStaging::failed(const Slot& slot, PeerId peer, const Status& why) {
  if (!without_.insert(peer).second) return;  // other transfers in progress on that connection
  Memory& memory = *slot.memory_;
  if (why.code() != Code::closed || !memory.has_worked) ++memory.failed_in_a_row;
  if (memory.failed_in_a_row >= kMostFailures && memory.step == Memory::Step::there) {
    return give_up(memory, why.message());
  }
  ++failures_;
  if (options_.note) {
    options_.note("a transfer of device memory failed, its connection goes on through host memory: " + why.message());
  }
}

// Slots in use stay so until they are released; the memory stays registered.
void DirectStaging::give_up(Memory& memory, const std::string& why) {
  ++failures_;
  memory.step = Memory::Step::refused;
  if (options_.note) options_.note("payloads of a device go through host memory: " + why);
}

uint32_t DirectStaging::taken() const noexcept {
  uint32_t taken = 0;
  for (const auto& m : all_) {
    if (m->memory.data != nullptr) taken += options_.slots - static_cast<uint32_t>(m->free.size());
  }
  return taken;
}

}  // namespace kvbm::cluster::session

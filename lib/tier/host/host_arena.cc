#include "tier/host/host_arena.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "codec/record.h"

namespace kvbm::tier {

namespace {

// What the first page of a named file says, so that only the same shape is taken up again.
constexpr uint64_t kSuperMagic = 0x3145'4D4F'484D'4256ULL;
struct Super {
  uint64_t magic;
  uint64_t version;
  uint64_t block_bytes;
  uint64_t slots;
};
constexpr uint64_t kSuperBytes = kIoAlign;
constexpr uint64_t kSuperVersion = 1;
// Attributes that a head of this library carries at most: a position and an engine's hash.
constexpr size_t kAttributeRoom = 128;

}  // namespace

size_t HostArena::head_stride(uint64_t block_bytes) noexcept {
  const uint64_t leaves = std::max<uint64_t>(1, (block_bytes + kIoAlign - 1) / kIoAlign);
  return round_up(codec::head_bytes(static_cast<uint32_t>(leaves), kAttributeRoom), 64);
}

Result<std::unique_ptr<HostArena>> HostArena::create(const HostOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > codec::kMaxRecordBytes / 2) {
    return Status(Code::bad_config, "host.block_bytes must be between 1 byte and 2 GiB");
  }
  auto arena = std::unique_ptr<HostArena>(new HostArena());
  arena->capacity_bytes_ = options.capacity_bytes;
  arena->block_bytes_ = options.block_bytes;
  arena->payload_stride_ = round_up(options.block_bytes, kIoAlign);
  arena->head_stride_ = head_stride(options.block_bytes);
  const uint64_t room = options.capacity_bytes > kSuperBytes ? options.capacity_bytes - kSuperBytes : 0;
  const uint64_t slots = std::min<uint64_t>(room / arena->slot_bytes(), kNoSlot - 1);
  if (slots == 0) {
    return Status(Code::bad_config, "the host tier is smaller than one block",
                  "host.capacity is " + std::to_string(options.capacity_bytes) +
                      " bytes, a block with its head takes " + std::to_string(arena->slot_bytes()) +
                      "; raise host.capacity or lower host.block_bytes");
  }
  arena->slots_ = static_cast<uint32_t>(slots);
  ArenaOptions memory;
  memory.bytes = kSuperBytes + slots * arena->slot_bytes();
  memory.file = options.file;
  memory.huge_pages = options.huge_pages;
  memory.interleave = options.interleave;
  memory.touch_threads = options.touch_threads;
  memory.shared = options.shared;
  auto mapped = Arena::map(memory);
  if (!mapped.ok()) return mapped.status();
  arena->memory_ = std::move(mapped).value();
  std::byte* base = arena->memory_->data();
  arena->payloads_ = base + kSuperBytes;
  arena->heads_ = arena->payloads_ + slots * arena->payload_stride_;
  if (!options.file.empty()) {
    const Super super{kSuperMagic, kSuperVersion, options.block_bytes, slots};
    arena->recovered_ = std::memcmp(base, &super, sizeof super) == 0;
    // Another shape: nothing of it can be used, and no head of it may be mistaken for one of ours.
    if (!arena->recovered_) std::memset(arena->heads_, 0, slots * arena->head_stride_);
    std::memcpy(base, &super, sizeof super);
  }
  return arena;
}

HostShape HostArena::shape() const noexcept {
  const auto at = [this](const std::byte* p) { return static_cast<uint64_t>(p - memory_->data()); };
  return {memory_->bytes(), block_bytes_, at(payloads_), payload_stride_, at(heads_), head_stride_, slots_};
}

void HostArena::clear_head(SlotId slot) const noexcept { store_le<uint64_t>(head(slot).data(), 0); }

std::string HostArena::describe() const {
  return std::to_string(slots_) + " blocks of " + std::to_string(block_bytes_) + " bytes, " + memory_->describe();
}

}  // namespace kvbm::tier

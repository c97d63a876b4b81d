#include "tier/host/host_arena.h"

#include <algorithm>
#include <cstring>

#include "base/io/file.h"
#include "codec/record/record.h"

namespace kvbm::tier {

namespace {

constexpr uint64_t kSuperBytes = HostFile::kBytes;
static_assert(kSuperBytes == kArenaHead);
static_assert(kSuperBytes == kIoAlign);
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
  arena->mark_stride_ = options.file.empty() ? 0 : sizeof(uint64_t);
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
  memory.may_take = &HostFile::is_one;
  memory.huge_pages = options.huge_pages;
  memory.interleave = options.interleave;
  memory.touch_threads = options.touch_threads;
  memory.shared = options.shared;
  auto mapped = Arena::map(memory);
  if (!mapped.ok() && mapped.status().code() == Code::in_use) {
    return Status(Code::in_use, "the host tier's file (host.file) is in use",
                  mapped.status().detail() + "; a file has one owner: name another, or end that one");
  }
  if (!mapped.ok() && mapped.status().code() == Code::exists) {
    return Status(Code::exists, "host.file names a file that is not a host tier's; nothing of it was changed",
                  mapped.status().detail());
  }
  const Code why = mapped.status().code();
  if (!options.file.empty() && (why == Code::not_permitted || why == Code::unsupported)) {
    return Status(why, "host.file cannot be used", mapped.status().message());
  }
  if (!mapped.ok()) return mapped.status();
  arena->memory_ = std::move(mapped).value();
  std::byte* base = arena->memory_->data();
  arena->payloads_ = base + kSuperBytes;
  arena->heads_ = arena->payloads_ + slots * arena->payload_stride_;
  if (!options.file.empty()) arena->open_file();
  return arena;
}

void HostArena::open_file() {
  std::byte* marks = heads_ + slots_ * head_stride_;
  file_.emplace(memory_->data(), block_bytes_, slots_);
  marks_ = {reinterpret_cast<uint64_t*>(marks), slots_};
  recovered_ = file_->begin();
  if (recovered_) return;
  // The file has another shape: none of it can be used, and none of it may be mistaken for a block of this process.
  file_->forget();
  std::memset(marks, 0, marks_.size_bytes());
  file_->found();
}

uint64_t HostArena::mark_of(SlotId slot) const noexcept {
  // Small values are the table's own and no mark of a head (block/slot_marks.h).
  return std::max<uint64_t>(codec::header_checksum(ConstBytes(head(slot)).first(codec::kHeaderBytes)), 2);
}

Status HostArena::sync() const noexcept {
  if (!file_.has_value()) return {};
  const auto at = static_cast<size_t>(reinterpret_cast<std::byte*>(marks_.data()) - memory_->data());
  const Status marks = memory_->sync(at, marks_.size_bytes());
  const Status super = memory_->sync(0, kSuperBytes);
  return marks.ok() ? super : marks;
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

// Device memory in which payloads stay until the decode side has read them, cut into slots (README.md, Shared device
// memory). A slot is identified by its pull, so that only that pull can release it. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cluster/session/facts.h"
#include "cluster/session/mover.h"

namespace kvbm::cluster::session {

class SharedSlots {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A decode rank's session at this side.
  struct Reader {
    RequestId request;
    uint16_t rank = 0;
    uint64_t session = 0;
    bool operator==(const Reader&) const = default;
  };

  // `memory` is large enough for all of them.
  SharedSlots(SharedMemory memory, uint32_t slots, uint64_t slot_bytes)
      : memory_(std::move(memory)), slot_bytes_(slot_bytes), taken_(slots) {
    for (uint32_t i = slots; i-- > 0;) free_.push_back(i);
  }

  [[nodiscard]] const SharedMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] uint32_t slots() const noexcept { return static_cast<uint32_t>(taken_.size()); }
  [[nodiscard]] uint64_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] uint32_t taken() const noexcept { return slots() - static_cast<uint32_t>(free_.size()); }
  [[nodiscard]] std::byte* data(uint32_t slot) const noexcept { return memory_.data + slot * slot_bytes_; }

  // Takes a slot; kNone when all are taken. It is being written until filled() or give().
  uint32_t take(const Reader& reader, uint64_t tag) noexcept {
    if (free_.empty()) return kNone;
    const uint32_t slot = free_.back();
    free_.pop_back();
    taken_[slot] = {reader, tag, State::written};
    return slot;
  }
  // Ends the writing of a slot: the reader may read it, and release it.
  void filled(uint32_t slot) noexcept { taken_[slot].state = State::read; }
  void give(uint32_t slot) noexcept {
    taken_[slot] = {};
    free_.push_back(slot);  // capacity was reserved when it was made
  }
  // Releases the slot of one pull on a reader's message; ignored if there is no such slot.
  void release(const Reader& reader, uint64_t tag) noexcept {
    for (uint32_t i = 0; i < slots(); ++i) {
      const Taken& t = taken_[i];
      if (t.state == State::read && t.tag == tag && t.reader == reader) return give(i);
    }
  }
  // Releases a reader's slots after its session has ended; slots being written stay taken until give().
  void release_all(const Reader& reader) noexcept {
    for (uint32_t i = 0; i < slots(); ++i) {
      if (taken_[i].state == State::read && taken_[i].reader == reader) give(i);
    }
  }

 private:
  enum class State : uint8_t { free, written, read };
  struct Taken {
    Reader reader;
    uint64_t tag = 0;
    State state = State::free;
  };
  SharedMemory memory_;
  uint64_t slot_bytes_;
  std::vector<Taken> taken_;
  std::vector<uint32_t> free_;
};

}  // namespace kvbm::cluster::session

// A host tier of another process on this host, mapped read-only, and the message that offers it.
//
// Invariant: the mapping is of sealed memory (base/memory/shared_memory.h): it can neither shrink nor get holes, so
// reading it never faults, even after its owner has died. It lives as long as this object. Readers verify the bytes
// (fetch.h): the owner may reuse any slot at any moment.
// Thread: any. Budget: payload() and head() are arithmetic; alive() is one system call.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "tier/host/host_arena.h"

namespace kvbm::copy::local {

// Sent with the descriptor: the pool's id and its layout. Little-endian, in this order.
struct PoolOffer {
  uint64_t id = 0;  // random, unique for each pool ever made: so a location in an owner's former pool is recognised
  tier::HostShape shape;
};
inline constexpr size_t kOfferBytes = 64;
void encode(const PoolOffer& offer, std::byte* out) noexcept;
// damaged if a slot would lie outside the mapping or overlap another one.
Result<PoolOffer> decode_offer(ConstBytes bytes);

class RemotePool {
 public:
  // Checks the seals and maps. owner is a pidfd, owner_pid is for messages.
  static Result<std::shared_ptr<RemotePool>> map(int fd, const PoolOffer& offer, Fd owner, pid_t owner_pid);
  ~RemotePool();
  RemotePool(const RemotePool&) = delete;
  RemotePool& operator=(const RemotePool&) = delete;

  [[nodiscard]] uint64_t id() const noexcept { return offer_.id; }
  [[nodiscard]] const tier::HostShape& shape() const noexcept { return offer_.shape; }
  [[nodiscard]] pid_t owner_pid() const noexcept { return owner_pid_; }
  // Returns empty bytes if the pool has no such slot.
  [[nodiscard]] ConstBytes payload(SlotId slot) const noexcept {
    if (slot >= offer_.shape.slots) return {};
    return {data_ + offer_.shape.payload_at + offer_.shape.payload_stride * slot, offer_.shape.payload_stride};
  }
  [[nodiscard]] ConstBytes head(SlotId slot) const noexcept {
    if (slot >= offer_.shape.slots) return {};
    return {data_ + offer_.shape.head_at + offer_.shape.head_stride * slot, offer_.shape.head_stride};
  }
  // Returns false once the owner's process has ended. Its records can still be read, and will never change.
  [[nodiscard]] bool alive() const noexcept;
  // The connection of its owner has closed: locations in it are no longer reported.
  void mark_gone() noexcept { gone_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

 private:
  RemotePool() = default;
  PoolOffer offer_;
  Fd owner_;
  pid_t owner_pid_ = 0;
  std::atomic<bool> gone_{false};  // relaxed: nothing is published with it
  const std::byte* data_ = nullptr;
};

}  // namespace kvbm::copy::local

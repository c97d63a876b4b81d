// Storing: engine blocks become host records, hashed on the way, visible only when complete.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "block/block_table.h"
#include "codec/record/record.h"
#include "manager/host/duplicate_resolver.h"
#include "manager/host/space_queue.h"
#include "manager/operation/cache.h"
#include "manager/operation/leaf_mover.h"
#include "manager/operation/operation.h"

namespace kvbm::device {
class StreamPoint;
}

namespace kvbm::manager {

struct StoreRequest {
  std::shared_ptr<Cache> cache;
  std::vector<Key> keys;
  std::vector<uint32_t> block_ids;  // [parts][keys * units]
  std::optional<Key> parent;
  bool unchained = false;
  std::vector<Key> unit_keys;              // empty, or `units` per key: the engine's own blocks
  std::vector<codec::Position> positions;  // empty, or one per key
  uint8_t priority = 0;
  uint64_t deadline_ns = kNever;
  std::shared_ptr<device::StreamPoint> after;  // a cache on a device: begin after it; null: at once
  std::span<int32_t> item_status;              // caller's; empty if not wanted
};

class StoreOperation final : public Operation, public SpaceWaiter {
 public:
  explicit StoreOperation(StoreRequest request);

  void space_may_be_free() override { wake(); }

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;
  [[nodiscard]] bool quiet() noexcept override;

 private:
  // Blocks of the host that may be evicted for a store: only those that are below, or also those that could not be
  // written there in time.
  enum class Loss : uint8_t { nothing, what_must };
  static constexpr size_t kChunk = 64;  // keys that take slots, and are published, together
  // A chunk on a device has as many keys as fit these bytes, because a device should not idle between two chunks.
  static constexpr size_t kDeviceChunk = 1024;
  static constexpr uint64_t kDeviceChunkBytes = 128ULL << 20;
  // One key of the chunk that must be copied. Its head is written only when all its leaves are back.
  struct Fresh {
    size_t key = 0;
    SlotId slot = kNoSlot;
    uint32_t back = 0;  // leaves
    Code code = Code::ok;
  };

  void hand_over();
  Next await_handover();
  void note_stored();
  void end_handover(Code why);
  [[nodiscard]] size_t chunk_keys() const noexcept;
  Next open_chunk();
  [[nodiscard]] DuplicateResolver resolver(size_t first) const;
  void leave_others();
  [[nodiscard]] std::vector<size_t> find_missing();
  Next take_slots(std::span<const size_t> missing);
  bool take_leading(std::span<const size_t> missing, Loss loss, Code& code);
  bool release_last();
  void end_wait(bool got_some);
  void give_up(std::span<const size_t> missing, Code code);
  void cut_chunk(size_t keys);
  Next move_some();
  bool walk();
  void take_back();
  void complete(size_t index);
  [[nodiscard]] std::span<codec::Leaf> leaves_of(size_t index) noexcept;
  void drop_failed();
  void close_chunk();
  void publish_run(size_t first, size_t count, SlotId parent);
  Code finish_record(const Fresh& fresh, std::span<const codec::Leaf> leaves);
  // Members for a cache on a device (store_device.cc).
  struct Flight;
  void begin_flight();
  void release_unpublished(std::span<const SlotId> slots);
  void fail(size_t key, Code code);
  [[nodiscard]] const Key* parent_of(size_t key) const noexcept;
  [[nodiscard]] std::span<const Key> units_of(size_t key) const noexcept;
  [[nodiscard]] std::span<const uint32_t> ids_of(size_t part, size_t key) const noexcept;
  // Returns whether the engine has this block of the part: all units, none, or some (which is refused).
  [[nodiscard]] Code has_block(size_t part, size_t key) const noexcept;

  StoreRequest request_;
  TierStack& stack_;
  HostTier& host_;
  std::vector<PartPlan> plans_;
  std::vector<Code> status_;   // per key, the worst of its parts
  std::vector<bool> decided_;  // per key: its last part is done or it failed
  size_t part_ = 0;
  size_t chunk_first_ = 0;
  bool chunk_open_ = false;
  std::vector<SlotId> present_;  // per key of the chunk: resident slot with a reference, or kNoSlot
  std::vector<Fresh> fresh_;
  size_t at_ = 0;                   // index in fresh_ of the record being copied
  uint32_t leaf_ = 0;               // its next leaf
  std::shared_ptr<Flight> flight_;  // null: the tensors are host memory
  HostGather host_mover_;
  LeafMover* mover_ = &host_mover_;  // or that of flight_
  size_t most_keys_ = kChunk;        // of a chunk; kDeviceChunk on a device
  bool lost_ = false;                // leaves did not come back because the device was lost
  std::vector<codec::Leaf> leaves_;  // of all records in fresh_, one record after the other
  SlotId last_ = kNoSlot;            // slot of the key before the chunk, with a reference; kNoSlot if it need not stay
  SlotId sent_down_ = kNoSlot;       // the last one that was written back to be released
  bool follows_nothing_ = false;     // the previous block is in no tier
  Loss loss_ = Loss::nothing;
  uint64_t bytes_ = 0;
  const TierIndex required_;                     // LowerTiers::required_tier, when this began
  const uint64_t place_;                         // in the space queue
  uint64_t waits_since_ns_ = 0, waited_ns_ = 0;  // for slots
  Code no_room_ = Code::ok;  // of this part: why one of its keys got no slot; later keys fail with the same code
  // Outcome for blocks that a tier below must have before the store completes. That tier's reports write it and hold
  // the operation. Some may arrive after its end.
  std::vector<std::atomic<int32_t>> tier_codes_;  // per key, the first failure; empty: no tier must have the blocks
  std::vector<std::atomic<uint32_t>> tier_open_;  // per key: parts
  std::atomic<size_t> tier_waiting_{0};           // reports to come; pairs with the read in await_handover()
  bool noted_ = false;                            // the stored blocks, for flushes
};

}  // namespace kvbm::manager

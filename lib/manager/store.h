// Storing: engine blocks become host records, hashed on the way, visible only when complete.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "block/block_table.h"
#include "codec/record.h"
#include "manager/cache.h"
#include "manager/newcomers.h"
#include "manager/operation.h"
#include "manager/room_line.h"

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
  std::vector<Key> unit_keys;  // empty, or `units` per key: the engine's own blocks
  std::vector<codec::Position> positions;  // empty, or one per key
  uint8_t priority = 0;
  uint64_t deadline_ns = kNever;
  std::shared_ptr<device::StreamPoint> after;  // a cache on a device: begin after it; null: at once
  std::span<int32_t> item_status;  // caller's; empty if not wanted
};

class StoreOperation final : public Operation, public RoomSeeker {
 public:
  explicit StoreOperation(StoreRequest request);

  void room_may_be() override { wake(); }

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;
  [[nodiscard]] bool quiet() noexcept override;

 private:
  // Which blocks of the host may go for these: what lies below, and also what should and could not be written there in time.
  enum class Loss : uint8_t { nothing, what_must };
  static constexpr size_t kChunk = 64;  // keys whose slots are taken together, and that are published together
  // Of a cache on a device, which should not wait between two chunks: as many keys as have so many bytes.
  static constexpr size_t kDeviceChunk = 1024;
  static constexpr uint64_t kDeviceChunkBytes = 128ULL << 20;
  // One key of the chunk that must be copied.
  struct Fresh {
    size_t key;
    SlotId slot;
  };

  // What came of the blocks that a tier below must have before the store is over; shared with that tier's reports.
  struct Handover {
    explicit Handover(size_t n) : codes(n) {}
    std::vector<std::atomic<int32_t>> codes;  // per key, the first failure
    std::vector<std::atomic<uint32_t>> open = std::vector<std::atomic<uint32_t>>(codes.size());  // per key: parts
    std::atomic<size_t> waiting{1};  // for these, and for all to be sent; its release pairs with step's acquire
  };

  void hand_over();
  Next await_handover();
  void note_stored();
  void end_handover(Code why);
  [[nodiscard]] size_t chunk_keys() const noexcept;
  Next open_chunk();
  [[nodiscard]] Newcomers newcomers(size_t first) const;
  void leave_others();
  [[nodiscard]] std::vector<size_t> find_missing();
  Next take_slots(std::span<const size_t> missing);
  bool take_leading(std::span<const size_t> missing, Loss loss, Code& code);
  bool let_go_of_last();
  void end_wait(bool got_some);
  void give_up(std::span<const size_t> missing, Code code);
  void cut_chunk(size_t keys);
  Next copy_some();
  void close_chunk();
  void publish_run(size_t first, size_t count, SlotId parent);
  Code finish_record(const Fresh& fresh, std::span<const codec::Leaf> leaves);
  // store_device.cc; of a cache on a device
  struct Flight;
  void begin_flight();
  void came_back();
  void let_go(std::span<const SlotId> slots);
  [[nodiscard]] bool is_lost() const noexcept;
  Next move_some();
  void take_back();
  bool add_leaves();
  void drop_failed();
  void fail(size_t key, Code code);
  [[nodiscard]] const Key* parent_of(size_t key) const noexcept;
  [[nodiscard]] std::span<const Key> units_of(size_t key) const noexcept;
  [[nodiscard]] std::span<const uint32_t> ids_of(size_t part, size_t key) const noexcept;
  // Whether the engine has this block of the part: all units, none, or some (which is refused).
  [[nodiscard]] Code has_block(size_t part, size_t key) const noexcept;

  StoreRequest request_;
  Manager& manager_;
  std::vector<PartPlan> plans_;
  std::vector<Code> status_;  // per key, the worst of its parts
  std::vector<bool> decided_;  // per key: its last part is done or it failed
  size_t part_ = 0;
  size_t chunk_first_ = 0;
  bool chunk_open_ = false;
  std::vector<SlotId> present_;  // per key of the chunk: resident slot with a reference, kNoSlot
  std::vector<Fresh> fresh_;
  size_t at_ = 0;       // fresh_ being copied
  uint32_t leaf_ = 0;   // next leaf of it
  std::shared_ptr<Flight> flight_;  // null: the tensors are host memory
  std::vector<codec::Leaf> leaves_;
  SlotId last_ = kNoSlot;  // slot of the key before the chunk, with a reference; none where it need not stay
  SlotId sent_down_ = kNoSlot;  // the last one that was, to be let go of
  bool follows_nothing_ = false;  // the block before is nowhere
  Loss loss_ = Loss::nothing;
  uint64_t bytes_ = 0;
  const TierIndex reach_;  // Manager::stores_reach, when this began
  const uint64_t place_;   // in the line for room
  uint64_t waits_since_ns_ = 0, waited_ns_ = 0;  // for room
  Code no_room_ = Code::ok;  // of this part: what refused room to one of its keys, and to all that follow
  std::shared_ptr<Handover> handover_;
  bool all_sent_ = false;  // to it
  bool noted_ = false;  // what was stored, for flushes
};

}  // namespace kvbm::manager

// Movers of leaves between the engine's pages and records, which hash each leaf on the way: the processor moves at
// once, a device in batches (device_mover.h).
//
// An operation walks over the leaves of its records and adds them to its mover. add() answers for leaves that were
// moved at once; take() answers for the others, after their batch has ended. Used by the operation's steps, which never
// run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function.h"
#include "base/status.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "manager/operation/cache.h"

namespace kvbm::manager {

struct CodedLanding;

// A record with leaves to move. The payload lives until its last leaf is back, the rest through the call.
struct LeafRecord {
  std::byte* payload = nullptr;  // only read on the way into pages
  // Its hashes are compared; null: nothing is compared, and the payload is plain and in host memory.
  const codec::HeadView* head = nullptr;
  const CodedLanding* coded = nullptr;  // null: the payload is plain
  bool on_device = false;               // the payload is memory of the device
};

// A leaf of a part, and where the engine has it.
struct LeafPlace {
  const CachePart& part;
  uint32_t index = 0;
  codec::Leaf leaf;         // as CachePart::leaf() has it
  uint32_t block = 0;       // of the engine
  uint32_t last_layer = 0;  // leaves behind it in the same unit may go along, up to this layer
};

class LeafMover {
 public:
  struct Added {
    Code code = Code::ok;  // else nothing was added; damaged: the leaf is not the expected one
    uint32_t leaves = 0;   // number of leaves added, that one first; 0: the batch is full
    uint32_t away = 0;     // leaves that take() will answer for
    uint64_t moved = 0;    // bytes that were moved at once
    uint64_t spent = 0;    // bytes that the processor has copied or decoded for this
    uint64_t hash = 0;     // of a leaf that was moved at once
  };
  // Leaves of one record that are back.
  struct Moved {
    size_t record = 0;
    uint32_t first = 0;
    uint32_t leaves = 0;
    uint64_t bytes = 0;
    Code code = Code::ok;  // damaged: one of them is not the expected one
    // Of each leaf, if the code is ok or damaged; valid until the next take().
    std::span<const uint64_t> hashes;
  };
  LeafMover() = default;
  virtual ~LeafMover() = default;
  LeafMover(const LeafMover&) = delete;
  LeafMover& operator=(const LeafMover&) = delete;

  // Adds a leaf, and those behind it that go along. `number` is the operation's own, for take().
  virtual Added add(size_t number, const LeafRecord& record, const LeafPlace& place) = 0;
  // Overwrites pages that a stream would else take for loaded. Of a mover that works at once no stream waits.
  virtual void overwrite(const StridedRun& /*run*/) {}
  [[nodiscard]] virtual bool full() const noexcept { return false; }
  // Returns true if nothing can be moved any more.
  [[nodiscard]] virtual bool is_lost() const noexcept { return false; }
  // Returns false while as many batches are away as can be.
  [[nodiscard]] virtual bool can_send() const noexcept { return true; }
  // Returns true if nothing waits to be sent.
  [[nodiscard]] virtual bool empty() const noexcept { return true; }
  // Sends what was added since the last call. `ended` runs on another thread when the batch has ended; objects that it
  // holds live until then.
  virtual void send(UniqueFunction<void()> /*ended*/) {}
  // Returns the number of batches that may still touch memory of the engine or of a record.
  [[nodiscard]] virtual size_t away() const noexcept { return 0; }
  // Takes the next answer; false: there is none now.
  virtual bool take(Moved& /*out*/) { return false; }
};

// Copies leaves of records into pages.
class HostScatter final : public LeafMover {
 public:
  // Sets how the pages are written. The caller orders the copies (codec::CopyOrder::later).
  void use(codec::CopyHint hint) noexcept { hint_ = hint; }
  Added add(size_t number, const LeafRecord& record, const LeafPlace& place) override;

 private:
  codec::CopyHint hint_ = codec::CopyHint::automatic;
};

// Copies leaves out of pages into records. The caller orders the copies.
class HostGather final : public LeafMover {
 public:
  Added add(size_t number, const LeafRecord& record, const LeafPlace& place) override;
};

}  // namespace kvbm::manager

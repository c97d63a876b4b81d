// Batches of leaves between an engine's device memory and records in host memory, hashed on the device.
//
// Two directions, each with its own streams; batches of a direction run in the order given. A batch is cut so that its
// parts follow each other in a pipeline. Paths, chosen by transfer_plan: kernels that read or write mapped host memory;
// kernels and one large copy through device staging; copies straight between pages and record where pieces are long.
//
// Order. With a stream of the caller's a batch begins only after what that stream holds now; nothing of the caller's
// waits for the batch unless it asks (Landmarks). Life: memory named in a batch stays the batch's until `done`, which
// runs exactly once, on the executor, also for a lost device. Thread: any. Blocks: no.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/executor.h"
#include "base/function.h"
#include "base/status.h"
#include "device/device.h"

namespace kvbm::device {

// A leaf to move. `device` is a run of device memory of this device; `record` is host memory, pinned (PinnedHost) or not:
// what is not pinned goes through pinned staging.
struct LeafMove {
  StridedRun device;
  std::byte* record = nullptr;
  uint64_t expected = 0;  // into the device: the hash that it must have
  bool check = true;      // into the device: compare with `expected`, else only report the hash
};

// The word in which a batch says on the device how far it is, for streams of the engine that wait for it without the CPU
// (Transfers::wait_on). Values only rise.
class Landmark;

struct TransferBatch {
  std::vector<LeafMove> leaves;   // in the order that they should land
  CuStream after = nullptr;       // begins after what this stream holds at submit; with has_after (0 is a stream too)
  bool has_after = false;
  // Into the device: when leaves [0, marks[i].leaf_count) have landed and been checked, `landmark` becomes marks[i].value.
  struct Mark {
    size_t leaf_count;
    uint64_t value;
  };
  std::vector<Mark> marks;
  std::shared_ptr<Landmark> landmark;
  // Filled before done: per leaf the hash of what was moved, and whether it was the expected one (true without check).
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> good;
  // ok: everything was moved (look at `good`); tier_disabled: the device is lost, nothing may be believed; no_memory.
  UniqueFunction<void(TransferBatch&, Code)> done;
};

struct TransferOptions {
  uint32_t multiprocessors = 8;          // that kernels of transfers use at most, so that the engine's keep theirs
  uint64_t staging_bytes = 64ULL << 20;  // of device memory, both directions together; and as much pinned
  uint64_t part_bytes = 4ULL << 20;      // batches are cut into parts of about this size
};

struct TransferStats {
  uint64_t batches = 0, leaves = 0, bytes = 0;
  uint64_t mapped_leaves = 0, staged_leaves = 0, straight_leaves = 0, bounced_leaves = 0;
  uint64_t bad_leaves = 0;
  uint64_t device_ns = 0;  // between the first and the last event of each part
};

class Transfers {
 public:
  static Result<std::unique_ptr<Transfers>> create(std::shared_ptr<Device> device, const TransferOptions& options,
                                                   Executor& executor);
  virtual ~Transfers() = default;
  // From device memory into records; `expected` is not read.
  virtual void gather(TransferBatch batch) = 0;
  // From records into device memory.
  virtual void scatter(TransferBatch batch) = 0;
  // A landmark at value 0; null where the device cannot.
  virtual std::shared_ptr<Landmark> landmark() = 0;
  // What is enqueued on `stream` from now on waits until the landmark has reached `value`. Never blocks the caller.
  virtual Status wait_on(const Landmark& landmark, uint64_t value, CuStream stream) = 0;
  // Raises a landmark from the CPU, for batches that will never come.
  virtual void raise(const Landmark& landmark, uint64_t value) = 0;
  [[nodiscard]] virtual TransferStats gathers() const = 0;
  [[nodiscard]] virtual TransferStats scatters() const = 0;
  [[nodiscard]] virtual Device& device() const noexcept = 0;
};

}  // namespace kvbm::device

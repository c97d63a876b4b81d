// Batches of leaves between an engine's device memory and records in host memory, hashed on the device.
//
// Two directions, each with its own streams and watcher; batches of a direction begin in the order given (one that could
// only wait for another is passed by it, see `after`). A batch is cut into parts that follow each other in a pipeline.
// Paths, chosen by transfer_plan: kernels that read or write mapped host memory; kernels and one large copy through
// device staging; copies straight between pages and record where pieces are long; kernels alone where a record is on the
// device itself. Records in memory that is not pinned
// go through pinned staging, copied by tasks on the executor. Coded leaves cross the bus as they are and are decoded there.
//
// Order. A batch begins only after what its StreamPoint stands for; nothing of the caller's waits for the batch unless
// it asks (wait_on). Life: memory named in a batch stays the batch's until `done`, which runs exactly once, on the
// executor, never inside a call of this interface, also for a lost device. Thread: any. Blocks: no, but the destructor,
// which waits until everything under way has ended; on an executor that its own caller drives, nothing may be under way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/executor.h"
#include "base/function.h"
#include "base/status.h"
#include "codec/record.h"
#include "device/device.h"
#include "device/pinned_host.h"
#include "device/transfer_plan.h"

namespace kvbm::device {

class LeafTable;  // device/leaf_table.h

// A leaf to move. `device` is a run of device memory of this device; `record` is host memory, inside of what
// Transfers::know() was told or anywhere else, where it goes through pinned staging; or memory of the device itself. 1 byte to codec::kMaxLeafBytes.
struct LeafMove {
  StridedRun device;
  std::byte* record = nullptr;
  uint64_t expected = 0;  // into the device: the hash that it must have
  // Many leaves at once: [first_leaf, first_leaf + leaf_count) of block `block` as the table has them, in group_end()'s bounds,
  // which lie one after the other at `record`. `device` is table_run(); `expected` is the place of their hashes in
  // TransferBatch::expected. Raw, on the host's side, no poison. The table lives until `done`.
  const LeafTable* table = nullptr;
  uint32_t block = 0;
  uint32_t first_leaf = 0;
  uint32_t leaf_count = 1;
  // Into the device: not raw: `record` holds a coded leaf (codec/README.md) of coded_bytes, which a kernel decodes into
  // the run; `expected` and the hash are of the plain bytes. Only where Transfers::decodes() says so. A leaf that cannot
  // be decoded, whatever is wrong with it, is not good, and its hash is 0.
  uint32_t coded_bytes = 0;
  codec::LeafCodec codec = codec::LeafCodec::raw;
  bool check = true;  // into the device: compare with `expected`, else only report the hash
  // The coded bytes must have this leaf hash, else the leaf is not good. What is decoded vouches for itself, and so does a
  // leaf of another block: unless somebody has compared what lies at `record` with where it should come from, check it.
  bool check_coded = false;
  // `record` is an address of the device: memory of its own, or of another process that it has mapped (ipc.h). A kernel
  // moves such a leaf from device memory to device memory; never a coded one.
  bool on_device = false;
  // Into the device: nothing is moved. The run is overwritten with 0xFF, before the marks behind it; `record` is not read,
  // the hash is 0 and the leaf good. For what others of its block, which are not right, must not be taken together with.
  bool poison = false;
  uint64_t coded_hash = 0;
  // Where the first of them lies, and how many bytes all of them are.
  static StridedRun table_run(const LeafTable& table, uint32_t first, uint32_t count, uint32_t block) noexcept;
  // What lies at `record`.
  [[nodiscard]] uint64_t record_bytes() const noexcept {
    if (poison) return 0;
    return codec == codec::LeafCodec::raw ? device.total() : coded_bytes;
  }
};

// What a stream of the caller held at one moment: device/stream_point.h.
class StreamPoint;
// The word in which batches say on the device how far they are, for streams of the engine that wait for it without the
// CPU (Transfers::wait_on). Values only rise: device/landmark.h.
class Landmark;
// How streams wait for a landmark.
enum class LandmarkKind : uint8_t {
  on_device,  // for its word, also before the part that writes it was issued
  issued,     // for the event behind the part; the CPU blocks until that was issued. The device writes no word
};

struct TransferBatch {
  std::vector<LeafMove> leaves;        // in the order that they should land; some of them may be many (LeafMove::table)
  std::vector<uint64_t> expected;      // hashes of those
  std::shared_ptr<StreamPoint> after;  // begins behind it; null: at once
  bool settles = false;                // what network cards have written to its records is made visible before (direct_memory.h)
  // Into the device: when entries [0, marks[i].leaf_count) of `leaves` have landed and been checked, `landmark` becomes at least
  // marks[i].value. Both rise from mark to mark, and values also from batch to batch of one landmark.
  // Whatever becomes of the batch, the last value is reached in the end; leaves that did not land are overwritten with
  // 0xFF before, as far as the device still takes orders.
  struct Mark {
    size_t leaf_count;
    uint64_t value;
  };
  std::vector<Mark> marks;
  std::shared_ptr<Landmark> landmark;
  // Whatever must live while the device may touch memory of this batch: what gives the record's room back, say. Dropped
  // after `done` has returned; when the device was lost while it may still write, not before that is over, and where
  // nobody can know, at the end of the process: a late write must never find the memory in other hands.
  std::shared_ptr<void> keep;
  // Filled before done: per leaf (of an entry that is many, one after the other) the hash of what was moved, and whether it was the expected one (1 without check). Of a
  // gather: 0 where what was copied out of pinned staging is not what the device says it read: the record is no record.
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> good;
  // ok: everything was moved (look at `good`). Else nothing may be believed, and what `batch` holds is unspecified
  // (after tier_disabled even `leaves` is empty). tier_disabled: the device is lost; a scatter's pages may still be
  // written. no_memory, invalid_argument (of a leaf or mark), internal (the driver refused), damaged (`settles` was
  // refused), deadline (a stream that waits for its landmark had to be let past, DriverWatch): it will not touch them again.
  UniqueFunction<void(TransferBatch& batch, Code code)> done;
};

struct TransferOptions {
  uint32_t multiprocessors = 8;          // that kernels of transfers use at most, so that the engine's keep theirs
  uint64_t staging_bytes = 64ULL << 20;  // of device memory, both directions together; and as much pinned if needed
  uint64_t part_bytes = 4ULL << 20;      // batches are cut into parts of about this size
  // Without a sign of progress for so long, although the streams of the caller that it waits for have come so far, the
  // device is given up. kNever: never.
  uint64_t stall_ns = 10'000'000'000ULL;
  PlanLimits plan;
};

struct TransferStats {
  uint64_t batches = 0, leaves = 0, bytes = 0;  // of batches that ended with ok
  uint64_t mapped_leaves = 0, staged_leaves = 0, straight_leaves = 0, bounced_leaves = 0, decoded_leaves = 0;
  uint64_t inside_leaves = 0;  // from device memory to device memory
  uint64_t bad_leaves = 0;
  uint64_t failed_batches = 0;
  uint64_t device_ns = 0;  // between the first and the last event of each part
};

// Whether kernels of the device decode this leaf, of whose coded bytes at least the first 64 are there: a form whose decoder
// is in what was loaded. False: the CPU must.
[[nodiscard]] bool decodes_on(const Device& device, codec::LeafCodec codec, ConstBytes coded) noexcept;

class Transfers {
 public:
  // no_memory: staging; unsupported: a device that cannot map host memory. `executor` must outlive it.
  static Result<std::unique_ptr<Transfers>> create(std::shared_ptr<Device> device, const TransferOptions& options,
                                                   Executor& executor);
  virtual ~Transfers() = default;
  // Records inside `memory` are reached directly by batches given from now on.
  virtual void know(std::shared_ptr<const PinnedHost> memory) = 0;
  // What `stream` holds now. To be asked for in the engine's call, before anything that waits for the batch is put on
  // the stream: a batch behind its own waiter never begins. 0 and the legacy and per-thread streams are those of the
  // device's primary context and this thread. invalid_argument: a stream of another device, of a context that is gone,
  // one that is being captured into a graph, or none at all; tier_disabled: the device is lost.
  virtual Result<std::shared_ptr<StreamPoint>> point(CuStream stream) = 0;
  // From device memory into records; `expected` is not read, marks are not either.
  virtual void gather(TransferBatch batch) = 0;
  // From records into device memory.
  virtual void scatter(TransferBatch batch) = 0;
  // decodes_on() of the device.
  [[nodiscard]] virtual bool decodes(codec::LeafCodec codec, ConstBytes coded) const noexcept = 0;
  // A landmark at value 0; null where there is no memory for one or the device is lost.
  virtual std::shared_ptr<Landmark> landmark(LandmarkKind kind = LandmarkKind::on_device) = 0;
  // Makes what is enqueued on `stream` from now on wait until the landmark has reached `value` (below 2^62). Errors as of
  // point(). Blocks for LandmarkKind::issued alone: until the driver was given what `value` stands for, or the landmark
  // was raised.
  virtual Status wait_on(const std::shared_ptr<Landmark>& landmark, uint64_t value, CuStream stream) = 0;
  // Raises a landmark from the CPU, for batches that will never come; not before those of it that are under way ended.
  virtual void raise(Landmark& landmark, uint64_t value) = 0;
  [[nodiscard]] virtual TransferStats gathers() const = 0;
  [[nodiscard]] virtual TransferStats scatters() const = 0;
  [[nodiscard]] virtual Device& device() const noexcept = 0;
};

}  // namespace kvbm::device

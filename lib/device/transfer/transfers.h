// Batches of leaves between an engine's device memory and records in host memory, hashed on the device.
//
// There are two directions, each with its own streams and watcher. Batches of a direction begin in the order given; a
// batch that could only wait for another is passed by it (see `after`). A batch is cut into parts that follow each
// other in a pipeline.
// transfer_plan chooses the paths:
//   - kernels that read or write mapped host memory
//   - kernels and one large copy through device staging
//   - direct copies between pages and record, for long pieces
//   - kernels alone, for a record on the device itself
// Records in memory that is not pinned go through pinned staging, copied by tasks on the executor. Coded leaves cross
// the bus coded and are decoded on the device.
//
// Order. A batch begins only after the work that its StreamPoint stands for; nothing of the caller's waits for the
// batch unless asked (wait_on). Life: memory named in a batch stays the batch's until `done`. `done` runs exactly once,
// on the executor, never inside a call of this interface, also for a lost device.
// Thread: any. Blocks: only the destructor, which waits until everything under way has ended. If the executor is driven
// by the destructor's own caller, nothing may be under way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/function.h"
#include "base/status.h"
#include "base/thread/executor.h"
#include "base/thread/versioned.h"
#include "codec/record/record.h"
#include "device/context/device.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/transfer_plan.h"

namespace kvbm::device {

class LandmarkPool;
class LeafTable;  // device/transfer/leaf_table.h
class TransferLane;
struct TransferWork;
enum class Direction : uint8_t;

// A leaf to move. `device` is a run of this device's memory, of 1 byte to codec::kMaxLeafBytes. `record` is host
// memory: inside a range given to Transfers::know(), or anywhere else, where it goes through pinned staging. It may
// also be memory of the device itself (`on_device`).
struct LeafMove {
  StridedRun device;
  std::byte* record = nullptr;
  uint64_t expected = 0;  // into the device: the hash that the leaf must have
  // Set: this entry stands for leaves [first_leaf, first_leaf + leaf_count) of engine block `block`, which the table
  // describes. They must not reach beyond group_end(first_leaf). Then `device` is table_run(), `record` has all of
  // these leaves one behind the other, and `expected` is the index of their first hash in TransferBatch::expected. Such
  // leaves are raw and in host memory; `poison` is not allowed. The table must live until `done`.
  const LeafTable* table = nullptr;
  uint32_t block = 0;
  uint32_t first_leaf = 0;
  uint32_t leaf_count = 1;
  // Into the device, for a leaf that is not raw: `record` holds a coded leaf (codec/README.md) of coded_bytes, which a
  // kernel decodes into the run. `expected` and the hash are of the plain bytes. Allowed only if Transfers::decodes()
  // returns true. A leaf that cannot be decoded, for whatever reason, is not good, and its hash is 0.
  uint32_t coded_bytes = 0;
  codec::LeafCodec codec = codec::LeafCodec::raw;
  bool check = true;  // into the device: compare with `expected`, else only report the hash
  // Requires the coded bytes to have the leaf hash coded_hash, else the leaf is not good. Decoded bytes vouch for
  // themselves, but a leaf of another block does too. So check, unless the bytes at `record` were already compared with
  // their source.
  bool check_coded = false;
  // `record` is an address of the device: its own memory, or another process's memory that is mapped (ipc.h). A kernel
  // moves such a leaf from device memory to device memory; never a coded one.
  bool on_device = false;
  // Into the device, without moving anything: the run is overwritten with 0xFF before the marks behind it. `record` is
  // not read, the hash is 0 and the leaf good. Used for leaves that must not be read together with wrong leaves of
  // their block.
  bool poison = false;
  uint64_t coded_hash = 0;
  // Returns the first leaf's address as a run with the bytes of all `count` leaves.
  static StridedRun table_run(const LeafTable& table, uint32_t first, uint32_t count, uint32_t block) noexcept;
  // Returns the size of the data at `record`.
  [[nodiscard]] uint64_t record_bytes() const noexcept {
    if (poison) return 0;
    return codec == codec::LeafCodec::raw ? device.total() : coded_bytes;
  }
};

// State of a caller's stream at one moment: device/transfer/stream_point.h.
class StreamPoint;
// Word in which batches report their progress on the device, for streams of the engine that wait for it without the CPU
// (Transfers::wait_on). Values only rise: device/transfer/landmark.h.
class Landmark;
// How streams wait for a landmark.
enum class LandmarkKind : uint8_t {
  on_device,  // for its word, also before the part that writes it was issued
  issued,     // for the event behind the part; the CPU blocks until that is issued. The device writes no word
};

struct TransferBatch {
  std::vector<LeafMove> leaves;        // in the order they should land; an entry may be many leaves (LeafMove::table)
  std::vector<uint64_t> expected;      // hashes of the leaves of such entries
  std::shared_ptr<StreamPoint> after;  // the batch begins behind it; null: at once
  bool settles = false;                // network cards' writes to its records are made visible first (direct_memory.h)
  // Into the device: when entries [0, marks[i].leaf_count) of `leaves` have landed and been checked, `landmark` becomes
  // at least marks[i].value. Both rise from mark to mark, and values also from batch to batch of one landmark.
  // The last value is reached in the end, whatever happens to the batch. Leaves that did not land are overwritten with
  // 0xFF before that, as far as the device still accepts work.
  struct Mark {
    size_t leaf_count;
    uint64_t value;
  };
  std::vector<Mark> marks;
  std::shared_ptr<Landmark> landmark;
  // Object that must live while the device may touch memory of this batch, for instance the one that frees the record's
  // slot. It is released after `done` has returned. If the device was lost and may still write, it is released when
  // that has ended; if the end cannot be known, at the end of the process. A late write must never hit memory with
  // another owner.
  std::shared_ptr<void> keep;
  // Filled before done, per leaf (the leaves of one entry follow each other): the hash of the moved bytes, and whether
  // it was the expected one (1 without check). Of a gather, `good` is 0 if the bytes copied out of pinned staging
  // differ from those that the device says it read: the record is invalid.
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> good;
  // ok: everything was moved (see `good`). With any other code nothing can be trusted, and the content of `batch` is
  // unspecified (after tier_disabled even `leaves` is empty). tier_disabled: the device is lost; a scatter's pages may
  // still be written.
  // no_memory, invalid_argument (of a leaf or mark), internal (the driver refused), damaged (`settles` was refused),
  // deadline (a stream that waits for its landmark had to be let past, DriverWatch): the device will not touch the
  // pages again.
  UniqueFunction<void(TransferBatch& batch, Code code)> done;
};

struct TransferOptions {
  uint32_t multiprocessors = 8;          // used by kernels of transfers at most, so that the engine keeps the others
  uint64_t staging_bytes = 64ULL << 20;  // on the device, both directions together; and as much pinned memory if needed
  uint64_t part_bytes = 4ULL << 20;      // approximate size of the parts of a batch
  // Time without progress after which the device is given up, if the caller's streams that the work waits for have
  // reached their points. kNever: never.
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

// Returns whether kernels of the device decode this leaf: its form's decoder must be in the loaded image. `coded` has
// at least the first 64 coded bytes. False: the CPU must decode it.
[[nodiscard]] bool decodes_on(const Device& device, codec::LeafCodec codec, ConstBytes coded) noexcept;

class Transfers {
 public:
  // `executor` must outlive the transfers. Errors: no_memory (for staging); unsupported (the device cannot map host
  // memory).
  static Result<std::unique_ptr<Transfers>> create(std::shared_ptr<Device> device, const TransferOptions& options,
                                                   Executor& executor);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Adds memory; batches given from now on reach records in it directly.
  void know(std::shared_ptr<const PinnedHost> memory);
  // Records the present state of `stream`. Must be called in the engine's call, before anything that waits for the
  // batch is put on the stream: a batch behind its own waiter never begins. 0 and the legacy and per-thread streams are
  // those of the device's primary context and this thread.
  // invalid_argument: a stream of another device, of a context that is gone, one under capture into a graph, or no
  // stream at all; tier_disabled: the device is lost.
  Result<std::shared_ptr<StreamPoint>> point(CuStream stream);
  // Moves from device memory into records; `expected` and marks are ignored.
  void gather(TransferBatch batch);
  // Moves from records into device memory.
  void scatter(TransferBatch batch);
  // Calls decodes_on() for the device.
  [[nodiscard]] bool decodes(codec::LeafCodec codec, ConstBytes coded) const noexcept {
    return decodes_on(*device_, codec, coded);
  }
  // Returns a landmark at value 0; null if there is no memory for one or the device is lost.
  std::shared_ptr<Landmark> landmark(LandmarkKind kind = LandmarkKind::on_device);
  // Makes everything enqueued on `stream` from now on wait until the landmark has reached `value` (below 2^62). Errors
  // as of point(). Blocks for LandmarkKind::issued alone: until the driver was given the work that `value` stands for,
  // or the landmark was raised.
  Status wait_on(const std::shared_ptr<Landmark>& landmark, uint64_t value, CuStream stream);
  // Raises a landmark from the CPU, for batches that will never come; takes effect after its batches under way have
  // ended.
  void raise(Landmark& landmark, uint64_t value);
  [[nodiscard]] TransferStats gathers() const;
  [[nodiscard]] TransferStats scatters() const;
  [[nodiscard]] Device& device() const noexcept { return *device_; }

 private:
  Transfers(std::shared_ptr<Device> device, const TransferOptions& options);
  Status start(Executor& executor);
  std::shared_ptr<TransferWork> work_of(TransferBatch batch, Direction direction);

  const std::shared_ptr<Device> device_;
  const TransferOptions options_;
  const std::shared_ptr<LandmarkPool> landmarks_;
  std::shared_ptr<TransferLane> gathers_;
  std::shared_ptr<TransferLane> scatters_;
  Versioned<std::vector<std::shared_ptr<const PinnedHost>>> known_;
};

}  // namespace kvbm::device

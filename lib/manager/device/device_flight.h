// Leaves of one operation on their way through a device: collected into batches, a few of them in flight, and back.
//
// Used by the operation's steps, which never run at the same time. Only the end of a batch runs on another thread; it
// leaves its result here and wakes the operation. Batches in flight keep the operation alive, and the operation its
// memory: it does not end while away() is not 0 (Operation::quiet). No lock: results are passed through atomic places.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/function.h"
#include "device/transfer/transfers.h"

namespace kvbm::manager {

class DeviceFlight {
 public:
  // Size of one batch, and batches at once: enough that the device never waits for the next, and little enough that
  // batches which cannot be taken back end in milliseconds.
  static constexpr uint64_t kBatchBytes = 16ULL << 20;
  static constexpr size_t kBatchLeaves = 4096;
  static constexpr size_t kBatches = 4;
  enum class Way : uint8_t { gather, scatter };
  static constexpr size_t kNoRecord = SIZE_MAX;

  // Consecutive leaves of one record in a batch.
  struct Run {
    size_t record;  // the operation's own number, or kNoRecord
    uint32_t first_leaf;
    uint32_t count;
    uint64_t bytes;
  };
  // One batch. Hashes and `good` are beside the leaves of the runs, in their order.
  struct Trip {
    std::vector<Run> runs;
    std::vector<uint64_t> hashes;
    std::vector<uint8_t> good;
    Code code = Code::internal;
  };

  // `after` may be null: nothing is waited for. `keep`: TransferBatch::keep of every batch. `landmark`: the landmark
  // that streams wait for; null: no stream waits. Every batch has it, also one without a mark, because leaves of it
  // that did not land must be overwritten before a mark of a later batch is reached.
  DeviceFlight(device::Transfers& transfers, Way way, std::shared_ptr<device::StreamPoint> after,
               std::shared_ptr<void> keep, std::shared_ptr<device::Landmark> landmark = nullptr) noexcept
      : transfers_(transfers),
        way_(way),
        after_(std::move(after)),
        keep_(std::move(keep)),
        landmark_(std::move(landmark)) {}
  ~DeviceFlight() {
    while (take() != nullptr) continue;
  }
  DeviceFlight(const DeviceFlight&) = delete;
  DeviceFlight& operator=(const DeviceFlight&) = delete;

  // ---- The batch that is being filled ----
  [[nodiscard]] bool full() const noexcept { return bytes_ >= kBatchBytes || leaves_ >= kBatchLeaves; }
  [[nodiscard]] bool empty() const noexcept { return batch_.leaves.empty(); }
  void add(size_t record, uint32_t leaf, const device::LeafMove& move);
  // Adds leaves [first, last) of engine block `block`, within the table's group_end(), with bytes that begin at `at`.
  // For a load that compares them, expect() was called for each of these leaves, and for nothing since.
  void add_many(size_t record, const device::LeafTable& table, uint32_t first, uint32_t last, uint32_t block,
                std::byte* at, bool check);
  void expect(uint64_t hash) { batch_.expected.push_back(hash); }
  // Overwrites a run with 0xFF (LeafMove::poison). It belongs to no record, so its run is of kNoRecord.
  void poison(const StridedRun& run);
  // Notes that everything added so far, in this batch and before, is in place or overwritten when the landmark has that
  // value.
  void mark(uint64_t value);
  // Keeps memory of the next added leaf alive as long as the batch.
  void own(std::shared_ptr<void> memory) { owned_.push_back(std::move(memory)); }

  // ---- In flight ----
  [[nodiscard]] bool can_send() const noexcept { return away_ < kBatches; }
  // Sends the filled batch. `ended` runs on another thread when the batch has ended; objects that it holds live until
  // then, and must not end the transfers when they are released.
  void send(UniqueFunction<void()> ended);
  // Returns the number of batches that were sent and not taken.
  [[nodiscard]] size_t away() const noexcept { return away_; }
  // Returns the next batch that has ended, in no certain order; null: none.
  std::unique_ptr<Trip> take();

 private:
  void begin();
  void count(size_t record, uint32_t leaf, uint32_t n, uint64_t bytes);

  device::Transfers& transfers_;
  const Way way_;
  const std::shared_ptr<device::StreamPoint> after_;
  const std::shared_ptr<void> keep_;
  const std::shared_ptr<device::Landmark> landmark_;
  device::TransferBatch batch_;
  std::vector<Run> runs_;
  std::vector<std::shared_ptr<void>> owned_;
  uint64_t bytes_ = 0;
  size_t leaves_ = 0;
  size_t last_entries_ = 0, last_runs_ = 0;  // of the batch before: the next one is about as large
  size_t away_ = 0;
  std::array<std::atomic<Trip*>, kBatches> back_{};  // owned; a batch that ended puts itself into a free place
};

}  // namespace kvbm::manager

// Transfers on the fake of the CUDA driver, with the kernels' own source run on the CPU: pages in the memory of a fake
// device, records in pinned and in other host memory, and batches of leaves between them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "base/thread/mutex.h"
#include "base/thread/task_queue.h"
#include "base/thread/thread_executor.h"
#include "device/context/device.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/stream_point.h"
#include "device/transfer/transfers.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

// Result of one batch.
class Outcome {
 public:
  // Callback `done` of a batch.
  UniqueFunction<void(device::TransferBatch&, Code)> receiver();
  // Waits for the end of the batch. `hashes` and `good` are filled by then.
  Code wait();
  [[nodiscard]] bool over();
  [[nodiscard]] int calls();
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> good;

 private:
  struct State {
    Mutex mutex;
    std::condition_variable_any ended;
    int calls KVBM_GUARDED_BY(mutex) = 0;
    Code code KVBM_GUARDED_BY(mutex) = Code::internal;
    std::vector<uint64_t> hashes KVBM_GUARDED_BY(mutex);
    std::vector<uint8_t> good KVBM_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// An object that a batch keeps alive. A test can wait until it is dropped.
class Keepsake {
 public:
  [[nodiscard]] std::shared_ptr<void> give();
  [[nodiscard]] bool dropped();
  void wait_dropped();

 private:
  struct State {
    Mutex mutex;
    std::condition_variable_any changed;
    bool dropped KVBM_GUARDED_BY(mutex) = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Runs tasks on another executor, at once, and timers only when the test moves the clock.
class HandTimed final : public Executor {
 public:
  explicit HandTimed(Executor& tasks) : tasks_(tasks) {}
  void post(Task task) override { tasks_.post(std::move(task)); }
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }
  // Runs timers that are due, on this thread.
  void advance(uint64_t ns);

 private:
  struct HandClock final : Clock {
    [[nodiscard]] uint64_t now_ns() const noexcept override { return now.load(std::memory_order_relaxed); }
    std::atomic<uint64_t> now{1'000'000};
  };
  Executor& tasks_;
  HandClock clock_;
  Mutex mutex_;
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
};

class TransferWorld {
 public:
  static constexpr size_t kBytes = 2U << 20;
  static constexpr uint64_t kSeed = 20261122;
  // Parts of 64 KiB, so that a few MiB go round the ring many times; 8 places a direction.
  static device::TransferOptions small_options();
  static FakeCudaOptions two_devices();

  // `bytes` of pages, of pinned and of other host memory.
  explicit TransferWorld(uint64_t seed = kSeed, size_t bytes = kBytes);
  ~TransferWorld();
  TransferWorld(const TransferWorld&) = delete;
  TransferWorld& operator=(const TransferWorld&) = delete;

  // Makes the device, pins memory and makes the transfers. Returns the first error.
  Status open(const device::TransferOptions& options = small_options());
  // Opens the world with timers that `timers` moves.
  Status open_timed(const device::TransferOptions& options);
  // Ends the transfers, the executor and the device, for good.
  void close();

  // Leaves of any form at places of their own, up to `bytes` of pages in all. `loose`: of 100, how many records are not
  // pinned. `flat`: pages in one piece each, side by side, records too.
  std::vector<device::LeafMove> make_leaves(size_t most, uint64_t bytes, uint32_t loose, bool flat);
  // The bytes of a leaf as they lie in the pages.
  [[nodiscard]] static std::vector<std::byte> pages_of(const device::LeafMove& leaf);
  // Fills the pages with random bytes.
  void fill_pages() { random.fill(MutableBytes(pages, bytes)); }
  void fill_records();
  // Sets the expected hash of each leaf from its record.
  static void expect_records(std::vector<device::LeafMove>& leaves);

  Outcome gather(device::TransferBatch batch);
  Outcome scatter(device::TransferBatch batch);

  const size_t bytes;
  SeededRandom random;
  std::unique_ptr<ThreadExecutor> executor;
  std::unique_ptr<HandTimed> timers;
  std::shared_ptr<device::Device> device;
  std::unique_ptr<device::Transfers> transfers;
  std::byte* pages = nullptr;   // the device's
  std::byte* pinned = nullptr;  // known to it
  size_t range = bytes;         // registered piece size, if set before it is opened
  std::vector<std::byte> loose;

 private:
  Status open_on(const device::TransferOptions& options, Executor& executor);
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> arena_;

 public:
  // Destroyed first, because a device that was given up may still write into the memory above.
  FakeCuda cuda{two_devices()};
};

}  // namespace kvbm::test

// Transfers on the fake of the CUDA driver, with the kernels' own source run on the CPU: pages in the memory of a fake
// device, records in pinned and in other host memory, and batches of leaves between them.
#pragma once

#include <gtest/gtest.h>

#include <sched.h>

#include <condition_variable>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "base/thread_executor.h"
#include "device/device.h"
#include "device/pinned_host.h"
#include "device/stream_point.h"
#include "device/transfers.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

// What became of one batch.
class Outcome {
 public:
  // What a batch's `done` is to be.
  UniqueFunction<void(device::TransferBatch&, Code)> receiver();
  // Waits for it. The hashes and `good` are there then.
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

// Something that a batch keeps, and that is waited for until it is dropped.
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

class TransferWorld {
 public:
  static constexpr size_t kBytes = 6U << 20;  // of the pages, of pinned and of other host memory
  // Parts of 64 KiB, so that a few MiB go round the ring many times; 8 places a direction.
  static device::TransferOptions small_options();
  static FakeCudaOptions two_devices();

  explicit TransferWorld(uint64_t seed = 20261122);
  ~TransferWorld();
  TransferWorld(const TransferWorld&) = delete;
  TransferWorld& operator=(const TransferWorld&) = delete;

  // Makes the device, pins memory and makes transfers; the status of what was refused.
  Status open(const device::TransferOptions& options = small_options());
  // Ends the transfers, then the device.
  void close();

  // Leaves of any form at places of their own, up to `bytes` of pages in all. `loose`: of 100, how many records are not
  // pinned. `flat`: pages in one piece each, side by side, records too.
  std::vector<device::LeafMove> make_leaves(size_t most, uint64_t bytes, uint32_t loose, bool flat);
  // The bytes of a leaf as they lie in the pages.
  [[nodiscard]] static std::vector<std::byte> pages_of(const device::LeafMove& leaf);
  // Fills pages, or records, with new bytes.
  void fill_pages() { random.fill(MutableBytes(pages, kBytes)); }
  void fill_records();
  // Sets what each must have, from its record.
  static void expect_records(std::vector<device::LeafMove>& leaves);

  Outcome gather(device::TransferBatch batch);
  Outcome scatter(device::TransferBatch batch);

  FakeCuda cuda{two_devices()};
  SeededRandom random;
  std::unique_ptr<ThreadExecutor> executor;
  std::shared_ptr<device::Device> device;
  std::unique_ptr<device::Transfers> transfers;
  std::byte* pages = nullptr;   // the device's
  std::byte* pinned = nullptr;  // known to it
  std::vector<std::byte> loose;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> arena_;
};

// Whether what `read` says comes true; gives the processor away meanwhile.
template <class Read>
void wait_until(Read&& read) {
  while (!read()) ::sched_yield();
}

}  // namespace kvbm::test

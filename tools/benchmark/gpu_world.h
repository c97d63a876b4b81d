// The objects of the GPU benchmark: a device and its driver's own calls, an engine's cache in device memory, records
// in pinned host memory, and the library's transfers between the two. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/memory/memory.h"
#include "base/status.h"
#include "base/telemetry/log.h"
#include "base/thread/thread_executor.h"
#include "benchmark/gpu.h"
#include "device/context/device.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/leaf_table.h"
#include "device/transfer/transfers.h"

namespace kvbm::benchmark {

// A paged cache like those of engines: `layers` times K and V, each a tensor of `blocks` pages, a page contiguous. A
// block is its page in every tensor. A record holds these pages one after the other, cut into leaves.
struct PagedShape {
  uint64_t page_bytes = 0;
  uint64_t layers = 0;
  uint64_t blocks = 0;
  // 0: a page lies in one piece. Else its rows of so many bytes are regrouped in transit, as if the engine had
  // (tokens, heads, dim) and records (heads, tokens, dim).
  uint64_t row_bytes = 0;
  uint64_t heads = 1;
  [[nodiscard]] uint64_t block_bytes() const noexcept { return page_bytes * layers * 2; }
  [[nodiscard]] uint64_t bytes() const noexcept { return block_bytes() * blocks; }
};

// Returns a shape of at most 32 layers and as many blocks as make about `bytes`.
PagedShape paged_shape(uint64_t page_bytes, uint64_t bytes);

class GpuWorld {
 public:
  static Result<std::unique_ptr<GpuWorld>> open(const device::Driver& driver, const GpuOptions& options);
  ~GpuWorld();
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;

  [[nodiscard]] device::Device& device() noexcept { return *device_; }
  [[nodiscard]] const std::shared_ptr<device::Device>& shared_device() const noexcept { return device_; }
  [[nodiscard]] device::Transfers& transfers() noexcept { return *transfers_; }
  // Sets the limits of the following transfers; nullptr: the library's own.
  Status use(const device::PlanLimits* limits);
  [[nodiscard]] const device::Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] device::CuPointer cache() const noexcept { return cache_; }       // of the engine
  [[nodiscard]] device::CuPointer spare() const noexcept { return spare_; }       // as large, for copies on the device
  [[nodiscard]] std::byte* records() const noexcept { return records_->data(); }  // pinned
  [[nodiscard]] device::CuStream stream() const noexcept { return stream_; }
  [[nodiscard]] std::string describe() const;

  // Returns leaves of `blocks` blocks. Their pages lie in the cache in an order without a pattern, and their records
  // in host memory in another one, like the slots of a host tier in use.
  [[nodiscard]] std::vector<device::LeafMove> leaves(const PagedShape& shape, uint64_t blocks);

  // Moves leaves and returns the seconds until all have landed, as seen by the caller. Batches are as large as the
  // library's own, and as many of them are in flight. Leaves of leaves() are many to an entry, as in the library for
  // an attached cache. `good` requires each leaf's check to pass.
  Result<double> gather(std::span<const device::LeafMove> leaves, std::vector<uint64_t>* hashes = nullptr);
  Result<double> scatter(std::span<const device::LeafMove> leaves);
  // Returns the seconds that the calling thread itself worked in the last of these calls.
  [[nodiscard]] double worked() const noexcept { return worked_; }
  // Returns the seconds for making and planning a first batch, before any part of it can be launched.
  [[nodiscard]] double planning(std::span<const device::LeafMove> leaves, bool gather) const;
  // Runs one copy on the driver's copy engine. Returns the seconds until it has ended.
  Result<double> copy(device::CuPointer to, device::CuPointer from, uint64_t bytes);
  [[nodiscard]] device::CuPointer host(const std::byte* memory) const noexcept {
    return reinterpret_cast<device::CuPointer>(memory);
  }
  // Returns the milliseconds on the device of the work that `enqueue` puts on stream().
  template <class Enqueue>
  Result<double> device_ms(Enqueue&& enqueue) {
    if (Status s = begin_span(); !s.ok()) return s;
    if (Status s = enqueue(); !s.ok()) return s;
    return end_span();
  }
  Status fill(device::CuPointer to, unsigned char value, uint64_t bytes);

 private:
  explicit GpuWorld(const device::Driver& driver) : driver_(driver) {
    log_.set_sink(&keep_first, this, LogLevel::warning);
  }
  Status prepare(const GpuOptions& options);
  static void keep_first(void* self, const LogMessage& message);
  void describe(const PagedShape& shape, std::vector<uint64_t> page_of);
  size_t fill_batch(std::span<const device::LeafMove> leaves, size_t first, bool many, bool checked,
                    device::TransferBatch& batch) const;
  [[nodiscard]] bool is_described(std::span<const device::LeafMove> leaves) const;
  Result<double> move(std::span<const device::LeafMove> leaves, bool gather, std::vector<uint64_t>* hashes);
  Status begin_span();
  Result<double> end_span();

  const device::Driver& driver_;
  // The first complaint of the device, on a thread of its transfers. A batch itself ends with a code only.
  Log log_;
  std::mutex mutex_;
  std::string complaint_;
  uint64_t bytes_ = 0;
  double worked_ = 0;
  // Description of the last shape that leaves() was called for.
  std::unique_ptr<device::LeafTable> table_;
  std::vector<uint64_t> page_of_;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<Arena> records_;
  device::TransferOptions transfer_options_;
  std::shared_ptr<device::PinnedHost> pinned_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<device::Transfers> transfers_;
  device::CuPointer cache_ = 0;
  device::CuPointer spare_ = 0;
  device::CuStream stream_ = nullptr;
  device::CuEvent from_ = nullptr;
  device::CuEvent to_ = nullptr;
};

}  // namespace kvbm::benchmark

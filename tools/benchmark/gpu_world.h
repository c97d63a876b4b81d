// What the GPU benchmark works with: a device and its driver's own calls, an engine's cache in device memory, records
// in pinned host memory, and the library's transfers between the two. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_executor.h"
#include "benchmark/gpu.h"
#include "device/device.h"
#include "device/leaf_table.h"
#include "device/pinned_host.h"
#include "device/transfers.h"

namespace kvbm::benchmark {

// A paged cache as engines have it: `layers` times K and V, each a tensor of `blocks` pages, a page contiguous. A block
// is its page in every tensor; a record holds them one after the other, cut into leaves.
struct PagedShape {
  uint64_t page_bytes = 0;
  uint64_t layers = 0;
  uint64_t blocks = 0;
  // 0: a page lies in one piece. Else its rows of so many bytes are regrouped on the way, as where the engine has
  // (tokens, heads, dim) and records (heads, tokens, dim).
  uint64_t row_bytes = 0;
  uint64_t heads = 1;
  [[nodiscard]] uint64_t block_bytes() const noexcept { return page_bytes * layers * 2; }
  [[nodiscard]] uint64_t bytes() const noexcept { return block_bytes() * blocks; }
};

// At most 32 layers and as many blocks as make about `bytes`.
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
  // From now on transfers go as these limits say; nullptr: as the library's own.
  Status use(const device::PlanLimits* limits);
  [[nodiscard]] const device::Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] device::CuPointer cache() const noexcept { return cache_; }      // of the engine
  [[nodiscard]] device::CuPointer spare() const noexcept { return spare_; }      // as large, for copies on the device
  [[nodiscard]] std::byte* records() const noexcept { return records_->data(); }  // pinned
  [[nodiscard]] device::CuStream stream() const noexcept { return stream_; }
  [[nodiscard]] std::string describe() const;

  // Leaves of `blocks` blocks, whose pages lie in the cache in an order without a pattern, and their records in host memory in
  // another one, as slots of a host tier that is in use do.
  [[nodiscard]] std::vector<device::LeafMove> leaves(const PagedShape& shape, uint64_t blocks);

  // Seconds until all has landed, as the caller sees it: batches as large as the library's own, as many of them in flight, and
  // many leaves an entry where they are those of leaves(), as the library has them of an attached cache.
  // `good` wants each leaf's check to pass.
  Result<double> gather(std::span<const device::LeafMove> leaves, std::vector<uint64_t>* hashes = nullptr);
  Result<double> scatter(std::span<const device::LeafMove> leaves);
  // Seconds that the calling thread itself worked in the last call of these.
  [[nodiscard]] double worked() const noexcept { return worked_; }
  // Seconds of making and planning a first batch, before anything of it can be launched.
  [[nodiscard]] double planning(std::span<const device::LeafMove> leaves, bool gather) const;
  // Seconds of one copy by the driver's copy engine, enqueued and waited for.
  Result<double> copy(device::CuPointer to, device::CuPointer from, uint64_t bytes);
  [[nodiscard]] device::CuPointer host(const std::byte* memory) const noexcept {
    return reinterpret_cast<device::CuPointer>(memory);
  }
  // Milliseconds on the device of what `enqueue` puts on stream().
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
  // What the device was the first to complain of, on a thread of its transfers: a batch ends with a code alone.
  Log log_;
  std::mutex mutex_;
  std::string complaint_;
  uint64_t bytes_ = 0;
  double worked_ = 0;
  // Of the shape whose leaves() were asked for last.
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

// Reads files straight into a device's memory (GPUDirect Storage, cuFile), where kernels find them.
//
// One buffer of device memory is registered once; a reader takes a piece of it, and returns it when the device is done
// with it. Reads run on threads of their own, kThreads at a time: cuFileRead blocks. A file is registered at its first
// read, under a descriptor of our own, which keeps its inode from being reused for another file. Both stay open until
// the destructor.
//
// Reads carry no guarantee: a read that does not bring every byte is not good, and the reader uses another path. After
// kFailures failed reads in a row, or as many records found wrong, no further read is begun; the log reports it once.
// Reads on a lost device are never good. Bytes that were read are not verified.
//
// Thread: any. Blocks: create does, and the destructor, which waits for reads under way. Locks: mutex_, Pool::mutex,
// leaves; no call of cuFile is made under them except registering a file, and in the destructor deregistering it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "base/thread/thread_executor.h"
#include "device/context/device.h"
#include "device/memory/device_memory.h"
#include "device/storage/cufile_library.h"

namespace kvbm::device {

class StorageReads {
 public:
  static constexpr uint32_t kThreads = 4;
  static constexpr uint32_t kFailures = 4;

  struct Pool;
  // Piece of the buffer, returned by its destructor, also after the StorageReads ended.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept
        : pool_(std::move(other.pool_)), offset_(other.offset_), bytes_(std::exchange(other.bytes_, 0)) {}
    Piece& operator=(Piece&& other) noexcept {
      pool_.swap(other.pool_);
      std::swap(offset_, other.offset_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Piece();
    explicit operator bool() const noexcept { return pool_ != nullptr; }
    // Returns memory of the device: the CPU must not read it.
    [[nodiscard]] std::byte* data() const noexcept;

   private:
    friend class StorageReads;
    std::shared_ptr<Pool> pool_;
    uint64_t offset_ = 0;
    uint64_t bytes_ = 0;
  };
  // Offset and bytes are multiples of kIoAlign; the piece has at least as many bytes.
  struct Read {
    int fd = -1;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    const Piece* to = nullptr;
    bool good = false;  // out
  };
  struct Stats {
    uint64_t reads = 0, bytes = 0;  // good ones
    uint64_t failed = 0;
  };

  // Errors: no_memory; unsupported (the buffer cannot be registered); tier_disabled.
  static Result<std::shared_ptr<StorageReads>> create(std::shared_ptr<Device> device, const CuFileLibrary& library,
                                                      uint64_t bytes);
  ~StorageReads();
  StorageReads(const StorageReads&) = delete;
  StorageReads& operator=(const StorageReads&) = delete;

  [[nodiscard]] bool usable() const noexcept { return !given_up_.load(std::memory_order_relaxed); }
  // Returns an empty piece if there is no free space now.
  [[nodiscard]] Piece reserve(uint64_t bytes) noexcept;
  // Starts reads. `done` runs once, on one of the threads, when all of them have ended. The caller keeps the pieces and
  // descriptors valid until then.
  void read(std::vector<Read> reads, UniqueFunction<void(std::vector<Read>)> done);
  // Reports whether the leaves of a record that was read this way were right.
  void checked(bool right) noexcept;
  [[nodiscard]] Stats stats() const noexcept;

 private:
  struct File {
    int fd = -1;  // of our own
    CuFileHandle handle = nullptr;
  };
  struct Trip;
  StorageReads(std::shared_ptr<Device> device, const CuFileLibrary& library)
      : device_(std::move(device)), table_(library.table) {}
  void run(Trip& trip, size_t i);
  Status read_one(const Read& read);
  Result<CuFileHandle> handle_of(int fd);
  void failed(const std::string& why) noexcept;

  const std::shared_ptr<Device> device_;
  const CuFile table_;
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<ThreadExecutor> threads_;
  Mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, File> files_ KVBM_GUARDED_BY(mutex_);  // by device and inode
  std::atomic<uint32_t> failures_{0};                                            // in a row
  std::atomic<uint32_t> wrong_{0};
  std::atomic<bool> given_up_{false};
  std::atomic<bool> warned_{false};
  std::atomic<uint64_t> reads_{0}, bytes_{0}, failed_{0};
};

}  // namespace kvbm::device

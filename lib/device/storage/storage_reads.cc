#include "device/storage/storage_reads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/io/file.h"
#include "base/thread/memory_wait.h"

namespace kvbm::device {

namespace {

constexpr uint64_t kGranule = kIoAlign;

const void* pointer_of(CuPointer address) noexcept {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
}

}  // namespace

// ---- The buffer ----

struct StorageReads::Pool {
  Pool(std::shared_ptr<Device> on, const CuFile& entries) : device(std::move(on)), table(entries) {}
  ~Pool() {
    if (!registered) return;
    const Device::Scope scope(*device);
    if (scope.entered()) (void)table.cuFileBufDeregister(pointer_of(memory->address()));
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Takes the first run of `granules` free granules, searching from the end of the last one; UINT64_MAX: there is none.
  uint64_t take(uint64_t granules) noexcept {
    MutexLock lock(mutex);
    if (granules == 0 || granules > used.size()) return UINT64_MAX;
    uint64_t run = 0;
    for (uint64_t seen = 0, at = next; seen < used.size() + granules; ++seen, ++at) {
      if (at == used.size()) at = run = 0;
      run = used[at] != 0 ? 0 : run + 1;
      if (run != granules) continue;
      const uint64_t first = at + 1 - granules;
      std::memset(used.data() + first, 1, granules);
      next = (at + 1) % used.size();
      return first;
    }
    return UINT64_MAX;
  }
  void give_back(uint64_t first, uint64_t granules) noexcept {
    MutexLock lock(mutex);
    std::memset(used.data() + first, 0, granules);
  }

  const std::shared_ptr<Device> device;
  const CuFile table;
  std::unique_ptr<DeviceMemory> memory;
  bool registered = false;
  Mutex mutex;
  std::vector<uint8_t> used KVBM_GUARDED_BY(mutex);  // a byte a granule
  uint64_t next KVBM_GUARDED_BY(mutex) = 0;
};

StorageReads::Piece::~Piece() {
  if (pool_ != nullptr) pool_->give_back(offset_ / kGranule, bytes_ / kGranule);
}

std::byte* StorageReads::Piece::data() const noexcept {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pool_->memory->address() + offset_));
}

StorageReads::Piece StorageReads::reserve(uint64_t bytes) noexcept {
  Piece piece;
  const uint64_t granules = (bytes + kGranule - 1) / kGranule;
  const uint64_t first = usable() ? pool_->take(granules) : UINT64_MAX;
  if (first == UINT64_MAX) return piece;
  piece.pool_ = pool_;
  piece.offset_ = first * kGranule;
  piece.bytes_ = granules * kGranule;
  return piece;
}

// ---- Begin and end ----

Result<std::shared_ptr<StorageReads>> StorageReads::create(std::shared_ptr<Device> device, const CuFileLibrary& library,
                                                           uint64_t bytes) {
  std::shared_ptr<StorageReads> made(new StorageReads(device, library));
  auto memory = DeviceMemory::allocate(device, bytes / kGranule * kGranule);
  if (!memory.ok()) return memory.status();
  auto pool = std::make_shared<Pool>(device, library.table);
  pool->memory = std::move(memory).value();
  {
    const Device::Scope scope(*device);
    if (!scope.entered()) return device->lost();
    const CuFileError error =
        library.table.cuFileBufRegister(pointer_of(pool->memory->address()), pool->memory->bytes(), 0);
    if (error.code != kCuFileSuccess) {
      return Status(Code::unsupported, "cuFile does not take the device's memory", cufile_error_text(error));
    }
    pool->registered = true;
  }
  {
    MutexLock lock(pool->mutex);
    pool->used.assign(pool->memory->bytes() / kGranule, 0);
  }
  made->pool_ = std::move(pool);
  auto threads = ThreadExecutor::create("storage", kThreads);
  if (!threads.ok()) return threads.status();
  made->threads_ = std::move(threads).value();
  return made;
}

StorageReads::~StorageReads() {
  threads_.reset();  // runs the reads that were requested
  const Device::Scope scope(*device_);
  MutexLock lock(mutex_);
  for (const auto& [file, open] : files_) {
    // Not in a forked child or on a lost device: cuFile must not be called there.
    if (scope.entered()) table_.cuFileHandleDeregister(open.handle);
    (void)::close(open.fd);
  }
}

// ---- Reading ----

struct StorageReads::Trip {
  std::vector<Read> reads;
  UniqueFunction<void(std::vector<Read>)> done;
  std::atomic<size_t> left{0};
};

void StorageReads::read(std::vector<Read> reads, UniqueFunction<void(std::vector<Read>)> done) {
  const MemoryWait counted;  // each read must be answered
  auto trip = std::make_shared<Trip>();
  trip->reads = std::move(reads);
  trip->done = std::move(done);
  const size_t n = trip->reads.size();
  trip->left.store(n == 0 ? 1 : n, std::memory_order_relaxed);
  threads_->post([this, trip] { run(*trip, 0); });
  for (size_t i = 1; i < n; ++i) threads_->post([this, trip, i] { run(*trip, i); });
}

void StorageReads::run(Trip& trip, size_t i) {
  if (i < trip.reads.size()) {
    Read& read = trip.reads[i];
    const Status status = read_one(read);
    read.good = status.ok();
    if (read.good) {
      failures_.store(0, std::memory_order_relaxed);
      reads_.fetch_add(1, std::memory_order_relaxed);
      bytes_.fetch_add(read.bytes, std::memory_order_relaxed);
    } else {
      failed(status.message());
    }
  }
  // acq_rel: the last read sees the results of the others.
  if (trip.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  UniqueFunction<void(std::vector<Read>)> done = std::move(trip.done);
  done(std::move(trip.reads));
}

// Reads one piece. The disk's bytes are in the device's memory when cuFileRead has returned, and kernels launched after
// it see them: a launch is the device's own point of order for writes of others to its memory.
Status StorageReads::read_one(const Read& read) {
  if (!usable()) return {Code::tier_disabled, "reads past host memory were given up"};
  if (read.fd < 0 || read.to == nullptr || read.bytes > read.to->bytes_)
    return {Code::invalid_argument, "no such read"};
  // A disk may take long.
  const Device::Scope scope(*device_, DriverCall::Late::waits);
  if (!scope.entered()) return device_->lost();
  const auto handle = handle_of(read.fd);
  if (!handle.ok()) return handle.status();
  // The address is the registered one: with another, cuFile would use memory of its own.
  void* const base = const_cast<void*>(pointer_of(pool_->memory->address()));
  for (uint64_t moved = 0; moved < read.bytes;) {
    errno = 0;
    const ssize_t n =
        table_.cuFileRead(handle.value(), base, read.bytes - moved, static_cast<off_t>(read.offset + moved),
                          static_cast<off_t>(read.to->offset_ + moved));
    if (n == -1) return {Code::io_error, "cuFileRead", std::strerror(errno)};
    if (n < 0) return {Code::io_error, "cuFileRead", cufile_error_text({static_cast<int>(-n), 0})};
    if (n == 0 || static_cast<uint64_t>(n) > read.bytes - moved)
      return {Code::io_error, "cuFileRead", "it ended too early"};
    moved += static_cast<uint64_t>(n);
  }
  return {};
}

Result<CuFileHandle> StorageReads::handle_of(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return Status(Code::io_error, "cannot ask for a file", std::strerror(errno));
  MutexLock lock(mutex_);
  const auto [at, fresh] = files_.try_emplace({facts.st_dev, facts.st_ino});
  if (!fresh) return at->second.handle;
  File& file = at->second;
  file.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const int why = errno;
  CuFileError error;
  if (file.fd >= 0) {
    CuFileDescription description;
    description.type = kCuFileByDescriptor;
    description.file.fd = file.fd;
    error = table_.cuFileHandleRegister(&file.handle, &description);
    if (error.code == kCuFileSuccess) return file.handle;
    (void)::close(file.fd);
  }
  const bool refused = file.fd >= 0;
  files_.erase(at);
  if (refused) return Status(Code::unsupported, "cuFileHandleRegister", cufile_error_text(error));
  return Status(Code::io_error, "no descriptor for a file", std::strerror(why));
}

// ---- Giving up ----

void StorageReads::failed(const std::string& why) noexcept {
  failed_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t in_a_row = failures_.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool last = in_a_row >= kFailures && !given_up_.exchange(true, std::memory_order_relaxed);
  const bool first = !warned_.exchange(true, std::memory_order_relaxed);
  if ((!first && !last) || device_->is_lost()) return;
  device_->log()->write(LogLevel::warning, std::string(last ? "disks are read through host memory from now on: "
                                                            : "a read past host memory failed, and went through it: ") +
                                               why);
}

void StorageReads::checked(bool right) noexcept {
  if (right) return wrong_.store(0, std::memory_order_relaxed);
  if (wrong_.fetch_add(1, std::memory_order_relaxed) + 1 < kFailures) return;
  if (given_up_.exchange(true, std::memory_order_relaxed)) return;
  device_->log()->write(LogLevel::error,
                        "disks are read through host memory from now on: records that were read past it were damaged");
}

StorageReads::Stats StorageReads::stats() const noexcept {
  return {reads_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
          failed_.load(std::memory_order_relaxed)};
}

}  // namespace kvbm::device

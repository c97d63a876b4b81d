#include "base/io/os_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/errno_status.h"
#include "base/io/io_engine.h"
#include "base/io/io_patience.h"
#include "base/io/os_directory.h"

namespace kvbm {

namespace {

constexpr size_t kBounceBytes = size_t{256} << 10;

bool aligned(uint64_t offset, const void* data, size_t bytes) noexcept {
  return ((offset | reinterpret_cast<uintptr_t>(data) | bytes) & (kIoAlign - 1)) == 0;
}

// Returns 0 if the system does not report the device.
uint64_t device_of(int fd) noexcept {
  struct stat st {};
  return fstat(fd, &st) == 0 ? static_cast<uint64_t>(st.st_dev) : 0;
}

class OsFile final : public File {
 public:
  OsFile(std::shared_ptr<IoEngine> engine, Fd fd, std::string path, bool direct)
      : engine_(std::move(engine)),
        fd_(std::move(fd)),
        file_{fd_.get(), device_of(fd_.get()), direct, std::move(path)} {}

  // Holds the engine during the call: the completion may run before submit returns, and destroy this file.
  void read(uint64_t offset, std::span<const IoRun> runs, IoDone done) override {
    const std::shared_ptr<IoEngine> engine = engine_;
    engine->transfer(IoRequest::Op::read, file_, offset, runs, std::move(done));
  }
  void write(uint64_t offset, std::span<const IoRun> runs, IoDone done) override {
    const std::shared_ptr<IoEngine> engine = engine_;
    IoEngine& writer = file_.direct ? engine->for_direct_writes() : *engine;
    writer.transfer(IoRequest::Op::write, file_, offset, runs, std::move(done));
  }
  void sync(UniqueFunction<void(Status)> done) override {
    const std::shared_ptr<IoEngine> engine = engine_;
    engine->sync(file_, std::move(done));
  }

  Result<size_t> read_now(uint64_t offset, std::span<std::byte> out) override;
  Status write_now(uint64_t offset, std::span<const std::byte> bytes) override;
  Status sync_now() override {
    return checked(uninterrupted([this] { return fdatasync(fd_.get()); }), "cannot make durable");
  }
  Result<uint64_t> size() override {
    struct stat st {};
    if (fstat(fd_.get(), &st) != 0) return errno_status(errno, "cannot ask for the size", file_.path);
    return static_cast<uint64_t>(st.st_size);
  }
  Status allocate(uint64_t bytes) override;
  Status truncate(uint64_t bytes) override {
    return checked(uninterrupted([&] { return ftruncate(fd_.get(), static_cast<off_t>(bytes)); }), "cannot truncate");
  }
  [[nodiscard]] bool direct() const noexcept override { return file_.direct; }
  [[nodiscard]] int descriptor() const noexcept override { return fd_.get(); }

 private:
  [[nodiscard]] Status checked(int result, const char* what) const {
    if (result == 0) return {};
    return errno_status(errno, what, file_.path);
  }
  [[nodiscard]] size_t whole(uint64_t offset, size_t n) const noexcept;
  Result<size_t> pread_all(uint64_t offset, std::span<std::byte> out);
  Status pwrite_all(uint64_t offset, std::span<const std::byte> bytes);

  std::shared_ptr<IoEngine> engine_;
  Fd fd_;
  const IoFile file_;
};

struct Unmap {
  size_t bytes;
  void operator()(std::byte* data) const noexcept { munmap(data, bytes); }
};
using Pages = std::unique_ptr<std::byte, Unmap>;

// Page-aligned, not inherited by forked children: a child's copy-on-write would move the parent's pages away from under
// a device that writes them.
Pages map_pages(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Pages(nullptr, Unmap{0});
  madvise(data, bytes, MADV_DONTFORK);
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
  return Pages(static_cast<std::byte*>(data), Unmap{bytes});
}

// Returns how many of the bytes moved at `offset` count for a direct file: those up to the last whole page.
size_t OsFile::whole(uint64_t offset, size_t n) const noexcept {
  return file_.direct ? n - std::min<size_t>(n, (offset + n) % kIoAlign) : n;
}

// Short only at the end of the file.
Result<size_t> OsFile::pread_all(uint64_t offset, std::span<std::byte> out) {
  size_t moved = 0;
  uint32_t attempts = 0;
  while (moved < out.size()) {
    const ssize_t n = pread(fd_.get(), out.data() + moved, out.size() - moved, static_cast<off_t>(offset + moved));
    if (n < 0 && try_io_again(errno, attempts)) continue;
    if (n < 0) return errno_status(errno, "cannot read", file_.path);
    const size_t all = moved + static_cast<size_t>(n);
    if (n == 0 || all == out.size()) return all;
    const size_t on = whole(offset + moved, static_cast<size_t>(n));
    if (on != static_cast<size_t>(n)) {
      // Reading on at an unaligned end of file would be refused.
      auto bytes = size();
      if (!bytes.ok()) return bytes.status();
      if (offset + all >= bytes.value()) return all;
      if (on == 0 && !try_io_again(EAGAIN, attempts)) return errno_status(EIO, "cannot read", file_.path);
    }
    if (on != 0) attempts = 0;
    moved += on;
  }
  return moved;
}

Status OsFile::pwrite_all(uint64_t offset, std::span<const std::byte> bytes) {
  size_t moved = 0;
  uint32_t attempts = 0;
  while (moved < bytes.size()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data() + moved, bytes.size() - moved, static_cast<off_t>(offset + moved));
    if (n < 0 && try_io_again(errno, attempts)) continue;
    if (n < 0) return errno_status(errno, "cannot write", file_.path);
    if (n == 0) return errno_status(EIO, "cannot write", file_.path);
    if (moved + static_cast<size_t>(n) == bytes.size()) return {};
    const size_t on = whole(offset + moved, static_cast<size_t>(n));
    if (on == 0 && !try_io_again(EAGAIN, attempts)) return errno_status(EIO, "cannot write", file_.path);
    if (on != 0) attempts = 0;
    moved += on;
  }
  return {};
}

// A direct file accepts any offset, length and address here: unaligned requests use aligned memory in between.
Result<size_t> OsFile::read_now(uint64_t offset, std::span<std::byte> out) {
  if (!file_.direct || aligned(offset, out.data(), out.size())) return pread_all(offset, out);
  const Pages bounce = map_pages(kBounceBytes);
  if (bounce == nullptr) return errno_status(ENOMEM, "cannot read", file_.path);
  size_t moved = 0;
  while (moved < out.size()) {
    const uint64_t at = offset + moved;
    const uint64_t start = at & ~uint64_t{kIoAlign - 1};
    const size_t skip = static_cast<size_t>(at - start);
    const size_t want = std::min(kBounceBytes, static_cast<size_t>(round_up(skip + out.size() - moved, kIoAlign)));
    auto got = pread_all(start, {bounce.get(), want});
    if (!got.ok()) return got;
    if (got.value() <= skip) break;
    const size_t n = std::min(got.value() - skip, out.size() - moved);
    std::memcpy(out.data() + moved, bounce.get() + skip, n);
    moved += n;
    if (got.value() < want) break;
  }
  return moved;
}

// Offset and length of a write to a direct file must be aligned, the address need not.
Status OsFile::write_now(uint64_t offset, std::span<const std::byte> bytes) {
  if (!file_.direct || aligned(offset, bytes.data(), bytes.size())) return pwrite_all(offset, bytes);
  if (!aligned(offset, nullptr, bytes.size())) {
    return Status(Code::invalid_argument, "a direct file is written in multiples of 4096 bytes", file_.path);
  }
  const Pages bounce = map_pages(kBounceBytes);
  if (bounce == nullptr) return errno_status(ENOMEM, "cannot write", file_.path);
  while (!bytes.empty()) {
    const size_t n = std::min(kBounceBytes, bytes.size());
    std::memcpy(bounce.get(), bytes.data(), n);
    if (Status s = pwrite_all(offset, {bounce.get(), n}); !s.ok()) return s;
    bytes = bytes.subspan(n);
    offset += n;
  }
  return {};
}

// On a file system without fallocate the file only gets its length; later writes can then fail with Code::disk_full.
Status OsFile::allocate(uint64_t bytes) {
  if (uninterrupted([&] { return fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)); }) == 0) return {};
  if (errno != EOPNOTSUPP) return errno_status(errno, "cannot reserve space", file_.path);
  auto now = size();
  if (!now.ok()) return now.status();
  return now.value() >= bytes ? Status{} : truncate(bytes);
}

class OsFileSystem final : public FileSystem {
 public:
  // `note`: why io_uring is not used; empty if it is used, or was not requested.
  OsFileSystem(std::shared_ptr<IoEngine> engine, std::string note, const Log* log)
      : engine_(std::move(engine)), note_(std::move(note)), log_(log) {}

  // Logs here, so that a process without a tier on disk gets no message about io_uring.
  Result<std::unique_ptr<Directory>> open_directory(const std::string& path, bool create) override {
    if (log_ != nullptr && !note_.empty() && !warned_.exchange(true, std::memory_order_relaxed)) {
      warn_of_ring(*log_, note_);
    }
    return open_os_directory(engine_, path, create);
  }
  Result<std::unique_ptr<Directory>> visit_directory(const std::string& path) override {
    return visit_os_directory(engine_, path);
  }

  Result<std::shared_ptr<std::byte[]>> staging(size_t bytes) override {
    if (bytes == 0) return Status(Code::invalid_argument, "staging memory of no bytes");
    const size_t rounded = static_cast<size_t>(round_up(bytes, bytes >= kHugePage ? kHugePage : kIoAlign));
    Pages pages = map_pages(rounded);
    if (pages == nullptr) return errno_status(errno, "cannot map staging memory", std::to_string(rounded) + " bytes");
    std::byte* data = pages.get();
    const int index = engine_->register_buffer(data, rounded);
    auto release = [pages = std::make_shared<Pages>(std::move(pages)), engine = engine_, index](std::byte*) {
      if (index >= 0) engine->unregister_buffer(index);
    };
    return std::shared_ptr<std::byte[]>(data, std::move(release));
  }

  [[nodiscard]] std::string describe() const override {
    return engine_->describe() + (note_.empty() ? "" : "; " + note_);
  }

 private:
  std::shared_ptr<IoEngine> engine_;
  const std::string note_;
  const Log* const log_;
  std::atomic<bool> warned_{false};
};

}  // namespace

std::unique_ptr<File> make_os_file(std::shared_ptr<IoEngine> engine, Fd fd, std::string path, bool direct) {
  return std::make_unique<OsFile>(std::move(engine), std::move(fd), std::move(path), direct);
}

Result<std::unique_ptr<FileSystem>> make_os_file_system(Executor& executor, const OsFileOptions& options) {
  std::string note;
  if (options.engine != IoEngineChoice::pread) {
    auto uring = make_uring_engine(
        executor, {options.ring_entries, options.register_staging, options.pread_threads, options.log});
    if (uring.ok()) {
      return std::unique_ptr<FileSystem>(std::make_unique<OsFileSystem>(std::move(uring).value(), "", nullptr));
    }
    if (options.engine == IoEngineChoice::uring) return uring.status();
    note = uring.status().message();
  }
  auto engine = make_pread_engine(executor, options.pread_threads);
  if (!engine.ok()) return engine.status();
  return std::unique_ptr<FileSystem>(
      std::make_unique<OsFileSystem>(std::move(engine).value(), std::move(note), options.log));
}

}  // namespace kvbm

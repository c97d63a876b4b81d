// A process that confines itself while its ring is in use: the kernel refuses every io_uring_enter from then on.
// Nothing of what was asked for before or after is lost.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "base/io/os_file.h"
#include "support/inline_executor.h"
#include "support/seccomp.h"
#include "support/temp_dir.h"

namespace kvbm::confined_io_test {
namespace {

enum { kRight = 0, kNoFilter = 77, kNoRing = 78, kWrong = 100 };  // and the number of the step

constexpr size_t kBytes = size_t{1} << 20;
constexpr int kReads = 32;  // more than the kernel is given at once

class Confined {
 public:
  explicit Confined(const std::string& path) : path_(path) {}

  int run(int error) {
    OsFileOptions options;
    options.engine = IoEngineChoice::uring;
    log_.set_sink(
        [](void* said, const LogMessage& m) { static_cast<std::vector<std::string>*>(said)->emplace_back(m.text); },
        &said_, LogLevel::warning);
    options.log = &log_;
    auto made = make_os_file_system(executor_, options);
    if (!made.ok()) return kNoRing;
    files_ = std::move(made).value();
    auto directory = files_->open_directory(path_, true);
    if (!directory.ok()) return kWrong + 1;
    auto file = directory.value()->open("segment", OpenMode::create, false);
    if (!file.ok()) return kWrong + 2;
    file_ = std::move(file).value();
    memory_ = std::move(files_->staging((kReads + 1) * kBytes)).value();
    SeededRandom(3).fill({memory_.get(), kBytes});
    for (uint64_t i = 0; i < kReads; ++i) begin_write(i);
    if (!all_done()) return kWrong + 3;
    for (uint64_t i = 0; i < kReads; ++i) begin_read(i);
    if (!test::refuse_calls({SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup}, error)) return kNoFilter;
    for (uint64_t i = 0; i < kReads; ++i) begin_read(i);
    if (!all_done()) return kWrong + 4;
    for (uint64_t i = 0; i < kReads; ++i) begin_write(i);
    ++begun_;
    file_->sync([this](const Status& status) { ended(status.ok()); });
    if (!all_done()) return kWrong + 5;
    for (uint64_t i = 0; i < kReads; ++i) {
      std::memset(place(i), 0, kBytes);
      begin_read(i);
    }
    if (!all_done()) return kWrong + 6;
    for (uint64_t i = 0; i < kReads; ++i) {
      if (std::memcmp(place(i), memory_.get(), kBytes) != 0) return kWrong + 7;
    }
    if (said_.size() != 1 || said_[0].find("(errno " + std::to_string(error) + ")") == std::string::npos)
      return kWrong + 8;
    file_.reset();
    memory_.reset();
    directory.value().reset();
    files_.reset();
    return kRight;
  }

 private:
  std::byte* place(uint64_t i) { return memory_.get() + (i + 1) * kBytes; }
  void begin_write(uint64_t i) {
    const IoRun run{memory_.get(), kBytes};
    ++begun_;
    file_->write(i * kBytes, {&run, 1},
                 [this](const Result<size_t>& moved) { ended(moved.ok() && moved.value() == kBytes); });
  }
  void begin_read(uint64_t i) {
    const IoRun run{place(i), kBytes};
    ++begun_;
    file_->read(i * kBytes, {&run, 1},
                [this](const Result<size_t>& moved) { ended(moved.ok() && moved.value() == kBytes); });
  }
  void ended(bool well) {
    --begun_;
    well_ = well_ && well;
  }
  bool all_done() {
    const uint64_t deadline = executor_.clock().now_ns() + 60'000'000'000;
    return executor_.run_until([this] { return begun_ == 0; }, deadline) && well_;
  }

  const std::string path_;
  std::vector<std::string> said_;
  Log log_;
  test::InlineExecutor executor_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<File> file_;
  std::shared_ptr<std::byte[]> memory_;
  int begun_ = 0;
  bool well_ = true;
};

TEST(ConfinedIo, a_ring_that_is_refused_after_it_was_used_loses_nothing) {
  for (const int error : {EPERM, ENOSYS, EACCES}) {
    SCOPED_TRACE(error);
    const test::TempDir folder;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(Confined(folder.path() + "/tier").run(error));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
    if (WEXITSTATUS(status) == kNoRing) GTEST_SKIP() << "no io_uring here";
    EXPECT_EQ(WEXITSTATUS(status), kRight);
  }
}

}  // namespace
}  // namespace kvbm::confined_io_test

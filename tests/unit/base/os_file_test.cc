#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "base/io/io_engine.h"
#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "support/inline_executor.h"
#include "support/temp_dir.h"

namespace kvbm::os_file_test {
namespace {

using test::TempDir;

std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> out(bytes);
  SeededRandom random(seed);
  random.fill(out);
  return out;
}

struct Case {
  const char* name;
  IoEngineChoice engine;
  bool direct;
  bool registered;
};

class OsFile : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    OsFileOptions options;
    options.engine = GetParam().engine;
    options.ring_entries = 8;  // small, so that full rings are met
    options.register_staging = GetParam().registered;
    auto made = make_os_file_system(executor_, options);
    if (!made.ok() && made.status().code() == Code::unsupported) GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    files_ = std::move(made).value();
    auto opened = files_->open_directory(temp_.path() + "/tier", true);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    directory_ = std::move(opened).value();
  }

  std::unique_ptr<File> open(const char* name, OpenMode mode = OpenMode::create) {
    auto opened = directory_->open(name, mode, GetParam().direct);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  std::shared_ptr<std::byte[]> staging(size_t bytes) {
    auto made = files_->staging(bytes);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }
  Result<size_t> wait_read(File& file, uint64_t offset, std::vector<IoRun> runs) {
    Result<size_t> out = Status(Code::internal, "not run");
    bool ended = false;
    file.read(offset, runs, [&](Result<size_t> r) {
      out = std::move(r);
      ended = true;
    });
    EXPECT_TRUE(executor_.run_until([&] { return ended; }));
    return out;
  }
  Result<size_t> wait_write(File& file, uint64_t offset, std::vector<IoRun> runs) {
    Result<size_t> out = Status(Code::internal, "not run");
    bool ended = false;
    file.write(offset, runs, [&](Result<size_t> r) {
      out = std::move(r);
      ended = true;
    });
    EXPECT_TRUE(executor_.run_until([&] { return ended; }));
    return out;
  }

  TempDir temp_;
  test::InlineExecutor executor_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<Directory> directory_;
};

TEST_P(OsFile, reads_back_what_was_written_in_several_runs) {
  auto file = open("segment");
  auto memory = staging(64 << 10);
  const auto data = pattern(32 << 10, 1);
  std::memcpy(memory.get(), data.data(), data.size());
  auto wrote =
      wait_write(*file, 4096, {{memory.get(), 8192}, {memory.get() + 8192, 20480}, {memory.get() + 28672, 4096}});
  ASSERT_TRUE(wrote.ok()) << wrote.status().message();
  EXPECT_EQ(wrote.value(), data.size());
  std::byte* target = memory.get() + (32 << 10);
  auto got = wait_read(*file, 4096, {{target, data.size()}});
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got.value(), data.size());
  EXPECT_EQ(std::memcmp(target, data.data(), data.size()), 0);
}

TEST_P(OsFile, a_read_past_the_end_is_short) {
  auto file = open("segment");
  auto memory = staging(32 << 10);
  ASSERT_TRUE(wait_write(*file, 0, {{memory.get(), 8192}}).ok());
  auto got = wait_read(*file, 4096, {{memory.get(), 8192}, {memory.get() + 8192, 8192}});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got.value(), 4096u);
  auto beyond = wait_read(*file, 1 << 20, {{memory.get(), 4096}});
  ASSERT_TRUE(beyond.ok());
  EXPECT_EQ(beyond.value(), 0u);
}

TEST_P(OsFile, a_direct_read_over_an_unaligned_end_is_short) {
  auto file = open("segment");
  auto memory = staging(32 << 10);
  ASSERT_TRUE(wait_write(*file, 0, {{memory.get(), 8192}}).ok());
  ASSERT_TRUE(file->truncate(5000).ok());
  auto got = wait_read(*file, 0, {{memory.get(), 16384}});
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got.value(), 5000u);
}

TEST_P(OsFile, more_requests_than_the_ring_holds_all_complete_once) {
  constexpr size_t kRequests = 300;
  auto file = open("segment");
  auto memory = staging(kRequests * 4096);
  const auto data = pattern(kRequests * 4096, 2);
  std::memcpy(memory.get(), data.data(), data.size());
  std::array<int, kRequests> ended{};
  size_t count = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    const IoRun run{memory.get() + i * 4096, 4096};
    file->write(i * 4096, {&run, 1}, [&ended, &count, i](Result<size_t> r) {
      EXPECT_TRUE(r.ok()) << r.status().message();
      ++ended[i];
      ++count;
    });
  }
  ASSERT_TRUE(executor_.run_until([&] { return count == kRequests; }));
  EXPECT_FALSE(
      executor_.run_until([] { return false; }, executor_.clock().now_ns() + 1'000'000));  // nothing more comes
  for (int n : ended) EXPECT_EQ(n, 1);
  std::vector<std::byte> back(data.size());
  ASSERT_EQ(file->read_now(0, back).value(), back.size());
  EXPECT_EQ(back, data);
}

TEST_P(OsFile, more_runs_than_one_system_call_takes_move_in_order) {
  constexpr size_t kRuns = 1500;  // IOV_MAX is 1024
  auto file = open("segment");
  auto memory = staging(kRuns * 4096);
  const auto data = pattern(kRuns * 4096, 3);
  std::memcpy(memory.get(), data.data(), data.size());
  std::vector<IoRun> runs;
  for (size_t i = 0; i < kRuns; ++i) runs.push_back({memory.get() + (kRuns - 1 - i) * 4096, 4096});
  auto wrote = wait_write(*file, 0, runs);
  ASSERT_TRUE(wrote.ok()) << wrote.status().message();
  std::vector<std::byte> back(data.size());
  ASSERT_EQ(file->read_now(0, back).value(), back.size());
  for (size_t i = 0; i < kRuns; ++i) {
    ASSERT_EQ(std::memcmp(&back[i * 4096], &data[(kRuns - 1 - i) * 4096], 4096), 0) << i;
  }
}

TEST_P(OsFile, submissions_from_many_threads_keep_their_bytes_apart) {
  auto pool = ThreadExecutor::create("submit", 3);
  ASSERT_TRUE(pool.ok());
  auto file = open("segment");
  constexpr size_t kEach = 64;
  auto memory = staging(3 * kEach * 4096);
  const auto data = pattern(3 * kEach * 4096, 4);
  std::memcpy(memory.get(), data.data(), data.size());
  size_t count = 0;
  for (size_t t = 0; t < 3; ++t) {
    pool.value()->post([&, t] {
      for (size_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        const IoRun run{memory.get() + i * 4096, 4096};
        file->write(i * 4096, {&run, 1}, [&](Result<size_t> r) { count += r.ok(); });
      }
    });
  }
  ASSERT_TRUE(executor_.run_until([&] { return count == 3 * kEach; }));
  std::vector<std::byte> back(data.size());
  ASSERT_EQ(file->read_now(0, back).value(), back.size());
  EXPECT_EQ(back, data);
}

TEST_P(OsFile, sync_and_the_blocking_calls_work_on_unaligned_memory) {
  auto file = open("super");
  ASSERT_TRUE(file->allocate(1 << 20).ok());
  EXPECT_EQ(file->size().value(), uint64_t{1} << 20);
  const auto data = pattern(8192 + 1, 5);
  const std::span<const std::byte> odd(data.data() + 1, 8192);
  ASSERT_TRUE(file->write_now(4096, odd).ok());
  bool synced = false;
  file->sync([&](Status s) { synced = s.ok(); });
  ASSERT_TRUE(executor_.run_until([&] { return synced; }));
  ASSERT_TRUE(file->sync_now().ok());
  std::vector<std::byte> back(1001);
  ASSERT_EQ(file->read_now(4096 + 77, back).value(), back.size());
  EXPECT_EQ(std::memcmp(back.data(), odd.data() + 77, back.size()), 0);
  if (file->direct()) {
    EXPECT_EQ(file->write_now(1, odd).code(), Code::invalid_argument);
  }
}

TEST_P(OsFile, an_error_names_the_path_and_reaches_the_completion) {
  auto file = open("segment");
  file = open("segment", OpenMode::read_only);
  auto memory = staging(4096);
  auto wrote = wait_write(*file, 0, {{memory.get(), 4096}});
  ASSERT_FALSE(wrote.ok());
  EXPECT_EQ(wrote.status().code(), Code::io_error);  // EBADF
  EXPECT_NE(wrote.status().message().find("/tier/segment"), std::string::npos) << wrote.status().message();
}

TEST_P(OsFile, nothing_to_move_completes_with_nothing_moved) {
  auto file = open("segment");
  EXPECT_EQ(wait_write(*file, 0, {}).value(), 0u);
  EXPECT_EQ(wait_read(*file, 0, {{nullptr, 0}}).value(), 0u);
}

TEST_P(OsFile, a_completion_may_end_its_file_and_the_file_system) {
  auto file = open("segment");
  auto memory = staging(4096);
  const IoRun run{memory.get(), 4096};
  bool ended = false;
  File* raw = file.get();
  memory.reset();
  auto again = staging(4096);
  const IoRun run2{again.get(), 4096};
  raw->write(0, {&run2, 1}, [&, f = std::move(file)](Result<size_t> r) mutable {
    EXPECT_TRUE(r.ok());
    f.reset();
    again.reset();
    directory_.reset();
    files_.reset();
    ended = true;
  });
  (void)run;
  EXPECT_TRUE(executor_.run_until([&] { return ended; }));
}

INSTANTIATE_TEST_SUITE_P(engines, OsFile,
                         testing::Values(Case{"uring_direct_registered", IoEngineChoice::uring, true, true},
                                         Case{"uring_direct", IoEngineChoice::uring, true, false},
                                         Case{"uring_buffered", IoEngineChoice::uring, false, true},
                                         Case{"pread_direct", IoEngineChoice::pread, true, true},
                                         Case{"pread_buffered", IoEngineChoice::pread, false, true}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(IoRequest, interrupted_and_short_transfers_go_on_where_they_stopped) {
  std::array<std::byte, 100> memory{};
  IoRequest r;
  r.op = IoRequest::Op::write;
  r.offset = 1000;
  r.total = 100;
  r.runs = {{memory.data(), 30}, {memory.data() + 30, 30}, {memory.data() + 60, 40}};
  EXPECT_FALSE(r.advance(-EINTR));
  EXPECT_FALSE(r.advance(-EAGAIN));
  EXPECT_TRUE(r.retried);
  EXPECT_FALSE(r.advance(45));
  EXPECT_EQ(r.offset, 1045u);
  ASSERT_EQ(r.rest().size(), 2u);
  EXPECT_EQ(r.rest()[0].iov_base, memory.data() + 45);
  EXPECT_EQ(r.rest()[0].iov_len, 15u);
  EXPECT_FALSE(r.advance(15));
  EXPECT_EQ(r.rest().size(), 1u);
  EXPECT_TRUE(r.advance(40));
  EXPECT_EQ(r.error, 0);
  EXPECT_EQ(r.moved, 100u);
}

TEST(IoRequest, ends_with_the_error_and_never_spins_on_interrupts) {
  IoRequest r;
  r.op = IoRequest::Op::write;
  r.total = 10;
  EXPECT_TRUE(r.advance(-ENOSPC));
  EXPECT_EQ(r.error, ENOSPC);
  IoRequest nothing;
  nothing.op = IoRequest::Op::write;
  nothing.total = 10;
  EXPECT_TRUE(nothing.advance(0));
  EXPECT_EQ(nothing.error, EIO);
  IoRequest spin;
  int tries = 0;
  while (!spin.advance(-EINTR)) ++tries;
  EXPECT_EQ(spin.error, EINTR);
  EXPECT_LT(tries, 10000);
}

class OsDirectory : public testing::Test {
 protected:
  void SetUp() override {
    OsFileOptions options;
    options.engine = IoEngineChoice::pread;
    options.pread_threads = 1;
    files_ = std::move(make_os_file_system(executor_, options)).value();
  }
  std::unique_ptr<Directory> open(const std::string& path) {
    auto opened = files_->open_directory(path, true);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  TempDir temp_;
  test::InlineExecutor executor_;
  std::unique_ptr<FileSystem> files_;
};

TEST_F(OsDirectory, is_made_for_its_owner_alone_with_missing_parents) {
  const std::string path = temp_.path() + "/a/b/c//";
  auto directory = open(path);
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  ASSERT_TRUE(directory->open("x", OpenMode::create, false).ok());
  ASSERT_EQ(stat((path + "x").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(OsDirectory, missing_one_is_a_miss_unless_it_may_be_created) {
  EXPECT_EQ(files_->open_directory(temp_.path() + "/none", false).status().code(), Code::miss);
}

TEST_F(OsDirectory, refuses_a_link_and_a_file) {
  open(temp_.path() + "/real");
  ASSERT_EQ(symlink("real", (temp_.path() + "/link").c_str()), 0);
  for (const char* name : {"/link", "/link/"}) {
    const Status s = files_->open_directory(temp_.path() + name, true).status();
    EXPECT_EQ(s.code(), Code::not_permitted) << s.message();
    EXPECT_NE(s.message().find("symbolic link"), std::string::npos) << s.message();
  }
  std::ofstream(temp_.path() + "/file") << "x";
  EXPECT_EQ(files_->open_directory(temp_.path() + "/file", true).status().code(), Code::invalid_argument);
}

TEST_F(OsDirectory, takes_only_plain_names_and_regular_files) {
  auto directory = open(temp_.path() + "/d");
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "lock"}) {
    EXPECT_EQ(directory->open(name, OpenMode::create, false).status().code(), Code::invalid_argument) << name;
    EXPECT_EQ(directory->remove(name).code(), Code::invalid_argument) << name;
    EXPECT_EQ(directory->rename("x", name).code(), Code::invalid_argument) << name;
  }
  ASSERT_EQ(mkfifo((temp_.path() + "/d/fifo").c_str(), 0600), 0);
  EXPECT_EQ(directory->open("fifo", OpenMode::read_only, false).status().code(), Code::not_permitted);
  ASSERT_EQ(symlink("/etc/passwd", (temp_.path() + "/d/s").c_str()), 0);
  EXPECT_EQ(directory->open("s", OpenMode::read_only, false).status().code(), Code::not_permitted);
}

TEST_F(OsDirectory, lists_sorted_and_renames_and_removes) {
  auto directory = open(temp_.path() + "/d");
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(directory->open(name, OpenMode::create, false).ok());
  EXPECT_EQ(directory->list().value(), (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_TRUE(directory->rename("c", "0").ok());
  ASSERT_TRUE(directory->remove("b").ok());
  ASSERT_TRUE(directory->sync().ok());
  EXPECT_EQ(directory->list().value(), (std::vector<std::string>{"0", "a"}));
  EXPECT_EQ(directory->remove("b").code(), Code::miss);
  EXPECT_EQ(directory->open("b", OpenMode::read_write, false).status().code(), Code::miss);
  EXPECT_GT(directory->free_bytes().value(), 0u);
}

TEST_F(OsDirectory, lock_refuses_a_second_owner_in_the_same_process) {
  auto first = open(temp_.path() + "/d");
  auto second = open(temp_.path() + "/d");
  auto held = first->lock();
  ASSERT_TRUE(held.ok()) << held.status().message();
  const Status s = second->lock().status();
  EXPECT_EQ(s.code(), Code::in_use);
  EXPECT_NE(s.message().find("this process"), std::string::npos) << s.message();
  held = Status(Code::closed, "");
  EXPECT_TRUE(second->lock().ok());
}

// Runs `body` in a forked child; its exit status.
template <class Body>
int in_child(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(OsDirectory, lock_refuses_a_child_and_names_the_owner_and_survives_the_childs_end) {
  auto directory = open(temp_.path() + "/d");
  auto held = directory->lock();
  ASSERT_TRUE(held.ok());
  auto attempt = [&] {
    const Status s = directory->lock().status();
    if (s.code() != Code::in_use) return 1;
    return s.message().find("process " + std::to_string(getppid())) != std::string::npos ? 0 : 2;
  };
  EXPECT_EQ(in_child(attempt), 0);
  EXPECT_EQ(in_child(attempt), 0);
  held = Status(Code::closed, "");
  EXPECT_EQ(in_child([&] { return directory->lock().ok() ? 0 : 1; }), 0);
  EXPECT_TRUE(directory->lock().ok());
}

TEST_F(OsDirectory, lock_of_a_killed_owner_is_free_again) {
  auto directory = open(temp_.path() + "/d");
  EXPECT_EQ(in_child([&] {
              auto held = directory->lock();
              return held.ok() ? 0 : 1;  // exits without releasing
            }),
            0);
  EXPECT_TRUE(directory->lock().ok());
}

TEST(OsFileSystem, says_which_engine_it_uses) {
  test::InlineExecutor executor;
  OsFileOptions options;
  options.engine = IoEngineChoice::pread;
  auto made = make_os_file_system(executor, options);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value()->describe(), "pread/pwrite on 4 threads");
  EXPECT_EQ(made.value()->staging(0).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace kvbm::os_file_test

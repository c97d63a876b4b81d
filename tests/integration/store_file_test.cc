// The store of files, beyond the contract of every store (store_contract_test): owners of directories, remains of
// crashes, folders that appear and vanish, lost directories and full disks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "capi/plugin/store_module.h"
#include "capi/plugin/store_url.h"
#include "support/other_user.h"
#include "support/seccomp.h"
#include "support/small_file_system.h"
#include "support/temp_dir.h"

namespace kvbm::test::store_file_test {
namespace {

namespace fs = std::filesystem;

struct Answer {
  kvbm_status_t status = KVBM_OK;
  std::string text;  // the bytes read, or names with a blank after each
  bool more = false;
  std::string message;
};

// The store as libkvbm drives it; one call at a time and thread.
class Files {
 public:
  explicit Files(const std::string& text) {
    auto url = capi::parse_store_url(text);
    if (!url.ok()) throw std::runtime_error(url.status().message());
    url_ = std::move(url).value();
    const auto table = capi::load_store_module(url_, KVBM_STORES);
    if (!table.ok()) throw std::runtime_error(table.status().message());
    table_ = table.value();
    options_ = capi::split_store_options(url_, *table_).value();
    config_ = {sizeof config_,
               0,
               url_.scheme.c_str(),
               url_.authority.c_str(),
               url_.user.c_str(),
               url_.password.c_str(),
               url_.path.c_str(),
               options_.of_store.data(),
               options_.of_store.size(),
               this,
               finished,
               log};
    facts_.struct_size = sizeof facts_;
    std::array<char, 256> message{};
    opened_ = table_->open(&config_, 1'000'000'000, &facts_, &store_, message.data());
    message_ = message.data();
  }
  ~Files() {
    if (opened_ == KVBM_OK) table_->close(store_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  [[nodiscard]] kvbm_status_t opened() const { return opened_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] const std::string& logged() const { return logged_; }

  Answer put(const std::string& name, const std::string& text, uint32_t flags = 0) {
    std::string bytes = text;
    return run(KVBM_STORE_PUT, name, nullptr, bytes, flags);
  }
  Answer get(const std::string& name) {
    std::string bytes(64, '\0');
    return run(KVBM_STORE_GET, name, nullptr, bytes);
  }
  Answer remove(const std::string& name) {
    std::string bytes;
    return run(KVBM_STORE_REMOVE, name, nullptr, bytes);
  }
  Answer list(const std::string& prefix, const std::string& after = "", size_t room = 1 << 20) {
    std::string bytes(room, '\0');
    Answer answer = run(KVBM_STORE_LIST, prefix, after.c_str(), bytes);
    for (char& c : answer.text) c = c == '\0' ? ' ' : c;
    return answer;
  }

 private:
  static void finished(void*, kvbm_store_op_t* op, kvbm_status_t status) {
    static_cast<Answer*>(op->library_private)->status = status;
  }
  static void log(void* context, int32_t, const char* text) { static_cast<Files*>(context)->logged_ += text; }

  Answer run(uint32_t kind, const std::string& name, const char* after, std::string& bytes, uint32_t flags = 0) {
    Answer answer;
    kvbm_store_op_t op{};
    op.kind = kind;
    op.flags = flags;
    op.name = name.c_str();
    op.after = after;
    op.data = bytes.data();
    op.bytes = bytes.size();
    op.timeout_ns = 60'000'000'000;
    op.library_private = &answer;
    kvbm_store_op_t* one = &op;
    table_->start(store_, &one, 1);
    answer.text = bytes.substr(0, op.done);
    answer.more = op.more != 0;
    answer.message = op.message;
    return answer;
  }

  capi::StoreUrl url_;
  capi::StoreOptions options_;
  const kvbm_store_table_t* table_ = nullptr;
  kvbm_store_config_t config_{};
  kvbm_store_facts_t facts_{};
  void* store_ = nullptr;
  kvbm_status_t opened_ = KVBM_OK;
  std::string message_;
  std::string logged_;
};

class StoreFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return dir_.path() + "/kv/" + name; }
  [[nodiscard]] std::string url(const std::string& options = "sync=off") const {
    return "file://" + dir_.path() + "/kv?" + options;
  }
  void make_file(const std::string& name, const std::string& text = "x") const {
    ASSERT_TRUE(write_own_file(at(name), text));
  }
  void make_old(const std::string& name) const {
    const std::array<timespec, 2> times = {{{std::time(nullptr) - 3700, 0}, {std::time(nullptr) - 3700, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, at(name).c_str(), times.data(), AT_SYMLINK_NOFOLLOW), 0);
  }
  void expect_refused(const std::string& options, kvbm_status_t status, const std::string& word) const {
    const Files files(url(options));
    EXPECT_EQ(files.opened(), status) << files.message();
    EXPECT_NE(files.message().find(word), std::string::npos) << files.message();
  }
  TempDir dir_;
};

TEST_F(StoreFile, keeps_an_object_in_a_file_of_its_name) {
  Files files(url());
  ASSERT_EQ(files.opened(), KVBM_OK) << files.message();
  EXPECT_EQ(files.put("a/b/c", "text").status, KVBM_OK);
  EXPECT_EQ(fs::file_size(at("a/b/c")), 4U);
  EXPECT_EQ(mode_of(at("a/b/c")), 0600U);
  EXPECT_EQ(mode_of(at("a")), 0700U);
  EXPECT_EQ(mode_of(dir_.path() + "/kv"), 0700U);
  EXPECT_EQ(files.remove("a/b/c").status, KVBM_OK);
  EXPECT_TRUE(fs::is_empty(dir_.path() + "/kv")) << "folders go with their last object";
}

TEST_F(StoreFile, a_group_may_have_what_is_shared_whatever_the_umask) {
  const mode_t before = ::umask(077);
  Files files(url("shared=on"));
  ASSERT_EQ(files.opened(), KVBM_OK) << files.message();
  EXPECT_EQ(files.put("a/b", "text").status, KVBM_OK);
  ::umask(before);
  EXPECT_EQ(mode_of(at("a/b")), 0660U);
  EXPECT_EQ(mode_of(at("a")), 02770U);
  EXPECT_EQ(mode_of(dir_.path() + "/kv"), 02770U);
}

TEST_F(StoreFile, a_shared_place_on_this_hosts_own_file_system_is_a_warning_with_its_type) {
  const Files shared("file:///dev/shm/kvbm-test-" + std::to_string(::getpid()) + "?shared=on");
  ::rmdir(("/dev/shm/kvbm-test-" + std::to_string(::getpid())).c_str());
  ASSERT_EQ(shared.opened(), KVBM_OK) << shared.message();
  EXPECT_NE(shared.logged().find("is on tmpfs, which other hosts do not see"), std::string::npos) << shared.logged();
  const Files own(url("shared=off"));
  EXPECT_EQ(own.logged(), "");
}

TEST_F(StoreFile, refuses_a_directory_that_others_may_write) {
  fs::create_directory(dir_.path() + "/kv");
  ASSERT_EQ(::chmod(at("").c_str(), 0770), 0);
  expect_refused("shared=off", KVBM_ERR_PERMISSION, "shared=on");
  EXPECT_EQ(Files(url("shared=on")).opened(), KVBM_OK);
  ASSERT_EQ(::chmod(at("").c_str(), 0702), 0);
  expect_refused("shared=off", KVBM_ERR_PERMISSION, "chmod o-w");
  expect_refused("shared=on", KVBM_ERR_PERMISSION, "chmod o-w");
}

TEST_F(StoreFile, refuses_another_users_directory_unless_it_is_shared) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a directory to another user";
  fs::create_directory(dir_.path() + "/kv");
  ASSERT_EQ(::chmod(at("").c_str(), 0755), 0);
  ASSERT_EQ(::chown(at("").c_str(), kOtherUser, kOtherUser), 0);
  expect_refused("shared=off", KVBM_ERR_PERMISSION, "shared=on");
  EXPECT_EQ(Files(url("shared=on")).opened(), KVBM_OK);
}

TEST_F(StoreFile, says_what_is_wrong_with_a_place) {
  const auto expect = [](const std::string& text, const char* word) {
    const Files files(text);
    EXPECT_NE(files.opened(), KVBM_OK) << text;
    EXPECT_NE(files.message().find(word), std::string::npos) << text << ": " << files.message();
  };
  expect("file://" + dir_.path() + "/not/there", "mount the file system");
  expect("file://host/kv", "file:///host/kv");
  expect("file://me:secret@/kv", "no user or password");
  expect("file:///", "whole path");
  expect("file://" + dir_.path() + "/a/../kv", "..");
  expect(url("shared=yes"), "on or off");
  expect(url("threads=257"), "1 to 256");
  ASSERT_TRUE(write_own_file(dir_.path() + "/file", "x"));
  expect("file://" + dir_.path() + "/file", "not a directory");
  fs::create_directory_symlink(dir_.path(), dir_.path() + "/link");
  expect("file://" + dir_.path() + "/link/", "symbolic link");
}

TEST_F(StoreFile, follows_no_links_and_reads_no_devices) {
  Files files(url());
  make_file("../secret", "secret");
  fs::create_symlink(dir_.path() + "/secret", at("file"));
  fs::create_directory_symlink(dir_.path(), at("folder"));
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_EQ(files.get("file").status, KVBM_ERR_PERMISSION);
  EXPECT_EQ(files.get("folder/secret").status, KVBM_ERR_MISS);
  EXPECT_EQ(files.get("fifo").status, KVBM_ERR_PERMISSION);
  EXPECT_NE(files.put("folder/new", "x").status, KVBM_OK);
  EXPECT_FALSE(fs::exists(dir_.path() + "/new"));
  EXPECT_EQ(files.list("").text, "");
  EXPECT_EQ(files.put("file", "mine").status, KVBM_OK) << "a put replaces the link, not what it points to";
  EXPECT_EQ(files.get("file").text, "mine");
}

TEST_F(StoreFile, believes_no_name) {
  Files files(url());
  make_file("../secret", "secret");
  for (const char* name :
       {"", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", ".tmp-1", "a/.b", "A", "a b", "a\nb"}) {
    EXPECT_EQ(files.get(name).status, KVBM_ERR_CONFIG) << name;
    EXPECT_EQ(files.put(name, "x").status, KVBM_ERR_CONFIG) << name;
    EXPECT_EQ(files.remove(name).status, KVBM_ERR_CONFIG) << name;
  }
  EXPECT_EQ(files.get(std::string(161, 'a')).status, KVBM_ERR_CONFIG);
  EXPECT_EQ(files.list("../").status, KVBM_ERR_CONFIG);
}

TEST_F(StoreFile, a_listing_removes_what_a_crash_left_an_hour_ago) {
  Files files(url());
  EXPECT_EQ(files.put("a/b", "x").status, KVBM_OK);
  for (const char* name : {"a/.tmp-old", "a/.tmp-new", "a/.other"}) make_file(name);
  fs::create_directories(at("old/in"));
  fs::create_directory(at("new"));
  for (const char* name : {"a/.tmp-old", "a/.other", "old/in"}) make_old(name);
  EXPECT_EQ(files.list("").text, "a/b ");
  EXPECT_FALSE(fs::exists(at("a/.tmp-old")));
  EXPECT_TRUE(fs::exists(at("a/.tmp-new"))) << "its put may be under way";
  EXPECT_TRUE(fs::exists(at("a/.other"))) << "it is not ours";
  EXPECT_FALSE(fs::exists(at("old")));
  EXPECT_TRUE(fs::exists(at("new"))) << "a put may be about to use it";
}

TEST_F(StoreFile, a_listing_does_not_read_folders_before_its_beginning) {
  Files files(url());
  for (const char* name : {"a/1", "b/1", "c/1"}) EXPECT_EQ(files.put(name, "x").status, KVBM_OK);
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  const int a = ::inotify_add_watch(watch, at("a").c_str(), IN_OPEN);
  const int c = ::inotify_add_watch(watch, at("c").c_str(), IN_OPEN);
  if (watch < 0 || a < 0 || c < 0) GTEST_SKIP() << "no inotify here";
  EXPECT_EQ(files.list("", "b").text, "b/1 c/1 ");
  alignas(inotify_event) std::array<char, 4096> events{};
  bool read_a = false;
  bool read_c = false;
  for (ssize_t n = 0; (n = ::read(watch, events.data(), events.size())) > 0;) {
    for (ssize_t at = 0; at < n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
      read_a = read_a || event->wd == a;
      read_c = read_c || event->wd == c;
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
  }
  ::close(watch);
  EXPECT_FALSE(read_a);
  EXPECT_TRUE(read_c);
}

// The folder has more entries than are sorted at a time.
TEST(StoreOfManyFiles, lists_a_large_folder_whole) {
  constexpr size_t kFiles = 70'000;
  const TempDir memory("/dev/shm");
  ASSERT_FALSE(memory.path().empty());
  Files files("file://" + memory.path());
  for (size_t i = 0; i < kFiles; ++i) {
    // Makes the files in another order than that of their names.
    const std::string name = memory.path() + "/" + std::to_string(1'000'000 + i * 7919 % kFiles);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  const Answer all = files.list("");
  EXPECT_EQ(all.status, KVBM_OK) << all.message;
  EXPECT_FALSE(all.more);
  ASSERT_EQ(all.text.size(), kFiles * 8);
  for (size_t i = 0; i < kFiles; i += 997) EXPECT_EQ(all.text.substr(i * 8, 7), std::to_string(1'000'000 + i));
}

// The folder goes with its last object while others put into it.
TEST_F(StoreFile, puts_survive_folders_that_vanish) {
  Files files(url());
  std::vector<std::thread> threads;
  std::array<size_t, 4> failures{};
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "deep/folder/" + std::to_string(t);
      for (int i = 0; i < 500; ++i) {
        failures[t] += files.put(name, "x").status != KVBM_OK ? 1 : 0;
        failures[t] += files.remove(name).status != KVBM_OK ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t n : failures) EXPECT_EQ(n, 0U);
  EXPECT_TRUE(fs::is_empty(dir_.path() + "/kv"));
}

TEST_F(StoreFile, opens_a_directory_again_that_was_lost) {
  Files files(url());
  EXPECT_EQ(files.put("a", "one").status, KVBM_OK);
  fs::rename(dir_.path() + "/kv", dir_.path() + "/moved");
  fs::remove_all(dir_.path() + "/moved");
  EXPECT_EQ(files.put("b", "two").status, KVBM_OK);
  EXPECT_EQ(files.get("b").text, "two");
  EXPECT_TRUE(fs::exists(at("b")));
  fs::remove_all(dir_.path() + "/kv");
  fs::create_directory(dir_.path() + "/kv");
  make_file("c", "three");
  EXPECT_EQ(files.get("c").text, "three") << "another host made it anew";
  EXPECT_EQ(files.list("").text, "c ");
}

// The server of a network file system has replaced the handle of a folder. A listing without the names of epochs would
// be believed.
TEST_F(StoreFile, a_folder_that_is_stale_is_no_empty_folder) {
  Files files(url());
  ASSERT_EQ(files.put("v1/e/a", "one").status, KVBM_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!refuse_calls({SYS_openat}, ESTALE, true)) ::_exit(77);
    bool again = files.list("v1/e/").status == KVBM_ERR_AGAIN;
    again = files.get("v1/e/a").status == KVBM_ERR_AGAIN && again;
    ::_exit(again && refused_calls <= 16 ? 0 : 1);  // each is made a few times
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system takes no filter of system calls";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files.list("v1/e/").text, "v1/e/a ");
}

// A rename is durable only once its folder is: an epoch that a power cut took back would bring invalidated blocks back.
TEST_F(StoreFile, the_name_of_an_epoch_is_on_the_disk_before_its_put_ends) {
  Files files(url("sync=on"));
  const pid_t child = ::fork();
  if (child == 0) {
    if (!refuse_calls({SYS_fsync}, EIO)) ::_exit(77);
    const bool listed = files.put("v1/e/a", "one", KVBM_STORE_LISTED).status == KVBM_ERR_IO;
    ::_exit(listed && files.put("v1/p/a", "one").status == KVBM_OK ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system takes no filter of system calls";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files.put("v1/e/a", "two", KVBM_STORE_LISTED).status, KVBM_OK);
}

TEST_F(StoreFile, a_full_disk_is_said_to_be_full_and_nothing_stays) {
  const SmallFileSystem small(1 << 20);
  if (!small.ok()) GTEST_SKIP() << small.why();
  Files files("file://" + small.path());
  ASSERT_EQ(files.opened(), KVBM_OK) << files.message();
  EXPECT_EQ(files.put("a", std::string(500'000, 'x')).status, KVBM_OK);
  const Answer full = files.put("b", std::string(700'000, 'x'));
  EXPECT_EQ(full.status, KVBM_ERR_DISK_FULL);
  EXPECT_NE(full.message.find("No space left"), std::string::npos) << full.message;
  EXPECT_EQ(files.get("b").status, KVBM_ERR_MISS);
  EXPECT_EQ(files.remove("a").status, KVBM_OK);
  EXPECT_EQ(files.put("b", std::string(700'000, 'x')).status, KVBM_OK) << "what did not fit has left no file";
}

TEST_F(StoreFile, a_read_only_file_system_is_said_to_be_one) {
  const SmallFileSystem small(1 << 20);
  if (!small.ok()) GTEST_SKIP() << small.why();
  Files files("file://" + small.path());
  EXPECT_EQ(files.put("a", "x").status, KVBM_OK);
  if (::mount(nullptr, small.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
    GTEST_SKIP() << "it cannot be remounted";
  const Answer refused = files.put("b", "x");
  EXPECT_EQ(refused.status, KVBM_ERR_PERMISSION);
  EXPECT_NE(refused.message.find("Read-only"), std::string::npos) << refused.message;
  EXPECT_EQ(files.get("a").text, "x");
}

}  // namespace
}  // namespace kvbm::test::store_file_test

// Directories, files and processes are this user's alone, or refused with what to do.
#include "base/io/ownership.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "base/io/fd.h"
#include "base/io/os_file.h"
#include "base/io/owned_file.h"
#include "base/memory/memory.h"
#include "support/inline_executor.h"
#include "support/other_user.h"
#include "support/temp_dir.h"

namespace kvbm::ownership_test {
namespace {

using test::can_be_another_user;
using test::kOtherUser;
using test::mode_of;
using test::TempDir;
using test::write_own_file;

constexpr uint64_t kArenaBytes = 2 << 20;

Fd opened(const std::string& path) { return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

void expect_refused(const Status& status, std::initializer_list<std::string> parts) {
  EXPECT_EQ(status.code(), Code::not_permitted) << status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
  }
}

class Ownership : public testing::Test {
 protected:
  void SetUp() override {
    OsFileOptions options;
    options.engine = IoEngineChoice::pread;
    options.pread_threads = 1;
    files_ = std::move(make_os_file_system(executor_, options)).value();
  }
  [[nodiscard]] std::string at(const char* name) const { return temp_.path() + "/" + name; }
  Status open_directory(const std::string& path) { return files_->open_directory(path, true).status(); }

  TempDir temp_;
  test::InlineExecutor executor_;
  std::unique_ptr<FileSystem> files_;
};

TEST_F(Ownership, a_user_is_itself_unless_it_has_the_number_of_all_who_are_not_mapped) {
  static_assert(is_same_user(0, 0, 65534, false) && is_same_user(1000, 1000, 65534, false));
  static_assert(!is_same_user(1000, 0, 65534, true) && !is_same_user(0, 1000, 65534, true));
  static_assert(is_same_user(65534, 65534, 65534, true) && !is_same_user(65534, 65534, 65534, false));
  EXPECT_TRUE(is_this_user(geteuid()));
  EXPECT_FALSE(is_this_user(geteuid() + 1));
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(test::as_another_user([] { return is_this_user(kOtherUser) && !is_this_user(0) ? 0 : 1; }), 0);
}

TEST_F(Ownership, others_may_read_and_not_write) {
  ASSERT_TRUE(write_own_file(at("file"), "x"));
  for (const mode_t mode : {0600, 0644, 0755, 0400}) {
    ASSERT_EQ(chmod(at("file").c_str(), mode), 0);
    EXPECT_TRUE(check_own(opened(at("file")).get(), at("file"), Others::read).ok()) << mode;
  }
  for (const mode_t mode : {0602, 0620, 0666, 0777}) {
    ASSERT_EQ(chmod(at("file").c_str(), mode), 0);
    expect_refused(check_own(opened(at("file")).get(), at("file"), Others::read), {"chmod go-w " + at("file")});
  }
}

TEST_F(Ownership, where_others_may_do_nothing_every_bit_of_theirs_is_refused) {
  ASSERT_TRUE(write_own_file(at("file"), "x"));
  EXPECT_TRUE(check_own(opened(at("file")).get(), at("file"), Others::nothing).ok());
  for (const mode_t bit : {040, 020, 010, 04, 02, 01}) {
    ASSERT_EQ(chmod(at("file").c_str(), 0600 | bit), 0);
    expect_refused(check_own(opened(at("file")).get(), at("file"), Others::nothing), {"chmod 600 " + at("file")});
  }
  expect_refused(check_own(opened(temp_.path() + "/..").get(), "above", Others::nothing), {"above"});
}

TEST_F(Ownership, another_users_is_refused_with_whose_it_is) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(write_own_file(at("file"), "x"));
  ASSERT_EQ(chown(at("file").c_str(), kOtherUser, kOtherUser), 0);
  expect_refused(check_own(opened(at("file")).get(), at("file"), Others::read),
                 {"user 65534's", "chown 0 " + at("file")});
  expect_refused(check_own_key(opened(at("file")).get(), at("file")), {"user 65534's"});
}

// ---- Directories of tiers ----

TEST_F(Ownership, a_directory_that_others_may_write_is_refused_also_where_it_is_ours) {
  for (const mode_t mode : {0777, 0770, 0702, 01777}) {
    const std::string path = at("d") + std::to_string(mode);
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    expect_refused(open_directory(path), {"chmod go-w " + path});
    ASSERT_EQ(chmod(path.c_str(), mode & ~mode_t{022}), 0);
    EXPECT_TRUE(open_directory(path).ok());
  }
}

TEST_F(Ownership, another_users_directory_is_refused_whatever_its_mode_and_may_be_looked_at) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a directory away";
  for (const mode_t mode : {0700, 0755}) {
    const std::string path = at("d") + std::to_string(mode);
    ASSERT_EQ(mkdir(path.c_str(), mode), 0);
    ASSERT_TRUE(write_own_file(path + "/x", "x"));
    ASSERT_EQ(chown(path.c_str(), kOtherUser, kOtherUser), 0);
    expect_refused(open_directory(path), {"user 65534's", "chown 0 " + path});
    auto visited = files_->visit_directory(path);
    ASSERT_TRUE(visited.ok()) << visited.status().message();
    EXPECT_TRUE(visited.value()->open("x", OpenMode::read_only, false).ok());
    // The visit left no lock file for the directory's owner to find.
    EXPECT_EQ(visited.value()->lock().status().code(), Code::miss);
    EXPECT_EQ(mode_of(path + "/lock"), 0U);
  }
}

// The file is replaced between two opens, as between two starts.
TEST_F(Ownership, a_file_in_an_own_directory_that_another_user_put_there_is_refused) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a file away";
  auto directory = std::move(files_->open_directory(at("tier"), true)).value();
  ASSERT_TRUE(directory->open("segment", OpenMode::create, false).ok());
  ASSERT_EQ(unlink(at("tier/segment").c_str()), 0);
  ASSERT_TRUE(write_own_file(at("tier/segment"), "not ours"));
  ASSERT_EQ(chown(at("tier/segment").c_str(), kOtherUser, kOtherUser), 0);
  for (const OpenMode mode : {OpenMode::read_only, OpenMode::read_write, OpenMode::create}) {
    expect_refused(directory->open("segment", mode, false).status(), {"tier/segment", "user 65534's"});
  }
}

TEST_F(Ownership, a_file_in_an_own_directory_that_others_may_write_is_refused) {
  auto directory = std::move(files_->open_directory(at("tier"), true)).value();
  ASSERT_TRUE(directory->open("segment", OpenMode::create, false).ok());
  ASSERT_EQ(chmod(at("tier/segment").c_str(), 0666), 0);
  expect_refused(directory->open("segment", OpenMode::read_write, false).status(),
                 {"chmod go-w " + at("tier/segment")});
}

TEST_F(Ownership, a_lock_file_of_another_user_or_that_others_may_write_is_refused) {
  auto directory = std::move(files_->open_directory(at("tier"), true)).value();
  ASSERT_TRUE(directory->lock().ok());
  ASSERT_EQ(chmod(at("tier/lock").c_str(), 0666), 0);
  expect_refused(directory->lock().status(), {"chmod go-w " + at("tier/lock")});
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chmod(at("tier/lock").c_str(), 0600), 0);
  ASSERT_EQ(chown(at("tier/lock").c_str(), kOtherUser, kOtherUser), 0);
  expect_refused(directory->lock().status(), {"user 65534's"});
}

TEST_F(Ownership, what_is_made_is_its_owners_alone_whatever_the_umask) {
  for (const mode_t mask : {0, 0777, 0277}) {
    const std::string path = at("u") + std::to_string(mask);
    const mode_t before = umask(mask);
    auto directory = files_->open_directory(path + "/inside", true);
    const bool file = directory.ok() && directory.value()->open("file", OpenMode::create, false).ok();
    const bool lock = directory.ok() && directory.value()->lock().ok();
    const bool owned = OwnedFile::open(path + "-owned").ok();
    umask(before);
    ASSERT_TRUE(directory.ok() && file && lock && owned) << mask;
    EXPECT_EQ(mode_of(path), 0700U) << mask;
    EXPECT_EQ(mode_of(path + "/inside"), 0700U) << mask;
    EXPECT_EQ(mode_of(path + "/inside/file"), 0600U) << mask;
    EXPECT_EQ(mode_of(path + "/inside/lock"), 0600U) << mask;
    EXPECT_EQ(mode_of(path + "-owned"), 0600U) << mask;
  }
}

// ---- host.file ----

Status map_file(const std::string& path) {
  ArenaOptions options;
  options.bytes = kArenaBytes;
  options.file = path;
  return Arena::map(options).status();
}

TEST_F(Ownership, an_arenas_file_that_others_may_write_or_have_made_is_refused) {
  ASSERT_TRUE(write_own_file(at("host"), ""));
  ASSERT_EQ(chmod(at("host").c_str(), 0666), 0);
  expect_refused(map_file(at("host")), {"chmod go-w " + at("host")});
  EXPECT_EQ(std::filesystem::file_size(at("host")), 0U);
  ASSERT_EQ(chmod(at("host").c_str(), 0600), 0);
  EXPECT_TRUE(map_file(at("host")).ok());
  ASSERT_EQ(symlink("host", at("link").c_str()), 0);
  EXPECT_EQ(map_file(at("link")).code(), Code::not_permitted);
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(write_own_file(at("theirs"), ""));
  ASSERT_EQ(chown(at("theirs").c_str(), kOtherUser, kOtherUser), 0);
  expect_refused(map_file(at("theirs")), {"user 65534's", "chown 0 " + at("theirs")});
  // The directory is like /tmp, where the system may refuse O_CREAT for an existing file of another user.
  ASSERT_EQ(chmod(temp_.path().c_str(), 01777), 0);
  expect_refused(map_file(at("theirs")), {"user 65534's", "chown 0 " + at("theirs")});
}

// A page that cannot be allocated when it is touched ends the process (SIGBUS). A file system that cannot reserve pages
// is refused.
TEST_F(Ownership, an_arenas_file_where_nothing_can_be_reserved_is_refused) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can mount a file system";
  ASSERT_EQ(mkdir(at("ram").c_str(), 0700), 0);
  if (mount("none", at("ram").c_str(), "ramfs", 0, nullptr) != 0) GTEST_SKIP() << "no file system can be mounted here";
  const Status refused = map_file(at("ram/host"));
  EXPECT_EQ(umount(at("ram").c_str()), 0);
  EXPECT_EQ(refused.code(), Code::unsupported) << refused.message();
  for (const char* part : {"ram/host", "SIGBUS", "tmpfs"}) {
    EXPECT_NE(refused.message().find(part), std::string::npos) << part << ": " << refused.message();
  }
}

TEST_F(Ownership, an_arenas_file_has_all_its_pages_before_it_is_used) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can mount a file system";
  ASSERT_EQ(mkdir(at("small").c_str(), 0700), 0);
  if (mount("none", at("small").c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "no tmpfs can be mounted here";
  const Status refused = map_file(at("small/host"));
  EXPECT_EQ(umount(at("small").c_str()), 0);
  EXPECT_EQ(refused.code(), Code::disk_full) << refused.message();
}

// ---- Keys ----

// An access control list as systemd makes it for a service: the owner and `user` may read.
bool let_read(const std::string& path, uint32_t user, uint16_t group = 0) {
  struct Entry {
    uint16_t tag, may;
    uint32_t id;
  };
  struct {
    uint32_t version = 2;
    std::array<Entry, 5> entries;
  } list;
  list.entries = {{{0x01, 4, UINT32_MAX},
                   {0x02, 4, user},
                   {0x04, group, UINT32_MAX},
                   {0x10, 4, UINT32_MAX},
                   {0x20, 0, UINT32_MAX}}};
  return setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

TEST_F(Ownership, a_key_of_roots_is_taken_where_only_this_user_may_read_it) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can make a file of root's";
  ASSERT_TRUE(write_own_file(at("key"), "x"));
  ASSERT_EQ(chmod(temp_.path().c_str(), 0755), 0);
  if (!let_read(at("key"), kOtherUser)) GTEST_SKIP() << "no access control lists here";
  const auto taken = [path = at("key")] {
    const Fd fd = opened(path);
    return fd && check_own_key(fd.get(), path).ok() ? 0 : 1;
  };
  EXPECT_EQ(test::as_another_user(taken), 0);
  // A user that the access list or the mode admits reads the key.
  ASSERT_TRUE(let_read(at("key"), kOtherUser, 4));
  EXPECT_EQ(test::as_another_user(taken), 1);
  ASSERT_TRUE(let_read(at("key"), kOtherUser));
  ASSERT_EQ(chmod(at("key").c_str(), 0444), 0);
  EXPECT_EQ(test::as_another_user(taken), 1);
  // An access list that names another user, and no list.
  ASSERT_TRUE(let_read(at("key"), kOtherUser - 1));
  EXPECT_NE(test::as_another_user(taken, kOtherUser), 0);
  ASSERT_EQ(removexattr(at("key").c_str(), "system.posix_acl_access"), 0);
  ASSERT_EQ(chmod(at("key").c_str(), 0440), 0);
  ASSERT_EQ(chown(at("key").c_str(), 0, kOtherUser), 0);
  EXPECT_EQ(test::as_another_user(taken), 1);
}

}  // namespace
}  // namespace kvbm::ownership_test

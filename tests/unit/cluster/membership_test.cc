#include "cluster/placement/membership.h"

#include <gtest/gtest.h>

#include "support/sim_disk.h"

namespace kvbm::cluster::membership_test {
namespace {

Result<MemberList> parsed(std::string_view text) { return parse_members(text, "members"); }

const Member* find(const MemberList& list, std::string_view name) {
  for (const Member& m : list) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

TEST(Membership, reads_members_comments_and_blank_lines) {
  const auto list = parsed(
      "# pool\n\nname=a address=10.0.0.1:7000 weight=2GiB\n"
      "  address=[fd00::2]:7001\taddress=host.b:7002 weight=1MiB incarnation=9 # second\n");
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_EQ(list.value().size(), 2U);
  const Member* a = find(list.value(), "a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->weight, uint64_t{2} << 30);
  EXPECT_EQ(a->id, node_id_of("a"));
  const Member* b = find(list.value(), "[fd00::2]:7001");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->addresses, (std::vector<std::string>{"[fd00::2]:7001", "host.b:7002"}));
  EXPECT_EQ(b->incarnation, 9U);
}

TEST(Membership, says_what_is_wrong_and_where) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"name=a address=h:1\nname=b address=h:1\n", "h:1 is given for a and b"},
      {"name=a\n", "needs an address"},
      {"name=a address=h\n", "host:port"},
      {"name=a address=h:0\n", "1 to 65535"},
      {"name=a address=h:70000\n", "1 to 65535"},
      {"name=a address=:7000\n", "host:port"},
      {"name=a address=fd00::2:7000\n", "IPv6 address in [ ]"},
      {"name=a address=h:1 address=h:1\n", "given twice"},
      {"name=a name=b address=h:1\n", "given twice"},
      {"name=a/b address=h:1\n", "letters, digits"},
      {"name=a address=h:1 weigth=3\n", "unknown key"},
      {"name=a address=h:1 weight=lots\n", "64GiB"},
      {"name=a address=h:1 incarnation=x\n", "is a number"},
      {"a h:1\n", "key=value"},
      {"leave=a weight=1MiB\n", "leave stands alone"},
  };
  for (const auto& c : cases) {
    const auto list = parsed(c.text);
    ASSERT_FALSE(list.ok()) << c.text;
    EXPECT_EQ(list.status().code(), Code::bad_config);
    EXPECT_NE(list.status().message().find(c.says), std::string::npos) << list.status().message();
  }
  EXPECT_NE(parsed("\n\nname=a address=h:1 weigth=3").status().message().find("members:3: weigth"), std::string::npos);
}

TEST(Membership, in_a_file_a_later_line_wins_and_leave_takes_out) {
  const auto list = parsed(
      "name=a address=h:1 incarnation=1\nname=b address=h:2\nname=a address=h:3 incarnation=2\nleave=b\nleave=c\n");
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_EQ(list.value().size(), 1U);
  EXPECT_EQ(list.value()[0].addresses[0], "h:3");
  EXPECT_EQ(list.value()[0].incarnation, 2U);
}

TEST(Membership, an_address_may_pass_to_another_member_after_the_first_left) {
  EXPECT_TRUE(parsed("name=a address=h:1\nleave=a\nname=b address=h:1\n").ok());
  EXPECT_FALSE(parsed("name=a address=h:1\nname=b address=h:1\n").ok());
}

TEST(Membership, a_member_comes_back_from_its_line) {
  const Member m{node_id_of("x"), "x", {"h:1", "[::1]:2"}, 12345, 77};
  const auto list = parsed(member_line(m));
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list.value(), MemberList{m});
}

struct FileWorld {
  FileWorld() : disk(sim) { file = std::make_unique<AddressFile>(disk.open_directory("/d", true).value(), "members"); }
  void write(const std::string& text) {
    auto dir = disk.open_directory("/d", true).value();
    auto f = dir->open("members", OpenMode::create, false).value();
    ASSERT_TRUE(f->truncate(0).ok());
    ASSERT_TRUE(f->write_now(0, std::as_bytes(std::span(text))).ok());
  }
  test::SimExecutor sim{1};
  test::SimDisk disk;
  std::unique_ptr<AddressFile> file;
};

TEST(AddressFile, follows_what_members_append) {
  FileWorld w;
  AddressFile& watched = *w.file;
  EXPECT_FALSE(watched.refresh().value());  // not there yet
  AddressFile other(w.disk.open_directory("/d", true).value(), "members");
  ASSERT_TRUE(other.append({node_id_of("a"), "a", {"h:1"}, 5, 1}).ok());
  EXPECT_TRUE(watched.refresh().value());
  EXPECT_EQ(watched.members().size(), 1U);
  ASSERT_TRUE(other.append({node_id_of("b"), "b", {"h:2"}, 5, 1}).ok());
  ASSERT_TRUE(other.append({node_id_of("a"), "a", {"h:3"}, 5, 2}).ok());
  EXPECT_TRUE(watched.refresh().value());
  EXPECT_FALSE(watched.refresh().value());
  EXPECT_EQ(watched.members().size(), 2U);
  EXPECT_EQ(find(watched.members(), "a")->addresses[0], "h:3");
}

TEST(AddressFile, waits_for_the_end_of_a_line_that_is_being_written) {
  FileWorld w;
  w.write("name=a address=h:1\nname=b addr");
  ASSERT_TRUE(w.file->refresh().ok());
  EXPECT_EQ(w.file->members().size(), 1U);
  w.write("name=a address=h:1\nname=b address=h:2\n");
  ASSERT_TRUE(w.file->refresh().ok());
  EXPECT_EQ(w.file->members().size(), 2U);
}

TEST(AddressFile, a_line_that_repeats_what_is_there_changes_nothing) {
  FileWorld w;
  w.write("name=a address=h:1\n");
  EXPECT_TRUE(w.file->refresh().value());
  w.write("name=a address=h:1\nname=a address=h:1\n");
  EXPECT_FALSE(w.file->refresh().value());
}

TEST(AddressFile, keeps_the_members_when_the_file_says_nonsense_or_cannot_be_read) {
  FileWorld w;
  w.write("name=a address=h:1\n");
  ASSERT_TRUE(w.file->refresh().ok());
  w.write("name=a address=h:1\nname=b port=7\n");
  EXPECT_EQ(w.file->refresh().status().code(), Code::bad_config);
  EXPECT_EQ(w.file->members().size(), 1U);
  w.disk.fail_nth(test::SimDisk::Op::open, 1);
  EXPECT_EQ(w.file->refresh().status().code(), Code::io_error);
  EXPECT_EQ(w.file->members().size(), 1U);
}

}  // namespace
}  // namespace kvbm::cluster::membership_test

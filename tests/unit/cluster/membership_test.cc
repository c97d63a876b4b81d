#include "cluster/placement/membership.h"

#include <gtest/gtest.h>

#include "support/sim_disk.h"

namespace kvbm::cluster::membership_test {
namespace {

using Kind = MemberChange::Kind;

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

TEST(Membership, changes_say_who_joined_left_restarted_and_moved) {
  const auto before =
      parsed("name=a address=h:1\nname=b address=h:2\nname=c address=h:3\nname=d address=h:4\n").value();
  const auto after =
      parsed("name=a address=h:1\nname=b address=h:2 incarnation=5\nname=c address=h:9\nname=e address=h:5\n").value();
  std::map<std::string, Kind> kinds;
  for (const auto& change : member_changes(before, after)) kinds[change.member.name] = change.kind;
  EXPECT_EQ(kinds, (std::map<std::string, Kind>{
                       {"b", Kind::restarted}, {"c", Kind::moved}, {"d", Kind::left}, {"e", Kind::joined}}));
  EXPECT_TRUE(member_changes(after, after).empty());
}

struct Told final : MembershipListener {
  void members_changed(const MemberList& now, const std::vector<MemberChange>& changes) override {
    members = now.size();
    last = changes;
    ++times;
  }
  size_t members = 0;
  int times = 0;
  std::vector<MemberChange> last;
};

struct FileWorld {
  FileWorld() : disk(sim) {
    told_file = std::make_unique<AddressFile>(disk.open_directory("/d", true).value(), "members");
    told_file->listen(&told);
  }
  void write(const std::string& text) {
    auto dir = disk.open_directory("/d", true).value();
    auto f = dir->open("members", OpenMode::create, false).value();
    ASSERT_TRUE(f->truncate(0).ok());
    ASSERT_TRUE(f->write_now(0, std::as_bytes(std::span(text))).ok());
  }
  test::SimExecutor sim{1};
  test::SimDisk disk;
  Told told;
  std::unique_ptr<AddressFile> told_file;
};

TEST(AddressFile, follows_what_members_append) {
  FileWorld w;
  AddressFile& watched = *w.told_file;
  EXPECT_TRUE(watched.refresh().ok());  // not there yet
  EXPECT_EQ(w.told.times, 0);
  AddressFile other(w.disk.open_directory("/d", true).value(), "members");
  ASSERT_TRUE(other.append({node_id_of("a"), "a", {"h:1"}, 5, 1}).ok());
  ASSERT_TRUE(watched.refresh().ok());
  EXPECT_EQ(w.told.members, 1U);
  ASSERT_TRUE(other.append({node_id_of("b"), "b", {"h:2"}, 5, 1}).ok());
  ASSERT_TRUE(other.append({node_id_of("a"), "a", {"h:3"}, 5, 2}).ok());
  ASSERT_TRUE(watched.refresh().ok());
  ASSERT_TRUE(watched.refresh().ok());
  EXPECT_EQ(w.told.times, 2);
  EXPECT_EQ(w.told.members, 2U);
  ASSERT_EQ(w.told.last.size(), 2U);
}

TEST(AddressFile, waits_for_the_end_of_a_line_that_is_being_written) {
  FileWorld w;
  w.write("name=a address=h:1\nname=b addr");
  ASSERT_TRUE(w.told_file->refresh().ok());
  EXPECT_EQ(w.told.members, 1U);
  w.write("name=a address=h:1\nname=b address=h:2\n");
  ASSERT_TRUE(w.told_file->refresh().ok());
  EXPECT_EQ(w.told.members, 2U);
}

TEST(AddressFile, keeps_the_members_when_the_file_says_nonsense_or_cannot_be_read) {
  FileWorld w;
  w.write("name=a address=h:1\n");
  ASSERT_TRUE(w.told_file->refresh().ok());
  w.write("name=a address=h:1\nname=b port=7\n");
  EXPECT_EQ(w.told_file->refresh().code(), Code::bad_config);
  EXPECT_EQ(w.told_file->members().size(), 1U);
  w.disk.fail_nth(test::SimDisk::Op::open, 1);
  EXPECT_EQ(w.told_file->refresh().code(), Code::io_error);
  EXPECT_EQ(w.told_file->members().size(), 1U);
}

}  // namespace
}  // namespace kvbm::cluster::membership_test

// Nodes with seal.key_file, over a network that changes bytes. Blocks that arrive are right, a node without the key
// gets nothing, and an unsealed record is refused.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "base/io/fd.h"

#include "support/faulty_proxy.h"
#include "support/pool_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::node_sealed_test {
namespace {

constexpr std::chrono::milliseconds kAsk{500};
constexpr std::chrono::milliseconds kLoad{10'000};
constexpr std::chrono::milliseconds kSoon{60'000};  // where nothing hinders it
constexpr uint64_t kSalt = 5;
constexpr size_t kBlocks = 16;

std::string key_file(const TempDir& in, const std::string& name, const std::string& id) {
  const std::string path = in.path() + "/" + name;
  std::ofstream(path) << id << " 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
  ::chmod(path.c_str(), 0600);
  return path;
}

MemberSetup setup_of(const std::string& name, const std::string& peers, const std::string& seal) {
  MemberSetup out;
  out.name = name;
  out.peers = peers;
  if (!peers.empty()) out.listen = "";
  if (!seal.empty()) out.settings = {{"seal.key_file", seal}, {"node.codec", "zstd"}};
  return out;
}

uint64_t counted(const PoolMember& member, const std::string& line) {
  const std::string text = member.metrics();
  const size_t at = text.find("\n" + line + " ");
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + line.size() + 2));
}

TEST(NodeSealed, blocks_come_sealed_and_are_right_whatever_the_network_does) {
  const TempDir dir;
  const std::string key = key_file(dir, "keys", "7");
  const auto server = PoolMember::open(setup_of("server", "", key));
  ASSERT_NE(server, nullptr);
  FaultyProxy proxy(server->address(), 11);
  const auto reader = PoolMember::open(setup_of("reader", proxy.address(), key));
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; }, kSoon)) << reader->states();
  ASSERT_EQ(server->put(kSalt, 0, kBlocks), KVBM_OK);
  const Loaded first = reader->load(PoolMember::keys_of(kSalt, 0, kBlocks), kSoon, kSoon);
  EXPECT_EQ(first.right, kBlocks);
  EXPECT_EQ(counted(*reader, "kvbm_node_codec_records_total{direction=\"taken\"}"), kBlocks);
  EXPECT_EQ(counted(*server, "kvbm_node_codec_plain_records_total{direction=\"given\"}"), 0U);
  proxy.set(Fault::garble, 200'000);
  size_t wrong = 0;
  for (int i = 0; i < 10; ++i) wrong += reader->load(PoolMember::keys_of(kSalt, 0, kBlocks), kAsk, kLoad).wrong;
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(proxy.faults(), 0U);
}

TEST(NodeSealed, who_has_no_key_or_another_one_gets_nothing) {
  const TempDir dir;
  const auto server = PoolMember::open(setup_of("server", "", key_file(dir, "keys", "7")));
  ASSERT_NE(server, nullptr);
  ASSERT_EQ(server->put(kSalt, 0, kBlocks), KVBM_OK);
  for (const std::string& seal : {std::string(), key_file(dir, "others", "8")}) {
    const auto reader = PoolMember::open(setup_of("reader", server->address(), seal));
    ASSERT_NE(reader, nullptr);
    ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; }, kSoon)) << reader->states();
    const Loaded got = reader->load(PoolMember::keys_of(kSalt, 0, kBlocks), kSoon, kSoon);
    EXPECT_EQ(got.right + got.wrong, 0U);
  }
  EXPECT_EQ(counted(*server, "kvbm_node_codec_refused_total{direction=\"given\"}"), kBlocks);
}

TEST(NodeSealed, who_seals_takes_nothing_that_is_not) {
  const TempDir dir;
  const auto server = PoolMember::open(setup_of("server", "", ""));
  ASSERT_NE(server, nullptr);
  ASSERT_EQ(server->put(kSalt, 0, kBlocks), KVBM_OK);
  const auto reader = PoolMember::open(setup_of("reader", server->address(), key_file(dir, "keys", "7")));
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; }, kSoon)) << reader->states();
  const Loaded got = reader->load(PoolMember::keys_of(kSalt, 0, kBlocks), kAsk, kLoad);
  EXPECT_EQ(got.right + got.wrong, 0U);
}

TEST(NodeSealed, a_key_file_that_others_may_read_is_refused) {
  const TempDir dir;
  const std::string path = key_file(dir, "keys", "7");
  ::chmod(path.c_str(), 0644);
  std::string error;
  EXPECT_EQ(PoolMember::open(setup_of("server", "", path), &error), nullptr);
  EXPECT_NE(error.find("seal.key_file"), std::string::npos) << error;
}

// How often a file was opened since this was made. The kernel joins events that are alike, so closing is heard, too.
class Opens {
 public:
  explicit Opens(const std::string& path) {
    EXPECT_GE(::inotify_add_watch(heard_.get(), path.c_str(), IN_OPEN | IN_CLOSE), 0);
  }
  [[nodiscard]] size_t count() const {
    size_t opens = 0;
    alignas(inotify_event) char events[4096];
    for (ssize_t n = 0; (n = ::read(heard_.get(), events, sizeof events)) > 0;) {
      for (ssize_t at = 0; at < n;) {
        inotify_event event;
        std::memcpy(&event, events + at, sizeof event);
        if ((event.mask & IN_OPEN) != 0) ++opens;
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    return opens;
  }

 private:
  const Fd heard_{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
};

// If the file were read twice, one replaced in between would give links and tiers different keys.
TEST(NodeSealed, the_key_file_is_read_once_for_tiers_and_links) {
  const TempDir dir;
  const std::string path = key_file(dir, "keys", "7");
  const Opens opens(path);
  ASSERT_EQ(opens.count(), 0U);
  const auto node = PoolMember::open(setup_of("server", "", path));
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(opens.count(), 1U);
}

}  // namespace
}  // namespace kvbm::test::node_sealed_test

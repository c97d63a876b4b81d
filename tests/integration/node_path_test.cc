// Two nodes of a pool with a key, and an attacker on the path between them that knows the protocol but not the key
// (support/path_attacker.h). It changes, forges, repeats, drops, moves, cuts and reflects frames. Nodes and sockets
// are real.
//
// No block is ever wrong. A load that brings less says why, a counter moves, the link ends, and the next link brings
// everything. A control: without protection the same forger succeeds, so the other tests prove something.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "support/path_attacker.h"
#include "support/pool_keys.h"
#include "support/pool_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::node_path_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{60'000};  // the tests wait for events: the end of a link, a new link
constexpr uint64_t kSalt = 11;
constexpr size_t kBlocks = 4;

// lib/cluster/README.md, Messages.
enum Type : uint8_t { any = 0, find = 1, found = 2, fetch = 3, offer = 5, want = 6, status = 14, host = 32 };

uint64_t counted(const PoolMember& member, const std::string& line) {
  const std::string text = "\n" + member.metrics();
  const size_t at = text.find("\n" + line + " ");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + line.size() + 2, nullptr, 10);
}

class NodePath : public testing::Test {
 protected:
  void start(const std::string& protect) {
    const std::string key = write_key_file(folder_.path() + "/key");
    MemberSetup setup;
    setup.key_file = key;
    setup.name = "server";
    setup.settings = {{"node.protect", protect}};
    server_ = PoolMember::open(setup);
    ASSERT_NE(server_, nullptr);
    attacker_ = std::make_unique<PathAttacker>(server_->address());
    ASSERT_FALSE(attacker_->address().empty());
    setup.name = "reader";
    setup.listen = "";
    setup.peers = attacker_->address();
    reader_ = PoolMember::open(setup);
    ASSERT_NE(reader_, nullptr);
    meet();
    ASSERT_EQ(server_->put(kSalt, 0, server_->setup().host_blocks - 8), KVBM_OK);
  }
  void meet() {
    ASSERT_TRUE(wait_until([&] { return reader_->ready() == 1 && server_->ready() == 1; }, kPatience))
        << reader_->states() << reader_->log() << server_->log();
  }
  // Loads other blocks at each call, because a reader that knows the place of a block does not ask for it.
  Loaded load() {
    const uint64_t first = loads_++ * kBlocks % (server_->setup().host_blocks - 8 - kBlocks);
    return reader_->load(PoolMember::keys_of(kSalt, first, kBlocks), kPatience, kPatience);
  }
  // Loads until the attacker has struck, and returns the load that it hit.
  Loaded load_through_attack() {
    Loaded one;
    EXPECT_TRUE(wait_until([&] { return one = load(), attacker_->struck() != 0; }, kPatience));
    return one;
  }
  [[nodiscard]] uint64_t violations() const {
    return counted(*reader_, "kvbm_node_violations_total") + counted(*server_, "kvbm_node_violations_total");
  }

  // Makes one attack during loads (or offers). Expects no wrong block, a counter that shows the attack, and success
  // afterwards.
  void suffer(const PathAttacker::Aim& aim, bool offers = false) {
    SCOPED_TRACE(std::string(name_of(aim.attack)) +
                 (aim.bulk ? " of bulk" : " of message " + std::to_string(aim.type)) +
                 (aim.from_target ? " to the reader" : " to the server"));
    const uint64_t struck = attacker_->struck();
    const uint64_t seen = violations();
    const uint64_t closed = counted(*reader_, "kvbm_node_connections_total");
    attacker_->strike(aim);
    std::string said;
    EXPECT_TRUE(wait_until(
        [&] {
          if (offers) {
            // Offers blocks that are new each time, so that the other node wants them.
            EXPECT_EQ(reader_->put(kSalt + 1, offered_, 1), KVBM_OK);
            said += std::string(" ") + kvbm_status_name(reader_->offer(kSalt + 1, offered_++, 1));
          } else {
            const Loaded one = load();
            EXPECT_EQ(one.wrong, 0U);
            if (one.right != kBlocks) said += std::string(" ") + kvbm_status_name(one.status);
          }
          return attacker_->struck() != struck;
        },
        kPatience));
    // A frame that was dropped is noticed when the next one arrives: at the latest, a ping.
    EXPECT_TRUE(wait_until(
        [&] {
          return aim.attack == Attack::truncate
                     ? counted(*reader_, "kvbm_node_connections_total") != closed || reader_->ready() == 0
                     : violations() != seen;
        },
        kPatience))
        << "nobody has noticed";
    size_t checked = 0;
    EXPECT_EQ(server_->wrong_in_host(&checked), 0U);
    meet();
    Loaded after;
    EXPECT_TRUE(wait_until([&] { return (after = load()).right == kBlocks; }, kPatience)) << reader_->log();
    std::printf("  %-9s %-8s %-10s it said:%s\n", name_of(aim.attack), aim.bulk ? "bulk" : "message",
                aim.from_target ? "to reader" : "to server", said.empty() ? " nothing, all came" : said.c_str());
  }

  TempDir folder_;
  std::unique_ptr<PoolMember> server_;
  std::unique_ptr<PathAttacker> attacker_;
  std::unique_ptr<PoolMember> reader_;
  uint64_t offered_ = 0;
  uint64_t loads_ = 0;
};

// Of a pool that protects its links in one way or the other.
class NodePathGuarded : public NodePath, public testing::WithParamInterface<const char*> {};

// Hashes of records do not stop an attacker, because it can compute them.
TEST_F(NodePath, without_protection_a_forged_block_is_believed_and_nothing_counts_it) {
  start("off");
  ASSERT_FALSE(attacker_->tagged());
  attacker_->strike({Attack::forge, true, true, 0});
  const uint64_t seen = violations();
  const Loaded one = load_through_attack();
  EXPECT_EQ(one.status, KVBM_OK);
  EXPECT_EQ(one.wrong, 1U);
  EXPECT_EQ(attacker_->struck(), 1U);
  EXPECT_EQ(violations(), seen);
}

TEST_P(NodePathGuarded, a_block_that_is_forged_on_the_way_is_damage_that_the_load_says_and_a_counter) {
  start(GetParam());
  EXPECT_TRUE(attacker_->tagged());
  EXPECT_TRUE(wait_until([&] { return load().right == kBlocks; }, kPatience));
  const bool readable = std::strcmp(GetParam(), "encrypt") != 0;
  attacker_->strike({readable ? Attack::forge : Attack::payload, true, true, 0});
  const uint64_t seen = violations();
  const Loaded one = load_through_attack();
  EXPECT_EQ(attacker_->struck(), 1U);
  EXPECT_EQ(one.wrong, 0U);
  EXPECT_LT(one.right, kBlocks);
  EXPECT_EQ(one.status, KVBM_ERR_DAMAGED) << kvbm_status_name(one.status);
  EXPECT_GT(counted(*reader_, "kvbm_load_blocks_failed_total{reason=\"damaged\"}"), 0U) << reader_->metrics();
  EXPECT_TRUE(wait_until([&] { return violations() > seen; }, kPatience));
  EXPECT_GT(counted(*reader_, "kvbm_node_connections_ended_total{reason=\"damaged\"}"), 0U);
  EXPECT_GT(reader_->logged("changed"), 0U) << reader_->log();
  EXPECT_TRUE(wait_until([&] { return load().right == kBlocks; }, kPatience));
  EXPECT_EQ(reader_->leftovers(kPatience), "");
  EXPECT_EQ(server_->leftovers(kPatience), "");
}

TEST_P(NodePathGuarded, whatever_is_done_to_blocks_on_the_way_none_is_wrong) {
  start(GetParam());
  for (const Attack attack : {Attack::header, Attack::payload, Attack::tag, Attack::repeat, Attack::exchange,
                              Attack::drop, Attack::truncate, Attack::reflect}) {
    suffer({attack, true, true, 0});
    if (HasFailure()) return;
  }
}

TEST_P(NodePathGuarded, whatever_is_done_to_offered_blocks_none_is_taken_wrong) {
  start(GetParam());
  for (const Attack attack :
       {Attack::header, Attack::payload, Attack::tag, Attack::repeat, Attack::drop, Attack::truncate}) {
    suffer({attack, false, true, 0}, true);
    if (HasFailure()) return;
  }
}

TEST_P(NodePathGuarded, whatever_is_done_to_messages_on_the_way_the_link_ends_and_nothing_is_wrong) {
  start(GetParam());
  const bool readable = std::strcmp(GetParam(), "encrypt") != 0;
  for (const Attack attack : {Attack::header, Attack::payload, Attack::tag, Attack::repeat, Attack::exchange,
                              Attack::drop, Attack::truncate, Attack::reflect}) {
    for (const uint8_t type : {find, fetch}) suffer({attack, false, false, readable ? type : uint8_t{any}});
    suffer({attack, true, false, readable ? uint8_t{found} : uint8_t{any}});
    if (HasFailure()) return;
  }
  for (const uint8_t type : {offer, want}) {
    suffer({Attack::payload, type == want, false, readable ? type : uint8_t{any}}, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, NodePathGuarded, testing::Values("authenticate", "encrypt"),
                         [](const auto& made) { return std::string(made.param); });

// The default mode, and what each mode hides: a listener on the path sees the bytes of a block, or does not.
TEST_F(NodePath, with_a_key_links_are_authenticated_unless_told_otherwise_and_encrypted_ones_show_nothing) {
  for (const char* protect : {"auto", "encrypt"}) {
    SCOPED_TRACE(protect);
    start(protect);
    EXPECT_TRUE(attacker_->tagged());
    std::vector<uint64_t> block(server_->setup().block_bytes / sizeof(uint64_t));
    PoolMember::fill(block.data(), server_->setup().block_bytes, kSalt, 0);
    attacker_->watch_for({reinterpret_cast<const char*>(block.data()), 64});
    const auto keys = PoolMember::keys_of(kSalt, 0, kBlocks);
    EXPECT_TRUE(wait_until([&] { return reader_->load(keys, kPatience, kPatience).right == kBlocks; }, kPatience));
    EXPECT_EQ(attacker_->saw(), std::strcmp(protect, "auto") == 0);
    reader_.reset();
    attacker_.reset();
    server_.reset();
  }
}

}  // namespace
}  // namespace kvbm::test::node_path_test

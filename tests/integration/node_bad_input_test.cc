// Mistakes of users and of other programs about nodes, and the messages they get. Every message names the address or
// the node, the error and the remedy, and nothing hangs.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <thread>

#include "base/crypto/random.h"
#include "cluster/admission/handshake.h"
#include "copy/tcp/frame.h"
#include "support/other_user.h"
#include "support/pool_keys.h"
#include "support/pool_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::node_bad_input_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A port of this machine where a node should be: `serve` has each connection in turn, which is closed behind it.
class Door {
 public:
  explicit Door(std::function<void(int fd)> serve) : serve_(std::move(serve)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 || listen(listener_, 16) != 0) return;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    thread_ = std::thread([this] {
      for (int fd = 0; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) {
        const timeval patience{5, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        serve_(fd);
      }
    });
  }
  ~Door() {
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  const std::function<void(int)> serve_;
  int listener_ = -1;
  std::string address_;
  std::thread thread_;
};

// Reads one message of the handshake; empty if there is none.
std::string heard(int fd) {
  std::string came(copy::tcp::kHeaderBytes + cluster::kHandshakeBytes, '\0');
  const bool all = recv(fd, came.data(), came.size(), MSG_WAITALL) == static_cast<ssize_t>(came.size());
  return all ? came.substr(copy::tcp::kHeaderBytes) : "";
}

void say(int fd, const std::string& what) { (void)!send(fd, what.data(), what.size(), MSG_NOSIGNAL); }

// Waits until the other side closes the connection.
void hold_open(int fd) {
  std::string ignored(4096, '\0');
  while (recv(fd, ignored.data(), ignored.size(), 0) > 0) {
  }
}

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Listens in place of a node, and answers each hello with the given answer.
class Impostor {
 public:
  using Answer = std::function<std::string(const std::string& hello)>;

  explicit Impostor(Answer answer) : answer_(std::move(answer)) {}
  [[nodiscard]] const std::string& address() const { return door_.address(); }

 private:
  void serve(int fd) {
    const std::string hello = heard(fd);
    if (hello.empty()) return;
    say(fd, answer_(hello));
    hold_open(fd);
  }

  const Answer answer_;
  Door door_{[this](int fd) { serve(fd); }};
};

std::string framed(const std::string& body, uint32_t length) {
  std::string out(copy::tcp::kHeaderBytes, '\0');
  copy::tcp::encode({copy::tcp::Kind::message, length, 0, 0}, reinterpret_cast<std::byte*>(out.data()));
  return out + body;
}
std::string framed(const std::string& body) { return framed(body, static_cast<uint32_t>(body.size())); }

// A node that is admitted and then sends messages that no node sends.
class Traitor {
 public:
  // `says` goes out as it is, behind the welcome; then the connection is held open until the other side has had enough.
  explicit Traitor(std::string says) : says_(std::move(says)) {}
  [[nodiscard]] const std::string& address() const { return door_.address(); }

 private:
  void serve(int fd) {
    SeededRandom random(++seed_);
    cluster::NodeFacts self;
    self.node = cluster::node_id_of("traitor");
    self.incarnation = random.next();
    self.pool = "trust";
    self.request_limit = 16;
    cluster::Handshake handshake(self, nullptr, cluster::Role::responder, random);
    for (int step = 0; step < 2; ++step) {  // hello, proof
      const std::string came = heard(fd);
      if (came.empty()) return;
      say(fd, framed(text_of(handshake.take(bytes_of(came)).send)));
    }
    say(fd, says_);
    hold_open(fd);
  }

  const std::string says_;
  uint64_t seed_ = 0;
  Door door_{[this](int fd) { serve(fd); }};
};

class NodeBadInput : public testing::Test {
 protected:
  std::string write_key(const char* name, std::string_view text = kOnePoolKey) {
    return write_key_file(folder_.path() + "/" + name, text);
  }

  static std::unique_ptr<PoolMember> open(MemberSetup setup, std::string* error = nullptr) {
    setup.engine_blocks = 8;
    setup.host_blocks = 16;
    return PoolMember::open(setup, error);
  }

  // A node that others dial.
  static std::unique_ptr<PoolMember> node_called(const char* name, const std::string& key_file = {}) {
    MemberSetup setup;
    setup.name = name;
    setup.key_file = key_file;
    auto member = open(setup);
    EXPECT_NE(member, nullptr) << name;
    return member;
  }

  // A member that dials `address` reports all of these parts, with the address beside them.
  static void expect_state(const PoolMember& member, const std::string& address,
                           const std::vector<std::string>& parts) {
    std::string seen;
    const bool told = wait_until(
        [&] {
          for (const kvbm_node_row_t& row : member.nodes()) {
            seen = std::string(row.address) + " | " + row.state;
            if (row.address != address) return false;
            for (const std::string& part : parts) {
              if (std::string(row.state).find(part) == std::string::npos) return false;
            }
            return true;
          }
          return false;
        },
        milliseconds(60'000));
    EXPECT_TRUE(told) << "told: " << seen;
    std::printf("  %s\n", seen.c_str());
  }
  // The node logs all of these parts in one line, with the address of the caller.
  static void expect_logged(const PoolMember& node, std::vector<std::string> parts) {
    parts.push_back("refused a connection from 127.0.0.1:");
    std::string log;
    const auto has_all = [&parts](const std::string& line) {
      return std::all_of(parts.begin(), parts.end(),
                         [&line](const std::string& part) { return line.find(part) != std::string::npos; });
    };
    const bool said = wait_until(
        [&] {
          log = node.log();
          std::istringstream lines(log);
          for (std::string line; std::getline(lines, line);) {
            if (has_all(line)) return true;
          }
          return false;
        },
        milliseconds(60'000));
    EXPECT_TRUE(said) << log;
  }
  void expect_told(const std::string& address, const std::vector<std::string>& parts, MemberSetup setup = {}) {
    setup.listen = "";
    setup.peers = address;
    setup.name = "asker";
    const auto member = open(setup);
    ASSERT_NE(member, nullptr);
    expect_state(*member, address, parts);
    // The load is a miss and ends in time.
    const Loaded none = member->load(PoolMember::keys_of(1, 0, 4), milliseconds(200), seconds(1));
    EXPECT_EQ(none.right + none.wrong, 0U);
    EXPECT_LT(none.took, seconds(10));
    EXPECT_EQ(member->leftovers(milliseconds(60'000)), "");
    // The member has retried many times by now, and has logged the failure once.
    EXPECT_LE(member->logged("no link to "), 1U) << member->log();
  }
  static void expect_refused(MemberSetup setup, const std::vector<std::string>& parts) {
    std::string error;
    EXPECT_EQ(open(std::move(setup), &error), nullptr);
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << part << ": " << error;
    std::printf("  %s\n", error.c_str());
  }

  TempDir folder_;
};

TEST_F(NodeBadInput, a_peer_that_is_not_there_is_named_with_the_question_whether_it_runs) {
  // Takes a port that was free a moment ago.
  const std::string address = node_called("gone")->address();
  expect_told(address, {address, "is a node listening there?"});
}

TEST_F(NodeBadInput, a_wrong_a_missing_and_a_needless_key_are_told_apart) {
  const auto keyed = node_called("keyed", write_key("key"));
  const auto keyless = node_called("keyless");
  ASSERT_TRUE(keyed != nullptr && keyless != nullptr);
  const std::string asker = "node " + cluster::short_text(cluster::node_id_of("asker"));
  MemberSetup other;
  other.key_file = write_key("other", kOtherPoolKey);
  expect_told(keyed->address(), {"refused: ", "wrong key", "node.key_file"}, other);
  expect_logged(*keyed, {asker, "(unproven)", "wrong key", "node.key_file"});
  expect_told(keyed->address(), {"refused: ", "node.key_file"});
  expect_logged(*keyed, {asker, "(unproven)", "the other has none", "node.key_file"});
  expect_told(keyless->address(), {"the other has one", "node.key_file"}, other);
  expect_logged(*keyless, {asker, "(unproven)", "the other has one", "node.key_file"});
}

TEST_F(NodeBadInput, a_node_of_another_pool_is_told_so) {
  const auto there = node_called("there");
  ASSERT_NE(there, nullptr);
  MemberSetup stranger;
  stranger.pool = "elsewhere";
  expect_told(there->address(), {"refused: ", "another pool", "node.pool"}, stranger);
  expect_logged(*there, {"of pool \"elsewhere\" (unproven)", "another pool", "node.pool"});
}

// A node logs every kind of unwanted caller, and many callers of a kind in few lines.
TEST_F(NodeBadInput, what_comes_to_a_nodes_door_and_is_no_node_is_logged_and_not_often) {
  const auto there = node_called("there");
  ASSERT_NE(there, nullptr);
  const std::string port = there->address().substr(there->address().rfind(':') + 1);
  const auto visit = [&port](const std::string& says) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoul(port)));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    say(fd, says);
    hold_open(fd);
    close(fd);
  };
  visit("GET /index.html HTTP/1.1\r\nHost: there.example\r\n\r\n");
  expect_logged(*there, {"which has not named its node", "protocol"});
  visit(framed(std::string(cluster::kHandshakeBytes, 'n')));
  expect_logged(*there, {"which has not named its node", "does not speak this protocol, or is no node of kvbm"});
  // A hello of a later version. The name of its pool has escape codes, which must not reach a terminal through the
  // log.
  SeededRandom random(1);
  cluster::NodeFacts future;
  future.node = cluster::node_id_of("future");
  future.pool = "\x1b[2Jgone\r\n";
  future.version = 9, future.lowest_version = 8;
  cluster::Handshake handshake(future, nullptr, cluster::Role::initiator, random);
  visit(framed(text_of(handshake.start().send)));
  expect_logged(*there, {"node " + cluster::short_text(future.node), "of pool \"?[2Jgone??\" (unproven)",
                         "there 8 to 9", "update the older one"});
  for (int i = 0; i < 40; ++i) visit(std::string(cluster::kHandshakeBytes, 'x'));
  EXPECT_LT(there->logged("refused a connection from"), 10U);
}

TEST_F(NodeBadInput, a_node_that_speaks_another_version_is_told_which_to_upgrade) {
  SeededRandom random(1);
  Impostor future([&](const std::string& hello) {
    cluster::NodeFacts self;
    self.node = cluster::node_id_of("future");
    self.pool = "trust";
    self.version = 9;
    self.lowest_version = 8;
    cluster::Handshake handshake(self, nullptr, cluster::Role::responder, random);
    return framed(text_of(handshake.take(bytes_of(hello)).send));
  });
  expect_told(future.address(), {"refused: ", "there 8 to 9", "update the older one"});
}

TEST_F(NodeBadInput, what_answers_and_is_no_node_is_said_to_be_none) {
  Impostor web([](const std::string&) { return std::string("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"); });
  expect_told(web.address(), {web.address(), "protocol"});
  Impostor nonsense([](const std::string&) { return framed(std::string(cluster::kHandshakeBytes, 'n')); });
  expect_told(nonsense.address(), {"does not speak this protocol"});
  Impostor truncated([](const std::string&) { return framed(std::string(cluster::kHandshakeBytes / 2, 'n')); });
  expect_told(truncated.address(), {"does not speak this protocol"});
  Impostor oversized([](const std::string&) { return framed(std::string(60'000, 'o')); });
  expect_told(oversized.address(), {oversized.address(), "protocol"});
  Impostor silent([](const std::string&) { return std::string(); });
  expect_told(silent.address(), {"did not finish the handshake in time", "node.transport"});
}

// One that was let in is cut off for the first message that is none, however it is wrong, and said to be so.
TEST_F(NodeBadInput, a_message_that_is_truncated_oversized_or_forged_ends_the_connection_with_the_reason) {
  const Traitor truncated(framed("short"));
  expect_told(truncated.address(), {"shorter than its tag"});
  const Traitor forged(framed(std::string(100, 'f')));
  expect_told(forged.address(), {"changed on its way"});
  const Traitor oversized(framed("", 1U << 30));
  expect_told(oversized.address(), {oversized.address(), "protocol"});
  // Sends half of a frame and then nothing: the link must end as if the peer were silent.
  const Traitor halved(framed("half", 4000));
  expect_told(halved.address(), {"dead, frozen or cut off"});
}

TEST_F(NodeBadInput, an_address_that_cannot_be_listened_on_is_named_with_what_to_do) {
  const auto node = open({});
  ASSERT_NE(node, nullptr);
  MemberSetup setup;
  setup.listen = node->address();
  expect_refused(setup, {node->address(), "in use", "another port"});
  setup.listen = "192.0.2.1:0";  // of documentation alone
  setup.key_file = write_key("key");
  expect_refused(setup, {"192.0.2.1:0", "none of this machine's"});
  setup.listen = "127.0.0.1:99999";
  expect_refused(setup, {"99999"});
  setup.listen = "a.name.that.is.none:1";
  expect_refused(setup, {"a.name.that.is.none:1"});
}

TEST_F(NodeBadInput, listening_to_other_machines_without_a_key_is_refused_with_the_option_that_is_missing) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.1.2.3:7000"}) {
    MemberSetup setup;
    setup.listen = address;
    expect_refused(setup, {address, "node.key_file"});
  }
}

// A key is what `kvbm key new` makes: whatever else stands in the file is refused, with how to make one.
TEST_F(NodeBadInput, a_key_that_is_weak_short_or_cut_is_refused_with_how_to_make_one) {
  MemberSetup setup;
  const std::string hex(kOnePoolKey.substr(16, 64));
  for (const std::string& weak :
       {std::string(), std::string("too short"), std::string("what only this pool's nodes know"), std::string(200, 'k'),
        hex, std::string(64, '0')}) {
    setup.key_file = write_key("weak", weak);
    expect_refused(setup, {"node.key_file", "/weak", "kvbm key new"});
  }
  const std::string whole(kOnePoolKey);
  for (const std::string& cut : {whole.substr(0, whole.size() - 1), whole + "0", whole.substr(0, 40),
                                 "kvbm-pool-key-1:1" + whole.substr(17), "kvbm-pool-key-1:g" + whole.substr(17)}) {
    setup.key_file = write_key("cut", cut);
    expect_refused(setup, {"node.key_file", "/cut", "copy the file"});
  }
  setup.key_file = folder_.path() + "/nowhere";
  expect_refused(setup, {"node.key_file", "/nowhere"});
  setup.key_file = folder_.path();
  expect_refused(setup, {"node.key_file", "not a file"});
}

// Links beyond this machine are protected, unless node.trusted_network says that the network is safe.
TEST_F(NodeBadInput, links_beyond_this_machine_are_not_left_unprotected_unless_the_network_is_trusted) {
  MemberSetup setup;
  setup.key_file = write_key("key");
  setup.settings = {{"node.protect", "off"}};
  setup.listen = "0.0.0.0:0";
  expect_refused(setup, {"node.protect", "0.0.0.0:0", "node.trusted_network=on", "authenticate"});
  setup.listen = "127.0.0.1:0";
  setup.peers = "192.0.2.1:7000";
  expect_refused(setup, {"node.protect", "192.0.2.1:7000", "node.trusted_network=on"});
  setup.peers = "";
  EXPECT_NE(open(setup), nullptr);
  setup.listen = "0.0.0.0:0";
  setup.settings = {{"node.protect", "off"}, {"node.trusted_network", "on"}};
  EXPECT_NE(open(setup), nullptr);
  MemberSetup keyless;
  for (const char* wish : {"authenticate", "encrypt"}) {
    keyless.settings = {{"node.protect", wish}};
    expect_refused(keyless, {"node.protect", "node.key_file", "kvbm key new"});
  }
}

TEST_F(NodeBadInput, sides_of_which_one_protects_are_told_both_wishes_and_the_stronger_of_two_counts) {
  const auto called = [this](const char* name, const char* protect) {
    MemberSetup setup;
    setup.name = name;
    setup.key_file = write_key("key");
    setup.settings = {{"node.protect", protect}};
    return open(setup);
  };
  const auto off = called("off", "off");
  const auto authenticates = called("authenticates", "authenticate");
  const auto encrypts = called("encrypts", "encrypt");
  ASSERT_TRUE(off != nullptr && authenticates != nullptr && encrypts != nullptr);
  MemberSetup asker;
  asker.key_file = write_key("key");
  expect_told(off->address(), {"refused: ", "node.protect", "here authenticate, there off"}, asker);
  expect_logged(*off, {"node.protect", "here off, there authenticate"});
  asker.settings = {{"node.protect", "off"}};
  expect_told(encrypts->address(), {"refused: ", "node.protect", "here off, there encrypt"}, asker);
  asker.settings = {};
  asker.listen = "";
  asker.name = "asker";
  asker.peers = authenticates->address() + "," + encrypts->address();
  const auto met = open(asker);
  ASSERT_NE(met, nullptr);
  ASSERT_TRUE(wait_until([&] { return met->ready() == 2; })) << met->states();
  EXPECT_EQ(met->logged("is connected, authenticated"), 1U) << met->log();
  EXPECT_EQ(met->logged("is connected, encrypted"), 1U) << met->log();
}

TEST_F(NodeBadInput, a_key_file_that_others_may_read_or_that_is_another_users_is_refused_with_what_to_do) {
  MemberSetup setup;
  setup.key_file = write_key("key");
  for (const mode_t mode : {0644, 0640, 0604, 0620}) {
    ASSERT_EQ(chmod(setup.key_file.c_str(), mode), 0);
    expect_refused(setup, {"node.key_file", "chmod 600 " + setup.key_file});
  }
  ASSERT_EQ(chmod(setup.key_file.c_str(), 0600), 0);
  EXPECT_NE(open(setup), nullptr);
  MemberSetup linked;
  linked.key_file = folder_.path() + "/link";
  ASSERT_EQ(symlink("key", linked.key_file.c_str()), 0);
  expect_refused(linked, {"node.key_file", "symbolic link"});
  if (!can_be_another_user()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(setup.key_file.c_str(), kOtherUser, kOtherUser), 0);
  expect_refused(setup, {"node.key_file", "user 65534's", "chown 0 " + setup.key_file});
}

TEST_F(NodeBadInput, blocks_that_are_larger_than_this_nodes_are_misses_and_take_nothing) {
  MemberSetup large;
  large.name = "large";
  large.block_bytes = 256 << 10;
  const auto node = open(large);
  ASSERT_NE(node, nullptr);
  ASSERT_EQ(node->put(1, 0, 4), KVBM_OK);
  MemberSetup small;
  small.name = "small";
  small.block_bytes = 64 << 10;
  small.peers = node->address();
  const auto member = open(small);
  ASSERT_NE(member, nullptr);
  ASSERT_TRUE(wait_until([&] { return member->ready() == 1; })) << member->states();
  const Loaded none = member->load(PoolMember::keys_of(1, 0, 4), seconds(2), seconds(2));
  EXPECT_EQ(none.right + none.wrong, 0U);
  EXPECT_LT(none.took, seconds(10));
  // In the other direction, a node with small blocks refuses large ones, and reports that at once.
  ASSERT_TRUE(wait_until([&] { return node->ready() == 1; })) << node->states();
  const auto begun = std::chrono::steady_clock::now();
  const kvbm_status_t offered = node->offer(1, 0, 4);
  EXPECT_EQ(offered, KVBM_ERR_MISMATCH) << kvbm_status_name(offered);
  for (const std::string& part :
       {cluster::short_text(cluster::node_id_of("small")), std::string("takes blocks of 65536 bytes at most"),
        std::string("this one is of 262144"), std::string("block_bytes")}) {
    EXPECT_NE(node->log().find(part), std::string::npos) << part << ": " << node->log();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8));
  std::printf("  load: %s, offer: %s\n", kvbm_status_name(none.status), kvbm_status_name(offered));
  EXPECT_EQ(member->leftovers(milliseconds(60'000)), "");
  EXPECT_EQ(node->leftovers(milliseconds(60'000)), "");
}

TEST_F(NodeBadInput, blocks_of_another_model_are_not_found) {
  MemberSetup one;
  one.name = "one";
  const auto node = open(one);
  ASSERT_NE(node, nullptr);
  ASSERT_EQ(node->put(1, 0, 4), KVBM_OK);
  MemberSetup other;
  other.name = "other";
  other.model = "another model";
  other.peers = node->address();
  const auto member = open(other);
  ASSERT_NE(member, nullptr);
  ASSERT_TRUE(wait_until([&] { return member->ready() == 1; })) << member->states();
  EXPECT_EQ(member->load(PoolMember::keys_of(1, 0, 4), seconds(2), seconds(2)).hits, 0U);
}

}  // namespace
}  // namespace kvbm::test::node_bad_input_test

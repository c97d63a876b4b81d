// Services that meet on one machine (cluster/same_host/same_host.h), on real sockets. Tokens prove their identity,
// pools are exchanged, and any other caller gets nothing. Waits are bounded by kPatience and end on events.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "cluster/same_host/same_host.h"
#include "copy/local/unix_transport.h"
#include "support/fake_cuda/log_lines.h"
#include "support/pool_records.h"
#include "support/temp_dir.h"

namespace kvbm::cluster::same_host_meet_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

bool wait_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// One node's part: a pool with a record in slot 0, and the service.
struct Node {
  Node(const std::string& name, const std::string& folder, bool shares = true, bool listens = true) {
    lines.attach(log);
    facts.node = node_id_of(name);
    facts.incarnation = name.size() + 1;
    if (shares) {
      arena = test::make_pool(4);
      test::put_pool_record(*arena, 0, name.size());
    }
    SameHostOptions options;
    options.self = facts;
    options.boot.fill(7);
    options.user = geteuid();
    if (listens) options.socket = folder + "/" + name;
    options.why_no_socket = "it does not listen";
    if (arena != nullptr) {
      options.memory = arena->fd();
      options.shape = arena->shape();
    }
    auto made = SameHost::create(options, pools, random, &log, [this](const NodeId&) { ++deaths; });
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) host = std::move(made).value();
  }
  // Returns the number of log lines about refused strangers that have all of `parts`.
  [[nodiscard]] int refused(std::vector<std::string> parts) const {
    parts.push_back("refused a connection from process " + std::to_string(getpid()) + " at ");
    int found = 0;
    for (size_t i = 0; i < lines.count(); ++i) {
      const std::string line = lines.line(i);
      found += std::all_of(parts.begin(), parts.end(),
                           [&line](const std::string& part) { return line.find(part) != std::string::npos; });
    }
    return found;
  }
  [[nodiscard]] SameHost::Path path_to(const Node& other) const { return host->state(other.facts.node).path; }
  // Returns whether this node reads the other's record in its pool, with the right bytes.
  [[nodiscard]] bool reads(const Node& other, uint64_t number) const {
    const auto pool = pools.of(other.facts.node);
    if (pool == nullptr) return false;
    std::vector<std::byte> head(4096);
    std::optional<codec::HeadView> view;
    const auto place = pool->place(location_of_slot(0));
    if (copy::local::read_head(place, test::pool_family(), test::pool_key(number), head, view) != Code::ok)
      return false;
    std::vector<std::byte> payload(view->header().stored_bytes);
    return copy::local::fetch_record(place, *view, payload, codec::CopyHint::automatic) == Code::ok &&
           payload == test::pool_payload(number);
  }

  Log log;
  test::LogLines lines;
  NodeFacts facts;
  SystemRandom random;
  std::unique_ptr<tier::HostArena> arena;
  MappedPools pools;
  std::atomic<int> deaths{0};
  std::unique_ptr<SameHost> host;
};

// Exchanges the facts that a link between the two would carry. `from` dialled `to`.
HostFacts introduce(Node& from, Node& to) {
  const auto facts = to.host->ready(from.facts, Role::responder);
  EXPECT_TRUE(facts.has_value());
  EXPECT_FALSE(from.host->ready(to.facts, Role::initiator).has_value());
  return facts.value_or(HostFacts{});
}

class SameHostMeeting : public ::testing::Test {
 protected:
  test::TempDir folder_;
};

TEST_F(SameHostMeeting, both_read_each_others_memory_until_one_ends) {
  Node a("a", folder_.path());
  auto b = std::make_unique<Node>("bb", folder_.path());
  a.host->heard(b->facts, Role::initiator, introduce(a, *b));
  ASSERT_TRUE(wait_until([&] { return a.reads(*b, 2) && b->reads(a, 1); }));
  EXPECT_EQ(a.path_to(*b), SameHost::Path::local);
  EXPECT_TRUE(wait_until([&] { return b->path_to(a) == SameHost::Path::local; }));
  const auto kept = a.pools.of(b->facts.node);
  // A second link between them changes nothing.
  a.host->heard(b->facts, Role::initiator, introduce(a, *b));
  EXPECT_TRUE(wait_until([&] { return b->path_to(a) == SameHost::Path::local; }));
  b->host.reset();
  EXPECT_TRUE(wait_until([&] { return a.pools.of(b->facts.node) == nullptr; }));
  EXPECT_EQ(a.deaths, 0) << "its process lives";
  EXPECT_EQ(a.path_to(*b), SameHost::Path::link);
  EXPECT_NE(kept->place(location_of_slot(0)).head[0], std::byte{0}) << "who reads keeps it mapped";
}

TEST_F(SameHostMeeting, who_shares_nothing_reads_and_is_not_read) {
  Node a("a", folder_.path(), false, false);
  Node b("bb", folder_.path());
  a.host->heard(b.facts, Role::initiator, introduce(a, b));
  ASSERT_TRUE(wait_until([&] { return a.reads(b, 2); }));
  ASSERT_TRUE(wait_until([&] { return b.host->state(a.facts.node).why.find("not shared") != std::string::npos; }));
  EXPECT_EQ(b.path_to(a), SameHost::Path::link);
}

TEST_F(SameHostMeeting, another_machine_another_user_and_no_socket_are_told_apart) {
  Node a("a", folder_.path());
  Node b("bb", folder_.path());
  Node deaf("ccc", folder_.path(), true, false);
  HostFacts elsewhere = introduce(a, b);
  elsewhere.boot.fill(8);
  a.host->heard(b.facts, Role::initiator, elsewhere);
  EXPECT_NE(a.host->state(b.facts.node).why.find("another machine"), std::string::npos);
  HostFacts other_user = introduce(a, b);
  ++other_user.user;
  a.host->heard(b.facts, Role::initiator, other_user);
  EXPECT_NE(a.host->state(b.facts.node).why.find("runs as user"), std::string::npos);
  a.host->heard(deaf.facts, Role::initiator, introduce(a, deaf));
  EXPECT_NE(a.host->state(deaf.facts.node).why.find("node.local"), std::string::npos);
  EXPECT_EQ(a.pools.of(b.facts.node), nullptr);
}

TEST_F(SameHostMeeting, a_wrong_token_gets_nothing_and_a_right_one_is_good_once) {
  Node a("a", folder_.path());
  Node b("bb", folder_.path());
  Node c("ccc", folder_.path());
  const HostFacts right = introduce(a, b);
  HostFacts guessed = right;
  guessed.come[0] = static_cast<uint8_t>(guessed.come[0] + 1);
  a.host->heard(b.facts, Role::initiator, guessed);
  ASSERT_TRUE(wait_until([&] { return a.host->state(b.facts.node).why.find("failed") != std::string::npos; }));
  EXPECT_EQ(a.pools.of(b.facts.node), nullptr);
  EXPECT_EQ(b.refused({"calls itself node " + short_text(a.facts.node) + " (unproven)", "its token is none"}), 1);
  // Another node presents the token that it has seen.
  c.host->heard(b.facts, Role::initiator, right);
  ASSERT_TRUE(wait_until([&] { return c.host->state(b.facts.node).why.find("failed") != std::string::npos; }));
  EXPECT_EQ(c.pools.of(b.facts.node), nullptr);
  EXPECT_EQ(b.refused({"node " + short_text(c.facts.node) + " (unproven)", "it shows another node's token"}), 1);
  // The failed attempt used up the token.
  a.host->heard(b.facts, Role::initiator, right);
  ASSERT_TRUE(wait_until([&] { return a.host->state(b.facts.node).why.find("failed") != std::string::npos; }));
  EXPECT_EQ(a.pools.of(b.facts.node), nullptr);
  EXPECT_EQ(b.pools.of(a.facts.node), nullptr);
  a.host->heard(b.facts, Role::initiator, introduce(a, b));
  EXPECT_TRUE(wait_until([&] { return a.reads(b, 2) && b.reads(a, 1); }));
}

TEST_F(SameHostMeeting, who_sits_at_the_socket_of_another_is_given_nothing) {
  Node a("a", folder_.path());
  Node b("bb", folder_.path());
  Node thief("thief", folder_.path());
  HostFacts facts = introduce(a, b);
  const HostFacts thiefs = introduce(a, thief);
  // The facts of b with the socket path of the thief. The thief knows the first token but cannot show the second.
  facts.path = thiefs.path;
  facts.come = thiefs.come;
  a.host->heard(b.facts, Role::initiator, facts);
  ASSERT_TRUE(wait_until([&] { return a.host->state(b.facts.node).why.find("failed") != std::string::npos; }));
  EXPECT_EQ(a.pools.of(b.facts.node), nullptr);
  EXPECT_EQ(thief.pools.of(a.facts.node), nullptr) << "it was handed memory";
}

// A peer of the local transport that sends any message.
class Stranger : public copy::TransportListener {
 public:
  explicit Stranger(const std::string& path, std::vector<std::byte> word) : word_(std::move(word)) {
    thread_ = copy::TransportThread::create("stranger", *copy::local::unix_transport_ops(), {}, *this).value();
    driver_ = thread_.get();
    driver_->post([this, path] { EXPECT_TRUE(driver_->transport().connect(path).ok()); });
  }
  ~Stranger() override { thread_.reset(); }
  void peer_accepted(copy::Peer, std::string_view) override {}
  void peer_connected(copy::Peer peer) override {
    (void)driver_->transport().admit(peer);
    if (!word_.empty()) (void)driver_->transport().send(peer, word_);
  }
  void peer_message(copy::Peer, ConstBytes) override { ++messages; }
  void pushed(copy::Peer, copy::Token, Code) override {}
  void received(copy::Peer, copy::Token, Code, uint64_t) override {}
  void peer_closed(copy::Peer, const Status&) override { closed = true; }
  std::atomic<int> messages{0};
  std::atomic<bool> closed{false};

 private:
  std::vector<std::byte> word_;
  copy::TransportThread* driver_ = nullptr;
  std::unique_ptr<copy::TransportThread> thread_;
};

TEST_F(SameHostMeeting, strangers_are_shown_out_whatever_they_say_or_do_not_say) {
  Node b("bb", folder_.path());
  const std::string door = folder_.path() + "/bb";
  std::vector<std::byte> forged(kHostWordBytes);
  encode(HostWord{HostWord::Kind::here, {}, node_id_of("x"), 1}, forged.data());
  std::vector<std::unique_ptr<Stranger>> all;
  all.push_back(std::make_unique<Stranger>(door, std::vector<std::byte>(200, std::byte{0xAB})));
  all.push_back(std::make_unique<Stranger>(door, std::vector<std::byte>(1)));
  all.push_back(std::make_unique<Stranger>(door, forged));
  all.push_back(std::make_unique<Stranger>(door, std::vector<std::byte>()));  // silent
  for (const auto& one : all) {
    EXPECT_TRUE(wait_until([&] { return one->closed.load(); }));
    EXPECT_EQ(one->messages, 0);
  }
  // Two of them said the same from the same place, and one nothing at all.
  EXPECT_EQ(b.refused({"which has not named its node: it says nothing that a node says"}), 1);
  EXPECT_EQ(b.refused({"node " + short_text(node_id_of("x")) + " (unproven): it does not name its node first"}), 1);
  EXPECT_EQ(b.refused({}), 2);
  Node a("a", folder_.path());
  a.host->heard(b.facts, Role::initiator, introduce(a, b));
  EXPECT_TRUE(wait_until([&] { return a.reads(b, 2); })) << "they kept a node out";
}

}  // namespace
}  // namespace kvbm::cluster::same_host_meet_test

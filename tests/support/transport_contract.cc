#include "support/transport_contract.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

namespace kvbm::test {

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);

bool use_transport_contract() { return true; }

// --- worlds

std::string SocketWorld::deserted_address() {
  // The system assigns a free port, which is released before it is used.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
}

bool SocketWorld::wait(const std::vector<copy::Transport*>& transports, bool brief) {
  std::vector<pollfd> fds;
  int timeout_ms = brief ? 1 : 100;  // short, to check the test's time limit often
  for (copy::Transport* transport : transports) {
    uint64_t within = 0;
    if (transport->arm(within) != Code::ok) return true;
    timeout_ms = static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(timeout_ms), within / 1'000'000 + 1));
    fds.push_back({transport->fd(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), timeout_ms);
  return true;
}

// --- the fixture

void TransportContract::SetUp() { world_ = GetParam()(); }

void TransportContract::TearDown() {
  a_.close();
  b_.close();
  a_.expect_quiet();
  b_.expect_quiet();
}

uint64_t TransportContract::seed() {
  const char* text = std::getenv("KVBMTEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("KVBMTEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

void TransportContract::open(const copy::TransportOptions& options) {
  a_.open(world_->ops(0), options);
  b_.open(world_->ops(1), options);
  auto bound = b_.transport().listen(world_->listen_address(1));
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  address_ = bound.value();
}

bool TransportContract::step() {
  bool more = false;
  for (TransportSide* side : {&a_, &b_}) {
    if (side->is_open() && side->transport().progress()) more = true;
  }
  return more;
}

bool TransportContract::wait(bool brief) {
  std::vector<copy::Transport*> transports;
  for (TransportSide* side : {&a_, &b_}) {
    if (side->is_open()) transports.push_back(&side->transport());
  }
  return world_->wait(transports, brief);
}

void TransportContract::run_until(const std::function<bool()>& done, const char* what) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    const bool more = step();
    if (done()) return;
    const bool may_come = more || wait(false);
    ASSERT_TRUE(may_come || done()) << "nothing happens any more, waiting for: " << what;
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited too long for: " << what;
  }
}

void TransportContract::settle(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (!step() && !wait(true)) return;
  }
}

void TransportContract::connect(bool admit) {
  auto peer = a_.transport().connect(address_);
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  ab_ = peer.value();
  const size_t before = b_.accepted.size();
  run_until([&] { return b_.accepted.size() > before && !a_.connected.empty() && a_.connected.back() == ab_; },
            "a connection");
  ba_ = b_.accepted.back();
  if (!admit) return;
  ASSERT_EQ(a_.transport().admit(ab_), Code::ok);
  ASSERT_EQ(b_.transport().admit(ba_), Code::ok);
  protect();
}

void TransportContract::protect() {
  const copy::Protection how = world_->protection();
  if (how == copy::Protection::off) return;
  const std::array<uint8_t, copy::FrameGuard::kKeyBytes> to_b{1}, to_a{2};
  ASSERT_EQ(a_.transport().protect(ab_, how, to_b.data(), to_a.data()), Code::ok);
  ASSERT_EQ(b_.transport().protect(ba_, how, to_a.data(), to_b.data()), Code::ok);
}

void TransportContract::start_traffic(int n, uint64_t most_bytes) {
  for (int i = 0; i < n; ++i) {
    const auto tag = static_cast<uint64_t>(i);
    const uint64_t bytes = tag * 7919 % most_bytes + 1;
    b_.post(ba_, tag, bytes);
    a_.post(ab_, tag, bytes);
    a_.push(ab_, tag, tag, bytes, 1 + tag % 4);
    b_.push(ba_, tag, tag + 1, bytes);
    a_.send(ab_, "message " + std::to_string(i));
    b_.send(ba_, "message " + std::to_string(i));
  }
}

// --- connections and messages

TEST_P(TransportContract, a_connection_is_told_to_both_and_its_end_too) {
  open();
  connect(false);
  EXPECT_EQ(a_.connected, std::vector<copy::Peer>{ab_});
  EXPECT_TRUE(a_.accepted.empty());
  EXPECT_TRUE(b_.connected.empty());
  EXPECT_EQ(a_.transport().disconnect(ab_, false), Code::ok);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
  EXPECT_EQ(a_.transport().send(ab_, {}), Code::stale_handle);
  EXPECT_EQ(a_.transport().admit(ab_), Code::stale_handle);
  EXPECT_EQ(a_.transport().disconnect(ab_, true), Code::stale_handle);
  copy::Token token = 0;
  EXPECT_EQ(a_.transport().post(ab_, 1, {}, token), Code::stale_handle);
  EXPECT_EQ(a_.transport().cancel(ab_, 1), Code::stale_handle);
}

TEST_P(TransportContract, messages_come_whole_and_in_order_in_both_directions) {
  open();
  connect();
  std::vector<std::string> sent;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{7}, size_t{256}, size_t{257}, size_t{4096}, size_t{65536}, size_t{3}}) {
    sent.emplace_back(size, static_cast<char>('a' + size % 26));
  }
  for (int i = 0; i < 300; ++i)
    sent.push_back("number " + std::to_string(i) + std::string(static_cast<size_t>(i * 7), '.'));
  for (const std::string& text : sent) {
    a_.send(ab_, text);
    b_.send(ba_, text);
  }
  run_until([&] { return b_.messages[ba_].size() == sent.size() && a_.messages[ab_].size() == sent.size(); },
            "all messages");
  EXPECT_EQ(b_.messages[ba_], sent);
  EXPECT_EQ(a_.messages[ab_], sent);
}

TEST_P(TransportContract, a_message_that_is_too_large_is_refused) {
  open();
  connect(false);
  const std::string large(KVBM_TRANSPORT_MESSAGE_BYTES + 1, 'x');
  const auto bytes = std::as_bytes(std::span(large));
  EXPECT_EQ(a_.transport().send(ab_, bytes.first(KVBM_TRANSPORT_STRANGER_BYTES + 1)), Code::invalid_argument);
  EXPECT_EQ(a_.transport().send(ab_, bytes.first(KVBM_TRANSPORT_STRANGER_BYTES)), Code::ok);
  EXPECT_EQ(a_.transport().admit(ab_), Code::ok);
  EXPECT_EQ(a_.transport().send(ab_, bytes), Code::invalid_argument);
  run_until([&] { return b_.messages[ba_].size() == 1; }, "the one that fits");
  EXPECT_EQ(b_.messages[ba_][0].size(), KVBM_TRANSPORT_STRANGER_BYTES);
  EXPECT_TRUE(b_.closed.empty());
}

TEST_P(TransportContract, a_stranger_with_a_large_message_is_closed) {
  open();
  connect(false);
  ASSERT_EQ(a_.transport().admit(ab_), Code::ok);
  a_.send(ab_, std::string(KVBM_TRANSPORT_STRANGER_BYTES + 1, 'x'));
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "the stranger is closed");
  EXPECT_EQ(static_cast<int32_t>(b_.closed.at(ba_).code()), KVBM_TRANSPORT_PROTOCOL);
  EXPECT_TRUE(b_.messages[ba_].empty());
}

TEST_P(TransportContract, a_stranger_with_bulk_is_closed_and_the_post_is_given_back) {
  open();
  connect(false);
  ASSERT_EQ(a_.transport().admit(ab_), Code::ok);
  const copy::Token post = b_.post(ba_, 1, 4096);
  a_.push(ab_, 1, 1, 4096);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "the stranger is closed");
  EXPECT_EQ(static_cast<int32_t>(b_.closed.at(ba_).code()), KVBM_TRANSPORT_PROTOCOL);
  EXPECT_NE(b_.ends.at(post).status, Code::ok);
}

TEST_P(TransportContract, what_is_sent_before_the_connection_stands_arrives) {
  open();
  auto peer = a_.transport().connect(address_);
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  ab_ = peer.value();
  a_.send(ab_, "early");
  run_until([&] { return !b_.accepted.empty() && !b_.messages[b_.accepted[0]].empty(); }, "the early message");
  EXPECT_EQ(b_.messages[b_.accepted[0]], std::vector<std::string>{"early"});
}

TEST_P(TransportContract, connecting_to_nobody_ends_with_closed_alone) {
  open();
  auto peer = a_.transport().connect(world_->deserted_address());
  if (!peer.ok()) return;  // refused at once
  run_until([&] { return a_.closed.count(peer.value()) == 1; }, "the refusal");
  EXPECT_TRUE(a_.connected.empty());
  EXPECT_FALSE(a_.closed.at(peer.value()).message().empty());
}

TEST_P(TransportContract, listening_twice_on_one_address_is_refused_in_words) {
  open();
  const auto again = a_.transport().listen(address_);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find(address_), std::string::npos) << again.status().message();
}

TEST_P(TransportContract, addresses_that_are_none_are_refused_in_words) {
  open();
  for (const char* address : {"", "nowhere", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", ":7000",
                              "a.name.of.a.host:7000", "::1:7000", "[::1:7000", "[zz]:1", "127.0.0.1:7 "}) {
    const auto connected = a_.transport().connect(address);
    ASSERT_FALSE(connected.ok()) << address;
    EXPECT_NE(connected.status().message().find("address"), std::string::npos) << connected.status().message();
    EXPECT_FALSE(a_.transport().listen(address).ok()) << address;
  }
}

TEST_P(TransportContract, a_full_queue_refuses_and_then_says_when_it_has_room) {
  copy::TransportOptions options;
  options.peer_queue_bytes = 100'000;
  open(options);
  connect();
  const std::string text(10'000, 'q');
  size_t sent = 0;
  Code code = Code::ok;
  // The other side reads nothing meanwhile, so that all buffers in between fill up.
  while ((code = a_.transport().send(ab_, std::as_bytes(std::span(text)))) == Code::ok) {
    ASSERT_LT(++sent, 100'000U) << "the queue has no end";
  }
  EXPECT_EQ(code, Code::again);
  EXPECT_EQ(a_.transport().send(ab_, std::as_bytes(std::span(text))), Code::again);
  run_until([&] { return a_.writable[ab_] > 0; }, "room in the queue");
  a_.send(ab_, "after");
  run_until([&] { return b_.messages[ba_].size() == sent + 1; }, "all messages");
  EXPECT_EQ(b_.messages[ba_].back(), "after");
  EXPECT_EQ(a_.writable[ab_], 1);
}

TEST_P(TransportContract, nothing_happens_while_nothing_is_asked) {
  open();
  connect();
  settle(5);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(step());
  uint64_t within = 0;
  EXPECT_EQ(a_.transport().arm(within), Code::ok);
  EXPECT_EQ(b_.transport().arm(within), Code::ok);
}

TEST_P(TransportContract, a_request_is_answered_out_of_the_call_that_brings_it) {
  open();
  connect();
  b_.on_message = [&](copy::Peer peer, ConstBytes) { b_.push(peer, b_.messages[peer].size(), 5, 5000); };
  for (uint64_t i = 1; i <= 50; ++i) {
    const copy::Token post = a_.post(ab_, i, 5000);
    a_.send(ab_, "give");
    run_until([&] { return a_.ended(post); }, "the answer");
    EXPECT_TRUE(a_.holds(post, 5, 5000));
  }
}

TEST_P(TransportContract, a_peer_can_be_dropped_out_of_its_own_message) {
  open();
  connect();
  b_.post(ba_, 1, 100'000);
  b_.on_message = [&](copy::Peer peer, ConstBytes bytes) {
    const std::vector<std::byte> before(bytes.begin(), bytes.end());
    EXPECT_EQ(b_.transport().disconnect(peer, false), Code::ok);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), bytes.begin())) << "the message changed while it was borrowed";
  };
  for (int i = 0; i < 10; ++i) a_.send(ab_, "drop me " + std::to_string(i));
  a_.push(ab_, 1, 1, 100'000);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
  EXPECT_EQ(b_.messages[ba_].size(), 1U);
}

}  // namespace kvbm::test

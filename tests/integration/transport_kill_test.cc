// A peer in a process of its own is killed, or stopped, in the middle of transfers. KVBMTEST_KILLS says how often
// (default 20), KVBMTEST_SEED where the random moments begin.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/crypto/random.h"
#include "copy/tcp/tcp_transport.h"
#include "support/child_signal.h"
#include "support/transport_side.h"

namespace kvbm::test::transport_kill_test {
namespace {

constexpr uint64_t kBytes = 2'000'000;
constexpr uint64_t kTransfers = 8;

uint64_t number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

void drive(copy::Transport& transport, int timeout_ms) {
  if (transport.progress()) return;
  uint64_t within = 0;
  if (transport.arm(within) != Code::ok) return;
  pollfd fd{transport.fd(), POLLIN, 0};
  poll(&fd, 1, timeout_ms);
}

// Pushes the requested content ("tag"), and posts memory for pushes of the other side, until it is killed.
[[noreturn]] void answer(int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TransportSide side("child");
  side.open(copy::tcp::ops());
  const auto bound = side.transport().listen("127.0.0.1:0");
  if (!bound.ok() || write(pipe, bound.value().c_str(), bound.value().size()) < 0) _exit(1);
  side.on_accepted = [&](copy::Peer peer) {
    side.transport().admit(peer);
    for (uint64_t i = 0; i < kTransfers; ++i) side.post(peer, i, kBytes);
  };
  side.on_message = [&](copy::Peer peer, ConstBytes bytes) {
    uint64_t tag = 0;
    std::memcpy(&tag, bytes.data(), sizeof tag);
    side.push(peer, tag, tag, kBytes, 3);
  };
  for (;;) drive(side.transport(), -1);
}

class TransportKill : public testing::Test {
 protected:
  void SetUp() override {
    const uint64_t seed = number("KVBMTEST_SEED", 1);
    std::printf("KVBMTEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random_ = std::make_unique<SeededRandom>(seed);
    side_.open(copy::tcp::ops());
  }
  void TearDown() override {
    end_child();
    side_.close();
  }

  void start_child() {
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) answer(fds[1]);
    close(fds[1]);
    char address[128] = "";
    ASSERT_GT(read(fds[0], address, sizeof address - 1), 0);
    close(fds[0]);
    const auto peer = side_.transport().connect(address);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    peer_ = peer.value();
    address_ = address;
    ASSERT_EQ(side_.transport().admit(peer_), Code::ok);
  }
  void end_child() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  // Starts transfers that fill both directions.
  void start_transfers() {
    posts_.clear();
    for (uint64_t i = 0; i < kTransfers; ++i) {
      posts_.push_back(side_.post(peer_, i, kBytes));
      side_.push(peer_, i, i, kBytes);
      side_.send(peer_, std::string_view(reinterpret_cast<const char*>(&i), sizeof i));
    }
  }
  uint64_t arrived() {
    uint64_t sum = 0;
    for (const copy::Token post : posts_) sum += side_.ended(post) ? kBytes : side_.arrived_bytes[post];
    return sum;
  }
  template <class Done>
  void run_until(Done&& done, const char* what) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited too long for: " << what;
      drive(side_.transport(), 100);
    }
  }
  void forget_all() {
    for (copy::Token token = 1; token <= last_; ++token) side_.forget(token);
  }

  std::unique_ptr<SeededRandom> random_;
  TransportSide side_{"parent"};
  std::vector<copy::Token> posts_;
  copy::Peer peer_ = 0;
  copy::Token last_ = 0;
  pid_t child_ = -1;
  std::string address_;
};

TEST_F(TransportKill, a_peer_killed_in_a_transfer_ends_every_operation_once_and_is_named) {
  const uint64_t kills = number("KVBMTEST_KILLS", 20);
  for (uint64_t round = 0; round < kills; ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    start_child();
    start_transfers();
    const uint64_t enough = random_->below(kTransfers * kBytes);
    run_until([&] { return arrived() >= enough; }, "the first bytes");
    ASSERT_TRUE(signal_child(child_, SIGKILL));
    run_until([&] { return side_.closed.count(peer_) == 1; }, "the end of the connection");
    EXPECT_TRUE(side_.all_ended());
    EXPECT_NE(side_.closed.at(peer_).message().find(address_), std::string::npos) << side_.closed.at(peer_).message();
    for (uint64_t i = 0; i < kTransfers; ++i) {
      EXPECT_TRUE(side_.ends.at(posts_[i]).status != Code::ok || side_.holds(posts_[i], i, kBytes));
    }
    side_.expect_quiet();
    last_ = posts_.back() + 2;
    forget_all();
    end_child();
    if (HasFailure()) return;
  }
}

TEST_F(TransportKill, a_peer_stopped_in_a_transfer_can_be_cancelled_and_dropped) {
  start_child();
  start_transfers();
  run_until([&] { return arrived() >= kBytes / 2; }, "the first bytes");
  ASSERT_TRUE(signal_child(child_, SIGSTOP));
  // Bytes that were already on the way may still arrive. After them nothing does.
  for (const copy::Token post : posts_) (void)side_.transport().cancel(peer_, post);
  run_until(
      [&] {
        for (const copy::Token post : posts_) {
          if (!side_.ended(post)) return false;
        }
        return true;
      },
      "the cancelled posts");
  EXPECT_EQ(side_.closed.count(peer_), 0U);
  EXPECT_EQ(side_.transport().disconnect(peer_, false), Code::ok);
  run_until([&] { return side_.closed.count(peer_) == 1; }, "the end of the connection");
  EXPECT_TRUE(side_.all_ended());
  side_.expect_quiet();
}

TEST_F(TransportKill, a_peer_that_was_stopped_goes_on_where_it_was) {
  start_child();
  start_transfers();
  run_until([&] { return arrived() >= kBytes / 2; }, "the first bytes");
  ASSERT_TRUE(signal_child(child_, SIGSTOP));
  for (int i = 0; i < 20; ++i) drive(side_.transport(), 1);
  ASSERT_TRUE(signal_child(child_, SIGCONT));
  run_until([&] { return side_.all_ended(); }, "all transfers");
  for (uint64_t i = 0; i < kTransfers; ++i) EXPECT_TRUE(side_.holds(posts_[i], i, kBytes));
}

TEST_F(TransportKill, a_flush_to_a_stopped_peer_gives_up) {
  start_child();
  // The pushes exceed all buffers in between.
  for (uint64_t i = 0; i < 40; ++i) side_.push(peer_, i, i, kBytes);
  run_until([&] { return !side_.connected.empty(); }, "the connection");
  ASSERT_TRUE(signal_child(child_, SIGSTOP));
  EXPECT_EQ(side_.transport().disconnect(peer_, true), Code::ok);
  run_until([&] { return side_.closed.count(peer_) == 1; }, "the flush's deadline");
  EXPECT_EQ(side_.closed.at(peer_).code(), Code::deadline);
  EXPECT_TRUE(side_.all_ended());
}

}  // namespace
}  // namespace kvbm::test::transport_kill_test

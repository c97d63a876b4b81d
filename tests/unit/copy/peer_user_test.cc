// The user of the process at the other end of a TCP connection on this machine, and a transport that accepts only this
// user's processes.
#include "copy/tcp/peer_user.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>

#include "copy/tcp/address.h"
#include "copy/tcp/tcp_transport.h"
#include "support/other_user.h"
#include "support/temp_dir.h"
#include "support/transport_side.h"

namespace kvbm::copy::tcp::peer_user_test {
namespace {

using test::can_be_another_user;
using test::kOtherUser;
using test::TempDir;
using test::TransportSide;

const char* table_of(const std::string& address) {
  return address.front() == '[' ? "/proc/thread-self/net/tcp6" : "/proc/thread-self/net/tcp";
}

Fd listen_at(const std::string& address, std::string& bound) {
  const Address name = Address::parse(address).value();
  Fd fd(socket(name.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name.storage), name.size) != 0 || listen(fd.get(), 16) != 0) {
    return Fd();
  }
  bound = local_address(fd.get()).text();
  return fd;
}

int connected_to(const std::string& address) {
  const auto name = Address::parse(address);
  const int fd = socket(name.value().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name.value().storage), name.value().size) == 0) return fd;
  close(fd);
  return -1;
}

// A child process that runs `body` and then waits for its release: its files stay open.
class Child {
 public:
  Child(bool another_user, const std::function<bool()>& body) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(go_, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(go_[1]);
      const bool done = (!another_user || test::become_another_user()) && body();
      char said = done ? 'y' : 'n';
      if (write(ready[1], &said, 1) < 0 || read(go_[0], &said, 1) < 0) _exit(2);
      _exit(0);
    }
    close(ready[1]);
    char said = 'n';
    EXPECT_EQ(read(ready[0], &said, 1), 1);
    ready_ = said == 'y';
    close(ready[0]);
  }
  ~Child() {
    close(go_[0]);
    close(go_[1]);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  int go_[2] = {-1, -1};
  bool ready_ = false;
};

class PeerUserTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    listener_ = listen_at(GetParam(), address_);
    if (!listener_) GTEST_SKIP() << GetParam() << " is not to be had here";
  }
  Fd accepted() { return Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  PeerUsers users_;
  Fd listener_;
  std::string address_;
};

TEST_P(PeerUserTest, a_process_of_this_user_is_told_by_both_sources) {
  const Child child(false, [&] { return connected_to(address_) >= 0; });
  ASSERT_TRUE(child.ready());
  const Fd fd = accepted();
  std::string why;
  EXPECT_EQ(users_.ask_kernel(fd.get(), false, why), geteuid()) << why;
  EXPECT_EQ(PeerUsers::look_up(fd.get(), table_of(address_), why), geteuid()) << why;
  EXPECT_EQ(users_.of_peer(fd.get()).user, PeerUser::own);
}

TEST_P(PeerUserTest, another_users_process_is_told_by_both_sources_and_refused_with_what_to_do) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  const Child child(true, [&] { return connected_to(address_) >= 0; });
  ASSERT_TRUE(child.ready());
  const Fd fd = accepted();
  std::string why;
  EXPECT_EQ(users_.ask_kernel(fd.get(), false, why), kOtherUser) << why;
  EXPECT_EQ(PeerUsers::look_up(fd.get(), table_of(address_), why), kOtherUser) << why;
  const auto verdict = users_.of_peer(fd.get());
  EXPECT_EQ(verdict.user, PeerUser::stranger);
  EXPECT_EQ(verdict.why.code(), Code::not_permitted);
  for (const std::string& part : {std::string("user 65534 there"), std::string("user 0 here"),
                                  std::string("node.key_file"), remote_address(fd.get()).text()}) {
    EXPECT_NE(verdict.why.message().find(part), std::string::npos) << part << ": " << verdict.why.message();
  }
}

TEST_P(PeerUserTest, whoever_listens_is_told_before_it_accepts_and_who_has_accepted_after) {
  const Fd fd(connected_to(address_));
  // No process holds the socket at the other end yet, and the kernel reports root as its user.
  std::string why;
  EXPECT_FALSE(users_.ask_kernel(fd.get(), false, why).has_value());
  EXPECT_FALSE(PeerUsers::look_up(fd.get(), table_of(address_), why).has_value());
  EXPECT_EQ(users_.of_peer(fd.get()).user, PeerUser::unknown);
  EXPECT_EQ(users_.of_listener(fd.get()).user, PeerUser::own);
  const Fd there = accepted();
  EXPECT_EQ(users_.of_peer(fd.get()).user, PeerUser::own);
}

TEST_P(PeerUserTest, a_listener_of_another_user_is_told) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  int tell[2];
  ASSERT_EQ(pipe(tell), 0);
  const Child child(true, [&] {
    std::string bound;
    static Fd kept;
    kept = listen_at(GetParam(), bound);
    return kept && write(tell[1], bound.c_str(), bound.size() + 1) > 0;
  });
  ASSERT_TRUE(child.ready());
  char bound[128];
  ASSERT_GT(read(tell[0], bound, sizeof bound), 0);
  close(tell[0]);
  close(tell[1]);
  const Fd fd(connected_to(bound));
  ASSERT_TRUE(fd);
  EXPECT_EQ(users_.of_listener(fd.get()).user, PeerUser::stranger);
  EXPECT_EQ(users_.of_peer(fd.get()).user, PeerUser::unknown);
}

// The kernel names user 0 for a socket that no process holds any more.
TEST_P(PeerUserTest, one_that_has_gone_is_nobodys_and_not_roots) {
  Fd client(connected_to(address_));
  const Fd fd = accepted();
  ASSERT_EQ(users_.of_peer(fd.get()).user, PeerUser::own);
  ASSERT_EQ(send(client.get(), "hello", 5, 0), 5);
  client = Fd();
  std::string why;
  EXPECT_FALSE(users_.ask_kernel(fd.get(), false, why).has_value());
  EXPECT_FALSE(PeerUsers::look_up(fd.get(), table_of(address_), why).has_value());
  const auto verdict = users_.of_peer(fd.get());
  EXPECT_EQ(verdict.user, PeerUser::unknown);
  EXPECT_EQ(verdict.why.code(), Code::not_permitted);
  EXPECT_NE(verdict.why.message().find("node.key_file"), std::string::npos) << verdict.why.message();
}

// Addresses in another namespace say nothing of this one's.
TEST_P(PeerUserTest, another_network_namespace_is_foreign) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can make a network namespace";
  const Fd client(connected_to(address_));
  const Fd fd = accepted();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    PeerUsers elsewhere;
    _exit(elsewhere.of_peer(fd.get()).user == PeerUser::unknown ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace can be made here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

INSTANTIATE_TEST_SUITE_P(Loopback, PeerUserTest, testing::Values("127.0.0.1:0", "[::1]:0"));

TEST(PeerUserTable, a_long_table_is_read_to_the_line_and_one_without_it_or_with_nonsense_says_nobody) {
  std::string address;
  const Fd listener = listen_at("127.0.0.1:0", address);
  const Fd client(connected_to(address));
  const Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto port = [](const Address& of) {
    char text[8];
    std::snprintf(text, sizeof text, "%04X", of.port());
    return std::string(text);
  };
  const std::string far = "0100007F:" + port(remote_address(fd.get()));
  const std::string near = "0100007F:" + port(local_address(fd.get()));
  const std::string tail = " 01 00000000:00000000 00:00000000 00000000  4711        0 ";
  const TempDir folder;
  const std::string path = folder.path() + "/tcp";
  std::string why;
  {
    std::ofstream table(path);
    table << "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    for (int i = 0; i < 5000; ++i)
      table << "   " << i << ": " << near << " " << far << tail << "99 1 0 20 4 30 10 -1\n";
    table << "5000: nonsense\n\n" << std::string(300, 'x') << "\n";
    table << "5001: " << far << " " << near << tail << "12345 1 0 20 4 30 10 -1\n";
  }
  EXPECT_EQ(PeerUsers::look_up(fd.get(), path.c_str(), why), 4711U) << why;
  std::ofstream(path) << "0: " << far << " " << near << tail << "0 1 0\n";
  EXPECT_FALSE(PeerUsers::look_up(fd.get(), path.c_str(), why).has_value());
  std::ofstream(path) << std::string(200'000, 'y');
  EXPECT_FALSE(PeerUsers::look_up(fd.get(), path.c_str(), why).has_value());
  EXPECT_FALSE(PeerUsers::look_up(fd.get(), "/nonexistent", why).has_value());
  EXPECT_NE(why.find("/nonexistent"), std::string::npos) << why;
}

// ---- A transport for this user's processes alone ----

class OwnUserTransport : public testing::Test {
 protected:
  void SetUp() override {
    TransportOptions options;
    options.own_user_only = true;
    side_.open(ops(), options);
    EXPECT_NE(side_.transport().features() & KVBM_TRANSPORT_OWN_USER, 0U);
    address_ = side_.transport().listen("127.0.0.1:0").value();
  }
  void run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited too long";
      if (!side_.transport().progress()) poll(nullptr, 0, 1);
    }
  }

  TransportSide side_{"own"};
  std::string address_;
};

TEST_F(OwnUserTransport, takes_this_users_processes_in_both_directions) {
  const auto peer = side_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  run_until([&] { return side_.connected.size() == 1 && side_.accepted.size() == 1; });
  side_.send(peer.value(), "there");
  run_until([&] { return side_.messages[side_.accepted[0]].size() == 1; });
  side_.send(side_.accepted[0], "and back");
  run_until([&] { return side_.messages[peer.value()].size() == 1; });
}

TEST_F(OwnUserTransport, another_user_that_comes_is_closed_and_nothing_of_it_is_told) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  const Child child(true, [&] {
    const int fd = connected_to(address_);
    std::byte frame[kHeaderBytes + 4]{};
    encode({Kind::message, 4, 0, 0}, frame);
    return send(fd, frame, sizeof frame, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof frame);
  });
  ASSERT_TRUE(child.ready());
  run_until([&] { return side_.closed.size() == 1; });
  EXPECT_EQ(side_.closed.begin()->second.code(), Code::not_permitted);
  EXPECT_NE(side_.closed.begin()->second.message().find("user 65534 there"), std::string::npos);
  EXPECT_TRUE(side_.messages.empty());
}

// For a closed socket the kernel names root, and root runs this test.
TEST_F(OwnUserTransport, what_another_user_said_before_it_went_is_not_told) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(test::as_another_user([&] {
              const int fd = connected_to(address_);
              std::byte frame[kHeaderBytes + 4]{};
              encode({Kind::message, 4, 0, 0}, frame);
              return send(fd, frame, sizeof frame, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof frame) ? 0 : 1;
            }),
            0);
  run_until([&] { return side_.closed.size() == 1; });
  EXPECT_EQ(side_.closed.begin()->second.code(), Code::not_permitted);
  EXPECT_TRUE(side_.messages.empty());
}

TEST_F(OwnUserTransport, another_user_that_listens_is_left_before_anything_is_said) {
  if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
  int tell[2];
  ASSERT_EQ(pipe(tell), 0);
  const Child child(true, [&] {
    std::string bound;
    static Fd kept;
    kept = listen_at("127.0.0.1:0", bound);
    return kept && write(tell[1], bound.c_str(), bound.size() + 1) > 0;
  });
  ASSERT_TRUE(child.ready());
  char bound[128];
  ASSERT_GT(read(tell[0], bound, sizeof bound), 0);
  close(tell[0]);
  close(tell[1]);
  const auto peer = side_.transport().connect(bound);
  ASSERT_TRUE(peer.ok());
  run_until([&] { return side_.closed.size() == 1; });
  EXPECT_TRUE(side_.connected.empty());
  EXPECT_EQ(side_.closed[peer.value()].code(), Code::not_permitted);
  EXPECT_NE(side_.closed[peer.value()].message().find("node.key_file"), std::string::npos);
}

TEST_F(OwnUserTransport, what_this_transport_does_not_know_is_refused) {
  kvbm_transport_options_t options{};
  options.struct_size = sizeof options;
  options.peer_queue_bytes = 1 << 20;
  options.peer_bulk_bytes = 1 << 20;
  options.flags = 1U << 31;
  kvbm_transport_host_t host{};
  host.struct_size = sizeof host;
  EXPECT_EQ(TcpTransport::open(options, host).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace kvbm::copy::tcp::peer_user_test

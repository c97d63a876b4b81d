// Properties of the TCP transport alone, beside the contract of all transports (tcp_contract_test.cc).
#include "copy/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "copy/tcp/address.h"
#include "support/transport_side.h"

namespace kvbm::copy::tcp::tcp_transport_test {
namespace {

using kvbm::test::TransportSide;

// A client that sends plain bytes, without the transport's protocol.
class RawSocket {
 public:
  explicit RawSocket(const std::string& address) {
    const auto name = Address::parse(address);
    fd_ = socket(name.value().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name.value().storage), name.value().size), 0);
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawSocket() {
    if (fd_ >= 0) close(fd_);
  }
  void write(ConstBytes bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void write(std::string_view text) const { write(std::as_bytes(std::span(text))); }

 private:
  int fd_ = -1;
};

class TcpTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    side_.open(ops());
    const auto bound = side_.transport().listen("127.0.0.1:0");
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    address_ = bound.value();
  }
  template <class Done>
  void run_until(Done&& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited too long";
      if (!side_.transport().progress() && !done()) wait(100);
    }
  }
  void wait(int timeout_ms) {
    uint64_t within = 0;
    if (side_.transport().arm(within) != Code::ok) return;
    pollfd fd{side_.transport().fd(), POLLIN, 0};
    poll(&fd, 1, timeout_ms);
  }

  TransportSide side_{"listener"};
  std::string address_;
};

TEST_F(TcpTransportTest, a_client_of_another_protocol_is_closed_and_named) {
  const RawSocket raw(address_);
  raw.write("GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody\r\n\r\n");
  run_until([&] { return side_.closed.size() == 1; });
  const Status& status = side_.closed.begin()->second;
  EXPECT_EQ(static_cast<int32_t>(status.code()), KVBM_TRANSPORT_PROTOCOL);
  EXPECT_NE(status.message().find("127.0.0.1:"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("does not speak"), std::string::npos) << status.message();
}

TEST_F(TcpTransportTest, frames_that_come_byte_by_byte_are_whole) {
  const RawSocket raw(address_);
  std::byte header[kHeaderBytes];
  for (const std::string_view text : {"first", "", "second and longer"}) {
    encode({Kind::message, static_cast<uint32_t>(text.size()), 0, 0}, header);
    std::vector<std::byte> frame(header, header + kHeaderBytes);
    const auto body = std::as_bytes(std::span(text));
    frame.insert(frame.end(), body.begin(), body.end());
    for (const std::byte& byte : frame) {
      raw.write(ConstBytes(&byte, 1));
      for (int i = 0; i < 2; ++i) side_.transport().progress();
    }
  }
  run_until([&] { return !side_.messages.empty() && side_.messages.begin()->second.size() == 3; });
  EXPECT_EQ(side_.messages.begin()->second, (std::vector<std::string>{"first", "", "second and longer"}));
}

TEST_F(TcpTransportTest, a_connection_cut_inside_a_frame_says_so) {
  {
    const RawSocket raw(address_);
    std::byte header[kHeaderBytes];
    encode({Kind::message, 100, 0, 0}, header);
    raw.write(ConstBytes(header, 20));
  }
  run_until([&] { return side_.closed.size() == 1; });
  EXPECT_EQ(side_.closed.begin()->second.code(), Code::closed);
  EXPECT_NE(side_.closed.begin()->second.message().find("in the middle"), std::string::npos);
}

TEST_F(TcpTransportTest, a_flood_of_strangers_waits_outside_until_some_are_gone) {
  std::vector<RawSocket> strangers;
  constexpr size_t kStrangers = 300;
  for (size_t i = 0; i < kStrangers; ++i) strangers.emplace_back(address_);
  run_until([&] { return side_.accepted.size() == 256; });
  for (int i = 0; i < 20; ++i) side_.transport().progress();
  EXPECT_EQ(side_.accepted.size(), 256U);
  uint64_t within = 0;
  EXPECT_EQ(side_.transport().arm(within), Code::ok);
  pollfd fd{side_.transport().fd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0) << "those outside keep the transport awake";
  for (size_t i = 0; i < 22; ++i) EXPECT_EQ(side_.transport().admit(side_.accepted[i]), Code::ok);
  for (size_t i = 22; i < 44; ++i) EXPECT_EQ(side_.transport().disconnect(side_.accepted[i], false), Code::ok);
  run_until([&] { return side_.accepted.size() == kStrangers; });
}

TEST_F(TcpTransportTest, memory_that_is_not_there_ends_the_connection_and_no_more) {
  const auto peer = side_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  run_until([&] { return side_.connected.size() == 1 && side_.accepted.size() == 1; });
  ASSERT_EQ(side_.transport().admit(peer.value()), Code::ok);
  const kvbm_transport_piece_t nowhere{reinterpret_cast<const void*>(4096), 100'000};
  Token token = 0;
  // Uses a plain listener, because the recording side would write to the memory before a push.
  struct Quiet final : TransportListener {
    bool closed = false, accepted = false;
    Code pushed_status = Code::ok;
    std::string reason;
    void peer_accepted(Peer, std::string_view) override { accepted = true; }
    void peer_connected(Peer) override {}
    void peer_message(Peer, ConstBytes) override {}
    void pushed(Peer, Token, Code status) override { pushed_status = status; }
    void received(Peer, Token, Code, uint64_t) override {}
    void peer_closed(Peer, const Status& status) override {
      closed = true;
      reason = status.message();
    }
  } quiet;
  auto other = Transport::open(ops(), {}, quiet);
  ASSERT_TRUE(other.ok());
  const auto to = other.value()->connect(address_);
  ASSERT_TRUE(to.ok());
  ASSERT_EQ(other.value()->admit(to.value()), Code::ok);
  ASSERT_EQ(other.value()->push(to.value(), 1, &nowhere, 1, token), Code::ok);
  run_until([&] {
    other.value()->progress();
    return quiet.closed;
  });
  EXPECT_EQ(quiet.pushed_status, Code::io_error);
  EXPECT_NE(quiet.reason.find(address_), std::string::npos) << quiet.reason;
}

TEST_F(TcpTransportTest, protection_begins_once_after_admission_and_before_anything_is_pushed) {
  const auto peer = side_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  run_until([&] { return side_.connected.size() == 1 && side_.accepted.size() == 1; });
  const std::array<uint8_t, FrameGuard::kKeyBytes> one{1}, other{2};
  const auto protect = [&](Peer who, uint32_t how) {
    return ops().protect(side_.transport().handle(), who, how, one.data(), other.data());
  };
  EXPECT_EQ(static_cast<Code>(protect(peer.value(), KVBM_TRANSPORT_ENCRYPT)), Code::wrong_state);
  ASSERT_EQ(side_.transport().admit(peer.value()), Code::ok);
  ASSERT_EQ(side_.transport().admit(side_.accepted[0]), Code::ok);
  for (const uint32_t how : {0U, 3U}) EXPECT_EQ(static_cast<Code>(protect(peer.value(), how)), Code::invalid_argument);
  EXPECT_EQ(protect(peer.value(), KVBM_TRANSPORT_ENCRYPT), 0);
  EXPECT_EQ(static_cast<Code>(protect(peer.value(), KVBM_TRANSPORT_ENCRYPT)), Code::wrong_state);
  EXPECT_EQ(static_cast<Code>(protect(peer.value() + 1, KVBM_TRANSPORT_ENCRYPT)), Code::stale_handle);
  // The push is larger than the socket's buffer, so it is not sent completely yet.
  side_.push(side_.accepted[0], 1, 1, 32 << 20);
  EXPECT_EQ(static_cast<Code>(protect(side_.accepted[0], KVBM_TRANSPORT_ENCRYPT)), Code::wrong_state);
}

// The other side sends no tags, or has other keys: none of its bytes are reported.
TEST_F(TcpTransportTest, a_protected_connection_ends_with_the_first_frame_whose_tag_does_not_fit) {
  const RawSocket raw(address_);
  std::byte header[kHeaderBytes];
  encode({Kind::message, 5, 0, 0}, header);
  raw.write(ConstBytes(header, kHeaderBytes));
  raw.write("hello");
  run_until([&] { return !side_.messages.empty(); });
  const Peer peer = side_.accepted[0];
  const std::array<uint8_t, FrameGuard::kKeyBytes> one{1}, other{2};
  ASSERT_EQ(side_.transport().admit(peer), Code::ok);
  ASSERT_EQ(side_.transport().protect(peer, Protection::authenticate, one.data(), other.data()), Code::ok);
  side_.post(peer, 1, 1000);
  raw.write(ConstBytes(header, kHeaderBytes));
  raw.write("hello, and sixteen bytes more");
  run_until([&] { return side_.closed.size() == 1; });
  EXPECT_EQ(side_.messages[peer].size(), 1U);
  const Status& status = side_.closed.begin()->second;
  EXPECT_EQ(static_cast<int32_t>(status.code()), KVBM_TRANSPORT_PROTOCOL);
  EXPECT_NE(status.message().find("127.0.0.1:"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("changed"), std::string::npos) << status.message();
}

TEST_F(TcpTransportTest, no_descriptor_outlives_an_exec) {
  const auto peer = side_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  run_until([&] { return side_.connected.size() == 1 && side_.accepted.size() == 1; });
  for (int fd = 3; fd < 64; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    const bool ours = fd == side_.transport().fd() || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
    EXPECT_TRUE(!ours || (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) << fd;
  }
}

TEST(TcpAddress, is_a_number_and_a_port_and_comes_back_as_written) {
  for (const char* text : {"127.0.0.1:7000", "10.1.2.3:0", "[::1]:65535", "[2001:db8::7]:1", "0.0.0.0:80"}) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address.value().text(), text);
  }
  EXPECT_EQ(Address::parse("localhost:9").value().text(), "127.0.0.1:9");
  EXPECT_EQ(Address::parse("[127.0.0.1]:9").status().code(), Code::invalid_argument);
}

TEST(TcpAddress, of_version_6_carries_connections) {
  TransportSide listener("listener");
  TransportSide caller("caller");
  listener.open(ops());
  const auto bound = listener.transport().listen("[::1]:0");
  if (!bound.ok()) GTEST_SKIP() << "no IPv6 here: " << bound.status().message();
  caller.open(ops());
  const auto peer = caller.transport().connect(bound.value());
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  caller.send(peer.value(), "six");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (listener.messages.empty() && std::chrono::steady_clock::now() < end) {
    caller.transport().progress();
    listener.transport().progress();
  }
  ASSERT_EQ(listener.messages.size(), 1U);
}

}  // namespace
}  // namespace kvbm::copy::tcp::tcp_transport_test

// The local link against itself and against peers that do what no peer should. Both ends live in one process; a raw
// socket plays the bad ones. Waits are bounded by kPatience and end when something happens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>

#include "copy/local/fetch.h"
#include "copy/local/unix_transport.h"
#include "support/pool_records.h"
#include "support/temp_dir.h"

namespace kvbm::copy::local::link_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

size_t open_descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// One end of a link, and its events.
struct End {
  End() {
    host.struct_size = sizeof host;
    host.context = this;
    host.log = [](void* self, int32_t, const char* text) {
      static_cast<End*>(self)->logged += std::string(text) + "\n";
    };
    host.accepted = [](void* self, uint64_t peer, const char*) { static_cast<End*>(self)->accepted.push_back(peer); };
    host.connected = [](void* self, uint64_t peer) { static_cast<End*>(self)->connected.push_back(peer); };
    host.message = [](void* self, uint64_t, const void* bytes, size_t size) {
      static_cast<End*>(self)->messages.emplace_back(static_cast<const char*>(bytes), size);
    };
    host.writable = [](void* self, uint64_t) { ++static_cast<End*>(self)->writable; };
    host.pushed = [](void* self, uint64_t, uint64_t token, int32_t status) {
      static_cast<End*>(self)->ends[token] = static_cast<Code>(status);
    };
    host.received = [](void* self, uint64_t, uint64_t token, int32_t status, uint64_t) {
      static_cast<End*>(self)->ends[token] = static_cast<Code>(status);
    };
    host.closed = [](void* self, uint64_t peer, int32_t status, const char* reason) {
      static_cast<End*>(self)->closed[peer] = {static_cast<Code>(status), reason};
    };
    open();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  void open() {
    kvbm_transport_options_t options{};
    options.struct_size = sizeof options;
    options.peer_queue_bytes = 100'000;
    auto made = UnixTransport::open(options, host);
    EXPECT_TRUE(made.ok());
    link = std::move(made).value();
  }

  kvbm_transport_host_t host{};
  std::unique_ptr<UnixTransport> link;
  std::vector<uint64_t> accepted, connected;
  std::vector<std::string> messages;
  std::map<uint64_t, Code> ends;
  std::map<uint64_t, std::pair<Code, std::string>> closed;
  int writable = 0;
  std::string logged;
};

class Link : public testing::Test {
 protected:
  void listen() {
    path_ = temp_.path() + "/sock";
    const auto bound = b_.link->listen(path_);
    ASSERT_TRUE(bound.ok()) << bound.status().message();
  }
  void run_until(const std::function<bool()>& done, const char* what) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited too long for: " << what;
      const bool more = (a_.link->progress() | b_.link->progress()) != 0;
      if (more || done()) continue;
      uint64_t within = 0;
      int timeout_ms = 100;
      bool sleep = true;
      for (End* end_of : {&a_, &b_}) {
        if (end_of->link->arm(&within) != 0) sleep = false;
        timeout_ms = static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(timeout_ms), within / 1'000'000 + 1));
      }
      pollfd fds[] = {{a_.link->fd(), POLLIN, 0}, {b_.link->fd(), POLLIN, 0}};
      if (sleep) poll(fds, 2, timeout_ms);
    }
  }
  void connect() {
    const auto peer = a_.link->connect(path_);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    ab_ = peer.value();
    run_until([&] { return !a_.connected.empty() && !b_.accepted.empty(); }, "a connection");
    ba_ = b_.accepted.back();
  }
  // Connects a bare socket, through which a test sends frames of its own.
  Fd raw() {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  Fd greeted() {
    Fd fd = raw();
    std::byte hello[kHelloBytes];
    encode_hello(hello);
    EXPECT_EQ(::send(fd.get(), hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
    const size_t before = b_.accepted.size();
    run_until([&] { return b_.accepted.size() > before; }, "the greeting");
    return fd;
  }
  static std::vector<std::byte> frame(FrameKind kind, size_t length) {
    std::vector<std::byte> out(kFrameHeaderBytes + length);
    FrameHeader header;
    header.kind = kind;
    header.length = static_cast<uint32_t>(length);
    encode(header, out.data());
    return out;
  }
  static ssize_t send_with(int fd, const std::vector<std::byte>& bytes, const std::vector<int>& fds) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL);
  }
  // The last peer that b accepted is closed as one that speaks no sense.
  void expect_refused(const char* what) {
    run_until([&] { return b_.closed.count(b_.accepted.back()) == 1; }, what);
    EXPECT_EQ(b_.closed[b_.accepted.back()].first, Code::damaged) << what;
    EXPECT_FALSE(b_.closed[b_.accepted.back()].second.empty());
  }

  test::TempDir temp_;
  std::string path_;
  End a_, b_;
  uint64_t ab_ = 0;
  uint64_t ba_ = 0;
};

TEST_F(Link, a_pool_is_there_before_the_first_message_after_it) {
  listen();
  auto arena = test::make_pool(2);
  test::put_pool_record(*arena, 1, 77);
  const auto id = b_.link->offer_pool(arena->fd(), arena->shape());
  ASSERT_TRUE(id.ok()) << id.status().message();
  connect();
  EXPECT_TRUE(a_.link->pools(ab_).empty());
  ASSERT_EQ(b_.link->admit(ba_), Code::ok);
  ASSERT_EQ(a_.link->admit(ab_), Code::ok);
  const std::byte hi[1] = {std::byte{'h'}};
  ASSERT_EQ(b_.link->send(ba_, hi), Code::ok);
  run_until([&] { return !a_.messages.empty(); }, "a message");
  const auto pools = a_.link->pools(ab_);
  ASSERT_EQ(pools.size(), 1U);
  EXPECT_EQ(pools[0]->id(), id.value());
  EXPECT_EQ(pools[0]->shape(), arena->shape());
  EXPECT_EQ(pools[0]->owner_pid(), getpid());
  std::vector<std::byte> room(static_cast<size_t>(arena->shape().head_stride));
  std::vector<std::byte> to(test::kPoolBlockBytes);
  std::optional<codec::HeadView> head;
  ASSERT_EQ(read_head(place_of(*pools[0], 1), test::pool_family(), test::pool_key(77), room, head), Code::ok);
  EXPECT_EQ(fetch_record(place_of(*pools[0], 1), *head, to, codec::CopyHint::automatic), Code::ok);
  EXPECT_EQ(to, test::pool_payload(77));
  // The pool outlives the connection, and reports that its owner is gone.
  EXPECT_FALSE(pools[0]->gone());
  b_.link.reset();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (a_.closed.count(ab_) == 0 && std::chrono::steady_clock::now() < end) a_.link->progress();
  EXPECT_TRUE(pools[0]->gone());
  EXPECT_TRUE(a_.link->pools(ab_).empty());
  EXPECT_EQ(fetch_record(place_of(*pools[0], 1), *head, to, codec::CopyHint::automatic), Code::ok);
  b_.open();
}

TEST_F(Link, memory_that_is_not_sealed_is_neither_offered_nor_taken) {
  listen();
  auto arena = test::make_pool(1);
  Fd loose(memfd_create("loose", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(loose.get(), static_cast<off_t>(arena->shape().bytes)), 0);
  EXPECT_EQ(b_.link->offer_pool(loose.get(), arena->shape()).status().code(), Code::not_permitted);
  const Fd bad = greeted();
  auto offer = frame(FrameKind::pool, kOfferBytes);
  PoolOffer said;
  said.id = 1;
  said.shape = arena->shape();
  encode(said, offer.data() + kFrameHeaderBytes);
  ASSERT_GT(send_with(bad.get(), offer, {loose.get()}), 0);
  run_until([&] { return b_.closed.count(b_.accepted.back()) == 1; }, "the refusal");
  EXPECT_EQ(b_.closed[b_.accepted.back()].first, Code::not_permitted);
}

TEST_F(Link, a_peer_cannot_fill_this_process_with_pools) {
  listen();
  auto arena = test::make_pool(1);
  const size_t before = open_descriptors();
  const Fd bad = greeted();
  auto offer = frame(FrameKind::pool, kOfferBytes);
  PoolOffer said;
  said.id = 1;
  said.shape = arena->shape();
  encode(said, offer.data() + kFrameHeaderBytes);
  for (size_t i = 0; i <= UnixPeer::kMaxPools; ++i) ASSERT_GT(send_with(bad.get(), offer, {arena->fd()}), 0);
  run_until([&] { return b_.closed.count(b_.accepted.back()) == 1; }, "the refusal");
  EXPECT_EQ(b_.closed[b_.accepted.back()].first, Code::no_room);
  EXPECT_EQ(open_descriptors(), before + 1);  // the bad one's own
}

TEST_F(Link, what_is_no_hello_is_refused_before_anything_else) {
  listen();
  connect();
  std::byte hello[kHelloBytes + 1];
  encode_hello(hello);
  struct Case {
    const char* what;
    size_t bytes;
    size_t flip;
  };
  const size_t accepted = b_.accepted.size();
  for (const Case& c :
       {Case{"short", kHelloBytes - 1, 0}, Case{"long", kHelloBytes + 1, 0}, Case{"magic", kHelloBytes, 3},
        Case{"reserved", kHelloBytes, 40}, Case{"version", kHelloBytes, 8}, Case{"one byte", 1, 0}}) {
    std::vector<std::byte> bytes(hello, hello + c.bytes);
    if (c.flip != 0) bytes[c.flip] ^= std::byte{2};
    const Fd bad = raw();
    ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
    b_.logged.clear();
    run_until([&] { return !b_.logged.empty(); }, c.what);
    if (c.flip == 8) {
      EXPECT_NE(b_.logged.find("it speaks 3, this library 1"), std::string::npos) << b_.logged;
    }
    // The refused peer gets our hello, then the end of the connection.
    std::byte in[256];
    EXPECT_EQ(::recv(bad.get(), in, sizeof in, 0), static_cast<ssize_t>(kHelloBytes)) << c.what;
    while (::recv(bad.get(), in, sizeof in, 0) < 0 && errno == ECONNRESET) {
    }
  }
  EXPECT_EQ(b_.accepted.size(), accepted);
  EXPECT_TRUE(b_.closed.empty());
}

TEST_F(Link, a_server_of_another_version_is_refused_in_words) {
  path_ = temp_.path() + "/old";
  auto old = ListeningSocket::open(path_);
  ASSERT_TRUE(old.ok()) << old.status().message();
  ab_ = a_.link->connect(path_).value();
  Fd served;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!served && std::chrono::steady_clock::now() < end) served = Fd(accept(old.value().fd(), nullptr, nullptr));
  std::byte hello[kHelloBytes];
  encode_hello(hello);
  hello[8] = std::byte{9};
  ASSERT_GT(::send(served.get(), hello, sizeof hello, 0), 0);
  run_until([&] { return a_.closed.count(ab_) == 1; }, "the refusal");
  EXPECT_EQ(a_.closed[ab_].first, Code::newer_version);
  EXPECT_NE(a_.closed[ab_].second.find("it speaks 9, this library 1"), std::string::npos) << a_.closed[ab_].second;
  EXPECT_TRUE(a_.connected.empty());
}

TEST_F(Link, what_is_no_frame_ends_the_connection) {
  listen();
  for (size_t field = 0; field < 9; ++field) {
    const Fd bad = greeted();
    auto bytes = frame(FrameKind::message, 16);
    if (field == 0) store_le(bytes.data(), uint16_t{0});
    if (field == 1) store_le(bytes.data(), uint16_t{4});
    if (field == 2) store_le(bytes.data() + 2, uint16_t{1});
    if (field == 3) store_le(bytes.data() + 4, uint32_t{15});
    if (field == 4) store_le(bytes.data() + 4, UINT32_MAX);
    if (field == 5) store_le(bytes.data() + 8, uint64_t{1});
    if (field == 6) bytes.resize(kFrameHeaderBytes - 1);
    if (field == 7) bytes = frame(FrameKind::message, KVBM_TRANSPORT_STRANGER_BYTES + 1);
    if (field == 8) bytes = frame(FrameKind::push, 16);  // before it was admitted
    ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
    expect_refused("a bad frame");
  }
  EXPECT_TRUE(b_.messages.empty());
}

TEST_F(Link, pushes_out_of_order_end_the_connection) {
  listen();
  for (size_t field = 0; field < 5; ++field) {
    const Fd bad = greeted();
    const uint64_t peer = b_.accepted.back();
    ASSERT_EQ(b_.link->admit(peer), Code::ok);
    std::vector<std::byte> memory(1000);
    ASSERT_EQ(b_.link->post(peer, 5, memory.data(), memory.size(), 99), Code::ok);
    auto bytes = frame(FrameKind::push, 100);
    FrameHeader header{FrameKind::push, 100, 5, 300, 0};
    encode(header, bytes.data());
    ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
    header.offset = 100;
    if (field == 0) header.offset = 200;
    if (field == 1) header.tag = 6;
    if (field == 2) header.total = 400;
    if (field == 3) header.offset = UINT64_MAX - 50;
    if (field == 4) {
      bytes = frame(FrameKind::push, 201);
      header.length = 201;
    }
    encode(header, bytes.data());
    ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
    expect_refused("a push out of order");
    EXPECT_EQ(b_.ends[99], Code::closed);
    b_.ends.clear();
  }
}

TEST_F(Link, descriptors_where_none_belong_end_the_connection_and_do_not_stay) {
  listen();
  Fd something(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const size_t before = open_descriptors();
  for (const size_t n : {size_t{1}, size_t{4}, size_t{5}, size_t{253}}) {
    const Fd bad = greeted();
    const auto bytes = frame(FrameKind::message, 16);
    ASSERT_GT(send_with(bad.get(), bytes, std::vector<int>(n, something.get())), 0);
    expect_refused("descriptors");
  }
  EXPECT_EQ(open_descriptors(), before);
  {
    const Fd bad = greeted();  // and a pool without one
    const auto bytes = frame(FrameKind::pool, kOfferBytes);
    ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
    expect_refused("a pool without memory");
  }
  {
    const Fd bad = raw();  // in place of a hello
    std::vector<std::byte> hello(kHelloBytes);
    encode_hello(hello.data());
    b_.logged.clear();
    ASSERT_GT(send_with(bad.get(), hello, {something.get()}), 0);
    run_until([&] { return !b_.logged.empty(); }, "the refusal");
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Link, a_frame_longer_than_any_ends_the_connection) {
  listen();
  const Fd bad = greeted();
  const std::vector<std::byte> bytes(kFrameBytes + 1);
  ASSERT_GT(::send(bad.get(), bytes.data(), bytes.size(), 0), 0);
  expect_refused("a long frame");
}

TEST_F(Link, a_peer_that_reads_nothing_gets_a_bounded_queue_and_blocks_nobody) {
  listen();
  const Fd slow = greeted();
  const uint64_t peer = b_.accepted.back();
  ASSERT_EQ(b_.link->admit(peer), Code::ok);
  const std::vector<std::byte> message(10'000);
  size_t sent = 0;
  Code code = Code::ok;
  while ((code = b_.link->send(peer, message)) == Code::ok) ASSERT_LT(++sent, 10'000U);
  EXPECT_EQ(code, Code::again);
  std::vector<std::byte> bulk(1 << 20);
  const kvbm_transport_piece_t piece{bulk.data(), bulk.size()};
  EXPECT_EQ(b_.link->push(peer, 1, &piece, 1, 7), Code::ok);
  // Another peer is served meanwhile.
  connect();
  ASSERT_EQ(b_.link->admit(ba_), Code::ok);
  ASSERT_EQ(b_.link->send(ba_, {message.data(), 10}), Code::ok);
  run_until([&] { return a_.messages.size() == 1; }, "the other peer's message");
  EXPECT_EQ(b_.writable, 0);
  // Memory of a push that was never sent is returned when the peer is disconnected.
  EXPECT_EQ(b_.link->disconnect(peer, false), Code::ok);
  run_until([&] { return b_.closed.count(peer) == 1; }, "the end");
  EXPECT_EQ(b_.ends[7], Code::closed);
}

TEST_F(Link, a_flood_of_strangers_is_bounded_and_descriptors_come_back) {
  listen();
  const size_t before = open_descriptors();
  {
    std::vector<Fd> strangers;
    for (size_t i = 0; i < 100; ++i) strangers.push_back(raw());
    for (int i = 0; i < 20; ++i) b_.link->progress();
    // Each admitted stranger has a socket and a pidfd here; those above the limit were closed at once.
    EXPECT_LE(open_descriptors(), before + 100 + 2 * UnixTransport::kMaxStrangers);
    EXPECT_GE(open_descriptors(), before + 100 + 2);
  }
  run_until([&] { return open_descriptors() == before; }, "the strangers' ends");
  connect();  // and there is room again
  EXPECT_TRUE(b_.closed.empty());
}

TEST_F(Link, a_path_longer_than_a_socket_address_works) {
  std::string deep = temp_.path();
  for (int i = 0; i < 3; ++i) {
    deep += "/" + std::string(60, static_cast<char>('a' + i));
    ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
  }
  path_ = deep + "/sock";
  ASSERT_GT(path_.size(), sizeof(sockaddr_un::sun_path));
  const auto bound = b_.link->listen("unix:" + path_);
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  connect();
}

TEST_F(Link, a_directory_that_others_may_enter_is_refused) {
  ASSERT_EQ(chmod(temp_.path().c_str(), 0755), 0);
  const auto bound = b_.link->listen(temp_.path() + "/sock");
  EXPECT_EQ(bound.status().code(), Code::not_permitted);
  EXPECT_NE(bound.status().message().find("chmod 700"), std::string::npos);
}

TEST_F(Link, a_directory_that_was_opened_to_others_since_is_not_connected_to) {
  listen();
  ASSERT_EQ(chmod(temp_.path().c_str(), 0777), 0);
  std::string path;
  const auto socket = make_connecting_socket(path_, path);
  ASSERT_TRUE(socket.ok());
  const Status refused = try_connect(socket.value().get(), path);
  EXPECT_EQ(refused.code(), Code::not_permitted);
  EXPECT_NE(refused.message().find("chmod 700"), std::string::npos) << refused.message();
  ASSERT_EQ(chmod(temp_.path().c_str(), 0700), 0);
  EXPECT_TRUE(try_connect(socket.value().get(), path).ok());
}

TEST_F(Link, a_living_listener_is_not_replaced_and_a_dead_ones_file_is) {
  listen();
  const auto second = a_.link->listen(path_);
  EXPECT_EQ(second.status().code(), Code::in_use);
  EXPECT_NE(second.status().message().find("process " + std::to_string(getpid())), std::string::npos)
      << second.status().message();
  connect();  // the first still listens
  const std::string stale = temp_.path() + "/stale";
  {
    Fd dead(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, stale.data(), stale.size());
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(dead.get(), 1), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(stale));
  EXPECT_TRUE(a_.link->listen(stale).ok());
  // A file that is no socket is not replaced: it may be a user's.
  const std::string file = temp_.path() + "/file";
  Fd made(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(a_.link->listen(file).status().code(), Code::exists);
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(Link, a_closed_listener_takes_its_file_along_unless_it_is_anothers) {
  listen();
  b_.link.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  b_.open();
  listen();
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_TRUE(a_.link->listen(path_).ok());
  b_.link.reset();
  EXPECT_TRUE(std::filesystem::exists(path_));
  b_.open();
}

TEST_F(Link, another_users_process_is_refused_by_what_the_kernel_says) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  listen();
  // Opens the directory to others first, so that the check of the socket itself must refuse.
  ASSERT_EQ(chmod(temp_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65533) != 0 || setuid(65533) != 0) _exit(1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(2);
    char in;
    _exit(::recv(fd, &in, 1, 0) == 0 ? 0 : 3);  // closed, without even a hello
  }
  run_until([&] { return !b_.logged.empty(); }, "the refusal");
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(b_.logged.find("of user 65533"), std::string::npos) << b_.logged;
  EXPECT_TRUE(b_.accepted.empty());
}

}  // namespace
}  // namespace kvbm::copy::local::link_test

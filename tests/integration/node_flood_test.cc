// Strangers by the hundred. They send nothing, half of a hello, nonsense, too many bytes, a valid hello with a wrong
// key, or recorded messages of a pool's node. The node continues to serve its peer, admits another one meanwhile, and
// frees what the strangers took. KVBMTEST_SEED seeds the nonsense.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/crypto/random.h"
#include "cluster/admission/handshake.h"
#include "cluster/admission/pool_key.h"
#include "copy/tcp/frame.h"
#include "support/counts.h"
#include "support/faulty_proxy.h"
#include "support/pool_keys.h"
#include "support/pool_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::node_flood_test {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kSalt = 5;
constexpr size_t kStrangers = 300;  // of each kind, more than a node lets wait
// Memory that may remain after a flood: the allocator's, and tables that grew once.
constexpr uint64_t kGrowthBytes = 48 << 20;

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string framed(copy::tcp::Kind kind, uint32_t length, uint64_t tag, uint64_t total, const std::string& body) {
  std::string out(copy::tcp::kHeaderBytes, '\0');
  copy::tcp::encode({kind, length, tag, total}, reinterpret_cast<std::byte*>(out.data()));
  return out + body;
}

// A socket that sends some bytes, and then nothing.
class Stranger {
 public:
  Stranger(const std::string& address, const std::string& says) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1))));
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
    say(says);
  }
  ~Stranger() {
    if (fd_ >= 0) close(fd_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(const std::string& text) {
    if (!text.empty() && send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) ended_ = true;
  }
  // Returns whether the node has closed the connection.
  bool ended() {
    std::array<char, 4096> some{};
    while (!ended_) {
      const ssize_t n = recv(fd_, some.data(), some.size(), MSG_DONTWAIT);
      if (n > 0) continue;
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      ended_ = true;
    }
    return true;
  }

 private:
  int fd_ = -1;
  bool ended_ = false;
};

class NodeFlood : public testing::Test {
 protected:
  void SetUp() override {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    setrlimit(RLIMIT_NOFILE, &files);
    random_ = std::make_unique<SeededRandom>(seed_from("KVBMTEST_SEED"));
    key_file_ = write_key_file(folder_.path() + "/key");
    server_ = open("server", "127.0.0.1:0", "");
    ASSERT_NE(server_, nullptr);
    ASSERT_EQ(server_->put(kSalt, 0, server_->setup().host_blocks), KVBM_OK);
    reader_ = open("reader", "", server_->address());
    ASSERT_NE(reader_, nullptr);
    ASSERT_TRUE(wait_until([&] { return reader_->ready() == 1; })) << reader_->states();
    reading_ = std::thread([this] {
      SeededRandom random(9);
      while (!stopping_) {
        std::vector<kvbm_key_t> keys;
        for (size_t i = 0; i < 8; ++i) keys.push_back(PoolMember::key_of(kSalt, random.below(64)));
        const Loaded one = reader_->load(keys, std::chrono::seconds(5), std::chrono::seconds(5));
        right_ += one.right;
        not_right_ += one.asked - one.right;
        wrong_ += one.wrong;
      }
    });
  }
  void TearDown() override {
    stopping_ = true;
    if (reading_.joinable()) reading_.join();
  }

  std::unique_ptr<PoolMember> open(const std::string& name, const std::string& listen, const std::string& peers) {
    MemberSetup setup;
    setup.name = name;
    setup.listen = listen;
    setup.peers = peers;
    setup.key_file = key_file_;
    return PoolMember::open(setup);
  }

  // Connects all strangers at once. The peer keeps reading, another one joins, and all resources are freed.
  void flood(const char* kind, const std::function<std::string(size_t)>& says, bool slowly = false) {
    SCOPED_TRACE(kind);
    const size_t descriptors = open_descriptors();
    const uint64_t memory = resident_bytes();
    const uint64_t before = right_;
    uint64_t most = memory;
    {
      std::vector<std::unique_ptr<Stranger>> strangers;
      for (size_t i = 0; i < kStrangers; ++i) {
        strangers.push_back(std::make_unique<Stranger>(server_->address(), says(i)));
      }
      const auto begun = std::chrono::steady_clock::now();
      const auto friendly = open("another", "", server_->address());
      ASSERT_NE(friendly, nullptr);
      EXPECT_TRUE(wait_until([&] {
        // More bytes follow one by one, if the strangers are slow.
        for (size_t i = 0; slowly && i < strangers.size(); ++i) strangers[i]->say("x");
        return friendly->ready() == 1;
      })) << friendly->states();
      const auto joined = std::chrono::steady_clock::now() - begun;
      EXPECT_EQ(
          friendly->load(PoolMember::keys_of(kSalt, 0, 8), std::chrono::seconds(5), std::chrono::seconds(5)).right, 8U);
      most = std::max(most, resident_bytes());
      const uint64_t during = right_;
      EXPECT_TRUE(wait_until([&] { return right_ > during + 100; })) << "the peer reads no more";
      size_t left = 0;
      EXPECT_TRUE(wait_until([&] {
        left = 0;
        for (const auto& stranger : strangers) left += stranger->ended() ? 0 : 1;
        return left == 0;
      })) << left
          << " strangers are still let in";
      most = std::max(most, resident_bytes());
      std::printf("%-24s another peer joined after %lld ms, %llu blocks read meanwhile, %llu KiB more memory\n", kind,
                  static_cast<long long>(std::chrono::duration_cast<milliseconds>(joined).count()),
                  static_cast<unsigned long long>(right_ - before),
                  static_cast<unsigned long long>((most - memory) >> 10));
    }
    size_t now = 0;
    EXPECT_TRUE(wait_until([&] { return (now = open_descriptors()) <= descriptors; })) << now << " of " << descriptors;
    if (!kSanitized) {
      EXPECT_LT(most - memory, kGrowthBytes);
    }
    EXPECT_EQ(wrong_, 0U);
    EXPECT_EQ(not_right_, 0U) << reader_->log();
    EXPECT_EQ(reader_->ready(), 1U) << reader_->states();
    EXPECT_TRUE(wait_until([&] { return server_->ready() == 1; })) << server_->states();
  }

  // First message of a node with another key.
  std::string hello_with_a_wrong_key(size_t i) {
    cluster::NodeFacts self;
    self.node = cluster::node_id_of("stranger-" + std::to_string(i));
    self.incarnation = random_->next();
    self.pool = "trust";
    self.protect = copy::Protection::authenticate;
    const auto key = cluster::parse_pool_key(kOtherPoolKey).value();
    cluster::Handshake handshake(self, &key, cluster::Role::initiator, *random_);
    const ConstBytes hello = handshake.start().send;
    return framed(copy::tcp::Kind::message, static_cast<uint32_t>(hello.size()), 0, 0,
                  {reinterpret_cast<const char*>(hello.data()), hello.size()});
  }

  TempDir folder_;
  std::string key_file_;
  std::unique_ptr<SeededRandom> random_;
  std::unique_ptr<PoolMember> server_;
  std::unique_ptr<PoolMember> reader_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> right_{0}, wrong_{0}, not_right_{0};
  std::thread reading_;
};

TEST_F(NodeFlood, strangers_who_say_nothing_or_too_little_do_not_keep_a_peer_out) {
  const std::string hello = hello_with_a_wrong_key(0);
  flood("nothing", [](size_t) { return std::string(); });
  if (HasFailure()) return;
  flood("half of a hello", [&](size_t i) { return hello.substr(0, 1 + i % (hello.size() - 1)); });
}

TEST_F(NodeFlood, a_hello_that_comes_byte_by_byte_does_not_keep_a_peer_out) {
  const std::string header = framed(copy::tcp::Kind::message, cluster::kHandshakeBytes, 0, 0, "");
  flood(
      "a byte at a time", [&](size_t) { return header; }, true);
}

TEST_F(NodeFlood, nonsense_is_cut_off) {
  flood("random bytes", [&](size_t i) {
    std::string bytes(1 + i * 7, '\0');
    for (char& c : bytes) c = static_cast<char>(random_->next());
    return bytes;
  });
  if (HasFailure()) return;
  flood("messages too large",
        [&](size_t) { return framed(copy::tcp::Kind::message, 65'000, 0, 0, "and then nothing"); });
  if (HasFailure()) return;
  flood("bulk of a terabyte",
        [&](size_t i) { return framed(copy::tcp::Kind::bulk, 1 << 18, i, 1ULL << 40, std::string(1000, 'b')); });
}

TEST_F(NodeFlood, hellos_with_a_wrong_key_and_repeated_handshakes_are_refused) {
  flood("a wrong key", [&](size_t i) {
    // A stranger without the key cannot compute the answer, so it sends some bytes.
    return hello_with_a_wrong_key(i) +
           framed(copy::tcp::Kind::message, cluster::kHandshakeBytes, 0, 0, std::string(cluster::kHandshakeBytes, 'p'));
  });
  if (HasFailure()) return;
  std::string said;
  {
    FaultyProxy proxy(server_->address(), 1);
    const auto overheard = open("overheard", "", proxy.address());
    ASSERT_TRUE(wait_until([&] { return overheard->ready() == 1; })) << overheard->states();
    ASSERT_EQ(overheard->load(PoolMember::keys_of(kSalt, 0, 4), std::chrono::seconds(5), std::chrono::seconds(5)).right,
              4U);
    proxy.set(Fault::cut, 0);
    EXPECT_TRUE(wait_until([&] {
      (void)overheard->load(PoolMember::keys_of(kSalt, 0, 4), milliseconds(100), milliseconds(100));
      return !proxy.recorded().empty();
    }));
    said = proxy.recorded().empty() ? "" : proxy.recorded()[0];
  }
  ASSERT_GT(said.size(), 2 * (cluster::kHandshakeBytes + copy::tcp::kHeaderBytes));
  flood("what a peer once said", [&](size_t) { return said; });
}

}  // namespace
}  // namespace kvbm::test::node_flood_test

// Two nodes with links over UCX on loopback, between real processes. A file is read back byte for byte, a killed node
// is noticed, and unsupported settings are refused. Files and layers of sessions arrive the same over links that code
// and seal. The tests are skipped where the module is not built.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "node/member.h"
#include "session/side.h"
#include "support/other_user.h"
#include "support/pool_keys.h"
#include "support/run_command.h"
#include "support/temp_dir.h"
#include "support/with_zstd.h"

namespace ucx_node_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::write_own_file;

#ifdef KVBM_UCX_MODULE
constexpr uint64_t kLongNs = 30'000'000'000;
const std::string kModule = std::string("KVBM_UCX_PATH='") + KVBM_UCX_MODULE + "'";

Ran run(const std::string& arguments, const char* after = " 2>&1") {
  return kvbm::test::run(arguments, after, kModule);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class UcxNode : public ::testing::Test {
 protected:
  ~UcxNode() override {
    if (pid_ > 0) end(SIGKILL);
  }
  void start(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"node", "--host", "16MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    start_command(std::move(arguments));
  }
  // Starts a subcommand that listens and writes its address to a file.
  void start_command(std::vector<std::string> arguments) {
    const std::string file = folder_.path() + "/address";
    arguments.insert(arguments.begin(), "kvbm");
    arguments.insert(arguments.end(), {"--json", "--listen", "127.0.0.1:0", "--transport", "ucx", "--address-file",
                                       file, "--key-file", pool_key()});
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::setenv("KVBM_UCX_PATH", KVBM_UCX_MODULE, 1);
      if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    for (int tries = 0; tries < 6000 && address_.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      address_ = read_file(file);
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
      if (pid_ < 0) break;
    }
    while (!address_.empty() && address_.back() == '\n') address_.pop_back();
  }
  int end(int signal) {
    int status = 0;
    ::kill(pid_, signal);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

  // Returns the key file of the pool, which UCX requires of every node.
  [[nodiscard]] std::string pool_key() const { return kvbm::test::write_key_file(folder_.path() + "/pool.key"); }
  std::string make_keys() {
    const std::string path = folder_.path() + "/keys";
    std::ofstream(path) << "7 " << std::string(64, 'c') << "\n";
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
    return path;
  }
  // Returns options of a node in this process that reads from the started one.
  [[nodiscard]] kvbm::node::MemberOptions reader(const std::string& codec, const std::string& keys) const {
    ::setenv("KVBM_UCX_PATH", KVBM_UCX_MODULE, 1);
    kvbm::node::MemberOptions out;
    out.peers = address_;
    out.transport = "ucx";
    out.key_file = pool_key();
    out.local = "off";
    out.codec = codec;
    out.seal_key_file = keys;
    return out;
  }

  kvbm::test::TempDir folder_;
  std::string address_;
  pid_t pid_ = -1;
};

uint64_t counted(const kvbm::node::Member& member, const std::string& name) {
  const std::string text = member.metrics();
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
}

// Counts of records that arrived coded or sealed.
struct Taken {
  explicit Taken(const kvbm::node::Member& member)
      : records(counted(member, "kvbm_node_codec_records_total{direction=\"taken\"}")),
        raw_bytes(counted(member, "kvbm_node_codec_raw_bytes_total{direction=\"taken\"}")),
        coded_bytes(counted(member, "kvbm_node_codec_coded_bytes_total{direction=\"taken\"}")) {}
  uint64_t records, raw_bytes, coded_bytes;
};

TEST_F(UcxNode, a_file_goes_there_and_comes_back) {
  start();
  ASSERT_FALSE(address_.empty());
  const std::string peer = " --transport ucx --key-file '" + pool_key() + "' --peer " + address_ + " ";
  const std::string path = folder_.path() + "/file";
  std::string text;
  for (uint64_t i = 0; text.size() < 5'000'000; ++i) text += std::to_string(i * 0x9E3779B97F4A7C15ULL);
  std::ofstream(path) << text;
  const Ran put = run("put" + peer + "file '" + path + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  const std::string back = folder_.path() + "/back";
  const Ran got = run("get" + peer + "file -o '" + back + "'");
  ASSERT_EQ(got.exit_code, 0) << got.text;
  EXPECT_TRUE(read_file(back) == text);
  EXPECT_EQ(json::parse(run("locate --json" + peer + "file", "").text).at("locations")[0].at("leading_blocks"), 5);
  const int status = end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const Ran gone = run("get --timeout 1" + peer + "file");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_TRUE(contains(gone.text, "no node answers")) << gone.text;
}

// Several MiB of digits, which only zstd makes smaller.
std::string make_text() {
  std::string text;
  for (uint64_t i = 0; text.size() < 5'000'000; ++i) text += std::to_string(i * 0x9E3779B97F4A7C15ULL);
  return text;
}

TEST_F(UcxNode, a_file_comes_coded_and_sealed_and_only_to_who_has_the_key) {
  const std::string keys = make_keys();
  const std::string path = folder_.path() + "/file";
  const std::string text = make_text();
  std::ofstream(path) << text;
  start({"--codec", "zstd", "--seal-key-file", keys, "--local", "off"});
  ASSERT_FALSE(address_.empty());
  const std::string peer =
      " --transport ucx --key-file '" + pool_key() + "' --local off --codec zstd --peer " + address_ + " ";
  const Ran put = run("put" + peer + "--seal-key-file '" + keys + "' file '" + path + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  const Ran stranger = run("get --timeout 2" + peer + "file -o '" + folder_.path() + "/none'");
  EXPECT_EQ(stranger.exit_code, 1) << stranger.text;
  const auto member = kvbm::node::Member::open(reader("zstd", keys));
  ASSERT_TRUE(member.ok()) << member.status().message();
  ASSERT_TRUE(member.value()->wait_for_peers(kLongNs).ok());
  const auto got = member.value()->get("file", kLongNs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_TRUE(got.value() == text);
  const Taken taken(*member.value());
  EXPECT_EQ(taken.records, 5U);  // blocks of 1 MiB
  EXPECT_GT(taken.raw_bytes, 0U);
  if (kvbm::test::with_zstd()) {
    EXPECT_LT(taken.coded_bytes, taken.raw_bytes * 6 / 10);
  }
}

TEST_F(UcxNode, a_file_comes_whatever_auto_decides) {
  const std::string path = folder_.path() + "/file";
  const std::string text = make_text();
  std::ofstream(path) << text;
  start({"--codec", "auto", "--local", "off"});
  ASSERT_FALSE(address_.empty());
  const Ran put = run("put --transport ucx --key-file '" + pool_key() + "' --local off --codec auto --peer " +
                      address_ + " file '" + path + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  const auto member = kvbm::node::Member::open(reader("auto", ""));
  ASSERT_TRUE(member.ok()) << member.status().message();
  ASSERT_TRUE(member.value()->wait_for_peers(kLongNs).ok());
  for (int i = 0; i < 8; ++i) {
    const auto got = member.value()->get("file", kLongNs);
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_TRUE(got.value() == text) << i;
  }
}

// Sends layers of bf16 like a model's with `kvbm session send` in a child process.
class UcxSession : public UcxNode {
 protected:
  static constexpr uint32_t kLayers = 4, kHeads = 8, kHeadSize = 64;
  static constexpr uint64_t kTokens = 500, kLayerBytes = 2 * kTokens * kHeads * kHeadSize * 2;

  void send(const std::string& codec, const std::string& keys) {
    bytes_.resize(kLayers * kLayerBytes);
    for (size_t i = 0; i < bytes_.size() / 2; ++i) {
      const auto value =
          static_cast<float>(std::sin(static_cast<double>(i) * 0.7) * (1.0 + static_cast<double>(i % 64)));
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      const auto half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(bytes_.data() + 2 * i, &half, sizeof half);
    }
    const std::string path = folder_.path() + "/kv.bin";
    std::ofstream(path, std::ios::binary) << bytes_;
    std::vector<std::string> arguments = {"session",     "send", path,       "--layers", "4",       "--heads", "8",
                                          "--head-size", "64",   "--tokens", "500",      "--codec", codec};
    if (!keys.empty()) arguments.insert(arguments.end(), {"--seal-key-file", keys});
    start_command(std::move(arguments));
  }
  // Receives into another form and another block size, and compares each layer.
  void receive(const std::string& codec, const std::string& keys, kvbm_status_t wanted = KVBM_OK) {
    kvbm::session::SideOptions options;
    options.node = reader(codec, keys);
    options.layers = kLayers;
    options.heads = kHeads;
    options.head_size = kHeadSize;
    options.tokens = kTokens;
    options.order = "hnd";
    options.block_tokens = 24;
    auto side = kvbm::session::Side::open(options);
    ASSERT_TRUE(side.ok()) << side.status().message();
    const auto& rank = side.value()->ranks().front();
    const kvbm_request_id_t request = kvbm::session::request_named("request").value();
    const kvbm_source_t source{address_.c_str(), 0, 0};
    kvbm_session_options_t session_options;
    kvbm_session_options_init(&session_options, sizeof session_options);
    session_options.end = kTokens;
    session_options.timeout_ns = kLongNs;
    kvbm_session_t* session = nullptr;
    kvbm_error_t error{};
    ASSERT_EQ(kvbm_session_open(rank.cache, &request, rank.blocks.data(), rank.blocks.size(), &source, 1,
                                &session_options, nullptr, 0, &session, &error),
              KVBM_OK)
        << error.message;
    EXPECT_EQ(kvbm_session_wait(session, KVBM_FOREVER, &error), wanted) << error.message;
    kvbm_session_release(session);
    if (wanted != KVBM_OK) return;
    std::vector<std::byte> layer_bytes(kLayerBytes);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_TRUE(side.value()->read_layer(layer, layer_bytes.data())) << layer;
      EXPECT_EQ(std::memcmp(layer_bytes.data(), bytes_.data() + layer * kLayerBytes, kLayerBytes), 0) << layer;
    }
    const Taken taken(side.value()->member());
    records_ = taken.records;
    raw_bytes_ = taken.raw_bytes;
    coded_bytes_ = taken.coded_bytes;
  }

  std::string bytes_;
  uint64_t records_ = 0, raw_bytes_ = 0, coded_bytes_ = 0;
};

TEST_F(UcxSession, layers_come_coded) {
  send("default", "");
  ASSERT_FALSE(address_.empty());
  receive("default", "");
  EXPECT_GT(records_, 0U);
  EXPECT_EQ(raw_bytes_, kLayers * kLayerBytes);
  EXPECT_LT(coded_bytes_, raw_bytes_ * 9 / 10);
}

TEST_F(UcxSession, layers_come_coded_and_sealed) {
  const std::string keys = make_keys();
  send("default", keys);
  ASSERT_FALSE(address_.empty());
  receive("default", keys);
  EXPECT_GT(records_, 0U);
  EXPECT_LT(coded_bytes_, raw_bytes_ * 9 / 10);
}

TEST_F(UcxSession, layers_come_whatever_auto_decides) {
  send("auto", "");
  ASSERT_FALSE(address_.empty());
  receive("auto", "");
}

TEST_F(UcxSession, who_has_no_key_is_refused) {
  send("default", make_keys());
  ASSERT_FALSE(address_.empty());
  receive("default", "", KVBM_ERR_PERMISSION);
}

TEST_F(UcxNode, beyond_this_machine_it_wants_a_key_and_a_device) {
  const Ran open = run("node --transport ucx --listen 0.0.0.0:0 --key-file '" + pool_key() + "'");
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_TRUE(contains(open.text, "node.ucx_devices")) << open.text;
  // Without a key even local processes are refused: UCX cannot tell which user owns the peer.
  const Ran keyless = run("node --transport ucx --listen 127.0.0.1:0");
  EXPECT_EQ(keyless.exit_code, 2);
  EXPECT_TRUE(contains(keyless.text, "node.key_file")) << keyless.text;
}

// Network cards read and write memory by themselves, so their transfers carry no tag.
TEST_F(UcxNode, beyond_this_machine_it_needs_sealed_records_or_a_trusted_network) {
  const std::string key = pool_key();
  const std::string node = "node --transport ucx --ucx-devices lo --listen 127.0.0.1:0 --key-file '" + key + "' ";
  const Ran open = run(node);
  EXPECT_EQ(open.exit_code, 2) << open.text;
  for (const char* part : {"UCX cannot protect", "node.transport=tcp", "seal.key_file", "node.trusted_network=on"}) {
    EXPECT_TRUE(contains(open.text, part)) << part << ": " << open.text;
  }
  const Ran asked = run("node --transport ucx --listen 127.0.0.1:0 --protect encrypt --key-file '" + key + "'");
  EXPECT_EQ(asked.exit_code, 2) << asked.text;
  EXPECT_TRUE(contains(asked.text, "node.protect") && contains(asked.text, "UCX")) << asked.text;
}

// Waits until the state of the node that `member` dials has all of these words. Returns the state.
std::string state_with(const kvbm::node::Member& member, const std::vector<std::string>& parts) {
  std::string state;
  for (int tries = 0; tries < 6000; ++tries) {
    const auto rows = member.nodes();
    state = rows.empty() ? std::string() : rows.front().state;
    if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return contains(state, part); })) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return state;
}

TEST_F(UcxNode, an_address_that_cannot_be_listened_on_is_named_with_what_to_do) {
  start();
  ASSERT_FALSE(address_.empty());
  const Ran second = run("node --transport ucx --key-file '" + pool_key() + "' --listen " + address_);
  EXPECT_EQ(second.exit_code, 2) << second.text;
  for (const std::string& part : {address_, std::string("is in use"), std::string("another port")}) {
    EXPECT_TRUE(contains(second.text, part)) << part << ": " << second.text;
  }
}

TEST_F(UcxNode, who_is_not_there_or_uses_another_transport_is_told_by_address_and_option) {
  ::setenv("KVBM_UCX_PATH", KVBM_UCX_MODULE, 1);
  const std::vector<std::string> parts = {"is a node listening there", "node.transport", "--transport"};
  const auto expect_told = [&](const std::string& address, const char* transport,
                               const std::vector<std::string>& told) {
    kvbm::node::MemberOptions asking;
    asking.transport = transport;
    asking.peers = address;
    asking.key_file = pool_key();
    const auto member = kvbm::node::Member::open(asking);
    ASSERT_TRUE(member.ok()) << member.status().message();
    const std::string state = state_with(*member.value(), told);
    for (const std::string& part : told) EXPECT_TRUE(contains(state, part)) << part << ": " << state;
  };
  expect_told("127.0.0.1:1", "ucx", parts);
  kvbm::node::MemberOptions sockets;
  sockets.transport = "tcp";
  sockets.listen = "127.0.0.1:0";
  const auto by_tcp = kvbm::node::Member::open(sockets);
  ASSERT_TRUE(by_tcp.ok()) << by_tcp.status().message();
  expect_told(by_tcp.value()->address(), "ucx", parts);
  start();
  ASSERT_FALSE(address_.empty());
  expect_told(address_, "tcp", {"handshake", "node.transport", "--transport"});
  // Gives the address on the command line of a shell.
  const Ran shell = run("peers --transport ucx --timeout 0.5 --key-file '" + pool_key() + "' --peer 127.0.0.1:1");
  EXPECT_EQ(shell.exit_code, 1);
  EXPECT_TRUE(contains(shell.text, "127.0.0.1:1: ") && contains(shell.text, "--transport")) << shell.text;
}

TEST_F(UcxNode, tcp_is_what_is_used_here_without_being_told_otherwise) {
  const Ran doctor = run("doctor --json", "");
  EXPECT_TRUE(contains(doctor.text, "\"node transport\"")) << doctor.text;
  if (::access("/sys/class/infiniband", F_OK) != 0) {
    EXPECT_TRUE(contains(doctor.text, "tcp: no RDMA device")) << doctor.text;
  }
}
#else
#ifndef KVBM_UCX_SKIPPED
#define KVBM_UCX_SKIPPED "the UCX module is not built here"
#endif
TEST(UcxNode, is_skipped) { GTEST_SKIP() << KVBM_UCX_SKIPPED; }
#endif

TEST(UcxModule, that_is_not_there_is_an_error_that_says_where_it_was_looked_for) {
  const kvbm::test::TempDir folder;
  kvbm::test::write_key_file(folder.path() + "/key");
  const Ran none = kvbm::test::run("node --transport ucx --listen 127.0.0.1:0 --key-file '" + folder.path() + "/key'",
                                   " 2>&1", "KVBM_NODE_UCX_MODULE=/nonexistent");
  EXPECT_NE(none.exit_code, 0);
  EXPECT_TRUE(contains(none.text, "transport unavailable") && contains(none.text, "/nonexistent")) << none.text;
}

}  // namespace
}  // namespace ucx_node_test

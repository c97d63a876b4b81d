// kvbm session send and receive between two real processes, as a user has them in two shells: what arrives is what was
// sent, whatever the shapes, and what does not fit says why on both sides.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "support/pool_keys.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

namespace session_command_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;
using kvbm::test::write_own_file;
using nlohmann::json;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SessionCommand : public ::testing::Test {
 protected:
  // Starts a side that listens, in a shell. Returns its address; empty if it does not come up.
  std::future<Ran> start(const std::string& arguments, std::string& address) {
    const std::string file = folder_.path() + "/address";
    std::remove(file.c_str());
    auto ran = std::async(std::launch::async, [arguments, file] {
      return run("session " + arguments + " --listen 127.0.0.1:0 --json --address-file '" + file + "'");
    });
    for (int tries = 0; tries < 6000 && address.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      address = read_file(file);
      if (ran.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;
    }
    while (!address.empty() && address.back() == '\n') address.pop_back();
    return ran;
  }
  std::string make_kv(size_t bytes) {
    std::string text;
    for (uint64_t i = 0; text.size() < bytes; ++i) {
      const uint64_t word = (i + 1) * 0x9E3779B97F4A7C15ULL;
      text.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    text.resize(bytes);
    const std::string path = folder_.path() + "/kv.bin";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  kvbm::test::TempDir folder_;
};

constexpr const char* kModel = " --layers 4 --heads 8 --head-size 32 --tokens 100";
constexpr size_t kBytes = size_t{4} * 2 * 8 * 100 * 32 * 2;

TEST_F(SessionCommand, what_a_listening_receiver_writes_is_the_file_that_was_sent) {
  const std::string kv = make_kv(kBytes);
  const std::string back = folder_.path() + "/back.bin";
  std::string address;
  auto receiver = start(
      std::string("receive --tp 2 --order hnd --block-tokens 24 --peer-tp 4 --out '") + back + "'" + kModel, address);
  ASSERT_FALSE(address.empty());
  const Ran sent = run("session send '" + kv + "' --peer " + address + " --tp 4 --json" + kModel, " 2>/dev/null");
  const Ran received = receiver.get();
  ASSERT_EQ(sent.exit_code, 0) << sent.text;
  ASSERT_EQ(received.exit_code, 0) << received.text;
  EXPECT_EQ(json::parse(sent.text).at("hash"), json::parse(received.text).at("hash"));
  EXPECT_EQ(json::parse(received.text).at("bytes"), kBytes);
  EXPECT_EQ(read_file(back), read_file(kv));
}

// As under tensor parallelism of a model with few KV heads: several ranks hold the same head.
TEST_F(SessionCommand, more_ranks_than_heads_share_them_on_either_side) {
  const std::string model = " --layers 3 --heads 2 --head-size 32 --tokens 50";
  const std::string kv = make_kv(size_t{3} * 2 * 2 * 50 * 32 * 2);
  const std::string back = folder_.path() + "/back.bin";
  const std::pair<int, int> sides[] = {{4, 1}, {1, 4}, {4, 2}, {8, 4}, {3, 5}};
  for (const auto& [prefill, decode] : sides) {
    SCOPED_TRACE(std::to_string(prefill) + " to " + std::to_string(decode));
    std::string address;
    auto sender = start("send '" + kv + "' --tp " + std::to_string(prefill) + model, address);
    ASSERT_FALSE(address.empty()) << sender.get().text;
    const Ran received =
        run("session receive --json --peer " + address + " --tp " + std::to_string(decode) + " --peer-tp " +
                std::to_string(prefill) + " --order hnd --block-tokens 24 --out '" + back + "'" + model,
            " 2>/dev/null");
    const Ran sent = sender.get();
    ASSERT_EQ(received.exit_code, 0) << received.text;
    ASSERT_EQ(sent.exit_code, 0) << sent.text;
    EXPECT_EQ(read_file(back), read_file(kv));
    for (const char* const name : {"hash", "bytes"}) {
      EXPECT_EQ(json::parse(sent.text).at(name), json::parse(received.text).at(name)) << name;
    }
  }
}

// One process a rank: the second of four has the first of two heads, the third the second.
TEST_F(SessionCommand, one_rank_of_more_than_there_are_heads_has_its_head_alone) {
  const std::string model = " --layers 2 --heads 2 --head-size 32 --tokens 20";
  const std::string kv = make_kv(size_t{2} * 2 * 2 * 20 * 32 * 2);
  const std::string back = folder_.path() + "/back.bin";
  std::string address;
  auto sender = start("send '" + kv + "'" + model, address);
  ASSERT_FALSE(address.empty());
  const Ran received =
      run("session receive --json --peer " + address + " --tp 4 --rank 2 --out '" + back + "'" + model, " 2>/dev/null");
  ASSERT_EQ(received.exit_code, 0) << received.text;
  (void)sender.get();
  const std::string all = read_file(kv);
  const size_t head = size_t{20} * 32 * 2;
  std::string second;
  for (size_t plane = 0; plane < 4; ++plane) second += all.substr((2 * plane + 1) * head, head);
  EXPECT_EQ(read_file(back), second);
}

TEST_F(SessionCommand, what_is_read_from_a_listening_sender_comes_layer_by_layer) {
  const std::string kv = make_kv(kBytes);
  const std::string back = folder_.path() + "/back.bin";
  std::string address;
  auto sender = start(std::string("send '") + kv + "' --order cross_nhd --layer-ms 50" + kModel, address);
  ASSERT_FALSE(address.empty());
  const Ran received =
      run("session receive --peer " + address + " --tp 4 --order sglang_page_first --out '" + back + "'" + kModel);
  const Ran sent = sender.get();
  ASSERT_EQ(received.exit_code, 0) << received.text;
  ASSERT_EQ(sent.exit_code, 0) << sent.text;
  EXPECT_TRUE(contains(received.text, "layer 3 in place")) << received.text;
  EXPECT_TRUE(contains(received.text, json::parse(sent.text).at("hash").get<std::string>())) << received.text;
  EXPECT_EQ(read_file(back), read_file(kv));
}

// A receiver with fewer tokens takes the first ones: what is said to be sent is what was taken.
TEST_F(SessionCommand, a_sender_says_how_much_was_taken_of_what_it_offered) {
  const std::string fewer = " --layers 4 --heads 8 --head-size 32 --tokens 40";
  constexpr size_t kTaken = kBytes * 40 / 100;
  for (const bool as_json : {true, false}) {
    std::string address;
    auto receiver = start("receive --tp 2 --peer-tp 2" + fewer, address);
    ASSERT_FALSE(address.empty());
    const Ran sent =
        run("session send --peer " + address + " --tp 2" + (as_json ? " --json" : "") + kModel, " 2>/dev/null");
    const Ran received = receiver.get();
    ASSERT_EQ(sent.exit_code, 0) << sent.text;
    ASSERT_EQ(received.exit_code, 0) << received.text;
    EXPECT_EQ(json::parse(received.text).at("bytes"), kTaken);
    if (as_json) {
      EXPECT_EQ(json::parse(sent.text).at("bytes"), kTaken);
      EXPECT_EQ(json::parse(sent.text).at("offered_bytes"), kBytes);
    } else {
      EXPECT_TRUE(contains(sent.text, "sent 163.84 kB") && contains(sent.text, " of 409.60 kB")) << sent.text;
    }
  }
}

TEST_F(SessionCommand, ranks_of_one_side_may_be_processes_of_their_own) {
  std::string address;
  auto first = start(std::string("send --tp 2 --rank 0") + kModel, address);
  std::string second_address;
  auto second = start(std::string("send --tp 2 --rank 1") + kModel, second_address);
  ASSERT_FALSE(address.empty());
  ASSERT_FALSE(second_address.empty());
  const Ran received = run("session receive --peer " + address + "," + second_address + " --peer-tp 2" + kModel);
  EXPECT_EQ(received.exit_code, 0) << received.text;
  EXPECT_EQ(first.get().exit_code, 0);
  EXPECT_EQ(second.get().exit_code, 0);
}

TEST_F(SessionCommand, what_does_not_fit_is_named_on_both_sides) {
  std::string address;
  auto sender = start(std::string("send --timeout 3600 --model one") + kModel, address);
  ASSERT_FALSE(address.empty());
  const Ran received = run("session receive --model two --peer " + address + kModel);
  EXPECT_EQ(received.exit_code, 1);
  EXPECT_TRUE(contains(received.text, "the model is")) << received.text;
  EXPECT_TRUE(contains(received.text, address)) << received.text;
  EXPECT_TRUE(contains(received.text, "(\"one\")") && contains(received.text, "(\"two\")")) << received.text;
  const Ran sent = sender.get();
  EXPECT_EQ(sent.exit_code, 1);
  for (const char* part : {"the model is", "decode rank 0 at node ", "the same tenant, model"}) {
    EXPECT_TRUE(contains(sent.text, part)) << part << ": " << sent.text;  // long before its deadline
  }
  // Only the difference is reported: not the missing connection that it causes, and nothing twice.
  EXPECT_FALSE(contains(sent.text, "no node is connected")) << sent.text;
  const size_t once = received.text.find("a prefill rank gave up");
  ASSERT_NE(once, std::string::npos) << received.text;
  EXPECT_EQ(received.text.find("gave up", once + 22), std::string::npos) << received.text;
}

TEST_F(SessionCommand, what_no_memory_holds_is_refused_with_how_much_it_would_take) {
  for (const char* side : {"send", "receive"}) {
    const Ran ran = run(std::string("session ") + side + " --listen 127.0.0.1:0 --tokens 1073741824 --layers 4096" +
                        " --heads 4096 --head-size 4096");
    EXPECT_EQ(ran.exit_code, 2) << ran.text;
    EXPECT_TRUE(contains(ran.text, "the request needs ") && contains(ran.text, "--tokens")) << ran.text;
  }
}

// Which link is missing, and why, whichever side dialled and whichever waits.
TEST_F(SessionCommand, a_sender_that_reaches_nobody_names_the_address_and_the_reason) {
  const Ran nobody = run(std::string("session send --peer 127.0.0.1:1 --timeout 1") + kModel);
  EXPECT_EQ(nobody.exit_code, 1);
  for (const char* part : {"no decode rank has opened it", "127.0.0.1:1", "is a node listening there?"}) {
    EXPECT_TRUE(contains(nobody.text, part)) << part << ": " << nobody.text;
  }
  const Ran alone = run(std::string("session send --listen 127.0.0.1:0 --timeout 0.3") + kModel);
  EXPECT_TRUE(contains(alone.text, "no node is connected to this one")) << alone.text;
}

TEST_F(SessionCommand, sides_with_different_keys_are_both_told_of_the_key) {
  const std::string one = folder_.path() + "/one";
  const std::string other = folder_.path() + "/other";
  kvbm::test::write_key_file(one);
  kvbm::test::write_key_file(other, kvbm::test::kOtherPoolKey);
  std::string address;
  auto receiver = start("receive --timeout 3 --key-file '" + one + "'" + kModel, address);
  ASSERT_FALSE(address.empty());
  // The sender must not wait for its timeout, which the receiver's is shorter than, because waiting is useless.
  const Ran sent = run("session send --timeout 500 --key-file '" + other + "' --peer " + address + kModel);
  EXPECT_EQ(sent.exit_code, 1);
  for (const std::string& part : {address, std::string("wrong key"), std::string("node.key_file")}) {
    EXPECT_TRUE(contains(sent.text, part)) << part << ": " << sent.text;
  }
  const Ran received = receiver.get();
  EXPECT_EQ(received.exit_code, 1);
  for (const char* part : {"prefill", "a connection from 127.0.0.1:", "wrong key", "node.key_file"}) {
    EXPECT_TRUE(contains(received.text, part)) << part << ": " << received.text;
  }
}

TEST_F(SessionCommand, bad_input_is_refused_with_a_remedy) {
  const Ran nowhere = run("session receive");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_TRUE(contains(nowhere.text, "--listen")) << nowhere.text;
  const Ran nobody = run("session receive --peer 127.0.0.1:1 --timeout 0.3");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_TRUE(contains(nobody.text, "127.0.0.1:1")) << nobody.text;
  EXPECT_TRUE(contains(nobody.text, "is a node listening there?")) << nobody.text;
  EXPECT_EQ(run("session send --listen 127.0.0.1:0 --tp 3").exit_code, 2);
  EXPECT_EQ(run("session send --listen 127.0.0.1:0 --order sideways").exit_code, 2);
  EXPECT_EQ(run("session send --listen 127.0.0.1:0 --element int3").exit_code, 2);
  EXPECT_EQ(run("session send '" + make_kv(1001) + "' --listen 127.0.0.1:0").exit_code, 2);
  EXPECT_EQ(run("session receive --listen 127.0.0.1:0 --request 12345678901234567").exit_code, 2);
}

}  // namespace
}  // namespace session_command_test

// A node with a host tier in a file, in which bytes changed while it was down. The node takes a damaged block again
// when another node offers it, instead of answering that it has the block.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "support/pool_member.h"
#include "support/temp_dir.h"

namespace kvbm::test::node_recovered_test {
namespace {

constexpr uint64_t kSalt = 3;
constexpr size_t kBlocks = 16;
constexpr std::chrono::seconds kLong{20};

std::unique_ptr<PoolMember> server(const std::string& file) {
  MemberSetup setup;
  setup.name = "server";
  setup.engine_blocks = 0;
  setup.counts_slots = false;
  setup.settings = {{"host.file", file}};
  return PoolMember::open(setup);
}

std::unique_ptr<PoolMember> peer(const std::string& name, const std::string& address) {
  MemberSetup setup;
  setup.name = name;
  setup.listen = "";
  setup.peers = address;
  return PoolMember::open(setup);
}

// Changes a byte of each block. Returns the number of blocks found.
size_t damage(const std::string& path, uint64_t block_bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  file.clear();
  std::string block(block_bytes, '\0');
  size_t found = 0;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    PoolMember::fill(block.data(), block_bytes, kSalt, i);
    const size_t at = all.find(block);
    if (at == std::string::npos) continue;
    file.seekp(static_cast<std::streamoff>(at + block_bytes / 2));
    file.put(static_cast<char>(all[at + block_bytes / 2] ^ 0x10));
    ++found;
  }
  return found;
}

TEST(NodeRecovered, an_offer_replaces_what_was_damaged_while_the_node_was_down) {
  const TempDir dir;
  const std::string file = dir.path() + "/host";
  uint64_t block_bytes = 0;
  {
    const auto before = server(file);
    ASSERT_NE(before, nullptr);
    ASSERT_EQ(before->put(kSalt, 0, kBlocks), KVBM_OK);
    const auto first = peer("first", before->address());
    ASSERT_NE(first, nullptr);
    ASSERT_TRUE(wait_until([&] { return first->ready() == 1; })) << first->states();
    // The load makes the owner compute the heads of its blocks.
    ASSERT_EQ(first->load(PoolMember::keys_of(kSalt, 0, kBlocks), kLong, kLong).right, kBlocks);
    block_bytes = before->setup().block_bytes;
  }
  ASSERT_EQ(damage(file, block_bytes), kBlocks);
  const auto after = server(file);
  ASSERT_NE(after, nullptr);
  ASSERT_EQ(after->stats().tiers[0].blocks, kBlocks);
  const auto giver = peer("giver", after->address());
  ASSERT_NE(giver, nullptr);
  ASSERT_EQ(giver->put(kSalt, 0, kBlocks), KVBM_OK);
  ASSERT_TRUE(wait_until([&] { return giver->ready() == 1; })) << giver->states();
  ASSERT_EQ(giver->offer(kSalt, 0, kBlocks), KVBM_OK);
  const auto reader = peer("reader", after->address());
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; })) << reader->states();
  const Loaded got = reader->load(PoolMember::keys_of(kSalt, 0, kBlocks), kLong, kLong);
  EXPECT_EQ(got.right, kBlocks);
  EXPECT_EQ(got.wrong, 0U);
}

}  // namespace
}  // namespace kvbm::test::node_recovered_test

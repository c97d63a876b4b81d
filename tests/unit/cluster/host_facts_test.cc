#include "cluster/same_host/host_facts.h"

#include <gtest/gtest.h>

#include <vector>

#include "cluster/wire/wire.h"

namespace kvbm::cluster::host_facts_test {
namespace {

HostFacts some_facts() {
  HostFacts facts;
  facts.boot.fill(1);
  facts.user = 1000;
  facts.come.fill(2);
  facts.show.fill(3);
  facts.path = "/run/user/1000/kvbm/node-0123456789abcdef.sock";
  return facts;
}

std::vector<std::byte> bytes_of(const HostFacts& facts) {
  std::vector<std::byte> out(wire::kMaxBody);
  out.resize(encode(facts, out));
  return out;
}

TEST(HostFacts, come_back_as_they_were_said) {
  for (const std::string& path : {std::string(), some_facts().path, std::string(kMaxHostPath, 'p')}) {
    HostFacts facts = some_facts();
    facts.path = path;
    HostFacts back;
    ASSERT_TRUE(decode(bytes_of(facts), back).ok());
    EXPECT_EQ(back, facts);
  }
}

TEST(HostFacts, a_path_that_is_too_long_is_not_said) {
  HostFacts facts = some_facts();
  facts.path.assign(kMaxHostPath + 1, 'p');
  EXPECT_TRUE(bytes_of(facts).empty());
}

TEST(HostFacts, cut_lengthened_and_contradicting_bytes_are_damage) {
  const std::vector<std::byte> whole = bytes_of(some_facts());
  HostFacts out;
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(decode(ConstBytes(whole).first(n), out).ok()) << n;
  std::vector<std::byte> more = whole;
  more.push_back(std::byte{'x'});
  EXPECT_FALSE(decode(more, out).ok());
  std::vector<std::byte> reserved = whole;
  reserved[wire::kHeadBytes + 20] = std::byte{1};
  EXPECT_FALSE(decode(reserved, out).ok());
  std::vector<std::byte> zero = whole;
  zero.back() = std::byte{0};
  EXPECT_FALSE(decode(zero, out).ok()) << "a path with a zero byte is another path to the system";
}

TEST(HostWord, comes_back_and_nothing_else_is_one) {
  HostWord word;
  word.kind = HostWord::Kind::show;
  word.token.fill(7);
  word.node = node_id_of("a");
  word.incarnation = 99;
  std::byte bytes[kHostWordBytes];
  encode(word, bytes);
  HostWord back;
  ASSERT_TRUE(decode(bytes, back).ok());
  EXPECT_EQ(back, word);
  EXPECT_FALSE(decode(ConstBytes(bytes).first(kHostWordBytes - 1), back).ok());
  for (const size_t at : {size_t{0}, size_t{8}, size_t{12}, size_t{56}, kHostWordBytes - 1}) {
    std::byte wrong[kHostWordBytes];
    encode(word, wrong);
    wrong[at] ^= std::byte{0x80};
    EXPECT_FALSE(decode(wrong, back).ok()) << at;
  }
}

TEST(BootId, is_the_same_whenever_it_is_asked_for) { EXPECT_EQ(boot_id(), boot_id()); }

}  // namespace
}  // namespace kvbm::cluster::host_facts_test

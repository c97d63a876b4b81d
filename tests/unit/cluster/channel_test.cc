#include "cluster/wire/channel.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvbm::cluster::channel_test {
namespace {

using Bytes = std::vector<std::byte>;

struct Ends {
  Ends() : here({mac(1), mac(2)}), there({mac(2), mac(1)}) {}
  static Mac mac(uint8_t fill) {
    Mac m;
    m.fill(fill);
    return m;
  }
  Bytes message(size_t body, uint8_t fill = 5) {
    Bytes m(Channel::kOverhead + body, static_cast<std::byte>(fill));
    here.seal(m);
    return m;
  }
  Channel here, there;
};

TEST(Channel, gives_back_what_was_sealed_in_order) {
  Ends e;
  for (const size_t body : {size_t{0}, size_t{1}, size_t{100}, size_t{65512}}) {
    const Bytes m = e.message(body, 9);
    const auto opened = e.there.open(m);
    ASSERT_TRUE(opened.ok());
    ASSERT_EQ(opened.value().size(), body);
    for (const std::byte b : opened.value()) ASSERT_EQ(b, std::byte{9});
  }
  EXPECT_EQ(e.there.opened(), 4U);
}

TEST(Channel, notices_every_changed_bit) {
  Ends first;
  const Bytes m = first.message(20);
  for (size_t bit = 0; bit < m.size() * 8; ++bit) {
    Ends e;
    Bytes changed = m;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(e.there.open(changed).ok()) << bit;
  }
}

TEST(Channel, notices_repetition_loss_and_reordering) {
  {
    Ends e;
    const Bytes m = e.message(8);
    EXPECT_TRUE(e.there.open(m).ok());
    EXPECT_EQ(e.there.open(m).status().code(), Code::damaged);
  }
  {
    Ends e;
    (void)e.message(8);
    EXPECT_EQ(e.there.open(e.message(8)).status().code(), Code::damaged);
  }
}

TEST(Channel, notices_truncation_and_growth) {
  for (size_t cut = 1; cut <= Channel::kOverhead + 8; ++cut) {
    Ends e;
    Bytes m = e.message(8);
    m.resize(m.size() - cut);
    EXPECT_FALSE(e.there.open(m).ok());
  }
  Ends e;
  Bytes m = e.message(8);
  m.push_back(std::byte{0});
  EXPECT_FALSE(e.there.open(m).ok());
}

TEST(Channel, a_message_sent_back_is_not_its_peers) {
  Ends e;
  EXPECT_FALSE(e.here.open(e.message(8)).ok());
}

TEST(Channel, stays_broken_after_a_bad_message) {
  Ends e;
  const Bytes good = e.message(8);
  Bytes bad = good;
  bad[30] ^= std::byte{1};
  EXPECT_FALSE(e.there.open(bad).ok());
  EXPECT_FALSE(e.there.open(good).ok());
}

}  // namespace
}  // namespace kvbm::cluster::channel_test

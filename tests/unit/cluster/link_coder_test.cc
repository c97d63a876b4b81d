// Which codecs two nodes have in common: a build without zstd neither asks for it nor is given it.
#include "cluster/coding/link_coder.h"

#include <gtest/gtest.h>

#include "codec/lossless/zstd_leaf.h"

namespace kvbm::cluster::link_coder_test {
namespace {

constexpr uint16_t kRaw = 1, kPlanar = 2, kZstd = 4;

// A clock that advances by 10 us at each query. So a leaf of 64 KiB seems to take the coders that long, plus the time
// that a test adds.
class SteppedClock final : public Clock {
 public:
  [[nodiscard]] uint64_t now_ns() const noexcept override { return now_ += 10'000; }
  void wait(uint64_t ns) noexcept { now_ += ns; }

 private:
  mutable uint64_t now_ = 0;
};

class LinkCoderTest : public testing::Test {
 protected:
  [[nodiscard]] LinkCoder coder(codec::Mode mode) {
    LinkCoding how;
    how.mode = mode;
    return {std::move(how), random_, clock_, nullptr};
  }
  static wire::Coding asks(uint16_t codecs) {
    wire::Coding out;
    out.mode = static_cast<uint8_t>(codec::Mode::standard);
    out.codecs = codecs;
    return out;
  }
  SeededRandom random_{1};
  SystemClock clock_;
};

TEST_F(LinkCoderTest, says_which_codecs_this_build_decodes) {
  LinkCoder on = coder(codec::Mode::standard);
  const wire::Coding asked = on.ask(NodeId{}, 1 << 20, false).coding;
  EXPECT_EQ(asked.mode, static_cast<uint8_t>(codec::Mode::standard));
  EXPECT_EQ(asked.codecs & (kRaw | kPlanar), kRaw | kPlanar);
  EXPECT_EQ((asked.codecs & kZstd) != 0, codec::has_zstd());
  EXPECT_EQ(on.plan(asked), LinkCoder::Plan::coded);
  LinkCoder off = coder(codec::Mode::off);
  EXPECT_EQ(off.ask(NodeId{}, 1 << 20, false).coding.codecs, 0U);
  EXPECT_EQ(off.plan(asked), LinkCoder::Plan::plain);
}

TEST_F(LinkCoderTest, gives_nothing_coded_to_who_could_not_decode_all_that_it_may_be_given) {
  LinkCoder on = coder(codec::Mode::standard);
  EXPECT_EQ(on.plan(asks(kRaw | kPlanar | kZstd)), LinkCoder::Plan::coded);
  EXPECT_EQ(on.plan(asks(kRaw | kPlanar)), codec::has_zstd() ? LinkCoder::Plan::plain : LinkCoder::Plan::coded);
  EXPECT_EQ(on.plan(asks(kRaw | kZstd)), LinkCoder::Plan::plain);
  EXPECT_EQ(on.plan(asks(0)), LinkCoder::Plan::plain);
}

TEST_F(LinkCoderTest, tells_what_was_found_out_of_the_requests_that_were_made) {
  LinkCoding how;
  how.automatic = true;
  LinkCoder on(std::move(how), random_, clock_, nullptr);
  EXPECT_TRUE(on.choices().empty());
  NodeId node;
  node.bytes[0] = 7;
  for (int i = 0; i < 10; ++i) on.answered(on.ask(node, 1 << 20, false, LinkCoder::Use::slices), false, 1 << 20);
  const auto choices = on.choices();
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].node, node);
  EXPECT_EQ(choices[0].use, LinkCoder::Use::slices);
  EXPECT_STREQ(choices[0].size, "middle");
  EXPECT_EQ(choices[0].state.way, copy::Way::plain);
  EXPECT_GT(choices[0].state.plain_ns_per_byte, 0);
  EXPECT_EQ(choices[0].state.coded_ns_per_byte, 0) << "never tried: nothing is known of coders' speed";
}

// A link that takes 0.27 ns a byte, and coders that take 0.15 each: between two machines coding may pay.
TEST_F(LinkCoderTest, does_not_try_to_code_between_nodes_of_one_machine_what_coders_delay_more_than_the_link) {
  SteppedClock clock;
  LinkCoding how;
  how.automatic = true;
  LinkCoder on(std::move(how), random_, clock, nullptr);
  on.measure();
  NodeId near, far;
  near.bytes[0] = 1;
  far.bytes[0] = 2;
  const auto was_tried = [&](const NodeId& node, double ns_per_byte) {
    constexpr uint64_t kBytes = 8 << 20;
    bool tried = false;
    for (int i = 0; i < 50; ++i) {
      const auto asked = on.ask(node, kBytes, false);
      const bool coded = asked.ticket.way == copy::Way::coded;
      tried = tried || coded;
      clock.wait(static_cast<uint64_t>(ns_per_byte * kBytes));
      on.answered(asked, coded, kBytes);
    }
    return tried;
  };
  on.is_on_this_machine(near, true);
  on.is_on_this_machine(far, false);
  EXPECT_TRUE(was_tried(far, 0.27));
  EXPECT_FALSE(was_tried(near, 0.27));
  EXPECT_TRUE(was_tried(near, 2)) << "a link that is slow on purpose";
}

}  // namespace
}  // namespace kvbm::cluster::link_coder_test

// A prefill rank must push the requested slice: another one, though undamaged, is discarded.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "cluster/session/receiver.h"
#include "support/session_shapes.h"
#include "support/session_world.h"

namespace kvbm::cluster::session::session_slice_test {
namespace {

class Hand final : public Link {
 public:
  Code send(PeerId, ConstBytes bytes) override {
    auto message = decode(bytes);
    EXPECT_TRUE(message.ok());
    if (auto* p = std::get_if<Pull>(&message.value())) pulls.insert(pulls.end(), p->entries.begin(), p->entries.end());
    return Code::ok;
  }
  Code post(PeerId, uint64_t, MutableBytes to, uint64_t token) override {
    posts.emplace_back(token, to);
    return Code::ok;
  }
  Code push(PeerId, uint64_t, std::span<const ConstBytes>, uint64_t) override { return Code::internal; }
  void cancel(PeerId, uint64_t) override {}
  void drop(PeerId) override {}
  [[nodiscard]] bool takes_grain(PeerId) const override { return false; }
  [[nodiscard]] bool takes_ways(PeerId) const override { return false; }
  [[nodiscard]] bool takes_device_memory() const override { return false; }
  Status add_memory(MutableBytes) override { return {}; }

  std::vector<PullEntry> pulls;
  std::vector<std::pair<uint64_t, MutableBytes>> posts;
};

// A decode rank that wants two equal layers of one component, and has asked for the first.
class SessionSlice : public ::testing::Test {
 protected:
  void SetUp() override {
    facts_.components.push_back(layout::attention(2, 2, 16, layout::Element::bf16));
    target_ = test::make_side(facts_, {1, 1, 16, layout::Form::nhd, false, 0}, 20, random_);
    source_ = test::make_side(facts_, {1, 1, 16, layout::Form::hnd, false, 0}, 20, random_);
    source_[0].fill_all(3);
    const uint64_t slot = Staging::slot_bytes_for(kMinSliceBytes);
    memory_.resize(slot + 64);
    const size_t skip = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
    receiver_.emplace(Receiver::Options{}, Staging::make({memory_.data() + skip, slot}, kMinSliceBytes).value(), hand_);
    OpenRequest open{request_, facts_, target_[0].locals(), {{1, 0, "hand"}}, 0, 1, 1000, 1 << 20};
    session_ = receiver_->open(std::move(open), 0).value();
    Header h;
    h.session = session_;
    receiver_->on_message(1, encode(h, Accept{facts_hash(facts_), kMinSliceBytes, source_[0].parts()}));
    h.sequence = 1;
    receiver_->on_message(1, encode(h, Published{{{0, 0, 2, {0, 20}}}}));
    ASSERT_EQ(hand_.posts.size(), 1u);
    ASSERT_EQ(hand_.pulls.size(), 1u);
    ASSERT_EQ(hand_.pulls[0].extent.layer, 0);
  }

  // Answers the last pull; `extent` is what is gathered, `head` what is said of it.
  void answer(const Extent& extent, SliceHead head) {
    std::byte* front = hand_.posts.back().second.data();
    const SliceShape shape(facts_.components[0], extent);
    head.payload_bytes = static_cast<uint32_t>(shape.payload_bytes());
    head.leaves = shape.leaf_count();
    std::vector<uint64_t> hashes(shape.leaf_count());
    SliceCopy copy;
    copy.gather(facts_, source_[0].locals()[0], extent, front + slice_front_bytes(head.leaves), hashes);
    std::memcpy(slice_hashes(front), hashes.data(), hashes.size() * 8);
    encode_slice_front(head, front);
    receiver_->on_received(hand_.posts.back().first, Code::ok, slice_front_bytes(head.leaves) + shape.payload_bytes());
  }
  [[nodiscard]] SliceHead right() const {
    const PullEntry& pull = hand_.pulls.back();
    return {session_, pull.tag, request_, pull.slice, 0, 0, 32, pull.extent};
  }
  uint64_t layers() {
    ReceiverEvent e;
    uint64_t n = 0;
    while (receiver_->take_event(&e)) n += e.kind == ReceiverEvent::Kind::layer_ready;
    return n;
  }

  SeededRandom random_{1};
  Facts facts_;
  RequestId request_ = test::request_id(9);
  std::vector<test::RankEngine> target_, source_;
  std::vector<std::byte> memory_;
  Hand hand_;
  std::optional<Receiver> receiver_;
  SessionId session_ = 0;
};

TEST_F(SessionSlice, the_one_that_was_asked_for_is_taken) {
  answer(right().extent, right());
  EXPECT_EQ(layers(), 1u);
  EXPECT_EQ(target_[0].caches[0]->check_layer(3, 0), "");
}

TEST_F(SessionSlice, another_layer_is_thrown_away_and_asked_for_again) {
  SliceHead head = right();
  head.extent.layer = 1;
  answer(head.extent, head);
  EXPECT_EQ(layers(), 0u);
  EXPECT_EQ(receiver_->stats().damaged_slices, 1u);
  ASSERT_EQ(hand_.pulls.size(), 2u);
  EXPECT_EQ(hand_.pulls[1].slice, hand_.pulls[0].slice);
  EXPECT_NE(hand_.pulls[1].tag, hand_.pulls[0].tag);
  answer(right().extent, right());
  EXPECT_EQ(layers(), 1u);
  EXPECT_EQ(target_[0].caches[0]->check_layer(3, 0), "");
}

TEST_F(SessionSlice, an_earlier_pull_another_session_or_another_request_is_thrown_away) {
  SliceHead head = right();
  --head.tag;
  answer(head.extent, head);
  head = right();
  ++head.session;
  answer(head.extent, head);
  EXPECT_EQ(receiver_->stats().damaged_slices, 2u);
  EXPECT_EQ(receiver_->sessions(), 1u);
  head = right();
  head.request = test::request_id(8);
  answer(head.extent, head);
  EXPECT_EQ(receiver_->stats().damaged_slices, 3u);
  EXPECT_EQ(receiver_->sessions(), 0u);  // three attempts
  EXPECT_EQ(layers(), 0u);
}

}  // namespace
}  // namespace kvbm::cluster::session::session_slice_test

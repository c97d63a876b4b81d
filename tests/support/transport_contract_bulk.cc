// Posts and pushes.
#include <algorithm>

#include "base/crypto/random.h"
#include "support/transport_contract.h"

namespace kvbm::test {

bool use_transport_contract_bulk() { return true; }

TEST_P(TransportContract, a_push_lands_in_the_memory_posted_under_its_tag) {
  open();
  connect();
  const std::vector<uint64_t> sizes = {0, 1, 31, 4096, 65536, (1U << 20) + 3, 3'000'001};
  std::vector<copy::Token> posts;
  std::vector<copy::Token> pushes;
  for (size_t i = 0; i < sizes.size(); ++i) posts.push_back(b_.post(ba_, 100 + i, sizes[i]));
  for (size_t i = sizes.size(); i-- != 0;) pushes.push_back(a_.push(ab_, 100 + i, i, sizes[i], 1 + i));
  run_until([&] { return a_.all_ended() && b_.all_ended(); }, "all pushes");
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_TRUE(b_.holds(posts[i], i, sizes[i])) << sizes[i];
  for (const copy::Token token : pushes) EXPECT_EQ(a_.ends.at(token).status, Code::ok);
}

TEST_P(TransportContract, a_push_of_a_thousand_small_pieces_lands_as_one) {
  open();
  connect();
  const copy::Token post = b_.post(ba_, 1, 777'777);
  a_.push(ab_, 1, 9, 777'777, 1000);
  run_until([&] { return b_.ended(post); }, "the push");
  EXPECT_TRUE(b_.holds(post, 9, 777'777));
}

TEST_P(TransportContract, bytes_said_to_have_arrived_are_there) {
  open();
  connect();
  const uint64_t bytes = 5'000'000;
  const copy::Token post = b_.post(ba_, 1, bytes);
  const auto wanted = content(3, bytes);
  uint64_t checked = 0;
  b_.on_arrived = [&](copy::Peer, copy::Token token) {
    ASSERT_EQ(token, post);
    const uint64_t n = b_.arrived_bytes[token];
    const auto from = static_cast<std::ptrdiff_t>(checked);
    EXPECT_TRUE(std::equal(wanted.begin() + from, wanted.begin() + static_cast<std::ptrdiff_t>(n),
                           b_.memory(token).begin() + from));
    checked = n;
  };
  a_.push(ab_, 1, 3, bytes);
  run_until([&] { return b_.ended(post); }, "the push");
  EXPECT_TRUE(b_.holds(post, 3, bytes));
}

TEST_P(TransportContract, a_push_that_nobody_posted_for_is_thrown_away) {
  open();
  connect();
  const copy::Token lost = a_.push(ab_, 1, 1, 2'000'000);
  run_until([&] { return a_.ended(lost); }, "the lost push is sent");
  a_.send(ab_, "after");
  run_until([&] { return !b_.messages[ba_].empty(); }, "a message after it");
  settle();
  const copy::Token post = b_.post(ba_, 2, 1000);
  a_.push(ab_, 2, 2, 1000);
  run_until([&] { return b_.ended(post); }, "a push that is posted for");
  EXPECT_TRUE(b_.holds(post, 2, 1000));
  EXPECT_EQ(a_.ends.at(lost).status, Code::ok);
}

TEST_P(TransportContract, a_push_larger_than_its_post_is_a_mismatch_and_writes_nothing) {
  open();
  connect();
  const copy::Token small = b_.post(ba_, 1, 1'000'000);
  const copy::Token next = b_.post(ba_, 2, 1'000'000);
  a_.push(ab_, 1, 1, 1'000'001);
  a_.push(ab_, 2, 2, 1'000'000);
  run_until([&] { return b_.ended(small) && b_.ended(next); }, "both posts end");
  EXPECT_EQ(b_.ends.at(small).status, Code::mismatch);
  EXPECT_TRUE(b_.holds(next, 2, 1'000'000));
  b_.expect_quiet();
}

TEST_P(TransportContract, a_push_smaller_than_its_post_says_how_much_came) {
  open();
  connect();
  const copy::Token post = b_.post(ba_, 1, 10'000);
  a_.push(ab_, 1, 1, 7000);
  run_until([&] { return b_.ended(post); }, "the push");
  EXPECT_TRUE(b_.holds(post, 1, 7000));
}

TEST_P(TransportContract, a_tag_is_posted_once_at_a_time) {
  open();
  connect();
  const copy::Token first = b_.post(ba_, 1, 100);
  copy::Token token = 0;
  std::byte other[100];
  EXPECT_EQ(b_.transport().post(ba_, 1, other, token), Code::exists);
  a_.push(ab_, 1, 1, 100);
  run_until([&] { return b_.ended(first); }, "the push");
  const copy::Token again = b_.post(ba_, 1, 100);
  a_.push(ab_, 1, 2, 100);
  run_until([&] { return b_.ended(again); }, "the second push");
  EXPECT_TRUE(b_.holds(first, 1, 100));
  EXPECT_TRUE(b_.holds(again, 2, 100));
}

TEST_P(TransportContract, bulk_for_a_peer_that_is_not_admitted_is_refused) {
  open();
  connect(false);
  copy::Token token = 0;
  const std::byte bytes[8] = {};
  EXPECT_EQ(a_.transport().push(ab_, 1, ConstBytes(bytes), token), Code::wrong_state);
  EXPECT_EQ(a_.transport().unfinished(), 0U);
}

TEST_P(TransportContract, pieces_that_are_none_are_refused) {
  open();
  connect();
  copy::Token token = 0;
  EXPECT_EQ(a_.transport().push(ab_, 1, nullptr, 1, token), Code::invalid_argument);
  const kvbm_transport_piece_t nowhere{nullptr, 5};
  EXPECT_EQ(a_.transport().push(ab_, 1, &nowhere, 1, token), Code::invalid_argument);
  const kvbm_transport_piece_t endless[2] = {{&nowhere, 16}, {&nowhere, UINT64_MAX}};
  EXPECT_EQ(a_.transport().push(ab_, 1, endless, 2, token), Code::invalid_argument);
  EXPECT_EQ(a_.transport().post(ab_, 1, MutableBytes(static_cast<std::byte*>(nullptr), 5), token),
            Code::invalid_argument);
  EXPECT_EQ(a_.transport().unfinished(), 0U);
}

TEST_P(TransportContract, a_post_that_is_cancelled_ends_and_its_memory_stays_quiet) {
  open();
  connect();
  const copy::Token post = b_.post(ba_, 1, 3'000'000);
  EXPECT_EQ(b_.transport().cancel(ba_, post), Code::ok);
  EXPECT_FALSE(b_.ended(post));  // reported only in progress()
  run_until([&] { return b_.ended(post); }, "the cancelled post");
  EXPECT_EQ(b_.ends.at(post).status, Code::cancelled);
  EXPECT_EQ(b_.transport().cancel(ba_, post), Code::stale_handle);
  const copy::Token push = a_.push(ab_, 1, 1, 3'000'000);
  run_until([&] { return a_.ended(push); }, "the push into nothing");
  settle();
  b_.expect_quiet();
}

TEST_P(TransportContract, a_post_that_is_cancelled_half_way_ends_and_its_memory_stays_quiet) {
  open();
  connect();
  const uint64_t bytes = 8'000'000;
  const copy::Token post = b_.post(ba_, 1, bytes);
  bool asked = false;
  b_.on_arrived = [&](copy::Peer peer, copy::Token token) {
    if (token != post || asked || b_.arrived_bytes[token] < 300'000) return;
    asked = true;
    EXPECT_EQ(b_.transport().cancel(peer, token), Code::ok);
  };
  a_.push(ab_, 1, 1, bytes);
  run_until([&] { return b_.ended(post) && a_.all_ended(); }, "the cancelled post");
  EXPECT_EQ(b_.ends.at(post).status, asked ? Code::cancelled : Code::ok);
  b_.on_arrived = nullptr;
  const copy::Token next = b_.post(ba_, 1, 1000);
  a_.push(ab_, 1, 2, 1000);
  run_until([&] { return b_.ended(next); }, "a push after it");
  EXPECT_TRUE(b_.holds(next, 2, 1000));
  b_.expect_quiet();
}

TEST_P(TransportContract, a_push_that_waits_can_be_cancelled_and_the_others_go_on) {
  open();
  connect();
  const uint64_t bytes = 4'000'000;
  std::vector<copy::Token> posts;
  std::vector<copy::Token> pushes;
  for (uint64_t i = 0; i < 8; ++i) posts.push_back(b_.post(ba_, i, bytes));
  for (uint64_t i = 0; i < 8; ++i) pushes.push_back(a_.push(ab_, i, i, bytes, 3));
  // 32 MB wait for a side that reads nothing: the last ones have not begun.
  for (const size_t i : {size_t{5}, size_t{7}}) EXPECT_EQ(a_.transport().cancel(ab_, pushes[i]), Code::ok);
  run_until([&] { return a_.all_ended(); }, "all pushes end");
  for (const size_t i : {size_t{5}, size_t{7}}) EXPECT_EQ(a_.ends.at(pushes[i]).status, Code::cancelled);
  EXPECT_EQ(a_.transport().cancel(ab_, pushes[5]), Code::stale_handle);
  run_until([&] { return b_.ended(posts[6]); }, "the one behind");
  for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{6}}) {
    EXPECT_TRUE(b_.holds(posts[i], i, bytes));
  }
  EXPECT_FALSE(b_.ended(posts[5]));
  EXPECT_FALSE(b_.ended(posts[7]));
}

TEST_P(TransportContract, a_message_does_not_wait_for_all_the_bulk_before_it) {
  open();
  connect();
  const uint64_t bytes = 32U << 20;
  const copy::Token post = b_.post(ba_, 1, bytes);
  a_.push(ab_, 1, 1, bytes);
  a_.send(ab_, "urgent");
  uint64_t before = UINT64_MAX;
  b_.on_message = [&](copy::Peer, ConstBytes) { before = b_.arrived_bytes[post]; };
  run_until([&] { return b_.ended(post) && !b_.messages[ba_].empty(); }, "both");
  EXPECT_LT(before, bytes) << "the message came behind all of the bulk";
  EXPECT_TRUE(b_.holds(post, 1, bytes));
}

TEST_P(TransportContract, a_push_of_64_MiB_lands) {
  open();
  connect();
  const uint64_t bytes = 64U << 20;
  const copy::Token post = b_.post(ba_, 1, bytes);
  a_.push(ab_, 1, 1, bytes, 7);
  run_until([&] { return b_.ended(post); }, "64 MiB");
  EXPECT_TRUE(b_.holds(post, 1, bytes));
}

TEST_P(TransportContract, ten_thousand_pushes_may_wait) {
  open();
  connect();
  constexpr uint64_t kN = 10'000;
  for (uint64_t i = 0; i < kN; ++i) b_.post(ba_, i, 700);
  for (uint64_t i = 0; i < kN; ++i) a_.push(ab_, i, i, 700);
  run_until([&] { return a_.all_ended() && b_.all_ended(); }, "all of them");
  for (uint64_t i = 0; i < kN; ++i) ASSERT_TRUE(b_.holds(i + 1, i, 700)) << i;
}

TEST_P(TransportContract, both_directions_carry_messages_and_bulk_at_once) {
  open();
  connect();
  SeededRandom random(seed());
  constexpr uint64_t kN = 300;
  std::vector<copy::Token> at_b;
  std::vector<copy::Token> at_a;
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < kN; ++i) {
    sizes.push_back(random.below(4) == 0 ? random.below(900'000) : random.below(9'000));
    at_b.push_back(b_.post(ba_, i, sizes[i]));
    at_a.push_back(a_.post(ab_, i, sizes[i]));
  }
  uint64_t next = 0;
  while (next < kN) {
    for (uint64_t burst = 1 + random.below(20); burst != 0 && next < kN; --burst, ++next) {
      a_.push(ab_, next, next, sizes[next], 1 + random.below(5));
      b_.push(ba_, next, next + 1, sizes[next]);
      a_.send(ab_, "a" + std::to_string(next));
      b_.send(ba_, "b" + std::to_string(next));
    }
    for (uint64_t rounds = random.below(5); rounds != 0; --rounds) step();
  }
  run_until(
      [&] {
        return a_.all_ended() && b_.all_ended() && a_.messages[ab_].size() == kN && b_.messages[ba_].size() == kN;
      },
      "all traffic");
  for (uint64_t i = 0; i < kN; ++i) {
    ASSERT_TRUE(b_.holds(at_b[i], i, sizes[i])) << i;
    ASSERT_TRUE(a_.holds(at_a[i], i + 1, sizes[i])) << i;
    ASSERT_EQ(b_.messages[ba_][i], "a" + std::to_string(i));
    ASSERT_EQ(a_.messages[ab_][i], "b" + std::to_string(i));
  }
}

}  // namespace kvbm::test

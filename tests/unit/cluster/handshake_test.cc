#include "cluster/admission/handshake.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvbm::cluster::handshake_test {
namespace {

using Bytes = std::vector<std::byte>;

NodeFacts facts(const char* name, const char* pool = "pool-a") {
  NodeFacts f;
  f.node = node_id_of(name);
  f.incarnation = 7;
  f.pool = pool;
  f.request_limit = 64;
  return f;
}

Bytes copy(ConstBytes b) { return {b.begin(), b.end()}; }

struct Pair {
  Status initiator, responder;
  bool met = false;
  std::vector<Bytes> sent;  // in order, both sides'
};

// Runs two handshakes against each other. `change` may alter message number n in transit.
template <class Change>
Pair talk(Handshake& a, Handshake& b, Change change) {
  Pair out;
  bool a_done = false;
  bool b_done = false;
  bool to_b = true;
  Bytes message = copy(a.start().send);
  while (!message.empty()) {
    change(out.sent.size(), message);
    out.sent.push_back(message);
    const Handshake::Step step = to_b ? b.take(message) : a.take(message);
    Status& status = to_b ? out.responder : out.initiator;
    if (!step.status.ok()) status = step.status;
    (to_b ? b_done : a_done) |= step.established;
    message = copy(step.send);
    to_b = !to_b;
  }
  out.met = a_done && b_done;
  return out;
}

Pair talk(Handshake& a, Handshake& b) {
  return talk(a, b, [](size_t, Bytes&) {});
}

const SharedKey kKey = SharedKey{1};
const SharedKey kOther = SharedKey{2};

struct Meeting {
  Meeting(const NodeFacts& fa, const SharedKey* ka, const NodeFacts& fb, const SharedKey* kb,
          std::optional<NodeId> expected = {})
      : a(fa, ka, Role::initiator, random, expected), b(fb, kb, Role::responder, random) {}
  SeededRandom random{1};
  Handshake a, b;
};

TEST(Handshake, ends_with_the_same_keys_crossed_and_knows_the_peer) {
  Meeting m(facts("a"), &kKey, facts("b"), &kKey, node_id_of("b"));
  const Pair p = talk(m.a, m.b);
  ASSERT_TRUE(p.met) << p.initiator.message() << p.responder.message();
  EXPECT_EQ(p.sent.size(), 4U);
  EXPECT_EQ(m.a.keys().send, m.b.keys().receive);
  EXPECT_EQ(m.a.keys().receive, m.b.keys().send);
  EXPECT_NE(m.a.keys().send, m.a.keys().receive);
  EXPECT_EQ(m.a.peer().node, node_id_of("b"));
  EXPECT_EQ(m.b.peer().node, node_id_of("a"));
  EXPECT_EQ(m.b.peer().incarnation, 7U);
  EXPECT_EQ(m.a.version(), kProtocolVersion);
  for (const Bytes& message : p.sent) EXPECT_LE(message.size(), 256U);
}

TEST(Handshake, runs_without_a_key_on_both_sides) {
  Meeting m(facts("a"), nullptr, facts("b"), nullptr);
  EXPECT_TRUE(talk(m.a, m.b).met);
}

TEST(Handshake, gives_other_keys_each_time) {
  Meeting m(facts("a"), &kKey, facts("b"), &kKey);
  ASSERT_TRUE(talk(m.a, m.b).met);
  Handshake a(facts("a"), &kKey, Role::initiator, m.random);
  Handshake b(facts("b"), &kKey, Role::responder, m.random);
  ASSERT_TRUE(talk(a, b).met);
  EXPECT_NE(a.keys().send, m.a.keys().send);
}

TEST(Handshake, tells_both_sides_of_a_wrong_key) {
  Meeting m(facts("a"), &kKey, facts("b"), &kOther);
  const Pair p = talk(m.a, m.b);
  EXPECT_FALSE(p.met);
  EXPECT_EQ(p.initiator.code(), Code::not_permitted);
  EXPECT_EQ(p.responder.code(), Code::not_permitted);
  EXPECT_NE(p.responder.message().find("wrong key"), std::string::npos);
  EXPECT_NE(p.initiator.message().find("said by the peer"), std::string::npos);
}

// Otherwise any peer that connects could record a message that depends on the key, and try keys on it offline.
TEST(Handshake, who_is_called_says_nothing_that_depends_on_the_key_before_its_caller_has_proved_it) {
  SeededRandom caller(1);
  Handshake a(facts("a"), &kKey, Role::initiator, caller);
  const Bytes hello = copy(a.start().send);
  Bytes no_proof = hello;
  no_proof[4] = std::byte{3};
  std::vector<Bytes> said;
  for (const SharedKey& key : {kKey, kOther}) {
    SeededRandom random(2);
    Handshake b(facts("b"), &key, Role::responder, random);
    Bytes all = copy(b.take(hello).send);
    const Handshake::Step step = b.take(no_proof);
    EXPECT_EQ(step.status.code(), Code::not_permitted);
    all.insert(all.end(), step.send.begin(), step.send.end());
    said.push_back(std::move(all));
  }
  EXPECT_EQ(said[0], said[1]);
}

TEST(Handshake, the_stronger_wish_for_protection_counts_and_gives_keys_crossed) {
  using copy::Protection;
  const std::pair<std::pair<Protection, Protection>, Protection> cases[] = {
      {{Protection::off, Protection::off}, Protection::off},
      {{Protection::authenticate, Protection::authenticate}, Protection::authenticate},
      {{Protection::authenticate, Protection::encrypt}, Protection::encrypt},
      {{Protection::encrypt, Protection::authenticate}, Protection::encrypt},
      {{Protection::encrypt, Protection::encrypt}, Protection::encrypt}};
  for (const auto& [wishes, agreed] : cases) {
    NodeFacts a = facts("a"), b = facts("b");
    a.protect = wishes.first, b.protect = wishes.second;
    Meeting m(a, &kKey, b, &kKey);
    ASSERT_TRUE(talk(m.a, m.b).met);
    EXPECT_EQ(m.a.protection(), agreed);
    EXPECT_EQ(m.b.protection(), agreed);
    EXPECT_EQ(m.a.frame_keys().send, m.b.frame_keys().receive);
    EXPECT_EQ(m.a.frame_keys().receive, m.b.frame_keys().send);
    EXPECT_NE(m.a.frame_keys().send, m.a.frame_keys().receive);
    EXPECT_NE(m.a.frame_keys().send, m.a.keys().send);
  }
}

TEST(Handshake, a_side_that_protects_and_one_that_does_not_refuse_each_other_and_name_both) {
  using copy::Protection;
  for (const bool first : {true, false}) {
    NodeFacts a = facts("a"), b = facts("b");
    (first ? a : b).protect = Protection::authenticate;
    Meeting m(a, &kKey, b, &kKey);
    const Pair p = talk(m.a, m.b);
    EXPECT_FALSE(p.met);
    EXPECT_EQ(p.responder.code(), Code::not_permitted);
    EXPECT_EQ(p.initiator.code(), Code::not_permitted);
    const std::string here = first ? "authenticate" : "off";
    const std::string there = first ? "off" : "authenticate";
    EXPECT_NE(p.initiator.message().find("here " + here + ", there " + there), std::string::npos)
        << p.initiator.message();
    EXPECT_NE(p.responder.message().find("here " + there + ", there " + here), std::string::npos)
        << p.responder.message();
    EXPECT_NE(p.responder.message().find("node.protect"), std::string::npos);
  }
}

// An attacker on the path cannot lower the protection that both sides want.
TEST(Handshake, a_changed_wish_for_protection_lets_nobody_in) {
  using copy::Protection;
  for (size_t number = 0; number < 2; ++number) {
    for (const Protection said : {Protection::off, Protection::authenticate, Protection{3}, Protection{255}}) {
      NodeFacts a = facts("a"), b = facts("b");
      a.protect = b.protect = Protection::encrypt;
      Meeting m(a, &kKey, b, &kKey);
      const Pair p = talk(m.a, m.b, [&](size_t n, Bytes& message) {
        if (n == number) message[109] = static_cast<std::byte>(said);
      });
      EXPECT_FALSE(p.met) << number;
    }
  }
}

// A message of a node of an earlier version. Both sides report both versions, the earlier one by its own rules.
TEST(Handshake, a_node_of_a_version_before_protection_is_refused_with_both_versions) {
  NodeFacts before = facts("old");
  before.version = 4, before.lowest_version = 1;
  for (const bool calls : {true, false}) {
    Meeting m(calls ? before : facts("new"), &kKey, calls ? facts("new") : before, &kKey);
    const Pair p = talk(m.a, m.b);
    EXPECT_FALSE(p.met);
    const Status& here = calls ? p.responder : p.initiator;
    EXPECT_EQ(here.code(), Code::newer_version);
    EXPECT_NE(here.message().find("here 5, there 1 to 4"), std::string::npos) << here.message();
  }
}

TEST(Handshake, keeps_keyed_and_unkeyed_sides_apart) {
  for (const bool keyed_first : {true, false}) {
    Meeting m(facts("a"), keyed_first ? &kKey : nullptr, facts("b"), keyed_first ? nullptr : &kKey);
    const Pair p = talk(m.a, m.b);
    EXPECT_FALSE(p.met);
    EXPECT_EQ(p.responder.code(), Code::not_permitted);
    EXPECT_EQ(p.initiator.code(), Code::not_permitted);
    EXPECT_NE(p.responder.message().find("give both the pool's key"), std::string::npos);
  }
}

TEST(Handshake, a_forged_keyed_flag_does_not_help_an_unkeyed_side) {
  Meeting m(facts("a"), nullptr, facts("b"), &kKey);
  const Pair p = talk(m.a, m.b, [](size_t n, Bytes& message) {
    if (n == 0) message[7] = std::byte{1};
    if (n == 1) message[7] = std::byte{0};
  });
  EXPECT_FALSE(p.met);
}

TEST(Handshake, names_both_versions) {
  NodeFacts newer = facts("b");
  newer.version = 9;
  newer.lowest_version = 8;
  Meeting m(facts("a"), &kKey, newer, &kKey);
  const Pair p = talk(m.a, m.b);
  EXPECT_EQ(p.responder.code(), Code::newer_version);
  EXPECT_NE(p.responder.message().find("here 8 to 9, there 5"), std::string::npos) << p.responder.message();
  const std::string both = "here " + std::to_string(kProtocolVersion) + ", there 8 to 9";
  EXPECT_NE(p.initiator.message().find(both), std::string::npos) << p.initiator.message();
}

TEST(Handshake, speaks_the_highest_version_of_both) {
  NodeFacts newer = facts("b");
  newer.version = kProtocolVersion + 1;
  Meeting m(facts("a"), &kKey, newer, &kKey);
  ASSERT_TRUE(talk(m.a, m.b).met);
  EXPECT_EQ(m.a.version(), kProtocolVersion);
  EXPECT_EQ(m.b.version(), kProtocolVersion);
}

TEST(Handshake, refuses_another_pool_by_name) {
  Meeting m(facts("a", "pool-a"), &kKey, facts("b", "pool-b"), &kKey);
  const Pair p = talk(m.a, m.b);
  EXPECT_EQ(p.responder.code(), Code::mismatch);
  EXPECT_NE(p.responder.message().find("here pool-b, there pool-a"), std::string::npos);
}

TEST(Handshake, refuses_the_same_pool_set_up_differently) {
  NodeFacts a = facts("a");
  NodeFacts b = facts("b");
  a.pool_fingerprint = 1;
  b.pool_fingerprint = 2;
  Meeting m(a, &kKey, b, &kKey);
  EXPECT_EQ(talk(m.a, m.b).responder.code(), Code::mismatch);
}

TEST(Handshake, refuses_itself) {
  Meeting m(facts("a"), &kKey, facts("a"), &kKey);
  const Pair p = talk(m.a, m.b);
  EXPECT_FALSE(p.met);
  EXPECT_NE(p.responder.message().find("the node itself"), std::string::npos);
}

TEST(Handshake, refuses_another_node_than_expected) {
  Meeting m(facts("a"), &kKey, facts("b"), &kKey, node_id_of("c"));
  EXPECT_NE(talk(m.a, m.b).initiator.message().find("another node than expected"), std::string::npos);
}

TEST(Handshake, refused_while_busy_says_to_try_again) {
  Meeting m(facts("a"), &kKey, facts("b"), &kKey);
  (void)m.a.start();
  EXPECT_EQ(m.a.take(m.b.refuse(Refusal::busy)).status.code(), Code::again);
}

// Every bit of every message is either checked at once or bound into the proofs.
TEST(Handshake, no_changed_bit_lets_anybody_in_with_other_facts) {
  size_t met = 0;
  for (size_t number = 0; number < 4; ++number) {
    for (size_t bit = 0; bit < kHandshakeBytes * 8; ++bit) {
      Meeting m(facts("a"), &kKey, facts("b"), &kKey);
      const Pair p = talk(m.a, m.b, [&](size_t n, Bytes& message) {
        if (n == number) message[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      });
      // Bytes that carry nothing in that message may change; what was agreed may not.
      if (!p.met) continue;
      ++met;
      EXPECT_EQ(m.a.keys().send, m.b.keys().receive);
      EXPECT_EQ(m.a.peer().node, node_id_of("b"));
      EXPECT_EQ(m.b.peer().node, node_id_of("a"));
      EXPECT_EQ(m.b.peer().request_limit, 64U);
      EXPECT_TRUE(number >= 2 || bit / 8 >= 144) << "message " << number << " bit " << bit;
    }
  }
  RecordProperty("met", static_cast<int>(met));
}

TEST(Handshake, what_one_side_said_cannot_be_sent_back_to_it) {
  SeededRandom random(3);
  Handshake a(facts("a"), &kKey, Role::initiator, random);
  const Bytes hello = copy(a.start().send);
  EXPECT_FALSE(a.take(hello).status.ok());

  // An attacker without the key accepts the connection, and sends the caller's own proof back as the welcome.
  Handshake caller(facts("a"), &kKey, Role::initiator, random);
  Handshake b(facts("b"), &kKey, Role::responder, random);
  Bytes proof = copy(caller.take(copy(b.take(copy(caller.start().send)).send)).send);
  ASSERT_EQ(proof.size(), kHandshakeBytes);
  proof[4] = std::byte{4};
  EXPECT_EQ(caller.take(proof).status.code(), Code::not_permitted);
}

TEST(Handshake, an_old_session_cannot_be_repeated) {
  Meeting m(facts("a"), &kKey, facts("b"), &kKey);
  const Pair p = talk(m.a, m.b);
  ASSERT_TRUE(p.met);
  Handshake fresh(facts("b"), &kKey, Role::responder, m.random);
  EXPECT_TRUE(fresh.take(p.sent[0]).status.ok());
  EXPECT_EQ(fresh.take(p.sent[2]).status.code(), Code::not_permitted);
}

TEST(Handshake, refuses_what_is_no_handshake) {
  SeededRandom random(4);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{175}, size_t{177}, size_t{256}}) {
    Handshake b(facts("b"), &kKey, Role::responder, random);
    EXPECT_EQ(b.take(Bytes(size)).status.code(), Code::damaged);
  }
  Handshake b(facts("b"), &kKey, Role::responder, random);
  EXPECT_EQ(b.take(Bytes(kHandshakeBytes)).status.code(), Code::damaged);
  EXPECT_EQ(b.take(Bytes(kHandshakeBytes)).status.code(), Code::wrong_state);
}

}  // namespace
}  // namespace kvbm::cluster::handshake_test

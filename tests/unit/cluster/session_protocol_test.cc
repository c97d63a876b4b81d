// One rule of the protocol each, between one or two prefill ranks and one decode rank on a network without faults.
#include <gtest/gtest.h>

#include "layout/shard.h"
#include "support/session_world.h"

namespace kvbm::test::session_protocol_test {
namespace {

using cluster::session::Abort;
using cluster::session::Accept;
using cluster::session::Body;
using cluster::session::Done;
using cluster::session::encode;
using cluster::session::Facts;
using cluster::session::facts_hash;
using cluster::session::Header;
using cluster::session::kMinSliceBytes;
using cluster::session::Open;
using cluster::session::OpenRequest;
using cluster::session::Published;
using cluster::session::Pull;
using cluster::session::Range;
using cluster::session::Receiver;
using cluster::session::Sender;
using cluster::session::Staging;
using cluster::session::Type;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kTokens = 200;

Facts small_model() {
  Facts f;
  f.components.push_back(layout::attention(4, 4, 64, layout::Element::bf16));
  return f;
}

// A prefill side of any shape, one decode rank that wants all.
struct Pair {
  explicit Pair(SideShape from = {2, 1, 16, layout::Form::nhd, false, 0}, Facts facts_in = small_model(),
                SessionNode::Options options = {})
      : facts(std::move(facts_in)) {
    sources = make_side(facts, from, kTokens, sim.random());
    targets = make_side(facts, {1, 1, 32, layout::Form::blocks_hnd, false, 0}, kTokens, sim.random());
    for (size_t i = 0; i < sources.size(); ++i) {
      options.rank = static_cast<uint16_t>(i);
      senders.push_back(std::make_unique<SessionNode>(sim, net, options));
      sources[i].fill_all(7);
    }
    options.rank = 0;
    decode = std::make_unique<SessionNode>(sim, net, options);
    decode->seed = 7;
    decode->target = &targets[0];
    for (auto& s : senders) peers.push_back(net.connect(decode->id, s->id).first);
  }
  Status offer(size_t i, uint64_t within_ms = 100) {
    auto s = senders[i]->sender->offer({request_id(1), facts, sources[i].locals(), now() + within_ms * kMs}, now());
    senders[i]->drain();
    return s;
  }
  void publish(size_t i, uint32_t layer) {
    const auto& part = sources[i].caches[0]->part();
    EXPECT_TRUE(senders[i]->sender->publish(request_id(1), 0, layer, 1, part.range).ok());
    senders[i]->drain();
  }
  void publish_all(size_t i) {
    EXPECT_TRUE(senders[i]->sender->publish_all(request_id(1)).ok());
    senders[i]->drain();
  }
  OpenRequest request(uint64_t within_ms = 50) {
    OpenRequest r;
    r.request = request_id(1);
    r.facts = facts;
    r.targets = targets[0].locals();
    for (size_t i = 0; i < peers.size(); ++i) {
      r.sources.push_back({peers[i], static_cast<uint16_t>(i), "10.0.0." + std::to_string(i)});
    }
    r.deadline_ns = now() + within_ms * kMs;
    return r;
  }
  uint64_t open(OpenRequest r) {
    const auto session = decode->receiver->open(std::move(r), now());
    EXPECT_TRUE(session.ok()) << session.status().message();
    decode->drain();
    return session.ok() ? session.value() : 0;
  }
  uint64_t open() { return open(request()); }
  // Runs the simulation for `ms`.
  void run(uint64_t ms) {
    bool done = false;
    sim.post_at(now() + ms * kMs, [&] { done = true; });
    sim.run_until([&] { return done; });
  }
  Status end_of(uint64_t session) {
    sim.run_until([&] { return decode->finished.count(session) != 0; });
    EXPECT_EQ(decode->finished.count(session), 1u);
    return decode->finished.count(session) != 0 ? decode->finished.at(session) : Status(Code::internal, "no end");
  }
  [[nodiscard]] uint64_t now() const { return sim.clock().now_ns(); }

  SimExecutor sim{20261121};
  SessionNetwork net{sim};
  Facts facts;
  std::vector<RankEngine> sources, targets;
  std::vector<std::unique_ptr<SessionNode>> senders;
  std::unique_ptr<SessionNode> decode;
  std::vector<uint64_t> peers;
};

void expect_says(const Status& s, Code code, const std::string& words) {
  EXPECT_EQ(s.code(), code) << s.message();
  EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
}

TEST(Session, a_layer_is_there_before_the_next_one_is_computed) {
  Pair p;
  const uint64_t s = p.open();
  p.run(1);
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  for (uint32_t layer : {2U, 0U, 3U, 1U}) {
    p.run(2);
    EXPECT_EQ(p.decode->layers[s].count({layer, 0}), 0u);
    p.publish(0, layer);
    p.run(2);
    EXPECT_EQ(p.decode->layers[s].count({layer, 0}), 0u) << "half of the heads";
    p.publish(1, layer);
    p.run(3);
    EXPECT_EQ(p.decode->layers[s].count({layer, 0}), 1u);
  }
  EXPECT_TRUE(p.end_of(s).ok());
  EXPECT_EQ(p.targets[0].check(7), "");
  p.run(2);
  for (size_t i : {0U, 1U}) {
    EXPECT_TRUE(p.senders[i]->offers_ended.at(request_id(1)).ok());
    EXPECT_TRUE(p.senders[i]->held.empty());
    EXPECT_EQ(p.senders[i]->sender->offers(), 0u);
  }
}

TEST(Session, what_was_published_before_the_decode_side_came_is_there_at_once) {
  Pair p;
  for (size_t i : {0U, 1U}) {
    ASSERT_TRUE(p.offer(i).ok());
    p.publish_all(i);
  }
  p.run(20);
  const uint64_t s = p.open();
  EXPECT_TRUE(p.end_of(s).ok());
  EXPECT_EQ(p.decode->layers[s].size(), 4u);
  EXPECT_EQ(p.targets[0].check(7), "");
}

// Either side may come first. Neither waits for its deadline.
TEST(Session, another_model_ends_both_sides_at_once_by_the_fact_that_differs) {
  for (const bool offered_first : {true, false}) {
    Pair p;
    if (offered_first) {
      ASSERT_TRUE(p.offer(0).ok());
    }
    OpenRequest r = p.request();
    r.facts.model[0] = 9;
    const uint64_t s = p.open(std::move(r));
    p.run(2);
    if (!offered_first) {
      ASSERT_TRUE(p.offer(0).ok());
    }
    p.run(2);
    expect_says(p.end_of(s), Code::mismatch, "the model is 0900");
    EXPECT_EQ(p.senders[0]->sender->stats().refused_opens, 1u);
    ASSERT_EQ(p.senders[0]->offers_ended.count(request_id(1)), 1u);
    const Status end = p.senders[0]->offers_ended.at(request_id(1));
    for (const char* words : {"the model is 0000", "decode rank 0", "adapter"}) expect_says(end, Code::mismatch, words);
    EXPECT_TRUE(p.senders[0]->held.empty());
    EXPECT_EQ(p.senders[0]->sender->publish(request_id(1), 0, 0, 1, {0, 1}).code(), Code::stale_handle);
    // A later open gets the same error. After the request is offered again, an open succeeds.
    expect_says(p.end_of(p.open()), Code::mismatch, "decode rank 0");
    p.run(2);
    p.senders[0]->offers_ended.clear();
    for (size_t i : {0U, 1U}) {
      ASSERT_TRUE(p.offer(i).ok());
      p.publish_all(i);
    }
    EXPECT_TRUE(p.end_of(p.open()).ok());
  }
}

// An admitted decode rank's session continues when another rank is refused.
TEST(Session, another_model_beside_one_that_fits_ends_the_offer_with_the_last) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  OpenRequest fits = p.request();
  fits.sink_count = 2;
  const uint64_t first = p.open(std::move(fits));
  p.run(2);
  OpenRequest differs = p.request();
  differs.sink_count = 2;
  differs.sink_rank = 1;
  differs.facts.model[0] = 9;
  expect_says(p.end_of(p.open(std::move(differs))), Code::mismatch, "the model is 0900");
  EXPECT_TRUE(p.senders[0]->offers_ended.empty());
  for (size_t i : {0U, 1U}) p.publish_all(i);
  EXPECT_TRUE(p.end_of(first).ok());
  p.run(2);
  for (size_t i : {0U, 1U}) {
    ASSERT_EQ(p.senders[i]->offers_ended.count(request_id(1)), 1u);
    expect_says(p.senders[i]->offers_ended.at(request_id(1)), Code::mismatch, "decode rank 1");
    EXPECT_TRUE(p.senders[i]->held.empty());
  }
}

TEST(Session, a_request_that_never_comes_ends_at_the_deadline_with_the_ranks_that_are_silent) {
  Pair p;
  ASSERT_TRUE(p.offer(0).ok());
  p.publish_all(0);
  const uint64_t s = p.open();
  const uint64_t deadline = p.now() + 50 * kMs;
  expect_says(p.end_of(s), Code::deadline, "prefill rank 1 at \"10.0.0.1\" did not answer");
  EXPECT_EQ(p.now(), deadline);
  p.run(1);
  EXPECT_EQ(p.senders[1]->sender->early_opens(), 0u);
}

TEST(Session, an_offer_that_nobody_opens_ends_at_its_deadline) {
  Pair p;
  ASSERT_TRUE(p.offer(0, 30).ok());
  EXPECT_EQ(p.senders[0]->held.size(), 1u);
  p.run(40);
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::deadline, "no decode rank has opened it");
  EXPECT_TRUE(p.senders[0]->held.empty());
  EXPECT_EQ(p.senders[0]->sender->publish(request_id(1), 0, 0, 1, {0, 1}).code(), Code::stale_handle);
}

TEST(Session, a_garbled_slice_is_asked_for_again_and_at_last_given_up) {
  Pair p;
  p.net.faults.garble = 1;
  for (size_t i : {0U, 1U}) {
    ASSERT_TRUE(p.offer(i).ok());
    p.publish_all(i);
  }
  const uint64_t s = p.open();
  expect_says(p.end_of(s), Code::damaged, "3 attempts");
  EXPECT_TRUE(p.decode->layers[s].empty());
  p.net.faults.garble = 0;
  p.run(3);
  EXPECT_EQ(p.decode->receiver->staging_taken(), 0u);
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::damaged, "decode rank 0");
}

TEST(Session, one_garbled_slice_costs_one_more_pull) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  const uint64_t s = p.open();
  p.net.faults.garble = 1;
  p.publish(0, 0);
  p.sim.run_until([&] { return p.net.garbled() == 1; });
  p.net.faults.garble = 0;
  for (size_t i : {0U, 1U}) p.publish_all(i);
  EXPECT_TRUE(p.end_of(s).ok());
  EXPECT_EQ(p.decode->receiver->stats().damaged_slices, 1u);
  EXPECT_EQ(p.decode->receiver->stats().slices + 1,
            p.senders[0]->sender->stats().slices + p.senders[1]->sender->stats().slices);
  EXPECT_EQ(p.targets[0].check(7), "");
}

TEST(Session, after_an_abort_nothing_is_written_and_staging_comes_back_when_its_transfer_ends) {
  Pair p;
  for (size_t i : {0U, 1U}) {
    ASSERT_TRUE(p.offer(i).ok());
    p.publish_all(i);
  }
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.decode->receiver->staging_taken() > 0; });
  p.net.freeze(p.senders[0]->id, true);
  p.run(1);
  ASSERT_TRUE(p.decode->receiver->abort(s, Code::cancelled, "the client went away").ok());
  EXPECT_GE(p.decode->receiver->quarantined(), 1u);
  p.decode->drain();
  EXPECT_EQ(p.decode->receiver->abort(s, Code::cancelled, "").code(), Code::stale_handle);
  expect_says(p.end_of(s), Code::cancelled, "the client went away");
  const auto before = p.targets[0].caches[0]->check(7);
  const uint64_t slices = p.decode->receiver->stats().slices;
  p.run(20);
  EXPECT_EQ(p.targets[0].caches[0]->check(7), before);
  EXPECT_EQ(p.decode->receiver->stats().slices, slices);
  EXPECT_EQ(p.decode->receiver->staging_taken(), p.decode->receiver->quarantined());
  p.net.freeze(p.senders[0]->id, false);
  p.run(20);
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::cancelled, "the client went away");
  EXPECT_EQ(p.decode->receiver->staging_taken(), 0u);
  EXPECT_TRUE(p.senders[0]->held.empty());
}

TEST(Session, a_prefill_side_that_gives_up_says_why) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  const uint64_t s = p.open();
  p.run(5);
  ASSERT_TRUE(p.senders[1]->sender->abort(request_id(1), Code::no_room, "the prompt was evicted").ok());
  p.senders[1]->drain();
  const Status end = p.end_of(s);
  expect_says(end, Code::no_room, "the prompt was evicted");
  expect_says(end, Code::no_room, "prefill rank 1 at \"10.0.0.1\"");
  EXPECT_TRUE(p.senders[1]->held.empty());
  p.run(2);
  EXPECT_TRUE(p.senders[0]->held.empty());
}

TEST(Session, a_prefill_side_that_gave_up_says_why_to_a_decode_side_that_comes_later) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  ASSERT_TRUE(p.senders[1]->sender->abort(request_id(1), Code::cancelled, "the request was withdrawn").ok());
  p.senders[1]->drain();
  const uint64_t s = p.open();
  const Status end = p.end_of(s);
  expect_says(end, Code::cancelled, "the request was withdrawn");
  EXPECT_EQ(p.senders[1]->sender->early_opens(), 0u);
}

TEST(Session, a_request_that_is_offered_again_after_it_was_given_up_is_served) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  ASSERT_TRUE(p.senders[1]->sender->abort(request_id(1), Code::cancelled, "").ok());
  p.senders[1]->drain();
  p.senders[1]->offers_ended.clear();
  ASSERT_TRUE(p.offer(1).ok());
  const uint64_t s = p.open();
  for (size_t i : {0U, 1U}) p.publish_all(i);
  EXPECT_TRUE(p.end_of(s).ok());
}

TEST(Session, layers_that_nobody_has_are_named) {
  Pair p({2, 2, 16, layout::Form::nhd, false, 0});
  OpenRequest r = p.request();
  r.sources.pop_back();
  for (size_t i : {0U, 1U, 2U}) ASSERT_TRUE(p.offer(i).ok());
  expect_says(p.end_of(p.open(std::move(r))), Code::mismatch,
              "component 0, layers 2 to 4, heads 2 to 4, positions 0 to 200");
}

TEST(Session, a_replica_that_is_dead_before_the_plan_is_planned_around) {
  Facts f;
  f.components.push_back(layout::latent(4, 128, layout::Element::bf16));
  Pair p({3, 1, 16, layout::Form::nhd, false, 0}, f);
  ASSERT_TRUE(p.offer(0).ok());
  ASSERT_TRUE(p.offer(2).ok());
  const uint64_t s = p.open();
  p.run(3);
  p.net.kill(p.senders[1]->id);
  p.run(3);
  p.publish_all(0);
  p.publish_all(2);
  EXPECT_TRUE(p.end_of(s).ok());
  EXPECT_EQ(p.targets[0].check(7), "");
  EXPECT_GT(p.senders[0]->sender->stats().slices, 0u);
  EXPECT_GT(p.senders[2]->sender->stats().slices, 0u);
}

// The link finds the loss at its next send, before the report that the connection is closed.
TEST(Session, an_offer_ends_as_the_connection_of_a_decode_process_that_died) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  (void)p.open();
  p.run(10);
  p.net.faults.closed = true;
  p.publish_all(0);
  p.run(10);
  ASSERT_EQ(p.senders[0]->offers_ended.count(request_id(1)), 1U);
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::owner_gone,
              "the connection to a decode rank is gone");
}

TEST(Session, a_peer_that_dies_later_costs_the_session_once) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  const uint64_t s = p.open();
  p.publish_all(0);
  p.run(10);
  p.net.kill(p.senders[1]->id);
  expect_says(p.end_of(s), Code::owner_gone, "prefill rank 1 at \"10.0.0.1\"");
  p.run(5);
  EXPECT_EQ(p.decode->receiver->staging_taken(), 0u);
  EXPECT_TRUE(p.senders[0]->held.empty());
}

TEST(Session, what_ended_it_is_said_once_with_the_rank) {
  Pair dead;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(dead.offer(i).ok());
  const uint64_t s = dead.open();
  dead.run(10);
  dead.net.kill(dead.senders[1]->id);
  EXPECT_EQ(dead.end_of(s).message(), "the connection to a prefill rank is gone: prefill rank 1 at \"10.0.0.1\"");
  Pair aborted;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(aborted.offer(i).ok());
  const uint64_t t = aborted.open();
  aborted.run(5);
  ASSERT_TRUE(aborted.senders[1]->sender->abort(request_id(1), Code::no_room, "evicted").ok());
  aborted.senders[1]->drain();
  const std::string said = aborted.end_of(t).message();
  EXPECT_TRUE(said.starts_with("a prefill rank gave up: prefill rank 1 at \"10.0.0.1\": ")) << said;
  EXPECT_EQ(said.find("a prefill rank gave up", 1), std::string::npos) << said;
}

TEST(Session, a_rank_that_has_given_everything_may_go) {
  Pair p;
  for (size_t i : {0U, 1U}) ASSERT_TRUE(p.offer(i).ok());
  const uint64_t s = p.open();
  p.publish_all(0);
  p.run(10);
  EXPECT_TRUE(p.senders[0]->offers_ended.at(request_id(1)).ok());
  EXPECT_TRUE(p.senders[0]->held.empty());
  p.net.kill(p.senders[0]->id);
  p.run(5);
  p.publish_all(1);
  EXPECT_TRUE(p.end_of(s).ok());
}

TEST(Session, blocks_are_held_until_a_straight_push_has_been_read) {
  SessionNode::Options o;
  o.straight_from_bytes = 64;
  Facts f;
  f.components.push_back(layout::attention(4, 1, 64, layout::Element::bf16));
  Pair p({1, 1, 256, layout::Form::hnd, false, 0}, f, o);
  ASSERT_TRUE(p.offer(0).ok());
  p.publish_all(0);
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.senders[0]->sender->stats().straight_slices > 0; });
  p.net.freeze(p.decode->id, true);
  p.run(1);
  ASSERT_TRUE(p.senders[0]->sender->abort(request_id(1), Code::cancelled, "").ok());
  p.senders[0]->drain();
  EXPECT_EQ(p.senders[0]->offers_ended.count(request_id(1)), 1u);
  EXPECT_EQ(p.senders[0]->held.size(), 1u);
  EXPECT_EQ(p.senders[0]->sender->offer({request_id(1), p.facts, p.sources[0].locals(), kNever}, p.now()).code(),
            Code::exists);
  p.net.freeze(p.decode->id, false);
  p.run(20);
  EXPECT_TRUE(p.senders[0]->held.empty());
  EXPECT_FALSE(p.end_of(s).ok());
}

TEST(Session, staging_under_way_stays_within_the_sessions_budget) {
  SessionNode::Options o;
  o.staging_slots = 8;
  Facts f;
  f.components.push_back(layout::attention(6, 8, 128, layout::Element::bf16));
  for (const uint64_t slots : {1U, 3U}) {
    Pair p({2, 1, 16, layout::Form::nhd, false, 0}, f, o);
    for (size_t i : {0U, 1U}) {
      ASSERT_TRUE(p.offer(i).ok());
      p.publish_all(i);
    }
    OpenRequest r = p.request();
    r.budget_bytes = slots * Staging::slot_bytes_for(kMinSliceBytes);
    const uint64_t s = p.open(std::move(r));
    uint32_t most = 0;
    p.sim.run_until([&] {
      most = std::max(most, p.decode->receiver->staging_taken());
      return p.decode->finished.count(s) != 0;
    });
    EXPECT_TRUE(p.decode->finished.at(s).ok());
    EXPECT_EQ(most, slots);
    EXPECT_EQ(p.targets[0].check(7), "");
  }
}

TEST(Session, what_cannot_be_is_refused_where_it_is_asked) {
  Pair p;
  p.senders[0]->refuse_holds = true;
  expect_says(p.offer(0), Code::in_use, "no hold");
  p.senders[0]->refuse_holds = false;
  EXPECT_TRUE(p.offer(0).ok());
  expect_says(p.offer(0), Code::exists, "offered already");
  Sender& sender = *p.senders[0]->sender;
  EXPECT_EQ(sender.publish(request_id(2), 0, 0, 1, {0, 1}).code(), Code::stale_handle);
  EXPECT_EQ(sender.publish(request_id(1), 0, 4, 1, {0, 1}).code(), Code::invalid_argument);
  EXPECT_EQ(sender.publish(request_id(1), 0, 0, 1, {0, kTokens + 1}).code(), Code::invalid_argument);
  EXPECT_EQ(sender.publish(request_id(1), 1, 0, 1, {0, 1}).code(), Code::invalid_argument);
  OpenRequest r = p.request();
  r.sources[1] = r.sources[0];
  EXPECT_EQ(p.decode->receiver->open(r, p.now()).status().code(), Code::invalid_argument);
  r = p.request();
  r.sink_rank = 1;
  EXPECT_EQ(p.decode->receiver->open(r, p.now()).status().code(), Code::invalid_argument);
  r = p.request();
  r.deadline_ns = p.now();
  EXPECT_EQ(p.decode->receiver->open(r, p.now()).status().code(), Code::deadline);
  r = p.request();
  r.targets[0].map.blocks[0] = r.targets[0].map.blocks[1];
  EXPECT_EQ(p.decode->receiver->open(r, p.now()).status().code(), Code::invalid_argument);
}

// A decode rank that sends only the messages that the test chooses.
struct Stranger {
  explicit Stranger(Pair& p) : sender(*p.senders[0]->sender), pair(p) {
    EXPECT_TRUE(p.offer(0).ok());
    Open open{request_id(1), 1000 * kMs, 1, kMinSliceBytes, p.facts, {p.sources[0].caches[0]->part()}};
    say(open);
  }
  void say(const Body& body) {
    Header h;
    h.type = Type::sink_abort;
    h.session = 5;
    h.sequence = next++;
    sender.on_message(pair.peers[0] + 1, encode(h, body), pair.now());
    pair.senders[0]->drain();
  }
  Sender& sender;
  Pair& pair;
  uint32_t next = 0;
};

TEST(Session, a_pull_of_what_is_not_published_or_not_there_ends_the_session) {
  const cluster::session::Extent good{0, 0, 0, 2, {0, 50}};
  const auto tries = [&](auto change, bool served) {
    Pair p;
    Stranger stranger(p);
    p.publish(0, 0);
    auto extent = good;
    change(extent);
    stranger.say(Pull{{{99, 0, extent}}});
    EXPECT_EQ(stranger.sender.stats().slices, served ? 1u : 0u);
    EXPECT_EQ(p.senders[0]->offers_ended.count(request_id(1)), served ? 0u : 1u);
    EXPECT_EQ(stranger.sender.stats().protocol_errors, served ? 0u : 1u);
  };
  using cluster::session::Extent;
  tries([](Extent&) {}, true);
  tries([](Extent& e) { e.layer = 1; }, false);
  tries([](Extent& e) { e.layer = 4; }, false);
  tries([](Extent& e) { e.heads = 3; }, false);
  tries([](Extent& e) { e.heads = 0; }, false);
  tries([](Extent& e) { e.first_head = 65535; }, false);
  tries([](Extent& e) { e.component = 1; }, false);
  tries([](Extent& e) { e.range.end = kTokens + 1; }, false);
  tries([](Extent& e) { e.range.end = 0; }, false);
}

TEST(Session, a_message_that_is_missing_ends_the_session_and_one_that_comes_twice_does_not) {
  Pair p;
  Stranger stranger(p);
  p.publish(0, 0);
  stranger.say(Pull{{{99, 0, {0, 0, 0, 2, {0, 50}}}}});
  stranger.next = 1;
  stranger.say(Pull{{{99, 0, {0, 0, 0, 2, {0, 50}}}}});
  EXPECT_EQ(stranger.sender.stats().slices, 1u);
  EXPECT_TRUE(p.senders[0]->offers_ended.empty());
  stranger.next = 3;
  stranger.say(Done{});
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::damaged, "is missing");
}

TEST(Session, a_prefill_rank_that_breaks_the_protocol_is_named) {
  const auto tries = [](const Body& body, uint32_t sequence, const std::string& words) {
    Pair p;
    const uint64_t s = p.open();
    Header h;
    h.type = Type::source_abort;
    h.session = s;
    h.sequence = sequence;
    p.decode->receiver->on_message(p.peers[0], encode(h, body));
    p.decode->drain();
    expect_says(p.end_of(s), Code::damaged, words);
    expect_says(p.end_of(s), Code::damaged, "10.0.0.0");
  };
  tries(Published{{{0, 0, 1, {0, 10}}}}, 0, "not expected");
  tries(Published{}, 1, "is missing");
  tries(Accept{facts_hash(small_model()), 1, {}}, 0, "too small");
}

TEST(Session, what_waits_is_bounded) {
  Pair p;
  Sender::Options so;
  so.max_early_opens = 2;
  so.max_offers = 1;
  std::vector<std::byte> memory(Staging::slot_bytes_for(kMinSliceBytes) + 64);
  const MutableBytes aligned(memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64,
                             Staging::slot_bytes_for(kMinSliceBytes));
  Sender sender(so, Staging::make(aligned, kMinSliceBytes).value(), p.net.link(p.senders[0]->id), *p.senders[0]);
  for (uint64_t i = 0; i < 3; ++i) {
    Open open{request_id(10 + i), 1000, 1, kMinSliceBytes, p.facts, {p.sources[0].caches[0]->part()}};
    sender.on_message(p.peers[0] + 1, encode({Type::open, 0, 0, 20 + i, 0}, open), p.now());
  }
  EXPECT_EQ(sender.early_opens(), 2u);
  EXPECT_EQ(sender.stats().refused_opens, 1u);
  EXPECT_TRUE(sender.offer({request_id(1), p.facts, p.sources[0].locals(), kNever}, p.now()).ok());
  EXPECT_EQ(sender.offer({request_id(2), p.facts, p.sources[0].locals(), kNever}, p.now()).code(), Code::at_limit);
  sender.tick(p.now() + 1000);
  EXPECT_EQ(sender.early_opens(), 0u);

  Receiver::Options ro;
  ro.max_sessions = 1;
  Receiver receiver(ro, Staging::make(aligned, kMinSliceBytes).value(), p.net.link(p.decode->id));
  EXPECT_TRUE(receiver.open(p.request(), p.now()).ok());
  EXPECT_EQ(receiver.open(p.request(), p.now()).status().code(), Code::at_limit);
  EXPECT_EQ(Staging::make(aligned.first(100), kMinSliceBytes).status().code(), Code::invalid_argument);
  EXPECT_EQ(Staging::make(aligned.subspan(1), kMinSliceBytes).status().code(), Code::invalid_argument);
  EXPECT_EQ(Staging::make(aligned, 1).status().code(), Code::invalid_argument);
}

// Without the close, no side would notice the loss of the last messages.
TEST(Session, a_peer_that_lets_too_much_wait_loses_its_connection_and_both_sides_hear_of_it) {
  SessionNode::Options options;
  options.outbox_bytes = 100;
  Pair p({1, 1, 16, layout::Form::nhd, false, 0}, small_model(), options);
  OpenRequest request = p.request();
  request.deadline_ns = kNever;
  const uint64_t s = p.open(std::move(request));
  ASSERT_TRUE(p.senders[0]->sender->offer({request_id(1), p.facts, p.sources[0].locals(), kNever}, p.now()).ok());
  p.senders[0]->drain();
  p.run(2);
  p.net.faults.full = 1;
  for (uint32_t layer = 0; layer < 4; ++layer) p.publish(0, layer);
  p.net.faults.full = 0;
  p.run(10'000);
  ASSERT_EQ(p.decode->finished.count(s), 1U);
  EXPECT_EQ(p.decode->finished.at(s).code(), Code::owner_gone);
  ASSERT_EQ(p.senders[0]->offers_ended.count(request_id(1)), 1U);
  EXPECT_FALSE(p.senders[0]->offers_ended.at(request_id(1)).ok());
}

TEST(Session, a_peer_whose_transfers_do_not_end_gets_no_more_staging) {
  Pair p;
  Receiver::Options ro;
  ro.max_quarantined_per_peer = 1;
  std::vector<std::byte> memory(Staging::slot_bytes_for(kMinSliceBytes) * 2 + 64);
  const MutableBytes aligned(memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64,
                             Staging::slot_bytes_for(kMinSliceBytes) * 2);
  p.decode->receiver =
      std::make_unique<Receiver>(ro, Staging::make(aligned, kMinSliceBytes).value(), p.net.link(p.decode->id));
  for (size_t i : {0U, 1U}) {
    ASSERT_TRUE(p.offer(i).ok());
    p.publish_all(i);
  }
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.decode->receiver->staging_taken() == 2; });
  ASSERT_TRUE(p.decode->receiver->abort(s, Code::cancelled, "").ok());
  p.decode->drain();
  EXPECT_GE(p.decode->receiver->quarantined(), 1u);
  const auto again = p.decode->receiver->open(p.request(), p.now());
  expect_says(again.status(), Code::no_room, "reconnect it");
  p.run(5);
  EXPECT_EQ(p.decode->receiver->quarantined(), 0u);
  EXPECT_TRUE(p.decode->receiver->open(p.request(), p.now()).ok());
}

}  // namespace
}  // namespace kvbm::test::session_protocol_test

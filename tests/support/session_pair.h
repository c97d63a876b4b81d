// Two prefill ranks and a decode rank that wants all that they have, any of them on a device: some slices of four
// layers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/session_world.h"

namespace kvbm::test {

// Two prefill ranks, one decode rank that wants all; sixteen slices and more.
struct SessionPair {
  static constexpr uint64_t kMs = 1'000'000;
  static constexpr uint64_t kTokens = 300;

  SessionPair(bool prefill_on_device, bool decode_on_device, uint32_t decode_slots = 4) {
    facts.components.push_back(layout::attention(4, 4, 128, layout::Element::bf16));
    sources = make_side(facts, {2, 1, 16, layout::Form::nhd, false, 0}, kTokens, sim.random());
    targets = make_side(facts, {1, 1, 32, layout::Form::blocks_hnd, false, 0}, kTokens, sim.random());
    SessionNode::Options options;
    for (size_t i = 0; i < sources.size(); ++i) {
      options.rank = static_cast<uint16_t>(i);
      senders.push_back(std::make_unique<SessionNode>(sim, net, options));
      sources[i].fill_all(7);
      if (prefill_on_device) sources[i].mover = &senders[i]->mover;
    }
    options.rank = 0;
    options.staging_slots = decode_slots;
    decode = std::make_unique<SessionNode>(sim, net, options);
    decode->seed = 7;
    decode->target = &targets[0];
    if (decode_on_device) targets[0].mover = &decode->mover;
    for (auto& s : senders) peers.push_back(net.connect(decode->id, s->id).first);
  }
  void offer_all(uint64_t request = 1, bool published = true) {
    for (size_t i = 0; i < senders.size(); ++i) {
      auto& sender = *senders[i]->sender;
      ASSERT_TRUE(sender.offer({request_id(request), facts, sources[i].locals(), now() + 100 * kMs}, now()).ok());
      if (published) {
        ASSERT_TRUE(sender.publish_all(request_id(request)).ok());
      }
      senders[i]->drain();
    }
  }
  void publish_all(uint64_t request = 1) {
    for (auto& s : senders) {
      ASSERT_TRUE(s->sender->publish_all(request_id(request)).ok());
      s->drain();
    }
  }
  uint64_t open(uint64_t request = 1) {
    cluster::session::OpenRequest r;
    r.request = request_id(request);
    r.facts = facts;
    r.targets = targets[0].locals();
    for (size_t i = 0; i < peers.size(); ++i) {
      r.sources.push_back({peers[i], static_cast<uint16_t>(i), "10.0.0." + std::to_string(i)});
    }
    r.deadline_ns = now() + 50 * kMs;
    const auto session = decode->receiver->open(std::move(r), now());
    EXPECT_TRUE(session.ok()) << session.status().message();
    decode->drain();
    return session.ok() ? session.value() : 0;
  }
  void run(uint64_t ms) { sim.run_for(ms * kMs); }
  Status end_of(uint64_t session) {
    sim.run_until([&] { return decode->finished.count(session) != 0; });
    return decode->finished.count(session) != 0 ? decode->finished.at(session) : Status(Code::internal, "no end");
  }
  // Expects that no slot is taken, no hold is left and no transfer is in progress on any side.
  void expect_quiet() {
    EXPECT_EQ(decode->receiver->sessions(), 0U);
    EXPECT_EQ(decode->receiver->staging_taken(), 0U);
    EXPECT_EQ(decode->mover.under_way(), 0U);
    for (auto& s : senders) {
      EXPECT_EQ(s->sender->staging_taken(), 0U);
      EXPECT_EQ(s->sender->offers(), 0U);
      EXPECT_TRUE(s->held.empty());
      EXPECT_EQ(s->mover.under_way(), 0U);
      EXPECT_EQ(s->sender->shared_taken(), 0U);
    }
  }
  [[nodiscard]] uint64_t now() const { return sim.clock().now_ns(); }

  SimExecutor sim{20261122};
  SessionNetwork net{sim};
  cluster::session::Facts facts;
  std::vector<RankEngine> sources, targets;
  std::vector<std::unique_ptr<SessionNode>> senders;
  std::unique_ptr<SessionNode> decode;
  std::vector<uint64_t> peers;
};

inline void expect_says(const Status& s, Code code, const std::string& words) {
  EXPECT_EQ(s.code(), code) << s.message();
  EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
}

}  // namespace kvbm::test

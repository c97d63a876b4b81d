// Payloads that a transport reads and writes in the memory of devices: each side chooses for itself, and whatever goes
// wrong with it is mended through host memory.
#include <gtest/gtest.h>

#include <functional>

#include "support/session_pair.h"

namespace kvbm::test::session_direct_test {
namespace {

using namespace cluster::session;

constexpr uint64_t kAll = 24;  // slices of the world

struct Pair : SessionPair {
  explicit Pair(bool prefill_on_device = true, bool decode_on_device = true)
      : SessionPair(prefill_on_device, decode_on_device) {
    for (auto& s : senders) net.direct(s->id).takes = true;
    net.direct(decode->id).takes = true;
  }
  [[nodiscard]] const ReceiverStats& in() const { return decode->receiver->stats(); }
  [[nodiscard]] uint64_t sent_direct() const {
    uint64_t n = 0;
    for (const auto& s : senders) n += s->sender->stats().direct_slices;
    return n;
  }
  [[nodiscard]] uint64_t sent_slices() const {
    uint64_t n = 0;
    for (const auto& s : senders) n += s->sender->stats().slices;
    return n;
  }
  void expect_right(uint64_t session) {
    const Status end = end_of(session);
    EXPECT_TRUE(end.ok()) << end.message();
    EXPECT_EQ(targets[0].check(7), "");
    run(5);
    expect_no_slots();
    expect_quiet();
    EXPECT_EQ(net.borrowed(), 0U);
  }
  void expect_no_slots() {
    EXPECT_EQ(decode->receiver->direct_taken(), 0U);
    for (auto& s : senders) EXPECT_EQ(s->sender->direct_taken(), 0U);
  }
  // Runs one request, after which both sides have their device memory.
  void warm() {
    offer_all(100);
    expect_right(open(100));
    run(5);
    sent_ = sent_direct(), came_ = in().direct_slices;
  }
  uint64_t one(uint64_t request) {
    offer_all(request);
    const uint64_t session = open(request);
    expect_right(session);
    return session;
  }
  // Count slices since warm().
  [[nodiscard]] uint64_t sent() const { return sent_direct() - sent_; }
  [[nodiscard]] uint64_t came() const { return in().direct_slices - came_; }

 private:
  uint64_t sent_ = 0, came_ = 0;
};

TEST(SessionDirect, payloads_go_from_device_memory_to_device_memory) {
  Pair p;
  p.warm();
  p.one(1);
  EXPECT_EQ(p.sent(), kAll);
  EXPECT_EQ(p.came(), kAll);
  EXPECT_GT(p.in().direct_bytes, kAll * 64 * 1024);
  EXPECT_EQ(p.decode->receiver->direct_failures(), 0U);
}

TEST(SessionDirect, each_side_chooses_for_itself) {
  struct Case {
    const char* what;
    bool from, to;  // on devices
    std::function<void(Pair&)> change;
    uint64_t sent, came;
  };
  const auto none = [](Pair&) {};
  const Case cases[] = {
      {"into host memory", true, false, none, kAll, 0},
      {"out of host memory", false, true, none, 0, kAll},
      {"a decode side whose transport takes none", true, true,
       [](Pair& p) { p.net.direct(p.decode->id).takes = false; }, kAll, 0},
      {"prefill sides whose transports take none", true, true,
       [](Pair& p) { p.net.direct(p.senders[0]->id).takes = p.net.direct(p.senders[1]->id).takes = false; }, 0, kAll},
      {"a decode side that cannot register", true, true, [](Pair& p) { p.net.direct(p.decode->id).refuses = true; },
       kAll, 0},
      {"a device that no card reaches", true, true, [](Pair& p) { p.decode->mover.refuses_direct = true; }, kAll, 0},
      {"an older library", true, true, [](Pair& p) { p.net.ways = false; }, kAll, 0},
      {"a library that knows other ways alone", true, true, [](Pair& p) { p.net.apart = false; }, kAll, 0},
      {"leaves of many runs", true, true, [](Pair& p) { p.net.grains = false; }, 0, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Pair p(c.from, c.to);
    c.change(p);
    p.warm();
    p.one(1);
    EXPECT_EQ(p.sent(), c.sent);
    EXPECT_EQ(p.came(), c.came);
    EXPECT_EQ(p.in().damaged_slices, 0U);
  }
}

// The serving side decides: the slot on the device is freed, and requested again the next time.
TEST(SessionDirect, the_whole_may_come_in_place_of_a_payload_apart) {
  Pair p;
  p.warm();
  p.net.whole = true;
  p.one(1);
  EXPECT_EQ(p.came(), 0U);
  EXPECT_EQ(p.in().damaged_slices, 0U);
  EXPECT_EQ(p.decode->receiver->direct_failures(), 0U);
  p.net.whole = false;
  p.one(2);
  EXPECT_EQ(p.came(), kAll);
}

TEST(SessionDirect, memory_that_is_mapped_is_read_where_it_is) {
  Pair p;
  for (auto& s : p.senders) s->mover.machine = 1;
  p.decode->mover.machine = 1;
  p.warm();
  p.offer_all(1, false);
  const uint64_t s = p.open(1);
  ASSERT_TRUE(p.sim.run_until([&] { return p.decode->receiver->mapped() == 2; }));
  const uint64_t before = p.in().shared_slices;
  p.publish_all(1);
  p.expect_right(s);
  EXPECT_EQ(p.in().shared_slices - before, kAll);
  EXPECT_EQ(p.came(), 0U);
}

TEST(SessionDirect, what_is_refused_is_said_once_and_asked_for_once) {
  Pair p;
  p.net.direct(p.decode->id).refuses = true;
  for (const uint64_t request : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) p.one(request);
  EXPECT_EQ(p.in().direct_slices, 0U);
  EXPECT_EQ(p.decode->receiver->direct_failures(), 1U);
  EXPECT_EQ(p.decode->notes.size(), 1U);
  EXPECT_NE(p.decode->notes[0].find("host memory"), std::string::npos) << p.decode->notes[0];
}

TEST(SessionDirect, a_transfer_that_fails_is_made_again_through_host_memory_and_so_is_the_rest) {
  for (const bool prefill : {false, true}) {
    SCOPED_TRACE(prefill);
    Pair p;
    p.warm();
    if (prefill) {
      p.net.direct(p.senders[0]->id).fails = 1;
    } else {
      p.net.direct(p.decode->id).fails = 1;
    }
    const uint64_t warm = p.senders[0]->sender->stats().direct_slices;
    const uint64_t slices = p.sent_slices();
    p.one(1);
    EXPECT_EQ(p.in().damaged_slices, 0U);
    if (prefill) {
      EXPECT_EQ(p.senders[0]->sender->stats().direct_slices, warm) << "what failed is none";
      EXPECT_EQ(p.sent_slices() - slices, kAll) << "each is sent once";
    }
    const uint64_t failures = prefill ? p.senders[0]->sender->direct_failures() : p.decode->receiver->direct_failures();
    EXPECT_EQ(failures, prefill ? 1U : 2U) << "one a connection";
    EXPECT_EQ(prefill ? p.senders[0]->notes.size() : p.decode->notes.size(), failures);
    const uint64_t before = prefill ? p.senders[0]->sender->stats().direct_slices : p.in().direct_slices;
    p.one(2);
    EXPECT_EQ(prefill ? p.senders[0]->sender->stats().direct_slices : p.in().direct_slices, before);
  }
}

TEST(SessionDirect, memory_that_never_works_is_given_up) {
  Pair p;
  p.net.direct(p.decode->id).fails = 1;
  p.one(1);
  for (uint64_t request = 2; request < 8; ++request) {
    for (auto& peer : p.peers) p.net.cut(peer);
    p.run(5);
    for (size_t i = 0; i < p.senders.size(); ++i) p.peers[i] = p.net.connect(p.decode->id, p.senders[i]->id).first;
    p.one(request);
  }
  EXPECT_EQ(p.decode->receiver->direct_failures(), 4U);
  EXPECT_EQ(p.in().direct_slices, 0U);
}

TEST(SessionDirect, wrong_bytes_are_found_by_the_device_and_pulled_again_through_host_memory) {
  Pair p;
  p.warm();
  p.net.faults.garble = 0.3;
  p.offer_all(1);
  const uint64_t s = p.open(1);
  ASSERT_TRUE(p.sim.run_until([&] { return p.in().damaged_slices > 2; }));
  p.net.faults.garble = 0;
  p.expect_right(s);
  EXPECT_LT(p.came(), kAll);
}

TEST(SessionDirect, a_scatter_that_finds_damage_ends_that_way_for_the_connection) {
  Pair p;
  p.warm();
  p.decode->mover.spoil = 1;
  p.offer_all(1);
  const uint64_t s = p.open(1);
  ASSERT_TRUE(p.sim.run_until([&] { return p.in().damaged_slices > 0; }));
  p.decode->mover.spoil = 0;
  p.expect_right(s);
  EXPECT_GT(p.decode->receiver->direct_failures(), 0U);
  const uint64_t before = p.came();
  p.one(2);
  EXPECT_LT(p.came() - before, kAll);
}

// Slots stay allocated until the transport has reported its last write; SessionNetwork fails a test that breaks this.
TEST(SessionDirect, an_end_in_the_middle_leaves_no_slot_behind) {
  for (int step = 0; step < 40; ++step) {
    for (const int what : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(step) + "." + std::to_string(what));
      Pair p;
      p.warm();
      p.offer_all(1);
      const uint64_t s = p.open(1);
      p.sim.run_for(static_cast<uint64_t>(step) * 50'000);
      if (what == 0) (void)p.decode->receiver->abort(s, Code::cancelled, "the client went away");
      if (what == 1) (void)p.senders[0]->sender->abort(request_id(1), Code::cancelled, "the engine needs its blocks");
      if (what == 2) p.net.cut(p.peers[1]);
      if (what == 3) p.net.freeze(p.decode->id, true);
      p.decode->drain();
      p.senders[0]->drain();
      p.run(120);
      p.net.freeze(p.decode->id, false);
      p.run(120);
      EXPECT_EQ(p.decode->finished.count(s), 1U);
      p.expect_no_slots();
      p.expect_quiet();
      EXPECT_EQ(p.net.borrowed(), 0U);
    }
  }
}

TEST(SessionDirect, a_prefill_rank_or_a_decode_rank_that_is_killed_leaves_no_slot_with_the_other) {
  for (const bool prefill : {false, true}) {
    for (int step = 0; step < 20; ++step) {
      Pair p;
      p.warm();
      p.offer_all(1);
      const uint64_t s = p.open(1);
      p.sim.run_for(static_cast<uint64_t>(step) * 100'000);
      if (prefill) {
        p.net.kill(p.senders[0]->id);
        p.senders[0]->sender.reset();
        p.run(200);
        EXPECT_EQ(p.decode->finished.count(s), 1U);
        EXPECT_EQ(p.decode->receiver->direct_taken(), 0U);
        EXPECT_EQ(p.decode->receiver->staging_taken(), 0U);
      } else {
        p.net.kill(p.decode->id);
        p.run(200);
        for (auto& sender : p.senders) EXPECT_EQ(sender->sender->direct_taken(), 0U);
        for (auto& sender : p.senders) EXPECT_EQ(sender->sender->staging_taken(), 0U);
      }
    }
  }
}

TEST(SessionDirect, a_lost_device_ends_the_session_on_both_sides) {
  for (const bool prefill : {false, true}) {
    Pair p;
    p.warm();
    p.offer_all(1, false);
    const uint64_t s = p.open(1);
    if (prefill) p.senders[1]->mover.lose();
    const uint64_t before = p.decode->mover.landed_moves();
    p.publish_all();
    p.sim.run_until([&] { return p.decode->mover.landed_moves() >= before + 2; });
    if (!prefill) p.decode->mover.lose();
    expect_says(p.end_of(s), Code::tier_disabled, "the device is lost");
    p.run(5);
    p.expect_no_slots();
    p.expect_quiet();
  }
}

TEST(SessionDirect, a_payload_apart_that_is_asked_for_under_no_tag_of_a_slot_comes_behind_its_head) {
  Pair p;
  p.offer_all();
  Sender& sender = *p.senders[0]->sender;
  auto say = [&, next = uint32_t{0}](const Body& body) mutable {
    sender.on_message(p.peers[0] + 1, encode({Type::open, 0, 0, 9, next++}, body), p.now());
    p.senders[0]->drain();
  };
  say(Open{request_id(1), 40 * Pair::kMs, 1, kMinSliceBytes, p.facts, {p.sources[0].caches[0]->part()}, kWayApart});
  say(Pull{{{77 | kPayloadBit, 0, {0, 0, 0, 2, {0, 64}, 16}, 0xFF}, {78, 1, {0, 1, 0, 2, {0, 64}, 16}, 0xFF}}});
  p.run(2);
  EXPECT_EQ(sender.stats().slices, 2U);
  EXPECT_EQ(sender.staging_taken(), 0U);
}

}  // namespace
}  // namespace kvbm::test::session_direct_test

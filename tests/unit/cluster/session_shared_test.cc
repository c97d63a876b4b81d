// Payloads that stay in device memory which both sides of a session reach: which side shares, the slots after the end
// of either side, and memory that has been replaced.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "support/session_pair.h"

namespace kvbm::test::session_shared_test {
namespace {

using namespace cluster::session;

// All slices: two ranks, four layers, three slices each.
constexpr uint64_t kAll = 24;

// Sets the machines that both sides' devices are in. Devices share memory only on one machine.
struct Pair : SessionPair {
  explicit Pair(uint8_t prefill_machine = 1, uint8_t decode_machine = 1, uint32_t decode_slots = 4)
      : SessionPair(true, true, decode_slots) {
    for (auto& s : senders) s->mover.machine = prefill_machine;
    decode->mover.machine = decode_machine;
  }
  [[nodiscard]] const ReceiverStats& in() const { return decode->receiver->stats(); }
  [[nodiscard]] uint64_t sent_shared() const {
    uint64_t n = 0;
    for (const auto& s : senders) n += s->sender ? s->sender->stats().shared_slices : 0;
    return n;
  }
  // Opens a session and maps the shared memory. Nothing is published yet.
  uint64_t open_mapped(uint64_t request = 1) {
    offer_all(request, false);
    const uint64_t session = open(request);
    EXPECT_TRUE(sim.run_until([&] { return decode->receiver->mapped() == 2; }));
    return session;
  }
  // Runs until the device reads so many slices, and keeps it from ending.
  void read_and_hold(uint64_t slices) {
    decode->mover.held = true;
    publish_all();
    ASSERT_TRUE(sim.run_until([&] { return decode->mover.under_way() == slices; }));
    ASSERT_GT(sent_shared(), 0U);
  }
  void expect_right(uint64_t session) {
    const Status end = end_of(session);
    EXPECT_TRUE(end.ok()) << end.message();
    EXPECT_EQ(targets[0].check(7), "");
    run(5);
    expect_quiet();
  }
};

TEST(SessionShared, payloads_of_one_machine_stay_where_they_are) {
  Pair p;
  const uint64_t s = p.open_mapped();
  p.publish_all();
  p.expect_right(s);
  EXPECT_EQ(p.in().slices, kAll);
  EXPECT_EQ(p.in().shared_slices, kAll);
  EXPECT_EQ(p.in().shared_bytes, p.in().bytes);
  EXPECT_EQ(p.sent_shared(), kAll);
  EXPECT_EQ(p.decode->mover.shared_moves(), kAll);
}

TEST(SessionShared, nothing_waits_for_a_mapping_and_the_next_session_finds_it) {
  Pair p;
  p.offer_all();
  p.expect_right(p.open());
  EXPECT_EQ(p.in().slices, kAll);
  p.run(5);
  const uint64_t maps = p.in().maps;
  const uint64_t before = p.in().shared_slices;
  EXPECT_EQ(p.decode->receiver->mapped(), maps);
  p.offer_all(2);
  p.expect_right(p.open(2));
  if (maps == 2) {
    EXPECT_EQ(p.in().shared_slices - before, kAll);
  }
  EXPECT_EQ(p.in().maps, 2U) << "each rank's memory is mapped once";
}

TEST(SessionShared, whoever_cannot_share_gets_payloads_over_the_link) {
  struct Case {
    const char* what;
    std::function<void(Pair&)> change;
    uint64_t refused;
  };
  const Case cases[] = {
      {"another machine", [](Pair& p) { p.decode->mover.machine = 2; }, 2},
      {"the system does not allow it", [](Pair& p) { p.decode->mover.refuses_to_map = true; }, 2},
      {"the decode side is told not to", [](Pair& p) { p.decode->mover.machine = 0; }, 0},
      {"the prefill side is told not to",
       [](Pair& p) { p.senders[0]->mover.machine = p.senders[1]->mover.machine = 0; }, 0},
      {"an older library", [](Pair& p) { p.net.ways = false; }, 0},
      {"leaves of many runs", [](Pair& p) { p.net.grains = false; }, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Pair p;
    c.change(p);
    for (const uint64_t request : {uint64_t{1}, uint64_t{2}}) {
      p.offer_all(request, false);
      const uint64_t s = p.open(request);
      p.run(3);
      p.publish_all(request);
      p.expect_right(s);
    }
    EXPECT_EQ(p.in().shared_slices, 0U);
    EXPECT_EQ(p.sent_shared(), 0U);
    EXPECT_EQ(p.in().slices, 2 * kAll);
    EXPECT_EQ(p.in().refused_maps, c.refused) << "once a connection, not once a session";
  }
}

TEST(SessionShared, only_one_side_on_a_device_shares_nothing) {
  for (const bool from : {false, true}) {
    SessionPair p(from, !from);
    p.senders[0]->mover.machine = p.senders[1]->mover.machine = p.decode->mover.machine = 1;
    p.offer_all();
    EXPECT_TRUE(p.end_of(p.open()).ok());
    EXPECT_EQ(p.targets[0].check(7), "");
    EXPECT_EQ(p.decode->receiver->stats().maps + p.decode->receiver->stats().refused_maps, 0U);
  }
}

// Four slots a rank, and a decode side that could read twelve at once.
TEST(SessionShared, when_slots_are_out_the_rest_comes_over_the_link) {
  Pair p(1, 1, 12);
  const uint64_t s = p.open_mapped();
  p.read_and_hold(12);
  EXPECT_EQ(p.senders[0]->sender->shared_taken() + p.senders[1]->sender->shared_taken(), p.sent_shared());
  EXPECT_LE(p.sent_shared(), 8U);
  p.decode->mover.release();
  p.expect_right(s);
  EXPECT_LT(p.in().shared_slices, kAll);
}

// The shared memory changes, as when a slot is reused too early, or the other process writes to it. No slice read from
// it is accepted.
TEST(SessionShared, memory_that_is_not_what_was_said_is_found_and_pulled_over_the_link) {
  Pair p;
  const uint64_t s = p.open_mapped();
  p.read_and_hold(4);
  for (auto& sender : p.senders) std::memset(sender->mover.shared().data(), 0x5A, sender->mover.shared().size());
  p.decode->mover.release();
  p.expect_right(s);
  EXPECT_EQ(p.in().damaged_slices, 4U);
  EXPECT_EQ(p.in().shared_slices, kAll - 4) << "these came the other way";
}

TEST(SessionShared, a_prefill_rank_that_is_killed_while_it_is_read_ends_the_session_and_no_layer_is_wrong) {
  for (const bool overwritten : {false, true}) {
    Pair p;
    const uint64_t s = p.open_mapped();
    p.read_and_hold(4);
    const MutableBytes left = p.senders[0]->mover.shared();
    if (overwritten) std::memset(left.data(), 0x5A, left.size());
    p.net.kill(p.senders[0]->id);
    p.senders[0]->sender.reset();
    p.run(2);
    p.decode->mover.release();
    const Status end = p.end_of(s);
    EXPECT_EQ(end.code(), Code::owner_gone) << end.message();
    EXPECT_NE(end.message().find("10.0.0.0"), std::string::npos) << end.message();
    p.run(200);
    EXPECT_EQ(p.decode->receiver->staging_taken(), 0U);
    EXPECT_EQ(p.decode->receiver->mapped(), 1U) << "the other rank's";
    EXPECT_EQ(p.senders[1]->sender->shared_taken(), 0U);
  }
}

TEST(SessionShared, slots_of_a_decode_rank_that_is_killed_are_free_again) {
  Pair p;
  (void)p.open_mapped();
  p.read_and_hold(4);
  EXPECT_GT(p.senders[0]->sender->shared_taken() + p.senders[1]->sender->shared_taken(), 0U);
  p.net.kill(p.decode->id);
  p.run(200);
  for (auto& s : p.senders) {
    EXPECT_EQ(s->sender->shared_taken(), 0U);
    EXPECT_EQ(s->sender->offers(), 0U);
    EXPECT_EQ(s->offers_ended.at(request_id(1)).code(), Code::owner_gone);
  }
}

TEST(SessionShared, slots_of_a_decode_rank_that_never_gives_them_back_are_free_at_its_deadline) {
  Pair p;
  (void)p.open_mapped();
  p.read_and_hold(4);
  p.net.freeze(p.decode->id, true);
  p.run(200);
  for (auto& s : p.senders) {
    EXPECT_EQ(s->sender->shared_taken(), 0U);
    EXPECT_EQ(s->offers_ended.at(request_id(1)).code(), Code::deadline);
  }
}

TEST(SessionShared, an_abort_frees_the_slots_and_is_told_when_the_device_reads_no_more) {
  Pair p;
  const uint64_t s = p.open_mapped();
  p.read_and_hold(4);
  ASSERT_TRUE(p.decode->receiver->abort(s, Code::cancelled, "the client went away").ok());
  p.decode->drain();
  p.run(5);
  EXPECT_EQ(p.decode->finished.count(s), 0U) << "a device still reads and writes";
  for (auto& sender : p.senders) EXPECT_EQ(sender->sender->shared_taken(), 0U);
  p.decode->mover.release();
  EXPECT_EQ(p.end_of(s).code(), Code::cancelled);
  p.run(5);
  p.expect_quiet();
}

TEST(SessionShared, a_lost_device_ends_the_session_on_both_sides) {
  for (const bool prefill : {false, true}) {
    Pair p;
    const uint64_t s = p.open_mapped();
    if (prefill) p.senders[1]->mover.lose();
    p.publish_all();
    p.sim.run_until([&] { return p.decode->mover.shared_moves() >= 2; });
    if (!prefill) p.decode->mover.lose();
    expect_says(p.end_of(s), Code::tier_disabled, "the device is lost");
    p.run(5);
    EXPECT_EQ(p.senders[1]->offers_ended.at(request_id(1)).code(), Code::tier_disabled);
    p.expect_quiet();
  }
}

// ---- Peers that say what they should not ----

// A decode rank that sends any message.
struct Stranger {
  explicit Stranger(Pair& p) : pair(p), sender(*p.senders[0]->sender) {
    Open open{request_id(1), 40 * Pair::kMs, 1, kMinSliceBytes, p.facts, {p.sources[0].caches[0]->part()}, kWayShared};
    say(open);
  }
  void say(const Body& body) {
    sender.on_message(pair.peers[0] + 1, encode({Type::open, 0, 0, 9, next++}, body), pair.now());
    pair.senders[0]->drain();
  }
  Pair& pair;
  Sender& sender;
  uint32_t next = 0;
};

const std::vector<std::byte> kHere{std::byte{1}};

TEST(SessionShared, a_question_that_comes_twice_ends_that_session) {
  Pair p;
  p.offer_all(1, false);
  Stranger stranger(p);
  stranger.say(Map{kHere});
  EXPECT_TRUE(p.senders[0]->offers_ended.empty());
  stranger.say(Map{kHere});
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::damaged, "asked for twice");
}

TEST(SessionShared, a_place_that_is_none_is_refused_and_the_session_goes_on) {
  for (const size_t size : {size_t{0}, size_t{2}, kMaxPlaceBytes}) {
    Pair p;
    p.offer_all(1, false);
    Stranger stranger(p);
    stranger.say(Map{std::vector<std::byte>(size)});
    p.run(2);
    EXPECT_TRUE(p.senders[0]->offers_ended.empty());
    EXPECT_TRUE(p.senders[0]->mover.shared().empty()) << "nothing was made for it";
  }
}

TEST(SessionShared, slots_are_given_back_by_the_pull_that_has_them_alone) {
  Pair p;
  p.offer_all();
  Stranger stranger(p);
  stranger.say(Map{kHere});
  p.run(2);
  stranger.say(Pull{{{77, 0, {0, 0, 0, 2, {0, 64}, 16}, kWayShared}, {78, 1, {0, 1, 0, 2, {0, 64}, 16}, kWayShared}}});
  p.run(2);
  EXPECT_EQ(stranger.sender.shared_taken(), 2U);
  stranger.say(Release{{0, 76, 79}});
  EXPECT_EQ(stranger.sender.shared_taken(), 2U);
  stranger.say(Release{{78, 78, 78}});
  EXPECT_EQ(stranger.sender.shared_taken(), 1U);
  stranger.say(Release{{77}});
  EXPECT_EQ(stranger.sender.shared_taken(), 0U);
}

TEST(SessionShared, who_has_not_asked_gets_no_slot) {
  Pair p;
  p.offer_all();
  Stranger stranger(p);
  stranger.say(Pull{{{77, 0, {0, 0, 0, 2, {0, 64}, 16}, 0xFF}}});
  p.run(2);
  EXPECT_EQ(stranger.sender.stats().slices, 1U);
  EXPECT_EQ(stranger.sender.stats().shared_slices, 0U);
}

TEST(SessionShared, memory_that_nobody_asked_for_ends_the_session_and_names_the_peer) {
  Pair p;
  const uint64_t s = p.open_mapped();
  Header h;
  h.session = s;
  h.sequence = 2;
  p.decode->receiver->on_message(p.peers[0], encode(h, Shared{Code::ok, 4, 1 << 20, kHere, ""}));
  p.decode->drain();
  EXPECT_EQ(p.decode->finished.count(s), 1U);
  expect_says(p.end_of(s), Code::damaged, "10.0.0.0");
}

// The announced memory does not exist, or is smaller than its slots. The rank's own answer comes later; it was sent
// before.
TEST(SessionShared, memory_that_is_not_there_is_refused_and_the_session_goes_on) {
  for (const uint32_t slots : {1U, 1U << 16}) {
    Pair p;
    p.offer_all(1, false);
    const uint64_t s = p.open();
    ASSERT_TRUE(p.sim.run_until([&] { return !p.senders[0]->mover.shared().empty(); }));
    Header h;
    h.session = s;
    h.sequence = 1;
    const std::vector<std::byte> name(8, slots == 1 ? std::byte{0xFF} : std::byte{0});
    p.decode->receiver->on_message(p.peers[0], encode(h, Shared{Code::ok, slots, 1 << 20, name, ""}));
    p.decode->drain();
    p.run(2);
    EXPECT_EQ(p.in().refused_maps, 1U);
    EXPECT_EQ(p.decode->receiver->mapped(), 1U) << "the other rank's";
    p.publish_all();
    p.expect_right(s);
    EXPECT_EQ(p.in().shared_slices, kAll / 2);
  }
}

}  // namespace
}  // namespace kvbm::test::session_shared_test

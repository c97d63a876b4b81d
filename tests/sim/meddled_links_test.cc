// Nodes with an attacker on the path of their control messages and blocks. Real managers, meshes and links run over
// the simulated network, from a seed. Without a key, an attacker that reads the handshake can also put a valid tag on
// altered messages. Other worlds have keys, one of them a wrong key. In the worlds with one key and authenticated or
// encrypted links, the attacker also forges blocks together with all their hashes.
//
// Invariants:
// - An altered message or block causes a refused or an ended connection, which the log names with the peer's address,
//   or a miss.
// - No load returns a wrong block.
// - Every operation ends.
// - Once the attack stops, the nodes connect again and hold nothing for each other.
// KVBMTEST_SIM_SEEDS is the number of seeds of each way (default 40), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1
// runs 2,000.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "support/counts.h"
#include "support/forged_bulk.h"
#include "support/meddler.h"
#include "support/node_world.h"
#include "support/simulated_kills.h"

namespace kvbm::test::meddled_links_test {
namespace {

const SimulatedKills kills(__FILE__);

NodeWorld::Keys no_keys() { return NodeWorld::Keys(kNodes); }

cluster::SharedKey key_of_byte(uint8_t byte) {
  cluster::SharedKey key;
  key.fill(byte);
  return key;
}

// The third node has another key than the first two.
NodeWorld::Keys one_wrong_key() { return {key_of_byte(1), key_of_byte(1), key_of_byte(2)}; }

void expect_rest(NodeWorld& w) {
  for (auto& process : w.processes) {
    for (uint64_t n = 0; n < kNodeBlocks; ++n) process->check(n);
    EXPECT_EQ(process->wrong, 0U);
    EXPECT_EQ(process->source().pinned(), 0U);
    EXPECT_EQ(process->source().opened(), 0U);
    EXPECT_EQ(process->buffered(), 0U);
  }
}

TEST(MeddledLinks, without_a_key_nodes_meet_on_loopback_and_an_altered_message_ends_the_connection_by_name) {
  for (int way = 0; way < 3; ++way) {
    SCOPED_TRACE(way);
    NodeWorld w(1, 0, no_keys());
    Meddler meddler(w.sim.random());
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    w.processes[0]->store(1);
    w.net.meddle = meddler.hook();
    (way == 0 ? meddler.flip : way == 1 ? meddler.cut : meddler.grow) = 1;
    w.processes[1]->fetch(1);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[1]->brought, 0U);
    w.sim.run_for(3000 * kMs);
    EXPECT_GT(meddler.altered(), 0U);
    size_t named = 0;
    for (auto& process : w.processes) named += process->logged("127.1.0.", "is gone: ");
    EXPECT_GT(named, 0U);
    w.heal();
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 60'000 * kMs));
    w.processes[1]->fetch(1);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[1]->brought, 1U);
    w.sim.run_for(40'000 * kMs);
    expect_rest(w);
  }
}

TEST(MeddledLinks, nobody_is_let_in_whose_handshake_was_altered) {
  NodeWorld w(2, 0, no_keys());
  Meddler meddler(w.sim.random());
  w.net.meddle = meddler.hook();
  meddler.flip = 1;
  w.processes[0]->store(1);
  w.sim.run_for(10'000 * kMs);
  for (auto& process : w.processes) {
    EXPECT_EQ(process->mesh().ready().size(), 0U);
    EXPECT_GT(process->logged("no link to 127.1.0."), 0U);
  }
  w.processes[1]->fetch(1);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  EXPECT_EQ(w.processes[1]->brought, 0U);
}

TEST(MeddledLinks, a_node_with_another_key_is_refused_by_name_and_gets_nothing) {
  NodeWorld w(3, 0, one_wrong_key());
  w.processes[0]->store(1);
  w.processes[2]->store(2);
  w.sim.run_for(10'000 * kMs);
  EXPECT_EQ(w.processes[0]->mesh().ready().size(), 1U);
  EXPECT_EQ(w.processes[1]->mesh().ready().size(), 1U);
  EXPECT_EQ(w.processes[2]->mesh().ready().size(), 0U);
  EXPECT_GT(w.processes[0]->logged("no link to " + w.address(2), "key"), 0U);
  EXPECT_GT(w.processes[2]->logged("no link to " + w.address(0), "key"), 0U);
  w.processes[2]->fetch(1);
  w.processes[0]->fetch(2);
  w.processes[1]->fetch(1);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  EXPECT_EQ(w.processes[2]->brought, 0U);
  EXPECT_EQ(w.processes[0]->brought, 0U);
  EXPECT_EQ(w.processes[1]->brought, 1U);
}

// Forges bulk chunks on the path, each with a chance of `per_thousand` in 1,000. Most blocks are one chunk. Where the
// chunk cannot be forged and the connection is protected, a bit is changed or an earlier chunk is replayed.
struct BulkForger {
  Random& random;
  uint64_t per_thousand = 0;
  uint64_t tag_bytes = 0;
  uint64_t forged = 0, altered = 0;
  std::vector<std::byte> earlier;

  SimNetwork::Meddle hook() {
    return [this](uint64_t, int, std::vector<std::byte>& chunk) {
      const std::vector<std::byte> said = chunk;
      if (random.below(1000) < per_thousand && chunk.size() > tag_bytes + 1) {
        const MutableBytes bulk = MutableBytes(chunk).first(chunk.size() - tag_bytes);
        if (random.below(4) != 0 && forge_bulk(bulk, random.below(bulk.size()))) {
          ++forged;
        } else if (tag_bytes != 0) {
          ++altered;
          if (random.below(3) == 0 && !earlier.empty()) {
            chunk = earlier;
          } else {
            chunk[random.below(chunk.size())] ^= std::byte{1};
          }
        }
      }
      earlier = said;
    };
  }
};

TEST(MeddledLinks, without_protection_a_forged_block_is_believed_although_both_have_the_key) {
  NodeWorld w(1);
  BulkForger forger{w.sim.random(), 1000, 0, 0, 0, {}};
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  w.processes[0]->store(1);
  w.net.meddle_bulk = forger.hook();
  for (int tries = 0; forger.forged == 0 && tries < 100; ++tries) {
    w.processes[1]->fetch(1);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  }
  ASSERT_GT(forger.forged, 0U);
  EXPECT_GT(w.processes[1]->wrong, 0U);
}

TEST(MeddledLinks, with_protection_a_forged_block_is_a_miss_and_the_link_ends_by_name) {
  for (const auto protect : {copy::Protection::authenticate, copy::Protection::encrypt}) {
    NodeWorld w(1, 0, NodeWorld::Keys(kNodes, cluster::SharedKey{}), protect);
    BulkForger forger{w.sim.random(), 1000, copy::FrameGuard::kTagBytes, 0, 0, {}};
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    w.processes[0]->store(1);
    w.net.meddle_bulk = forger.hook();
    w.processes[1]->fetch(1);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(forger.forged + forger.altered, 1U);
    EXPECT_EQ(w.processes[1]->brought, 0U);
    EXPECT_EQ(w.processes[1]->mesh().counts().violations, 1U);
    EXPECT_EQ(w.processes[1]->logged("is gone: ", "changed"), 1U);
    w.heal();
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 60'000 * kMs));
    w.processes[1]->fetch(1);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[1]->brought, 1U);
    w.sim.run_for(40'000 * kMs);
    expect_rest(w);
  }
}

// Each message by itself, of all that two nodes say while they meet, look up, fetch, offer and take: whichever it is,
// changing a bit of it ends one link or both, and makes nothing wrong.
TEST(MeddledLinks, with_protection_no_message_can_be_changed_whichever_it_is) {
  for (const auto protect : {copy::Protection::authenticate, copy::Protection::encrypt}) {
    uint64_t messages = 1;
    for (uint64_t number = 0; number < messages; ++number) {
      SCOPED_TRACE("message " + std::to_string(number));
      NodeWorld w(1, 0, NodeWorld::Keys(kNodes, cluster::SharedKey{}), protect);
      uint64_t seen = 0;
      bool done = false;
      ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
      // Waits for the last messages of the handshakes: only their proof is protected, so a change elsewhere goes
      // unnoticed.
      w.sim.run_for(100 * kMs);
      w.net.meddle = [&](uint64_t, int, std::vector<std::byte>& message) {
        if (seen++ != number || message.empty()) return;
        done = true;
        message[w.sim.random().below(message.size())] ^= std::byte{2};
      };
      w.processes[0]->store(1);
      w.processes[1]->fetch(1);
      w.processes[0]->store(2);
      w.processes[0]->push(2);
      w.processes[2]->fetch(3);
      ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 20'000 * kMs));
      w.sim.run_for(3000 * kMs);
      uint64_t violations = 0;
      for (auto& process : w.processes) violations += process->mesh().counts().violations;
      EXPECT_TRUE(!done || violations > 0);
      if (number == 0) messages = std::min<uint64_t>(seen, 40);
      w.heal();
      ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 60'000 * kMs));
      w.sim.run_for(40'000 * kMs);
      expect_rest(w);
    }
    EXPECT_GT(messages, 10U);
  }
}

enum class Way { keyless, forged, wrong_key, authenticated, encrypted };

struct Seen {
  uint64_t begun = 0, brought = 0, pushed = 0, altered = 0, forged = 0, ended = 0;
};

NodeWorld::Keys keys_of(Way way) {
  if (way == Way::wrong_key) return one_wrong_key();
  return way == Way::keyless || way == Way::forged ? no_keys() : NodeWorld::Keys(kNodes, cluster::SharedKey{});
}

copy::Protection protection_of(Way way) {
  return way == Way::authenticated ? copy::Protection::authenticate
         : way == Way::encrypted   ? copy::Protection::encrypt
                                   : copy::Protection::off;
}

// Draws the operations from the seed, broken connections among them. Nodes from `stores` on store nothing.
void work(NodeWorld& w, uint64_t steps, size_t stores) {
  Random& random = w.sim.random();
  for (uint64_t step = 0; step < steps; ++step) {
    const size_t i = random.below(kNodes);
    const uint64_t n = random.below(kNodeBlocks);
    switch (random.below(12)) {
      case 0:
        w.net.break_connections(w.nodes[i], w.nodes[(i + 1) % kNodes]);
        break;
      case 1:
      case 2:
      case 3:
        w.processes[i % stores]->store(n);
        break;
      case 4:
      case 5:
        w.processes[i]->push(n);
        break;
      default:
        w.processes[i]->fetch(n);
    }
    w.sim.run_for(random.below(40) * kMs);
  }
}

uint64_t run_seed(uint64_t seed, Way way, Seen& seen) {
  NodeWorld w(seed, seed, keys_of(way), protection_of(way));
  Meddler meddler(w.sim.random());
  const bool guarded = protection_of(way) != copy::Protection::off;
  BulkForger forger{
      w.sim.random(), guarded ? (seed % 3 == 0 ? 100ULL : 10ULL) : 0, copy::FrameGuard::kTagBytes, 0, 0, {}};
  const bool wrong_key = way == Way::wrong_key;
  const auto met = [&] { return wrong_key ? w.processes[0]->mesh().ready().size() == 1 : w.connected(); };
  w.sim.run_until_within(met, 5000 * kMs);
  w.net.meddle = meddler.hook();
  w.net.faults.flip_bulk = seed % 2 == 0 ? 0.02 : 0;
  if (guarded) {
    w.net.meddle_bulk = forger.hook();
    w.net.faults.repeat = w.net.faults.exchange = w.net.faults.drop = seed % 4 == 0 ? 0.005 : 0;
  }
  if (way == Way::forged) {
    meddler.forge = seed % 3 == 0 ? 0.2 : 0.02;
  } else {
    meddler.flip = meddler.cut = meddler.grow = seed % 3 == 0 ? 0.05 : 0.005;
  }
  work(w, 120, wrong_key ? kNodes - 1 : kNodes);
  w.heal();
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 60'000 * kMs)) << "an operation did not end";
  EXPECT_TRUE(w.sim.run_until_within(met, 60'000 * kMs)) << "the nodes did not find each other again";
  w.sim.run_for(40'000 * kMs);  // beyond every lease
  expect_rest(w);
  for (auto& process : w.processes) {
    seen.begun += process->begun, seen.brought += process->brought, seen.pushed += process->pushed;
    seen.ended += process->logged("is gone: ") + process->logged("no link to ");
  }
  if (wrong_key) {
    EXPECT_EQ(w.processes[2]->brought, 0U);
    EXPECT_EQ(w.processes[2]->mesh().ready().size(), 0U);
  }
  seen.altered += meddler.altered() + forger.altered + forger.forged;
  seen.forged += meddler.forged + forger.forged;
  return w.sim.log_hash();
}

void run_seeds(Way way) {
  const uint64_t n = number_from("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 2000 : 40);
  const uint64_t first = number_from("KVBMTEST_SIM_FIRST", 1);
  Seen seen;
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_seed(seed, way, seen);
  }
  counted(n, "seeds"), counted(seen.begun, "simulated operations");
  std::printf(
      "  seeds %llu, operations %llu, messages altered %llu (with a right tag %llu), connections ended or "
      "refused %llu, blocks brought %llu, pushed %llu\n",
      static_cast<unsigned long long>(n), static_cast<unsigned long long>(seen.begun),
      static_cast<unsigned long long>(seen.altered), static_cast<unsigned long long>(seen.forged),
      static_cast<unsigned long long>(seen.ended), static_cast<unsigned long long>(seen.brought),
      static_cast<unsigned long long>(seen.pushed));
  if (n < 20) return;
  EXPECT_GT(seen.altered, n);
  EXPECT_GT(seen.ended, n);
  EXPECT_GT(seen.brought, n / 2);
  if (way == Way::forged) {
    EXPECT_EQ(seen.forged, seen.altered);
  }
}

TEST(MeddledLinks, altered_messages_never_make_a_wrong_block_without_a_key) { run_seeds(Way::keyless); }
TEST(MeddledLinks, altered_messages_with_a_right_tag_never_make_a_wrong_block) { run_seeds(Way::forged); }
TEST(MeddledLinks, altered_messages_let_no_node_with_another_key_in) { run_seeds(Way::wrong_key); }
TEST(MeddledLinks, what_is_altered_or_forged_between_nodes_that_authenticate_never_makes_a_wrong_block) {
  run_seeds(Way::authenticated);
}
TEST(MeddledLinks, what_is_altered_or_forged_between_nodes_that_encrypt_never_makes_a_wrong_block) {
  run_seeds(Way::encrypted);
}

TEST(MeddledLinks, a_seed_run_twice_gives_the_same_log) {
  Seen seen;
  EXPECT_EQ(run_seed(5, Way::forged, seen), run_seed(5, Way::forged, seen));
}

}  // namespace
}  // namespace kvbm::test::meddled_links_test

// Managers as nodes of a pool, on one thread from a seed. Real managers, meshes, peer tiers and links run over the
// transport table and the simulated network. Faults: cuts, broken connections, freezes, kills, restarts and garbled
// bytes; messages and chunks that are repeated, reordered or lost; clocks with any start, unequal speeds and jumps.
//
// Invariants:
// - A block that was fetched from another node has exactly the bytes stored under its key.
// - Every operation completes exactly once.
// - Without faults a block that any node has is found and fetched.
// - At rest no node holds anything for another.
// - A seed run twice gives the same log.
// The worlds store plain, coded, sealed, and both coded by choice and sealed records. KVBMTEST_SIM_SEEDS is the
// number of seeds (default 150), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 5,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "codec/lossless/zstd_leaf.h"
#include "manager/host/host_record.h"
#include "support/counts.h"
#include "support/node_world.h"
#include "support/simulated_kills.h"

namespace kvbm::test::node_test {
namespace {

const SimulatedKills kills(__FILE__);

TEST(NodeSim, what_one_node_has_comes_to_another) {
  for (uint64_t how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    NodeWorld w(1, how);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    for (uint64_t n = 0; n < 10; ++n) w.processes[n % 2]->store(n);
    for (uint64_t n = 0; n < 12; ++n) w.processes[2]->fetch(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[2]->brought, 10U);
    EXPECT_EQ(w.processes[2]->wrong, 0U);
    if (how == 1) {
      EXPECT_EQ(w.processes[2]->coded(), codec::has_zstd() ? 10U : 0U);  // these are opaque
    }
    if (how >= 2) {
      EXPECT_EQ(w.processes[2]->plain(), 0U);
    }
  }
}

TEST(NodeSim, what_is_pushed_is_at_its_home_and_nothing_stays_held) {
  NodeWorld w(2, 2);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  w.sim.run_for(100 * kMs);  // until the offered capacities are known everywhere
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->store(n);
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  EXPECT_EQ(w.processes[0]->pushed, 10U);
  for (uint64_t n = 0; n < 10; ++n) EXPECT_TRUE(w.processes[1]->has(n) || w.processes[2]->has(n)) << n;
  w.sim.run_for(100 * kMs);
  for (auto& process : w.processes) {
    EXPECT_EQ(process->source().pinned(), 0U);
    EXPECT_EQ(process->source().opened(), 0U);
    EXPECT_EQ(process->wrong, 0U);
  }
}

// Pushes 10 blocks from node 0 while node 1 cannot take any. Node 2 then has all of them, except for those that a
// restarted node 1 took in time.
void expect_elsewhere(NodeWorld& w, const std::function<void()>& hinder, bool comes_back = false) {
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  w.sim.run_for(100 * kMs);  // until the offered capacities are known everywhere
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->store(n);
  hinder();
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  EXPECT_EQ(w.processes[0]->pushed, 10U);
  EXPECT_GT(w.processes[0]->offers().refused.load(), 0U);
  EXPECT_EQ(w.processes[0]->offers().elsewhere.load(), w.processes[0]->offers().refused.load());
  for (uint64_t n = 0; n < 10; ++n) {
    EXPECT_TRUE(w.processes[2]->has(n) || (comes_back && w.processes[1]->has(n))) << n;
  }
}

TEST(NodeSim, what_its_home_has_no_room_for_goes_to_the_next_node) {
  for (uint64_t how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    NodeWorld w(6, how);
    std::vector<SlotId> all(kNodeSlots);
    expect_elsewhere(w, [&] {
      ASSERT_EQ(w.processes[1]->manager().stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
    });
    w.processes[1]->manager().host().release(all);
    w.sim.run_for(100 * kMs);
    for (auto& process : w.processes) {
      EXPECT_EQ(process->source().pinned(), 0U);
      EXPECT_EQ(process->source().opened(), 0U);
      EXPECT_EQ(process->wrong, 0U);
    }
  }
}

TEST(NodeSim, what_a_silent_home_does_not_take_goes_to_the_next_node_in_time) {
  NodeWorld frozen(7);
  expect_elsewhere(frozen, [&] { frozen.net.freeze(frozen.nodes[1]); });
  NodeWorld cut(8);
  expect_elsewhere(cut, [&] { cut.net.cut(cut.nodes[0], cut.nodes[1]); });
  NodeWorld killed(9);
  expect_elsewhere(
      killed,
      [&] {
        killed.net.kill(killed.nodes[1]);
        (void)killed.processes[1].release();
        killed.processes[1] = killed.start(1);
      },
      true);
}

// The offering node releases a garbled record as soon as the receiving node has rejected it. Records of the batch
// that arrived intact are stored, and a later push stores the garbled ones.
TEST(NodeSim, what_is_garbled_on_its_way_to_its_home_is_let_go_at_once) {
  for (uint64_t how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    NodeWorld w(4, how);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    w.sim.run_for(100 * kMs);
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->store(n);
    w.net.faults.flip_bulk = 1;
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 1000 * kMs)) << "it waits for what will not come";
    EXPECT_LT(w.processes[0]->pushed, 10U);
    w.sim.run_for(100 * kMs);
    for (auto& process : w.processes) {
      EXPECT_EQ(process->source().pinned(), 0U);
      EXPECT_EQ(process->source().opened(), 0U);
    }
    w.net.faults.flip_bulk = 0;
    w.processes[0]->pushed = 0;
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[0]->pushed, 10U);
    for (uint64_t n = 0; n < 10; ++n) EXPECT_TRUE(w.processes[1]->has(n) || w.processes[2]->has(n)) << n;
    for (auto& process : w.processes) EXPECT_EQ(process->wrong, 0U);
  }
}

TEST(NodeSim, an_invalidated_namespace_moves_on_every_node) {
  NodeWorld w(3);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  const NamespaceId before = w.processes[1]->ns().id();
  ASSERT_TRUE(w.processes[0]->manager().namespaces().invalidate(w.processes[0]->ns()).ok());
  const NamespaceId after = w.processes[0]->ns().id();
  EXPECT_NE(before, after);
  ASSERT_TRUE(w.sim.run_until_within(
      [&] { return w.processes[1]->ns().id() == after && w.processes[2]->ns().id() == after; }, 2000 * kMs));
  w.sim.run_for(2000 * kMs);  // and then there is peace
  for (auto& process : w.processes) EXPECT_EQ(process->ns().epoch(), 1U);
}

// A node that was unreachable learns of the invalidation when it is back: after a cut, a stop, and a restart with or
// without a disk of its own.
TEST(NodeSim, a_node_that_was_away_hears_what_was_invalidated) {
  for (const bool restarted : {false, true}) {
    NodeWorld w(4);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    SimNode& invalidates = *w.processes[0];
    w.processes[1]->store(3);
    w.processes[2]->store(4);
    w.sim.run_for(200 * kMs);
    for (size_t i = 1; i < kNodes; ++i) w.net.cut(w.nodes[0], w.nodes[i]);
    w.sim.run_for(10'000 * kMs);
    ASSERT_TRUE(invalidates.manager().namespaces().invalidate(invalidates.ns()).ok());
    const NamespaceId after = invalidates.ns().id();
    w.sim.run_for(1000 * kMs);
    EXPECT_NE(w.processes[1]->ns().id(), after);
    if (restarted) {
      w.net.kill(w.nodes[1]);
      (void)w.processes[1].release();
      w.processes[1] = w.start(1);
    }
    w.heal();
    ASSERT_TRUE(w.sim.run_until_within(
        [&] { return w.processes[1]->ns().id() == after && w.processes[2]->ns().id() == after; }, 30'000 * kMs));
    w.sim.run_for(2000 * kMs);
    for (auto& process : w.processes) EXPECT_EQ(process->ns().epoch(), 1U);
    EXPECT_FALSE(w.processes[2]->has(4)) << "stored before";
    // A process that starts now does not ask for older blocks either.
    w.net.kill(w.nodes[0]);
    (void)w.processes[0].release();
    w.processes[0] = w.start(0);
    EXPECT_TRUE(w.sim.run_until_within([&] { return w.processes[0]->ns().id() == after; }, 30'000 * kMs));
    for (auto& process : w.processes) EXPECT_EQ(process->wrong, 0U);
  }
}

// Sizes in an offer are checked before memory is allocated for it.
TEST(NodeSim, an_offer_of_impossible_sizes_is_not_wanted) {
  NodeWorld w(6);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  w.processes[0]->store(3);
  const size_t longest = w.processes[1]->manager().host().arena().head(0).size();
  const auto wanted = [&](uint64_t head_bytes, uint64_t payload_bytes) {
    auto batch = std::make_unique<cluster::OfferBatch>();
    cluster::Offered item;
    item.id = w.processes[0]->id(3);
    item.head_bytes = static_cast<uint32_t>(head_bytes);
    item.payload_bytes = payload_bytes;
    batch->items.push_back(item);
    batch->deadline_ns = w.processes[0]->after(1000 * kMs);
    batch->lease_ns = 1000 * kMs;
    bool done = false;
    bool is = false;
    batch->done = [&](cluster::OfferBatch& b) {
      is = b.status == Code::ok && !b.wanted.empty();
      done = true;
    };
    w.processes[0]->mesh().link_to(cluster::node_id_of("node" + std::to_string(w.nodes[1])))->offer(std::move(batch));
    EXPECT_TRUE(w.sim.run_until_within([&] { return done; }, 5000 * kMs));
    w.sim.run_for(1000 * kMs);
    return is;
  };
  EXPECT_FALSE(wanted(UINT32_MAX, 1000));
  EXPECT_FALSE(wanted(longest + 1, 1000));
  EXPECT_FALSE(wanted(300, kNodeBlock + 1));
  EXPECT_TRUE(wanted(longest, kNodeBlock));
  EXPECT_EQ(w.processes[0]->source().pinned(), 0U);
}

// However many nodes read for however long, stores of the owner get slots.
TEST(NodeSim, leases_leave_half_of_the_host_to_stores) {
  NodeWorld w(7);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  for (uint64_t n = 0; n < kNodeSlots; ++n) w.processes[0]->store(n);
  size_t ended = 0;
  for (size_t i = 1; i < kNodes; ++i) {
    auto batch = std::make_unique<cluster::FindBatch>();
    for (uint64_t n = 0; n < kNodeSlots; ++n) batch->ids.push_back(w.processes[i]->id(n));
    batch->deadline_ns = w.processes[i]->after(1000 * kMs);
    batch->lease_ns = 20'000 * kMs;
    batch->done = [&](cluster::FindBatch&) { ++ended; };
    w.processes[i]->mesh().link_to(cluster::node_id_of("node" + std::to_string(w.nodes[0])))->find(std::move(batch));
  }
  ASSERT_TRUE(w.sim.run_until_within([&] { return ended == 2; }, 5000 * kMs));
  EXPECT_GT(w.processes[0]->source().pinned(), 0U);
  EXPECT_LE(w.processes[0]->source().pinned(), kNodeSlots / 2);
  std::vector<SlotId> half(kNodeSlots / 2);
  EXPECT_EQ(w.processes[0]->manager().stack().allocate(block::kSharedAccount, half, nullptr), Code::ok);
  w.processes[0]->manager().host().release(half);
}

manager::NamespaceOptions named(size_t n) {
  manager::NamespaceOptions out;
  out.model = "model " + std::to_string(n);
  return out;
}

// There are more invalidated namespaces than one connection may report to a node that uses none of them. The node asks
// when it opens one.
TEST(NodeSim, a_node_hears_of_every_namespace_that_it_opens) {
  constexpr size_t kNamespaces = 150;
  NodeWorld w(5);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  std::vector<std::shared_ptr<manager::Namespace>> here, there;
  for (size_t i = 1; i < kNodes; ++i) w.net.cut(w.nodes[0], w.nodes[i]);
  w.sim.run_for(10'000 * kMs);
  for (size_t n = 0; n < kNamespaces; ++n) {
    here.push_back(w.processes[0]->manager().namespaces().open(named(n)).value());
    ASSERT_TRUE(w.processes[0]->manager().namespaces().invalidate(*here.back()).ok());
  }
  // For namespaces that are open when the node is back, the new epoch arrives at once.
  for (size_t n = 0; n < 10; ++n) there.push_back(w.processes[1]->manager().namespaces().open(named(n)).value());
  w.heal();
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 30'000 * kMs));
  ASSERT_TRUE(w.sim.run_until_within(
      [&] { return std::all_of(there.begin(), there.end(), [](const auto& ns) { return ns->epoch() == 1; }); },
      5000 * kMs));
  // The two nodes dial each other, so there are two links.
  EXPECT_LE(w.processes[1]->manager().namespaces().epoch_rows().foreign, 2 * cluster::LinkLimits{}.new_epochs);
  // For other namespaces the epoch arrives when they are opened, because the node did not keep all rows.
  for (size_t n = 10; n < kNamespaces; ++n)
    there.push_back(w.processes[1]->manager().namespaces().open(named(n)).value());
  ASSERT_TRUE(w.sim.run_until_within(
      [&] { return std::all_of(there.begin(), there.end(), [](const auto& ns) { return ns->epoch() == 1; }); },
      5000 * kMs));
  w.sim.run_for(2000 * kMs);
  for (const auto& ns : here) EXPECT_EQ(ns->epoch(), 1U);
}

// A row was dropped for others. A node that was away asks for the epochs of its open namespaces, and a node that opens
// one asks, too.
TEST(NodeSim, a_node_that_was_away_hears_of_what_has_no_row_any_more) {
  constexpr size_t kMany = manager::EpochTable::kRows + 300;
  NodeWorld w(8);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  auto there = w.processes[1]->manager().namespaces().open(named(0)).value();
  for (size_t i = 1; i < kNodes; ++i) w.net.cut(w.nodes[0], w.nodes[i]);
  w.sim.run_for(10'000 * kMs);
  for (size_t n = 0; n < kMany; ++n) {
    auto one = w.processes[0]->manager().namespaces().open(named(n)).value();
    const Status done = w.processes[0]->manager().namespaces().invalidate(*one);
    ASSERT_TRUE(done.ok()) << n << ": " << done.message();
  }
  EXPECT_LE(w.processes[0]->manager().namespaces().epoch_rows().all, manager::EpochTable::kRows);
  EXPECT_EQ(there->epoch(), 0U);
  w.heal();
  ASSERT_TRUE(w.sim.run_until_within([&] { return there->epoch() != 0; }, 60'000 * kMs));
  const uint64_t epoch = there->epoch();
  auto here = w.processes[0]->manager().namespaces().open(named(0)).value();
  EXPECT_EQ(here->epoch(), epoch) << "both find each other's blocks";
  w.sim.run_for(5000 * kMs);
  EXPECT_EQ(here->epoch(), epoch) << "and then there is peace";
  EXPECT_EQ(there->epoch(), epoch);
  EXPECT_EQ(w.processes[1]->ns().epoch(), 0U) << "nobody invalidated that one";
}

// A family that does not fit a node's table is reported as such, and not as an unwanted block.
TEST(NodeSim, an_offer_of_a_family_that_has_no_room_says_so) {
  NodeWorld w(6);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  FamilyTable& families = w.processes[1]->manager().families();
  for (uint32_t i = 0; families.foreign() < FamilyTable::kForeignFamilies; ++i) {
    Family one;
    std::memcpy(one.ns.bytes.data(), &i, sizeof i);
    one.ns.bytes[15] = 9;
    ASSERT_TRUE(families.intern_foreign(one).ok());
  }
  // Offers a block of a family that the node does not know.
  manager::Manager& has = w.processes[0]->manager();
  Family family = has.families().get(w.processes[0]->id(3).family);
  family.component = 7;
  const Identity id{w.processes[0]->id(3).key, has.families().intern(family).value()};
  SlotId slot = kNoSlot;
  ASSERT_EQ(has.stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
  ASSERT_EQ(has.host().table().complete({&slot, 1}), Code::ok);
  has.host().arena().clear_head(slot);
  manager::note_payload_bytes(has.host(), slot, 1000);
  block::Publication what;
  what.family = id.family;
  what.keys = {&id.key, 1};
  Code published = Code::internal;
  ASSERT_EQ(has.stack().publish({&slot, 1}, what, {}, {&published, 1}), Code::ok);
  has.host().release({&slot, 1});
  auto batch = std::make_unique<cluster::OfferBatch>();
  cluster::Offered item;
  item.id = id;
  item.head_bytes = 300;
  item.payload_bytes = 1000;
  batch->items.push_back(item);
  batch->deadline_ns = w.processes[0]->after(1000 * kMs);
  batch->lease_ns = 1000 * kMs;
  Code status = Code::internal;
  batch->done = [&](cluster::OfferBatch& b) { status = b.status; };
  w.processes[0]->mesh().link_to(cluster::node_id_of("node" + std::to_string(w.nodes[1])))->offer(std::move(batch));
  EXPECT_TRUE(w.sim.run_until_within([&] { return status != Code::internal; }, 5000 * kMs));
  EXPECT_EQ(status, Code::at_limit);
  w.sim.run_for(1000 * kMs);
  EXPECT_EQ(w.processes[0]->source().pinned(), 0U);
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Seen {
  uint64_t begun = 0, brought = 0, pushed = 0, kills = 0, wrong = 0, coded = 0, elsewhere = 0;
  SimNetwork::Counts network;
};

uint64_t run_seed(uint64_t seed, Seen& seen) {
  NodeWorld w(seed, seed / 4);
  Random& random = w.sim.random();
  w.net.faults.flip_bulk = seed % 2 == 0 ? 0.02 : 0;
  w.net.faults.flip_message = seed % 4 == 0 ? 0.002 : 0;
  if (seed % 3 != 0) w.net.faults.repeat = w.net.faults.exchange = w.net.faults.drop = seed % 3 == 1 ? 0.003 : 0.01;
  w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs);
  for (int step = 0; step < 150; ++step) {
    const size_t i = random.below(kNodes);
    const size_t j = (i + 1 + random.below(kNodes - 1)) % kNodes;
    const uint64_t n = random.below(kNodeBlocks);
    switch (random.below(17)) {
      case 0:
        w.net.cut(w.nodes[i], w.nodes[j]);
        break;
      case 1:
        w.net.break_connections(w.nodes[i], w.nodes[j]);
        break;
      case 2:
        if (!w.net.frozen(w.nodes[i])) w.net.freeze(w.nodes[i]);
        break;
      case 3: {
        if (random.below(3) != 0) break;
        SimNode& victim = *w.processes[i];
        seen.begun += victim.begun, seen.brought += victim.brought, seen.pushed += victim.pushed;
        seen.wrong += victim.wrong;
        w.net.thaw(w.nodes[i]);
        w.net.kill(w.nodes[i]);
        (void)w.processes[i].release();
        w.processes[i] = w.start(i);
        ++seen.kills;
        break;
      }
      case 4:
      case 5:
        for (size_t k = 0; k < kNodes; ++k) {
          w.net.heal(w.nodes[i], w.nodes[(i + 1 + k) % kNodes]);
          w.net.thaw(w.nodes[k]);
        }
        break;
      case 6:
        // Skips a moment, or more than every lease and every limit of silence.
        w.net.skip(w.nodes[i], random.below(random.below(2) == 0 ? 300 * kMs : 100'000 * kMs));
        break;
      case 7:
      case 8:
      case 16:
        w.processes[i]->store(n);
        break;
      case 9:
      case 10:
        w.processes[i]->push(n);
        break;
      default:
        w.processes[i]->fetch(n);
    }
    w.sim.run_for(random.below(40) * kMs);
  }
  w.heal();
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 60'000 * kMs)) << "an operation did not end";
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 30'000 * kMs))
      << "the nodes did not find each other again";
  w.sim.run_for(40'000 * kMs);  // beyond every lease
  for (auto& process : w.processes) {
    for (uint64_t n = 0; n < kNodeBlocks; ++n) process->check(n);
    EXPECT_EQ(process->wrong, 0U);
    EXPECT_EQ(process->source().pinned(), 0U);
    EXPECT_EQ(process->source().opened(), 0U);
    EXPECT_EQ(process->buffered(), 0U);
    seen.coded += process->coded();
    seen.elsewhere += process->offers().elsewhere.load();
    seen.begun += process->begun, seen.brought += process->brought, seen.pushed += process->pushed;
    seen.wrong += process->wrong;
  }
  seen.network.repeated += w.net.counts().repeated, seen.network.exchanged += w.net.counts().exchanged;
  seen.network.dropped += w.net.counts().dropped, seen.network.skips += w.net.counts().skips;
  return w.sim.log_hash();
}

TEST(NodeSim, never_gives_a_wrong_block_and_ends_every_operation) {
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 5000 : 150);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  Seen seen;
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_seed(seed, seen);
  }
  kvbm::test::counted(n, "seeds"), kvbm::test::counted(seen.begun, "simulated operations");
  kvbm::test::counted(seen.kills, "simulated kills");
  std::printf("  seeds %llu, operations %llu, blocks brought %llu, pushed %llu, kills %llu, wrong %llu\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(seen.begun),
              static_cast<unsigned long long>(seen.brought), static_cast<unsigned long long>(seen.pushed),
              static_cast<unsigned long long>(seen.kills), static_cast<unsigned long long>(seen.wrong));
  std::printf(
      "  came twice %llu, exchanged %llu, never came %llu, clocks jumped %llu\n",
      static_cast<unsigned long long>(seen.network.repeated), static_cast<unsigned long long>(seen.network.exchanged),
      static_cast<unsigned long long>(seen.network.dropped), static_cast<unsigned long long>(seen.network.skips));
  if (n < 50) return;
  EXPECT_GT(seen.network.repeated, n / 2);
  EXPECT_GT(seen.network.exchanged, n / 4);
  EXPECT_GT(seen.network.dropped, n / 2);
  EXPECT_GT(seen.network.skips, n);
  EXPECT_GT(seen.coded, n);
  EXPECT_GT(seen.elsewhere, n / 50);
  EXPECT_GT(seen.brought, n);
  EXPECT_GT(seen.pushed, n / 2);
  EXPECT_GT(seen.kills, n / 2);
}

TEST(NodeSim, a_seed_run_twice_gives_the_same_log) {
  Seen seen;
  EXPECT_EQ(run_seed(5, seen), run_seed(5, seen));
}

}  // namespace
}  // namespace kvbm::test::node_test

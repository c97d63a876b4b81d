// Prefill-to-decode sessions between simulated processes, with every fault that a connection and a process have. An
// admitted peer may also repeat, reorder and withhold messages.
//
// Invariants, checked during the run and at the end:
// - A layer that is reported has exactly the model's bytes.
// - No other byte of the engine's memory is written.
// - Every session and every offer ends exactly once, by its deadline.
// - Without faults all end well.
// - Memory of a transfer is never reused before its token ended.
// - When all connections are closed, no staging is taken and no blocks are held.
// - A seed run twice gives the same log.
// KVBMTEST_SIM_SEEDS is the number of seeds (default 300), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 10,000.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/coded_records.h"
#include "support/counts.h"
#include "support/session_world.h"

namespace kvbm::test::session_test {
namespace {

using cluster::session::Facts;
using cluster::session::kMinSliceBytes;
using cluster::session::OpenRequest;
using cluster::session::Range;

constexpr uint64_t kMs = 1'000'000;

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Seen {
  uint64_t sessions = 0, done = 0, failed = 0, damaged = 0, kills = 0, freezes = 0, cuts = 0, aborts = 0;
  uint64_t coded = 0, sealed = 0, refused = 0;
  uint64_t late_slices = 0, straight = 0, quarantined = 0, slices = 0, gathers = 0, scatters = 0, losses = 0;
  uint64_t shared = 0, refused_maps = 0, overwritten = 0, meddled = 0;
  uint64_t direct_sent = 0, direct_came = 0, direct_failed = 0;
};

enum class Trouble {
  none,
  garble,
  full,
  cut,
  kill_prefill,
  kill_decode,
  freeze,
  abort_prefill,
  abort_decode,
  silence,
  spoil,
  lose_device,
  meddling
};
constexpr uint64_t kTroubles = 12;  // meddling is not drawn: every 13th seed has it
constexpr uint64_t kMeddlingEvery = 13;

class World {
 public:
  World(uint64_t seed, Seen& seen) : seen_(seen), sim_(seed), net_(sim_), seed_(seed) {
    trouble_ = static_cast<Trouble>(random().below(kTroubles));
    if (seed % kMeddlingEvery == 0) trouble_ = Trouble::meddling;
    const bool large = random().below(3) == 0;
    facts_ = random_facts(random(), large);
    tokens_ = 1 + random().below(large ? 400 : 60);
    SideShape a = random_side(facts_, random(), tokens_);
    SideShape b = random_side(facts_, random(), tokens_);
    a.tp = 1U << random().below(3);
    b.tp = 1U << random().below(3);
    if (a.begin > b.begin) std::swap(a.begin, b.begin);
    prefill_ = make_side(facts_, a, tokens_, random());
    decode_ = make_side(facts_, b, tokens_, random());
    coding_ = static_cast<Coding>(random().below(4));
    deadline_ = sim_.clock().now_ns() + 300 * kMs;
    start_ranks();
  }

  uint64_t run() {
    start_prefill();
    for (uint32_t d = 0; d < decode_.size(); ++d) at(random().below(40), [this, d] { open(d); });
    for (int i = 0; i < 2; ++i) at(random().below(60), [this] { make_trouble(); });
    // The network closes connections that are silent for long. Frozen processes never return.
    at(400, [this] {
      for (const auto& n : nodes_) seen_.quarantined += n ? n->receiver->quarantined() : 0;
      check_ended();
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i] && net_.frozen(nodes_[i]->id)) kill(i);
      }
      for (const uint64_t end : net_.open_connections()) net_.cut(end);
    });
    sim_.run();
    check_clean();
    return sim_.log_hash();
  }

 private:
  // Coding of slices: none; on both sides, or on one side for some processes; sealed on both.
  enum class Coding { none, some, all, sealed };
  Random& random() { return sim_.random(); }
  void at(uint64_t ms, UniqueFunction<void()> task) {
    sim_.post_at(sim_.clock().now_ns() + ms * kMs + random().below(kMs), std::move(task));
  }
  SessionNode* prefill_node(size_t p) { return nodes_[p].get(); }
  SessionNode* decode_node(size_t d) { return nodes_[prefill_.size() + d].get(); }

  void start_ranks() {
    net_.grains = random().below(4) != 0;
    // A process that shares device memory may also overwrite it at any time.
    SeededRandom sharing(seed_);
    net_.ways = coding_ == Coding::sealed || (net_.grains && sharing.below(4) != 0);
    const uint64_t machines = 1 + sharing.below(2);
    if (sharing.below(8) == 0) {
      for (const uint64_t ms : {uint64_t{20}, uint64_t{40}, uint64_t{60}}) {
        sim_.post_at(now() + (ms + sharing.below(20)) * kMs, [this] { overwrite(); });
      }
    }
    if (trouble_ == Trouble::garble) net_.faults.garble = 0.1;
    if (trouble_ == Trouble::meddling) {
      SeededRandom meddling(seed_);
      auto& faults = net_.faults;
      (meddling.below(3) == 0 ? faults.repeat : meddling.below(2) == 0 ? faults.exchange : faults.drop) = 0.1;
    }
    if (trouble_ == Trouble::full) net_.faults.full = 0.3, net_.faults.refuse = 0.1;
    for (size_t i = 0; i < prefill_.size() + decode_.size(); ++i) {
      SessionNode::Options o;
      const bool is_prefill = i < prefill_.size();
      o.rank = static_cast<uint16_t>(is_prefill ? i : i - prefill_.size());
      o.staging_slots = 1 + static_cast<uint32_t>(random().below(6));
      o.slice_bytes = kMinSliceBytes << random().below(2);
      o.straight_from_bytes = random().below(2) == 0 ? 64 : 0;
      o.codes = coding_ != Coding::none && (coding_ != Coding::some || random().below(2) == 0);
      nodes_.push_back(std::make_unique<SessionNode>(sim_, net_, o));
      nodes_.back()->seed = seed_;
      if (coding_ == Coding::sealed) nodes_.back()->coder.keys = keys_;
      if (!is_prefill) nodes_.back()->target = &decode_[i - prefill_.size()];
      RankEngine& engine = is_prefill ? prefill_[i] : decode_[i - prefill_.size()];
      if (random().below(2) == 0) engine.mover = &nodes_.back()->mover;
      nodes_.back()->mover.machine = static_cast<uint8_t>(1 + sharing.below(machines));
      nodes_.back()->mover.refuses_to_map = sharing.below(8) == 0;
      // Some transports reach device memory, and some claim to and fail.
      SessionNetwork::Direct& direct = net_.direct(nodes_.back()->id);
      direct.takes = sharing.below(3) != 0;
      direct.refuses = sharing.below(8) == 0;
      direct.fails = sharing.below(8) == 0 ? 0.3 : 0;
      nodes_.back()->mover.refuses_direct = sharing.below(8) == 0;
      if (trouble_ == Trouble::spoil) nodes_.back()->mover.spoil = 0.1;
    }
    for (size_t p = 0; p < prefill_.size(); ++p) {
      for (size_t d = 0; d < decode_.size(); ++d) {
        names_[{d, p}] = net_.connect(decode_node(d)->id, prefill_node(p)->id).first;
      }
    }
  }

  void start_prefill() {
    for (size_t p = 0; p < prefill_.size(); ++p) {
      const uint64_t offered = random().below(20);
      at(offered, [this, p] {
        SessionNode* n = prefill_node(p);
        if (n == nullptr || net_.frozen(n->id)) return;
        const auto s = n->sender->offer({request_id(1), facts_, prefill_[p].locals(), deadline_ + 20 * kMs}, now());
        EXPECT_TRUE(s.ok()) << s.message();
        n->drain();
      });
      const uint64_t chunk = 1 + tokens_ / 100 + random().below(tokens_ + 10);
      for (const auto& cache : prefill_[p].caches) {
        const auto& part = cache->part();
        // A state is published at once, other parts in fewer pieces than a layer may have.
        const uint64_t size = part.range.size();
        const uint64_t step = size > 1000 ? size : std::max(chunk, size / 200 + 1);
        for (uint32_t l = part.shard.first_layer; l < uint32_t{part.shard.first_layer} + part.shard.layers; ++l) {
          for (uint64_t t = part.range.begin; t < part.range.end; t += step) {
            const Range range{t, std::min(part.range.end, t + step)};
            if (trouble_ == Trouble::silence && random().below(10) == 0) continue;
            at(offered + 2 + random().below(60), [this, p, c = cache.get(), l, range] { computed(p, *c, l, range); });
          }
        }
      }
    }
  }

  void computed(size_t p, RankCache& cache, uint32_t layer, Range range) {
    SessionNode* n = prefill_node(p);
    if (n == nullptr || net_.frozen(n->id)) return;
    cache.fill(seed_, layer, range);
    const Status s = n->sender->publish(request_id(1), cache.part().component, layer, 1, range);
    if (!s.ok()) {
      EXPECT_EQ(s.code(), Code::stale_handle) << s.message();
    }
    n->drain();
  }

  void open(size_t d) {
    SessionNode* n = decode_node(d);
    if (n == nullptr || net_.frozen(n->id)) return;
    OpenRequest r;
    r.request = request_id(1);
    r.facts = facts_;
    r.targets = decode_[d].locals();
    for (size_t p = 0; p < prefill_.size(); ++p) {
      r.sources.push_back({names_[{d, p}], static_cast<uint16_t>(p), "prefill-" + std::to_string(p)});
    }
    r.sink_rank = static_cast<uint16_t>(d);
    r.sink_count = static_cast<uint16_t>(decode_.size());
    r.deadline_ns = deadline_;
    r.budget_bytes = random().below(4) * kMinSliceBytes;
    const auto session = n->receiver->open(std::move(r), now());
    ASSERT_TRUE(session.ok()) << session.status().message();
    sessions_[d] = session.value();
    ++seen_.sessions;
    n->drain();
  }

  void kill(size_t i) {
    if (!nodes_[i]) return;
    ++seen_.kills;
    net_.kill(nodes_[i]->id);
    graves_.push_back(std::move(nodes_[i]));  // its memory stays, for the network must not touch it
    graves_.back()->sender.reset();
    graves_.back()->receiver.reset();
  }

  void make_trouble() {
    const size_t p = random().below(prefill_.size());
    const size_t d = random().below(decode_.size());
    SessionNode* source = prefill_node(p);
    SessionNode* sink = decode_node(d);
    const auto open = net_.open_connections();
    if (trouble_ == Trouble::cut && !open.empty()) net_.cut(open[random().below(open.size())]), ++seen_.cuts;
    if (trouble_ == Trouble::kill_prefill) kill(p);
    if (trouble_ == Trouble::kill_decode) kill(prefill_.size() + d);
    if (trouble_ == Trouble::freeze) freeze_busy(20);
    if (trouble_ == Trouble::lose_device) lose_device(random().below(nodes_.size()));
    if (trouble_ == Trouble::abort_prefill && source != nullptr) {
      seen_.aborts += source->sender->abort(request_id(1), Code::cancelled, "the client went away").ok();
      source->drain();
    }
    if (trouble_ == Trouble::abort_decode && sink != nullptr && sessions_.count(d) != 0) {
      seen_.aborts += sink->receiver->abort(sessions_[d], Code::cancelled, "the client went away").ok();
      sink->drain();
    }
  }

  // Overwrites shared memory, as a faulty process that maps it can.
  void overwrite() {
    for (const auto& n : nodes_) {
      if (!n || n->mover.shared().empty()) continue;
      SeededRandom(seed_).fill(n->mover.shared());
      ++seen_.overwritten;
    }
  }

  void lose_device(size_t i) {
    if (!nodes_[i]) return;
    ++seen_.losses;
    nodes_[i]->mover.lose();
  }

  // Freezes a process, mostly one that is sending, so that the other side keeps unfinished transfers.
  void freeze_busy(int tries) {
    for (size_t i = 0; i < prefill_.size(); ++i) {
      if (nodes_[i] && nodes_[i]->sender->staging_taken() > 0) return freeze(i);
    }
    if (tries == 0) return freeze(random().below(nodes_.size()));
    at(1, [this, tries] { freeze_busy(tries - 1); });
  }

  void freeze(size_t i) {
    if (!nodes_[i]) return;
    ++seen_.freezes;
    const auto id = nodes_[i]->id;
    net_.freeze(id, true);
    if (random().below(2) == 0) at(1 + random().below(100), [this, id] { net_.freeze(id, false); });
  }

  // Past the deadlines every running process has ended its sessions and offers.
  void check_ended() {
    for (const auto& n : nodes_) {
      if (!n || net_.frozen(n->id)) continue;
      EXPECT_EQ(n->receiver->sessions(), 0u);
      EXPECT_EQ(n->sender->early_opens(), 0u);
      for (const auto& [request, status] : n->offers_ended) {
        if (trouble_ == Trouble::none) {
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
    }
    for (const auto& [d, session] : sessions_) {
      SessionNode* n = decode_node(d);
      if (n == nullptr || net_.frozen(n->id)) continue;
      ASSERT_EQ(n->finished.count(session), 1u);
      const Status& s = n->finished.at(session);
      ++(s.ok() ? seen_.done : seen_.failed);
      const bool must = trouble_ == Trouble::none || trouble_ == Trouble::full;
      if (must) {
        EXPECT_TRUE(s.ok()) << s.message();
      }
      if (trouble_ != Trouble::freeze) {
        EXPECT_LE(n->last_finish_ns, deadline_ + (decode_[d].mover != nullptr ? n->mover.delay_ns + 1000 : 0));
      }
      if (s.ok()) {
        EXPECT_EQ(decode_[d].check(seed_), "");
      }
    }
  }

  void check_clean() {
    EXPECT_EQ(net_.borrowed(), 0u);
    seen_.meddled += net_.meddled();
    for (const auto& n : nodes_) {
      if (!n) continue;
      EXPECT_EQ(n->receiver->staging_taken(), 0u);
      EXPECT_EQ(n->sender->staging_taken(), 0u);
      EXPECT_EQ(n->sender->shared_taken(), 0u);
      EXPECT_EQ(n->sender->direct_taken() + n->receiver->direct_taken(), 0u);
      seen_.direct_sent += n->sender->stats().direct_slices;
      seen_.direct_came += n->receiver->stats().direct_slices;
      seen_.direct_failed += n->sender->direct_failures() + n->receiver->direct_failures();
      EXPECT_EQ(n->sender->offers(), 0u);
      EXPECT_TRUE(n->held.empty());
      if (trouble_ != Trouble::meddling) {
        EXPECT_EQ(n->receiver->stats().protocol_errors + n->sender->stats().protocol_errors, 0u);
      }
      seen_.damaged += n->receiver->stats().damaged_slices;
      seen_.late_slices += n->receiver->stats().late_slices;
      seen_.straight += n->sender->stats().straight_slices;
      seen_.gathers += n->mover.gathers();
      seen_.scatters += n->mover.scatters();
      EXPECT_EQ(n->mover.under_way(), 0u);
      EXPECT_EQ(n->coder.under_way(), 0u);
      EXPECT_EQ(n->coder.asked(), 0u) << "slices of which the coder never heard what came of them";
      EXPECT_EQ(n->sender->stats().coded_slices <= n->coder.coded(), true);
      seen_.coded += n->receiver->stats().coded_slices;
      seen_.sealed += coding_ == Coding::sealed ? n->receiver->stats().coded_slices : 0;
      seen_.refused += n->coder.refused();
      if (coding_ == Coding::sealed) {
        const auto& stats = n->receiver->stats();  // slices in shared device memory are never sealed
        EXPECT_EQ(stats.coded_slices + stats.shared_slices, stats.slices);
      }
      seen_.slices += n->sender->stats().slices;
      seen_.shared += n->receiver->stats().shared_slices;
      seen_.refused_maps += n->receiver->stats().refused_maps;
    }
  }

  [[nodiscard]] uint64_t now() const { return sim_.clock().now_ns(); }

  Seen& seen_;
  SimExecutor sim_;
  SessionNetwork net_;
  uint64_t seed_;
  Trouble trouble_ = Trouble::none;
  Coding coding_ = Coding::none;
  std::shared_ptr<const codec::KeyRing> keys_ = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
  Facts facts_;
  uint64_t tokens_ = 0;
  uint64_t deadline_ = 0;
  std::vector<RankEngine> prefill_, decode_;
  std::vector<std::unique_ptr<SessionNode>> nodes_;  // prefill ranks, then decode ranks
  std::vector<std::unique_ptr<SessionNode>> graves_;
  std::map<std::pair<size_t, size_t>, uint64_t> names_;  // {decode, prefill} -> what decode calls it
  std::map<size_t, uint64_t> sessions_;
};

TEST(SessionSim, never_reports_a_wrong_byte_and_ends_every_session_once) {
  Seen all;
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 10'000 : 300);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  for (uint64_t seed = first; seed < first + n && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World(seed, all).run();
  }
  const auto line = [](const char* what, uint64_t value) {
    std::printf("  %-22s %llu\n", what, static_cast<unsigned long long>(value));
  };
  kvbm::test::counted(n, "seeds"), kvbm::test::counted(all.kills, "simulated kills");
  line("seeds", n), line("sessions", all.sessions), line("ended well", all.done), line("failed", all.failed);
  line("slices pushed", all.slices), line("straight", all.straight), line("damaged", all.damaged);
  line("late", all.late_slices), line("quarantined", all.quarantined), line("kills", all.kills);
  line("freezes", all.freezes), line("cuts", all.cuts), line("aborts", all.aborts);
  line("gathers of devices", all.gathers), line("scatters", all.scatters), line("devices lost", all.losses);
  line("coded", all.coded), line("sealed", all.sealed), line("refused coded", all.refused);
  line("read from a device", all.direct_sent), line("written to one", all.direct_came);
  line("device left for host", all.direct_failed);
  line("in shared memory", all.shared), line("not mapped", all.refused_maps), line("overwritten", all.overwritten);
  line("messages meddled with", all.meddled);
  EXPECT_GT(all.done, n / 2);
  if (n < 100) return;
  for (const uint64_t count :
       {all.failed,      all.straight,    all.damaged,       all.late_slices, all.quarantined,  all.kills,
        all.freezes,     all.cuts,        all.aborts,        all.gathers,     all.scatters,     all.losses,
        all.coded,       all.sealed,      all.refused,       all.shared,      all.refused_maps, all.overwritten,
        all.direct_sent, all.direct_came, all.direct_failed, all.meddled}) {
    EXPECT_GT(count, 0u);
  }
}

TEST(SessionSim, the_same_seed_gives_the_same_log) {
  for (uint64_t seed = 1000; seed < 1030; ++seed) {
    Seen ignored;
    EXPECT_EQ(World(seed, ignored).run(), World(seed, ignored).run()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvbm::test::session_test

// Prefill-to-decode sessions over meshes, links and the transport table on one thread from a seed. Faults: broken
// connections, freezes, kills, garbled bulk and either side aborting; messages and chunks that are repeated,
// reordered or lost; clocks with any start, unequal speeds and jumps.
//
// Invariants:
// - A layer that is reported has exactly the model's bytes.
// - No other byte of the engine's memory is written.
// - Every session and every offer ends exactly once, soon after its deadline at the latest.
// - Without faults all end well.
// - At rest no staging is taken and no state of ended sessions is left.
// - A seed run twice gives the same log.
// KVBMTEST_SIM_SEEDS is the number of seeds (default 100), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 3,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "cluster/coding/link_coder.h"
#include "cluster/mesh/mesh.h"
#include "cluster/mesh/session_host.h"
#include "cluster/session/slice.h"
#include "support/coded_records.h"
#include "support/counts.h"
#include "support/forged_bulk.h"
#include "support/session_shapes.h"
#include "support/sim_network.h"
#include "support/simulated_kills.h"

namespace kvbm::test::session_host_test {
namespace {

const SimulatedKills kills(__FILE__);

using namespace cluster;
using session::Range;

constexpr uint64_t kMs = 1'000'000;

// A node that has no records.
class NoRecords final : public RecordSource {
 public:
  void find(std::span<const Identity>, std::span<wire::FoundItem>) override {}
  bool pin(const Identity&) override { return false; }
  void unpin(const Identity&) override {}
  void open(const Identity&, uint64_t, uint32_t, uint32_t, uint64_t,
            UniqueFunction<void(const OpenedRecord&)> done) override {
    done({});
  }
  void close(uint64_t) override {}
  wire::NodeStatus status() override { return {}; }
  void invalidate(std::vector<cluster::EpochWord> words, uint32_t,
                  UniqueFunction<void(std::vector<cluster::EpochWord>)> done) override {
    done(std::move(words));
  }
};

struct Process {
  // coding: coder of slices; may be null.
  Process(SimExecutor& sim, SimNetwork& network, const std::string& name, std::vector<std::string> peers,
          const LinkCoding* coding, copy::Protection protect)
      : net(network), node(network.add_node()) {
    // Gives each machine a clock with another start and another speed.
    net.set_clock(node, sim.random().below(1'000'000'000 * kMs), 900 + sim.random().below(201));
    deadline = now() + 3000 * kMs;
    MeshOptions options;
    options.self.node = node_id_of(name);
    options.self.incarnation = sim.random().next();
    options.self.pool = "pool";
    options.self.request_limit = 16;
    options.key = SharedKey{};
    options.self.protect = protect;
    options.unprotected_beyond = true;
    options.listen = SimNetwork::host(node) + ":7000";
    options.peers = std::move(peers);
    mesh = std::make_unique<Mesh>(options, families, sim.random(), &log);
    transport = copy::Transport::open(net.ops(node), {}, *mesh).value();
    net.on_wake(node, [this] {
      net.executor(node).post([this] {
        while (transport->progress()) {
        }
      });
    });
    mesh->attach(*transport, net.executor(node));
    SessionHost::Options staging;
    staging.slice_bytes = session::kMinSliceBytes;
    staging.staging_bytes = 2 << 20;
    if (coding != nullptr) coder = std::make_shared<LinkCoder>(*coding, sim.random(), clock(), &log);
    staging.coder = coder;
    staging.core = &net.executor(node);
    host = std::make_unique<SessionHost>(staging, *mesh, &log);
    mesh->serve_sessions(host.get());
    EXPECT_TRUE(mesh->begin(source).ok());
  }

  [[nodiscard]] const Clock& clock() const { return net.executor(node).clock(); }
  [[nodiscard]] uint64_t now() const { return clock().now_ns(); }
  void skip(uint64_t ns) {
    net.skip(node, ns);
    jumped = now();
  }

  SimNetwork& net;
  SimNetwork::Node node;
  uint64_t deadline = 0, jumped = 0;  // by its own clock
  FamilyTable families;
  Log log;
  NoRecords source;
  std::shared_ptr<LinkCoder> coder;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<copy::Transport> transport;
  std::unique_ptr<SessionHost> host;
  bool gone = false;  // killed or frozen for good
};

struct Seen {
  uint64_t sessions = 0, ok = 0, failed = 0, layers = 0, kills = 0;
  uint64_t coded = 0, sealed = 0;  // slices that came so
  uint64_t forged = 0;
  SimNetwork::Counts network;
};

// Coding of slices, the same on both sides. With `one_sealed` only the prefill side has keys.
enum class Coding : uint64_t { none, automatic, fixed, sealed, one_sealed };
constexpr uint64_t kCodings = 5;

enum class Trouble : uint64_t {
  none,
  garble,
  breaks,
  freeze,
  kill,
  abort_prefill,
  abort_decode,
  silence,
  meddling,
  skip,
  forging  // slices come forged, with every hash of theirs, between sides that protect the link
};
constexpr uint64_t kTroubles = 11;

class World {
 public:
  World(uint64_t seed, Seen& seen) : seen_(seen), sim_(seed), net_(sim_), seed_(seed) {
    protect_ = static_cast<copy::Protection>(seed % 3);
    trouble_ = static_cast<Trouble>(random().below(kTroubles));
    coding_ = static_cast<Coding>(random().below(kCodings));
    if (trouble_ == Trouble::garble) net_.faults.flip_bulk = 0.02;
    if (trouble_ == Trouble::forging) {
      if (protect_ == copy::Protection::off) protect_ = copy::Protection::authenticate;
      net_.meddle_bulk = [this](uint64_t, int, std::vector<std::byte>& chunk) {
        if (random().below(10) != 0 || chunk.size() <= copy::FrameGuard::kTagBytes) return;
        const MutableBytes bulk = MutableBytes(chunk).first(chunk.size() - copy::FrameGuard::kTagBytes);
        if (kvbm::test::forge_bulk(bulk, random().below(bulk.size()))) ++seen_.forged;
      };
    }
    if (trouble_ == Trouble::meddling) {
      net_.faults.repeat = net_.faults.exchange = net_.faults.drop = random().below(2) == 0 ? 0.005 : 0.05;
    }
    const bool large = coding_ == Coding::fixed;  // small slices are not worth the record's head
    facts_ = random_facts(random(), large);
    tokens_ = 1 + random().below(large ? 400 : 60);
    SideShape a = random_side(facts_, random(), tokens_);
    SideShape b = random_side(facts_, random(), tokens_);
    if (a.begin > b.begin) std::swap(a.begin, b.begin);
    prefill_ = make_side(facts_, a, tokens_, random());
    decode_ = make_side(facts_, b, tokens_, random());
    request_.bytes[0] = 1;
    start();
  }
  ~World() {
    for (auto& process : processes_) (void)process.release();
    sim_.drop_all();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  uint64_t run() {
    for (size_t p = 0; p < prefill_.size(); ++p) at(random().below(300), [this, p] { offer(p); });
    for (size_t d = 0; d < decode_.size(); ++d) at(random().below(300), [this, d] { open(d); });
    at(random().below(900), [this] { make_trouble(); });
    sim_.run_for(8000 * kMs);  // the deadline, and what a silent peer may take beyond it
    check();
    seen_.network.repeated += net_.counts().repeated, seen_.network.exchanged += net_.counts().exchanged;
    seen_.network.dropped += net_.counts().dropped, seen_.network.skips += net_.counts().skips;
    return sim_.log_hash();
  }

 private:
  struct End {
    uint64_t times = 0;
    Status status;
  };
  Random& random() { return sim_.random(); }
  void at(uint64_t ms, UniqueFunction<void()> task) {
    sim_.post_at(sim_.clock().now_ns() + ms * kMs + random().below(kMs), std::move(task));
  }

  [[nodiscard]] bool may_end_well() const { return coding_ != Coding::one_sealed; }

  // Starts a process for each rank, or one for each side.
  void start() {
    LinkCoding how;
    how.automatic = coding_ == Coding::automatic;
    if (coding_ == Coding::fixed) how.mode = codec::Mode::fast;
    LinkCoding sealed = how;
    sealed.keys = codec::coded_records::ring_of(codec::coded_records::kTwoKeys);
    const bool keys = coding_ == Coding::sealed || coding_ == Coding::one_sealed;
    const LinkCoding* const prefills = keys ? &sealed : coding_ == Coding::none ? nullptr : &how;
    const LinkCoding* const decodes = coding_ == Coding::one_sealed ? nullptr : prefills;
    const bool together = random().below(2) == 0;
    prefill_nodes_ = together ? 1 : prefill_.size();
    decode_nodes_ = together ? 1 : decode_.size();
    std::vector<std::string> peers;
    for (size_t p = 0; p < prefill_nodes_; ++p) {
      processes_.push_back(std::make_unique<Process>(sim_, net_, "prefill-" + std::to_string(p),
                                                     std::vector<std::string>(), prefills, protect_));
      peers.push_back(SimNetwork::host(processes_.back()->node) + ":7000");
    }
    for (size_t d = 0; d < decode_nodes_; ++d) {
      processes_.push_back(
          std::make_unique<Process>(sim_, net_, "decode-" + std::to_string(d), peers, decodes, protect_));
    }
    offers_.resize(prefill_.size());
    sessions_.resize(decode_.size());
  }
  Process& prefill(size_t p) { return *processes_[p % prefill_nodes_]; }
  Process& decode(size_t d) { return *processes_[prefill_nodes_ + d % decode_nodes_]; }

  void offer(size_t p) {
    Process& process = prefill(p);
    if (process.gone) return;
    offered_.push_back(p);
    process.host->offer(static_cast<uint16_t>(p),
                        {request_, facts_, prefill_[p].locals(), process.deadline + 100 * kMs},
                        [this, p](const session::SenderEvent& end) {
                          ++offers_[p].times;
                          offers_[p].status = end.status;
                        });
    if (trouble_ == Trouble::silence) return;
    const uint64_t chunk = 1 + random().below(tokens_ + 10);
    for (const auto& cache : prefill_[p].caches) {
      const session::Part part = cache->part();
      const uint64_t step = part.range.size() > 1000 ? part.range.size() : chunk;  // a state
      for (uint32_t l = part.shard.first_layer; l < uint32_t{part.shard.first_layer} + part.shard.layers; ++l) {
        for (uint64_t t = part.range.begin; t < part.range.end; t += step) {
          const Range range{t, std::min(part.range.end, t + step)};
          at(random().below(400), [this, p, raw = cache.get(), component = part.component, l, range] {
            if (prefill(p).gone) return;
            raw->fill(seed_, l, range);
            prefill(p).host->publish(static_cast<uint16_t>(p), request_, component, l, 1, range);
          });
        }
      }
    }
  }

  void open(size_t d) {
    Process& process = decode(d);
    if (process.gone) return;
    opened_.push_back(d);
    ++seen_.sessions;
    SessionHost::Session session;
    session.request.request = request_;
    session.request.facts = facts_;
    session.request.targets = decode_[d].locals();
    session.request.sink_rank = static_cast<uint16_t>(d);
    session.request.sink_count = static_cast<uint16_t>(decode_.size());
    session.request.deadline_ns = process.deadline;
    for (size_t p = 0; p < prefill_.size(); ++p) {
      const size_t node = p % prefill_nodes_;
      const std::string name =
          p % 2 == 0 ? SimNetwork::host(prefill(p).node) + ":7000" : "prefill-" + std::to_string(node);
      session.request.sources.push_back({0, static_cast<uint16_t>(p), name});
    }
    session.layer_ready = [this, d](Component component, uint16_t layer) {
      ++seen_.layers;
      EXPECT_EQ(sessions_[d].times, 0U) << "a layer after the end";
      for (const auto& cache : decode_[d].caches) {
        if (cache->part().component == component) {
          EXPECT_EQ(cache->check_layer(seed_, layer), "");
        }
      }
    };
    // Its clock may have jumped over the deadline before.
    session.done = [this, d, begun = process.now()](const Status& status) {
      ++sessions_[d].times;
      sessions_[d].status = status;
      EXPECT_LE(decode(d).now(), std::max({decode(d).deadline, decode(d).jumped, begun}) + 100 * kMs);
      if (status.ok()) {
        EXPECT_EQ(decode_[d].check(seed_), "");
      }
    };
    process.host->open(d + 1, std::move(session));
  }

  void make_trouble() {
    const size_t p = random().below(prefill_.size());
    const size_t d = random().below(decode_.size());
    Process& victim = random().below(2) == 0 ? prefill(p) : decode(d);
    switch (trouble_) {
      case Trouble::breaks:
        net_.break_connections(prefill(p).node, decode(d).node);
        break;
      case Trouble::freeze:
        net_.freeze(victim.node);
        victim.gone = true;
        break;
      case Trouble::kill:
        net_.kill(victim.node);
        victim.gone = true;
        ++seen_.kills;
        break;
      case Trouble::abort_prefill:
        prefill(p).host->abort_offer(static_cast<uint16_t>(p), request_, Code::cancelled, "the user went away");
        break;
      case Trouble::abort_decode:
        decode(d).host->abort(d + 1, Code::cancelled, "no room for it");
        break;
      case Trouble::skip:
        victim.skip(random().below(random().below(2) == 0 ? 1000 * kMs : 60'000 * kMs));
        break;
      default:
        break;
    }
  }

  void check() {
    for (const size_t d : opened_) {
      if (decode(d).gone) continue;
      EXPECT_EQ(sessions_[d].times, 1U) << "decode rank " << d;
      ++(sessions_[d].status.ok() ? seen_.ok : seen_.failed);
      if (trouble_ == Trouble::none && may_end_well()) {
        EXPECT_TRUE(sessions_[d].status.ok()) << sessions_[d].status.message();
      }
      if (!may_end_well()) {
        EXPECT_FALSE(sessions_[d].status.ok()) << "slices without a seal";
      }
      if (trouble_ == Trouble::none && !may_end_well()) {
        EXPECT_EQ(sessions_[d].status.code(), Code::not_permitted) << sessions_[d].status.message();
      }
      if (trouble_ == Trouble::silence) {
        EXPECT_FALSE(sessions_[d].status.ok());
      }
    }
    for (const size_t p : offered_) {
      if (prefill(p).gone) continue;
      EXPECT_EQ(offers_[p].times, 1U) << "prefill rank " << p;
      if (trouble_ == Trouble::none && may_end_well()) {
        EXPECT_TRUE(offers_[p].status.ok()) << offers_[p].status.message();
      }
      if (!may_end_well()) {  // a refusal that a decode rank got ends the offer before its deadline
        const std::string said = offers_[p].status.message();
        EXPECT_EQ(said.find("a decode rank was told"), std::string::npos) << said;
      }
    }
    for (const auto& process : processes_) {
      if (process->gone) continue;
      EXPECT_EQ(process->host->staging_taken(), 0U);
      EXPECT_EQ(process->host->offers(), 0U);
      EXPECT_EQ(process->host->sessions(), 0U);
      if (process->coder == nullptr) continue;
      const CodingCounts counts = process->coder->counts();
      seen_.coded += counts.taken.coded;
      if (coding_ != Coding::sealed) continue;
      EXPECT_EQ(counts.taken.plain + counts.given.plain, 0U) << "a slice that is not sealed";
      seen_.sealed += counts.taken.coded;
    }
  }

  Seen& seen_;
  SimExecutor sim_;
  SimNetwork net_;
  const uint64_t seed_;
  copy::Protection protect_ = copy::Protection::off;
  Trouble trouble_ = Trouble::none;
  Coding coding_ = Coding::none;
  session::Facts facts_;
  session::RequestId request_;
  uint64_t tokens_ = 0;
  size_t prefill_nodes_ = 1, decode_nodes_ = 1;
  std::vector<RankEngine> prefill_, decode_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<size_t> offered_, opened_;
  std::vector<End> offers_, sessions_;
};

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(SessionHostSim, layers_are_right_and_everything_ends_whatever_happens) {
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 3000 : 100);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  Seen seen;
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World(seed, seen).run();
  }
  kvbm::test::counted(n, "seeds"), kvbm::test::counted(seen.kills, "simulated kills");
  std::printf("  seeds %llu, sessions %llu, ok %llu, failed %llu, layers %llu, kills %llu, coded %llu, sealed %llu\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(seen.sessions),
              static_cast<unsigned long long>(seen.ok), static_cast<unsigned long long>(seen.failed),
              static_cast<unsigned long long>(seen.layers), static_cast<unsigned long long>(seen.kills),
              static_cast<unsigned long long>(seen.coded), static_cast<unsigned long long>(seen.sealed));
  std::printf("  forged slices %llu\n", static_cast<unsigned long long>(seen.forged));
  std::printf(
      "  came twice %llu, exchanged %llu, never came %llu, clocks jumped %llu\n",
      static_cast<unsigned long long>(seen.network.repeated), static_cast<unsigned long long>(seen.network.exchanged),
      static_cast<unsigned long long>(seen.network.dropped), static_cast<unsigned long long>(seen.network.skips));
  if (n < 50) return;
  EXPECT_GT(seen.network.repeated, 0U);
  EXPECT_GT(seen.network.exchanged, 0U);
  EXPECT_GT(seen.network.dropped, 0U);
  EXPECT_GT(seen.network.skips, n / 30);
  EXPECT_GT(seen.ok, n / 4);
  EXPECT_GT(seen.failed, n / 10);
  EXPECT_GT(seen.kills, n / 30);
  EXPECT_GT(seen.coded, seen.sealed);
  EXPECT_GT(seen.sealed, 0U);
  EXPECT_GT(seen.forged, 0U);
}

TEST(SessionHostSim, a_seed_run_twice_gives_the_same_log) {
  Seen seen;
  const uint64_t once = World(7, seen).run();
  EXPECT_EQ(World(7, seen).run(), once);
}

}  // namespace
}  // namespace kvbm::test::session_host_test

// A running request moves from one decode node to another, and real KV tensors from a prefill node to a decode node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/session_world.h"

namespace kvbm::test::session_move_test {
namespace {

using cluster::session::Facts;
using cluster::session::kMinSliceBytes;
using cluster::session::OpenRequest;
using cluster::session::RequestId;

constexpr uint64_t kMs = 1'000'000;

// Every rank of one side as a node.
struct Side {
  Side(SimExecutor& sim, SessionNetwork& net, std::vector<RankEngine> ranks, uint64_t seed)
      : engines(std::move(ranks)) {
    for (size_t i = 0; i < engines.size(); ++i) {
      SessionNode::Options o;
      o.rank = static_cast<uint16_t>(i);
      nodes.push_back(std::make_unique<SessionNode>(sim, net, o));
      nodes.back()->seed = seed;
      nodes.back()->target = &engines[i];
    }
  }
  std::vector<RankEngine> engines;
  std::vector<std::unique_ptr<SessionNode>> nodes;
  std::vector<uint64_t> sessions;
};

struct Movers {
  Movers(uint64_t seed_in, const Facts& facts_in) : sim(seed_in), net(sim), seed(seed_in), facts(facts_in) {}

  void offer(Side& from, const RequestId& request) {
    for (size_t i = 0; i < from.nodes.size(); ++i) {
      auto& sender = *from.nodes[i]->sender;
      ASSERT_TRUE(sender.offer({request, facts, from.engines[i].locals(), now() + 200 * kMs}, now()).ok());
      ASSERT_TRUE(sender.publish_all(request).ok());
      from.nodes[i]->drain();
    }
  }
  void open(Side& from, Side& to, const RequestId& request) {
    to.sessions.clear();
    for (size_t d = 0; d < to.nodes.size(); ++d) {
      OpenRequest r;
      r.request = request;
      r.facts = facts;
      r.targets = to.engines[d].locals();
      for (size_t p = 0; p < from.nodes.size(); ++p) {
        r.sources.push_back({net.connect(to.nodes[d]->id, from.nodes[p]->id).first, static_cast<uint16_t>(p), "node"});
      }
      r.sink_rank = static_cast<uint16_t>(d);
      r.sink_count = static_cast<uint16_t>(to.nodes.size());
      r.deadline_ns = now() + 150 * kMs;
      const auto session = to.nodes[d]->receiver->open(std::move(r), now());
      ASSERT_TRUE(session.ok()) << session.status().message();
      to.sessions.push_back(session.value());
      to.nodes[d]->drain();
    }
  }
  bool all_ended(const Side& side) const {
    for (size_t d = 0; d < side.nodes.size(); ++d) {
      if (side.nodes[d]->finished.count(side.sessions[d]) == 0) return false;
    }
    return true;
  }
  void expect_clean(const Side& side) {
    for (const auto& n : side.nodes) {
      EXPECT_EQ(n->sender->offers() + n->receiver->sessions(), 0u);
      EXPECT_EQ(n->sender->staging_taken() + n->receiver->staging_taken(), 0u);
      EXPECT_TRUE(n->held.empty());
    }
  }
  void kill(Side& side) {
    for (auto& n : side.nodes) {
      net.kill(n->id);
      n->sender.reset();
      n->receiver.reset();
    }
  }
  [[nodiscard]] uint64_t now() const { return sim.clock().now_ns(); }

  SimExecutor sim;
  SessionNetwork net;
  uint64_t seed;
  Facts facts;
};

TEST(SessionMove, a_running_request_moves_on_with_equal_bytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const Facts facts = random_facts(random, seed % 4 == 0);
    Movers m(seed, facts);
    const uint64_t tokens = 1 + random.below(100);
    const auto shape = [&] {
      SideShape s = random_side(facts, random, tokens);
      s.begin = 0;
      return s;
    };
    Side prefill(m.sim, m.net, make_side(facts, shape(), tokens, random), seed);
    Side first(m.sim, m.net, make_side(facts, shape(), tokens, random), seed);
    Side second(m.sim, m.net, make_side(facts, shape(), tokens, random), seed);
    for (auto& e : prefill.engines) e.fill_all(seed);
    m.offer(prefill, request_id(1));
    m.open(prefill, first, request_id(1));
    m.sim.run();
    ASSERT_TRUE(m.all_ended(first));
    for (size_t d = 0; d < first.nodes.size(); ++d) {
      ASSERT_TRUE(first.nodes[d]->finished.at(first.sessions[d]).ok());
    }
    m.offer(first, request_id(2));
    m.open(first, second, request_id(2));
    m.sim.run();
    ASSERT_TRUE(m.all_ended(second));
    for (size_t d = 0; d < second.nodes.size(); ++d) {
      const Status& s = second.nodes[d]->finished.at(second.sessions[d]);
      ASSERT_TRUE(s.ok()) << s.message();
      ASSERT_EQ(second.engines[d].check(seed), "");
    }
    for (auto& e : first.engines) ASSERT_EQ(e.check(seed), "");
    for (const Side* s : {&prefill, &first, &second}) m.expect_clean(*s);
  }
}

TEST(SessionMove, either_side_killed_on_the_way_leaves_the_other_clean) {
  uint64_t interrupted = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    Facts facts;
    facts.components.push_back(layout::attention(8, 8, 64, layout::Element::bf16));
    Movers m(seed, facts);
    Side a(m.sim, m.net, make_side(facts, {2, 1, 16, layout::Form::packed_hnd, false, 0}, 150, random), seed);
    Side b(m.sim, m.net, make_side(facts, {4, 1, 32, layout::Form::nhd, false, 0}, 150, random), seed);
    for (auto& e : a.engines) e.fill_all(seed);
    m.offer(a, request_id(1));
    m.open(a, b, request_id(1));
    const bool source_dies = seed % 2 == 0;
    const uint64_t steps = random.below(200);
    m.sim.run(steps);
    interrupted += m.all_ended(b) ? 0 : 1;
    m.kill(source_dies ? a : b);
    m.sim.run();
    Side& survivor = source_dies ? b : a;
    m.expect_clean(survivor);
    EXPECT_EQ(m.net.borrowed(), 0u);
    if (source_dies) {
      ASSERT_TRUE(m.all_ended(b));
      for (size_t d = 0; d < b.nodes.size(); ++d) {
        if (b.nodes[d]->finished.at(b.sessions[d]).ok()) {
          EXPECT_EQ(b.engines[d].check(seed), "");
        }
      }
    } else {
      for (auto& e : a.engines) EXPECT_EQ(e.check(seed), "");  // the prefill engine continues with its blocks intact
      for (auto& n : a.nodes) EXPECT_EQ(n->offers_ended.size(), 1u);
    }
  }
  EXPECT_GT(interrupted, 40u);
}

// (30 layers, K and V, 512 tokens, 3 heads x 64) of bf16, behind a NumPy header.
struct RealKv {
  static constexpr uint32_t kLayers = 30, kTokens = 512, kHeads = 3, kDim = 64, kRow = kDim * 2;
  std::vector<char> file;
  size_t start = 0;

  bool load() {
    const char* given = std::getenv("KVBMTEST_SHARED_DATA");
    const std::filesystem::path folder =
        given != nullptr ? given : std::filesystem::path(KVBM_TEST_DATA) / "../../../shared/data";
    std::ifstream in(folder / "smollm2_kv_bf16.npy", std::ios::binary);
    if (!in) return false;
    file.assign(std::istreambuf_iterator<char>(in), {});
    const size_t bytes = size_t{kLayers} * 2 * kTokens * kHeads * kRow;
    start = file.size() - std::min(file.size(), bytes);
    return file.size() > bytes;
  }
  [[nodiscard]] const char* row(uint64_t layer, uint64_t plane, uint64_t token, uint64_t head) const {
    return file.data() + start + (((layer * 2 + plane) * kTokens + token) * kHeads + head) * kRow;
  }
};

void each_row(const RankCache& cache, uint64_t tokens, const RealKv& kv, bool write) {
  const auto local = cache.local();
  const auto& s = local.part.shard;
  for (uint32_t l = s.first_layer; l < uint32_t{s.first_layer} + s.layers; ++l)
    for (uint32_t plane = 0; plane < 2; ++plane) {
      const auto& v = local.map.arrangement->view(l - s.first_layer, plane);
      for (uint32_t h = s.first_head; h < uint32_t{s.first_head} + s.heads; ++h)
        for (uint64_t t = 0; t < tokens; ++t) {
          const uint64_t size = local.map.arrangement->tokens();
          std::byte* at = v.base + int64_t{local.map.blocks[t / size]} * v.block_stride +
                          static_cast<int64_t>(h - s.first_head) * v.head_stride +
                          static_cast<int64_t>(t % size) * v.token_stride;
          if (write) {
            std::memcpy(at, kv.row(l, plane, t, h), RealKv::kRow);
          } else {
            ASSERT_EQ(std::memcmp(at, kv.row(l, plane, t, h), RealKv::kRow), 0) << l << " " << plane << " " << t;
          }
        }
    }
}

TEST(SessionMove, real_tensors_go_from_three_ranks_to_one_of_another_order) {
  RealKv kv;
  if (!kv.load()) GTEST_SKIP() << "smollm2_kv_bf16.npy is not here";
  Facts facts;
  facts.components.push_back(layout::attention(RealKv::kLayers, RealKv::kHeads, RealKv::kDim, layout::Element::bf16));
  Movers m(1, facts);
  SeededRandom random(1);
  const uint64_t tokens = RealKv::kTokens - 5;  // a partial last block
  Side a(m.sim, m.net, make_side(facts, {3, 2, 16, layout::Form::nhd, false, 0}, tokens, random), 1);
  Side b(m.sim, m.net, make_side(facts, {1, 2, 64, layout::Form::cross_packed_hln, false, 0}, tokens, random), 1);
  for (auto& n : b.nodes) n->target = nullptr;
  for (auto& e : a.engines) each_row(*e.caches[0], tokens, kv, true);
  m.offer(a, request_id(1));
  m.open(a, b, request_id(1));
  m.sim.run();
  ASSERT_TRUE(m.all_ended(b));
  for (size_t d = 0; d < b.nodes.size(); ++d) {
    const Status& s = b.nodes[d]->finished.at(b.sessions[d]);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(b.nodes[d]->layers[b.sessions[d]].size(), 15u);
    each_row(*b.engines[d].caches[0], tokens, kv, false);
  }
}

}  // namespace
}  // namespace kvbm::test::session_move_test

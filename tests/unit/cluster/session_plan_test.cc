// Plans and copies without any protocol: every pair of shapes gives the bytes of the whole model.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "cluster/session/plan.h"
#include "cluster/session/slice.h"
#include "layout/shard.h"
#include "support/session_shapes.h"

namespace kvbm::cluster::session::session_plan_test {
namespace {

using test::make_side;
using test::RankEngine;
using test::SideShape;

constexpr uint64_t kSeed = 20261121;

std::vector<std::vector<Part>> parts_of(const std::vector<RankEngine>& side) {
  std::vector<std::vector<Part>> out;
  for (const RankEngine& r : side) out.push_back(r.parts());
  return out;
}

Result<Plan> plan_of(const Facts& facts, const std::vector<RankEngine>& from, const RankEngine& to, uint32_t rank,
                     uint32_t slice_bytes = kMinSliceBytes) {
  const auto locals = to.locals();
  const auto parts = parts_of(from);
  return Plan::make({&facts, locals, parts, rank, slice_bytes});
}

const LocalPart& part_for(const std::vector<LocalPart>& parts, Component component) {
  for (const LocalPart& p : parts) {
    if (p.part.component == component) return p;
  }
  return parts.front();
}

void move(const Facts& facts, const std::vector<RankEngine>& from, RankEngine& to, uint32_t rank, uint64_t* slices) {
  const auto made = plan_of(facts, from, to, rank);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Plan& plan = made.value();
  ASSERT_TRUE(plan.gaps().empty()) << gap_text(plan.gaps()[0]);
  const auto targets = to.locals();
  ASSERT_TRUE(check_local(facts, targets, Use::target).ok()) << check_local(facts, targets, Use::target).message();
  SliceCopy copy;
  for (const Slice& s : plan.slices()) {
    ASSERT_LE(s.payload_bytes, kMinSliceBytes);
    const SliceShape shape(facts.components[s.extent.component], s.extent);
    ASSERT_EQ(shape.payload_bytes(), s.payload_bytes);
    ASSERT_LE(shape.leaf_count(), max_leaves(s.payload_bytes));
    std::vector<std::byte> wire(s.payload_bytes);
    std::vector<uint64_t> hashes(shape.leaf_count());
    const auto locals = from[s.source].locals();
    const LocalPart& source = part_for(locals, s.extent.component);
    ASSERT_TRUE(inside(source.part, s.extent));
    copy.gather(facts, source, s.extent, wire.data(), hashes);
    // A contiguous extent may be sent from its place, with equal bytes and hashes.
    std::vector<ConstBytes> pieces;
    std::vector<uint64_t> straight(shape.leaf_count());
    if (copy.straight(facts, source, s.extent, 1, pieces, straight)) {
      std::vector<std::byte> joined;
      for (const ConstBytes p : pieces) joined.insert(joined.end(), p.begin(), p.end());
      ASSERT_EQ(joined, wire);
      ASSERT_EQ(straight, hashes);
    }
    ASSERT_EQ(copy.scatter(facts, part_for(targets, s.extent.component), s.extent, wire.data(), hashes),
              shape.leaf_count());
    ++*slices;
  }
}

TEST(SessionPlan, any_pair_of_shapes_gives_the_bytes_of_the_whole_model) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SeededRandom random(kSeed);
  uint64_t slices = 0;
  for (int round = 0; round < 250; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const bool large = round % 10 == 0;
    const Facts facts = test::random_facts(random, large);
    const uint64_t tokens = 1 + random.below(large ? 500 : 90);
    SideShape a = test::random_side(facts, random, tokens);
    SideShape b = test::random_side(facts, random, tokens);
    if (a.begin > b.begin) std::swap(a.begin, b.begin);
    auto from = make_side(facts, a, tokens, random);
    auto to = make_side(facts, b, tokens, random);
    for (auto& r : from) r.fill_all(kSeed + static_cast<uint64_t>(round));
    for (uint32_t r = 0; r < to.size(); ++r) {
      move(facts, from, to[r], r, &slices);
      if (HasFatalFailure()) return;
      ASSERT_EQ(to[r].check(kSeed + static_cast<uint64_t>(round)), "");
    }
  }
  EXPECT_GT(slices, 2000u);
}

TEST(SessionPlan, a_slice_that_changed_is_found_at_its_leaf) {
  SeededRandom random(kSeed);
  Facts facts;
  facts.components.push_back(layout::attention(1, 4, 64, layout::Element::bf16));
  auto from = make_side(facts, {1, 1, 16, layout::Form::nhd, false, 0}, 100, random);
  auto to = make_side(facts, {1, 1, 32, layout::Form::hnd, false, 0}, 100, random);
  from[0].fill_all(kSeed);
  const auto made = plan_of(facts, from, to[0], 0);
  ASSERT_EQ(made.value().slices().size(), 1u);
  const Slice& s = made.value().slices()[0];
  const SliceShape shape(facts.components[0], s.extent);
  ASSERT_GE(shape.leaf_count(), 2u);
  std::vector<std::byte> wire(s.payload_bytes);
  std::vector<uint64_t> hashes(shape.leaf_count());
  SliceCopy copy;
  copy.gather(facts, from[0].locals()[0], s.extent, wire.data(), hashes);
  wire[shape.leaf(1).offset + 5] ^= std::byte{1};
  EXPECT_EQ(copy.scatter(facts, to[0].locals()[0], s.extent, wire.data(), hashes), 1u);
}

TEST(SessionPlan, replicas_share_the_load_whether_readers_are_few_or_many) {
  SeededRandom random(kSeed);
  Facts facts;
  facts.components.push_back(layout::latent(16, 64, layout::Element::bf16));
  for (const uint32_t readers : {1U, 2U, 8U}) {
    auto from = make_side(facts, {4, 1, 16, layout::Form::nhd, false, 0}, 64, random);
    auto to = make_side(facts, {readers, 1, 16, layout::Form::nhd, false, 0}, 64, random);
    std::map<uint32_t, uint64_t> bytes;
    for (uint32_t r = 0; r < to.size(); ++r) {
      const auto made = plan_of(facts, from, to[r], r);
      ASSERT_EQ(made.value().slices().size(), 16u);  // each layer from one rank only
      for (const Slice& s : made.value().slices()) bytes[s.source] += s.payload_bytes;
    }
    ASSERT_EQ(bytes.size(), 4u);
    for (const auto& [source, n] : bytes) EXPECT_EQ(n, bytes[0]) << "source " << source << " of " << readers;
  }
}

TEST(SessionPlan, what_nobody_has_is_named) {
  SeededRandom random(kSeed);
  Facts facts;
  facts.components.push_back(layout::attention(4, 8, 8, layout::Element::bf16));
  auto from = make_side(facts, {4, 2, 16, layout::Form::nhd, false, 10}, 40, random);
  auto to = make_side(facts, {1, 1, 16, layout::Form::nhd, false, 0}, 40, random);
  auto parts = parts_of(from);
  parts[5].clear();  // layers 2 and 3, heads 2 and 3
  const auto locals = to[0].locals();
  const auto made = Plan::make({&facts, locals, parts, 0, kMinSliceBytes});
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made.value().gaps().size(), 3u);
  EXPECT_EQ(made.value().gaps()[0], (Part{0, {0, 2, 0, 8}, {0, 10}}));
  EXPECT_EQ(made.value().gaps()[1], (Part{0, {2, 2, 0, 8}, {0, 10}}));
  EXPECT_EQ(made.value().gaps()[2], (Part{0, {2, 2, 2, 2}, {10, 40}}));
  EXPECT_EQ(gap_text(made.value().gaps()[2]), "component 0, layers 2 to 4, heads 2 to 4, positions 10 to 40");
}

TEST(SessionPlan, layers_come_in_the_order_in_which_a_forward_pass_wants_them) {
  SeededRandom random(kSeed);
  Facts facts;
  facts.components.push_back(layout::attention(3, 2, 8, layout::Element::bf16));
  facts.components.push_back(layout::latent(5, 8, layout::Element::bf16));
  auto from = make_side(facts, {1, 1, 16, layout::Form::nhd, false, 0}, 20, random);
  auto to = make_side(facts, {1, 1, 16, layout::Form::nhd, false, 0}, 20, random);
  const auto made = plan_of(facts, from, to[0], 0);
  std::vector<std::pair<int, int>> order;
  for (const Plan::Layer& l : made.value().layers()) order.emplace_back(l.layer, l.component);
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 1}, {4, 1}}));
  EXPECT_EQ(made.value().find_layer(1, 3), 6u);
  EXPECT_EQ(made.value().find_layer(0, 3), made.value().layers().size());
}

TEST(SessionFacts, the_first_fact_that_differs_is_named_with_both_values) {
  Facts a;
  a.components.push_back(layout::attention(4, 8, 64, layout::Element::bf16));
  Facts b = a;
  EXPECT_TRUE(check_same(a, b, "x").ok());
  EXPECT_EQ(facts_hash(a), facts_hash(b));
  std::set<uint64_t> hashes{facts_hash(a)};
  const auto differs = [&](auto change, const std::string& words) {
    b = a;
    change(b);
    const Status s = check_same(a, b, "node 7");
    EXPECT_EQ(s.code(), Code::mismatch);
    EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
    EXPECT_NE(s.message().find("node 7"), std::string::npos) << s.message();
    EXPECT_TRUE(hashes.insert(facts_hash(b)).second);
  };
  differs([](Facts& f) { f.model[3] = 1; }, "the model is 00000000");
  differs([](Facts& f) { f.components.push_back(f.components[0]); }, "the number of components is 1 here and 2");
  differs([](Facts& f) { f.components[0] = layout::latent(4, 64, layout::Element::bf16); }, "the kind of component 0");
  differs([](Facts& f) { f.components[0].element = layout::Element::fp16; }, "is bf16 here and fp16");
  differs([](Facts& f) { f.components[0].layers = 5; }, "the number of layers of component 0 is 4 here and 5");
  differs([](Facts& f) { f.components[0].heads = 4; }, "the number of KV heads of component 0 is 8 here and 4");
  differs([](Facts& f) { f.components[0].head_dim = 32; }, "the head size of component 0 is 64 here and 32");
  differs([](Facts& f) { f.components[0].planes = 1; }, "the number of planes of component 0 is 2 here and 1");
}

// Ids alone do not tell an operator which model differs; a side knows only its own name of it.
TEST(SessionFacts, models_that_differ_are_named_by_whoever_knows_a_name) {
  Facts here;
  here.model[0] = 1;
  here.model_name = "one\n";
  Facts there;
  there.model[0] = 2;
  EXPECT_EQ(here, [&] {
    Facts same = here;
    same.model_name = "";
    return same;
  }()) << "a name is no fact";
  std::string said = check_same(there, here, "x").message();
  EXPECT_NE(said.find("01000000000000000000000000000000 (\"one?\") at"), std::string::npos) << said;
  EXPECT_NE(said.find("02000000000000000000000000000000 here"), std::string::npos) << said;
  there.model_name = "two";
  said = with_model_name(said, there);
  EXPECT_NE(said.find("02000000000000000000000000000000 (\"two\") here"), std::string::npos) << said;
  EXPECT_EQ(with_model_name(said, there), said);
  EXPECT_EQ(with_model_name("something else", there), "something else");
}

TEST(SessionBlocks, wrong_maps_are_refused_in_words) {
  SeededRandom random(kSeed);
  Facts facts;
  facts.components.push_back(layout::attention(2, 4, 8, layout::Element::bf16));
  auto side = make_side(facts, {1, 1, 16, layout::Form::nhd, false, 0}, 40, random);
  const std::vector<LocalPart> good = side[0].locals();
  ASSERT_TRUE(check_local(facts, good, Use::target).ok());
  const auto refused = [&](auto change, Use use, const std::string& words) {
    std::vector<LocalPart> parts = good;
    change(parts[0]);
    const Status s = check_local(facts, parts, use);
    EXPECT_EQ(s.code(), Code::invalid_argument);
    EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
  };
  refused([](LocalPart& p) { p.map.blocks[1] = p.map.blocks[0]; }, Use::target, "is a target twice");
  refused([](LocalPart& p) { p.map.blocks.pop_back(); }, Use::source, "do not cover 0 to 40");
  refused([](LocalPart& p) { p.map.blocks[0] = 1000; }, Use::source, "block 1000");
  refused([](LocalPart& p) { p.part.shard.heads = 2; }, Use::source, "the cache has 4 heads, the part has 2");
  refused([](LocalPart& p) { p.part.shard.first_layer = 1; }, Use::source, "layers 1 + 2");
  refused([](LocalPart& p) { p.part.range.end = 0; }, Use::source, "positions 0 to 0");
  refused([](LocalPart& p) { p.part.component = 1; }, Use::source, "component 1, the model has 1");
  EXPECT_EQ(check_local(facts, {}, Use::source).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace kvbm::cluster::session::session_plan_test

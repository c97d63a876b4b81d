#include "cluster/placement/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/crypto/random.h"

namespace kvbm::cluster::placement_test {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

Key key(SeededRandom& random) {
  Key k;
  random.fill(std::as_writable_bytes(std::span(k.bytes)));
  return k;
}

std::vector<PlacementNode> nodes(size_t n, size_t first = 0) {
  std::vector<PlacementNode> out;
  for (size_t i = first; i < first + n; ++i) {
    out.push_back({node_id_of("node" + std::to_string(i)), kGiB * (1 + i % 8)});
  }
  return out;
}

double total(const std::vector<PlacementNode>& list) {
  double sum = 0;
  for (const auto& node : list) sum += static_cast<double>(node.weight);
  return sum;
}

TEST(Placement, the_logarithm_is_one) {
  SeededRandom random(5);
  for (int i = 0; i < 200000; ++i) {
    const uint64_t x = random.next() >> (i % 60);
    if (x == 0) continue;
    const double expected = 64 - std::log2(static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(minus_log2(x)) / static_cast<double>(uint64_t{1} << 52), expected, 2e-10) << x;
  }
  EXPECT_GE(minus_log2(UINT64_MAX), 1U);
}

TEST(Placement, without_members_there_is_no_home) {
  SeededRandom random(1);
  uint32_t out[2];
  EXPECT_EQ(Placement().homes(key(random), out), 0U);
  const PlacementNode none{node_id_of("a"), 0};
  EXPECT_EQ(Placement(std::span(&none, 1)).home(key(random)), UINT32_MAX);
}

TEST(Placement, the_order_of_the_list_does_not_matter) {
  SeededRandom random(2);
  auto list = nodes(20);
  auto reversed = list;
  std::reverse(reversed.begin(), reversed.end());
  const Placement a(list);
  const Placement b(reversed);
  for (int i = 0; i < 2000; ++i) {
    const Key k = key(random);
    uint32_t x[3], y[3];
    ASSERT_EQ(a.homes(k, x), 3U);
    ASSERT_EQ(b.homes(k, y), 3U);
    for (int j = 0; j < 3; ++j) EXPECT_EQ(list[x[j]].id, reversed[y[j]].id);
    EXPECT_TRUE(x[0] != x[1] && x[1] != x[2] && x[0] != x[2]);
    EXPECT_EQ(a.home(k), x[0]);
  }
}

// Written down once: every machine must agree on it.
TEST(Placement, the_homes_of_these_keys_are_these) {
  const Placement placement(nodes(100));
  uint64_t hash = 0;
  SeededRandom random(3);
  for (int i = 0; i < 10000; ++i) {
    uint32_t out[3];
    placement.homes(key(random), out);
    for (const uint32_t index : out) hash = hash * 1099511628211U + index;
  }
  EXPECT_EQ(hash, 9326969798767473427U);
}

// Pearson's chi-square over the nodes: its mean is n - 1, its deviation sqrt(2 (n - 1)).
void expect_loads(const std::vector<PlacementNode>& list, const std::vector<uint64_t>& count, double keys) {
  const double sum = total(list);
  double chi = 0;
  std::map<uint64_t, std::pair<double, double>> classes;
  for (size_t i = 0; i < list.size(); ++i) {
    const double expected = keys * static_cast<double>(list[i].weight) / sum;
    const double d = static_cast<double>(count[i]) - expected;
    chi += d * d / expected;
    EXPECT_LT(std::abs(d), 6 * std::sqrt(expected)) << "node " << i;
    auto& group = classes[list[i].weight];
    group.first += static_cast<double>(count[i]);
    group.second += expected;
  }
  const double freedom = static_cast<double>(list.size() - 1);
  EXPECT_LT(std::abs(chi - freedom), 5 * std::sqrt(2 * freedom));
  // Nodes of equal weight together get their share, within much less than the promised tenth.
  for (const auto& [weight, group] : classes) {
    EXPECT_LT(std::abs(group.first / group.second - 1), 0.1);
    EXPECT_LT(std::abs(group.first - group.second), 5 * std::sqrt(group.second)) << weight;
  }
}

TEST(Placement, a_thousand_nodes_get_loads_by_weight_and_churn_moves_only_what_it_must) {
  constexpr size_t kKeys = 100'000;
  SeededRandom random(4);
  std::vector<Key> keys;
  for (size_t i = 0; i < kKeys; ++i) keys.push_back(key(random));
  auto list = nodes(1000);
  size_t next = list.size();
  std::vector<NodeId> before;
  for (int minute = 0; minute < 4; ++minute) {
    const Placement placement(list);
    std::vector<uint64_t> count(list.size());
    std::vector<NodeId> homes;
    for (const Key& k : keys) {
      const uint32_t home = placement.home(k);
      ++count[home];
      homes.push_back(list[home].id);
    }
    expect_loads(list, count, kKeys);
    if (minute > 0) {
      // The last 10 nodes of the list joined. Nodes that left are in the list no more.
      double moved = 0;
      for (size_t i = 0; i < kKeys; ++i) {
        if (homes[i] == before[i]) continue;
        ++moved;
        const bool to_new = std::any_of(list.end() - 10, list.end(), [&](const auto& n) { return n.id == homes[i]; });
        const bool from_left = std::none_of(list.begin(), list.end(), [&](const auto& n) { return n.id == before[i]; });
        ASSERT_TRUE(to_new || from_left);
      }
      EXPECT_LT(moved, 0.045 * kKeys);  // two times 10 of 1,000, at most 8/4.5 of the mean weight
    }
    before = homes;
    for (int i = 0; i < 10; ++i) list.erase(list.begin() + static_cast<std::ptrdiff_t>(random.below(list.size() - 20)));
    for (auto& node : nodes(10, next)) list.push_back(node);
    next += 10;
  }
}

TEST(Placement, each_of_few_nodes_gets_its_share_within_a_hundredth) {
  SeededRandom random(6);
  const auto list = nodes(8);
  const Placement placement(list);
  std::vector<uint64_t> first(8), second(8);
  constexpr int kKeys = 500'000;
  for (int i = 0; i < kKeys; ++i) {
    uint32_t out[2];
    placement.homes(key(random), out);
    ++first[out[0]];
    ++second[out[1]];
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const double share = static_cast<double>(list[i].weight) / total(list);
    EXPECT_NEAR(static_cast<double>(first[i]) / kKeys, share, 0.01 * share + 0.001);
    // Keys with their first home elsewhere have their second home here by the weights of the remaining nodes.
    double expected = 0;
    for (size_t j = 0; j < list.size(); ++j) {
      if (j == i) continue;
      const double other = static_cast<double>(list[j].weight) / total(list);
      expected += other * share / (1 - other);
    }
    EXPECT_NEAR(static_cast<double>(second[i]) / kKeys, expected, 0.01 * expected + 0.001);
  }
}

TEST(Placement, more_weight_only_draws_keys_to_that_node) {
  SeededRandom random(7);
  auto list = nodes(16);
  const Placement before(list);
  list[5].weight *= 2;
  const Placement after(list);
  for (int i = 0; i < 20000; ++i) {
    const Key k = key(random);
    const uint32_t now = after.home(k);
    EXPECT_TRUE(now == before.home(k) || now == 5);
  }
}

TEST(Placement, the_replica_takes_over_when_a_home_goes) {
  SeededRandom random(8);
  auto list = nodes(12);
  const Placement all(list);
  list.erase(list.begin() + 3);
  const Placement rest(list);
  for (int i = 0; i < 5000; ++i) {
    const Key k = key(random);
    uint32_t out[2];
    all.homes(k, out);
    if (out[0] != 3) continue;
    EXPECT_EQ(rest.home(k), out[1] > 3 ? out[1] - 1 : out[1]);
  }
}

}  // namespace
}  // namespace kvbm::cluster::placement_test

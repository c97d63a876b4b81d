#include "benchmark/keys.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "codec/key.h"

namespace kvbm::benchmark {
namespace {

constexpr int kRounds = 31;
constexpr size_t kBlocks = 1024;
constexpr uint32_t kTokensPerBlock = 16;
constexpr size_t kInputBytes = 44 + 4 * kTokensPerBlock;  // lib/codec/README.md, Keys

double ns_per_block(std::chrono::steady_clock::time_point since) {
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - since;
  return took.count() / static_cast<double>(kBlocks);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<Row> bench_keys() {
  std::vector<uint32_t> tokens(kBlocks * kTokensPerBlock);
  std::iota(tokens.begin(), tokens.end(), 1U);
  std::vector<Key> keys(kBlocks);
  std::vector<double> ours;
  std::vector<double> bare;
  // The bare hash is chained as keys are: each input begins with the result before it.
  std::vector<std::byte> input(kInputBytes);
  for (int round = 0; round < kRounds; ++round) {
    auto since = std::chrono::steady_clock::now();
    (void)codec::chained_keys(NamespaceId{}, keys.data(), tokens, kTokensPerBlock, {}, keys);
    ours.push_back(ns_per_block(since));
    since = std::chrono::steady_clock::now();
    for (size_t i = 0; i < kBlocks; ++i) {
      const auto digest = codec::sha256(input);
      std::memcpy(input.data(), digest.data(), digest.size());
    }
    bare.push_back(ns_per_block(since));
  }
  const double value = median(ours);
  const double limit = median(bare);
  return {{"keys.block16", value, "ns", limit, "SHA-256 of the same number of bytes", limit / value}};
}

}  // namespace kvbm::benchmark

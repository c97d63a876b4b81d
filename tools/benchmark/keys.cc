#include "benchmark/keys.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "benchmark/statistics.h"
#include "codec/record/key.h"

namespace kvbm::benchmark {
namespace {

constexpr int kRounds = 31;
constexpr size_t kKeyBlocks = 1024;
constexpr uint32_t kTokensPerBlock = 16;
constexpr size_t kInputBytes = 44 + 4 * kTokensPerBlock;  // lib/codec/README.md, Keys

double ns_per_block(std::chrono::steady_clock::time_point since) {
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - since;
  return took.count() / static_cast<double>(kKeyBlocks);
}

}  // namespace

std::vector<Row> bench_keys() {
  std::vector<uint32_t> tokens(kKeyBlocks * kTokensPerBlock);
  std::iota(tokens.begin(), tokens.end(), 1U);
  std::vector<Key> keys(kKeyBlocks);
  std::vector<double> ours;
  std::vector<double> bare;
  // The bare hash is chained like keys: each input begins with the result before it.
  std::vector<std::byte> input(kInputBytes);
  for (int round = 0; round < kRounds; ++round) {
    auto since = std::chrono::steady_clock::now();
    (void)codec::chained_keys(NamespaceId{}, keys.data(), tokens, kTokensPerBlock, {}, keys);
    ours.push_back(ns_per_block(since));
    since = std::chrono::steady_clock::now();
    for (size_t i = 0; i < kKeyBlocks; ++i) {
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

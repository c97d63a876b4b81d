// The measurements of bench.c, through kvbm.hpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <kvbm.hpp>
#include <memory>

namespace {

constexpr std::size_t kLookups = 256, kRegistered = 1024, kBatch = 16, kCacheBlocks = 32;
constexpr int kWarm = 20, kCalls = 200, kQuickWarm = 500, kQuick = 2000;
constexpr uint64_t kMiB = 1 << 20;

// The cache begins at a page in every language: copies to other addresses take another time.
struct alignas(4096) Page {
  uint8_t bytes[4096];
};

// Returns the median time of `timed`. `before` runs before each call and is not measured.
template <class Before, class Timed>
uint64_t median_ns(int warm, int calls, Before&& before, Timed&& timed) {
  std::vector<uint64_t> samples;
  for (int i = -warm; i < calls; ++i) {
    before();
    const auto begin = std::chrono::steady_clock::now();
    timed();
    const auto taken = std::chrono::steady_clock::now() - begin;
    if (i >= 0) samples.push_back(static_cast<uint64_t>(std::chrono::nanoseconds(taken).count()));
  }
  std::nth_element(samples.begin(), samples.begin() + calls / 2, samples.end());
  return samples[samples.size() / 2];
}

kvbm::Manager manager_of(const kvbm::Context& context, uint64_t block_bytes) {
  auto options = kvbm::manager_options();
  const kvbm_tier_t none{};
  options.block_bytes = block_bytes;
  options.host_capacity_bytes = 64 * kMiB;
  options.tiers = &none;
  return kvbm::Manager(context, options);
}

kvbm::Namespace namespace_of(kvbm::Manager& manager) {
  auto options = kvbm::namespace_options();
  options.model = "bench";
  return manager.open(options);
}

kvbm::Keys chain(const kvbm::Namespace& ns, std::size_t n) {
  std::vector<uint32_t> tokens(n * 16);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i;
  return ns.chain(tokens, 16);
}

void measure_blocks(const kvbm::Context& context, uint64_t& lookup_ns, uint64_t& view_ns) {
  kvbm::Manager manager = manager_of(context, 4096);
  const kvbm::Namespace ns = namespace_of(manager);
  const kvbm::Keys keys = chain(ns, kRegistered);
  kvbm::Blocks blocks = manager.allocate(ns, kRegistered);
  blocks.complete();
  blocks.publish(ns, keys);
  const kvbm::Span<const kvbm_key_t> wanted(keys.data(), kLookups);
  const auto nothing = [] {};
  lookup_ns = median_ns(kQuickWarm, kQuick, nothing, [&] {
    if (manager.lookup(ns, wanted).hits() != kLookups) throw kvbm::Error(KVBM_ERR_MISS);
  });
  kvbm::Match match = manager.lookup(ns, wanted);
  const kvbm::Blocks held = match.blocks(0, kLookups);
  std::vector<kvbm_view_t> views(kLookups);
  view_ns = median_ns(kQuickWarm, kQuick, nothing, [&] { held.view(views); });
}

void measure_bytes(const kvbm::Context& context, uint64_t& store_ns, uint64_t& load_ns) {
  kvbm::Manager manager = manager_of(context, kMiB);
  const kvbm::Namespace ns = namespace_of(manager);
  const std::unique_ptr<Page[]> pages(new Page[kCacheBlocks * kMiB / sizeof(Page)]);
  uint8_t* memory = pages[0].bytes;
  for (std::size_t i = 0; i < kCacheBlocks * kMiB; ++i) memory[i] = static_cast<uint8_t>(i * 7 + (i >> 8));
  const kvbm_tensor_t tensor = {memory, kCacheBlocks * kMiB, 0, kMiB};
  const kvbm_cache_part_t part = {{}, KVBM_FORM_OPAQUE, 0, &tensor, 1, {}};
  auto layout = kvbm::cache_options();
  layout.n_blocks = kCacheBlocks, layout.parts = &part, layout.n_parts = 1;
  kvbm::Cache cache(manager, ns, layout);
  const kvbm::Keys keys = chain(ns, kBatch);
  std::vector<uint32_t> ids(kBatch);
  for (uint32_t i = 0; i < kBatch; ++i) ids[i] = i;
  store_ns = median_ns(
                 kWarm, kCalls, [&] { manager.drop(ns, keys); }, [&] { cache.store(keys, ids); }) /
             kBatch;
  const kvbm::Match match = cache.lookup(keys);
  load_ns = median_ns(
                kWarm, kCalls, [] {}, [&] { cache.load(match, ids); }) /
            kBatch;
}

}  // namespace

int main() try {
  const kvbm::Context context;
  uint64_t lookup_ns = 0, view_ns = 0, store_ns = 0, load_ns = 0;
  measure_blocks(context, lookup_ns, view_ns);
  measure_bytes(context, store_ns, load_ns);
  std::printf(
      "{\"language\":\"cpp\",\"lookup_256_ns\":%llu,\"view_256_ns\":%llu,\"store_1MiB_ns\":%llu,\"load_1MiB_ns\":%llu}"
      "\n",
      static_cast<unsigned long long>(lookup_ns), static_cast<unsigned long long>(view_ns),
      static_cast<unsigned long long>(store_ns), static_cast<unsigned long long>(load_ns));
  return 0;
} catch (const kvbm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

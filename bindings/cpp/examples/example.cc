// Stores two blocks of an engine's cache, overwrites the engine's memory, and loads them back.
#include <cstdio>
#include <cstring>
#include <kvbm.hpp>

static char kv[4][4096];  // the engine's cache: four blocks of four tokens

int main() try {
  kvbm::Context context;
  kvbm::Manager manager(context);
  auto who = kvbm::namespace_options();
  who.model = "my-model, bf16";
  kvbm::Namespace ns = manager.open(who);

  const kvbm_tensor_t tensor = {kv, sizeof kv, 0, sizeof kv[0]};
  const kvbm_cache_part_t part = {{}, KVBM_FORM_OPAQUE, 0, &tensor, 1, {}};
  auto layout = kvbm::cache_options();
  layout.n_blocks = 4, layout.parts = &part, layout.n_parts = 1;
  kvbm::Cache cache(manager, ns, layout);

  std::memset(kv[3], 'a', 4096), std::memset(kv[1], 'b', 4096);
  const uint32_t tokens[8] = {101, 7, 7, 9, 23, 5, 8, 2}, blocks[2] = {3, 1};  // the prompt, and where it was computed
  const kvbm::Keys keys = ns.chain(tokens, 4);                                 // names for the prompt's two full blocks
  cache.store(keys, blocks);                                                   // offload them
  std::memset(kv, 0, sizeof kv);                                               // the engine forgets
  kvbm::Match match = cache.lookup(keys);                                      // a later request with this prompt
  cache.load(match, blocks);                                                   // back, verified
  std::printf("%zu of %zu blocks came back: %c%c\n", match.hits(), keys.size(), kv[3][0], kv[1][4095]);
  return match.hits() == 2 && kv[3][0] == 'a' && kv[1][4095] == 'b' ? 0 : 1;
} catch (const kvbm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// Computes the size of a model's KV cache from its Hugging Face config.json. Pure arithmetic, no I/O.
//
// Per layer and token (source: the caches of transformers and vLLM, which agree):
//   grouped-query attention   2 * num_key_value_heads * head_dim values (K and V)
//   latent attention (MLA)    kv_lora_rank + qk_rope_head_dim values
//   sliding or chunked        as full attention, but at most `window` tokens of a sequence
//   recurrent (Mamba, linear) nothing per token: a state of constant size per sequence
// A config that is not understood is refused by name: a wrong size is worse than none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::size {

// Layers of one kind.
struct LayerGroup {
  std::string kind;  // "full attention", "sliding window", "latent attention", "mamba", ...
  uint64_t layers = 0;
  uint64_t values_per_token = 0;  // of one layer
  uint64_t window = 0;            // tokens in memory; 0 means all
  uint64_t conv_values = 0;       // recurrent layers: per layer and sequence, 16 bits each
  uint64_t state_values = 0;      // recurrent layers: per layer and sequence, state_bits each
  uint64_t state_bits = 16;
  std::string formula;  // of one layer, with numbers
};

// One number of the formula and its origin.
struct Factor {
  std::string name;
  uint64_t value = 0;
  std::string origin;
};

struct Model {
  std::string model_type;
  std::vector<LayerGroup> groups;
  std::vector<Factor> factors;
  std::vector<std::string> notes;
};

struct Usage {
  uint64_t bytes_per_token = 0;              // one token in every layer with KV of tokens
  uint64_t bytes_per_token_past_window = 0;  // bytes of one more token in a long sequence
  uint64_t state_bytes_per_sequence = 0;     // recurrent state
  uint64_t bytes_per_sequence = 0;           // one sequence of `tokens`, everything included
  uint64_t total_bytes = 0;                  // times `batch`
};

Result<Model> parse_model(std::string_view config_json);
// Computes the size. `bits` of a KV value, 1 to 64. Fails when a number does not fit 64 bits.
Result<Usage> usage_of(const Model& model, uint64_t tokens, uint64_t batch, uint64_t bits);
// Returns the longest single sequence that fits in `capacity` bytes, found by bisection. Returns 0 when none does,
// kAnyLength when the largest possible size of a sequence fits.
inline constexpr uint64_t kAnyLength = UINT64_MAX;
Result<uint64_t> longest_sequence(const Model& model, uint64_t capacity, uint64_t bits);

struct Preset {
  std::string_view name;
  std::string_view source;  // the repository of the config.json
  std::string_view config;  // its fields that decide the size
};
const std::vector<Preset>& presets();
// Returns null when there is no preset of this name.
const Preset* find_preset(std::string_view name);

}  // namespace kvbm::size

#include "size/layers.h"

#include <algorithm>
#include <map>

namespace kvbm::size {

namespace {

constexpr uint64_t kMaxLayers = 100000;

using Layers = std::vector<Layer>;

Layers alike(uint64_t layers, Kind kind) { return Layers(layers, Layer{kind}); }

// Returns layers of which every `period`-th is `rare`, the others `common`.
Layers every(uint64_t layers, uint64_t period, Kind rare, Kind common) {
  Layers list = alike(layers, common);
  for (uint64_t i = period - 1; i < layers; i += period) list[i].kind = rare;
  return list;
}

Layers from_names(Reader& in, const char* field) {
  static const std::map<std::string, Kind> kNames = {{"full_attention", Kind::full},
                                                     {"attention", Kind::full},
                                                     {"sliding_attention", Kind::sliding},
                                                     {"chunked_attention", Kind::chunked},
                                                     {"mamba", Kind::mamba},
                                                     {"linear_attention", Kind::linear},
                                                     {"conv", Kind::short_conv},
                                                     {"mlp", Kind::none},
                                                     {"moe", Kind::none},
                                                     // Its indexer selects from a cache of all tokens.
                                                     {"deepseek_sparse_attention", Kind::full}};
  Layers layers;
  const Json& list = in.at(field);
  if (!list.is_array()) in.refuse("`" + std::string(field) + "` must be a list, it is " + shown(list));
  for (const Json& entry : list) {
    const auto found = kNames.find(entry.is_string() ? entry.get<std::string>() : "");
    if (found == kNames.end()) {
      in.refuse("`" + std::string(field) + "`: layers of type " + shown(entry) + " are not known here");
      return {};
    }
    layers.push_back({found->second});
  }
  return layers;
}

Layers from_letters(Reader& in, const char* field, const std::map<char, Kind>& letters) {
  Layers layers;
  for (const char c : in.text(field)) {
    const auto found = letters.find(c);
    if (found == letters.end()) {
      in.refuse("`" + std::string(field) + "` holds an unknown letter `" + shown(std::string(1, c)) + "`");
      return {};
    }
    layers.push_back({found->second});
  }
  return layers;
}

// Reads a list with 0 or 1 for each layer.
Layers from_bits(Reader& in, const char* field, Kind of_one, Kind of_zero) {
  Layers layers;
  const Json& list = in.at(field);
  if (!list.is_array()) in.refuse("`" + std::string(field) + "` must be a list of 0 and 1, it is " + shown(list));
  for (const Json& entry : list) {
    if (entry != 0 && entry != 1) {
      in.refuse("`" + std::string(field) + "` holds " + shown(entry) + ", which is not known here");
      return {};
    }
    layers.push_back({entry == 1 ? of_one : of_zero});
  }
  return layers;
}

// Reads the numbers of the layers of one kind, from `first` on; the others are of the other kind.
Layers from_indices(Reader& in, const Json& list, const char* field, uint64_t first, uint64_t layers, Kind named,
                    Kind other) {
  Layers result = alike(layers, other);
  if (!list.is_array()) in.refuse("`" + std::string(field) + "` must be a list, it is " + shown(list));
  for (const Json& entry : list) {
    if (!entry.is_number_unsigned() || entry.get<uint64_t>() < first || entry.get<uint64_t>() - first >= layers) {
      in.refuse("`" + std::string(field) + "` holds " + shown(entry) + ", which is no layer");
      return {};
    }
    result[entry.get<uint64_t>() - first].kind = named;
  }
  return result;
}

// GPT-Neo: [[["global", "local"], 12]].
Layers from_attention_types(Reader& in) {
  Layers layers;
  for (const Json& run : in.at("attention_types")) {
    const bool whole = run.is_array() && run.size() == 2 && run[0].is_array() && run[1].is_number_unsigned() &&
                       run[1].get<uint64_t>() <= kMaxLayers && run[0].size() <= kMaxLayers;
    if (!whole || layers.size() + run[0].size() * run[1].get<uint64_t>() > kMaxLayers) {
      in.refuse("`attention_types` must be a list of [names, count]");
      return {};
    }
    for (uint64_t i = 0; i < run[1].get<uint64_t>(); ++i) {
      for (const Json& name : run[0]) {
        if (name != "global" && name != "local") {
          in.refuse("`attention_types`: layers of type " + shown(name) + " are not known here");
          return {};
        }
        layers.push_back({name == "global" ? Kind::full : Kind::sliding});
      }
    }
  }
  return layers;
}

// Nemotron's searched models: one object for each layer.
Layers from_blocks(Reader& in) {
  Layers layers;
  if (!in.at("block_configs").is_array()) in.refuse("`block_configs` must be a list");
  const uint64_t heads = in.need({"num_attention_heads"});
  for (const Json& block : in.at("block_configs")) {
    if (!block.is_object() || !block.contains("attention") || !block["attention"].is_object()) {
      in.refuse("`block_configs`: a layer has no object `attention`");
      return {};
    }
    Layer layer{Kind::none};
    for (const auto& [name, value] : block["attention"].items()) {
      if (value.is_null() || value == false || name == "no_op") continue;
      const bool in_group = name == "n_heads_in_group";
      const uint64_t count = value.is_number_unsigned() ? value.get<uint64_t>() : 0;
      if (name == "replace_with_linear" && value == true) {
        layer.kind = Kind::none;  // a matrix instead of attention
      } else if ((in_group || name == "num_key_value_heads") && count != 0 && (!in_group || heads % count == 0)) {
        layer = {Kind::full, in_group ? heads / count : count};
      } else {
        in.refuse("`block_configs`: what `" + name.substr(0, 60) + "` = " + shown(value) + " means is not known here");
        return {};
      }
    }
    const Json& attention = block["attention"];
    for (const char* name : {"no_op", "replace_with_linear"}) {
      if (attention.contains(name) && attention[name] == true) layer = {Kind::none};
    }
    layers.push_back(layer);
  }
  return layers;
}

// Reads a list with a number of KV heads for each layer, instead of one number.
Layers from_kv_heads(Reader& in, const char* field) {
  Layers layers;
  for (const Json& entry : in.at(field)) {
    if (!entry.is_number_unsigned() || entry.get<uint64_t>() > kMaxLayers) {
      in.refuse("`" + std::string(field) + "` holds " + shown(entry) + ", which is no number of heads");
      return {};
    }
    layers.push_back(entry == 0 ? Layer{Kind::none} : Layer{Kind::full, entry.get<uint64_t>()});
  }
  return layers;
}

// Reads the windows in Mistral's own files: one for each layer of a run that repeats; null is full attention.
Layers from_windows(Reader& in, uint64_t layers) {
  const Json& list = in.at("sliding_window");
  Layers result = alike(layers, Kind::full);
  uint64_t window = 0;
  for (uint64_t i = 0; i < layers && !list.empty(); ++i) {
    const Json& entry = list[i % list.size()];
    if (entry.is_null()) continue;
    if (!entry.is_number_unsigned() || entry == 0 || (window != 0 && entry != window)) {
      in.refuse("`sliding_window` is a list with " + shown(entry) + ", which is not counted here");
      return {};
    }
    window = entry.get<uint64_t>();
    result[i].kind = Kind::sliding;
  }
  return result;
}

Layers windowed(Reader& in, const TypeFacts& type, const std::string& name, uint64_t layers) {
  for (const char* field :
       {"sliding_window_pattern", "_sliding_window_pattern", "layer_switch", "global_attn_every_n_layers"}) {
    if (!in.has(field)) continue;
    if (!in.at(field).is_string()) return every(layers, in.number(field), Kind::full, Kind::sliding);
    const Layers run = from_letters(in, field, {{'L', Kind::sliding}, {'G', Kind::full}});
    Layers result;
    for (uint64_t i = 0; i < layers && !run.empty(); ++i) result.push_back(run[i % run.size()]);
    return result;
  }
  if (type.full_every != 0) {
    in.derived("full_attention_every", type.full_every, "not in the config: what its type has");
    Layers result = every(layers, type.full_every, Kind::full, Kind::sliding);
    if (name.rfind("gemma4", 0) == 0) result.back().kind = Kind::full;
    return result;
  }
  const bool qwen = name.rfind("qwen", 0) == 0;
  if ((qwen || in.has("use_sliding_window")) && !in.flag("use_sliding_window")) return alike(layers, Kind::full);
  if (qwen || in.has("max_window_layers")) {
    const uint64_t first = std::min(layers, in.need({"max_window_layers"}));
    Layers result = alike(layers, Kind::sliding);
    std::fill(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(first), Layer{Kind::full});
    return result;
  }
  for (const char* each :
       {"mistral", "mixtral", "ministral", "phi3", "phi3_v", "phi4_multimodal", "phimoe", "starcoder2"}) {
    if (name == each) return alike(layers, Kind::sliding);
  }
  // Handles Mistral's own params.json.
  if (name.empty() && in.has("n_kv_heads")) return alike(layers, Kind::sliding);
  in.note("`sliding_window` is set but nothing says for which layers: all are counted as full attention");
  return alike(layers, Kind::full);
}

// Llama 4: the layers without rotary positions attend to all tokens, the others to their chunk.
Layers chunked(Reader& in, uint64_t layers) {
  if (in.has("no_rope_layers") && in.at("no_rope_layers").is_array() && !in.at("no_rope_layers").empty()) {
    return from_bits(in, "no_rope_layers", Kind::chunked, Kind::full);
  }
  const uint64_t interval = in.maybe({"no_rope_layer_interval"});
  return every(layers, interval == 0 ? 4 : interval, Kind::full, Kind::chunked);
}

Layers from_offset(Reader& in, uint64_t layers) {
  const uint64_t period = in.number("attn_layer_period");
  const uint64_t offset = in.maybe({"attn_layer_offset"});
  Layers result = alike(layers, Kind::mamba);
  for (uint64_t i = offset; i < layers; i += period) result[i].kind = Kind::full;
  return result;
}

// Ling: the last layer of each group attends, and so do those after the last complete group.
Layers from_groups(Reader& in, uint64_t layers) {
  const uint64_t group = in.number("layer_group_size");
  Layers result = every(layers, group, Kind::full, Kind::linear);
  if (!in.has("short_conv_kernel_size")) {
    for (uint64_t i = layers / group * group; i < layers; ++i) result[i].kind = Kind::full;
  }
  return result;
}

Layers from_lists(Reader& in, uint64_t layers) {
  for (const char* field : {"layer_types", "layers_block_type"}) {
    if (in.has(field)) return from_names(in, field);
  }
  if (in.has("hybrid_layer_pattern")) return from_bits(in, "hybrid_layer_pattern", Kind::sliding, Kind::full);
  if (in.has("attn_type_list")) return from_bits(in, "attn_type_list", Kind::full, Kind::linear);
  if (in.has("attention_types")) return from_attention_types(in);
  if (in.has("block_configs")) return from_blocks(in);
  if (in.has("linear_attn_config")) {
    const Json& part = in.at("linear_attn_config");
    if (!part.is_object() || !part.contains("full_attn_layers")) {
      in.refuse("`linear_attn_config` says no `full_attn_layers`");
      return {};
    }
    return from_indices(in, part["full_attn_layers"], "full_attn_layers", 1, layers, Kind::full, Kind::linear);
  }
  if (in.has("attn_layer_indices")) {
    return from_indices(in, in.at("attn_layer_indices"), "attn_layer_indices", 0, layers, Kind::full, Kind::mamba);
  }
  if (in.has("full_attn_idxs")) {
    return from_indices(in, in.at("full_attn_idxs"), "full_attn_idxs", 0, layers, Kind::full, Kind::short_conv);
  }
  if (in.has("hybrid_override_pattern")) {
    return from_letters(in, "hybrid_override_pattern",
                        {{'M', Kind::mamba}, {'*', Kind::full}, {'-', Kind::none}, {'E', Kind::none}});
  }
  for (const char* field : {"num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"}) {
    if (in.has(field) && in.at(field).is_array()) return from_kv_heads(in, field);
  }
  return {};
}

Layers from_numbers(Reader& in, const TypeFacts& type, const std::string& name, uint64_t layers) {
  if (name == "mamba" || name == "mamba2" || name == "falcon_mamba") return alike(layers, Kind::mamba);
  if (in.has("full_attention_interval"))
    return every(layers, in.number("full_attention_interval"), Kind::full, Kind::linear);
  if (in.has("layer_group_size")) return from_groups(in, layers);
  if (in.has("attn_layer_period")) return from_offset(in, layers);
  if (type.linear) return every(layers, type.full_every, Kind::full, Kind::linear);
  if (in.has("mamba_d_ssm")) {
    Layers result = alike(layers, Kind::full);
    for (Layer& layer : result) layer.mamba_beside = true;
    return result;
  }
  if (in.has("attention_chunk_size")) return chunked(in, layers);
  if (in.has("sliding_window") && in.at("sliding_window").is_array()) return from_windows(in, layers);
  const bool says_none = in.all().contains("sliding_window") && !in.has("sliding_window");
  if (in.has("sliding_window") || in.maybe({"sliding_window_size"}) != 0 ||
      (type.window != 0 && type.full_every != 0 && !says_none)) {
    return windowed(in, type, name, layers);
  }
  // Fields of layers that no other field lists.
  for (const char* field :
       {"mamba_d_state", "mamba_num_heads", "mamba_n_heads", "ssm_state_size", "state_size", "conv_L_cache",
        "linear_num_value_heads", "linear_num_heads", "short_conv_kernel_size", "window_size"}) {
    if (in.has(field)) in.refuse("`" + std::string(field) + "` is set, but nothing says for which layers");
  }
  return alike(layers, Kind::full);
}

}  // namespace

uint64_t layer_count(Reader& in, const std::string& type_name) {
  // Each layer has two attentions, and `num_hidden_layers` may have either number.
  if (type_name == "longcat_flash") return 2 * in.need({"num_layers"});
  for (const char* field : {"num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_transformer_layers"}) {
    if (!in.has(field)) continue;
    const uint64_t layers = in.number(field);
    if (layers > kMaxLayers)
      in.refuse("`" + std::string(field) + "` is " + std::to_string(layers) + ", which no model has");
    return layers;
  }
  if (in.has("layers_block_type") && in.at("layers_block_type").is_array() && !in.at("layers_block_type").empty() &&
      in.at("layers_block_type").size() <= kMaxLayers) {
    return in.derived("num_hidden_layers", in.at("layers_block_type").size(), "the length of layers_block_type");
  }
  return in.need({"num_hidden_layers"});
}

std::vector<Layer> layers_of(Reader& in, const TypeFacts& type, const std::string& type_name, uint64_t layers) {
  Layers list = from_lists(in, layers);
  if (!in.status().ok()) return {};
  if (list.empty()) list = from_numbers(in, type, type_name, layers);
  if (!in.status().ok()) return {};
  // Some lists continue over the layers for multi-token prediction.
  const uint64_t more = in.maybe({"num_nextn_predict_layers"});
  if (list.size() == layers + more) list.resize(layers);
  if (list.size() != layers) {
    in.refuse("`num_hidden_layers` is " + std::to_string(layers) + " but the list of layer kinds has " +
              std::to_string(list.size()));
    return {};
  }
  const uint64_t shared = in.maybe({"num_kv_shared_layers"});
  if (shared >= layers) {
    in.refuse("`num_kv_shared_layers` is " + std::to_string(shared) + " of " + std::to_string(layers) +
              " layers, which leaves none that keeps KV");
    return {};
  }
  list.resize(layers - shared);  // the last layers read the KV of earlier ones
  return list;
}

}  // namespace kvbm::size

#include "size/model.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace kvbm::size {

namespace {

using Json = nlohmann::json;

// No field of a real config comes near it; products of a few such numbers fit 64 bits.
constexpr uint64_t kMaxField = uint64_t{1} << 24;
constexpr uint64_t kMaxLayers = 100000;

Status bad(std::string detail) {
  return {Code::invalid_argument, "this config.json does not say the KV size", std::move(detail)};
}

// Reads fields, remembers each as a factor, and keeps the first failure.
class Reader {
 public:
  Reader(const Json& config, Model& model) : config_(config), model_(model) {}

  [[nodiscard]] bool has(const char* name) const { return config_.contains(name) && !config_.at(name).is_null(); }
  [[nodiscard]] const Json& at(const char* name) const { return config_.at(name); }
  [[nodiscard]] std::string text(const char* name) const {
    return has(name) && at(name).is_string() ? at(name).get<std::string>() : "";
  }
  [[nodiscard]] bool flag(const char* name) const { return has(name) && at(name).is_boolean() && at(name).get<bool>(); }

  // The first of `names` that is there; a failure that names them when none is.
  uint64_t need(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (has(name)) return number(name);
    }
    refuse("the field `" + std::string(*names.begin()) + "` is missing");
    return 1;
  }
  uint64_t number(const char* name) {
    const Json& field = at(name);
    const std::string shown = field.dump().substr(0, 40);
    if (!field.is_number_unsigned()) {
      refuse("`" + std::string(name) + "` must be a whole number above zero, it is " + shown);
      return 1;
    }
    const auto value = field.get<uint64_t>();
    if (value == 0 || value > kMaxField) {
      refuse("`" + std::string(name) + "` is " + shown + ", which no model has");
      return 1;
    }
    note(name, value, name);
    return value;
  }
  uint64_t derived(const char* name, uint64_t value, std::string origin) {
    note(name, value, std::move(origin));
    return value;
  }
  void refuse(std::string why) {
    if (status_.ok()) status_ = bad(std::move(why));
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void note(const char* name, uint64_t value, std::string origin) {
    for (const Factor& factor : model_.factors) {
      if (factor.name == name) return;
    }
    model_.factors.push_back({name, value, std::move(origin)});
  }

  const Json& config_;
  Model& model_;
  Status status_;
};

std::string times(std::initializer_list<uint64_t> numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += (text.empty() ? "" : " * ") + std::to_string(n);
  return text;
}

// Fields that real configs leave out, as what transformers has for the type when they are not there.
struct Unsaid {
  std::string_view type;
  uint64_t heads, kv_heads, head_dim;  // 0: the config has it
};
constexpr Unsaid kUnsaid[] = {{"gemma", 0, 0, 256}, {"gemma2", 0, 0, 256}, {"gemma3_text", 8, 4, 256}};

Unsaid unsaid_of(Reader& in) {
  const std::string type = in.text("model_type");
  for (const Unsaid& each : kUnsaid) {
    if (each.type == type) return each;
  }
  return {};
}

uint64_t heads_of(Reader& in, const Unsaid& unsaid) {
  if (unsaid.heads != 0 && !in.has("num_attention_heads")) {
    return in.derived("num_attention_heads", unsaid.heads, "not in the config: what its type has");
  }
  return in.need({"num_attention_heads", "n_head", "n_heads"});
}

uint64_t kv_heads_of(Reader& in, uint64_t heads, const Unsaid& unsaid) {
  // Falcon's configs have a number of KV heads that counts in its later design alone.
  if (in.flag("multi_query") && !in.flag("new_decoder_architecture")) {
    return in.derived("num_key_value_heads", 1, "multi_query is true");
  }
  for (const char* name : {"num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv"}) {
    if (in.has(name)) return in.number(name);
  }
  if (unsaid.kv_heads != 0) {
    return in.derived("num_key_value_heads", unsaid.kv_heads, "not in the config: what its type has");
  }
  return in.derived("num_key_value_heads", heads, "not in the config: one per attention head");
}

uint64_t head_dim_of(Reader& in, uint64_t heads, const Unsaid& unsaid) {
  for (const char* name : {"head_dim", "attention_head_dim", "kv_channels"}) {
    if (in.has(name)) return in.number(name);
  }
  if (unsaid.head_dim != 0) return in.derived("head_dim", unsaid.head_dim, "not in the config: what its type has");
  const uint64_t hidden = in.need({"hidden_size", "n_embd"});
  if (hidden % heads != 0) {
    in.refuse("hidden_size " + std::to_string(hidden) + " does not divide by " + std::to_string(heads) +
              " heads, and there is no head_dim");
  }
  return in.derived("head_dim", hidden / heads, "hidden_size / num_attention_heads");
}

LayerGroup attention_group(Reader& in) {
  if (in.has("kv_lora_rank")) {
    const uint64_t rank = in.number("kv_lora_rank");
    const uint64_t rope = in.need({"qk_rope_head_dim"});
    return {"latent attention", 0, rank + rope, 0, 0, 0, 16, std::to_string(rank) + " + " + std::to_string(rope)};
  }
  const Unsaid unsaid = unsaid_of(in);
  const uint64_t heads = heads_of(in, unsaid);
  const uint64_t kv_heads = kv_heads_of(in, heads, unsaid);
  const uint64_t head_dim = head_dim_of(in, heads, unsaid);
  if (kv_heads > heads || heads % kv_heads != 0) {
    in.refuse(std::to_string(heads) + " attention heads do not divide into " + std::to_string(kv_heads) + " KV heads");
  }
  if (in.has("v_head_dim")) {
    const uint64_t value_dim = in.number("v_head_dim");
    if (value_dim != head_dim) {
      return {"full attention", 0, kv_heads * (head_dim + value_dim), 0, 0, 0, 16,
              std::to_string(kv_heads) + " * (" + std::to_string(head_dim) + " + " + std::to_string(value_dim) + ")"};
    }
  }
  return {"full attention", 0, 2 * kv_heads * head_dim, 0, 0, 0, 16, times({2, kv_heads, head_dim})};
}

LayerGroup mamba_group(Reader& in) {
  LayerGroup group{"mamba", 0, 0, 0, 0, 0, 16, ""};
  if (in.text("mamba_ssm_dtype") == "float32" || in.text("mamba_ssm_cache_dtype") == "float32") group.state_bits = 32;
  if (in.has("mamba_num_heads") || in.has("mamba_n_heads")) {  // Mamba 2
    const uint64_t heads = in.need({"mamba_num_heads", "mamba_n_heads"});
    const uint64_t dim = in.need({"mamba_head_dim", "mamba_d_head"});
    const uint64_t groups = in.need({"n_groups", "mamba_n_groups"});
    const uint64_t state = in.need({"ssm_state_size", "mamba_d_state"});
    const uint64_t kernel = in.need({"conv_kernel", "mamba_d_conv"});
    group.conv_values = (heads * dim + 2 * groups * state) * (kernel - 1);
    group.state_values = heads * dim * state;
    group.formula = "conv (" + times({heads, dim}) + " + " + times({2, groups, state}) + ") * " +
                    std::to_string(kernel - 1) + ", state " + times({heads, dim, state});
    return group;
  }
  const uint64_t inner = in.need({"mamba_expand"}) * in.need({"hidden_size"});
  const uint64_t kernel = in.need({"mamba_d_conv"});
  const uint64_t state = in.need({"mamba_d_state"});
  group.conv_values = inner * (kernel - 1);
  group.state_values = inner * state;
  group.formula = "conv " + times({inner, kernel - 1}) + ", state " + times({inner, state});
  return group;
}

LayerGroup linear_group(Reader& in) {
  LayerGroup group{"linear attention", 0, 0, 0, 0, 0, 16, ""};
  if (in.text("mamba_ssm_dtype") == "float32") group.state_bits = 32;
  const uint64_t key_dim = in.need({"linear_key_head_dim"});
  const uint64_t value_dim = in.need({"linear_value_head_dim"});
  const uint64_t keys = in.need({"linear_num_key_heads"});
  const uint64_t values = in.need({"linear_num_value_heads"});
  const uint64_t kernel = in.need({"linear_conv_kernel_dim"});
  group.conv_values = (2 * keys * key_dim + values * value_dim) * (kernel - 1);
  group.state_values = values * key_dim * value_dim;
  group.formula = "conv (" + times({2, keys, key_dim}) + " + " + times({values, value_dim}) + ") * " +
                  std::to_string(kernel - 1) + ", state " + times({values, key_dim, value_dim});
  return group;
}

enum class Kind { full, sliding, chunked, mamba, linear, none };

using Kinds = std::map<Kind, uint64_t>;

Kinds from_layer_types(Reader& in, const Json& list) {
  static const std::map<std::string, Kind> kNames = {
      {"full_attention", Kind::full},       {"attention", Kind::full},        {"sliding_attention", Kind::sliding},
      {"chunked_attention", Kind::chunked}, {"mamba", Kind::mamba},           {"linear_attention", Kind::linear},
      {"mlp", Kind::none},                  {"moe", Kind::none}};
  Kinds kinds;
  if (!list.is_array()) in.refuse("the list of layer types is not a list");
  for (const Json& entry : list) {
    const auto found = kNames.find(entry.is_string() ? entry.get<std::string>() : "");
    if (found == kNames.end()) {
      in.refuse("layers of type " + entry.dump().substr(0, 40) + " are not known here");
      return kinds;
    }
    ++kinds[found->second];
  }
  return kinds;
}

Kinds from_pattern(Reader& in, const std::string& pattern) {
  Kinds kinds;
  for (const char c : pattern) {
    if (c == 'M') {
      ++kinds[Kind::mamba];
    } else if (c == '*') {
      ++kinds[Kind::full];
    } else if (c == '-' || c == 'E') {
      ++kinds[Kind::none];
    } else {
      in.refuse(std::string("hybrid_override_pattern holds an unknown letter `") + c + "`");
    }
  }
  return kinds;
}

// Every `period`-th layer is `rare`, the others `common`.
Kinds every(uint64_t layers, uint64_t period, Kind rare, Kind common) {
  Kinds kinds;
  kinds[rare] = layers / period;
  kinds[common] = layers - layers / period;
  return kinds;
}

Kinds windowed_kinds(Reader& in, const std::string& type, uint64_t layers, Model& model) {
  for (const char* name : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (in.has(name)) return every(layers, in.number(name), Kind::full, Kind::sliding);
  }
  if (type == "gemma3_text") return every(layers, 6, Kind::full, Kind::sliding);
  if (type == "gemma2" || type == "gpt_oss") return every(layers, 2, Kind::full, Kind::sliding);
  if (type.rfind("qwen", 0) == 0) {
    if (!in.flag("use_sliding_window")) return {{Kind::full, layers}};
    const uint64_t first = std::min(layers, in.need({"max_window_layers"}));
    return {{Kind::full, first}, {Kind::sliding, layers - first}};
  }
  if (type == "mistral" || type == "mixtral" || type == "phi3" || type == "starcoder2") {
    return {{Kind::sliding, layers}};
  }
  model.notes.push_back("sliding_window is set but nothing says for which layers: all are counted as full attention");
  return {{Kind::full, layers}};
}

// The layers that attend, by their numbers; the others are recurrent.
Kinds from_indices(Reader& in, const Json& list, uint64_t layers) {
  std::set<uint64_t> attending;
  for (const Json& entry : list) {
    if (!entry.is_number_unsigned() || entry.get<uint64_t>() >= layers) {
      in.refuse("attn_layer_indices holds " + entry.dump().substr(0, 40) + ", which is no layer");
      return {};
    }
    attending.insert(entry.get<uint64_t>());
  }
  return {{Kind::full, attending.size()}, {Kind::mamba, layers - attending.size()}};
}

Kinds layer_kinds(Reader& in, const std::string& type, uint64_t layers, Model& model) {
  for (const char* name : {"layer_types", "layers_block_type"}) {
    if (in.has(name)) return from_layer_types(in, in.at(name));
  }
  if (in.has("attn_layer_indices")) return from_indices(in, in.at("attn_layer_indices"), layers);
  if (in.has("hybrid_override_pattern")) return from_pattern(in, in.text("hybrid_override_pattern"));
  if (in.has("full_attention_interval")) {
    return every(layers, in.number("full_attention_interval"), Kind::full, Kind::linear);
  }
  if (in.has("attn_layer_period")) {
    const uint64_t period = in.number("attn_layer_period");
    const Json& offset_field = in.has("attn_layer_offset") ? in.at("attn_layer_offset") : Json(0U);
    const uint64_t offset = offset_field.is_number_unsigned() ? offset_field.get<uint64_t>() : 0;
    Kinds kinds;
    for (uint64_t i = 0; i < layers; ++i) ++kinds[i % period == offset ? Kind::full : Kind::mamba];
    return kinds;
  }
  if (in.has("attention_chunk_size")) return every(layers, 4, Kind::full, Kind::chunked);
  if (in.has("sliding_window")) return windowed_kinds(in, type, layers, model);
  return {{Kind::full, layers}};
}

const Json& text_part(const Json& config) {
  const Json* part = &config;
  for (bool nested = true; nested;) {
    nested = false;
    for (const char* name : {"text_config", "thinker_config", "llm_config", "language_config"}) {
      if (part->contains(name) && part->at(name).is_object()) {
        part = &part->at(name);
        nested = true;
        break;
      }
    }
  }
  return *part;
}

void refuse_unknown_designs(Reader& in) {
  if (in.flag("use_cla")) in.refuse("layers that share their KV (`use_cla`) are not counted here");
  if (in.has("cross_attention_layers") && !in.at("cross_attention_layers").empty()) {
    in.refuse("layers that attend to images (`cross_attention_layers`) are not counted here");
  }
  if (in.flag("is_encoder_decoder")) in.refuse("encoder-decoder models are not counted here");
  for (const char* name : {"block_configs", "linear_attn_config", "attn_type_list", "mamba_d_ssm", "block_types",
                           "full_attn_idxs", "num_key_value_heads_per_layer", "num_attention_groups", "mb_per_layer",
                           "mamba_step", "hybrid_layer_pattern", "swa_num_key_value_heads"}) {
    if (in.has(name)) in.refuse("its layers differ in a way (`" + std::string(name) + "`) that is not counted here");
  }
}

LayerGroup group_of(Reader& in, Kind kind) {
  if (kind == Kind::mamba) return mamba_group(in);
  if (kind == Kind::linear) return linear_group(in);
  LayerGroup group = attention_group(in);
  if (kind == Kind::sliding) {
    group.kind = "sliding window";
    group.window = in.need({"sliding_window"});
  } else if (kind == Kind::chunked) {
    group.kind = "chunked attention";
    group.window = in.need({"attention_chunk_size"});
  }
  return group;
}

// Adds a * b * c to *sum; false when it does not fit.
bool add_product(uint64_t a, uint64_t b, uint64_t c, uint64_t* sum) {
  uint64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, c, &product) &&
         !__builtin_add_overflow(*sum, product, sum);
}

}  // namespace

Result<Model> parse_model(std::string_view config_json) {
  const Json config = Json::parse(config_json, nullptr, false);
  if (config.is_discarded()) return Status(Code::invalid_argument, "this is not JSON");
  if (!config.is_object()) return Status(Code::invalid_argument, "this is JSON, but not an object of fields");
  const Json& part = text_part(config);
  Model model;
  Reader in(part, model);
  model.model_type = in.text("model_type");
  refuse_unknown_designs(in);
  uint64_t layers = in.need({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
  if (layers > kMaxLayers) in.refuse("num_hidden_layers is " + std::to_string(layers) + ", which no model has");
  if (!in.status().ok()) return in.status();
  Kinds kinds = layer_kinds(in, model.model_type, layers, model);
  uint64_t counted = 0;
  for (const auto& [kind, count] : kinds) counted += count;
  if (counted != layers) {
    in.refuse("num_hidden_layers is " + std::to_string(layers) + " but the list of layer kinds has " +
              std::to_string(counted));
  }
  if (in.has("num_kv_shared_layers") && in.at("num_kv_shared_layers") != 0) {
    in.refuse("layers that share their KV (`num_kv_shared_layers`) are not counted here");
  }
  for (const auto& [kind, count] : kinds) {
    if (kind == Kind::none || count == 0) continue;
    LayerGroup group = group_of(in, kind);
    group.layers = count;
    model.groups.push_back(std::move(group));
  }
  if (in.has("num_nextn_predict_layers")) model.notes.push_back("layers for multi-token prediction are not counted");
  if (in.has("index_head_dim")) model.notes.push_back("the cache of the sparse-attention indexer is not counted");
  if (!in.status().ok()) return in.status();
  return model;
}

Result<Usage> usage_of(const Model& model, uint64_t tokens, uint64_t batch, uint64_t bits) {
  if (bits == 0 || bits > 64) return Status(Code::invalid_argument, "bits of a KV value must be 1 to 64");
  Usage usage;
  bool fits = true;
  for (const LayerGroup& group : model.groups) {
    // Each layer's share of one token starts on a byte.
    const uint64_t token_bytes = (group.values_per_token * bits + 7) / 8;
    const uint64_t state = group.conv_values * 2 + group.state_values * (group.state_bits / 8);
    const uint64_t kept = group.window == 0 ? tokens : std::min(tokens, group.window);
    fits = fits && add_product(group.layers, token_bytes, 1, &usage.bytes_per_token) &&
           add_product(group.layers, state, 1, &usage.state_bytes_per_sequence) &&
           add_product(group.layers, token_bytes, kept, &usage.bytes_per_sequence);
    if (group.window == 0) fits = fits && add_product(group.layers, token_bytes, 1, &usage.bytes_per_token_past_window);
  }
  fits = fits && add_product(usage.state_bytes_per_sequence, 1, 1, &usage.bytes_per_sequence) &&
         add_product(usage.bytes_per_sequence, batch, 1, &usage.total_bytes);
  if (!fits) return Status(Code::invalid_argument, "the total does not fit 64 bits; ask for fewer tokens or sequences");
  return usage;
}

Result<uint64_t> longest_sequence(const Model& model, uint64_t capacity, uint64_t bits) {
  if (bits == 0 || bits > 64) return Status(Code::invalid_argument, "bits of a KV value must be 1 to 64");
  uint64_t fits = 0;
  uint64_t too_long = uint64_t{1} << 63;
  const Result<Usage> endless = usage_of(model, too_long - 1, 1, bits);
  if (endless.ok() && endless.value().bytes_per_token_past_window == 0 && endless.value().bytes_per_sequence <= capacity) {
    return kAnyLength;
  }
  while (fits + 1 < too_long) {
    const uint64_t middle = fits + (too_long - fits) / 2;
    const Result<Usage> usage = usage_of(model, middle, 1, bits);
    (usage.ok() && usage.value().bytes_per_sequence <= capacity ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace kvbm::size

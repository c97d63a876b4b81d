#include "size/groups.h"

namespace kvbm::size {

namespace {

std::string times(std::initializer_list<uint64_t> numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += (text.empty() ? "" : " * ") + std::to_string(n);
  return text;
}

constexpr const char* kOfType = "not in the config: what its type has";

uint64_t heads_of(Reader& in, const TypeFacts& type) {
  if (in.has("num_query_heads") && in.at("num_query_heads").is_array()) return 0;  // one number for each layer
  if (const uint64_t heads = in.maybe({"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"}))
    return heads;
  if (type.heads != 0) return in.derived("num_attention_heads", type.heads, kOfType);
  // JetMoE: its experts share KV heads.
  if (in.text("model_type") == "jetmoe") return in.need({"num_key_value_heads"});
  return in.need({"num_attention_heads"});
}

// Returns the number in a nested object, as in the configs of DBRX and MPT.
uint64_t kv_heads_of_part(Reader& in, uint64_t heads) {
  const Json& part = in.at("attn_config");
  if (!part.is_object()) {
    in.refuse("`attn_config` must be an object, it is " + shown(part));
    return 1;
  }
  if (part.contains("attn_type") && part["attn_type"] == "multiquery_attention") return 1;
  if (!part.contains("kv_n_heads") || part["kv_n_heads"].is_null()) return heads;
  if (!part["kv_n_heads"].is_number_unsigned() || part["kv_n_heads"] == 0 || part["kv_n_heads"] > heads) {
    in.refuse("`kv_n_heads` is " + shown(part["kv_n_heads"]) + " of " + std::to_string(heads) + " heads");
    return 1;
  }
  return in.derived("kv_n_heads", part["kv_n_heads"].get<uint64_t>(), "attn_config");
}

uint64_t kv_heads_of(Reader& in, uint64_t heads, const TypeFacts& type, const std::string& name) {
  // Falcon's configs have a number of KV heads that counts in its later design only.
  if (in.flag("multi_query") && !in.flag("new_decoder_architecture")) {
    return in.derived("num_key_value_heads", 1, "multi_query is true");
  }
  // The numbers of groups of Megatron and ChatGLM count if a field beside them says so.
  if (in.has("group_query_attention") && !in.flag("group_query_attention")) return heads;
  if (in.has("multi_query_group_num") && in.has("multi_query_attention") && !in.flag("multi_query_attention"))
    return heads;
  if (in.has("attn_config")) return kv_heads_of_part(in, heads);
  if (name.rfind("step3", 0) == 0) {
    if (const uint64_t groups = in.maybe({"num_attention_groups"})) return groups;
  } else if (in.has("num_attention_groups") && in.at("num_attention_groups") != 0) {
    in.refuse("what `num_attention_groups` means for this type is not counted here");
  }
  for (const char* field : {"num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", "multi_query_group_num",
                            "n_head_kv", "num_query_groups"}) {
    if (in.has(field)) return in.number(field);
  }
  if (type.kv_heads != 0 && heads % type.kv_heads == 0)
    return in.derived("num_key_value_heads", type.kv_heads, kOfType);
  return in.derived("num_key_value_heads", heads, "not in the config: one per attention head");
}

uint64_t head_dim_of(Reader& in, uint64_t heads, const TypeFacts& type) {
  if (const uint64_t dim = in.maybe({"head_dim", "attention_head_dim", "kv_channels", "dim_head"})) return dim;
  if (type.head_dim != 0) return in.derived("head_dim", type.head_dim, kOfType);
  const uint64_t hidden = in.need({"hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim"});
  if (heads == 0 || hidden % heads != 0) {
    in.refuse("hidden_size " + std::to_string(hidden) + " does not divide by " + std::to_string(heads) +
              " heads, and there is no head_dim");
    return 1;
  }
  return in.derived("head_dim", hidden / heads, "hidden_size / num_attention_heads");
}

bool latent(Reader& in) {
  if (in.has("use_mla") && !in.flag("use_mla")) return false;
  if (in.has("multi_latent_attention")) return in.flag("multi_latent_attention");
  return in.has("kv_lora_rank") && in.at("kv_lora_rank") != 0;
}

struct Heads {
  uint64_t heads, kv_heads, key_dim, value_dim;
};

LayerGroup group_of_heads(Reader& in, const Heads& h) {
  if (h.kv_heads == 0 || (h.heads != 0 && (h.kv_heads > h.heads || h.heads % h.kv_heads != 0))) {
    in.refuse(std::to_string(h.heads) + " attention heads do not divide into " + std::to_string(h.kv_heads) +
              " KV heads");
  }
  if (h.value_dim != h.key_dim) {
    return {
        "full attention",
        0,
        h.kv_heads * (h.key_dim + h.value_dim),
        0,
        0,
        0,
        16,
        std::to_string(h.kv_heads) + " * (" + std::to_string(h.key_dim) + " + " + std::to_string(h.value_dim) + ")"};
  }
  return {"full attention", 0, 2 * h.kv_heads * h.key_dim, 0, 0, 0, 16, times({2, h.kv_heads, h.key_dim})};
}

// Reads the heads of sliding layers from the object in Step 3.5's config.
void set_others(Reader& in, Heads* h) {
  if (!in.at("attention_other_setting").is_object()) return in.refuse("`attention_other_setting` must be an object");
  Reader part(in.at("attention_other_setting"), in.model());
  if (const uint64_t heads = part.maybe({"num_attention_heads"})) h->heads = heads;
  if (const uint64_t kv_heads = part.maybe({"num_attention_groups", "num_key_value_heads"})) h->kv_heads = kv_heads;
  if (const uint64_t dim = part.maybe({"head_dim"})) h->key_dim = h->value_dim = dim;
  if (!part.status().ok()) in.refuse("`attention_other_setting`: " + part.status().message());
}

LayerGroup attention_group(Reader& in, const TypeFacts& type, const std::string& name, const Layer& layer) {
  if (latent(in)) {
    const uint64_t rank = in.need({"kv_lora_rank"});
    const uint64_t rope = in.need({"qk_rope_head_dim", "qk_pos_emb_head_dim"});
    return {"latent attention", 0, rank + rope, 0, 0, 0, 16, std::to_string(rank) + " + " + std::to_string(rope)};
  }
  Heads h{heads_of(in, type), 0, 0, 0};
  h.key_dim = head_dim_of(in, h.heads, type);
  const uint64_t value_dim = in.maybe({"v_head_dim"});
  h.value_dim = value_dim == 0 ? h.key_dim : value_dim;
  h.kv_heads = layer.kv_heads != 0 ? layer.kv_heads : kv_heads_of(in, h.heads, type, name);
  if (layer.kind == Kind::sliding) {
    if (const uint64_t heads = in.maybe({"swa_num_attention_heads"})) h.heads = heads;
    if (const uint64_t kv_heads = in.maybe({"swa_num_key_value_heads"})) h.kv_heads = kv_heads;
    if (const uint64_t dim = in.maybe({"swa_head_dim"})) h.key_dim = h.value_dim = dim;
    if (const uint64_t dim = in.maybe({"swa_v_head_dim"})) h.value_dim = dim;
    if (in.has("attention_other_setting")) set_others(in, &h);
  }
  if (layer.kind == Kind::full && (name.rfind("gemma4", 0) == 0 || in.has("global_head_dim"))) {
    const uint64_t dim = in.maybe({"global_head_dim"});
    h.key_dim = h.value_dim = dim != 0 ? dim : in.derived("global_head_dim", 512, kOfType);
    if (in.flag("attention_k_eq_v") || !in.has("attention_k_eq_v")) {
      if (const uint64_t kv_heads = in.maybe({"num_global_key_value_heads"})) h.kv_heads = kv_heads;
    }
  }
  return group_of_heads(in, h);
}

bool is_32_bits(Reader& in) {
  return in.text("mamba_ssm_dtype") == "float32" || in.text("mamba_ssm_cache_dtype") == "float32";
}

LayerGroup mamba_2(Reader& in, uint64_t inner, uint64_t heads) {
  LayerGroup group{"mamba", 0, 0, 0, 0, 0, is_32_bits(in) ? 32U : 16U, ""};
  const uint64_t groups = in.need({"n_groups", "mamba_n_groups"});
  const uint64_t state = in.need({"ssm_state_size", "mamba_d_state", "state_size"});
  const uint64_t kernel = in.need({"conv_kernel", "mamba_d_conv"});
  const uint64_t dim = inner / heads;
  group.conv_values = (heads * dim + 2 * groups * state) * (kernel - 1);
  group.state_values = heads * dim * state;
  group.formula = "conv (" + times({heads, dim}) + " + " + times({2, groups, state}) + ") * " +
                  std::to_string(kernel - 1) + ", state " + times({heads, dim, state});
  return group;
}

// Returns the group of a matrix for each head: `key_dim` by `value_dim`, and the last inputs of the short
// convolutions before it.
LayerGroup matrix_state(uint64_t heads, uint64_t key_dim, uint64_t value_dim, uint64_t conv, std::string conv_text,
                        uint64_t bits) {
  LayerGroup group{"linear attention", 0, 0, 0, conv, heads * key_dim * value_dim, bits, ""};
  group.formula = (conv == 0 ? "" : "conv " + conv_text + ", ") + "state " + times({heads, key_dim, value_dim});
  return group;
}

LayerGroup delta_group(uint64_t heads, uint64_t dim, uint64_t kernel) {
  return matrix_state(heads, dim, dim, 3 * heads * dim * (kernel - 1), times({3, heads, dim, kernel - 1}), 32);
}

LayerGroup linear_group(Reader& in, const TypeFacts& type) {
  if (in.has("linear_attn_config")) {
    Reader part(in.at("linear_attn_config"), in.model());
    LayerGroup group =
        delta_group(part.need({"num_heads"}), part.need({"head_dim"}), part.need({"short_conv_kernel_size"}));
    if (!part.status().ok()) in.refuse("`linear_attn_config`: " + part.status().message());
    return group;
  }
  if (in.has("linear_num_heads")) {
    return delta_group(in.number("linear_num_heads"), in.need({"linear_head_dim"}),
                       in.need({"linear_conv_kernel_dim"}));
  }
  if (in.has("linear_num_value_heads")) {
    const uint64_t key_dim = in.need({"linear_key_head_dim"});
    const uint64_t value_dim = in.need({"linear_value_head_dim"});
    const uint64_t keys = in.need({"linear_num_key_heads"});
    const uint64_t values = in.need({"linear_num_value_heads"});
    const uint64_t kernel = in.need({"linear_conv_kernel_dim"});
    return matrix_state(
        values, key_dim, value_dim, (2 * keys * key_dim + values * value_dim) * (kernel - 1),
        "(" + times({2, keys, key_dim}) + " + " + times({values, value_dim}) + ") * " + std::to_string(kernel - 1),
        is_32_bits(in) ? 32 : 16);
  }
  const uint64_t heads = heads_of(in, type);
  const uint64_t dim = head_dim_of(in, heads, type);
  if (in.has("short_conv_kernel_size")) return delta_group(heads, dim, in.number("short_conv_kernel_size"));
  return matrix_state(heads, dim, dim, 0, "", 16);
}

LayerGroup short_conv_group(Reader& in) {
  const uint64_t hidden = in.need({"hidden_size"});
  const uint64_t length = in.need({"conv_L_cache"});
  return {"short convolution", 0, 0, 0, hidden * (length - 1), 0, 16, "conv " + times({hidden, length - 1})};
}

}  // namespace

LayerGroup mamba_group(Reader& in, const std::string& type_name) {
  const uint64_t heads =
      in.maybe({"mamba_num_heads", "mamba_n_heads", type_name == "mamba2" ? "num_heads" : "mamba_n_heads"});
  if (heads != 0) {  // Mamba 2
    uint64_t inner = in.maybe({"mamba_d_ssm"});
    if (inner == 0) inner = heads * in.need({"mamba_head_dim", "mamba_d_head", "head_dim"});
    if (inner % heads != 0) in.refuse("`mamba_d_ssm` does not divide by the number of heads");
    return mamba_2(in, inner, heads);
  }
  LayerGroup group{"mamba", 0, 0, 0, 0, 0, is_32_bits(in) ? 32U : 16U, ""};
  const bool alone = type_name == "mamba" || type_name == "falcon_mamba";
  uint64_t inner = alone ? in.maybe({"intermediate_size"}) : 0;
  // Configs of the first Mamba have these fields only if they differ from the usual values.
  const auto said_or = [&in](std::initializer_list<const char*> names, uint64_t usual) {
    const uint64_t said = in.maybe(names);
    return said != 0 || !in.all().contains("ssm_cfg") ? (said != 0 ? said : in.need(names))
                                                      : in.derived(*names.begin(), usual, kOfType);
  };
  if (inner == 0) inner = said_or({"expand", "mamba_expand"}, 2) * in.need({"hidden_size", "d_model"});
  const uint64_t kernel = said_or({"conv_kernel", "mamba_d_conv"}, 4);
  const uint64_t state = said_or({"state_size", "mamba_d_state"}, 16);
  group.conv_values = inner * (kernel - 1);
  group.state_values = inner * state;
  group.formula = "conv " + times({inner, kernel - 1}) + ", state " + times({inner, state});
  return group;
}

LayerGroup group_of(Reader& in, const TypeFacts& type, const std::string& type_name, const Layer& layer) {
  if (layer.kind == Kind::mamba) return mamba_group(in, type_name);
  if (layer.kind == Kind::linear) return linear_group(in, type);
  if (layer.kind == Kind::short_conv) return short_conv_group(in);
  LayerGroup group = attention_group(in, type, type_name, layer);
  if (layer.kind == Kind::sliding) {
    group.kind = "sliding window";
    if (in.has("sliding_window") && in.at("sliding_window").is_array()) {
      for (const Json& window : in.at("sliding_window")) {
        if (window.is_number_unsigned()) group.window = window.get<uint64_t>();
      }
    } else if (const uint64_t window = in.maybe({"sliding_window", "sliding_window_size", "window_size"})) {
      group.window = window;
    } else {
      group.window =
          type.window != 0 ? in.derived("sliding_window", type.window, kOfType) : in.need({"sliding_window"});
    }
  } else if (layer.kind == Kind::chunked) {
    group.kind = "chunked attention";
    group.window = in.need({"attention_chunk_size"});
  }
  return group;
}

}  // namespace kvbm::size

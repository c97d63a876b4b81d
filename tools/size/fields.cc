#include "size/fields.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace kvbm::size {

namespace {

using Names = std::vector<std::string_view>;

// Read by layers.cc, groups.cc and model.cc.
const Names& read_fields() {
  // clang-format off
  static const Names kRead = {
      "_sliding_window_pattern", "architectures", "attention_chunk_size", "attention_head_dim", "attention_heads",
      "attention_k_eq_v", "attention_method", "attention_other_setting", "attention_types", "attn_config", "attn_layer_indices",
      "attn_layer_offset", "attn_layer_period", "attn_type_list", "block_configs", "conv_L_cache", "conv_kernel",
      "d_model", "dim", "dim_head", "expand", "full_attention_interval", "full_attn_idxs", "global_attn_every_n_layers",
      "global_head_dim", "group_query_attention", "head_dim", "hidden_dim", "hidden_size", "hybrid_layer_pattern",
      "hybrid_override_pattern", "intermediate_size", "kv_channels", "kv_lora_rank", "kv_n_heads", "layer_group_size",
      "layer_switch", "layer_types", "layers_block_type", "linear_attn_config", "linear_conv_kernel_dim",
      "linear_head_dim", "linear_key_head_dim", "linear_num_heads", "linear_num_key_heads", "linear_num_value_heads",
      "linear_value_head_dim", "mamba_d_conv", "mamba_d_head", "mamba_d_ssm", "mamba_d_state", "mamba_expand",
      "mamba_head_dim", "mamba_n_groups", "mamba_n_heads", "mamba_num_heads", "mamba_ssm_cache_dtype", "mamba_ssm_dtype",
      "max_window_layers", "model_dim", "model_type", "multi_latent_attention", "multi_query", "multi_query_attention",
      "multi_query_group_num", "n_embd", "n_embed", "n_groups", "n_head", "n_head_kv", "n_heads", "n_kv_heads", "n_layer",
      "n_layers", "new_decoder_architecture", "no_rope_layer_interval", "no_rope_layers", "num_attention_groups",
      "num_attention_heads", "num_global_key_value_heads", "num_heads", "num_hidden_layers", "num_key_value_heads",
      "num_key_value_heads_per_layer", "num_kv_heads", "num_kv_shared_layers", "num_layers", "num_nextn_predict_layers",
      "num_query_groups", "num_query_heads", "num_transformer_layers", "qk_pos_emb_head_dim", "qk_rope_head_dim",
      "short_conv_kernel_size", "sliding_window", "sliding_window_pattern", "sliding_window_size", "ssm_state_size",
      "state_size", "swa_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_v_head_dim",
      "total_ut_steps", "use_mla", "use_sliding_window", "v_head_dim", "window_size"};
  // clang-format on
  return kRead;
}

// Fields of caches that are not counted, if they are present and not empty.
const Names& refused_fields() {
  // clang-format off
  static const Names kRefused = {
      "H_cycles", "L_cycles", "attn_cfg", "attn_layer_idx", "block_types", "blocksparse_block_size", "cla_share_factor",
      "compress_rates", "compress_ratio", "compress_ratios", "conv_window", "cross_attention_layers",
      "cross_layer_interval", "decoder_layers", "encoder_layers", "encoder_num_layers", "global_attn_idx",
      "hybrid_block_layout", "is_encoder_decoder", "kv_reuse_every_i_layer", "kv_reuse_group", "kv_source_layers",
      "local_layer_ids", "loop_num_passes", "mamba_ngroups", "mamba_step", "mb_per_layer", "mean_recurrence",
      "n_layers_in_recurrent_block", "n_mamba_heads", "n_recurrent_layers", "n_recurrent_loops", "num_decoder_layers",
      "num_loops", "num_mem_blocks", "num_swa_attention_heads", "num_swa_key_value_heads", "recurrent_kv_cache_mode",
      "sliding_window_layers", "ssm_cfg", "use_cla", "yoco_cross_layers"};
  // clang-format on
  return kRefused;
}

// Known to have no part in the size of the cache, and not covered by harmless_pattern() below.
const Names& harmless_fields() {
  // clang-format off
  static const Names kHarmless = {
      "_attn_implementation", "_attn_implementation_autoset", "_from_model_config", "_name_or_path", "_remove_final_layer_norm",
      "activation_function", "activation_sparsity_pattern", "add_cross_attention", "add_full_attention_sink_bias",
      "add_qkv_bias", "add_swa_attention_sink_bias", "adapter_rank", "alibi", "altup_active_idx", "altup_coef_clip",
      "altup_correct_scale", "altup_num_inputs", "apply_query_key_layer_scaling",
      "apply_residual_connection_post_layernorm", "attention_layers", "attention_logit_cap",
      "attention_softmax_in_fp32", "attention_value_scale", "attn_drop_rate", "attn_factor", "attn_impl",
      "attn_implementation", "attn_output_gate", "attn_res_block_size", "attn_scale", "attn_temperature_tuning", "auto_map",
      "bias", "block_auto_adjust_ff_dim", "block_dim", "block_ff_dim", "block_ffn_dim_multiplier", "block_mlp_init_scale",
      "block_multiple_of", "block_norm_eps", "block_out_init_scale", "block_size", "block_use_swiglu",
      "block_use_xavier_init", "cache_implementation", "chunk_size", "chunk_size_feed_forward", "clip_qkv",
      "context_window_size", "conv_bias", "conv_dim", "conv_dim_out", "conv_use_xavier_init",
      "cross_attention_hidden_size", "decoder_sparse_step", "decoder_start_token_id", "dense_attention_every_n_layers",
      "dim_model_base", "do_layer_norm_before", "early_exit_step", "early_exit_threshold", "embd_layer", "emb_pdrop",
      "embedding_size", "enable_moe_block", "encoder_hidden_size", "encoder_no_repeat_ngram_size", "ep_size",
      "expansion_ratio", "expert_layer_offset", "expert_layer_period", "final_layernorm", "floor_scale", "first_k_dense_replace",
      "flash_attn", "flash_rotary", "fp32_residual_connection", "full_attn_alpha_factor", "full_attn_beta_factor",
      "full_attn_mod", "fused_dense", "fused_norm", "gating", "group_norm_size", "hc_mult",
      "hc_sinkhorn_iters", "hidden_mamba_act", "hidden_size_per_layer_input",
      "id2label", "ignore_index", "image_size", "img_processor", "index_head_dim", "index_n_heads",
      "index_share_for_mtp_iteration", "index_topk", "indexer_rope_interleave", "indexer_types", 
      "initial_context_length", "initializer_range", "inner_hidden_size", "interleave_moe_layer_step", "interpolate_factor", "is_causal",
      "is_decoder", "is_llama_config", "kda_lower_bound", "kda_safe_gate", "keep_window_size", "key_bias", "key_multiplier",
      "kv_cache_dtype", "kv_cache_scheme", "label2id", "laurel_rank", "layer_drop", "layer_norm_elementwise_affine",
      "layer_norm_epsilon", "layernorm_compute_fp32", "layernorm_embedding", "layernorm_epsilon",
      "learned_pos_emb", "linear_a_log_max", "linear_a_log_min", "linear_allow_neg_eigval", "linear_attn_alpha_factor",
      "linear_attn_beta_factor", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min",
      "linear_silu", "llama_4_scaling", "lm_head_bias", "logit_scale", "logits_scaling", "mamba_chunk_size",
      "mamba_conv_bias", "mamba_dt_rank", "mamba_hidden_act", "mamba_norm_before_gate", "mamba_proj_bias", "mamba_rms_norm",
      "mamba_use_mlp", "max_batch_size", "max_length", "max_sequence_length", "max_seq_len", "min_length",
      "mla_scale_kv_lora", "mla_scale_q_lora", "mla_use_nope", "model_max_length", "model_parallel_size", "model_version", "moe", "mscale", "multiple_of", "mup_enabled",
      "n_ctx", "n_group", "n_inner", "n_positions", "n_routed_experts", "n_shared_experts", "n_special", "name", 
      "no_bias", "no_repeat_ngram_size", "norm_type", "normalization", "num_attention_heads_per_layer", "num_beam_groups",
      "num_beams", "num_codebooks", "num_dense_layers", "num_hash_layers", "num_labels", "num_ln_in_parallel_attn",
      "num_logits_to_keep", "num_mtp_layers", "num_mtp_modules", "num_return_sequences", "num_sliding_attention_heads",
      "o_groups", "o_lora_rank", "order_of_interleaved_layers", "original_rope", "parallel_attn", "partial_rotary_factor", "partial_rotary_factors",
      "patch_size", "position_embedding_type", "post_layer_norm", "postnorm", "pre_seq_len",
      "predict_special_tokens", "prefill_chunk_size", "prefix_lm", "prefix_projection", "pretraining_tp", "problem_type",
      "projectors_bias", "pruned_heads", "q_lora_rank", "qk_head_dim", "qk_layer_norms", "qk_layernorm", "qk_nope_head_dim",
      "qk_norm", "qk_norm_type", "qkv_bias", "qkv_multiplier", "query_pre_attn_scalar", "remove_invalid_values",
      "reorder_and_upcast_attn", "rescale_every", "rescale_prenorm_residual", "residual_in_fp32", "residual_scale", "route_scale",
      "return_dict", "rmsnorm", "rms_norm", "scale_attention_softmax_in_fp32", "scale_attn_by_inverse_layer_idx",
      "scale_attn_weights", "scale_depth", "scale_emb", "scale_embedding", "score_function", "scoring_func", "seed", "seq_aux",
      "seq_length", "share_expert_dim", "share_q_dim", "skip_bias_add", "slow_but_exact",
      "softmax_scale", "sparse_attention_config", "spatial_merge_size", "ssm_in_multiplier", "ssm_multipliers",
      "ssm_out_multiplier", "task_specific_params", "tf_legacy_loss", "tie_encoder_decoder",
      "tie_word_embeddings", "time_step_limit", "tokenizer_class", "topk_group", "topk_method",
      "transformers.js_config", "type_vocab_size", "unsloth_fixed", "untie_embeddings_and_output_weights", "use_bfloat16",
      "use_associative_scan", "use_bias", "use_bidirectional_attention", "use_cache", "use_cache_kernel", "use_cache_quantization", "use_conv_bias",
      "use_double_wide_mlp", "use_dynamic_ntk", "use_flash_attn", "use_gemma_norm", "use_gemma_rms_norm",
      "use_grouped_topk", "use_head_wise_attn_gate", "use_kernel", "use_logn_attn", "use_lm_head", "use_mamba_kernels",
      "use_mambapy", "use_mrope", "use_mtp", "use_parallel_residual", "use_qk_norm", "use_qkv_bias", "use_rmsnorm",
      "use_shared_attention_adapter", "use_unified_vision_chunk", "using_split_rope", "vocab_size",
      "vocab_size_per_layer_input", "word_embed_proj_dim", "yarn"};
  // clang-format on
  return kHarmless;
}

bool starts(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [name](auto each) { return name.substr(0, each.size()) == each; });
}

bool ends(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [name](auto each) {
    return name.size() >= each.size() && name.substr(name.size() - each.size()) == each;
  });
}

bool contains(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [name](auto each) { return name.find(each) != std::string_view::npos; });
}

// Returns whether the field belongs to another part than attention: experts, positions, images, sounds, the
// tokenizer, training.
bool of_another_part(std::string_view name) {
  return starts(name, {"moe_",
                       "mtp_",
                       "router_",
                       "expert",
                       "shared_expert",
                       "num_expert",
                       "n_expert",
                       "num_shared_expert",
                       "num_local_expert",
                       "mlp_",
                       "ffn_",
                       "feed_forward",
                       "vision_",
                       "image_",
                       "visual_",
                       "video_",
                       "audio_",
                       "mm_",
                       "index_",
                       "rope_",
                       "rotary",
                       "quantiz",
                       "compression_config",
                       "talker_",
                       "token2wav",
                       "code2wav"}) ||
         contains(name, {"expert", "moe_", "_moe", "intermediate_size"});
}

bool harmless_pattern(std::string_view name) {
  return starts(name, {"initializer",
                       "embd_",
                       "resid_",
                       "summary_",
                       "output_",
                       "torch",
                       "dtype",
                       "logit",
                       "tie_",
                       "mup_",
                       "time_step_",
                       "swiglu",
                       "hidden_act",
                       "embedding_",
                       "norm_",
                       "max_position",
                       "original_max_position",
                       "special_",
                       "unsloth",
                       "generation_",
                       "use_moe",
                       "zero_expert",
                       "routed_",
                       "early_stop",
                       "do_",
                       "bad_words",
                       "forced_",
                       "begin_suppress",
                       "suppress_",
                       "transformers_",
                       "projector_",
                       "tokenizer"}) ||
         ends(name, {"_token_id",  "_token_ids",  "_token_index", "_token",   "_dropout", "_dropout_prob",
                     "_drop_prob", "_pdrop",      "_eps",         "_epsilon", "_bias",    "_coef",
                     "_coeff",     "_multiplier", "_multipliers", "_factor",  "_act",     "_activation",
                     "_loss",      "_path",       "_version",     "_scaling", "_theta",   "_std",
                     "_range",     "_fp32",       "_softcapping", "_softcap", "_penalty", "_temperature",
                     "_freq",      "_base",       "_kernel_dtype"}) ||
         contains(name, {"dropout", "aux_loss", "layernorm", "layer_norm", "vocab"}) || name == "temperature" ||
         name == "top_k" || name == "top_p" || name == "typical_p";
}

// Returns whether the field's name suggests that it decides the size of the cache.
bool speaks_of_cache(std::string_view name) {
  return contains(name, {"kv", "key_value", "cache", "compress", "share", "reuse", "loop", "recur", "ssm", "mamba",
                         "window", "sliding", "linear_att", "cross_att", "latent", "cycles", "ut_steps"});
}
bool speaks_of_attention(std::string_view name) {
  return contains(name,
                  {"attn",  "attention", "key",    "value", "head",   "layer",  "state", "conv",    "block",  "rank",
                   "group", "memory",    "linear", "dim",   "sparse", "global", "local", "pattern", "hybrid", "chunk",
                   "depth", "step",      "cycle",  "iter",  "repeat", "stride", "pool",  "index"});
}

bool listed(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value == 0) ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.empty()) ||
         (value.is_string() && value == "");
}

std::string joined(const Names& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) {
    text += (i == 0 ? "`" : ", `") + std::string(names[i].substr(0, 60)) + "`";
  }
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

}  // namespace

void check_fields(Reader& in, bool type_known, uint64_t layers) {
  Names refused;  // may change the size of the cache
  Names noted;
  for (const auto& [name, value] : in.all().items()) {
    if (says_nothing(value) || listed(read_fields(), name) || listed(harmless_fields(), name)) continue;
    if (listed(refused_fields(), name)) {
      // One means no sharing and no compression; a few configs use -1 for none.
      if (value.is_number() && (value == 1 || value == -1)) continue;
      return in.refuse("`" + name + "` is set: what its layers keep then is not counted here");
    }
    if (of_another_part(name)) continue;
    const bool for_each_layer = value.is_array() && value.size() == layers;
    if (speaks_of_cache(name) ||
        (!type_known && (for_each_layer || speaks_of_attention(name)) && !harmless_pattern(name))) {
      refused.push_back(name);
    } else if (!harmless_pattern(name) && !(value.is_string() && !speaks_of_attention(name))) {
      noted.push_back(name);
    }
  }
  if (!refused.empty()) {
    return in.refuse("what " + joined(refused) + (refused.size() == 1 ? " means" : " mean") +
                     " for the cache is not known here");
  }
  if (!noted.empty()) in.note("not known here, and taken to have no part in the cache: " + joined(noted));
}

}  // namespace kvbm::size

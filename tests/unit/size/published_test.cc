// The size of published models. Each row has the fields of the model's own configuration that decide it, and the sum
// written out from the model's definition: layers that keep something, times K and V, times KV heads, times the values
// of a head, times the two bytes of a value. Facts only.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "size/model.h"

namespace kvbm::size::published_test {
namespace {

struct Row {
  const char* name;
  std::string config;
  uint64_t per_token;
  uint64_t past_window;  // of one more token of a long sequence
  uint64_t state = 0;    // bytes a sequence
};

// Of `layers`, the last of each `period` is `rare`.
std::string types(uint64_t layers, uint64_t period, const char* rare, const char* common) {
  std::string list = "\"layer_types\":[";
  for (uint64_t i = 1; i <= layers; ++i) {
    list += std::string(i == 1 ? "" : ",") + "\"" + (i % period == 0 ? rare : common) + "\"";
  }
  return list + "]";
}
std::string sliding(uint64_t layers, uint64_t period) {
  return types(layers, period, "full_attention", "sliding_attention");
}
std::string linear(uint64_t layers, uint64_t period) {
  return types(layers, period, "full_attention", "linear_attention");
}
std::string repeated(uint64_t count, const char* value) {
  std::string list;
  for (uint64_t i = 0; i < count; ++i) list += std::string(i == 0 ? "" : ",") + value;
  return list;
}

// A model with equal layers.
Row plain(const char* name, std::string config, uint64_t per_token) {
  return {name, std::move(config), per_token, per_token};
}

// Nemotron Super 49B: layers 6, 7, 11, 42 to 51 and 53 to 70 have no attention.
std::string blocks_of_nemotron_super() {
  std::string list = R"("block_configs":[)";
  for (int i = 0; i < 80; ++i) {
    const bool none = i == 6 || i == 7 || i == 11 || (i >= 42 && i <= 51) || (i >= 53 && i <= 70);
    list += std::string(i == 0 ? "" : ",") + R"({"attention":{"n_heads_in_group":)" + (none ? "null" : "8") +
            R"(,"no_op":)" + (none ? "true" : "false") + R"(,"num_sink_tokens":null,"replace_with_linear":false}})";
  }
  return list + "]";
}

std::vector<Row> llama_like() {
  return {
      plain("Llama-2-7B", R"({"model_type":"llama","hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
          "num_key_value_heads":32})",
            32 * 2 * 32 * 128 * 2),
      plain("Llama-2-13B", R"({"model_type":"llama","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":40,
          "num_key_value_heads":40})",
            40 * 2 * 40 * 128 * 2),
      plain("Llama-2-70B", R"({"model_type":"llama","hidden_size":8192,"num_attention_heads":64,"num_hidden_layers":80,
          "num_key_value_heads":8})",
            80 * 2 * 8 * 128 * 2),
      plain("CodeLlama-34B",
            R"({"model_type":"llama","hidden_size":8192,"num_attention_heads":64,"num_hidden_layers":48,
          "num_key_value_heads":8})",
            48 * 2 * 8 * 128 * 2),
      plain("TinyLlama-1.1B",
            R"({"model_type":"llama","hidden_size":2048,"num_attention_heads":32,"num_hidden_layers":22,
          "num_key_value_heads":4})",
            22 * 2 * 4 * 64 * 2),
      plain("Llama-3.1-8B", R"({"model_type":"llama","hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
          "num_key_value_heads":8})",
            32 * 2 * 8 * 128 * 2),
      plain("Llama-3.1-405B", R"({"model_type":"llama","hidden_size":16384,"num_attention_heads":128,
          "num_hidden_layers":126,"num_key_value_heads":8})",
            126 * 2 * 8 * 128 * 2),
      plain("Llama-3.2-1B", R"({"model_type":"llama","head_dim":64,"hidden_size":2048,"num_attention_heads":32,
          "num_hidden_layers":16,"num_key_value_heads":8})",
            16 * 2 * 8 * 64 * 2),
      plain("Llama-3.2-3B", R"({"model_type":"llama","head_dim":128,"hidden_size":3072,"num_attention_heads":24,
          "num_hidden_layers":28,"num_key_value_heads":8})",
            28 * 2 * 8 * 128 * 2),
      plain("SmolLM-360M", R"({"model_type":"llama","hidden_size":960,"num_attention_heads":15,"num_hidden_layers":32,
          "num_key_value_heads":5})",
            32 * 2 * 5 * 64 * 2),
      plain("SmolLM-1.7B", R"({"model_type":"llama","hidden_size":2048,"num_attention_heads":32,"num_hidden_layers":24,
          "num_key_value_heads":32})",
            24 * 2 * 32 * 64 * 2),
      plain("Mistral-7B-v0.3", R"({"model_type":"mistral","hidden_size":4096,"num_attention_heads":32,
          "num_hidden_layers":32,"num_key_value_heads":8,"sliding_window":null})",
            32 * 2 * 8 * 128 * 2),
      plain("Ministral-3-3B", R"({"model_type":"ministral3","text_config":{"model_type":"ministral3","head_dim":128,
          "hidden_size":3072,"num_attention_heads":32,"num_hidden_layers":26,"num_key_value_heads":8,"sliding_window":null}})",
            26 * 2 * 8 * 128 * 2),
      plain("Mixtral-8x22B",
            R"({"model_type":"mixtral","hidden_size":6144,"num_attention_heads":48,"num_hidden_layers":56,
          "num_key_value_heads":8,"sliding_window":null,"num_local_experts":8})",
            56 * 2 * 8 * 128 * 2),
      plain("Aya-23-8B", R"({"model_type":"cohere","hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
          "num_key_value_heads":8,"logit_scale":0.0625})",
            32 * 2 * 8 * 128 * 2),
      plain("OLMo-2-7B", R"({"model_type":"olmo2","hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
          "num_key_value_heads":32})",
            32 * 2 * 32 * 128 * 2),
      plain("OLMo-2-13B", R"({"model_type":"olmo2","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":40,
          "num_key_value_heads":40})",
            40 * 2 * 40 * 128 * 2),
      plain("OLMo-2-32B", R"({"model_type":"olmo2","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":64,
          "num_key_value_heads":8})",
            64 * 2 * 8 * 128 * 2),
      plain("Orion-14B", R"({"model_type":"orion","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":40,
          "num_key_value_heads":40})",
            40 * 2 * 40 * 128 * 2),
      plain("Baichuan-7B", R"({"model_type":"baichuan","hidden_size":4096,"num_attention_heads":32,
          "num_hidden_layers":32})",
            32 * 2 * 32 * 128 * 2),
      plain("InternLM-7B", R"({"model_type":"internlm","bias":true,"hidden_size":4096,"num_attention_heads":32,
          "num_hidden_layers":32})",
            32 * 2 * 32 * 128 * 2),
      plain("InternLM2-7B", R"({"model_type":"internlm2","bias":false,"hidden_size":4096,"num_attention_heads":32,
          "num_hidden_layers":32,"num_key_value_heads":8})",
            32 * 2 * 8 * 128 * 2),
      plain("StableLM-2-Zephyr-1.6B", R"({"model_type":"stablelm","hidden_size":2048,"num_attention_heads":32,
          "num_hidden_layers":24,"num_key_value_heads":32,"partial_rotary_factor":0.25})",
            24 * 2 * 32 * 64 * 2),
      plain("MiniCPM-2B", R"({"model_type":"minicpm","hidden_size":2304,"num_attention_heads":36,"num_hidden_layers":40,
          "num_key_value_heads":36,"scale_emb":12,"dim_model_base":256,"scale_depth":1.4})",
            40 * 2 * 36 * 64 * 2),
      plain("MiMo-7B", R"({"model_type":"mimo","num_hidden_layers":36,"hidden_size":4096,"num_attention_heads":32,
          "num_key_value_heads":8,"head_dim":128,"sliding_window":32768,"max_window_layers":32,"use_sliding_window":false,
          "num_nextn_predict_layers":1})",
            36 * 2 * 8 * 128 * 2),
      plain("GLM-4.5", R"({"model_type":"glm4_moe","num_hidden_layers":92,"hidden_size":5120,"num_attention_heads":96,
          "num_key_value_heads":8,"head_dim":128,"num_nextn_predict_layers":1})",
            92 * 2 * 8 * 128 * 2),
      plain("MiniMax-M2.5", R"({"model_type":"minimax_m2","num_hidden_layers":62,"hidden_size":3072,
          "num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,"rotary_dim":64,"use_qk_norm":true,"use_mtp":true,
          "num_mtp_modules":3,"mtp_transformer_layers":1})",
            62 * 2 * 8 * 128 * 2),
      plain("MiniMax-M2.7",
            R"({"model_type":"minimax_m2","num_hidden_layers":62,"hidden_size":3072,
          "num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,"attn_type_list":[)" +
                repeated(62, "1") + "]}",
            62 * 2 * 8 * 128 * 2),
      plain("MiniMax-M3", R"({"model_type":"minimax_m3","num_hidden_layers":60,"hidden_size":6144,"head_dim":128,
          "num_attention_heads":64,"num_key_value_heads":4,"sparse_attention_config":{"sparse_block_size":128}})",
            60 * 2 * 4 * 128 * 2),
  };
}

std::vector<Row> older() {
  return {
      plain("GPT-2", R"({"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_ctx":1024,"n_positions":1024})",
            12 * 2 * 12 * 64 * 2),
      plain("GPT-2 medium", R"({"model_type":"gpt2","n_embd":1024,"n_head":16,"n_layer":24,"n_special":0})",
            24 * 2 * 16 * 64 * 2),
      // All heads read one head's K and V.
      plain("SantaCoder", R"({"model_type":"gpt_bigcode","multi_query":true,"n_embd":2048,"n_head":16,"n_layer":24,
          "n_inner":8192})",
            24 * 2 * 1 * 128 * 2),
      plain("RedPajama-3B", R"({"model_type":"gpt_neox","hidden_size":2560,"num_attention_heads":32,
          "num_hidden_layers":32,"rotary_pct":1.0})",
            32 * 2 * 32 * 80 * 2),
      plain("GPT-J-6B", R"({"model_type":"gptj","n_embd":4096,"n_head":16,"n_layer":28,"rotary":true,"rotary_dim":64})",
            28 * 2 * 16 * 256 * 2),
      plain("BLOOM-7B1", R"({"model_type":"bloom","n_layer":30,"n_head":32,"hidden_size":4096})",
            30 * 2 * 32 * 128 * 2),
      plain("OPT-13B", R"({"model_type":"opt","num_hidden_layers":40,"num_attention_heads":40,"hidden_size":5120,
          "ffn_dim":20480,"word_embed_proj_dim":5120})",
            40 * 2 * 40 * 128 * 2),
      plain("OPT-66B", R"({"model_type":"opt","num_hidden_layers":64,"num_attention_heads":72,"hidden_size":9216})",
            64 * 2 * 72 * 128 * 2),
      // Every second layer reads the last 256 tokens.
      {"GPT-Neo-1.3B", R"({"model_type":"gpt_neo","num_layers":24,"num_heads":16,"hidden_size":2048,
          "attention_types":[[["global","local"],12]],"window_size":256})",
       24 * 2 * 16 * 128 * 2, 12 * 2 * 16 * 128 * 2},
      plain("Phi-1.5",
            R"({"model_type":"phi-msft","n_embd":2048,"n_head":32,"n_head_kv":null,"n_layer":24,"n_inner":null,
          "rotary_dim":32})",
            24 * 2 * 32 * 64 * 2),
      plain("Phi-2", R"({"model_type":"phi-msft","n_embd":2560,"n_head":32,"n_head_kv":null,"n_layer":32,"n_inner":null,
          "rotary_dim":32})",
            32 * 2 * 32 * 80 * 2),
      {"Phi-3.5-mini", R"({"model_type":"phi3","hidden_size":3072,"num_attention_heads":32,"num_hidden_layers":32,
          "num_key_value_heads":32,"sliding_window":262144})",
       32 * 2 * 32 * 96 * 2, 0},
      {"Phi-4-mini", R"({"model_type":"phi3","hidden_size":3072,"num_attention_heads":24,"num_hidden_layers":32,
          "num_key_value_heads":8,"sliding_window":262144,"full_attn_mod":1,"interpolate_factor":1})",
       32 * 2 * 8 * 128 * 2, 0},
      {"StarCoder2-7B",
       R"({"model_type":"starcoder2","hidden_size":4608,"num_attention_heads":36,"num_hidden_layers":32,
          "num_key_value_heads":4,"sliding_window":4096})",
       32 * 2 * 4 * 128 * 2, 0},
      plain("ChatGLM3-6B", R"({"model_type":"chatglm","num_layers":28,"hidden_size":4096,"num_attention_heads":32,
          "kv_channels":128,"multi_query_attention":true,"multi_query_group_num":2,"original_rope":true})",
            28 * 2 * 2 * 128 * 2),
      plain("Qwen-1.8B", R"({"model_type":"qwen","hidden_size":2048,"kv_channels":128,"num_attention_heads":16,
          "num_hidden_layers":24,"use_dynamic_ntk":true})",
            24 * 2 * 16 * 128 * 2),
      plain("Qwen1.5-1.8B", R"({"model_type":"qwen2","hidden_size":2048,"max_window_layers":21,"num_attention_heads":16,
          "num_hidden_layers":24,"num_key_value_heads":16,"sliding_window":32768,"use_sliding_window":false})",
            24 * 2 * 16 * 128 * 2),
      plain("DeepSeek-MoE-16B", R"({"model_type":"deepseek","first_k_dense_replace":1,"hidden_size":2048,
          "num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":16})",
            28 * 2 * 16 * 128 * 2),
  };
}

std::vector<Row> qwen() {
  return {
      plain("Qwen2-0.5B", R"({"model_type":"qwen2","hidden_size":896,"max_window_layers":24,"num_attention_heads":14,
          "num_hidden_layers":24,"num_key_value_heads":2,"sliding_window":32768,"use_sliding_window":false})",
            24 * 2 * 2 * 64 * 2),
      plain("Qwen2-7B", R"({"model_type":"qwen2","hidden_size":3584,"max_window_layers":28,"num_attention_heads":28,
          "num_hidden_layers":28,"num_key_value_heads":4,"sliding_window":131072,"use_sliding_window":false})",
            28 * 2 * 4 * 128 * 2),
      plain("Qwen2.5-3B", R"({"model_type":"qwen2","hidden_size":2048,"max_window_layers":70,"num_attention_heads":16,
          "num_hidden_layers":36,"num_key_value_heads":2,"sliding_window":32768,"use_sliding_window":false})",
            36 * 2 * 2 * 128 * 2),
      plain("Qwen3-0.6B", R"({"model_type":"qwen3","head_dim":128,"hidden_size":1024,"max_window_layers":28,
          "num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,"sliding_window":null,
          "use_sliding_window":false})",
            28 * 2 * 8 * 128 * 2),
      plain("Qwen3-32B", R"({"model_type":"qwen3","head_dim":128,"hidden_size":5120,"num_attention_heads":64,
          "num_hidden_layers":64,"num_key_value_heads":8,"sliding_window":null,"use_sliding_window":false})",
            64 * 2 * 8 * 128 * 2),
      plain("Qwen3-235B-A22B", R"({"model_type":"qwen3_moe","decoder_sparse_step":1,"head_dim":128,"hidden_size":4096,
          "num_attention_heads":64,"num_hidden_layers":94,"num_key_value_heads":4})",
            94 * 2 * 4 * 128 * 2),
      plain("Qwen3-Coder-480B", R"({"model_type":"qwen3_moe","head_dim":128,"hidden_size":6144,"num_attention_heads":96,
          "num_hidden_layers":62,"num_key_value_heads":8,"use_qk_norm":true})",
            62 * 2 * 8 * 128 * 2),
      plain("Qwen3-VL-8B", R"({"model_type":"qwen3_vl","text_config":{"model_type":"qwen3_vl_text","head_dim":128,
          "hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":36,"num_key_value_heads":8}})",
            36 * 2 * 8 * 128 * 2),
      // Three layers of four keep a matrix for each of 48 heads, in 32 bits, and three inputs of a short convolution.
      {"Qwen3.5-27B",
       R"({"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","full_attention_interval":4,
          "head_dim":256,"hidden_size":5120,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,
          "linear_num_value_heads":48,"linear_value_head_dim":128,"num_attention_heads":24,"num_hidden_layers":64,
          "num_key_value_heads":4,"mamba_ssm_dtype":"float32",)" +
           linear(64, 4) + "}}",
       16 * 2 * 4 * 256 * 2, 16 * 2 * 4 * 256 * 2, 48 * ((2 * 16 * 128 + 48 * 128) * 3 * 2 + 48 * 128 * 128 * 4)},
      {"Qwen3.5-397B-A17B",
       R"({"model_type":"qwen3_5_moe","text_config":{"model_type":"qwen3_5_moe_text","head_dim":256,
          "hidden_size":4096,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,
          "linear_num_value_heads":64,"linear_value_head_dim":128,"num_attention_heads":32,"num_hidden_layers":60,
          "num_key_value_heads":2,"mamba_ssm_dtype":"float32",)" +
           linear(60, 4) + "}}",
       15 * 2 * 2 * 256 * 2, 15 * 2 * 2 * 256 * 2, 45 * ((2 * 16 * 128 + 64 * 128) * 3 * 2 + 64 * 128 * 128 * 4)},
  };
}

// Latent attention keeps one vector of kv_lora_rank and one of qk_rope_head_dim values for all heads.
std::vector<Row> latent() {
  return {
      plain("DeepSeek-V2-Lite", R"({"model_type":"deepseek_v2","hidden_size":2048,"kv_lora_rank":512,
          "num_attention_heads":16,"num_hidden_layers":27,"num_key_value_heads":16,"qk_nope_head_dim":128,
          "qk_rope_head_dim":64,"v_head_dim":128})",
            27 * (512 + 64) * 2),
      plain("DeepSeek-V3",
            R"({"model_type":"deepseek_v3","hidden_size":7168,"kv_lora_rank":512,"num_attention_heads":128,
          "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,"q_lora_rank":1536,
          "qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128})",
            61 * (512 + 64) * 2),
      plain("DeepSeek-V3.2", R"({"model_type":"deepseek_v32","hidden_size":7168,"index_head_dim":128,"index_n_heads":64,
          "index_topk":2048,"kv_lora_rank":512,"num_attention_heads":128,"num_hidden_layers":61,"qk_rope_head_dim":64})",
            61 * (512 + 64) * 2),
      plain("GLM-5", R"({"model_type":"glm_moe_dsa","head_dim":64,"hidden_size":6144,"index_head_dim":128,
          "index_n_heads":32,"index_topk":2048,"kv_lora_rank":512,"num_attention_heads":64,"num_hidden_layers":78,
          "qk_head_dim":256,"qk_nope_head_dim":192,"qk_rope_head_dim":64,"v_head_dim":256})",
            78 * (512 + 64) * 2),
      plain("Kimi-K2", R"({"model_type":"kimi_k2","hidden_size":7168,"kv_lora_rank":512,"num_attention_heads":64,
          "num_hidden_layers":61,"num_nextn_predict_layers":0,"q_lora_rank":1536,"qk_rope_head_dim":64,"v_head_dim":128})",
            61 * (512 + 64) * 2),
      plain("Kimi-K2.5", R"({"model_type":"kimi_k25","text_config":{"model_type":"kimi_k2","hidden_size":7168,
          "kv_lora_rank":512,"num_attention_heads":64,"num_hidden_layers":61,"qk_rope_head_dim":64}})",
            61 * (512 + 64) * 2),
      // 24 of 93 layers attend; the others keep a matrix for each of 96 heads and three inputs of three convolutions.
      {"Kimi-K3", R"({"model_type":"kimi_k3","text_config":{"model_type":"kimi_linear","hidden_size":7168,
          "kv_lora_rank":512,"attn_res_block_size":12,"num_attention_heads":96,"num_hidden_layers":93,"qk_rope_head_dim":64,
          "mla_use_nope":true,"linear_attn_config":{"full_attn_layers":[4,8,12,16,20,24,28,32,36,40,44,48,52,56,60,64,68,72,
          76,80,84,88,92,93],"head_dim":128,"num_heads":96,"short_conv_kernel_size":4,"use_full_rank_gate":true}}})",
       24 * (512 + 64) * 2, 24 * (512 + 64) * 2, 69 * (3 * 96 * 128 * 3 * 2 + 96 * 128 * 128 * 4)},
      // Each layer has two attentions.
      plain("LongCat-Flash-Chat", R"({"model_type":"longcat_flash","attention_method":"MLA","num_layers":28,
          "num_attention_heads":64,"hidden_size":6144,"kv_lora_rank":512,"q_lora_rank":1536,"qk_nope_head_dim":128,
          "qk_rope_head_dim":64,"v_head_dim":128,"zero_expert_num":256})",
            2 * 28 * (512 + 64) * 2),
      // The config uses Megatron's names.
      plain("Moonlight-16B-A3B", R"({"num_layers":27,"hidden_size":2048,"num_attention_heads":16,"kv_channels":128,
          "multi_latent_attention":true,"kv_lora_rank":512,"qk_head_dim":128,"qk_pos_emb_head_dim":64,"v_head_dim":128})",
            27 * (512 + 64) * 2),
  };
}

std::vector<Row> windowed() {
  return {
      plain("Gemma-2B", R"({"model_type":"gemma","head_dim":256,"hidden_size":2048,"num_attention_heads":8,
          "num_hidden_layers":18,"num_key_value_heads":1})",
            18 * 2 * 1 * 256 * 2),
      {"Gemma-2-2B", R"({"model_type":"gemma2","head_dim":256,"hidden_size":2304,"num_attention_heads":8,
          "num_hidden_layers":26,"num_key_value_heads":4,"sliding_window":4096,"cache_implementation":"hybrid",
          "attn_logit_softcapping":50.0,"query_pre_attn_scalar":256})",
       26 * 2 * 4 * 256 * 2, 13 * 2 * 4 * 256 * 2},
      {"Gemma-2-9B", R"({"model_type":"gemma2","head_dim":256,"hidden_size":3584,"num_attention_heads":16,
          "num_hidden_layers":42,"num_key_value_heads":8,"sliding_window":4096,"sliding_window_size":4096})",
       42 * 2 * 8 * 256 * 2, 21 * 2 * 8 * 256 * 2},
      {"Gemma-2-27B", R"({"model_type":"gemma2","head_dim":128,"hidden_size":4608,"num_attention_heads":32,
          "num_hidden_layers":46,"num_key_value_heads":16,"sliding_window":4096})",
       46 * 2 * 16 * 128 * 2, 23 * 2 * 16 * 128 * 2},
      {"Gemma-3-1B", R"({"model_type":"gemma3_text","head_dim":256,"hidden_size":1152,"num_attention_heads":4,
          "num_hidden_layers":26,"num_key_value_heads":1,"sliding_window":512,"sliding_window_pattern":6})",
       26 * 2 * 1 * 256 * 2, 4 * 2 * 1 * 256 * 2},
      // The last 10 of 30 layers read what earlier ones keep.
      {"Gemma-3n-E2B",
       R"({"model_type":"gemma3n","text_config":{"model_type":"gemma3n_text","num_hidden_layers":30,
          "num_kv_shared_layers":10,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,"sliding_window":512,)" +
           sliding(30, 5) + "}}",
       20 * 2 * 2 * 256 * 2, 4 * 2 * 2 * 256 * 2},
      // Layers that attend to all have other heads than those that slide, and 20 of 35 layers keep nothing.
      {"Gemma-4-E2B",
       R"({"model_type":"gemma4","text_config":{"model_type":"gemma4_text","hidden_size":1536,
          "num_hidden_layers":35,"num_attention_heads":8,"num_key_value_heads":1,"head_dim":256,"global_head_dim":512,
          "num_global_key_value_heads":null,"attention_k_eq_v":false,"sliding_window":512,"hidden_size_per_layer_input":256,
          "num_kv_shared_layers":20,"use_double_wide_mlp":true,)" +
           sliding(35, 5) + "}}",
       12 * 2 * 1 * 256 * 2 + 3 * 2 * 1 * 512 * 2, 3 * 2 * 1 * 512 * 2},
      {"Gemma-4-E4B",
       R"({"model_type":"gemma4_text","hidden_size":2560,"num_hidden_layers":42,"num_attention_heads":8,
          "head_dim":256,"global_head_dim":512,"num_key_value_heads":2,"num_kv_shared_layers":18,"sliding_window":512,
          "attention_k_eq_v":false,)" +
           sliding(42, 6) + "}",
       20 * 2 * 2 * 256 * 2 + 4 * 2 * 2 * 512 * 2, 4 * 2 * 2 * 512 * 2},
      {"Gemma-4-26B-A4B",
       R"({"model_type":"gemma4","text_config":{"model_type":"gemma4_text","attention_k_eq_v":true,
          "global_head_dim":512,"head_dim":256,"hidden_size":2816,"num_attention_heads":16,"num_global_key_value_heads":2,
          "num_hidden_layers":30,"num_key_value_heads":8,"num_kv_shared_layers":0,"sliding_window":1024,
          "use_bidirectional_attention":"vision",)" +
           sliding(30, 6) + "}}",
       25 * 2 * 8 * 256 * 2 + 5 * 2 * 2 * 512 * 2, 5 * 2 * 2 * 512 * 2},
      {"Gemma-4-31B",
       R"({"model_type":"gemma4","text_config":{"model_type":"gemma4_text","attention_k_eq_v":true,
          "global_head_dim":512,"head_dim":256,"hidden_size":5376,"num_attention_heads":32,"num_global_key_value_heads":4,
          "num_hidden_layers":60,"num_key_value_heads":16,"num_kv_shared_layers":0,"sliding_window":1024,)" +
           sliding(60, 6) + "}}",
       50 * 2 * 16 * 256 * 2 + 10 * 2 * 4 * 512 * 2, 10 * 2 * 4 * 512 * 2},
      {"gpt-oss-120b",
       R"({"model_type":"gpt_oss","head_dim":64,"hidden_size":2880,"num_attention_heads":64,
          "num_hidden_layers":36,"num_key_value_heads":8,"sliding_window":128,"initial_context_length":4096,)" +
           sliding(36, 2) + "}",
       36 * 2 * 8 * 64 * 2, 18 * 2 * 8 * 64 * 2},
      // Keys of 192 values, values of 128; 9 layers of 4 heads attend to all, 39 of 8 heads slide.
      {"MiMo-V2-Flash", R"({"model_type":"mimo_v2_flash","num_hidden_layers":48,"hidden_size":4096,
          "num_attention_heads":64,"num_key_value_heads":4,"head_dim":192,"v_head_dim":128,"sliding_window":128,
          "sliding_window_size":128,"attention_chunk_size":128,"swa_num_attention_heads":64,"swa_num_key_value_heads":8,
          "swa_head_dim":192,"swa_v_head_dim":128,"attention_value_scale":0.707,"hybrid_layer_pattern":[0,1,1,1,1,0,1,1,1,1,
          1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0]})",
       9 * 4 * (192 + 128) * 2 + 39 * 8 * (192 + 128) * 2, 9 * 4 * (192 + 128) * 2},
      {"Step-3.7-Flash",
       R"({"model_type":"step3p7","num_hidden_layers":45,"hidden_size":4096,"num_attention_heads":64,
          "num_key_value_heads":8,"head_dim":128,"sliding_window":512,"num_nextn_predict_layers":3,"share_expert_dim":1280,
          "layer_types":["full_attention",)" +
           repeated(11, R"("sliding_attention","sliding_attention","sliding_attention",
          "full_attention")") +
           "]}",
       45 * 2 * 8 * 128 * 2, 12 * 2 * 8 * 128 * 2},
      {"Llama-4-Scout", R"({"model_type":"llama4","text_config":{"model_type":"llama4_text","attention_chunk_size":8192,
          "head_dim":128,"hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":48,"num_key_value_heads":8,
          "no_rope_layers":[],"intermediate_size_mlp":16384}})",
       48 * 2 * 8 * 128 * 2, 12 * 2 * 8 * 128 * 2},
      // One layer in four attends to all where the config does not say it, and where `layer_switch` does.
      {"Command-R7B", R"({"model_type":"cohere2","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
          "num_key_value_heads":8,"head_dim":128,"sliding_window":4096})",
       32 * 2 * 8 * 128 * 2, 8 * 2 * 8 * 128 * 2},
      {"Command-R7B with layer_switch", R"({"model_type":"cohere2","num_hidden_layers":32,"hidden_size":4096,
          "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"sliding_window":4096,"layer_switch":4,
          "order_of_interleaved_layers":"local_attn_first"})",
       32 * 2 * 8 * 128 * 2, 8 * 2 * 8 * 128 * 2},
  };
}

std::vector<Row> other_designs() {
  return {
      // 23 Mamba layers, 6 that attend, 23 of experts.
      {"Nemotron-3-Nano-30B-A3B",
       R"({"model_type":"nemotron_h","chunk_size":128,"conv_kernel":4,"expand":2,"head_dim":128,
          "hidden_size":2688,"hybrid_override_pattern":"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
          "mamba_head_dim":64,"mamba_num_heads":64,"mamba_ssm_cache_dtype":"float32","n_groups":8,"num_attention_heads":32,
          "num_hidden_layers":52,"num_key_value_heads":2,"sliding_window":null,"ssm_state_size":128})",
       6 * 2 * 2 * 128 * 2, 6 * 2 * 2 * 128 * 2, 23 * ((64 * 64 + 2 * 8 * 128) * 3 * 2 + 64 * 64 * 128 * 4)},
      // The published config contains a number that JSON does not have.
      {"Nemotron-H-56B", R"({"model_type":"nemotron_h","attention_head_dim":128,"chunk_size":128,"conv_kernel":4,
          "expand":2,"hidden_size":8192,"hybrid_override_pattern":"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
          "mamba_head_dim":64,"mamba_num_heads":256,"n_groups":8,"num_attention_heads":64,"num_hidden_layers":118,
          "num_key_value_heads":8,"ssm_state_size":256,"time_step_limit":[0.0,Infinity],"time_step_rank":512})",
       10 * 2 * 8 * 128 * 2, 10 * 2 * 8 * 128 * 2, 54 * ((256 * 64 + 2 * 8 * 256) * 3 * 2 + 256 * 64 * 256 * 2)},
      plain("Llama-3.3-Nemotron-Super-49B",
            R"({"model_type":"nemotron-nas","hidden_size":8192,"num_attention_heads":64,
          "num_hidden_layers":80,"num_key_value_heads":null,)" +
                blocks_of_nemotron_super() + "}",
            49 * 2 * 8 * 128 * 2),
      // Its 48 layers run four times, and keep KV each time.
      plain("Ouro-2.6B", R"({"model_type":"ouro","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":16,
          "num_key_value_heads":16,"head_dim":128,"total_ut_steps":4,"early_exit_threshold":1.0})",
            4 * 48 * 2 * 16 * 128 * 2),
      plain("Ouro-1.4B", R"({"model_type":"ouro","num_hidden_layers":24,"hidden_size":2048,"num_attention_heads":16,
          "num_key_value_heads":16,"head_dim":128,"total_ut_steps":4})",
            4 * 24 * 2 * 16 * 128 * 2),
      // Every layer attends and has a Mamba mixer beside.
      {"Falcon-H1-7B", R"({"model_type":"falcon_h1","num_hidden_layers":44,"num_attention_heads":12,
          "num_key_value_heads":2,"head_dim":128,"hidden_size":3072,"attn_layer_indices":null,"mamba_d_conv":4,
          "mamba_d_head":128,"mamba_d_ssm":3072,"mamba_d_state":256,"mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":24})",
       44 * 2 * 2 * 128 * 2, 44 * 2 * 2 * 128 * 2, 44 * ((24 * 128 + 2 * 1 * 256) * 3 * 2 + 24 * 128 * 256 * 2)},
      // No attention: each layer's state is that of the paper, 2 * 2560 channels of 16 values and three inputs.
      {"Mamba-2.8B", R"({"model_type":"mamba","num_hidden_layers":64,"hidden_size":2560,"state_size":16,"conv_kernel":4,
          "expand":2,"intermediate_size":5120,"time_step_rank":160})",
       0, 0, 64 * (5120 * 3 * 2 + 5120 * 16 * 2)},
      {"Mamba-2.8B, its first form", R"({"d_model":2560,"n_layer":64,"vocab_size":50277,"ssm_cfg":{},"rms_norm":true,
          "residual_in_fp32":true,"fused_add_norm":true})",
       0, 0, 64 * (5120 * 3 * 2 + 5120 * 16 * 2)},
      // The configs use Mistral's own names, and Megatron's.
      plain("Mistral-7B-v0.3, params.json", R"({"dim":4096,"n_layers":32,"head_dim":128,"hidden_dim":14336,"n_heads":32,
          "n_kv_heads":8,"norm_eps":1e-05,"vocab_size":32768,"rope_theta":1000000.0})",
            32 * 2 * 8 * 128 * 2),
      plain("Qwen3-4B, Megatron",
            R"({"num_layers":36,"hidden_size":2560,"ffn_hidden_size":9728,"num_attention_heads":32,
          "group_query_attention":true,"num_query_groups":8,"kv_channels":128,"normalization":"RMSNorm","qk_layernorm":true})",
            36 * 2 * 8 * 128 * 2),
  };
}

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Result<Model> model = parse_model(row.config);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Usage usage = usage_of(model.value(), 1, 1, 16).value();
    EXPECT_EQ(usage.bytes_per_token, row.per_token);
    EXPECT_EQ(usage.bytes_per_token_past_window, row.past_window);
    EXPECT_EQ(usage.state_bytes_per_sequence, row.state);
  }
}

TEST(PublishedModels, those_whose_layers_are_all_alike) { check(llama_like()); }
TEST(PublishedModels, older_ones_and_their_names) { check(older()); }
TEST(PublishedModels, qwen) { check(qwen()); }
TEST(PublishedModels, latent_attention) { check(latent()); }
TEST(PublishedModels, windows_and_head_counts_by_layer) { check(windowed()); }
TEST(PublishedModels, states_loops_searched_layers_and_other_names) { check(other_designs()); }

TEST(PublishedModels, are_more_than_sixty) {
  EXPECT_GE(llama_like().size() + older().size() + qwen().size() + latent().size() + windowed().size() +
                other_designs().size(),
            60U);
}

TEST(PublishedModels, a_type_that_is_known_has_no_note_about_its_fields) {
  for (const auto& rows : {llama_like(), older(), qwen(), latent(), windowed()}) {
    for (const Row& row : rows) {
      const Result<Model> model = parse_model(row.config);
      ASSERT_TRUE(model.ok()) << row.name;
      for (const std::string& note : model.value().notes)
        EXPECT_EQ(note.find("fields here"), std::string::npos) << row.name;
    }
  }
}

// A model that compresses, shares or mixes its cache in a way that is not counted is refused by name.
TEST(PublishedModels, what_is_not_counted_is_refused_by_name) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {R"({"model_type":"deepseek_v4","head_dim":512,"hidden_size":4096,"num_attention_heads":64,"num_hidden_layers":43,
          "num_key_value_heads":1,"compress_ratios":[)" +
           repeated(44, "4") + "]}",
       "deepseek_v4"},
      {R"({"model_type":"deepseek_v3","head_dim":512,"hidden_size":4096,"num_attention_heads":64,"num_hidden_layers":43,
          "num_key_value_heads":1,"compress_ratios":[)" +
           repeated(44, "4") + "]}",
       "compress_ratios"},
      {R"({"model_type":"hymba","num_hidden_layers":32,"hidden_size":1600,"num_attention_heads":25,"num_key_value_heads":5,
          "kv_reuse_group":[[1,2]],"global_attn_idx":[0,15,31]})",
       "hymba"},
      {R"({"model_type":"rwkv5","head_size":64,"hidden_size":2560,"num_hidden_layers":32})", "rwkv5"},
      {R"({"model_type":"bert","hidden_size":768,"num_attention_heads":12,"num_hidden_layers":12})", "encoder"},
  };
  for (const auto& [config, word] : refused) {
    const Result<Model> model = parse_model(config);
    ASSERT_FALSE(model.ok()) << config;
    EXPECT_NE(std::string(model.status().message()).find(word), std::string::npos) << model.status().message();
  }
}

}  // namespace
}  // namespace kvbm::size::published_test

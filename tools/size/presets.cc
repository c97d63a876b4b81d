// Facts of the models' own config.json files, only the fields that decide the KV size.
#include "size/model.h"

namespace kvbm::size {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets = {
      {"llama-3.2-1b", "meta-llama/Llama-3.2-1B",
       R"({"model_type":"llama","num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"hidden_size":2048})"},
      {"llama-3.2-3b", "meta-llama/Llama-3.2-3B",
       R"({"model_type":"llama","num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"hidden_size":3072})"},
      {"llama-3.1-8b", "meta-llama/Llama-3.1-8B",
       R"({"model_type":"llama","num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_size":4096})"},
      {"llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct",
       R"({"model_type":"llama","num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"hidden_size":8192})"},
      {"llama-3.1-405b", "meta-llama/Llama-3.1-405B",
       R"({"model_type":"llama","num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,"hidden_size":16384})"},
      {"qwen2.5-7b", "Qwen/Qwen2.5-7B",
       R"({"model_type":"qwen2","num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"hidden_size":3584,"sliding_window":131072,"use_sliding_window":false,"max_window_layers":28})"},
      {"qwen2.5-72b", "Qwen/Qwen2.5-72B",
       R"({"model_type":"qwen2","num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"hidden_size":8192,"sliding_window":131072,"use_sliding_window":false,"max_window_layers":80})"},
      {"qwen3-0.6b", "Qwen/Qwen3-0.6B",
       R"({"model_type":"qwen3","num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"hidden_size":1024})"},
      {"qwen3-8b", "Qwen/Qwen3-8B",
       R"({"model_type":"qwen3","num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"hidden_size":4096})"},
      {"qwen3-32b", "Qwen/Qwen3-32B",
       R"({"model_type":"qwen3","num_hidden_layers":64,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"hidden_size":5120})"},
      {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B",
       R"({"model_type":"qwen3_moe","num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"hidden_size":2048})"},
      {"qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B",
       R"({"model_type":"qwen3_moe","num_hidden_layers":94,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,"hidden_size":4096})"},
      {"qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct",
       R"({"model_type":"qwen3_next","num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"hidden_size":2048,"full_attention_interval":4,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"linear_value_head_dim":128})"},
      {"mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3",
       R"({"model_type":"mistral","num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_size":4096,"sliding_window":null})"},
      {"mistral-small-24b", "mistralai/Mistral-Small-24B-Instruct-2501",
       R"({"model_type":"mistral","num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"hidden_size":5120,"sliding_window":null})"},
      {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1",
       R"({"model_type":"mixtral","num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_size":4096,"sliding_window":null})"},
      {"phi-4", "microsoft/phi-4",
       R"({"model_type":"phi3","num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"hidden_size":5120,"sliding_window":null})"},
      {"smollm2-135m", "HuggingFaceTB/SmolLM2-135M",
       R"({"model_type":"llama","num_hidden_layers":30,"num_attention_heads":9,"num_key_value_heads":3,"hidden_size":576})"},
      {"deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite",
       R"({"model_type":"deepseek_v2","num_hidden_layers":27,"num_attention_heads":16,"kv_lora_rank":512,"qk_rope_head_dim":64})"},
      {"deepseek-v3", "deepseek-ai/DeepSeek-V3",
       R"({"model_type":"deepseek_v3","num_hidden_layers":61,"num_attention_heads":128,"kv_lora_rank":512,"qk_rope_head_dim":64})"},
      {"kimi-k2", "moonshotai/Kimi-K2-Instruct",
       R"({"model_type":"kimi_k2","num_hidden_layers":61,"num_attention_heads":64,"kv_lora_rank":512,"qk_rope_head_dim":64})"},
      {"gpt-oss-20b", "openai/gpt-oss-20b",
       R"({"model_type":"gpt_oss","num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"sliding_window":128,"sliding_window_pattern":2})"},
      {"gpt-oss-120b", "openai/gpt-oss-120b",
       R"({"model_type":"gpt_oss","num_hidden_layers":36,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"sliding_window":128,"sliding_window_pattern":2})"},
      {"gemma-3-12b", "google/gemma-3-12b-it",
       R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"hidden_size":3840,"sliding_window":1024,"sliding_window_pattern":6}})"},
      {"gemma-3-27b", "google/gemma-3-27b-it",
       R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"hidden_size":5376,"sliding_window":1024,"sliding_window_pattern":6}})"},
      {"jamba-1.5-mini", "ai21labs/AI21-Jamba-1.5-Mini",
       R"({"model_type":"jamba","num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"hidden_size":4096,"attn_layer_period":8,"attn_layer_offset":4,"mamba_d_conv":4,"mamba_d_state":16,"mamba_expand":2})"},
      {"nemotron-h-8b", "nvidia/Nemotron-H-8B-Base-8K",
       R"({"model_type":"nemotron_h","num_hidden_layers":52,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"hidden_size":4096,"hybrid_override_pattern":"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-","mamba_num_heads":128,"mamba_head_dim":64,"n_groups":8,"ssm_state_size":128,"conv_kernel":4})"},
  };
  return kPresets;
}

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace kvbm::size

#include "size/types.h"

#include <algorithm>

namespace kvbm::size {

namespace {

constexpr TypeFacts kTypes[] = {
    // Types with different layers, or with configs that leave fields out.
    {"afmoe", 4, 1024, 0, 0, 128},
    {"bailing_hybrid", 0, 0, 0, 0, 128},
    {"bitnet", 0, 0, 20, 5},
    {"cohere2", 4, 4096},
    {"cohere2_moe", 4, 4096, 0, 0, 128},
    {"cwm", 4, 8192, 48, 8, 128},
    {"deepseek_v32", 0, 0, 128, 128},
    {"ernie4_5", 0, 0, 16, 2, 128},
    {"ernie4_5_moe", 0, 0, 20, 4},
    {"ernie4_5_vl_moe_text", 0, 0, 20, 4},
    {"exaone4", 4, 4096},
    {"exaone_moe", 4, 4096},
    {"falcon_h1", 0, 0, 32, 8},
    {"gemma", 0, 0, 16, 16, 256},
    {"gemma2", 2, 4096, 8, 4, 256},
    {"gemma3_text", 6, 4096, 8, 4, 256},
    {"gemma3n_text", 5, 512, 8, 2, 256},
    {"gemma4_text", 6, 512, 8, 4, 256},
    {"gemma4_unified_text", 6, 512, 8, 4, 256},
    {"glm", 0, 0, 32, 2, 128},
    {"glm4", 0, 0, 32, 2, 128},
    {"glm4_moe", 0, 0, 96, 8},
    {"glm4v_moe_text", 0, 0, 96, 8},
    {"glm4v_text", 0, 0, 32, 2},
    {"gpt_oss", 2, 128, 64, 8, 64},
    {"helium", 0, 0, 20, 20, 128},
    {"hy_v3", 0, 0, 64, 8, 128},
    {"internlm3", 0, 0, 32, 2, 128},
    {"jamba", 0, 0, 32, 8},
    {"laguna", 0, 512, 48, 8, 128},
    {"lfm2", 0, 0, 32, 8},
    {"lfm2_moe", 0, 0, 32, 8},
    {"llama4_text", 0, 0, 40, 8, 128},
    {"minimax_m2", 0, 0, 48, 8, 128},
    {"minimax_m3", 0, 0, 64, 4, 128},
    {"minimax_m3_vl_text", 0, 0, 64, 4, 128},
    {"ministral", 0, 0, 32, 8},
    {"ministral3", 0, 0, 32, 8, 128},
    {"mistral", 0, 0, 32, 8},
    {"mixtral", 0, 0, 32, 8},
    {"nemotron_h", 0, 0, 32, 8, 128},
    {"olmo3", 4, 4096},
    {"olmo_hybrid", 4, 0, 30, 0, 0, true},
    {"phi4_multimodal", 0, 0, 32, 8},
    {"phimoe", 0, 0, 32, 8},
    {"qwen2_5_omni_text", 0, 0, 28, 4},
    {"qwen2_5_vl_text", 0, 0, 64, 8},
    {"qwen2_vl_text", 0, 0, 64, 8},
    {"qwen3", 0, 0, 32, 32, 128},
    {"qwen3_5_moe_text", 4, 0, 16, 2, 256, true},
    {"qwen3_5_text", 4, 0, 16, 4, 256, true},
    {"qwen3_moe", 0, 0, 32, 4},
    {"qwen3_next", 4, 0, 16, 2, 256, true},
    {"qwen3_omni_moe_text", 0, 0, 28, 4},
    {"qwen3_vl_moe_text", 0, 0, 16, 16},
    {"qwen3_vl_text", 0, 0, 32, 32, 128},
    {"seed_oss", 0, 0, 80, 8, 128},
    {"smollm3", 0, 0, 16, 4},
    {"solar_open", 0, 0, 64, 8, 128},
    {"starcoder2", 0, 0, 24, 2},
    {"step3p5", 0, 0, 64, 8, 128},
    {"step3p7", 0, 0, 64, 8, 128},
    {"vaultgemma", 2, 512, 8, 4, 256},
};

// Types with complete fields.
constexpr std::string_view kPlain[] = {
    "AXK1", "apertus", "aquila", "arcee", "aria_text", "axk1", "baichuan", "bailing_moe", "bailing_moe_linear",
    "bailing_moe_v2", "bamba", "bloom", "chameleon", "chatglm", "code_llama", "codegen", "cohere", "dbrx", "deci",
    "deepseek", "deepseek_ocr2_text", "deepseek_v2", "deepseek_v3", "dots1", "exaone", "falcon", "falcon_mamba",
    "flex_olmo", "glm4_moe_lite", "glm_moe_dsa", "glm_ocr_text", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox",
    "gpt_neox_japanese", "gptj", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "hunyuan",
    "hunyuan_v1_dense", "hunyuan_v1_moe", "internlm", "internlm2", "jais2", "jetmoe", "kimi_k2", "kimi_linear", "llama",
    "longcat_flash", "mamba", "mamba2", "mimo", "mimo_v2_flash", "minicpm", "minicpm3", "minimax", "minimax_m1",
    "minimax_text_01", "mistral4", "MiniMaxAbab", "moonshot", "mpt", "nanochat", "nemotron", "nemotron-nas", "olmo",
    "olmo2", "olmoe", "openelm", "opt", "orion", "ouro", "pangu_ultra_moe", "persimmon", "phi", "phi-msft", "phi3",
    "phi3_v", "qwen", "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen2_vl", "RefinedWeb", "RefinedWebModel", "stablelm",
    "stablelm_epoch", "step3_text", "xglm", "xverse", "Yi", "youtu"};

constexpr std::string_view kWrappers[] = {
    "aria", "aya_vision", "cohere2_vision", "deepseek_ocr2", "deepseek_vl", "deepseek_vl_hybrid", "deepseek_vl_v2",
    "ernie4_5_moe_vl", "ernie4_5_vl_moe", "exaone4_5", "fast_vlm", "fuyu", "gemma3", "gemma3n", "gemma4",
    "gemma4_unified", "glm46v", "glm4v", "glm4v_moe", "glm_ocr", "got_ocr2", "granite_speech", "idefics2", "idefics3",
    "internvl", "internvl_chat", "kimi_k25", "kimi_vl", "lfm2_vl", "lighton_ocr", "llama4", "llava", "llava_next",
    "llava_next_video", "llava_onevision", "minimax_m3_vl", "mistral3", "ovis", "ovis2", "paligemma", "perception_lm",
    "pixtral", "qwen2_5_omni", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_5", "qwen3_5_moe",
    "qwen3_asr", "qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_vl", "qwen3_vl_moe", "shieldgemma2", "smolvlm",
    "step3_vl", "step3p7", "video_llava", "vipllava", "voxtral"};

struct Refused {
  std::string_view why;
  std::string_view names[40];
};
constexpr Refused kRefused[] = {
    {"it is an encoder, which keeps no KV from token to token",
     {"albert", "bert", "camembert", "clip", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert",
      "electra", "ernie", "esm", "eurobert", "funnel", "longformer", "megatron-bert", "mobilebert", "modernbert", "mpnet",
      "new", "nomic_bert", "roberta", "siglip", "siglip2", "vit", "xlm-roberta", "xlm-roberta-xl"}},
    {"encoder-decoder models are not counted here",
     {"bark", "bart", "blenderbot", "canary_decoder", "florence2", "led", "longt5", "m2m_100", "marian", "mbart",
      "moonshine", "mt5", "musicgen", "nllb-moe", "pegasus", "pix2struct", "pop2piano", "prophetnet", "seamless_m4t",
      "seamless_m4t_v2", "speech_to_text", "switch_transformers", "t5", "t5gemma", "t5gemma2", "trocr", "udop", "umt5",
      "vision-encoder-decoder", "whisper"}},
    {"the state of its recurrent layers is not counted here",
     {"apriel_ssm_hybrid", "doge", "griffin", "hymba", "jet_nemotron", "minicpm_sala", "phi4flash", "plamo2",
      "recurrent_gemma", "retnet", "rwkv", "rwkv5", "rwkv6", "rwkv7", "samba", "xlstm", "zamba", "zamba2", "zaya"}},
    {"its layers compress, share or drop what they keep in a way that is not counted here",
     {"baichuan_m1", "blt", "cpmant", "deepseek_v4", "diffllama", "glm5_next", "glm5_next_text", "inkling2_loop_text",
      "inkling2_text", "inkling_text", "mistral_large4", "mistral_large4_text", "muse_glimmer_text", "muse_spark_text",
      "qwen4_exp_text", "reformer", "xlnet"}},
    {"it runs its layers several times, in a way that is not counted here", {"dory", "hrm_text", "huginn_raven"}},
    {"layers that attend to images are not counted here", {"evolla", "idefics", "mllama", "mllama_text_model"}},
};

template <size_t N>
bool holds(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const TypeFacts* find_type(std::string_view name) {
  for (const TypeFacts& each : kTypes) {
    if (each.name == name) return &each;
  }
  static constexpr TypeFacts kNothing{};
  return holds(kPlain, name) ? &kNothing : nullptr;
}

bool is_wrapper_type(std::string_view name) { return holds(kWrappers, name); }

std::string refusal_of_type(std::string_view name) {
  if (name.empty()) return "";
  for (const Refused& each : kRefused) {
    if (holds(each.names, name)) return "models of type `" + std::string(name) + "`: " + std::string(each.why);
  }
  return "";
}

}  // namespace kvbm::size

#include "size/model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvbm::size::model_test {
namespace {

Usage usage_of_preset(const char* name, uint64_t tokens) {
  const Preset* preset = find_preset(name);
  EXPECT_NE(preset, nullptr) << name;
  const Result<Model> model = parse_model(preset->config);
  EXPECT_TRUE(model.ok()) << model.status().message();
  const Result<Usage> usage = usage_of(model.value(), tokens, 1, 16);
  EXPECT_TRUE(usage.ok());
  return usage.value();
}

std::string refusal_of(const char* config) {
  const Result<Model> model = parse_model(config);
  EXPECT_FALSE(model.ok()) << config;
  return model.status().message();
}

TEST(Model, grouped_query_presets_have_the_published_bytes_per_token) {
  EXPECT_EQ(usage_of_preset("llama-3.3-70b", 1).bytes_per_token, 327680U);
  EXPECT_EQ(usage_of_preset("qwen3-8b", 1).bytes_per_token, 147456U);
  EXPECT_EQ(usage_of_preset("llama-3.1-405b", 1).bytes_per_token, 516096U);
  EXPECT_EQ(usage_of_preset("smollm2-135m", 1).bytes_per_token, 23040U);
}

TEST(Model, latent_attention_keeps_one_latent_and_one_rope_key) {
  EXPECT_EQ(usage_of_preset("deepseek-v3", 1).bytes_per_token, 70272U);
}

TEST(Model, every_preset_parses) {
  EXPECT_GE(presets().size(), 20U);
  for (const Preset& preset : presets()) {
    EXPECT_TRUE(parse_model(preset.config).ok()) << preset.name << parse_model(preset.config).status().message();
  }
}

TEST(Model, sliding_window_layers_stop_growing_at_the_window) {
  // gpt-oss-20b: 12 full and 12 sliding layers of 2 * 8 * 64 values.
  const uint64_t layer = uint64_t{2} * 8 * 64 * 2;
  EXPECT_EQ(usage_of_preset("gpt-oss-20b", 100).bytes_per_sequence, 24 * layer * 100);
  const Usage long_one = usage_of_preset("gpt-oss-20b", 10000);
  EXPECT_EQ(long_one.bytes_per_sequence, 12 * layer * 10000 + 12 * layer * 128);
  EXPECT_EQ(long_one.bytes_per_token_past_window, 12 * layer);
}

TEST(Model, gemma_3_has_one_full_layer_in_six) {
  const Usage usage = usage_of_preset("gemma-3-27b", 1);
  EXPECT_EQ(usage.bytes_per_token_past_window, uint64_t{10} * 2 * 16 * 128 * 2);
  EXPECT_EQ(usage.bytes_per_token, uint64_t{62} * 2 * 16 * 128 * 2);
}

TEST(Model, recurrent_layers_cost_a_constant_per_sequence) {
  const Usage jamba = usage_of_preset("jamba-1.5-mini", 1000);
  EXPECT_EQ(jamba.bytes_per_token, uint64_t{4} * 2 * 8 * 128 * 2);
  EXPECT_EQ(jamba.state_bytes_per_sequence, uint64_t{28} * (8192 * 3 + 8192 * 16) * 2);
  EXPECT_EQ(jamba.bytes_per_sequence, jamba.bytes_per_token * 1000 + jamba.state_bytes_per_sequence);
  const Usage nemotron = usage_of_preset("nemotron-h-8b", 1);
  EXPECT_EQ(nemotron.bytes_per_token, uint64_t{4} * 2 * 8 * 128 * 2);
  EXPECT_EQ(nemotron.state_bytes_per_sequence, uint64_t{24} * ((8192 + 2048) * 3 + 128 * 64 * 128) * 2);
  EXPECT_EQ(usage_of_preset("qwen3-next-80b-a3b", 1).bytes_per_token, uint64_t{12} * 2 * 2 * 256 * 2);
}

TEST(Model, layer_types_decide_over_everything_else) {
  const Result<Model> model = parse_model(
      R"({"num_hidden_layers":3,"num_attention_heads":4,"head_dim":8,"sliding_window":16,"model_type":"mistral",
          "layer_types":["full_attention","sliding_attention","full_attention"]})");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(usage_of(model.value(), 1, 1, 16).value().bytes_per_token_past_window, uint64_t{2} * 2 * 4 * 8 * 2);
}

uint64_t bytes_per_token(const char* config) {
  const Result<Model> model = parse_model(config);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? usage_of(model.value(), 1, 1, 16).value().bytes_per_token : 0;
}

// The text_config of google/gemma-3-12b-it and -4b-it, and what transformers takes where they say nothing.
TEST(Model, gemma_3_configs_leave_fields_out) {
  EXPECT_EQ(bytes_per_token(R"({"text_config":{"hidden_size":3840,"model_type":"gemma3_text","num_attention_heads":16,
      "num_hidden_layers":48,"num_key_value_heads":8,"sliding_window":1024}})"),
            uint64_t{48} * 2 * 8 * 256 * 2);
  EXPECT_EQ(bytes_per_token(R"({"text_config":{"hidden_size":2560,"model_type":"gemma3_text","num_hidden_layers":34,
      "sliding_window":1024}})"),
            uint64_t{34} * 2 * 4 * 256 * 2);
}

// tiiuae/falcon-7b names as many KV heads as heads, and has one.
TEST(Model, falcon_has_one_kv_head_in_its_first_design) {
  EXPECT_EQ(bytes_per_token(R"({"model_type":"falcon","hidden_size":4544,"num_attention_heads":71,"num_kv_heads":71,
      "num_hidden_layers":32,"multi_query":true,"new_decoder_architecture":false})"),
            uint64_t{32} * 2 * 1 * 64 * 2);
  EXPECT_EQ(bytes_per_token(R"({"model_type":"falcon","hidden_size":8192,"num_attention_heads":128,"num_kv_heads":8,
      "num_hidden_layers":60,"multi_query":true,"new_decoder_architecture":true})"),
            uint64_t{60} * 2 * 8 * 64 * 2);
  EXPECT_EQ(
      bytes_per_token(R"({"model_type":"RefinedWeb","hidden_size":8192,"n_head":128,"n_head_kv":8,"n_layer":60})"),
      uint64_t{60} * 2 * 8 * 64 * 2);
}

TEST(Model, attending_layers_may_be_named_by_their_numbers) {
  const char* bamba = R"({"model_type":"bamba","attn_layer_indices":[9,18,27],"hidden_size":4096,"mamba_d_conv":4,
      "mamba_d_head":64,"mamba_d_state":128,"mamba_n_groups":1,"mamba_n_heads":128,"num_attention_heads":32,
      "num_hidden_layers":32,"num_key_value_heads":8})";
  EXPECT_EQ(bytes_per_token(bamba), uint64_t{3} * 2 * 8 * 128 * 2);
  EXPECT_EQ(usage_of(parse_model(bamba).value(), 1, 1, 16).value().state_bytes_per_sequence,
            uint64_t{29} * ((8192 + 256) * 3 + 8192 * 128) * 2);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,"attn_layer_indices":[2]})")
                .find("no layer"),
            std::string::npos);
}

TEST(Model, values_may_be_shorter_than_keys) {
  EXPECT_EQ(bytes_per_token(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":192,"v_head_dim":128})"),
            uint64_t{2} * 4 * (192 + 128) * 2);
}

constexpr const char* kSmall = R"("model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8)";

std::string with(const std::string& field) { return "{" + std::string(kSmall) + "," + field + "}"; }

TEST(Model, designs_whose_layers_are_not_understood_are_refused) {
  for (const char* field :
       {R"("block_types":["recurrent","attention"])", R"("use_cla":true)", R"("cla_share_factor":2)",
        R"("cross_attention_layers":[3])", R"("num_attention_groups":1)", R"("is_encoder_decoder":true)",
        R"("mb_per_layer":2)", R"("compress_ratios":[4,128])", R"("loop_num_passes":3)"}) {
    EXPECT_NE(refusal_of(with(field).c_str()).find("not counted here"), std::string::npos) << field;
  }
  EXPECT_EQ(bytes_per_token(
                with(R"("use_cla":false,"cla_share_factor":1,"cross_attention_layers":[],"block_types":null)").c_str()),
            uint64_t{2} * 2 * 4 * 8 * 2);
}

TEST(Model, layers_may_have_head_counts_of_their_own) {
  EXPECT_EQ(bytes_per_token(with(R"("num_key_value_heads_per_layer":[4,2])").c_str()), uint64_t{2} * (4 + 2) * 8 * 2);
  EXPECT_EQ(bytes_per_token(with(R"("num_kv_heads":[0,2])").c_str()), uint64_t{2} * 2 * 8 * 2);
  EXPECT_NE(refusal_of(with(R"("num_kv_heads":[3,2])").c_str()).find("do not divide"), std::string::npos);
  EXPECT_NE(refusal_of(with(R"("num_kv_heads":[4,2,1])").c_str()).find("has 3"), std::string::npos);
}

std::vector<std::string> notes_of(const std::string& config) {
  const Result<Model> model = parse_model(config);
  EXPECT_TRUE(model.ok()) << config << model.status().message();
  return model.ok() ? model.value().notes : std::vector<std::string>{};
}

TEST(Model, a_type_that_is_not_known_is_named) {
  const std::string config = R"({"model_type":"newmodel","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8)";
  const std::vector<std::string> notes = notes_of(config + "}");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("newmodel"), std::string::npos);
  // Unknown fields that may change the size of the cache: by their names, or because they have a value for each layer.
  for (const char* field :
       {R"("attention_stride":2)", R"("latent_pool_size":64)", R"("plan":["a","b"])", R"("state_heads":{"n":4})"}) {
    const std::string refusal = refusal_of((config + "," + field + "}").c_str());
    EXPECT_NE(refusal.find(std::string(field).substr(1, 4)), std::string::npos) << refusal;
  }
  EXPECT_EQ(notes_of(config + R"(,"temperature":1,"mystery":3,"bos_token_id":1,"empty":null,"note":"text"})").size(),
            2U);
  EXPECT_TRUE(notes_of("{" + std::string(kSmall) + "}").empty());
}

TEST(Model, a_field_that_is_not_known_is_named) {
  // A field with a name that concerns the cache may not be ignored, whatever its type.
  for (const char* name : {"kv_share_every", "cache_ratio", "num_recurrent_passes", "ssm_rank", "layers_sharing_kv"}) {
    EXPECT_NE(refusal_of(with("\"" + std::string(name) + "\":2").c_str()).find(name), std::string::npos) << name;
  }
  const std::vector<std::string> notes = notes_of(with(R"("attention_stride":2,"mystery":3)"));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("`attention_stride`"), std::string::npos);
  EXPECT_NE(notes[0].find("`mystery`"), std::string::npos);
  EXPECT_TRUE(notes_of(with(R"("kv_share_every":0,"use_kv_trick":false,"kv_plan":[],"cache_note":"")")).empty());
}

TEST(Model, fields_of_layers_that_nothing_names_are_refused) {
  for (const char* field :
       {R"("mamba_d_state":16)", R"("linear_num_value_heads":4)", R"("conv_L_cache":3)", R"("window_size":[4,0])"}) {
    EXPECT_NE(refusal_of(with(field).c_str()).find("nothing says for which layers"), std::string::npos) << field;
  }
  EXPECT_EQ(bytes_per_token(with(R"("mamba_d_state":16,"layer_types":["attention","attention"])").c_str()),
            uint64_t{2} * 2 * 4 * 8 * 2);
}

TEST(Model, loops_and_shared_layers_multiply_and_divide) {
  EXPECT_EQ(bytes_per_token(with(R"("total_ut_steps":3)").c_str()), uint64_t{3} * 2 * 2 * 4 * 8 * 2);
  EXPECT_EQ(bytes_per_token(with(R"("num_kv_shared_layers":1)").c_str()), uint64_t{2} * 4 * 8 * 2);
  EXPECT_NE(refusal_of(with(R"("num_kv_shared_layers":2)").c_str()).find("leaves none"), std::string::npos);
}

TEST(Model, linear_layers_in_groups_keep_a_state) {
  const Result<Model> model = parse_model(
      R"({"model_type":"bailing_moe_linear","num_hidden_layers":20,"hidden_size":2048,"num_attention_heads":16,
          "num_key_value_heads":4,"head_dim":128,"layer_group_size":5,"group_norm_size":4})");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Usage usage = usage_of(model.value(), 1, 1, 16).value();
  EXPECT_EQ(usage.bytes_per_token, uint64_t{4} * 2 * 4 * 128 * 2);
  EXPECT_EQ(usage.state_bytes_per_sequence, uint64_t{16} * 16 * 128 * 128 * 2);
}

TEST(Model, a_value_size_of_zero_is_not_there) {
  EXPECT_EQ(bytes_per_token(R"({"model_type":"deepseek_vl_v2","language_config":{"model_type":"deepseek_v2",
      "num_hidden_layers":12,"hidden_size":1280,"num_attention_heads":10,"num_key_value_heads":10,"kv_lora_rank":null,
      "qk_rope_head_dim":0,"v_head_dim":0,"use_mla":false}})"),
            uint64_t{12} * 2 * 10 * 128 * 2);
}

TEST(Model, numbers_of_groups_count_where_a_field_says_so) {
  EXPECT_EQ(bytes_per_token(R"({"num_layers":2,"num_attention_heads":4,"kv_channels":8,"num_query_groups":1,
      "group_query_attention":false})"),
            uint64_t{2} * 2 * 4 * 8 * 2);
  EXPECT_EQ(
      bytes_per_token(R"({"model_type":"dbrx","d_model":64,"n_heads":8,"n_layers":2,"attn_config":{"kv_n_heads":2}})"),
      uint64_t{2} * 2 * 2 * 8 * 2);
  EXPECT_EQ(
      bytes_per_token(R"({"n_layers":4,"n_heads":4,"n_kv_heads":2,"head_dim":8,"dim":32,"sliding_window":[16,null]})"),
      uint64_t{4} * 2 * 2 * 8 * 2);
}

TEST(Model, fewer_bits_shrink_the_cache_in_proportion) {
  const Result<Model> model = parse_model(find_preset("qwen3-8b")->config);
  EXPECT_EQ(usage_of(model.value(), 1, 1, 8).value().bytes_per_token, 73728U);
  EXPECT_EQ(usage_of(model.value(), 10, 3, 4).value().total_bytes, 36864U * 30);
  EXPECT_FALSE(usage_of(model.value(), 1, 1, 0).ok());
  EXPECT_FALSE(usage_of(model.value(), 1, 1, 65).ok());
}

TEST(Model, totals_that_overflow_are_refused) {
  const Result<Model> model = parse_model(find_preset("qwen3-8b")->config);
  EXPECT_FALSE(usage_of(model.value(), UINT64_MAX, 1, 16).ok());
  EXPECT_FALSE(usage_of(model.value(), 1000000, UINT64_MAX / 1000000, 16).ok());
}

TEST(Model, longest_sequence_just_fits) {
  const Result<Model> model = parse_model(find_preset("gpt-oss-20b")->config);
  const uint64_t capacity = 1000000000;
  const uint64_t tokens = longest_sequence(model.value(), capacity, 16).value();
  EXPECT_LE(usage_of(model.value(), tokens, 1, 16).value().bytes_per_sequence, capacity);
  EXPECT_GT(usage_of(model.value(), tokens + 1, 1, 16).value().bytes_per_sequence, capacity);
}

TEST(Model, a_model_of_windows_alone_has_sequences_of_any_length) {
  const Result<Model> model = parse_model(
      R"({"model_type":"mistral","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,"sliding_window":16})");
  const uint64_t window = uint64_t{2} * 2 * 4 * 8 * 2 * 16;
  EXPECT_EQ(longest_sequence(model.value(), window, 16).value(), kAnyLength);
  EXPECT_EQ(longest_sequence(model.value(), window - 1, 16).value(), 15U);
}

TEST(Model, bad_configs_are_refused_by_name) {
  EXPECT_NE(refusal_of("{").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal_of("[]").find("not an object"), std::string::npos);
  EXPECT_NE(refusal_of("{}").find("num_hidden_layers"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4})").find("hidden_size"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":0,"num_attention_heads":4,"head_dim":8})").find("no model has"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":-2,"num_attention_heads":4,"head_dim":8})").find("whole number"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":99999999999})").find("head_dim"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":3,"hidden_size":100})").find("does not divide"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":3,"head_dim":8})")
                .find("do not divide"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,"layer_types":["x","x"]})")
                .find("not known"),
            std::string::npos);
  // The field that is wrong is named, wherever it stands and whatever it holds.
  EXPECT_NE(refusal_of(R"({"text_config":5})").find("text_config"), std::string::npos);
  EXPECT_NE(refusal_of(R"({"text_config":{"num_hidden_layers":"2"}})").find("num_hidden_layers"), std::string::npos);
  for (const char* field :
       {R"("model_type":7)", R"("use_sliding_window":"no","sliding_window":4)", R"("layer_types":{})",
        R"("num_key_value_heads":2.5)", R"("num_key_value_heads":-1)", R"("num_kv_shared_layers":"1")",
        R"("total_ut_steps":-4)", R"("linear_attn_config":[])", R"("block_configs":"x")", R"("attn_type_list":[1,2])",
        R"("attn_config":1)", R"("kv_lora_rank":true)"}) {
    const std::string text =
        std::string(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,)") + field + "}";
    const std::string name = std::string(field).substr(0, std::string(field).find(':'));
    EXPECT_NE(refusal_of(text.c_str()).find(name.substr(1, name.size() - 2)), std::string::npos) << field;
  }
  EXPECT_NE(refusal_of((R"({"rope_scaling":)" + std::string(100000, '[') + std::string(100000, ']') + "}").c_str())
                .find("nested deeper"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"num_hidden_layers":2,"num_attention_heads":4,"head_dim":Infinity})").find("hidden_size"),
            std::string::npos);
}

}  // namespace
}  // namespace kvbm::size::model_test

// An edge's coding as text for operators and as JSON, from rows as the library fills them.
#include "node/coding_view.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvbm::node::coding_view_test {
namespace {

TEST(CodingView, a_tier_says_its_setting_what_auto_decided_and_what_it_saves) {
  kvbm_tier_codec_stats_t tier{};
  EXPECT_EQ(coding_text(tier), "off");
  tier.setting = tier.mode = KVBM_CODEC_DEFAULT;
  tier.coded = 3;
  tier.plain_bytes = 3000;
  tier.stored_bytes = 2000;
  EXPECT_EQ(coding_text(tier), "default, 1.50x");
  tier.setting = 0;
  tier.automatic = 1;
  tier.seals = 1;
  tier.refused_lossy = 2;
  tier.lossy_error = 2.5e-5;
  EXPECT_EQ(coding_text(tier), "auto: default, 1.50x, sealed, 2 lossy refused");
  const auto json = coding_json(tier);
  EXPECT_EQ(json["setting"], "auto");
  EXPECT_EQ(json["mode"], "default");
  EXPECT_EQ(json["ratio"], 1.5);
  EXPECT_EQ(json["saved_bytes"], 1000);
  EXPECT_EQ(json["sealed"], true);
  EXPECT_EQ(json["refused_lossy"], 2);
  EXPECT_EQ(json["lossy_error"], 2.5e-5);
}

TEST(CodingView, sealing_alone_claims_no_ratio_and_a_recipe_of_a_namespace_is_named) {
  kvbm_tier_codec_stats_t tier{};
  tier.seals = 1;
  tier.plain_bytes = 1000;
  tier.stored_bytes = 1016;
  EXPECT_EQ(coding_text(tier), "off, sealed");
  EXPECT_EQ(coding_json(tier)["saved_bytes"], -16);
  tier.setting = KVBM_CODEC_FAST;
  tier.mode = KVBM_CODEC_INT8;
  EXPECT_EQ(coding_text(tier), "fast: int8, sealed");
}

TEST(CodingView, a_node_says_how_it_is_asked_and_what_came) {
  kvbm_node_row_t row{};
  EXPECT_EQ(coding_text(row), "off");
  EXPECT_EQ(coding_json(row)["ratio"], nullptr);
  row.codec_automatic = 1;
  EXPECT_EQ(coding_text(row), "auto: plain");
  row.codec = KVBM_CODEC_FAST;
  row.codec_plain_bytes = 131;
  row.codec_stored_bytes = 100;
  row.codec_refused = 4;
  EXPECT_EQ(coding_text(row), "auto: fast, 1.31x, 4 refused");
  row.codec_automatic = 0;
  row.codec_sealed = 1;
  EXPECT_EQ(coding_text(row), "fast, 1.31x, sealed, 4 refused");
  EXPECT_EQ(coding_json(row)["setting"], "fast");
  row.node[0] = 0xAB;
  EXPECT_EQ(peer_json(row)["node"], "ab000000000000000000000000000000");
  EXPECT_EQ(peer_json(row)["coding"]["refused"], 4);
}

TEST(CodingView, pages_of_a_node_are_read_as_they_were_written_and_others_are_not_trusted) {
  kvbm_tier_codec_stats_t tier{};
  tier.automatic = 1;
  tier.mode = KVBM_CODEC_FAST;
  tier.plain_bytes = 140;
  tier.stored_bytes = 100;
  tier.refused_lossy = 3;
  const auto page = nlohmann::ordered_json::parse(coding_json(tier).dump());
  EXPECT_EQ(coding_text(page), coding_text(tier));
  EXPECT_EQ(coding_text(page), "auto: fast, 1.40x, 3 lossy refused");
  for (const char* other : {"null", "[]", "3", "{}", R"({"setting": 1, "mode": "off"})", R"({"setting": "off"})"}) {
    EXPECT_EQ(coding_text(nlohmann::ordered_json::parse(other)), "?") << other;
  }
  const auto odd = nlohmann::ordered_json::parse(
      R"({"setting": "off", "mode": "off", "ratio": "much", "sealed": 1, "refused": -1, "refused_lossy": "all"})");
  EXPECT_EQ(coding_text(odd), "off");
}

TEST(CodingView, a_mode_of_a_later_library_is_named_by_its_number) {
  kvbm_tier_codec_stats_t tier{};
  tier.setting = tier.mode = 200;
  EXPECT_EQ(coding_text(tier), "mode 200");
}

}  // namespace
}  // namespace kvbm::node::coding_view_test

#include "codec/coded/recipe.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crypto/random.h"
#include "support/recipe_text.h"

namespace kvbm::codec::recipe_test {
namespace {

constexpr uint64_t kSeed = 20261122;

Recipe recipe_of(std::string_view text) {
  auto recipe = Recipe::parse(text);
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  return recipe.ok() ? recipe.value() : Recipe{};
}

TEST(Recipe, one_mode_is_for_every_leaf) {
  const Recipe recipe = recipe_of("default");
  for (const uint32_t layer : {0U, 31U, 4000000U}) {
    for (const uint32_t plane : {0U, 1U}) EXPECT_EQ(Mode::standard, recipe.mode(layer, plane));
  }
  EXPECT_FALSE(recipe.lossy());
  EXPECT_TRUE(recipe_of("int8").lossy());
}

TEST(Recipe, the_first_rule_that_holds_decides) {
  const Recipe recipe = recipe_of(" k:0-3=int8 , v:0-3 = int6,4=max,kv:10-=fast,k=zstd");
  EXPECT_EQ(Mode::int8, recipe.mode(0, 0));
  EXPECT_EQ(Mode::int8, recipe.mode(3, 0));
  EXPECT_EQ(Mode::int6, recipe.mode(3, 1));
  EXPECT_EQ(Mode::max, recipe.mode(4, 0));
  EXPECT_EQ(Mode::max, recipe.mode(4, 1));
  EXPECT_EQ(Mode::zstd, recipe.mode(5, 0));
  EXPECT_EQ(Mode::off, recipe.mode(5, 1));
  EXPECT_EQ(Mode::fast, recipe.mode(10, 0));
  EXPECT_EQ(Mode::fast, recipe.mode(99999, 1));
  EXPECT_TRUE(recipe.lossy());
  EXPECT_EQ(Mode::off, Recipe{}.mode(0, 0));
  EXPECT_EQ(Mode::off, recipe.mode(0, 2));   // no mode was given for a third plane
  EXPECT_EQ(Mode::off, recipe.mode(0, 99));  // or for any other
}

// A leaf of no known layer and plane is quantised only in a mode that every layer and plane has.
TEST(Recipe, one_mode_for_all_is_that_of_all_or_loses_nothing) {
  for (const char* same : {"int8", "k=int8,v=int8", "0-3=int8,4-=int8", "k:0=int8,int8,max", "v:7-=int8,kv=int8"}) {
    EXPECT_EQ(Mode::int8, recipe_of(same).mode_of_all()) << same;
  }
  for (const char* mixed : {"k:0=int8,default", "k=int8", "0=int8", "0-3=int8,int6", "5=int8,max",
                            "v:4000000-=int4,int8", "k=max,v=fast", "0-3=off,default"}) {
    EXPECT_EQ(Mode::standard, recipe_of(mixed).mode_of_all()) << mixed;
  }
  EXPECT_EQ(Mode::fast, recipe_of("fast,0=int8").mode_of_all());  // the second rule never holds
  EXPECT_EQ(Mode::off, recipe_of("off").mode_of_all());
  EXPECT_EQ(Mode::off, Recipe{}.mode_of_all());
  EXPECT_FALSE(recipe_of("off,k=off").codes());
  EXPECT_FALSE(Recipe{}.codes());
  EXPECT_TRUE(recipe_of("0-3=off,fast").codes());
}

TEST(Recipe, says_which_rule_is_wrong) {
  struct Wrong {
    std::string text;
    const char* message;
  };
  std::string many = "fast";
  for (int i = 0; i < 64; ++i) many += ",fast";
  const Wrong cases[] = {
      {"", "rule 1 (\"\"): no such mode"},
      {"fast,", "rule 2 (\"\"): no such mode"},
      {"lz4", "rule 1 (\"lz4\"): no such mode"},
      {"fast,k:0-3=int9", "rule 2 (\"k:0-3=int9\"): no such mode"},
      {"q:0-3=int8", "rule 1 (\"q:0-3=int8\"): planes are k, v or kv"},
      {"q=int8", "planes are k, v or kv"},
      {"=int8", "planes are k, v or kv"},
      {"k:=int8", "layers are a number"},
      {"k:3-1=int8", "its layers end before they begin"},
      {"k:a-1=int8", "layers are a number"},
      {"k:1-a=int8", "layers are a number"},
      {"-3=int8", "planes are k, v or kv"},
      {"k:4294967296=int8", "layers are a number"},
      {"0-4294967295=int8", "layers are a number"},
      {"1-2-3=int8", "layers are a number"},
      {"k:1=int8=int6", "no such mode"},
      {many, "rule 65 (\"fast\"): more than 64 rules"},
      {std::string(1000, 'x'), "(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"): no such mode"},
  };
  for (const Wrong& wrong : cases) {
    const auto recipe = Recipe::parse(wrong.text);
    ASSERT_FALSE(recipe.ok()) << wrong.text;
    EXPECT_EQ(recipe.status().code(), Code::invalid_argument);
    EXPECT_NE(recipe.status().message().find(wrong.message), std::string::npos) << recipe.status().message();
  }
}

TEST(Recipe, its_text_gives_it_again) {
  constexpr Mode kModes[] = {Mode::off,        Mode::fast,       Mode::standard,   Mode::max,  Mode::zstd,
                             Mode::fp8_e4m3,   Mode::fp8_e5m2,   Mode::int8,       Mode::int6, Mode::int4,
                             Mode::int8_coded, Mode::int6_coded, Mode::int4_coded, Mode::delta};
  SeededRandom random(kSeed);
  for (int trial = 0; trial < 2000; ++trial) {
    Recipe recipe;
    const uint64_t rules = 1 + random.below(6);
    for (uint64_t i = 0; i < rules; ++i) {
      Recipe::Rule rule;
      rule.mode = kModes[random.below(std::size(kModes))];
      rule.planes = static_cast<uint8_t>(1 + random.below(3));
      if (random.below(2) == 0) {
        rule.first_layer = static_cast<uint32_t>(random.below(100));
        if (random.below(3) != 0) rule.end_layer = rule.first_layer + 1 + static_cast<uint32_t>(random.below(3));
      }
      recipe.rules.push_back(rule);
    }
    const std::string text = test::text_of(recipe);
    ASSERT_EQ(recipe, recipe_of(text)) << text << " seed " << kSeed;
  }
  EXPECT_EQ(test::text_of(Recipe{}), "off");
}

}  // namespace
}  // namespace kvbm::codec::recipe_test

#include "cluster/admission/pool_key.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "support/pool_keys.h"

namespace kvbm::cluster::pool_key_test {
namespace {

std::string text_of(const SharedKey& key) {
  const PoolKeyText text = pool_key_text(key);
  return {text.data(), text.size()};
}

TEST(PoolKey, a_new_one_is_read_back_and_no_two_are_alike) {
  SystemRandom random;
  ASSERT_TRUE(random.ready().ok());
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) {
    const SharedKey key = new_pool_key(random);
    const auto back = parse_pool_key(text_of(key) + "\n");
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back.value(), key);
    texts.insert(text_of(key));
  }
  EXPECT_EQ(texts.size(), 100U);
}

TEST(PoolKey, has_the_form_that_is_written_down) {
  SharedKey key{};
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(text_of(key), test::kOnePoolKey);
  EXPECT_EQ(parse_pool_key(test::kOnePoolKey).value(), key);
}

TEST(PoolKey, what_somebody_thought_of_is_refused_with_how_to_make_one) {
  for (const std::string& text :
       {std::string(), std::string("secret"), std::string("correct horse battery staple, and more"),
        std::string(64, 'f'), std::string(1000, 'x'), std::string("kvbm-pool-key-2:00:00")}) {
    const auto key = parse_pool_key(text);
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.status().code(), Code::invalid_argument);
    EXPECT_NE(key.status().message().find("kvbm key new"), std::string::npos);
    EXPECT_TRUE(text.empty() || key.status().message().find(text) == std::string::npos) << "the text is told";
  }
}

// Keys with one wrong digit at any place, or one digit too few or too many.
TEST(PoolKey, one_that_was_not_copied_whole_is_refused) {
  const std::string whole(test::kOnePoolKey);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string wrong = whole;
    wrong[i] = wrong[i] == '7' ? '8' : '7';
    EXPECT_FALSE(parse_pool_key(wrong).ok()) << i;
    EXPECT_FALSE(parse_pool_key(whole.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(parse_pool_key(whole + "7").ok());
  EXPECT_FALSE(parse_pool_key(" " + whole).ok());
  EXPECT_TRUE(parse_pool_key(whole + " \r\n").ok());
}

}  // namespace
}  // namespace kvbm::cluster::pool_key_test

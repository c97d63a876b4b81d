#include "capi/plugin/store_url.h"

#include <gtest/gtest.h>

namespace kvbm::capi::store_url_test {
namespace {

StoreUrl parsed(std::string_view text) {
  auto url = parse_store_url(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status().message();
  return url.ok() ? std::move(url).value() : StoreUrl{};
}

void expect_refused(std::string_view text, const char* word) {
  const auto url = parse_store_url(text);
  ASSERT_FALSE(url.ok()) << text;
  EXPECT_EQ(url.status().code(), Code::bad_config) << text;
  EXPECT_NE(url.status().message().find(word), std::string::npos) << text << ": " << url.status().message();
}

TEST(StoreUrl, has_authority_path_and_options_in_order) {
  const StoreUrl url = parsed("s3://bucket/prefix/more?region=eu-west-1&endpoint=https://127.0.0.1:9000/&x=");
  EXPECT_EQ(url.scheme, "s3");
  EXPECT_EQ(url.authority, "bucket");
  EXPECT_EQ(url.path, "/prefix/more");
  EXPECT_EQ(url.user + url.password, "");
  ASSERT_EQ(url.options.size(), 3U);
  EXPECT_EQ(url.options[0].name, "region");
  EXPECT_EQ(url.options[0].text, "eu-west-1");
  EXPECT_EQ(url.options[1].text, "https://127.0.0.1:9000/");
  EXPECT_EQ(url.options[2].text, "");
}

TEST(StoreUrl, a_part_that_is_not_there_is_empty) {
  EXPECT_EQ(parsed("s3://bucket").path, "");
  EXPECT_EQ(parsed("s3://bucket?region=x").authority, "bucket");
  EXPECT_EQ(parsed("s3://bucket/?").path, "/");
  const StoreUrl file = parsed("file:///mnt/shared/kv?shared=on");
  EXPECT_EQ(file.authority, "");
  EXPECT_EQ(file.path, "/mnt/shared/kv");
}

TEST(StoreUrl, a_plugin_names_a_file) {
  const StoreUrl url = parsed("plugin:/opt/my%20store.so?place=a+b");
  EXPECT_EQ(url.scheme, "plugin");
  EXPECT_EQ(url.path, "/opt/my store.so");
  ASSERT_EQ(url.options.size(), 1U);
  EXPECT_EQ(url.options[0].text, "a+b");
  for (const char* text :
       {"plugin:store.so", "plugin:", "plugin:/", "plugin:?a=b", "plugin://opt/store.so", "plugin:/%2Fopt/store.so"}) {
    expect_refused(text, "plugin:/path/of.so");
  }
}

TEST(StoreUrl, user_and_password_are_decoded) {
  const StoreUrl url = parsed("redis://me:p%40s:%2F%3f%25@host:6379/0");
  EXPECT_EQ(url.user, "me");
  EXPECT_EQ(url.password, "p@s:/?%");
  EXPECT_EQ(url.authority, "host:6379");
  EXPECT_EQ(url.path, "/0");
  EXPECT_EQ(parsed("redis://:only@host").user, "");
  EXPECT_EQ(parsed("redis://:only@host").password, "only");
  EXPECT_EQ(parsed("redis://who@host").user, "who");
  EXPECT_EQ(parsed("redis://a@b:c@d@host").password, "c@d") << "the last @ ends the password";
}

TEST(StoreUrl, says_what_is_wrong_and_how_to_write_it) {
  expect_refused("", "empty");
  expect_refused("/mnt/kv", "scheme://");
  expect_refused("bucket/a:b", "scheme://");
  expect_refused("://x", "scheme://");
  expect_refused("S3://bucket", "a to z");
  expect_refused("3s://bucket", "a to z");
  expect_refused("s_3://bucket", "a to z");
  expect_refused(std::string(25, 'a') + "://x", "24");
  expect_refused("s3:bucket", "//");
  expect_refused("s3://bu%4", "%25");
  expect_refused("s3://bucket/%zz", "%25");
  expect_refused("s3://bucket/a b", "%20");
  expect_refused("s3://bucket/a#b", "%23");
  expect_refused("s3://bucket/a\nb", "control");
  expect_refused("s3://bucket/%0a", "control");
  expect_refused("s3://bucket/%00", "control");
  expect_refused("s3://bucket?a=1&b=2&a=3", "option a is given twice");
  expect_refused("s3://bucket?flag", "flag=value");
  expect_refused("s3://bucket?=x", "name=value");
  expect_refused("s3://bucket?a=1&&b=2", "name=value");
  expect_refused("s3://bucket?a=1&", "&");
  expect_refused("s3://bucket?Region=x", "name=value");
  expect_refused("s3://" + std::string(kMostUrlBytes, 'a'), "4096");
  EXPECT_TRUE(parse_store_url("s3://" + std::string(kMostUrlBytes - 5, 'a')).ok());
}

TEST(StoreUrl, has_at_most_so_many_options) {
  std::string text = "s3://b?";
  for (size_t i = 0; i < kMostUrlOptions; ++i) text += (i == 0 ? "o" : "&o") + std::to_string(i) + "=1";
  EXPECT_TRUE(parse_store_url(text).ok());
  expect_refused(text + "&more=1", "64 options");
}

// An '@' behind the authority shows that a password with a reserved character was not escaped.
TEST(StoreUrl, refuses_a_password_that_is_not_escaped_without_repeating_it) {
  for (const char* text : {"redis://:sesa/me@host/0", "redis://:sesa?me@host", "redis://:sesame%@host",
                           "redis://:x?sesame&=@host", "redis:sesame@host", ":sesame@host"}) {
    const auto url = parse_store_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.status().message().find("sesa"), std::string::npos) << url.status().message();
  }
}

TEST(StoreUrl, is_printed_without_secrets) {
  EXPECT_EQ(print_store_url(parsed("redis://me:sesame@h:1/0?ttl=1h")), "redis://me:***@h:1/0?ttl=1h");
  EXPECT_EQ(print_store_url(parsed("redis://:sesame@h")), "redis://:***@h");
  EXPECT_EQ(print_store_url(parsed("s3://b?secret_key=x&session_token=y&password=z&access-key=v&key_file=/a")),
            "s3://b?secret_key=***&session_token=***&password=***&access-key=***&key_file=/a");
  EXPECT_EQ(print_store_url(parsed("file:///mnt/a%20b%3Fc?x=%26%25")), "file:///mnt/a%20b%3Fc?x=%26%25");
  EXPECT_EQ(print_store_url(parsed("plugin:/a.so")), "plugin:/a.so");
}

}  // namespace
}  // namespace kvbm::capi::store_url_test

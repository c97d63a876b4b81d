// The meaning of URLs and environment variables.
#include "s3/settings.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_dir.h"

namespace kvbm_s3::settings_test {
namespace {

struct Asked {
  std::string bucket = "bucket";
  std::string path = "/a/b/";
  std::vector<std::pair<std::string, std::string>> options = {};
  std::string user = {};
  std::string password = {};
};

std::string refusal;
std::optional<Settings> read(const Asked& asked, const Environment& environment = {{"HOME", "/nonexistent"}}) {
  std::vector<kvbm_store_option_t> options;
  for (const auto& [name, value] : asked.options) options.push_back({name.c_str(), value.c_str()});
  kvbm_store_config_t config = {};
  config.authority = asked.bucket.c_str();
  config.path = asked.path.c_str();
  config.user = asked.user.c_str();
  config.password = asked.password.c_str();
  config.options = options.data();
  config.n_options = options.size();
  refusal.clear();
  return read_settings(config, environment, &refusal);
}

TEST(Settings, amazon_is_the_default) {
  const auto settings = read({});
  ASSERT_TRUE(settings.has_value()) << refusal;
  EXPECT_EQ(settings->endpoint(), "https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(settings->request_host(), "bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(settings->request_path("a/b/x y"), "/a/b/x%20y");
  EXPECT_EQ(settings->request_path(""), "/");
  EXPECT_EQ(settings->prefix, "a/b/");
  EXPECT_EQ(settings->description(), "s3://bucket/a/b?endpoint=https://s3.us-east-1.amazonaws.com");
  EXPECT_TRUE(settings->signs_payload && settings->verifies);
}

TEST(Settings, a_bucket_with_dots_stays_out_of_the_host) {
  EXPECT_EQ(read({.bucket = "my.bucket"})->request_host(), "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(read({.bucket = "my.bucket"})->request_path("x"), "/my.bucket/x");
}

TEST(Settings, other_endpoints_have_the_bucket_in_the_path) {
  const auto settings = read({.path = "", .options = {{"endpoint", "http://127.0.0.1:9000/"}, {"region", "r-1"}}});
  ASSERT_TRUE(settings.has_value()) << refusal;
  EXPECT_EQ(settings->request_host(), "127.0.0.1:9000");
  EXPECT_EQ(settings->request_path("x"), "/bucket/x");
  EXPECT_EQ(settings->request_path(""), "/bucket");
  EXPECT_EQ(settings->region, "r-1");
  EXPECT_EQ(read({.options = {{"endpoint", "https://h:443"}}})->request_host(), "h");
  EXPECT_EQ(read({.options = {{"endpoint", "http://h:80"}}})->request_host(), "h");
  EXPECT_EQ(read({.options = {{"endpoint", "https://h/storage/v1/s3"}}})->request_path("x"), "/storage/v1/s3/bucket/x");
  EXPECT_EQ(read({.options = {{"endpoint", "http://h:1"}, {"style", "host"}}})->request_host(), "bucket.h:1");
}

TEST(Settings, the_environment_and_profiles_have_defaults) {
  EXPECT_EQ(read({}, {{"AWS_REGION", "eu-central-1"}, {"AWS_DEFAULT_REGION", "no"}})->region, "eu-central-1");
  EXPECT_EQ(read({}, {{"AWS_ENDPOINT_URL", "http://e:1"}})->endpoint(), "http://e:1");
  EXPECT_EQ(read({}, {{"AWS_ENDPOINT_URL", "http://e:1"}, {"AWS_ENDPOINT_URL_S3", "http://s:1"}})->endpoint(),
            "http://s:1");
  kvbm::test::TempDir home;
  std::ofstream(home.path() + "/config")
      << "[default]\nregion = d-1\n# comment\n[profile  x]\nregion=no\n[profile x]\n  s3 =\n region = nested\n"
         "region=x-1\nendpoint_url = http://p:1\n";
  const Environment environment = {{"AWS_CONFIG_FILE", home.path() + "/config"}, {"HOME", "/nonexistent"}};
  EXPECT_EQ(read({}, environment)->region, "d-1");
  EXPECT_EQ(read({.options = {{"profile", "x"}}}, environment)->region, "x-1");
  EXPECT_EQ(read({.options = {{"profile", "x"}}}, environment)->endpoint(), "http://p:1");
}

TEST(Settings, what_is_wrong_is_said_in_one_sentence) {
  const std::vector<std::pair<Asked, std::string>> cases = {{{.bucket = ""}, "needs a bucket"},
                                                            {{.bucket = "a b"}, "no name of a bucket"},
                                                            {{.path = "/a//b"}, "prefix"},
                                                            {{.path = "/a/../b"}, "prefix"},
                                                            {{.path = "/a/\n"}, "prefix"},
                                                            {{.path = "/" + std::string(600, 'a')}, "prefix"},
                                                            {{.options = {{"style", "virtual"}}}, "path or host"},
                                                            {{.options = {{"region", "eu west"}}}, "region"},
                                                            {{.options = {{"endpoint", "ftp://h"}}}, "endpoint"},
                                                            {{.options = {{"endpoint", "http://"}}}, "endpoint"},
                                                            {{.options = {{"endpoint", "http://h/?x"}}}, "endpoint"},
                                                            {{.options = {{"verify", "yes"}}}, "on or off"},
                                                            {{.options = {{"payload", "maybe"}}}, "signed or unsigned"},
                                                            {{.options = {{"connections", "0"}}}, "1 to 256"},
                                                            {{.options = {{"connections", "257"}}}, "1 to 256"},
                                                            {{.options = {{"connections", "4x"}}}, "1 to 256"},
                                                            {{.options = {{"ca", "/nonexistent"}}}, "cannot be read"},
                                                            {{.options = {{"profile", "nobody"}}}, "no profile"},
                                                            {{.options = {{"role", ""}}}, "empty"},
                                                            {{.options = {{"bucket", "x"}}}, "no option"},
                                                            {{.user = "key"}, "both"},
                                                            {{.password = "secret"}, "both"}};
  for (const auto& [asked, part] : cases) {
    EXPECT_FALSE(read(asked).has_value()) << part;
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  }
  // A password in the wrong place is not repeated.
  EXPECT_FALSE(read({.options = {{"endpoint", "http://key:hush@h"}}}).has_value());
  EXPECT_EQ(refusal.find("hush"), std::string::npos);
  const auto settings = read({.user = "key", .password = "hush"});
  EXPECT_EQ(settings->description().find("hush"), std::string::npos);
}

}  // namespace
}  // namespace kvbm_s3::settings_test

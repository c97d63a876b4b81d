// The chain of credentials, with answers of STS, containers and instances as a test wants them.
#include "s3/credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <fstream>

#include "s3/settings.h"
#include "support/temp_dir.h"

namespace kvbm_s3::credentials_test {
namespace {

constexpr const char* kJson =
    R"({"Code":"Success","AccessKeyId":"JK","SecretAccessKey":"JS","Token":"JT","Expiration":"2030-01-02T03:04:05Z"})";
constexpr const char* kSts =
    "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>SK</AccessKeyId><SecretAccessKey>SS</"
    "SecretAccessKey>"
    "<SessionToken>ST</SessionToken><Expiration>2030-01-02T03:04:05Z</Expiration></Credentials></AssumeRoleResult></"
    "AssumeRoleResponse>";

class ChainTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(home_.path() + "/" + name) << text;
  }
  [[nodiscard]] std::string file(const std::string& name) const { return home_.path() + "/" + name; }
  Found find() {
    return find_credentials(
        settings_, environment_,
        [this](const FetchRequest& request) {
          asked_.push_back(request);
          for (const auto& [part, answer] : answers_) {
            if (request.url.find(part) != std::string::npos) return answer;
          }
          return FetchAnswer{"connection refused", 0, ""};
        },
        1'700'000'000);
  }
  std::string found() {
    const Found found = find();
    if (!found.error.empty()) return "error: " + found.error;
    return found.credentials.access_key + " " + found.credentials.secret + " " + found.credentials.token + " of " +
           found.source;
  }

  kvbm::test::TempDir home_;
  Settings settings_;
  Environment environment_ = {{"AWS_SHARED_CREDENTIALS_FILE", file("credentials")},
                              {"AWS_CONFIG_FILE", file("config")},
                              {"AWS_EC2_METADATA_DISABLED", "true"}};
  std::vector<std::pair<std::string, FetchAnswer>> answers_;
  std::vector<FetchRequest> asked_;
};

TEST_F(ChainTest, the_first_that_is_there_counts) {
  EXPECT_NE(found().find("no credentials were found: set AWS_ACCESS_KEY_ID"), std::string::npos) << found();
  environment_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/x";
  answers_.emplace_back("http://169.254.170.2/v2/x", FetchAnswer{"", 200, kJson});
  EXPECT_EQ(found(), "JK JS JT of the container");
  environment_["AWS_WEB_IDENTITY_TOKEN_FILE"] = file("token");
  environment_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  write("token", "tok+en\n");
  answers_.emplace_back("https://sts..amazonaws.com/", FetchAnswer{"", 200, kSts});
  EXPECT_EQ(found(), "SK SS ST of a web identity");
  write("credentials",
        "[default]\naws_access_key_id=PK\naws_secret_access_key=PS\naws_session_token=PT\n[two]\naws_access_key_id="
        "2K\naws_secret_access_key=2S\n");
  EXPECT_EQ(found(), "PK PS PT of profile default");
  environment_["AWS_ACCESS_KEY_ID"] = "EK";
  environment_["AWS_SECRET_ACCESS_KEY"] = "ES";
  EXPECT_EQ(found(), "EK ES  of the environment");
  settings_.profile = "two";
  EXPECT_EQ(found(), "2K 2S  of profile two");
  settings_.access_key = "UK";
  settings_.secret = "US";
  EXPECT_EQ(found(), "UK US  of the URL");
}

TEST_F(ChainTest, web_identity_sends_the_token_and_the_role) {
  environment_["AWS_WEB_IDENTITY_TOKEN_FILE"] = file("token");
  environment_["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  environment_["AWS_ENDPOINT_URL_STS"] = "http://127.0.0.1:1";
  write("token", "tok+en\n");
  answers_.emplace_back("http://127.0.0.1:1/", FetchAnswer{"", 200, kSts});
  EXPECT_EQ(find().credentials.expires_at, 1893553445);
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].method, "POST");
  EXPECT_EQ(asked_[0].body,
            "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=kvbm&Version="
            "2011-06-15&"
            "WebIdentityToken=tok%2Ben");
  settings_.role = "other";  // of the URL: taken on with the token, not afterwards
  find();
  ASSERT_EQ(asked_.size(), 2U);
  EXPECT_NE(asked_[1].body.find("RoleArn=other"), std::string::npos);
  answers_ = {
      {"http://127.0.0.1:1/", {"", 403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"}}};
  EXPECT_NE(found().find("403 AccessDenied"), std::string::npos);
  EXPECT_FALSE(find().is_unreachable);
  answers_.clear();
  EXPECT_TRUE(find().is_unreachable);
  write("token", "");
  EXPECT_NE(found().find("token file cannot be read"), std::string::npos);
}

TEST_F(ChainTest, a_role_is_taken_on_with_signed_requests) {
  environment_["AWS_ACCESS_KEY_ID"] = "EK";
  environment_["AWS_SECRET_ACCESS_KEY"] = "ES";
  environment_["AWS_SESSION_TOKEN"] = "ET";
  settings_.role = "arn:aws:iam::1:role/r";
  settings_.region = "eu-west-1";
  answers_.emplace_back("https://sts.eu-west-1.amazonaws.com/", FetchAnswer{"", 200, kSts});
  EXPECT_EQ(found(), "SK SS ST of a role");
  ASSERT_EQ(asked_.size(), 1U);
  std::string value;
  for (const auto& [name, text] : asked_[0].headers) value = name == "authorization" ? text : value;
  EXPECT_NE(value.find("Credential=EK/20231114/eu-west-1/sts/aws4_request"), std::string::npos) << value;
  EXPECT_NE(value.find("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token"), std::string::npos) << value;
}

TEST_F(ChainTest, a_profile_takes_on_its_role) {
  write("config",
        "[profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\naws_access_key_id=BK\naws_secret_access_key=BS\n"
        "[profile loop]\nrole_arn=r\nsource_profile=pool\n[profile pool]\nrole_arn=r\nsource_profile=loop\n"
        "[profile login]\nsso_session=x\n[profile none]\nregion=x\n");
  answers_.emplace_back("https://sts.", FetchAnswer{"", 200, kSts});
  settings_.profile = "a";
  EXPECT_EQ(found(), "SK SS ST of a role");
  for (const auto& [name, part] : std::map<std::string, std::string>{
           {"loop", "source_profile"}, {"login", "uses a login"}, {"none", "no keys"}, {"x", "no profile"}}) {
    settings_.profile = name;
    EXPECT_NE(found().find(part), std::string::npos) << found();
  }
}

TEST_F(ChainTest, a_container_token_stays_on_this_machine) {
  environment_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.170.23/v1/credentials";
  environment_["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = file("token");
  write("token", "secret-token\n");
  answers_.emplace_back("", FetchAnswer{"", 200, kJson});
  EXPECT_EQ(found(), "JK JS JT of the container");
  EXPECT_EQ(asked_[0].headers, (Pairs{{"authorization", "secret-token"}}));
  EXPECT_FALSE(asked_[0].uses_proxy);
  asked_.clear();
  for (const char* uri :
       {"http://10.0.0.1/x", "http://127.0.0.1.evil.example/", "ftp://127.0.0.1/", "http://127.0.0.1:1@evil/"}) {
    environment_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = uri;
    EXPECT_NE(found().find("neither https nor on this machine"), std::string::npos) << uri;
  }
  EXPECT_TRUE(asked_.empty());
  environment_["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "https://example/x";
  EXPECT_EQ(found(), "JK JS JT of the container");
  write("token", "a\r\nx: y");
  EXPECT_NE(found().find("line ends"), std::string::npos);
}

// A line end in a key would begin another header of every request.
TEST_F(ChainTest, keys_with_line_ends_are_refused_wherever_they_come_from) {
  const std::string bad = "line end";
  environment_["AWS_ACCESS_KEY_ID"] = "EK";
  environment_["AWS_SECRET_ACCESS_KEY"] = "ES";
  environment_["AWS_SESSION_TOKEN"] = "ET\r\nx-amz-acl: public-read";
  EXPECT_NE(found().find(bad), std::string::npos) << found();
  settings_.role = "arn:aws:iam::1:role/r";
  EXPECT_NE(found().find(bad), std::string::npos) << found();
  EXPECT_TRUE(asked_.empty()) << "nothing is signed with it";
  environment_["AWS_SESSION_TOKEN"] = "ET";
  answers_.emplace_back("https://sts.",
                        FetchAnswer{"", 200,
                                    "<r><Credentials><AccessKeyId>SK</AccessKeyId><SecretAccessKey>SS</SecretAccessKey>"
                                    "<SessionToken>ST&#13;&#10;x: y</SessionToken></Credentials></r>"});
  EXPECT_NE(found().find("a role gives a key or token with a line end"), std::string::npos) << found();
  settings_.role.clear();
  environment_.erase("AWS_ACCESS_KEY_ID");
  environment_["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/x";
  answers_ = {{"", {"", 200, R"({"AccessKeyId":"JK\n","SecretAccessKey":"JS","Token":"JT"})"}}};
  EXPECT_NE(found().find("the container gives a key or token with a line end"), std::string::npos) << found();
}

TEST_F(ChainTest, an_endpoint_of_sts_that_is_no_url_is_said_and_not_used) {
  environment_["AWS_ACCESS_KEY_ID"] = "EK";
  environment_["AWS_SECRET_ACCESS_KEY"] = "ES";
  settings_.role = "arn:aws:iam::1:role/r";
  answers_.emplace_back("", FetchAnswer{"", 200, kSts});
  for (const char* url : {"sts.example", "http://", "https:///x", "ftp://sts.example", "http://a@sts.example",
                          "http://sts.example/\r\nx: y", "https://sts.example/?x"}) {
    environment_["AWS_ENDPOINT_URL_STS"] = url;
    EXPECT_NE(found().find("AWS_ENDPOINT_URL_STS is no http://HOST:PORT or https://HOST"), std::string::npos) << url;
  }
  EXPECT_TRUE(asked_.empty());
  for (const char* url : {"http://127.0.0.1:4566", "https://sts.example/path"}) {
    environment_["AWS_ENDPOINT_URL_STS"] = url;
    EXPECT_EQ(found(), "SK SS ST of a role") << url;
  }
}

TEST_F(ChainTest, an_instance_role_needs_a_session_first) {
  environment_["AWS_EC2_METADATA_DISABLED"] = "false";
  answers_ = {{"/latest/api/token", {"", 200, "tok"}},
              {"/security-credentials/my-role", {"", 200, kJson}},
              {"/security-credentials/", {"", 200, "my-role\n"}}};
  EXPECT_EQ(found(), "JK JS JT of the instance role");
  ASSERT_EQ(asked_.size(), 3U);
  EXPECT_EQ(asked_[0].method + " " + asked_[0].url, "PUT http://169.254.169.254/latest/api/token");
  EXPECT_EQ(asked_[2].headers, (Pairs{{"x-aws-ec2-metadata-token", "tok"}}));
  for (const FetchRequest& request : asked_) EXPECT_LE(request.timeout_ms, 1000);
  answers_[1].second.body = "{\"Code\":\"AssumeRoleUnauthorizedAccess\"}";
  EXPECT_NE(found().find("AssumeRoleUnauthorizedAccess"), std::string::npos);
  answers_[1].second.body = "<html>";
  EXPECT_NE(found().find("gives no credentials"), std::string::npos);
  answers_.clear();
  EXPECT_NE(found().find("no credentials were found"), std::string::npos);
}

// A keeper with a container service that gives the test's answers.
class KeeperTest : public ::testing::Test {
 protected:
  Fetch fetch() {
    return [this](const FetchRequest&) {
      ++fetched_;
      const std::lock_guard<std::mutex> lock(mutex_);
      return answer_;
    };
  }
  void answer(const std::string& key, int64_t lives_s) {
    const std::time_t end = std::time(nullptr) + lives_s;
    char text[32];
    std::tm parts{};
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&end, &parts));
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = {"", 200,
               R"({"AccessKeyId":")" + key + R"(","SecretAccessKey":"s","Token":"t","Expiration":")" + text + "\"}"};
  }
  // Waits until the keeper has made so many searches.
  void wait_for(CredentialKeeper& keeper, uint64_t searches) {
    std::unique_lock<std::mutex> lock(changed_mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return keeper.searches() >= searches; });
  }
  std::unique_ptr<CredentialKeeper> keeper() {
    Settings settings;
    return std::make_unique<CredentialKeeper>(
        settings, Environment{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/"}}, fetch(),
        [this] {
          const std::lock_guard<std::mutex> lock(changed_mutex_);
          changed_.notify_all();
        },
        [this](const std::string& text) {
          const std::lock_guard<std::mutex> lock(mutex_);
          warned_ += text;
        });
  }
  std::mutex mutex_;
  FetchAnswer answer_;
  std::string warned_;
  std::mutex changed_mutex_;
  std::condition_variable changed_;
  std::atomic<int> fetched_{0};
};

TEST_F(KeeperTest, renews_before_the_end) {
  answer("one", 3);  // renewed at half of that
  const auto keep = keeper();
  EXPECT_EQ(keep->first(60'000'000'000).credentials.access_key, "one");
  answer("two", 3600);
  wait_for(*keep, 2);
  ASSERT_NE(keep->current(), nullptr);
  EXPECT_EQ(keep->current()->access_key, "two");
}

TEST_F(KeeperTest, keeps_the_old_while_renewing_fails_and_gives_none_that_have_expired) {
  answer("one", 2);
  const auto keep = keeper();
  EXPECT_EQ(keep->first(60'000'000'000).error, "");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = {"refused", 0, ""};
  }
  wait_for(*keep, 2);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_NE(warned_.find("could not be renewed"), std::string::npos);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (keep->current() != nullptr && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(keep->current(), nullptr);
}

TEST_F(KeeperTest, refused_ones_are_looked_for_anew_and_not_all_the_time) {
  answer("one", 3600);
  const auto keep = keeper();
  EXPECT_EQ(keep->first(60'000'000'000).error, "");
  const auto refused = keep->current();
  answer("two", 3600);
  EXPECT_TRUE(keep->renew(refused));
  wait_for(*keep, 2);
  EXPECT_EQ(keep->current()->access_key, "two");
  EXPECT_TRUE(keep->renew(refused));           // there are others already
  EXPECT_FALSE(keep->renew(keep->current()));  // just now
  EXPECT_EQ(fetched_.load(), 2);
}

}  // namespace
}  // namespace kvbm_s3::credentials_test

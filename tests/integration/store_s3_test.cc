// The store for S3 on a real server: everything that its table promises, and what happens while the server does not.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <set>

#include "support/s3_server.h"
#include "support/store_contract.h"
#include "support/store_module.h"
#include "support/temp_dir.h"

namespace store_s3_test {
namespace {

using kvbm::test::S3Server;
using kvbm::test::StoreModule;
using kvbm::test::StoreUrl;
using Started = StoreModule::Started;

// Nothing of the machine's own credentials, and none found anywhere.
class CleanEnvironment {
 public:
  CleanEnvironment() {
    for (const char* name : {"AWS_ACCESS_KEY_ID",
                             "AWS_SECRET_ACCESS_KEY",
                             "AWS_SESSION_TOKEN",
                             "AWS_REGION",
                             "AWS_DEFAULT_REGION",
                             "AWS_PROFILE",
                             "AWS_SHARED_CREDENTIALS_FILE",
                             "AWS_CONFIG_FILE",
                             "AWS_CA_BUNDLE",
                             "AWS_ENDPOINT_URL",
                             "AWS_ENDPOINT_URL_S3",
                             "AWS_ENDPOINT_URL_STS",
                             "AWS_WEB_IDENTITY_TOKEN_FILE",
                             "AWS_ROLE_ARN",
                             "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                             "http_proxy",
                             "https_proxy",
                             "all_proxy",
                             "HTTPS_PROXY",
                             "ALL_PROXY"}) {
      ::unsetenv(name);
    }
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  }
};

std::string bytes_of(size_t n, uint32_t seed) {
  std::string text(n, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525U + 1013904223U) >> 24);
  return text;
}

class S3StoreTest : public ::testing::TestWithParam<S3Server::Kind> {
 protected:
  void SetUp() override {
#ifndef KVBM_S3_MODULE
    GTEST_SKIP() << "the store for S3 was not built: libcurl4-openssl-dev is missing";
#else
    if (S3Server::program(GetParam()).empty())
      GTEST_SKIP() << name_of(GetParam()) << " is not installed (tools/setup --all-stores)";
    if (GetParam() == S3Server::Kind::minio && ::getenv("KVBMTEST_LONG") == nullptr)
      GTEST_SKIP() << "minio is for the nightly run";
    ASSERT_TRUE(server_.start(GetParam())) << server_.log();
    module_ = std::make_unique<StoreModule>(KVBM_S3_MODULE);
    ASSERT_NE(module_->table(), nullptr);
#endif
  }
  static std::string name_of(S3Server::Kind kind) { return kind == S3Server::Kind::minio ? "minio" : "versitygw"; }
  [[nodiscard]] StoreUrl url(std::map<std::string, std::string> options = {}) const {
    options.emplace("endpoint", server_.endpoint());
    options.emplace("region", S3Server::region());
    return {"s3", S3Server::bucket(), "/kv/blocks", options, S3Server::access_key(), S3Server::secret()};
  }
  void open() { ASSERT_EQ(module_->open(url()), KVBM_OK) << module_->message(); }

  CleanEnvironment clean_;
  S3Server server_;
  std::unique_ptr<StoreModule> module_;
};

TEST_P(S3StoreTest, gives_back_what_was_put_whole_and_in_ranges) {
  open();
  EXPECT_EQ(std::string(module_->facts().description), "s3://kvbm-test/kv/blocks?endpoint=" + server_.endpoint());
  const std::string data = bytes_of((4 << 20) + 17, 1);
  ASSERT_EQ(module_->put("a/pack-1.kv", data).status, KVBM_OK);
  std::string got;
  EXPECT_EQ(module_->get("a/pack-1.kv", &got, data.size()).status, KVBM_OK);
  EXPECT_EQ(got, data);
  EXPECT_EQ(module_->get("a/pack-1.kv", &got, 4096, 65536).status, KVBM_OK);
  EXPECT_EQ(got, data.substr(65536, 4096));
  // Ranges beyond the end, at the end, and behind it.
  EXPECT_EQ(module_->get("a/pack-1.kv", &got, 100, data.size() - 7).status, KVBM_OK);
  EXPECT_EQ(got, data.substr(data.size() - 7));
  auto done = module_->get("a/pack-1.kv", &got, 100, data.size());
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(done.bytes, 0U);
  // The buffer is larger than the object.
  EXPECT_EQ(module_->get("a/pack-1.kv", &got, data.size() + 1000).status, KVBM_OK);
  EXPECT_EQ(got, data);
  // A read of no bytes tests whether the object exists.
  EXPECT_EQ(module_->get("a/pack-1.kv", &got, 0).status, KVBM_OK);
  EXPECT_EQ(module_->get("a/pack-2.kv", &got, 0).status, KVBM_ERR_MISS);
  EXPECT_EQ(module_->get("a/pack-2.kv", &got, 10).status, KVBM_ERR_MISS);
}

TEST_P(S3StoreTest, replaces_removes_and_keeps_empty_objects) {
  open();
  std::string got;
  ASSERT_EQ(module_->put("one", "first").status, KVBM_OK);
  ASSERT_EQ(module_->put("one", "second, which is longer").status, KVBM_OK);
  EXPECT_EQ(module_->get("one", &got, 100).status, KVBM_OK);
  EXPECT_EQ(got, "second, which is longer");
  EXPECT_EQ(module_->remove("one").status, KVBM_OK);
  EXPECT_EQ(module_->get("one", &got, 100).status, KVBM_ERR_MISS);
  EXPECT_EQ(module_->remove("one").status, KVBM_OK);
  ASSERT_EQ(module_->put("none", "").status, KVBM_OK);
  const auto done = module_->get("none", &got, 100);
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(done.bytes, 0U);
  EXPECT_EQ(module_->get("none", &got, 0).status, KVBM_OK);
}

// minio loses names of a page that begins after a name in a folder m/, where folders such as m-1/ are beside it: it
// looks through all that follows "m", and stops at the size of the page. No name of kvbm's lies so.
TEST_P(S3StoreTest, keeps_every_rule_of_the_table) {
  kvbm::test::expect_kept(KVBM_STORES,
                          "s3://" + S3Server::access_key() + ":" + S3Server::secret() + "@" + S3Server::bucket() +
                              "/kv?region=" + S3Server::region() + "&endpoint=" + server_.endpoint(),
                          kvbm::test::patient(), GetParam() == S3Server::Kind::minio ? "listing" : "");
}

TEST_P(S3StoreTest, lists_more_than_a_thousand_names_in_order) {
  open();
  std::set<std::string> names;
  std::vector<std::unique_ptr<Started>> puts;
  char byte = 'x';
  for (int i = 0; i < 1200; ++i) {
    const std::string name = "i/" + std::to_string(i % 7) +
                             (i % 2 == 0   ? "-"
                              : i % 3 == 0 ? "."
                                           : "") +
                             "n/" + std::to_string(i);
    names.insert(name);
    puts.push_back(module_->start(KVBM_STORE_PUT, name, &byte, 1, 0, 60));
  }
  for (auto& put : puts) ASSERT_EQ(module_->wait(*put).status, KVBM_OK) << put->op.message;
  ASSERT_EQ(module_->put("j/other", "x").status, KVBM_OK);
  const std::vector<std::string> sorted(names.begin(), names.end());
  for (const size_t room : {size_t{KVBM_STORE_LIST_BYTES}, size_t{1 << 20}}) {
    const auto all = module_->list_all("i/", room);
    ASSERT_EQ(all.status, KVBM_OK) << all.message;
    EXPECT_EQ(all.names, sorted);
  }
  EXPECT_EQ(module_->list_all("").names.size(), names.size() + 1);
  EXPECT_TRUE(module_->list("k/").names.empty());
  const auto behind = module_->list("i/", sorted[600], 1 << 20);
  ASSERT_FALSE(behind.names.empty());
  EXPECT_EQ(behind.names.front(), sorted[601]);
}

TEST_P(S3StoreTest, uploads_large_objects_in_parts) {
  open();
  const std::string data = bytes_of((65 << 20) + 123, 5);
  const auto put = module_->put("large", data, 60);
  ASSERT_EQ(put.status, KVBM_OK) << put.message;
  std::string got;
  ASSERT_EQ(module_->get("large", &got, data.size(), 0, 60).status, KVBM_OK);
  EXPECT_TRUE(got == data);
}

TEST_P(S3StoreTest, refuses_what_is_wrong_with_a_remedy) {
  const auto refused = [&](const StoreUrl& wrong) {
    const kvbm_status_t status = module_->open(wrong);
    EXPECT_EQ(module_->message().find(S3Server::secret()), std::string::npos) << module_->message();
    return status;
  };
  StoreUrl wrong = url();
  wrong.password = "not-the-secret";
  EXPECT_EQ(refused(wrong), KVBM_ERR_PERMISSION);
  EXPECT_NE(module_->message().find("wrong secret key"), std::string::npos) << module_->message();
  wrong = url();
  wrong.user = "nobody";
  EXPECT_EQ(refused(wrong), KVBM_ERR_PERMISSION);
  EXPECT_NE(module_->message().find("access key is not known"), std::string::npos) << module_->message();
  wrong = url();
  wrong.authority = "no-such-bucket";
  EXPECT_EQ(refused(wrong), KVBM_ERR_CONFIG);
  EXPECT_NE(module_->message().find("no such bucket"), std::string::npos) << module_->message();
  wrong = url();
  wrong.user = wrong.password = "";
  EXPECT_EQ(refused(wrong), KVBM_ERR_PERMISSION);
  EXPECT_NE(module_->message().find("AWS_ACCESS_KEY_ID"), std::string::npos) << module_->message();
  // A server that checks the region names the right one; some servers accept any.
  const kvbm_status_t elsewhere = refused(url({{"region", "eu-else-2"}}));
  EXPECT_TRUE(elsewhere == KVBM_ERR_CONFIG || elsewhere == KVBM_OK) << module_->message();
  if (elsewhere != KVBM_OK) {
    EXPECT_NE(module_->message().find("region=" + S3Server::region()), std::string::npos) << module_->message();
  }
  const std::vector<std::pair<std::string, std::string>> wrong_options = {
      {"style", "both"},       {"verify", "maybe"},
      {"payload", "none"},     {"connections", "0"},
      {"bucket", "x"},         {"region", "a b"},
      {"region", ""},          {"profile", "nobody"},
      {"ca", "/no/such/file"}, {"endpoint", "127.0.0.1:9000"}};
  for (const auto& [name, value] : wrong_options) {
    EXPECT_EQ(refused(url({{name, value}})), KVBM_ERR_CONFIG) << name;
    EXPECT_NE(module_->message().find(name), std::string::npos) << module_->message();
  }
}

TEST_P(S3StoreTest, takes_credentials_of_environment_and_profile) {
  StoreUrl bare = url();
  bare.user = bare.password = "";
  ::setenv("AWS_ACCESS_KEY_ID", S3Server::access_key().c_str(), 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", S3Server::secret().c_str(), 1);
  EXPECT_EQ(module_->open(bare), KVBM_OK) << module_->message();
  ::unsetenv("AWS_ACCESS_KEY_ID");
  kvbm::test::TempDir home;
  std::ofstream(home.path() + "/credentials") << "[cache]\naws_access_key_id = " << S3Server::access_key()
                                              << "\naws_secret_access_key=" << S3Server::secret() << "\n";
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", (home.path() + "/credentials").c_str(), 1);
  bare.options["profile"] = "cache";
  EXPECT_EQ(module_->open(bare), KVBM_OK) << module_->message();
}

TEST_P(S3StoreTest, corrects_a_clock_that_is_wrong) {
#ifdef KVBM_S3_SKEWED_MODULE
  StoreModule skewed(KVBM_S3_SKEWED_MODULE);
  ASSERT_EQ(skewed.open(url()), KVBM_OK) << skewed.message();
  EXPECT_EQ(skewed.put("a", "1").status, KVBM_OK);
  std::string got;
  EXPECT_EQ(skewed.get("a", &got, 10).status, KVBM_OK);
  EXPECT_EQ(got, "1");
  bool is_told = false;
  for (const std::string& line : skewed.log()) is_told |= line.find("clock") != std::string::npos;
  EXPECT_TRUE(is_told);
#endif
}

TEST_P(S3StoreTest, goes_on_after_the_server_was_killed) {
  open();
  const std::string data = bytes_of(1 << 20, 3);
  ASSERT_EQ(module_->put("kept", data).status, KVBM_OK);
  server_.kill();
  std::string got;
  const auto gone = module_->get("kept", &got, data.size());
  EXPECT_EQ(gone.status, KVBM_ERR_IO);
  EXPECT_NE(gone.message.find("cannot connect"), std::string::npos) << gone.message;
  // The store is opened while no server answers, and works once one does.
  StoreModule second(KVBM_S3_MODULE);
  EXPECT_EQ(second.open(url()), KVBM_OK) << second.message();
  ASSERT_TRUE(server_.start_again(true)) << server_.log();
  for (StoreModule* one : {module_.get(), &second}) {
    EXPECT_EQ(one->get("kept", &got, data.size()).status, KVBM_OK);
    EXPECT_EQ(got, data);
  }
  ASSERT_TRUE(server_.start_again(false)) << server_.log();
  EXPECT_EQ(module_->get("kept", &got, data.size()).status, KVBM_ERR_MISS);
  EXPECT_EQ(module_->put("kept", data).status, KVBM_OK);
}

TEST_P(S3StoreTest, keeps_deadlines_while_the_server_is_frozen) {
  open();
  ASSERT_EQ(module_->put("a", "1").status, KVBM_OK);
  server_.freeze();
  std::vector<std::unique_ptr<Started>> many;
  std::string data = bytes_of(4 << 20, 2);
  std::vector<std::string> rooms(40, std::string(1024, '\0'));
  for (size_t i = 0; i < rooms.size(); ++i) {
    many.push_back(i % 2 == 0
                       ? module_->start(KVBM_STORE_PUT, "p" + std::to_string(i), data.data(), data.size(), 0, 0.5)
                       : module_->start(KVBM_STORE_GET, "a", rooms[i].data(), rooms[i].size(), 0, 0.5));
  }
  for (auto& one : many) {
    const auto done = module_->wait(*one);
    EXPECT_EQ(done.status, KVBM_ERR_DEADLINE) << done.message;
    EXPECT_LT(done.seconds, 1.5);
    EXPECT_EQ(one->times, 1);
  }
  // An operation that is cancelled while it waits ends at once.
  auto given_up = module_->start(KVBM_STORE_GET, "a", rooms[0].data(), rooms[0].size(), 0, 600);
  module_->cancel(*given_up);
  EXPECT_LT(module_->wait(*given_up).seconds, 5);
  const auto began = std::chrono::steady_clock::now();
  StoreModule second(KVBM_S3_MODULE);
  EXPECT_EQ(second.open(url(), 300'000'000), KVBM_OK) << second.message();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 2);
  second.close();
  server_.thaw();
  std::string got;
  EXPECT_EQ(module_->get("a", &got, 10).status, KVBM_OK);
  EXPECT_EQ(got, "1");
}

TEST_P(S3StoreTest, payloads_go_unsigned_with_a_checksum_if_asked) {
  ASSERT_EQ(module_->open(url({{"payload", "unsigned"}})), KVBM_OK) << module_->message();
  const std::string data = bytes_of(100'003, 9);
  const auto put = module_->put("a", data);
  ASSERT_EQ(put.status, KVBM_OK) << put.message;
  std::string got;
  EXPECT_EQ(module_->get("a", &got, data.size()).status, KVBM_OK);
  EXPECT_EQ(got, data);
}

TEST_P(S3StoreTest, a_server_s_certificate_has_to_be_trusted) {
  if (GetParam() != S3Server::Kind::versitygw) GTEST_SKIP() << "with versitygw alone";
  if (!server_.start_tls()) GTEST_SKIP() << "no openssl command: " << server_.log();
  EXPECT_EQ(module_->open(url()), KVBM_ERR_CONFIG);
  EXPECT_NE(module_->message().find("ca=FILE"), std::string::npos) << module_->message();
  EXPECT_EQ(module_->open(url({{"verify", "off"}})), KVBM_OK) << module_->message();
  ASSERT_EQ(module_->open(url({{"ca", server_.certificate()}})), KVBM_OK) << module_->message();
  const std::string data = bytes_of(300'000, 4);
  ASSERT_EQ(module_->put("a", data).status, KVBM_OK);
  std::string got;
  EXPECT_EQ(module_->get("a", &got, data.size()).status, KVBM_OK);
  EXPECT_EQ(got, data);
}

INSTANTIATE_TEST_SUITE_P(Servers, S3StoreTest, ::testing::Values(S3Server::Kind::versitygw, S3Server::Kind::minio),
                         [](const auto& one) { return one.param == S3Server::Kind::minio ? "minio" : "versitygw"; });

}  // namespace
}  // namespace store_s3_test

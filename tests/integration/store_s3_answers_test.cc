// The store for S3 before servers that misbehave: what they answer, and what becomes of it. And where credentials come
// from over HTTP.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <ctime>
#include <fstream>

#include "support/s3_server.h"
#include "support/scripted_http.h"
#include "support/store_module.h"
#include "support/temp_dir.h"

namespace store_s3_answers_test {
namespace {

using kvbm::test::HttpAnswer;
using kvbm::test::HttpRequest;
using kvbm::test::ScriptedHttp;
using kvbm::test::StoreModule;
using kvbm::test::StoreUrl;
using End = HttpAnswer::End;

constexpr const char* kEmptyList = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";

HttpAnswer error(int status, const std::string& code, const std::string& more = "") {
  return {status,
          {{"Content-Type", "application/xml"}},
          "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code>" + more + "</Error>"};
}
HttpAnswer part(const std::string& body, const std::string& range) { return {206, {{"Content-Range", range}}, body}; }
bool is_list(const HttpRequest& request) { return request.target.find("list-type=2") != std::string::npos; }
bool contains(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }
std::string key_of(const HttpRequest& request) {
  const auto found = request.headers.find("authorization");
  if (found == request.headers.end()) return {};
  const size_t at = found->second.find("Credential=") + 11;
  return found->second.substr(at, found->second.find('/', at) - at);
}

class S3AnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef KVBM_S3_MODULE
    GTEST_SKIP() << "the store for S3 was not built: libcurl4-openssl-dev is missing";
#else
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS",
          "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http_proxy", "all_proxy",
          "ALL_PROXY"}) {
      ::unsetenv(name);
    }
    ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    module_ = std::make_unique<StoreModule>(KVBM_S3_MODULE);
    ASSERT_NE(module_->table(), nullptr);
#endif
  }
  void TearDown() override {
    module_.reset();  // before the servers
    for (const char* name :
         {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "http_proxy"})
      ::unsetenv(name);
  }
  static StoreUrl url(const std::string& endpoint) {
    return {"s3", "bucket", "/kv", {{"endpoint", endpoint}, {"region", "us-east-1"}}, "key", "hush-hush"};
  }
  // Answers listings with an empty page; `handler` answers all other requests.
  void serve(ScriptedHttp::Handler handler) {
    scripted_ = std::make_unique<ScriptedHttp>([handler](const HttpRequest& request) {
      if (is_list(request)) return HttpAnswer{200, {}, kEmptyList};
      return handler(request);
    });
    ASSERT_EQ(module_->open(url(scripted_->url())), KVBM_OK) << module_->message();
  }
  StoreModule::Done get(uint64_t bytes, uint64_t offset = 0, double seconds = 10) {
    return module_->get("object", &got_, bytes, offset, seconds);
  }
  kvbm_status_t open_answered(const HttpAnswer& answer) {
    scripted_ = std::make_unique<ScriptedHttp>([answer](const HttpRequest&) { return answer; });
    return module_->open(url(scripted_->url()), 2'000'000'000);
  }

  std::unique_ptr<ScriptedHttp> scripted_;
  std::unique_ptr<StoreModule> module_;
  std::string got_;
};

TEST_F(S3AnswersTest, busy_servers_and_proxies) {
  std::atomic<int> which{0};
  serve([&](const HttpRequest&) {
    switch (which.load()) {
      case 0:
        return error(503, "SlowDown");
      case 1:
        return HttpAnswer{502, {{"Content-Type", "text/html"}}, "<html><h1>Bad gateway</h1></html>"};
      case 2:
        return HttpAnswer{200, {{"Content-Type", "text/html"}}, "<html>Log in to the wireless network</html>"};
      case 3:
        return HttpAnswer{404, {}, "Not found"};
      case 4:
        return HttpAnswer{500, {}, ""};
      default:
        return HttpAnswer{200, {}, ""};
    }
  });
  const kvbm_status_t expected[] = {KVBM_ERR_AGAIN, KVBM_ERR_IO, KVBM_ERR_IO, KVBM_ERR_IO, KVBM_ERR_AGAIN};
  for (; which.load() < 5; ++which) {
    EXPECT_EQ(get(5).status, expected[which.load()]) << which.load();
    const auto put = module_->put("object", "data");
    EXPECT_EQ(put.status, expected[which.load()]) << which.load() << put.message;
    EXPECT_EQ(contains(put.message, "in HTML"), which.load() == 1 || which.load() == 2) << put.message;
    EXPECT_EQ(module_->remove("object").status, expected[which.load()]) << which.load();
  }
  // "200" alone does not say that an object was stored.
  EXPECT_EQ(module_->put("object", "data").status, KVBM_ERR_IO);
}

TEST_F(S3AnswersTest, a_body_that_is_not_what_was_asked_for_is_never_success) {
  std::atomic<int> which{0};
  serve([&](const HttpRequest&) {
    switch (which.load()) {
      case 0:
        return HttpAnswer{
            206, {{"Content-Range", "bytes 0-99/200"}}, std::string(40, 'x'), 100, End::closes};  // broken off
      case 1:
        return part(std::string(50, 'x'), "bytes 0-49/200");  // too little
      case 2:
        return part(std::string(100, 'x'), "bytes 100-199/200");  // elsewhere
      case 3:
        return part(std::string(5000, 'x'), "bytes 0-4999/5000");  // too much
      case 4:
        return HttpAnswer{200, {}, std::string(5000, 'x')};  // the whole object instead of the range
      default:
        return part(std::string(100, 'x'), "bytes 0-99/200");
    }
  });
  for (; which.load() < 5; ++which) {
    const auto done = get(100);
    EXPECT_EQ(done.status, KVBM_ERR_IO) << which.load();
    EXPECT_EQ(done.bytes, 0U) << which.load();
    EXPECT_FALSE(done.message.empty());
  }
  EXPECT_EQ(get(100).status, KVBM_OK);
  EXPECT_EQ(got_, std::string(100, 'x'));
}

TEST_F(S3AnswersTest, slow_bodies_end_with_the_deadline) {
  std::atomic<bool> drips{true};
  serve([&](const HttpRequest&) {
    HttpAnswer answer = part(std::string(100000, 'x'), "bytes 0-99999/100000");
    answer.end = End::drips;
    if (!drips.load())
      answer = {206, {{"Content-Range", "bytes 0-99999/100000"}}, std::string(1000, 'x'), 100000, End::hangs};
    return answer;
  });
  for (int i = 0; i < 2; ++i) {
    const auto done = get(100000, 0, 0.5);
    EXPECT_EQ(done.status, KVBM_ERR_DEADLINE) << done.message;
    EXPECT_GE(done.seconds, 0.4);
    EXPECT_LT(done.seconds, 5);
    drips = false;
  }
  std::string room(100000, '\0');
  auto started = module_->start(KVBM_STORE_GET, "object", room.data(), room.size(), 0, 3600);
  module_->cancel(*started);
  EXPECT_NE(module_->wait(*started).status, KVBM_OK);
  module_->cancel(*started);  // a cancel after the end has no effect
  EXPECT_EQ(started->times, 1);
}

TEST_F(S3AnswersTest, redirects_are_not_followed) {
  ScriptedHttp elsewhere([](const HttpRequest&) { return HttpAnswer{}; });
  serve([&](const HttpRequest&) { return HttpAnswer{307, {{"Location", elsewhere.url() + "/bucket/kv/object"}}, ""}; });
  EXPECT_EQ(get(5).status, KVBM_ERR_CONFIG);
  EXPECT_EQ(module_->put("object", "data").status, KVBM_ERR_CONFIG);
  EXPECT_TRUE(elsewhere.requests().empty());
}

TEST_F(S3AnswersTest, opening_tells_apart_what_passes_and_what_does_not) {
  EXPECT_EQ(open_answered({200, {}, kEmptyList}), KVBM_OK);
  EXPECT_EQ(open_answered(error(503, "SlowDown")), KVBM_OK);
  EXPECT_EQ(open_answered({502, {{"Content-Type", "text/html"}}, "<html>"}), KVBM_OK);
  EXPECT_EQ(open_answered({200, {}, "", 100, End::hangs}), KVBM_OK);
  EXPECT_EQ(open_answered({200, {{"Content-Type", "text/html"}}, "<html>It works!</html>"}), KVBM_ERR_UNSUPPORTED);
  EXPECT_TRUE(contains(module_->message(), "no S3 server")) << module_->message();
  EXPECT_EQ(open_answered({404, {}, "not here"}), KVBM_ERR_UNSUPPORTED);
  EXPECT_EQ(open_answered({200, {}, "{}"}), KVBM_ERR_UNSUPPORTED);
  EXPECT_EQ(open_answered(error(403, "AccessDenied")), KVBM_ERR_PERMISSION);
  EXPECT_EQ(open_answered(error(404, "NoSuchBucket")), KVBM_ERR_CONFIG);
  EXPECT_EQ(open_answered(error(301, "PermanentRedirect", "<Region>eu-west-1</Region>")), KVBM_ERR_CONFIG);
  EXPECT_TRUE(contains(module_->message(), "set region=eu-west-1")) << module_->message();
  EXPECT_FALSE(contains(module_->message(), "hush"));
}

TEST_F(S3AnswersTest, listings_are_bounded_and_have_to_be_in_order) {
  std::atomic<int> which{0};
  scripted_ = std::make_unique<ScriptedHttp>([&](const HttpRequest& request) {
    std::string keys;
    if (which.load() == 1) keys = "<Contents><Key>kv/b</Key></Contents><Contents><Key>kv/a</Key></Contents>";
    if (which.load() == 2) keys = std::string(5 << 20, ' ');
    // Objects of other programs are skipped, however many listings that takes.
    if (which.load() == 3) {
      const bool is_first = !contains(request.target, "start-after");
      keys = is_first ? "<Contents><Key>kv/A B</Key></Contents><Contents><Key>kv/Z</Key></Contents>"
                      : "<Contents><Key>kv/a</Key></Contents><Contents><Key>kv/a/</Key></Contents>";
      return HttpAnswer{200,
                        {},
                        "<ListBucketResult>" + keys + "<IsTruncated>" + (is_first ? "true" : "false") +
                            "</IsTruncated></ListBucketResult>"};
    }
    return HttpAnswer{200, {}, "<ListBucketResult>" + keys + "</ListBucketResult>"};
  });
  ASSERT_EQ(module_->open(url(scripted_->url())), KVBM_OK) << module_->message();
  which = 1;
  EXPECT_EQ(module_->list("").status, KVBM_ERR_CONFIG);
  EXPECT_EQ(module_->list("", "b").status, KVBM_ERR_CONFIG);  // begins before what was asked for
  which = 2;
  EXPECT_EQ(module_->list("").status, KVBM_ERR_IO);
  which = 3;
  const auto done = module_->list("");
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(done.names, std::vector<std::string>{"a"});
  EXPECT_FALSE(done.more);
}

TEST_F(S3AnswersTest, an_upload_in_parts_that_fails_is_given_up_there_too) {
  std::atomic<int> which{0};
  std::atomic<int> abandoned{0};
  serve([&](const HttpRequest& request) {
    if (request.method == "POST" && contains(request.target, "uploads=")) {
      return HttpAnswer{
          200, {}, "<InitiateMultipartUploadResult><UploadId>u/1</UploadId></InitiateMultipartUploadResult>"};
    }
    if (request.method == "DELETE" && contains(request.target, "uploadId=u%2F1")) ++abandoned;
    if (request.method == "PUT" && contains(request.target, "partNumber=3") && which.load() == 0)
      return error(500, "InternalError");
    if (request.method == "POST") {
      if (which.load() == 1) return error(200, "InternalError");
      return HttpAnswer{200, {}, which.load() == 2 ? "" : "<CompleteMultipartUploadResult/>"};  // 2: it ended meanwhile
    }
    return HttpAnswer{200, {{"ETag", "\"e\""}}, ""};
  });
  const std::string data(66 << 20, 'x');
  for (; which.load() < 3; ++which) {
    EXPECT_EQ(module_->put("large", data, 60).status, KVBM_ERR_AGAIN) << which.load();
  }
  EXPECT_EQ(module_->put("large", data, 60).status, KVBM_OK);
  module_->close();  // waits for what tidies up
  EXPECT_EQ(abandoned.load(), 3);
}

TEST_F(S3AnswersTest, a_clock_is_corrected_once) {
  const std::string date = "Fri, 24 May 2030 00:00:00 GMT";
  std::atomic<bool> is_right{true};
  serve([&](const HttpRequest& request) {
    HttpAnswer answer = error(403, "RequestTimeTooSkewed");
    answer.headers.emplace_back("Date", date);
    const bool is_near = contains(request.headers.at("x-amz-date"), "20300524T0000") ||
                         contains(request.headers.at("x-amz-date"), "20300524T0001");
    return is_near && is_right.load() ? part("x", "bytes 0-0/1") : answer;
  });
  EXPECT_EQ(get(1).status, KVBM_OK);
  EXPECT_EQ(scripted_->requests().size(), 3U);  // one of them from opening the store
  EXPECT_EQ(get(1).status, KVBM_OK);            // right at once
  EXPECT_EQ(scripted_->requests().size(), 4U);
  is_right = false;
  EXPECT_EQ(get(1).status, KVBM_ERR_PERMISSION);
  EXPECT_EQ(scripted_->requests().size(), 5U);
}

std::string json(const std::string& key) {
  return R"({"AccessKeyId":")" + key + R"(","SecretAccessKey":"s","Token":"tok","Expiration":"2099-01-01T00:00:00Z"})";
}

TEST_F(S3AnswersTest, credentials_that_expired_are_renewed_and_the_request_is_sent_again) {
  std::atomic<int> given{0};
  ScriptedHttp container([&](const HttpRequest&) {
    return HttpAnswer{200, {}, json("key" + std::to_string(++given))};
  });
  ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url().c_str(), 1);
  scripted_ = std::make_unique<ScriptedHttp>([&](const HttpRequest& request) {
    if (is_list(request)) return HttpAnswer{200, {}, kEmptyList};
    return key_of(request) == "key2" && request.headers.at("x-amz-security-token") == "tok"
               ? part("x", "bytes 0-0/1")
               : error(400, "ExpiredToken");
  });
  StoreUrl bare = url(scripted_->url());
  bare.user = bare.password = "";
  ASSERT_EQ(module_->open(bare), KVBM_OK) << module_->message();
  std::vector<std::unique_ptr<StoreModule::Started>> many;
  std::string room(20, '\0');
  for (size_t i = 0; i < room.size(); ++i) many.push_back(module_->start(KVBM_STORE_GET, "object", &room[i], 1));
  for (auto& one : many) EXPECT_EQ(module_->wait(*one).status, KVBM_OK) << one->op.message;
  EXPECT_EQ(given.load(), 2);
  module_->close();
}

TEST_F(S3AnswersTest, credentials_of_an_instance_and_of_a_web_identity) {
  ScriptedHttp cloud([&](const HttpRequest& request) {
    if (request.target == "/latest/api/token") return HttpAnswer{request.method == "PUT" ? 200 : 405, {}, "session"};
    if (request.method == "POST") {
      if (!contains(request.body, "WebIdentityToken=from-a-file")) return HttpAnswer{403, {}, ""};
      return HttpAnswer{200,
                        {},
                        "<R><A><Credentials><AccessKeyId>web</AccessKeyId><SecretAccessKey>s</SecretAccessKey></"
                        "Credentials></A></R>"};
    }
    if (request.headers.count("x-aws-ec2-metadata-token") == 0) return HttpAnswer{401, {}, ""};
    if (request.target == "/latest/meta-data/iam/security-credentials/") return HttpAnswer{200, {}, "role"};
    return HttpAnswer{200, {}, json("instance")};
  });
  ::setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
  ::setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.url().c_str(), 1);
  scripted_ = std::make_unique<ScriptedHttp>([](const HttpRequest&) { return HttpAnswer{200, {}, kEmptyList}; });
  StoreUrl bare = url(scripted_->url());
  bare.user = bare.password = "";
  ASSERT_EQ(module_->open(bare), KVBM_OK) << module_->message();
  EXPECT_EQ(key_of(scripted_->requests().back()), "instance");
  kvbm::test::TempDir directory;
  std::ofstream(directory.path() + "/token") << "from-a-file\n";
  ::setenv("AWS_WEB_IDENTITY_TOKEN_FILE", (directory.path() + "/token").c_str(), 1);
  ::setenv("AWS_ROLE_ARN", "arn", 1);
  ::setenv("AWS_ENDPOINT_URL_STS", cloud.url().c_str(), 1);
  ASSERT_EQ(module_->open(bare), KVBM_OK) << module_->message();
  EXPECT_EQ(key_of(scripted_->requests().back()), "web");
}

TEST_F(S3AnswersTest, a_proxy_of_the_environment_is_used) {
  ScriptedHttp proxy([](const HttpRequest& request) {
    // A proxy gets requests with whole URLs.
    return request.target.starts_with("http://s3.invalid/bucket") ? HttpAnswer{200, {}, kEmptyList}
                                                                  : HttpAnswer{400, {}, ""};
  });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  EXPECT_EQ(module_->open(url("http://s3.invalid")), KVBM_OK) << module_->message();
  EXPECT_EQ(proxy.requests().size(), 1U);
  module_->close();
}

}  // namespace
}  // namespace store_s3_answers_test

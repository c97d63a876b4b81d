// The meaning of each answer of a server.
#include "s3/answers.h"

#include <gtest/gtest.h>

namespace kvbm_s3::answers_test {
namespace {

constexpr const char* kUrl = "http://127.0.0.1:9000";

Verdict judged(long status, const std::string& code, const std::string& more = "") {
  Answer answer;
  answer.status = status;
  answer.content_type = "application/xml";
  answer.body = "<Error><Code>" + code + "</Code>" + more + "</Error>";
  return judge(answer, kUrl, "us-east-1");
}

TEST(Answers, each_error_of_s3_has_a_status) {
  const struct {
    long status;
    const char* code;
    kvbm_status_t expected;
  } kCases[] = {{404, "NoSuchKey", KVBM_ERR_MISS},
                {404, "NoSuchBucket", KVBM_ERR_CONFIG},
                {403, "AccessDenied", KVBM_ERR_PERMISSION},
                {403, "SignatureDoesNotMatch", KVBM_ERR_PERMISSION},
                {403, "InvalidAccessKeyId", KVBM_ERR_PERMISSION},
                {400, "ExpiredToken", KVBM_ERR_PERMISSION},
                {403, "RequestTimeTooSkewed", KVBM_ERR_PERMISSION},
                {403, "SomethingNew", KVBM_ERR_PERMISSION},
                {503, "SlowDown", KVBM_ERR_AGAIN},
                {503, "ServiceUnavailable", KVBM_ERR_AGAIN},
                {500, "InternalError", KVBM_ERR_AGAIN},
                {429, "TooManyRequests", KVBM_ERR_AGAIN},
                {400, "RequestTimeout", KVBM_ERR_AGAIN},
                {507, "Whatever", KVBM_ERR_DISK_FULL},
                {507, "XMinioStorageFull", KVBM_ERR_DISK_FULL},
                {400, "BadDigest", KVBM_ERR_IO},
                {400, "SomethingNew", KVBM_ERR_IO}};
  for (const auto& one : kCases) {
    const Verdict verdict = judged(one.status, one.code);
    EXPECT_EQ(verdict.status, one.expected) << one.code;
    EXPECT_FALSE(verdict.clause.empty()) << one.code;
    EXPECT_LT(verdict.clause.size(), 128U) << one.code;
  }
}

TEST(Answers, other_credentials_help_only_where_these_are_stale) {
  for (const char* code : {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId"})
    EXPECT_TRUE(judged(403, code).is_stale_credentials) << code;
  for (const char* code : {"AccessDenied", "SignatureDoesNotMatch", "NoSuchBucket"})
    EXPECT_FALSE(judged(403, code).is_stale_credentials) << code;
}

TEST(Answers, a_wrong_region_names_the_right_one) {
  const Verdict redirect =
      judged(301, "PermanentRedirect", "<Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint><Region>eu-west-1</Region>");
  EXPECT_EQ(redirect.status, KVBM_ERR_CONFIG);
  EXPECT_EQ(redirect.clause, "the bucket is in region eu-west-1: set region=eu-west-1");
  EXPECT_EQ(judged(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>").clause, redirect.clause);
  Answer answer;
  answer.status = 301;
  answer.bucket_region = "eu-west-1";
  EXPECT_EQ(judge(answer, kUrl, "us-east-1").clause, redirect.clause);
  answer.bucket_region.clear();
  EXPECT_EQ(judge(answer, kUrl, "us-east-1").status, KVBM_ERR_CONFIG);
}

TEST(Answers, html_is_no_answer_of_a_store) {
  for (const long status : {200L, 302L, 404L, 403L, 407L, 502L, 503L}) {
    Answer answer;
    answer.status = status;
    answer.body = "<html><h1>Not here</h1></html>";
    const Verdict verdict = judge(answer, kUrl, "us-east-1");
    EXPECT_EQ(verdict.status, KVBM_ERR_IO) << status;
    EXPECT_NE(verdict.clause.find("HTML"), std::string::npos);
    EXPECT_EQ(verdict.is_no_s3, status < 500) << status;
    answer.body.clear();
    answer.content_type = "text/html; charset=utf-8";
    EXPECT_EQ(judge(answer, kUrl, "us-east-1").status, KVBM_ERR_IO) << status;
  }
  // Another program's 404 is no miss.
  Answer answer;
  answer.status = 404;
  answer.body = "{\"error\": \"not found\"}";
  EXPECT_EQ(judge(answer, kUrl, "us-east-1").status, KVBM_ERR_IO);
  answer.body.clear();
  EXPECT_EQ(judge(answer, kUrl, "us-east-1").status, KVBM_ERR_IO);
}

TEST(Answers, what_the_network_did) {
  const std::pair<Transport, kvbm_status_t> kCases[] = {
      {Transport::timed_out, KVBM_ERR_DEADLINE}, {Transport::no_connection, KVBM_ERR_IO},
      {Transport::no_address, KVBM_ERR_IO},      {Transport::no_proxy, KVBM_ERR_IO},
      {Transport::untrusted, KVBM_ERR_CONFIG},   {Transport::bad_ca_file, KVBM_ERR_CONFIG},
      {Transport::no_tls, KVBM_ERR_IO},          {Transport::broken_off, KVBM_ERR_IO},
      {Transport::not_http, KVBM_ERR_IO},        {Transport::other, KVBM_ERR_IO}};
  for (const auto& [transport, status] : kCases) {
    Answer answer;
    answer.transport = transport;
    answer.transport_text = "something";
    answer.status = 200;  // the head had come
    EXPECT_EQ(judge(answer, kUrl, "us-east-1").status, status);
    EXPECT_FALSE(judge(answer, kUrl, "us-east-1").clause.empty());
  }
  Answer longer;
  longer.status = 200;
  longer.is_too_long = true;
  EXPECT_EQ(judge(longer, kUrl, "us-east-1").status, KVBM_ERR_IO);
}

struct Got {
  kvbm_status_t status;
  uint64_t done;
  bool operator==(const Got&) const = default;
};
Got get(long status, const std::string& range, size_t received, uint64_t offset, uint64_t bytes, int64_t length = -1) {
  Answer answer;
  answer.status = status;
  answer.content_range = range;
  answer.received = received;
  answer.content_length = length;
  uint64_t done = 77;
  const Verdict verdict = judge_get(answer, offset, bytes, &done);
  return {verdict.status, done};
}

TEST(Answers, a_get_is_whole_or_an_error) {
  EXPECT_EQ(get(206, "bytes 10-19/100", 10, 10, 10), (Got{KVBM_OK, 10}));
  EXPECT_EQ(get(206, "bytes 90-99/100", 10, 90, 50), (Got{KVBM_OK, 10}));  // the end of the object
  EXPECT_EQ(get(206, "bytes 10-10/100", 1, 10, 0), (Got{KVBM_OK, 0}));     // only whether it exists
  EXPECT_EQ(get(416, "", 0, 100, 10), (Got{KVBM_OK, 0}));
  EXPECT_EQ(get(200, "", 10, 0, 50, 10), (Got{KVBM_OK, 10}));
  const Got broken = {KVBM_ERR_IO, 0};
  EXPECT_EQ(get(206, "bytes 10-19/100", 9, 10, 10), broken);  // short
  EXPECT_EQ(get(206, "bytes 10-14/100", 5, 10, 10), broken);  // less than asked for, and not the end
  EXPECT_EQ(get(206, "bytes 0-9/100", 10, 10, 10), broken);   // another part
  EXPECT_EQ(get(206, "", 10, 10, 10), broken);
  EXPECT_EQ(get(206, "bytes 10-19/*", 10, 10, 10), broken);
  EXPECT_EQ(get(206, "bytes 10-9/100", 0, 10, 10), broken);
  EXPECT_EQ(get(206, "bytes 10-99999999999999999999999/1", 10, 10, 10), broken);
  EXPECT_EQ(get(200, "", 10, 5, 10, 10), broken);  // the server ignores ranges
  EXPECT_EQ(get(200, "", 10, 0, 50, -1), broken);  // of unknown length: it may be cut off
  EXPECT_EQ(get(200, "", 10, 0, 50, 20), broken);
  EXPECT_EQ(get(204, "", 0, 0, 50, 0), broken);
}

TEST(Answers, only_printable_text_is_for_people) { EXPECT_EQ(for_people("a\r\nb\x1b[31m\xC3\xA4", 7), "a  b [3"); }

}  // namespace
}  // namespace kvbm_s3::answers_test

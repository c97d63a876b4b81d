// Signatures, with the vectors that AWS publishes: the documentation of S3 (sig-v4-header-based-auth) and the test
// suite of version 4.
#include "s3/sigv4.h"

#include <gtest/gtest.h>

namespace kvbm_s3::sigv4_test {
namespace {

Credentials example(const char* key, const char* secret) {
  Credentials credentials;
  credentials.access_key = key;
  credentials.secret = secret;
  return credentials;
}

std::string signature(const std::string& value) { return value.substr(value.rfind('=') + 1); }

constexpr std::string_view kBucket = "examplebucket.s3.amazonaws.com";
constexpr std::string_view kDate = "20130524T000000Z";

std::string s3(std::string_view method, std::string_view path, const Pairs& query, Pairs headers,
               const std::string& hash) {
  const Credentials keys = example("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
  headers.emplace_back("host", kBucket);
  headers.emplace_back("x-amz-date", kDate);
  headers.emplace_back("x-amz-content-sha256", hash);
  const std::string asked = canonical_query(query);
  return authorization({method, path, asked, headers, hash}, keys, "us-east-1", "s3", kDate);
}

TEST(SigV4, get_with_a_range) {
  EXPECT_EQ(s3("GET", "/test.txt", {}, {{"range", "bytes=0-9"}}, std::string(kNoPayload)),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, put_with_a_signed_payload) {
  const std::string body = "Welcome to Amazon S3.";
  const std::string hash = sha256_hex(body.data(), body.size());
  EXPECT_EQ(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
  EXPECT_EQ(
      signature(s3("PUT", "/" + uri_encode("test$file.text", true), {},
                   {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}, hash)),
      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, a_query_without_a_value) {
  EXPECT_EQ(signature(s3("GET", "/", {{"lifecycle", ""}}, {}, std::string(kNoPayload))),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(SigV4, a_listing_however_its_query_is_ordered) {
  for (const Pairs& query : {Pairs{{"max-keys", "2"}, {"prefix", "J"}}, Pairs{{"prefix", "J"}, {"max-keys", "2"}}}) {
    EXPECT_EQ(signature(s3("GET", "/", query, {}, std::string(kNoPayload))),
              "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  }
}

std::string suite(std::string_view method, const Pairs& query, Pairs headers) {
  const Credentials keys = example("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
  headers.emplace_back("host", "example.amazonaws.com");
  headers.emplace_back("x-amz-date", "20150830T123600Z");
  const std::string asked = canonical_query(query);
  return signature(
      authorization({method, "/", asked, headers, kNoPayload}, keys, "us-east-1", "service", "20150830T123600Z"));
}

TEST(SigV4, the_published_suite) {
  EXPECT_EQ(suite("GET", {}, {}), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");   // get-vanilla
  EXPECT_EQ(suite("POST", {}, {}), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");  // post-vanilla
  EXPECT_EQ(suite("GET", {{"Param2", "value2"}, {"Param1", "value1"}}, {}),  // get-vanilla-query-order-key-case
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(suite("GET", {}, {{"my-header1", "value2,value2,value1"}}),  // get-header-key-duplicate
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
  EXPECT_EQ(suite("GET", {}, {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}}),  // get-header-value-trim
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

TEST(SigV4, the_session_token_is_signed) {
  Credentials keys = example("a", "b");
  const Pairs plain = {{"host", "h"}, {"x-amz-date", "20150830T123600Z"}};
  Pairs with_token = plain;
  with_token.emplace_back("x-amz-security-token", "t");
  EXPECT_NE(signature(authorization({"GET", "/", "", plain, kNoPayload}, keys, "r", "s3", "20150830T123600Z")),
            signature(authorization({"GET", "/", "", with_token, kNoPayload}, keys, "r", "s3", "20150830T123600Z")));
}

TEST(SigV4, encodes_all_but_unreserved_characters) {
  EXPECT_EQ(uri_encode("aZ09-._~ /+=%\xC3\xA4", false), "aZ09-._~%20%2F%2B%3D%25%C3%A4");
  EXPECT_EQ(uri_encode("a/b c", true), "a/b%20c");
  // Parameters are sorted by their encoded names, then by their values.
  EXPECT_EQ(canonical_query({{"b", "2"}, {"a", "2"}, {"a", "1"}, {"A", ""}, {"a-b", "x y"}}),
            "A=&a=1&a=2&a-b=x%20y&b=2");
}

TEST(SigV4, writes_dates_in_utc) {
  EXPECT_EQ(amz_date(0), "19700101T000000Z");
  EXPECT_EQ(amz_date(1440938160), "20150830T123600Z");
}

TEST(SigV4, crc32c_of_rfc_3720) {
  const std::string zeros(32, '\0');
  EXPECT_EQ(crc32c_base64(zeros.data(), zeros.size()), "ipE2qg==");  // 8a9136aa
  EXPECT_EQ(crc32c_base64("123456789", 9), "4waSgw==");              // e3069283
  EXPECT_EQ(crc32c_base64("", 0), "AAAAAA==");
}

}  // namespace
}  // namespace kvbm_s3::sigv4_test

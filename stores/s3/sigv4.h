// Signatures of AWS, version 4: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvbm_s3 {

// SHA-256 of no bytes, in hex: the payload hash of a request without a body.
inline constexpr std::string_view kNoPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

struct Credentials {
  Credentials() = default;
  Credentials(const Credentials&) = default;
  Credentials& operator=(const Credentials&) = default;
  ~Credentials();  // wipes the secrets

  std::string access_key;
  std::string secret;
  std::string token;       // of a session; empty for lasting credentials
  int64_t expires_at = 0;  // seconds since 1970; 0 = never
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string sha256_hex(const void* data, size_t bytes);
// Returns CRC-32C, big-endian, in base64, as in the header x-amz-checksum-crc32c.
std::string crc32c_base64(const void* data, size_t bytes);
// Replaces everything but [A-Za-z0-9._~-], and '/' if `keep_slash`, by %XX.
std::string uri_encode(std::string_view text, bool keep_slash);
// Returns the query encoded, in the only order that may be signed. It is sent in this form.
std::string canonical_query(Pairs query);
std::string amz_date(int64_t unix_s);  // 20150830T123600Z

struct Signable {
  std::string_view method;
  std::string_view path;   // encoded
  std::string_view query;  // of canonical_query()
  Pairs headers;           // names in lower case; those that are signed: at least host and x-amz-date
  std::string_view payload_hash;
};

// Returns the value of the header Authorization. `date` is that of x-amz-date.
std::string authorization(const Signable& request, const Credentials& credentials, std::string_view region,
                          std::string_view service, std::string_view date);

}  // namespace kvbm_s3

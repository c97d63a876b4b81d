#include "answers.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "xml.h"

namespace kvbm_s3 {
namespace {

struct Known {
  const char* code;
  kvbm_status_t status;
  const char* clause;
  bool is_stale_credentials;
};
constexpr Known kKnown[] = {
    {"NoSuchKey", KVBM_ERR_MISS, "no such object", false},
    {"NoSuchBucket", KVBM_ERR_CONFIG, "no such bucket: create it or correct the URL", false},
    {"InvalidBucketName", KVBM_ERR_CONFIG, "no valid name of a bucket: correct the URL", false},
    {"MethodNotAllowed", KVBM_ERR_CONFIG, "the server does not allow this request", false},
    {"NotImplemented", KVBM_ERR_CONFIG, "the server does not know this request", false},
    {"EntityTooLarge", KVBM_ERR_CONFIG, "the server does not take objects of this size", false},
    {"AccessDenied", KVBM_ERR_PERMISSION, "access denied: allow get, put, delete and list there", false},
    {"AllAccessDisabled", KVBM_ERR_PERMISSION, "all access to this bucket is disabled", false},
    {"AccountProblem", KVBM_ERR_PERMISSION, "the account has a problem: ask its provider", false},
    {"SignatureDoesNotMatch", KVBM_ERR_PERMISSION, "wrong secret key", false},
    {"InvalidAccessKeyId", KVBM_ERR_PERMISSION, "the access key is not known there", true},
    {"XAdminUserNotFound", KVBM_ERR_PERMISSION, "the access key is not known there", true},
    {"ExpiredToken", KVBM_ERR_PERMISSION, "the session token has expired: renew the credentials", true},
    {"ExpiredTokenException", KVBM_ERR_PERMISSION, "the session token has expired: renew the credentials", true},
    {"TokenRefreshRequired", KVBM_ERR_PERMISSION, "the session token has expired: renew the credentials", true},
    {"InvalidToken", KVBM_ERR_PERMISSION, "the session token is not valid: renew the credentials", true},
    {"RequestTimeTooSkewed", KVBM_ERR_PERMISSION, "the clocks differ by more than 15 min: set the clock", false},
    {"XMinioStorageFull", KVBM_ERR_DISK_FULL, "the server has no room", false},
    {"QuotaExceeded", KVBM_ERR_DISK_FULL, "the quota of the bucket is used up", false},
    {"XMinioAdminBucketQuotaExceeded", KVBM_ERR_DISK_FULL, "the quota of the bucket is used up", false},
    {"SlowDown", KVBM_ERR_AGAIN, "the server asks to slow down", false},
    {"SlowDownRead", KVBM_ERR_AGAIN, "the server asks to slow down", false},
    {"SlowDownWrite", KVBM_ERR_AGAIN, "the server asks to slow down", false},
    {"RequestTimeout", KVBM_ERR_AGAIN, "the server waited too long for the request", false},
    {"OperationAborted", KVBM_ERR_AGAIN, "another operation is in the way", false},
    {"BadDigest", KVBM_ERR_IO, "the object was changed on its way", false},
    {"XAmzContentSHA256Mismatch", KVBM_ERR_IO, "the object was changed on its way", false},
    {"IncompleteBody", KVBM_ERR_IO, "the object broke off on its way", false},
};

Verdict other_region(const std::string& signed_for, const std::string& there) {
  const std::string where = for_people(there, 30);
  return {KVBM_ERR_CONFIG,
          where.empty() ? "the bucket is in another region than " + signed_for + ": set region and endpoint"
                        : "the bucket is in region " + where + ": set region=" + where,
          false, false};
}

Verdict judge_transport(const Answer& answer, const std::string& url) {
  switch (answer.transport) {
    case Transport::timed_out:
      return {KVBM_ERR_DEADLINE, "no answer of " + url + " in time", false, false};
    case Transport::no_connection:
      return {KVBM_ERR_IO, "cannot connect to " + url, false, false};
    case Transport::no_address:
      return {KVBM_ERR_IO, "no address is known of " + url, false, false};
    case Transport::no_proxy:
      return {KVBM_ERR_IO, "no address is known of the proxy", false, false};
    case Transport::untrusted:
      return {KVBM_ERR_CONFIG, "certificate not trusted: give its authority with ca=FILE", false, false};
    case Transport::bad_ca_file:
      return {KVBM_ERR_CONFIG, "the file of ca= cannot be read as certificates", false, false};
    case Transport::no_tls:
      return {KVBM_ERR_IO, "no TLS with " + url + ": is it an http:// endpoint?", false, false};
    case Transport::broken_off:
      return {KVBM_ERR_IO, "the answer broke off", false, false};
    case Transport::not_http:
      return {KVBM_ERR_IO, "what answers at " + url + " does not speak HTTP", false, true};
    case Transport::ok:
    case Transport::other:
      break;
  }
  return {KVBM_ERR_IO, answer.transport_text, false, false};
}

Verdict judge_code(const ErrorAnswer& error, const Answer& answer, const std::string& region) {
  const std::string& there = error.region.empty() ? answer.bucket_region : error.region;
  if (error.code == "PermanentRedirect" || error.code == "TemporaryRedirect" || error.code == "Redirect" ||
      error.code == "AuthorizationHeaderMalformed" || error.code == "IllegalLocationConstraintException") {
    return other_region(region, there);
  }
  const std::string prefix = std::to_string(answer.status) + " " + for_people(error.code, 40) + ": ";
  for (const Known& known : kKnown) {
    if (error.code == known.code) return {known.status, prefix + known.clause, known.is_stale_credentials, false};
  }
  const long status = answer.status;
  const kvbm_status_t meant = status == 507                                     ? KVBM_ERR_DISK_FULL
                              : status == 408 || status == 429 || status >= 500 ? KVBM_ERR_AGAIN
                              : status == 401 || status == 403                  ? KVBM_ERR_PERMISSION
                                                                                : KVBM_ERR_IO;
  return {meant, prefix + for_people(error.message, 80), false, false};
}

}  // namespace

std::string for_people(std::string_view text, size_t room) {
  std::string out(text.substr(0, room));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = ' ';
  }
  return out;
}

Verdict judge(const Answer& answer, const std::string& url, const std::string& region) {
  if (answer.is_too_long) return {KVBM_ERR_IO, "the answer is longer than it may be", false, false};
  if (answer.transport != Transport::ok) return judge_transport(answer, url);
  const std::string status = std::to_string(answer.status);
  if (answer.content_type.starts_with("text/html") || looks_like_html(answer.body)) {
    // A gateway in front of a server that is down answers in HTML. This is temporary.
    const bool passes = answer.status >= 500 || answer.status == 429;
    return {KVBM_ERR_IO, status + " in HTML: a proxy, or no S3 server, at " + url, false, !passes};
  }
  if (answer.status >= 200 && answer.status < 300) return {};
  if (const auto error = parse_error(answer.body)) return judge_code(*error, answer, region);
  if (answer.status >= 300 && answer.status < 400) {
    if (!answer.bucket_region.empty() && answer.bucket_region != region)
      return other_region(region, answer.bucket_region);
    return {KVBM_ERR_CONFIG, status + ": the server sends elsewhere: correct endpoint", false, false};
  }
  if (answer.status == 401 || answer.status == 403) {
    return {KVBM_ERR_PERMISSION, status + ": refused without a reason: check credentials and policy", false, false};
  }
  if (answer.status == 507) return {KVBM_ERR_DISK_FULL, status + ": the server has no room", false, false};
  if (answer.status == 408 || answer.status == 429 || answer.status >= 500) {
    return {KVBM_ERR_AGAIN, status + ": the server is busy or down", false, false};
  }
  return {KVBM_ERR_IO, status + " without an error of S3's: is " + url + " an S3 server?", false, true};
}

Verdict judge_get(const Answer& answer, uint64_t offset, uint64_t bytes, uint64_t* out_done) {
  *out_done = 0;
  if (answer.status == 416) return {};  // the object ends before `offset`
  const auto broken = [](const char* clause) { return Verdict{KVBM_ERR_IO, clause, false, false}; };
  if (answer.status == 206) {
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t total = 0;
    const char* at = answer.content_range.data();
    const char* end = at + answer.content_range.size();
    const auto take = [&](std::string_view before, uint64_t* out) {
      if (!std::string_view(at, static_cast<size_t>(end - at)).starts_with(before)) return false;
      at += before.size();
      const auto read = std::from_chars(at, end, *out);
      at = read.ptr;
      return read.ec == std::errc();
    };
    if (!take("bytes ", &first) || !take("-", &last) || !take("/", &total) || last < first || total <= last) {
      return broken("an answer in part does not say which part");
    }
    if (first != offset) return broken("another part of the object was answered");
    if (answer.received != last - first + 1) return broken("the object broke off on its way");
    if (answer.received < bytes && last + 1 != total) return broken("less of the object was answered than asked for");
  } else {
    if (offset != 0 || answer.status != 200) return broken("the server ignores which part was asked for");
    if (answer.content_length < 0 || static_cast<uint64_t>(answer.content_length) != answer.received) {
      return broken("the answer does not say how long it is");
    }
  }
  *out_done = std::min<uint64_t>(answer.received, bytes);
  return {};
}

}  // namespace kvbm_s3

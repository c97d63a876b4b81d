// Translates the answer to a request into a status of the table and a clause for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvbm_plugin.h"

namespace kvbm_s3 {

// Result of the exchange itself.
enum class Transport : uint8_t {
  ok,
  timed_out,
  no_connection,
  no_address,
  no_proxy,
  untrusted,
  bad_ca_file,
  no_tls,
  broken_off,
  not_http,
  other
};

struct Answer {
  Transport transport = Transport::ok;
  std::string transport_text;  // of `other`
  long status = 0;             // of HTTP
  std::string body;            // body of an error or a listing; bounded by the reader
  std::string content_type;
  std::string content_range;
  std::string bucket_region;
  std::string etag;
  int64_t content_length = -1;
  int64_t date_s = 0;        // of the header Date; 0 = none
  size_t received = 0;       // bytes of an object
  bool is_too_long = false;  // more bytes came than requested, or than the limit
};

struct Verdict {
  kvbm_status_t status = KVBM_OK;
  std::string clause;  // the server's answer, and the remedy
  // Other credentials may be accepted: those used have expired or were replaced.
  bool is_stale_credentials = false;
  // True if the answer comes from another program than S3. Opening a store fails then, because this does not pass.
  bool is_no_s3 = false;
};

// Judges an answer. `url` names the endpoint in clauses; `region` is the one that was signed for.
Verdict judge(const Answer& answer, const std::string& url, const std::string& region);
// Computes how much of an object a GET of [offset, offset + bytes) returned. A body that is cut off or foreign is an
// error.
Verdict judge_get(const Answer& answer, uint64_t offset, uint64_t bytes, uint64_t* out_done);

// Returns the text as printable ASCII, at most `room` bytes.
std::string for_people(std::string_view text, size_t room);

}  // namespace kvbm_s3

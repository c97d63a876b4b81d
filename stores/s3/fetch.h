// Small synchronous requests: those for credentials.
#pragma once

#include <functional>
#include <string>

#include "sigv4.h"

namespace kvbm_s3 {

struct FetchRequest {
  std::string method = "GET";
  std::string url;
  Pairs headers;
  std::string body;
  long timeout_ms = 5000;
  bool uses_proxy = true;  // proxy settings of the environment
  bool verifies = true;
  std::string ca_file;
};
struct FetchAnswer {
  std::string error;  // why there is no answer
  long status = 0;
  std::string body;  // at most 256 KiB
};
using Fetch = std::function<FetchAnswer(const FetchRequest&)>;

}  // namespace kvbm_s3

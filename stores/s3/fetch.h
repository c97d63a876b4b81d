// Small requests that are waited for: those for credentials.
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
  bool uses_proxy = true;  // as the environment says
  bool verifies = true;
  std::string ca_file;
};
struct FetchAnswer {
  std::string error;  // why there is none
  long status = 0;
  std::string body;  // at most 256 KiB
};
using Fetch = std::function<FetchAnswer(const FetchRequest&)>;

}  // namespace kvbm_s3
